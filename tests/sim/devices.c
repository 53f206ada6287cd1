/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices in front: engines, one a principal, that hold leases, have them filled on devices and
 * sent to their pages, and store out of pages; given to the core as services give them. With copies
 * that end late, fail or are cancelled, engines that die under them, and devices that are lost.
 */
#include "devices.h"

#include <stdlib.h>

#define DEVICES 2u
#define LEASES  12u
#define FILLS   6u
#define SENDS   6u
#define STORES  6u
#define ASKS    4u
#define REGION  512u /* bytes of slots */

struct engine {
    struct core_client *cl; /* NULL: it is gone, and idle */
    bool closing;
};

struct held {
    bool used;
    uint32_t engine, shard;
    uint32_t losses; /* of its device, when it was given */
    struct sim_seq seq;
    struct core_held held;
};

/* An acquire that waits for what is on disk alone, and on no device of its engine's. */
struct ask {
    struct core_waiter w; /* first */
    struct sim *sim;
    bool used;
    uint32_t ns; /* id */
    struct held held;
};

struct fill {
    struct core_fill f; /* first */
    struct sim *sim;
    bool used;
};

struct send {
    struct core_send s; /* first */
    struct sim *sim;
    bool used, cancelled;
    struct held held;
    struct device_pool *pool;
    uint32_t *pages[SIM_GROUPS];
    _Atomic uint64_t after, ready;
    uint8_t statuses[SIM_GROUPS * SIM_BLOCKS];
};

struct store {
    struct core_commit c; /* first */
    struct sim *sim;
    bool used;
    struct device_pool *pool;
    uint32_t *pages;
    _Atomic uint64_t after;
    uint8_t statuses[SIM_BLOCKS];
};

struct sim_hbm {
    struct fake_device *device[DEVICES];
    struct device *devices[DEVICES];
    uint32_t losses[DEVICES];
    bool reads_there; /* engines say in an acquire on which device they read */
    struct engine engine[SIM_PRINCIPALS];
    struct held lease[LEASES];
    struct ask ask[ASKS];
    struct fill fill[FILLS];
    struct send send[SENDS];
    struct store store[STORES];
};

bool sim_with_hbm;

/* ---- sizes: of what there is to store, 1 % on devices, 5 % in host memory, 20 % on disk ---- */

static uint64_t all_bytes(const struct sim *s, uint64_t *ret_blocks)
{
    uint64_t bytes = 0, blocks = 0;
    for (uint32_t i = 0; i < s->swarm.specs; i++)
        for (uint32_t g = 0; g < s->spec[i].ngroups; g++) {
            const uint64_t n = (uint64_t)SIM_PRINCIPALS * s->swarm.chains * SIM_BLOCKS;
            bytes += n * sim_block_bytes(s, i, g);
            blocks += n * (sim_block_bytes(s, i, g) / s->spec[i].groups[g].block_bytes);
        }
    *ret_blocks = blocks;
    return bytes;
}

static uint32_t regions_of(uint64_t bytes, uint32_t least)
{
    return MIN(MAX((uint32_t)(bytes / REGION), least), 1000u);
}

void sim_hbm_choose(struct sim *s, struct fake_disk_config *disk)
{
    uint64_t slots;
    const uint64_t bytes = all_bytes(s, &slots);
    s->tier_cfg.region_bytes = REGION;
    s->tier_cfg.regions = regions_of(bytes / 20, 4);
    disk->slots = MAX((uint32_t)slots / 5, 8u);
    disk->region_slots = MAX(disk->slots / 16, 4u);
    s->hbm = calloc(1, sizeof *s->hbm);
    MUST(s->hbm != NULL);
    s->hbm_regions = regions_of(bytes / 100 / DEVICES, 1);
}

void sim_hbm_begin(struct sim *s)
{
    unsigned policies = 0;
    while (policy_at(policies))
        policies++;
    for (uint32_t i = 0; i < DEVICES; i++) {
        const struct fake_device_config device = {.no = i,
                                                  .regions = s->hbm_regions,
                                                  .region_bytes = REGION,
                                                  .seed = s->seed + 3 + i,
                                                  .host = s->tier};
        s->hbm->device[i] = fake_device_create(&device);
        s->hbm->devices[i] = fake_device_of(s->hbm->device[i]);
    }
    s->core_cfg.devices = s->hbm->devices;
    s->core_cfg.ndevices = DEVICES;
    s->core_cfg.hbm_max = sim_rnd(s, 3) ? 1000 : 1 + sim_rnd(s, 30);
    s->core_cfg.hbm_policy = policy_at(sim_rnd(s, policies));
    /* Moduli without a common factor: each with each of the others, what ships (as many copies as
     * the core takes by itself, all checked) among them. */
    s->core_cfg.device_copies = s->seed % 3 ? 1 + (uint32_t)(s->seed % 5) : 0; /* who waits */
    s->core_cfg.hbm_verify = s->seed % 4 != 0;
    s->core_cfg.clients_max += SIM_PRINCIPALS;
    /* Of seven seeds one does without: it draws as before that was there. */
    s->hbm->reads_there = s->seed % 7 != 6;
}

/* ---- engines ---- */

static void on_idle(void *ctx)
{
    struct engine *e = ctx;
    *e = (struct engine){.cl = NULL};
}

/* NULL: it is dying, or there is no place for it. */
static struct engine *engine_of(struct sim *s, uint32_t principal)
{
    struct engine *e = &s->hbm->engine[principal];
    const struct svc_principal *p = &sim_principals[principal];
    const struct core_identity who = {.principal = principal + 1,
                                      .name = p->name,
                                      .tenant = p->tenant,
                                      .gateway = p->gateway,
                                      .admin = p->admin};
    if (!e->cl && core_client_open(s->core, &who, on_idle, e, &e->cl) != 0)
        e->cl = NULL;
    return e->cl && !e->closing ? e : NULL;
}

static void die(struct sim *s, uint32_t principal)
{
    struct engine *e = &s->hbm->engine[principal];
    if (!e->cl || e->closing)
        return;
    for (uint32_t i = 0; i < LEASES; i++)
        if (s->hbm->lease[i].engine == principal)
            s->hbm->lease[i].used = false;
    for (uint32_t i = 0; i < ASKS; i++)
        if (s->hbm->ask[i].used && s->hbm->ask[i].held.engine == principal) {
            core_waiter_cancel(s->core, &s->hbm->ask[i].w);
            s->hbm->ask[i].used = false;
        }
    e->closing = true;
    for (uint32_t i = 0; i < SENDS; i++)
        if (s->hbm->send[i].held.engine == principal)
            s->hbm->send[i].cancelled = true;
    SIM_TRACE(s, "engine %u dies", principal);
    core_client_close(s->core, e->cl);
}

/* A client that is connected, to know a namespace by. */
static const struct sim_client *some_client(struct sim *s)
{
    const struct sim_client *cl = &s->client[sim_rnd(s, SIM_CLIENTS)];
    return cl->state == CL_READY ? cl : NULL;
}

/* ---- what stands in a lease's blocks ---- */

struct walk {
    struct sim *s;
    const struct held *h;
    uint32_t shard, group, i, hbm;
};

static void wanted(struct sim *s, const struct held *h, uint32_t group, uint32_t i, uint32_t shard,
                   uint8_t key[KVC_KEY_BYTES], uint8_t *want)
{
    const struct msg_group *g = &s->spec[h->seq.space.spec].groups[group];
    sim_key(s, h->seq.chain, g->block_tokens,
            sim_end_of(s, &h->seq, group, h->held.group[group].first + i), key);
    sim_fill(&h->seq.space, group, key, g->flags & KVC_F_REPLICATED ? 0 : shard, want,
             g->block_bytes);
}

static void on_loc(void *ctx, const struct tier_view *v)
{
    struct walk *w = ctx;
    struct sim *s = w->s;
    uint8_t key[KVC_KEY_BYTES], want[SIM_SLOT];
    while (w->i == w->h->held.group[w->group].n)
        w->group++, w->i = 0;
    const struct msg_group *g = &s->spec[w->h->seq.space.spec].groups[w->group];
    const uint32_t device = device_of_chunk(v->chunk);
    const struct fake_tier *tier = device ? fake_device_slots(s->hbm->device[device - 1]) : s->tier;
    const uint8_t *at = fake_tier_bytes(tier, v);
    wanted(s, w->h, w->group, w->i, w->shard, key, want);
    SIM_CHECK(s, at, "block %u of group %u of an engine's lease is gone", w->i, w->group);
    SIM_CHECK(s, v->bytes >= g->block_bytes && memcmp(at, want, g->block_bytes) == 0,
              "block %u of group %u of an engine's lease has wrong bytes%s", w->i, w->group,
              device ? " on the device" : "");
    sim_check_seen(s, v, &w->h->seq.space, w->group, key,
                   g->flags & KVC_F_REPLICATED ? 0 : w->shard);
    s->totals->bytes_checked += g->block_bytes;
    s->totals->locs_hbm += device > 0;
    w->hbm += device > 0;
    w->i++;
}

/* False: some of it was in slots alone, and went with the device. */
static bool check_lease(struct sim *s, const struct held *h, uint32_t shard, uint32_t *ret_slots)
{
    struct core_client *cl = s->hbm->engine[h->engine].cl;
    struct walk w = {.s = s, .h = h, .shard = shard};
    int err = core_lease_locs_hbm(s->core, cl, h->held.lease, shard, on_loc, &w);
    const bool is_lost = core_lease_is_lost(s->core, cl, h->held.lease, shard);
    SIM_CHECK(s, err == (is_lost ? KVC_E_GONE : 0), "an engine's lease is lost: %s", err_name(err));
    SIM_CHECK(s, !is_lost || h->losses != s->hbm->losses[h->engine % DEVICES],
              "an engine's lease is nowhere, and its device was not lost");
    s->totals->hbm_only_lost += is_lost;
    *ret_slots = w.hbm;
    return !is_lost;
}

static void looks_right(struct sim *s, const struct held *h)
{
    uint32_t hbm;
    (void)check_lease(s, h, h->shard, &hbm);
}

static void is_filled(struct sim *s, const struct held *h, const struct core_fill *f)
{
    uint32_t hbm;
    SIM_CHECK(s, !check_lease(s, h, f->shard, &hbm) || hbm == f->ret_blocks,
              "a fill says %u blocks, and others are there", f->ret_blocks);
}

/* ---- leases ---- */

static void let_go(struct sim *s, struct held *h)
{
    if (h->used)
        SIM_CHECK(s, core_release(s->core, s->hbm->engine[h->engine].cl, h->held.lease) == 0,
                  "an engine's lease is not there");
    h->used = false;
}

/* The sequence of a lease that its engine is to have. */
static struct core_seq wanted_seq(struct sim *s, struct core_ns *ns, const struct held *h)
{
    struct core_seq seq = sim_core_seq(s, ns, &h->seq);
    if (s->hbm->reads_there) {
        seq.on = s->hbm->devices[h->engine % DEVICES];
        seq.on_shard = h->shard;
    }
    return seq;
}

/* What an acquire has given is kept in the place of another. */
static void keep_lease(struct sim *s, int err, struct held *h, struct held *at)
{
    SIM_CHECK(s, err == 0 || err == KVC_E_LIMIT || err == KVC_E_BUSY, "core_acquire: %s",
              err_name(err));
    sim_ended(s, err, err ? 0 : h->held.prefix.tokens);
    if (err || !h->held.lease)
        return;
    if (!s->hbm->reads_there)
        h->shard = sim_rnd(s, s->spec[h->seq.space.spec].shards);
    h->used = true;
    h->losses = s->hbm->losses[h->engine % DEVICES];
    looks_right(s, h);
    let_go(s, at);
    *at = *h;
}

/* An engine that wants some sequence. NULL: there is none, or it has no namespace. */
static struct engine *some_wish(struct sim *s, const struct sim_client *cl, struct held *h,
                                struct core_ns **ret_ns)
{
    if (!cl || !sim_some_seq(s, cl, &h->seq))
        return NULL;
    *ret_ns = sim_core_ns(s, cl, &h->seq.space);
    struct engine *e = *ret_ns ? engine_of(s, cl->principal) : NULL;
    h->engine = cl->principal;
    if (e && s->hbm->reads_there)
        h->shard = sim_rnd(s, s->spec[h->seq.space.spec].shards);
    return e;
}

static void take_lease(struct sim *s)
{
    const struct sim_client *cl = some_client(s);
    struct held h = {.used = false}, *at = &s->hbm->lease[sim_rnd(s, LEASES)];
    struct core_ns *ns;
    const struct engine *e = some_wish(s, cl, &h, &ns);
    const char *why;
    if (!e)
        return;
    const struct core_acquire in = {.seq = wanted_seq(s, ns, &h)};
    (void)core_prefetch(s->core, &in.seq, 4096);
    keep_lease(s, core_acquire(s->core, e->cl, &in, NULL, &h.held, &why), &h, at);
}

/* All of it has come, or no more will. */
static void on_asked(struct core_waiter *w)
{
    struct ask *x = (struct ask *)(void *)w;
    struct sim *s = x->sim;
    struct core_client *cl = s->hbm->engine[x->held.engine].cl;
    struct core_ns *ns;
    const char *why;
    SIM_CHECK(s, x->used, "an acquire of an engine's is woken twice");
    x->used = false;
    if (core_ns_get(s->core, cl, x->ns, NULL, 0, &ns) != 0) {
        core_waiter_cancel(s->core, w);
        return;
    }
    const struct core_acquire in = {.seq = wanted_seq(s, ns, &x->held)};
    int err = core_acquire(s->core, cl, &in, w, &x->held.held, &why);
    keep_lease(s, err, &x->held, &s->hbm->lease[sim_rnd(s, LEASES)]);
}

static void begin_ask(struct sim *s)
{
    const struct sim_client *cl = some_client(s);
    struct ask *x = &s->hbm->ask[sim_rnd(s, ASKS)];
    struct held h = {.used = false};
    struct core_ns *ns;
    const struct engine *e = x->used ? NULL : some_wish(s, cl, &h, &ns);
    struct core_ns_view v;
    const char *why;
    if (!e)
        return;
    core_ns_view(ns, &v);
    *x = (struct ask){.w.fn = on_asked, .sim = s, .ns = v.id, .held = h};
    const struct core_acquire in = {.seq = wanted_seq(s, ns, &h), .load = true};
    int err = core_acquire(s->core, e->cl, &in, &x->w, &x->held.held, &why);
    x->used = err == 1;
    if (err == 1)
        s->totals->transfer_waits++;
    else
        keep_lease(s, err, &x->held, &s->hbm->lease[sim_rnd(s, LEASES)]);
}

static struct held *some_lease(struct sim *s)
{
    const uint32_t at = sim_rnd(s, LEASES);
    for (uint32_t i = 0; i < LEASES; i++)
        if (s->hbm->lease[(at + i) % LEASES].used)
            return &s->hbm->lease[(at + i) % LEASES];
    return NULL;
}

/* Another's lease on the same, for who reads in host memory. */
static void redeem(struct sim *s)
{
    const struct held *h = some_lease(s);
    struct held other;
    if (!h)
        return;
    struct core_client *cl = s->hbm->engine[h->engine].cl;
    struct walk w = {.s = s, .h = h, .shard = h->shard};
    int err = core_redeem(s->core, cl, h->held.ticket, &other.held);
    SIM_CHECK(s, err == 0 || err == KVC_E_LIMIT || err == KVC_E_BUSY || err == KVC_E_NO_LEASE,
              "core_redeem: %s", err_name(err));
    s->totals->hbm_only_tickets += err == KVC_E_NO_LEASE;
    if (err)
        return;
    err = core_lease_locs(s->core, cl, other.held.lease, h->shard, on_loc, &w);
    SIM_CHECK(s, err == 0 && w.hbm == 0, "a redeemed lease is not in host memory: %s",
              err_name(err));
    SIM_CHECK(s, core_release(s->core, cl, other.held.lease) == 0, "a redeemed lease is not there");
}

/* ---- fills ---- */

static void on_filled(struct core_fill *f)
{
    struct fill *x = (struct fill *)(void *)f;
    struct sim *s = x->sim;
    SIM_CHECK(s, x->used, "a fill ends twice");
    x->used = false;
    sim_ended(s, 0, f->ret_blocks);
    for (uint32_t i = 0; i < LEASES; i++) {
        const struct held *h = &s->hbm->lease[i];
        if (h->used && h->held.lease == f->lease)
            is_filled(s, h, f);
    }
}

static void begin_fill(struct sim *s)
{
    const struct held *h = some_lease(s);
    struct fill *x = &s->hbm->fill[sim_rnd(s, FILLS)];
    if (!h || x->used)
        return;
    *x = (struct fill){.f = {.lease = h->held.lease,
                             .device = h->engine % DEVICES,
                             .shard = h->shard,
                             .deadline_ns = s->now_ns + 1000 * SIM_MS,
                             .done = on_filled},
                       .sim = s,
                       .used = true};
    int err = core_fill_start(s->core, s->hbm->engine[h->engine].cl, &x->f);
    SIM_TRACE(s, "fill of lease %llu on device %u: %d", (unsigned long long)h->held.lease,
              x->f.device, err);
    SIM_CHECK(s, err == 0 || err == 1 || err == KVC_E_BUSY, "core_fill_start: %s", err_name(err));
    x->used = err == 1;
    if (err == 0 && fake_device_is_up(s->hbm->device[x->f.device]))
        is_filled(s, h, &x->f);
    if (err == 1 && sim_rnd(s, 20) == 0) {
        x->used = false;
        core_fill_cancel(s->core, &x->f);
    }
}

/* ---- pages ---- */

static uint32_t *some_pages(struct sim *s, uint32_t bytes, uint32_t n,
                            struct fake_pool_group *ret_shape)
{
    const uint32_t regions = bytes % 4 == 0 ? 4 : 1;
    const uint32_t ppb = bytes / regions % 2 == 0 ? 2 : 1, pages = n * ppb;
    uint32_t *page = calloc(pages + 1, sizeof *page);
    MUST(page != NULL);
    for (uint32_t i = 0; i < pages; i++) {
        const uint32_t k = sim_rnd(s, i + 1);
        page[i] = page[k];
        page[k] = i;
    }
    *ret_shape = (struct fake_pool_group){
        .pages_per_block = ppb, .regions = regions, .page_bytes = bytes / regions / ppb};
    return page;
}

/* ---- sends ---- */

static void send_free(struct send *x)
{
    for (uint32_t g = 0; g < SIM_GROUPS; g++)
        free(x->pages[g]);
    fake_pool_destroy(&x->pool);
    *x = (struct send){.used = false};
}

static uint32_t blocks_of(const struct held *h)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < h->held.ngroups; g++)
        n += h->held.group[g].n;
    return n;
}

static void on_sent(struct core_send *c)
{
    struct send *x = (struct send *)(void *)c;
    struct sim *s = x->sim;
    const uint8_t *status = x->statuses;
    uint8_t key[KVC_KEY_BYTES], want[SIM_SLOT], got[SIM_SLOT];
    SIM_CHECK(s, x->used, "a send ends twice");
    sim_told(s, &s->totals->digest.blocks, x->statuses, blocks_of(&x->held));
    for (uint32_t g = 0; g < x->held.held.ngroups; g++)
        for (uint32_t i = 0; i < x->held.held.group[g].n; i++, status++) {
            const struct msg_group *group = &s->spec[x->held.seq.space.spec].groups[g];
            SIM_CHECK(s,
                      *status == KVC_ST_OK || *status == KVC_ST_TIER || *status == KVC_ST_TIMEOUT ||
                          (*status == KVC_ST_CANCELLED && x->cancelled),
                      "a block is sent with status %u", *status);
            if (*status != KVC_ST_OK)
                continue;
            wanted(s, &x->held, g, i, c->shard, key, want);
            fake_pool_get(x->pool, g, c->group[g].pages + i * c->group[g].pages_per_block, got);
            SIM_CHECK(s, memcmp(got, want, group->block_bytes) == 0,
                      "block %u of group %u has arrived with wrong bytes", i, g);
            s->totals->bytes_checked += group->block_bytes;
            s->totals->blocks_sent++;
        }
    send_free(x);
}

static void begin_send(struct sim *s)
{
    const struct held *h = some_lease(s);
    struct send *x = &s->hbm->send[sim_rnd(s, SENDS)];
    struct fake_pool_group shape[SIM_GROUPS];
    const uint32_t device = sim_rnd(s, DEVICES);
    uint32_t pages = 1;
    const char *why;
    if (!h || x->used)
        return;
    x->sim = s;
    x->held = *h;
    x->s = (struct core_send){
        .lease = h->held.lease,
        .transfer = {.device = s->hbm->devices[device], .deadline_ns = s->now_ns + 1000 * SIM_MS},
        .shard = h->shard,
        .statuses = x->statuses,
        .done = on_sent};
    for (uint32_t g = 0; g < h->held.ngroups; g++) {
        const uint32_t bytes = s->spec[h->seq.space.spec].groups[g].block_bytes;
        x->pages[g] = some_pages(s, bytes, h->held.group[g].n, &shape[g]);
        x->s.group[g].pages = x->pages[g];
        x->s.group[g].pages_per_block = shape[g].pages_per_block;
        pages = MAX(pages, h->held.group[g].n * shape[g].pages_per_block);
    }
    x->pool = fake_pool_create(s->hbm->device[device], pages, h->held.ngroups, shape);
    x->s.transfer.pool = x->pool;
    x->s.ready = sim_rnd(s, 2) ? &x->ready : NULL;
    x->s.transfer.after = (struct device_fence){sim_rnd(s, 3) ? NULL : &x->after, 1};
    int err = core_send_start(s->core, s->hbm->engine[h->engine].cl, &x->s, &why);
    SIM_TRACE(s, "send of lease %llu: %d", (unsigned long long)h->held.lease, err);
    SIM_CHECK(s, err == 1, "core_send_start: %s", err_name(err));
    x->used = err == 1;
    if (err != 1)
        send_free(x);
}

static void cancel_send(struct sim *s)
{
    struct send *x = &s->hbm->send[sim_rnd(s, SENDS)];
    if (!x->used)
        return;
    x->cancelled = true;
    core_cancel(s->core, &x->s.req);
}

/* ---- stores ---- */

static void store_free(struct store *x)
{
    free(x->pages);
    fake_pool_destroy(&x->pool);
    *x = (struct store){.used = false};
}

static void on_stored(struct core_commit *c)
{
    struct store *x = (struct store *)(void *)c;
    SIM_CHECK(x->sim, x->used, "a commit out of pages ends twice");
    sim_told(x->sim, &x->sim->totals->digest.blocks, c->statuses, c->n);
    for (uint32_t i = 0; i < c->n; i++)
        x->sim->totals->blocks_from_pages += x->statuses[i] == KVC_ST_OK;
    store_free(x);
}

static int reserve(struct sim *s, struct engine *e, struct core_ns *ns, const struct sim_span *p,
                   struct store *x)
{
    const struct msg_group *g = &s->spec[p->space.spec].groups[p->group];
    struct core_reserve in = {.ns = ns,
                              .group = p->group,
                              .shard = p->shard,
                              .first_token = p->first * g->block_tokens,
                              .keys = s->keys[0],
                              .n = p->n,
                              .last_tokens = p->last_tokens,
                              .durable = s->disk && sim_rnd(s, 10) == 0};
    const char *why;
    if (p->first && g->rule == KVC_RULE_FULL) {
        sim_key(s, p->chain, g->block_tokens, p->first * g->block_tokens, s->parent);
        in.parent = s->parent;
    }
    for (uint32_t i = 0; i < p->n; i++)
        sim_span_key(s, p, i, &s->keys[0][(size_t)i * KVC_KEY_BYTES]);
    return core_reserve(s->core, e->cl, &in, &x->c.reservation, x->statuses, &why);
}

static void fill_pages(struct sim *s, const struct sim_span *p, struct store *x, uint32_t device)
{
    const struct msg_group *g = &s->spec[p->space.spec].groups[p->group];
    struct fake_pool_group shape[SIM_GROUPS] = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}};
    uint8_t key[KVC_KEY_BYTES], block[SIM_SLOT];
    x->pages = some_pages(s, g->block_bytes, p->n, &shape[p->group]);
    const uint32_t ppb = shape[p->group].pages_per_block;
    x->pool = fake_pool_create(s->hbm->device[device], p->n * ppb, p->group + 1, shape);
    for (uint32_t i = 0; i < p->n; i++) {
        sim_span_key(s, p, i, key);
        sim_fill(&p->space, p->group, key, g->flags & KVC_F_REPLICATED ? 0 : p->shard, block,
                 g->block_bytes);
        fake_pool_put(x->pool, p->group, &x->pages[i * ppb], block);
    }
    x->c.transfer.device = s->hbm->devices[device];
    x->c.transfer.pool = x->pool;
    x->c.pages = x->pages;
    x->c.pages_per_block = ppb;
}

static void begin_store(struct sim *s)
{
    const struct sim_client *cl = some_client(s);
    struct store *x = &s->hbm->store[sim_rnd(s, STORES)];
    struct sim_span p;
    const char *why;
    if (!cl || x->used || !sim_some_span(s, cl, &p))
        return;
    struct core_ns *ns = sim_core_ns(s, cl, &p.space);
    struct engine *e = ns ? engine_of(s, cl->principal) : NULL;
    if (!e || reserve(s, e, ns, &p, x) != 0 || x->c.reservation == 0)
        return;
    x->sim = s;
    x->c = (struct core_commit){.reservation = x->c.reservation,
                                .n = p.n,
                                .deadline_ns = s->now_ns + (1 + sim_rnd(s, 2000)) * SIM_MS,
                                .statuses = x->statuses,
                                .done = on_stored,
                                .store = true};
    fill_pages(s, &p, x, sim_rnd(s, DEVICES));
    x->c.transfer.after = (struct device_fence){sim_rnd(s, 3) ? NULL : &x->after, 1};
    const uint64_t reservation = x->c.reservation;
    x->used = true;
    int err = core_commit(s->core, e->cl, &x->c, &why);
    SIM_TRACE(s, "store of %u blocks out of pages: %d", p.n, err);
    SIM_CHECK(s, err == 0 || err == 1, "core_commit: %s", err_name(err));
    if (err != 1)
        store_free(x);
    err = core_drop(s->core, e->cl, reservation); /* what could not be copied */
    SIM_CHECK(s, err == 0 || err == KVC_E_GONE, "core_drop: %s", err_name(err));
}

static void cancel_store(struct sim *s)
{
    struct store *x = &s->hbm->store[sim_rnd(s, STORES)];
    if (x->used)
        core_cancel(s->core, &x->c.req);
}

/* ---- a turn ---- */

static void words_come(struct sim *s)
{
    for (uint32_t i = 0; i < SENDS; i++)
        atomic_store(&s->hbm->send[i].after, 1);
    for (uint32_t i = 0; i < STORES; i++)
        atomic_store(&s->hbm->store[i].after, 1);
}

void sim_act_hbm(struct sim *s)
{
    static void (*const act[])(struct sim *) = {take_lease,  take_lease,  take_lease, begin_fill,
                                                begin_fill,  begin_send,  begin_send, begin_store,
                                                begin_store, cancel_send, words_come};
    static void (*const more[])(struct sim *) = {begin_ask, begin_ask, redeem};
    const uint32_t kinds = ARRAY_LEN(act);
    if (!s->hbm || s->draining)
        return;
    for (uint32_t n = sim_rnd(s, 3); n > 0; n--) {
        const uint32_t kind = sim_rnd(s, kinds + (s->hbm->reads_there ? ARRAY_LEN(more) : 0));
        (kind < kinds ? act[kind] : more[kind - kinds])(s);
    }
    if (sim_rnd(s, 40) == 0)
        cancel_store(s);
    if (sim_rnd(s, 8) == 0)
        let_go(s, &s->hbm->lease[sim_rnd(s, LEASES)]);
    if (sim_rnd(s, 200) == 0)
        die(s, sim_rnd(s, SIM_PRINCIPALS));
}

void sim_hbm_step(struct sim *s)
{
    for (uint32_t i = 0; s->hbm && i < DEVICES; i++) {
        struct fake_device *d = s->hbm->device[i];
        if (!fake_device_is_up(d) && sim_rnd(s, 30) == 0) {
            fake_device_up(d);
        } else if (sim_rnd(s, 1000) < 1 + s->swarm.outage_pm / 2) {
            s->hbm->losses[i] += fake_device_is_up(d);
            fake_device_lose(d);
        }
        if (sim_rnd(s, 2))
            (void)fake_device_run(d, 1 + sim_rnd(s, 4), s->swarm.fail_pct / 2);
    }
}

void sim_check_hbm(struct sim *s)
{
    if (!s->hbm)
        return;
    const struct held *h = some_lease(s);
    if (h)
        looks_right(s, h);
}

uint64_t sim_hbm_leased(const struct sim *s)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; s->hbm && i < SIM_PRINCIPALS; i++)
        if (s->hbm->engine[i].cl)
            bytes += core_client_lease_bytes(s->hbm->engine[i].cl);
    return bytes;
}

uint64_t sim_hbm_commits(const struct sim *s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; s->hbm && i < STORES; i++)
        n += s->hbm->store[i].used;
    return n;
}

/* ---- end ---- */

uint32_t sim_hbm_inflight(const struct sim *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; s->hbm && i < DEVICES; i++) {
        struct fake_tier *slots = fake_device_slots(s->hbm->device[i]);
        n += fake_device_inflight(s->hbm->device[i]);
        n += slots ? fake_tier_inflight(slots) : 0;
    }
    return n;
}

static bool is_quiet(const struct sim *s)
{
    uint32_t left = s->nflights + sim_hbm_inflight(s);
    for (uint32_t i = 0; i < SIM_PRINCIPALS; i++)
        left += s->hbm->engine[i].cl != NULL;
    return left == 0;
}

void sim_hbm_end(struct sim *s)
{
    if (!s->hbm)
        return;
    for (uint32_t i = 0; i < SIM_PRINCIPALS; i++)
        die(s, i);
    for (uint32_t turn = 0; turn < 1000 && !is_quiet(s); turn++) {
        for (uint32_t i = 0; i < DEVICES; i++) {
            fake_device_up(s->hbm->device[i]);
            (void)fake_device_run(s->hbm->device[i], 100, 0);
        }
        sim_tier_step(s, true);
        sim_disk_step(s, true);
        (void)core_run_done(s->core);
        (void)core_background_step(s->core);
    }
    SIM_CHECK(s, is_quiet(s), "engines do not become idle");
    s->totals->hbm_only += core_metrics(s->core)->hbm_only_hits;
    for (uint32_t i = 0; i < FILLS; i++)
        SIM_CHECK(s, !s->hbm->fill[i].used, "a fill does not end");
    for (uint32_t i = 0; i < SENDS; i++)
        SIM_CHECK(s, !s->hbm->send[i].used, "a send does not end");
    for (uint32_t i = 0; i < STORES; i++)
        SIM_CHECK(s, !s->hbm->store[i].used, "a commit out of pages does not end");
}

void sim_hbm_destroy(struct sim *s)
{
    if (!s->hbm)
        return;
    for (uint32_t i = 0; i < DEVICES; i++)
        fake_device_destroy(&s->hbm->device[i]);
    free(s->hbm);
    s->hbm = NULL;
}
