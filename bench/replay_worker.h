/* SPDX-License-Identifier: Apache-2.0 */
/* What one worker of a replay has, for replay_worker.c and, where its KV memory is pages on a
 * device, replay_device.c. */
#ifndef BENCH_REPLAY_WORKER_H
#define BENCH_REPLAY_WORKER_H

#include <kvcache/async.h>
#include <kvcache/gpu.h>

#include "replay.h"

/* Room to store from is used in turn: one half is filled while the other is being copied. */
#define REPLAY_HALVES 2u

struct replay_batch {
    struct kvc_op *op; /* NULL = nothing in flight */
    uint32_t n;
    uint64_t begun_ns;
};

struct replay_device; /* replay_device.c */

struct replay_worker {
    const struct replay_plan *plan;
    struct replay_slot *slot;
    struct replay_counts *counts;
    struct kvc *kvc;
    struct kvc_ns *ns;
    uint8_t *staging;
    uint64_t stride; /* of blocks in staging */
    uint8_t *keys;   /* of the request at hand */
    uint8_t *statuses;
    uint64_t *offsets;
    struct replay_batch batch[REPLAY_HALVES];
    struct replay_device *device; /* NULL = no device: blocks are read in host memory */
};

/* What was read of a request's leading blocks, before it is known not to be stale. */
struct replay_read {
    uint32_t hits, hbm; /* hbm: of them, on the device and read there */
    uint64_t wrong_bytes, wrong_blocks;
};

/* Both say in the worker's slot what ended it, and return `error`. */
__attribute__((format(printf, 3, 4))) int replay_fail(struct replay_worker *w, int error,
                                                      const char *format, ...);
int replay_fail_call(struct replay_worker *w, int error, const char *call);
/* Into the worker's counts. */
void replay_count_read(struct replay_worker *w, const struct trace_request *request,
                       const struct replay_read *read);

/* A device of the daemon's that is up, memory on it and pages in that. After the session; its end
 * comes before that of the session. */
BENCH_MUST_USE int replay_device_open(struct replay_worker *w);
/* Counts bytes between pages that have changed. */
void replay_device_close(struct replay_worker *w);
/* Before the first batch of a request: page numbers are dealt anew. */
void replay_device_deal(struct replay_worker *w);
/* The longest prefix of the request into pages; `prefix` is what a lookup has found. */
BENCH_MUST_USE int replay_device_load(struct replay_worker *w, const struct trace_request *request,
                                      const struct kvc_prefix *prefix, uint32_t *ret_hits);
struct kvc_gpu *replay_device_gpu(const struct replay_worker *w);
/* The next one is to be loaded into pages; else held in place. They take turns. */
bool replay_device_turn(struct replay_worker *w);
/* A batch out of its half's pages. */
BENCH_MUST_USE int replay_device_store(struct replay_worker *w, unsigned half,
                                       const struct kvc_blocks *blocks, struct kvc_op **ret_op);

#endif
