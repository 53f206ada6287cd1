/* SPDX-License-Identifier: Apache-2.0 */
/* `kvcachebench surge --preset`: several processes of kvcache-worker run at the same time. All have
 * one system prompt, each with its own question behind it. */
#ifndef BENCH_SURGE_REAL_H
#define BENCH_SURGE_REAL_H

#include "bench_rig.h"

#define SURGE_REAL_WORKERS_MAX 16u
#define SURGE_REAL_TOKENS_MAX  16384u /* a whole prompt fits a pipe */

struct surge_real {
    const char *preset, *socket;
    uint32_t workers, tokens; /* tokens: length of the system prompt */
};
struct surge_outcome {
    double computed; /* tokens that all workers together computed */
    double ttft_s;   /* mean time to first token */
};

/* Runs one round. Each `round` has a system prompt of its own. 0 or an enum bench_exit. */
BENCH_MUST_USE int surge_real_round(const struct surge_real *s, uint64_t round, bool waits,
                                    struct surge_outcome *ret);
/* Tokens that one worker computes if it finds nothing in the cache. */
uint64_t surge_real_alone(const struct surge_real *s);

#endif
