/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers on a device that go on whatever happens to device or daemon. Each has its own chain: it
 * loads the chain into pages, holds it and reads it in place, and stores it again when it is
 * missing, with the pool that it made at first. Workers check every byte and count in shared
 * memory.
 */
#ifndef KVC_TEST_RIG_READER_H
#define KVC_TEST_RIG_READER_H

#include "rig_device.h"

#define RIG_READERS 2u

struct rig_shared {
    volatile uint64_t loaded[RIG_READERS]; /* loads into pages that brought at least one block */
    volatile uint64_t hbm[RIG_READERS];    /* holds with at least one block on the device */
    volatile uint64_t held[RIG_READERS];   /* holds with at least one block, in any tier */
    volatile uint64_t wrong;               /* blocks that were accepted with wrong bytes */
    volatile uint64_t misses;              /* loads that brought no block */
    volatile uint64_t refused; /* stores that failed, or whose first block was not taken */
    volatile int stop;
};

/* Starts the workers by rig_spawn() with the role "read", which rig_read_for_ever() runs. Returns
 * their shared counts. */
struct rig_shared *rig_readers_start(const struct rig *r, pid_t ret_pids[RIG_READERS]);
/* Runs in a worker's process, until the worker is told to end. Returns 0. */
int rig_read_for_ever(const struct rig *r, uint64_t arg);
/* Waits until each worker has loaded into pages and read in place, counted from now. */
void rig_readers_await(const struct rig *r, const struct rig_shared *sh);
/* Ends the workers; each must exit with 0. */
void rig_readers_stop(struct rig_shared *sh, const pid_t pids[RIG_READERS]);

#endif
