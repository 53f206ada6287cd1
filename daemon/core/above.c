/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is on disk outlives the process only with all that it builds on, and what most blocks build
 * on is used most and leaves memory last. So when a block was written, what it builds on is copied
 * to disk too, from the nearest on, in the background.
 */
#include "core__.h"

#define ABOVE_STEP  8u  /* blocks begun in one step */
#define ABOVE_MOVES 64u /* in flight */

static bool is_missing(const struct block *b)
{
    return b->state == BLOCK_PRESENT && b->moving == 0 &&
           (b->flags & (BLOCK_F_HOST | BLOCK_F_DISK)) == BLOCK_F_HOST;
}

static void push(struct core *c, const struct block *b)
{
    if (c->above_n == ABOVE_MAX) { /* its chain gets another chance with the next block of it */
        c->above_at = (c->above_at + 1) % ABOVE_MAX;
        c->above_n--;
    }
    c->above[(c->above_at + c->above_n++) % ABOVE_MAX] = (struct run_entry){block_no(c, b), b->gen};
}

static struct block *pop(struct core *c)
{
    const struct run_entry e = c->above[c->above_at];
    struct block *b = &c->blocks[e.block];
    c->above_at = (c->above_at + 1) % ABOVE_MAX;
    c->above_n--;
    return b->gen == e.gen ? b : NULL;
}

void above_want(struct core *c, const struct block *b)
{
    if (b->parent != CORE_NONE && is_missing(&c->blocks[b->parent]))
        push(c, &c->blocks[b->parent]);
}

bool above_carries(const struct core *c, const struct block *b)
{
    uint32_t no = b->child;
    for (unsigned n = 0; no != CORE_NONE && n < ABOVE_MAX; n++, no = c->blocks[no].next)
        if (c->blocks[no].state == BLOCK_PRESENT && c->blocks[no].flags & BLOCK_F_DISK)
            return true;
    return false;
}

/* A block and those above it, while there are some; those behind them follow when they have landed.
 * KVC_E_BUSY..: why not all. */
static int save_chain(struct core *c, struct block *b, uint32_t *begun)
{
    const struct tier *disk = c->cfg.disk;
    for (; is_missing(b); b = &c->blocks[b->parent]) {
        if (*begun == ABOVE_STEP || c->above_moves >= ABOVE_MOVES ||
            !disk->ops->admits(disk, (uint32_t)MIN(block_bytes(c, b), UINT32_MAX), 0))
            return KVC_E_BUSY;
        int err = save_begin(c, b, SAVE_ABOVE);
        if (err)
            return err;
        ++*begun;
        if (b->parent == CORE_NONE)
            break;
    }
    return 0;
}

bool above_step(struct core *c)
{
    uint32_t begun = 0;
    const uint32_t wanted = c->above_n;
    for (uint32_t i = 0; i < wanted && c->now_ms >= c->pause_ms; i++) {
        struct block *b = pop(c);
        int err = b && is_missing(b) ? save_chain(c, b, &begun) : 0;
        if (err == 0 || err == KVC_E_QUOTA)
            continue;
        if (is_missing(b))
            push(c, b);
        break;
    }
    return begun == ABOVE_STEP && c->above_n > 0;
}
