/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `kvcachebench gpu` share. */
#ifndef BENCH_GPU_BENCH_H
#define BENCH_GPU_BENCH_H

#include "bench_device.h"
#include "perf.h"

struct gpu_args {
    struct perf_args perf;
    const char *device;
    uint64_t bytes; /* on each side */
    uint64_t kv_bytes;
    bool decode;
};

/* gpu_plain.c: one large copy by one call of the driver, the bound of all others. */
struct gpu_plain;
/* Borrows d, which is open, and copies from and to the first of its host memory. What it returns is
 * to be closed after an error too. */
BENCH_MUST_USE int gpu_plain_open(struct bench_device *d, struct gpu_plain **ret_plain);
void gpu_plain_close(struct gpu_plain **plain); /* accepts NULL */
/* One after the other for that long: bytes per second. */
BENCH_MUST_USE int gpu_plain_run(struct gpu_plain *plain, enum gpu_direction direction,
                                 double seconds, double *ret_rate);

/* gpu_beside.c: a kernel that reads as decode does, beside loads. Forks: before anything has opened
 * a device. */
BENCH_MUST_USE int gpu_beside(const struct gpu_args *args);

/* gpu_decode.c: such a kernel in this process, step after step, on a thread of its own. */
struct gpu_decode;
/* With kv_bytes on the device that d, which is open, is; closed before it. What it returns is to be
 * closed after an error too. */
BENCH_MUST_USE int gpu_decode_open(const struct bench_device *d, uint64_t kv_bytes,
                                   struct gpu_decode **ret_decode);
void gpu_decode_close(struct gpu_decode **decode); /* accepts NULL */
/* Whether the driver says that processes share this device through MPS. */
bool gpu_decode_has_mps(const struct gpu_decode *decode);
/* Begins steps: some that are not counted, then for that long. */
BENCH_MUST_USE int gpu_decode_start(struct gpu_decode *decode, double seconds);
bool gpu_decode_is_over(const struct gpu_decode *decode); /* never blocks */
/* Waits for the last step: seconds of one. BENCH_WRONG: not every byte was read. */
BENCH_MUST_USE int gpu_decode_wait(struct gpu_decode *decode, double *ret_step);

#endif
