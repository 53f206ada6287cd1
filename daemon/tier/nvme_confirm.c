/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier_storage_ops.confirm_frees: makes sure that freed blocks stay away after a crash. The next
 * commit tells the journal of all deaths anyway; here that commit is made at once, and waited for.
 * One round serves all operations that wait when it begins:
 *
 *   - a round does not begin while a block that was freed during a move still has its new place;
 *   - OPEN: extents that the journal does not name yet are synced and committed, for recovery finds
 *     durable extents behind those that the journal names, with blocks that were freed since;
 *   - TOLD: extents with blocks that were freed are in a commit, and segments without any are out
 *     of the journal;
 *   - SYNC: the tables that were told of these deaths (nvme_dead.c) are synced, for a start without
 *     the journal.
 *
 * A path that is out does not delay a round: the deaths in extents of it that the journal names are
 * committed as ever. Extents that it has not synced, with dead blocks in them, are lost: no durable
 * PUT of any of their blocks has ended.
 */
#include "nvme__.h"

void nvme__confirm_frees(struct tier *t, struct tier_op *op)
{
    struct nvme *n = nvme__of(t);
    MUST(op->done != NULL);
    op->loc.id = 0;
    op->bytes = 0;
    nvme__ops_push(&n->confirm.next, op);
    n->work = true;
}

static void end_round(struct nvme *n, int status)
{
    struct tier_op *op;
    while ((op = nvme__ops_pop(&n->confirm.now)) != NULL)
        nvme__finish(n, op, status);
    n->confirm.phase = NVME_CF_IDLE;
}

static bool any_dead(const struct nvme *n, const struct nvme_extents *list)
{
    for (uint32_t at = list->n != 0 ? list->head : NVME_NONE; at != NVME_NONE;
         at = n->extent[at].next)
        if (nvme__dead_of(&n->extent[at]) != 0)
            return true;
    return false;
}

/* The lowest extent that is neither in the journal nor lost, and may have dead blocks. */
static uint64_t open_seq(const struct nvme *n)
{
    uint64_t open = UINT64_MAX;
    for (uint32_t i = 0; i < n->writes.n; i++) {
        const struct nvme_extent *x = &n->extent[n->writes.at[i].extent];
        if (x->state == NVME_X_WRITING)
            open = nvme__sooner(open, x->seq);
    }
    for (uint32_t i = 0; i < n->paths; i++) {
        const struct nvme_path *p = &n->path[i];
        open = nvme__sooner(open, p->sync.syncing_seq);
        if (nvme__path_up(p) || any_dead(n, &p->sync.written))
            open = nvme__sooner(open, p->sync.written_seq);
    }
    for (uint32_t at = n->synced.n != 0 ? n->synced.head : NVME_NONE; at != NVME_NONE;
         at = n->extent[at].next)
        open = nvme__sooner(open, n->extent[at].seq);
    return open;
}

static void lose_what_is_out(struct nvme *n)
{
    for (uint32_t i = 0; i < n->paths; i++) {
        struct nvme_path *p = &n->path[i];
        if (!nvme__path_up(p) && !p->sync.busy && any_dead(n, &p->sync.written))
            nvme__sync_failed(n, p);
    }
}

/* From OPEN to TOLD: all deaths are now in dirty extents, or in segments in state DELETING. */
static void begin_told(struct nvme *n)
{
    struct nvme_confirm *cf = &n->confirm;
    MUST(cf->phase == NVME_CF_OPEN && cf->deleting == 0);
    cf->phase = NVME_CF_TOLD;
    cf->dirty = n->dirty.in;
    for (uint32_t seg = n->seg_use.delete_head; seg != NVME_NONE; seg = n->seg[seg].next) {
        cf->deleting += !n->seg[seg].confirming;
        n->seg[seg].confirming = true;
    }
}

/* Whether the tables that were told are synced. Paths that are out do not count. */
static bool are_synced(const struct nvme *n)
{
    for (uint32_t i = 0; i < n->paths; i++) {
        const struct nvme_path *p = &n->path[i];
        MUST(p->sync.dead_synced <= p->sync.dead_wrote && n->confirm.dead[i] <= p->sync.dead_wrote);
        if (nvme__path_up(p) && p->sync.dead_synced < n->confirm.dead[i])
            return false;
    }
    return true;
}

void nvme__confirm_run(struct nvme *n)
{
    struct nvme_confirm *cf = &n->confirm;
    if (n->journal_error != 0) {
        end_round(n, -EIO);
        cf->now = cf->next;
        cf->next = (struct nvme_ops){0};
        end_round(n, -EIO);
        return;
    }
    if (cf->phase == NVME_CF_IDLE && cf->next.n != 0 && !nvme__keep_abandoned(n)) {
        MUST(cf->now.n == 0); /* the round before has ended */
        cf->now = cf->next;
        cf->next = (struct nvme_ops){0};
        cf->phase = NVME_CF_OPEN;
        cf->seq = n->store.seq_count;
    }
    if (cf->phase == NVME_CF_OPEN) {
        lose_what_is_out(n);
        if (!n->commit.busy && !n->commit.tell_forward_mark && open_seq(n) > cf->seq)
            begin_told(n);
    }
    if (cf->phase == NVME_CF_TOLD && n->dirty.out >= cf->dirty && cf->deleting == 0) {
        cf->phase = NVME_CF_SYNC;
        for (uint32_t i = 0; i < n->paths; i++)
            cf->dead[i] = n->path[i].sync.dead_wrote;
    }
    if (cf->phase == NVME_CF_SYNC && are_synced(n))
        end_round(n, cf->untold ? -EIO : 0);
}
