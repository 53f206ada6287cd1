/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds extents by their tables on disk, at start.
 *
 * Without a journal all segments are walked, many at a time. An extent's table says where the next
 * one begins; behind a hole (an extent that was lost while a later one was not) every page is
 * looked at. The caller decides which of the generations found in a segment counts. If there are
 * more extents than there is room for, durable ones are looked for first.
 *
 * With a journal, extents that it may not have learnt of before a crash are behind those that it
 * names, in durable segments. These are walked forward from there, to the first page that has
 * no table of that generation, or one of an extent up to the forward mark, which was lost.
 */
#include <stdlib.h>

#include "nvme__.h"
#include "sys.h"

#define WALKERS 32u
#define CHUNK   64u /* pages read at a time; more than any table takes */

/* Which extents are taken: all, the durable ones, or the others. */
enum which { WHICH_ALL, WHICH_DURABLE, WHICH_OTHERS };

struct walk {
    struct nvme *n;
    struct nvme_candidates *list;
    struct nvme_report *report;
    const bool *whole;    /* NULL: forward */
    const uint32_t *from; /* forward: the first page of each segment; 0: it is not walked */
    enum which which;
    uint32_t next_seg, active;
    int error;
};
struct walker {
    struct nvme_io io;
    struct walk *w;
    struct iovec iov;
    uint8_t *buf;
    uint64_t gen; /* the newest generation that was found in the segment */
    uint32_t seg, page, pages, tries;
    /* Forward: one page is read first, since most segments have nothing behind their known extents.
     * False: that page begins a table, and the whole table is read. */
    bool peeks;
};

static void nvme_rebuild_walk_on(struct walker *k);

static int take_in(struct walker *k, uint32_t at, const struct nvme_head *h)
{
    struct nvme *n = k->w->n;
    const struct nvme_path *p = &n->path[n->seg[k->seg].path];
    if (memcmp(h->uuid, n->store.uuid, sizeof(h->uuid)) != 0 || h->path != p->number ||
        h->gen < k->gen || h->seg != k->seg - p->first_seg || h->page != k->page + at ||
        h->pages > n->seg_pages - h->page)
        return -ESTALE;
    if (k->w->from != NULL &&
        (h->gen != k->gen || h->seq <= p->forward_mark || (h->flags & NVME_T_DURABLE) == 0))
        return -ESTALE;
    k->gen = h->gen;
    const bool is_durable = (h->flags & NVME_T_DURABLE) != 0;
    if (k->w->which == (is_durable ? WHICH_OTHERS : WHICH_DURABLE))
        return 0;
    struct nvme_candidates *l = k->w->list;
    struct nvme_value v = nvme__value_of(h);
    if (!nvme__dead_decode(k->buf + (size_t)at * NVME_PAGE, h, v.dead))
        return -EUCLEAN; /* written or overwritten in part only: its dead bits are not known */
    const int r = nvme__candidate(n, l, k->seg, h->page, &v);
    if (r == 0) {
        MUST(l->n > 0);
        l->at[l->n - 1].since = h->since;
        l->at[l->n - 1].safe = h->safe;
        l->at[l->n - 1].unsure = l->at[l->n - 1].forward = k->w->from != NULL;
    }
    return r;
}

static void no_room(struct walker *k, const struct nvme_head *h)
{
    const struct nvme_value v = nvme__value_of(h);
    k->w->report->blocks_dropped += v.items - v.records;
    k->w->report->blocks_over += v.items - v.records;
}

/* Takes the extents whose tables were read. Returns how many pages the walker may go on. */
static uint32_t nvme_rebuild_parse(struct walker *k)
{
    uint32_t at = 0;
    while (at < k->pages) {
        struct nvme_head h;
        const uint64_t left = (uint64_t)(k->pages - at) * NVME_PAGE;
        const int r = nvme__head_decode(k->buf + (size_t)at * NVME_PAGE, left, &h);
        if (r == -ENOBUFS && at != 0)
            return at;
        const int taken = r == 0 ? take_in(k, at, &h) : r;
        if (taken == -ENOMEM)
            k->w->error = taken;
        if (taken == -ENOSPC)
            no_room(k, &h);
        at += taken == 0 || taken == -ENOSPC ? h.pages : 1;
    }
    return at;
}

/* The rest of this segment cannot be read: it is left as it is, for the next start. */
static void nvme_rebuild_leave(struct walker *k)
{
    struct nvme *n = k->w->n;
    n->seg[k->seg].unread = true;
    n->path[n->seg[k->seg].path].hold_forward_mark = true;
    k->page = n->seg_pages;
}

/* Takes one table, going forward. Without a good table at this page the segment has no more
 * extents. */
static uint32_t parse_forward(struct walker *k)
{
    struct nvme_head h;
    const uint32_t left = k->w->n->seg_pages - k->page;
    const int r = nvme__head_decode(k->buf, (uint64_t)k->pages * NVME_PAGE, &h);
    if (r == -ENOBUFS && k->peeks && left > 1) {
        k->peeks = false;
        return 0;
    }
    k->peeks = true;
    const int taken = r == 0 ? take_in(k, 0, &h) : r;
    if (taken == -ENOSPC) {
        no_room(k, &h);
        nvme__hold_seg(k->w->n, k->seg);
        nvme_rebuild_leave(k);
        return 0;
    }
    if (taken == -ENOMEM)
        k->w->error = taken;
    return taken == 0 ? h.pages : left;
}

static void on_chunk(struct nvme_io *io)
{
    struct walker *k = CONTAINER_OF(io, struct walker, io);
    struct nvme *n = k->w->n;
    MUST(k->w->active > 0 && k->pages > 0);
    if (io->op.result >= 0) {
        k->tries = 0;
        k->page += k->w->from != NULL ? parse_forward(k) : nvme_rebuild_parse(k);
    } else if (++k->tries == NVME_RETRY) {
        k->tries = 0;
        k->w->report->tables_damaged++;
        k->page += k->pages;
        if (k->w->from != NULL)
            nvme_rebuild_leave(k);
        else
            n->seg[k->seg].unread = true;
    }
    nvme_rebuild_walk_on(k);
}

static bool is_walked(const struct walk *w, uint32_t seg)
{
    const struct nvme *n = w->n;
    const struct nvme_path *p = &n->path[n->seg[seg].path];
    if (w->from != NULL)
        return w->from[seg] != 0 && w->from[seg] < n->seg_pages && p->forward_mark != UINT64_MAX;
    return !p->absent && (seg - p->first_seg < p->formatted || w->whole[p->number]);
}

static bool next_segment(struct walker *k)
{
    struct nvme *n = k->w->n;
    while (k->w->next_seg < n->segs) {
        const uint32_t seg = k->w->next_seg++;
        if (!is_walked(k->w, seg))
            continue;
        k->seg = seg;
        k->page = k->w->from != NULL ? k->w->from[seg] : 0;
        k->gen = k->w->from != NULL ? n->seg[seg].gen : 0;
        k->peeks = k->w->from != NULL;
        return true;
    }
    return false;
}

static void nvme_rebuild_walk_on(struct walker *k)
{
    struct nvme *n = k->w->n;
    MUST(k->w->active > 0 && k->page <= n->seg_pages);
    if (k->w->error != 0 || (k->page >= n->seg_pages && !next_segment(k))) {
        k->w->active--;
        return;
    }
    k->pages = MIN(k->peeks             ? 1
                   : k->w->from != NULL ? NVME_TABLE_PAGES
                                        : CHUNK,
                   n->seg_pages - k->page);
    k->iov = (struct iovec){k->buf, (size_t)k->pages * NVME_PAGE};
    nvme__issue(n, &k->io, DISK_READ, &n->path[n->seg[k->seg].path], &k->iov, 1,
                nvme__seg_page(n, k->seg) + k->page, k->iov.iov_len, on_chunk);
}

static int walk_all(struct walk *w, const struct nvme_recovery *r)
{
    struct nvme *n = w->n;
    struct walker *walker = sys_calloc(WALKERS, sizeof(walker[0]));
    const uint64_t pages = (uint64_t)WALKERS * CHUNK;
    uint8_t *buf = nvme__buffer(pages);
    int pumped = 0;
    if (walker == NULL || buf == NULL)
        w->error = -ENOMEM;
    for (uint32_t i = 0; w->error == 0 && i < WALKERS; i++) {
        walker[i] = (struct walker){
            .w = w, .buf = buf + (size_t)i * CHUNK * NVME_PAGE, .page = n->seg_pages};
        w->active++;
        nvme_rebuild_walk_on(&walker[i]);
    }
    while (w->active != 0 || n->inflight.n != 0) {
        const int one = r->pump(r->ctx);
        pumped = pumped != 0 ? pumped : one < 0 ? one : 0;
        if (pumped != 0)
            w->error = pumped;
    }
    free(walker);
    nvme__buffer_free(buf, pages);
    return w->error;
}

int nvme__rebuild(struct nvme *n, const struct nvme_recovery *r, const bool whole[DISK_PATHS_MAX],
                  struct nvme_candidates *list, struct nvme_report *report)
{
    struct walk w = {.n = n, .list = list, .report = report, .whole = whole};
    int result = walk_all(&w, r);
    if (result != 0 || report->blocks_over == 0)
        return result;
    /* Found again, dead blocks take too much room. So walk again, and take durable extents first.
     */
    for (uint32_t i = 0; i < list->n; i++)
        nvme__extent_free(n, list->at[i].extent);
    list->n = 0;
    for (enum which which = WHICH_DURABLE; which <= WHICH_OTHERS && result == 0; which++) {
        report->tables_damaged = 0;
        if (which == WHICH_DURABLE)
            report->blocks_dropped = report->blocks_over = 0;
        w = (struct walk){.n = n, .list = list, .report = report, .whole = whole, .which = which};
        result = walk_all(&w, r);
    }
    return result;
}

int nvme__forward(struct nvme *n, const struct nvme_recovery *r, struct nvme_candidates *list,
                  struct nvme_report *report)
{
    uint32_t *from = sys_calloc(n->segs != 0 ? n->segs : 1, sizeof(from[0]));
    struct walk w = {.n = n, .list = list, .report = report, .from = from};
    const uint32_t named = list->n;
    if (from == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < named; i++) {
        const struct nvme_extent *x = &n->extent[list->at[i].extent];
        if ((x->flags & NVME_X_DURABLE) != 0)
            from[x->seg] = n->seg[x->seg].used_pages;
    }
    const int result = walk_all(&w, r);
    free(from);
    report->extents_forward = list->n - named;
    return result;
}
