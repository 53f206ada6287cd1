/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores: RESERVE takes room and announces blocks, COMMIT copies them in and publishes them. STORE
 * is both.
 */
#include "cursor.h"
#include "index.h"
#include "regions.h"
#include "serve.h"
#include "transfer_jobs.h"

#define STAGING_ALIGN 64u
#define NO_OFFSET     UINT64_MAX

/* The most operations (core_op) at a time, one for each block that is being committed. And how many
 * of them, for all clients and for one, may wait for words; the rest is kept for blocks that can be
 * copied at once. */
#define OPS_MAX         (4u * KVC_STORE_MAX)
#define OPS_FENCED_MAX  (OPS_MAX / 8 * 3)
#define OPS_FENCED_EACH KVC_STORE_MAX

struct writes {
    struct pool *ops;
    struct share op_share; /* of operations, by client */
    struct share
        fenced_share;         /* operations whose word was not reached when they began; by client */
    struct list_node copying; /* core_op whose bytes are being copied */
};

uint64_t writes_bytes(void)
{
    return pool_bytes_for(sizeof(struct core_op), OPS_MAX);
}

static int writes_create(struct core *c)
{
    const uint32_t clients = c->cfg.clients_max;
    struct writes *w = c->mod.writes;
    list_init(&w->copying);
    const int err = share_create(&w->fenced_share, OPS_FENCED_MAX, 0, clients);
    return err ? err
               : core__shared_pool(c, &w->ops, &w->op_share, "copies", sizeof(struct core_op),
                                   OPS_MAX, clients);
}

static void writes_destroy(struct core *c)
{
    struct writes *w = c->mod.writes;
    core__shared_pool_free(&w->ops, &w->op_share);
    share_destroy(&w->fenced_share);
}

const struct core_module writes_module = {CORE_STATE(writes), .create = writes_create,
                                          .destroy = writes_destroy};

const struct pool *op_pool(const struct core *c)
{
    return c->mod.writes->ops;
}

uint32_t ops_fenced(const struct core *c)
{
    return (uint32_t)c->mod.writes->fenced_share.used;
}

struct core_op *op_at(const struct core *c, uint32_t no)
{
    return pool_at(c->mod.writes->ops, no);
}

/* ---- reserve ---- */

static const char *reserve_fault(struct core *c, const struct core_reserve *in)
{
    const struct core_ns *ns = in->ns;
    if (in->group >= ns->spec.ngroups)
        return "group: no such group in the namespace";
    const struct core_group *g = &ns->spec.group[in->group];
    if (in->shard >= ns->spec.shards)
        return "shard: the namespace has fewer shards";
    if (in->n < 1 || in->n > KVC_STORE_MAX)
        return "keys: 1 to 4096 in one request";
    if (in->last_tokens > g->block_tokens)
        return "last_tokens: more than block_tokens";
    if (in->first_token % g->block_tokens)
        return "first_token: not a multiple of block_tokens";
    if (in->durable && !core_stores(c))
        return "durable: there is no storage tier (nvme.paths)";
    const char *why = in->retention ? wish_fault(in->retention) : NULL;
    if (why)
        return why;
    if (g->rule != KVC_RULE_FULL)
        return NULL;
    if ((in->parent == NULL) != (in->first_token == 0))
        return "parent: required when first_token is above 0, and only then";
    if (!in->parent)
        return NULL;
    const struct block *p = index_get(c, ns, in->group, in->parent);
    if (p && p->tokens < g->block_tokens)
        return "parent: is partly filled, so nothing can follow it";
    return NULL;
}

static int resv_take_part(struct core_reserving *x, struct block *b, struct alloc_request *w)
{
    struct core *c = x->core;
    const uint64_t claims = x->client->claim_bytes + x->group->block_bytes;
    if (c->cfg.claim_bytes_max && claims > c->cfg.claim_bytes_max)
        return KVC_E_FULL;
    int err = unevictable_take(c, x->in.ns, unevictable_by_part(c, b), &x->left);
    if (err)
        return err;
    struct part *p = pool_get(c->parts);
    for (unsigned tries = 0; !p && !err && tries < 64; tries++) {
        err = evict_one(c, x->in.ns->account, w);
        p = pool_get(c->parts);
    }
    if (!p)
        return err ? err : KVC_E_FULL;
    struct tier_loc loc;
    err = host_take(c, b, w, &loc);
    if (!err) {
        err = regions_admit_new(c, b, &loc);
        if (!err)
            err = run_push(c, client_no(c, x->client), &x->r->blocks, block_no(c, b), b->gen);
        if (err)
            copy_give(c, b, CORE_HOST, loc);
    }
    if (err) {
        pool_put(c->parts, p);
        return err;
    }
    const uint64_t was = unevictable_change(c, b);
    *p = (struct part){.loc = loc,
                       .next = b->where,
                       .resv = pool_index(resv_pool(c), x->r),
                       .shard = (uint8_t)x->shard,
                       .state = PART_RESERVED};
    b->where = pool_index(c->parts, p);
    b->used = core__stamp(c);
    unevictable_changed(c, b, was);
    x->beside = loc;
    x->r->open++;
    x->client->claim_bytes = claims;
    c->m.blocks_reserved++;
    return 0;
}

/* Takes over the claim of a late writer on part p, with its room. */
static int resv_take_over(struct core_reserving *x, struct block *b, struct part *p)
{
    struct core *c = x->core;
    struct reservation *late = part_resv(c, p);
    const uint32_t bytes = x->group->block_bytes;
    const uint64_t claims = x->client->claim_bytes + bytes;
    if (late->client != x->client && c->cfg.claim_bytes_max && claims > c->cfg.claim_bytes_max)
        return KVC_E_FULL;
    int err = run_push(c, client_no(c, x->client), &x->r->blocks, block_no(c, b), b->gen);
    if (err)
        return err;
    p->resv = pool_index(resv_pool(c), x->r);
    x->beside = p->loc;
    x->r->open++;
    x->client->claim_bytes += bytes;
    late->client->claim_bytes -= bytes;
    resv_close_entry(c, late);
    c->m.blocks_taken_over++;
    return 0;
}

static int new_record(struct core *c, uint32_t account, struct alloc_request *w,
                      struct block **ret_block)
{
    int err = 0;
    while (!(*ret_block = block_new(c, BLOCK_PENDING)) && !err)
        err = evict_one(c, account, w);
    return *ret_block ? 0 : err;
}

/* How the block of key i is taken into memory. The continuation of a named conversation is taken
 * whatever it is worth, because it is to be named again. So is a block within its principal's
 * promised part. */
static struct alloc_request alloc_request_of(struct core_reserving *x, uint32_t i,
                                             const struct block *b, const struct block *parent)
{
    struct core *c = x->core;
    struct alloc_request w = {.beside = x->beside};
    if (x->judged && !x->asked && parent)
        x->judged = !block_goes_on(c, parent);
    x->asked = true;
    if (!x->judged || room_is_promised(c, x->in.ns, x->group->block_bytes))
        return w;
    struct core_wish wish;
    w.judged = true;
    w.level = wish_of(&x->in, x->group->block_tokens, i, &wish) ? wish.level : RETAIN_DEFAULT;
    w.hint = block_hint(c, b, parent ? block_no(c, parent) : POLICY_NO_BLOCK,
                        parent ? parent->depth + 1 : 0, &x->in.cost);
    return w;
}

/* Takes a record and room for key i, and announces the block below `parent`, which may be NULL. */
static int write_announce(struct core_reserving *x, uint32_t i, uint32_t tokens,
                          struct block *parent, struct block **ret_block)
{
    struct core *c = x->core;
    const uint8_t *key = x->in.keys + (size_t)i * KVC_KEY_BYTES;
    uint64_t left = 0;
    int err = parent && chains_are_held(c) ? unevictable_hold(c, x->in.ns, parent, &left) : 0;
    if (err)
        return err;
    if (parent) {
        /* With storage the blocks before it may leave memory for it; they count as used when all
         * have room. */
        if (!core_stores(c))
            block_touch_path(c, parent);
        block_hold(c, parent); /* so that making room does not evict it */
    }
    const struct block new = {.key = *(const struct key256 *)key,
                              .ns = (uint16_t)(x->in.ns - c->ns),
                              .group = x->in.group & 0xfu,
                              .tokens = tokens & 0x1ffffu};
    struct alloc_request w = alloc_request_of(x, i, &new, parent);
    struct block *b;
    c->work.done += WORK_BLOCK;
    err = new_record(c, x->in.ns->account, &w, &b);
    if (b) {
        b->key = new.key;
        b->ns = new.ns;
        b->group = new.group;
        b->tokens = new.tokens;
        err = resv_take_part(x, b, &w);
        if (err)
            block_abandon(c, b);
        else
            block_link(c, b, parent, &x->in.cost);
    }
    if (parent)
        block_unhold(c, parent);
    if (err)
        return err;
    *ret_block = b;
    return 0;
}

/* The entry of the index for a key is prefetched so many keys before it is read. */
#define RESERVE_AHEAD 2u

/* Not a status of a block: the slice is over, and the next one looks at the key again. */
#define STATUS_PAUSED UINT8_MAX

/* The status of a block for which taking room failed with `err`. */
static uint8_t write_refusal(struct core *c, int err)
{
    if (evict_paused(c))
        return STATUS_PAUSED;
    c->m.reserve_full += err != KVC_E_QUOTA && err != KVC_E_NOT_WORTH;
    c->m.reserve_not_worth += err == KVC_E_NOT_WORTH;
    c->m.quota_refused += err == KVC_E_QUOTA;
    switch (err) {
    case KVC_E_NOT_WORTH:
        return KVC_ST_NOT_WORTH;
    case KVC_E_TOO_LARGE:
        return KVC_ST_TOO_LARGE;
    case KVC_E_BUSY:
        return KVC_ST_BUSY;
    case KVC_E_QUOTA:
        return KVC_ST_QUOTA;
    default:
        return KVC_ST_FULL;
    }
}

/* Whether b, or a block that it builds on, cannot be read now because its path is out of service.
 */
static bool chain_is_cut(struct core *c, const struct block *b)
{
    while (b->state != BLOCK_PRESENT || block_reachable(c, b)) {
        if (b->parent == CORE_NONE)
            return false;
        b = &c->blocks[b->parent];
    }
    return true;
}

static uint8_t reserve_present(struct core_reserving *x, struct block *b)
{
    struct core *c = x->core;
    if (!block_reachable(c, b)) {
        x->cut = x->in.durable && x->group->rule == KVC_RULE_FULL;
        return KVC_ST_TIER;
    }
    c->m.blocks_touched++;
    if (x->in.durable && !block_promised(b))
        promise_begin(c, b);
    if (x->group->rule != KVC_RULE_FULL) /* of a chain all blocks are touched from its last one */
        block_touch(c, b);
    return KVC_ST_EXISTS;
}

/* Handles one key; `*block` is the block before it and becomes this one. */
static uint8_t reserve_one(struct core_reserving *x, uint32_t i, struct block **block)
{
    struct core *c = x->core;
    const struct core_reserve *in = &x->in;
    const uint8_t *key = in->keys + (size_t)i * KVC_KEY_BYTES;
    uint32_t bt = x->group->block_tokens;
    uint32_t tokens = i == in->n - 1 && in->last_tokens ? in->last_tokens : bt;
    if (in->n - i > RESERVE_AHEAD)
        index_prefetch(c, index_hash(c, (uint32_t)(in->ns - c->ns), in->group,
                                     key + (size_t)RESERVE_AHEAD * KVC_KEY_BYTES));
    struct block *b = index_get(c, in->ns, in->group, key);
    struct block *parent = *block;
    c->work.done += WORK_LOOK;
    if (b && b->tokens != tokens) { /* a key names its tokens: one of the two is wrong */
        *block = NULL;
        return KVC_ST_BAD_ARGUMENT;
    }
    if (b) {
        *block = b;
        if (b->state == BLOCK_PRESENT)
            return reserve_present(x, b);
        struct part *p = block_part(c, b, x->shard);
        if (p && !part_is_late(c, p)) {
            b->flags |= in->durable ? BLOCK_F_DURABLE_WANTED : 0u;
            return KVC_ST_PENDING;
        }
        if (x->cut)
            return KVC_ST_TIER;
        int err = p ? resv_take_over(x, b, p) : 0;
        if (p)
            return err ? write_refusal(c, err) : KVC_ST_OK;
        block_hold(c, b); /* so that making room does not evict it: perhaps only its other
                           * shards are there */
        struct alloc_request w = {.beside = x->beside};
        err = resv_take_part(x, b, &w);
        block_unhold(c, b);
        if (!err)
            return KVC_ST_OK;
        return err == KVC_E_QUOTA || evict_paused(c) ? write_refusal(c, err) : KVC_ST_FULL;
    }
    bool full = x->group->rule == KVC_RULE_FULL;
    if (full && !parent && (i > 0 || in->parent))
        return KVC_ST_NO_PARENT;
    int err = 0;
    if (full && parent && parent->state == BLOCK_PRESENT)
        err = climb_step(c, &x->climb, parent, &x->r->held);
    if (err) {
        *block = NULL;
        return err == CORE_MORE ? STATUS_PAUSED : write_refusal(c, err);
    }
    if (full && x->cut) {
        *block = NULL;
        return KVC_ST_TIER;
    }
    err = write_announce(x, i, tokens, full ? parent : NULL, block);
    if (!err)
        return KVC_ST_OK;
    *block = NULL;
    return write_refusal(c, err);
}

/* Whether new blocks are judged. With storage they are not, because victims are written there. With
 * several groups or shards they are not either: a hit needs a block of each, and each would be
 * judged by itself. */
static bool is_judged(const struct core *c, const struct core_reserve *in,
                      const struct core_group *g)
{
    return c->admission && in->judged && !core_stores(c) && in->ns->spec.ngroups == 1 &&
           group_shards(in->ns, g) == 1;
}

static void reserve_wish(struct core_reserving *x, uint32_t i, struct block *b)
{
    struct core_wish wish;
    if (!wish_of(&x->in, x->group->block_tokens, i, &wish))
        return;
    x->core->m.wishes++;
    wish_add(x->core, b, &wish, false);
}

int core_reserve_begin(struct core *c, struct core_client *cl, struct core_reserving *x,
                       const char **ret_why)
{
    const struct core_reserve *in = &x->in;
    if ((*ret_why = reserve_fault(c, in)))
        return KVC_E_BAD_ARGUMENT;
    struct reservation *r = resv_new(c, cl);
    if (!r)
        return KVC_E_BUSY;
    const struct core_group *g = &in->ns->spec.group[in->group];
    *x = (struct core_reserving){.in = x->in,
                                 .statuses = x->statuses,
                                 .core = c,
                                 .client = cl,
                                 .group = g,
                                 .r = r,
                                 .ns_id = in->ns->id,
                                 .judged = is_judged(c, in, g)};
    x->shard = group_shards(in->ns, g) == 1 ? 0 : in->shard;
    r->ns = in->ns;
    r->group = in->group;
    r->shard = (uint8_t)x->shard;
    r->durable = in->durable;
    r->open = r->busy = 1; /* until the last slice */
    r->held = CORE_NONE;
    x->before = block_seen(c, in->parent ? index_get(c, in->ns, in->group, in->parent) : NULL);
    x->last = x->before;
    const struct block *parent = seen_block(c, x->before);
    x->cut = in->durable && g->rule == KVC_RULE_FULL && parent && chain_is_cut(c, parent);
    return 0;
}

/* Holds the block before the next key until the next slice, as within a slice. A block that is
 * being written has a writer, and needs no hold. CORE_MORE: it is not held yet. */
static int reserving_hold(struct core_reserving *x)
{
    struct core *c = x->core;
    struct block *b = seen_block(c, x->before);
    if (b && b->state == BLOCK_PRESENT)
        return climb_step(c, &x->climb, b, &x->r->held);
    climb_let_go(c, &x->r->held);
    return 0;
}

/* While keys name stored blocks of a chain, the hold moves on to the last of these. */
static void reserving_move_on(struct core_reserving *x, struct block *b)
{
    struct core *c = x->core;
    if (chains_are_held(c) && b && b->state == BLOCK_PRESENT && b->parent == x->r->held)
        (void)!climb_hold(c, b, &x->r->held); /* the reserve goes on without this hold */
}

static struct block *reserving_resume(struct core_reserving *x)
{
    struct block *b = seen_block(x->core, x->before);
    /* The room beside a block that was removed meanwhile belongs to another. */
    if (x->at > 0 && !(b && b->state == BLOCK_PENDING && block_part(x->core, b, x->shard)))
        x->beside = (struct tier_loc){0};
    return b;
}

/* Ends the reserve when a pool is empty: all further keys get this status, and have no entry. */
static void reserving_cut(struct core_reserving *x, uint8_t status)
{
    memset(x->statuses + x->at, status, x->in.n - x->at);
    x->at = x->in.n;
}

static void reserving_one(struct core_reserving *x, struct block **before)
{
    struct core *c = x->core;
    struct reservation *r = x->r;
    struct block *const parent = *before;
    const uint32_t pushed = r->blocks.n, i = x->at;
    const uint8_t status = x->stopped ? x->stopped : reserve_one(x, i, before);
    if (status == STATUS_PAUSED) {
        *before = parent;
        return;
    }
    x->statuses[i] = status;
    if (*before && !x->stopped)
        reserve_wish(x, i, *before);
    /* Entry i of the list is key i: keys without a claim get an entry that matches no record. */
    if (r->blocks.n == pushed && run_push(c, client_no(c, x->client), &r->blocks, 0, 0) != 0) {
        reserving_cut(x, KVC_ST_BUSY);
        return;
    }
    if (status == KVC_ST_FULL || status == KVC_ST_QUOTA || status == KVC_ST_NOT_WORTH)
        x->stopped = status;
    if (status == KVC_ST_BUSY)
        x->stopped = KVC_ST_FULL;
    x->before = block_seen(c, *before);
    if (*before)
        x->last = x->before;
    reserving_move_on(x, *before);
    x->at++;
}

static void reserving_end(struct core_reserving *x)
{
    struct core *c = x->core;
    struct reservation *r = x->r;
    struct block *last = seen_block(c, x->last);
    r->n = r->blocks.n;
    climb_let_go(c, &r->held);
    if (last)
        block_touch_path(c, last);
    x->ret_reservation = r->open > 1 ? r->id : 0;
    /* All blocks that earlier slices announced were removed since: no status may say that they are
     * reserved. */
    for (uint32_t i = 0; !x->ret_reservation && i < x->in.n; i++)
        if (x->statuses[i] == KVC_ST_OK)
            x->statuses[i] = KVC_ST_GONE;
    r->busy = 0;
    x->r = NULL; /* the reservation may be freed */
    resv_close_entry(c, r);
}

bool core_reserve_step(struct core_reserving *x)
{
    struct core *c = x->core;
    struct block *before = reserving_resume(x);
    work_slice(c);
    c->work.looks_left = looks_of_slice(c);
    x->left = 0;                  /* other requests may have taken these bytes since */
    if (x->in.ns->id != x->ns_id) /* it was removed, and another namespace has its slot */
        reserving_cut(x, KVC_ST_GONE);
    bool more = x->climb.tip.gen != 0 && reserving_hold(x) == CORE_MORE;
    while (x->at < x->in.n && !more) {
        reserving_one(x, &before);
        more = x->at < x->in.n && (slice_over(c) || evict_paused(c));
        /* Without a hold the key is first in the next slice, where there may be room for it
         * again. */
        const int err = more ? reserving_hold(x) : 0;
        if (err && err != CORE_MORE)
            x->climb = (struct core_climb){.n = 0};
    }
    if (more) {
        c->work.looks_left = LOOKS_NO_END;
        return true;
    }
    c->work.looks_left = LOOKS_NO_END;
    reserving_end(x);
    return false;
}

void core_reserve_cancel(struct core_reserving *x)
{
    if (x->r) {
        climb_let_go(x->core, &x->r->held);
        resv_go_busy(x->core, x->r);
        return;
    }
    /* After its last slice: a STORE that has not begun its copies. */
    struct reservation *r = resv_by_id(x->core, x->client, x->ret_reservation);
    if (r)
        resv_go(x->core, r);
}

int core_reserve(struct core *c, struct core_client *cl, const struct core_reserve *in,
                 uint64_t *ret_reservation, uint8_t *statuses, const char **ret_why)
{
    struct core_reserving x = {.in = *in, .statuses = statuses};
    int err = core_reserve_begin(c, cl, &x, ret_why);
    if (err)
        return err;
    while (core_reserve_step(&x))
        continue;
    *ret_reservation = x.ret_reservation;
    return 0;
}

/* ---- commit ---- */

uint8_t core__copy_status(int err)
{
    switch (err) {
    case 0:
        return KVC_ST_OK;
    case -ECANCELED:
        return KVC_ST_CANCELLED;
    case -ETIMEDOUT:
        return KVC_ST_TIMEOUT;
    case -EINVAL: /* a page number */
        return KVC_ST_BAD_ARGUMENT;
    default:
        return KVC_ST_TIER;
    }
}

static uint8_t op_land(struct core *c, const struct core_op *o, struct block *b)
{
    if (b->state != BLOCK_PENDING)
        return KVC_ST_GONE;
    if (o->op.status != 0) {
        if (o->op.status != -ECANCELED)
            c->m.copy_failures++;
        block_kill_tree(c, b, KVC_MISS_DROPPED);
        return core__copy_status(o->op.status);
    }
    struct part *p = pool_at(c->parts, o->part);
    c->cfg.tier[CORE_HOST]->ops->set_label(c->cfg.tier[CORE_HOST], &o->op);
    p->state = PART_DONE;
    p->disk = (struct tier_loc){0};
    c->m.bytes_stored += o->op.bytes;
    c->m.blocks_from_pages += o->op.kind == TIER_SEAL;
    c->m.bytes_from_pages += o->op.kind == TIER_SEAL ? o->op.bytes : 0;
    if (++b->shards_present == group_shards(block_ns(c, b), block_group(c, b)))
        block_publish(c, b);
    else
        b->used = core__stamp(c);
    return KVC_ST_OK;
}

/* Ends the commit of an entry. */
static void op_finish(struct core *c, struct core_op *o, uint8_t status)
{
    struct core_client *cl = o->client;
    struct core_commit *m = o->commit;
    m->statuses[o->index] = status;
    list_remove(&o->node);
    share_put(&c->mod.writes->op_share, client_no(c, cl), c->mod.writes->ops, o);
    if (--m->left == 0) {
        list_remove(&m->req.node);
        c->m.commits_in_flight--;
        m->done(m);
    }
    cl->copies--; /* last: done() may have closed the client, which lives until its last copy */
    core__client_settle(c, cl);
}

static void on_promised(struct core *c, struct promise *p, uint8_t status)
{
    op_finish(c, CONTAINER_OF(p, struct core_op, promise), status);
}

static void promise_commit(struct core *c, struct core_op *o)
{
    o->promise = (struct promise){.block = o->block,
                                  .gen = c->blocks[o->block].gen,
                                  .cancel = &o->op.cancel,
                                  .done = on_promised};
    promise_add(c, &o->promise);
}

static void op_done(struct tier_op *t)
{
    struct core_op *o = CONTAINER_OF(t, struct core_op, op);
    struct core *c = o->core;
    struct block *b = &c->blocks[o->block];
    const bool asked = b->flags & BLOCK_F_DURABLE_WANTED; /* whichever commit asked for it */
    const uint64_t was = unevictable_change(c, b);
    ((struct part *)pool_at(c->parts, o->part))->state =
        PART_RESERVED; /* and no reservation claims it */
    unevictable_changed(c, b, was);
    b->copies--;
    list_remove(&o->node);
    const uint8_t status = op_land(c, o, b);
    block_unheld(c, b);
    if (status == KVC_ST_OK && o->durable) {
        promise_commit(c, o);
    } else {
        if (status == KVC_ST_OK && asked && b->state == BLOCK_PRESENT)
            promise_begin(c, b);
        op_finish(c, o, status);
    }
}

/* Bytes that a device has copied out of pages have no checksum yet: host memory computes it now
 * that they have arrived there. */
void op_copied(struct core *c, struct core_op *o, int status)
{
    struct block *b = &c->blocks[o->block];
    if (o->fenced)
        share_give(&c->mod.writes->fenced_share, client_no(c, o->client), 1);
    o->fenced = false;
    if (!status && atomic_load_explicit(&o->op.cancel, memory_order_relaxed))
        status = -ECANCELED;
    if (status || b->state != BLOCK_PENDING) {
        o->op.status = status;
        op_done(&o->op);
        return;
    }
    const struct part *p = pool_at(c->parts, o->part);
    o->op.label = block_label(c, b, p->shard);
    c->cfg.tier[CORE_HOST]->ops->submit(c->cfg.tier[CORE_HOST], &o->op);
}

/* Whether entry i is to be copied. False: its status is set if it needs one. */
static bool entry_wanted(struct core_commit *m, uint32_t i)
{
    if (m->store && m->statuses[i] != KVC_ST_OK)
        return false;
    if (m->pages || cursor_le64(m->offsets + (size_t)i * 8) != NO_OFFSET)
        return true;
    if (m->store)
        m->statuses[i] = KVC_ST_BAD_ARGUMENT; /* a block that is reserved and left out is not
                                               * stored */
    return false;
}

/* Whether the bytes of entry i lie within staging. */
static bool entry_is_inside(const struct core_commit *m, uint32_t i, uint32_t bytes)
{
    const uint64_t off = cursor_le64(m->offsets + (size_t)i * 8);
    return off % STAGING_ALIGN == 0 && off <= m->staging_bytes && bytes <= m->staging_bytes - off;
}

/* Adds the operation to its commit's list; a device copies the whole list as one job. */
static void commit_op_list(struct core *c, struct core_commit *m, struct core_op *o)
{
    const uint32_t no = pool_index(c->mod.writes->ops, o);
    o->next = CORE_NONE;
    if (m->first_op == CORE_NONE)
        m->first_op = no;
    else
        op_at(c, m->last_op)->next = no;
    m->last_op = no;
}

static void commit_op_submit(struct core *c, struct core_commit *m, struct core_op *o,
                             const struct part *p, uint32_t bytes)
{
    o->op = (struct tier_op){.kind = m->pages ? TIER_SEAL : TIER_PUT,
                             .loc = p->loc,
                             .bytes = bytes,
                             .deadline_ns = m->deadline_ns,
                             .done = op_done};
    if (m->pages) {
        commit_op_list(c, m, o);
        return;
    }
    o->op.src = m->staging + cursor_le64(m->offsets + (size_t)o->index * 8);
    o->op.label = block_label(c, &c->blocks[o->block], p->shard);
    c->cfg.tier[CORE_HOST]->ops->submit(c->cfg.tier[CORE_HOST], &o->op);
}

/* Starts the copy of one entry. False: no copy was started, and the entry's status says why. */
static bool commit_one(struct core *c, struct core_commit *m, bool fenced, struct reservation *r,
                       const struct run_entry *e, uint32_t i)
{
    c->work.done += WORK_LOOK;
    if (!entry_wanted(m, i))
        return false;
    struct block *b;
    struct part *p = resv_entry_part(c, r, e, &b);
    if (!p) {
        m->statuses[i] = KVC_ST_GONE;
        return false;
    }
    uint32_t bytes = block_group(c, b)->block_bytes;
    if (!m->pages && !entry_is_inside(m, i, bytes)) {
        m->statuses[i] = KVC_ST_BAD_ARGUMENT;
        return false;
    }
    struct core_op *o =
        share_get(&c->mod.writes->op_share, client_no(c, m->client), c->mod.writes->ops);
    if (!o) {
        m->statuses[i] = KVC_ST_BUSY;
        return false;
    }
    *o = (struct core_op){.core = c,
                          .client = m->client,
                          .commit = m,
                          .index = i,
                          .durable = r->durable,
                          .fenced = fenced,
                          .block = block_no(c, b),
                          .part = pool_index(c->parts, p)};
    c->work.done += WORK_BLOCK;
    p->state = PART_COPYING;
    p->resv = CORE_NONE;
    m->client->claim_bytes -= bytes;
    b->copies++;
    m->client->copies++;
    m->left++;
    list_push_back(&c->mod.writes->copying, &o->node);
    commit_op_submit(c, m, o, p, bytes);
    return true;
}

/* Checks whether a commit out of pages can begin: 0, or an error with *ret_why. *ret_fenced: its
 * word is not reached yet, so its n entries count as fenced. */
static int commit_out_of_pages(struct core *c, const struct core_commit *m,
                               const struct reservation *r, bool *ret_fenced, const char **ret_why)
{
    *ret_fenced = core_commit_is_early(m);
    const uint32_t holder = client_no(c, m->client);
    *ret_why = transfer_store_fault(c, m, r);
    if (*ret_why)
        return KVC_E_BAD_ARGUMENT;
    if (!*ret_fenced)
        return 0;
    if (c->mod.writes->fenced_share.held[holder] + m->n <= OPS_FENCED_EACH &&
        share_take(&c->mod.writes->fenced_share, holder, m->n))
        return 0;
    *ret_why = "too many blocks are to be stored when their words come (4096 of one session, 6144 "
               "of all); go on when some have been";
    return KVC_E_BUSY;
}

bool core_commit_is_early(const struct core_commit *m)
{
    return device_fence_is_pending(&m->transfer.after);
}

static void commit_cancel(struct core *c, struct core_req *req);
static const struct core_req_kind commit_req = {.cancel = commit_cancel};

int core_commit_begin(struct core *c, struct core_client *cl, struct core_commit *m,
                      const char **ret_why)
{
    struct reservation *r = resv_by_id(c, cl, m->reservation);
    if (!r)
        return KVC_E_GONE;
    /* A reserve that ran out of a pool has fewer entries than keys; their statuses say so. */
    uint32_t end = m->store ? MIN(m->n, r->n) : m->first + m->n;
    if (m->first > r->n || m->n > KVC_STORE_MAX || end > r->n) {
        *ret_why = "first, offsets: outside the reservation's keys";
        return KVC_E_BAD_ARGUMENT;
    }
    m->client = cl;
    m->left = 0;
    m->first_op = m->last_op = CORE_NONE;
    list_init(&m->transfer.node);
    m->fenced = false;
    int err = m->pages ? commit_out_of_pages(c, m, r, &m->fenced, ret_why) : 0;
    if (err)
        return err;
    progress_made(c, r, !m->store);
    m->left = 1; /* until the last slice */
    m->slicing = r;
    m->at = m->first;
    m->end = end;
    r->open++;
    r->busy++;
    req_begin(cl, &m->req, &commit_req);
    c->m.commits_in_flight++;
    return 0;
}

/* After its last slice: what core_commit() returns. */
static int commit_sliced(struct core *c, struct core_commit *m)
{
    struct reservation *r = m->slicing;
    m->slicing = NULL;
    r->busy--;
    resv_close_entry(c, r);
    m->left--;
    if (m->fenced) /* entries that are not copied are not counted */
        share_give(&c->mod.writes->fenced_share, client_no(c, m->client), m->n - m->left);
    if (m->first_op != CORE_NONE)
        transfer_store_begin(c, m);
    if (m->left > 0)
        return 1;
    list_remove(&m->req.node);
    c->m.commits_in_flight--;
    return 0;
}

int core_commit_step(struct core *c, struct core_commit *m)
{
    struct reservation *r = m->slicing;
    struct run_iter it = run_at(c, &r->blocks, m->at);
    work_slice(c);
    for (; m->at < m->end; m->at++) {
        if (slice_over(c))
            return CORE_MORE;
        const struct run_entry *e = run_next(c, &it);
        MUST(e != NULL);
        if (commit_one(c, m, m->fenced, r, e, m->at - m->first))
            resv_close_entry(c, r);
    }
    /* Entries that a store has reserved and does not copy (a bad offset, an empty pool) are
     * dropped: nobody would commit them. */
    if (m->store && resv_drop_some(c, r))
        return CORE_MORE;
    return commit_sliced(c, m);
}

int core_commit(struct core *c, struct core_client *cl, struct core_commit *m, const char **ret_why)
{
    int rc = core_commit_begin(c, cl, m, ret_why);
    if (rc)
        return rc;
    do
        rc = core_commit_step(c, m);
    while (rc == CORE_MORE);
    return rc;
}

/* Cancels a commit between slices: further entries are not copied. True: no copy is in flight, and
 * done() has run. */
static bool commit_cut(struct core *c, struct core_commit *m)
{
    for (uint32_t i = m->at - m->first; i < m->end - m->first; i++)
        if (entry_wanted(m, i))
            m->statuses[i] = KVC_ST_CANCELLED;
    m->at = m->end;
    for (bool more = m->store; more; more = resv_drop_some(c, m->slicing))
        work_slice(c);
    if (commit_sliced(c, m) == 1)
        return false;
    m->done(m);
    return true;
}

static void commit_cancel(struct core *c, struct core_req *req)
{
    struct core_commit *m = CONTAINER_OF(req, struct core_commit, req);
    if (m->slicing && commit_cut(c, m))
        return;
    LIST_FOR_EACH_SAFE (node, next, &c->mod.writes->copying) {
        struct core_op *o = CONTAINER_OF(node, struct core_op, node);
        if (o->commit == m)
            atomic_store_explicit(&o->op.cancel, true, memory_order_relaxed);
    }
    transfer_store_cancel(c, m);
    for (struct promise *p = promise_next(c, NULL); p; p = promise_next(c, p)) {
        struct core_op *o = CONTAINER_OF(p, struct core_op, promise);
        if (p->name || o->commit != m)
            continue;
        atomic_store_explicit(&o->op.cancel, true, memory_order_relaxed);
        promise_look(c);
    }
}

bool core_commit_lacks_shards(struct core *c, const struct core_commit *m)
{
    uint32_t waiting = 0;
    for (struct promise *p = promise_next(c, NULL); p; p = promise_next(c, p)) {
        const struct core_op *o = CONTAINER_OF(p, struct core_op, promise);
        if (!p->name && o->commit == m)
            waiting +=
                c->blocks[p->block].gen == p->gen && c->blocks[p->block].state == BLOCK_PENDING;
    }
    return waiting > 0 && waiting == m->left;
}
