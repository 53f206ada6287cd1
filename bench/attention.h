/* SPDX-License-Identifier: Apache-2.0 */
/* What `kvcachebench attention` is compared with, and its options. */
#ifndef BENCH_ATTENTION_H
#define BENCH_ATTENTION_H

#include <kvcache/attention.h>

#include "perf.h"

#define ATTENTION_HEAD   128u /* values of a row */
#define ATTENTION_CHUNK  512u /* prefill: queries, and the tokens before them */
#define ATTENTION_BEFORE 1536u

struct attention_args {
    struct perf_args perf;
    bool prefill;
    uint64_t threads, kv_heads, bytes, split; /* split: tokens of a part */
    const char *device;                       /* NULL: the CPU */
    uint32_t type;                            /* enum kvc_type; KVC_TYPES: each */
};

/* Threads that read a memory, each its share again and again: bytes per second of all. */
BENCH_MUST_USE int attention_read(const uint8_t *from, uint64_t bytes, uint32_t threads,
                                  double seconds, double *ret_rate);

/* OpenBLAS's product of 1,024 by 1,024 matrices with so many threads: operations per second. */
bool attention_has_blas(void);
BENCH_MUST_USE int attention_blas(uint32_t threads, double seconds, double *ret_rate);

/* The same attention on a device, of one list, on a copy of its KV; all else is copied too. Closed
 * also when opening failed. One thread. */
struct attention_device;
BENCH_MUST_USE int attention_device_open(const char *name, const struct kvc_attention *a,
                                         const void *kv, uint64_t kv_bytes,
                                         struct attention_device **ret_device);
void attention_device_close(struct attention_device **device);
/* Calls a second: of the attention, and of a kernel that only reads all of the KV. */
BENCH_MUST_USE int attention_device_run(struct attention_device *d, double seconds,
                                        double *ret_calls);
BENCH_MUST_USE int attention_device_read(struct attention_device *d, double seconds,
                                         double *ret_calls);
/* The result of one call. */
BENCH_MUST_USE int attention_device_out(struct attention_device *d, float *ret_out);

#endif
