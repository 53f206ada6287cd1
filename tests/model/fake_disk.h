/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A storage tier behind tier.h for tests: slots in regions, operations that end when the test says
 * so, in random order, with failures; it can want regions back, move and lose what it has, refuse
 * to take or to keep, and be out of service. What it holds outlives a core: fake_disk_each() tells
 * it to the next one. Misuse by the caller fails a MUST, as does what is left at the end.
 */
#ifndef KVC_TEST_FAKE_DISK_H
#define KVC_TEST_FAKE_DISK_H

#include "tier.h"

struct fake_disk;

struct fake_disk_config {
    uint32_t slots;        /* of any size */
    uint32_t region_slots; /* that are reclaimed together */
    uint64_t seed;
    uint64_t lasting_bytes; /* that may stay whoever wants room; 0: any */
    uint64_t turn_ms;       /* that a place lasts, as tier_stats says; 0: not known */
};

struct fake_disk *fake_disk_create(const struct fake_disk_config *config);
void fake_disk_destroy(struct fake_disk **disk);
struct tier *fake_disk_of(struct fake_disk *f);

unsigned fake_disk_inflight(const struct fake_disk *f);
uint32_t fake_disk_used(const struct fake_disk *f);
/* Ends up to n operations that have been kicked, in random order; of a hundred, about fail_pct
 * fail. Also moves some of what is to be kept. Returns how many ended. */
unsigned fake_disk_run(struct fake_disk *f, unsigned n, unsigned fail_pct);

/* Out of service: operations fail, nothing is readable, nothing is taken. Back: events.room. */
void fake_disk_out(struct fake_disk *f, bool out);
bool fake_disk_is_out(const struct fake_disk *f);
/* It has no room yet, and says so. At the end: events.room. */
void fake_disk_grows(struct fake_disk *f, bool grows);
/* Whether it admits anything; whether it keeps. */
void fake_disk_admit(struct fake_disk *f, bool admit);
void fake_disk_keeps(struct fake_disk *f, bool keep);
/* A region is to be emptied. */
void fake_disk_want(struct fake_disk *f, uint32_t region);
/* Whether a copy was lost so far: by a call below, or on its way to another region. */
bool fake_disk_lost(const struct fake_disk *f);
/* One labelled slot without operations is lost; false: there is none. */
bool fake_disk_lose(struct fake_disk *f);
/* What is stored of this key and shard is lost; false: it is not there, or is being read. */
bool fake_disk_lose_this(struct fake_disk *f, const uint8_t key[32], uint32_t shard);
/* One bit of what is stored of this key and shard; false: it is not there. */
bool fake_disk_flip(struct fake_disk *f, const uint8_t key[32], uint32_t shard);
/* What is stored of this key and shard counts as stored without a promise; false: not there. */
bool fake_disk_plain(struct fake_disk *f, const uint8_t key[32], uint32_t shard);
/* PUTs that were durable, and have landed; those that were not. */
uint32_t fake_disk_puts(const struct fake_disk *f, bool durable);
/* Slots whose bytes were told to be wrong. */
uint32_t fake_disk_invalidated(const struct fake_disk *f);
/* Promises that were taken back. */
uint32_t fake_disk_made_ordinary(const struct fake_disk *f);

struct fake_kept {
    struct tier_label label;
    uint32_t bytes;
    struct tier_loc loc;
};
/* After a restart: each thing that is there. The owner it has from now on; UINT32_MAX: it goes. */
typedef uint32_t fake_kept_fn(void *ctx, const struct fake_kept *kept);
void fake_disk_each(struct fake_disk *f, fake_kept_fn *fn, void *ctx);
/* The process died: what was under way never happened. */
void fake_disk_crash(struct fake_disk *f);

#endif
