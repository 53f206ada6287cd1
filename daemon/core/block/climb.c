/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds a block that has many before it in its chain, in slices: the first hold, where a hold keeps
 * the whole chain in memory (block_keeps_above()). reserve and acquire of long chains call it.
 *
 * Such a first hold counts each block before it. So some blocks on the way up are noted, and are
 * held from the uppermost on: each hold then counts only the blocks up to the one held before.
 * Holds of blocks between them are released on the way down.
 */
#include "block.h"
#include "regions.h"

/* The block before b, if a hold of b would be its first hold; else NULL. */
static struct block *block_above(const struct core *c, const struct block *b)
{
    struct block *p = b->parent == CORE_NONE ? NULL : &c->blocks[b->parent];
    return p && p->holds == 0 && p->state == BLOCK_PRESENT ? p : NULL;
}

static void climb_begin(struct core *c, struct core_climb *x, const struct block *tip)
{
    *x = (struct core_climb){.tip = block_seen(c, tip), .stride = MAX(work_of_slice(c) / 2, 1u)};
    x->at = x->tip;
}

/* Notes the block that the way up has reached. Where there is no room, every second note is
 * forgotten and the stride doubled. */
static void climb_note(struct core_climb *x)
{
    if (x->n == CORE_CLIMB_WAYS) {
        x->n /= 2;
        for (uint32_t i = 0; i < x->n; i++)
            x->way[i] = x->way[2 * i + 1];
        x->stride *= 2;
    }
    x->way[x->n++] = x->at;
    x->since = 0;
}

/* Walks up, and notes blocks. False: the slice is over before the top. */
static bool climb_up(struct core *c, struct core_climb *x, const struct block *tip)
{
    const struct block *b = seen_block(c, x->at);
    if (!b) { /* the block was removed since, but not all below it */
        climb_begin(c, x, tip);
        b = tip;
    }
    for (const struct block *p; (p = block_above(c, b)); b = p) {
        if (slice_over(c))
            return false;
        c->work.done += WORK_LOOK;
        x->at = block_seen(c, p);
        if (++x->since >= x->stride)
            climb_note(x);
    }
    return true;
}

void climb_let_go(struct core *c, uint32_t *held)
{
    if (*held != CORE_NONE)
        block_unhold(c, &c->blocks[*held]);
    *held = CORE_NONE;
}

int climb_hold(struct core *c, struct block *b, uint32_t *held)
{
    uint64_t left = 0;
    if (!block_may_be_held(b)) /* others hold it */
        return 0;
    const int err = chains_are_held(c) ? unevictable_hold(c, block_ns(c, b), b, &left) : 0;
    if (err)
        return err;
    block_hold(c, b);
    climb_let_go(c, held);
    *held = block_no(c, b);
    return 0;
}

int climb_step(struct core *c, struct core_climb *x, struct block *b, uint32_t *held)
{
    if (*held == block_no(c, b))
        return 0;
    if (x->tip.no != block_no(c, b) || x->tip.gen != b->gen)
        climb_begin(c, x, b);
    if (x->err)
        return x->err;
    if (chains_are_held(c) && !climb_up(c, x, b))
        return CORE_MORE;
    while (x->n > 0) {
        if (slice_over(c))
            return CORE_MORE;
        struct block *way = seen_block(c, x->way[--x->n]);
        if (way && way->state == BLOCK_PRESENT && (x->err = climb_hold(c, way, held)))
            return x->err;
    }
    return x->err = climb_hold(c, b, held);
}
