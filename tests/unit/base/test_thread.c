/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that are scheduled soon: what stays as it was, and for whom it holds. */
#include "cases.h"
#include "thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The slice that a thread asked for, 0 where the kernel has no such thing. */
static uint64_t slice_ns(void)
{
    uint64_t attr[6] = {0}; /* the fourth is the runtime */
    ck_assert_int_eq(syscall(SYS_sched_getattr, 0, attr, sizeof attr, 0), 0);
    return attr[3];
}

static void *look(void *arg)
{
    *(uint64_t *)arg = slice_ns();
    return NULL;
}

CASE(a_prompt_thread_keeps_its_policy_and_its_share)
{
    errno = 0;
    const int nice = getpriority(PRIO_PROCESS, 0);
    const int policy = sched_getscheduler(0);
    ck_assert_int_eq(thread_prompt(), 0);
    ck_assert_int_eq(getpriority(PRIO_PROCESS, 0), nice);
    ck_assert_int_eq(sched_getscheduler(0), policy);
}

CASE(threads_that_it_starts_are_prompt_too)
{
    uint64_t theirs = 1;
    pthread_t thread;
    ck_assert_int_eq(thread_prompt(), 0);
    ck_assert_int_eq(thread_start("prompt", look, &theirs, &thread), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_eq(theirs, slice_ns());
}
