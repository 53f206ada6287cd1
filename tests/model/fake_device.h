/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device behind device.h for tests: slots that are a fake tier, workers' pools in plain memory,
 * and copies that end when the test says so, in an order and with failures that it chooses; it can
 * be lost and come back. Misuse by the caller fails a MUST: host memory or a slot that is freed or
 * used otherwise under a copy, a piece of the wrong size, a copy that is submitted twice.
 * fake_device_destroy() fails one when copies or slots are left.
 */
#ifndef KVC_TEST_FAKE_DEVICE_H
#define KVC_TEST_FAKE_DEVICE_H

#include "device.h"
#include "fake_tier.h"

struct fake_device;

struct fake_device_config {
    uint32_t no;
    uint32_t regions, region_bytes; /* of slots, as of a fake tier; regions 0: there are none */
    uint64_t seed;
    struct fake_tier *host; /* what core calls host memory; borrowed */
};

struct fake_device *fake_device_create(const struct fake_device_config *config);
void fake_device_destroy(struct fake_device **device);
struct device *fake_device_of(struct fake_device *f);
struct fake_tier *fake_device_slots(struct fake_device *f); /* NULL: there are none */

/* ---- workers' pages ---- */

struct fake_pool_group {
    uint32_t pages_per_block, regions, page_bytes; /* a block is the three of them multiplied */
};
/* Pages of its groups are numbered 0 to pages_max - 1; each region is a layer. */
struct device_pool *fake_pool_create(struct fake_device *f, uint32_t pages_max, uint32_t ngroups,
                                     const struct fake_pool_group *group);
void fake_pool_destroy(struct device_pool **pool);
/* A block's bytes into its pages, and out of them. */
void fake_pool_put(struct device_pool *pool, uint32_t group, const uint32_t *pages,
                   const uint8_t *block);
void fake_pool_get(const struct device_pool *pool, uint32_t group, const uint32_t *pages,
                   uint8_t *ret_block);

/* ---- copies ---- */

unsigned fake_device_inflight(const struct fake_device *f);
struct device_copy *fake_device_copy(struct fake_device *f, unsigned i); /* as submitted */
/* What it waits for is there. */
bool fake_device_may_begin(const struct device_copy *copy);
/* One layer more of a LOAD, and its word; false when there is none. */
bool fake_device_layer(struct fake_device *f, struct device_copy *copy);
/* Ends a copy. 0: all is copied, but for pieces whose page numbers are out of range. -EIO, -ENOMEM:
 * about half is. -ECANCELED, of one that was asked to stop, and -ETIMEDOUT: nothing. What
 * was in flight when the device was lost, or begins while it is out, ends with -EIO instead. */
void fake_device_end(struct fake_device *f, struct device_copy *copy, int status);
/* Ends up to n copies in random order, and copies layers of some; of a hundred, about fail_pct
 * fail. What may not begin yet ends only if it is cancelled, or in one case of eight by its
 * deadline. Returns how many ended. */
unsigned fake_device_run(struct fake_device *f, unsigned n, unsigned fail_pct);
/* Called for each submitted copy; when one has ended, before its done(). */
typedef void fake_device_fn(void *ctx, struct device_copy *copy);
void fake_device_on_submit(struct fake_device *f, fake_device_fn *fn, void *ctx);
void fake_device_on_end(struct fake_device *f, fake_device_fn *fn, void *ctx);

/* ---- what befalls it ---- */

bool fake_device_is_up(const struct fake_device *f);
uint64_t fake_device_views(const struct fake_device *f); /* how often its view was asked for */
/* All that is in its slots is void; copies in flight end with -EIO, when the test says so. */
void fake_device_lose(struct fake_device *f);
void fake_device_up(struct fake_device *f);
/* The process died: copies in flight never happened, and nothing is in its slots. */
void fake_device_crash(struct fake_device *f);

#endif
