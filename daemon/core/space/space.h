/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for blocks: which block is evicted for it, and the moves between memory and disk by which it
 * is made. Stores call host_take(), loads load_begin(), background steps place_fill() and
 * save_begin().
 */
#ifndef KVC_CORE_SPACE_H
#define KVC_CORE_SPACE_H

#include "block.h"

/* ---- evict.c ---- */

/* How a block is taken into host memory. */
struct alloc_request {
    struct tier_loc beside; /* beside this location, if there is room */
    bool patient;           /* KVC_E_BUSY instead of evicting blocks that are being written to disk,
                             * or could be */
    bool judged;            /* KVC_E_NOT_WORTH if the victim is worth more; cleared after the first
                             * eviction */
    unsigned level;         /* judged: the level of the new block */
    struct policy_hint hint; /* judged: what the policy would be told of the new block */
};
/* Whether a is evicted before b: a is of a lower level, or of the same level and used longer ago.
 */
bool evict_goes_first(struct core *c, const struct block *a, const struct block *b);
/* The next victim in memory (record number) when `account` needs room. within: only blocks of this
 * owner and of owners below it; 0: of all owners. POLICY_NO_BLOCK: there is none, or
 * evict_paused(). */
uint32_t evict_next(struct core *c, uint32_t account, uint32_t within);
/* Evicts the victim that evict_next() named, with all blocks below it. 0. KVC_E_NOT_WORTH: w is
 * judged, and the victim is worth more. KVC_E_FULL: the victim cannot be evicted now, and counts as
 * just used. spare_higher: as in evict_subtree(). */
int evict_victim(struct core *c, uint32_t account, uint32_t victim, bool spare_higher,
                 struct alloc_request *w) KVC_WARN_UNUSED;
/* Evicts b and all blocks below it for good. False: none was evicted, because one of them is in
 * use, pinned or durable, or they are too many, or (spare_higher) one has a higher level than b. */
bool evict_subtree(struct core *c, struct block *b, bool spare_higher);
/* Evicts those blocks of a tree that may be evicted. Returns how many, and adds that to *counter.
 */
uint32_t evict_tree(struct core *c, uint32_t root, uint64_t *counter);
/* Evicts one block, so that `account` gets a record or a part. 0; KVC_E_FULL: no block can be
 * evicted; KVC_E_NOT_WORTH: w is judged, and the victim is worth more. */
int evict_one(struct core *c, uint32_t account, struct alloc_request *w) KVC_WARN_UNUSED;

/* ---- reads.c ---- */

/* Whether a read has been measured. */
bool reads_are_known(const struct core *c);
/* Measures reads from disk: one of so many bytes begins, or has ended. core->moving.reading_bytes
 * has only the bytes of other reads. */
void reads_begun(struct core *c, uint64_t bytes);
void reads_ended(struct core *c, uint64_t bytes, bool ok);
/* Fills in the speed of the disk, as far as it is known. */
void reads_disk_speed(const struct core *c, struct worth_speed *ret_speed);

/* ---- space.c ---- */

/* A request for a slot, in memory or of a device, for which blocks may have to be evicted. */
struct slot_ask {
    struct tier *tier;
    uint32_t principal, bytes;
    uint32_t block_no;      /* of the record, or of the HBM copy, that gets the slot */
    struct tier_loc beside; /* the slot is taken beside this location, if there is room */
    /* Whether a slot may be taken: 0, or an error. Called before each try; NULL: it always may. */
    int (*may)(struct core *c, struct slot_ask *ask);
    /* Frees one slot: 0, or an error. Adds to *in_vain if slot_is_vain() of that slot. */
    int (*make)(struct core *c, struct slot_ask *ask, uint32_t *in_vain);
    /* Empties a region, as tier_memory_ops.evacuate does. */
    uint32_t (*evacuate)(struct core *c, struct slot_ask *ask);
};
/* Takes a slot, and evicts until there is one. The number of evictions in vain, which free slots of
 * other sizes or principals, is bounded. 0, or the error of `may`, `make` or the tier. */
int slot_take(struct core *c, struct slot_ask *ask, struct tier_loc *ret_loc) KVC_WARN_UNUSED;
/* Whether a free slot at loc would be of no use to the asker. */
static inline bool slot_is_vain(const struct slot_ask *ask, struct tier_loc loc)
{
    return !ask->tier->memory->helps(ask->tier, loc, ask->principal, ask->bytes);
}

/* Takes room for one shard of b in the host tier; evicts blocks if there is none. 0, KVC_E_FULL,
 * KVC_E_QUOTA, KVC_E_TOO_LARGE; KVC_E_BUSY and KVC_E_NOT_WORTH as struct alloc_request says. */
int host_take(struct core *c, const struct block *b, struct alloc_request *w,
              struct tier_loc *ret_loc) KVC_WARN_UNUSED;
/* Takes room for one shard of b on disk, where storage itself makes room. must: as in quota_disk().
 * 0, KVC_E_NO_ROOM, KVC_E_QUOTA. */
int disk_take(struct core *c, const struct block *b, struct tier_loc beside, bool must,
              struct tier_loc *ret_loc) KVC_WARN_UNUSED;

/* ---- quota_limit.c ---- */

/* Evicts blocks in host memory until `bytes` more of ns are within hard limits. 0, KVC_E_QUOTA;
 * KVC_E_BUSY and KVC_E_NOT_WORTH as struct alloc_request says. */
int quota_room(struct core *c, const struct core_ns *ns, uint32_t bytes,
               struct alloc_request *w) KVC_WARN_UNUSED;
/* quota_room() for disk: evicts blocks on disk of the owner that is over its limit. must: the block
 * is written for a promise; then copies on disk of clean blocks are dropped too, though they would
 * be written again. 0, KVC_E_QUOTA. */
int quota_disk(struct core *c, const struct core_ns *ns, uint64_t bytes, bool must) KVC_WARN_UNUSED;
/* Whether an owner of ns has less than a margin left below its limit in memory. */
bool quota_tight(const struct core *c, const struct core_ns *ns);
/* Moves blocks to the policy's lists of their owners after quotas have changed, and evicts blocks
 * of owners that are above a limit; some at a call. True: there is more to do. */
bool quota_step(struct core *c);

/* ---- place.c ---- */

/* Whether memory can soon be freed: blocks are being written to disk, or storage makes room for
 * them. */
bool leaving_soon(const struct core *c);
/* Begins to write the next victims to disk, until enough bytes are clean or being written. True:
 * there is more to do. */
bool place_fill(struct core *c);
/* From now on place_fill() also makes room for `bytes`, for which a store waits. */
void place_want(struct core *c, uint64_t bytes);
/* Tells that host memory had no room though it is below its limit: the bytes that are free then are
 * in slots of other sizes, or cannot be used, and do not count as free from now on. */
void place_pressed(struct core *c);
/* Wakes stores that wait for room, as many as there is room for, or all if none can be expected. */
void room_wake(struct core *c);
/* The chance that a block, written to disk now, is asked for before its place there is written
 * over; for a block on disk: from now on. 1: it is not known. */
float disk_chance(const struct core *c, uint32_t no);

/* ---- move.c ---- */

/* The deadline of a move, for an operation that storage's own timeouts do not end. */
#define MOVE_DEADLINE_NS (UINT64_C(120) * 1000000000)

enum save_why {
    SAVE_COPY,     /* so that disk has a copy too */
    SAVE_ANCESTOR, /* because blocks on disk build on it */
    SAVE_LEAVING,  /* so that its copy in memory can be dropped */
    SAVE_PROMISE,  /* durable, for a client that was promised that */
    SAVE_PIN       /* durable while it is pinned or named */
};
uint64_t moves_bytes(void);
const struct pool *move_pool(const struct core *c); /* of struct move */
/* Begins to write a block to disk that is in host memory and not moving. 0. KVC_E_BUSY: try again
 * later; KVC_E_FULL, KVC_E_QUOTA. */
int save_begin(struct core *c, struct block *b, enum save_why why) KVC_WARN_UNUSED;
/* Begins to read a block from disk into host memory, or to check one that was found in host memory
 * at start. 0. KVC_E_BUSY: try again later; KVC_E_FULL; KVC_E_GONE: it cannot be read now. */
int load_begin(struct core *c, struct block *b) KVC_WARN_UNUSED;

#endif
