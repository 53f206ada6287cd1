/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random programs over host memory and disk, in three of four seeds with two devices in front, in
 * two of three with slow storage behind a small disk, plain memory in one and another disk,
 * which outlives a crash, in the other: little memory, more disk, least on devices; copies that end
 * late or fail, room that is wanted back, losses, outages, crashes. core_check() twice a turn;
 * every lease holds what was put, in memory and on devices; what arrives in pages is that too;
 * nothing is left at the end. KVC_SEED=n runs that seed alone, KVC_SEEDS=n that many.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cases.h"
#include "core_rig.h"

#define SEEDS   CHECK_SHARE(60)
#define TURNS   3000
#define CHAINS  14
#define BLOCKS  6
#define COMMITS 16
#define WAITERS 8
#define LEASES  12
#define FILLS   6
#define SENDS   6
#define PAGES   64u /* of each send and each commit */

struct waiter {
    struct core_waiter w; /* first */
    bool used, fired;
    unsigned client, ns;
    uint32_t chain, tokens;
};

static struct rig r;
static uint64_t state;
static struct core_ns *ns[2];
static struct rig_commit *commit[COMMITS];
static struct waiter waiter[WAITERS];
static struct {
    unsigned client, ns;
    uint64_t id;
    uint32_t chain;
    struct core_held held;
} lease[LEASES];
static struct rig_fill fill[FILLS];
static struct {
    bool used;
    unsigned ns;
    uint32_t chain;
    struct core_held held;
    struct rig_send s;
} send[SENDS];
static _Atomic uint64_t word[SENDS], after;
static struct device_pool *pool[RIG_DEVICES][2]; /* by device and namespace */
static struct core_verify slice;
static bool slicing, out, slow_out;
static unsigned store_fired;
static struct core_waiter store_waiter;
static uint64_t hits, loaded, restarts, lost, filled, sent, demoted, kept_below;

static uint32_t rnd(uint32_t below)
{
    return (uint32_t)(fake_random(&state) % below);
}

static void open_namespaces(void)
{
    struct core_ns_spec one = rig_spec("one", 8, 64), two = rig_spec("two", 8, 96);
    two.shards = 2;
    two.ngroups = 2;
    two.group[1] = (struct core_group){
        .block_tokens = 8, .block_bytes = 64, .rule = KVC_RULE_WINDOW, .window = 16};
    ns[0] = rig_ns(&r, 1, &one);
    ns[1] = rig_ns(&r, 1, &two);
    for (unsigned d = 0; d < r.cfg.ndevices; d++)
        for (unsigned n = 0; n < 2; n++)
            pool[d][n] = rig_pool(&r, d, ns[n], (SENDS + COMMITS) * PAGES);
}

/* ---- what is done ---- */

static const struct core_retention *some_wishes(void)
{
    static struct core_range range[2];
    static struct core_retention wishes;
    for (unsigned i = 0; i < 2; i++)
        range[i] = (struct core_range){.first_token = rnd(40),
                                       .wish = {rnd(RETAIN_MAX + 1), rnd(2) * rnd(3000)}};
    wishes = (struct core_retention){
        .range = range, .n = rnd(3), .has_decode = rnd(2), .decode = {rnd(RETAIN_MAX + 1), 0}};
    return rnd(2) ? &wishes : NULL;
}

/* Blocks of one group and shard, out of staging or pages. */
static void store(unsigned n, uint32_t group, uint32_t shard, uint32_t chain, uint32_t blocks)
{
    static struct rig_put p;
    const unsigned slot = rnd(COMMITS), client = 1 + rnd(2);
    if (commit[slot])
        return;
    p = (struct rig_put){.ns = ns[n],
                         .group = group,
                         .shard = shard,
                         .chain = chain + group * 1000,
                         .n = blocks,
                         .durable = rnd(r.stack ? 30 : 6) == 0,
                         .decoded = rnd(4) == 0,
                         .retention = some_wishes()};
    ck_assert_int_eq(rig_reserve(&r, client, &p), 0);
    if (!p.reservation)
        return;
    struct rig_commit *m = calloc(1, sizeof *m);
    ck_assert_ptr_nonnull(m);
    int err;
    if (r.cfg.ndevices > 0 && rnd(2)) {
        const unsigned d = rnd(RIG_DEVICES);
        err = rig_commit_pages(&r, client, &p, d, pool[d][n], (SENDS + slot) * PAGES, m);
        ck_assert(err >= 0 || err == KVC_E_BUSY);
        if (err == KVC_E_BUSY)
            ck_assert_int_eq(core_drop(r.core, r.cl[client], p.reservation), 0);
    } else {
        err = rig_commit(&r, client, &p, m);
    }
    if (err == 1) {
        commit[slot] = m;
        return;
    }
    rig_commit_free(m);
    free(m);
}

static void do_store(void)
{
    const unsigned n = rnd(2);
    const uint32_t chain = rnd(CHAINS), blocks = 1 + rnd(BLOCKS);
    if (rnd(2)) {
        store(n, n ? rnd(2) : 0, n ? rnd(2) : 0, chain, blocks);
        return;
    }
    for (uint32_t group = 0; group <= n; group++) /* all that a prefix needs */
        for (uint32_t shard = 0; shard <= n; shard++)
            store(n, group, shard, chain, blocks);
}

static void keep_lease(unsigned client, const struct core_held *held, unsigned n, uint32_t chain)
{
    if (!held->lease)
        return;
    hits++;
    for (uint32_t shard = 0; shard <= n; shard++)
        rig_check_lease(&r, client, held->lease, shard);
    const unsigned slot = rnd(LEASES);
    if (lease[slot].id)
        ck_assert_int_eq(core_release(r.core, r.cl[lease[slot].client], lease[slot].id), 0);
    lease[slot].client = client;
    lease[slot].ns = n;
    lease[slot].id = held->lease;
    lease[slot].chain = chain;
    lease[slot].held = *held;
}

static void answer(struct waiter *w)
{
    struct core_acquire in = {.seq = rig_seq(ns[w->ns], w->chain, w->tokens)};
    struct core_held held;
    int err = core_acquire(r.core, r.cl[w->client], &in, &w->w, &held, &r.why);
    w->used = false;
    if (err == 0)
        keep_lease(w->client, &held, w->ns, w->chain);
    else
        ck_assert(err == KVC_E_BUSY || err == KVC_E_LIMIT);
    core_waiter_cancel(r.core, &w->w);
}

static void on_wake(struct core_waiter *cw)
{
    struct waiter *w = (struct waiter *)(void *)cw;
    ck_assert(w->used);
    loaded++;
    answer(w);
}

static void do_acquire(void)
{
    struct waiter *w = &waiter[rnd(WAITERS)];
    if (w->used)
        return;
    *w = (struct waiter){.w.fn = on_wake,
                         .client = 1 + rnd(2),
                         .ns = rnd(2),
                         .chain = rnd(CHAINS),
                         .tokens = 8 * (1 + rnd(BLOCKS))};
    struct core_acquire in = {
        .seq = rig_seq(ns[w->ns], w->chain, w->tokens), .load = rnd(8) != 0, .wait = rnd(4) == 0};
    in.from_tokens = rnd(4) ? 0 : 8 * rnd(3);
    struct core_held held;
    int err = core_acquire(r.core, r.cl[w->client], &in, &w->w, &held, &r.why);
    w->used = err == 1;
    if (err == 0)
        keep_lease(w->client, &held, w->ns, w->chain);
    else
        ck_assert(err == 1 || err == KVC_E_BUSY || err == KVC_E_LIMIT);
}

/* Of a commit too: the other shards of what is to be durable may never come. */
static void do_deadline(void)
{
    struct waiter *w = &waiter[rnd(WAITERS)];
    struct rig_commit *m = commit[rnd(COMMITS)];
    if (m && !m->done && rnd(2))
        core_cancel(r.core, &m->c.req);
    if (!w->used)
        return;
    core_waiter_cancel(r.core, &w->w);
    answer(w);
}

static void do_release(void)
{
    const unsigned slot = rnd(LEASES);
    if (!lease[slot].id)
        return;
    ck_assert_int_eq(core_release(r.core, r.cl[lease[slot].client], lease[slot].id), 0);
    lease[slot].id = 0;
}

static void do_lookup(void)
{
    struct core_seq seq = rig_seq(ns[rnd(2)], rnd(CHAINS), 8 * BLOCKS);
    struct core_prefix p;
    ck_assert_int_eq(core_lookup(r.core, &seq, rnd(2), &p, &r.why), 0);
    if (rnd(2))
        (void)core_prefetch(r.core, &seq, rnd(2000));
}

static void on_job(struct core_evict_job *job)
{
    job->client = NULL;
}

static void copies_end(void);

static void do_evict(void)
{
    struct core_evict_job job = {.client = r.cl[0], .done = on_job, .bytes = rnd(2) * 500};
    job.older_than_ms = rnd(400);
    core_evict_start(r.core, &job);
    while (job.client) {
        (void)core_background_step(r.core);
        if (job.evicted) /* and I/O that holds some of it has to end */
            copies_end();
    }
}

static void on_slice(struct core_verify *v)
{
    (void)v;
    slicing = false;
}

static void on_corrupt(struct core_verify *v, const struct core_corrupt *x)
{
    (void)v;
    (void)x;
    ck_abort_msg("nothing goes bad here");
}

static void do_verify(void)
{
    if (slicing)
        return;
    slice = (struct core_verify){.tier = (uint8_t)rnd(3),
                                 .bytes_max = 4096,
                                 .deadline_ns = r.now_ns + 1000000000,
                                 .client = r.cl[0],
                                 .corrupt = on_corrupt,
                                 .done = on_slice};
    slicing = core_verify_start(r.core, &slice) == 1;
}

static void on_store_room(struct core_waiter *w)
{
    (void)w;
    store_fired++;
}

static void do_store_wait(void)
{
    core_waiter_cancel(r.core, &store_waiter);
    store_waiter = (struct core_waiter){.fn = on_store_room};
    if (core_store_must_wait(r.core, 64 * (1 + rnd(8)), &store_waiter) && rnd(2))
        core_waiter_cancel(r.core, &store_waiter);
}

static void disk_act(struct fake_disk *d, const struct fake_disk_config *cfg, bool *is_out)
{
    switch (rnd(10)) {
    case 0:
        *is_out = !*is_out && rnd(3) == 0;
        fake_disk_out(d, *is_out);
        return;
    case 1:
        fake_disk_admit(d, rnd(3));
        return;
    case 2:
        fake_disk_keeps(d, rnd(3));
        return;
    case 3:
        lost += rnd(4) == 0 && fake_disk_lose(d);
        return;
    case 4:
        (void)rig_drain(&r, rnd(2000));
        return;
    default:
        fake_disk_want(d, rnd(cfg->slots / cfg->region_slots));
        return;
    }
}

static void do_disk(void)
{
    if (r.slow_disk && rnd(6) == 0)
        disk_act(r.slow_disk, &r.slow_cfg, &slow_out);
    else
        disk_act(r.disk, &r.disk_cfg, &out);
}

/* The disk of a stack is written round and round, and keeps little. */
static void do_demote(void)
{
    if (!r.stack)
        return;
    fake_disk_keeps(r.disk, rnd(4) == 0);
    fake_disk_want(r.disk, rnd(r.disk_cfg.slots / r.disk_cfg.region_slots));
}

/* ---- devices ---- */

static void do_fill(void)
{
    const unsigned at = rnd(LEASES), slot = rnd(FILLS);
    if (r.cfg.ndevices == 0 || !lease[at].id || list_is_linked(&fill[slot].f.node))
        return;
    const int err = rig_fill(&r, lease[at].client, lease[at].id, rnd(RIG_DEVICES),
                             rnd(lease[at].ns + 1), &fill[slot]);
    ck_assert(err >= 0 || err == KVC_E_BAD_ARGUMENT || err == KVC_E_BUSY);
    if (err == 1 && rnd(20) == 0)
        core_fill_cancel(r.core, &fill[slot].f);
}

static void do_send(void)
{
    const unsigned at = rnd(LEASES), slot = rnd(SENDS), d = rnd(RIG_DEVICES);
    if (r.cfg.ndevices == 0 || !lease[at].id || send[slot].used)
        return;
    send[slot].ns = lease[at].ns;
    send[slot].chain = lease[at].chain;
    send[slot].held = lease[at].held;
    struct rig_send *x = &send[slot].s;
    x->word = rnd(2) ? &word[slot] : NULL;
    x->after.word = rnd(3) ? NULL : &after;
    x->after.value = atomic_load(&after) + rnd(3);
    atomic_store(&word[slot], 0);
    const int err =
        rig_send(&r, lease[at].client, &lease[at].held, d, pool[d][lease[at].ns], slot * PAGES, x);
    ck_assert(err == 1 || err == KVC_E_BUSY);
    send[slot].used = err == 1;
    if (err == 1 && rnd(20) == 0)
        core_cancel(r.core, &send[slot].s.s.req);
}

static void check_sent(unsigned slot)
{
    const struct core_held *held = &send[slot].held;
    const uint8_t *status = send[slot].s.statuses;
    uint64_t layers = 0;
    for (uint32_t g = 0; g < held->ngroups; g++) {
        layers += held->group[g].n > 0 ? RIG_LAYERS : 0;
        for (uint32_t i = 0; i < held->group[g].n; i++, status++) {
            const struct key256 key =
                rig_key(send[slot].chain + g * 1000, held->group[g].first + i);
            ck_assert(*status == KVC_ST_TIER || *status == KVC_ST_TIMEOUT ||
                      *status == KVC_ST_CANCELLED || *status == KVC_ST_OK);
            sent += *status == KVC_ST_OK;
            layers = *status == KVC_ST_OK ? layers : UINT64_MAX / 2;
            if (*status == KVC_ST_OK)
                ck_assert(rig_has_arrived(&send[slot].s, ns[send[slot].ns], g, i, key.b));
        }
    }
    if (send[slot].s.word && layers < UINT64_MAX / 2)
        ck_assert_uint_eq(atomic_load(&word[slot]), layers);
    send[slot].used = false;
}

static void do_device(void)
{
    if (r.cfg.ndevices == 0)
        return;
    const unsigned d = rnd(RIG_DEVICES);
    if (!fake_device_is_up(r.device[d]))
        fake_device_up(r.device[d]);
    else if (rnd(8) == 0)
        fake_device_lose(r.device[d]);
    atomic_fetch_add(&after, rnd(3));
    for (unsigned i = 0; i < LEASES; i++)
        for (uint32_t shard = 0; lease[i].id && shard <= lease[i].ns; shard++)
            (void)rig_check_hbm(&r, lease[i].client, lease[i].id, shard);
}

static void devices_end(unsigned fails)
{
    for (unsigned d = 0; d < r.cfg.ndevices; d++) {
        (void)fake_device_run(r.device[d], 1 + rnd(4), fails);
        (void)fake_tier_run(fake_device_slots(r.device[d]), rnd(8), fails);
    }
    for (unsigned i = 0; i < SENDS; i++)
        if (send[i].used && send[i].s.done)
            check_sent(i);
}

/* ---- what is to stay ---- */

static void do_quota(void)
{
    static const char *const tenants[] = {"t1", "t2", "t9"};
    struct core_quota q = {.scope = KVC_SCOPE_TENANT,
                           .tenant = tenants[rnd(3)],
                           .bytes = {{RETAIN_NO_LIMIT, RETAIN_NO_LIMIT}, {0, 0}}};
    if (rnd(2)) {
        struct core_ns_view v;
        core_ns_view(ns[rnd(2)], &v);
        q.scope = KVC_SCOPE_NS;
        q.ns = v.id;
    }
    const bool remove = rnd(3) == 0;
    for (unsigned t = 0; t < RETAIN_TIERS && !remove; t++) {
        if (rnd(2))
            q.bytes.limit[t] = 96 * rnd(40);
        const uint64_t share = 96 * rnd(12);
        q.bytes.share[t] = MIN(share, q.bytes.limit[t]) * rnd(2);
    }
    const int err = core_quota_set(r.core, &q);
    ck_assert(err == 0 || err == KVC_E_BUSY);
}

static void do_pin(void)
{
    struct core_pin_view v;
    uint64_t cursor = rnd(8);
    if (rnd(3) == 0) {
        if (core_pin_next(r.core, NULL, &cursor, &v))
            ck_assert_int_eq(core_unpin(r.core, NULL, v.id), 0);
        return;
    }
    const struct core_pin in = {.seq = rig_seq(ns[rnd(2)], rnd(CHAINS), 8 * (1 + rnd(BLOCKS))),
                                .in_memory = rnd(3) == 0,
                                .ttl_ms = rnd(3) ? 1 + rnd(2000) : 0};
    struct core_pinned got;
    const int err = core_pin(r.core, &in, &got, &r.why);
    ck_assert(err == 0 || err == KVC_E_GONE || err == KVC_E_PIN_LIMIT || err == KVC_E_QUOTA ||
              err == KVC_E_LIMIT || (err == KVC_E_TIER && (out || slow_out)));
}

static void do_wish(void)
{
    const struct core_seq seq = rig_seq(ns[rnd(2)], rnd(CHAINS), 8 * (1 + rnd(BLOCKS)));
    const struct core_wish wish = {rnd(RETAIN_MAX + 1), rnd(2) * rnd(2000)};
    ck_assert_int_ge(core_wish(r.core, &seq, 0, &wish, rnd(2), &r.why), 0);
    ck_assert_int_ge(core_advise(r.core, &seq, POLICY_ADVICE_ENDED + rnd(4), 1000, &r.why), 0);
}

static void do_keep(void)
{
    switch (rnd(4)) {
    case 0:
        do_quota();
        return;
    case 1:
        core_keep_percent(r.core, rnd(101));
        core_pin_budget(r.core, rnd(3) * 1000);
        return;
    case 2:
        do_pin();
        return;
    default:
        do_wish();
        return;
    }
}

static void forget_all(void)
{
    for (unsigned i = 0; i < COMMITS; i++) {
        if (!commit[i])
            continue;
        rig_commit_free(commit[i]);
        free(commit[i]);
        commit[i] = NULL;
    }
    memset(waiter, 0, sizeof waiter);
    memset(lease, 0, sizeof lease);
    memset(&store_waiter, 0, sizeof store_waiter);
    memset(fill, 0, sizeof fill);
    memset(send, 0, sizeof send);
    for (unsigned d = 0; d < RIG_DEVICES; d++)
        for (unsigned n = 0; n < 2; n++)
            fake_pool_destroy(&pool[d][n]);
    slicing = false;
}

static void count_demoted(void)
{
    struct stack_stats st = {.demoted = 0};
    if (r.stack)
        stack_stats(r.stack, &st);
    demoted += st.demoted;
}

static void do_restart(void)
{
    restarts++;
    count_demoted();
    filled += core_metrics(r.core)->hbm_fills;
    out = slow_out = false;
    rig_restart(&r, rnd(2));
    kept_below += r.slow_disk ? fake_disk_used(r.slow_disk) : 0;
    forget_all();
    open_namespaces();
}

static void copies_end(void)
{
    const unsigned fails = rnd(8) ? 0 : 20;
    if (rnd(2))
        (void)fake_tier_run(r.tier, 1 + rnd(20), fails);
    if (rnd(2)) {
        if (r.slow && fails)
            memory_storage_fail(r.slow, 1);
        r.cfg.tier[CORE_STORAGE]->storage->kick(r.cfg.tier[CORE_STORAGE]);
        (void)fake_disk_run(r.disk, 1 + rnd(r.stack ? 8 : 20), fails);
    }
    if (r.slow_disk && rnd(2)) { /* what has just landed may be lost while it is read above */
        (void)fake_disk_run(r.slow_disk, 1 + rnd(6), fails);
        lost += rnd(6) == 0 && fake_disk_lose(r.slow_disk);
    }
    if (rnd(2))
        devices_end(fails);
    for (unsigned i = 0; i < COMMITS; i++) {
        if (!commit[i] || !commit[i]->done)
            continue;
        rig_commit_free(commit[i]);
        free(commit[i]);
        commit[i] = NULL;
    }
}

static const struct {
    void (*fn)(void);
    uint32_t weight;
} operations[] = {{do_store, 30}, {do_acquire, 30}, {do_deadline, 4}, {do_release, 12},
                  {do_lookup, 6}, {do_evict, 1},    {do_verify, 3},   {do_store_wait, 4},
                  {do_disk, 8},   {copies_end, 40}, {do_restart, 1},  {do_keep, 12},
                  {do_fill, 12},  {do_send, 12},    {do_device, 3},   {do_demote, 20}};

static void one_turn(void)
{
    uint32_t total = 0, i;
    for (i = 0; i < ARRAY_LEN(operations); i++)
        total += operations[i].weight;
    uint32_t dice = rnd(total);
    for (i = 0; dice >= operations[i].weight; i++)
        dice -= operations[i].weight;
    if (operations[i].fn != do_restart || rnd(6) == 0)
        operations[i].fn();
    core_check(r.core);
    (void)core_run_done(r.core);
    (void)core_background_step(r.core);
    core_check(r.core);
    if (rnd(3) == 0)
        rig_step(&r);
}

/* With slow storage what is above is small, so that much goes down. */
static void some_storage(uint64_t seed)
{
    const uint32_t behind = 8 + rnd(60);
    r.tier_cfg.regions = 1 + rnd(seed % 3 ? 2 : 8);
    r.tier_cfg.region_bytes = 512u << rnd(seed % 3 ? 2 : 3);
    r.tier_cfg.seed = seed + 1;
    r.disk_cfg = (struct fake_disk_config){
        .slots = 16 + rnd(seed % 3 ? 60 : 200), .region_slots = 4 + rnd(12), .seed = seed + 2};
    if (seed % 3 == 1)
        r.slow_slots = behind;
    if (seed % 3 == 2)
        r.slow_cfg = (struct fake_disk_config){
            .slots = behind, .region_slots = 4 + rnd(4), .seed = seed + 5};
}

static void run_seed(uint64_t seed)
{
    state = seed * 2654435761u + 1;
    hits = loaded = restarts = lost = filled = sent = demoted = kept_below = 0;
    out = slow_out = false;
    rig_defaults(&r);
    some_storage(seed);
    r.cfg.ndevices = rnd(4) ? RIG_DEVICES : 0;
    for (unsigned d = 0; d < RIG_DEVICES; d++) {
        r.device_cfg[d].regions = 1 + rnd(3);
        r.device_cfg[d].region_bytes = 256u << rnd(3);
        r.device_cfg[d].seed = seed + 3 + d;
    }
    r.cfg.hbm_verify = seed % 4 != 0;
    r.cfg.hbm_max = rnd(3) ? 256 : 1 + rnd(8);
    r.cfg.blocks_max = rnd(3) ? 512 : 24 + rnd(60);
    r.cfg.lease_bytes_max = rnd(3) ? UINT64_MAX / 2 : 1000;
    r.cfg.leases_max = rnd(3) ? 64 : 14;
    r.cfg.pins_max = rnd(3) ? 16 : rnd(3);
    r.cfg.pin_bytes_max = rnd(2) * 2000;
    unsigned policies = 1;
    while (policy_at(policies))
        policies++;
    r.cfg.policy = policy_at((unsigned)(seed % policies));
    r.cfg.hbm_policy = policy_at(rnd(policies));
    rig_begin(&r);
    memset(&store_waiter, 0, sizeof store_waiter);
    open_namespaces();
    for (uint32_t turn = 0; turn < TURNS; turn++)
        one_turn();
    fake_disk_out(r.disk, false);
    if (r.slow_disk)
        fake_disk_out(r.slow_disk, false);
    for (unsigned i = 0; i < WAITERS; i++)
        core_waiter_cancel(r.core, &waiter[i].w);
    core_waiter_cancel(r.core, &store_waiter);
    filled += core_metrics(r.core)->hbm_fills;
    count_demoted();
    printf("seed %llu: %llu hits, %llu after loading, %llu restarts, %llu lost; %llu blocks "
           "filled, %llu sent, %llu shards to slow storage, %llu found there\n",
           (unsigned long long)seed, (unsigned long long)hits, (unsigned long long)loaded,
           (unsigned long long)restarts, (unsigned long long)lost, (unsigned long long)filled,
           (unsigned long long)sent, (unsigned long long)demoted, (unsigned long long)kept_below);
    for (unsigned d = 0; d < r.cfg.ndevices; d++)
        fake_device_up(r.device[d]);
    rig_end(&r);
    for (unsigned i = 0; i < SENDS; i++)
        ck_assert(!send[i].used || send[i].s.done == 1);
    for (unsigned i = 0; i < COMMITS; i++)
        ck_assert(!commit[i] || commit[i]->done == 1);
    forget_all();
}

CASES(.timeout_s = 600);

static int seeds(void)
{
    const char *n = getenv("KVC_SEEDS");
    if (getenv("KVC_SEED"))
        return 1;
    return n ? atoi(n) : SEEDS;
}

CASE_EACH(random_programs_over_two_tiers, seeds())
{
    const char *seed = getenv("KVC_SEED");
    run_seed(seed ? strtoull(seed, NULL, 10) : (uint64_t)_i + 1);
}
