/* SPDX-License-Identifier: Apache-2.0 */
/* What the rest of the core asks of copies on devices. Where there are no devices all of it does
 * nothing. */
#ifndef KVC_CORE_NEAR_CORE_H
#define KVC_CORE_NEAR_CORE_H

#include "space.h"

struct near_device;

/* ---- near.c ---- */

/* Adds where b's bytes are. */
void room_places(struct core *c, const struct block *b, struct core_places *places);
uint64_t near_bytes(const struct core_config *cfg);
uint32_t near_runs(const struct core_config *cfg);
bool near_is_still(const struct core *c); /* no job is in flight */
/* Its bytes are wrong: who reads one of its copies on devices is told by the generation. */
void near_revoke(struct core *c, struct block *b);
/* Some device has a copy of it that is there. */
bool near_is_there(const struct core *c, const struct block *b);
/* The device in whose slots the blocks of seq may be read; NULL: none, or it is out. */
const struct near_device *near_serving(const struct core *c, const struct core_seq *seq);
/* The part of b that seq asks for is in a slot there. */
bool near_serves(struct core *c, const struct near_device *dev, const struct core_seq *seq,
                 const struct block *b);
/* Holds that one, for a lease, or for a load together with its block. KVC_E_BUSY. */
int near_lease(struct core *c, struct lease *l, const struct near_device *dev,
               const struct core_seq *seq, const struct block *b) KVC_WARN_UNUSED;
int near_load(struct core *c, struct core_load *l, const struct near_device *dev,
              const struct core_seq *seq, struct block *b) KVC_WARN_UNUSED;
/* Bytes of its copies on devices. */
uint64_t near_held(struct core *c, const struct block *b);
/* What a lease holds on its device; what a load does. */
void near_let_go(struct core *c, struct lease *l);
void near_unload(struct core *c, struct core_load *l);
/* NULL: not one of the daemon's. */
struct near_device *near_device_of(const struct core *c, const struct device *device);

#endif
