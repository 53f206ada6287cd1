/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commits out of a worker's pages (PAGES_STORE). The device copies into the room that was reserved
 * in host memory. Then host memory computes the checksum of what has landed there (TIER_SEAL), and
 * the commit continues as one out of staging does.
 */
#include "serve.h"
#include "transfer_jobs.h"

const char *transfer_store_fault(const struct core *c, const struct core_commit *m,
                                 const struct reservation *r)
{
    _Static_assert(KVC_STORE_MAX <= CORE_SEND_BLOCKS, "a commit fits a job");
    if (!hbm_device_of(c, m->transfer.device))
        return "device: not one of the daemon's";
    if (m->pages_per_block == 0)
        return "pages: pages_per_block is 0";
    if (m->transfer.device->ops->pool_block_bytes(m->transfer.pool, r->group) !=
        r->ns->spec.group[r->group].block_bytes)
        return "pool: its blocks have other bytes than the namespace's";
    return NULL;
}

static void transfer_store_copy(struct core *c, struct core_commit *m, struct transfer_job *job)
{
    const struct tier *host = c->cfg.tier[CORE_HOST];
    const struct core_op *first = op_at(c, m->first_op);
    (void)transfer_job_part(c, job, c->blocks[first->block].group, (uint32_t)first->op.bytes);
    for (uint32_t no = m->first_op; no != CORE_NONE;) {
        const struct core_op *o = op_at(c, no);
        struct device_piece *piece = transfer_job_add(c, job, no);
        piece->host = host->memory->payload(host, o->op.loc);
        piece->pages = m->pages + (size_t)o->index * m->pages_per_block;
        no = o->next;
    }
    transfer_job_submit(job, 0);
}

static void transfer_store_run(struct core *c, struct core_transfer *t, struct transfer_job *job)
{
    transfer_store_copy(c, CONTAINER_OF(t, struct core_commit, transfer), job);
}

static void store_drop(struct core *c, struct core_transfer *t, int status)
{
    const struct core_commit *m = CONTAINER_OF(t, struct core_commit, transfer);
    for (uint32_t no = m->first_op; no != CORE_NONE;) {
        struct core_op *o = op_at(c, no);
        no = o->next; /* the last one ends the commit */
        op_copied(c, o, status);
    }
}

static void store_part_ended(struct core *c, struct transfer_job *job, struct transfer_part *part)
{
    job->transfer = NULL; /* op_copied() may end the commit, which has the transfer in it */
    for (uint32_t i = 0; i < part->copy.n; i++)
        op_copied(c, op_at(c, transfer_what(c, job, i)), part->copy.piece[i].status);
    transfer_job_free(c, job);
}

static const struct transfer_kind store_kind = {
    .copy = DEVICE_STORE, .ended = store_part_ended, .run = transfer_store_run, .drop = store_drop};

void transfer_store_begin(struct core *c, struct core_commit *m)
{
    m->transfer.deadline_ns = m->deadline_ns;
    struct transfer_job *job = transfer_begin(c, &m->transfer, &store_kind, m->client);
    if (job)
        transfer_store_copy(c, m, job);
}

void transfer_store_cancel(struct core *c, struct core_commit *m)
{
    if (c->hbm)
        transfer_cancel(c, &m->transfer);
}
