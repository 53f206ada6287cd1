/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copy threads: bytes from a worker's staging to an arena slot, checksummed in the same pass; and
 * slots are read again to check their bytes. Bytes that another tier has read into a slot
 * (TIER_SEAL) are summed, in the order of copies.
 *
 * The source may be written by its worker while it is being copied. Every byte is read from it
 * once, into a small private buffer that is hashed and then stored, so the sum is always that
 * of what the slot holds.
 *
 * Threads: all functions on the control thread (the loop's); done() of operations runs there too,
 * from loop_turn(), copier_turn() or copier_destroy(), never from copier_submit().
 * Memory: all of it is allocated in copier_create().
 */
#ifndef KVC_TIER_COPIER_H
#define KVC_TIER_COPIER_H

#include <stdint.h>

#include "err.h"
#include "loop.h"
#include "metric.h"
#include "tier.h"
#include "topo.h"

#define COPIER_THREADS_MAX  64u
#define COPIER_INFLIGHT_MIN (UINT64_C(1) << 20)

struct copier_config {
    unsigned threads;        /* 0: copier_threads_auto() */
    uint64_t inflight_bytes; /* credit: bytes that threads copy now; at least COPIER_INFLIGHT_MIN */
    const struct topo *topo; /* borrowed until copier_destroy(); NULL: threads are not bound */
    /* copier_turn() itself sums so many bytes a turn, of TIER_SEAL and of checks with
     * TIER_F_AWAITED. Blocks of more than a quarter of it go to a thread. */
    uint32_t turn_bytes;
};

struct copier;

/* The number of threads that `threads` 0 stands for: one per CPU, at most 4. The daemon never
 * passes 0: daemon/budget.c decides what copy.threads auto is. */
unsigned copier_threads_auto(unsigned cpus);

/* Borrows the loop until copier_destroy(). -EINVAL, -ENOMEM, -EAGAIN (threads), -EMFILE, and what
 * loop_watch_add() returns. */
KVC_WARN_UNUSED int copier_create(const struct copier_config *config, struct loop *loop,
                                  struct copier **ret_copier);

/* Waits for the copies that are running. Operations that have not run get done() with -ECANCELED,
 * from here; they must not submit. Before the loop's destruction. */
void copier_destroy(struct copier **copier);

/* Takes *op until its done(). TIER_PUT copies op->bytes from op->src to dst (64-byte aligned, and
 * valid until done()) and sets op->sum; TIER_VERIFY sets it to that of the bytes at dst. Beyond the
 * credit operations wait, in order of submission; copies and checks have one each (a TIER_VERIFY
 * with TIER_F_AWAITED is a copy here, and a small one is summed as TIER_SEAL's are). Threads take
 * a check when no copy waits there, when 16 times its bytes were copied meanwhile, or when its end
 * is come already: cancelled, or too late. status: 0; -ECANCELED: op->cancel was seen (before it
 * began, or between two steps); -ETIMEDOUT: the deadline had passed before it began (0: no
 * deadline); -EIO: injected fault. After anything but 0 of a PUT the slot holds parts of the bytes.
 */
void copier_submit(struct copier *c, struct tier_op *op, void *dst);

/* Most operations whose done() is called in one turn (some 500 us); the others' run in the next. */
#define COPIER_TURN_OPS 512u

/* Once a turn, after loop_turn(): sums the blocks that turn_bytes left to this thread, and calls
 * done() of their operations. For a small block, waking a copy thread and being woken by it cost
 * several times the sum. Operations submitted later are for the next turn, which then must not
 * wait: copier_is_due(). */
void copier_turn(struct copier *c);
bool copier_is_due(const struct copier *c);

struct copier_stats {
    unsigned threads;
    uint64_t inflight_ops; /* submitted, not done */
    uint64_t inflight_bytes;
    uint64_t waiting_ops; /* of inflight_ops, those that wait for credit */
    uint64_t done_ops;
    uint64_t done_bytes;         /* of operations with status 0 */
    const struct histo *copy_ns; /* of copies that ended well, from submit to done; borrowed */
    uint64_t bytes_per_s;        /* of the fastest copies of late, by one thread; 0: none yet */
    int bind_err;                /* why a thread could not be bound to its NUMA node; 0 */
};
void copier_stats(const struct copier *c, struct copier_stats *ret_stats);

/* The copy itself: dst 64-byte aligned, no overlap. Any thread; `step` is scratch of
 * COPIER_STEP_BYTES, 64-byte aligned. Returns -ECANCELED when *cancel was seen. */
#define COPIER_STEP_BYTES 16384u
KVC_WARN_UNUSED int copier_copy(void *dst, const void *src, uint64_t bytes, void *step,
                                const _Atomic bool *cancel, struct hash128 *ret_sum);
/* The sum alone. Any thread. -ECANCELED as above. */
KVC_WARN_UNUSED int copier_sum(const void *src, uint64_t bytes, const _Atomic bool *cancel,
                               struct hash128 *ret_sum);

#endif
