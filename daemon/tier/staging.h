/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging: shared memory that one worker writes and the daemon reads.
 *
 * The daemon makes it, and so decides its size: a memfd of mode 0600, faulted in, and sealed
 * against resizing before a worker gets it. Without the seal a worker could truncate it, and the
 * daemon's next read would be SIGBUS. The daemon maps it read-only; the worker gets the descriptor,
 * which is open for reading and writing, and maps it shared.
 *
 * Threads: all functions and callbacks on the control thread. Building and freeing take
 * milliseconds per MiB and run on a thread of the pool's own, in the order of the calls.
 * Memory: all of it but the staging itself is allocated in staging_pool_create().
 */
#ifndef KVC_TIER_STAGING_H
#define KVC_TIER_STAGING_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "loop.h"

struct staging_config {
    uint32_t count_max;     /* most staging areas at one time; 1 to 65536 */
    uint64_t one_max_bytes; /* most bytes of one area; at least 4 KiB */
    uint64_t total_bytes;   /* most bytes of all areas; at least one_max_bytes */
    bool huge_pages;        /* ask for transparent ones */
};

struct staging_pool;

struct staging {
    int fd;           /* borrowed: closed by staging_release(). Send a copy (SCM_RIGHTS). */
    const void *base; /* the daemon's mapping, read-only, 4 KiB aligned */
    uint64_t bytes;   /* as asked for, rounded up to 4 KiB */
};

/* err 0: `s` is the receiver's until staging_release(). Else s is NULL: -ENOMEM, -EMFILE, or what
 * the system answered; -ECANCELED when the pool was destroyed first. */
typedef void(staging_fn)(void *ctx, int err, struct staging *s);

/* -EINVAL, -ENOMEM, -EMFILE, -EAGAIN (thread), and what loop_watch_add() returns. Borrows loop. */
KVC_WARN_UNUSED int staging_pool_create(const struct staging_config *config, struct loop *loop,
                                        struct staging_pool **ret_pool);
/* Waits for the area that is being built. Requests without an answer get -ECANCELED, from here.
 * Frees also what was not released. Before the loop's destruction. */
void staging_pool_destroy(struct staging_pool **pool);

/*
 * Asks for an area. fn runs exactly once, from loop_turn(), never from here. A request cannot be
 * withdrawn: ctx must live until fn runs; if the area is not wanted any more (the session has
 * ended), fn releases it.
 * 0; -EINVAL: 0 bytes; KVC_E_LIMIT: more than one_max_bytes; -ENOSPC: total_bytes or count_max
 * would be passed. An area counts from this call until its release is called.
 */
KVC_WARN_UNUSED int staging_request(struct staging_pool *pool, uint64_t bytes, staging_fn *fn,
                                    void *ctx);

/* Gives the area back; no copy from it may be in flight. Sets *s to NULL. Accepts NULL. The pages
 * are freed even if the worker still has them mapped (it then reads zeros). */
void staging_release(struct staging_pool *pool, struct staging **s);

struct staging_stats {
    uint64_t used_bytes;
    uint32_t used;
};
void staging_stats(const struct staging_pool *pool, struct staging_stats *ret_stats);

#endif
