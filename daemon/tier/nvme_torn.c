/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds which blocks of recovered extents are really on disk.
 *
 * A table says nothing of the payload behind it, and a torn copy that is newer would hide an older
 * one that is whole. Tables of later extents say what had been synced when they were written.
 * Extents that none of them speaks of are read, a piece at a time, and compared with their sums.
 */
#include <stdlib.h>

#include "nvme__.h"
#include "sys.h"

#define READERS 16u
#define PIECE   64u /* pages read at a time */

/* ---- which extents are unsure ---- */

/* A table says: the extents from `since` to `safe` are synced (nvme_head). */
struct claim {
    uint64_t since, safe;
};

static int by_since(const void *a, const void *b)
{
    const struct claim *x = a, *y = b;
    return (x->since > y->since) - (x->since < y->since);
}

/* Marks the extents that no later table says are safe, and returns how many. Tables of an older
 * format have no since; their extents are never marked. */
static uint32_t mark_unsure(struct nvme_candidates *list, struct claim *claim)
{
    uint32_t claims = 0, next = 0, unsure = 0;
    uint64_t reach = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        const struct nvme_candidate *c = &list->at[i];
        if (c->since != 0 && c->since <= c->safe && c->safe < c->seq)
            claim[claims++] = (struct claim){c->since, c->safe};
    }
    if (claims != 0)
        qsort(claim, claims, sizeof(claim[0]), by_since);
    for (uint32_t i = list->n; i > 0; i--) { /* the oldest first */
        struct nvme_candidate *c = &list->at[i - 1];
        for (; next < claims && claim[next].since <= c->seq; next++)
            reach = MAX(reach, claim[next].safe);
        c->unsure = c->since != 0 && c->seq > reach;
        unsure += c->unsure;
    }
    return unsure;
}

/* ---- blocks of unsure extents, read and compared ---- */

struct look {
    struct nvme *n;
    struct nvme_candidates *list;
    struct nvme_report *report;
    uint32_t next, active;
    int error;
};
struct reader {
    struct hash_stream sum; /* over the bytes of the item read so far */
    struct nvme_io io;
    struct look *l;
    struct nvme_candidate *c; /* the extent being read; NULL: none yet */
    struct nvme_head head;
    struct iovec iov;
    uint8_t *table, *piece;
    uint32_t item, bytes; /* the item being compared; its bytes read so far */
    uint32_t page, pages; /* the pages of the extent that `piece` holds; pages 0: none */
    uint32_t tries;
};

static void read_on(struct reader *k);

static void issue(struct reader *k, void (*end)(struct nvme_io *io))
{
    struct nvme *n = k->l->n;
    const struct nvme_extent *x = &n->extent[k->c->extent];
    const uint32_t page = k->iov.iov_base == k->table ? 0 : k->page;
    nvme__issue(n, &k->io, DISK_READ, &n->path[n->seg[x->seg].path], &k->iov, 1,
                nvme__extent_page(n, x) + page, k->iov.iov_len, end);
}

/* True: the read has ended, and *ret_failed says whether it failed. False: it failed and was issued
 * again, which happens a few times. */
static bool has_come(struct reader *k, void (*end)(struct nvme_io *io), bool *ret_failed)
{
    *ret_failed = k->io.op.result < 0;
    if (*ret_failed && ++k->tries < NVME_RETRY) {
        issue(k, end);
        return false;
    }
    k->tries = 0;
    return true;
}

static void end_item(struct reader *k, bool good)
{
    MUST(k->item < k->head.items && k->head.items <= NVME_ITEMS_MAX);
    if (!good) {
        k->c->dead[k->item / 8] |= (uint8_t)(1u << k->item % 8);
        k->l->report->blocks_torn++;
    }
    k->item++;
    k->bytes = 0;
    hash_stream_init(&k->sum);
}

/* Leaves an extent that cannot be read: it may hold a durable block, and the next start may read
 * it. */
static void nvme_torn_leave(struct reader *k)
{
    k->c->unread = true;
    k->head.items = 0;
}

/* The same in a rebuild, which the next start does again: the segment stays as it is until then. */
static void leave_segment(struct reader *k)
{
    struct nvme *n = k->l->n;
    n->seg[n->extent[k->c->extent].seg].unread = true;
}

static void nvme_torn_on_piece(struct nvme_io *io)
{
    struct reader *k = CONTAINER_OF(io, struct reader, io);
    bool failed;
    if (!has_come(k, nvme_torn_on_piece, &failed))
        return;
    k->pages = failed ? 0 : (uint32_t)(k->iov.iov_len / NVME_PAGE);
    if (failed && k->c->forward) {
        nvme_torn_leave(k);
    } else if (failed) {
        leave_segment(k);
        end_item(k, false);
    }
    read_on(k);
}

static void read_piece(struct reader *k, uint32_t page)
{
    MUST(page < k->head.pages);
    k->page = page;
    k->pages = 0;
    k->iov = (struct iovec){k->piece, (size_t)MIN(PIECE, k->head.pages - page) * NVME_PAGE};
    issue(k, nvme_torn_on_piece);
}

/* Compares the items whose pages `piece` holds. False: the next piece is being read. */
static bool compare_items(struct reader *k)
{
    while (k->item < k->head.items) {
        struct nvme_item it;
        nvme__item_decode(k->table, k->item, &it);
        const bool record = (it.flags & NVME_I_RECORD) != 0;
        if (!nvme__item_ok(&k->head, &it)) {
            k->item++; /* nvme__tell() counts a bad item */
            continue;
        }
        const uint32_t page = it.page + k->bytes / NVME_PAGE;
        if (page < k->page || page >= k->page + k->pages) {
            read_piece(k, page);
            return false;
        }
        const uint64_t there = (uint64_t)(k->page + k->pages - page) * NVME_PAGE;
        const uint32_t more = (uint32_t)MIN(there, (uint64_t)(it.bytes - k->bytes));
        hash_stream_update(&k->sum, k->piece + (size_t)(page - k->page) * NVME_PAGE, more);
        k->bytes += more;
        if (k->bytes < it.bytes)
            continue;
        const struct hash128 sum = hash_stream_final(&k->sum);
        const bool good = hash128_equal(&sum, &it.sum);
        k->c->broken = k->c->broken || (record && !good);
        end_item(k, good || record);
    }
    return true;
}

/* A read of a table has ended. If it failed, or the table is not the one found before, all blocks
 * of the extent count as dead; an extent found forward is left unread if it failed. */
static void on_table(struct nvme_io *io)
{
    struct reader *k = CONTAINER_OF(io, struct reader, io);
    const struct nvme_extent *x = &k->l->n->extent[k->c->extent];
    bool failed;
    if (!has_come(k, on_table, &failed))
        return;
    if (failed && k->c->forward) {
        nvme_torn_leave(k);
        read_on(k);
        return;
    }
    if (failed)
        leave_segment(k);
    if (failed || nvme__head_decode(k->table, k->iov.iov_len, &k->head) < 0 ||
        !hash128_equal(&k->head.sum, &x->sum)) {
        k->l->report->tables_damaged++;
        k->l->report->blocks_dropped += x->items - x->records;
        memset(k->c->dead, UINT8_MAX, sizeof(k->c->dead));
        k->head.items = 0;
    }
    read_on(k);
}

static bool next_extent(struct reader *k)
{
    struct look *l = k->l;
    MUST(k->c == NULL || k->item >= k->head.items); /* the extent before is compared whole */
    while (l->next < l->list->n && !l->list->at[l->next].unsure)
        l->next++;
    if (l->next == l->list->n)
        return false;
    k->c = &l->list->at[l->next++];
    k->item = k->bytes = k->pages = 0;
    hash_stream_init(&k->sum);
    const struct nvme_extent *x = &l->n->extent[k->c->extent];
    k->iov = (struct iovec){k->table, (size_t)nvme__table_pages(x->items) * NVME_PAGE};
    issue(k, on_table);
    return true;
}

static void read_on(struct reader *k)
{
    MUST(k->l->active > 0);
    if (k->l->error == 0 && k->c != NULL && !compare_items(k))
        return;
    if (k->l->error != 0 || !next_extent(k))
        k->l->active--;
}

int nvme__look_at_unsure(struct nvme *n, const struct nvme_recovery *r,
                         struct nvme_candidates *list, struct nvme_report *report)
{
    struct look l = {.n = n, .list = list, .report = report};
    const size_t own = (size_t)(NVME_TABLE_PAGES + PIECE) * NVME_PAGE;
    struct reader *reader = sys_aligned_alloc(64, READERS * sizeof(reader[0]));
    const uint64_t pages = (uint64_t)READERS * (NVME_TABLE_PAGES + PIECE);
    uint8_t *buf = nvme__buffer(pages);
    if (reader == NULL || buf == NULL)
        l.error = -ENOMEM;
    for (uint32_t i = 0; l.error == 0 && i < READERS; i++) {
        uint8_t *table = buf + i * own;
        memset(&reader[i], 0, sizeof(reader[i]));
        reader[i].l = &l;
        reader[i].table = table;
        reader[i].piece = table + (size_t)NVME_TABLE_PAGES * NVME_PAGE;
        l.active++;
        read_on(&reader[i]);
    }
    while (l.active != 0 || n->inflight.n != 0) {
        const int one = r->pump(r->ctx);
        l.error = l.error != 0 ? l.error : one < 0 ? one : 0;
    }
    free(reader);
    nvme__buffer_free(buf, pages);
    return l.error;
}

int nvme__rebuild_torn(struct nvme *n, const struct nvme_recovery *r, struct nvme_candidates *list,
                       struct nvme_report *report)
{
    if (list->n == 0)
        return 0;
    struct claim *claim = sys_calloc(list->n, sizeof(claim[0]));
    if (claim == NULL)
        return -ENOMEM;
    const uint32_t unsure = mark_unsure(list, claim);
    free(claim);
    return unsure != 0 ? nvme__look_at_unsure(n, r, list, report) : 0;
}
