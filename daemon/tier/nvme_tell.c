/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells core at start which blocks were found on disk: first the namespaces, then durable
 * blocks, then the other blocks, the newest first in each of the three. A table counts if it is
 * the one of its candidate, and its own sum is right.
 */
#include <stdlib.h>

#include "nvme_recover__.h"
#include "sys.h"

#define WINDOW 64u /* tables read ahead */
#define AHEAD  16u /* items between nvme_recovery.soon and nvme_recovery.block */

/* A table that is read ahead. */
struct table_read {
    struct nvme_io io;
    struct iovec iov;
    uint8_t *buf;   /* NVME_HEAD_PAGES */
    uint32_t tries; /* reads that failed */
    bool ready;     /* the read has ended */
};
/* Called with the table of each wanted candidate. head NULL: the table could not be read (failed),
 * or is not the candidate's. */
typedef void table_fn(struct recover *v, const struct nvme_candidate *c, const uint8_t *table,
                      const struct nvme_head *head, bool failed);

static void on_table(struct nvme_io *io)
{
    struct table_read *s = CONTAINER_OF(io, struct table_read, io);
    MUST(!s->ready);
    s->ready = true;
}

static void table_read_begin(struct nvme *n, struct table_read *s, uint32_t extent)
{
    const struct nvme_extent *x = &n->extent[extent];
    MUST(x->state != NVME_X_FREE && x->head_pages <= NVME_HEAD_PAGES); /* what fits s->buf */
    s->ready = false;
    s->iov = (struct iovec){s->buf, (size_t)x->head_pages * NVME_PAGE};
    nvme__issue(n, &s->io, DISK_READ, &n->path[n->seg[x->seg].path], &s->iov, 1,
                nvme__extent_page(n, x), s->iov.iov_len, on_table);
}

static bool is_table_of(const struct nvme *n, const struct nvme_candidate *c,
                        const struct nvme_head *h)
{
    const struct nvme_extent *x = &n->extent[c->extent];
    const struct nvme_path *p = &n->path[n->seg[x->seg].path];
    return memcmp(h->uuid, n->store.uuid, sizeof(h->uuid)) == 0 && h->path == p->number &&
           h->seg == x->seg - p->first_seg && h->page == x->page && h->pages == x->pages &&
           h->items == x->items && h->head_pages == x->head_pages && h->gen == c->gen &&
           h->seq == c->seq && hash128_equal(&h->sum, &x->sum);
}

static void nvme_tell_look(struct recover *v, struct table_read *s, const struct nvme_candidate *c,
                           table_fn *fn)
{
    struct nvme_head h;
    const bool failed = s->io.op.result < 0;
    const bool good =
        !failed && nvme__head_decode(s->buf, s->iov.iov_len, &h) == 0 && is_table_of(v->n, c, &h);
    fn(v, c, s->buf, good ? &h : NULL, failed);
}

static bool any_alive(const struct recover *v, const struct nvme_candidate *c)
{
    const struct nvme_extent *x = &v->n->extent[c->extent];
    for (uint32_t i = x->records; i < x->items; i++)
        if ((c->dead[i / 8] >> i % 8 & 1) == 0)
            return true;
    return false;
}

static bool is_durable(const struct recover *v, const struct nvme_candidate *c)
{
    return (v->n->extent[c->extent].flags & NVME_X_DURABLE) != 0;
}

/* Durable blocks are told first, since room may be short: a rebuild may find dead blocks again. */
static bool has_durable(const struct recover *v, const struct nvme_candidate *c)
{
    return is_durable(v, c) && any_alive(v, c);
}

static bool has_ordinary(const struct recover *v, const struct nvme_candidate *c)
{
    return !is_durable(v, c) && any_alive(v, c);
}

static bool has_records(const struct recover *v, const struct nvme_candidate *c)
{
    return v->n->extent[c->extent].records != 0;
}

/* Calls fn for each wanted table, in the order of the list, and reads up to WINDOW tables ahead. */
static int each_table(struct recover *v, struct table_read *reads,
                      bool (*want)(const struct recover *, const struct nvme_candidate *),
                      table_fn *fn)
{
    struct nvme *n = v->n;
    uint32_t ahead = 0, at = 0, issued = 0, seen = 0;
    while (at < v->list.n || n->inflight.n != 0) {
        for (; ahead < v->list.n && issued - seen < WINDOW && v->error == 0; ahead++)
            if (want(v, &v->list.at[ahead])) {
                reads[issued % WINDOW].tries = 0;
                table_read_begin(n, &reads[issued++ % WINDOW], v->list.at[ahead].extent);
            }
        for (; at < ahead && v->error == 0; at++) {
            struct table_read *s = &reads[seen % WINDOW];
            if (!want(v, &v->list.at[at]))
                continue;
            MUST(seen < issued && issued - seen <= WINDOW);
            if (s->ready && s->io.op.result < 0 && ++s->tries < NVME_RETRY)
                table_read_begin(n, s, v->list.at[at].extent);
            if (!s->ready)
                break;
            nvme_tell_look(v, s, &v->list.at[at], fn);
            seen++;
        }
        if (v->error != 0 && n->inflight.n == 0)
            return v->error;
        if (n->inflight.n == 0)
            continue;
        const int r = v->r->pump(v->r->ctx);
        v->error = v->error != 0 ? v->error : r < 0 ? r : 0;
    }
    return v->error;
}

/* Tells of the namespaces whose records are behind the table, except those that v->told has. */
static void tell_records(struct recover *v, const struct nvme_candidate *c, const uint8_t *table,
                         const struct nvme_head *head, bool failed)
{
    struct nvme_item it;
    if (failed)
        v->n->seg[v->n->extent[c->extent].seg].unread = true;
    for (uint32_t i = 0; head != NULL && i < head->items; i++) {
        nvme__item_decode(table, i, &it);
        if ((it.flags & NVME_I_RECORD) == 0 || !nvme__item_ok(head, &it))
            continue;
        const uint8_t *record = table + (size_t)it.page * NVME_PAGE;
        const struct hash128 sum = hash_sum(record, it.bytes);
        uint64_t *told = &v->told[it.print % NVME_PRINT_CACHE];
        if (*told == it.print || !hash128_equal(&sum, &it.sum))
            continue;
        *told = it.print;
        if (v->r->ns != NULL)
            v->r->ns(v->r->ctx, record, it.bytes);
    }
}

/* There is no entry for the block, or core has no room. A durable block stays for a later
 * start, except after a rebuild. */
static void no_room_for(struct recover *v, const struct nvme_candidate *c,
                        const struct nvme_item *it)
{
    v->report->blocks_dropped++;
    v->report->blocks_over++;
    if ((it->flags & NVME_I_DURABLE) == 0 || v->report->rebuilt)
        return;
    nvme__hold_seg(v->n, v->n->extent[c->extent].seg);
    v->n->extent[c->extent].flags |= NVME_X_UNREAD; /* else a commit would call it dead */
}

static struct tier_label label_of(const struct nvme_item *it)
{
    return (struct tier_label){.key = it->key,
                               .parent = it->parent,
                               .print = it->print,
                               .group = it->group,
                               .shard = it->shard,
                               .tokens = it->tokens,
                               .has_parent = (it->flags & NVME_I_PARENT) != 0,
                               .durable = (it->flags & NVME_I_DURABLE) != 0,
                               .by_pin = (it->flags & NVME_I_BY_PIN) != 0,
                               .level = it->level};
}

static void tell_block(struct recover *v, const struct nvme_candidate *c, uint32_t item,
                       const struct nvme_item *it)
{
    struct nvme *n = v->n;
    MUST(n->extent[c->extent].live < n->extent[c->extent].items); /* each item is told once */
    struct nvme_found found = {.bytes = it->bytes, .sum = it->sum, .order = c->seq};
    if (nvme__entry_new(n, it->bytes, 0, &found.loc) < 0) {
        no_room_for(v, c, it);
        return;
    }
    struct nvme_entry *e = nvme__entry(n, found.loc);
    found.label = label_of(it);
    e->sum = it->sum;
    e->item = (uint16_t)item;
    e->page = (uint16_t)it->page;
    e->flags = found.label.durable ? NVME_E_DURABLE : 0;
    e->state = NVME_E_LIVE;
    nvme__entry_link(n, e, c->extent);
    e->block_no = v->r->block(v->r->ctx, &found);
    if (e->block_no >= NVME_NO_ROOM) {
        if (e->block_no == NVME_NO_ROOM)
            no_room_for(v, c, it);
        nvme__entry_free(n, found.loc);
        return;
    }
    v->report->blocks++;
    v->report->bytes += it->bytes;
}

static void tell_soon(struct recover *v, const uint8_t *table, uint32_t item)
{
    struct nvme_item it;
    nvme__item_decode(table, item, &it);
    const struct tier_label label = label_of(&it);
    v->r->soon(v->r->ctx, &label);
}

/* Whether the table calls a block dead that the journal calls alive: the crash came after the write
 * of the dead sector, and before the commit. A start without the journal would lose the block. Also
 * true if the sector is damaged. */
static bool is_dead_by_table(const struct nvme_candidate *c, const uint8_t *table,
                             const struct nvme_head *head)
{
    uint8_t dead[NVME_MAP_BYTES] = {0};
    bool any = !nvme__dead_decode(table, head, dead);
    for (uint32_t i = 0; i < NVME_MAP_BYTES; i++)
        any = any || (dead[i] & ~c->dead[i]) != 0;
    return any;
}

static void tell_blocks(struct recover *v, const struct nvme_candidate *c, const uint8_t *table,
                        const struct nvme_head *head, bool failed)
{
    struct nvme_extent *x = &v->n->extent[c->extent];
    struct nvme_item it;
    if (head == NULL) {
        v->report->tables_damaged++;
        for (uint32_t i = x->records; i < x->items; i++)
            v->report->blocks_dropped += (c->dead[i / 8] >> i % 8 & 1) == 0;
        if (failed && c->forward) {
            nvme__note(
                v, "path %u: what was promised last was read, and then could not be: start again",
                v->n->seg[x->seg].path);
            v->error = -EIO;
        } else if (failed) {
            v->n->seg[x->seg].unread = true;
            x->flags |= NVME_X_UNREAD;
        } else {
            x->flags |= NVME_X_DIRTY;
        }
        return;
    }
    for (uint32_t i = 0; i < head->items; i++) {
        if (v->r->soon != NULL && i + AHEAD < head->items)
            tell_soon(v, table, i + AHEAD);
        nvme__item_decode(table, i, &it);
        if ((it.flags & NVME_I_RECORD) != 0 || (c->dead[i / 8] >> i % 8 & 1) != 0)
            continue;
        if (nvme__item_ok(head, &it))
            tell_block(v, c, i, &it);
        else
            v->report->blocks_dropped++;
    }
    if (!v->report->rebuilt && (x->flags & NVME_X_UNREAD) == 0 && is_dead_by_table(c, table, head))
        x->flags |= NVME_X_DIRTY; /* the next commit writes the dead sector again */
}

int nvme__tell(struct recover *v)
{
    struct table_read *reads = sys_calloc(WINDOW, sizeof(reads[0]));
    const uint64_t pages = (uint64_t)WINDOW * NVME_HEAD_PAGES;
    uint8_t *buf = nvme__buffer(pages);
    int r = reads != NULL && buf != NULL ? 0 : -ENOMEM;
    for (uint32_t i = 0; r == 0 && i < WINDOW; i++)
        reads[i].buf = buf + (size_t)i * NVME_HEAD_PAGES * NVME_PAGE;
    if (r == 0)
        r = each_table(v, reads, has_records, tell_records);
    if (r == 0)
        r = each_table(v, reads, has_durable, tell_blocks);
    if (r == 0)
        r = each_table(v, reads, has_ordinary, tell_blocks);
    MUST(v->n->inflight.n == 0); /* no read into memory that is freed */
    nvme__buffer_free(buf, pages);
    free(reads);
    return r;
}
