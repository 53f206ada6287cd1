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
/* Whether a is evicted before b: it is of a lower level, or of the same and used longer ago. */
bool evict_goes_first(struct core *c, const struct block *a, const struct block *b);
/* The next victim, so that `account` has room in memory: only of `within` and owners below it, 0:
 * of all. POLICY_NO_BLOCK: none, or evict_paused(). */
uint32_t evict_next(struct core *c, uint32_t account, uint32_t within);
/* Evicts the victim that evict_next() named, with all below it. 0; KVC_E_NOT_WORTH if judged;
 * KVC_E_FULL: it cannot be evicted now, and counts as just used. patient: as below. */
int evict_victim(struct core *c, uint32_t account, uint32_t victim, bool patient,
                 struct alloc_request *w) KVC_WARN_UNUSED;
/* Evicts b and everything below it for good. False, and nothing is evicted: a block of it is in
 * use, pinned or durable, or there are many; patient: or one is of a higher level than b. */
bool evict_subtree(struct core *c, struct block *b, bool patient);
/* Evicts those blocks of a tree that may be evicted; returns how many, also added to *counter. */
uint32_t evict_tree(struct core *c, uint32_t root, uint64_t *counter);
/* Evicts one block, so that `account` has a record or a part: 0; KVC_E_FULL when none can be;
 * KVC_E_NOT_WORTH if judged. */
int evict_one(struct core *c, uint32_t account, struct alloc_request *w) KVC_WARN_UNUSED;

/* ---- reads.c ---- */

/* Whether a read has been measured. */
bool reads_are_known(const struct core *c);
/* A read from disk begins, beside core->reading_bytes of others; has ended, and these are left. */
void worth_read_begun(struct core *c, uint64_t bytes);
void worth_read_ended(struct core *c, uint64_t bytes, bool ok);
/* Fills in the speed of the disk, as far as known. */
void worth_disk_speed(const struct core *c, struct worth_speed *ret_speed);

/* ---- space.c ---- */

/* A request for a slot, in memory or of a device, for which blocks may have to be evicted. */
struct slot_ask {
    struct tier *tier;
    uint32_t principal, bytes;
    uint32_t owner; /* the record, or the HBM copy, that the slot is for */
    struct tier_loc beside;
    int (*may)(struct core *c, struct slot_ask *ask); /* whether a slot may be taken; called before
                                                       * each try; NULL: always */
    /* Frees one slot: 0, or an error. *in_vain grows if slot_is_vain() of it. */
    int (*make)(struct core *c, struct slot_ask *ask, uint32_t *in_vain);
    /* Empties a region, as tier_memory_ops.evacuate does. */
    uint32_t (*evacuate)(struct core *c, struct slot_ask *ask);
};
/* Takes a slot, and evicts until there is one. Evictions in vain, of other sizes or principals, are
 * bounded. 0; or the error of `may`, `make` or the tier. */
int slot_take(struct core *c, struct slot_ask *ask, struct tier_loc *ret_loc) KVC_WARN_UNUSED;
/* Whether a free slot at loc would be of no use to the asker. */
static inline bool slot_is_vain(const struct slot_ask *ask, struct tier_loc loc)
{
    return !ask->tier->memory->helps(ask->tier, loc, ask->principal, ask->bytes);
}

/* Takes room for one shard of b in the host tier, evicting on demand. 0, KVC_E_FULL, KVC_E_QUOTA,
 * KVC_E_TOO_LARGE; KVC_E_BUSY, KVC_E_NOT_WORTH as w says. */
int host_take(struct core *c, const struct block *b, struct alloc_request *w,
              struct tier_loc *ret_loc) KVC_WARN_UNUSED;
/* Takes room for one shard of b on disk, where storage makes room. must: see quota_disk().
 * KVC_E_NO_ROOM, _QUOTA. */
int disk_take(struct core *c, const struct block *b, struct tier_loc beside, bool must,
              struct tier_loc *ret_loc) KVC_WARN_UNUSED;

/* ---- quota_limit.c ---- */

/* Makes room within hard limits for `bytes` more of ns in host memory: 0, KVC_E_QUOTA, KVC_E_BUSY
 * if patient, KVC_E_NOT_WORTH if judged. */
int quota_room(struct core *c, const struct core_ns *ns, uint32_t bytes,
               struct alloc_request *w) KVC_WARN_UNUSED;
/* quota_room() for disk: evicts blocks on disk of the owner that is over its limit. Copies of clean
 * blocks are dropped only for a block that must be written (a promise), because they would be
 * written again. KVC_E_QUOTA. */
int quota_disk(struct core *c, const struct core_ns *ns, uint64_t bytes, bool must) KVC_WARN_UNUSED;
/* Whether an owner of ns has so much in memory that less than a margin is left below its limit. */
bool quota_tight(const struct core *c, const struct core_ns *ns);
bool quota_step(struct core *c);

/* ---- place.c ---- */

/* Whether memory can soon be freed: blocks are being written to disk, or storage makes room for
 * them. */
bool leaving_soon(const struct core *c);
/* Begins to write the next victims to disk, until enough is clean or being written. True: there is
 * more to do. */
bool place_fill(struct core *c);
/* place_fill() until there is room for `bytes` too, which a store waits for. */
void place_want(struct core *c, uint64_t bytes);
/* Host memory had no room below its limit. What is free then is in slots of other sizes, or of no
 * use, and counts as none from now on. */
void place_pressed(struct core *c);
/* Wakes stores that wait for room, as far as there is some, or none can be expected. */
void room_wake(struct core *c);
/* The chance that a block is asked for before its place on disk is written over, or would be if it
 * were written now; 1: not known. */
float disk_chance(const struct core *c, uint32_t no);

/* ---- move.c ---- */

/* Storage has its own timeouts; this bounds what none of them does. */
#define MOVE_DEADLINE_NS (UINT64_C(120) * 1000000000)

enum save_why {
    SAVE_COPY,     /* so that there is a copy */
    SAVE_ANCESTOR, /* for blocks on disk that build on it */
    SAVE_LEAVING,  /* so that its copy in memory can be dropped */
    SAVE_PROMISE,  /* durable, for a client that was promised that */
    SAVE_PIN       /* durable while it is pinned or named */
};
uint64_t moves_bytes(void);
const struct pool *move_pool(const struct core *c); /* move */
/* Begins to write a block to disk that is in host memory and not moving. KVC_E_BUSY (later),
 * KVC_E_FULL, KVC_E_QUOTA. */
int save_begin(struct core *c, struct block *b, enum save_why why) KVC_WARN_UNUSED;
/* Begins to bring a block into host memory, or to check one that was found there. KVC_E_BUSY,
 * KVC_E_FULL, KVC_E_GONE (cannot be read now). */
int load_begin(struct core *c, struct block *b) KVC_WARN_UNUSED;

#endif
