/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates a power failure: part of what the daemon has written and not synced is lost. */
#ifndef KVC_TEST_CRASH_POWER_H
#define KVC_TEST_CRASH_POWER_H

#include <stdint.h>

struct power {
    char root[96], log[112];
    uint64_t writes, unsynced, undone, torn; /* counts so far */
};

/* Daemons that are started from now on run with powercut.c and with the loop on epoll. */
void power_watch(struct power *p, const char *dir);
/* Call it after the daemon's process has ended. Each sector of 512 bytes that was written and not
 * synced now has either its old bytes or its new ones. `seed` decides; most writes are kept or lost
 * whole. */
void power_cut(struct power *p, uint64_t *seed);

#endif
