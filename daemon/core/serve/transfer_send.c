/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends (PAGES_LOAD): a lease's blocks are copied into a worker's pages, out of slots of the device
 * where they are there, else out of host memory. A block that was in a slot alone, and whose slot
 * is void, is not copied. A job has a part for each group. A worker that waits for layers counts
 * them through all groups, so for it the parts are copied one after the other.
 */
#include "serve.h"
#include "transfer_jobs.h"

/* ---- begin ---- */

static const char *send_fault(struct core *c, const struct core_send *s, const struct lease *l)
{
    struct run_iter it = run_begin(c, &l->blocks);
    const struct core_ns *ns = block_ns(c, &c->blocks[run_next(c, &it)->block]);
    if (!hbm_device_of(c, s->transfer.device))
        return "device: not one of the daemon's";
    if (s->shard >= ns->spec.shards)
        return "shard: the namespace has fewer shards";
    for (uint32_t g = 0; g < l->ngroups; g++) {
        if (l->group[g].n == 0)
            continue;
        if (!s->group[g].pages || s->group[g].pages_per_block == 0)
            return "pages: a group has blocks and no pages";
        if (s->transfer.device->ops->pool_block_bytes(s->transfer.pool, g) !=
            ns->spec.group[g].block_bytes)
            return "pool: its blocks have other bytes than the namespace's";
    }
    return NULL;
}

static void transfer_send_add_block(struct core *c, struct transfer_job *job,
                                    const struct core_send *s, const struct block *b,
                                    const uint32_t *pages)
{
    const struct tier *host = c->cfg.tier[CORE_HOST];
    const uint32_t shard = hbm_shard(c, b, s->shard);
    struct hbm_copy *e = hbm_copy_find(c, b, shard, job->dev);
    const bool is_hbm =
        e && e->state == COPY_READY && (b->state == BLOCK_PRESENT || !block_in_host(c, b));
    struct device_piece *piece = transfer_job_add(c, job, is_hbm ? hbm_copy_no(c, e) : CORE_NONE);
    piece->pages = pages;
    if (is_hbm) {
        piece->slot = e->loc;
        e->copies++;
    } else if (block_in_host(c, b)) {
        piece->host = host->memory->payload(host, copy_loc(c, b, CORE_HOST, shard));
        transfer_sum_want(c, job, b, s->shard);
    } else {
        piece->status = -EIO;
    }
}

static void add_groups(struct core *c, struct transfer_job *job, const struct core_send *s)
{
    const struct lease *l = job->lease;
    struct run_iter it = run_begin(c, &l->blocks);
    for (uint32_t g = 0; g < l->ngroups; g++) {
        const uint32_t ppb = s->group[g].pages_per_block;
        for (uint32_t i = 0; i < l->group[g].n; i++) {
            const struct block *b = &c->blocks[run_next(c, &it)->block];
            if (i == 0)
                (void)transfer_job_part(c, job, g, block_group(c, b)->block_bytes);
            transfer_send_add_block(c, job, s, b, s->group[g].pages + (size_t)i * ppb);
        }
    }
}

/* The HBM copies that a send reads count as used, the deepest first. */
static void touch_all(struct core *c, struct transfer_job *job)
{
    for (uint32_t i = job->pieces; i-- > 0;) {
        const uint32_t no = transfer_what(c, job, i);
        if (no == CORE_NONE)
            continue;
        c->cfg.hbm_policy->touch(job->dev->policy, no, c->now_ms);
        c->m.send_blocks_hbm++;
    }
}

static struct core_send *send_of(struct core_transfer *t)
{
    return CONTAINER_OF(t, struct core_send, transfer);
}

static void begin_next(struct transfer_job *job, bool counts)
{
    const struct core_send *s = send_of(job->transfer);
    struct device_copy *copy = &job->part[job->begun].copy;
    copy->ready = counts ? s->ready : NULL;
    if (copy->ready) /* counts on from the layers of the parts before */
        copy->ready_value = job->begun == 0
                                ? s->ready_value
                                : atomic_load_explicit(copy->ready, memory_order_acquire);
    transfer_job_submit(job, job->begun);
}

static void send_begin(struct core *c, struct core_send *s, struct lease *l,
                       struct transfer_job *job)
{
    transfer_job_hold(job, l);
    add_groups(c, job, s);
    touch_all(c, job);
    s->left = job->parts;
    do
        begin_next(job, true);
    while (!s->ready && job->begun < job->parts);
}

/* ---- after the wait in the queue ---- */

static void send_run(struct core *c, struct core_transfer *t, struct transfer_job *job)
{
    struct core_send *s = send_of(t);
    struct lease *l = lease_in_use(c, s->lease);
    send_begin(c, s, l, job);
    transfer_unuse(c, l); /* the job has it now */
}

static void send_drop(struct core *c, struct core_transfer *t, int status)
{
    struct core_send *s = send_of(t);
    struct lease *l = lease_in_use(c, s->lease);
    memset(s->statuses, core__copy_status(status), l->blocks.n);
    list_remove(&s->req.node);
    c->m.sends_in_flight--;
    s->done(s);
    transfer_unuse(c, l);
}

/* ---- end ---- */

/* Blocks whose bytes turned out wrong meanwhile do not count as arrived. */
static void not_corrupt(struct core *c, const struct transfer_job *job)
{
    const struct core_send *s = send_of(job->transfer);
    struct run_iter it = run_begin(c, &job->lease->blocks);
    uint32_t i = 0;
    for (const struct run_entry *r; (r = run_next(c, &it)); i++) {
        const struct block *b = &c->blocks[r->block];
        if (s->statuses[i] == KVC_ST_OK && b->flags & BLOCK_F_CORRUPT)
            s->statuses[i] = KVC_ST_TIER;
        if (s->statuses[i] != KVC_ST_OK)
            continue;
        c->m.send_blocks++;
        c->m.send_bytes += block_group(c, b)->block_bytes;
    }
}

static void send_end(struct core *c, struct transfer_job *job)
{
    struct core_send *s = send_of(job->transfer);
    not_corrupt(c, job);
    list_remove(&s->req.node);
    c->m.sends_in_flight--;
    job->transfer = NULL;
    s->done(s);
    transfer_job_end(c, job);
}

static void send_part_ended(struct core *c, struct transfer_job *job, struct transfer_part *part)
{
    struct core_send *s = send_of(job->transfer);
    bool all = part->copy.ready != NULL;
    for (uint32_t i = 0; i < part->copy.n; i++) {
        const uint32_t no = transfer_what(c, job, part->first + i);
        struct hbm_copy *e = no == CORE_NONE ? NULL : hbm_copy_at(c, no);
        int status = part->copy.piece[i].status;
        if (status == 0 && e && e->state == COPY_NONE)
            status = -EIO; /* the slot's bytes turned out wrong, or were lost, meanwhile */
        s->statuses[part->first + i] = core__copy_status(status);
        all &= status == 0;
        if (!e)
            continue;
        e->copies--;
        hbm_copy_settle(c, e);
    }
    s->left--;
    if (job->begun < job->parts)
        begin_next(job, all);
    else if (job->left == 0)
        send_end(c, job);
}

/* ---- requests ---- */

static const struct transfer_kind send_kind = {
    .copy = DEVICE_LOAD, .ended = send_part_ended, .run = send_run, .drop = send_drop};

static void send_cancel(struct core *c, struct core_req *req)
{
    transfer_cancel(c, &CONTAINER_OF(req, struct core_send, req)->transfer);
}

const struct core_req_kind send_req = {.cancel = send_cancel};

int core_send_start(struct core *c, struct core_client *cl, struct core_send *s,
                    const char **ret_why)
{
    struct lease *l = lease_by_id(c, cl, s->lease);
    if (!l)
        return KVC_E_NO_LEASE;
    if (l->blocks.n == 0)
        return 0;
    if (l->blocks.n > CORE_SEND_BLOCKS)
        return KVC_E_TOO_LARGE;
    if ((*ret_why = send_fault(c, s, l)))
        return KVC_E_BAD_ARGUMENT;
    req_begin(cl, &s->req, &send_req);
    c->m.sends++;
    c->m.sends_in_flight++;
    struct transfer_job *job = transfer_begin(c, &s->transfer, &send_kind, cl);
    if (job)
        send_begin(c, s, l, job);
    else
        transfer_use(l); /* as its job does */
    return 1;
}
