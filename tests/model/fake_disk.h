/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A storage tier behind tier.h for tests. Its slots are in regions, and operations end when the
 * test says so, in random order, with failures. It can ask for regions back, move or lose contents,
 * refuse to take or keep blocks, and be out of service. Its contents outlive a core:
 * fake_disk_each() reports them to the next one. Misuse by the caller fails a MUST, as do slots or
 * operations that are left at the end.
 */
#ifndef KVC_TEST_FAKE_DISK_H
#define KVC_TEST_FAKE_DISK_H

#include "tier.h"

struct fake_disk;

struct fake_disk_config {
    uint32_t slots;        /* of any size */
    uint32_t region_slots; /* slots that are reclaimed together */
    uint64_t seed;
    uint64_t lasting_bytes; /* bytes that bound blocks may take; 0: all */
    uint64_t turn_ms;       /* tier_stats.turn_ms; 0: not known */
};

struct fake_disk *fake_disk_create(const struct fake_disk_config *config);
void fake_disk_destroy(struct fake_disk **disk);
struct tier *fake_disk_of(struct fake_disk *f);

unsigned fake_disk_inflight(const struct fake_disk *f);
uint32_t fake_disk_used(const struct fake_disk *f);
/* Ends up to n kicked operations in random order; about fail_pct percent fail. It also moves some
 * of the blocks that are to be kept. Returns how many ended. */
unsigned fake_disk_run(struct fake_disk *f, unsigned n, unsigned fail_pct);

/* out: operations fail, no block is readable, none is taken. Back in service: calls events.room. */
void fake_disk_out(struct fake_disk *f, bool out);
bool fake_disk_is_out(const struct fake_disk *f);
/* grows: the disk has no room yet, and says so. When it ends: calls events.room. */
void fake_disk_grows(struct fake_disk *f, bool grows);
/* Whether the disk admits blocks; whether it keeps blocks when it reclaims. */
void fake_disk_admit(struct fake_disk *f, bool admit);
void fake_disk_keeps(struct fake_disk *f, bool keep);
/* Asks for this region to be emptied. */
void fake_disk_want(struct fake_disk *f, uint32_t region);
/* Whether a copy has been lost so far, by a call below or while it was moved to another region. */
bool fake_disk_lost(const struct fake_disk *f);
/* Loses one labelled slot that has no operation; false: no such slot. */
bool fake_disk_lose(struct fake_disk *f);
/* Loses the slot with this key and shard; false: no such slot, or it is being read. */
bool fake_disk_lose_this(struct fake_disk *f, const uint8_t key[32], uint32_t shard);
/* Changes one bit of the slot with this key and shard; false: no such slot. */
bool fake_disk_flip(struct fake_disk *f, const uint8_t key[32], uint32_t shard);
/* Makes the slot with this key and shard count as not durable; false: no such slot. */
bool fake_disk_plain(struct fake_disk *f, const uint8_t key[32], uint32_t shard);
/* Number of PUTs that have succeeded: durable ones, or the others. */
uint32_t fake_disk_puts(const struct fake_disk *f, bool durable);
/* Number of slots that core invalidated because of wrong bytes. */
uint32_t fake_disk_invalidated(const struct fake_disk *f);
/* Number of slots that core made ordinary, that is, not durable any more. */
uint32_t fake_disk_made_ordinary(const struct fake_disk *f);

struct fake_kept {
    struct tier_label label;
    uint32_t bytes;
    struct tier_loc loc;
};
/* Called after a restart for each stored slot. Returns its new block_no; UINT32_MAX: the slot is
 * freed. */
typedef uint32_t fake_kept_fn(void *ctx, const struct fake_kept *kept);
void fake_disk_each(struct fake_disk *f, fake_kept_fn *fn, void *ctx);
/* Simulates the death of the process: operations in flight have no effect. */
void fake_disk_crash(struct fake_disk *f);

#endif
