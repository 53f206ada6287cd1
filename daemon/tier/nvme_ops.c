/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that core submits to the NVMe tier: their queues, and the one way back to their
 * done().
 */
#include "nvme__.h"

void nvme__ops_push(struct nvme_ops *list, struct tier_op *op)
{
    op->next = NULL;
    if (list->n++ == 0)
        list->head = op;
    else
        list->tail->next = op;
    list->tail = op;
    list->bytes += op->bytes;
}

struct tier_op *nvme__ops_cut(struct nvme_ops *list, struct tier_op *prev)
{
    struct tier_op *op = prev == NULL ? list->head : prev->next;
    if (list->n == 0 || op == NULL)
        return NULL;
    if (prev == NULL)
        list->head = op->next;
    else
        prev->next = op->next;
    if (list->tail == op)
        list->tail = prev;
    list->n--;
    list->bytes -= op->bytes;
    op->next = NULL;
    return op;
}

struct tier_op *nvme__ops_pop(struct nvme_ops *list)
{
    return list->n != 0 ? nvme__ops_cut(list, NULL) : NULL;
}

void nvme__finish(struct nvme *n, struct tier_op *op, int status)
{
    op->status = status;
    nvme__ops_push(&n->queue.finish, op);
}

void nvme__write_submit(struct nvme *n, struct tier_op *op)
{
    struct nvme_entry *e = nvme__entry(n, op->loc);
    const bool durable = op->label.durable || (op->flags & TIER_F_DURABLE) != 0;
    MUST(e->state == NVME_E_NEW && op->bytes == e->bytes && op->src != NULL);
    if (n->stopping || n->journal_error != 0) {
        nvme__finish(n, op, n->stopping ? -ECANCELED : -EIO);
        return;
    }
    e->state = NVME_E_QUEUED;
    e->sum = op->sum;
    e->flags = op->label.durable ? NVME_E_DURABLE : 0;
    nvme__ops_push(&n->queue.put[durable ? NVME_DURABLE : NVME_NORMAL], op);
}

void nvme__put_failed(struct nvme *n, struct tier_op *op, int status)
{
    struct nvme_entry *e = nvme__entry(n, op->loc);
    if (e->extent != NVME_NONE)
        nvme__entry_unlink(n, e);
    e->state = NVME_E_NEW;
    nvme__finish(n, op, status);
}

void nvme__read_submit(struct nvme *n, struct tier_op *op)
{
    struct nvme_entry *e = nvme__entry(n, op->loc);
    MUST(e->state == NVME_E_LIVE && op->bytes == e->bytes && e->readers < UINT16_MAX);
    MUST(op->kind == TIER_VERIFY || op->dst != NULL);
    e->readers++;
    n->seg[n->extent[e->extent].seg].readers++;
    if (n->stopping)
        nvme__finish(n, op, -ECANCELED);
    else
        nvme__ops_push(op->kind == TIER_GET ? &n->queue.get_new : &n->queue.verify, op);
}

static void read_ended(struct nvme *n, struct nvme_entry *e)
{
    const uint32_t seg = n->extent[e->extent].seg;
    MUST(e->readers > 0 && n->seg[seg].readers > 0);
    e->readers--;
    if (--n->seg[seg].readers == 0)
        nvme__seg_look(n, seg);
}

/* Tells core of lost blocks, once no operation of core's is in flight on them. */
static void tell_lost(struct nvme *n)
{
    for (uint32_t i = n->lost.n; i > 0; i--) {
        const uint32_t extent = nvme__extents_pop(n, &n->lost);
        struct nvme_extent *x = &n->extent[extent];
        uint32_t next;
        for (uint32_t id = x->first; id != NVME_NONE; id = next) {
            struct nvme_entry *e = &n->entry[id];
            const struct tier_loc loc = {id};
            const uint32_t block_no = e->block_no;
            next = e->next;
            if (e->state != NVME_E_LIVE || e->readers != 0)
                continue;
            if ((e->flags & NVME_E_MOVING) != 0)
                nvme__keep_abandon(n, loc);
            nvme__entry_free(n, loc);
            n->m.blocks_lost++;
            if (n->tier.events.lost != NULL)
                n->tier.events.lost(n->tier.events.ctx, block_no, loc);
            next = x->first; /* the callback may have freed others */
        }
        if (x->live == 0)
            nvme__seg_detach(n, extent);
        else
            nvme__extents_push(n, &n->lost, extent);
    }
}

static void end_op(struct nvme *n, struct tier_op *op)
{
    if (op->loc.id == 0) { /* an operation of confirm_frees() */
        op->done(op);
        return;
    }
    struct nvme_entry *e = nvme__entry(n, op->loc);
    const bool lost = e->extent != NVME_NONE && n->extent[e->extent].state == NVME_X_LOST;
    if (op->kind == TIER_PUT) {
        if (lost) {
            nvme__entry_unlink(n, e);
            e->state = NVME_E_NEW;
            op->status = -EIO;
        }
    } else {
        if (lost)
            op->status = -EIO;
        read_ended(n, e);
    }
    op->done(op);
}

void nvme__call_done(struct nvme *n)
{
    struct tier_op *op;
    if (n->queue.calling_done)
        return;
    n->queue.calling_done = true;
    do {
        while ((op = nvme__ops_pop(&n->queue.finish)) != NULL)
            end_op(n, op);
        if (n->lost.n != 0)
            tell_lost(n);
    } while (n->queue.finish.n != 0);
    n->queue.calling_done = false;
    if (n->tell_room && n->tier.events.room != NULL) {
        n->tell_room = false;
        n->tier.events.room(n->tier.events.ctx);
    }
}
