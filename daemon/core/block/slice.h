/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slices: bounds on the work that one request does in a turn. A request of many keys does a slice
 * of core_work() units, and continues in another turn.
 */
#ifndef KVC_CORE_SLICE_H
#define KVC_CORE_SLICE_H

#include "state.h"

/* The most long requests (serve/ask.c) that may be under way in slices at a time. */
#define ASKS_MAX 16u

/* What steps cost, in units of core_work(). */
enum work {
    WORK_LOOK = 1,   /* a key is looked up; a block is held, touched or released */
    WORK_BLOCK = 16, /* a block is announced or removed, or a copy of one is begun */
    WORK_SLICE = 1024
};
/* The work of one slice. */
static inline uint32_t work_of_slice(const struct core *c)
{
    return c->cfg.slice_work ? c->cfg.slice_work : WORK_SLICE;
}
/* Begins a slice. */
static inline void work_slice(struct core *c)
{
    c->work.slice_end = c->work.done + work_of_slice(c);
}
static inline bool slice_over(const struct core *c)
{
    return c->work.done >= c->work.slice_end;
}

/* In a search for a victim a policy passes over blocks that may not be evicted: each once, but
 * perhaps thousands. A slice of a reservation looks at a bounded number of them
 * (core->work.looks_left), and the next slice continues. Blocks that the reservation itself holds,
 * of which there are few, return to the policy at its end; so the bound is larger than their
 * number. */
#define LOOKS_NO_END UINT64_MAX
static inline uint64_t looks_of_slice(const struct core *c)
{
    return MAX(work_of_slice(c) / 4, 16u);
}
/* Whether the search has used up the looks of its slice: no victim does not mean that none is
 * left. */
static inline bool evict_paused(const struct core *c)
{
    return c->work.looks_left == 0;
}

static inline struct core_seen block_seen(const struct core *c, const struct block *b)
{
    return b ? (struct core_seen){block_no(c, b), b->gen} : (struct core_seen){CORE_NONE, 0};
}
/* The block that was seen; NULL: it has been removed since, or none was seen. */
static inline struct block *seen_block(const struct core *c, struct core_seen seen)
{
    struct block *b = seen.gen == 0 ? NULL : &c->blocks[seen.no];
    return b && b->gen == seen.gen && b->flags & BLOCK_F_LINKED ? b : NULL;
}

#endif
