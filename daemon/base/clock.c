/* SPDX-License-Identifier: Apache-2.0 */
#include "clock.h"

#include <time.h>

#include "err.h"

uint64_t clock_now_ns(void)
{
    struct timespec t;
    MUST(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_wall_ms(void)
{
    struct timespec t;
    MUST(clock_gettime(CLOCK_REALTIME, &t) == 0);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

uint64_t clock_thread_ns(void)
{
    struct timespec t;
    MUST(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
