/* SPDX-License-Identifier: Apache-2.0 */
/* Options of `kvcachebench attention`, and the measurements that its figures are compared with. */
#ifndef BENCH_ATTENTION_H
#define BENCH_ATTENTION_H

#include <kvcache/attention.h>

#include "perf.h"

#define ATTENTION_HEAD 128u /* values of a row */
/* --prefill: queries of a call; ATTENTION_BEFORE: tokens before the first of them. */
#define ATTENTION_CHUNK  512u
#define ATTENTION_BEFORE 1536u

struct attention_args {
    struct perf_args perf;
    bool prefill;
    /* split: tokens of a part of the KV that one thread attends to. */
    uint64_t threads, kv_heads, bytes, split;
    const char *device; /* NULL: the CPU */
    uint32_t type;      /* enum kvc_type; KVC_TYPES: each type in turn */
};

/* Reads a memory with several threads, each its own share again and again. *ret_rate: bytes per
 * second of all threads together. */
BENCH_MUST_USE int attention_read(const uint8_t *from, uint64_t bytes, uint32_t threads,
                                  double seconds, double *ret_rate);

/* OpenBLAS's product of matrices of 1,024 by 1,024 with so many threads. *ret_rate: operations per
 * second. */
bool attention_has_blas(void);
BENCH_MUST_USE int attention_blas(uint32_t threads, double seconds, double *ret_rate);

/* The attention of `a` on a device: for one list of blocks, on a copy of `kv`. All other operands
 * are copied to the device too. Close it even if opening failed. One thread. */
struct attention_device;
BENCH_MUST_USE int attention_device_open(const char *name, const struct kvc_attention *a,
                                         const void *kv, uint64_t kv_bytes,
                                         struct attention_device **ret_device);
void attention_device_close(struct attention_device **device);
/* *ret_calls: calls per second, of the attention, or of a kernel that only reads all of the KV. */
BENCH_MUST_USE int attention_device_run(struct attention_device *d, double seconds,
                                        double *ret_calls);
BENCH_MUST_USE int attention_device_read(struct attention_device *d, double seconds,
                                         double *ret_calls);
/* Copies the result of one call to ret_out. */
BENCH_MUST_USE int attention_device_out(struct attention_device *d, float *ret_out);

#endif
