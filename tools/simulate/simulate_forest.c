/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace as a prefix forest (an id behind two different ids is two blocks), and when each block is
 * asked for next.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "simulate.h"

/* A hash table (parent, id) -> node, with open addressing. */
struct edges {
    struct edge {
        uint64_t id;
        uint32_t parent, node; /* node: its number + 1; 0: the entry is empty */
    } * at;
    size_t mask;
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint32_t edge_node(struct edges *edges, uint32_t parent, uint64_t id, uint32_t *n_nodes)
{
    size_t i = mix(id * 0x9e3779b97f4a7c15u + parent) & edges->mask;
    while (edges->at[i].node && (edges->at[i].id != id || edges->at[i].parent != parent))
        i = (i + 1) & edges->mask;
    if (!edges->at[i].node)
        edges->at[i] = (struct edge){.id = id, .parent = parent, .node = ++*n_nodes};
    return edges->at[i].node - 1;
}

static int number_nodes(struct sim_forest *forest)
{
    const struct trace *trace = forest->trace;
    struct edges edges = {.mask = 1024};
    while (edges.mask < 2 * trace->n_ids)
        edges.mask *= 2;
    edges.at = calloc(edges.mask--, sizeof(*edges.at));
    if (!edges.at)
        return -ENOMEM;
    for (size_t r = 0; r < trace->n_requests; r++) {
        const struct trace_request *request = &trace->requests[r];
        uint32_t parent = UINT32_MAX;
        uint64_t hash = 0;
        for (size_t i = request->first; i < request->first + request->blocks; i++) {
            parent = edge_node(&edges, parent, trace->ids[i], &forest->n_nodes);
            hash = mix(hash + mix(trace->ids[i] + 0x9e3779b97f4a7c15u));
            forest->node[i] = parent;
            forest->hash[i] = hash;
        }
    }
    free(edges.at);
    return 0;
}

static int find_next(struct sim_forest *forest)
{
    const struct trace *trace = forest->trace;
    uint32_t *next = malloc(forest->n_nodes * sizeof(*next));
    if (!next)
        return -ENOMEM;
    memset(next, 0xff, forest->n_nodes * sizeof(*next)); /* SIM_NEVER */
    for (size_t r = trace->n_requests; r-- > 0;) {
        const struct trace_request *request = &trace->requests[r];
        for (size_t i = request->first; i < request->first + request->blocks; i++) {
            forest->next[i] = next[forest->node[i]];
            next[forest->node[i]] = (uint32_t)r;
        }
    }
    free(next);
    return 0;
}

/* i n-ths of `whole`, rounded down. Does not overflow: i and n count requests. */
static uint64_t part(uint64_t whole, size_t i, size_t n)
{
    return whole / n * i + whole % n * i / n;
}

static void spread(uint64_t *at, size_t n, uint64_t span)
{
    for (size_t i = 1; i < n; i++)
        at[i] += part(span, i, n);
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Reads the times of the requests. They may be coarse (whole seconds): requests of one time are
 * spread evenly up to the next time. Requests of the last time are as far apart as the average, and
 * stay within the distance of the two nearest times. Without times, or if all are equal, requests
 * come a second apart. */
static void read_times(struct sim_forest *forest)
{
    const struct trace *trace = forest->trace;
    const size_t n = trace->n_requests;
    uint64_t *at = forest->at_ms, now = 0, nearest = UINT64_MAX;
    for (size_t r = 0; r < n; r++) {
        if (trace->requests[r].timestamp_ms > now)
            now = trace->requests[r].timestamp_ms;
        at[r] = now;
    }
    size_t first = 0;
    for (size_t next = 1; next < n; next++) {
        if (at[next] == at[first])
            continue;
        const uint64_t span = at[next] - at[first];
        spread(&at[first], next - first, span);
        nearest = lesser(nearest, span);
        first = next;
    }
    const uint64_t last = first > 0 ? part(now - at[0], n - first, n) : 1000 * n;
    spread(&at[first], n - first, lesser(lesser(last, nearest), UINT64_MAX - now));
}

int sim_forest_create(const struct trace *trace, struct sim_forest **ret_forest)
{
    if (trace->n_ids > INT32_MAX)
        return -E2BIG;
    struct sim_forest *forest = calloc(1, sizeof(*forest));
    if (!forest)
        return -ENOMEM;
    forest->trace = trace;
    forest->node = malloc(trace->n_ids * sizeof(*forest->node));
    forest->hash = malloc(trace->n_ids * sizeof(*forest->hash));
    forest->next = malloc(trace->n_ids * sizeof(*forest->next));
    forest->at_ms = malloc(trace->n_requests * sizeof(*forest->at_ms));
    const bool have = forest->node && forest->hash && forest->next && forest->at_ms;
    if (!have || number_nodes(forest) < 0 || find_next(forest) < 0) {
        sim_forest_destroy(&forest);
        return -ENOMEM;
    }
    read_times(forest);
    *ret_forest = forest;
    return 0;
}

void sim_forest_destroy(struct sim_forest **forest)
{
    if (!forest || !*forest)
        return;
    free((*forest)->node);
    free((*forest)->hash);
    free((*forest)->next);
    free((*forest)->at_ms);
    free(*forest);
    *forest = NULL;
}
