/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: the copies that a device makes for one fill, send or commit, with a part for each block
 * size. near_fill.c, near_send.c and near_store.c take one each; near_wait.c queues those that find
 * none free.
 */
#include "near_jobs.h"
#include "serve.h"

static uint32_t near_job_slot_of(const struct core *c, const struct near_job *job)
{
    return pool_index(c->near->jobs, job) * CORE_SEND_BLOCKS;
}

static bool may_be_gated(const struct near_table *t, const struct near_device *dev, uint32_t holder)
{
    return dev->gated.held[holder] < t->jobs_each - t->jobs_each / 2;
}

struct near_job *near_job_take(struct core *c, const struct core_client *cl,
                               const struct near_kind *kind, struct near_device *dev, bool gated)
{
    struct near_table *t = c->near;
    const uint32_t owner = owner_no(c, cl->who.principal), holder = client_no(c, cl);
    if (gated && (!may_be_gated(t, dev, holder) || !share_take(&dev->gated, holder, 1)))
        return NULL;
    struct near_job *job = share_get(&dev->share, owner, t->jobs);
    if (!job) {
        if (gated)
            share_give(&dev->gated, holder, 1);
        return NULL;
    }
    job->core = c;
    job->owner = owner;
    job->holder = holder;
    job->kind = kind;
    job->gated = gated;
    job->dev = dev;
    list_push_back(&t->in_flight, &job->node);
    return job;
}

struct near_job *near_job_new(struct core *c, const struct core_client *cl,
                              const struct near_kind *kind, struct near_device *dev, bool gated)
{
    const uint32_t before = gated ? dev->ready_n + dev->gated_n : dev->ready_n;
    return before > 0 ? NULL : near_job_take(c, cl, kind, dev, gated);
}

void near_job_free(struct core *c, struct near_job *job)
{
    struct near_device *dev = job->dev;
    list_remove(&job->node);
    if (job->gated)
        share_give(&dev->gated, job->holder, 1);
    share_put(&dev->share, job->owner, c->near->jobs, job);
    c->near->due = true;
}

void near_use(struct lease *l)
{
    lease_use(l);
    l->client->copies++;
}

void near_unuse(struct core *c, struct lease *l)
{
    struct core_client *cl = l->client;
    lease_unuse(c, l);
    cl->copies--; /* last: the client lives until then */
    core__client_settle(c, cl);
}

void near_job_hold(struct near_job *job, struct lease *l)
{
    job->lease = l;
    near_use(l);
}

void near_job_end(struct core *c, struct near_job *job)
{
    struct lease *l = job->lease;
    near_job_free(c, job);
    near_unuse(c, l);
}

void near_job_over(struct near_job *job, uint32_t no)
{
    struct near_part *part = &job->part[no];
    MUST(job->left > 0 && !part->over);
    part->over = true;
    job->left--;
    job->kind->ended(job->core, job, part);
}

static void on_copied(struct device_copy *copy)
{
    struct near_job *job = copy->owner;
    const struct near_part *part = CONTAINER_OF(copy, struct near_part, copy);
    near_job_over(job, (uint32_t)(part - job->part));
}

struct device_copy *near_job_part(struct core *c, struct near_job *job, uint32_t group,
                                  uint32_t bytes)
{
    MUST(job->parts < ARRAY_LEN(job->part));
    struct near_part *part = &job->part[job->parts++];
    part->first = job->pieces;
    part->copy = (struct device_copy){.kind = job->kind->copy,
                                      .group = group,
                                      .bytes = bytes,
                                      .piece = near_piece(c, job, job->pieces),
                                      .done = on_copied,
                                      .owner = job};
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

struct device_piece *near_piece(const struct core *c, const struct near_job *job, uint32_t i)
{
    return &c->near->piece[near_job_slot_of(c, job) + i];
}

uint32_t near_what(const struct core *c, const struct near_job *job, uint32_t i)
{
    return c->near->what[near_job_slot_of(c, job) + i];
}

uint32_t *near_from(const struct core *c, const struct near_job *job, uint32_t i)
{
    return &c->near->from[near_job_slot_of(c, job) + i];
}

struct device_piece *near_job_add(struct core *c, struct near_job *job, uint32_t what)
{
    MUST(job->parts > 0 && job->pieces < CORE_SEND_BLOCKS);
    struct device_piece *piece = near_piece(c, job, job->pieces);
    *piece = (struct device_piece){.host = NULL};
    c->near->what[near_job_slot_of(c, job) + job->pieces] = what;
    *near_from(c, job, job->pieces) = CORE_NONE;
    job->pieces++;
    job->part[job->parts - 1].copy.n++;
    return piece;
}

void near_job_submit(struct near_job *job, uint32_t part)
{
    MUST(part == job->begun && part < job->parts);
    job->begun++;
    near_sum_begin(job, part);
}

void near_job_cancel(struct near_job *job)
{
    for (uint32_t i = 0; i < job->parts; i++)
        atomic_store_explicit(&job->part[i].copy.cancel, true, memory_order_relaxed);
    near_sum_cancel(job);
}
