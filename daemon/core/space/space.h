/* SPDX-License-Identifier: Apache-2.0 */
/* Room for blocks: who goes for it, and the moves between tiers by which it is made. */
#ifndef KVC_CORE_SPACE_H
#define KVC_CORE_SPACE_H

#include "block.h"

/* ---- evict.c ---- */

/* How b is taken into host memory. */
struct welcome {
    struct tier_loc near; /* beside this, if there is room */
    bool patient;         /* KVC_E_BUSY instead of losing what is on its way to disk, or could be */
    bool judged;          /* KVC_E_NOT_WORTH if what would go for it is worth more; until something
                           * has gone */
    unsigned level;       /* judged: that it is to stay at */
    struct policy_hint hint; /* judged */
};
/* Of two blocks, a goes before b: it is of a lower level, or of the same and used longer ago. */
bool evict_goes_first(struct core *c, const struct block *a, const struct block *b);
/* What goes next of what may leave memory so that `payer` has room: only of `within` and those
 * below it, 0: of everybody. POLICY_NO_BLOCK: none, or evict_paused(). */
uint32_t evict_next(struct core *c, uint32_t payer, uint32_t within);
/* The block that evict_next() named goes, with all below it, for what comes in so: 0,
 * KVC_E_NOT_WORTH if judged, KVC_E_FULL: not so now, it is as good as used. patient: as below. */
int evict_victim(struct core *c, uint32_t payer, uint32_t victim, bool patient,
                 struct welcome *w) KVC_WARN_UNUSED;
/* b and everything below it goes for good, unless some of it is in use, pinned or durable, or it is
 * a lot; patient: or of a higher level than b. */
bool evict_subtree(struct core *c, struct block *b, bool patient);
/* The same of what may go of it; returns how many blocks went, also added to *counter. */
uint32_t evict_tree(struct core *c, uint32_t root, uint64_t *counter);
/* One block goes, so that `payer` has a record or a part: 0, KVC_E_FULL when none can,
 * KVC_E_NOT_WORTH if judged. */
int evict_one(struct core *c, uint32_t payer, struct welcome *w) KVC_WARN_UNUSED;

/* ---- reads.c ---- */

/* Something is known of it. */
bool reads_are_known(const struct core *c);
/* A read from disk begins, beside core->reading_bytes of others; has ended, and they are left. */
void worth_read_begun(struct core *c, uint64_t bytes);
void worth_read_ended(struct core *c, uint64_t bytes, bool ok);
/* What is known of it so far. */
void worth_disk_speed(const struct core *c, struct worth_speed *ret_speed);

/* ---- space.c ---- */

/* A slot in memory, or of a device, for which others may have to go. */
struct slot_ask {
    struct tier *tier;
    uint32_t principal, bytes;
    uint32_t owner; /* the record, or the copy, that it is for */
    struct tier_loc beside;
    int (*may)(struct core *c, struct slot_ask *ask); /* NULL: always; else asked each time */
    /* One slot becomes free, or an error. *in_vain grows by slot_is_vain() of it. */
    int (*make)(struct core *c, struct slot_ask *ask, uint32_t *in_vain);
    /* A region is emptied, as tier_memory_ops.drain does it. */
    uint32_t (*drain)(struct core *c, struct slot_ask *ask);
};
/* Lets others go until there is one; what goes in vain, of other sizes or principals, is bounded.
 * 0; what `may`, `make` or the tier said. */
int slot_take(struct core *c, struct slot_ask *ask, struct tier_loc *ret_loc) KVC_WARN_UNUSED;
/* A free slot there is of no use to who asks. */
static inline bool slot_is_vain(const struct slot_ask *ask, struct tier_loc loc)
{
    return !ask->tier->memory->helps(ask->tier, loc, ask->principal, ask->bytes);
}

/* Room for one shard of b in the host tier, evicting on demand. 0, KVC_E_FULL, KVC_E_QUOTA,
 * KVC_E_TOO_LARGE. */
int host_take(struct core *c, const struct block *b, struct welcome *w,
              struct tier_loc *ret_loc) KVC_WARN_UNUSED;
/* The same on disk, where storage makes room. must: see quota_disk(). KVC_E_NO_ROOM, _QUOTA. */
int disk_take(struct core *c, const struct block *b, struct tier_loc near, bool must,
              struct tier_loc *ret_loc) KVC_WARN_UNUSED;

/* ---- quota_limit.c ---- */

/* Room within hard limits for `bytes` more of ns in host memory: 0, KVC_E_QUOTA, KVC_E_BUSY if
 * patient, KVC_E_NOT_WORTH if judged. */
int quota_room(struct core *c, const struct core_ns *ns, uint32_t bytes,
               struct welcome *w) KVC_WARN_UNUSED;
/* The same on disk: what is on disk of who is over its limit goes; copies of clean blocks only for
 * what must be written (a promise), for else they would be written anew. KVC_E_QUOTA. */
int quota_disk(struct core *c, const struct core_ns *ns, uint64_t bytes, bool must) KVC_WARN_UNUSED;
/* Some of its owners has more in memory than leaves it a margin below its limit. */
bool quota_tight(const struct core *c, const struct core_ns *ns);
bool quota_step(struct core *c);

/* ---- place.c ---- */

/* What memory cannot let go of yet, it can soon: it is being written, or room for it is made. */
bool leaving_soon(const struct core *c);
/* Begins to save what goes next, until enough is clean or on its way. True: there is more to do. */
bool place_fill(struct core *c);
/* The same, so that there is room for so much too, which is waited for. */
void place_want(struct core *c, uint64_t bytes);
/* Host memory had no room, whatever its limit says: what is below the limit then is in rooms of
 * other sizes, or of nobody, and counts as none. */
void place_pressed(struct core *c);
/* Stores that wait for room, as far as there is some, or none will come. */
void room_wake(struct core *c);
/* The chance that somebody asks for a block before its place on disk is written over, or would be
 * if it were written now; 1: not known. */
float disk_chance(const struct core *c, uint32_t no);

/* ---- move.c ---- */

/* Storage has its own timeouts; this bounds what none of them does. */
#define MOVE_DEADLINE_NS (UINT64_C(120) * 1000000000)

enum save_why {
    SAVE_COPY,     /* so that there is one */
    SAVE_ANCESTOR, /* the same, for what builds on it and is there */
    SAVE_LEAVING,  /* so that its copy in memory can go */
    SAVE_PROMISE,  /* durable, for somebody who was promised that */
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
