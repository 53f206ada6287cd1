/* SPDX-License-Identifier: Apache-2.0 */
/* The power fails: of what the daemon has written and not synced, some is gone. */
#ifndef KVC_TEST_CRASH_POWER_H
#define KVC_TEST_CRASH_POWER_H

#include <stdint.h>

struct power {
    char root[96], log[112];
    uint64_t writes, unsynced, undone, torn; /* so far */
};

/* Daemons that are started from now on have powercut.c in them, and the loop on epoll. */
void power_watch(struct power *p, const char *dir);
/* After the daemon's process has ended: each sector of 512 bytes that was written and not synced
 * is as it was before, or as it was written to; `seed` decides, for most writes all alike. */
void power_cut(struct power *p, uint64_t *seed);

#endif
