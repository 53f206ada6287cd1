/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <time.h>

#include "check_run.h"
#include "clock.h"

START_TEST(monotonic_time_does_not_go_back)
{
    uint64_t last = clock_now_ns();
    for (unsigned i = 0; i < 10000; i++) {
        const uint64_t now = clock_now_ns();
        ck_assert_uint_ge(now, last);
        last = now;
    }
}
END_TEST

START_TEST(both_clocks_are_those_of_the_system)
{
    struct timespec t;
    const uint64_t before_ns = clock_now_ns();
    ck_assert_int_eq(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    const uint64_t ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    ck_assert(before_ns <= ns && ns <= clock_now_ns());
    const uint64_t before_s = (uint64_t)time(NULL), wall_ms = clock_wall_ms();
    ck_assert_uint_ge(wall_ms / 1000, before_s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("clock");
    TCase *tc = tcase_create("clock");
    tcase_add_test(tc, monotonic_time_does_not_go_back);
    tcase_add_test(tc, both_clocks_are_those_of_the_system);
    suite_add_tcase(s, tc);
    return check_run(s);
}
