/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop on epoll, for machines and containers that refuse io_uring.
 *
 * epoll cannot wait for files, so a pool of threads runs file operations with pread, pwrite and
 * fdatasync. The pool and the control thread share two lists under one mutex. An eventfd, itself in
 * the epoll set, is written when the list of finished operations stops being empty.
 */
#include "err.h"
#include "loop_impl.h"
#include "sys.h"
#include "thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS_PER_TURN = 256 }; /* further events come first in the next turn */

/* event.data: generation in the high half, slot in the low half. SLOT_POOL stands for done_fd. */
#define SLOT_POOL LOOP__NONE

struct op_list {
    struct loop_file_op *head;
    struct loop_file_op *tail;
};

struct poller {
    struct loop base;
    int epoll_fd;
    bool whole_ms; /* epoll_pwait2 is refused: timeouts are rounded up to milliseconds */
    struct epoll_event events[EVENTS_PER_TURN];

    /* pool: threads are made in create and joined in destroy */
    int done_fd;
    pthread_t *threads;
    unsigned threads_started;
    bool sync_made;
    pthread_mutex_t mutex; /* guards the four below */
    pthread_cond_t work;
    struct op_list queued;
    struct op_list finished;
    bool stop;
};

static struct poller *poller_of(struct loop *loop)
{
    return (struct poller *)loop;
}

static void list_push(struct op_list *list, struct loop_file_op *op)
{
    op->loop_next = NULL;
    if (list->tail)
        list->tail->loop_next = op;
    else
        list->head = op;
    list->tail = op;
}

static struct loop_file_op *list_pop(struct op_list *list)
{
    struct loop_file_op *op = list->head;
    if (op) {
        list->head = op->loop_next;
        if (!list->head)
            list->tail = NULL;
    }
    return op;
}

/* --- pool threads --------------------------------------------------------------------------- */

static int64_t transfer(const struct loop_file_op *op)
{
    struct loop_piece piece = loop__file_piece(op);
    const struct iovec one = {piece.at, piece.len};
    if (piece.iovs == 0) {
        piece.iov = &one;
        piece.iovs = 1;
    }
    const ssize_t n = loop__file_writes(op)
                          ? pwritev(op->fd, piece.iov, (int)piece.iovs, (off_t)piece.off)
                          : preadv(op->fd, piece.iov, (int)piece.iovs, (off_t)piece.off);
    return n < 0 ? -errno : n;
}

static int64_t loop_epoll_run(const struct loop_file_op *op)
{
    if (op->kind == LOOP_FDATASYNC)
        return fdatasync(op->fd) < 0 ? -errno : 0;
    if (op->kind == LOOP_PAUSE) {
        struct timespec left = {.tv_sec = op->loop_ts[0], .tv_nsec = op->loop_ts[1]};
        while (nanosleep(&left, &left) != 0 && errno == EINTR) {
        }
        return 0;
    }
    return transfer(op);
}

static void signal_fd(int fd)
{
    const uint64_t one = 1;
    ssize_t n;
    do {
        n = write(fd, &one, sizeof(one));
    } while (n < 0 && errno == EINTR);
    /* EAGAIN: the counter is full, so the descriptor is readable already. */
    MUST(n == (ssize_t)sizeof(one) || errno == EAGAIN);
}

static void *pool_thread(void *arg)
{
    struct poller *p = arg;
    pthread_mutex_lock(&p->mutex);
    while (true) {
        while (!p->stop && !p->queued.head)
            pthread_cond_wait(&p->work, &p->mutex);
        if (p->stop)
            break;
        struct loop_file_op *op = list_pop(&p->queued);
        pthread_mutex_unlock(&p->mutex);
        while (!loop__file_step(op, loop_epoll_run(op))) {
        }
        pthread_mutex_lock(&p->mutex);
        bool was_empty = !p->finished.head;
        list_push(&p->finished, op);
        if (was_empty) {
            /* Unlocked, because the thread that this wakes takes the mutex at once. */
            pthread_mutex_unlock(&p->mutex);
            signal_fd(p->done_fd);
            pthread_mutex_lock(&p->mutex);
        }
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

/* --- control thread ------------------------------------------------------------------------- */

static int ctl(struct poller *p, int what, uint32_t slot)
{
    const struct loop_slot *s = &p->base.slots[slot];
    struct epoll_event event = {.events = s->watch->events,
                                .data.u64 = (uint64_t)s->gen << 32 | slot};
    return epoll_ctl(p->epoll_fd, what, s->watch->fd, &event) < 0 ? -errno : 0;
}

static int poller_watch_add(struct loop *loop, uint32_t slot)
{
    return ctl(poller_of(loop), EPOLL_CTL_ADD, slot);
}

static int poller_watch_mod(struct loop *loop, uint32_t slot)
{
    return ctl(poller_of(loop), EPOLL_CTL_MOD, slot);
}

static void poller_watch_del(struct loop *loop, uint32_t slot)
{
    /* Fails only when the descriptor was closed before: the caller's bug named in loop.h. */
    int r = ctl(poller_of(loop), EPOLL_CTL_DEL, slot);
    MUST(r == 0);
}

static void poller_file_submit(struct loop *loop, struct loop_file_op *op)
{
    struct poller *p = poller_of(loop);
    pthread_mutex_lock(&p->mutex);
    list_push(&p->queued, op);
    pthread_mutex_unlock(&p->mutex);
    pthread_cond_signal(&p->work);
}

static int take_finished(struct poller *p)
{
    /* Counter first, then list: in the other order a wake-up in between would be lost. */
    uint64_t count;
    ssize_t n = read(p->done_fd, &count, sizeof(count));
    MUST(n == (ssize_t)sizeof(count) || errno == EAGAIN || errno == EINTR);
    pthread_mutex_lock(&p->mutex);
    struct op_list finished = p->finished;
    p->finished = (struct op_list){0};
    pthread_mutex_unlock(&p->mutex);

    int callbacks = 0;
    for (struct loop_file_op *op = list_pop(&finished); op; op = list_pop(&finished)) {
        loop__file_done(&p->base, op);
        callbacks++;
    }
    return callbacks;
}

static int timeout_ms(int64_t timeout_ns)
{
    if (timeout_ns < 0)
        return -1;
    int64_t ms = timeout_ns / 1000000 + (timeout_ns % 1000000 != 0);
    return ms < INT32_MAX ? (int)ms : INT32_MAX;
}

static int wait_events(struct poller *p, int64_t timeout_ns)
{
    int n;
    if (p->whole_ms) {
        n = epoll_wait(p->epoll_fd, p->events, EVENTS_PER_TURN, timeout_ms(timeout_ns));
    } else {
        struct timespec ts = {.tv_sec = timeout_ns / 1000000000,
                              .tv_nsec = timeout_ns % 1000000000};
        n = epoll_pwait2(p->epoll_fd, p->events, EVENTS_PER_TURN, timeout_ns < 0 ? NULL : &ts,
                         NULL);
    }
    if (n >= 0)
        return n;
    return errno == EINTR ? 0 : -errno;
}

static int poller_turn(struct loop *loop, int64_t timeout_ns)
{
    struct poller *p = poller_of(loop);
    int events = wait_events(p, timeout_ns);
    if (events < 0)
        return events;
    loop__woke(loop);
    int callbacks = 0;
    for (int i = 0; i < events; i++) {
        uint64_t data = p->events[i].data.u64;
        if ((uint32_t)data == SLOT_POOL)
            callbacks += take_finished(p);
        else
            callbacks +=
                loop__deliver(loop, (uint32_t)data, (uint32_t)(data >> 32), p->events[i].events);
    }
    return callbacks;
}

/* --- birth and death ------------------------------------------------------------------------ */

static void pool_stop(struct poller *p)
{
    if (p->sync_made) {
        pthread_mutex_lock(&p->mutex);
        p->stop = true;
        pthread_mutex_unlock(&p->mutex);
        pthread_cond_broadcast(&p->work);
    }
    for (unsigned i = 0; i < p->threads_started; i++)
        pthread_join(p->threads[i], NULL);
    free(p->threads);
    if (p->sync_made) {
        pthread_cond_destroy(&p->work);
        pthread_mutex_destroy(&p->mutex);
    }
}

static void poller_destroy(struct loop *loop)
{
    struct poller *p = poller_of(loop);
    pool_stop(p);
    if (p->done_fd >= 0)
        close(p->done_fd);
    if (p->epoll_fd >= 0)
        close(p->epoll_fd);
    loop__fini(loop);
    free(p);
}

static const struct loop_backend_ops poller_ops = {
    .name = "epoll",
    .watch_add = poller_watch_add,
    .watch_mod = poller_watch_mod,
    .watch_del = poller_watch_del,
    .file_submit = poller_file_submit,
    .turn = poller_turn,
    .destroy = poller_destroy,
};

static int pool_threads_start(struct poller *p, unsigned threads)
{
    int r = 0;
    while (r == 0 && p->threads_started < threads) {
        char name[24];
        snprintf(name, sizeof(name), "kvc-file-%u", p->threads_started);
        r = thread_start(name, pool_thread, p, &p->threads[p->threads_started]);
        p->threads_started += r == 0;
    }
    return r;
}

static int pool_start(struct poller *p, unsigned threads)
{
    p->done_fd = sys_eventfd(EFD_NONBLOCK);
    if (p->done_fd < 0)
        return -errno;
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = SLOT_POOL};
    if (epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, p->done_fd, &event) < 0)
        return -errno;
    p->threads = sys_calloc(threads, sizeof(*p->threads));
    if (!p->threads)
        return -ENOMEM;
    int r = pthread_mutex_init(&p->mutex, NULL);
    if (r != 0)
        return -r;
    r = pthread_cond_init(&p->work, NULL);
    if (r != 0) {
        pthread_mutex_destroy(&p->mutex);
        return -r;
    }
    p->sync_made = true;
    return pool_threads_start(p, threads);
}

/* Kernels before 5.11 have no epoll_pwait2; older sandboxes refuse what they do not know. */
static bool pwait2_refused(struct poller *p)
{
    const struct timespec now = {0};
    return epoll_pwait2(p->epoll_fd, p->events, 1, &now, NULL) < 0 &&
           (errno == ENOSYS || errno == EPERM);
}

int loop__epoll_create(const struct loop_config *config, struct loop **ret_loop,
                       const char **ret_what)
{
    *ret_what = "memory for the loop's tables";
    struct poller *p = sys_calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->epoll_fd = -1;
    p->done_fd = -1;
    int r = loop__init(&p->base, &poller_ops, config);
    if (r >= 0) {
        *ret_what = "epoll_create1";
        p->epoll_fd = sys_epoll();
        r = p->epoll_fd < 0 ? -errno : 0;
    }
    if (r >= 0) {
        p->whole_ms = pwait2_refused(p);
        p->base.setup = p->whole_ms ? "epoll_wait, whole milliseconds" : "epoll_pwait2";
    }
    if (r >= 0 && config->ops_max > 0) {
        *ret_what = "file I/O pool";
        r = pool_start(p, config->io_threads);
    }
    if (r < 0) {
        poller_destroy(&p->base);
        return r;
    }
    *ret_loop = &p->base;
    return 0;
}
