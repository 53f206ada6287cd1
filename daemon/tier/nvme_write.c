/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes blocks: PUTs become extents. All that wait are gathered into one write, from where the
 * payloads lie. While a path writes, less than a whole extent waits for more to come; so small
 * blocks make large writes.
 */
#include "nvme__.h"

#define DEPTH          8u /* extents in flight on a path */
#define UNSYNCED_SHARE 8u /* of a path, at most, before it is synced ahead of time */

/* An extent that is being planned. */
struct plan {
    uint32_t items, payload_pages;
    uint32_t records;                        /* of namespaces */
    uint64_t record_print[NVME_RECORDS_MAX]; /* tier_label.print */
    uint32_t record_bytes[NVME_RECORDS_MAX];
};

static uint64_t credit(const struct nvme *n)
{
    return n->c.queue_bytes / 2;
}

/* Ends PUTs that are cancelled or late. */
static void nvme_write_sweep(struct nvme *n, struct nvme_ops *list)
{
    struct tier_op *prev = NULL;
    for (struct tier_op *op = list->n != 0 ? list->head : NULL; op != NULL;) {
        const bool cancelled = atomic_load_explicit(&op->cancel, memory_order_relaxed);
        const bool late = op->deadline_ns != 0 && op->deadline_ns <= n->now_ns;
        struct tier_op *next = op->next;
        if (cancelled || late)
            nvme__put_failed(n, nvme__ops_cut(list, prev), cancelled ? -ECANCELED : -ETIMEDOUT);
        else
            prev = op;
        op = next;
    }
}

/* Whether the segment already has the namespace's record, which is then as safe as the extent. */
static bool print_known(const struct nvme *n, const struct nvme_open *o, uint64_t print)
{
    for (uint32_t i = 0; i < o->records; i++)
        if (o->record[i].print == print)
            return n->extent[o->record[i].extent].state != NVME_X_LOST;
    return false;
}

/* Whether the table can name the namespace of `print`, with a record of it if that is needed. */
static bool plan_print(struct nvme *n, const struct nvme_open *o, uint64_t print,
                       struct nvme_write *w, struct plan *pl)
{
    for (uint32_t i = 0; i < pl->records; i++)
        if (pl->record_print[i] == print)
            return true;
    if (print_known(n, o, print))
        return true;
    if (pl->records == NVME_RECORDS_MAX)
        return false;
    uint8_t *page = w->head + (size_t)(NVME_TABLE_PAGES + pl->records) * NVME_PAGE;
    const uint32_t bytes = n->c.record != NULL ? n->c.record(n->c.ctx, print, page) : 0;
    if (bytes == 0)
        return true;
    MUST(bytes <= NVME_RECORD_MAX);
    memset(page + bytes, 0, NVME_PAGE - bytes);
    pl->record_print[pl->records] = print;
    pl->record_bytes[pl->records++] = bytes;
    return true;
}

/* How many of the PUTs that wait fit the segment and one write. */
static void plan(struct nvme *n, const struct nvme_open *o, enum nvme_class which,
                 struct nvme_write *w, struct plan *pl)
{
    const uint32_t room = MIN(n->seg_pages - n->seg[o->seg].used_pages, NVME_EXTENT_MAX);
    const uint32_t most = (uint32_t)(n->c.extent_bytes / NVME_PAGE);
    struct plan fits = {0}; /* the largest plan whose table has room for the sector of dead items */
    *pl = (struct plan){0};
    for (const struct tier_op *op = n->queue.put[which].head; op != NULL; op = op->next) {
        const uint32_t pages = nvme__pages(op->bytes), before = pl->records;
        if (pl->items != 0 && pl->payload_pages + pages > most)
            break;
        if (pl->items + NVME_RECORDS_MAX + 1 > NVME_ITEMS_MAX || pl->items + 3 > DISK_IOV_MAX)
            break;
        if (!plan_print(n, o, op->label.print, w, pl))
            break;
        const uint32_t head = nvme__table_pages(pl->items + 1 + pl->records) + pl->records;
        if (head + pl->payload_pages + pages > room) {
            pl->records = before;
            break;
        }
        pl->items++;
        pl->payload_pages += pages;
        if (nvme__dead_fits(pl->items + pl->records))
            fits = *pl;
    }
    if (fits.items != 0)
        *pl = fits;
}

static void item_of(const struct tier_op *op, uint32_t page, struct nvme_item *ret)
{
    const struct tier_label *l = &op->label;
    *ret = (struct nvme_item){.key = l->key,
                              .parent = l->parent,
                              .sum = op->sum,
                              .print = l->print,
                              .page = page,
                              .bytes = op->bytes,
                              .tokens = l->tokens,
                              .shard = (uint16_t)l->shard,
                              .group = (uint8_t)l->group,
                              .level = l->level,
                              .flags = (uint8_t)((l->durable ? NVME_I_DURABLE : 0) |
                                                 (l->by_pin ? NVME_I_BY_PIN : 0) |
                                                 (l->has_parent ? NVME_I_PARENT : 0))};
}

/* The namespaces' items and where the open segment remembers them. */
static void put_records(struct nvme *n, struct nvme_open *o, uint32_t extent, struct nvme_write *w,
                        const struct plan *pl, uint32_t tables)
{
    for (uint32_t i = 0; i < pl->records; i++) {
        const uint8_t *page = w->head + (size_t)(NVME_TABLE_PAGES + i) * NVME_PAGE;
        const struct nvme_item it = {.print = pl->record_print[i],
                                     .page = tables + i,
                                     .bytes = pl->record_bytes[i],
                                     .sum = hash_sum(page, pl->record_bytes[i]),
                                     .flags = NVME_I_RECORD};
        nvme__item_encode(w->head, i, &it);
        uint32_t at = 0;
        while (at < o->records && o->record[at].print != pl->record_print[i])
            at++;
        if (at == NVME_OPEN_RECORDS)
            continue; /* not remembered, so a later extent writes it again, which costs a page */
        if (at == o->records)
            o->records++;
        else if (n->extent[o->record[at].extent].state != NVME_X_LOST)
            continue;
        o->record[at].print = pl->record_print[i];
        o->record[at].extent = extent;
    }
}

static void add_iov(struct nvme_write *w, uint32_t *iovs, const void *from, uint64_t bytes)
{
    struct iovec *last = *iovs != 0 ? &w->iov[*iovs - 1] : NULL;
    if (last != NULL && (uint8_t *)last->iov_base + last->iov_len == from)
        last->iov_len += bytes;
    else
        w->iov[(*iovs)++] = (struct iovec){(void *)(uintptr_t)from, bytes};
}

/* Payloads follow each other in the order in which they came. Returns the number of vectors. */
static uint32_t put_payloads(struct nvme *n, struct nvme_write *w, enum nvme_class which,
                             const struct plan *pl, uint32_t head_pages)
{
    uint32_t iovs = 0, page = head_pages;
    const uint32_t tables = head_pages - pl->records;
    add_iov(w, &iovs, w->head, (uint64_t)tables * NVME_PAGE);
    if (pl->records != 0)
        add_iov(w, &iovs, w->head + (size_t)NVME_TABLE_PAGES * NVME_PAGE,
                (uint64_t)pl->records * NVME_PAGE);
    struct tier_op **tail = &w->ops;
    for (uint32_t i = 0; i < pl->items; i++) {
        struct tier_op *op = nvme__ops_pop(&n->queue.put[which]);
        struct nvme_entry *e = nvme__entry(n, op->loc);
        struct nvme_item it;
        item_of(op, page, &it);
        nvme__item_encode(w->head, pl->records + i, &it);
        e->state = NVME_E_WRITING;
        e->item = (uint16_t)(pl->records + i);
        e->page = (uint16_t)page;
        nvme__entry_link(n, e, w->extent);
        add_iov(w, &iovs, op->src, (uint64_t)nvme__pages(op->bytes) * NVME_PAGE);
        page += nvme__pages(op->bytes);
        *tail = op;
        tail = &op->next;
    }
    *tail = NULL;
    return iovs;
}

/* When the path is synced. Room that is not synced cannot be reused; where all of a path is written
 * within `sync_ns`, writes would wait for that. */
static uint64_t sync_due(const struct nvme *n, const struct nvme_path *p)
{
    const bool much = p->sync.written_pages >= (uint64_t)p->segs * n->seg_pages / UNSYNCED_SHARE;
    return n->now_ns + (much ? 0 : n->c.sync_ns);
}

/* Ends a write: its extent can be read from now on, or is lost, and its PUTs are answered. Durable
 * ones wait for nvme_sync.c. */
static void end_write(struct nvme *n, struct nvme_write *w)
{
    struct nvme_path *p = &n->path[w->path];
    struct nvme_extent *x = &n->extent[w->extent];
    struct nvme_seg *s = &n->seg[x->seg];
    const bool good = w->good && !s->broken && w->era == p->era;
    if (good) {
        s->done_pages += x->pages;
        nvme__written(n, p, w->extent);
        p->sync.written_pages += x->pages;
        p->sync.due_ns = nvme__sooner(p->sync.due_ns, sync_due(n, p));
    } else {
        s->broken = true;
        nvme__seg_close(n, x->seg);
        nvme__extent_lost(n, w->extent);
    }
    for (struct tier_op *op = w->ops, *next; op != NULL; op = next) {
        next = op->next;
        if (!good || ((op->flags & TIER_F_DURABLE) != 0 && !nvme__path_up(p))) {
            nvme__put_failed(n, op, -EIO);
        } else if ((op->flags & TIER_F_DURABLE) != 0) {
            nvme__ops_push(&p->durable, op);
        } else {
            nvme__entry(n, op->loc)->state = NVME_E_WRITTEN;
            nvme__finish(n, op, 0);
        }
    }
    w->ended = false;
    w->next = n->writes.free;
    n->writes.free = w;
}

/* Ends the segment's writes in the order of their places. So no gap is before an extent that
 * counts, and a walk of the segment without a journal finds it. */
static void end_in_order(struct nvme *n, uint32_t seg)
{
    const struct nvme_seg *s = &n->seg[seg];
    for (uint32_t i = 0; i < n->writes.n;) {
        struct nvme_write *w = &n->writes.at[i++];
        if (!w->ended || n->extent[w->extent].seg != seg)
            continue;
        if (!s->broken && w->good && n->extent[w->extent].page != s->done_pages)
            continue;
        end_write(n, w);
        i = 0;
    }
}

static void nvme_write_on_written(struct nvme_io *io)
{
    struct nvme_write *w = CONTAINER_OF(io, struct nvme_write, io);
    struct nvme *n = io->n;
    n->path[w->path].writes--;
    n->inflight.write_bytes -= io->op.bytes;
    w->ended = true;
    w->good = io->op.result >= 0;
    end_in_order(n, n->extent[w->extent].seg);
}

static void count_bytes(struct nvme *n, const struct nvme_write *w, uint64_t bytes)
{
    n->m.bytes_written += bytes;
    n->m.writes++;
    nvme__budget_spend(n, bytes);
    for (const struct tier_op *op = w->ops; op != NULL; op = op->next) {
        if (nvme__keep_owns(n, op)) {
            n->m.bytes_kept += (uint64_t)nvme__pages(op->bytes) * NVME_PAGE;
            continue;
        }
        n->m.bytes_accepted += op->bytes;
        n->m.puts++;
    }
}

static void write_extent(struct nvme *n, struct nvme_path *p, enum nvme_class which,
                         struct nvme_write *w, const struct plan *pl)
{
    struct nvme_open *o = &p->open[which];
    struct nvme_seg *s = &n->seg[o->seg];
    struct nvme_extent *x = &n->extent[w->extent];
    const uint32_t tables = nvme__table_pages(pl->items + pl->records);
    const uint32_t head = tables + pl->records, pages = head + pl->payload_pages;
    x->state = NVME_X_WRITING;
    x->page = s->used_pages;
    x->pages = pages;
    x->items = (uint16_t)(pl->items + pl->records);
    x->head_pages = (uint8_t)head;
    x->records = (uint8_t)pl->records;
    x->flags = which == NVME_DURABLE ? NVME_X_DURABLE : 0;
    x->seq = ++n->store.seq_count;
    nvme__seg_attach(n, o->seg, w->extent);
    s->pending++;
    s->used_pages += pages;
    put_records(n, o, w->extent, w, pl, tables);
    const uint32_t iovs = put_payloads(n, w, which, pl, head);
    struct nvme_head h = {.flags = which == NVME_DURABLE ? NVME_T_DURABLE : 0,
                          .path = p->number,
                          .seg = o->seg - p->first_seg,
                          .page = x->page,
                          .pages = pages,
                          .items = x->items,
                          .head_pages = head,
                          .gen = s->gen,
                          .seq = x->seq,
                          .since = n->store.since_seq,
                          .safe = nvme__safe_seq(n)};
    memcpy(h.uuid, n->store.uuid, sizeof(h.uuid));
    nvme__table_finish(w->head, &h);
    x->sum = h.sum;
    w->path = p->number;
    w->era = p->era;
    p->writes++;
    n->inflight.write_bytes += (uint64_t)pages * NVME_PAGE;
    count_bytes(n, w, (uint64_t)pages * NVME_PAGE);
    nvme__issue(n, &w->io, DISK_WRITE, p, w->iov, iovs, nvme__extent_page(n, x),
                (uint64_t)pages * NVME_PAGE, nvme_write_on_written);
}

static void nvme_write_fail_all(struct nvme *n, enum nvme_class which, int status)
{
    struct tier_op *op;
    while ((op = nvme__ops_pop(&n->queue.put[which])) != NULL)
        nvme__put_failed(n, op, status);
}

/* Starts one extent. False: no other can be started now. */
static bool write_one(struct nvme *n, enum nvme_class which)
{
    struct nvme_ops *list = &n->queue.put[which];
    struct plan pl;
    if (list->n == 0 || n->writes.free == NULL ||
        (n->inflight.write_bytes != 0 && n->inflight.write_bytes + n->c.extent_bytes > credit(n)))
        return false;
    if (which == NVME_DURABLE && !nvme__have_entries(n)) { /* the journal first hears of deaths */
        n->flushing = true;
        return false;
    }
    /* A table page and perhaps a namespace's come before it. */
    const bool moves = nvme__keep_owns(n, list->head);
    struct nvme_path *p = nvme__seg_room(n, which, moves, nvme__pages(list->head->bytes) + 2);
    if (p == NULL && (n->seg_use.deleting != 0 || nvme__room_grows(n)))
        return false;
    if (p == NULL) { /* a move behind it may still have room */
        nvme__put_failed(n, nvme__ops_pop(list), nvme__any_up(n) ? -ENOSPC : -EIO);
        return true;
    }
    if (p->writes >= DEPTH || (p->writes != 0 && list->bytes < n->c.extent_bytes))
        return false;
    const uint32_t extent = nvme__extent_new(n);
    if (extent == NVME_NONE) {
        nvme_write_fail_all(n, which, -ENOSPC);
        return false;
    }
    struct nvme_write *w = n->writes.free;
    plan(n, &p->open[which], which, w, &pl);
    MUST(pl.items != 0);
    n->writes.free = w->next;
    w->extent = extent;
    write_extent(n, p, which, w, &pl);
    return true;
}

void nvme__write_run(struct nvme *n)
{
    static const enum nvme_class order[] = {NVME_DURABLE, NVME_NORMAL};
    for (unsigned i = 0; i < ARRAY_LEN(order); i++) {
        nvme_write_sweep(n, &n->queue.put[order[i]]);
        if (n->journal_error != 0)
            nvme_write_fail_all(n, order[i], -EIO);
        while (write_one(n, order[i]))
            ;
    }
}
