/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What loop.c and its two backends share; for these three files only.
 *
 * loop.c owns the watch table and checks the contract of loop.h (thread, limits, state); a backend
 * is then only called with arguments that are right.
 */
#ifndef KVC_IO_LOOP_IMPL_H
#define KVC_IO_LOOP_IMPL_H

#include "loop.h"

#include <pthread.h>
#include <stdbool.h>

#define LOOP__NONE      UINT32_MAX
#define LOOP__TABLE_MAX (1u << 24)

/*
 * Events name a watch by (index, generation), never by pointer: what the kernel reports late about
 * a deleted or changed watch finds another generation and is dropped.
 */
struct loop_slot {
    struct loop_watch *watch; /* NULL: free */
    uint32_t gen;
    uint32_t next_free;
};

struct loop_backend_ops {
    const char *name;
    /* loop.c has filled in the slot, and frees it on failure. */
    int (*watch_add)(struct loop *loop, uint32_t slot);
    /* watch->events is the new mask; loop.c restores the old one on failure. */
    int (*watch_mod)(struct loop *loop, uint32_t slot);
    /* loop.c raises the generation and frees the slot afterwards. */
    void (*watch_del)(struct loop *loop, uint32_t slot);
    void (*file_submit)(struct loop *loop, struct loop_file_op *op);
    int (*buffer_set)(struct loop *loop, unsigned no, void *base, size_t bytes); /* may be NULL */
    int (*turn)(struct loop *loop, int64_t timeout_ns);
    /* Frees the backend, the loop included; works on a half-made one. */
    void (*destroy)(struct loop *loop);
};

struct loop_buffer {
    char *base; /* NULL: none */
    size_t bytes;
};

/* First member of each backend's struct. Control thread only. */
struct loop {
    const struct loop_backend_ops *ops;
    pthread_t thread; /* that created the loop */
    bool in_turn;
    void (*woke)(void *ctx);
    void *woke_ctx;
    struct loop_slot *slots;
    uint32_t watches_max;
    uint32_t slot_free; /* head of the free list */
    uint32_t ops_max;
    uint32_t ops_inflight;
    uint32_t buffers_max;
    struct loop_buffer *buffers; /* as the kernel has them */
    uint32_t *buffer_order;      /* numbers of the buffers that are set, by address */
    uint32_t buffers_set;        /* entries of buffer_order */
    const char *setup;           /* how the backend runs, in words; static string */
    char reason[160];
};

/* Makes the watch table. 0 or -ENOMEM; loop__fini() in both cases. */
KVC_WARN_UNUSED int loop__init(struct loop *loop, const struct loop_backend_ops *ops,
                               const struct loop_config *config);
void loop__fini(struct loop *loop);

/*
 * Backend constructors. `config` is checked, with no zero default left. On failure *ret_what names
 * the call that failed (static string).
 */
KVC_WARN_UNUSED int loop__uring_create(const struct loop_config *config, struct loop **ret_loop,
                                       const char **ret_what);
KVC_WARN_UNUSED int loop__epoll_create(const struct loop_config *config, struct loop **ret_loop,
                                       const char **ret_what);

/*
 * Runs the callback of the watch in `slot` if it still is of generation `gen` and one of `events`
 * concerns it. Returns the number of callbacks run, 0 or 1. The slot may be free afterwards.
 */
int loop__deliver(struct loop *loop, uint32_t slot, uint32_t gen, uint32_t events);

/* The next transfer of an operation that moves bytes: `iovs` elements at `iov` or, when that is 0,
 * `len` bytes at `at`. The answer fits in 31 bits. */
struct loop_piece {
    const struct iovec *iov;
    unsigned iovs;
    unsigned len;
    void *at;
    uint64_t off;
};
struct loop_piece loop__file_piece(const struct loop_file_op *op);

/* The buffer that all of a piece lies in, as one run of memory: its number, and *ret_len the length
 * of the run from *ret_at on; or LOOP__NONE. */
uint32_t loop__buffer_of(const struct loop *loop, const struct loop_piece *piece, char **ret_at,
                         unsigned *ret_len);

static inline bool loop__file_writes(const struct loop_file_op *op)
{
    return op->kind == LOOP_WRITE || op->kind == LOOP_WRITEV;
}

/*
 * Takes what one transfer returned (bytes or -errno). True: op->result is final. False: go on at
 * op->loop_moved. Touches nothing but op, so that the pool's threads may call it.
 */
bool loop__file_step(struct loop_file_op *op, int64_t res);

/* The operation leaves the loop: runs done(), after which op is the caller's. */
void loop__file_done(struct loop *loop, struct loop_file_op *op);

/* A backend calls this when it has waited, before its first callback. */
static inline void loop__woke(const struct loop *loop)
{
    if (loop->woke)
        loop->woke(loop->woke_ctx);
}

#endif
