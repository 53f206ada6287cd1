/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock by which names age, over restarts of the daemon. The wall clock may be set at any time;
 * what the kernel counts since the machine was started cannot. So a file beside the names holds
 * what time it was on the names' clock, in milliseconds, and since the start of which machine.
 */
#ifndef KVC_NAMES_CLOCK_H
#define KVC_NAMES_CLOCK_H

#include <stdint.h>

#include "err.h"

#define NAMES_CLOCK_FILE "clock"

/* What time it is on the clock that was noted in the directory; 0: nobody knows, for nothing
 * readable is noted, or the machine was started since. */
uint64_t names_clock_read(const char *dir);
/* That it is now_ms (not 0) on it. Negative errno. */
KVC_WARN_UNUSED int names_clock_write(const char *dir, uint64_t now_ms);

#endif
