/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends the requests of a trace to the core, one after another, as one worker does. A request
 * acquires the cached part of its chain, which storage loads, stores the rest, and releases. Tiers
 * hold no bytes, and all work of a request ends before the next one comes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "null_tier.h"
#include "random.h"
#include "simulate.h"
#include "simulate_timed.h"

/* Blocks that the write budget allows in advance, or a segment if that is less. */
#define AHEAD_BLOCKS 64u

struct world {
    const struct sim_forest *forest;
    const struct sim_config *config;
    struct null_tier *host, *log;
    struct core *core;
    struct core_client *client;
    struct core_ns *ns;
    uint8_t *keys; /* keys of the current request */
    uint8_t *offsets, *statuses;
    uint32_t known; /* nodes below it were asked for before this request */
    uint64_t now_ms, random;
    struct sim_counts counts;
};

/* Core draws its secrets by this function (--wrap), so that they are the same in each run. */
int __wrap_hash_random(void *p, size_t n);
int __wrap_hash_random(void *p, size_t n)
{
    memset(p, 0x5a, n);
    return 0;
}

/* Runs one turn. True: there is more to do. */
static bool simulate_run_turn(struct world *w)
{
    bool more = core_run_done(w->core) > 0;
    more |= core_background_step(w->core);
    more |= null_tier_run(w->host) > 0;
    if (w->log)
        more |= null_tier_run(w->log) > 0;
    return more || core_has_done(w->core);
}

struct waiting {
    struct core_waiter waiter; /* must be first */
    bool called;
};

static void on_waited(struct core_waiter *waiter)
{
    ((struct waiting *)(void *)waiter)->called = true;
}

/* Runs turns until the event has come, or no work is left. */
static void simulate_run_wait_for(struct world *w, struct waiting *x)
{
    while (!x->called && simulate_run_turn(w))
        continue;
    if (!x->called)
        core_waiter_cancel(w->core, &x->waiter);
}

/* ---- one request ---- */

static struct core_seq seq_of(const struct world *w, uint32_t n)
{
    return (struct core_seq){.ns = w->ns, .tokens = n, .ngroups = 1, .keys = {w->keys}, .n = {n}};
}

/* Acquires what is cached. A prefix that is too long to be loaded is used as far as it is in
 * memory. */
static void simulate_run_acquire(struct world *w, uint32_t n, struct core_held *ret_held,
                                 struct sim_hit *ret_hit)
{
    struct core_acquire in = {.seq = seq_of(w, n), .load = w->log != NULL};
    struct waiting x = {.waiter = {.fn = on_waited}};
    const char *why;
    uint32_t in_memory = UINT32_MAX;
    int rc = core_acquire(w->core, w->client, &in, &x.waiter, ret_held, &why);
    if (rc == 1) {
        in_memory = x.waiter.in_memory;
        simulate_run_wait_for(w, &x);
    }
    if (rc != 0) {
        in.load = false;
        rc = core_acquire(w->core, w->client, &in, &x.waiter, ret_held, &why);
    }
    MUST(rc == 0);
    const uint32_t hit = ret_held->prefix.tokens;
    ret_hit->host = hit < in_memory ? hit : in_memory;
    ret_hit->nvme = hit - ret_hit->host;
}

static void on_stored(struct core_commit *m)
{
    m->done = NULL;
}

/* Stores n blocks from `from` on; returns how many are cached afterwards. */
static uint32_t store_some(struct world *w, uint32_t from, uint32_t n)
{
    const uint32_t bytes = w->config->block_bytes;
    const struct core_reserve in = {.ns = w->ns,
                                    .parent =
                                        from ? w->keys + (size_t)(from - 1) * KVC_KEY_BYTES : NULL,
                                    .first_token = from,
                                    .keys = w->keys + (size_t)from * KVC_KEY_BYTES,
                                    .n = n,
                                    .judged = true};
    struct core_commit m = {.n = n,
                            .offsets = w->offsets,
                            .staging = w->offsets, /* the tier reads no bytes */
                            .staging_bytes = bytes,
                            .deadline_ns = UINT64_MAX,
                            .statuses = w->statuses,
                            .done = on_stored,
                            .store = true};
    struct waiting x = {.waiter = {.fn = on_waited}};
    const char *why;
    if (core_store_must_wait(w->core, (uint64_t)n * bytes, &x.waiter))
        simulate_run_wait_for(w, &x);
    MUST(core_reserve(w->core, w->client, &in, &m.reservation, w->statuses, &why) == 0);
    if (m.reservation) {
        MUST(core_commit(w->core, w->client, &m, &why) == 1);
        while (m.done)
            (void)null_tier_run(w->host);
    }
    uint32_t there = 0;
    while (there < n && (w->statuses[there] == KVC_ST_OK || w->statuses[there] == KVC_ST_EXISTS))
        there++;
    return there;
}

/* Most blocks of one store, as staging has room for few. A store of more than a quarter of memory
 * would wait until the blocks that make room have been written. */
static uint32_t store_most(const struct world *w)
{
    const uint32_t part = w->config->host_blocks / 4;
    if (!w->log || part >= KVC_STORE_MAX)
        return KVC_STORE_MAX;
    return part ? part : 1;
}

static void simulate_run_store(struct world *w, uint32_t from, uint32_t n)
{
    const uint32_t most = store_most(w);
    while (from < n) {
        const uint32_t some = n - from < most ? n - from : most;
        const uint32_t there = store_some(w, from, some);
        from += there;
        if (there == some)
            continue;
        *(w->statuses[there] == KVC_ST_NOT_WORTH ? &w->counts.not_worth : &w->counts.no_room) +=
            n - from;
        return;
    }
}

/* Whether a hint about the chain would be true. again: the request that asks for its last full
 * block again. */
static bool is_so(const struct world *w, const uint32_t *node, uint32_t n, uint32_t again)
{
    const bool ended = again == SIM_NEVER;
    switch (w->config->hints.kind) {
    case POLICY_ADVICE_ENDED:
        return ended;
    case POLICY_ADVICE_CONTINUE:
        return !ended;
    case POLICY_ADVICE_SOON:
        return !ended && w->forest->at_ms[again] - w->now_ms <= w->config->hints.within_ms;
    case POLICY_ADVICE_SCAN:
        return ended && node[n > 1 ? 1 : 0] >= w->known;
    default:
        return false;
    }
}

static void give_hint(struct world *w, const uint32_t *node, const uint32_t *next, uint32_t n)
{
    const struct sim_hints *hints = &w->config->hints;
    const char *why;
    if (hints->kind == POLICY_ADVICE_NONE)
        return;
    const bool right = random_unit(&w->random) < hints->right;
    if (is_so(w, node, n, next[n > 1 ? n - 2 : 0]) != right)
        return;
    const struct core_seq seq = seq_of(w, n);
    MUST(core_advise(w->core, &seq, hints->kind, hints->within_ms, &why) >= 0);
}

static void simulate_run_make_keys(struct world *w, const struct trace_request *request)
{
    for (size_t i = 0; i < request->blocks; i++) {
        uint8_t *key = w->keys + i * KVC_KEY_BYTES;
        memcpy(key, &w->forest->hash[request->first + i], 8);
        memcpy(key + 8, &w->forest->node[request->first + i], 4);
    }
}

/* Advances the clock, within the nanoseconds that core counts in. */
static void tick(struct world *w, uint64_t at_ms)
{
    w->now_ms = at_ms < UINT64_MAX / 1000000 ? at_ms : UINT64_MAX / 1000000;
    core_tick(w->core, w->now_ms * 1000000);
    if (w->log)
        null_log_tick(w->log, w->now_ms);
}

static struct sim_hit run_request(struct world *w, size_t r)
{
    const struct trace_request *request = &w->forest->trace->requests[r];
    const uint32_t *node = &w->forest->node[request->first], n = request->blocks;
    struct core_held held = {0};
    struct sim_hit hit = {0};
    if (n == 0) /* the request has no blocks */
        return hit;
    tick(w, w->forest->at_ms[r]);
    simulate_run_make_keys(w, request);
    if (!request->stored)
        simulate_run_acquire(w, n, &held, &hit);
    simulate_run_store(w, held.prefix.tokens, n);
    if (held.lease)
        MUST(core_release(w->core, w->client, held.lease) == 0);
    give_hint(w, node, &w->forest->next[request->first], n);
    if (node[n - 1] >= w->known)
        w->known = node[n - 1] + 1;
    if (w->log && w->config->write_budget > 0)
        null_log_grant(w->log, (uint64_t)(w->config->write_budget * n * w->config->block_bytes));
    while (simulate_run_turn(w))
        continue;
    return hit;
}

/* ---- a run ---- */

static void open_ns(struct world *w)
{
    const struct core_ns_spec spec = {
        .model = "simulated",
        .dtype = "f16",
        .position = "rope",
        .attention = "causal",
        .shards = 1,
        .ngroups = 1,
        .group = {
            {.block_tokens = 1, .block_bytes = w->config->block_bytes, .rule = KVC_RULE_FULL}}};
    struct core_similar similar[4];
    uint32_t n;
    const char *why;
    MUST(core_ns_open(w->core, w->client, &spec, &w->ns, similar, &n, &why) == 0);
}

static void on_idle(void *ctx)
{
    (void)ctx;
}

static uint32_t ahead_blocks(const struct world *w)
{
    const uint32_t segment = null_log_segment(w->log);
    return segment < AHEAD_BLOCKS ? segment : AHEAD_BLOCKS;
}

static int simulate_run_create(struct world *w)
{
    static const struct core_identity who = {
        .principal = 1, .name = "simulated", .tenant = "simulated"};
    const struct sim_config *config = w->config;
    const size_t most = w->forest->trace->blocks_max;
    w->host = null_host_create(config->host_blocks, config->block_bytes);
    if (config->nvme_blocks)
        w->log = null_log_create(config->nvme_blocks, config->block_bytes);
    w->keys = calloc(most + 1, KVC_KEY_BYTES);
    w->offsets = calloc(KVC_STORE_MAX, 8);
    w->statuses = malloc(KVC_STORE_MAX);
    if (!w->host || (config->nvme_blocks && !w->log) || !w->keys || !w->offsets || !w->statuses)
        return -ENOMEM;
    uint64_t blocks = w->forest->n_nodes;
    if ((uint64_t)config->host_blocks + config->nvme_blocks < blocks)
        blocks = config->host_blocks + config->nvme_blocks;
    const struct core_config core = {.blocks_max = blocks < 16 ? 16 : (uint32_t)blocks + 1,
                                     .clients_max = 1,
                                     .namespaces_max = 1,
                                     .leases_max = 16,
                                     .commits_max = 4,
                                     .lease_bytes_max = UINT64_MAX / 2,
                                     .principals_max = 1,
                                     .policy = sim_timed(config->ops, config->decisions),
                                     .policy_seed = config->seed,
                                     .admission = !config->admit_all,
                                     .slice_work = UINT32_MAX,
                                     .tier[CORE_HOST] = null_tier_of(w->host),
                                     .tier[CORE_STORAGE] = w->log ? null_tier_of(w->log) : NULL};
    const int rc = core_create(&core, &w->core);
    if (rc != 0)
        return rc;
    MUST(core_client_open(w->core, &who, on_idle, NULL, &w->client) == 0);
    open_ns(w);
    if (w->log)
        core_keep_percent(w->core, config->keep_percent);
    if (w->log && config->write_budget > 0)
        null_log_grant(w->log, (uint64_t)ahead_blocks(w) * config->block_bytes);
    return 0;
}

static void simulate_run_destroy(struct world *w)
{
    if (w->client)
        core_client_close(w->core, w->client);
    core_destroy(&w->core);
    null_tier_destroy(&w->host);
    null_tier_destroy(&w->log);
    free(w->keys);
    free(w->offsets);
    free(w->statuses);
}

int sim_run(const struct sim_forest *forest, const struct sim_config *config, struct sim_hit *hits,
            struct sim_counts *ret_counts)
{
    const struct trace *trace = forest->trace;
    struct world w = {.forest = forest,
                      .config = config,
                      .random = config->seed,
                      .counts = {.accesses = trace->n_ids}};
    const int rc = simulate_run_create(&w);
    for (size_t r = 0; rc == 0 && r < trace->n_requests; r++) {
        hits[r] = run_request(&w, r);
        w.counts.host_hits += hits[r].host;
        w.counts.nvme_hits += hits[r].nvme;
    }
    if (config->decisions)
        sim_timed_end();
    if (rc == 0) {
        const struct core_metrics *m = core_metrics(w.core);
        w.counts.evicted = m->blocks_evicted + m->blocks_left;
        if (w.log) {
            w.counts.nvme_written = null_log_written(w.log).first;
            w.counts.nvme_rewritten = null_log_written(w.log).again;
        }
        *ret_counts = w.counts;
    }
    simulate_run_destroy(&w);
    return rc;
}
