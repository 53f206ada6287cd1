/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one way from the NVMe tier to the disk: nvme__issue() begins each I/O, and its end is taken
 * here.
 */
#include "nvme__.h"

static void io_count(struct nvme *n, struct nvme_path *p, const struct nvme_io *io)
{
    const uint64_t ns = n->now_ns - io->start_ns;
    if (io->op.kind == DISK_SYNC) {
        p->count.syncs++;
        n->m.syncs++;
    } else if (io->op.kind == DISK_READ) {
        p->count.reads++;
        histo_add(&p->count.read_ns, ns);
        if (io->op.result >= 0) {
            p->count.read_bytes += io->op.bytes;
            n->m.bytes_read += io->op.bytes;
        }
    } else {
        p->count.writes++;
        histo_add(&p->count.write_ns, ns);
        if (io->op.result >= 0)
            p->count.write_bytes += io->op.bytes;
    }
}

struct nvme_io *nvme__io_ended(struct disk_op *op)
{
    struct nvme_io *io = CONTAINER_OF(op, struct nvme_io, op);
    struct nvme *n = io->n;
    struct nvme_path *p = &n->path[op->path];
    MUST(list_is_linked(&io->node)); /* an I/O ends once */
    MUST(n->inflight.n > 0 && p->queued > 0 && p->queued_bytes >= op->bytes);
    list_remove(&io->node);
    n->inflight.n--;
    p->queued--;
    p->queued_bytes -= op->bytes;
    MUST(op->result < 0 || op->kind == DISK_SYNC || (uint64_t)op->result == op->bytes);
    io_count(n, p, io);
    return io;
}

void nvme__issue(struct nvme *n, struct nvme_io *io, enum disk_kind kind, struct nvme_path *p,
                 const struct iovec *iov, uint32_t iovs, uint64_t page, uint64_t bytes,
                 void (*end)(struct nvme_io *io))
{
    /* The limit is exact: no write may go beyond the path's share. */
    MUST(kind != DISK_WRITE || page * NVME_PAGE + bytes <= n->share_bytes[p->number]);
    MUST(!list_is_linked(&io->node));
    io->op = (struct disk_op){.kind = kind,
                              .path = p->number,
                              .iov = iov,
                              .iovs = iovs,
                              .off = page * NVME_PAGE,
                              .bytes = bytes,
                              .done = n->io_done,
                              .ctx = io};
    io->n = n;
    io->end = end;
    io->start_ns = n->now_ns;
    list_push_back(&p->inflight, &io->node);
    n->inflight.n++;
    p->queued++;
    p->queued_bytes += bytes;
    n->disk->ops->submit(n->disk, &io->op);
}
