/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many of a pool's units each of several holders has, so that none can starve the others.
 *
 * The rule: every holder is guaranteed `each` units. All others go to whoever comes first. So a
 * holder gets one more when it has fewer than `each`, or when the units left cover all that the
 * others may still ask for. With `each` = 0 nothing is guaranteed: first come, first served.
 *
 * Threads: one. Allocates in share_create() only.
 */
#ifndef KVC_BASE_SHARE_H
#define KVC_BASE_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "pool.h"

struct share {
    uint64_t total, each;
    /* used: units that holders have; owed: sum over all holders of the units that each has fewer
     * than `each`. */
    uint64_t used, owed;
    uint32_t holders;
    uint64_t *held;
};

/* A guarantee (`each`) for share_create(): equal parts of half of the pool, and at least one unit
 * each where the pool has one for every holder. */
uint64_t share_each(uint64_t total, uint32_t holders);
/* `each` is at most total / holders (MUST). -ENOMEM. */
KVC_WARN_UNUSED int share_create(struct share *s, uint64_t total, uint64_t each, uint32_t holders);
/* Accepts a zeroed struct. */
void share_destroy(struct share *s);
KVC_WARN_UNUSED bool share_take(struct share *s, uint32_t holder, uint64_t n);
/* The most units that share_take() would give this holder. */
uint64_t share_left(const struct share *s, uint32_t holder);
/* Takes n units even where they are guaranteed to others: for a use that cannot be refused any
 * more. */
void share_charge(struct share *s, uint32_t holder, uint64_t n);
void share_give(struct share *s, uint32_t holder, uint64_t n);
/* An object of the pool that the share counts; NULL when the holder has its share, or pool_get()
 * gives none. */
KVC_WARN_UNUSED void *share_get(struct share *s, uint32_t holder, struct pool *pool);
void share_put(struct share *s, uint32_t holder, struct pool *pool, void *obj);

#endif
