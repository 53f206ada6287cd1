/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations through core.h, each checked against the naive model, and all totals after each
 * of them. Every seed is a run of its own with its own shapes and limits.
 *
 * KVC_SEED=n runs that seed alone; KVC_TURNS=n makes runs that long. A seed that has failed once
 * goes into seeds.txt, which every run replays.
 */
#include <stdio.h>
#include <stdlib.h>

#include "act.h"
#include "cases.h"
#include "judge.h"

#define SEEDS      CHECK_SHARE(40)
#define TURNS      4000
#define FAILED_MAX 256

/* ---- the run ---- */

static void do_time(struct model *m)
{
    m->now_ns += (uint64_t)rnd(m, 60) * 1000000;
    core_tick(m->core, m->now_ns);
}

static void do_copies(struct model *m)
{
    (void)fake_tier_run(m->tier, 1 + rnd(m, 40), rnd(m, 8) ? 0 : 10);
}

static void do_look_again(struct model *m)
{
    for (int i = 0; i < m->nleases; i++)
        if (m->lease[i].alive)
            m_check_lease(m, i);
}

static const struct {
    void (*fn)(struct model *m);
    uint32_t weight;
} operations[] = {
    {do_client_open, 6}, {do_client_close, 2}, {do_quarantine, 1},     {do_ns_open, 2},
    {do_reserve, 26},    {do_commit, 30},      {do_drop, 1},           {do_commit_cancel, 1},
    {do_acquire, 24},    {do_lookup, 8},       {do_release, 14},       {do_redeem, 5},
    {do_evict, 2},       {do_time, 8},         {do_copies, 34},        {do_waiter_deadline, 3},
    {do_look_again, 2},  {do_pin, 3},          {do_unpin, 2},          {do_wish, 4},
    {do_fill, 14},       {do_fill_cancel, 1},  {do_send, 12},          {do_send_cancel, 1},
    {do_words, 3},       {do_device, 2},       {do_device_copies, 24}, {do_look_hbm, 3},
};

static void one_turn(struct model *m)
{
    uint32_t total = 0, i = 0;
    for (i = 0; i < ARRAY_LEN(operations); i++)
        total += operations[i].weight;
    uint32_t dice = rnd(m, total);
    for (i = 0; dice >= operations[i].weight; i++)
        dice -= operations[i].weight;
    operations[i].fn(m);
    (void)core_run_done(m->core);
    core_check(m->core);
    m_check_totals(m);
    for (i = 0; i < ARRAY_LEN(m->waiter); i++) {
        struct m_hit *hit = m->waiter[i] ? malloc(sizeof(*hit)) : NULL;
        if (hit == NULL)
            continue;
        const struct m_waiter *w = m->waiter[i];
        m_lookup(m, &w->seq, hit);
        HOLDS(m, hit->any_pending); /* nobody waits for nothing */
        uint32_t goal = w->enough ? MIN(w->enough, w->seq.tokens) : w->seq.tokens;
        const struct core_ns_spec *spec = &m->ns[w->seq.ns].spec;
        if (spec->ngroups == 1 && spec->group[0].rule == KVC_RULE_FULL)
            HOLDS(m, hit->tokens < goal); /* or for what it has */
        free(hit);
    }
}

static void make_devices(struct model *m, unsigned policies)
{
    static const uint32_t hbm_max[] = {3, 30, 300};
    for (unsigned i = 0; i < M_DEVICES; i++) {
        const struct fake_device_config device = {.no = i,
                                                  .regions = 1 + rnd(m, rnd(m, 3) ? 6 : 40),
                                                  .region_bytes = rnd(m, 2) ? 1024 : 4096,
                                                  .seed = m->seed + 2 + i,
                                                  .host = m->tier};
        m->device[i] = fake_device_create(&device);
        m->devices[i] = fake_device_of(m->device[i]);
        m->life[i] = 1;
        fake_device_on_submit(m->device[i], on_device_submit, m);
        fake_device_on_end(m->device[i], on_device_end, m);
    }
    m->cfg.devices = m->devices;
    m->cfg.ndevices = M_DEVICES;
    m->cfg.hbm_max = hbm_max[rnd(m, 3)];
    m->cfg.device_copies = m->seed % 3 ? 1 + (uint32_t)(m->seed % 7) : 0; /* who waits */
    m->cfg.hbm_policy = policy_at(rnd(m, policies));
}

static void model_begin(struct model *m, uint64_t seed)
{
    *m = (struct model){.seed = seed, .random = seed * 2654435761u + 1};
    for (uint32_t i = 0; i < ARRAY_LEN(m->bucket); i++)
        m->bucket[i] = M_NONE;
    for (uint32_t i = 0; i < M_SEQS; i++) {
        m->share_of[i] = i == 0 ? M_NONE : (int)rnd(m, i);
        m->share_part[i] = rnd(m, 64);
    }
    static const uint32_t blocks_max[] = {16, 60, 200, 500};
    static const uint32_t few[] = {4, 12, 60};
    unsigned policies = 0;
    while (policy_at(policies))
        policies++;
    struct fake_tier_config tier = {.regions = rnd(m, 3) ? 2 + rnd(m, 24) : 80,
                                    .region_bytes = rnd(m, 2) ? 4096 : 16384,
                                    .slot_align = 64,
                                    .seed = seed + 1};
    m->tier = fake_tier_create(&tier);
    m->cfg = (struct core_config){.slice_work = UINT32_MAX, /* ends are at once */
                                  .blocks_max = blocks_max[rnd(m, 4)],
                                  .clients_max = M_CLIENTS_MAX - rnd(m, 3),
                                  .namespaces_max = 2 + rnd(m, 7),
                                  .leases_max = few[rnd(m, 3)],
                                  .commits_max = few[rnd(m, 3)],
                                  .lease_bytes_max = rnd(m, 3) ? 1u << 20 : 3000,
                                  .pins_max = M_PINS_MAX,
                                  .policy = policy_at((unsigned)(seed % policies)),
                                  .admission = seed % 3 == 0, /* no draw */
                                  .tier[CORE_HOST] = fake_tier_of(m->tier)};
    if (seed % 6 == 0)
        m->cfg.policy = judge(m->cfg.policy);
    if (rnd(m, 4))
        make_devices(m, policies);
    MUST(core_create(&m->cfg, &m->core) == 0);
    m->now_ns = 1000000000;
    core_tick(m->core, m->now_ns);
    fake_tier_on_end(m->tier, on_end, m);
    fake_tier_on_submit(m->tier, on_submit, m);
    struct core_identity admin = {.principal = 9, .name = "ops", .tenant = "t9", .admin = true};
    static struct m_client admin_ctx;
    MUST(core_client_open(m->core, &admin, on_idle, &admin_ctx, &m->admin) == 0);
    for (unsigned i = 0; i < 4; i++) {
        do_client_open(m);
        do_ns_open(m);
    }
}

static void copies_end(struct model *m)
{
    for (unsigned flying = 1; flying > 0;) {
        (void)fake_tier_run(m->tier, 100, 10);
        flying = 0;
        for (unsigned i = 0; i < m->cfg.ndevices; i++) {
            fake_device_up(m->device[i]);
            (void)fake_device_run(m->device[i], 100, 10);
            flying += fake_device_inflight(m->device[i]);
        }
        (void)core_run_done(m->core);
        flying += fake_tier_inflight(m->tier) + (unsigned)core_metrics(m->core)->transfers_waiting;
    }
}

/* Everything ends; nothing may be left anywhere. */
static void model_end(struct model *m)
{
    for (int i = 0; i < M_CLIENTS_MAX; i++)
        if (m->client[i].state == M_OPEN || m->client[i].state == M_QUARANTINED)
            close_client(m, i);
    copies_end(m);
    (void)core_run_done(m->core);
    unpin_all(m);
    core_check(m->core);
    m_check_totals(m);
    for (int i = 0; i < M_CLIENTS_MAX; i++)
        HOLDS(m, m->client[i].state == M_CLOSED || m->client[i].idle == 1);
    for (int i = 0; i < m->ncommits; i++)
        HOLDS(m, m->commit[i]->done == 1);
    for (unsigned i = 0; i < ARRAY_LEN(m->fill); i++)
        HOLDS(m, m->fill[i] == NULL && m->send[i] == NULL);
    evict_all(m);
    HOLDS(m, core_metrics(m->core)->blocks_present == 0);
    HOLDS(m, core_metrics(m->core)->blocks_pending == 0);
    core_client_close(m->core, m->admin);
    const struct core_metrics *x = core_metrics(m->core);
    if (m->cfg.ndevices > 0)
        printf("  hbm: %llu hits, %llu fills, %llu failed, %llu dropped, %llu lost; %llu sends, "
               "%llu blocks, %llu of slots; %llu shards out of pages\n",
               (unsigned long long)x->hbm_hits, (unsigned long long)x->hbm_fills,
               (unsigned long long)x->hbm_failures, (unsigned long long)x->hbm_drops,
               (unsigned long long)x->hbm_lost, (unsigned long long)x->sends,
               (unsigned long long)x->send_blocks, (unsigned long long)x->send_blocks_hbm,
               (unsigned long long)x->blocks_from_pages);
    core_destroy(&m->core);
    for (unsigned i = 0; i < m->cfg.ndevices; i++)
        fake_device_destroy(&m->device[i]);
    fake_tier_destroy(&m->tier);
    for (int i = 0; i < m->ncommits; i++) {
        free(m->commit[i]->offsets);
        free(m->commit[i]);
    }
    free(m->commit);
    free(m->copy);
    free(m->lease);
    free(m->resv);
    free(m->block);
}

static uint32_t turns_wanted(void)
{
    const char *turns = getenv("KVC_TURNS");
    return turns ? (uint32_t)strtoul(turns, NULL, 10) : TURNS;
}

static void run_seed(uint64_t seed)
{
    static struct model m;
    uint32_t turns = turns_wanted();
    printf("seed %llu, %u turns\n", (unsigned long long)seed, turns);
    fflush(stdout);
    model_begin(&m, seed);
    for (m.turn = 1; m.turn <= turns; m.turn++)
        one_turn(&m);
    model_end(&m);
}

CASES(.timeout_s = 600);

CASE_EACH(random_operations_agree_with_the_model, getenv("KVC_SEED") ? 1 : SEEDS)
{
    const char *seed = getenv("KVC_SEED");
    run_seed(seed ? strtoull(seed, NULL, 10) : (uint64_t)_i + 1);
}

static uint64_t failed[FAILED_MAX];
static int nfailed;

/* One seed a line; what follows a # is for people. */
/* How many there are; with $KVC_SEED none is wanted. */
static int read_failed_seeds(void)
{
    char path[4096], line[256];
    if (getenv("KVC_SEED"))
        return 0;
    const char *dir = getenv("KVC_SOURCE_DIR");
    snprintf(path, sizeof(path), "%s/tests/model/seeds.txt", dir ? dir : ".");
    FILE *f = fopen(path, "r");
    if (f == NULL) {
        fprintf(stderr, "cannot read %s (is KVC_SOURCE_DIR set?)\n", path);
        exit(EXIT_FAILURE);
    }
    while (nfailed < FAILED_MAX && fgets(line, sizeof(line), f) != NULL)
        if (line[0] >= '0' && line[0] <= '9')
            failed[nfailed++] = strtoull(line, NULL, 10);
    fclose(f);
    return nfailed;
}

CASE_EACH(seeds_that_failed_once_pass, read_failed_seeds())
{
    run_seed(failed[_i]);
}
