/* SPDX-License-Identifier: Apache-2.0 */
/* Options by which a benchmark chooses one of kvcache-worker's models, and types of K and V. */
#ifndef BENCH_WORKER_MODEL_H
#define BENCH_WORKER_MODEL_H

#include <stdbool.h>

#include "bench.h"
#include "kv.h"
#include "model.h"

struct worker_model {
    const char *preset, *dir; /* dir: a directory with a model, instead of a preset */
    uint64_t seed, chunk, threads;
};

/* Rows of a table of options whose struct `type` has a struct worker_model as `member`. */
#define WORKER_MODEL_OPTIONS(type, member)                                                \
    {"--preset NAME", "random weights: tiny, 125m, 1b, 8b (default 125m)",                \
     ARG_TEXT(type, member.preset)},                                                      \
        {"--model DIR", "Llama of Hugging Face: config.json, *.safetensors",              \
         ARG_TEXT(type, member.dir)},                                                     \
        {"--seed N", "of random weights and prompts (default 1)",                         \
         ARG_COUNT(type, member.seed, 0, UINT32_MAX)},                                    \
        {"--chunk N", "tokens that are computed at a time (default 256; tiny models 32)", \
         ARG_COUNT(type, member.chunk, 1, 65536)},                                        \
    {                                                                                     \
        "--threads N", "(default: one for each processor; tiny models 1)",                \
            ARG_COUNT(type, member.threads, 1, 1024)                                      \
    }
/* 0, or an enum bench_exit after printing why it failed. */
BENCH_MUST_USE int worker_model_open(const struct worker_model *m, struct model *ret_model);
/* "random weights", or the model's directory. */
const char *worker_model_weights(const struct worker_model *m);
/* Makes a prompt of tokens that the model knows. Equal seeds give equal prompts. */
void worker_model_prompt(const struct model *model, uint64_t seed, uint32_t *token, uint32_t n);

struct worker_types {
    uint32_t type[2]; /* of K and of V */
    char name[24];    /* "q8_0:q4_0"; "q8_0" if both are the same */
};
/* Parses "q8_0,fp8:fp16": up to `max` pairs. 0, or BENCH_USAGE after printing what is wrong. */
BENCH_MUST_USE int worker_types_list(const char *text, struct worker_types *list, size_t max,
                                     size_t *ret_n);
void worker_types_name(struct worker_types *types);

#endif
