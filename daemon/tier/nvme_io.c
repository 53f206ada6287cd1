/* SPDX-License-Identifier: Apache-2.0 */
/* The one way to the disk, and the one way back to whoever asked. */
#include "nvme__.h"

static void count(struct nvme *n, struct nvme_path *p, const struct nvme_io *io)
{
    const uint64_t ns = n->now_ns - io->start_ns;
    if (io->op.kind == DISK_SYNC) {
        p->syncs++;
        n->m.syncs++;
    } else if (io->op.kind == DISK_READ) {
        p->reads++;
        histo_add(&p->read_ns, ns);
        if (io->op.result >= 0) {
            p->read_bytes += io->op.bytes;
            n->m.bytes_read += io->op.bytes;
        }
    } else {
        p->writes_done++;
        histo_add(&p->write_ns, ns);
        if (io->op.result >= 0)
            p->write_bytes += io->op.bytes;
    }
}

static void on_done(struct disk_op *op)
{
    struct nvme_io *io = CONTAINER_OF(op, struct nvme_io, op);
    struct nvme *n = io->n;
    struct nvme_path *p = &n->path[op->path];
    list_remove(&io->node);
    n->ios--;
    p->queued--;
    p->queued_bytes -= op->bytes;
    MUST(op->result < 0 || op->kind == DISK_SYNC || (uint64_t)op->result == op->bytes);
    count(n, p, io);
    if (n->running)
        nvme__health_io(n, p, io);
    io->end(io);
    n->work = true;
    if (!n->running)
        return;
    nvme__sync_run(n);
    nvme__drain(n);
}

void nvme__issue(struct nvme *n, struct nvme_io *io, enum disk_kind kind, struct nvme_path *p,
                 const struct iovec *iov, uint32_t iovs, uint64_t page, uint64_t bytes,
                 void (*end)(struct nvme_io *io))
{
    /* The limit is exact: whatever went wrong before, nothing is written behind a path's share. */
    MUST(kind != DISK_WRITE || page * NVME_PAGE + bytes <= n->share_bytes[p->number]);
    io->op = (struct disk_op){.kind = kind,
                              .path = p->number,
                              .iov = iov,
                              .iovs = iovs,
                              .off = page * NVME_PAGE,
                              .bytes = bytes,
                              .done = on_done,
                              .owner = io};
    io->n = n;
    io->end = end;
    io->start_ns = n->now_ns;
    list_push_back(&p->inflight, &io->node);
    n->ios++;
    p->queued++;
    p->queued_bytes += bytes;
    n->disk->ops->submit(n->disk, &io->op);
}

void nvme__finish(struct nvme *n, struct tier_op *op, int status)
{
    op->status = status;
    nvme__ops_push(&n->finish, op);
}

/* What was lost is told when no operation of core's is on it any more. */
static void tell_lost(struct nvme *n)
{
    for (uint32_t i = n->lost.n; i > 0; i--) {
        const uint32_t extent = nvme__extents_pop(n, &n->lost);
        struct nvme_extent *x = &n->extent[extent];
        uint32_t next;
        for (uint32_t id = x->first; id != NVME_NONE; id = next) {
            struct nvme_entry *e = &n->entry[id];
            const struct tier_loc loc = {id};
            const uint32_t owner = e->owner;
            next = e->next;
            if (e->state != NVME_E_LIVE || e->readers != 0)
                continue;
            if ((e->flags & NVME_E_MOVING) != 0)
                nvme__keep_abandon(n, loc);
            nvme__entry_free(n, loc);
            n->m.blocks_lost++;
            if (n->tier.events.lost != NULL)
                n->tier.events.lost(n->tier.events.ctx, owner, loc);
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
    if (op->loc.id == 0) { /* of settle() */
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
        nvme__read_ended(n, e);
    }
    op->done(op);
}

void nvme__drain(struct nvme *n)
{
    struct tier_op *op;
    if (n->draining)
        return;
    n->draining = true;
    do {
        while ((op = nvme__ops_pop(&n->finish)) != NULL)
            end_op(n, op);
        if (n->lost.n != 0)
            tell_lost(n);
    } while (n->finish.n != 0);
    n->draining = false;
    if (n->tell_room && n->tier.events.room != NULL) {
        n->tell_room = false;
        n->tier.events.room(n->tier.events.ctx);
    }
}
