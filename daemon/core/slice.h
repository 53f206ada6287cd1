/* SPDX-License-Identifier: Apache-2.0 */
/* Work that is done in slices; the end of core__.h, which includes it. */
#ifndef KVC_CORE_SLICE_H
#define KVC_CORE_SLICE_H

#include "core__.h"

/* What things cost, in units of core_work(). */
enum work {
    WORK_LOOK = 1,   /* a key is looked up, a block held, touched, or let go of */
    WORK_BLOCK = 16, /* a block is announced, or goes, or a copy of it is begun */
    WORK_SLICE = 1024
};
static inline uint32_t work_of_slice(const struct core *c)
{
    return c->cfg.slice_work ? c->cfg.slice_work : WORK_SLICE;
}
static inline void work_slice(struct core *c)
{
    c->slice_end = c->work + work_of_slice(c);
}
static inline bool slice_over(const struct core *c)
{
    return c->work >= c->slice_end;
}

/* A policy sets blocks aside that may not leave, each once, but perhaps thousands in one search for
 * a victim. A slice of a reservation looks at some, and goes on in the next one. The few that it
 * holds itself come back to the policy at its end, so it looks at more than these. */
#define LOOKS_NO_END UINT64_MAX
static inline uint64_t looks_of_slice(const struct core *c)
{
    return MAX(work_of_slice(c) / 4, 16u);
}
static inline bool evict_paused(const struct core *c)
{
    return c->looks_left == 0;
}

static inline struct core_seen block_seen(const struct core *c, const struct block *b)
{
    return b ? (struct core_seen){block_no(c, b), b->gen} : (struct core_seen){CORE_NONE, 0};
}
/* NULL: it has gone since. */
static inline struct block *seen_block(const struct core *c, struct core_seen seen)
{
    struct block *b = seen.gen == 0 ? NULL : &c->blocks[seen.no];
    return b && b->gen == seen.gen && b->flags & BLOCK_F_LINKED ? b : NULL;
}

/* climb.c: *held is the block that the caller holds, CORE_NONE: none. */
/* Goes on to hold b, which is PRESENT, in place of *held, in slices; between two of them a block
 * before it may be *held. 0: b is, or by others as often as may be. CORE_MORE; KVC_E_*: as
 * unevictable_hold(). */
int climb_step(struct core *c, struct core_climb *x, struct block *b,
               uint32_t *held) KVC_WARN_UNUSED;
/* The same at once. */
int climb_hold(struct core *c, struct block *b, uint32_t *held) KVC_WARN_UNUSED;
void climb_let_go(struct core *c, uint32_t *held);

/* resv.c: drops a slice of what is reserved, from the last entry on. True: there is more to do.
 * The caller has an entry open. */
bool resv_drop_some(struct core *c, struct reservation *r);
/* All of it, now; as above. */
void resv_drop_open(struct core *c, struct reservation *r);
/* client.c: nobody has to do with it any more: it is dropped at once, unless others have let go of
 * much in this turn; then in slices. The client lasts until then. */
void resv_go(struct core *c, struct reservation *r);
/* The same of one that is between two slices: it has an entry open that counts as busy. */
void resv_leave(struct core *c, struct reservation *r);
/* A slice of what is left so; true: there is more. */
bool resv_step(struct core *c);

/* ask.c */
#define ASKS_MAX 16u
uint64_t asks_bytes(void);
/* Blocks that they hold, each as often as they do; for core_check(). */
uint64_t asks_hold(const struct core *c);
/* A slice of letting go of what those hold that nobody asks for any more; true: there is more. */
bool ask_step(struct core *c);
bool asks_are_leaving(const struct core *c); /* there are some */
/* The lookup at hand is one that is done in one piece. */
void ask_leave(struct core *c);

/* lease.c: a turn begins. */
void lease_turn(struct core *c);
/* A slice of letting go of the blocks of large leases that have ended; true: there are more. */
bool lease_step(struct core *c);
bool leases_are_leaving(const struct core *c); /* there are some */

/* load.c. Nobody waits for it any more: it is freed, or in slices where it holds much. */
void load_free(struct core *c, struct core_load *l);
void load_cancel_all(struct core *c, const struct core_client *cl);
/* A slice of letting go of the blocks of such; true: there are more. */
bool load_step(struct core *c);
bool loads_are_leaving(const struct core *c); /* there are some */

/* block.c: a slice of letting go of what was held before a block in its chain; true: there is more.
 */
bool unhold_step(struct core *c);
uint32_t unhold_waiting(const struct core *c); /* blocks from which that goes on */
void unhold_turn(struct core *c);              /* a turn begins */

#endif
