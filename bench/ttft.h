/* SPDX-License-Identifier: Apache-2.0 */
/* `kvcachebench ttft`: its cases, the bounds that they are compared with, and its output. One
 * thread. */
#ifndef BENCH_TTFT_H
#define BENCH_TTFT_H

#include "perf.h"
#include "worker_model.h"

#include "sequence.h"

#define TTFT_LENGTHS_MAX  16u
#define TTFT_VARIANTS_MAX 5u /* fp32, and the types of --types */
#define TTFT_ROUNDS_MAX   25u
#define TTFT_TOKENS_MAX   32768u

/* Measured times in seconds, one for each round. */
struct ttft_times {
    double s[TTFT_ROUNDS_MAX];
    size_t n;
};
void ttft_add(struct ttft_times *times, double s);
/* 0 if nothing was measured. */
double ttft_median(const struct ttft_times *times);

/* How K and V are kept: in fp32, or in one of --types. */
struct ttft_variant {
    struct worker_types types;
    const struct kv_strategy *is;
    struct kv *keeper; /* holds the pages that sequences share */
    struct store *store;
};

/* The measurements of one prompt in one variant. */
struct ttft_case {
    struct ttft_times host, storage, copy, step;
    struct kv *resident; /* the prompt's KV, which `step` continues */
    float *want;         /* [vocab] */
    uint64_t bytes;      /* bytes of K and V of the prompt */
};
struct ttft_length {
    uint32_t tokens, *token;
    struct ttft_times recompute, products, attention;
    struct ttft_times beside; /* times of recomputing, in the rounds in which the daemon chooses */
    /* Number of times that the daemon chose; that it loaded; that it took the quicker way. */
    uint32_t choices, loads, right;
    /* lost_s: time lost by the other choices. quicker_s: what all would have taken the quicker way.
     */
    double lost_s, quicker_s;
    struct ttft_case of[TTFT_VARIANTS_MAX];
};

struct ttft {
    struct worker_model which;
    const char *daemon_path, *dir, *svg;
    uint64_t block, rounds, read_delay_ms;
    bool json, choose;
    struct ttft_length length[TTFT_LENGTHS_MAX];
    size_t lengths, variants; /* variant 0 is fp32 */
    struct ttft_variant variant[TTFT_VARIANTS_MAX];

    struct model model;
    float *logits;
    struct rig *rig;
    struct rig_options options;
    char *copy_from, *copy_to; /* each as large as K and V of the longest prompt */
    uint64_t copy_bytes;
    float *x, *y;           /* operands of the bounding products */
    struct ttft_times disk; /* rate of the disk (fio), bytes per second */
    const char *no_disk;    /* why the disk's rate was not measured; NULL: it was */
    /* The cost of prefill that the daemon is told for --choose: ns per token, and fs per pair of a
     * token and one before it. */
    double prefill_ns, prefill_fs_pair;
    char why[MODEL_WHY_BYTES];
};

/* ---- bounds ---- */

/* Allocates the memory of the bounds; variants and lengths must be known. */
BENCH_MUST_USE int ttft_bounds_open(struct ttft *t);
void ttft_bounds_close(struct ttft *t);
/* ttft_bound_blas() measures OpenBLAS once: the products of this prompt's prefill, and its
 * attention as two products for each head. ttft_bound_load() measures once a copy of the prompt's K
 * and V, and a decode step after it. */
BENCH_MUST_USE int ttft_bound_blas(struct ttft *t, struct ttft_length *l);
BENCH_MUST_USE int ttft_bound_load(struct ttft *t, struct ttft_length *l, size_t variant);

/* ---- results ---- */

void ttft_report(struct ttft *t);
BENCH_MUST_USE int ttft_plot(const struct ttft *t);

#endif
