/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request after another, as the core takes them. The longest cached prefix is in use while the
 * request runs, and so is what comes in for it; room is made before a block comes in. The policy
 * hears of the request, of touches of the hits, deepest first, of inserts, parents first, and at
 * the end of what is not in use any more.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "simulate_cache.h"

uint64_t sim_random(struct sim_cache *c)
{
    uint64_t x = c->random += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* ---- blocks ---- */

static bool can_leave(void *ctx, uint32_t block)
{
    const struct sim_cache *c = ctx;
    const struct sim_block *b = &c->blocks[block];
    return b->used != c->request && (b->child == SIM_NONE || c->log);
}

static void link_block(struct sim_cache *c, uint32_t block, uint32_t parent)
{
    struct sim_block *b = &c->blocks[block];
    b->parent = parent;
    b->child = b->next = b->prev = SIM_NONE;
    if (parent == SIM_NONE)
        return;
    b->next = c->blocks[parent].child;
    if (b->next != SIM_NONE)
        c->blocks[b->next].prev = block;
    c->blocks[parent].child = block;
}

static void unlink_block(struct sim_cache *c, uint32_t block)
{
    const struct sim_block *b = &c->blocks[block];
    if (b->next != SIM_NONE)
        c->blocks[b->next].prev = b->prev;
    if (b->prev != SIM_NONE)
        c->blocks[b->prev].next = b->next;
    else if (b->parent != SIM_NONE)
        c->blocks[b->parent].child = b->next;
}

static void kill_leaf(struct sim_cache *c, uint32_t block)
{
    struct sim_block *b = &c->blocks[block];
    c->config->ops->remove(c->policy, block);
    unlink_block(c, block);
    c->n_host -= b->host;
    sim_nvme_forget(c, block);
    c->block_of[b->node] = SIM_NONE;
    c->free[c->n_free++] = block;
    const uint32_t parent = b->parent;
    if (parent != SIM_NONE && c->blocks[parent].child == SIM_NONE && c->blocks[parent].host &&
        can_leave(c, parent))
        c->config->ops->release(c->policy, parent, true);
}

void sim_kill(struct sim_cache *c, uint32_t root)
{
    for (uint32_t block = root;;) {
        while (c->blocks[block].child != SIM_NONE)
            block = c->blocks[block].child;
        const uint32_t parent = c->blocks[block].parent;
        kill_leaf(c, block);
        if (block == root)
            return;
        block = parent;
    }
}

static void let_go(struct sim_cache *c, uint32_t block)
{
    struct sim_block *b = &c->blocks[block];
    c->counts.evicted++;
    if (c->log && (b->place != SIM_NONE || sim_nvme_write(c, block))) {
        c->config->ops->park(c->policy, block);
        b->host = false;
        c->n_host--;
    } else {
        sim_kill(c, block);
    }
}

/* Of processor time: others that run on the machine are not the policy's. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Of reading it: up to a microsecond, which would be most of what is measured. */
static uint64_t clock_cost(void)
{
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < 1000; i++) {
        const uint64_t begin = cpu_ns(), ns = cpu_ns() - begin;
        least = ns < least ? ns : least;
    }
    return least;
}

static void add_decision(struct sim_decisions *decisions, uint64_t ns)
{
    ns -= ns < decisions->clock_ns ? ns : decisions->clock_ns;
    lat_add(&decisions->lat, ns);
    decisions->ns += ns;
}

enum sim_room { SIM_ROOM, SIM_NO_ROOM, SIM_NOT_WORTH };

/* Makes room; for a block that is coming in, if it is worth that. */
static enum sim_room make_room(struct sim_cache *c, const struct policy_hint *hint)
{
    const struct policy_ops *ops = c->config->ops;
    struct sim_decisions *decisions = c->config->decisions;
    while (c->n_host >= c->config->host_blocks) {
        if (c->log)
            sim_nvme_make_room(c);
        if (c->n_host < c->config->host_blocks)
            return SIM_ROOM;
        const uint64_t begin = decisions ? cpu_ns() : 0;
        const uint32_t block = ops->victim(c->policy, 0, c->now_ms, can_leave, c);
        if (block == POLICY_NO_BLOCK)
            return SIM_NO_ROOM;
        const bool judged = hint && ops->admits && !c->log && !c->config->admit_all;
        if (judged && !ops->admits(c->policy, hint, block, c->now_ms))
            return SIM_NOT_WORTH;
        let_go(c, block);
        if (decisions)
            add_decision(decisions, cpu_ns() - begin);
    }
    return SIM_ROOM;
}

bool sim_make_room(struct sim_cache *c)
{
    return make_room(c, NULL) == SIM_ROOM;
}

/* ---- a request ---- */

struct chain {
    const uint32_t *node;
    const uint64_t *hash;
    uint32_t n, cached;
    uint32_t *block; /* of the first `cached` nodes */
};

/* The leading blocks that are cached, in use from now on. */
static struct sim_hit find_prefix(struct sim_cache *c, struct chain *chain)
{
    struct sim_hit hit = {0};
    for (; chain->cached < chain->n; chain->cached++) {
        const uint32_t block = c->block_of[chain->node[chain->cached]];
        if (block == SIM_NONE)
            break;
        chain->block[chain->cached] = block;
        c->blocks[block].used = c->request;
        hit.host += c->blocks[block].host;
        hit.nvme += !c->blocks[block].host;
    }
    return hit;
}

/* Hits on NVMe come into memory, and keep their place there. Those for which there is no room are
 * no hits, nor is what is behind them. */
static void promote(struct sim_cache *c, struct chain *chain, struct sim_hit *hit)
{
    for (uint32_t i = 0; i < chain->cached; i++) {
        struct sim_block *b = &c->blocks[chain->block[i]];
        if (b->host)
            continue;
        if (!sim_make_room(c)) {
            c->counts.no_room += chain->cached - i;
            for (; chain->cached > i; chain->cached--) {
                b = &c->blocks[chain->block[chain->cached - 1]];
                hit->host -= b->host;
                hit->nvme -= !b->host;
            }
            return;
        }
        b->host = true;
        c->n_host++;
        c->config->ops->unpark(c->policy, chain->block[i], c->now_ms);
    }
}

static void bring_in(struct sim_cache *c, struct chain *chain)
{
    uint32_t parent = chain->cached ? chain->block[chain->cached - 1] : SIM_NONE;
    for (uint32_t i = chain->cached; i < chain->n; i++) {
        if (c->block_of[chain->node[i]] != SIM_NONE) /* a hit for which there was no room */
            return;
        const struct policy_hint hint = {.hash = chain->hash[i],
                                         .parent = parent,
                                         .depth = i,
                                         .bytes = c->config->block_bytes,
                                         .used_ms = c->now_ms};
        const enum sim_room room = make_room(c, &hint);
        if (room != SIM_ROOM) {
            *(room == SIM_NO_ROOM ? &c->counts.no_room : &c->counts.not_worth) += chain->n - i;
            return;
        }
        const uint32_t block = c->free[--c->n_free];
        c->blocks[block] = (struct sim_block){
            .node = chain->node[i], .place = SIM_NONE, .used = c->request, .host = true};
        link_block(c, block, parent);
        c->block_of[chain->node[i]] = chain->block[i] = block;
        c->n_host++;
        chain->cached++;
        c->config->ops->insert(c->policy, block, &hint, c->now_ms);
        parent = block;
    }
}

/* Blocks of the chain that no other shares, without its first. */
static uint32_t own_tail(const struct sim_cache *c, const struct chain *chain, uint32_t *ret_block)
{
    uint32_t n = 0;
    for (uint32_t i = chain->cached; i-- > 1;) {
        const struct sim_block *b = &c->blocks[chain->block[i]];
        const uint32_t below = n ? chain->block[i + 1] : SIM_NONE;
        if (b->child != below || (n && c->blocks[below].next != SIM_NONE))
            break;
        ret_block[n++] = chain->block[i];
    }
    return n;
}

/* Whether what could be said of the chain is so. again: when its last full block is asked for. */
static bool is_so(const struct sim_cache *c, const struct chain *chain, uint32_t again)
{
    const bool ended = again == SIM_NEVER;
    switch (c->config->hints.kind) {
    case POLICY_ADVICE_ENDED:
        return ended;
    case POLICY_ADVICE_CONTINUE:
        return !ended;
    case POLICY_ADVICE_SOON:
        return !ended && c->forest->at_ms[again] - c->now_ms <= c->config->hints.within_ms;
    case POLICY_ADVICE_SCAN:
        return ended && chain->node[chain->n > 1 ? 1 : 0] >= c->known;
    default:
        return false;
    }
}

static void give_hint(struct sim_cache *c, const struct chain *chain, const uint32_t *next,
                      uint32_t *blocks)
{
    const struct sim_hints *hints = &c->config->hints;
    if (hints->kind == POLICY_ADVICE_NONE || !chain->cached)
        return;
    const bool right = (double)(sim_random(c) >> 11) * 0x1p-53 < hints->right;
    const bool said = is_so(c, chain, next[chain->n > 1 ? chain->n - 2 : 0]) == right;
    if (!said || !c->config->ops->advise)
        return;
    const uint32_t n = own_tail(c, chain, blocks);
    if (n)
        c->config->ops->advise(c->policy, hints->kind, hints->within_ms, blocks, n, c->now_ms);
}

static struct sim_hit run_request(struct sim_cache *c, size_t r, uint32_t *scratch)
{
    const struct trace_request *request = &c->forest->trace->requests[r];
    const struct policy_ops *ops = c->config->ops;
    struct chain chain = {.node = &c->forest->node[request->first],
                          .hash = &c->forest->hash[request->first],
                          .n = request->blocks,
                          .block = scratch};
    if (chain.n == 0) /* it asks for nothing */
        return (struct sim_hit){0};
    c->request = (uint32_t)r + 1;
    c->now_ms = c->forest->at_ms[r];
    struct sim_hit hit = find_prefix(c, &chain);
    if (request->stored) /* what is there already stays as it is */
        hit = (struct sim_hit){0};
    const struct policy_request asked = {
        .hash = chain.hash, .n = chain.n, .hits = chain.cached, .source = 0};
    if (ops->request && !request->stored)
        ops->request(c->policy, &asked, c->now_ms);
    if (hit.nvme)
        promote(c, &chain, &hit);
    for (uint32_t i = chain.cached; i-- > 0 && !request->stored;)
        ops->touch(c->policy, chain.block[i], c->now_ms);
    bring_in(c, &chain);

    c->request = 0;
    for (uint32_t i = chain.cached; i-- > 0 && can_leave(c, chain.block[i]);)
        ops->release(c->policy, chain.block[i], false);
    give_hint(c, &chain, &c->forest->next[request->first], scratch + request->blocks);
    if (chain.node[chain.n - 1] >= c->known)
        c->known = chain.node[chain.n - 1] + 1;
    if (c->log)
        sim_nvme_learn(c, request->blocks);
    return hit;
}

/* ---- a run ---- */

static void *table(uint32_t n, size_t bytes)
{
    void *mem = malloc((size_t)n * bytes);
    if (mem)
        memset(mem, 0xff, (size_t)n * bytes); /* SIM_NONE */
    return mem;
}

static int policy_create(struct sim_cache *c, uint32_t blocks_max, void **ret_mem)
{
    const struct policy_config config = {
        .blocks_max = blocks_max, .lists_max = 1, .seed = c->config->seed};
    const size_t bytes = (c->config->ops->mem_bytes(&config) + 63) / 64 * 64;
    void *mem = aligned_alloc(64, bytes);
    if (!mem)
        return -ENOMEM;
    memset(mem, 0, bytes);
    c->policy = c->config->ops->init(mem, &config);
    *ret_mem = mem;
    return 0;
}

int sim_run(const struct sim_forest *forest, const struct sim_config *config, struct sim_hit *hits,
            struct sim_counts *ret_counts)
{
    const struct trace *trace = forest->trace;
    uint32_t blocks_max = forest->n_nodes;
    if ((uint64_t)config->host_blocks + config->nvme_blocks < blocks_max)
        blocks_max = config->host_blocks + config->nvme_blocks;
    struct sim_cache c = {.forest = forest,
                          .config = config,
                          .blocks = table(blocks_max, sizeof(*c.blocks)),
                          .block_of = table(forest->n_nodes, sizeof(*c.block_of)),
                          .free = table(blocks_max, sizeof(*c.free)),
                          .random = config->seed,
                          .counts = {.accesses = trace->n_ids}};
    if (config->decisions)
        config->decisions->clock_ns = clock_cost();
    uint32_t *scratch = table(2 * trace->blocks_max, sizeof(*scratch));
    void *policy_mem = NULL;
    int rc = c.blocks && c.block_of && c.free && scratch ? 0 : -ENOMEM;
    if (rc == 0)
        rc = policy_create(&c, blocks_max, &policy_mem);
    if (rc == 0 && config->nvme_blocks)
        rc = sim_nvme_create(&c);
    for (c.n_free = 0; rc == 0 && c.n_free < blocks_max; c.n_free++)
        c.free[c.n_free] = blocks_max - 1 - c.n_free;
    for (size_t r = 0; rc == 0 && r < trace->n_requests; r++) {
        hits[r] = run_request(&c, r, scratch);
        c.counts.host_hits += hits[r].host;
        c.counts.nvme_hits += hits[r].nvme;
    }
    if (rc == 0)
        *ret_counts = c.counts;
    sim_nvme_destroy(&c);
    free(policy_mem);
    free(scratch);
    free(c.free);
    free(c.block_of);
    free(c.blocks);
    return rc;
}
