/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one descriptor that a caller's loop watches: an epoll of the library's own with
 *
 *   ZeroMQ's descriptor      edge-triggered by nature: readable when ZeroMQ has been told something
 *                            since it was last asked. Any call into ZeroMQ asks, and so may swallow
 *                            the wake-up for a reply that nobody has received.
 *   the attach connection    chunks, DROPPED, end of file
 *   the process of a daemon  whose copies may still touch pages (daemon_exit.c)
 *   an eventfd               readable while there is something to do that no descriptor tells of:
 *                            outcomes to be taken, replies inside ZeroMQ
 *   a timerfd                readable when a grace deadline has passed or connecting goes on
 *
 * Every call that may have swallowed a wake-up, completed an op or changed a time ends with
 * watch__update(). So the caller sees a level-triggered descriptor: it is readable until
 * kvc_progress and kvc_next have nothing to do.
 *
 * A child of fork() shares the epoll with its parent, and must not change it: its copies are closed
 * (fork.c).
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "client.h"
#include "sys.h"

static bool watch_is_on(const struct kvc *k)
{
    return k->watch.epoll >= 0;
}

/* ---- descriptors ---- */

void watch__add(struct kvc *k, int fd)
{
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    if (!watch_is_on(k) || fd < 0)
        return;
    /* If it cannot be added (no memory), the timer fires now and then instead: see next_time(). */
    if (epoll_ctl(k->watch.epoll, EPOLL_CTL_ADD, fd, &e) != 0 && errno != EEXIST)
        k->watch.blind = true;
}

void watch__remove(struct kvc *k, int fd)
{
    /* close() would not remove the descriptor while a child of fork() has a copy of it. */
    if (watch_is_on(k) && fd >= 0)
        (void)epoll_ctl(k->watch.epoll, EPOLL_CTL_DEL, fd, NULL);
}

static void close_all(struct watch *w)
{
    fork__forbid();
    if (w->timer >= 0)
        close(w->timer);
    if (w->event >= 0)
        close(w->event);
    if (w->epoll >= 0)
        close(w->epoll);
    *w = (struct watch){.epoll = -1, .event = -1, .timer = -1};
    fork__allow();
}

static int watch_open_all(struct kvc *k)
{
    struct watch *w = &k->watch;
    fork__forbid();
    w->epoll = sys_epoll();
    w->event = sys_eventfd(EFD_NONBLOCK);
    w->timer = sys_timerfd(TFD_NONBLOCK);
    int rc = w->epoll < 0 || w->event < 0 || w->timer < 0 ? -errno : 0;
    fork__allow();
    if (rc == 0) {
        watch__add(k, w->event);
        watch__add(k, w->timer);
        watch__add(k, k->attach_fd);
        watch__add(k, k->wire.fd);
        for (uint32_t i = 0; i < DAEMON_EXITS_MAX; i++)
            watch__add(k, k->exit[i].pidfd);
        rc = w->blind ? -ENOMEM : 0;
    }
    if (rc < 0)
        close_all(w);
    return rc;
}

void watch__close(struct kvc *k)
{
    close_all(&k->watch);
}

/* ---- what it says ---- */

static void raise_event(struct watch *w, bool raised)
{
    uint64_t one = 1;
    if (w->raised == raised)
        return;
    /* Neither can fail: the count is 0 before the write and 1 before the read. */
    w->raised = raised;
    if (raised)
        (void)!write(w->event, &one, sizeof(one));
    else
        (void)!read(w->event, &one, sizeof(one));
}

/* The time at which kvc_progress has something to do, though no descriptor becomes readable; 0 =
 * never. */
static uint64_t next_time(const struct kvc *k)
{
    uint64_t t = UINT64_MAX;
    for (const struct kvc_op *op = k->ops.live; op != NULL; op = op->next) {
        bool waits =
            op->stage != OP_DONE && op->stage != OP_NEW && !(op->borrows && op->partner != NULL);
        if (waits)
            t = kvc__min(t, op->grace_ns);
    }
    if (k->state == LINK_DOWN)
        t = kvc__min(t, k->next_try_ns);
    else if (k->state == LINK_ATTACHING)
        t = kvc__min(t, k->attach_until_ns);
    if (k->watch.blind || k->maps.unmapped != NULL)
        t = kvc__min(t, kvc__now() + NEWS_INTERVAL_MS * NS_PER_MS);
    return t == UINT64_MAX ? 0 : t;
}

/* A timer that is armed too early costs one idle wake-up, and saves setting it for each request. */
static void arm(struct kvc *k)
{
    struct watch *w = &k->watch;
    uint64_t t = next_time(k);
    if (w->armed_ns != 0 && (t == 0 || w->armed_ns <= t) && w->armed_ns > kvc__now())
        return;
    if (w->armed_ns == 0 && t == 0)
        return;
    struct itimerspec at = {
        .it_value = {.tv_sec = (time_t)(t / 1000000000u), .tv_nsec = (long)(t % 1000000000u)}};
    (void)timerfd_settime(w->timer, TFD_TIMER_ABSTIME, &at, NULL); /* fails for bad times only */
    w->armed_ns = t;
}

void watch__update(struct kvc *k)
{
    if (!watch_is_on(k))
        return;
    /* Asking ZeroMQ costs two system calls, which are saved if outcomes are ready anyway. */
    bool more = k->ops.ready_n > 0 || (k->wire.sock != NULL && wire__has_news(&k->wire));
    raise_event(&k->watch, more);
    arm(k);
}

/* ---- the public half ---- */

int kvc_fd(struct kvc *kvc)
{
    if (fork__is_child(kvc))
        return kvc__fail(kvc, -EPERM, "this session belongs to the parent process");
    if (!watch_is_on(kvc)) {
        int rc = watch_open_all(kvc);
        if (rc < 0)
            return kvc__fail(kvc, rc, "cannot make the descriptor to watch: %s",
                             strerrordesc_np(-rc));
        watch__update(kvc);
    }
    return kvc->watch.epoll;
}
