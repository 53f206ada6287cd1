/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eviction policies as they were published, to compare the daemon's with: one block after another,
 * without leases, without a second tier, with as much memory of what went as their papers give them
 * (LRU-2: without bound). Those that order by use take a request's blocks deepest first, so that
 * what goes is a leaf; queues take them as they come. LFU, with and without aging, and LRU-2 let
 * leaves go alone. What is over the room goes at the end of the request, so new blocks may be the
 * first to go; ARC, S3-FIFO and SIEVE make room for each block.
 *
 * LFU with aging: Arlitt et al., 2000 (LFU-DA). LRU-2: O'Neil et al., SIGMOD 1993. SLRU: Karedla et
 * al., 1994, four fifths protected. ARC: Megiddo and Modha, FAST 2003. S3-FIFO: Yang et al., SOSP
 * 2023. SIEVE: Zhang et al., NSDI 2024.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "simulate.h"

#define NONE UINT32_MAX

/* The first two queues have cached blocks, the others remember evicted ones. */
enum { FIRST, SECOND, IN_QUEUES, GONE_FIRST = IN_QUEUES, GONE_SECOND, QUEUES, OUT = QUEUES };

struct queue {
    uint32_t young, old, n;
};

struct entry {
    /* The block with the least key is evicted; among equal keys, the one with the least `then`. */
    uint64_t key, then;
    uint32_t node;
};

struct cache {
    uint32_t room, in;
    uint64_t clock;
    uint64_t age;  /* LFU with aging: key of the last evicted block */
    double target; /* ARC: target size of the queue FIRST */
    uint32_t hand; /* SIEVE: the hand */
    struct queue queue[QUEUES];
    /* of each node */
    uint32_t *younger, *older, *parent, *children, *uses;
    uint64_t *key, *then;
    uint8_t *at; /* queue of each node, or OUT */
    struct entry *heap;
    size_t n_heap, heap_max;
    bool failed; /* the heap could not be allocated */
    uint64_t evicted;
};

struct published {
    const char *name;
    void (*request)(struct cache *c, const uint32_t *node, uint32_t n);
};

/* ---- queues ---- */

static bool simulate_published_is_in(const struct cache *c, uint32_t node)
{
    return c->at[node] < IN_QUEUES;
}

static void simulate_published_leave(struct cache *c, uint32_t node)
{
    if (c->at[node] == OUT)
        return;
    struct queue *q = &c->queue[c->at[node]];
    *(c->younger[node] == NONE ? &q->young : &c->older[c->younger[node]]) = c->older[node];
    *(c->older[node] == NONE ? &q->old : &c->younger[c->older[node]]) = c->younger[node];
    q->n--;
    c->in -= simulate_published_is_in(c, node);
    c->at[node] = OUT;
}

/* Inserts a node at the young end of a queue. */
static void enter(struct cache *c, uint32_t node, uint8_t queue)
{
    simulate_published_leave(c, node);
    struct queue *q = &c->queue[queue];
    c->younger[node] = NONE;
    c->older[node] = q->young;
    *(q->young == NONE ? &q->old : &c->younger[q->young]) = node;
    q->young = node;
    q->n++;
    c->at[node] = queue;
    c->in += simulate_published_is_in(c, node);
}

static void simulate_published_evict(struct cache *c, uint32_t node, uint8_t to)
{
    c->evicted++;
    if (to == OUT)
        simulate_published_leave(c, node);
    else
        enter(c, node, to);
}

/* ---- by recency, by arrival ---- */

static void lru(struct cache *c, const uint32_t *node, uint32_t n)
{
    while (n-- > 0)
        enter(c, node[n], FIRST);
    while (c->in > c->room)
        simulate_published_evict(c, c->queue[FIRST].old, OUT);
}

static void fifo(struct cache *c, const uint32_t *node, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!simulate_published_is_in(c, node[i]))
            enter(c, node[i], FIRST);
    while (c->in > c->room)
        simulate_published_evict(c, c->queue[FIRST].old, OUT);
}

static void slru(struct cache *c, const uint32_t *node, uint32_t n)
{
    while (n-- > 0)
        enter(c, node[n], simulate_published_is_in(c, node[n]) ? SECOND : FIRST);
    while (c->queue[SECOND].n > c->room / 5 * 4 + c->room % 5 * 4 / 5)
        enter(c, c->queue[SECOND].old, FIRST);
    while (c->in > c->room)
        simulate_published_evict(c, c->queue[c->queue[FIRST].n ? FIRST : SECOND].old, OUT);
}

/* ---- by a key, leaves alone ---- */

static bool simulate_published_goes_before(const struct entry *a, const struct entry *b)
{
    return a->key != b->key ? a->key < b->key : a->then < b->then;
}

static void simulate_published_push(struct cache *c, uint32_t node)
{
    if (c->n_heap == c->heap_max) {
        const size_t more = c->heap_max ? 2 * c->heap_max : 1024;
        struct entry *heap = realloc(c->heap, more * sizeof(*heap));
        if (!heap) {
            c->failed = true;
            return;
        }
        c->heap = heap;
        c->heap_max = more;
    }
    const struct entry e = {c->key[node], c->then[node], node};
    size_t i = c->n_heap++;
    for (; i > 0 && simulate_published_goes_before(&e, &c->heap[(i - 1) / 2]); i = (i - 1) / 2)
        c->heap[i] = c->heap[(i - 1) / 2];
    c->heap[i] = e;
}

static struct entry simulate_published_pop(struct cache *c)
{
    const struct entry top = c->heap[0], last = c->heap[--c->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < c->n_heap; i = child) {
        if (child + 1 < c->n_heap &&
            simulate_published_goes_before(&c->heap[child + 1], &c->heap[child]))
            child++;
        if (!simulate_published_goes_before(&c->heap[child], &last))
            break;
        c->heap[i] = c->heap[child];
    }
    c->heap[i] = last;
    return top;
}

/* Takes in the blocks of the request, each with the key that was made for it, and evicts what is
 * above the room. */
static void simulate_published_settle(struct cache *c, const uint32_t *node, uint32_t n)
{
    while (n-- > 0) {
        if (!simulate_published_is_in(c, node[n])) {
            enter(c, node[n], FIRST);
            if (c->parent[node[n]] != NONE)
                c->children[c->parent[node[n]]]++;
        }
        if (c->children[node[n]] == 0)
            simulate_published_push(c, node[n]);
    }
    while (c->in > c->room && c->n_heap > 0) {
        const struct entry e = simulate_published_pop(c);
        if (!simulate_published_is_in(c, e.node) || c->key[e.node] != e.key ||
            c->then[e.node] != e.then || c->children[e.node] > 0)
            continue; /* it was used since, or evicted */
        simulate_published_evict(c, e.node, OUT);
        c->age = e.key;
        const uint32_t parent = c->parent[e.node];
        if (parent != NONE && --c->children[parent] == 0 && simulate_published_is_in(c, parent))
            simulate_published_push(c, parent);
    }
}

static void simulate_published_count(struct cache *c, const uint32_t *node, uint32_t n, bool aging)
{
    for (uint32_t i = n; i-- > 0;) {
        c->uses[node[i]] = simulate_published_is_in(c, node[i]) ? c->uses[node[i]] + 1 : 1;
        c->key[node[i]] = c->uses[node[i]] + (aging ? c->age : 0);
        c->then[node[i]] = ++c->clock;
    }
    simulate_published_settle(c, node, n);
}

static void lfu(struct cache *c, const uint32_t *node, uint32_t n)
{
    simulate_published_count(c, node, n, false);
}

static void lfu_aging(struct cache *c, const uint32_t *node, uint32_t n)
{
    simulate_published_count(c, node, n, true);
}

static void lru2(struct cache *c, const uint32_t *node, uint32_t n)
{
    for (uint32_t i = n; i-- > 0;) {
        c->key[node[i]] = c->then[node[i]];
        c->then[node[i]] = ++c->clock;
    }
    simulate_published_settle(c, node, n);
}

/* ---- ARC ---- */

static void arc_make_room(struct cache *c, bool was_in_second)
{
    const double first = c->queue[FIRST].n;
    const bool from_first = first > 0 && (first > c->target || c->queue[SECOND].n == 0 ||
                                          (was_in_second && first >= c->target));
    simulate_published_evict(c, c->queue[from_first ? FIRST : SECOND].old,
                             from_first ? GONE_FIRST : GONE_SECOND);
}

/* An evicted block comes again: its queue should have been longer. */
static void arc_again(struct cache *c, uint32_t node)
{
    const uint8_t own = c->at[node], other = own == GONE_FIRST ? GONE_SECOND : GONE_FIRST;
    const uint32_t most = c->queue[other].n / c->queue[own].n;
    const double step = most > 1 ? most : 1;
    c->target += own == GONE_FIRST ? step : -step;
    if (c->target > c->room)
        c->target = c->room;
    if (c->target < 0)
        c->target = 0;
    if (c->in >= c->room)
        arc_make_room(c, own == GONE_SECOND);
    enter(c, node, SECOND);
}

static void arc_new(struct cache *c, uint32_t node)
{
    const uint32_t first = c->queue[FIRST].n + c->queue[GONE_FIRST].n;
    if (first >= c->room && c->queue[FIRST].n == c->room) {
        simulate_published_evict(c, c->queue[FIRST].old, OUT);
    } else {
        if (first >= c->room)
            simulate_published_leave(c, c->queue[GONE_FIRST].old);
        else if (c->in + c->queue[GONE_FIRST].n + c->queue[GONE_SECOND].n >= 2 * c->room &&
                 c->queue[GONE_SECOND].n > 0)
            simulate_published_leave(c, c->queue[GONE_SECOND].old);
        if (c->in >= c->room)
            arc_make_room(c, false);
    }
    enter(c, node, FIRST);
}

static void arc(struct cache *c, const uint32_t *node, uint32_t n)
{
    while (n-- > 0) {
        if (simulate_published_is_in(c, node[n]))
            enter(c, node[n], SECOND);
        else if (c->at[node[n]] != OUT)
            arc_again(c, node[n]);
        else
            arc_new(c, node[n]);
    }
}

/* ---- S3-FIFO ---- */

static bool s3_evict_main(struct cache *c)
{
    while (c->queue[SECOND].n > 0) {
        const uint32_t old = c->queue[SECOND].old;
        if (c->uses[old] == 0) {
            simulate_published_evict(c, old, OUT);
            return true;
        }
        c->uses[old]--;
        enter(c, old, SECOND);
    }
    return false;
}

static void s3_evict(struct cache *c)
{
    const uint32_t small = c->room / 10 ? c->room / 10 : 1, main = c->room - small;
    for (;;) {
        if (c->queue[FIRST].n == 0 || (c->queue[FIRST].n < small && c->queue[SECOND].n > 0)) {
            if (s3_evict_main(c))
                return;
            continue;
        }
        const uint32_t old = c->queue[FIRST].old;
        if (c->uses[old] < 2) {
            simulate_published_evict(c, old, GONE_FIRST);
            if (c->queue[GONE_FIRST].n > main)
                simulate_published_leave(c, c->queue[GONE_FIRST].old);
            return;
        }
        enter(c, old, SECOND);
        if (c->queue[SECOND].n > main && s3_evict_main(c))
            return;
    }
}

static void s3fifo(struct cache *c, const uint32_t *node, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (simulate_published_is_in(c, node[i])) {
            c->uses[node[i]] += c->uses[node[i]] < 3;
            continue;
        }
        while (c->in >= c->room)
            s3_evict(c);
        enter(c, node[i], c->at[node[i]] == GONE_FIRST ? SECOND : FIRST);
        c->uses[node[i]] = 0;
    }
}

/* ---- SIEVE ---- */

static void sieve_evict(struct cache *c)
{
    uint32_t at = c->hand == NONE ? c->queue[FIRST].old : c->hand;
    while (c->uses[at]) {
        c->uses[at] = 0;
        at = c->younger[at] == NONE ? c->queue[FIRST].old : c->younger[at];
    }
    c->hand = c->younger[at];
    simulate_published_evict(c, at, OUT);
}

static void sieve(struct cache *c, const uint32_t *node, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (simulate_published_is_in(c, node[i])) {
            c->uses[node[i]] = 1;
            continue;
        }
        if (c->in >= c->room)
            sieve_evict(c);
        enter(c, node[i], FIRST);
        c->uses[node[i]] = 0;
    }
}

/* ---- all of them ---- */

static const struct published published[] = {
    {"published-lru", lru},     {"published-fifo", fifo},
    {"published-lfu", lfu},     {"published-lfu-aging", lfu_aging},
    {"published-lru2", lru2},   {"published-slru", slru},
    {"published-arc", arc},     {"published-s3fifo", s3fifo},
    {"published-sieve", sieve},
};

const char *sim_published_at(unsigned i)
{
    return i < sizeof(published) / sizeof(published[0]) ? published[i].name : NULL;
}

static const struct published *simulate_published_find(const char *name)
{
    for (unsigned i = 0; sim_published_at(i); i++)
        if (strcmp(published[i].name, name) == 0)
            return &published[i];
    return NULL;
}

static void simulate_published_destroy(struct cache *c)
{
    free(c->younger);
    free(c->older);
    free(c->parent);
    free(c->children);
    free(c->uses);
    free(c->key);
    free(c->then);
    free(c->at);
    free(c->heap);
}

static void find_parents(struct cache *c, const struct sim_forest *forest)
{
    for (size_t r = 0; r < forest->trace->n_requests; r++) {
        const struct trace_request *request = &forest->trace->requests[r];
        const uint32_t *node = &forest->node[request->first];
        for (uint32_t i = 0; i < request->blocks; i++)
            c->parent[node[i]] = i ? node[i - 1] : NONE;
    }
}

static int simulate_published_create(struct cache *c, const struct sim_forest *forest,
                                     uint32_t room)
{
    const size_t n = forest->n_nodes;
    *c = (struct cache){.room = room,
                        .hand = NONE,
                        .younger = malloc(n * sizeof(*c->younger)),
                        .older = malloc(n * sizeof(*c->older)),
                        .parent = malloc(n * sizeof(*c->parent)),
                        .children = calloc(n, sizeof(*c->children)),
                        .uses = calloc(n, sizeof(*c->uses)),
                        .key = calloc(n, sizeof(*c->key)),
                        .then = calloc(n, sizeof(*c->then)),
                        .at = malloc(n)};
    for (unsigned i = 0; i < QUEUES; i++)
        c->queue[i] = (struct queue){NONE, NONE, 0};
    if (!c->younger || !c->older || !c->parent || !c->children || !c->uses || !c->key || !c->then ||
        !c->at)
        return -ENOMEM;
    memset(c->at, OUT, n);
    find_parents(c, forest);
    return 0;
}

int sim_published(const struct sim_forest *forest, const char *name, uint32_t blocks,
                  struct sim_hit *hits, struct sim_counts *ret_counts)
{
    const struct published *policy = simulate_published_find(name);
    const struct trace *trace = forest->trace;
    struct sim_counts counts = {.accesses = trace->n_ids};
    struct cache c;
    int rc = policy && blocks > 0 ? simulate_published_create(&c, forest, blocks) : -EINVAL;
    if (rc == -EINVAL)
        return rc;
    for (size_t r = 0; rc == 0 && r < trace->n_requests; r++) {
        const struct trace_request *request = &trace->requests[r];
        const uint32_t *node = &forest->node[request->first];
        uint32_t n = 0;
        while (n < request->blocks && simulate_published_is_in(&c, node[n]))
            n++;
        hits[r] = (struct sim_hit){.host = n};
        counts.host_hits += n;
        policy->request(&c, node, request->blocks);
        rc = c.failed ? -ENOMEM : 0;
    }
    counts.evicted = c.evicted;
    if (rc == 0)
        *ret_counts = counts;
    simulate_published_destroy(&c);
    return rc;
}
