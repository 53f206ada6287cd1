/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers on a device that go on whatever befalls the device or the daemon: each loads a chain of
 * its own into pages, holds it and reads it in place, and stores it again when it is not there;
 * with the pool that it has made at first. They check every byte, and count in memory that is
 * shared.
 */
#ifndef KVC_TEST_RIG_READER_H
#define KVC_TEST_RIG_READER_H

#include "rig_device.h"

#define RIG_READERS 2u

struct rig_shared {
    volatile uint64_t loaded[RIG_READERS]; /* loads into pages that brought something */
    volatile uint64_t hbm[RIG_READERS];    /* holds with blocks on the device */
    volatile uint64_t held[RIG_READERS];   /* holds with blocks, wherever */
    volatile uint64_t wrong;               /* blocks that were accepted with other bytes */
    volatile uint64_t misses;              /* loads that brought nothing */
    volatile uint64_t refused; /* stores that failed, or whose first block found no tier */
    volatile int stop;
};

/* By rig_spawn() with the role "read", which is rig_read_for_ever()'s. Returns what is theirs. */
struct rig_shared *rig_readers_start(const struct rig *r, pid_t ret_pids[RIG_READERS]);
/* In the process of one; ends when it is told to. Returns 0. */
int rig_read_for_ever(const struct rig *r, uint64_t arg);
/* Waits until each has loaded into pages and read in place, from now on. */
void rig_readers_await(const struct rig *r, const struct rig_shared *sh);
/* They must end well. */
void rig_readers_stop(struct rig_shared *sh, const pid_t pids[RIG_READERS]);

#endif
