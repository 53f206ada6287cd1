/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes failing paths out, and brings them back.
 *
 * A path is taken out after a failed write or sync, after two failed reads in a row (one may be a
 * bad sector), or when an I/O takes too long. It is also taken out when its file lost its name, for
 * a restart would not find it, or became shorter. A path that is out is tried again: its superblock
 * is read, since another store may have taken its place, then written, read back and synced. If all
 * that works, the path is back.
 */
#include <stdlib.h>

#include "nvme__.h"
#include "sys.h"

#define PAUSE_MAX_NS (UINT64_C(60) * 1000000000)
#define LOOK_NS      (UINT64_C(2) * 1000000000)
#define STEADY       10u /* pauses without a failure, and the next pause is the shortest again */

/* How a path fares. */
struct path_health {
    uint32_t errors_row; /* failed reads since the last good I/O, at places that differ */
    uint64_t bad_off;    /* where the last of them was, in bytes */
    uint64_t since_ns;   /* when the path came back last; 0: it was never out */
    uint64_t probe_ns;   /* out: when it is tried again */
    uint64_t pause_ns;   /* out: from one try to the next */
};

struct nvme_health {
    uint64_t look_ns; /* when it is next looked whether paths and journal still have their files */
    struct path_health path[DISK_PATHS_MAX];
};

int nvme__health_alloc(struct nvme *n)
{
    n->health = sys_calloc(1, sizeof(*n->health));
    return n->health != NULL ? 0 : -ENOMEM;
}

void nvme__health_free(struct nvme *n)
{
    free(n->health);
    n->health = NULL;
}

uint64_t nvme__health_bytes(void)
{
    return sizeof(struct nvme_health);
}

static struct path_health *health_of(const struct nvme *n, const struct nvme_path *p)
{
    return &n->health->path[p->number];
}

void nvme__path_out(struct nvme *n, struct nvme_path *p, int error)
{
    if (p->state == NVME_PATH_OUT)
        return;
    struct path_health *h = health_of(n, p);
    if (h->pause_ns == 0 || n->now_ns - h->since_ns > STEADY * h->pause_ns)
        h->pause_ns = n->c.retry_ns;
    p->state = NVME_PATH_OUT;
    p->error = error;
    p->count.outs++;
    h->probe_ns = n->now_ns + h->pause_ns;
    nvme__durable_end(n, p, -EIO);
}

void nvme__health_io(struct nvme *n, struct nvme_path *p, const struct nvme_io *io)
{
    struct path_health *h = health_of(n, p);
    if (io->op.result >= 0) {
        h->errors_row = 0;
        return;
    }
    p->count.errors++;
    if (io->parts) /* the reads of single blocks that follow show if a place or the path is bad */
        return;
    if (io->op.kind == DISK_SYNC)
        nvme__sync_failed(n, p);
    if (io->op.kind == DISK_READ && h->errors_row != 0 && io->op.off == h->bad_off)
        return; /* the same bad place was read again */
    h->bad_off = io->op.off;
    if (io->op.kind != DISK_READ || ++h->errors_row >= 2)
        nvme__path_out(n, p, (int)io->op.result);
}

static bool stuck(const struct nvme *n, const struct nvme_path *p)
{
    const struct list_node *first = list_first(&p->inflight);
    if (first == NULL)
        return false;
    const struct nvme_io *io =
        CONTAINER_OF((struct list_node *)(uintptr_t)first, struct nvme_io, node);
    return n->now_ns - io->start_ns >= n->c.io_timeout_ns;
}

/* ---- superblock ---- */

static void super_end(struct nvme *n, struct nvme_path *p, int result)
{
    struct path_health *h = health_of(n, p);
    p->super.phase = NVME_SB_IDLE;
    if (result == 0 && p->super.probe) {
        p->state = p->super.formatted < p->segs ? NVME_PATH_FORMATTING : NVME_PATH_UP;
        p->error = 0;
        h->since_ns = n->now_ns;
        p->sync.due_ns = p->sync.written.n != 0 ? n->now_ns : UINT64_MAX;
        n->tell_room = true;
    } else if (p->super.probe) {
        p->error = result;
        h->pause_ns = MIN(h->pause_ns * 2, PAUSE_MAX_NS);
        h->probe_ns = n->now_ns + h->pause_ns;
    }
    if (result == 0)
        nvme__format_saved(n, p);
}

static void on_super(struct nvme_io *io);

static void super_write(struct nvme *n, struct nvme_path *p)
{
    MUST(p->super.formatted <= p->segs);
    struct nvme_super s = {.seq = ++p->super.seq,
                           .path = p->number,
                           .paths = n->paths,
                           .seg_pages = n->seg_pages,
                           .segments = p->segs,
                           .formatted = p->super.formatted,
                           .epoch = n->store.epoch};
    memcpy(s.uuid, n->store.uuid, sizeof(s.uuid));
    nvme__super_encode(&s, p->super.page);
    p->super.phase = NVME_SB_WRITE;
    p->super.iov = (struct iovec){p->super.page, NVME_PAGE};
    n->m.bytes_written += NVME_PAGE;
    nvme__issue(n, &p->super.io, DISK_WRITE, p, &p->super.iov, 1, p->super.seq & 1, NVME_PAGE,
                on_super);
}

/* Whether a superblock is this store's. One of two is enough: the other's write may have failed. */
static bool is_ours(const struct nvme *n, const struct nvme_path *p)
{
    for (unsigned i = 0; i < 2; i++) {
        struct nvme_super s;
        if (nvme__super_decode(p->super.page + (size_t)i * NVME_PAGE, &s) == 0 &&
            memcmp(s.uuid, n->store.uuid, sizeof(s.uuid)) == 0 && s.path == p->number)
            return true;
    }
    return false;
}

static void on_super(struct nvme_io *io)
{
    struct nvme *n = io->n;
    struct nvme_path *p = &n->path[io->op.path];
    MUST(p->super.phase != NVME_SB_IDLE);
    int result = io->op.result < 0 ? (int)io->op.result : 0;
    if (result == 0 && n->now_ns - io->start_ns > n->c.io_timeout_ns)
        result = -ETIMEDOUT;
    if (result == 0 && p->super.phase == NVME_SB_LOOK && !is_ours(n, p))
        result = -ESTALE;
    if (result == 0 && p->super.phase == NVME_SB_READ &&
        memcmp(p->super.page, p->super.page + NVME_PAGE, NVME_PAGE) != 0)
        result = -EIO;
    if (result != 0 || p->super.phase == NVME_SB_SYNC) {
        super_end(n, p, result);
        return;
    }
    if (p->super.phase == NVME_SB_LOOK) {
        super_write(n, p);
        return;
    }
    if (p->super.phase == NVME_SB_WRITE && p->super.probe) {
        p->super.phase = NVME_SB_READ;
        p->super.iov.iov_base = p->super.page + NVME_PAGE;
        nvme__issue(n, io, DISK_READ, p, &p->super.iov, 1, p->super.seq & 1, NVME_PAGE, on_super);
        return;
    }
    p->super.phase = NVME_SB_SYNC;
    nvme__issue(n, io, DISK_SYNC, p, NULL, 0, 0, 0, on_super);
}

void nvme__super_start(struct nvme *n, struct nvme_path *p, uint32_t formatted, bool probe)
{
    MUST(p->super.phase == NVME_SB_IDLE);
    p->super.probe = probe;
    p->super.formatted = formatted;
    if (!probe) {
        super_write(n, p);
        return;
    }
    p->super.phase = NVME_SB_LOOK;
    p->super.iov = (struct iovec){p->super.page, (size_t)2 * NVME_PAGE};
    nvme__issue(n, &p->super.io, DISK_READ, p, &p->super.iov, 1, 0, p->super.iov.iov_len, on_super);
}

/* ---- time ---- */

static int standing(const struct nvme *n, uint32_t path)
{
    return n->disk->ops->stands != NULL ? n->disk->ops->stands(n->disk, path) : 0;
}

static void nvme_health_look(struct nvme *n)
{
    if (n->health->look_ns > n->now_ns)
        return;
    n->health->look_ns = n->now_ns + LOOK_NS;
    for (uint32_t i = 0; i < n->paths; i++) {
        const int gone = nvme__path_up(&n->path[i]) ? standing(n, i) : 0;
        if (gone < 0)
            nvme__path_out(n, &n->path[i], gone);
    }
    if (n->journal_error != 0 || n->journal->ops->stands == NULL)
        return;
    const int gone = n->journal->ops->stands(n->journal);
    if (gone < 0)
        nvme__journal_failed(n, gone);
}

/* A path is written again only if its file is in place. */
static void retry(struct nvme *n, struct nvme_path *p)
{
    const int gone = standing(n, p->number);
    if (gone == 0) {
        nvme__super_start(n, p, p->formatted, true);
        return;
    }
    p->error = gone;
    health_of(n, p)->probe_ns = n->now_ns + LOOK_NS;
}

void nvme__health_tick(struct nvme *n)
{
    nvme_health_look(n);
    for (uint32_t i = 0; i < n->paths; i++) {
        struct nvme_path *p = &n->path[i];
        if (nvme__path_up(p)) {
            if (stuck(n, p))
                nvme__path_out(n, p, -ETIMEDOUT);
        } else if (!p->absent && p->super.phase == NVME_SB_IDLE &&
                   health_of(n, p)->probe_ns <= n->now_ns && !stuck(n, p) && !n->stopping) {
            retry(n, p);
        }
    }
}

uint64_t nvme__health_next(const struct nvme *n)
{
    uint64_t at = n->disk->ops->stands != NULL ? n->health->look_ns : UINT64_MAX;
    for (uint32_t i = 0; i < n->paths; i++) {
        const struct nvme_path *p = &n->path[i];
        const struct list_node *first = list_first(&p->inflight);
        if (nvme__path_up(p) && first != NULL) {
            const struct nvme_io *io =
                CONTAINER_OF((struct list_node *)(uintptr_t)first, struct nvme_io, node);
            at = nvme__sooner(at, io->start_ns + n->c.io_timeout_ns);
        } else if (!nvme__path_up(p) && !p->absent && p->super.phase == NVME_SB_IDLE &&
                   !stuck(n, p)) {
            at = nvme__sooner(at, health_of(n, p)->probe_ns);
        }
    }
    return at;
}
