/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <signal.h>
#include <stdlib.h>

#include "check_run.h"
#include "err.h"
#include "fault.h"

static void teardown(void)
{
    fault_reset();
    (void)unsetenv("KVC_FAULT");
}

START_TEST(nothing_fails_and_nothing_is_counted_when_off)
{
    for (unsigned i = 0; i < 10; i++)
        ck_assert(!FAULT(alloc));
    ck_assert_uint_eq(fault_count("alloc"), 0);
}
END_TEST

START_TEST(the_nth_call_fails_once)
{
    ck_assert_int_eq(fault_arm("copy", 3), 0);
    for (unsigned i = 1; i <= 10; i++)
        ck_assert_int_eq(FAULT(copy), i == 3);
    ck_assert_uint_eq(fault_count("copy"), 10);
}
END_TEST

START_TEST(points_are_apart)
{
    ck_assert_int_eq(fault_arm("send", 1), 0);
    ck_assert_int_eq(fault_arm("map", 2), 0);
    ck_assert(!FAULT(alloc));
    ck_assert(FAULT(send));
    ck_assert(!FAULT(map));
    ck_assert(FAULT(map));
    ck_assert(!FAULT(fd));
    ck_assert_uint_eq(fault_count("fd"), 1);
    ck_assert_uint_eq(fault_count("thread"), 0);
}
END_TEST

/* How a test uses it: N = 1, 2, ... until the point is no longer reached. */
START_TEST(a_loop_over_n_ends_when_the_point_is_not_reached)
{
    unsigned failures = 0;
    for (uint64_t n = 1;; n++) {
        ck_assert_int_eq(fault_arm("alloc", n), 0);
        for (unsigned call = 0; call < 5; call++)
            if (FAULT(alloc)) {
                failures++;
                break;
            }
        if (fault_count("alloc") < n)
            break;
    }
    ck_assert_uint_eq(failures, 5);
}
END_TEST

START_TEST(reset_turns_all_off)
{
    ck_assert_int_eq(fault_arm("fd", 1), 0);
    fault_reset();
    ck_assert(!FAULT(fd));
    ck_assert_uint_eq(fault_count("fd"), 0);
}
END_TEST

START_TEST(unknown_points_are_refused)
{
    ck_assert_int_eq(fault_arm("nothing", 1), -EINVAL);
    ck_assert_int_eq(fault_arm("allo", 1), -EINVAL);
    ck_assert_int_eq(fault_arm("", 1), -EINVAL);
    ck_assert_int_eq(fault_arm("alloc", 0), -EINVAL);
}
END_TEST

START_TEST(the_environment_arms)
{
    ck_assert_int_eq(fault_from_env(), 0);
    ck_assert(!FAULT(thread));
    ck_assert_int_eq(setenv("KVC_FAULT", "thread:1,copy:2", 1), 0);
    ck_assert_int_eq(fault_from_env(), 0);
    ck_assert(FAULT(thread));
    ck_assert(!FAULT(copy));
    ck_assert(FAULT(copy));
}
END_TEST

START_TEST(a_range_of_calls_fails_with_the_errno_or_is_late)
{
    uint32_t ms = 7;
    ck_assert_int_eq(FAULT_IO(read, &ms), 0);
    ck_assert_uint_eq(ms, 0);
    ck_assert_int_eq(fault_arm_text("read:2-3=ENOSPC,write:2-,sync:1=1500ms,copy:1-2"), 0);
    static const int expected[] = {0, -ENOSPC, -ENOSPC, 0, 0};
    for (unsigned i = 0; i < ARRAY_LEN(expected); i++) {
        ck_assert_int_eq(FAULT_IO(read, &ms), expected[i]);
        ck_assert_int_eq(FAULT_IO(write, &ms), i == 0 ? 0 : -EIO);
        ck_assert_int_eq(FAULT(copy), i < 2);
        ck_assert_int_eq(FAULT_IO(sync, &ms), 0);
        ck_assert_uint_eq(ms, i == 0 ? 1500 : 0);
    }
}
END_TEST

START_TEST(a_malformed_environment_arms_nothing)
{
    static const char *const wrong[] = {"",
                                        "copy",
                                        "copy:",
                                        "copy:0",
                                        "copy:x",
                                        "copy:1x",
                                        "copy:-1",
                                        "copy:3-2",
                                        "copy:1-0",
                                        "copy:1=",
                                        "copy:1=EWHAT",
                                        "copy:1=5",
                                        "copy:1=0ms",
                                        "copy:1=5msx",
                                        "copy:1=EIO,",
                                        "copy: 1",
                                        "none:1",
                                        "copy:1,",
                                        ",copy:1",
                                        ":1",
                                        "copy:1thread:2",
                                        "copy:1,x",
                                        "copy:99999999999999999999"};
    for (unsigned i = 0; i < ARRAY_LEN(wrong); i++) {
        ck_assert_int_eq(setenv("KVC_FAULT", wrong[i], 1), 0);
        ck_assert_msg(fault_from_env() == -EINVAL, "'%s' was taken", wrong[i]);
        ck_assert(!FAULT(copy));
    }
}
END_TEST

START_TEST(counting_an_unknown_point_aborts)
{
    (void)fault_count("nothing");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fault");
    TCase *tc = tcase_create("fault");
    tcase_add_checked_fixture(tc, NULL, teardown);
    tcase_add_test(tc, nothing_fails_and_nothing_is_counted_when_off);
    tcase_add_test(tc, the_nth_call_fails_once);
    tcase_add_test(tc, points_are_apart);
    tcase_add_test(tc, a_loop_over_n_ends_when_the_point_is_not_reached);
    tcase_add_test(tc, reset_turns_all_off);
    tcase_add_test(tc, unknown_points_are_refused);
    tcase_add_test(tc, the_environment_arms);
    tcase_add_test(tc, a_range_of_calls_fails_with_the_errno_or_is_late);
    tcase_add_test(tc, a_malformed_environment_arms_nothing);
    tcase_add_test_raise_signal(tc, counting_an_unknown_point_aborts, SIGABRT);
    suite_add_tcase(s, tc);
    return check_run(s);
}
