/* SPDX-License-Identifier: Apache-2.0 */
/* What the two programs of loop tests share. Cases for both loops run on io_uring and on epoll;
 * their _i is the enum loop_backend. */
#ifndef TESTS_LOOP_FIXTURE_H
#define TESTS_LOOP_FIXTURE_H

#include "cases.h"
#include "loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define MS         1000000ll
#define SECOND     1000000000ll
#define GIVE_UP_NS (20 * SECOND) /* limit of a turn that waits for an event */

static inline struct loop *make_with(int backend, unsigned entries, unsigned watches, unsigned ops)
{
    struct loop_config config = {.want = (enum loop_backend)backend,
                                 .entries = entries,
                                 .io_threads = 3,
                                 .watches_max = watches,
                                 .ops_max = ops};
    struct loop *loop = NULL;
    int r = loop_create(&config, &loop);
    ck_assert_msg(r == 0, "loop_create: %s", strerror(-r));
    return loop;
}

static inline struct loop *make(int backend)
{
    return make_with(backend, 0, 16, 16);
}

static inline int64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * SECOND + ts.tv_nsec;
}

/* Runs turns until a callback has run. A turn may return 0 early: see loop_turn(). */
static inline int turn_some(struct loop *loop)
{
    int64_t end = now_ns() + GIVE_UP_NS;
    int n = 0;
    while (n == 0 && now_ns() < end)
        n = loop_turn(loop, GIVE_UP_NS);
    return n;
}

/* Runs turns without waiting, so many that everything ready is handled. */
static inline int turn_ready(struct loop *loop)
{
    int callbacks = 0;
    for (int i = 0; i < 3; i++) {
        int n = loop_turn(loop, 0);
        ck_assert_int_ge(n, 0);
        callbacks += n;
    }
    return callbacks;
}

/* A watch that notes its callbacks. */
struct seen {
    struct loop_watch watch;
    struct loop *loop;
    unsigned calls;
    uint32_t events;
    struct seen *victim; /* watch that is deleted in the callback */
    uint32_t mod_to;
    bool mod;
    bool drain;
};

static inline void note(struct loop_watch *watch, uint32_t events)
{
    struct seen *s = watch->ctx;
    s->calls++;
    s->events = events;
    if (s->drain) {
        uint64_t count;
        ck_assert_int_eq(read(watch->fd, &count, sizeof(count)), sizeof(count));
    }
    if (s->mod)
        ck_assert_int_eq(loop_watch_mod(s->loop, watch, s->mod_to), 0);
    if (s->victim)
        loop_watch_del(s->loop, &s->victim->watch);
}

static inline struct seen *watch_new(struct loop *loop, int fd, uint32_t events)
{
    struct seen *s = calloc(1, sizeof(*s));
    ck_assert_ptr_nonnull(s);
    s->loop = loop;
    s->watch = (struct loop_watch){.fn = note, .ctx = s, .fd = fd, .events = events};
    ck_assert_int_eq(loop_watch_add(loop, &s->watch), 0);
    return s;
}

static inline void watch_free(struct seen *s)
{
    loop_watch_del(s->loop, &s->watch);
    memset(s, 0xa5, sizeof(*s)); /* a late callback must find nothing that it could use */
    free(s);
}

static inline void ring_bell(int fd)
{
    const uint64_t one = 1;
    ck_assert_int_eq(write(fd, &one, sizeof(one)), sizeof(one));
}

static inline int bell_new(void)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ck_assert_int_ge(fd, 0);
    return fd;
}

/* The first backend to test. Without io_uring only epoll is tested, which is printed. */
static inline int first_backend(void)
{
    static bool known;
    static int first;
    if (known)
        return first;
    known = true;
    struct loop *loop = NULL;
    struct loop_config config = {.want = LOOP_URING, .watches_max = 1};
    int r = loop_create(&config, &loop);
    loop_destroy(&loop);
    first = r == 0 ? LOOP_URING : LOOP_EPOLL;
    if (r != 0)
        printf("SKIP: io_uring is refused here (%s): the epoll half runs alone\n", strerror(-r));
    return first;
}

/* Runs on both loops; _i is the backend. */
#define CASE_BOTH_LOOPS(name) CASE_RANGE(name, first_backend(), LOOP_EPOLL + 1)
#define CASE_DIES_BOTH_LOOPS(name, signo) \
    CHECK_CASE(name, .first = first_backend(), .end = LOOP_EPOLL + 1, .signal = (signo))

#endif
