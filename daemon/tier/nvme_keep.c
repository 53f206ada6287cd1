/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves the blocks that reclaim keeps. The blocks of one extent at a time are read, checked against
 * the table and their sums, and written again like any other. The old place counts until the new
 * one is as safe.
 */
#include <stdlib.h>

#include "nvme__.h"

bool nvme__keep_owns(const struct nvme *n, const struct tier_op *op)
{
    for (unsigned i = 0; i < NVME_MOVERS; i++) {
        const struct nvme_move *first = n->mover[i].item;
        if (op >= &first[0].op && op <= &first[NVME_MOVE_ITEMS - 1].op)
            return true;
    }
    return false;
}

bool nvme__keep(struct tier *t, struct tier_loc loc, uint32_t block_no)
{
    struct nvme *n = nvme__of(t);
    struct nvme_entry *e = nvme__entry(n, loc);
    const uint64_t pages = nvme__pages(e->bytes);
    struct tier_loc to;
    MUST(e->state == NVME_E_LIVE && e->block_no == block_no);
    if ((e->flags & NVME_E_MOVING) != 0)
        return true;
    if (n->stopping || n->journal_error != 0 || n->keeps.n == NVME_KEEPS_MAX ||
        pages * NVME_PAGE > n->c.extent_bytes || !nvme__path_up(nvme__entry_path(n, e)) ||
        n->pages.reserved + pages > nvme__room_pages(n) ||
        !nvme__can_move(n, (e->flags & NVME_E_DURABLE) ? NVME_DURABLE : NVME_NORMAL, pages + 2))
        return false;
    if (n->c.write_per_day != 0 && n->budget.tokens <= 0 && (e->flags & NVME_E_DURABLE) == 0)
        return false;
    if (nvme__entry_new(n, e->bytes, block_no, &to) < 0)
        return false;
    e->flags |= NVME_E_MOVING;
    n->keeps.at[(n->keeps.head + n->keeps.n++) % NVME_KEEPS_MAX] = (struct nvme_keep){loc, to};
    return true;
}

void nvme__keep_abandon(struct nvme *n, struct tier_loc from)
{
    nvme__entry(n, from)->flags &= (uint8_t)~NVME_E_MOVING;
    for (uint32_t i = 0; i < n->keeps.n; i++) {
        struct nvme_keep *k = &n->keeps.at[(n->keeps.head + i) % NVME_KEEPS_MAX];
        if (k->from.id != from.id)
            continue;
        nvme__entry_free(n, k->to);
        k->from.id = 0;
        return;
    }
    for (unsigned m = 0; m < NVME_MOVERS; m++) {
        struct nvme_mover *mv = &n->mover[m];
        for (uint32_t i = 0; mv->phase != NVME_M_IDLE && i < mv->items; i++)
            if (mv->item[i].from.id == from.id && !mv->item[i].ended && !mv->item[i].abandoned) {
                mv->item[i].abandoned = true;
                atomic_store_explicit(&mv->item[i].op.cancel, true, memory_order_relaxed);
                return;
            }
    }
    MUST(false); /* a block that moves is in `keeps` or in a mover */
}

/* The move has failed. If room was missing, the block stays where it is, and core is told again and
 * decides. A durable block also stays, unless its bytes are wrong. Any other block is lost. */
static void stay(struct nvme *n, struct nvme_move *it, int status, bool corrupt)
{
    struct nvme_entry *e = nvme__entry(n, it->from);
    const uint32_t block_no = e->block_no, seg = n->extent[e->extent].seg;
    e->flags &= (uint8_t)~NVME_E_MOVING;
    const bool may = (e->flags & NVME_E_DURABLE) != 0 || n->stopping || status == -ENOSPC;
    if (may && !corrupt) {
        e->flags &= (uint8_t)~NVME_E_TOLD;
        if (n->seg[seg].state == NVME_S_VICTIM)
            n->seg[seg].told = n->seg[seg].extents;
        return;
    }
    if (corrupt)
        nvme__count_corrupt(n, it->from);
    nvme__entry_free(n, it->from);
    n->m.blocks_lost++;
    if (n->tier.events.lost != NULL)
        n->tier.events.lost(n->tier.events.ctx, block_no, it->from);
}

/* Ends one move. False: the old place still has readers. */
static bool move_end(struct nvme *n, struct nvme_move *it, int status, bool corrupt)
{
    struct nvme_entry *from = it->abandoned ? NULL : nvme__entry(n, it->from);
    if (from != NULL && from->readers != 0)
        return false;
    it->ended = true;
    if (status != 0 || from == NULL) {
        nvme__entry_free(n, it->op.loc);
        if (from != NULL)
            stay(n, it, status, corrupt);
        return true;
    }
    struct nvme_entry *to = nvme__entry(n, it->op.loc);
    const uint32_t block_no = from->block_no;
    to->state = NVME_E_LIVE;
    to->block_no = block_no;
    if ((from->flags & NVME_E_DURABLE) == 0)
        nvme__make_ordinary(&n->tier, it->op.loc); /* core asked for that during the move */
    from->flags &= (uint8_t)~NVME_E_MOVING;
    nvme__entry_free(n, it->from);
    n->m.blocks_kept++;
    if (n->tier.events.moved != NULL)
        n->tier.events.moved(n->tier.events.ctx, block_no, it->from, it->op.loc);
    return true;
}

static void mover_end_moves(struct nvme *n, struct nvme_mover *mv)
{
    for (uint32_t i = 0; i < mv->items; i++) {
        struct nvme_move *it = &mv->item[i];
        if (it->op.done != NULL || it->ended || it->op.status == -EINPROGRESS)
            continue;
        if (move_end(n, it, it->op.status == -EUCLEAN ? -EIO : it->op.status,
                     it->op.status == -EUCLEAN))
            mv->left--;
    }
    if (mv->left == 0)
        mv->phase = NVME_M_IDLE;
}

static void on_put(struct tier_op *op)
{
    struct nvme_mover *mv = op->ctx;
    op->done = NULL; /* the PUT has ended; mover_end_moves() tells core */
    mover_end_moves(mv->n, mv);
}

/* Whether the bytes that were read are the block that the table names. */
static bool is_block(const struct nvme_mover *mv, const struct nvme_move *it,
                     struct nvme_item *ret_item)
{
    const struct nvme_entry *e = nvme__entry(mv->n, it->from);
    const uint8_t *at = mv->buf + (size_t)(it->page - mv->from_page) * NVME_PAGE;
    nvme__item_decode(mv->head, it->item, ret_item);
    const struct hash128 sum = hash_sum(at, e->bytes);
    return ret_item->page == it->page && ret_item->bytes == e->bytes &&
           hash128_equal(&ret_item->sum, &e->sum) && hash128_equal(&sum, &e->sum);
}

static void put_again(struct nvme *n, struct nvme_mover *mv, struct nvme_move *it)
{
    struct nvme_item item;
    const struct tier_loc to = it->op.loc;
    it->op = (struct tier_op){.kind = TIER_PUT, .loc = to, .status = -EUCLEAN, .ctx = mv};
    if (it->abandoned || !is_block(mv, it, &item))
        return;
    const bool durable = (nvme__entry(n, it->from)->flags & NVME_E_DURABLE) != 0;
    it->op.flags = durable ? TIER_F_DURABLE : 0;
    it->op.src = mv->buf + (size_t)(it->page - mv->from_page) * NVME_PAGE;
    it->op.bytes = item.bytes;
    it->op.sum = item.sum;
    it->op.done = on_put;
    it->op.label = (struct tier_label){.key = item.key,
                                       .parent = item.parent,
                                       .print = item.print,
                                       .group = item.group,
                                       .shard = item.shard,
                                       .tokens = item.tokens,
                                       .has_parent = (item.flags & NVME_I_PARENT) != 0,
                                       .durable = durable,
                                       .by_pin = durable && (item.flags & NVME_I_BY_PIN) != 0,
                                       .level = item.level};
    nvme__write_submit(n, &it->op);
}

static void let_go(struct nvme *n, struct nvme_mover *mv)
{
    if (--n->seg[mv->seg].readers == 0)
        nvme__seg_look(n, mv->seg);
}

static void nvme_keep_fail(struct nvme *n, struct nvme_mover *mv, int status)
{
    mv->phase = NVME_M_WRITE;
    for (uint32_t i = 0; i < mv->items; i++) {
        mv->item[i].op.done = NULL;
        mv->item[i].op.status = status;
    }
    let_go(n, mv);
    mover_end_moves(n, mv);
}

static void nvme_keep_on_read(struct nvme_io *io)
{
    struct nvme_mover *mv = CONTAINER_OF(io, struct nvme_mover, io);
    struct nvme *n = io->n;
    struct nvme_head head;
    if (io->op.result < 0) {
        nvme_keep_fail(n, mv, -EIO);
        return;
    }
    if (mv->phase == NVME_M_HEAD) {
        if (nvme__head_decode(mv->head, io->op.bytes, &head) < 0 ||
            !hash128_equal(&head.sum, &mv->sum)) {
            nvme_keep_fail(n, mv, -EUCLEAN);
            return;
        }
        uint32_t end = 0;
        for (uint32_t i = 0; i < mv->items; i++)
            end = MAX(end, mv->item[i].page + nvme__pages(mv->item[i].op.bytes));
        mv->phase = NVME_M_PAYLOAD;
        mv->iov = (struct iovec){mv->buf, (size_t)(end - mv->from_page) * NVME_PAGE};
        nvme__issue(n, io, DISK_READ, &n->path[io->op.path], &mv->iov, 1,
                    mv->first_page + mv->from_page, mv->iov.iov_len, nvme_keep_on_read);
        return;
    }
    mv->phase = NVME_M_WRITE;
    for (uint32_t i = 0; i < mv->items; i++)
        put_again(n, mv, &mv->item[i]);
    let_go(n, mv);
    mover_end_moves(n, mv);
}

/* The blocks at the head of the queue that are in one extent. */
static void nvme_keep_take(struct nvme *n, struct nvme_mover *mv)
{
    uint32_t extent = NVME_NONE, end = 0;
    mv->items = 0;
    while (n->keeps.n != 0 && mv->items < NVME_MOVE_ITEMS) {
        const struct nvme_keep k = n->keeps.at[n->keeps.head];
        if (k.from.id != 0) {
            const struct nvme_entry *e = nvme__entry(n, k.from);
            const uint32_t from = mv->items != 0 ? MIN(mv->from_page, e->page) : e->page;
            const uint32_t to = MAX(end, e->page + nvme__pages(e->bytes));
            if (extent != NVME_NONE &&
                (e->extent != extent || (uint64_t)(to - from) * NVME_PAGE > n->c.extent_bytes))
                break;
            extent = e->extent;
            mv->from_page = from;
            end = to;
            mv->item[mv->items++] =
                (struct nvme_move){.op = {.loc = k.to, .bytes = e->bytes, .status = -EINPROGRESS},
                                   .from = k.from,
                                   .page = e->page,
                                   .item = e->item};
        }
        n->keeps.head = (n->keeps.head + 1) % NVME_KEEPS_MAX;
        n->keeps.n--;
    }
    if (mv->items == 0)
        return;
    const struct nvme_extent *x = &n->extent[extent];
    struct nvme_path *p = &n->path[n->seg[x->seg].path];
    mv->left = mv->items;
    mv->seg = x->seg;
    mv->sum = x->sum;
    mv->first_page = nvme__extent_page(n, x);
    mv->phase = NVME_M_HEAD;
    n->seg[x->seg].readers++;
    if (!nvme__path_up(p)) {
        nvme_keep_fail(n, mv, -EIO);
        return;
    }
    mv->iov = (struct iovec){mv->head, (size_t)nvme__table_pages(x->items) * NVME_PAGE};
    nvme__issue(n, &mv->io, DISK_READ, p, &mv->iov, 1, mv->first_page, mv->iov.iov_len,
                nvme_keep_on_read);
}

void nvme__keep_run(struct nvme *n)
{
    for (unsigned i = 0; i < NVME_MOVERS; i++) {
        struct nvme_mover *mv = &n->mover[i];
        if (mv->phase == NVME_M_WRITE)
            mover_end_moves(n, mv);
        while (mv->phase == NVME_M_IDLE && n->keeps.n != 0 && !n->stopping)
            nvme_keep_take(n, mv);
    }
    if (!n->stopping)
        return;
    for (; n->keeps.n != 0; n->keeps.n--, n->keeps.head = (n->keeps.head + 1) % NVME_KEEPS_MAX) {
        const struct nvme_keep *k = &n->keeps.at[n->keeps.head];
        if (k->from.id == 0)
            continue;
        nvme__entry(n, k->from)->flags &= (uint8_t)~NVME_E_MOVING;
        nvme__entry_free(n, k->to);
    }
}

bool nvme__keep_abandoned(const struct nvme *n)
{
    for (unsigned m = 0; m < NVME_MOVERS; m++) {
        const struct nvme_mover *mv = &n->mover[m];
        for (uint32_t i = 0; mv->phase != NVME_M_IDLE && i < mv->items; i++)
            if (mv->item[i].abandoned && !mv->item[i].ended)
                return true;
    }
    return false;
}

bool nvme__keep_idle(const struct nvme *n)
{
    bool idle = n->keeps.n == 0;
    for (unsigned i = 0; i < NVME_MOVERS; i++)
        idle = idle && n->mover[i].phase == NVME_M_IDLE;
    return idle;
}
