/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiers behind tier.h that hold no bytes, so that the core can be run for what it decides. Room is
 * a number; operations end well, when null_tier_run() is called. For one principal's blocks, all of
 * one size. One thread.
 */
#ifndef NULL_TIER_H
#define NULL_TIER_H

#include "bench.h"
#include "tier.h"

struct null_tier;

/* Memory of so many slots. NULL: no memory for it. */
BENCH_MUST_USE struct null_tier *null_host_create(uint32_t slots, uint32_t block_bytes);
/* Storage as a log: places are written one behind the other, and what comes next is reclaimed a
 * segment at a time. What is kept of it moves to the segment's beginning. What a real store needs
 * for itself is not taken off. */
BENCH_MUST_USE struct null_tier *null_log_create(uint32_t places, uint32_t block_bytes);
/* Accepts NULL and a pointer to NULL. */
void null_tier_destroy(struct null_tier **tier);
struct tier *null_tier_of(struct null_tier *t);

/* Ends what was submitted, and of a log moves what is kept. Returns how much was done. */
unsigned null_tier_run(struct null_tier *t);

/* ---- of a log ---- */

void null_log_tick(struct null_tier *t, uint64_t now_ms);
/* From the first call on no more is written than was granted. */
void null_log_grant(struct null_tier *t, uint64_t bytes);
/* Blocks of a segment: so many go together. */
uint32_t null_log_segment(const struct null_tier *t);

struct null_written {
    uint64_t first, again; /* blocks; again: moved when their segment was reclaimed */
};
struct null_written null_log_written(const struct null_tier *t);

#endif
