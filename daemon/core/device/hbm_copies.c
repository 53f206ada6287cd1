/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HBM copies: blocks in slots of devices (HBM). Fills make them, sends and leases read them, and a
 * device's own policy evicts them.
 *
 * They are in a table of their own, found by record number, so that a block without any costs one
 * bit. An HBM copy never outlives its record: whoever holds one, or copies to or from it, has a
 * lease on the block.
 */
#include "hbm_table.h"
#include "index.h"

/* ---- the table ---- */

static uint32_t *hbm_copy_bucket_of(const struct hbm_table *t, uint32_t block)
{
    return &t->bucket[block * UINT32_C(2654435761) >> (32 - t->buckets_log2)];
}

static struct hbm_copy *first_of(const struct core *c, const struct block *b)
{
    const uint32_t no = block_no(c, b);
    if (!b->hbm)
        return NULL;
    for (uint32_t i = *hbm_copy_bucket_of(c->hbm, no); i != CORE_NONE; i = hbm_copy_at(c, i)->next)
        if (hbm_copy_at(c, i)->block == no)
            return hbm_copy_at(c, i);
    return NULL;
}

static struct hbm_copy *next_of(const struct core *c, const struct hbm_copy *e)
{
    for (uint32_t i = e->next; i != CORE_NONE; i = hbm_copy_at(c, i)->next)
        if (hbm_copy_at(c, i)->block == e->block)
            return hbm_copy_at(c, i);
    return NULL;
}

struct hbm_copy *hbm_copy_find(const struct core *c, const struct block *b, uint32_t shard,
                               const struct hbm_device *dev)
{
    struct hbm_copy *e = first_of(c, b);
    while (e && (e->shard != shard || &c->hbm->dev[e->device] != dev))
        e = next_of(c, e);
    return e;
}

static void hbm_copy_link(struct core *c, struct hbm_copy *e)
{
    uint32_t *head = hbm_copy_bucket_of(c->hbm, e->block);
    e->next = *head;
    *head = hbm_copy_no(c, e);
    c->blocks[e->block].hbm = 1;
}

static void hbm_copy_unlink(struct core *c, struct hbm_copy *e)
{
    struct block *b = &c->blocks[e->block];
    const uint32_t no = hbm_copy_no(c, e);
    uint32_t *at = hbm_copy_bucket_of(c->hbm, e->block);
    while (*at != no)
        at = &hbm_copy_at(c, *at)->next;
    *at = e->next;
    e->next = CORE_NONE;
    b->hbm = first_of(c, b) != NULL;
}

bool hbm_copy_is_there(const struct core *c, const struct block *b)
{
    const struct hbm_copy *e = first_of(c, b);
    while (e && e->state != COPY_READY)
        e = next_of(c, e);
    return e != NULL;
}

/* Bytes of b's copies on devices. */
static uint64_t hbm_copy_held(struct core *c, const struct block *b)
{
    uint64_t n = 0;
    for (const struct hbm_copy *e = first_of(c, b); e; e = next_of(c, e))
        n++;
    return n * block_group(c, b)->block_bytes;
}

/* ---- an HBM copy's life ---- */

static struct hbm_device *device_of(const struct core *c, const struct hbm_copy *e)
{
    return &c->hbm->dev[e->device];
}

static uint32_t hbm_copy_bytes_of(struct core *c, const struct hbm_copy *e)
{
    return block_group(c, &c->blocks[e->block])->block_bytes;
}

/* Adds the bytes of the HBM copy's slot to those of its namespace; more false: takes them off. */
static void count_room(struct core *c, const struct hbm_copy *e, bool more)
{
    const uint64_t bytes = hbm_copy_bytes_of(c, e);
    block_ns(c, &c->blocks[e->block])->hbm_bytes += more ? bytes : -bytes;
}

static void count_ready(struct core *c, const struct hbm_copy *e, bool more)
{
    struct core_hbm_stats *st = &device_of(c, e)->stats;
    const uint64_t bytes = hbm_copy_bytes_of(c, e), by = more ? bytes : -bytes,
                   one = more ? 1 : -1ull;
    st->blocks += one;
    st->bytes += by;
    c->m.hbm_blocks += one;
    c->m.hbm_bytes += by;
}

/* Sets the HBM copy's state to NONE: lookups do not find it any more. */
static void hbm_copy_void(struct core *c, struct hbm_copy *e)
{
    if (e->state == COPY_NONE)
        return;
    if (e->state == COPY_READY)
        count_ready(c, e, false);
    hbm_copy_unlink(c, e);
    c->cfg.hbm_policy->remove(device_of(c, e)->policy, hbm_copy_no(c, e));
    e->state = COPY_NONE;
}

void hbm_copy_ready(struct core *c, struct hbm_copy *e)
{
    const struct tier *host = c->cfg.tier[CORE_HOST];
    struct tier *slots = device_of(c, e)->device->slots;
    const struct block *b = &c->blocks[e->block];
    const struct tier_op op = {.kind = TIER_SEAL,
                               .loc = e->loc,
                               .bytes = hbm_copy_bytes_of(c, e),
                               .label = block_label(c, b, e->shard),
                               .sum = host->ops->sum(host, copy_loc(c, b, CORE_HOST, e->shard))};
    MUST(e->state == COPY_FILLING && e->copies == 1);
    slots->ops->set_label(slots, &op);
    e->state = COPY_READY;
    e->copies = 0;
    count_ready(c, e, true);
    device_of(c, e)->stats.fills++;
    c->m.hbm_fills++;
    hbm_copy_settle(c, e);
}

void hbm_copy_fail(struct core *c, struct hbm_copy *e)
{
    struct tier *slots = device_of(c, e)->device->slots;
    MUST(e->state != COPY_READY && e->copies == 1);
    c->m.hbm_failures++;
    hbm_copy_void(c, e);
    slots->ops->free(slots, e->loc);
    count_room(c, e, false);
    e->loc = (struct tier_loc){0};
    e->copies = 0;
    hbm_copy_settle(c, e);
}

static void hbm_copy_free(struct core *c, struct hbm_copy *e)
{
    struct tier *slots = device_of(c, e)->device->slots;
    MUST(e->holds == 0 && e->copies == 0 && list_empty(&e->waiters));
    hbm_copy_void(c, e);
    if (e->loc.id) {
        slots->ops->free(slots, e->loc);
        count_room(c, e, false);
    }
    pool_put(c->hbm->entries, e);
}

void hbm_copy_settle(struct core *c, struct hbm_copy *e)
{
    if (e->holds > 0 || e->copies > 0)
        return;
    if (e->state == COPY_NONE || c->blocks[e->block].state != BLOCK_PRESENT)
        hbm_copy_free(c, e);
    else
        c->cfg.hbm_policy->release(device_of(c, e)->policy, hbm_copy_no(c, e), false);
}

void hbm_copy_hear(struct core *c, struct block *b, const struct block_change *x)
{
    (void)x;
    for (struct hbm_copy *e = first_of(c, b), *next; e; e = next) {
        next = next_of(c, e);
        hbm_copy_settle(c, e);
    }
}

void hbm_copy_invalidate_one(struct core *c, struct hbm_copy *e)
{
    struct tier *slots = device_of(c, e)->device->slots;
    if (e->state == COPY_READY)
        slots->ops->invalidate(slots, e->loc);
    hbm_copy_void(c, e);
    hbm_copy_settle(c, e);
}

void hbm_copy_invalidate(struct core *c, struct block *b)
{
    for (struct hbm_copy *e = first_of(c, b), *next; e; e = next) {
        next = next_of(c, e);
        hbm_copy_invalidate_one(c, e);
    }
}

/* ---- room ---- */

static bool can_go(void *ctx, uint32_t no)
{
    const struct core *c = ctx;
    const struct hbm_copy *e = hbm_copy_at(c, no);
    return e->state == COPY_READY && e->holds == 0 && e->copies == 0;
}

static void hbm_copy_drop(struct core *c, struct hbm_copy *e)
{
    device_of(c, e)->stats.drops++;
    c->m.hbm_drops++;
    hbm_copy_free(c, e);
}

/* The device's next victim; NULL: none can be evicted. */
static struct hbm_copy *next_victim(struct core *c, struct hbm_device *dev)
{
    if (!dev->policy)
        return NULL;
    const uint32_t no = c->cfg.hbm_policy->victim(dev->policy, 0, c->now_ms, can_go, c);
    return no == POLICY_NO_BLOCK ? NULL : hbm_copy_at(c, no);
}

/* Evicts one HBM copy, to free its entry: of this device, or of another if none here can go. */
static bool drop_some(struct core *c, struct hbm_device *dev)
{
    struct hbm_copy *e = next_victim(c, dev);
    for (uint32_t i = 0; !e && i < c->hbm->ndevices; i++)
        e = next_victim(c, &c->hbm->dev[i]);
    if (e)
        hbm_copy_drop(c, e);
    return e != NULL;
}

struct hbm_ask {
    struct slot_ask ask;
    struct hbm_device *dev;
};

static int hbm_copy_make(struct core *c, struct slot_ask *ask, uint32_t *in_vain)
{
    struct hbm_copy *e = next_victim(c, CONTAINER_OF(ask, struct hbm_ask, ask)->dev);
    if (!e)
        return KVC_E_FULL;
    *in_vain += slot_is_vain(ask, e->loc);
    hbm_copy_drop(c, e);
    return 0;
}

static void evacuate_occupant(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    struct core *c = ctx;
    struct hbm_copy *e = hbm_copy_at(c, block_no);
    if (e && e->loc.id == loc.id && can_go(c, block_no))
        hbm_copy_drop(c, e);
}

static uint32_t hbm_copy_evacuate(struct core *c, struct slot_ask *ask)
{
    return ask->tier->memory->evacuate(ask->tier, ask->principal, ask->bytes, false,
                                       evacuate_occupant, c);
}

/* Takes a slot on the device for HBM copy `no`, next to `beside` if possible. */
static int slot_beside(struct core *c, struct hbm_device *dev, const struct block *b, uint32_t no,
                       struct tier_loc beside, struct tier_loc *ret_loc)
{
    struct hbm_ask n = {.ask = {.tier = dev->device->slots,
                                .principal = block_ns(c, b)->principal,
                                .bytes = block_group(c, b)->block_bytes,
                                .block_no = no,
                                .beside = beside,
                                .make = hbm_copy_make,
                                .evacuate = hbm_copy_evacuate},
                        .dev = dev};
    return slot_take(c, &n.ask, ret_loc);
}

uint64_t hbm_copy_hash(struct core *c, const struct block *b, uint32_t shard)
{
    return index_hash(c, b->ns, b->group, b->key.b) + shard * UINT64_C(0x9e3779b97f4a7c15);
}

/* Tells the device's policy of a new HBM copy. */
static void tell_new(struct core *c, struct hbm_device *dev, const struct hbm_copy *e)
{
    const struct block *b = &c->blocks[e->block];
    const struct hbm_copy *above = NULL;
    if (b->parent != CORE_NONE)
        above = hbm_copy_find(c, &c->blocks[b->parent], e->shard, dev);
    const struct policy_hint hint = {.hash = hbm_copy_hash(c, b, e->shard),
                                     .parent = above ? hbm_copy_no(c, above) : POLICY_NO_BLOCK,
                                     .depth = b->depth,
                                     .bytes = hbm_copy_bytes_of(c, e),
                                     .used_ms = c->now_ms};
    c->cfg.hbm_policy->insert(dev->policy, hbm_copy_no(c, e), &hint, c->now_ms);
}

int hbm_copy_take(struct core *c, struct hbm_device *dev, const struct block *b, uint32_t shard,
                  struct tier_loc beside, struct hbm_copy **ret_copy)
{
    struct hbm_table *t = c->hbm;
    struct hbm_copy *e = pool_get(t->entries);
    while (!e && drop_some(c, dev))
        e = pool_get(t->entries);
    if (!e)
        return KVC_E_FULL;
    struct tier_loc loc;
    int err = slot_beside(c, dev, b, hbm_copy_no(c, e), beside, &loc);
    if (err) {
        pool_put(t->entries, e);
        return err;
    }
    *e = (struct hbm_copy){.block = block_no(c, b),
                           .gen = b->gen,
                           .serial = ++t->serial,
                           .loc = loc,
                           .copies = 1,
                           .device = (uint8_t)(dev - t->dev),
                           .shard = (uint8_t)shard,
                           .state = COPY_FILLING};
    list_init(&e->waiters);
    hbm_copy_link(c, e);
    count_room(c, e, true);
    tell_new(c, dev, e);
    *ret_copy = e;
    return 0;
}

/* ---- leases ---- */

static int hold_in(struct core *c, const struct core_client *cl, struct run_list *list,
                   struct hbm_copy *e)
{
    int err = run_push(c, client_no(c, cl), list, hbm_copy_no(c, e), e->serial);
    if (!err)
        e->holds++;
    return err;
}

int hbm_copy_hold(struct core *c, struct lease *l, struct hbm_copy *e)
{
    return hold_in(c, l->client, &l->hbm, e);
}

static struct hbm_copy *hbm_device_serving(struct core *c, const struct hbm_device *dev,
                                           const struct core_seq *seq, const struct block *b)
{
    struct hbm_copy *e = hbm_copy_find(c, b, hbm_shard(c, b, seq->on_shard), dev);
    return e && e->state == COPY_READY ? e : NULL;
}

const struct hbm_device *hbm_copy_serving(const struct core *c, const struct core_seq *seq)
{
    const struct hbm_device *dev = hbm_device_of(c, seq->on);
    return dev && dev->policy && dev->device->ops->up(dev->device) ? dev : NULL;
}

bool hbm_copy_serves(struct core *c, const struct hbm_device *dev, const struct core_seq *seq,
                     const struct block *b)
{
    return b->hbm && hbm_device_serving(c, dev, seq, b);
}

int hbm_copy_lease(struct core *c, struct lease *l, const struct hbm_device *dev,
                   const struct core_seq *seq, const struct block *b)
{
    struct hbm_copy *e = hbm_device_serving(c, dev, seq, b);
    MUST(e != NULL);
    l->hbm_device = e->device;
    return hbm_copy_hold(c, l, e);
}

int hbm_copy_load(struct core *c, struct core_load *l, const struct hbm_device *dev,
                  const struct core_seq *seq, struct block *b)
{
    int err = hold_in(c, l->client, &l->hbm, hbm_device_serving(c, dev, seq, b));
    if (!err)
        block_hold(c, b);
    return err;
}

void hbm_copy_mark(struct core *c, const struct lease *l, bool mine)
{
    struct run_iter it = run_begin(c, &l->hbm);
    for (const struct run_entry *r; (r = run_next(c, &it));) {
        struct hbm_copy *e = hbm_copy_at(c, r->block);
        MUST(e && e->serial == r->gen);
        e->mine = mine;
    }
}

/* Releases a list of holds. with_block: each hold is one on its block, too. */
static void let_go_of(struct core *c, const struct core_client *cl, struct run_list *list,
                      bool with_block)
{
    run_reverse(c, list); /* the policy is told of the deepest first */
    struct run_iter it = run_begin(c, list);
    for (const struct run_entry *r; (r = run_next(c, &it));) {
        struct hbm_copy *e = hbm_copy_at(c, r->block);
        MUST(e && e->serial == r->gen && e->holds > 0);
        struct block *b = &c->blocks[e->block];
        e->holds--;
        hbm_copy_settle(c, e);
        if (with_block)
            block_unhold(c, b);
    }
    run_free(c, client_no(c, cl), list);
}

void hbm_copy_let_go(struct core *c, struct lease *l)
{
    let_go_of(c, l->client, &l->hbm, false);
}

void hbm_copy_unload(struct core *c, struct core_load *l)
{
    let_go_of(c, l->client, &l->hbm, true);
}

/* ---- events of devices ---- */

/* The device has failed: all its HBM copies are void. Their readers notice by the generation;
 * copies in flight end with an error. */
static void hbm_copy_on_lost(void *ctx, struct device *device)
{
    struct core *c = ctx;
    const uint32_t n = pool_count(c->hbm->entries);
    for (uint32_t i = 0; i < n; i++) {
        struct hbm_copy *e = hbm_copy_at(c, i);
        if (!e || e->state == COPY_NONE || device_of(c, e)->device != device)
            continue;
        c->m.hbm_lost += e->state == COPY_READY;
        hbm_copy_void(c, e);
        hbm_copy_settle(c, e);
    }
}

/* Nothing waits for a device: each fill asks whether it is up. */
static void on_up(void *ctx, struct device *device)
{
    (void)ctx;
    (void)device;
}

void core_hbm_stats(const struct core *c, uint32_t device, struct core_hbm_stats *ret_stats)
{
    MUST(device < c->cfg.ndevices);
    *ret_stats = c->hbm->dev[device].stats;
}

/* ---- memory ---- */

struct sizes {
    uint64_t table, bucket, policy, piece, what; /* what: also the size of `from` */
    uint64_t line, held;                         /* of each device */
    uint32_t jobs, buckets_log2;
};

static uint32_t jobs_each(const struct core_config *cfg)
{
    return cfg->device_copies ? cfg->device_copies : TRANSFERS_AUTO;
}

static struct policy_config policy_of(const struct core_config *cfg, uint32_t device)
{
    return (struct policy_config){
        .blocks_max = cfg->hbm_max, .lists_max = 1, .seed = cfg->policy_seed + device + 1};
}

static struct sizes sizes_of(const struct core_config *cfg)
{
    const struct policy_config policy = policy_of(cfg, 0);
    struct sizes z = {.table = sizeof(struct hbm_table), .buckets_log2 = 4};
    while (z.buckets_log2 < 31 && UINT32_C(1) << z.buckets_log2 < cfg->hbm_max)
        z.buckets_log2++;
    z.bucket = sizeof(uint32_t) << z.buckets_log2;
    z.policy = cfg->hbm_max > 0 ? cfg->hbm_policy->mem_bytes(&policy) : 0;
    z.jobs = cfg->ndevices * jobs_each(cfg);
    z.piece = (uint64_t)z.jobs * CORE_SEND_BLOCKS * sizeof(struct device_piece);
    z.what = (uint64_t)z.jobs * CORE_SEND_BLOCKS * sizeof(uint32_t);
    z.line = cfg->clients_max * sizeof(struct transfer_line);
    z.held = (cfg->clients_max + MAX(cfg->principals_max, 1u)) * sizeof(uint64_t);
    return z;
}

uint64_t hbm_bytes(const struct core_config *cfg)
{
    if (cfg->ndevices == 0)
        return 0;
    const struct sizes z = sizes_of(cfg);
    return z.table + z.bucket + cfg->ndevices * (z.policy + z.line + z.held) + z.piece +
           2 * z.what + pool_bytes_for(sizeof(struct hbm_copy), MAX(cfg->hbm_max, 1u)) +
           pool_bytes_for(sizeof(struct transfer_job), z.jobs);
}

/* Runs for the HBM copies that leases and loads hold: enough for two holders of each copy. */
uint32_t hbm_runs(const struct core_config *cfg)
{
    return cfg->ndevices == 0 ? 0 : cfg->hbm_max / (CORE_RUN_ENTRIES / 2) + 2 * cfg->leases_max;
}

/* Creates the shares of jobs, and the queues, of a device. */
static int create_turns(struct core *c, struct hbm_device *dev, const struct sizes *z)
{
    const uint32_t clients = c->cfg.clients_max, principals = MAX(c->cfg.principals_max, 1u);
    const uint32_t jobs = c->hbm->jobs_each, fenced = jobs - jobs / 4;
    const bool fair = c->cfg.fair;
    list_init(&dev->lines);
    dev->line = core__pages(z->line);
    if (!dev->line)
        return -ENOMEM;
    for (uint32_t i = 0; i < clients; i++) {
        list_init(&dev->line[i].node);
        list_init(&dev->line[i].ready);
        list_init(&dev->line[i].fenced);
    }
    int err = share_create(&dev->share, jobs, fair ? share_each(jobs, principals) : 0, principals);
    if (err)
        return err;
    return share_create(&dev->fenced, fenced, fair ? share_each(fenced, clients) : 0, clients);
}

static int create_device(struct core *c, uint32_t i, const struct sizes *z)
{
    struct hbm_device *dev = &c->hbm->dev[i];
    const struct policy_config policy = policy_of(&c->cfg, i);
    MUST(c->cfg.devices[i]->no == i);
    dev->device = c->cfg.devices[i];
    dev->device->events = (struct device_events){.ctx = c, .lost = hbm_copy_on_lost, .up = on_up};
    int err = create_turns(c, dev, z);
    if (err)
        return err;
    if (!dev->device->slots || c->cfg.hbm_max == 0)
        return 0;
    dev->policy_mem = core__pages(z->policy);
    if (!dev->policy_mem)
        return -ENOMEM;
    dev->policy = c->cfg.hbm_policy->init(dev->policy_mem, &policy);
    return 0;
}

static int create_pools(struct core *c, const struct sizes *z)
{
    struct hbm_table *t = c->hbm;
    int err =
        pool_create(&t->entries, "HBM copies", sizeof(struct hbm_copy), MAX(c->cfg.hbm_max, 1u));
    if (!err)
        err = pool_create(&t->jobs, "copies of devices", sizeof(struct transfer_job), z->jobs);
    return err;
}

static int hbm_create(struct core *c)
{
    if (c->cfg.ndevices == 0)
        return 0;
    MUST(c->cfg.ndevices <= DEVICES_MAX && (c->cfg.hbm_max == 0 || c->cfg.hbm_policy));
    const struct sizes z = sizes_of(&c->cfg);
    struct hbm_table *t = core__pages(z.table);
    if (!t)
        return -ENOMEM;
    c->hbm = t;
    list_init(&t->in_flight);
    t->ndevices = c->cfg.ndevices;
    t->jobs_each = jobs_each(&c->cfg);
    t->buckets_log2 = z.buckets_log2;
    t->bucket = core__pages(z.bucket);
    t->piece = core__pages(z.piece);
    t->what = core__pages(z.what);
    t->from = core__pages(z.what);
    if (!t->bucket || !t->piece || !t->what || !t->from)
        return -ENOMEM;
    memset(t->bucket, 0xff, z.bucket); /* CORE_NONE */
    int err = create_pools(c, &z);
    for (uint32_t i = 0; !err && i < t->ndevices; i++)
        err = create_device(c, i, &z);
    return err;
}

bool hbm_is_still(const struct core *c)
{
    return !c->hbm || list_empty(&c->hbm->in_flight);
}

static void hbm_destroy(struct core *c)
{
    struct hbm_table *t = c->hbm;
    if (!t)
        return;
    const struct sizes z = sizes_of(&c->cfg);
    pool_destroy(&t->entries);
    pool_destroy(&t->jobs);
    for (uint32_t i = 0; i < t->ndevices; i++) {
        share_destroy(&t->dev[i].share);
        share_destroy(&t->dev[i].fenced);
        core__pages_put(t->dev[i].line, z.line);
        core__pages_put(t->dev[i].policy_mem, z.policy);
    }
    core__pages_put(t->bucket, z.bucket);
    core__pages_put(t->piece, z.piece);
    core__pages_put(t->what, z.what);
    core__pages_put(t->from, z.what);
    core__pages_put(t, z.table);
    c->hbm = NULL;
}

const struct core_module hbm_module = {.create = hbm_create, .destroy = hbm_destroy};

void room_places(struct core *c, const struct block *b, struct core_places *places)
{
    const bool there = b->state == BLOCK_PRESENT; /* not PRESENT: its shards are in memory */
    places->host += !there || copy_there(b, CORE_HOST) ? block_bytes_present(c, b) : 0;
    places->disk += there && copy_there(b, CORE_STORAGE) ? block_bytes(c, b) : 0;
    places->hbm += hbm_copy_held(c, b);
}

struct hbm_device *hbm_device_of(const struct core *c, const struct device *device)
{
    if (!c->hbm || !device || device->no >= c->hbm->ndevices)
        return NULL;
    struct hbm_device *dev = &c->hbm->dev[device->no];
    return dev->device == device ? dev : NULL;
}
