/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HBM copies (copies of blocks in slots of devices), as the rest of the core sees them: lookups,
 * leases and loads call these. Without devices all of it does nothing.
 */
#ifndef KVC_CORE_HBM_COPIES_H
#define KVC_CORE_HBM_COPIES_H

#include "space.h"

struct hbm_device;

/* ---- hbm_copies.c ---- */

/* Adds b's bytes to the places where it has a copy. */
void room_places(struct core *c, const struct block *b, struct core_places *places);
uint64_t hbm_bytes(const struct core_config *cfg);
uint32_t hbm_runs(const struct core_config *cfg);
bool hbm_is_still(const struct core *c); /* whether no job is in flight */
/* b's bytes are wrong: drops its copies on devices, and changes their generations, so that readers
 * notice. */
void hbm_copy_revoke(struct core *c, struct block *b);
/* Whether some device has a complete copy of b. */
bool hbm_copy_is_there(const struct core *c, const struct block *b);
/* The device in whose slots the blocks of seq may be read; NULL: none, or it is out. */
const struct hbm_device *hbm_copy_serving(const struct core *c, const struct core_seq *seq);
/* Whether the part of b that seq asks for is in a slot of dev. */
bool hbm_copy_serves(struct core *c, const struct hbm_device *dev, const struct core_seq *seq,
                     const struct block *b);
/* Hold that part, for a lease; for a load, together with its block. KVC_E_BUSY. */
int hbm_copy_lease(struct core *c, struct lease *l, const struct hbm_device *dev,
                   const struct core_seq *seq, const struct block *b) KVC_WARN_UNUSED;
int hbm_copy_load(struct core *c, struct core_load *l, const struct hbm_device *dev,
                  const struct core_seq *seq, struct block *b) KVC_WARN_UNUSED;
/* Release what a lease holds on its device; what a load holds. */
void hbm_copy_let_go(struct core *c, struct lease *l);
void hbm_copy_unload(struct core *c, struct core_load *l);
/* The core's entry of a device; NULL: not one of the daemon's. */
struct hbm_device *hbm_device_of(const struct core *c, const struct device *device);

#endif
