/* SPDX-License-Identifier: Apache-2.0 */
/* `kvcachebench surge --preset`: processes of kvcache-worker, each with a question of its own
 * behind one system prompt, all at the same time. */
#ifndef BENCH_SURGE_REAL_H
#define BENCH_SURGE_REAL_H

#include "bench_rig.h"

#define SURGE_REAL_WORKERS_MAX 16u
#define SURGE_REAL_TOKENS_MAX  16384u /* what a pipe takes */

struct surge_real {
    const char *preset, *socket;
    uint32_t workers, tokens; /* of the system prompt */
};
struct surge_outcome {
    double computed; /* tokens, of all workers */
    double ttft_s;   /* on average */
};

/* One round. `round`: no other round has its prompt. 0 or an enum bench_exit. */
BENCH_MUST_USE int surge_real_round(const struct surge_real *s, uint64_t round, bool waits,
                                    struct surge_outcome *ret);
/* What one worker alone computes. */
uint64_t surge_real_alone(const struct surge_real *s);

#endif
