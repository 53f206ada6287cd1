/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a new path once, in the background, one I/O at a time: on many file systems, room that was
 * reserved but never written is half as fast. Segments come into use in batches, when the
 * superblock says that they were written. Nothing that is read depends on it.
 */
#include "nvme__.h"

#define BATCH_MAX 16u

static void on_zeroed(struct nvme_io *io)
{
    struct nvme *n = io->n;
    struct nvme_path *p = &n->path[io->op.path];
    MUST(p->zero_busy);
    p->zero_busy = false;
    if (io->op.result < 0)
        return;
    p->zero_page += (uint32_t)(io->op.bytes / NVME_PAGE);
    MUST(p->zero_page <= n->seg_pages);
    if (p->zero_page == n->seg_pages) {
        p->zero_page = 0;
        p->zeroing++;
    }
}

static void zero_next(struct nvme *n, struct nvme_path *p)
{
    MUST(!p->zero_busy && p->zeroing < p->segs); /* and never what is in use */
    MUST(n->seg[p->first_seg + p->zeroing].state == NVME_S_BLANK);
    const uint64_t most = ARRAY_LEN(p->zero_iov) * NVME_ZERO_BYTES;
    const uint64_t left = (uint64_t)(n->seg_pages - p->zero_page) * NVME_PAGE;
    const uint64_t bytes = left < most ? left : most;
    uint32_t iovs = 0;
    for (uint64_t at = 0; at < bytes; at += NVME_ZERO_BYTES)
        p->zero_iov[iovs++] =
            (struct iovec){n->zero, bytes - at < NVME_ZERO_BYTES ? bytes - at : NVME_ZERO_BYTES};
    p->zero_busy = true;
    nvme__issue(n, &p->zero_io, DISK_WRITE, p, p->zero_iov, iovs,
                nvme__seg_page(n, p->first_seg + p->zeroing) + p->zero_page, bytes, on_zeroed);
}

void nvme__format_run(struct nvme *n)
{
    for (uint32_t i = 0; i < n->paths; i++) {
        struct nvme_path *p = &n->path[i];
        if (p->state != NVME_PATH_FORMATTING || p->zero_busy || p->super_phase != NVME_SB_IDLE ||
            n->stopping)
            continue;
        if (p->zeroing == p->formatted)
            p->zero_target = MIN(p->segs, p->formatted + MIN(BATCH_MAX, p->formatted / 2 + 1));
        if (p->zeroing < p->zero_target)
            zero_next(n, p);
        else
            nvme__super_start(n, p, p->zero_target, false);
    }
}

void nvme__format_saved(struct nvme *n, struct nvme_path *p)
{
    MUST(p->super_formatted <= p->segs);
    for (; p->formatted < p->super_formatted; p->formatted++)
        nvme__seg_free(n, p->first_seg + p->formatted);
    if (p->state == NVME_PATH_FORMATTING && p->formatted == p->segs)
        p->state = NVME_PATH_UP;
}
