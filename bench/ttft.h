/* SPDX-License-Identifier: Apache-2.0 */
/* `kvcachebench ttft`: its cases, what bounds them, what it prints. One thread. */
#ifndef BENCH_TTFT_H
#define BENCH_TTFT_H

#include "perf.h"
#include "worker_model.h"

#include "sequence.h"

#define TTFT_LENGTHS_MAX  16u
#define TTFT_VARIANTS_MAX 5u /* fp32, and those of --types */
#define TTFT_ROUNDS_MAX   25u
#define TTFT_TOKENS_MAX   32768u

/* Seconds, one a round. */
struct ttft_times {
    double s[TTFT_ROUNDS_MAX];
    size_t n;
};
void ttft_add(struct ttft_times *times, double s);
/* 0: none. */
double ttft_median(const struct ttft_times *times);

/* How K and V are kept: in fp32, or in one of --types. */
struct ttft_variant {
    struct worker_types types;
    const struct kv_strategy *is;
    struct kv *keeper; /* holds the pages that sequences share */
    struct store *store;
};

/* Of a prompt in a variant. */
struct ttft_case {
    struct ttft_times host, storage, copy, step;
    struct kv *resident; /* the prompt in memory of its own, for `step` */
    float *want;         /* [vocab] */
    uint64_t bytes;      /* K and V of the prompt */
};
struct ttft_length {
    uint32_t tokens, *token;
    struct ttft_times recompute, products, attention;
    struct ttft_times beside; /* recomputed in the rounds of the choice */
    /* Times that the daemon had the choice, that it loaded, that it took the quicker way. */
    uint32_t choices, loads, right;
    double lost_s, quicker_s; /* by the others, beside the quicker ways of all */
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
    char *copy_from, *copy_to; /* as large as the largest prompt */
    uint64_t copy_bytes;
    float *x, *y;           /* of products */
    struct ttft_times disk; /* bytes per second */
    const char *no_disk;    /* why there is none of these */
    /* What the daemon is told for --choose: of a token, and of one and one before it. */
    double prefill_ns, prefill_fs_pair;
    char why[MODEL_WHY_BYTES];
};

/* ---- bounds ---- */

/* Memory for them, once variants and lengths are known. */
BENCH_MUST_USE int ttft_bounds_open(struct ttft *t);
void ttft_bounds_close(struct ttft *t);
/* One time each: BLAS's own for the products of this prompt's prefill, and for its attention as two
 * products a head; a copy of its K and V; a decode step behind it. */
BENCH_MUST_USE int ttft_bound_blas(struct ttft *t, struct ttft_length *l);
BENCH_MUST_USE int ttft_bound_load(struct ttft *t, struct ttft_length *l, size_t variant);

/* ---- results ---- */

void ttft_report(struct ttft *t);
BENCH_MUST_USE int ttft_plot(const struct ttft *t);

#endif
