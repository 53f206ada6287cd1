/* SPDX-License-Identifier: Apache-2.0 */
/* Devices in front of memory and storage; all of it does nothing without --hbm. */
#ifndef KVC_TEST_SIM_DEVICES_H
#define KVC_TEST_SIM_DEVICES_H

#include "fake_device.h"
#include "sim.h"

extern bool sim_with_hbm;
/* How much room there is, by what there is to store. */
void sim_hbm_choose(struct sim *s, struct fake_disk_config *disk);
/* Makes the devices, before the core. */
void sim_hbm_begin(struct sim *s);
void sim_act_hbm(struct sim *s);
/* What devices have done, and what befalls them. */
void sim_hbm_step(struct sim *s);
void sim_check_hbm(struct sim *s);
/* Bytes that engines have leased, and their commits in flight. */
uint64_t sim_hbm_leased(const struct sim *s);
uint64_t sim_hbm_commits(const struct sim *s);
/* Copies of devices under way. */
uint32_t sim_hbm_inflight(const struct sim *s);
/* Engines go, and all that is in flight ends. */
void sim_hbm_end(struct sim *s);
void sim_hbm_destroy(struct sim *s);

#endif
