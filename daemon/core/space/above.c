/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is on disk outlives the process only with all that it builds on, and what most blocks build
 * on is used most and leaves memory last. So when a block was written, what it builds on is copied
 * to disk too, from the nearest on, in the background.
 */
#include "space.h"

#define ABOVE_STEP  8u  /* blocks begun in one step */
#define ABOVE_MOVES 64u /* in flight */
#define ABOVE_MAX   1024u

/* Blocks that are in memory alone while some that build on them are on disk: a ring. */
struct above {
    struct run_entry ring[ABOVE_MAX];
    uint32_t at, n;
    uint32_t moves; /* in flight */
};

const struct core_module above_module = {CORE_STATE(above)};

static bool is_missing(const struct block *b)
{
    return b->state == BLOCK_PRESENT && b->moving == 0 && block_is_dirty(b);
}

static struct run_entry above_shift(struct above *a)
{
    const struct run_entry e = a->ring[a->at];
    a->at = (a->at + 1) % ABOVE_MAX;
    a->n--;
    return e;
}

static void above_push(struct core *c, const struct block *b)
{
    struct above *a = c->above;
    if (a->n == ABOVE_MAX) /* its chain gets another chance with the next block of it */
        (void)above_shift(a);
    a->ring[(a->at + a->n++) % ABOVE_MAX] = (struct run_entry){block_no(c, b), b->gen};
}

static struct block *above_pop(struct core *c)
{
    const struct run_entry e = above_shift(c->above);
    struct block *b = &c->blocks[e.block];
    return b->gen == e.gen ? b : NULL;
}

void above_begun(struct core *c, const struct move *m)
{
    c->above->moves += m->above;
}

void above_ended(struct core *c, const struct move *m)
{
    c->above->moves -= m->above;
}

void above_want(struct core *c, const struct block *b)
{
    if (b->parent != CORE_NONE && is_missing(&c->blocks[b->parent]))
        above_push(c, &c->blocks[b->parent]);
}

bool above_carries(const struct core *c, const struct block *b)
{
    uint32_t no = b->child;
    for (unsigned n = 0; no != CORE_NONE && n < ABOVE_MAX; n++, no = c->blocks[no].next)
        if (c->blocks[no].state == BLOCK_PRESENT && copy_there(&c->blocks[no], CORE_DISK))
            return true;
    return false;
}

/* A block and those above it, while there are some; those behind them follow when they have landed.
 * KVC_E_BUSY..: why not all. */
static int save_chain(struct core *c, struct block *b, uint32_t *begun)
{
    const struct tier *disk = c->cfg.disk;
    for (; is_missing(b); b = &c->blocks[b->parent]) {
        if (*begun == ABOVE_STEP || c->above->moves >= ABOVE_MOVES ||
            !disk->storage->admits(disk, (uint32_t)MIN(block_bytes(c, b), UINT32_MAX), 0))
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
    const uint32_t wanted = c->above->n;
    for (uint32_t i = 0; i < wanted && c->now_ms >= c->pause_ms; i++) {
        struct block *b = above_pop(c);
        int err = b && is_missing(b) ? save_chain(c, b, &begun) : 0;
        if (err == 0 || err == KVC_E_QUOTA)
            continue;
        if (is_missing(b))
            above_push(c, b);
        break;
    }
    return begun == ABOVE_STEP && c->above->n > 0;
}
