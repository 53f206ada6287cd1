/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock by which names age, over restarts of the daemon. The wall clock may be set at any time;
 * the time since the machine was started cannot. So a file beside the names has a reading of the
 * names' clock in milliseconds, the kernel's time of that reading, and the identity of that boot.
 */
#ifndef KVC_NAMES_CLOCK_H
#define KVC_NAMES_CLOCK_H

#include <stdint.h>

#include "err.h"

#define NAMES_CLOCK_FILE "clock"

/* The names' clock now, computed from the file in the directory. 0: unknown, because no readable
 * file exists, or the machine was started after it was written. */
uint64_t names_clock_read(const char *dir);
/* Writes to the file that the names' clock shows now_ms, which is not 0. 0 or a negative errno. */
KVC_WARN_UNUSED int names_clock_write(const char *dir, uint64_t now_ms);

#endif
