/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device (daemon/io/gpu.h) that a benchmark has opened itself, with memory on the device and on
 * the host. One thread. Functions return 0, or an enum bench_exit after printing what is wrong.
 */
#ifndef BENCH_DEVICE_H
#define BENCH_DEVICE_H

#include "bench.h"
#include "gpu.h"

#define BENCH_DEVICE_DEPTH    4u /* copies in flight */
#define BENCH_DEVICE_OP_BYTES (UINT64_C(32) << 20)

struct bench_device {
    const char *name;
    uint64_t bytes; /* size of `mem`, and of `host` */
    struct loop *loop;
    struct gpu *gpu;
    struct gpu_mem mem;
    uint8_t *host; /* registered with the device's driver */
    /* The current layout: fragments of one size. They lie in order in host memory and shuffled on
     * the device; each occurs once. */
    enum gpu_direction direction;
    uint64_t frag_bytes;
    uint32_t nfrags;
    struct kvc_frag *frag;
    uint64_t next; /* the fragment with which the next copy begins */
};

/* Opens the device, measures its copy paths, and allocates the memory on both sides. smallest: the
 * size of the smallest fragments that will be laid out. extra: bytes that an emulated device has
 * besides. */
BENCH_MUST_USE int bench_device_open(struct bench_device *d, const char *name, uint64_t bytes,
                                     uint64_t extra, uint64_t smallest);
/* Accepts a device that is open, half open or zeroed. */
void bench_device_close(struct bench_device *d);
/* Runs one operation from its submission to its end. */
BENCH_MUST_USE int bench_device_run(struct bench_device *d, struct gpu_op *op, const char *what);
void bench_device_lay_out(struct bench_device *d, enum gpu_direction direction,
                          uint64_t frag_bytes);
/* Takes the fragments of the next copy, of about BENCH_DEVICE_OP_BYTES. Returns their number;
 * *ret_first: the first of them. */
uint32_t bench_device_next(struct bench_device *d, uint32_t *ret_first);

/* A stream of copies, BENCH_DEVICE_DEPTH of them in flight. */
struct bench_flood {
    /* Fills in what copy number n copies; its kind (GPU_COPY) and `done` are set already. NULL: the
     * copies take the device's fragments in turn, on copy path `path` (gpu_op.path). */
    void (*next)(void *ctx, uint64_t n, struct gpu_op *op);
    /* Whether no more copies shall begin; copies that are submitted and have not begun are then
     * cancelled. NULL: no copy begins after `seconds`, and all submitted ones are waited for. */
    bool (*is_over)(void *ctx);
    void *ctx;
    double seconds;
    uint8_t path;
};
/* *ret_rate: bytes per second of the copies that succeeded. */
BENCH_MUST_USE int bench_device_flood(struct bench_device *d, const struct bench_flood *flood,
                                      double *ret_rate);

#endif
