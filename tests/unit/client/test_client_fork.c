/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Children of fork(): none keeps a descriptor of its parent's session, ends its connections or
 * speaks for it. What a child does cannot be seen at the daemon alone (ZeroMQ has no thread there),
 * so these tests look inside the session.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "fixture.h"

static struct kvc_hold *orphan_hold, *hold;

static struct kvc_hold *acquire(void)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_hold *h;
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
    return h;
}

/* A session that has one hold of a link that ended, one of the link it has, and a loop's
 * descriptors. */
static void start_with_holds(void)
{
    uint64_t ms;
    start_open();
    (void)!kvc_fd(kvc);
    atomic_store(&fake.s->hit_blocks, 1);
    orphan_hold = acquire();
    fake_rule(&fake, KVC_OP_PING, FAKE_DROPPED, 0, 1);
    ck_assert_int_eq(kvc_ping(kvc, &ms), KVC_E_DOWN);
    for (int i = 0; i < 5000 && kvc_ping(kvc, &ms) < 0; i++)
        usleep(1000);
    ck_assert_uint_eq(kvc_epoch(kvc), 2);
    hold = acquire();
    ck_assert_ptr_nonnull(kvc->orphans);
}

static void stop_with_holds(void)
{
    kvc_release(kvc, &orphan_hold);
    kvc_release(kvc, &hold);
    stop();
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) != -1 || errno != EBADF;
}

static int exit_status(pid_t pid)
{
    int status;
    ck_assert_int_ge(pid, 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status), "the child died: status %d", status);
    return WEXITSTATUS(status);
}

CASES(.setup = start_with_holds, .teardown = stop_with_holds);

/* _i: which one */
CASE_EACH(a_child_has_none_of_the_descriptors, 5)
{
    const int fd[] = {kvc->attach_fd, kvc->orphans->fd, kvc->watch.epoll, kvc->watch.event,
                      kvc->watch.timer};
    ck_assert(is_open(fd[_i]));
    pid_t pid = fork();
    if (pid == 0)
        _exit(is_open(fd[_i]));
    ck_assert_int_eq(exit_status(pid), 0);
    ck_assert(is_open(fd[_i]));
}

CASE(a_child_says_nothing_on_its_parents_session)
{
    pid_t pid = fork();
    if (pid == 0) {
        uint64_t corr = kvc->ops.corr;
        kvc_release(kvc, &hold);
        _exit(kvc->ops.corr != corr);
    }
    ck_assert_int_eq(exit_status(pid), 0);
    ck_assert_int_eq(kvc_hold_check(hold), 0);
}

/* A bare clone runs no handlers: its copies of the descriptors are there, and may only be closed.
 */
CASE(a_bare_clone_ends_no_connection)
{
    const int live = kvc->attach_fd, parted = kvc->orphans->fd;
    long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        bool had = is_open(live) && is_open(parted);
        kvc_release(kvc, &orphan_hold);
        kvc_release(kvc, &hold);
        kvc_close(&kvc);
        _exit(had && !is_open(live) && !is_open(parted) ? 0 : 1);
    }
    ck_assert_int_eq(exit_status((pid_t)pid), 0);
    uint64_t ms;
    ck_assert_int_eq(kvc_ping(kvc, &ms), 0);
    ck_assert_uint_eq(kvc_epoch(kvc), 2);
    ck_assert_int_eq(kvc_hold_check(hold), 0);
    ck_assert_int_eq(kvc_hold_check(orphan_hold), 0);
}
