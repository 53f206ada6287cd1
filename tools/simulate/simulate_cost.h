/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hits are worth in time. The time to first token of a request has two parts. Its prompt
 * tokens that are not reused are computed: a cost per token, and one per pair of a computed token
 * and a token before it. The reused ones are read from memory and from storage, one after the
 * other. Requests never wait for each other. Pure.
 */
#ifndef SIMULATE_COST_H
#define SIMULATE_COST_H

#include "simulate.h"

struct sim_cost {
    double ns_per_token, ns_per_pair;
    double host_gbs, nvme_gbs; /* 1e9 bytes per second */
};

/* Parses "NS[,NS_PER_PAIR[,HOST_GBS[,NVME_GBS]]]"; values that are left out stay as they are. 0 or
 * -EINVAL. */
BENCH_MUST_USE int sim_cost_parse(const char *text, struct sim_cost *cost);

struct sim_times {
    double token_hit_ratio; /* reused part of all prompt tokens */
    double time_hit_ratio;  /* saved part of the time that all requests take without a cache */
    double mean_s, p50_s, p95_s, p99_s;
};

/* 0 or -ENOMEM. */
BENCH_MUST_USE int sim_times(const struct trace *trace, const struct sim_hit *hits,
                             const struct sim_cost *cost, uint32_t block_tokens,
                             uint32_t block_bytes, struct sim_times *ret_times);

#endif
