/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads: blocks that an acquire needs and memory lacks are read from disk, while all blocks that it
 * needs are held. A block that several requests need is read once. Clients take turns at beginning
 * loads.
 */
#include <stdlib.h>

#include "regions.h"
#include "serve.h"

/* Bytes that a client begins to load before another has its turn. */
#define LOAD_TURN_BYTES (UINT64_C(1) << 20)

/* A client's loads. Both lists are empty when its last load has ended, so that a client which gets
 * the number of another needs no set-up. */
struct loader {
    struct list_node node;  /* in core->loaders, while `loads` is not empty */
    struct list_node loads; /* core_load: loads that have blocks to begin */
};

struct loads {
    struct loader *loader; /* by client_no() */
    struct pool *pool;
    struct share share;     /* of loads, by client */
    struct list_node all;   /* core_load: loads that have not ended */
    struct list_node going; /* core_load: ended loads, whose blocks are being released in slices */
};

uint64_t loads_bytes(const struct core_config *cfg)
{
    return pool_bytes_for(sizeof(struct core_load), cfg->leases_max);
}

static struct loader *loader_of(const struct core *c, const struct core_client *cl)
{
    return &c->mod.loads->loader[client_no(c, cl)];
}

static int loads_create(struct core *c)
{
    const struct core_config *cfg = &c->cfg;
    struct loads *l = c->mod.loads;
    l->loader = sys_calloc(cfg->clients_max, sizeof *l->loader);
    if (!l->loader)
        return -ENOMEM;
    for (uint32_t i = 0; i < cfg->clients_max; i++)
        list_init(&l->loader[i].loads);
    list_init(&l->all);
    list_init(&l->going);
    list_init(&c->loaders);
    return core__shared_pool(c, &l->pool, &l->share, "loads", sizeof(struct core_load),
                             cfg->leases_max, cfg->clients_max);
}

static void loads_destroy(struct core *c)
{
    free(c->mod.loads->loader);
    core__shared_pool_free(&c->mod.loads->pool, &c->mod.loads->share);
}

const struct core_module loads_module = {CORE_STATE(loads), .create = loads_create,
                                         .destroy = loads_destroy};

const struct pool *load_pool(const struct core *c)
{
    return c->mod.loads->pool;
}

bool loads_are_going(const struct core *c)
{
    return !list_empty(&c->mod.loads->going);
}

bool load_is_ready(struct core *c, const struct find *f, uint32_t from)
{
    if (f->seq->absent)
        return true;
    for (uint32_t g = 0; g < f->seq->ngroups; g++) {
        uint32_t first, end;
        find_lease(f, g, from, &first, &end);
        for (uint32_t i = first; i < end; i++)
            if (!find_ready(c, f, &c->blocks[c->lookup.found[f->at[g] + i]]))
                return false;
    }
    return true;
}

/* Subtracts bytes that are begun, or will not be, from those that the load has yet to begin. */
static void want_less(struct core *c, struct core_load *l, uint64_t bytes)
{
    bytes = MIN(bytes, l->wanted);
    l->wanted -= bytes;
    c->moving.wanted_bytes -= bytes;
}

/* Releases the load's blocks, `all` or until the slice is over. True: some are left. */
static bool load_unhold(struct core *c, struct core_load *l, bool all)
{
    struct run_iter it = run_at(c, &l->blocks, l->freed);
    for (; l->freed < l->blocks.n; l->freed++) {
        if (!all && slice_over(c))
            return true;
        c->work.done += WORK_LOOK;
        block_unhold(c, &c->blocks[run_next(c, &it)->block]);
    }
    return false;
}

static void load_put(struct core *c, struct core_load *l)
{
    list_remove(&l->all);
    run_free(c, client_no(c, l->client), &l->blocks);
    share_put(&c->mod.loads->share, client_no(c, l->client), c->mod.loads->pool, l);
}

void load_free(struct core *c, struct core_load *l)
{
    struct loader *loader = loader_of(c, l->client);
    want_less(c, l, UINT64_MAX);
    hbm_copy_unload(c, l);
    list_remove(&l->node);
    list_remove(&l->all);
    if (list_empty(&loader->loads))
        list_remove(&loader->node);
    if (l->waiter)
        l->waiter->load = NULL;
    if (l->blocks.n <= c->work.end_left) {
        c->work.end_left -= l->blocks.n;
        (void)load_unhold(c, l, true);
        load_put(c, l);
        return;
    }
    l->going = true;
    l->client->going++;
    list_push_back(&c->mod.loads->going, &l->all);
}

bool load_step(struct core *c)
{
    struct list_node *node = list_first(&c->mod.loads->going);
    if (!node)
        return false;
    struct core_load *l = CONTAINER_OF(node, struct core_load, all);
    struct core_client *cl = l->client;
    work_slice(c);
    if (load_unhold(c, l, false))
        return true;
    load_put(c, l);
    cl->going--;
    core__client_settle(c, cl);
    return loads_are_going(c);
}

void load_cancel_all(struct core *c, const struct core_client *cl)
{
    struct core_load *l;
    POOL_FOR_EACH (l, i, c->mod.loads->pool)
        if (l->client == cl && !l->going)
            load_free(c, l);
}

struct core_load *load_new(struct core *c, struct core_client *cl)
{
    struct core_load *l = share_get(&c->mod.loads->share, client_no(c, cl), c->mod.loads->pool);
    if (!l)
        return NULL;
    l->client = cl;
    run_init(&l->blocks);
    run_init(&l->hbm);
    return l;
}

/* If b is in a slot of the load's device and not in memory, its HBM copy is held instead. */
int load_add(struct core *c, struct core_load *l, const struct find *f, struct block *b,
             uint32_t holds, uint64_t *left, const char **ret_why)
{
    const uint64_t bytes = block_bytes(c, b);
    l->bytes += bytes;
    if (!block_may_be_held(b))
        return KVC_E_LIMIT;
    if (!block_ready(b) && find_ready(c, f, b) && hbm_copy_load(c, l, f->hbm, f->seq, b) == 0)
        return 0;
    int err = unevictable_hold(c, f->seq->ns, b, left);
    if (err)
        return unevictable_refused(err, ret_why);
    err = run_push(c, client_no(c, l->client), &l->blocks, block_no(c, b), b->gen);
    if (err)
        return err;
    block_hold(c, b);
    l->lacks += !block_ready(b);
    if (b->host_copy != COPY_NONE || (b->holds > 1 + holds && !b->hbm))
        return 0; /* a block that is read on a device is not loaded */
    l->wanted += bytes;
    c->moving.wanted_bytes += bytes;
    return 0;
}

/* Holds the blocks that the prefix needs. */
static int load_hold(struct core *c, struct core_load *l, const struct find *f, uint32_t from,
                     const char **ret_why)
{
    uint64_t left = 0;
    for (uint32_t g = 0; g < f->seq->ngroups; g++) {
        uint32_t first, end;
        find_lease(f, g, from, &first, &end);
        for (uint32_t i = first; i < end; i++) {
            const int err =
                load_add(c, l, f, &c->blocks[c->lookup.found[f->at[g] + i]], 0, &left, ret_why);
            if (err)
                return err;
        }
    }
    return 0;
}

int load_go(struct core *c, struct core_load *l, struct core_waiter *waiter)
{
    struct loader *loader = loader_of(c, l->client);
    if (l->client->lease_bytes + l->bytes > c->cfg.lease_bytes_max)
        return KVC_E_LIMIT;
    l->begin = run_begin(c, &l->blocks);
    l->pass = l->begin;
    l->block = CORE_NONE;
    l->waiter = waiter;
    waiter->load = l;
    waiter->keys = l->blocks.n + l->hbm.n;
    if (list_empty(&loader->loads))
        list_push_back(&c->loaders, &loader->node);
    list_push_back(&loader->loads, &l->node);
    list_push_back(&c->mod.loads->all, &l->all);
    c->m.loads++;
    c->m.blocks_hit_loaded += l->lacks;
    load_pump(c);
    return 1;
}

int load_start(struct core *c, struct core_client *cl, const struct find *f, uint32_t from,
               struct core_waiter *waiter, const char **ret_why)
{
    if (waiter->load || f->tokens <= from)
        return 0;
    struct core_load *l = load_new(c, cl);
    if (!l)
        return 0;
    int err = load_hold(c, l, f, from, ret_why);
    if (!err)
        err = load_go(c, l, waiter);
    if (err == 1)
        return 1;
    load_free(c, l);
    return err == KVC_E_LIMIT ? err : 0;
}

/* ---- progress ---- */

static struct block *entry_block(struct core *c, const struct run_entry *e)
{
    struct block *b = &c->blocks[e->block];
    return b->gen == e->gen && b->state == BLOCK_PRESENT ? b : NULL;
}

static void load_end(struct core *c, struct core_load *l)
{
    list_remove(&l->all);
    list_push_back(&c->woken, &l->waiter->node);
}

/* Passes blocks whose loads have ended; calls the waiter after the last one. */
static void load_advance(struct core *c, struct core_load *l)
{
    if (!list_is_linked(&l->all))
        return;
    l->block = CORE_NONE;
    while (l->passed < l->begun) {
        struct run_iter at = l->pass;
        const struct run_entry *e = run_next(c, &at);
        struct block *b = entry_block(c, e);
        if (b && block_loading(b)) {
            l->block = e->block;
            l->gen = e->gen;
            b->flags |= BLOCK_F_AWAITED;
            return;
        }
        l->pass = at;
        l->passed++;
    }
    if (l->begun == l->blocks.n)
        load_end(c, l);
}

void load_passed_hear(struct core *c, struct block *b, const struct block_change *x)
{
    (void)x;
    if (!(b->flags & BLOCK_F_AWAITED))
        return;
    block_clear(b, BLOCK_F_AWAITED);
    const uint32_t no = block_no(c, b);
    LIST_FOR_EACH_SAFE (node, next, &c->mod.loads->all) {
        struct core_load *l = CONTAINER_OF(node, struct core_load, all);
        if (l->block == no)
            load_advance(c, l);
    }
}

/* ---- beginning ---- */

/* Begins to read the next blocks of the load. False: no further read can begin now, for any client.
 */
static bool load_some(struct core *c, struct core_load *l)
{
    uint64_t bytes = 0;
    while (l->begun < l->blocks.n && bytes < LOAD_TURN_BYTES) {
        struct run_iter at = l->begin;
        struct block *b = entry_block(c, run_next(c, &at));
        if (b && !block_ready(b) && !block_loading(b)) {
            int err = b->moving > 0 ? KVC_E_BUSY : load_begin(c, b);
            if (err == KVC_E_BUSY)
                return false;
            if (err) { /* no room, or not readable: blocks behind it would be of no use */
                l->begun = l->blocks.n;
                l->passed = MIN(l->passed, l->begun);
                c->m.load_failures++;
                return true;
            }
            bytes += block_bytes(c, b);
            want_less(c, l, block_bytes(c, b));
        }
        l->begin = at;
        l->begun++;
    }
    return true;
}

void load_retry_hear(struct core *c, struct block *b, const struct block_change *x)
{
    (void)b;
    (void)x;
    load_pump(c);
}

void load_pump(struct core *c)
{
    for (struct list_node *node; (node = list_first(&c->loaders));) {
        struct loader *loader = CONTAINER_OF(node, struct loader, node);
        struct core_load *l = CONTAINER_OF(list_first(&loader->loads), struct core_load, node);
        const bool more = load_some(c, l);
        list_remove(&loader->node);
        if (l->begun == l->blocks.n) {
            want_less(c, l, UINT64_MAX);
            list_remove(&l->node);
        }
        if (!list_empty(&loader->loads))
            list_push_back(&c->loaders, &loader->node);
        load_advance(c, l);
        if (!more)
            return;
    }
}

int load_ahead(struct core *c, const struct find *f, struct block *b, uint64_t *left)
{
    if (b->state != BLOCK_PRESENT || find_ready(c, f, b))
        return 0;
    if (block_loading(b))
        return 1;
    const uint64_t bytes = block_bytes(c, b);
    if (bytes > *left || b->moving > 0)
        return KVC_E_BUSY;
    const int err = load_begin(c, b);
    if (err)
        return err;
    *left -= bytes;
    c->m.prefetches++;
    return 1;
}

uint32_t core_prefetch(struct core *c, const struct core_seq *seq, uint64_t bytes_max)
{
    struct find f;
    struct core_prefix prefix;
    uint32_t n = 0;
    if (core_seq_fault(seq) || seq->absent || (!core_stores(c) && c->unchecked == 0))
        return 0;
    find_prefix(c, seq, FIND_ANY, 0, &f, &prefix);
    for (uint32_t g = 0; g < seq->ngroups; g++) {
        uint32_t first, end;
        find_needs(&f, g, f.tokens, &first, &end);
        for (uint32_t i = first; i < end; i++) {
            const int got = load_ahead(c, &f, &c->blocks[c->lookup.found[f.at[g] + i]], &bytes_max);
            if (got < 0)
                return n;
            n += (uint32_t)got;
        }
    }
    return n;
}
