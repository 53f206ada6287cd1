/* SPDX-License-Identifier: Apache-2.0 */
/* Devices in front of memory and storage. Without --hbm no function here does anything. */
#ifndef KVC_TEST_SIM_DEVICES_H
#define KVC_TEST_SIM_DEVICES_H

#include "fake_device.h"
#include "sim.h"

extern bool sim_with_hbm;
/* Chooses the room of the devices by the amount that there is to store. */
void sim_hbm_choose(struct sim *s, struct fake_disk_config *disk);
/* Makes the devices; call it before the core is made. */
void sim_hbm_begin(struct sim *s);
void sim_act_hbm(struct sim *s);
/* Ends copies of the devices, and lets devices fail or come back. */
void sim_hbm_step(struct sim *s);
void sim_check_hbm(struct sim *s);
/* Bytes that engines have leased, and their number of commits in flight. */
uint64_t sim_hbm_leased(const struct sim *s);
uint64_t sim_hbm_commits(const struct sim *s);
/* Number of device copies in flight. */
uint32_t sim_hbm_inflight(const struct sim *s);
/* Ends all engines, and all copies in flight. */
void sim_hbm_end(struct sim *s);
void sim_hbm_destroy(struct sim *s);

#endif
