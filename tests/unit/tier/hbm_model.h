/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations on the HBM tier, compared with a model of all contents: slots, host memory, and
 * pages of workers' pools. The device is slow, fails, is lost and comes back.
 */
#ifndef KVC_TEST_HBM_MODEL_H
#define KVC_TEST_HBM_MODEL_H

#include "hbm_rig.h"

/* Functions that differ between devices; each may be NULL. */
struct hbm_drive {
    void (*step)(struct rig *r);       /* lets the device do some work */
    void (*lose)(struct rig *r);       /* loses the device; returns when hbm knows it */
    void (*bring_back)(struct rig *r); /* brings the device back; returns when hbm knows it */
    void (*starve)(struct rig *r);     /* lets about one allocation fail */
    void (*check)(struct rig *r);
};

struct hbm_counts {
    uint64_t copies, well, failed, bad_pieces, losts, allocs, no_room, busy, pools, reads, lent;
};
/* Opens the rig, runs the model, and closes the rig. */
void hbm_model_run(const struct rig_config *config, const struct hbm_drive *drive, uint64_t seed,
                   uint32_t steps, struct hbm_counts *ret_counts);
/* The same for a test case. Seed and number of steps come from the environment (KVC_SEED,
 * KVC_MODEL_STEPS). Counts are printed, and must show that the run reached all that it should. */
void hbm_model_case(const struct rig_config *config, const struct hbm_drive *drive, int i,
                    uint32_t steps);

#endif
