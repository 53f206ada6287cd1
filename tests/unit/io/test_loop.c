/* SPDX-License-Identifier: Apache-2.0 */
#include "loop_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* --- birth and death ------------------------------------------------------------------------ */

CASE_BOTH_LOOPS(says_which_backend_and_why)
{
    struct loop *loop = make(_i);
    ck_assert_str_eq(loop_backend_name(loop), _i == LOOP_URING ? "io_uring" : "epoll");
    ck_assert_ptr_nonnull(strstr(loop_backend_reason(loop), "asked for"));
    loop_destroy(&loop);
    ck_assert_ptr_null(loop);
    loop_destroy(&loop);
    loop_destroy(NULL);
}

CASE_BOTH_LOOPS(limits_out_of_range_are_refused)
{
    struct loop *loop = NULL;
    struct loop_config config = {.want = (enum loop_backend)_i, .watches_max = 0};
    ck_assert_int_eq(loop_create(&config, &loop), -EINVAL);
    config.watches_max = (1u << 24) + 1;
    ck_assert_int_eq(loop_create(&config, &loop), -EINVAL);
    config.watches_max = 4;
    config.ops_max = (1u << 24) + 1;
    ck_assert_int_eq(loop_create(&config, &loop), -EINVAL);
    config.ops_max = 4;
    config.io_threads = 100000;
    ck_assert_int_eq(loop_create(&config, &loop), -EINVAL);
    config.io_threads = 0;
    config.want = (enum loop_backend)17;
    ck_assert_int_eq(loop_create(&config, &loop), -EINVAL);
    ck_assert_ptr_null(loop);
}

static void *turn_elsewhere(void *arg)
{
    (void)!loop_turn(arg, 0);
    return NULL;
}

CASE_DIES_BOTH_LOOPS(a_turn_on_another_thread_is_a_bug, SIGABRT)
{
    struct loop *loop = make(_i);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, turn_elsewhere, loop), 0);
    pthread_join(thread, NULL);
}

/* --- readiness ------------------------------------------------------------------------------ */

CASE_BOTH_LOOPS(readable_when_something_is_there)
{
    struct loop *loop = make(_i);
    int bell = bell_new();
    struct seen *s = watch_new(loop, bell, EPOLLIN);
    ck_assert_int_eq(turn_ready(loop), 0);
    ring_bell(bell);
    s->drain = true;
    ck_assert_int_eq(turn_some(loop), 1);
    ck_assert_uint_eq(s->events, EPOLLIN);
    ck_assert_int_eq(turn_ready(loop), 0);
    ring_bell(bell); /* and again, after the rest */
    ck_assert_int_eq(turn_some(loop), 1);
    ck_assert_uint_eq(s->calls, 2);
    watch_free(s);
    close(bell);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(unread_data_fires_in_every_turn)
{
    struct loop *loop = make(_i);
    int bell = bell_new();
    struct seen *s = watch_new(loop, bell, EPOLLIN);
    ring_bell(bell);
    for (unsigned i = 1; i <= 5; i++) {
        ck_assert_int_eq(turn_some(loop), 1);
        ck_assert_uint_eq(s->calls, i);
    }
    watch_free(s);
    close(bell);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(writable_until_full)
{
    struct loop *loop = make(_i);
    int fds[2];
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    struct seen *s = watch_new(loop, fds[1], EPOLLOUT);
    ck_assert_int_eq(turn_some(loop), 1);
    ck_assert_uint_eq(s->events, EPOLLOUT);
    static const char bytes[4096];
    while (write(fds[1], bytes, sizeof(bytes)) > 0) {
    }
    (void)turn_ready(loop); /* a poll that was armed before the pipe was full may still fire */
    unsigned calls = s->calls;
    ck_assert_int_eq(turn_ready(loop), 0);
    ck_assert_uint_eq(s->calls, calls);
    char drain[65536];
    ck_assert_int_gt(read(fds[0], drain, sizeof(drain)), 0);
    ck_assert_int_eq(turn_some(loop), 1);
    watch_free(s);
    close(fds[0]);
    close(fds[1]);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(hang_up_arrives_unasked)
{
    struct loop *loop = make(_i);
    int fds[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    struct seen *s = watch_new(loop, fds[0], 0);
    ck_assert_int_eq(send(fds[1], "x", 1, 0), 1);
    ck_assert_int_eq(turn_ready(loop), 0); /* data was not asked for */
    close(fds[1]);
    ck_assert_int_eq(turn_some(loop), 1);
    ck_assert_uint_eq(s->events, EPOLLHUP);
    ck_assert_int_eq(turn_some(loop), 1); /* it lasts */
    watch_free(s);
    close(fds[0]);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(error_arrives_unasked)
{
    struct loop *loop = make(_i);
    int fds[2];
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    struct seen *s = watch_new(loop, fds[1], 0);
    close(fds[0]);
    ck_assert_int_eq(turn_some(loop), 1);
    ck_assert_uint_eq(s->events, EPOLLERR);
    watch_free(s);
    close(fds[1]);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(half_closed_socket_tells_when_asked)
{
    struct loop *loop = make(_i);
    int fds[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    struct seen *s = watch_new(loop, fds[0], EPOLLRDHUP);
    ck_assert_int_eq(shutdown(fds[1], SHUT_WR), 0);
    ck_assert_int_eq(turn_some(loop), 1);
    ck_assert_uint_eq(s->events, EPOLLRDHUP);
    watch_free(s);
    close(fds[0]);
    close(fds[1]);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(mod_changes_what_is_waited_for)
{
    struct loop *loop = make(_i);
    int fds[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    struct seen *s = watch_new(loop, fds[0], EPOLLIN);
    ck_assert_int_eq(turn_ready(loop), 0);
    ck_assert_int_eq(loop_watch_mod(loop, &s->watch, EPOLLIN | EPOLLOUT), 0);
    ck_assert_int_eq(turn_some(loop), 1);
    ck_assert_uint_eq(s->events, EPOLLOUT);
    ck_assert_int_eq(loop_watch_mod(loop, &s->watch, 0), 0);
    ck_assert_int_eq(turn_ready(loop), 0);
    ck_assert_int_eq(send(fds[1], "x", 1, 0), 1);
    ck_assert_int_eq(turn_ready(loop), 0);
    ck_assert_int_eq(loop_watch_mod(loop, &s->watch, EPOLLIN), 0);
    ck_assert_int_eq(turn_some(loop), 1);
    ck_assert_uint_eq(s->events, EPOLLIN);
    watch_free(s);
    close(fds[0]);
    close(fds[1]);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(mod_to_and_fro_between_two_turns)
{
    struct loop *loop = make(_i);
    int bell = bell_new();
    struct seen *s = watch_new(loop, bell, EPOLLIN);
    ck_assert_int_eq(turn_ready(loop), 0);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(loop_watch_mod(loop, &s->watch, EPOLLIN | EPOLLOUT), 0);
        ck_assert_int_eq(loop_watch_mod(loop, &s->watch, EPOLLIN), 0);
        if (i % 10 == 0)
            ck_assert_int_eq(turn_ready(loop), 0);
    }
    ring_bell(bell);
    ck_assert_int_eq(turn_some(loop), 1);
    ck_assert_uint_eq(s->events, EPOLLIN);
    watch_free(s);
    close(bell);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(mod_in_its_own_callback)
{
    struct loop *loop = make(_i);
    int fds[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    struct seen *s = watch_new(loop, fds[0], EPOLLOUT);
    s->mod = true;
    s->mod_to = EPOLLIN;
    ck_assert_int_eq(turn_some(loop), 1);
    ck_assert_uint_eq(s->events, EPOLLOUT);
    ck_assert_int_eq(turn_ready(loop), 0);
    ck_assert_int_eq(send(fds[1], "x", 1, 0), 1);
    ck_assert_int_eq(turn_some(loop), 1);
    ck_assert_uint_eq(s->events, EPOLLIN);
    watch_free(s);
    close(fds[0]);
    close(fds[1]);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(deleted_watch_is_silent_and_its_descriptor_free)
{
    struct loop *loop = make(_i);
    int bell = bell_new();
    struct seen *s = watch_new(loop, bell, EPOLLIN);
    ck_assert_int_eq(turn_ready(loop), 0);
    ring_bell(bell); /* its event is on its way already */
    watch_free(s);
    ck_assert_int_eq(turn_ready(loop), 0);
    s = watch_new(loop, bell, EPOLLIN); /* same descriptor, same slot, another generation */
    ck_assert_int_eq(turn_some(loop), 1);
    ck_assert_uint_eq(s->calls, 1);
    watch_free(s);
    close(bell);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(deleted_and_added_again_fires_once)
{
    struct loop *loop = make(_i);
    int bell = bell_new();
    struct seen *s = watch_new(loop, bell, EPOLLIN);
    ck_assert_int_eq(turn_ready(loop), 0);
    loop_watch_del(loop, &s->watch);
    ck_assert_int_eq(loop_watch_add(loop, &s->watch), 0);
    ck_assert_int_eq(turn_ready(loop), 0); /* what the kernel says of the old one is dropped */
    ring_bell(bell);
    ck_assert_int_eq(turn_some(loop), 1);
    watch_free(s);
    close(bell);
    loop_destroy(&loop);
}

struct swap {
    struct seen *old;
    struct loop_watch *fresh;
};

static void replace_other(struct loop_watch *watch, uint32_t events)
{
    (void)events;
    struct swap *swap = watch->ctx;
    struct loop *loop = swap->old->loop;
    loop_watch_del(loop, watch);
    loop_watch_del(loop, &swap->old->watch);
    ck_assert_int_eq(loop_watch_add(loop, swap->fresh), 0);
}

/* The new watch gets the slot of the deleted one, whose event waits in the same turn. */
CASE_BOTH_LOOPS(an_event_of_a_deleted_watch_does_not_reach_its_successor)
{
    for (int killer = 0; killer < 2; killer++) { /* one of the two orders has the event behind */
        struct loop *loop = make(_i);
        int bells[3] = {bell_new(), bell_new(), bell_new()};
        struct seen fresh = {.loop = loop};
        fresh.watch =
            (struct loop_watch){.fn = note, .ctx = &fresh, .fd = bells[2], .events = EPOLLIN};
        struct seen *old = watch_new(loop, bells[killer ? 0 : 1], EPOLLIN);
        struct swap swap = {.old = old, .fresh = &fresh.watch};
        struct loop_watch first = {
            .fn = replace_other, .ctx = &swap, .fd = bells[killer ? 1 : 0], .events = EPOLLIN};
        ck_assert_int_eq(loop_watch_add(loop, &first), 0);
        ck_assert_int_eq(turn_ready(loop), 0);
        ring_bell(bells[0]);
        ring_bell(bells[1]);
        ck_assert_int_ge(turn_some(loop), 1);
        (void)turn_ready(loop);
        ck_assert_uint_eq(fresh.calls, 0);
        ring_bell(bells[2]);
        ck_assert_int_eq(turn_some(loop), 1);
        ck_assert_uint_eq(fresh.calls, 1);
        watch_free(old);
        loop_watch_del(loop, &fresh.watch);
        for (int i = 0; i < 3; i++)
            close(bells[i]);
        loop_destroy(&loop);
    }
}

CASE_BOTH_LOOPS(delete_of_a_watch_that_is_not_added_does_nothing)
{
    struct loop *loop = make(_i);
    struct loop_watch watch = {.fn = note, .fd = 0};
    loop_watch_del(loop, &watch);
    ck_assert_int_eq(turn_ready(loop), 0);
    loop_destroy(&loop);
}

static void free_yourself(struct loop_watch *watch, uint32_t events)
{
    (void)events;
    struct loop *loop = watch->ctx;
    int fd = watch->fd;
    loop_watch_del(loop, watch);
    close(fd);
    memset(watch, 0xa5, sizeof(*watch));
    free(watch);
}

CASE_BOTH_LOOPS(a_watch_may_be_freed_in_its_own_callback)
{
    struct loop *loop = make(_i);
    int bell = bell_new();
    ring_bell(bell);
    struct loop_watch *watch = calloc(1, sizeof(*watch));
    ck_assert_ptr_nonnull(watch);
    *watch = (struct loop_watch){.fn = free_yourself, .ctx = loop, .fd = bell, .events = EPOLLIN};
    ck_assert_int_eq(loop_watch_add(loop, watch), 0);
    ck_assert_int_eq(turn_some(loop), 1);
    ck_assert_int_eq(turn_ready(loop), 0);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(a_watch_deleted_by_another_in_the_same_turn_is_not_called)
{
    struct loop *loop = make(_i);
    int bells[2] = {bell_new(), bell_new()};
    struct seen *s[2] = {watch_new(loop, bells[0], EPOLLIN), watch_new(loop, bells[1], EPOLLIN)};
    ck_assert_int_eq(turn_ready(loop), 0);
    s[0]->victim = s[1]; /* whichever comes first kills the other */
    s[1]->victim = s[0];
    ring_bell(bells[0]);
    ring_bell(bells[1]);
    int callbacks = turn_some(loop) + turn_ready(loop);
    ck_assert_int_eq(callbacks, (int)(s[0]->calls + s[1]->calls));
    ck_assert(s[0]->calls == 0 || s[1]->calls == 0);
    watch_free(s[0]);
    watch_free(s[1]);
    close(bells[0]);
    close(bells[1]);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(the_other_end_sees_the_close_after_one_turn)
{
    struct loop *loop = make(_i);
    int fds[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    struct seen *s = watch_new(loop, fds[0], EPOLLIN);
    ck_assert_int_eq(turn_ready(loop), 0);
    watch_free(s);
    close(fds[0]);
    ck_assert_int_eq(loop_turn(loop, 0), 0);
    struct pollfd other = {.fd = fds[1], .events = POLLIN};
    ck_assert_int_eq(poll(&other, 1, 0), 1);
    ck_assert_int_ne(other.revents & POLLHUP, 0);
    close(fds[1]);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(add_names_what_is_wrong)
{
    struct loop *loop = make_with(_i, 8, 2, 0);
    int bell = bell_new();
    struct seen *s = watch_new(loop, bell, EPOLLIN);
    struct loop_watch bad = {.fn = note, .ctx = s, .fd = -1, .events = EPOLLIN};
    ck_assert_int_eq(loop_watch_add(loop, &bad), -EBADF);
    bad.fd = 9999;
    ck_assert_int_eq(loop_watch_add(loop, &bad), -EBADF);
    bad.fd = bell;
    ck_assert_int_eq(loop_watch_add(loop, &bad), -EEXIST);
    bad.fd = memfd_create("regular", MFD_CLOEXEC);
    ck_assert_int_eq(loop_watch_add(loop, &bad), -EPERM);
    close(bad.fd);
    int second = bell_new();
    struct seen *t = watch_new(loop, second, EPOLLIN);
    bad.fd = bell_new();
    ck_assert_int_eq(loop_watch_add(loop, &bad), -ENOSPC);
    watch_free(t); /* what failed before has used up nothing */
    ck_assert_int_eq(loop_watch_add(loop, &bad), 0);
    loop_watch_del(loop, &bad);
    close(bad.fd);
    watch_free(s);
    close(second);
    close(bell);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(more_watches_than_the_submission_queue_holds)
{
    enum { N = 100 };
    struct loop *loop = make_with(_i, 4, N, 0);
    int bells[N];
    struct seen *s[N];
    for (int i = 0; i < N; i++) {
        bells[i] = bell_new();
        s[i] = watch_new(loop, bells[i], EPOLLIN);
        s[i]->drain = true;
    }
    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < N; i++)
            ring_bell(bells[i]);
        for (int got = 0; got < N;) {
            int n = turn_some(loop);
            ck_assert_int_gt(n, 0);
            got += n;
        }
        for (int i = 0; i < N; i++)
            ck_assert_uint_eq(s[i]->calls, (unsigned)round);
    }
    for (int i = 0; i < N; i++) {
        watch_free(s[i]);
        close(bells[i]);
    }
    ck_assert_int_eq(turn_ready(loop), 0);
    loop_destroy(&loop);
}

CASE_DIES_BOTH_LOOPS(mod_of_a_watch_that_is_not_added_is_a_bug, SIGABRT)
{
    struct loop *loop = make(_i);
    struct loop_watch watch = {.fn = note, .fd = 0};
    (void)!loop_watch_mod(loop, &watch, EPOLLIN);
}

CASE_DIES_BOTH_LOOPS(edge_triggered_is_a_bug, SIGABRT)
{
    struct loop *loop = make(_i);
    struct loop_watch watch = {.fn = note, .fd = 0, .events = EPOLLIN | EPOLLET};
    (void)!loop_watch_add(loop, &watch);
}

/* --- waiting -------------------------------------------------------------------------------- */

CASE_BOTH_LOOPS(zero_does_not_wait_and_short_waits_that_long)
{
    struct loop *loop = make(_i);
    int bell = bell_new();
    struct seen *s = watch_new(loop, bell, EPOLLIN);
    ck_assert_int_eq(loop_turn(loop, 0), 0);
    ck_assert_int_eq(turn_ready(loop), 0);
    int64_t start = now_ns();
    ck_assert_int_eq(loop_turn(loop, 20 * MS), 0);
    /* Not earlier; how much later is the scheduler's affair. */
    ck_assert_int_ge(now_ns() - start, 20 * MS);
    start = now_ns();
    ck_assert_int_eq(loop_turn(loop, 1), 0);
    ck_assert_int_ge(now_ns() - start, 1);
    watch_free(s);
    close(bell);
    loop_destroy(&loop);
}

static void *ring_later(void *arg)
{
    struct timespec pause = {.tv_nsec = 20 * MS};
    nanosleep(&pause, NULL);
    ring_bell(*(int *)arg);
    return NULL;
}

CASE_BOTH_LOOPS(for_ever_ends_with_another_threads_bell)
{
    struct loop *loop = make(_i);
    int bell = bell_new();
    struct seen *s = watch_new(loop, bell, EPOLLIN);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, ring_later, &bell), 0);
    ck_assert_int_eq(loop_turn(loop, -1), 1);
    ck_assert_uint_eq(s->calls, 1);
    pthread_join(thread, NULL);
    watch_free(s);
    close(bell);
    loop_destroy(&loop);
}

static void ignore_signal(int signo)
{
    (void)signo;
}

CASE_BOTH_LOOPS(a_signal_ends_the_wait_early)
{
    struct loop *loop = make(_i);
    int bell = bell_new();
    struct seen *s = watch_new(loop, bell, EPOLLIN);
    struct sigaction action = {.sa_handler = ignore_signal};
    ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    ck_assert_int_eq(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
    /* Again and again: the first might come before the wait has begun. */
    struct itimerspec when = {{0, 10 * MS}, {0, 10 * MS}};
    for (int i = 0; i < 2; i++) { /* with something to submit, and with nothing */
        ck_assert_int_eq(timer_settime(timer, 0, &when, NULL), 0);
        ck_assert_int_eq(loop_turn(loop, -1), 0);
    }
    timer_delete(timer);
    watch_free(s);
    close(bell);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(a_blocked_signal_arrives_through_its_descriptor)
{
    struct loop *loop = make(_i);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    ck_assert_int_eq(sigprocmask(SIG_BLOCK, &set, NULL), 0);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    ck_assert_int_ge(fd, 0);
    struct seen *s = watch_new(loop, fd, EPOLLIN);
    ck_assert_int_eq(turn_ready(loop), 0);
    ck_assert_int_eq(kill(getpid(), SIGUSR1), 0);
    ck_assert_int_eq(turn_some(loop), 1);
    struct signalfd_siginfo info;
    ck_assert_int_eq(read(fd, &info, sizeof(info)), sizeof(info));
    ck_assert_uint_eq(info.ssi_signo, SIGUSR1);
    (void)turn_ready(loop);
    ck_assert_int_eq(turn_ready(loop), 0);
    watch_free(s);
    close(fd);
    loop_destroy(&loop);
}

static void turn_again(struct loop_watch *watch, uint32_t events)
{
    (void)events;
    (void)!loop_turn(watch->ctx, 0);
}

CASE_DIES_BOTH_LOOPS(a_turn_inside_a_turn_is_a_bug, SIGABRT)
{
    struct loop *loop = make(_i);
    int bell = bell_new();
    ring_bell(bell);
    struct loop_watch watch = {.fn = turn_again, .ctx = loop, .fd = bell, .events = EPOLLIN};
    ck_assert_int_eq(loop_watch_add(loop, &watch), 0);
    (void)turn_some(loop);
}

/* --- refusal -------------------------------------------------------------------------------- */

/* Lets system call `number` fail with `error`, for this process and for good. */
static void refuse(long number, int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* A child of its own also when Check does not fork: a filter cannot be taken back. */
static void in_child(void (*body)(void))
{
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        body();
        _exit(0);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: status 0x%x", status);
}

#define CHILD_CHECK(cond)                                              \
    do {                                                               \
        if (!(cond)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
            _exit(1);                                                  \
        }                                                              \
    } while (0)

static void expect_epoll_because(const char *why)
{
    struct loop *loop = NULL;
    struct loop_config config = {.want = LOOP_AUTO, .watches_max = 4, .ops_max = 4};
    CHILD_CHECK(loop_create(&config, &loop) == 0);
    CHILD_CHECK(strcmp(loop_backend_name(loop), "epoll") == 0);
    if (!strstr(loop_backend_reason(loop), why)) {
        fprintf(stderr, "reason is: %s\n", loop_backend_reason(loop));
        _exit(1);
    }
    loop_destroy(&loop);
    config.want = LOOP_URING;
    CHILD_CHECK(loop_create(&config, &loop) == -EPERM);
    CHILD_CHECK(loop == NULL);
}

static void without_setup(void)
{
    refuse(SYS_io_uring_setup, EPERM);
    expect_epoll_because("io_uring_queue_init: Operation not permitted");
}

static void without_enter(void)
{
    refuse(SYS_io_uring_enter, EPERM);
    expect_epoll_because("io_uring_");
}

CASE(falls_back_where_io_uring_setup_is_refused)
{
    in_child(without_setup);
}

CASES(.left_out = first_backend() != LOOP_URING);

CASE(falls_back_where_only_io_uring_enter_is_refused)
{
    in_child(without_enter);
}

static void without_pwait2(void)
{
    refuse(SYS_epoll_pwait2, ENOSYS);
    struct loop *loop = NULL;
    struct loop_config config = {.want = LOOP_EPOLL, .watches_max = 4};
    CHILD_CHECK(loop_create(&config, &loop) == 0);
    CHILD_CHECK(strstr(loop_backend_reason(loop), "milliseconds"));
    int bell = eventfd(0, EFD_NONBLOCK);
    struct seen s = {.loop = loop};
    s.watch = (struct loop_watch){.fn = note, .ctx = &s, .fd = bell, .events = EPOLLIN};
    CHILD_CHECK(loop_watch_add(loop, &s.watch) == 0);
    int64_t start = now_ns();
    CHILD_CHECK(loop_turn(loop, 2 * MS - 1) == 0);
    CHILD_CHECK(now_ns() - start >= 2 * MS - 1); /* rounded up, never down */
    CHILD_CHECK(loop_turn(loop, 0) == 0);
    const uint64_t one = 1;
    CHILD_CHECK(write(bell, &one, sizeof(one)) == sizeof(one));
    CHILD_CHECK(loop_turn(loop, -1) == 1);
    loop_watch_del(loop, &s.watch);
    close(bell);
    loop_destroy(&loop);
}

CASES();

CASE(waits_in_milliseconds_where_epoll_pwait2_is_refused)
{
    in_child(without_pwait2);
}

CASES(.left_out = first_backend() != LOOP_URING);

CASE(auto_prefers_io_uring)
{
    struct loop *loop = make(LOOP_AUTO);
    ck_assert_str_eq(loop_backend_name(loop), "io_uring");
    ck_assert_ptr_nonnull(strstr(loop_backend_reason(loop), "preferred"));
    loop_destroy(&loop);
}
