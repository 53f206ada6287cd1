/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVMe tier as core sees it (api/tier.h): made, asked, submitted to; and nvme_run(), which in
 * each turn begins what the other nvme_*.c have to do.
 */
#include "nvme.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "nvme__.h"
#include "sys.h"

METRIC_DESC(nvme, NVME_METRICS);

#define MIB           (UINT64_C(1) << 20)
#define SECOND_NS     UINT64_C(1000000000)
#define LATE_NS       (SECOND_NS / 10) /* how late a deadline may be noticed */
#define SEG_PAGES_MIN 16u
#define WRITES        32u
#define READS         128u

static uint64_t or_else(uint64_t value, uint64_t otherwise)
{
    return value != 0 ? value : otherwise;
}

static struct nvme_config complete(const struct nvme_config *config)
{
    struct nvme_config c = *config;
    c.extent_bytes = or_else(c.extent_bytes, 2 * MIB);
    c.queue_bytes = or_else(c.queue_bytes, 64 * MIB);
    c.write_burst = or_else(c.write_burst, c.write_per_day / 8 + 1);
    c.io_timeout_ns = or_else(c.io_timeout_ns, 5 * SECOND_NS);
    c.retry_ns = or_else(c.retry_ns, SECOND_NS);
    c.sync_ns = or_else(c.sync_ns, SECOND_NS);
    return c;
}

/* A struct nvme with config, disk and geometry alone. NULL: no memory. */
static struct nvme *outline(const struct nvme_config *config)
{
    struct nvme *n = sys_aligned_alloc(64, ROUND_UP(sizeof(*n), 64));
    if (n == NULL)
        return NULL;
    memset(n, 0, sizeof(*n));
    n->c = complete(config);
    n->disk = config->disk;
    n->journal = config->journal;
    n->paths = config->disk->paths;
    nvme__geometry(n, NULL);
    return n;
}

const char *nvme_config_problem(const struct nvme_config *config)
{
    if (config->disk == NULL || config->journal == NULL)
        return "it needs a disk and a journal";
    if (config->disk->paths == 0 || config->disk->paths > DISK_PATHS_MAX)
        return "it needs 1 to 16 paths";
    if (config->segment_bytes % NVME_PAGE != 0 || config->extent_bytes % NVME_PAGE != 0)
        return "segments and extents are multiples of 4 KiB";
    if (config->segment_bytes != 0 && config->segment_bytes < SEG_PAGES_MIN * NVME_PAGE)
        return "a segment is 64 KiB at least";
    if (config->segment_bytes / NVME_PAGE > UINT32_MAX / 2)
        return "a segment is less than 8 TiB";
    if (config->extent_bytes / NVME_PAGE > NVME_EXTENT_MAX - NVME_HEAD_PAGES)
        return "an extent is at most 255 MiB";
    if (config->blocks_max == 0 || config->blocks_max > UINT32_MAX - 8)
        return "it needs room for at least one block";
    struct nvme *n = outline(config);
    if (n == NULL)
        return "there is no memory";
    bool small = n->seg_pages < SEG_PAGES_MIN;
    for (uint32_t i = 0; i < n->paths; i++)
        small = small || n->path[i].segs < NVME_PATH_SEGMENTS_MIN;
    free(n);
    return small ? "the limit gives a path less than four segments" : NULL;
}

static uint32_t extents_for(const struct nvme *n)
{
    return n->c.blocks_max + 2 * n->segs + 64;
}

uint64_t nvme_footprint(const struct nvme_config *config)
{
    struct nvme *n = outline(config);
    if (n == NULL)
        return 0;
    const uint64_t movers = NVME_MOVERS * (n->c.extent_bytes + NVME_TABLE_PAGES * NVME_PAGE);
    const uint64_t bytes =
        sizeof(*n) + ((uint64_t)n->c.blocks_max + 1) * sizeof(struct nvme_entry) +
        (uint64_t)extents_for(n) * sizeof(struct nvme_extent) +
        (uint64_t)n->segs * sizeof(struct nvme_seg) +
        WRITES * (sizeof(struct nvme_write) + NVME_HEAD_PAGES * (uint64_t)NVME_PAGE) +
        READS * sizeof(struct nvme_read) + NVME_VERIFIES * NVME_VERIFY_BYTES + movers +
        NVME_KEEPS_MAX * sizeof(struct nvme_keep) + NVME_DEADS * NVME_PAGE + nvme__health_bytes() +
        nvme__format_bytes() + n->paths * 2 * (uint64_t)NVME_PAGE;
    free(n);
    return bytes;
}

/* ---- life ---- */

/* A page behind the buffer is unmapped, so an access beyond its end faults (where the machine's
 * pages are not larger than 4 KiB). */
void *nvme__buffer(uint64_t pages)
{
    char *at = sys_pages((pages + 1) * NVME_PAGE);
    if (at != NULL)
        (void)mprotect(at + pages * NVME_PAGE, NVME_PAGE, PROT_NONE);
    return at;
}

void nvme__buffer_free(void *at, uint64_t pages)
{
    if (at != NULL)
        MUST(munmap(at, (pages + 1) * NVME_PAGE) == 0);
}

static bool alloc_io(struct nvme *n)
{
    bool good = true;
    n->writes.n = WRITES;
    n->reads.n = READS;
    n->writes.at = sys_calloc(WRITES, sizeof(n->writes.at[0]));
    n->reads.at = sys_calloc(READS, sizeof(n->reads.at[0]));
    if (n->writes.at == NULL || n->reads.at == NULL)
        return false;
    for (uint32_t i = 0; i < WRITES; i++) {
        n->writes.at[i].head = nvme__buffer(NVME_HEAD_PAGES);
        good = good && n->writes.at[i].head != NULL;
        n->writes.at[i].next = n->writes.free;
        n->writes.free = &n->writes.at[i];
    }
    for (uint32_t i = 0; i < READS; i++) {
        n->reads.at[i].next = n->reads.free;
        n->reads.free = &n->reads.at[i];
    }
    for (unsigned i = 0; i < NVME_VERIFIES; i++) {
        n->verify[i].buf = nvme__buffer(NVME_VERIFY_BYTES / NVME_PAGE);
        good = good && n->verify[i].buf != NULL;
    }
    for (unsigned i = 0; i < NVME_DEADS; i++) {
        n->dead[i].page = nvme__buffer(1);
        good = good && n->dead[i].page != NULL;
    }
    for (unsigned i = 0; i < NVME_MOVERS; i++) {
        n->mover[i].n = n;
        n->mover[i].head = nvme__buffer(NVME_TABLE_PAGES);
        n->mover[i].buf = nvme__buffer(n->c.extent_bytes / NVME_PAGE);
        good = good && n->mover[i].head != NULL && n->mover[i].buf != NULL;
    }
    return good;
}

static bool alloc_tables(struct nvme *n)
{
    bool good = true;
    n->entries.max = n->c.blocks_max;
    n->entries.fresh = 1;
    n->entries.free = n->extents.free = n->seg_use.delete_head = NVME_NONE;
    n->extents.max = extents_for(n);
    /* Pages of the tables are touched as they are used. */
    n->entry = sys_calloc((size_t)n->entries.max + 1, sizeof(n->entry[0]));
    n->extent = sys_calloc(n->extents.max, sizeof(n->extent[0]));
    n->keeps.at = sys_calloc(NVME_KEEPS_MAX, sizeof(n->keeps.at[0]));
    for (uint32_t i = 0; i < n->paths; i++) {
        struct nvme_path *p = &n->path[i];
        p->number = i;
        p->free.first = NVME_NONE;
        p->sync.due_ns = UINT64_MAX;
        p->sync.written_seq = p->sync.syncing_seq = UINT64_MAX;
        p->open[NVME_NORMAL].seg = p->open[NVME_DURABLE].seg = NVME_NONE;
        list_init(&p->inflight);
        p->super.page = nvme__buffer(2);
        good = good && p->super.page != NULL;
    }
    return good && n->entry != NULL && n->extent != NULL && n->keeps.at != NULL &&
           nvme__segs_alloc(n) == 0 && nvme__health_alloc(n) == 0 && nvme__format_alloc(n) == 0;
}

void nvme_destroy(struct nvme **nvme)
{
    struct nvme *n = nvme != NULL ? *nvme : NULL;
    if (n == NULL)
        return;
    MUST(n->inflight.n == 0 && !n->commit.busy);
    for (uint32_t i = 0; n->writes.at != NULL && i < n->writes.n; i++)
        nvme__buffer_free(n->writes.at[i].head, NVME_HEAD_PAGES);
    for (unsigned i = 0; i < NVME_VERIFIES; i++)
        nvme__buffer_free(n->verify[i].buf, NVME_VERIFY_BYTES / NVME_PAGE);
    for (unsigned i = 0; i < NVME_DEADS; i++)
        nvme__buffer_free(n->dead[i].page, 1);
    for (unsigned i = 0; i < NVME_MOVERS; i++) {
        nvme__buffer_free(n->mover[i].head, NVME_TABLE_PAGES);
        nvme__buffer_free(n->mover[i].buf, n->c.extent_bytes / NVME_PAGE);
    }
    for (uint32_t i = 0; i < n->paths; i++)
        nvme__buffer_free(n->path[i].super.page, 2);
    free(n->writes.at);
    free(n->reads.at);
    free(n->entry);
    free(n->extent);
    free(n->seg);
    free(n->keeps.at);
    nvme__health_free(n);
    nvme__format_free(n);
    free(n);
    *nvme = NULL;
}

/* ---- tier.h ---- */

static int nvme_alloc(struct tier *t, uint32_t principal, uint32_t bytes, struct tier_loc beside,
                      uint32_t block_no, struct tier_loc *ret_loc)
{
    struct nvme *n = nvme__of(t);
    const uint64_t pages = nvme__pages(bytes);
    (void)principal;
    (void)beside; /* blocks that are put in one turn become neighbours */
    if (bytes == 0 || t->ops->slot_bytes(t, bytes) == 0)
        return KVC_E_TOO_LARGE;
    if (!nvme__put_fits(n, pages))
        return nvme__room_grows(n) ? KVC_E_BUSY : nvme__any_up(n) ? KVC_E_NO_ROOM : KVC_E_TIER;
    return nvme__entry_new(n, bytes, block_no, ret_loc);
}

static void nvme_free(struct tier *t, struct tier_loc loc)
{
    struct nvme *n = nvme__of(t);
    const struct nvme_entry *e = nvme__entry(n, loc);
    if ((e->flags & NVME_E_MOVING) != 0)
        nvme__keep_abandon(n, loc);
    if (e->state == NVME_E_LIVE)
        nvme__vain_freed(n, nvme__pages(e->bytes));
    nvme__entry_free(n, loc);
}

/* Workers do not map storage, and readers compare the sum, so this counts the block alone. */
static void nvme_invalidate(struct tier *t, struct tier_loc loc)
{
    MUST(nvme__entry(nvme__of(t), loc)->state == NVME_E_LIVE);
    nvme__count_corrupt(nvme__of(t), loc);
}

static void nvme_submit(struct tier *t, struct tier_op *op)
{
    struct nvme *n = nvme__of(t);
    MUST(n->running && op->done != NULL);
    if (op->kind == TIER_PUT) {
        nvme__write_submit(n, op);
        return;
    }
    MUST(op->kind == TIER_GET || op->kind == TIER_VERIFY);
    nvme__read_submit(n, op);
}

static void nvme_set_label(struct tier *t, const struct tier_op *op)
{
    struct nvme_entry *e = nvme__entry(nvme__of(t), op->loc);
    MUST(e->state == NVME_E_WRITTEN && op->status == 0);
    e->state = NVME_E_LIVE;
}

static struct hash128 nvme_sum(const struct tier *t, struct tier_loc loc)
{
    return nvme__entry(nvme__of(t), loc)->sum;
}

static uint32_t nvme_slot_bytes(const struct tier *t, uint32_t bytes)
{
    const uint32_t pages = nvme__pages(bytes);
    const uint32_t most = MIN(nvme__of(t)->seg_pages, NVME_EXTENT_MAX) - 2;
    return bytes != 0 && pages <= most ? pages * NVME_PAGE : 0;
}

static void nvme_stats(const struct tier *t, struct tier_stats *ret)
{
    const struct nvme *n = nvme__of(t);
    const uint64_t seg_bytes = (uint64_t)n->seg_pages * NVME_PAGE;
    *ret = (struct tier_stats){
        .limit_bytes = n->segs * seg_bytes,
        .lasting_bytes = nvme__lasting_pages(n) * NVME_PAGE,
        .used_bytes = (n->pages.live + n->pages.reserved) * NVME_PAGE,
        .used_slots = n->entries.used,
        .inflight_ops = n->inflight.n,
        .turn_ms = n->reclaim.opened_ns ? (n->now_ns - n->reclaim.opened_ns) / 1000000 + 1 : 0,
        .inflight_bytes = n->inflight.write_bytes + n->inflight.read_bytes};
    for (uint32_t i = 0; i < n->paths; i++)
        ret->faulted_bytes += n->path[i].formatted * seg_bytes;
    ret->mapped_bytes = ret->faulted_bytes;
}

static void nvme_run(struct nvme *n)
{
    n->work = false;
    nvme__keep_run(n);
    nvme__write_run(n);
    nvme__read_run(n);
    nvme__sync_run(n);
    nvme__format_run(n);
}

/* done() of operations that end at once runs in the next turn, never inside the caller's call. */
static void nvme_kick(struct tier *t)
{
    struct nvme *n = nvme__of(t);
    nvme__read_sort(n);
    nvme_run(n);
}

static bool nvme_readable(const struct tier *t, struct tier_loc loc)
{
    struct nvme *n = nvme__of(t);
    const struct nvme_entry *e = nvme__entry(n, loc);
    return e->extent != NVME_NONE && n->extent[e->extent].state != NVME_X_LOST &&
           nvme__path_up(nvme__entry_path(n, e));
}

static const struct tier_ops nvme_ops = {
    .name = "nvme",
    .alloc = nvme_alloc,
    .free = nvme_free,
    .invalidate = nvme_invalidate,
    .submit = nvme_submit,
    .set_label = nvme_set_label,
    .sum = nvme_sum,
    .slot_bytes = nvme_slot_bytes,
    .stats = nvme_stats,
};

static const struct tier_storage_ops nvme_storage_ops = {
    .kick = nvme_kick,
    .readable = nvme_readable,
    .reclaim = nvme__reclaim,
    .keep = nvme__keep,
    .make_ordinary = nvme__make_ordinary,
    .granted = nvme__granted,
    .admits = nvme__admits,
    .room_soon = nvme__room_soon,
    .durable_room = nvme__durable_room,
    .confirm_frees = nvme__confirm_frees,
};

/* Reports what follows from an I/O at once; the disk does not call back inline. */
static void on_io_done(struct disk_op *op)
{
    struct nvme_io *io = nvme__io_ended(op);
    struct nvme *n = io->n;
    if (n->running)
        nvme__health_io(n, &n->path[op->path], io);
    io->end(io);
    n->work = true;
    if (!n->running)
        return;
    nvme__sync_run(n);
    nvme__call_done(n);
}

int nvme_create(const struct nvme_config *config, struct nvme **ret_nvme)
{
    if (nvme_config_problem(config) != NULL)
        return -EINVAL;
    struct nvme *n = outline(config);
    if (n == NULL)
        return -ENOMEM;
    n->now_ns = config->now_ns;
    n->wall_ns = config->wall_ns;
    n->commit.due_ns = UINT64_MAX;
    n->tier.ops = &nvme_ops;
    n->tier.storage = &nvme_storage_ops;
    n->io_done = on_io_done;
    if (!alloc_tables(n) || !alloc_io(n)) {
        nvme_destroy(&n);
        return -ENOMEM;
    }
    *ret_nvme = n;
    return 0;
}

struct tier *nvme_tier(struct nvme *nvme)
{
    return &nvme->tier;
}

/* ---- turns ---- */

void nvme_tick(struct nvme *n, uint64_t now_ns, uint64_t wall_ns)
{
    n->now_ns = MAX(n->now_ns, now_ns);
    n->wall_ns = wall_ns;
    if (!n->running)
        return;
    n->recovering = false;
    nvme__health_tick(n);
    nvme__budget_tick(n);
    nvme__read_sweep(n);
    nvme_run(n);
    nvme__call_done(n);
}

static bool waiting(const struct nvme *n)
{
    bool any = n->queue.get_new.n != 0 || n->queue.get_ready.n != 0 || n->queue.verify.n != 0 ||
               n->keeps.n != 0;
    for (unsigned which = 0; which < NVME_CLASSES; which++)
        any = any || n->queue.put[which].n != 0;
    return any;
}

uint64_t nvme_next_ns(const struct nvme *n)
{
    uint64_t at = UINT64_MAX;
    if (!n->running)
        return at;
    if (n->queue.finish.n != 0 || n->lost.n != 0 || n->work)
        return n->now_ns;
    for (uint32_t i = 0; i < n->paths; i++)
        if (n->path[i].durable.n != 0)
            at = nvme__sooner(at, n->now_ns + LATE_NS);
    if (waiting(n))
        at = nvme__sooner(at, n->now_ns + LATE_NS);
    at = nvme__sooner(at, nvme__sync_next(n));
    at = nvme__sooner(at, nvme__health_next(n));
    return nvme__sooner(at, nvme__budget_next(n));
}

void nvme_flush(struct nvme *n)
{
    n->flushing = true;
    nvme__sync_run(n);
}

void nvme_stop(struct nvme *n)
{
    n->stopping = true;
    n->flushing = true;
}

bool nvme_is_quiet(const struct nvme *n)
{
    return n->inflight.n == 0 && n->queue.finish.n == 0 && n->lost.n == 0 && !waiting(n) &&
           nvme__keep_idle(n) && nvme__sync_idle(n) && n->confirm.next.n == 0 &&
           !nvme__confirming(n);
}

/* ---- figures ---- */

int nvme_path_error(const struct nvme *n, uint32_t path)
{
    MUST(path < n->paths);
    return nvme__path_up(&n->path[path]) ? 0 : n->path[path].error;
}

uint64_t nvme_path_corrupt(const struct nvme *n, uint32_t path)
{
    MUST(path < n->paths);
    return n->path[path].count.corrupt;
}

int nvme_journal_error(const struct nvme *n)
{
    return n->journal_error;
}

void nvme_path_stats(const struct nvme *n, uint32_t path, struct nvme_path_stats *ret)
{
    MUST(path < n->paths);
    const struct nvme_path *p = &n->path[path];
    const uint64_t seg_bytes = (uint64_t)n->seg_pages * NVME_PAGE;
    uint64_t live = 0;
    for (uint32_t i = 0; i < p->segs; i++)
        live += n->seg[p->first_seg + i].live_pages;
    *ret = (struct nvme_path_stats){.state = p->state,
                                    .error = p->error,
                                    .bytes = p->segs * seg_bytes,
                                    .used_bytes = live * NVME_PAGE,
                                    .formatted_bytes = p->formatted * seg_bytes,
                                    .reads = p->count.reads,
                                    .writes = p->count.writes,
                                    .syncs = p->count.syncs,
                                    .read_bytes = p->count.read_bytes,
                                    .write_bytes = p->count.write_bytes,
                                    .errors = p->count.errors,
                                    .outs = p->count.outs,
                                    .queued = p->queued,
                                    .queued_bytes = p->queued_bytes,
                                    .read_ns = &p->count.read_ns,
                                    .write_ns = &p->count.write_ns};
}

struct metric_set nvme_metric_set(const struct nvme *nvme)
{
    struct nvme *n = (struct nvme *)(uintptr_t)nvme;
    struct nvme_metrics *m = &n->m;
    m->budget_spent_bytes = n->budget.spent;
    const bool limited = n->c.write_per_day != 0 && n->budget.tokens > 0;
    m->budget_left_bytes = limited ? (uint64_t)n->budget.tokens : 0;
    if (m->bytes_accepted > 0)
        m->write_amplification_percent =
            (m->bytes_written + m->bytes_journal) * 100 / m->bytes_accepted;
    histo_reset(&m->read_ns);
    histo_reset(&m->write_ns);
    for (uint32_t i = 0; i < n->paths; i++) {
        histo_merge(&m->read_ns, &n->path[i].count.read_ns);
        histo_merge(&m->write_ns, &n->path[i].count.write_ns);
    }
    m->blocks = n->entries.used;
    m->used_bytes = n->pages.live * NVME_PAGE;
    m->durable_bytes = n->pages.durable * NVME_PAGE;
    m->limit_bytes = (uint64_t)n->segs * n->seg_pages * NVME_PAGE;
    m->segments_free = n->seg_use.free;
    m->journal_error = (uint64_t)-n->journal_error;
    m->paths_up = m->paths_out = 0;
    for (uint32_t i = 0; i < n->paths; i++)
        ++*(nvme__path_up(&n->path[i]) ? &m->paths_up : &m->paths_out);
    return METRIC_SET(nvme, "nvme", m);
}
