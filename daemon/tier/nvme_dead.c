/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes to disk which blocks of an extent are dead. A rebuild without a journal needs that.
 *
 * The dead are marked in a sector of their own, behind the items of the extent's table, and read
 * with the table. The sector is written before the commit that tells the journal the same, so the
 * tables know all that the journal knows. The page is read, its sector changed, and the page
 * written again in place. All other sectors are written as they are, so a torn write harms nothing.
 *
 * A path that is out keeps its tables as they were, and no commit waits for it. I/O of such a path
 * may still be in flight: until it has ended, its segment is not used again.
 */
#include "nvme__.h"

void nvme__dead_add(struct nvme *n, uint32_t extent)
{
    struct nvme_commit *k = &n->commit;
    MUST(!k->busy && k->tell_n < NVME_COMMIT_MAX); /* the commit is being gathered */
    if (nvme__dead_fits(n->extent[extent].items))
        k->tell[k->tell_n++] = extent;
}

static void nvme_dead_end(struct nvme *n, struct nvme_dead *d, bool good)
{
    struct nvme_path *p = &n->path[n->seg[d->seg].path];
    MUST(d->busy && n->seg[d->seg].readers > 0);
    MUST(d->extent == NVME_NONE || n->commit.telling); /* else the record may be of a new extent */
    p->sync.dead_wrote += good;
    if (good && d->buries && d->extent != NVME_NONE)
        n->extent[d->extent].flags |= NVME_X_BURIED;
    d->busy = false;
    if (--n->seg[d->seg].readers != 0)
        return;
    nvme__seg_look(n, d->seg);
    if (n->seg[d->seg].state == NVME_S_DELETING)
        nvme__segs_deleted(n);
}

static void nvme_dead_on_written(struct nvme_io *io)
{
    nvme_dead_end(io->n, CONTAINER_OF(io, struct nvme_dead, io), io->op.result >= 0);
}

static void nvme_dead_on_read(struct nvme_io *io)
{
    struct nvme_dead *d = CONTAINER_OF(io, struct nvme_dead, io);
    struct nvme *n = io->n;
    struct nvme_path *p = &n->path[io->op.path];
    struct nvme_value v;
    if (io->op.result < 0 || d->extent == NVME_NONE || !nvme__path_up(p)) {
        nvme_dead_end(n, d, false);
        return;
    }
    /* Blocks that die from now on need another write, even if none is left when this one ends. */
    d->buries = n->extent[d->extent].live == 0;
    nvme__value(n, d->extent, &v);
    nvme__dead_encode(d->page, n->store.uuid, &v);
    n->m.bytes_written += NVME_PAGE;
    nvme__issue(n, io, DISK_WRITE, p, &d->iov, 1, io->op.off / NVME_PAGE, NVME_PAGE,
                nvme_dead_on_written);
}

static void nvme_dead_begin(struct nvme *n, struct nvme_dead *d, uint32_t extent)
{
    const struct nvme_extent *x = &n->extent[extent];
    MUST(!d->busy && (x->state == NVME_X_COMMITTING || x->state == NVME_X_COMMITTED));
    d->busy = true;
    d->buries = false;
    d->extent = extent;
    d->seg = x->seg;
    n->seg[x->seg].readers++;
    d->iov = (struct iovec){d->page, NVME_PAGE};
    nvme__issue(n, &d->io, DISK_READ, &n->path[n->seg[x->seg].path], &d->iov, 1,
                nvme__extent_page(n, x) + nvme__table_pages(x->items) - 1, NVME_PAGE,
                nvme_dead_on_read);
}

bool nvme__dead_busy(const struct nvme *n)
{
    for (uint32_t i = 0; i < NVME_DEADS; i++)
        if (n->dead[i].busy)
            return true;
    return false;
}

/* Whether the commit still waits for a table. Tables on a path that is out are not waited for. */
static bool waits(struct nvme *n)
{
    bool any = false;
    for (uint32_t i = 0; i < NVME_DEADS; i++) {
        struct nvme_dead *d = &n->dead[i];
        if (!d->busy || d->extent == NVME_NONE)
            continue;
        if (nvme__path_up(&n->path[n->seg[d->seg].path]))
            any = true;
        else
            d->extent = NVME_NONE;
    }
    return any;
}

/* Whether a table of the segment is still being written for an earlier commit, which did not wait
 * because the path was out. */
static bool is_late(const struct nvme *n, uint32_t seg)
{
    for (uint32_t i = 0; i < NVME_DEADS; i++)
        if (n->dead[i].busy && n->dead[i].extent == NVME_NONE && n->dead[i].seg == seg)
            return true;
    return false;
}

bool nvme__dead_run(struct nvme *n)
{
    struct nvme_commit *k = &n->commit;
    for (uint32_t i = 0; i < NVME_DEADS && k->told < k->tell_n;) {
        const uint32_t extent = k->tell[k->told];
        if (!nvme__path_up(&n->path[n->seg[n->extent[extent].seg].path])) {
            k->told++;
            continue;
        }
        if (is_late(n, n->extent[extent].seg))
            return false;
        if (!n->dead[i].busy) {
            nvme_dead_begin(n, &n->dead[i], extent);
            k->told++;
        }
        i++;
    }
    return !waits(n) && k->told == k->tell_n;
}
