/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What storage wants room from, and what it tells by itself. A block whose place is to be written
 * anew is kept (storage writes it again) when it is durable, in use, or was used more lately than
 * most of what is on disk; forgotten when memory has it too; else it goes, with what is below it.
 */
#include "core__.h"

#define RECLAIM_STEP 64u
#define RECLAIM_TREE 256u
/* Of the ages of blocks on disk, the share below the threshold of what is kept, in percent, and how
 * far one sample moves it (as a share of it). */
#define KEEP_PERCENT 70u
#define KEEP_SHIFT   6u
#define KEEP_SAMPLES 8u
/* Microseconds: small enough for a store that is written whole within a second. */
#define KEEP_STEP_MIN 250u

/* ---- what deserves to be kept ---- */

static bool deserves(const struct core *c, const struct block *b)
{
    return core__age_ms(c, b) * 1000 < c->keep_us;
}

/* Moves the threshold towards the age that KEEP_PERCENT of what is on disk stays below. */
static void keep_learn(struct core *c)
{
    for (uint32_t n = 0; n < KEEP_SAMPLES && c->blocks_high > 0; n++) {
        c->keep_seed = c->keep_seed * 1664525u + 1013904223u;
        const struct block *b =
            &c->blocks[(uint32_t)(((uint64_t)c->keep_seed * c->blocks_high) >> 32)];
        if (b->state != BLOCK_PRESENT || !(b->flags & BLOCK_F_DISK))
            continue;
        const uint64_t step = (c->keep_us >> KEEP_SHIFT) + KEEP_STEP_MIN;
        if (deserves(c, b))
            c->keep_us -= MIN(c->keep_us, step * (100 - KEEP_PERCENT) / 50);
        else
            c->keep_us += step * KEEP_PERCENT / 50;
    }
}

/* A large tree counts as in use. */
static bool tree_in_use(struct core *c, struct block *b)
{
    const uint32_t root = block_no(c, b);
    uint32_t n = 0;
    for (uint32_t no = block_walk_first(c, root); no != CORE_NONE;
         no = block_walk_next(c, root, no)) {
        const struct block *x = &c->blocks[no];
        if (++n > RECLAIM_TREE || block_in_use(c, x) || (x->flags & BLOCK_F_DURABLE))
            return true;
    }
    return false;
}

/* ---- occupants ---- */

static void stick(struct core *c, uint32_t no, struct tier_loc loc)
{
    if (c->nstuck == STUCK_MAX)
        return; /* its region waits until it is used or evicted */
    c->stuck[c->nstuck].block = no;
    c->stuck[c->nstuck].gen = c->blocks[no].gen;
    c->stuck[c->nstuck++].loc = loc;
}

static bool has_loc(struct core *c, const struct block *b, struct tier_loc loc, uint32_t *ret_shard)
{
    const uint32_t shards = block_shards(c, b);
    for (uint32_t i = 0; i < shards; i++) {
        if (block_disk(c, b, i).id != loc.id)
            continue;
        *ret_shard = i;
        return true;
    }
    return false;
}

static bool keep(struct core *c, struct tier_loc loc, uint32_t no)
{
    if (!c->cfg.disk->ops->keep(c->cfg.disk, loc, no)) {
        c->m.keeps_refused++;
        return false;
    }
    c->m.blocks_kept++;
    return true;
}

static void disk_forget(struct core *c, struct block *b)
{
    if (b->flags & BLOCK_F_CLEAN)
        clean_recall(c, b);
    disk_drop(c, b);
}

static void reclaim_one(struct core *c, struct tier_loc loc, uint32_t no)
{
    struct block *b = &c->blocks[no];
    uint32_t shard;
    if (b->state == BLOCK_FREE || !has_loc(c, b, loc, &shard))
        return; /* it is about to be given back */
    if (b->state != BLOCK_PRESENT)
        return; /* dying: given back with it */
    const bool moving = b->copies > 0 || b->moving > 0;
    if (b->flags & BLOCK_F_DURABLE || moving) {
        if (!keep(c, loc, no))
            stick(c, no, loc);
        return;
    }
    if (b->flags & BLOCK_F_HOST) {
        disk_forget(c, b);
        return;
    }
    const bool worth = deserves(c, b);
    if ((worth || tree_in_use(c, b)) && keep(c, loc, no))
        return;
    /* What is in use below loses its beginning, and goes when it is let go; what is promised stays,
     * and so does this. */
    const uint32_t root = block_no(c, b);
    for (uint32_t at = block_walk_first(c, root); at != CORE_NONE;
         at = block_walk_next(c, root, at)) {
        if (!(c->blocks[at].flags & BLOCK_F_DURABLE))
            continue;
        stick(c, no, loc);
        return;
    }
    c->m.blocks_reclaimed += block_tree_size(c, root);
    block_kill_tree(c, b, KVC_MISS_EVICTED);
}

static void on_occupant(void *ctx, struct tier_loc loc, uint32_t owner)
{
    reclaim_one(ctx, loc, owner);
}

static void stuck_again(struct core *c)
{
    const uint32_t n = c->nstuck;
    c->nstuck = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t no = c->stuck[i].block;
        if (c->blocks[no].gen == c->stuck[i].gen)
            reclaim_one(c, c->stuck[i].loc, no);
    }
}

bool reclaim_step(struct core *c)
{
    if (!c->cfg.disk)
        return false;
    if (c->nstuck > 0)
        stuck_again(c);
    keep_learn(c);
    return c->cfg.disk->ops->reclaim(c->cfg.disk, RECLAIM_STEP, on_occupant, c) == RECLAIM_STEP;
}

/* ---- what storage tells ---- */

static void on_moved(void *ctx, uint32_t owner, struct tier_loc from, struct tier_loc to)
{
    struct core *c = ctx;
    struct block *b = &c->blocks[owner];
    uint32_t shard;
    MUST(b->state != BLOCK_FREE && has_loc(c, b, from, &shard));
    block_set_disk(c, b, shard, to);
}

static void on_lost(void *ctx, uint32_t owner, struct tier_loc loc)
{
    struct core *c = ctx;
    struct block *b = &c->blocks[owner];
    uint32_t shard;
    MUST(b->state != BLOCK_FREE && has_loc(c, b, loc, &shard));
    block_set_disk(c, b, shard, (struct tier_loc){0});
    c->m.blocks_lost_disk++;
    if (b->state != BLOCK_PRESENT)
        return;
    if (b->flags & BLOCK_F_CLEAN)
        clean_recall(c, b);
    block_place(c, b, 0, BLOCK_F_DISK | BLOCK_F_DURABLE | BLOCK_F_SAFE);
    if (b->copies > 0 || b->moving > 0) {
        b->flags |= BLOCK_F_TORN; /* its other shards there go when nothing is in flight */
        return;
    }
    disk_drop(c, b);
    if (!(b->flags & BLOCK_F_HOST))
        block_kill_tree(c, b, KVC_MISS_DROPPED);
}

static void on_room(void *ctx)
{
    struct core *c = ctx;
    c->pause_ms = c->room_vain_ms = 0;
}

void reclaim_listen(struct core *c)
{
    c->cfg.disk->events =
        (struct tier_events){.ctx = c, .moved = on_moved, .lost = on_lost, .room = on_room};
}
