/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Belady's bound on a prefix forest. A node is asked for again no later than its descendants. So,
 * of nodes with the same next request, the deepest is evicted first, and the cache stays closed
 * under prefixes. The optimum without this constraint is therefore the optimum with it.
 */
#include <errno.h>
#include <stdlib.h>

#include "simulate.h"

/* A heap of the cached nodes, the next victim on top. Each use of a node has its own key, and
 * entries of nodes that were evicted or used since are skipped. */
struct entry {
    uint64_t key; /* next request, then depth */
    uint32_t node;
};

struct belady {
    uint64_t *key; /* key of each cached node; 0: not cached (no next request has number 0) */
    struct entry *heap;
    size_t n_heap;
    uint32_t n_in;
};

static void simulate_belady_push(struct belady *b, struct entry entry)
{
    size_t i = b->n_heap++;
    for (; i > 0 && b->heap[(i - 1) / 2].key < entry.key; i = (i - 1) / 2)
        b->heap[i] = b->heap[(i - 1) / 2];
    b->heap[i] = entry;
}

static struct entry simulate_belady_pop(struct belady *b)
{
    const struct entry top = b->heap[0], last = b->heap[--b->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < b->n_heap; i = child) {
        if (child + 1 < b->n_heap && b->heap[child + 1].key > b->heap[child].key)
            child++;
        if (b->heap[child].key <= last.key)
            break;
        b->heap[i] = b->heap[child];
    }
    b->heap[i] = last;
    return top;
}

static void use(struct belady *b, uint32_t node, uint32_t next, uint32_t depth)
{
    if (b->key[node])
        b->n_in--;
    b->key[node] = 0;
    if (next == SIM_NEVER)
        return;
    b->key[node] = (uint64_t)next << 32 | depth;
    b->n_in++;
    simulate_belady_push(b, (struct entry){b->key[node], node});
}

int sim_belady(const struct sim_forest *forest, uint32_t blocks, struct sim_hit *hits,
               struct sim_counts *ret_counts)
{
    const struct trace *trace = forest->trace;
    struct sim_counts counts = {.accesses = trace->n_ids};
    struct belady b = {.key = calloc(forest->n_nodes, sizeof(*b.key)),
                       .heap = malloc(trace->n_ids * sizeof(*b.heap))};
    for (size_t r = 0; b.key && b.heap && r < trace->n_requests; r++) {
        const struct trace_request *request = &trace->requests[r];
        const uint32_t *node = &forest->node[request->first];
        const uint32_t *next = &forest->next[request->first];
        uint32_t n = 0;
        while (n < request->blocks && b.key[node[n]])
            n++;
        hits[r] = (struct sim_hit){.host = n};
        counts.host_hits += n;
        for (uint32_t i = 0; i < request->blocks; i++)
            use(&b, node[i], next[i], i);
        while (b.n_in > blocks) {
            const struct entry e = simulate_belady_pop(&b);
            if (b.key[e.node] != e.key)
                continue;
            b.key[e.node] = 0;
            b.n_in--;
            counts.evicted++;
        }
    }
    const int rc = b.key && b.heap ? 0 : -ENOMEM;
    free(b.key);
    free(b.heap);
    if (rc == 0)
        *ret_counts = counts;
    return rc;
}
