/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creates and destroys the core: its memory, the table of who hears of a changed block, its clock
 * and its metrics. step.c has what runs in each turn.
 */
#include "core.h"
#include "admin.h"
#include "regions.h"
#include "sys.h"
#include "transfer_jobs.h"
#include "wants.h"

#include <stdlib.h>
#include <sys/mman.h>

#define ROOM_ALIGN 64u

METRIC_DESC(core, CORE_METRICS);

_Static_assert(sizeof(struct block) == 88, "the budget of the index counts on it");
_Static_assert(KVC_GROUPS_MAX <= 16 && RETAIN_TIERS == 2, "bits of a record");
_Static_assert(KVC_BLOCK_TOKENS_MAX < 1u << 17 && KVC_SHARDS_MAX < 1u << 7 &&
                   KVC_SHARDS_MAX <= BLOCK_COPIES_MAX && KVC_GROUPS_MAX < 1u << 7,
               "they fit their fields");
_Static_assert(sizeof(struct part) == 16, "the budget of the index counts on it");

static uint32_t runs_max(const struct core_config *cfg)
{
    return cfg->blocks_max / 16 + 2 * cfg->leases_max + 1024 + pins_of_runs(cfg) + hbm_runs(cfg);
}

static uint64_t policy_bytes(const struct core_config *cfg)
{
    const struct policy_config policy = {.blocks_max = cfg->blocks_max,
                                         .lists_max = POLICY_LISTS_MAX};
    return cfg->policy->mem_bytes(&policy);
}

const struct policy_ops *core_policy(const struct core *c)
{
    return c->cfg.policy;
}

void core_budget(const struct core_config *cfg, struct core_budget *ret)
{
    uint64_t n = cfg->blocks_max;
    *ret = (struct core_budget){
        .blocks = n * sizeof(struct block),
        .table = (uint64_t)index_table_size(cfg->blocks_max) * sizeof(uint64_t),
        .ghosts = ghosts_bytes(cfg),
        .parts = pool_bytes_for(sizeof(struct part), cfg->blocks_max),
        .policy = policy_bytes(cfg),
        .retain = retain_mem_bytes(cfg->blocks_max),
        .leases =
            leases_bytes(cfg) + pool_bytes_for(sizeof(struct run), runs_max(cfg)) + asks_bytes(),
        .namespaces = (uint64_t)cfg->namespaces_max * sizeof(struct core_ns),
        .commits = resvs_bytes(cfg) + writes_bytes() + verify_bytes(cfg) + moves_bytes() +
                   loads_bytes(cfg),
        .clean = clean_bytes(cfg) + unmet_bytes(cfg),
        .names = core_names_bytes(cfg),
        .hbm = hbm_bytes(cfg),
        .pins = cfg->pins_max ? pool_bytes_for(sizeof(struct pin), cfg->pins_max) : 0,
    };
}

double core_bytes_per_block(const struct core_config *cfg)
{
    struct core_budget b;
    core_budget(cfg, &b);
    const uint64_t pins = (uint64_t)pins_of_runs(cfg) * sizeof(struct run);
    return (double)(b.blocks + b.table + b.ghosts + b.parts + b.policy + b.retain + b.clean +
                    pins) /
           cfg->blocks_max;
}

static int create_tables(struct core *c)
{
    struct core_budget b;
    core_budget(&c->cfg, &b);
    c->index.size = index_table_size(c->cfg.blocks_max);
    c->blocks = core__pages(b.blocks);
    c->index.table = core__pages(b.table);
    c->index.ghosts = core__pages(b.ghosts);
    c->policy_mem = core__pages(b.policy);
    c->retain_mem = core__pages(b.retain);
    c->ns = core__pages(b.namespaces);
    if (!c->blocks || !c->index.table || !c->index.ghosts || !c->policy_mem || !c->retain_mem ||
        !c->ns)
        return -ENOMEM;
    const struct policy_config policy = {
        .blocks_max = c->cfg.blocks_max, .lists_max = POLICY_LISTS_MAX, .seed = c->cfg.policy_seed};
    c->policy = c->cfg.policy->init(c->policy_mem, &policy);
    c->retain = retain_init(c->retain_mem, c->cfg.blocks_max, c->cfg.policy, c->policy);
    return 0;
}

static int create_memory_shares(struct core *c, uint32_t principals)
{
    struct tier_stats st;
    c->cfg.tier[CORE_HOST]->ops->stats(c->cfg.tier[CORE_HOST], &st);
    return core__fair_share(c, &c->unevictable_share, st.limit_bytes, principals);
}

static int create_shares(struct core *c)
{
    const struct core_config *cfg = &c->cfg;
    const uint32_t principals = MAX(cfg->principals_max, 1u);
    int err = core__fair_share(c, &c->run_share, runs_max(cfg), cfg->clients_max + principals);
    if (!err)
        err = create_memory_shares(c, principals);
    c->attached = err ? NULL : sys_calloc(principals + 1, sizeof *c->attached);
    return err ? err : c->attached ? 0 : -ENOMEM;
}

/* Who hears which event of a block, and in which order. Each hearer needs what those before it have
 * done. Names and pins count a block while it still has its place. Copies without use are dropped
 * before others are weighed. Requests that wait are told before the policy may evict the block. The
 * record is freed last; behind it come only hearers that do not look at the block. */
static const struct block_subscriber subscribers[] = {
    {BLOCK_UNLINKING, resv_hear},
    {BLOCK_UNLINKING, names_hear},
    {BLOCK_UNLINKING, pin_hear},
    {BLOCK_MOVED | BLOCK_CHECKED, move_hear},
    {BLOCK_GONE | BLOCK_STORED, lease_hear},
    {BLOCK_GONE | BLOCK_STORED | BLOCK_MOVED, promise_hear},
    {BLOCK_MOVED | BLOCK_CHECKED, reconcile_hear},
    {BLOCK_MOVED | BLOCK_CHECKED | BLOCK_UNHELD | BLOCK_CHILDLESS, policy_hear},
    {BLOCK_GONE | BLOCK_MOVED, load_passed_hear},
    {BLOCK_GONE, hbm_copy_hear},
    {BLOCK_GONE | BLOCK_MOVED | BLOCK_CHECKED | BLOCK_UNHELD, settle_hear},
    {BLOCK_MOVED, load_retry_hear},
    {BLOCK_MOVED, room_hear},
    {0, NULL},
};

/* The modules, in the order in which they are created; they are destroyed in the reverse order. */
static const struct core_module *const modules[] = {
    &records_module, &leases_module,   &resvs_module,      &writes_module,    &moves_module,
    &loads_module,   &verify_module,   &namespaces_module, &host_room_module, &regions_module,
    &unmet_module,   &clean_module,    &evict_module,      &gone_module,      &pins_module,
    &place_module,   &progress_module, &promises_module,   &quotas_module,    &reclaim_module,
    &reads_module,   &rules_module,    &worth_module,      &asks_module,      &names_module,
    &hbm_module,     &recover_module,  &reconcile_module,
};

static uint64_t core_room_for(size_t bytes)
{
    return ROUND_UP(bytes, ROOM_ALIGN);
}

/* struct core, and behind it what modules keep to themselves. */
static uint64_t core_bytes(void)
{
    uint64_t sum = core_room_for(sizeof(struct core));
    for (unsigned i = 0; i < ARRAY_LEN(modules); i++)
        sum += core_room_for(modules[i]->bytes);
    return sum;
}

static void place_modules(struct core *c)
{
    char *room = (char *)c + core_room_for(sizeof *c);
    for (unsigned i = 0; i < ARRAY_LEN(modules); i++) {
        if (modules[i]->bytes > 0)
            memcpy((char *)c + modules[i]->pointer, &room, sizeof room);
        room += core_room_for(modules[i]->bytes);
    }
}

static int create_modules(struct core *c)
{
    int err = 0;
    for (unsigned i = 0; i < ARRAY_LEN(modules) && !err; i++)
        err = modules[i]->create ? modules[i]->create(c) : 0;
    return err;
}

static void destroy_modules(struct core *c)
{
    for (unsigned i = ARRAY_LEN(modules); i-- > 0;)
        if (modules[i]->destroy)
            modules[i]->destroy(c);
}

static int create_pools(struct core *c)
{
    const struct core_config *cfg = &c->cfg;
    int err = pool_create(&c->parts, "parts", sizeof(struct part), cfg->blocks_max);
    if (!err)
        err = pool_create(&c->runs, "runs", sizeof(struct run), runs_max(cfg));
    if (!err)
        err = pool_create(&c->clients, "clients", sizeof(struct core_client), cfg->clients_max);
    return err ? err : create_shares(c);
}

int core_create(const struct core_config *config, struct core **ret_core)
{
    if (config->blocks_max < 16 || config->namespaces_max < 1 || config->namespaces_max > 65535)
        return -EINVAL;
    struct core *c = core__pages(core_bytes());
    if (!c)
        return -ENOMEM;
    place_modules(c);
    c->cfg = *config;
    c->subscribers = subscribers;
    c->admission = config->admission;
    c->work.looks_left = LOOKS_NO_END;
    list_init(&c->woken);
    list_init(&c->jobs);
    lease_turn(c);
    int err = hash_random(c->index.secret, sizeof c->index.secret);
    if (!err)
        err = create_tables(c);
    if (!err)
        err = create_pools(c);
    if (!err)
        err = create_modules(c);
    if (err) {
        core_destroy(&c);
        return err;
    }
    if (core_stores(c))
        reclaim_listen(c);
    rules_begin(c);
    *ret_core = c;
    return 0;
}

bool core_is_still(const struct core *c)
{
    return !gone_is_confirming(c) && pool_used(move_pool(c)) == 0 && pool_used(op_pool(c)) == 0 &&
           pool_used(verify_pool(c)) == 0 && hbm_is_still(c);
}

void core_destroy(struct core **core)
{
    struct core *c = *core;
    if (!c)
        return;
    struct core_budget b;
    core_budget(&c->cfg, &b);
    destroy_modules(c);
    pool_destroy(&c->parts);
    pool_destroy(&c->runs);
    pool_destroy(&c->clients);
    share_destroy(&c->run_share);
    share_destroy(&c->unevictable_share);
    free(c->attached);
    core__pages_put(c->blocks, b.blocks);
    core__pages_put(c->index.table, b.table);
    core__pages_put(c->index.ghosts, b.ghosts);
    core__pages_put(c->policy_mem, b.policy);
    core__pages_put(c->retain_mem, b.retain);
    core__pages_put(c->ns, b.namespaces);
    core__pages_put(c, core_bytes());
    *core = NULL;
}

void core_tick(struct core *c, uint64_t now_ns)
{
    MUST(now_ns >= c->now_ns);
    lease_turn(c);
    regions_turn(c);
    unhold_turn(c);
    c->now_ns = now_ns;
    c->now_ms = now_ns / 1000000;
}

void core_memory(const struct core *c, struct sys_range ret[CORE_RANGES])
{
    struct core_budget b;
    core_budget(&c->cfg, &b);
    const struct sys_range all[] = {{(void *)c, core_bytes()},   {c->index.table, b.table},
                                    {c->index.ghosts, b.ghosts}, {c->policy_mem, b.policy},
                                    {c->retain_mem, b.retain},   {c->blocks, b.blocks},
                                    {c->ns, b.namespaces}};
    memcpy(ret, all, sizeof all);
    uint32_t n = ARRAY_LEN(all);
    for (unsigned i = 0; i < ARRAY_LEN(modules); i++) {
        if (!modules[i]->memory)
            continue;
        MUST(n < CORE_RANGES);
        ret[n++] = modules[i]->memory(c);
    }
    for (; n < CORE_RANGES; n++)
        ret[n] = (struct sys_range){0};
}

uint64_t core_work(const struct core *c)
{
    return c->work.done;
}

struct metric_set core_metric_set(const struct core *c)
{
    return METRIC_SET(core, "core", &c->m);
}
const struct core_metrics *core_metrics(const struct core *c)
{
    return &c->m;
}
