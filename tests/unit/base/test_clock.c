/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "cases.h"
#include "clock.h"

CASE(monotonic_time_does_not_go_back)
{
    uint64_t last = clock_now_ns();
    for (unsigned i = 0; i < 10000; i++) {
        const uint64_t now = clock_now_ns();
        ck_assert_uint_ge(now, last);
        last = now;
    }
}

CASE(both_clocks_are_those_of_the_system)
{
    struct timespec t;
    const uint64_t before_ns = clock_now_ns();
    ck_assert_int_eq(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    const uint64_t ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    ck_assert(before_ns <= ns && ns <= clock_now_ns());
    const uint64_t before_s = (uint64_t)time(NULL), wall_ms = clock_wall_ms();
    ck_assert_uint_ge(wall_ms / 1000, before_s);
}
