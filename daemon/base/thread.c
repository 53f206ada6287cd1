/* SPDX-License-Identifier: Apache-2.0 */
#include "thread.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "crash.h"
#include "fault.h"

#define SLICE_NS 100000u /* the smallest slice that the kernel accepts */

int thread_start(const char *name, void *(*main)(void *arg), void *arg, pthread_t *ret_thread)
{
    pthread_t thread;
    char short_name[16] = {0};
    sigset_t all;
    sigset_t before;
    sigset_t fatal;
    if (FAULT(thread))
        return -EAGAIN;
    crash_signals(&fatal);
    (void)sigfillset(&all);
    for (int i = 1; i < NSIG; i++)
        if (sigismember(&fatal, i) == 1)
            (void)sigdelset(&all, i);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int err = pthread_create(&thread, NULL, main, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err != 0)
        return -err;
    memcpy(short_name, name, MIN(strlen(name), sizeof short_name - 1));
    (void)pthread_setname_np(thread, short_name);
    *ret_thread = thread;
    return 0;
}

/* The first version of what the kernel calls sched_attr; glibc has it from 2.41 on. */
struct attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

int thread_prompt(void)
{
    struct attr a = {0};
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) != 0)
        return -errno;
    if (a.policy != 0) /* the operator chose another policy than SCHED_OTHER: it stays */
        return 0;
    a.runtime = SLICE_NS;
    return syscall(SYS_sched_setattr, 0, &a, 0) != 0 ? -errno : 0;
}
