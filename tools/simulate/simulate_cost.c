/* SPDX-License-Identifier: Apache-2.0 */
#include "simulate_cost.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* Least rate, because others are divided by it and the sum of costs must stay finite. */
#define COST_MIN 1e-12
#define COST_MAX 1e15

int sim_cost_parse(const char *text, struct sim_cost *cost)
{
    struct sim_cost read = *cost;
    double *const value[] = {&read.ns_per_token, &read.ns_per_pair, &read.host_gbs, &read.nvme_gbs};
    for (size_t i = 0; i < sizeof(value) / sizeof(value[0]); i++) {
        char *end;
        *value[i] = strtod(text, &end);
        const bool rate = i >= 2; /* a rate, by which others are divided */
        if (end == text || !(*value[i] >= (rate ? COST_MIN : 0) && *value[i] <= COST_MAX))
            return -EINVAL;
        if (*end == '\0') {
            *cost = read;
            return 0;
        }
        if (*end != ',')
            return -EINVAL;
        text = end + 1;
    }
    return -EINVAL;
}

static uint32_t simulate_cost_tokens_of(const struct trace_request *request, uint32_t block_tokens)
{
    return request->input_tokens ? request->input_tokens : request->blocks * block_tokens;
}

/* Tokens of the reused blocks; the last block of a prompt may be partly filled. */
static double reused(uint32_t blocks, uint32_t block_tokens, uint32_t tokens)
{
    return fmin((double)blocks * block_tokens, tokens);
}

static double ttft_s(const struct sim_cost *cost, double tokens, double host, double nvme,
                     double token_bytes)
{
    const double before = host + nvme, computed = tokens - before;
    const double pairs = (tokens * tokens - before * before) / 2;
    return (computed * cost->ns_per_token + pairs * cost->ns_per_pair +
            host * token_bytes / cost->host_gbs + nvme * token_bytes / cost->nvme_gbs) *
           1e-9;
}

static int simulate_cost_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The least value that at least a share q of all values do not exceed. */
static double quantile(const double *sorted, size_t n, double q)
{
    const size_t rank = (size_t)ceil(q * (double)n);
    return sorted[rank ? rank - 1 : 0];
}

int sim_times(const struct trace *trace, const struct sim_hit *hits, const struct sim_cost *cost,
              uint32_t block_tokens, uint32_t block_bytes, struct sim_times *ret_times)
{
    const size_t n = trace->n_requests;
    double *ttft = malloc(n * sizeof(*ttft));
    if (!ttft)
        return -ENOMEM;
    const double token_bytes = (double)block_bytes / block_tokens;
    double all_tokens = 0, all_reused = 0, with = 0, without = 0;
    for (size_t r = 0; r < n; r++) {
        const uint32_t tokens = simulate_cost_tokens_of(&trace->requests[r], block_tokens);
        const double hit = reused(hits[r].host + hits[r].nvme, block_tokens, tokens);
        /* Where the hit is shorter than its blocks, the end of the prefix is cut off, in whichever
         * tier it is. */
        const double nvme = fmin((double)hits[r].nvme * block_tokens, hit), host = hit - nvme;
        ttft[r] = ttft_s(cost, tokens, host, nvme, token_bytes);
        with += ttft[r];
        without += ttft_s(cost, tokens, 0, 0, token_bytes);
        all_tokens += tokens;
        all_reused += hit;
    }
    qsort(ttft, n, sizeof(*ttft), simulate_cost_compare);
    *ret_times = (struct sim_times){.token_hit_ratio = all_tokens > 0 ? all_reused / all_tokens : 0,
                                    .time_hit_ratio = without > 0 ? 1 - with / without : 0,
                                    .mean_s = with / (double)n,
                                    .p50_s = quantile(ttft, n, 0.50),
                                    .p95_s = quantile(ttft, n, 0.95),
                                    .p99_s = quantile(ttft, n, 0.99)};
    free(ttft);
    return 0;
}
