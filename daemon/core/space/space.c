/* SPDX-License-Identifier: Apache-2.0 */
/* Room for blocks is made and taken: in memory by letting others go, on disk where storage has it.
 */
#include "space.h"

/* Blocks of other sizes or principals that may go in vain before a region is emptied on purpose. */
#define ROOM_PATIENCE 64u

struct drained {
    struct core *core;
    uint32_t payer;
};

static void drain_occupant(void *ctx, struct tier_loc loc, uint32_t owner)
{
    const struct drained *d = ctx;
    struct core *c = d->core;
    struct block *b = &c->blocks[owner];
    (void)loc;
    if (!(b->flags & BLOCK_F_LINKED) || b->host_pins > 0 ||
        retain_guards(c->retain, block_ns(c, b)->payer, d->payer, 0, block_bytes(c, b)))
        return;
    if ((b->flags & BLOCK_F_HOST) && (b->flags & BLOCK_F_DISK)) {
        if (!block_in_use(c, b)) {
            c->m.blocks_left++;
            host_drop(c, b);
        }
        return;
    }
    evict_tree(c, owner, &c->m.blocks_evicted);
}

static struct tier_loc some_loc(struct core *c, const struct block *b)
{
    if (!(b->flags & BLOCK_F_PARTS))
        return (struct tier_loc){b->where};
    const struct part *p = pool_at(c->parts, b->where);
    return p->loc;
}

static void host_leave(struct core *c, const struct core_ns *ns, struct block *b, uint32_t bytes,
                       uint32_t *in_vain)
{
    const struct tier *host = c->cfg.host;
    *in_vain += !host->memory->helps(host, some_loc(c, b), ns->principal, bytes);
    c->m.blocks_left++;
    host_drop(c, b);
}

/* The next block whose host copy goes without loss, NULL when there is none. */
static struct block *next_clean(struct core *c, uint32_t payer)
{
    struct block *b = c->cfg.disk ? clean_pop(c, payer) : NULL;
    if (b || !c->cfg.disk)
        return b;
    const uint32_t no = evict_next(c, payer, 0);
    if (no == POLICY_NO_BLOCK)
        return NULL;
    b = &c->blocks[no];
    return block_on_disk(b) ? b : NULL;
}

/* One block makes room: 0, KVC_E_FULL when none can, KVC_E_BUSY when one will soon,
 * KVC_E_NOT_WORTH. */
static int room_make(struct core *c, const struct core_ns *ns, uint32_t bytes, struct welcome *w,
                     uint32_t *in_vain)
{
    const struct tier *host = c->cfg.host;
    struct block *b = next_clean(c, ns->payer);
    if (b) {
        host_leave(c, ns, b, bytes, in_vain);
        return 0;
    }
    if (w->patient && c->cfg.disk) {
        place_want(c, bytes);
        if (c->m.clean_bytes > 0)
            return 0;
        if (leaving_soon(c))
            return KVC_E_BUSY;
    }
    for (uint32_t n = 0; n < ROOM_PATIENCE; n++) {
        const uint32_t no = evict_next(c, ns->payer, 0);
        if (no == POLICY_NO_BLOCK)
            return KVC_E_FULL;
        if (block_on_disk(&c->blocks[no])) { /* behind one that could not go */
            host_leave(c, ns, &c->blocks[no], bytes, in_vain);
            return 0;
        }
        const struct tier_loc loc = some_loc(c, &c->blocks[no]);
        const bool helps = host->memory->helps(host, loc, ns->principal, bytes);
        const int err = evict_victim(c, ns->payer, no, n < ROOM_PATIENCE / 2, w);
        *in_vain += err == 0 && !helps;
        if (err != KVC_E_FULL)
            return err;
    }
    return KVC_E_FULL;
}

int host_take(struct core *c, const struct block *b, struct welcome *w, struct tier_loc *ret_loc)
{
    struct tier *host = c->cfg.host;
    struct core_ns *ns = block_ns(c, b);
    const uint32_t bytes = block_group(c, b)->block_bytes;
    struct drained drained = {c, ns->payer};
    uint32_t in_vain = 0;
    bool has_drained = false;
    for (;;) {
        int err = quota_room(c, ns, bytes, w);
        if (err)
            return err;
        err = host->ops->alloc(host, ns->principal, bytes, w->near, block_no(c, b), ret_loc);
        if (!err)
            room_count(c, ns, 0, bytes);
        if (err != KVC_E_NO_ROOM)
            return err;
        place_pressed(c);
        if (in_vain >= ROOM_PATIENCE && !has_drained) {
            has_drained = true;
            c->m.drains++;
            const bool lacks = retain_lacks(c->retain, ns->payer) || room_is_promised(c, ns, bytes);
            if (host->memory->drain(host, ns->principal, bytes, lacks, drain_occupant, &drained) >
                0)
                continue;
        }
        err = room_make(c, ns, bytes, w, &in_vain);
        if (err)
            return err;
        if (in_vain > 2 * ROOM_PATIENCE)
            in_vain = 0, has_drained = false;
    }
}

int disk_take(struct core *c, const struct block *b, struct tier_loc near, bool must,
              struct tier_loc *ret_loc)
{
    struct tier *disk = c->cfg.disk;
    struct core_ns *ns = block_ns(c, b);
    const uint32_t bytes = block_group(c, b)->block_bytes;
    int err = quota_disk(c, ns, bytes, must);
    if (!err)
        err = disk->ops->alloc(disk, ns->principal, bytes, near, block_no(c, b), ret_loc);
    if (!err)
        room_count(c, ns, 1, bytes);
    return err;
}
