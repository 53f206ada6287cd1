/* SPDX-License-Identifier: Apache-2.0 */
/* Which of kvcache-worker's models a benchmark computes with, as its options say; and types of K
 * and V. */
#ifndef BENCH_WORKER_MODEL_H
#define BENCH_WORKER_MODEL_H

#include <stdbool.h>

#include "bench.h"
#include "kv.h"
#include "model.h"

struct worker_model {
    const char *preset, *dir; /* dir: in place of the preset */
    uint64_t seed, chunk, threads;
};

#define WORKER_MODEL_OPTIONS                                                             \
    {"preset", required_argument, NULL, 'P'}, {"model", required_argument, NULL, 'm'},   \
        {"seed", required_argument, NULL, 's'}, {"chunk", required_argument, NULL, 'C'}, \
    {                                                                                    \
        "threads", required_argument, NULL, 'T'                                          \
    }
#define WORKER_MODEL_HELP                                                                 \
    "  --preset NAME  random weights: tiny, 125m, 1b, 8b (default 125m)\n"                \
    "  --model DIR    Llama of Hugging Face: config.json, *.safetensors\n"                \
    "  --seed N       of random weights and prompts (default 1)\n"                        \
    "  --chunk N      tokens that are computed at a time (default 256; tiny models 32)\n" \
    "  --threads N    (default: one for each processor; tiny models 1)\n"

/* Whether c is one of these; *ret_rc is what opt_take_fn returns then. */
bool worker_model_take(struct worker_model *m, int c, int *ret_rc);
/* 0, or an enum bench_exit after saying why. */
BENCH_MUST_USE int worker_model_open(const struct worker_model *m, struct model *ret_model);
/* "random weights", or the directory. */
const char *worker_model_weights(const struct worker_model *m);
/* The same for the same seed; tokens that the model has. */
void worker_model_prompt(const struct model *model, uint64_t seed, uint32_t *token, uint32_t n);

struct worker_types {
    uint32_t type[2]; /* of K, of V */
    char name[24];    /* "q8_0:q4_0"; "q8_0" where both are the same */
};
/* "q8_0,fp8:fp16": up to `max`. 0 or BENCH_USAGE after saying what is wrong. */
BENCH_MUST_USE int worker_types_list(const char *text, struct worker_types *list, size_t max,
                                     size_t *ret_n);
void worker_types_name(struct worker_types *types);

#endif
