/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tier behind tier.h for tests: memory in regions, exact limits, and copies that end when the
 * test says so, in an order and with failures that it chooses.
 *
 * A region stands for a chunk of the host tier: it belongs to one principal, its slots have one
 * size, and it is free again when it is empty. Misuse fails a MUST: a free, label or view at the
 * wrong time, a double free, an operation on another principal's room. So does fake_tier_destroy()
 * if room or operations are left.
 */
#ifndef KVC_TEST_FAKE_TIER_H
#define KVC_TEST_FAKE_TIER_H

#include "tier.h"

struct fake_tier;

struct fake_tier_config {
    uint32_t regions;       /* 1 to 1,000 */
    uint32_t region_bytes;  /* bytes of a region's slots */
    uint32_t slot_align;    /* the size of a slot is a multiple of this */
    uint64_t seed;          /* for fake_tier_run() */
    uint32_t chunk_base;    /* chunk numbers are larger than this */
    uint64_t lasting_bytes; /* bytes that bound blocks may take; 0: all */
    uint64_t bytes_per_s;   /* tier_stats.bytes_per_s; 0: unknown */
};

struct fake_tier *fake_tier_create(const struct fake_tier_config *config);
void fake_tier_destroy(struct fake_tier **tier);
struct tier *fake_tier_of(struct fake_tier *f);

/* Operations in flight, in the order of submission. */
unsigned fake_tier_inflight(const struct fake_tier *f);
struct tier_op *fake_tier_op(struct fake_tier *f, unsigned i);
/* Ends one operation with this status. 0: all bytes are copied; -EIO, -ETIMEDOUT and -ECANCELED:
 * about half of them. -ECANCELED only if the operation was asked to stop. */
void fake_tier_end(struct fake_tier *f, struct tier_op *op, int status);
/* Ends up to `n` operations in random order; about `fail_pct` percent fail. Returns how many ended.
 */
unsigned fake_tier_run(struct fake_tier *f, unsigned n, unsigned fail_pct);

/* Called when an operation has ended, before its done(); or when one was submitted. May be NULL. */
typedef void fake_tier_ended_fn(void *ctx, struct tier_op *op);
void fake_tier_on_end(struct fake_tier *f, fake_tier_ended_fn *fn, void *ctx);
/* Called for each submitted operation. */
void fake_tier_on_submit(struct fake_tier *f, fake_tier_ended_fn *fn, void *ctx);

/* For a device, which reads or writes payload without an operation. Between use and unuse the room
 * must not be freed or used otherwise. write: the room must have no label; landed: it may be
 * labelled afterwards, else it is unchanged. Not write: the room must be labelled. */
struct tier_loc fake_tier_at(const struct fake_tier *f, const void *payload);
uint8_t *fake_tier_memory(const struct fake_tier *f, struct tier_loc loc);
void fake_tier_use(struct fake_tier *f, struct tier_loc loc, uint32_t bytes, bool write);
void fake_tier_unuse(struct fake_tier *f, struct tier_loc loc, bool write, bool landed);
/* out: all labelled room is invalidated, and no room is given until the tier is back. */
void fake_tier_out(struct fake_tier *f, bool out);

/* What a worker sees through a view. NULL or false: the slot holds something else now (the
 * generation differs). */
const uint8_t *fake_tier_bytes(const struct fake_tier *f, const struct tier_view *view);
bool fake_tier_label(const struct fake_tier *f, const struct tier_view *view,
                     struct tier_label *ret_label);
/* Simulates bad memory: changes one bit of byte `at` of a labelled slot. */
void fake_tier_flip(struct fake_tier *f, const struct tier_view *view, uint32_t at);
/* Simulates the death of the process: operations in flight have no effect. */
void fake_tier_crash(struct fake_tier *f);
/* Called after fake_tier_crash() for each slot. Returns its new block_no; UINT32_MAX: the slot is
 * freed. */
typedef uint32_t fake_found_fn(void *ctx, const struct tier_label *label, struct tier_loc loc);
void fake_tier_each(struct fake_tier *f, fake_found_fn *fn, void *ctx);
uint32_t fake_tier_evacuations(const struct fake_tier *f);

/* Writes a payload that depends on key, shard and position. */
void fake_fill(uint8_t *to, uint32_t bytes, const uint8_t key[32], uint32_t shard);
bool fake_is_filled(const uint8_t *at, uint32_t bytes, const uint8_t key[32], uint32_t shard);

/* xorshift; `*state` is not 0. */
uint64_t fake_random(uint64_t *state);

#endif
