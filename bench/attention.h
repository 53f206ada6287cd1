/* SPDX-License-Identifier: Apache-2.0 */
/* What `kvcachebench attention` is compared with, and its options. */
#ifndef BENCH_ATTENTION_H
#define BENCH_ATTENTION_H

#include "perf.h"

#define ATTENTION_HEAD   128u /* values of a row */
#define ATTENTION_CHUNK  512u /* prefill: queries, and the tokens before them */
#define ATTENTION_BEFORE 1536u

struct attention_args {
    struct perf_args perf;
    bool prefill;
    uint64_t threads, kv_heads, bytes;
};

/* Threads that read a memory, each its share again and again: bytes per second of all. */
BENCH_MUST_USE int attention_read(const uint8_t *from, uint64_t bytes, uint32_t threads,
                                  double seconds, double *ret_rate);

/* OpenBLAS's product of 1,024 by 1,024 matrices with so many threads: operations per second. */
bool attention_has_blas(void);
BENCH_MUST_USE int attention_blas(uint32_t threads, double seconds, double *ret_rate);

#endif
