/* SPDX-License-Identifier: Apache-2.0 */
#include "core_rig.h"

#include <check.h>
#include <stdlib.h>

#include "admin.h"
#include "index.h"

#define STAGING_ALIGN 64u

void rig_defaults(struct rig *r)
{
    *r = (struct rig){
        .cfg = {.blocks_max = 4096,
                .slice_work = UINT32_MAX,
                .clients_max = 16,
                .namespaces_max = 16,
                .leases_max = 64,
                .commits_max = 64,
                .names_max = 64,
                .name_ids_bytes = 64 << 10,
                .lease_bytes_max = UINT64_MAX / 2,
                .pins_max = 64,
                .policy = &policy_lru,
                .hbm_max = 256,
                .hbm_policy = &policy_lru},
        .tier_cfg = {.regions = 64, .region_bytes = 16384, .slot_align = 64, .seed = 7},
        .device_cfg = {{.regions = 16, .region_bytes = 16384, .seed = 8},
                       {.regions = 16, .region_bytes = 16384, .seed = 9}}};
}

static void on_idle(void *ctx)
{
    unsigned *count = ctx;
    ++*count;
}

static const struct core_identity who[RIG_CLIENTS] = {
    {.principal = 9, .name = "ops", .tenant = "t9", .admin = true, .gateway = true},
    {.principal = 1, .name = "one", .tenant = "t1"},
    {.principal = 1, .name = "one", .tenant = "t1"},
    {.principal = 2, .name = "two", .tenant = "t2"},
};

static const struct core_identity *who_is(void *ctx, const char *principal)
{
    (void)ctx;
    for (unsigned i = 0; i < RIG_CLIENTS; i++)
        if (strcmp(who[i].name, principal) == 0)
            return &who[i];
    return NULL;
}

static void rig_names(struct rig *r)
{
    struct journal *j = r->journal ? fake_journal_of(r->journal) : NULL;
    ck_assert_int_eq(core_names_open(r->core, j, r->now_unknown ? 0 : r->wall_ms, r->wall_ms,
                                     who_is, NULL, &r->names_found),
                     0);
}

static void rig_stack(struct rig *r)
{
    if (!r->slow_disk && r->slow_slots == 0)
        return;
    if (!r->slow_disk)
        r->slow = memory_storage_create(r->slow_slots);
    struct tier *below = r->slow_disk ? fake_disk_of(r->slow_disk) : memory_storage_tier(r->slow);
    const struct stack_config cfg = {
        .tier = {fake_disk_of(r->disk), below}, .tiers = 2, .shard_bytes = 4096, .moves = 3};
    ck_assert_int_eq(stack_create(&cfg, &r->stack), 0);
    r->cfg.tier[CORE_STORAGE] = stack_tier(r->stack);
}

static void rig_unstack(struct rig *r)
{
    stack_destroy(&r->stack);
    if (r->slow)
        memory_storage_destroy(&r->slow);
}

void rig_begin(struct rig *r)
{
    r->tier = fake_tier_create(&r->tier_cfg);
    r->cfg.tier[CORE_HOST] = fake_tier_of(r->tier);
    if (r->disk_cfg.slots > 0) {
        r->disk = fake_disk_create(&r->disk_cfg);
        r->cfg.tier[CORE_STORAGE] = fake_disk_of(r->disk);
        if (r->slow_cfg.slots > 0)
            r->slow_disk = fake_disk_create(&r->slow_cfg);
        rig_stack(r);
    }
    for (unsigned i = 0; i < r->cfg.ndevices; i++) {
        struct fake_device_config *cfg = &r->device_cfg[i];
        cfg->no = i;
        cfg->host = r->tier;
        r->device[i] = fake_device_create(cfg);
        r->devices[i] = fake_device_of(r->device[i]);
    }
    r->cfg.devices = r->devices;
    ck_assert_int_eq(core_create(&r->cfg, &r->core), 0);
    r->now_ns = 1000000000;
    core_tick(r->core, r->now_ns);
    for (unsigned i = 0; i < RIG_CLIENTS; i++)
        ck_assert_int_eq(core_client_open(r->core, &who[i], on_idle, &r->idle[i], &r->cl[i]), 0);
    if (r->with_journal)
        r->journal = fake_journal_create();
    r->wall_ms = 1700000000000;
    rig_names(r);
}

void rig_step(struct rig *r)
{
    r->now_ns += RIG_STEP_NS;
    core_tick(r->core, r->now_ns);
}

void rig_close(struct rig *r, unsigned client)
{
    core_client_close(r->core, r->cl[client]);
    r->cl[client] = NULL;
}

/* ---- two tiers ---- */

static unsigned rig_turn(struct rig *r)
{
    (void)core_run_done(r->core);
    (void)core_background_step(r->core);
    unsigned n = fake_tier_run(r->tier, 1000, 0);
    for (unsigned i = 0; i < r->cfg.ndevices; i++) {
        n += fake_device_run(r->device[i], 1000, 0);
        if (fake_device_slots(r->device[i]))
            n += fake_tier_run(fake_device_slots(r->device[i]), 1000, 0);
    }
    if (r->journal)
        n += fake_journal_run(r->journal, r->journal_err);
    if (r->disk) {
        r->cfg.tier[CORE_STORAGE]->storage->kick(r->cfg.tier[CORE_STORAGE]);
        n += fake_disk_run(r->disk, 1000, 0);
    }
    if (r->slow_disk)
        n += fake_disk_run(r->slow_disk, 1000, 0);
    core_check(r->core);
    return n;
}

uint64_t rig_drain(struct rig *r, uint64_t bytes_max)
{
    uint64_t off;
    return core_drain_disk(r->core, bytes_max, &off);
}

void rig_settle(struct rig *r)
{
    unsigned quiet = 0;
    while (quiet < 3)
        quiet = rig_turn(r) ? 0 : quiet + 1;
}

static void carry_namespaces(struct rig *r, struct core *old)
{
    uint8_t record[CORE_NS_RECORD_MAX];
    uint64_t print[4];
    uint32_t cursor = 0, n;
    while ((n = core_ns_prints(old, &cursor, print, 4)) > 0)
        for (uint32_t i = 0; i < n; i++) {
            uint32_t bytes = core_ns_record(old, print[i], record);
            ck_assert_uint_gt(bytes, 0);
            ck_assert_int_eq(core_ns_restore(r->core, record, bytes, who_is, NULL), 0);
        }
}

/* The group's bytes per block are not in a host label: the namespace knows. */
static uint32_t bytes_of(struct rig *r, const struct tier_label *label)
{
    struct core_ns_view v = {.id = 0};
    for (struct core_ns *ns; (ns = core_ns_next(r->core, r->cl[0], v.id)) != NULL;) {
        core_ns_view(ns, &v);
        if (v.print == label->print)
            return v.spec->group[label->group].block_bytes;
    }
    return 0;
}

static uint32_t on_found(void *ctx, const struct tier_label *label, struct tier_loc loc)
{
    struct rig *r = ctx;
    struct core_found f = {.label = *label, .bytes = bytes_of(r, label), .loc = loc};
    uint32_t block_no = UINT32_MAX;
    f.in_host = true;
    return core_recover(r->core, &f, &block_no) == 0 ? block_no : UINT32_MAX;
}

static uint32_t recover_kept(struct rig *r, const struct fake_kept *kept, struct tier_loc loc)
{
    struct core_found f = {.label = kept->label, .bytes = kept->bytes, .loc = loc};
    uint32_t block_no = UINT32_MAX;
    return core_recover(r->core, &f, &block_no) == 0 ? block_no : UINT32_MAX;
}

static uint32_t on_kept(void *ctx, const struct fake_kept *kept)
{
    struct rig *r = ctx;
    return recover_kept(r, kept, r->stack ? stack_loc(0, kept->loc) : kept->loc);
}

static uint32_t on_kept_below(void *ctx, const struct fake_kept *kept)
{
    return recover_kept(ctx, kept, stack_loc(1, kept->loc));
}

static uint32_t on_gone(void *ctx, const struct tier_label *label, struct tier_loc loc)
{
    (void)ctx;
    (void)label;
    (void)loc;
    return UINT32_MAX;
}

/* The stack over two disks dies with what it has in flight; nobody frees it. Plain memory dies too:
 * what it has in flight ends first. */
static void stack_dies(struct rig *r)
{
    static struct stack *died[64];
    static unsigned n;
    for (unsigned i = 0; r->slow && i < 100; i++) {
        r->cfg.tier[CORE_STORAGE]->storage->kick(r->cfg.tier[CORE_STORAGE]);
        (void)fake_disk_run(r->disk, 1000, 0);
    }
    if (!r->slow_disk)
        return;
    ck_assert_uint_lt(n, ARRAY_LEN(died));
    died[n++] = r->stack;
    r->stack = NULL;
    fake_disk_crash(r->slow_disk);
}

void rig_restart(struct rig *r, bool host_survives)
{
    struct core *old = r->core;
    stack_dies(r);
    fake_tier_crash(r->tier);
    for (unsigned i = 0; i < r->cfg.ndevices; i++)
        fake_device_crash(r->device[i]);
    if (r->disk)
        fake_disk_crash(r->disk);
    rig_unstack(r);
    rig_stack(r);
    ck_assert_int_eq(core_create(&r->cfg, &r->core), 0);
    core_tick(r->core, r->now_ns);
    for (unsigned i = 0; i < RIG_CLIENTS; i++)
        ck_assert_int_eq(core_client_open(r->core, &who[i], on_idle, &r->idle[i], &r->cl[i]), 0);
    carry_namespaces(r, old);
    core_destroy(&old);
    fake_tier_each(r->tier, host_survives ? on_found : on_gone, r);
    if (r->disk)
        fake_disk_each(r->disk, on_kept, r);
    if (r->slow_disk)
        fake_disk_each(r->slow_disk, on_kept_below, r);
    (void)core_recover_end(r->core);
    if (r->journal)
        fake_journal_crash(r->journal);
    rig_names(r);
    core_check(r->core);
}

static void on_job(struct core_evict_job *job)
{
    job->cursor = UINT32_MAX;
}

void rig_evict(struct rig *r, struct core_evict_job *job)
{
    job->done = on_job;
    core_evict_start(r->core, job);
    while (job->cursor != UINT32_MAX) {
        (void)core_background_step(r->core);
        if (job->evicted) /* and I/O that holds some of it has to end */
            (void)rig_turn(r);
    }
    ck_assert_uint_eq(job->cursor, UINT32_MAX);
    core_check(r->core);
}

void rig_end(struct rig *r)
{
    for (unsigned i = 1; i < RIG_CLIENTS; i++)
        if (r->cl[i] != NULL)
            rig_close(r, i);
    rig_settle(r);
    core_check(r->core);
    struct core_evict_job job = {.client = r->cl[0], .force = true};
    rig_evict(r, &job);
    rig_settle(r);
    if (r->cl[0] != NULL)
        rig_close(r, 0);
    for (unsigned i = 0; i < RIG_CLIENTS; i++)
        ck_assert_uint_eq(r->idle[i], 1);
    ck_assert_uint_eq(rig_slots(r), 0);
    core_destroy(&r->core);
    for (unsigned i = 0; i < r->cfg.ndevices; i++)
        fake_device_destroy(&r->device[i]);
    fake_tier_destroy(&r->tier);
    rig_unstack(r);
    if (r->disk)
        fake_disk_destroy(&r->disk);
    if (r->slow_disk)
        fake_disk_destroy(&r->slow_disk);
    fake_journal_destroy(&r->journal);
}

struct core_ns_spec rig_spec(const char *model, uint32_t block_tokens, uint32_t block_bytes)
{
    struct core_ns_spec spec = {.dtype = "f16", .position = "rope", .attention = "causal"};
    strncpy(spec.model, model, sizeof(spec.model) - 1);
    spec.shards = 1;
    spec.ngroups = 1;
    spec.group[0] = (struct core_group){
        .block_tokens = block_tokens, .block_bytes = block_bytes, .rule = KVC_RULE_FULL};
    return spec;
}

struct core_ns *rig_ns(struct rig *r, unsigned client, const struct core_ns_spec *spec)
{
    struct core_ns *ns = NULL;
    struct core_similar similar[4];
    uint32_t nsimilar;
    ck_assert_int_eq(core_ns_open(r->core, r->cl[client], spec, &ns, similar, &nsimilar, &r->why),
                     0);
    return ns;
}

struct key256 rig_key(uint32_t chain, uint32_t i)
{
    uint32_t v[2] = {chain, i};
    struct hash128 h = hash_sum(v, sizeof(v));
    struct key256 key;
    memcpy(key.b, &h, sizeof(h));
    memcpy(key.b + sizeof(h), v, sizeof(v));
    memset(key.b + 24, 0x5a, 8);
    return key;
}

const uint8_t *rig_keys(unsigned slot, uint32_t chain, uint32_t first, uint32_t n)
{
    static uint8_t keys[8][KVC_STORE_MAX * KVC_KEY_BYTES];
    ck_assert(slot < 8 && n <= KVC_STORE_MAX);
    for (uint32_t i = 0; i < n; i++) {
        struct key256 key = rig_key(chain, first + i);
        memcpy(&keys[slot][i * KVC_KEY_BYTES], key.b, KVC_KEY_BYTES);
    }
    return keys[slot];
}

/* ---- writing ---- */

int rig_reserve(struct rig *r, unsigned client, struct rig_put *p)
{
    struct core_ns_view v;
    core_ns_view(p->ns, &v);
    const struct core_group *g = &v.spec->group[p->group];
    struct key256 parent = rig_key(p->chain, p->first - 1);
    p->below = g->rule == KVC_RULE_FULL;
    struct core_reserve in = {.ns = p->ns,
                              .group = p->group,
                              .shard = p->shard,
                              .parent = p->first > 0 ? parent.b : NULL,
                              .first_token = p->first * g->block_tokens,
                              .keys = rig_keys(7, p->chain, p->first, p->n),
                              .n = p->n,
                              .last_tokens = p->last_tokens,
                              .durable = p->durable,
                              .decoded = p->decoded,
                              .judged = p->judged,
                              .cost = core_ns_cost(r->cl[client], v.id),
                              .retention = p->retention};
    return core_reserve(r->core, r->cl[client], &in, &p->reservation, p->statuses, &r->why);
}

static void on_done(struct core_commit *c)
{
    struct rig_commit *m = (struct rig_commit *)(void *)c;
    m->done++;
    if (!m->durable_in || m->statuses[0] != KVC_ST_OK)
        return;
    for (uint32_t i = m->from; i <= m->at; i++)
        ck_assert_msg(rig_explain(m->durable_in, 0, m->ns, m->chain, i).durable,
                      "block %u of chain %u is told durable, and block %u is not", m->at, m->chain,
                      i);
}

/* Of several blocks the first may be told and have gone again when the last is. */
static void note_durable(struct rig *r, const struct rig_put *p, struct rig_commit *m)
{
    struct core_ns_view v;
    core_ns_view(p->ns, &v);
    if (!p->durable || p->n != 1 || p->statuses[0] != KVC_ST_OK)
        return;
    m->durable_in = r;
    m->ns = v.id;
    m->chain = p->chain;
    m->at = p->first;
    m->from = p->below ? 0 : p->first;
}

int rig_commit(struct rig *r, unsigned client, const struct rig_put *p, struct rig_commit *m)
{
    struct core_ns_view v;
    core_ns_view(p->ns, &v);
    uint32_t bytes = v.spec->group[p->group].block_bytes;
    uint64_t step = ROUND_UP(bytes, STAGING_ALIGN);
    *m = (struct rig_commit){.staging = malloc(p->n * step), .offsets = malloc(p->n * 8)};
    ck_assert(m->staging != NULL && m->offsets != NULL);
    for (uint32_t i = 0; i < p->n; i++) {
        struct key256 key = rig_key(p->chain, p->first + i);
        uint64_t off = i * step;
        fake_fill(m->staging + off, bytes, key.b, p->shard);
        for (unsigned b = 0; b < 8; b++)
            m->offsets[i * 8 + b] = p->statuses[i] == KVC_ST_OK ? (uint8_t)(off >> 8 * b) : 0xff;
    }
    m->c = (struct core_commit){.reservation = p->reservation,
                                .n = p->n,
                                .offsets = m->offsets,
                                .staging = m->staging,
                                .staging_bytes = p->n * step,
                                .deadline_ns = r->now_ns + 1000000000,
                                .statuses = m->statuses,
                                .done = on_done};
    note_durable(r, p, m);
    return core_commit(r->core, r->cl[client], &m->c, &r->why);
}

void rig_commit_free(struct rig_commit *m)
{
    free(m->staging);
    free(m->offsets);
    free(m->pages);
}

static void store_shard(struct rig *r, unsigned client, struct core_ns *ns, uint32_t group,
                        uint32_t shard, uint32_t chain, uint32_t first, uint32_t n)
{
    struct rig_put p = {
        .ns = ns, .group = group, .shard = shard, .chain = chain, .first = first, .n = n};
    struct rig_commit *m = malloc(sizeof(*m));
    ck_assert_ptr_nonnull(m);
    ck_assert_int_eq(rig_reserve(r, client, &p), 0);
    for (uint32_t i = 0; i < n; i++)
        ck_assert(p.statuses[i] == KVC_ST_OK || p.statuses[i] == KVC_ST_EXISTS ||
                  p.statuses[i] == KVC_ST_PENDING);
    if (p.reservation != 0) {
        ck_assert_int_eq(rig_commit(r, client, &p, m), 1);
        while (fake_tier_inflight(r->tier) > 0)
            (void)fake_tier_run(r->tier, 1000, 0);
        ck_assert_uint_eq(m->done, 1);
        for (uint32_t i = 0; i < n; i++)
            ck_assert_uint_eq(m->statuses[i], KVC_ST_OK);
        rig_commit_free(m);
    }
    free(m);
}

void rig_store(struct rig *r, unsigned client, struct core_ns *ns, uint32_t group, uint32_t chain,
               uint32_t first, uint32_t n)
{
    store_shard(r, client, ns, group, 0, chain, first, n);
}

void rig_store_shards(struct rig *r, unsigned client, struct core_ns *ns, uint32_t group,
                      uint32_t chain, uint32_t first, uint32_t n)
{
    struct core_ns_view v;
    core_ns_view(ns, &v);
    for (uint32_t s = 0; s < v.spec->shards; s++)
        store_shard(r, client, ns, group, s, chain, first, n);
}

/* ---- reading ---- */

struct core_seq rig_seq(struct core_ns *ns, uint32_t chain, uint32_t tokens)
{
    struct core_ns_view v;
    core_ns_view(ns, &v);
    struct core_seq seq = {.ns = ns, .tokens = tokens, .ngroups = v.spec->ngroups};
    for (uint32_t g = 0; g < seq.ngroups; g++) {
        uint32_t bt = v.spec->group[g].block_tokens;
        seq.n[g] = (tokens + bt - 1) / bt;
        seq.keys[g] = rig_keys(g, chain + g * 1000, 0, seq.n[g]);
    }
    return seq;
}

struct core_prefix rig_lookup(struct rig *r, struct core_ns *ns, uint32_t chain, uint32_t tokens)
{
    struct core_seq seq = rig_seq(ns, chain, tokens);
    struct core_prefix prefix;
    ck_assert_int_eq(core_lookup(r->core, &seq, false, &prefix, &r->why), 0);
    return prefix;
}

struct core_held rig_acquire(struct rig *r, unsigned client, struct core_ns *ns, uint32_t chain,
                             uint32_t tokens)
{
    struct core_acquire in = {.seq = rig_seq(ns, chain, tokens)};
    struct core_held held;
    ck_assert_int_eq(core_acquire(r->core, r->cl[client], &in, NULL, &held, &r->why), 0);
    return held;
}

static void on_loaded(struct core_waiter *w)
{
    w->keys = UINT32_MAX;
}

struct core_held rig_load(struct rig *r, unsigned client, struct core_ns *ns, uint32_t chain,
                          uint32_t tokens)
{
    struct core_acquire in = {.seq = rig_seq(ns, chain, tokens), .load = true};
    struct core_waiter w = {.fn = on_loaded};
    struct core_held held;
    int err = core_acquire(r->core, r->cl[client], &in, &w, &held, &r->why);
    if (err == 1) {
        while (w.keys != UINT32_MAX) {
            in.seq = rig_seq(ns, chain, tokens);
            (void)rig_turn(r);
        }
        in.load = false;
        err = core_acquire(r->core, r->cl[client], &in, &w, &held, &r->why);
    }
    ck_assert_int_eq(err, 0);
    return held;
}

struct loc_ctx {
    struct rig *r;
    uint32_t shard, hbm;
};

static void check_loc(void *ctx, const struct tier_view *view)
{
    struct loc_ctx *x = ctx;
    struct tier_label label;
    const uint32_t device = device_of_chunk(view->chunk);
    const struct fake_tier *tier =
        device ? fake_device_slots(x->r->device[device - 1]) : x->r->tier;
    x->hbm += device > 0;
    ck_assert(fake_tier_label(tier, view, &label));
    struct core_ns *ns = core_ns_next(x->r->core, x->r->cl[0], label.ns - 1);
    struct core_ns_view v;
    core_ns_view(ns, &v);
    const struct core_group *g = &v.spec->group[label.group];
    bool single = v.spec->shards == 1 || (g->flags & KVC_F_REPLICATED);
    ck_assert_uint_eq(label.shard, single ? 0 : x->shard);
    const uint8_t *at = fake_tier_bytes(tier, view);
    ck_assert(fake_is_filled(at, g->block_bytes, label.key.b, label.shard));
}

void rig_check_lease(struct rig *r, unsigned client, uint64_t lease, uint32_t shard)
{
    struct loc_ctx x = {.r = r, .shard = shard};
    ck_assert_int_eq(core_lease_locs(r->core, r->cl[client], lease, shard, check_loc, &x), 0);
}

uint32_t rig_check_hbm(struct rig *r, unsigned client, uint64_t lease, uint32_t shard)
{
    struct loc_ctx x = {.r = r, .shard = shard};
    ck_assert_int_eq(core_lease_locs_hbm(r->core, r->cl[client], lease, shard, check_loc, &x), 0);
    return x.hbm;
}

void rig_release(struct rig *r, unsigned client, const struct core_held *held)
{
    ck_assert_int_eq(core_release(r->core, r->cl[client], held->lease), 0);
    core_check(r->core);
}

struct core_hbm_stats rig_hbm_stats(const struct rig *r, unsigned device)
{
    struct core_hbm_stats st;
    core_hbm_stats(r->core, device, &st);
    return st;
}

uint64_t rig_device_slots(const struct rig *r, unsigned device)
{
    struct tier_stats st;
    r->devices[device]->slots->ops->stats(r->devices[device]->slots, &st);
    return st.used_slots;
}

uint64_t rig_slots(const struct rig *r)
{
    struct tier_stats st;
    r->cfg.tier[CORE_HOST]->ops->stats(r->cfg.tier[CORE_HOST], &st);
    return st.used_slots;
}

static void keep_row(void *ctx, const struct kvc_block_info *x)
{
    *(struct kvc_block_info *)ctx = *x;
}

static void add_record(struct core *c, const struct block *b, struct rig_block *x)
{
    const uint64_t until = retain_until(c->retain, block_no(c, b));
    x->level = retain_level(c->retain, block_no(c, b));
    x->level_left_ms = until ? MAX(until, c->now_ms + 1) - c->now_ms : 0;
    x->pins = b->pins;
    x->pinned_in_memory = b->host_pins > 0;
    x->durable = b->state == BLOCK_PRESENT && block_is_durable(b);
    if (x->tier & KVC_TIER_HOST)
        c->cfg.tier[CORE_HOST]->memory->view(c->cfg.tier[CORE_HOST], copy_loc(c, b, CORE_HOST, 0),
                                             &x->view);
}

struct rig_block rig_explain(struct rig *r, unsigned client, uint32_t ns, uint32_t chain,
                             uint32_t i)
{
    const struct key256 key = rig_key(chain, i);
    uint64_t cursor = 0;
    uint32_t places = 1;
    struct rig_block x = {.row.state = 99};
    const struct core_walk in = {.ns = ns,
                                 .mode = KVC_WALK_KEYS,
                                 .key = key.b,
                                 .keys = 1,
                                 .limit = UINT32_MAX,
                                 .places = &places};
    ck_assert_int_eq(core_walk(r->core, r->cl[client], &in, keep_row, &x.row, &cursor), 0);
    ck_assert_uint_ne(x.state, 99);
    ck_assert_uint_eq(cursor, 0);
    if (x.state != KVC_BLOCK_ABSENT)
        add_record(r->core, index_get(r->core, ns_by_id(r->core, x.ns), x.group, key.b), &x);
    return x;
}

/* ---- devices ---- */

struct device_pool *rig_pool(struct rig *r, unsigned device, struct core_ns *ns, uint32_t pages_max)
{
    struct core_ns_view v;
    struct fake_pool_group group[KVC_GROUPS_MAX];
    core_ns_view(ns, &v);
    for (uint32_t g = 0; g < v.spec->ngroups; g++) {
        const uint32_t bytes = v.spec->group[g].block_bytes;
        ck_assert_uint_eq(bytes % (RIG_LAYERS * RIG_PAGES), 0);
        group[g] = (struct fake_pool_group){.pages_per_block = RIG_PAGES,
                                            .regions = RIG_LAYERS,
                                            .page_bytes = bytes / RIG_LAYERS / RIG_PAGES};
    }
    return fake_pool_create(r->device[device], pages_max, v.spec->ngroups, group);
}

static void on_filled(struct core_fill *f)
{
    struct rig_fill *x = (struct rig_fill *)(void *)f;
    x->done++;
}

int rig_fill(struct rig *r, unsigned client, uint64_t lease, unsigned device, uint32_t shard,
             struct rig_fill *ret_fill)
{
    *ret_fill = (struct rig_fill){.f = {.lease = lease,
                                        .device = device,
                                        .shard = shard,
                                        .deadline_ns = r->now_ns + 1000000000,
                                        .done = on_filled}};
    return core_fill_start(r->core, r->cl[client], &ret_fill->f);
}

static void on_sent(struct core_send *s)
{
    struct rig_send *x = (struct rig_send *)(void *)s;
    x->done++;
}

int rig_send(struct rig *r, unsigned client, const struct core_held *held, unsigned device,
             struct device_pool *pool, uint32_t page, struct rig_send *x)
{
    x->done = x->n = 0;
    x->pool = pool;
    x->s = (struct core_send){.lease = held->lease,
                              .transfer = {.device = r->devices[device],
                                           .pool = pool,
                                           .after = x->after,
                                           .deadline_ns = r->now_ns + 1000000000},
                              .ready = x->word,
                              .statuses = x->statuses,
                              .done = on_sent};
    memset(x->statuses, 0xee, sizeof x->statuses);
    uint32_t at = 0;
    for (uint32_t g = 0; g < held->ngroups; g++) {
        x->s.group[g].pages = &x->pages[at];
        x->s.group[g].pages_per_block = RIG_PAGES;
        for (uint32_t i = 0; i < held->group[g].n * RIG_PAGES; i++)
            x->pages[at++] = page++;
        x->n += held->group[g].n;
        ck_assert_uint_le(at, ARRAY_LEN(x->pages));
    }
    return core_send_start(r->core, r->cl[client], &x->s, &r->why);
}

bool rig_has_arrived(const struct rig_send *s, struct core_ns *ns, uint32_t group, uint32_t i,
                     const uint8_t key[32])
{
    struct core_ns_view v;
    uint8_t block[4096];
    core_ns_view(ns, &v);
    const struct core_group *g = &v.spec->group[group];
    ck_assert_uint_le(g->block_bytes, sizeof block);
    fake_pool_get(s->pool, group, s->s.group[group].pages + i * RIG_PAGES, block);
    const bool single = v.spec->shards == 1 || (g->flags & KVC_F_REPLICATED);
    return fake_is_filled(block, g->block_bytes, key, single ? 0 : s->s.shard);
}

int rig_commit_pages(struct rig *r, unsigned client, const struct rig_put *p, unsigned device,
                     struct device_pool *pool, uint32_t page, struct rig_commit *m)
{
    struct core_ns_view v;
    core_ns_view(p->ns, &v);
    const uint32_t bytes = v.spec->group[p->group].block_bytes, ppb = RIG_PAGES;
    uint8_t *block = malloc(bytes);
    const struct core_commit given = m->c;
    *m = (struct rig_commit){.pages = malloc(p->n * ppb * sizeof(uint32_t))};
    ck_assert(m->pages != NULL && block != NULL);
    memcpy(m->statuses, p->statuses, p->n);
    for (uint32_t i = 0; i < p->n; i++) {
        const struct key256 key = rig_key(p->chain, p->first + i);
        for (uint32_t k = 0; k < ppb; k++)
            m->pages[i * ppb + k] = page++;
        fake_fill(block, bytes, key.b, p->shard);
        fake_pool_put(pool, p->group, &m->pages[i * ppb], block);
    }
    free(block);
    m->c = (struct core_commit){
        .reservation = p->reservation,
        .n = p->n,
        .transfer = {.device = r->devices[device], .pool = pool, .after = given.transfer.after},
        .pages = m->pages,
        .pages_per_block = ppb,
        .deadline_ns = r->now_ns + 1000000000,
        .statuses = m->statuses,
        .done = on_done,
        .store = true};
    note_durable(r, p, m);
    return core_commit(r->core, r->cl[client], &m->c, &r->why);
}
