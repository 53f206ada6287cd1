/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovers the store at start. Superblocks say which store the paths are of, the journal says which
 * extents count, and tables say which blocks an extent has. Each counts only if it agrees with the
 * others. docs/notes/tier-nvme-recovery.md says what this finds after each kind of crash.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cursor.h"
#include "nvme_recover__.h"
#include "sys.h"

#define STORE_BYTES (16u + 4u + DISK_PATHS_MAX * 4u)

void nvme__note(struct recover *v, const char *fmt, ...)
{
    va_list ap;
    if (v->report->note[0] != '\0')
        return;
    va_start(ap, fmt);
    vsnprintf(v->report->note, sizeof(v->report->note), fmt, ap);
    va_end(ap);
}

/* ---- one I/O at a time ---- */

static void on_once(struct nvme_io *io)
{
    (void)io;
}

static int io_once(struct recover *v, enum disk_kind kind, struct nvme_path *p, void *buf,
                   uint64_t page, uint64_t bytes)
{
    struct nvme *n = v->n;
    struct iovec iov = {buf, bytes};
    struct nvme_io *io = &p->super.io;
    nvme__issue(n, io, kind, p, bytes != 0 ? &iov : NULL, bytes != 0, page, bytes, on_once);
    while (n->inflight.n != 0) {
        const int r = v->r->pump(v->r->ctx);
        v->error = v->error != 0 ? v->error : r < 0 ? r : 0;
    }
    return v->error != 0 ? v->error : io->op.result < 0 ? (int)io->op.result : 0;
}

/* ---- superblocks ---- */

static enum kind nvme_recover_kind_of(const int why[2])
{
    if (why[0] == 0 || why[1] == 0)
        return KIND_OURS;
    if (why[0] == -EINVAL || why[1] == -EINVAL)
        return KIND_FOREIGN;
    if (why[0] == -EUCLEAN || why[1] == -EUCLEAN)
        return KIND_DAMAGED;
    return KIND_BLANK;
}

static void read_super(struct recover *v, uint32_t path)
{
    struct nvme_path *p = &v->n->path[path];
    struct nvme_super s[2];
    int why[2] = {0, 0}, r = -EIO;
    for (unsigned i = 0; r < 0 && v->error == 0 && i < NVME_RETRY; i++)
        r = io_once(v, DISK_READ, p, p->super.page, 0, UINT64_C(2) * NVME_PAGE);
    if (r < 0) {
        v->kind[path] = KIND_FAILED;
        p->error = r;
        return;
    }
    for (unsigned i = 0; i < 2; i++)
        why[i] = nvme__super_decode(p->super.page + (size_t)i * NVME_PAGE, &s[i]);
    v->kind[path] = why[0] == -EPROTONOSUPPORT || why[1] == -EPROTONOSUPPORT
                        ? KIND_NEWER
                        : nvme_recover_kind_of(why);
    v->whole[path] =
        why[0] == -EUCLEAN || why[1] == -EUCLEAN || why[0] == -EINVAL || why[1] == -EINVAL;
    if (v->kind[path] != KIND_OURS)
        return;
    const unsigned best = why[0] != 0 || (why[1] == 0 && s[1].seq > s[0].seq);
    v->super[path] = s[best];
    p->super.seq = s[best].seq;
}

/* Checks that all paths with a store have the same one. *ret_first: one of them; NONE: no path has
 * a store. */
static int agree(struct recover *v, uint32_t *ret_first)
{
    uint32_t first = NVME_NONE, damaged = NVME_NONE, failed = NVME_NONE;
    for (uint32_t i = 0; i < v->n->paths; i++) {
        const struct nvme_super *s = &v->super[i];
        if (v->kind[i] == KIND_NEWER) {
            nvme__note(v, "path %u was written by a later version: its format is newer", i);
            return -EPROTONOSUPPORT;
        }
        if (v->kind[i] == KIND_FOREIGN) {
            nvme__note(
                v,
                "path %u holds something that is not a store: clear its first 128 KiB if it may "
                "be overwritten",
                i);
            return -EINVAL;
        }
        damaged = v->kind[i] == KIND_DAMAGED ? i : damaged;
        failed = v->kind[i] == KIND_FAILED ? i : failed;
        if (v->kind[i] != KIND_OURS)
            continue;
        if (s->path != i) {
            nvme__note(v, "path %u stood at another place of nvme.paths: keep their order", i);
            return -EINVAL;
        }
        if (first == NVME_NONE)
            first = i;
        if (memcmp(s->uuid, v->super[first].uuid, sizeof(s->uuid)) != 0 ||
            s->seg_pages != v->super[first].seg_pages) {
            nvme__note(v, "path %u belongs to another store than the paths before it", i);
            return -EINVAL;
        }
    }
    *ret_first = first;
    if (first != NVME_NONE)
        return 0;
    if (failed != NVME_NONE) {
        nvme__note(v, "path %u cannot be read", failed);
        return v->n->path[failed].error;
    }
    if (damaged != NVME_NONE) {
        nvme__note(v,
                   "both superblocks of path %u are damaged: remove the store to begin a new one",
                   damaged);
        return -EUCLEAN;
    }
    return 0;
}

static void take_out(struct recover *v, uint32_t path)
{
    struct nvme_path *p = &v->n->path[path];
    p->absent = true;
    p->state = NVME_PATH_OUT;
    p->count.outs++;
}

/* Takes the store's geometry from the superblocks. */
static int take_supers(struct recover *v, uint32_t first)
{
    struct nvme *n = v->n;
    nvme__geometry(n, &v->super[first]);
    memcpy(n->store.uuid, v->super[first].uuid, sizeof(n->store.uuid));
    const int r = nvme__segs_alloc(n);
    for (uint32_t i = 0; i < n->paths; i++) {
        struct nvme_path *p = &n->path[i];
        if (v->kind[i] == KIND_OURS) {
            p->formatted = MIN(v->super[i].formatted, p->segs);
            v->epoch = MAX(v->epoch, v->super[i].epoch);
        } else if (v->kind[i] == KIND_DAMAGED) {
            nvme__note(v, "both superblocks of path %u were damaged and are written anew", i);
            p->formatted = p->segs;
        } else if (v->kind[i] == KIND_FAILED) {
            nvme__note(v, "path %u cannot be read: it stays out until the next start", i);
            take_out(v, i);
        }
    }
    return r;
}

/* ---- candidates ---- */

int nvme__candidate(struct nvme *n, struct nvme_candidates *list, uint32_t seg, uint32_t page,
                    const struct nvme_value *v)
{
    if (list->n == list->cap) {
        const uint32_t cap = list->cap != 0 ? list->cap * 2 : 256;
        struct nvme_candidate *at = sys_realloc(list->at, (size_t)cap * sizeof(at[0]));
        if (at == NULL)
            return -ENOMEM;
        list->at = at;
        list->cap = cap;
    }
    const uint32_t extent = nvme__extent_new(n);
    if (extent == NVME_NONE)
        return -ENOSPC;
    struct nvme_extent *x = &n->extent[extent];
    x->seg = seg;
    x->page = page;
    x->pages = v->pages;
    x->items = (uint16_t)v->items;
    x->head_pages = (uint8_t)v->head_pages;
    x->records = (uint8_t)v->records;
    x->flags = (v->flags & NVME_T_DURABLE) != 0 ? NVME_X_DURABLE : 0;
    x->sum = v->sum;
    x->seq = v->seq;
    x->state = NVME_X_COMMITTED;
    struct nvme_candidate *c = &list->at[list->n++];
    *c = (struct nvme_candidate){.seq = v->seq, .gen = v->gen, .extent = extent};
    memcpy(c->dead, v->dead, sizeof(c->dead));
    return 0;
}

static int newest_first(const void *a, const void *b)
{
    const struct nvme_candidate *x = a, *y = b;
    return (x->seq < y->seq) - (x->seq > y->seq);
}

static int stale_key(struct recover *v, uint64_t key)
{
    if (v->stales == v->stales_cap) {
        const uint32_t cap = v->stales_cap != 0 ? v->stales_cap * 2 : 64;
        uint64_t *at = sys_realloc(v->stale, (size_t)cap * sizeof(at[0]));
        if (at == NULL)
            return -ENOMEM;
        v->stale = at;
        v->stales_cap = cap;
    }
    v->stale[v->stales++] = key;
    return 0;
}

/* In each segment the newest generation counts; of extents that overlap, the later one. */
static int candidates_choose(struct recover *v)
{
    struct nvme *n = v->n;
    struct nvme_candidates *l = &v->list;
    uint32_t kept = 0;
    int r = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        struct nvme_seg *s = &n->seg[n->extent[l->at[i].extent].seg];
        s->gen = MAX(s->gen, l->at[i].gen);
    }
    if (l->n != 0)
        qsort(l->at, l->n, sizeof(l->at[0]), newest_first);
    for (uint32_t i = 0; i < l->n && r == 0; i++) {
        const uint32_t extent = l->at[i].extent;
        struct nvme_extent *x = &n->extent[extent];
        struct nvme_seg *s = &n->seg[x->seg];
        v->epoch = MAX(v->epoch, (uint32_t)(l->at[i].gen >> 32));
        /* Later extents lie higher in a segment, so an older one that overlaps begins below the
         * last. */
        if (l->at[i].gen != s->gen || (s->used_pages != 0 && x->page + x->pages > s->told)) {
            r = stale_key(v, nvme__key(s->path, nvme__extent_page(n, x)));
            nvme__extent_free(n, extent);
            continue;
        }
        s->used_pages = MAX(s->used_pages, x->page + x->pages);
        s->told = x->page; /* the lowest so far */
        l->at[kept++] = l->at[i];
    }
    l->n = kept;
    return r;
}

/* ---- journal ---- */

/* The extent's place does not exist any more: its path was removed, replaced or cut. */
static int gone(struct recover *v, uint64_t key, const struct nvme_value *x)
{
    for (uint32_t i = x->records; i < x->items; i++) {
        if ((x->dead[i / 8] >> i % 8 & 1) != 0)
            continue;
        v->report->blocks_gone++;
        v->report->durable_gone += (x->flags & NVME_T_DURABLE) != 0;
    }
    return stale_key(v, key);
}

static int each_extent(struct recover *v, uint64_t key, const void *value, uint32_t bytes)
{
    struct nvme *n = v->n;
    struct nvme_value x;
    const uint32_t path = (uint32_t)(key >> 56);
    const uint64_t page = key & ((UINT64_C(1) << 56) - 1);
    if (nvme__value_decode(value, bytes, &x) < 0)
        return -EUCLEAN;
    if (path >= n->paths || page < NVME_HEADER_PAGES)
        return gone(v, key, &x);
    if (v->kind[path] == KIND_BLANK && (n->c.replaced >> path & 1) != 0)
        return gone(v, key, &x);
    if (v->kind[path] == KIND_BLANK) {
        v->named[path] += x.items - x.records;
        return 0; /* the path is taken out below */
    }
    if (n->path[path].absent)
        return 0; /* the path may be readable at the next start */
    const struct nvme_path *p = &n->path[path];
    const uint64_t seg = (page - NVME_HEADER_PAGES) / n->seg_pages;
    const uint32_t at = (uint32_t)((page - NVME_HEADER_PAGES) % n->seg_pages);
    if (seg >= p->segs || x.pages > n->seg_pages - at)
        return gone(v, key, &x);
    const int r = nvme__candidate(n, &v->list, p->first_seg + (uint32_t)seg, at, &x);
    if (r != -ENOSPC)
        return r;
    v->report->blocks_dropped += x.items - x.records;
    v->report->blocks_over += x.items - x.records;
    if ((x.flags & NVME_T_DURABLE) == 0)
        return stale_key(v, key);
    nvme__hold_seg(n, p->first_seg + (uint32_t)seg);
    return 0;
}

static int each_entry(void *ctx, uint64_t key, const void *value, uint32_t bytes)
{
    struct recover *v = ctx;
    struct cursor c;
    if (key == NVME_KEY_BUDGET)
        return nvme__budget_load(v->n, value, bytes);
    if (key == NVME_KEY_FORWARD)
        return nvme__forward_mark_load(v->n, value, bytes);
    if (key == NVME_KEY_STORE) {
        cursor_init(&c, value, bytes);
        const uint8_t *uuid = cursor_take(&c, sizeof(v->n->store.uuid));
        v->journal_epoch = cursor_u32le(&c);
        v->epoch = MAX(v->epoch, v->journal_epoch);
        v->have_key = cursor_ok(&c);
        v->mine = v->have_key && memcmp(uuid, v->n->store.uuid, sizeof(v->n->store.uuid)) == 0;
        for (uint32_t i = 0; i < v->n->paths; i++)
            v->known[i] = cursor_left(&c) >= 4 ? cursor_u32le(&c) : v->journal_epoch;
        return v->mine ? 0 : -EUCLEAN;
    }
    if ((key & NVME_KEY_META) != 0)
        return 0;
    return each_extent(v, key, value, bytes);
}

static void forget_candidates(struct recover *v)
{
    for (uint32_t i = 0; i < v->list.n; i++)
        nvme__extent_free(v->n, v->list.at[i].extent);
    for (uint32_t i = 0; i < v->n->segs; i++)
        v->n->seg[i].durable = v->n->seg[i].unread = false;
    v->n->seg_use.durable = 0;
    v->list.n = 0;
    v->stales = 0;
    v->report->blocks_gone = v->report->durable_gone = 0;
    v->report->blocks_dropped = v->report->blocks_over = 0;
    for (uint32_t i = 0; i < v->n->paths; i++)
        v->n->path[i].forward_mark = UINT64_MAX;
}

/* ---- forward ---- */

/* The candidate's segment stays as it is from there on, for the next start. */
static void nvme_recover_hold(struct nvme *n, const struct nvme_candidate *c)
{
    struct nvme_seg *s = &n->seg[n->extent[c->extent].seg];
    s->unread = true;
    n->path[s->path].hold_forward_mark = true;
}

static uint32_t nvme_recover_path_of(const struct nvme *n, const struct nvme_candidate *c)
{
    return n->seg[n->extent[c->extent].seg].path;
}

/* A killed process may have left writes unsynced in the drive. So paths of candidates from `first`
 * on are synced now. Where the sync fails, the candidates stay as they are, for the next start: a
 * later sync that failed would lose them, and they may be durable. */
static int sync_found(struct recover *v, uint32_t first)
{
    struct nvme *n = v->n;
    struct nvme_candidates *l = &v->list;
    bool any[DISK_PATHS_MAX] = {false}, good[DISK_PATHS_MAX] = {false};
    for (uint32_t i = first; i < l->n; i++)
        any[nvme_recover_path_of(n, &l->at[i])] = true;
    for (uint32_t i = 0; i < n->paths; i++) {
        good[i] = any[i] && io_once(v, DISK_SYNC, &n->path[i], NULL, 0, 0) == 0;
        if (v->error != 0)
            return v->error;
    }
    for (uint32_t i = first; i < l->n; i++) {
        struct nvme_candidate *c = &l->at[i];
        struct nvme_extent *x = &n->extent[c->extent];
        if (good[nvme_recover_path_of(n, c)])
            x->state = NVME_X_SYNCED;
        else if (c->forward)
            c->unread = true;
        else
            n->seg[x->seg].unread = true; /* the next start syncs it, and tells the journal */
    }
    return 0;
}

/* After a rebuild: the blocks of a broken extent, which lacks a namespace, count as dead. */
static void drop_broken(struct recover *v)
{
    for (uint32_t i = 0; i < v->list.n; i++) {
        struct nvme_candidate *c = &v->list.at[i];
        const struct nvme_extent *x = &v->n->extent[c->extent];
        if (!c->broken)
            continue;
        memset(c->dead, UINT8_MAX, sizeof(c->dead));
        v->report->blocks_torn += (uint32_t)(x->items - x->records);
    }
}

/* Keeps the extents found forward that count. Behind one that is unread or broken, none in its
 * segment counts. */
static int keep_forward(struct recover *v, uint32_t named)
{
    struct nvme *n = v->n;
    struct nvme_candidates *l = &v->list;
    /* By segment: page + 1 of its first extent that is unread or broken; 0: none. */
    uint32_t *ends = sys_calloc(n->segs, sizeof(ends[0]));
    uint32_t kept = named;
    if (ends == NULL)
        return -ENOMEM;
    for (uint32_t i = named; i < l->n; i++) {
        const struct nvme_candidate *c = &l->at[i];
        const struct nvme_extent *x = &n->extent[c->extent];
        if ((c->unread || c->broken) && (ends[x->seg] == 0 || x->page + 1 < ends[x->seg]))
            ends[x->seg] = x->page + 1;
    }
    for (uint32_t i = named; i < l->n; i++) {
        const struct nvme_candidate *c = &l->at[i];
        struct nvme_extent *x = &n->extent[c->extent];
        struct nvme_seg *s = &n->seg[x->seg];
        if (c->unread)
            nvme_recover_hold(n, c);
        if (ends[x->seg] != 0 && x->page + 1 >= ends[x->seg]) {
            v->report->tables_damaged += c->unread;
            v->report->blocks_torn += c->unread ? 0 : (uint32_t)(x->items - x->records);
            nvme__extent_free(n, c->extent);
            continue;
        }
        s->used_pages = MAX(s->used_pages, x->page + x->pages);
        l->at[kept++] = *c;
    }
    l->n = kept;
    v->report->extents_forward = kept - named;
    free(ends);
    return 0;
}

/* Finds extents behind those that the journal names: a durable PUT may have ended before the
 * journal has its extent. */
static int go_forward(struct recover *v)
{
    struct nvme_candidates *l = &v->list;
    const uint32_t named = l->n;
    int r = nvme__forward(v->n, v->r, l, v->report);
    if (r == 0 && l->n != named)
        r = sync_found(v, named);
    if (r == 0 && l->n != named)
        r = nvme__look_at_unsure(v->n, v->r, l, v->report);
    if (r == 0 && l->n != named)
        r = keep_forward(v, named);
    if (r == 0 && l->n != named)
        qsort(l->at, l->n, sizeof(l->at[0]), newest_first);
    return r;
}

/* Whether the journal may be wrong: a path was away while the journal named another in its place,
 * or the journal is older than the store. (One epoch older is all right: a start that ended before
 * it wrote the journal leaves that.) */
static bool is_behind(struct recover *v)
{
    for (uint32_t i = 0; i < v->n->paths; i++) {
        if (v->kind[i] != KIND_OURS || v->super[i].epoch >= v->known[i])
            continue;
        nvme__note(
            v,
            "path %u was away, and another in its place: what there is was found by the tables of "
            "all paths",
            i);
        return true;
    }
    if (v->epoch > v->journal_epoch + 1)
        nvme__note(v, "the journal is older than the store: what is there was found by the tables");
    return v->epoch > v->journal_epoch + 1;
}

/* Takes out each empty path on which the journal names blocks. Its disk may not be mounted, and
 * the daemon must not write to the directory below the mount point. */
static void take_out_empty(struct recover *v)
{
    for (uint32_t i = 0; i < v->n->paths; i++) {
        if (v->named[i] == 0)
            continue;
        nvme__note(
            v,
            "path %u is empty, and %u blocks should be there: it stays out until the next start. "
            "Mount it; or, if it is a new one, start once with nvme.replaced set to it",
            i, v->named[i]);
        v->report->paths_empty |= UINT32_C(1) << i;
        v->n->path[i].error = -ENOENT;
        take_out(v, i);
    }
}

/* Finds the extents by the journal, or by the tables if the journal cannot be used. */
static int find_extents(struct recover *v)
{
    struct nvme *n = v->n;
    int r = n->journal->ops->walk(n->journal, each_entry, v);
    if (r == -ENOMEM)
        return r;
    if (r == 0 && v->mine)
        take_out_empty(v);
    if (r == 0 && v->mine && !is_behind(v)) {
        r = candidates_choose(v);
        return r != 0 ? r : go_forward(v);
    }
    v->report->rebuilt = true;
    forget_candidates(v);
    nvme__budget_start(n, false);
    r = n->journal->ops->clear(n->journal);
    if (r < 0) {
        nvme__note(v, "the journal is damaged and cannot be cleared");
        return r;
    }
    r = nvme__rebuild(n, v->r, v->whole, &v->list, v->report);
    if (r == 0)
        r = candidates_choose(v);
    if (r == 0)
        r = sync_found(v, 0);
    if (r == 0)
        r = nvme__rebuild_torn(n, v->r, &v->list, v->report);
    drop_broken(v);
    v->stales = 0; /* the journal is empty */
    return r;
}

/* ---- the store as it is from now on ---- */

static void place_extents(struct recover *v)
{
    struct nvme *n = v->n;
    for (uint32_t i = 0; i < n->segs; i++)
        n->seg[i].told = NVME_NONE;
    for (uint32_t i = v->list.n; i > 0; i--) {
        const uint32_t extent = v->list.at[i - 1].extent;
        struct nvme_extent *x = &n->extent[extent];
        struct nvme_seg *s = &n->seg[x->seg];
        struct nvme_path *p = &n->path[s->path];
        nvme__seg_attach(n, x->seg, extent);
        if ((x->flags & NVME_X_DURABLE) != 0 && !s->durable) {
            s->durable = true;
            n->seg_use.durable++;
        }
        p->formatted = MAX(p->formatted, x->seg - p->first_seg + 1);
        v->report->extents++;
    }
}

/* Sets the state of each segment, and frees the empty ones. Extents that the journal does not name
 * are queued as if just written or synced, the oldest first, because the journal names the extents
 * of a segment in order. */
static void start_segments(struct recover *v)
{
    struct nvme *n = v->n;
    n->deaths.open = n->deaths.synced = 0; /* counted anew below, with earlier deaths */
    for (uint32_t i = 0; i < n->segs && v->report->rebuilt; i++) {
        struct nvme_seg *s = &n->seg[i];
        if (!s->unread || s->durable)
            continue;
        s->durable = true; /* an unread segment may hold durable blocks */
        n->seg_use.durable++;
    }
    for (uint32_t i = v->list.n; i > 0; i--) {
        const uint32_t extent = v->list.at[i - 1].extent;
        struct nvme_extent *x = &n->extent[extent];
        struct nvme_path *p = &n->path[n->seg[x->seg].path];
        if (x->state == NVME_X_WRITTEN)
            n->deaths.open += nvme__dead_of(x);
        else if (x->state == NVME_X_SYNCED || (x->flags & NVME_X_DIRTY) != 0)
            n->deaths.synced += nvme__dead_of(x);
        if (n->seg[x->seg].unread && (v->report->rebuilt || x->state != NVME_X_COMMITTED)) {
            /* Not told to the journal, like all extents behind it: the next start finds them. */
            x->state = NVME_X_COMMITTED;
            x->flags |= NVME_X_UNREAD;
            p->hold_forward_mark = true;
        } else if (x->state == NVME_X_SYNCED) {
            n->seg[x->seg].pending++;
            nvme__extents_push(n, &n->synced, extent);
        } else if (x->state == NVME_X_WRITTEN) {
            n->seg[x->seg].pending++;
            nvme__written(n, p, extent);
            p->sync.due_ns = n->now_ns;
        } else if ((x->flags & NVME_X_DIRTY) != 0 && (x->flags & NVME_X_LISTED) == 0) {
            nvme__dirty(n, extent);
            nvme__commit_soon(n);
        }
    }
    for (uint32_t i = 0; i < n->paths; i++) {
        struct nvme_path *p = &n->path[i];
        p->zeroing = p->formatted;
        for (uint32_t s = 0; s < p->segs; s++) {
            const uint32_t seg = p->first_seg + s;
            if (n->seg[seg].extents != NVME_NONE) {
                n->seg[seg].state = NVME_S_FULL;
                nvme__seg_look(n, seg);
            } else if (n->seg[seg].unread) {
                n->seg[seg].state = NVME_S_FULL; /* the next start may be able to read it */
            } else if (s < p->formatted && !p->absent) {
                nvme__seg_free(n, seg);
            }
        }
    }
}

/* Writes the superblocks with a new epoch, so that new generations are greater than all older ones.
 */
static int write_supers(struct recover *v)
{
    struct nvme *n = v->n;
    uint32_t good = 0;
    int last = 0;
    n->store.epoch = v->epoch + 1;
    n->store.seq_count = (uint64_t)n->store.epoch << 40;
    n->store.since_seq = n->store.seq_count + 1;
    for (uint32_t i = 0; i < n->paths; i++) {
        struct nvme_path *p = &n->path[i];
        if (p->absent)
            continue;
        struct nvme_super s = {.seq = ++p->super.seq,
                               .path = i,
                               .paths = n->paths,
                               .seg_pages = n->seg_pages,
                               .segments = p->segs,
                               .formatted = p->formatted,
                               .epoch = n->store.epoch};
        memcpy(s.uuid, n->store.uuid, sizeof(s.uuid));
        nvme__super_encode(&s, p->super.page);
        int r = io_once(v, DISK_WRITE, p, p->super.page, p->super.seq & 1, NVME_PAGE);
        if (r == 0)
            r = io_once(v, DISK_SYNC, p, NULL, 0, 0);
        n->m.bytes_written += NVME_PAGE;
        p->state = p->formatted < p->segs ? NVME_PATH_FORMATTING : NVME_PATH_UP;
        good += r == 0;
        if (v->error != 0)
            return v->error;
        if (r == 0)
            continue;
        last = r;
        nvme__note(v, "path %u cannot be written", i);
        nvme__path_out(n, p, r);
    }
    return good != 0 ? 0 : last != 0 ? last : -EIO;
}

/* ---- journal, blocking ---- */

static void on_commit(struct journal_txn *commit)
{
    *(bool *)commit->ctx = true;
}

static int commit_now(struct recover *v, const struct journal_change *change, uint32_t changes)
{
    bool done = false;
    struct journal_txn commit = {.change = change, .n = changes, .done = on_commit, .ctx = &done};
    v->n->journal->ops->commit(v->n->journal, &commit);
    while (!done) {
        const int r = v->r->pump(v->r->ctx);
        v->error = v->error != 0 ? v->error : r < 0 ? r : 0;
    }
    return v->error != 0 ? v->error : commit.result;
}

/* Whether the disks may hold more than was found: a path is absent or out, or a segment could not
 * be read and may be readable at another start. */
static bool is_partial(struct recover *v)
{
    const struct nvme *n = v->n;
    bool whole = true;
    for (uint32_t i = 0; i < n->paths; i++)
        whole = whole && !n->path[i].absent && n->path[i].state != NVME_PATH_OUT;
    for (uint32_t i = 0; i < n->segs; i++)
        whole = whole && !n->seg[i].unread;
    return !whole;
}

/* Encodes the journal's entry of the store: uuid, epoch, and for each path the epoch at which the
 * journal last agreed with it. */
static uint32_t store_value(const struct recover *v, uint8_t to[STORE_BYTES])
{
    const struct nvme *n = v->n;
    struct wcursor w;
    wcursor_init(&w, to, STORE_BYTES);
    wcursor_put(&w, n->store.uuid, sizeof(n->store.uuid));
    wcursor_put_u32le(&w, n->store.epoch);
    for (uint32_t i = 0; i < n->paths; i++)
        wcursor_put_u32le(&w, n->path[i].state == NVME_PATH_OUT ? v->known[i] : n->store.epoch);
    return (uint32_t)(sizeof(n->store.uuid) + 4 + (size_t)n->paths * 4);
}

/* Brings the journal up to date, in this order: the store's key, so that it is known whose keys are
 * deleted; stale keys, before their segments are used again; extents found by their tables; then
 * the store's key and the forward marks. */
static int update_journal(struct recover *v)
{
    struct nvme *n = v->n;
    struct journal_change change[128];
    uint8_t value[STORE_BYTES], mark[NVME_VALUE_BYTES];
    const struct journal_change store = {NVME_KEY_STORE, value, store_value(v, value)};
    int r = v->stales != 0 ? commit_now(v, &store, 1) : 0;
    for (uint32_t i = 0; i < v->stales && r == 0;) {
        uint32_t k = 0;
        for (; k < ARRAY_LEN(change) && i < v->stales; k++, i++)
            change[k] = (struct journal_change){.key = v->stale[i]};
        r = commit_now(v, change, k);
    }
    n->running = true;
    if (r == 0 && (v->report->rebuilt || v->report->extents_forward != 0)) {
        nvme_flush(n);
        while (!nvme__sync_idle(n) && (v->error == 0 || n->inflight.n != 0 || n->commit.busy)) {
            const int one = v->r->pump(v->r->ctx);
            v->error = v->error != 0 ? v->error : one < 0 ? one : 0;
        }
        r = v->error != 0 ? v->error : n->journal_error;
    }
    change[0] = store;
    const uint32_t bytes = nvme__forward_mark_save(n, mark);
    change[1] = (struct journal_change){NVME_KEY_FORWARD, mark, bytes};
    /* A partial rebuild must not count: without the store's key the next start does it again. */
    const bool again = v->report->rebuilt && is_partial(v);
    if (again)
        nvme__note(
            v,
            "not all could be read while the journal was made anew: the next start does it again");
    if (r == 0 && !again)
        r = commit_now(v, change, bytes != 0 ? 2 : 1);
    if (r < 0)
        nvme__note(v, "the journal cannot be written");
    return r;
}

static int begin_fresh(struct recover *v)
{
    struct nvme *n = v->n;
    v->report->fresh = true;
    int r = hash_random(n->store.uuid, sizeof(n->store.uuid));
    if (r == 0)
        r = n->journal->ops->clear(n->journal);
    if (r < 0)
        nvme__note(v, "the journal cannot be cleared");
    return r;
}

/* If not all could be read, keeps the blocks that core did not take, for the next start. */
static void hold_dropped(struct recover *v)
{
    struct nvme *n = v->n;
    n->partial = is_partial(v);
    for (uint32_t i = 0; i < v->list.n && n->partial; i++)
        if ((n->extent[v->list.at[i].extent].flags & NVME_X_DROPPED) != 0)
            nvme__not_taken(n, v->list.at[i].extent);
}

static int recover(struct recover *v)
{
    struct nvme *n = v->n;
    uint32_t first = NVME_NONE;
    n->recovering = true;
    nvme__budget_start(n, true);
    for (uint32_t i = 0; i < n->paths; i++)
        n->path[i].forward_mark = UINT64_MAX;
    for (uint32_t i = 0; i < n->paths; i++)
        read_super(v, i);
    int r = v->error != 0 ? v->error : agree(v, &first);
    if (r < 0)
        return r;
    if (first == NVME_NONE) {
        r = begin_fresh(v);
    } else {
        r = take_supers(v, first);
        if (r == 0)
            r = find_extents(v);
        if (r == 0) {
            place_extents(v);
            r = nvme__tell(v);
        }
        if (v->report->blocks_over != 0)
            nvme__note(
                v,
                v->report->rebuilt
                    ? "index.blocks has no room for %u blocks more, of which some may have gone "
                      "before: what was stored durably last is there"
                    : "index.blocks has no room for %u blocks that are there: until it is raised, "
                      "those that were stored durably stay where they are; the others go",
                v->report->blocks_over);
        if (r == 0)
            hold_dropped(v);
        if (r == 0 && v->r->approve != NULL)
            r = v->r->approve(v->r->ctx);
    }
    if (r == 0)
        r = write_supers(v);
    if (r == 0) {
        start_segments(v);
        r = update_journal(v);
    }
    return r < 0 ? r : 0;
}

int nvme_recover(struct nvme *n, const struct nvme_recovery *r, struct nvme_report *ret_report)
{
    MUST(!n->running && n->inflight.n == 0);
    struct recover *v = sys_calloc(1, sizeof(*v));
    *ret_report = (struct nvme_report){0};
    if (v == NULL)
        return -ENOMEM;
    v->n = n;
    v->r = r;
    v->report = ret_report;
    const int result = recover(v);
    free(v->list.at);
    free(v->stale);
    free(v);
    n->running = result == 0;
    ret_report->segment_bytes = (uint64_t)n->seg_pages * NVME_PAGE;
    return result;
}
