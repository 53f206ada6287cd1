/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HBM copies (copies of blocks in slots of devices), as the rest of the core sees them: lookups,
 * leases and loads call these functions. Without devices they do nothing.
 */
#ifndef KVC_CORE_HBM_COPIES_H
#define KVC_CORE_HBM_COPIES_H

#include "space.h"

struct hbm_device;

/* ---- hbm_copies.c ---- */

/* Adds b's bytes to each tier where it has a copy. */
void room_places(struct core *c, const struct block *b, struct core_places *places);
uint64_t hbm_bytes(const struct core_config *cfg);
/* How many runs of core->runs the lists of HBM copies may take. */
uint32_t hbm_runs(const struct core_config *cfg);
bool hbm_is_still(const struct core *c); /* whether no job is in flight */
/* b's bytes are wrong: drops its copies on devices, and changes their generations, so that readers
 * notice. */
void hbm_copy_invalidate(struct core *c, struct block *b);
/* Whether some device has a complete copy of b. */
bool hbm_copy_is_there(const struct core *c, const struct block *b);
/* The entry of the device seq->on, in whose slots blocks may be read; NULL: seq has no device, or
 * it is out of service. */
const struct hbm_device *hbm_copy_serving(const struct core *c, const struct core_seq *seq);
/* Whether the part of b that seq asks for is in a slot of dev. */
bool hbm_copy_serves(struct core *c, const struct hbm_device *dev, const struct core_seq *seq,
                     const struct block *b);
/* Hold the part of b that seq asks for: for a lease; for a load, which holds the block too. 0,
 * KVC_E_BUSY. */
int hbm_copy_lease(struct core *c, struct lease *l, const struct hbm_device *dev,
                   const struct core_seq *seq, const struct block *b) KVC_WARN_UNUSED;
int hbm_copy_load(struct core *c, struct core_load *l, const struct hbm_device *dev,
                  const struct core_seq *seq, struct block *b) KVC_WARN_UNUSED;
/* Release all HBM copies that a lease, or a load, holds. */
void hbm_copy_let_go(struct core *c, struct lease *l);
void hbm_copy_unload(struct core *c, struct core_load *l);
/* The core's entry of a device; NULL: core_config.devices has no such device. */
struct hbm_device *hbm_device_of(const struct core *c, const struct device *device);

#endif
