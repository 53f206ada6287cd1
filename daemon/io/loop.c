/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop of the control thread: chooses io_uring or epoll, owns the table of watches, and checks
 * every call against the contract of loop.h. The two backends are loop_uring.c and loop_epoll.c.
 */
#include "loop.h"

#include "err.h"
#include "loop_impl.h"
#include "sys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES_DEFAULT = 256, IO_THREADS_DEFAULT = 4, IO_THREADS_MAX = 256 };

#define WATCH_EVENTS (EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP | EPOLLERR | EPOLLHUP)
#define PIECE_MAX    (1u << 30) /* below the kernel's own limit of 2 GiB - 4 KiB, and aligned */

static void must_be_loop_thread(const struct loop *loop)
{
    MUST(pthread_equal(loop->thread, pthread_self()));
}

int loop__init(struct loop *loop, const struct loop_backend_ops *ops,
               const struct loop_config *config)
{
    loop->ops = ops;
    loop->thread = pthread_self();
    loop->watches_max = config->watches_max;
    loop->ops_max = config->ops_max;
    loop->woke = config->woke;
    loop->woke_ctx = config->ctx;
    loop->slots = sys_calloc(config->watches_max, sizeof(*loop->slots));
    if (!loop->slots)
        return -ENOMEM;
    for (uint32_t i = 0; i < loop->watches_max; i++)
        loop->slots[i].next_free = i + 1 < loop->watches_max ? i + 1 : LOOP__NONE;
    loop->slot_free = 0;
    if (config->buffers_max == 0)
        return 0;
    loop->buffers_max = config->buffers_max;
    loop->buffers = sys_calloc(config->buffers_max, sizeof(*loop->buffers));
    loop->buffer_order = sys_calloc(config->buffers_max, sizeof(*loop->buffer_order));
    return loop->buffers && loop->buffer_order ? 0 : -ENOMEM;
}

void loop__fini(struct loop *loop)
{
    free(loop->slots);
    loop->slots = NULL;
    free(loop->buffers);
    loop->buffers = NULL;
    free(loop->buffer_order);
    loop->buffer_order = NULL;
}

static int config_check(const struct loop_config *in, struct loop_config *ret_config)
{
    if (in->watches_max < 1 || in->watches_max > LOOP__TABLE_MAX || in->ops_max > LOOP__TABLE_MAX)
        return -EINVAL;
    if (in->io_threads > IO_THREADS_MAX || in->buffers_max > LOOP_BUFFERS_MAX)
        return -EINVAL;
    if (in->want != LOOP_AUTO && in->want != LOOP_URING && in->want != LOOP_EPOLL)
        return -EINVAL;
    *ret_config = *in;
    if (ret_config->entries == 0)
        ret_config->entries = ENTRIES_DEFAULT;
    if (ret_config->io_threads == 0)
        ret_config->io_threads = IO_THREADS_DEFAULT;
    return 0;
}

static int create_asked(const struct loop_config *config, struct loop **ret_loop)
{
    bool uring = config->want == LOOP_URING;
    const char *what = NULL;
    int r = uring ? loop__uring_create(config, ret_loop, &what)
                  : loop__epoll_create(config, ret_loop, &what);
    if (r < 0)
        return r;
    struct loop *loop = *ret_loop;
    snprintf(loop->reason, sizeof(loop->reason), "asked for (%s)", loop->setup);
    return 0;
}

static int create_auto(const struct loop_config *config, struct loop **ret_loop)
{
    struct loop *loop = NULL;
    const char *uring_what = NULL;
    const char *epoll_what = NULL;
    int refused = loop__uring_create(config, &loop, &uring_what);
    if (refused < 0) {
        int r = loop__epoll_create(config, &loop, &epoll_what);
        if (r < 0)
            return r;
        snprintf(loop->reason, sizeof(loop->reason), "%s: %s (%s)", uring_what, strerror(-refused),
                 loop->setup);
    } else {
        snprintf(loop->reason, sizeof(loop->reason), "preferred (%s)", loop->setup);
    }
    *ret_loop = loop;
    return 0;
}

int loop_create(const struct loop_config *config, struct loop **ret_loop)
{
    struct loop_config checked;
    int r = config_check(config, &checked);
    if (r < 0)
        return r;
    return checked.want == LOOP_AUTO ? create_auto(&checked, ret_loop)
                                     : create_asked(&checked, ret_loop);
}

void loop_destroy(struct loop **loop)
{
    if (!loop || !*loop)
        return;
    must_be_loop_thread(*loop);
    MUST(!(*loop)->in_turn);
    (*loop)->ops->destroy(*loop);
    *loop = NULL;
}

const char *loop_backend_name(const struct loop *loop)
{
    return loop->ops->name;
}

const char *loop_backend_reason(const struct loop *loop)
{
    return loop->reason;
}

static struct loop_slot *loop_slot_of(struct loop *loop, const struct loop_watch *watch)
{
    MUST(watch->loop_slot > 0 && watch->loop_slot <= loop->watches_max);
    struct loop_slot *slot = &loop->slots[watch->loop_slot - 1];
    MUST(slot->watch == watch);
    return slot;
}

static void slot_release(struct loop *loop, uint32_t index)
{
    struct loop_slot *slot = &loop->slots[index];
    slot->watch->loop_slot = 0;
    slot->watch = NULL;
    slot->gen++;
    slot->next_free = loop->slot_free;
    loop->slot_free = index;
}

/* A scan: watches are added when somebody connects, and epoll alone would notice by itself. */
static bool fd_is_watched(const struct loop *loop, int fd)
{
    for (uint32_t i = 0; i < loop->watches_max; i++) {
        if (loop->slots[i].watch && loop->slots[i].watch->fd == fd)
            return true;
    }
    return false;
}

int loop_watch_add(struct loop *loop, struct loop_watch *watch)
{
    must_be_loop_thread(loop);
    MUST(watch->fn && watch->loop_slot == 0);
    MUST((watch->events & ~(uint32_t)WATCH_EVENTS) == 0);
    if (watch->fd < 0)
        return -EBADF;
    if (fd_is_watched(loop, watch->fd))
        return -EEXIST;
    uint32_t index = loop->slot_free;
    if (index == LOOP__NONE)
        return -ENOSPC;
    loop->slot_free = loop->slots[index].next_free;
    loop->slots[index].watch = watch;
    watch->loop_slot = index + 1;
    int r = loop->ops->watch_add(loop, index);
    if (r < 0)
        slot_release(loop, index);
    return r;
}

int loop_watch_mod(struct loop *loop, struct loop_watch *watch, uint32_t events)
{
    must_be_loop_thread(loop);
    MUST((events & ~(uint32_t)WATCH_EVENTS) == 0);
    struct loop_slot *slot = loop_slot_of(loop, watch);
    uint32_t before = watch->events;
    if (events == before)
        return 0;
    watch->events = events;
    int r = loop->ops->watch_mod(loop, (uint32_t)(slot - loop->slots));
    if (r < 0)
        watch->events = before;
    return r;
}

void loop_watch_del(struct loop *loop, struct loop_watch *watch)
{
    must_be_loop_thread(loop);
    if (watch->loop_slot == 0)
        return;
    uint32_t index = (uint32_t)(loop_slot_of(loop, watch) - loop->slots);
    loop->ops->watch_del(loop, index);
    slot_release(loop, index);
}

int loop__deliver(struct loop *loop, uint32_t slot, uint32_t gen, uint32_t events)
{
    struct loop_watch *watch = loop->slots[slot].watch;
    if (!watch || loop->slots[slot].gen != gen)
        return 0;
    events &= watch->events | EPOLLERR | EPOLLHUP;
    if (events == 0)
        return 0;
    watch->fn(watch, events);
    return 1;
}

static bool is_vectored(const struct loop_file_op *op)
{
    return op->kind == LOOP_READV || op->kind == LOOP_WRITEV;
}

static void loop_prepare(struct loop_file_op *op)
{
    switch (op->kind) {
    case LOOP_READ:
    case LOOP_WRITE:
        MUST(op->buf || op->len == 0);
        break;
    case LOOP_READV:
    case LOOP_WRITEV:
        MUST(op->iov && op->iovs >= 1 && op->iovs <= LOOP_IOV_MAX);
        op->len = 0;
        for (unsigned i = 0; i < op->iovs; i++)
            op->len += op->iov[i].iov_len;
        break;
    case LOOP_PAUSE:
        op->loop_ts[0] = (int64_t)(op->off / 1000000000);
        op->loop_ts[1] = (int64_t)(op->off % 1000000000);
        break;
    case LOOP_FDATASYNC:
        break;
    default:
        MUST(!"a kind of file operation");
    }
}

void loop_file_submit(struct loop *loop, struct loop_file_op *op)
{
    must_be_loop_thread(loop);
    MUST(loop->ops_inflight < loop->ops_max);
    MUST(op->done);
    loop_prepare(op);
    loop->ops_inflight++;
    op->result = 0;
    op->loop_next = NULL;
    op->loop_moved = 0;
    loop->ops->file_submit(loop, op);
}

static unsigned at_most(uint64_t bytes)
{
    return bytes < PIECE_MAX ? (unsigned)bytes : PIECE_MAX;
}

struct loop_piece loop__file_piece(const struct loop_file_op *op)
{
    struct loop_piece piece = {.off = op->off + op->loop_moved};
    if (!is_vectored(op)) {
        piece.len = at_most(op->len - op->loop_moved);
        piece.at = piece.len > 0 ? (char *)op->buf + op->loop_moved : op->buf;
        return piece;
    }
    uint64_t skip = op->loop_moved;
    unsigned i = 0;
    for (; i < op->iovs - 1 && skip >= op->iov[i].iov_len; i++)
        skip -= op->iov[i].iov_len;
    if (skip > 0) { /* the rest of one element by itself, so that the vector need not change */
        piece.len = at_most(op->iov[i].iov_len - skip);
        piece.at = (char *)op->iov[i].iov_base + skip;
    } else {
        piece.iov = &op->iov[i];
        piece.iovs = op->iovs - i;
    }
    return piece;
}

bool loop__file_step(struct loop_file_op *op, int64_t res)
{
    if (res == -EINTR)
        return false;
    if (res < 0 || op->kind == LOOP_FDATASYNC || op->kind == LOOP_PAUSE) {
        op->result = res;
        return true;
    }
    op->loop_moved += (uint64_t)res;
    if (res > 0 && op->loop_moved < op->len)
        return false;
    bool stuck = loop__file_writes(op) && op->loop_moved < op->len;
    op->result = stuck ? -EIO : (int64_t)op->loop_moved;
    return true;
}

void loop__file_done(struct loop *loop, struct loop_file_op *op)
{
    MUST(loop->ops_inflight > 0);
    loop->ops_inflight--;
    op->done(op);
}

/* How many buffers begin at `at` or before it. */
static uint32_t buffers_up_to(const struct loop *loop, const char *at)
{
    uint32_t low = 0, high = loop->buffers_set;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        if ((const char *)loop->buffers[loop->buffer_order[mid]].base <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void order_remove(struct loop *loop, uint32_t no)
{
    uint32_t at = 0;
    while (at < loop->buffers_set && loop->buffer_order[at] != no)
        at++;
    if (at == loop->buffers_set)
        return;
    loop->buffers_set--;
    memmove(&loop->buffer_order[at], &loop->buffer_order[at + 1],
            (loop->buffers_set - at) * sizeof(loop->buffer_order[0]));
}

static void order_insert(struct loop *loop, uint32_t no)
{
    const uint32_t at = buffers_up_to(loop, loop->buffers[no].base);
    memmove(&loop->buffer_order[at + 1], &loop->buffer_order[at],
            (loop->buffers_set - at) * sizeof(loop->buffer_order[0]));
    loop->buffer_order[at] = no;
    loop->buffers_set++;
}

int loop_buffer_set(struct loop *loop, unsigned no, void *base, size_t bytes)
{
    must_be_loop_thread(loop);
    MUST(no < loop->buffers_max && (base == NULL) == (bytes == 0));
    if (bytes > LOOP_BUFFER_BYTES_MAX)
        return -EINVAL;
    if (!loop->ops->buffer_set)
        return -EOPNOTSUPP;
    order_remove(loop, no);
    loop->buffers[no] = (struct loop_buffer){0};
    const int r = loop->ops->buffer_set(loop, no, base, bytes);
    if (r != 0 || base == NULL)
        return r;
    loop->buffers[no] = (struct loop_buffer){base, bytes};
    order_insert(loop, no);
    return r;
}

uint32_t loop__buffer_of(const struct loop *loop, const struct loop_piece *piece, char **ret_at,
                         unsigned *ret_len)
{
    char *at = piece->iovs > 0 ? piece->iov[0].iov_base : piece->at;
    size_t len = piece->iovs > 0 ? 0 : piece->len;
    for (unsigned i = 0; i < piece->iovs; i++) {
        if ((char *)piece->iov[i].iov_base != at + len)
            return LOOP__NONE;
        len += piece->iov[i].iov_len;
    }
    if (len == 0 || len > PIECE_MAX)
        return LOOP__NONE;
    const uint32_t before = buffers_up_to(loop, at);
    if (before == 0)
        return LOOP__NONE;
    const uint32_t no = loop->buffer_order[before - 1];
    const struct loop_buffer *b = &loop->buffers[no];
    if (len > b->bytes || (size_t)(at - b->base) > b->bytes - len)
        return LOOP__NONE;
    *ret_at = at;
    *ret_len = (unsigned)len;
    return no;
}

int loop_turn(struct loop *loop, int64_t timeout_ns)
{
    must_be_loop_thread(loop);
    MUST(!loop->in_turn);
    loop->in_turn = true;
    int r = loop->ops->turn(loop, timeout_ns);
    loop->in_turn = false;
    return r;
}
