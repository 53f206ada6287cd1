/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations on the HBM tier against a model of what is where: slots, host memory, and the
 * pages of workers' pools, with a device that is slow, fails, goes and comes back.
 */
#ifndef KVC_TEST_HBM_MODEL_H
#define KVC_TEST_HBM_MODEL_H

#include "hbm_rig.h"

/* What differs from device to device; each may be NULL. */
struct hbm_drive {
    void (*step)(struct rig *r);       /* a bit of the device's work */
    void (*lose)(struct rig *r);       /* returns when it is known */
    void (*bring_back)(struct rig *r); /* the same */
    void (*starve)(struct rig *r);     /* an allocation or so fails */
    void (*check)(struct rig *r);
};

struct hbm_counts {
    uint64_t copies, well, failed, bad_pieces, losts, allocs, no_room, busy, pools, reads, lent;
};
/* Opens and closes the rig. */
void hbm_model_run(const struct rig_config *config, const struct hbm_drive *drive, uint64_t seed,
                   uint32_t steps, struct hbm_counts *ret_counts);
/* The same for a test case: seed and number of steps from the environment (KVC_SEED,
 * KVC_MODEL_STEPS), counts printed, and the run went where it was meant to go. */
void hbm_model_case(const struct rig_config *config, const struct hbm_drive *drive, int i,
                    uint32_t steps);

#endif
