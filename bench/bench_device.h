/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device (daemon/io/gpu.h) that a benchmark has opened itself, and memory on both of its sides.
 * One thread. Functions return 0 or an enum bench_exit after saying what is wrong.
 */
#ifndef BENCH_DEVICE_H
#define BENCH_DEVICE_H

#include "bench.h"
#include "gpu.h"

#define BENCH_DEVICE_DEPTH    4u /* copies in flight */
#define BENCH_DEVICE_OP_BYTES (UINT64_C(32) << 20)

struct bench_device {
    const char *name;
    uint64_t bytes; /* on each side */
    struct loop *loop;
    struct gpu *gpu;
    struct gpu_mem mem;
    uint8_t *host; /* registered */
    /* Fragments of one size: in order in host memory, each once and shuffled on the device. */
    enum gpu_direction direction;
    uint64_t frag_bytes;
    uint32_t nfrags;
    struct kvc_frag *frag;
    uint64_t next; /* fragment */
};

/* Opens it, measures its paths, and makes the memory and room for fragments of `smallest` bytes and
 * more. `extra` bytes can be had beside it of an emulated device. */
BENCH_MUST_USE int bench_device_open(struct bench_device *d, const char *name, uint64_t bytes,
                                     uint64_t extra, uint64_t smallest);
/* Of one that is open, half open or zeroed. */
void bench_device_close(struct bench_device *d);
/* One operation, from submit to end. */
BENCH_MUST_USE int bench_device_run(struct bench_device *d, struct gpu_op *op, const char *what);
void bench_device_lay_out(struct bench_device *d, enum gpu_direction direction,
                          uint64_t frag_bytes);
/* How many fragments, from *ret_first on, the next copy of about BENCH_DEVICE_OP_BYTES has. */
uint32_t bench_device_next(struct bench_device *d, uint32_t *ret_first);

/* Copies, BENCH_DEVICE_DEPTH in flight. */
struct bench_flood {
    /* Fills in what the nth one copies; GPU_COPY and done are set. NULL: the next fragments of the
     * device, by `path` as gpu_op has it. */
    void (*next)(void *ctx, uint64_t n, struct gpu_op *op);
    /* Whether no more shall begin. Those that have not begun then are cancelled. NULL: when
     * `seconds` are over, and all of them are waited for. */
    bool (*is_over)(void *ctx);
    void *ctx;
    double seconds;
    uint8_t path;
};
/* *ret_rate: bytes per second of those that ended well. */
BENCH_MUST_USE int bench_device_flood(struct bench_device *d, const struct bench_flood *flood,
                                      double *ret_rate);

#endif
