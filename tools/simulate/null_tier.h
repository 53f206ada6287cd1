/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiers behind tier.h that hold no bytes, for running the core to see its decisions. Room is a
 * number. All operations succeed, and end in null_tier_run(). Blocks have one principal and one
 * size. One thread.
 */
#ifndef NULL_TIER_H
#define NULL_TIER_H

#include "bench.h"
#include "tier.h"

struct null_tier;

/* Host memory of so many slots. NULL: out of memory. */
BENCH_MUST_USE struct null_tier *null_host_create(uint32_t slots, uint32_t block_bytes);
/* Storage as a log. Places are written one behind another, and the segment that comes next is
 * reclaimed first. Blocks of it that are kept move to the segment's beginning. All places hold
 * blocks: a real store's own needs are not subtracted. */
BENCH_MUST_USE struct null_tier *null_log_create(uint32_t places, uint32_t block_bytes);
/* Accepts NULL and a pointer to NULL. */
void null_tier_destroy(struct null_tier **tier);
struct tier *null_tier_of(struct null_tier *t);

/* Ends all submitted operations; in a log it also moves the kept blocks. Returns the number of
 * steps that were done; 0: nothing is left to do. */
unsigned null_tier_run(struct null_tier *t);

/* ---- functions of a log ---- */

void null_log_tick(struct null_tier *t, uint64_t now_ms);
/* Allows writes of so many more bytes. Without any call writes are not limited. */
void null_log_grant(struct null_tier *t, uint64_t bytes);
/* Blocks of a segment; they are reclaimed together. */
uint32_t null_log_segment(const struct null_tier *t);

struct null_written {
    /* Blocks written the first time; blocks written again when their segment was reclaimed. */
    uint64_t first, again;
};
struct null_written null_log_written(const struct null_tier *t);

#endif
