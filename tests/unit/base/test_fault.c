/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdlib.h>

#include "cases.h"
#include "err.h"
#include "fault.h"

static void teardown(void)
{
    fault_reset();
    (void)unsetenv("KVC_FAULT");
}

CASES(.teardown = teardown);

CASE(nothing_fails_and_nothing_is_counted_when_off)
{
    for (unsigned i = 0; i < 10; i++)
        ck_assert(!FAULT(alloc));
    ck_assert_uint_eq(fault_count("alloc"), 0);
}

CASE(the_nth_call_fails_once)
{
    ck_assert_int_eq(fault_arm("copy", 3), 0);
    for (unsigned i = 1; i <= 10; i++)
        ck_assert_int_eq(FAULT(copy), i == 3);
    ck_assert_uint_eq(fault_count("copy"), 10);
}

CASE(points_are_apart)
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

/* How a test uses it: N = 1, 2, ... until the point is no longer reached. */
CASE(a_loop_over_n_ends_when_the_point_is_not_reached)
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

CASE(reset_turns_all_off)
{
    ck_assert_int_eq(fault_arm("fd", 1), 0);
    fault_reset();
    ck_assert(!FAULT(fd));
    ck_assert_uint_eq(fault_count("fd"), 0);
}

CASE(unknown_points_are_refused)
{
    ck_assert_int_eq(fault_arm("nothing", 1), -EINVAL);
    ck_assert_int_eq(fault_arm("allo", 1), -EINVAL);
    ck_assert_int_eq(fault_arm("", 1), -EINVAL);
    ck_assert_int_eq(fault_arm("alloc", 0), -EINVAL);
}

CASE(the_environment_arms)
{
    ck_assert_int_eq(fault_from_env(), 0);
    ck_assert(!FAULT(thread));
    ck_assert_int_eq(setenv("KVC_FAULT", "thread:1,copy:2", 1), 0);
    ck_assert_int_eq(fault_from_env(), 0);
    ck_assert(FAULT(thread));
    ck_assert(!FAULT(copy));
    ck_assert(FAULT(copy));
}

CASE(a_range_of_calls_fails_with_the_errno_or_is_late)
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

CASE(an_empty_environment_arms_nothing_and_is_no_error)
{
    ck_assert_int_eq(setenv("KVC_FAULT", "", 1), 0);
    ck_assert_int_eq(fault_from_env(), 0);
    ck_assert(!FAULT(copy));
    ck_assert_int_eq(fault_arm_text(""), -EINVAL);
}

CASE(a_malformed_environment_arms_nothing)
{
    static const char *const wrong[] = {"copy",        "copy:",
                                        "copy:0",      "copy:x",
                                        "copy:1x",     "copy:-1",
                                        "copy:3-2",    "copy:1-0",
                                        "copy:1=",     "copy:1=EWHAT",
                                        "copy:1=5",    "copy:1=0ms",
                                        "copy:1=5msx", "copy:1=EIO,",
                                        "copy: 1",     "none:1",
                                        "copy:1,",     ",copy:1",
                                        ":1",          "copy:1thread:2",
                                        "copy:1,x",    "copy:99999999999999999999"};
    for (unsigned i = 0; i < ARRAY_LEN(wrong); i++) {
        ck_assert_int_eq(setenv("KVC_FAULT", wrong[i], 1), 0);
        ck_assert_msg(fault_from_env() == -EINVAL, "'%s' was taken", wrong[i]);
        ck_assert(!FAULT(copy));
    }
}

CASE_DIES(counting_an_unknown_point_aborts, SIGABRT)
{
    (void)fault_count("nothing");
}
