/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks a store from one end to the other while the daemon is not running: journal against tables,
 * tables against payload. `kvcache-daemon --check-store` calls it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cursor.h"
#include "nvme__.h"
#include "sys.h"

#define PIECE_PAGES 64u /* more than any table takes */

struct extent {
    uint64_t page;
    uint32_t path;
    bool forward; /* found by its table: the journal does not name it yet */
    struct nvme_value value;
};
struct check {
    struct disk *disk;
    int (*pump)(void *ctx);
    void *ctx;
    void (*say)(void *ctx, const char *line);
    struct nvme_report *report;
    struct nvme_super super[DISK_PATHS_MAX];
    bool have[DISK_PATHS_MAX];
    struct extent *extent;
    uint32_t n, cap;
    uint64_t forward_mark[DISK_PATHS_MAX];
    bool mine; /* the journal belongs to this store */
    int problems, error;
    uint8_t *head, *piece;
};

__attribute__((format(printf, 2, 3))) static void problem(struct check *k, const char *fmt, ...)
{
    char line[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    k->problems++;
    k->say(k->ctx, line);
}

static void nvme_check_on_read(struct disk_op *op)
{
    bool *done = op->ctx;
    MUST(!*done);
    *done = true;
}

static int nvme_check_read_pages(struct check *k, uint32_t path, uint64_t page, uint32_t pages,
                                 void *buf)
{
    bool done = false;
    struct iovec iov = {buf, (size_t)pages * NVME_PAGE};
    struct disk_op op = {.kind = DISK_READ,
                         .path = path,
                         .iov = &iov,
                         .iovs = 1,
                         .off = page * NVME_PAGE,
                         .bytes = iov.iov_len,
                         .done = nvme_check_on_read,
                         .ctx = &done};
    const uint64_t there = k->disk->ops->bytes(k->disk, path) / NVME_PAGE;
    MUST(pages > 0 && pages <= (buf == k->head ? NVME_HEAD_PAGES : PIECE_PAGES));
    if (page > there || pages > there - page)
        return -ENXIO;
    k->disk->ops->submit(k->disk, &op);
    while (!done) {
        const int r = k->pump(k->ctx);
        k->error = k->error != 0 ? k->error : r < 0 ? r : 0;
    }
    return op.result < 0 ? (int)op.result : 0;
}

static void check_super(struct check *k, uint32_t path)
{
    struct nvme_super s;
    const int r = nvme_check_read_pages(k, path, 0, 2, k->head);
    if (r < 0) {
        problem(k, "path %u: the superblocks cannot be read: %s", path, err_name(r));
        return;
    }
    for (unsigned i = 0; i < 2; i++) {
        const int why = nvme__super_decode(k->head + (size_t)i * NVME_PAGE, &s);
        if (why == 0 && (!k->have[path] || s.seq > k->super[path].seq)) {
            k->super[path] = s;
            k->have[path] = true;
        } else if (why != 0 && why != -ENOENT) {
            problem(k, "path %u: superblock %u: %s", path, i,
                    why == -EPROTONOSUPPORT ? "of a later version" : "damaged");
        }
    }
    if (!k->have[path]) {
        problem(k, "path %u: no superblock", path);
        return;
    }
    const struct nvme_super *ours = &k->super[path];
    const uint64_t pages = NVME_HEADER_PAGES + (uint64_t)ours->segments * ours->seg_pages;
    const uint64_t there = k->disk->ops->bytes(k->disk, path) / NVME_PAGE;
    if (ours->path != path)
        problem(k, "path %u: it was path %u of its store", path, ours->path);
    if (pages > there)
        problem(k, "path %u: it was cut: %llu bytes of %llu are there", path,
                (unsigned long long)there * NVME_PAGE, (unsigned long long)pages * NVME_PAGE);
}

/* ---- extents that the journal names ---- */

static int take_extent(struct check *k, const struct extent *x)
{
    if (k->n == k->cap) {
        const uint32_t cap = k->cap != 0 ? k->cap * 2 : 256;
        struct extent *at = sys_realloc(k->extent, (size_t)cap * sizeof(at[0]));
        if (at == NULL)
            return -ENOMEM;
        k->extent = at;
        k->cap = cap;
    }
    k->extent[k->n++] = *x;
    return 0;
}

static bool is_uuid_of(const struct check *k, const uint8_t *uuid)
{
    for (uint32_t i = 0; i < k->disk->paths; i++)
        if (k->have[i])
            return uuid != NULL && memcmp(uuid, k->super[i].uuid, sizeof(k->super[i].uuid)) == 0;
    return false;
}

static int each_entry(void *ctx, uint64_t key, const void *value, uint32_t bytes)
{
    struct check *k = ctx;
    struct extent x = {.path = (uint32_t)(key >> 56), .page = key & ((UINT64_C(1) << 56) - 1)};
    if (key == NVME_KEY_STORE) {
        struct cursor c;
        cursor_init(&c, value, bytes);
        k->mine = is_uuid_of(k, cursor_take(&c, sizeof(k->super[0].uuid)));
    }
    if (key == NVME_KEY_FORWARD) {
        struct cursor c;
        cursor_init(&c, value, bytes);
        for (uint32_t i = 0; i < k->disk->paths && cursor_left(&c) >= sizeof(uint64_t); i++)
            k->forward_mark[i] = cursor_u64le(&c);
    }
    if ((key & NVME_KEY_META) != 0)
        return 0;
    if (nvme__value_decode(value, bytes, &x.value) < 0) {
        problem(k, "journal: the entry of path %u page %llu is damaged", x.path,
                (unsigned long long)x.page);
        return 0;
    }
    return take_extent(k, &x);
}

/* ---- the same without a journal: by the tables, as the next start finds them ---- */

struct walk {
    uint32_t path, seg;
    uint32_t before; /* number of extents found in earlier segments */
    uint64_t gen;    /* newest generation found in this segment; extents of older ones are gone */
};

static bool take_table(struct check *k, struct walk *w, uint32_t page, const uint8_t *table,
                       const struct nvme_head *h)
{
    const struct nvme_super *s = &k->super[w->path];
    if (memcmp(h->uuid, s->uuid, sizeof(h->uuid)) != 0 || h->path != w->path || h->seg != w->seg ||
        h->page != page || h->gen < w->gen || h->pages > s->seg_pages - page)
        return false;
    if (h->gen != w->gen)
        k->n = w->before;
    w->gen = h->gen;
    struct extent x = {.path = w->path,
                       .page = NVME_HEADER_PAGES + (uint64_t)w->seg * s->seg_pages + page,
                       .value = nvme__value_of(h)};
    if (!nvme__dead_decode(table, h, x.value.dead))
        return false;
    const int r = take_extent(k, &x);
    k->error = r < 0 ? r : k->error;
    return true;
}

/* Takes the extents whose tables are in `piece`. Returns how many pages the walk may go on. */
static uint32_t take_tables(struct check *k, struct walk *w, uint32_t page, uint32_t pages)
{
    uint32_t at = 0;
    while (at < pages) {
        struct nvme_head h;
        const uint8_t *table = k->piece + (size_t)at * NVME_PAGE;
        const int r = nvme__head_decode(table, (uint64_t)(pages - at) * NVME_PAGE, &h);
        if (r == -ENOBUFS && at != 0)
            return at;
        at += r == 0 && take_table(k, w, page + at, table, &h) ? h.pages : 1;
    }
    return at;
}

static void walk_tables(struct check *k)
{
    k->n = 0;
    for (uint32_t path = 0; path < k->disk->paths; path++) {
        const struct nvme_super *s = &k->super[path];
        const uint32_t segments = k->have[path] && s->path == path ? s->segments : 0;
        for (uint32_t seg = 0; seg < segments; seg++) {
            struct walk w = {.path = path, .seg = seg, .before = k->n};
            const uint64_t first = NVME_HEADER_PAGES + (uint64_t)seg * s->seg_pages;
            for (uint32_t page = 0; page < s->seg_pages && k->error == 0;) {
                const uint32_t pages = MIN(PIECE_PAGES, s->seg_pages - page);
                page += nvme_check_read_pages(k, path, first + page, pages, k->piece) < 0
                            ? pages
                            : take_tables(k, &w, page, pages);
            }
        }
    }
}

/* ---- extents behind those, of which the journal was not told ---- */

/* Takes the extents whose tables are in `piece`. Returns how many pages the walk may go on; 0: the
 * segment has no more. */
static uint32_t take_forward(struct check *k, struct extent *x, uint64_t first, uint32_t pages)
{
    const struct nvme_super *s = &k->super[x->path];
    uint32_t at = 0;
    while (at < pages) {
        struct nvme_head h;
        const uint64_t page = first + at - NVME_HEADER_PAGES;
        const int r = nvme__head_decode(k->piece + (size_t)at * NVME_PAGE,
                                        (uint64_t)(pages - at) * NVME_PAGE, &h);
        if (r == -ENOBUFS && at != 0)
            return at;
        if (r < 0 || memcmp(h.uuid, s->uuid, sizeof(h.uuid)) != 0 || h.path != x->path ||
            h.seg != page / s->seg_pages || h.page != page % s->seg_pages ||
            h.pages > s->seg_pages - h.page || h.gen != x->value.gen ||
            h.seq <= k->forward_mark[x->path])
            return 0;
        *x = (struct extent){
            .path = x->path, .page = first + at, .forward = true, .value = nvme__value_of(&h)};
        if (!nvme__dead_decode(k->piece + (size_t)at * NVME_PAGE, &h, x->value.dead))
            return 0;
        k->error = take_extent(k, x);
        if (k->error < 0)
            return 0;
        at += h.pages;
    }
    return at;
}

static uint64_t seg_of(const struct check *k, const struct extent *x)
{
    return (x->page - NVME_HEADER_PAGES) / k->super[x->path].seg_pages;
}

static bool is_last_of_segment(const struct check *k, uint32_t named, uint32_t i)
{
    const struct extent *x = &k->extent[i], *next = x + 1;
    MUST(i < named && named <= k->n);
    return i + 1 == named || next->path != x->path || seg_of(k, next) != seg_of(k, x);
}

static int by_place(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    return x->path != y->path ? (x->path > y->path) - (x->path < y->path)
                              : (x->page > y->page) - (x->page < y->page);
}

static void go_forward(struct check *k)
{
    const uint32_t named = k->n;
    for (uint32_t i = 0; i < named; i++) {
        struct extent x = k->extent[i];
        if (x.path >= k->disk->paths || !k->have[x.path] || x.page < NVME_HEADER_PAGES ||
            (x.value.flags & NVME_T_DURABLE) == 0 || !is_last_of_segment(k, named, i))
            continue;
        const uint64_t end =
            NVME_HEADER_PAGES + (seg_of(k, &x) + 1) * (uint64_t)k->super[x.path].seg_pages;
        for (uint64_t page = x.page + x.value.pages; page < end && k->error == 0;) {
            const uint32_t pages = (uint32_t)MIN((uint64_t)PIECE_PAGES, end - page);
            const int r = nvme_check_read_pages(k, x.path, page, pages, k->piece);
            const uint32_t on = r < 0 ? 0 : take_forward(k, &x, page, pages);
            if (r < 0)
                problem(k,
                        "path %u page %llu: what the journal may not have yet cannot be read: %s",
                        x.path, (unsigned long long)page, err_name(r));
            page = on != 0 ? page + on : end;
        }
    }
    k->report->extents_forward = k->n - named;
    if (k->n != named)
        qsort(k->extent, k->n, sizeof(k->extent[0]), by_place);
}

/* ---- tables and payload ---- */

/* False: the payload is torn, which is no problem for an extent that the journal did not name yet.
 */
static bool check_payload(struct check *k, const struct extent *x, uint32_t slot,
                          const struct nvme_item *it)
{
    struct hash_stream s;
    hash_stream_init(&s);
    for (uint64_t at = 0; at < it->bytes;) {
        const uint64_t left = it->bytes - at;
        const uint32_t pages = MIN(PIECE_PAGES, nvme__pages((uint32_t)left));
        const int r =
            nvme_check_read_pages(k, x->path, x->page + it->page + at / NVME_PAGE, pages, k->piece);
        if (r < 0) {
            problem(k, "path %u page %llu: block %u cannot be read: %s", x->path,
                    (unsigned long long)x->page, slot, err_name(r));
            return true;
        }
        const uint64_t got = MIN(left, (uint64_t)pages * NVME_PAGE);
        hash_stream_update(&s, k->piece, got);
        at += got;
    }
    const struct hash128 sum = hash_stream_final(&s);
    if (hash128_equal(&sum, &it->sum))
        return true;
    if (!x->forward)
        problem(k, "path %u page %llu: the payload of block %u is not what was stored", x->path,
                (unsigned long long)x->page, slot);
    return !x->forward;
}

static bool is_table_of(const struct check *k, const struct extent *x, const struct nvme_head *h)
{
    const struct nvme_super *s = &k->super[x->path];
    const uint64_t page = x->page - NVME_HEADER_PAGES;
    return memcmp(h->uuid, s->uuid, sizeof(h->uuid)) == 0 && h->path == x->path &&
           h->seg == page / s->seg_pages && h->page == page % s->seg_pages &&
           h->gen == x->value.gen && h->seq == x->value.seq && h->items == x->value.items &&
           h->pages == x->value.pages && hash128_equal(&h->sum, &x->value.sum);
}

static void check_extent(struct check *k, const struct extent *x, bool payload)
{
    struct nvme_head h;
    struct nvme_item it;
    int r = nvme_check_read_pages(k, x->path, x->page, x->value.head_pages, k->head);
    if (r == 0)
        r = nvme__head_decode(k->head, (uint64_t)x->value.head_pages * NVME_PAGE, &h);
    if (r < 0 || !is_table_of(k, x, &h)) {
        uint32_t alive = 0;
        for (uint32_t i = x->value.records; i < x->value.items; i++)
            alive += (x->value.dead[i / 8] >> i % 8 & 1) == 0;
        k->report->tables_damaged++;
        k->report->blocks_dropped += alive;
        if (alive != 0)
            problem(k, "path %u page %llu: the table of %u blocks is %s", x->path,
                    (unsigned long long)x->page, alive,
                    r == 0      ? "another's"
                    : r == -EIO ? "unreadable"
                                : "damaged");
        return;
    }
    for (uint32_t i = 0; i < h.items; i++) {
        nvme__item_decode(k->head, i, &it);
        if (!nvme__item_ok(&h, &it)) {
            problem(k, "path %u page %llu: item %u lies outside of its extent", x->path,
                    (unsigned long long)x->page, i);
            continue;
        }
        if ((it.flags & NVME_I_RECORD) != 0 || (x->value.dead[i / 8] >> i % 8 & 1) != 0)
            continue;
        if ((payload || x->forward) && !check_payload(k, x, i, &it)) {
            k->report->blocks_torn++;
            continue;
        }
        k->report->blocks++;
        k->report->bytes += it.bytes;
    }
}

/* Extents are checked in order of their places; `before` is the one before `x`. */
static void check_place(struct check *k, const struct extent *x, const struct extent *before)
{
    const struct nvme_super *s = &k->super[x->path];
    const uint64_t page = x->page - NVME_HEADER_PAGES;
    if (x->page < NVME_HEADER_PAGES || page / s->seg_pages >= s->segments ||
        page % s->seg_pages + x->value.pages > s->seg_pages)
        problem(k, "path %u page %llu: an extent outside of the segments", x->path,
                (unsigned long long)x->page);
    if (before == NULL || before->path != x->path)
        return;
    const uint64_t other = before->page - NVME_HEADER_PAGES;
    if (before->page + before->value.pages > x->page)
        problem(k, "path %u page %llu: it overlaps the extent before it", x->path,
                (unsigned long long)x->page);
    if (other / s->seg_pages == page / s->seg_pages && before->value.gen != x->value.gen)
        problem(k, "path %u page %llu: two generations in one segment", x->path,
                (unsigned long long)x->page);
}

static void check_all(struct check *k, struct journal *journal, bool payload)
{
    for (uint32_t i = 0; i < k->disk->paths; i++)
        check_super(k, i);
    const int r = journal != NULL ? journal->ops->walk(journal, each_entry, k) : -EUCLEAN;
    if (r == -ENOMEM) {
        k->error = r;
        return;
    }
    if (r < 0 || !k->mine) {
        problem(k, "journal: %s: blocks are found by their tables, those that were let go of too",
                r < 0 ? "damaged" : "of another store, or never finished");
        walk_tables(k);
    } else {
        go_forward(k);
    }
    for (uint32_t i = 0; i < k->n && k->error == 0; i++) {
        const struct extent *x = &k->extent[i];
        if (x->path >= k->disk->paths) {
            problem(k, "journal: an extent of path %u, of which there is none", x->path);
            continue;
        }
        if (!k->have[x->path])
            continue;
        k->report->extents++;
        check_place(k, x, i != 0 ? x - 1 : NULL);
        check_extent(k, x, payload);
    }
}

int nvme_check(struct disk *disk, struct journal *journal, bool payload, int (*pump)(void *ctx),
               void *ctx, void (*say)(void *ctx, const char *line), struct nvme_report *ret_report)
{
    struct check k = {.disk = disk, .pump = pump, .ctx = ctx, .say = say, .report = ret_report};
    MUST(disk->paths <= DISK_PATHS_MAX && pump != NULL && say != NULL);
    *ret_report = (struct nvme_report){0};
    memset(k.forward_mark, UINT8_MAX, sizeof(k.forward_mark));
    k.head = nvme__buffer(NVME_HEAD_PAGES);
    k.piece = nvme__buffer(PIECE_PAGES);
    if (k.head == NULL || k.piece == NULL)
        k.error = -ENOMEM;
    else
        check_all(&k, journal, payload);
    nvme__buffer_free(k.head, NVME_HEAD_PAGES);
    nvme__buffer_free(k.piece, PIECE_PAGES);
    free(k.extent);
    return k.error != 0 ? k.error : k.problems;
}
