/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills (ACQUIRE_ON): blocks that a lease has in host memory are copied into slots of a device, and
 * held there. A block that another fill is copying already is waited for. A fill waits for one HBM
 * copy at a time, the first of its lease's that has not landed.
 */
#include "serve.h"
#include "transfer_jobs.h"

/* ---- waiting ---- */

/* Queues the fill at the lease's next HBM copy in state FILLING. False: there is none. */
static bool wait_for_next(struct core *c, const struct lease *l, struct core_fill *f)
{
    uint32_t i = 0;
    struct run_iter it = run_begin(c, &l->hbm);
    for (const struct run_entry *r; i < f->left && (r = run_next(c, &it)); i++) {
        struct hbm_copy *e = i < f->next ? NULL : hbm_copy_at(c, r->block);
        if (!e || e->state != COPY_FILLING)
            continue;
        f->next = i;
        list_push_back(&e->waiters, &f->node);
        return true;
    }
    return false;
}

static uint32_t blocks_held(struct core *c, const struct lease *l, const struct core_fill *f)
{
    uint32_t n = 0;
    hbm_copy_mark(c, l, true);
    struct run_iter it = run_begin(c, &l->blocks);
    for (const struct run_entry *r; (r = run_next(c, &it));) {
        const struct block *b = &c->blocks[r->block];
        const struct hbm_copy *e =
            hbm_copy_find(c, b, hbm_shard(c, b, f->shard), &c->hbm->dev[f->device]);
        n += e && e->mine && e->state == COPY_READY;
    }
    hbm_copy_mark(c, l, false);
    return n;
}

/* Waits for the next HBM copy that has not landed, or ends the fill. */
static void fill_advance(struct core *c, struct core_fill *f)
{
    struct lease *l = lease_in_use(c, f->lease);
    if (wait_for_next(c, l, f))
        return;
    f->ret_blocks = l->ended ? 0 : blocks_held(c, l, f);
    f->done(f);
    transfer_unuse(c, l);
}

static void fill_part_ended(struct core *c, struct transfer_job *job, struct transfer_part *part)
{
    struct list_node woken;
    list_init(&woken);
    for (uint32_t i = 0; i < part->copy.n; i++) {
        struct hbm_copy *e = hbm_copy_at(c, transfer_what(c, job, part->first + i));
        const bool live = e->state == COPY_FILLING && c->blocks[e->block].state == BLOCK_PRESENT;
        for (struct list_node *node; (node = list_first(&e->waiters));) {
            list_remove(node);
            list_push_back(&woken, node);
        }
        if (live && part->copy.piece[i].status == 0)
            hbm_copy_ready(c, e);
        else
            hbm_copy_fail(c, e);
    }
    const bool last = job->left == 0;
    for (struct list_node *node; (node = list_first(&woken));) {
        list_remove(node);
        fill_advance(c, CONTAINER_OF(node, struct core_fill, node));
    }
    if (last)
        transfer_job_end(c, job);
}

static const struct transfer_kind fill_kind = {.copy = DEVICE_FILL, .ended = fill_part_ended};

/* ---- begin ---- */

struct filling {
    struct core *c;
    struct core_fill *f;
    struct lease *l;
    struct hbm_device *dev;
    struct transfer_job *job; /* NULL: no more is free */
    uint32_t group;           /* the group of the part being filled */
    struct tier_loc beside;   /* slot of the last piece, next to which the next one is wanted */
    uint32_t full;            /* bit set of groups that got no room */
};

/* ---- HBM copies that exist ---- */

/* Puts HBM copies of the lease's blocks into core->lookup.found, CORE_NONE where there is none;
 * returns how many are to be copied. */
static uint32_t fill_look(struct filling *x, uint32_t *ret_n)
{
    struct core *c = x->c;
    uint32_t n = 0, missing = 0;
    struct run_iter it = run_begin(c, &x->l->blocks);
    for (const struct run_entry *r; (r = run_next(c, &it)); n++) {
        const struct block *b = &c->blocks[r->block];
        const struct hbm_copy *e = hbm_copy_find(c, b, hbm_shard(c, b, x->f->shard), x->dev);
        MUST(n < KVC_KEYS_MAX);
        missing += !e && b->state == BLOCK_PRESENT && block_ready(b);
        c->lookup.found[n] = e && b->state == BLOCK_PRESENT ? hbm_copy_no(c, e) : CORE_NONE;
    }
    *ret_n = n;
    return missing;
}

/* Tells the device's policy which blocks the fill asks for. */
static void fill_tell(struct filling *x)
{
    struct core *c = x->c;
    const struct policy_ops *policy = c->cfg.hbm_policy;
    struct run_iter it = run_begin(c, &x->l->blocks);
    uint32_t at = 0;
    for (uint32_t g = 0; policy->request && g < x->l->ngroups; g++) {
        const uint32_t n = x->l->group[g].n;
        uint32_t hits = 0, slot = 0;
        for (uint32_t i = 0; i < n; i++) {
            const struct block *b = &c->blocks[run_next(c, &it)->block];
            c->lookup.hash[i] = hbm_copy_hash(c, b, hbm_shard(c, b, x->f->shard));
            slot = b->ns;
            hits += hits == i && c->lookup.found[at + i] != CORE_NONE;
        }
        at += n;
        const struct policy_request request = {
            .hash = c->lookup.hash, .n = n, .hits = hits, .source = slot * KVC_GROUPS_MAX + g};
        if (n > 0)
            policy->request(x->dev->policy, &request, c->now_ms);
    }
}

static void count_hits(struct filling *x, uint32_t n)
{
    x->dev->stats.hits += n;
    x->c->m.hbm_hits += n;
}

/* Holds the HBM copies that are READY or FILLING. */
static void take_hits(struct filling *x, uint32_t n)
{
    struct core *c = x->c;
    if (!x->l->filled) /* blocks leased on the device alone count as hits, too */
        count_hits(x, x->l->hbm.n);
    x->l->filled = true;
    hbm_copy_mark(c, x->l, true);
    for (uint32_t i = n; i-- > 0;)
        if (c->lookup.found[i] != CORE_NONE)
            c->cfg.hbm_policy->touch(x->dev->policy, c->lookup.found[i], c->now_ms);
    for (uint32_t i = 0; i < n; i++) {
        struct hbm_copy *e =
            c->lookup.found[i] == CORE_NONE ? NULL : hbm_copy_at(c, c->lookup.found[i]);
        if (!e || e->mine || hbm_copy_hold(c, x->l, e) != 0)
            continue;
        e->mine = true;
        count_hits(x, 1);
    }
    hbm_copy_mark(c, x->l, false);
}

/* ---- HBM copies that are missing ---- */

static void submit_all(struct core *c, struct transfer_job *job)
{
    if (job->parts == 0) {
        transfer_job_free(c, job);
        return;
    }
    for (uint32_t n = job->parts; job->begun < n;)
        transfer_job_submit(job, job->begun);
}

/* Makes room in the job for one more piece, a shard of b. False: no job is free. */
static bool next_piece(struct filling *x, const struct block *b)
{
    struct core *c = x->c;
    if (x->job && x->job->pieces == CORE_SEND_BLOCKS) {
        submit_all(c, x->job);
        x->job = transfer_job_new(c, x->l->client, &fill_kind, x->dev, false);
    }
    if (!x->job)
        return false;
    if (x->job->parts > 0 && x->group == b->group)
        return true;
    if (x->job->parts == 0)
        transfer_job_hold(x->job, x->l);
    transfer_job_part(c, x->job, 0, block_group(c, b)->block_bytes)->deadline_ns =
        x->f->deadline_ns;
    x->group = b->group;
    return true;
}

static void fill_one(struct filling *x, const struct block *b)
{
    struct core *c = x->c;
    const struct tier *host = c->cfg.tier[CORE_HOST];
    const uint32_t shard = hbm_shard(c, b, x->f->shard);
    struct hbm_copy *e;
    if (x->full & 1u << b->group || hbm_copy_find(c, b, shard, x->dev)) /* a key may come twice */
        return;
    if (hbm_copy_take(c, x->dev, b, shard, x->beside, &e) != 0) {
        x->full |= 1u << b->group;
        return;
    }
    if (hbm_copy_hold(c, x->l, e) != 0 || !next_piece(x, b)) {
        x->full = UINT32_MAX;
        hbm_copy_fail(c, e);
        return;
    }
    struct device_piece *piece = transfer_job_add(c, x->job, hbm_copy_no(c, e));
    piece->host = host->memory->payload(host, copy_loc(c, b, CORE_HOST, shard));
    piece->slot = e->loc;
    transfer_sum_want(c, x->job, b, x->f->shard);
    x->beside = e->loc;
}

static void fill_missing(struct filling *x)
{
    struct core *c = x->c;
    struct run_iter it = run_begin(c, &x->l->blocks);
    for (const struct run_entry *r; (r = run_next(c, &it));) {
        const struct block *b = &c->blocks[r->block];
        if (b->state == BLOCK_PRESENT && block_ready(b))
            fill_one(x, b);
    }
    if (x->job)
        submit_all(c, x->job);
}

/* ---- core.h ---- */

int core_fill_start(struct core *c, struct core_client *cl, struct core_fill *f)
{
    list_init(&f->node);
    f->ret_blocks = f->left = f->next = 0;
    struct lease *l = lease_by_id(c, cl, f->lease);
    if (!l)
        return KVC_E_NO_LEASE;
    struct run_iter it = run_begin(c, &l->blocks);
    const struct run_entry *first = run_next(c, &it);
    if (f->device >= c->cfg.ndevices ||
        (l->hbm_device != CORE_NONE && l->hbm_device != f->device) ||
        (first && f->shard >= block_ns(c, &c->blocks[first->block])->spec.shards))
        return KVC_E_BAD_ARGUMENT;
    struct hbm_device *dev = &c->hbm->dev[f->device];
    if (!dev->policy || !dev->device->ops->up(dev->device))
        return 0;
    struct filling x = {.c = c, .f = f, .l = l, .dev = dev};
    uint32_t n;
    if (fill_look(&x, &n) > 0 && !(x.job = transfer_job_new(c, cl, &fill_kind, dev, false)))
        return KVC_E_BUSY;
    fill_tell(&x);
    take_hits(&x, n);
    fill_missing(&x);
    if (l->hbm.n > 0)
        l->hbm_device = f->device;
    f->left = l->hbm.n;
    if (!wait_for_next(c, l, f)) {
        f->ret_blocks = blocks_held(c, l, f);
        return 0;
    }
    transfer_use(l);
    return 1;
}

void core_fill_cancel(struct core *c, struct core_fill *f)
{
    if (!list_is_linked(&f->node))
        return;
    list_remove(&f->node);
    transfer_unuse(c, lease_in_use(c, f->lease));
}
