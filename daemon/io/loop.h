/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop: the one place where the control thread waits.
 *
 * File descriptors that become ready, file I/O that completes, and a timeout. Two twins with the
 * same behaviour: io_uring, and epoll with a pool of threads where io_uring is refused.
 *
 * Thread: a loop belongs to the thread that created it. Every function below must be called on
 * that thread (MUST); every callback runs on it, from inside loop_turn() and from nowhere else.
 * Memory: all of it is allocated in loop_create(); nothing is allocated or freed after that.
 */
#ifndef KVC_IO_LOOP_H
#define KVC_IO_LOOP_H

#include "err.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/uio.h>

struct loop;
struct loop_watch;
struct loop_file_op;

enum loop_backend {
    LOOP_AUTO,  /* io_uring, or epoll where io_uring is refused */
    LOOP_URING, /* io_uring or an error */
    LOOP_EPOLL,
};

struct loop_config {
    enum loop_backend want;
    unsigned entries; /* io_uring submission queue; 0: 256; a power of two or rounded up to one */
    unsigned io_threads;     /* the epoll twin's pool; 0: 4; io_uring ignores it */
    unsigned watches_max;    /* 1 to 2^24 */
    unsigned ops_max;        /* file operations in flight; 0 to 2^24; 0: none, and no pool */
    unsigned buffers_max;    /* of loop_buffer_set(); 0 to LOOP_BUFFERS_MAX */
    void (*woke)(void *ctx); /* optional: once a turn, between the wait and the first callback */
    void *ctx;               /* of woke */
};

/*
 * Makes a loop owned by the calling thread. Returns 0 and *ret_loop (returns owned), -EINVAL for
 * a limit out of range, -ENOMEM, -EMFILE, or what the kernel answered. LOOP_URING gives -EPERM or
 * -ENOSYS where io_uring is refused, -EOPNOTSUPP where the kernel's is too old.
 */
KVC_WARN_UNUSED int loop_create(const struct loop_config *config, struct loop **ret_loop);

/*
 * Waits until no file operation is in the kernel or in the pool any more, so that no caller's
 * buffer is touched afterwards, then frees everything and sets *loop to NULL. done() of
 * operations that were in flight is *not* called: to see them complete, turn the loop first.
 * Watches still there are forgotten. NULL and pointer to NULL are allowed; not from a callback.
 */
void loop_destroy(struct loop **loop);

/* "io_uring" or "epoll". */
const char *loop_backend_name(const struct loop *loop);

/*
 * Why this one and how it runs, for the startup log: "asked for (..)", "preferred (..)", or what
 * io_uring answered: "io_uring_queue_init: Operation not permitted (..)". Borrowed from loop.
 */
const char *loop_backend_reason(const struct loop *loop);

/* --- readiness ------------------------------------------------------------------------------ */

/* events: the EPOLL* bits that are set, among those asked for and EPOLLERR, EPOLLHUP. */
typedef void loop_watch_fn(struct loop_watch *watch, uint32_t events);

/*
 * The caller owns the memory, zeroed before the first use, and sets fn, ctx, fd and events; from
 * loop_watch_add() to loop_watch_del() it must stay where it is and only `ctx` may be changed.
 * events: EPOLLIN, EPOLLOUT, EPOLLPRI, EPOLLRDHUP. EPOLLERR and EPOLLHUP always arrive; 0 asks for
 * these two only.
 */
struct loop_watch {
    loop_watch_fn *fn;
    void *ctx;
    int fd;
    uint32_t events;
    uint32_t loop_slot; /* private to the loop; 0: not added */
};

/*
 * Level-triggered: fn runs once in every turn in which the descriptor is ready, also when the
 * callback of the turn before left data unread. A watch added in a callback is looked at from
 * the next turn on. No order between watches.
 *
 * The descriptor is borrowed: it must stay open until loop_watch_del(). Closing it earlier is a
 * bug of the caller (the epoll twin ends in MUST; io_uring keeps the file alive behind it).
 * One watch per descriptor; dup() it for a second.
 *
 * Returns 0, -ENOSPC (watches_max are in use), -EEXIST (a watch has this descriptor), -EBADF,
 * -EPERM (a regular file or a directory: always ready, so there is nothing to wait for), -ENOMEM.
 */
KVC_WARN_UNUSED int loop_watch_add(struct loop *loop, struct loop_watch *watch);

/*
 * From now on watch->events = events; the watch must be added (MUST). Returns 0 or -errno with the
 * watch as it was. In its own callback it costs nothing with io_uring and one system call with
 * epoll.
 */
KVC_WARN_UNUSED int loop_watch_mod(struct loop *loop, struct loop_watch *watch, uint32_t events);

/*
 * After the return fn is not called again and the memory is the caller's, in callbacks too:
 * its own, or that of another watch that was ready in the same turn. No-op for a watch that is not
 * added. The descriptor may be closed at once; io_uring lets go of the file in the next turn, and
 * the other end of a closed socket or pipe sees the end no earlier than that.
 */
void loop_watch_del(struct loop *loop, struct loop_watch *watch);

/* --- file I/O ------------------------------------------------------------------------------- */

#define LOOP_IOV_MAX 1024u /* the kernel's own limit */

enum loop_file_kind {
    LOOP_READ,
    LOOP_WRITE,
    LOOP_FDATASYNC,
    LOOP_READV, /* as LOOP_READ and LOOP_WRITE, over a vector */
    LOOP_WRITEV,
    LOOP_PAUSE, /* moves nothing and ends after `off` nanoseconds: an I/O that is slow, for tests */
};

typedef void loop_file_fn(struct loop_file_op *op);

/*
 * The caller sets kind, fd, off, done and ctx; buf and len, or with a vector iov and iovs (1 to
 * LOOP_IOV_MAX), whose sum the loop writes to len. From loop_file_submit() to done() the operation,
 * its vector, its memory and the open descriptor belong to the loop, which changes nothing in the
 * vector.
 *
 * result: bytes moved, 0 for LOOP_FDATASYNC and LOOP_PAUSE, or -errno. A short transfer is
 * continued until len bytes have moved, the file ends (a read then has result < len) or an error
 * stops it (result is the error, however much had moved). A write that the file does not take is an
 * error, never short.
 */
struct loop_file_op {
    enum loop_file_kind kind;
    int fd; /* a regular file or a block device, where I/O ends in bounded time */
    void *buf;
    size_t len;
    const struct iovec *iov;
    unsigned iovs;
    uint64_t off; /* bytes */
    int64_t result;
    loop_file_fn *done;
    void *ctx;

    /* private to the loop */
    struct loop_file_op *loop_next;
    uint64_t loop_moved;
    int64_t loop_ts[2]; /* LOOP_PAUSE: seconds and nanoseconds, as the kernel wants them */
    uint32_t loop_slot;
};

/*
 * Starts the operation, at the latest in the next loop_turn(). Never calls back inline; done() runs
 * exactly once, and may submit the same operation again. Operations have no order among them:
 * LOOP_FDATASYNC covers what was done before it was submitted.
 * More than ops_max in flight is a bug of the caller (MUST).
 */
void loop_file_submit(struct loop *loop, struct loop_file_op *op);

/* --- buffers -------------------------------------------------------------------------------- */

#define LOOP_BUFFERS_MAX      4096u
#define LOOP_BUFFER_BYTES_MAX (UINT64_C(1) << 30)

/*
 * Buffer `no` (below buffers_max) is this memory from now on, page-aligned and at most
 * LOOP_BUFFER_BYTES_MAX; NULL and 0: none. Reads and writes that lie in it, also as a vector whose
 * elements follow each other in memory, save the kernel the work of finding its pages each time.
 * Everything else works as before: it is never needed. The pages are pinned (RLIMIT_MEMLOCK) until
 * the buffer is set anew and the I/O on it has ended, also when they are unmapped. Takes about
 * 60 ms a GiB of memory that was touched before, and much more where it was not.
 *
 * 0; -EOPNOTSUPP (epoll, or this kernel); -ENOMEM (limit of locked memory), -EINVAL, and what the
 * kernel answers, with the buffer then not set.
 */
KVC_WARN_UNUSED int loop_buffer_set(struct loop *loop, unsigned no, void *base, size_t bytes);

/* --- turn ----------------------------------------------------------------------------------- */

/*
 * Waits once, then runs the callbacks of what is ready. timeout_ns: -1 waits for ever, 0 looks
 * without waiting. Returns the number of callbacks run, or -errno where the kernel's wait failed
 * (nothing was lost; the next turn goes on). 0 may come before the timeout: a signal, or
 * bookkeeping after loop_watch_del(); look at the clock, do not count turns. Not from a callback.
 */
KVC_WARN_UNUSED int loop_turn(struct loop *loop, int64_t timeout_ns);

#endif
