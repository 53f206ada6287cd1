/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes room for a block: in host memory by evicting others, on disk where storage makes room. A
 * store calls host_take() before it announces the block.
 */
#include "space.h"

/* Blocks of other sizes or principals that may be evicted in vain before a region is emptied. */
#define ROOM_PATIENCE 64u

int slot_take(struct core *c, struct slot_ask *ask, struct tier_loc *ret_loc)
{
    struct tier *t = ask->tier;
    uint32_t in_vain = 0;
    bool has_evacuated = false;
    for (;;) {
        int err = ask->may ? ask->may(c, ask) : 0;
        if (!err)
            err = t->ops->alloc(t, ask->principal, ask->bytes, ask->beside, ask->block_no, ret_loc);
        if (err != KVC_E_NO_ROOM)
            return err;
        if (in_vain >= ROOM_PATIENCE && !has_evacuated) {
            has_evacuated = true;
            if (ask->evacuate(c, ask) > 0)
                continue;
        }
        err = ask->make(c, ask, &in_vain);
        if (err)
            return err;
        if (in_vain > 2 * ROOM_PATIENCE)
            in_vain = 0, has_evacuated = false;
    }
}

/* ---- in memory ---- */

struct host_ask {
    struct slot_ask ask;
    struct core *core;
    struct core_ns *ns;
    struct alloc_request *w;
};

static struct host_ask *host_of(struct slot_ask *ask)
{
    return CONTAINER_OF(ask, struct host_ask, ask);
}

static int host_may(struct core *c, struct slot_ask *ask)
{
    return quota_room(c, host_of(ask)->ns, ask->bytes, host_of(ask)->w);
}

static void evacuate_occupant(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    const struct host_ask *h = ctx;
    struct core *c = h->core;
    struct block *b = &c->blocks[block_no];
    (void)loc;
    if (!(b->flags & BLOCK_F_LINKED) || b->host_pins > 0 ||
        retain_protects(c->retain, block_ns(c, b)->account, h->ns->account, CORE_HOST,
                        block_bytes(c, b)))
        return;
    if (!block_on_disk(b) || !copy_there(b, CORE_HOST)) {
        evict_tree(c, block_no, &c->m.blocks_evicted);
    } else if (!block_in_use(c, b)) {
        c->m.blocks_left++;
        host_drop(c, b);
    }
}

static uint32_t host_evacuate(struct core *c, struct slot_ask *ask)
{
    struct host_ask *h = host_of(ask);
    const bool lacks =
        retain_lacks(c->retain, h->ns->account) || room_is_promised(c, h->ns, ask->bytes);
    place_pressed(c);
    c->m.evacuations++;
    return ask->tier->memory->evacuate(ask->tier, ask->principal, ask->bytes, lacks,
                                       evacuate_occupant, h);
}

static struct tier_loc some_loc(struct core *c, const struct block *b)
{
    if (!(b->flags & BLOCK_F_PARTS))
        return (struct tier_loc){b->where};
    const struct part *p = pool_at(c->parts, b->where);
    return p->loc;
}

static void host_leave(struct core *c, struct slot_ask *ask, struct block *b, uint32_t *in_vain)
{
    *in_vain += slot_is_vain(ask, some_loc(c, b));
    c->m.blocks_left++;
    host_drop(c, b);
}

/* The next block whose copy in memory can be dropped without loss, because it is on disk too; NULL:
 * none. */
static struct block *next_droppable(struct core *c, uint32_t account)
{
    struct block *b = core_stores(c) ? clean_pop(c, account) : NULL;
    if (b || !core_stores(c))
        return b;
    const uint32_t no = evict_next(c, account, 0);
    if (no == POLICY_NO_BLOCK)
        return NULL;
    b = &c->blocks[no];
    return block_on_disk(b) ? b : NULL;
}

/* Drops or evicts one block: 0; KVC_E_FULL when none can be; KVC_E_BUSY when one can soon;
 * KVC_E_NOT_WORTH. */
static int host_make(struct core *c, struct slot_ask *ask, uint32_t *in_vain)
{
    struct alloc_request *w = host_of(ask)->w;
    const uint32_t account = host_of(ask)->ns->account;
    place_pressed(c);
    struct block *b = next_droppable(c, account);
    if (b) {
        host_leave(c, ask, b, in_vain);
        return 0;
    }
    if (w->patient && core_stores(c)) {
        place_want(c, ask->bytes);
        if (c->m.clean_bytes > 0)
            return 0;
        if (leaving_soon(c))
            return KVC_E_BUSY;
    }
    for (uint32_t n = 0; n < ROOM_PATIENCE; n++) {
        const uint32_t no = evict_next(c, account, 0);
        if (no == POLICY_NO_BLOCK)
            return KVC_E_FULL;
        b = &c->blocks[no];
        if (block_on_disk(b)) { /* behind one that could not go */
            host_leave(c, ask, b, in_vain);
            return 0;
        }
        const bool vain = slot_is_vain(ask, some_loc(c, b));
        const int err = evict_victim(c, account, no, n < ROOM_PATIENCE / 2, w);
        *in_vain += err == 0 && vain;
        if (err != KVC_E_FULL)
            return err;
    }
    return KVC_E_FULL;
}

int host_take(struct core *c, const struct block *b, struct alloc_request *w,
              struct tier_loc *ret_loc)
{
    struct core_ns *ns = block_ns(c, b);
    struct host_ask h = {.ask = {.tier = c->cfg.tier[CORE_HOST],
                                 .principal = ns->principal,
                                 .bytes = block_group(c, b)->block_bytes,
                                 .block_no = block_no(c, b),
                                 .beside = w->beside,
                                 .may = host_may,
                                 .make = host_make,
                                 .evacuate = host_evacuate},
                         .core = c,
                         .ns = ns,
                         .w = w};
    int err = slot_take(c, &h.ask, ret_loc);
    if (!err)
        room_count(c, ns, CORE_HOST, h.ask.bytes);
    return err;
}

int disk_take(struct core *c, const struct block *b, struct tier_loc beside, bool must,
              struct tier_loc *ret_loc)
{
    struct tier *disk = c->cfg.tier[CORE_STORAGE];
    struct core_ns *ns = block_ns(c, b);
    const uint32_t bytes = block_group(c, b)->block_bytes;
    int err = quota_disk(c, ns, bytes, must);
    if (!err)
        err = disk->ops->alloc(disk, ns->principal, bytes, beside, block_no(c, b), ret_loc);
    if (!err)
        room_count(c, ns, CORE_STORAGE, bytes);
    return err;
}
