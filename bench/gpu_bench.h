/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `kvcachebench gpu` share. */
#ifndef BENCH_GPU_BENCH_H
#define BENCH_GPU_BENCH_H

#include "bench_device.h"
#include "perf.h"

struct gpu_args {
    struct perf_args perf;
    const char *device;
    uint64_t bytes; /* size of the memory on the device, and of that on the host */
    uint64_t kv_bytes;
    bool decode;
};

/* gpu_plain.c: large copies, each by one call of the driver. No other way of copying is faster. */
struct gpu_plain;
/* Borrows d, which must be open, and copies from and to the beginning of its host memory. Close
 * *ret_plain even after an error. */
BENCH_MUST_USE int gpu_plain_open(struct bench_device *d, struct gpu_plain **ret_plain);
void gpu_plain_close(struct gpu_plain **plain); /* accepts NULL */
/* Copies one after the other for so many seconds. *ret_rate: bytes per second. */
BENCH_MUST_USE int gpu_plain_run(struct gpu_plain *plain, enum gpu_direction direction,
                                 double seconds, double *ret_rate);

/* gpu_beside.c: a kernel that reads memory as decode does, while loads run. It forks, so call it
 * before the process has opened a device. */
BENCH_MUST_USE int gpu_beside(const struct gpu_args *args);

/* gpu_decode.c: such a kernel in this process, step after step, on its own thread. */
struct gpu_decode;
/* Uses kv_bytes of memory on the device of d. d must be open, and must stay open until
 * gpu_decode_close(). Close *ret_decode even after an error. */
BENCH_MUST_USE int gpu_decode_open(const struct bench_device *d, uint64_t kv_bytes,
                                   struct gpu_decode **ret_decode);
void gpu_decode_close(struct gpu_decode **decode); /* accepts NULL */
/* Whether the driver says that processes share this device through MPS. */
bool gpu_decode_has_mps(const struct gpu_decode *decode);
/* Starts the thread: some steps that are not counted, then steps for so many seconds. */
BENCH_MUST_USE int gpu_decode_start(struct gpu_decode *decode, double seconds);
bool gpu_decode_is_over(const struct gpu_decode *decode); /* never blocks */
/* Waits until the last step has ended. *ret_step: seconds of one step. BENCH_WRONG: a step did not
 * read every byte. */
BENCH_MUST_USE int gpu_decode_wait(struct gpu_decode *decode, double *ret_step);

#endif
