/* SPDX-License-Identifier: Apache-2.0 */
/* A seed's life: what it chooses, its turns, its end. */
#include <stdlib.h>

#include "devices.h"
#include "judge.h"
#include "sim.h"

#define QUIET_TURNS 3000u /* of a second or less each: longer than any deadline */

uint32_t sim_rnd(struct sim *s, uint32_t below)
{
    return (uint32_t)(fake_random(&s->random) % below);
}

bool sim_pct(struct sim *s, uint32_t pct)
{
    return pct && sim_rnd(s, 100) < pct;
}

/* ---- choices ---- */

/* Mostly `usual`, else one of few. */
static uint32_t odd(struct sim *s, uint32_t usual, uint32_t rare)
{
    return sim_rnd(s, 3) ? usual : rare;
}

static void choose_swarm(struct sim *s)
{
    static const struct {
        uint32_t weight;
        bool off;
    } kinds[ACT_COUNT] = {
#define X(name, most, may_be_off) [ACT_##name] = {most, may_be_off},
        SIM_ACTIONS(X)
#undef X
    };
    struct sim_swarm *w = &s->swarm;
    for (uint32_t i = 0; i < ACT_COUNT; i++) {
        w->weight[i] = kinds[i].off && !sim_rnd(s, 4) ? 0 : 1 + sim_rnd(s, kinds[i].weight);
        w->weights += w->weight[i];
    }
    const uint32_t few = 1 + sim_rnd(s, SIM_CLIENTS);
    w->clients = odd(s, 3 + sim_rnd(s, 6), few);
    w->specs = 1 + sim_rnd(s, odd(s, 2, SIM_SPECS));
    w->chains = 1 + sim_rnd(s, odd(s, 3, SIM_CHAINS));
    w->actions_max = 1 + sim_rnd(s, odd(s, 4, 12));
    w->calm = 1 + sim_rnd(s, odd(s, 60, 5));
    w->still_pct = sim_rnd(s, 100);
    w->step_ms = 1 + sim_rnd(s, odd(s, 4, 60));
    w->seconds_pm = odd(s, 0, sim_rnd(s, 20));
    w->hours_pm = odd(s, 0, sim_rnd(s, 5));
    w->latency_ms = sim_rnd(s, 1 + odd(s, 8, 300));
    w->fail_pct = odd(s, 0, sim_rnd(s, 40));
    w->hang_pct = odd(s, 0, sim_rnd(s, 10));
    w->outage_pm = odd(s, 0, sim_rnd(s, 10));
    w->outage_ms = 1 + sim_rnd(s, 200);
    w->staging_ms = sim_rnd(s, odd(s, 3, 50));
    w->staging_fail_pct = odd(s, 0, sim_rnd(s, 40));
    w->attach_fail_pm = odd(s, 0, sim_rnd(s, 50));
    w->keep_fail_pct = odd(s, 0, sim_rnd(s, 50));
    w->delay_pct = odd(s, 0, sim_rnd(s, 100));
    w->wrong_pct = odd(s, 1, 20 + sim_rnd(s, 80));
    w->short_pct = odd(s, 10, sim_rnd(s, 100));
    w->keep_pct = sim_rnd(s, 4) ? sim_rnd(s, 60) : 0;
}

static const struct policy_ops *policy_of(uint64_t seed)
{
    unsigned n = 0;
    while (policy_at(n))
        n++;
    return sim_policy ? sim_policy : policy_at((unsigned)(seed % n));
}

/* No draw of its own: seeds that failed once stay what they were. */
static void choose_admission(struct sim *s)
{
    s->core_cfg.admission = s->seed % 3 == 0;
    if (s->seed % 6 == 0)
        s->core_cfg.policy = judge(s->core_cfg.policy);
}

static void choose_limits(struct sim *s)
{
    static const uint32_t blocks[] = {16, 40, 120, 400, 1000};
    static const uint32_t few[] = {2, 5, 16, 64};
    uint32_t sessions = sim_rnd(s, 6) ? SIM_CLIENTS : 1 + sim_rnd(s, SIM_CLIENTS);
    const uint32_t narrow = 1 + sim_rnd(s, 12);
    s->tier_cfg = (struct fake_tier_config){.regions = odd(s, 24 + sim_rnd(s, 40), narrow),
                                            .region_bytes = 512u << sim_rnd(s, 5),
                                            .slot_align = 64,
                                            .seed = s->seed + 1};
    s->core_cfg = (struct core_config){
        .blocks_max = blocks[sim_rnd(s, ARRAY_LEN(blocks))],
        .clients_max = (sim_rnd(s, 8) ? sessions : 1 + sim_rnd(s, sessions)) + SIM_PRINCIPALS,
        .namespaces_max = odd(s, 32, 1 + sim_rnd(s, 8)),
        .leases_max = odd(s, 128, few[sim_rnd(s, 4)]),
        .commits_max = odd(s, 128, few[sim_rnd(s, 4)]),
        .lease_bytes_max = odd(s, 1u << 20, 64u * (1 + sim_rnd(s, 60))),
        .claim_bytes_max = odd(s, 0, 256u * (1 + sim_rnd(s, 60))),
        .progress_ms = s->seed % 3 ? 0 : 1 + s->seed % 500,
        .fair = sim_rnd(s, 2),
        .principals_max = SIM_PRINCIPALS,
        .slice_work = UINT32_MAX,
        .pins_max = odd(s, 32, sim_rnd(s, 4)),
        .pin_bytes_max = odd(s, 0, 256u * sim_rnd(s, 60)),
        .policy = policy_of(s->seed)};
    choose_admission(s);
    s->svc_cfg = (struct svc_config){.sessions_max = sessions,
                                     .requests_max = odd(s, 16, 1 + sim_rnd(s, 6)),
                                     .calls_max = odd(s, 64, 1 + sim_rnd(s, 8)),
                                     .staging_session_max = odd(s, SIM_SLOTS * SIM_SLOT, 1024),
                                     .staging_total = odd(s, 0, 4096u * (1 + sim_rnd(s, 40))),
                                     .fair = s->core_cfg.fair,
                                     .endpoint = "ipc:///nowhere",
                                     .server = "simulation",
                                     .turn_work = UINT32_MAX, /* who asks is answered at once */
                                     .principals = sim_principals,
                                     .nprincipals = SIM_PRINCIPALS};
}

/* Of eleven seeds one has small slices; no draw of its own, as above. */
static void choose_slices(struct sim *s)
{
    s->slices = s->seed % 11 == 10;
    if (!s->slices)
        return;
    s->core_cfg.slice_work = 1 + (uint32_t)(s->seed % 60);
    s->svc_cfg.turn_work = 40;
}

/* ---- begin ---- */

static void on_idle(void *ctx)
{
    (void)ctx;
}

static void open_observers(struct sim *s)
{
    for (uint32_t i = 0; i < SIM_PRINCIPALS; i++) {
        const struct svc_principal *p = &sim_principals[i];
        struct core_identity who = {.principal = i + 1,
                                    .name = p->name,
                                    .tenant = p->tenant,
                                    .gateway = p->gateway,
                                    .admin = p->admin};
        MUST(core_client_open(s->core, &who, on_idle, s, &s->observer[i]) == 0);
    }
}

static void begin(struct sim *s)
{
    choose_swarm(s);
    choose_limits(s);
    choose_slices(s);
    sim_space_begin(s);
    struct fake_disk_config disk = {.seed = s->seed + 2};
    if (sim_with_disk) {
        disk.slots = 8 + sim_rnd(s, 600);
        disk.region_slots = 4 + sim_rnd(s, 20);
    }
    if (sim_with_hbm)
        sim_hbm_choose(s, &disk);
    /* In some worlds most of each tier is for what comes and goes. */
    if (s->seed % 4 == 1) {
        const uint64_t host = (uint64_t)s->tier_cfg.regions * s->tier_cfg.region_bytes;
        s->tier_cfg.lasting_bytes = host / 32;
        disk.lasting_bytes = (uint64_t)disk.slots * 64;
    }
    s->tier = fake_tier_create(&s->tier_cfg);
    s->core_cfg.tier[CORE_HOST] = fake_tier_of(s->tier);
    if (sim_with_hbm)
        sim_hbm_begin(s);
    if (sim_with_disk) {
        s->disk = fake_disk_create(&disk);
        s->disk_regions = (disk.slots + disk.region_slots - 1) / disk.region_slots;
        s->core_cfg.tier[CORE_STORAGE] = fake_disk_of(s->disk);
    }
    MUST(core_create(&s->core_cfg, &s->core) == 0);
    struct svc_ports ports = sim_ports(s);
    MUST(svc_create(&s->svc_cfg, s->core, &ports, &s->svc) == 0);
    s->now_ns = 1000000000000;
    s->speaking = SIM_NONE;
    for (uint32_t i = 0; i < SIM_CLIENTS; i++)
        sim_client_gone(s, &s->client[i]);
    core_tick(s->core, s->now_ns);
    svc_turn_begin(s->svc, s->now_ns);
    open_observers(s);
    sim_tier_begin(s);
    sim_check_begin(s);
}

/* ---- a turn ---- */

static void step_time(struct sim *s)
{
    const struct sim_swarm *w = &s->swarm;
    if (s->draining) {
        s->now_ns += sim_rnd(s, 1000) * SIM_MS;
        return;
    }
    if (sim_pct(s, w->still_pct))
        return;
    s->now_ns += sim_rnd(s, w->step_ms * 1000) * UINT64_C(1000);
    s->now_ns += sim_rnd(s, 1000);
    if (sim_rnd(s, 1000) < w->seconds_pm)
        s->now_ns += sim_rnd(s, 20000) * SIM_MS;
    if (sim_rnd(s, 1000) < w->hours_pm)
        s->now_ns += sim_rnd(s, 20 * 3600) * 1000 * SIM_MS;
}

/* As the daemon's: time and timers, what the loop brings, requests, waiters, a step of work, ends.
 */
static void turn(struct sim *s)
{
    s->totals->turn = ++s->turn;
    step_time(s);
    SIM_TRACE(s, "-- turn %llu, %llu us", (unsigned long long)s->turn,
              (unsigned long long)(s->now_ns / 1000));
    for (uint32_t i = 0; i < SIM_CLIENTS; i++)
        s->client[i].late =
            s->client[i].state == CL_OPEN && s->now_ns >= s->client[i].opened_ns + 5000 * SIM_MS;
    core_tick(s->core, s->now_ns);
    svc_turn_begin(s->svc, s->now_ns);
    sim_read_answers(s);
    sim_act_choose(s);
    bool early = sim_rnd(s, 2);
    if (early)
        sim_act_attach(s);
    sim_tier_step(s, false);
    sim_read_answers(s);
    sim_staging_step(s, false);
    if (!early)
        sim_act_attach(s);
    sim_mail(s, false);
    sim_act_requests(s);
    sim_act_keep(s);
    sim_act_hbm(s);
    sim_hbm_step(s);
    (void)core_run_done(s->core);
    sim_read_answers(s);
    s->more = core_background_step(s->core);
    sim_read_answers(s);
    svc_turn_end(s->svc);
    if (s->slices) /* else it answers nobody */
        sim_read_answers(s);
    sim_disk_step(s, s->draining);
    s->more = s->more || core_has_done(s->core) || core_has_steps(s->core);
    sim_check_turn(s);
    sim_check_keep(s);
    sim_check_hbm(s);
}

/* ---- end ---- */

static void on_job(struct core_evict_job *job)
{
    job->client = NULL;
}

static void io_ends(struct sim *s)
{
    if (s->disk)
        sim_disk_step(s, true);
    while (s->nflights)
        sim_tier_step(s, true);
}

static void evict_all(struct sim *s)
{
    struct core_evict_job job = {.client = s->observer[3], .done = on_job, .force = true};
    core_evict_start(s->core, &job);
    for (uint32_t i = 0; i < QUIET_TURNS && job.client; i++) {
        (void)core_background_step(s->core);
        if (job.client && job.evicted) /* and I/O that holds some of it has to end */
            io_ends(s);
    }
    SIM_CHECK(s, !job.client, "an eviction job does not end");
    for (uint32_t i = 0; i < 10 && s->disk; i++)
        io_ends(s);
    SIM_CHECK(s, job.ret_kept == 0, "%llu blocks are held by nobody",
              (unsigned long long)job.ret_kept);
}

static void wants_nothing_left(struct sim *s)
{
    const struct core_metrics *m = core_metrics(s->core);
    struct tier_stats t;
    s->core_cfg.tier[CORE_HOST]->ops->stats(s->core_cfg.tier[CORE_HOST], &t);
    SIM_CHECK(s, m->leases == 0 && m->leased_bytes == 0, "leases of nobody");
    SIM_CHECK(s, m->reservations == 0 && m->commits_in_flight == 0, "reservations of nobody");
    SIM_CHECK(s, m->blocks_present == 0 && m->blocks_pending == 0, "blocks that cannot be evicted");
    SIM_CHECK(s, t.used_bytes == 0, "%llu bytes of the tier are lost",
              (unsigned long long)t.used_bytes);
    SIM_CHECK(s, s->kept == 0, "%u messages are kept for nobody", s->kept);
    for (uint32_t i = 0; i < SIM_STAGINGS; i++)
        SIM_CHECK(s, !s->staging[i].used, "a staging area is left");
}

static void end(struct sim *s)
{
    s->draining = true;
    svc_shutdown(s->svc);
    sim_read_answers(s);
    uint32_t patience = sim_rnd(s, 8) ? QUIET_TURNS : sim_rnd(s, 20);
    for (uint32_t i = 0; i < patience && !svc_is_quiet(s->svc); i++)
        turn(s);
    SIM_CHECK(s, patience < QUIET_TURNS || svc_is_quiet(s->svc), "it does not become quiet");
    s->ending = true;
    sim_keep_end(s);
    svc_end_all(s->svc);
    for (uint32_t i = 0; i < SIM_CLIENTS; i++)
        SIM_CHECK(s, s->client[i].state == CL_OFF, "client %u is not told of the end", i);
    sim_mail(s, true);
    sim_staging_step(s, true);
    sim_disk_step(s, true);
    while (s->nflights)
        sim_tier_step(s, true);
    (void)core_run_done(s->core);
    while (s->slices && core_has_steps(s->core)) /* large leases end in slices */
        (void)core_background_step(s->core);
    sim_read_answers(s);
    sim_hbm_end(s);
    SIM_CHECK(s, svc_is_quiet(s->svc) && svc_is_empty(s->svc), "it does not become empty");
    core_check(s->core);
    evict_all(s);
    wants_nothing_left(s);
    for (uint32_t i = 0; i < SIM_PRINCIPALS; i++)
        core_client_close(s->core, s->observer[i]);
    s->totals->evicted += core_metrics(s->core)->blocks_evicted;
    sim_ended(s, 0, core_metrics(s->core)->blocks_evicted);
    sim_check_end(s);
    svc_destroy(&s->svc);
    core_destroy(&s->core);
    sim_hbm_destroy(s);
    fake_tier_destroy(&s->tier);
    if (s->disk)
        fake_disk_destroy(&s->disk);
}

void sim_run(uint64_t seed, uint64_t turns, bool trace, struct sim_totals *totals)
{
    struct sim *s = calloc(1, sizeof *s);
    MUST(s != NULL);
    s->seed = seed;
    s->turns = turns;
    s->trace = trace;
    s->totals = totals;
    s->random = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
    totals->seed = seed;
    totals->turn = 0;
    begin(s);
    while (s->turn < turns)
        turn(s);
    end(s);
    totals->turns += s->turn;
    free(s);
}
