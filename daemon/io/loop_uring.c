/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop on io_uring; the only file that includes liburing.h.
 *
 * Watches are one-shot polls, armed again in the turn after they fired, in the same system call
 * that waits. A multishot poll would save the arming, but it tells edges only: a callback that
 * leaves data unread would not be called again. (Measured: docs/notes/io-loop.md.)
 *
 * What the kernel shall be told is kept in two lists (dirty slots, queued operations) and becomes
 * SQEs at the start of a turn. A full submission queue is submitted and filled on; if the kernel
 * takes nothing just now (EBUSY, EAGAIN), the rest waits in its list for the next turn.
 */
#include "err.h"
#include "fault.h"
#include "loop_impl.h"
#include "sys.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { CQ_ENTRIES_MAX = 65536 }; /* the kernel's own limit */

/* user_data: kind in the top byte, table index in the next 24 bits, generation in the low 32. */
enum token_kind { TOKEN_POLL = 1, TOKEN_FILE, TOKEN_CANCEL, TOKEN_PROBE };

/* The state of a slot's poll in the kernel, and changes that were not submitted yet. */
struct arm {
    uint64_t cancel; /* token of a poll to cancel; 0: none */
    uint32_t dirty_next;
    bool dirty; /* is in the dirty list */
    bool armed; /* a poll of the slot's generation is with the kernel */
};

struct uring {
    struct loop base;
    struct io_uring ring;
    bool ring_open;
    bool buffers_open; /* the kernel has a table for them */
    struct arm *arms;  /* parallel to base.slots */
    uint32_t dirty_head;

    struct loop_file_op **ops; /* by index, NULL: free */
    uint32_t *op_next_free;
    uint32_t op_free;
    uint32_t ops_in_kernel; /* in the submission queue or beyond */
    struct loop_file_op *queue_head;
    struct loop_file_op *queue_tail;
};

static uint64_t token(enum token_kind kind, uint32_t index, uint32_t gen)
{
    return (uint64_t)kind << 56 | (uint64_t)index << 32 | gen;
}

static struct uring *uring_of(struct loop *loop)
{
    return (struct uring *)loop;
}

/* --- lists ---------------------------------------------------------------------------------- */

static void mark_dirty(struct uring *u, uint32_t slot)
{
    struct arm *arm = &u->arms[slot];
    if (arm->dirty)
        return;
    arm->dirty = true;
    arm->dirty_next = u->dirty_head;
    u->dirty_head = slot;
}

static void queue_push(struct uring *u, struct loop_file_op *op)
{
    op->loop_next = NULL;
    if (u->queue_tail)
        u->queue_tail->loop_next = op;
    else
        u->queue_head = op;
    u->queue_tail = op;
}

static int uring_watch_add(struct loop *loop, uint32_t slot)
{
    /* io_uring would say so only later, through the callback; epoll says it at once. */
    struct stat st;
    if (fstat(loop->slots[slot].watch->fd, &st) < 0)
        return -errno;
    if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
        return -EPERM;
    mark_dirty(uring_of(loop), slot);
    return 0;
}

/* Notes that the slot's poll in the kernel, if there is one, must be cancelled. */
static void disarm(struct uring *u, uint32_t slot)
{
    struct arm *arm = &u->arms[slot];
    if (!arm->armed)
        return;
    /* One per slot and turn at most: a slot is armed again only after its cancel has gone out. */
    MUST(arm->cancel == 0);
    arm->cancel = token(TOKEN_POLL, slot, u->base.slots[slot].gen);
    arm->armed = false;
    mark_dirty(u, slot);
}

static int uring_watch_mod(struct loop *loop, uint32_t slot)
{
    struct uring *u = uring_of(loop);
    if (!u->arms[slot].armed)
        return 0; /* will be armed with the new events */
    disarm(u, slot);
    loop->slots[slot].gen++;
    return 0;
}

static void uring_watch_del(struct loop *loop, uint32_t slot)
{
    disarm(uring_of(loop), slot);
}

static void uring_file_submit(struct loop *loop, struct loop_file_op *op)
{
    struct uring *u = uring_of(loop);
    uint32_t index = u->op_free;
    MUST(index != LOOP__NONE);
    u->op_free = u->op_next_free[index];
    u->ops[index] = op;
    op->loop_slot = index;
    queue_push(u, op);
}

/* --- to the kernel -------------------------------------------------------------------------- */

/* A free submission entry. NULL: the queue is full, and the kernel takes no entries now. */
static struct io_uring_sqe *next_sqe(struct uring *u)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    if (!sqe && io_uring_submit(&u->ring) > 0)
        sqe = io_uring_get_sqe(&u->ring);
    return sqe;
}

static bool put_cancel(struct uring *u, struct arm *arm)
{
    struct io_uring_sqe *sqe = next_sqe(u);
    if (!sqe)
        return false;
    io_uring_prep_poll_remove(sqe, arm->cancel);
    sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
    io_uring_sqe_set_data64(sqe, token(TOKEN_CANCEL, 0, 0));
    arm->cancel = 0;
    return true;
}

static bool put_poll(struct uring *u, uint32_t slot)
{
    struct io_uring_sqe *sqe = next_sqe(u);
    if (!sqe)
        return false;
    const struct loop_slot *s = &u->base.slots[slot];
    io_uring_prep_poll_add(sqe, s->watch->fd, s->watch->events);
    io_uring_sqe_set_data64(sqe, token(TOKEN_POLL, slot, s->gen));
    u->arms[slot].armed = true;
    return true;
}

static bool prep_fixed(const struct uring *u, struct io_uring_sqe *sqe,
                       const struct loop_file_op *op, const struct loop_piece *piece)
{
    char *at;
    unsigned len;
    const uint32_t buffer = loop__buffer_of(&u->base, piece, &at, &len);
    if (buffer == LOOP__NONE)
        return false;
    if (loop__file_writes(op))
        io_uring_prep_write_fixed(sqe, op->fd, at, len, piece->off, (int)buffer);
    else
        io_uring_prep_read_fixed(sqe, op->fd, at, len, piece->off, (int)buffer);
    return true;
}

static void prep_transfer(const struct uring *u, struct io_uring_sqe *sqe,
                          const struct loop_file_op *op)
{
    const struct loop_piece piece = loop__file_piece(op);
    const bool writes = loop__file_writes(op);
    if (u->buffers_open && prep_fixed(u, sqe, op, &piece))
        return;
    if (piece.iovs > 0 && writes)
        io_uring_prep_writev(sqe, op->fd, piece.iov, piece.iovs, piece.off);
    else if (piece.iovs > 0)
        io_uring_prep_readv(sqe, op->fd, piece.iov, piece.iovs, piece.off);
    else if (writes)
        io_uring_prep_write(sqe, op->fd, piece.at, piece.len, piece.off);
    else
        io_uring_prep_read(sqe, op->fd, piece.at, piece.len, piece.off);
}

_Static_assert(sizeof(((struct loop_file_op *)0)->loop_ts) == sizeof(struct __kernel_timespec),
               "loop_ts is what the kernel reads as a time");

static bool put_file(struct uring *u, struct loop_file_op *op)
{
    struct io_uring_sqe *sqe = next_sqe(u);
    if (!sqe)
        return false;
    if (op->kind == LOOP_FDATASYNC)
        io_uring_prep_fsync(sqe, op->fd, IORING_FSYNC_DATASYNC);
    else if (op->kind == LOOP_PAUSE)
        io_uring_prep_timeout(sqe, (struct __kernel_timespec *)(void *)op->loop_ts, 0, 0);
    else
        prep_transfer(u, sqe, op);
    io_uring_sqe_set_data64(sqe, token(TOKEN_FILE, op->loop_slot, 0));
    u->ops_in_kernel++;
    return true;
}

/* Moves changes of polls, and queued operations, to the submission queue. False: it had no room for
 * some. */
static bool loop_uring_fill(struct uring *u)
{
    while (u->dirty_head != LOOP__NONE) {
        uint32_t slot = u->dirty_head;
        struct arm *arm = &u->arms[slot];
        if (arm->cancel != 0 && !put_cancel(u, arm))
            return false;
        if (u->base.slots[slot].watch && !arm->armed && !put_poll(u, slot))
            return false;
        arm->dirty = false;
        u->dirty_head = arm->dirty_next;
    }
    while (u->queue_head) {
        struct loop_file_op *op = u->queue_head;
        if (!put_file(u, op))
            return false;
        u->queue_head = op->loop_next;
        if (!u->queue_head)
            u->queue_tail = NULL;
    }
    return true;
}

static int submit_and_wait(struct uring *u, int64_t timeout_ns)
{
    int r;
    if (timeout_ns == 0) {
        r = io_uring_submit_and_get_events(&u->ring);
    } else {
        struct __kernel_timespec ts = {.tv_sec = timeout_ns / 1000000000,
                                       .tv_nsec = timeout_ns % 1000000000};
        struct io_uring_cqe *cqe = NULL;
        r = io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, timeout_ns < 0 ? NULL : &ts, NULL);
    }
    /* EBUSY and EAGAIN: completions must be reaped first, or there is no memory for requests just
     * now. What was not submitted is still in the queue. */
    if (r == -ETIME || r == -EINTR || r == -EBUSY || r == -EAGAIN)
        return 0;
    return r < 0 ? r : 0;
}

static int uring_buffer_set(struct loop *loop, unsigned no, void *base, size_t bytes)
{
    struct uring *u = uring_of(loop);
    const struct iovec iov = {base, bytes};
    const __u64 tag = 0;
    if (!u->buffers_open)
        return -EOPNOTSUPP;
    if (FAULT(map))
        return -ENOMEM;
    const int r = io_uring_register_buffers_update_tag(&u->ring, no, &iov, &tag, 1);
    return r < 0 ? r : 0;
}

/* --- from the kernel ------------------------------------------------------------------------ */

static int on_poll(struct uring *u, uint32_t slot, uint32_t gen, int32_t res)
{
    if (!u->base.slots[slot].watch || u->base.slots[slot].gen != gen)
        return 0;
    u->arms[slot].armed = false;
    mark_dirty(u, slot);
    /* A poll that failed (the descriptor was closed behind our back) is an error of the watch. */
    return loop__deliver(&u->base, slot, gen, res < 0 ? EPOLLERR : (uint32_t)res);
}

static int on_file(struct uring *u, uint32_t index, int32_t res)
{
    struct loop_file_op *op = u->ops[index];
    MUST(op);
    u->ops_in_kernel--;
    if (op->kind == LOOP_PAUSE && res == -ETIME)
        res = 0;
    if (!loop__file_step(op, res)) {
        queue_push(u, op);
        return 0;
    }
    u->ops[index] = NULL;
    u->op_next_free[index] = u->op_free;
    u->op_free = index;
    loop__file_done(&u->base, op);
    return 1;
}

static int on_cqe(struct uring *u, uint64_t user_data, int32_t res)
{
    uint32_t index = (uint32_t)(user_data >> 32) & (LOOP__TABLE_MAX - 1);
    switch (user_data >> 56) {
    case TOKEN_POLL:
        return on_poll(u, index, (uint32_t)user_data, res);
    case TOKEN_FILE:
        return on_file(u, index, res);
    default:
        return 0; /* a cancel that came too late: its poll had fired already */
    }
}

/* Handles the completions that are there now, and none that callbacks add: a turn must end. */
static int loop_uring_reap(struct uring *u)
{
    int callbacks = 0;
    for (unsigned n = io_uring_cq_ready(&u->ring); n > 0; n--) {
        struct io_uring_cqe *cqe = NULL;
        if (io_uring_peek_cqe(&u->ring, &cqe) < 0)
            break;
        uint64_t user_data = cqe->user_data;
        int32_t res = cqe->res;
        io_uring_cqe_seen(&u->ring, cqe);
        callbacks += on_cqe(u, user_data, res);
    }
    return callbacks;
}

static int uring_turn(struct loop *loop, int64_t timeout_ns)
{
    struct uring *u = uring_of(loop);
    if (!loop_uring_fill(u))
        timeout_ns = 0;
    int r = submit_and_wait(u, timeout_ns);
    if (r < 0)
        return r;
    loop__woke(loop);
    return loop_uring_reap(u);
}

/* --- birth and death ------------------------------------------------------------------------ */

/* Waits until the kernel has answered all operations, since it writes to callers' buffers until
 * then; done() is not called. */
static void wait_for_kernel(struct uring *u)
{
    while (u->ops_in_kernel > 0) {
        int r = io_uring_submit_and_wait(&u->ring, 1);
        MUST(r >= 0 || r == -EINTR || r == -EBUSY || r == -EAGAIN);
        struct io_uring_cqe *cqe = NULL;
        while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
            if (cqe->user_data >> 56 == TOKEN_FILE)
                u->ops_in_kernel--;
            io_uring_cqe_seen(&u->ring, cqe);
        }
    }
}

static void uring_destroy(struct loop *loop)
{
    struct uring *u = uring_of(loop);
    if (u->ring_open) {
        wait_for_kernel(u);
        io_uring_queue_exit(&u->ring);
    }
    free(u->arms);
    free(u->ops);
    free(u->op_next_free);
    loop__fini(loop);
    free(u);
}

static const struct loop_backend_ops uring_ops = {
    .name = "io_uring",
    .watch_add = uring_watch_add,
    .watch_mod = uring_watch_mod,
    .watch_del = uring_watch_del,
    .file_submit = uring_file_submit,
    .buffer_set = uring_buffer_set,
    .turn = uring_turn,
    .destroy = uring_destroy,
};

static int tables_init(struct uring *u, const struct loop_config *config)
{
    u->dirty_head = LOOP__NONE;
    u->op_free = LOOP__NONE;
    int r = loop__init(&u->base, &uring_ops, config);
    if (r < 0)
        return r;
    u->arms = sys_calloc(config->watches_max, sizeof(*u->arms));
    if (!u->arms)
        return -ENOMEM;
    if (config->ops_max == 0)
        return 0;
    u->ops = sys_calloc(config->ops_max, sizeof(struct loop_file_op *));
    u->op_next_free = sys_calloc(config->ops_max, sizeof(*u->op_next_free));
    if (!u->ops || !u->op_next_free)
        return -ENOMEM;
    for (uint32_t i = 0; i < config->ops_max; i++)
        u->op_next_free[i] = i + 1 < config->ops_max ? i + 1 : LOOP__NONE;
    u->op_free = 0;
    return 0;
}

/*
 * Room for every completion that can be outstanding, so that the kernel's overflow list, which
 * allocates, stays empty: per watch a poll, a cancelled poll and a failed cancel, per operation
 * one.
 */
static unsigned cq_entries(const struct loop_config *config)
{
    uint64_t n = 3ull * config->watches_max + config->ops_max;
    return n < CQ_ENTRIES_MAX ? (unsigned)n : CQ_ENTRIES_MAX;
}

/* The best flags that this kernel takes: completions run when the thread waits, and not before. */
static int ring_init(struct uring *u, const struct loop_config *config)
{
    static const struct {
        unsigned flags;
        const char *words;
    } setups[] = {
        {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN,
         "single issuer, deferred task run"},
        {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN,
         "single issuer, cooperative task run"},
        {IORING_SETUP_COOP_TASKRUN, "cooperative task run"},
        {0, "no setup flags"},
    };
    unsigned cq = cq_entries(config);
    int r = -EINVAL;
    for (size_t i = 0; r == -EINVAL && i < ARRAY_LEN(setups); i++) {
        struct io_uring_params params = {
            .flags = setups[i].flags | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
            .cq_entries = cq > config->entries ? cq : config->entries,
        };
        r = FAULT(fd) ? -EMFILE : io_uring_queue_init_params(config->entries, &u->ring, &params);
        u->base.setup = setups[i].words;
    }
    if (r < 0)
        return r;
    u->ring_open = true;
    const unsigned needed = IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP | IORING_FEAT_CQE_SKIP;
    return (u->ring.features & needed) == needed ? 0 : -EOPNOTSUPP;
}

/* A sandbox may allow the setup and refuse io_uring_enter; this must show now, not in a turn. */
static int ring_probe(struct uring *u)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    MUST(sqe);
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data64(sqe, token(TOKEN_PROBE, 0, 0));
    int r;
    do {
        r = io_uring_submit_and_wait(&u->ring, 1);
    } while (r == -EINTR);
    if (r < 0)
        return r;
    struct io_uring_cqe *cqe = NULL;
    r = io_uring_peek_cqe(&u->ring, &cqe);
    if (r == 0)
        io_uring_cqe_seen(&u->ring, cqe);
    return r;
}

int loop__uring_create(const struct loop_config *config, struct loop **ret_loop,
                       const char **ret_what)
{
    *ret_what = "memory for the loop's tables";
    struct uring *u = sys_calloc(1, sizeof(*u));
    if (!u)
        return -ENOMEM;
    int r = tables_init(u, config);
    if (r >= 0) {
        *ret_what = "io_uring_queue_init";
        r = ring_init(u, config);
    }
    if (r >= 0) {
        *ret_what = "io_uring_enter";
        r = ring_probe(u);
    }
    if (r >= 0 && config->buffers_max > 0)
        u->buffers_open = io_uring_register_buffers_sparse(&u->ring, config->buffers_max) == 0;
    if (r < 0) {
        uring_destroy(&u->base);
        return r;
    }
    *ret_loop = &u->base;
    return 0;
}
