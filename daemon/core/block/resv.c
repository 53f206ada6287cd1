/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reservations: which blocks a writer has announced, and may still commit or drop. RESERVE and
 * STORE make one, COMMIT and DROP end its entries, and so does the end of the client.
 */
#include "block.h"

struct resvs {
    struct pool *pool;
    struct share share;     /* of reservations, by client */
    struct list_node going; /* reservations that have ended and are being dropped in slices */
    uint64_t serial;
};

uint64_t resvs_bytes(const struct core_config *cfg)
{
    return pool_bytes_for(sizeof(struct reservation), cfg->commits_max);
}

static int resvs_create(struct core *c)
{
    const struct core_config *cfg = &c->cfg;
    struct resvs *all = c->mod.resvs;
    list_init(&all->going);
    return core__shared_pool(c, &all->pool, &all->share, "reservations", sizeof(struct reservation),
                             cfg->commits_max, cfg->clients_max);
}

static void resvs_destroy(struct core *c)
{
    core__shared_pool_free(&c->mod.resvs->pool, &c->mod.resvs->share);
}

const struct core_module resvs_module = {CORE_STATE(resvs), .create = resvs_create,
                                         .destroy = resvs_destroy};

const struct pool *resv_pool(const struct core *c)
{
    return c->mod.resvs->pool;
}

uint32_t resvs_of(const struct core *c, const struct core_client *cl)
{
    return (uint32_t)c->mod.resvs->share.held[client_no(c, cl)];
}

struct reservation *part_resv(const struct core *c, const struct part *p)
{
    return pool_at(c->mod.resvs->pool, p->resv);
}

struct reservation *resv_new(struct core *c, struct core_client *cl)
{
    struct resvs *all = c->mod.resvs;
    struct reservation *r = share_get(&all->share, client_no(c, cl), all->pool);
    if (!r)
        return NULL;
    r->id = ++all->serial << 32 | (pool_index(all->pool, r) + 1);
    r->client = cl;
    r->since_ms = c->now_ms;
    run_init(&r->blocks);
    list_push_back(&cl->reservations, &r->node);
    c->m.reservations++;
    return r;
}

void resv_close_entry(struct core *c, struct reservation *r)
{
    MUST(r->open > 0);
    if (--r->open > 0)
        return;
    run_free(c, client_no(c, r->client), &r->blocks);
    list_remove(&r->node);
    c->m.reservations--;
    share_put(&c->mod.resvs->share, client_no(c, r->client), c->mod.resvs->pool, r);
}

/* A PENDING block is removed: the reservations that claim its parts forget it. */
void resv_hear(struct core *c, struct block *b, const struct block_change *x)
{
    (void)x;
    if (b->state != BLOCK_PENDING)
        return;
    const uint64_t was = unevictable_change(c, b);
    for (uint32_t i = b->where; i != CORE_NONE;) {
        struct part *p = pool_at(c->parts, i);
        i = p->next;
        if (!part_claimed(p))
            continue;
        struct reservation *r = part_resv(c, p);
        p->resv = CORE_NONE;
        r->client->claim_bytes -= block_group(c, b)->block_bytes;
        resv_close_entry(c, r);
    }
    unevictable_changed(c, b, was);
}

struct reservation *resv_by_id(struct core *c, const struct core_client *cl, uint64_t id)
{
    uint32_t no = (uint32_t)id - 1;
    if (no >= pool_count(c->mod.resvs->pool))
        return NULL;
    struct reservation *r = pool_at(c->mod.resvs->pool, no);
    return r && r->id == id && r->client == cl && r->busy == 0 ? r : NULL;
}

struct part *resv_entry_part(struct core *c, const struct reservation *r, const struct run_entry *e,
                             struct block **ret_block)
{
    struct block *b = &c->blocks[e->block];
    if (b->gen != e->gen || b->state != BLOCK_PENDING)
        return NULL;
    struct part *p = block_part(c, b, r->shard);
    if (!p || p->resv != pool_index(c->mod.resvs->pool, r) || p->state != PART_RESERVED)
        return NULL;
    *ret_block = b;
    return p;
}

/* Drops all of it at once, and closes the entry that the caller has open, which frees r. */
static void resv_drop_open(struct core *c, struct reservation *r)
{
    struct run_iter it = run_begin(c, &r->blocks);
    for (const struct run_entry *e; (e = run_next(c, &it));) {
        struct block *b;
        if (resv_entry_part(c, r, e, &b))
            block_kill_tree(c, b, KVC_MISS_DROPPED);
    }
    MUST(r->open == 1);
    resv_close_entry(c, r);
}

/* From the last entry on, in slices: removing the first would remove all that build on it in one
 * piece. */
bool resv_drop_some(struct core *c, struct reservation *r)
{
    for (; r->dropped < r->blocks.n; r->dropped++) {
        if (slice_over(c))
            return true;
        struct run_iter it = run_at(c, &r->blocks, r->blocks.n - 1 - r->dropped);
        struct block *b;
        c->work.done += WORK_LOOK;
        if (resv_entry_part(c, r, run_next(c, &it), &b))
            block_kill_tree(c, b, KVC_MISS_DROPPED);
    }
    return false;
}

static void resv_drop_all(struct core *c, struct reservation *r)
{
    MUST(r->busy == 0);
    r->open++;
    resv_drop_open(c, r);
}

int core_drop(struct core *c, struct core_client *cl, uint64_t reservation)
{
    struct reservation *r = resv_by_id(c, cl, reservation);
    if (!r)
        return KVC_E_GONE;
    resv_drop_all(c, r);
    return 0;
}

int core_drop_step(struct core *c, struct core_client *cl, uint64_t reservation)
{
    struct reservation *r = resv_by_id(c, cl, reservation);
    if (!r)
        return KVC_E_GONE;
    r->open++;
    work_slice(c);
    const bool more = resv_drop_some(c, r);
    MUST(more || r->open == 1);
    resv_close_entry(c, r);
    return more ? CORE_MORE : 0;
}

int core_reservation(struct core *c, struct core_client *cl, uint64_t reservation,
                     struct core_ns **ret_ns, uint32_t *ret_group)
{
    const struct reservation *r = resv_by_id(c, cl, reservation);
    if (!r)
        return KVC_E_GONE;
    *ret_ns = r->ns;
    *ret_group = r->group;
    return 0;
}

void resv_go_busy(struct core *c, struct reservation *r)
{
    const uint64_t work = (uint64_t)r->blocks.n * WORK_BLOCK;
    MUST(r->busy == 1);
    if (work <= c->work.end_left) {
        c->work.end_left -= work;
        r->busy = 0;
        resv_drop_open(c, r);
        return;
    }
    r->going = true;
    r->client->going++;
    list_remove(&r->node);
    list_push_back(&c->mod.resvs->going, &r->node);
}

void resv_go(struct core *c, struct reservation *r)
{
    MUST(r->busy == 0);
    r->busy = 1;
    r->open++;
    resv_go_busy(c, r);
}

bool resv_step(struct core *c)
{
    struct list_node *node = list_first(&c->mod.resvs->going);
    if (!node)
        return false;
    struct reservation *r = CONTAINER_OF(node, struct reservation, node);
    struct core_client *cl = r->client;
    work_slice(c);
    if (resv_drop_some(c, r))
        return true;
    MUST(r->open == 1);
    r->busy = 0;
    resv_close_entry(c, r);
    cl->going--;
    core__client_settle(c, cl);
    return resvs_are_going(c);
}

bool resvs_are_going(const struct core *c)
{
    return !list_empty(&c->mod.resvs->going);
}
