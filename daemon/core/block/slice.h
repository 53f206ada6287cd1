/* SPDX-License-Identifier: Apache-2.0 */
/* Work that is done in slices. */
#ifndef KVC_CORE_SLICE_H
#define KVC_CORE_SLICE_H

#include "state.h"

/* Long requests that go on in slices at a time. */
#define ASKS_MAX 16u

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

#endif
