/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clocks. Core and policy never call these: they get time as a parameter, and a test's fake
 * clock is simply another value. Any thread.
 */
#ifndef KVC_BASE_CLOCK_H
#define KVC_BASE_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC, nanoseconds: durations and deadlines. */
uint64_t clock_now_ns(void);
/* CLOCK_THREAD_CPUTIME_ID, nanoseconds: what the calling thread has computed, and not waited. */
uint64_t clock_thread_ns(void);
/* CLOCK_REALTIME, milliseconds since 1970: for people and for disk, never for a deadline. */
uint64_t clock_wall_ms(void);

#endif
