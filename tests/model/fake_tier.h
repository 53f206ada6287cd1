/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tier behind tier.h for tests: memory in regions, exact limits, and copies that end when the
 * test says so, in an order and with failures that the test chooses.
 *
 * A region is what a chunk is to the host tier: it belongs to one principal, its slots have one
 * size, and it is nobody's again when it is empty. Misuse by the caller fails a MUST: a free, a
 * label or a view at the wrong time, a double free, an operation on room that is not the
 * principal's. fake_tier_destroy() fails one when room or operations are left.
 */
#ifndef KVC_TEST_FAKE_TIER_H
#define KVC_TEST_FAKE_TIER_H

#include "tier.h"

struct fake_tier;

struct fake_tier_config {
    uint32_t regions;       /* 1 to 1,000 */
    uint32_t region_bytes;  /* of slots */
    uint32_t slot_align;    /* a slot is a multiple of this */
    uint64_t seed;          /* of fake_tier_run() */
    uint32_t chunk_base;    /* chunk numbers are above it */
    uint64_t lasting_bytes; /* that may stay whoever wants room; 0: all */
    uint64_t bytes_per_s;   /* at which it says that it is read; 0: unknown */
};

struct fake_tier *fake_tier_create(const struct fake_tier_config *config);
void fake_tier_destroy(struct fake_tier **tier);
struct tier *fake_tier_of(struct fake_tier *f);

/* Seen from the test, in the order of submission. */
unsigned fake_tier_inflight(const struct fake_tier *f);
struct tier_op *fake_tier_op(struct fake_tier *f, unsigned i);
/* Ends one operation: 0 copies all bytes; -EIO, -ETIMEDOUT and -ECANCELED copy about half of them
 * first. -ECANCELED only of one that was asked to stop. */
void fake_tier_end(struct fake_tier *f, struct tier_op *op, int status);
/* Ends up to `n` operations in random order; of a hundred, about `fail_pct` fail. Returns how many
 * ended. */
unsigned fake_tier_run(struct fake_tier *f, unsigned n, unsigned fail_pct);

/* Called when an operation has ended, before its done(). May be NULL. */
typedef void fake_tier_ended_fn(void *ctx, struct tier_op *op);
void fake_tier_on_end(struct fake_tier *f, fake_tier_ended_fn *fn, void *ctx);
/* Called for each submitted operation. */
void fake_tier_on_submit(struct fake_tier *f, fake_tier_ended_fn *fn, void *ctx);

/* For who reads or writes payload without an operation, as a device does. Between the two calls the
 * room must not be freed, nor used otherwise. To write: room without a label; `landed`: it may
 * be labelled then, else it is as it was. To read: labelled room. */
struct tier_loc fake_tier_at(const struct fake_tier *f, const void *payload);
uint8_t *fake_tier_memory(const struct fake_tier *f, struct tier_loc loc);
void fake_tier_use(struct fake_tier *f, struct tier_loc loc, uint32_t bytes, bool write);
void fake_tier_unuse(struct fake_tier *f, struct tier_loc loc, bool write, bool landed);
/* Out of service: all that is labelled is invalidated, and nothing is handed out until it ends. */
void fake_tier_out(struct fake_tier *f, bool out);

/* What a worker sees through a view. NULL / false when the slot holds something else by now (the
 * generation differs). */
const uint8_t *fake_tier_bytes(const struct fake_tier *f, const struct tier_view *view);
bool fake_tier_label(const struct fake_tier *f, const struct tier_view *view,
                     struct tier_label *ret_label);
/* Memory that goes bad: one bit of byte `at` of a labelled slot. */
void fake_tier_flip(struct fake_tier *f, const struct tier_view *view, uint32_t at);
/* The process died: what was under way never happened. */
void fake_tier_crash(struct fake_tier *f);
/* After that: each thing that is there. The owner it has from now on; UINT32_MAX: it goes. */
typedef uint32_t fake_found_fn(void *ctx, const struct tier_label *label, struct tier_loc loc);
void fake_tier_each(struct fake_tier *f, fake_found_fn *fn, void *ctx);
uint32_t fake_tier_evacuations(const struct fake_tier *f);

/* How a payload of these tests looks: bytes that depend on all of key, shard and position. */
void fake_fill(uint8_t *to, uint32_t bytes, const uint8_t key[32], uint32_t shard);
bool fake_is_filled(const uint8_t *at, uint32_t bytes, const uint8_t key[32], uint32_t shard);

/* xorshift; `*state` is not 0. */
uint64_t fake_random(uint64_t *state);

#endif
