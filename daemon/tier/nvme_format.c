/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a new path once, in the background, one I/O at a time: on many file systems, room that was
 * reserved but never written is half as fast. Segments come into use in batches, when the
 * superblock says that they were written. No later read depends on the zeroes.
 */
#include <stdlib.h>

#include "nvme__.h"
#include "sys.h"

#define BATCH_MAX 16u

#define ZERO_BYTES (UINT64_C(64) << 10)
#define ZERO_IOVS  16u

/* The write of zeroes to a path. */
struct path_format {
    uint32_t target; /* nvme_path.zeroing when the batch ends */
    uint32_t page;   /* of the segment nvme_path.zeroing: pages before it are written */
    bool busy;       /* the write is in flight */
    struct nvme_io io;
    struct iovec iov[ZERO_IOVS];
};

struct nvme_format {
    uint8_t *zero; /* ZERO_BYTES of zeroes, which all writes use */
    struct path_format path[DISK_PATHS_MAX];
};

int nvme__format_alloc(struct nvme *n)
{
    n->format = sys_calloc(1, sizeof(*n->format));
    if (n->format == NULL)
        return -ENOMEM;
    n->format->zero = nvme__buffer(ZERO_BYTES / NVME_PAGE);
    return n->format->zero != NULL ? 0 : -ENOMEM;
}

void nvme__format_free(struct nvme *n)
{
    if (n->format == NULL)
        return;
    nvme__buffer_free(n->format->zero, ZERO_BYTES / NVME_PAGE);
    free(n->format);
    n->format = NULL;
}

uint64_t nvme__format_bytes(void)
{
    return sizeof(struct nvme_format) + ZERO_BYTES;
}

static void on_zeroed(struct nvme_io *io)
{
    struct nvme *n = io->n;
    struct nvme_path *p = &n->path[io->op.path];
    struct path_format *f = &n->format->path[io->op.path];
    MUST(f->busy);
    f->busy = false;
    if (io->op.result < 0)
        return;
    f->page += (uint32_t)(io->op.bytes / NVME_PAGE);
    MUST(f->page <= n->seg_pages);
    if (f->page == n->seg_pages) {
        f->page = 0;
        p->zeroing++;
    }
}

static void zero_next(struct nvme *n, struct nvme_path *p)
{
    struct path_format *f = &n->format->path[p->number];
    MUST(!f->busy && p->zeroing < p->segs); /* a segment in use is never zeroed */
    MUST(n->seg[p->first_seg + p->zeroing].state == NVME_S_BLANK);
    const uint64_t most = ARRAY_LEN(f->iov) * ZERO_BYTES;
    const uint64_t left = (uint64_t)(n->seg_pages - f->page) * NVME_PAGE;
    const uint64_t bytes = left < most ? left : most;
    uint32_t iovs = 0;
    for (uint64_t at = 0; at < bytes; at += ZERO_BYTES)
        f->iov[iovs++] =
            (struct iovec){n->format->zero, bytes - at < ZERO_BYTES ? bytes - at : ZERO_BYTES};
    f->busy = true;
    nvme__issue(n, &f->io, DISK_WRITE, p, f->iov, iovs,
                nvme__seg_page(n, p->first_seg + p->zeroing) + f->page, bytes, on_zeroed);
}

void nvme__format_run(struct nvme *n)
{
    for (uint32_t i = 0; i < n->paths; i++) {
        struct nvme_path *p = &n->path[i];
        struct path_format *f = &n->format->path[i];
        if (p->state != NVME_PATH_FORMATTING || f->busy || p->super.phase != NVME_SB_IDLE ||
            n->stopping)
            continue;
        if (p->zeroing == p->formatted)
            f->target = MIN(p->segs, p->formatted + MIN(BATCH_MAX, p->formatted / 2 + 1));
        if (p->zeroing < f->target)
            zero_next(n, p);
        else
            nvme__super_start(n, p, f->target, false);
    }
}

void nvme__format_saved(struct nvme *n, struct nvme_path *p)
{
    MUST(p->super.formatted <= p->segs);
    for (; p->formatted < p->super.formatted; p->formatted++)
        nvme__seg_free(n, p->first_seg + p->formatted);
    if (p->state == NVME_PATH_FORMATTING && p->formatted == p->segs)
        p->state = NVME_PATH_UP;
}
