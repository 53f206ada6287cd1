/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device behind device.h for tests. Its slots are a fake tier, workers' pools are plain memory,
 * and copies end when the test says so, in an order and with failures that it chooses. It can be
 * lost and come back. Misuse fails a MUST: freeing or using memory under a copy, a piece of a wrong
 * size, a copy that is submitted twice. So does fake_device_destroy() if copies or slots are left.
 */
#ifndef KVC_TEST_FAKE_DEVICE_H
#define KVC_TEST_FAKE_DEVICE_H

#include "device.h"
#include "fake_tier.h"

struct fake_device;

struct fake_device_config {
    uint32_t no;
    uint32_t regions, region_bytes; /* size of the slots' fake tier; regions 0: no slots */
    uint64_t seed;
    struct fake_tier *host; /* the tier that is core's host memory; borrowed */
};

struct fake_device *fake_device_create(const struct fake_device_config *config);
void fake_device_destroy(struct fake_device **device);
struct device *fake_device_of(struct fake_device *f);
struct fake_tier *fake_device_slots(struct fake_device *f); /* NULL: the device has no slots */

/* ---- workers' pages ---- */

struct fake_pool_group {
    /* A block has pages_per_block x regions x page_bytes bytes. */
    uint32_t pages_per_block, regions, page_bytes;
};
/* Pages of its groups are numbered 0 to pages_max - 1; each region is a layer. */
struct device_pool *fake_pool_create(struct fake_device *f, uint32_t pages_max, uint32_t ngroups,
                                     const struct fake_pool_group *group);
void fake_pool_destroy(struct device_pool **pool);
/* Copies a block's bytes to its pages, and back. */
void fake_pool_put(struct device_pool *pool, uint32_t group, const uint32_t *pages,
                   const uint8_t *block);
void fake_pool_get(const struct device_pool *pool, uint32_t group, const uint32_t *pages,
                   uint8_t *ret_block);

/* ---- copies ---- */

unsigned fake_device_inflight(const struct fake_device *f);
/* The i-th in the order of submission. */
struct device_copy *fake_device_copy(struct fake_device *f, unsigned i);
/* Whether the copy need not wait any more. */
bool fake_device_may_begin(const struct device_copy *copy);
/* Copies one more layer of a LOAD and sets its word; false: all layers are copied. */
bool fake_device_layer(struct fake_device *f, struct device_copy *copy);
/* Ends a copy with this status. 0: all pieces are copied except those with page numbers out of
 * range; -EIO, -ENOMEM: about half of them; -ETIMEDOUT, and -ECANCELED, if the copy was asked to
 * stop: none. If the device was lost or is out, the copy ends with -EIO instead. */
void fake_device_end(struct fake_device *f, struct device_copy *copy, int status);
/* Ends up to n copies in random order, and copies layers of some; about fail_pct percent fail. A
 * copy that may not begin yet ends only if it is cancelled or, in one case of eight, by its
 * deadline. Returns how many ended. */
unsigned fake_device_run(struct fake_device *f, unsigned n, unsigned fail_pct);
/* Called for each submitted copy, or for each copy that has ended, before its done(). */
typedef void fake_device_fn(void *ctx, struct device_copy *copy);
void fake_device_on_submit(struct fake_device *f, fake_device_fn *fn, void *ctx);
void fake_device_on_end(struct fake_device *f, fake_device_fn *fn, void *ctx);

/* ---- events of the device ---- */

bool fake_device_is_up(const struct fake_device *f);
uint64_t fake_device_views(const struct fake_device *f); /* how often view() was called */
/* The device is lost: its slots are void, and copies in flight end with -EIO when the test ends
 * them. */
void fake_device_lose(struct fake_device *f);
void fake_device_up(struct fake_device *f);
/* Simulates the death of the process: copies in flight have no effect, and all slots are empty. */
void fake_device_crash(struct fake_device *f);

#endif
