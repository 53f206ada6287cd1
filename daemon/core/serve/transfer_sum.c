/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks bytes before a device copies them out of host memory: the host tier computes their
 * checksums, which are compared with those that were stored. A part is given to the device when all
 * of it has been checked. What is wrong, or could not be checked in time, is not copied. The job's
 * lease keeps its blocks in place meanwhile.
 */
#include "serve.h"
#include "transfer_jobs.h"

void transfer_sum_want(struct core *c, struct transfer_job *job, const struct block *b,
                       uint32_t shard)
{
    if (!c->cfg.hbm_verify)
        return;
    job->rank = (uint8_t)shard;
    *transfer_from(c, job, job->pieces - 1) = block_no(c, b);
}

static void on_sum(struct tier_op *op);

/* Has the host tier check the next piece of a part. A piece that does not come from host memory is
 * not checked. One that is corrupt or cancelled gets an error, and is not copied. */
static void transfer_sum_look_at(struct transfer_job *job, uint32_t part, uint32_t slot)
{
    struct core *c = job->core;
    struct transfer_part *p = &job->part[part];
    const uint32_t i = p->looked++, no = *transfer_from(c, job, p->first + i);
    struct tier *host = c->cfg.tier[CORE_HOST];
    if (no == CORE_NONE)
        return;
    const struct block *b = &c->blocks[no];
    if (b->flags & BLOCK_F_CORRUPT)
        p->copy.piece[i].status = -EIO;
    else if (atomic_load_explicit(&p->copy.cancel, memory_order_relaxed))
        p->copy.piece[i].status = -ECANCELED;
    if (p->copy.piece[i].status != 0)
        return;
    struct transfer_sum *s = &job->sum[slot];
    const struct tier_loc loc = copy_loc(c, b, CORE_HOST, hbm_shard(c, b, job->rank));
    *s = (struct transfer_sum){.job = job,
                               .part = part,
                               .piece = i,
                               .want = host->ops->sum(host, loc),
                               .op = {.kind = TIER_VERIFY,
                                      .flags = TIER_F_AWAITED,
                                      .loc = loc,
                                      .bytes = p->copy.bytes,
                                      .deadline_ns = p->copy.deadline_ns,
                                      .done = on_sum}};
    job->sums |= UINT32_C(1) << slot;
    p->looking++;
    host->ops->submit(host, &s->op);
}

/* Looks at the pieces of submitted parts, while one of the job's check operations is free. */
static void look_on(struct transfer_job *job)
{
    for (uint32_t part = 0; part < job->begun; part++)
        while (job->part[part].looked < job->part[part].copy.n && job->sums != UINT32_MAX)
            transfer_sum_look_at(job, part, (uint32_t)__builtin_ctz(~job->sums));
}

static bool transfer_sum_is_due(const struct transfer_part *p)
{
    return !p->given && p->looked == p->copy.n && p->looking == 0;
}

static void part_give(struct transfer_job *job, uint32_t part)
{
    struct device *device = job->dev->device;
    job->part[part].given = true;
    device->ops->submit(device, &job->part[part].copy);
}

/* Slots that were void by the time the checks had ended (their device was lost, and may be back)
 * are not copied from. Returns whether nothing is left to be copied. */
static bool transfer_sum_is_nothing(const struct transfer_job *job, const struct transfer_part *p)
{
    const struct core *c = job->core;
    bool none = true;
    for (uint32_t i = 0; i < p->copy.n; i++) {
        const uint32_t no = transfer_what(c, job, p->first + i);
        if (no != CORE_NONE && hbm_copy_at(c, no)->state == COPY_NONE &&
            p->copy.piece[i].status == 0)
            p->copy.piece[i].status = -EIO;
        none &= p->copy.piece[i].status != 0;
    }
    return none;
}

void transfer_sum_begin(struct transfer_job *job, uint32_t part)
{
    look_on(job);
    if (!transfer_sum_is_due(&job->part[part]))
        return;
    if (job->kind->copy == DEVICE_LOAD) /* slots may have become void during the parts before */
        (void)transfer_sum_is_nothing(job, &job->part[part]);
    part_give(job, part);
}

/* Gives the device each part that is due. They are counted first, because with the last of them the
 * job may be freed. */
static void give_due(struct transfer_job *job)
{
    uint32_t due = 0;
    for (uint32_t i = 0; i < job->begun; i++)
        due += transfer_sum_is_due(&job->part[i]);
    for (uint32_t i = 0; due > 0; i++) {
        if (!transfer_sum_is_due(&job->part[i]))
            continue;
        due--;
        if (!transfer_sum_is_nothing(job, &job->part[i])) {
            part_give(job, i);
            continue;
        }
        job->part[i].given = true;
        transfer_job_over(job, i);
    }
}

static void on_sum(struct tier_op *op)
{
    struct transfer_sum *s = CONTAINER_OF(op, struct transfer_sum, op);
    struct transfer_job *job = s->job;
    struct core *c = job->core;
    struct transfer_part *p = &job->part[s->part];
    struct device_piece *piece = &p->copy.piece[s->piece];
    struct block *b = &c->blocks[*transfer_from(c, job, p->first + s->piece)];
    job->sums &= ~(UINT32_C(1) << (s - job->sum));
    p->looking--;
    piece->status = op->status;
    c->m.hbm_verified += op->status == 0;
    if (op->status == 0 && !hash128_equal(&s->want, &op->sum)) {
        piece->status = -EIO;
        verify_host_is_corrupt(c, b);
    }
    look_on(job);
    give_due(job);
}

void transfer_sum_cancel(struct transfer_job *job)
{
    for (uint32_t i = 0; i < TRANSFER_SUMS; i++)
        if (job->sums & UINT32_C(1) << i)
            atomic_store_explicit(&job->sum[i].op.cancel, true, memory_order_relaxed);
}
