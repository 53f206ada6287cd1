/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hits are worth in time. A request's time to first token is what computing its prompt tokens
 * that are not reused costs, a part per token and a part per pair of a computed token and a token
 * before it, and what reading the reused ones costs, from memory and from storage, one after the
 * other. There is no queue: every request has the machine to itself. Pure.
 */
#ifndef SIMULATE_COST_H
#define SIMULATE_COST_H

#include "simulate.h"

struct sim_cost {
    double ns_per_token, ns_per_pair;
    double host_gbs, nvme_gbs; /* 1e9 bytes per second */
};

/* "NS[,NS_PER_PAIR[,HOST_GBS[,NVME_GBS]]]": what is left away stays as it is. 0 or -EINVAL. */
BENCH_MUST_USE int sim_cost_parse(const char *text, struct sim_cost *cost);

struct sim_times {
    double token_hit_ratio; /* prompt tokens reused, of all */
    double time_hit_ratio;  /* of the time without a cache, the part that is saved */
    double mean_s, p50_s, p95_s, p99_s;
};

/* 0 or -ENOMEM. */
BENCH_MUST_USE int sim_times(const struct trace *trace, const struct sim_hit *hits,
                             const struct sim_cost *cost, uint32_t block_tokens,
                             uint32_t block_bytes, struct sim_times *ret_times);

#endif
