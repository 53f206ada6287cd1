/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: the copies that a device makes for one fill, send or commit, with a part for each block
 * size. transfer_fill.c, transfer_send.c and transfer_store.c take one each; transfer_wait.c queues
 * those that find none free.
 */
#include "serve.h"
#include "transfer_jobs.h"

static uint32_t transfer_job_slot_of(const struct core *c, const struct transfer_job *job)
{
    return pool_index(c->hbm->jobs, job) * CORE_SEND_BLOCKS;
}

static bool may_be_fenced(const struct hbm_table *t, const struct hbm_device *dev, uint32_t holder)
{
    return dev->fenced.held[holder] < t->jobs_each - t->jobs_each / 2;
}

struct transfer_job *transfer_job_take(struct core *c, const struct core_client *cl,
                                       const struct transfer_kind *kind, struct hbm_device *dev,
                                       bool fenced)
{
    struct hbm_table *t = c->hbm;
    const uint32_t who = principal_index(c, cl->who.principal), holder = client_no(c, cl);
    if (fenced && (!may_be_fenced(t, dev, holder) || !share_take(&dev->fenced, holder, 1)))
        return NULL;
    struct transfer_job *job = share_get(&dev->share, who, t->jobs);
    if (!job) {
        if (fenced)
            share_give(&dev->fenced, holder, 1);
        return NULL;
    }
    job->core = c;
    job->principal_index = who;
    job->holder = holder;
    job->kind = kind;
    job->fenced = fenced;
    job->dev = dev;
    list_push_back(&t->in_flight, &job->node);
    return job;
}

struct transfer_job *transfer_job_new(struct core *c, const struct core_client *cl,
                                      const struct transfer_kind *kind, struct hbm_device *dev,
                                      bool fenced)
{
    const uint32_t before = fenced ? dev->ready_n + dev->fenced_n : dev->ready_n;
    return before > 0 ? NULL : transfer_job_take(c, cl, kind, dev, fenced);
}

void transfer_job_free(struct core *c, struct transfer_job *job)
{
    struct hbm_device *dev = job->dev;
    list_remove(&job->node);
    if (job->fenced)
        share_give(&dev->fenced, job->holder, 1);
    share_put(&dev->share, job->principal_index, c->hbm->jobs, job);
    c->hbm->due = true;
}

void transfer_use(struct lease *l)
{
    lease_use(l);
    l->client->copies++;
}

void transfer_unuse(struct core *c, struct lease *l)
{
    struct core_client *cl = l->client;
    lease_unuse(c, l);
    cl->copies--; /* last: until here this keeps the client alive */
    core__client_settle(c, cl);
}

void transfer_job_hold(struct transfer_job *job, struct lease *l)
{
    job->lease = l;
    transfer_use(l);
}

void transfer_job_end(struct core *c, struct transfer_job *job)
{
    struct lease *l = job->lease;
    transfer_job_free(c, job);
    transfer_unuse(c, l);
}

void transfer_job_over(struct transfer_job *job, uint32_t no)
{
    struct transfer_part *part = &job->part[no];
    MUST(job->left > 0 && !part->over);
    part->over = true;
    job->left--;
    job->kind->ended(job->core, job, part);
}

static void on_copied(struct device_copy *copy)
{
    struct transfer_job *job = copy->ctx;
    const struct transfer_part *part = CONTAINER_OF(copy, struct transfer_part, copy);
    transfer_job_over(job, (uint32_t)(part - job->part));
}

static struct device_piece *transfer_piece(const struct core *c, const struct transfer_job *job,
                                           uint32_t i)
{
    return &c->hbm->piece[transfer_job_slot_of(c, job) + i];
}

struct device_copy *transfer_job_part(struct core *c, struct transfer_job *job, uint32_t group,
                                      uint32_t bytes)
{
    MUST(job->parts < ARRAY_LEN(job->part));
    struct transfer_part *part = &job->part[job->parts++];
    part->first = job->pieces;
    part->copy = (struct device_copy){.kind = job->kind->copy,
                                      .group = group,
                                      .bytes = bytes,
                                      .piece = transfer_piece(c, job, job->pieces),
                                      .done = on_copied,
                                      .ctx = job};
    if (job->transfer) {
        const struct core_transfer *t = job->transfer;
        part->copy.pool = t->pool;
        part->copy.after = t->after;
        part->copy.revoked = t->revoked;
        part->copy.deadline_ns = t->deadline_ns;
    }
    job->left++;
    return &part->copy;
}

uint32_t transfer_what(const struct core *c, const struct transfer_job *job, uint32_t i)
{
    return c->hbm->what[transfer_job_slot_of(c, job) + i];
}

uint32_t *transfer_from(const struct core *c, const struct transfer_job *job, uint32_t i)
{
    return &c->hbm->from[transfer_job_slot_of(c, job) + i];
}

struct device_piece *transfer_job_add(struct core *c, struct transfer_job *job, uint32_t what)
{
    MUST(job->parts > 0 && job->pieces < CORE_SEND_BLOCKS);
    struct device_piece *piece = transfer_piece(c, job, job->pieces);
    *piece = (struct device_piece){.host = NULL};
    c->hbm->what[transfer_job_slot_of(c, job) + job->pieces] = what;
    *transfer_from(c, job, job->pieces) = CORE_NONE;
    job->pieces++;
    job->part[job->parts - 1].copy.n++;
    return piece;
}

void transfer_job_submit(struct transfer_job *job, uint32_t part)
{
    MUST(part == job->begun && part < job->parts);
    job->begun++;
    transfer_sum_begin(job, part);
}

void transfer_job_cancel(struct transfer_job *job)
{
    for (uint32_t i = 0; i < job->parts; i++)
        atomic_store_explicit(&job->part[i].copy.cancel, true, memory_order_relaxed);
    transfer_sum_cancel(job);
}
