/* SPDX-License-Identifier: Apache-2.0 */
/* State of one worker of a replay. replay_worker.c uses it, and replay_device.c if the worker keeps
 * its KV in pages on a device. */
#ifndef BENCH_REPLAY_WORKER_H
#define BENCH_REPLAY_WORKER_H

#include <kvcache/async.h>
#include <kvcache/gpu.h>

#include "replay.h"

/* Room for stores has two halves: one is filled while the daemon copies the other. */
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
    uint64_t stride; /* distance of two blocks in staging */
    uint8_t *keys;   /* keys of the current request */
    uint8_t *statuses;
    uint64_t *offsets;
    struct replay_batch batch[REPLAY_HALVES];
    struct replay_device *device; /* NULL = no device: blocks are read in host memory */
};

/* The blocks at the start of a request that were read. They count only once their generation is
 * known to be unchanged. */
struct replay_read {
    uint32_t hits, hbm; /* hbm: hits among them that were read on the device */
    uint64_t wrong_bytes, wrong_blocks;
};

/* Both write the reason to the worker's slot, and return `error`. */
__attribute__((format(printf, 3, 4))) int replay_fail(struct replay_worker *w, int error,
                                                      const char *format, ...);
int replay_fail_call(struct replay_worker *w, int error, const char *call);
/* Adds `read` to the worker's counts. */
void replay_count_read(struct replay_worker *w, const struct trace_request *request,
                       const struct replay_read *read);

/* Opens a device of the daemon that is up, memory on it, and a pool of pages in this memory. The
 * session must be open; close the device before the session. */
BENCH_MUST_USE int replay_device_open(struct replay_worker *w);
/* Counts bytes outside of pages that were overwritten. */
void replay_device_close(struct replay_worker *w);
/* Shuffles the page numbers; call it before the first batch of a request. */
void replay_device_deal(struct replay_worker *w);
/* Loads the longest cached prefix of the request into pages; `prefix` is what a lookup found. */
BENCH_MUST_USE int replay_device_load(struct replay_worker *w, const struct trace_request *request,
                                      const struct kvc_prefix *prefix, uint32_t *ret_hits);
struct kvc_gpu *replay_device_gpu(const struct replay_worker *w);
/* True: the next request shall load blocks into pages. False: it shall hold them in place. The two
 * alternate. */
bool replay_device_turn(struct replay_worker *w);
/* Stores a batch from the pages of this half. */
BENCH_MUST_USE int replay_device_store(struct replay_worker *w, unsigned half,
                                       const struct kvc_blocks *blocks, struct kvc_op **ret_op);

#endif
