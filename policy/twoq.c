/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two queues per list, with ghosts behind them: the parts that the policies `s3fifo` and `arc`
 * share.
 */
#include "twoq.h"

#include "round.h"

#define TIME_SHIFT 4u

static size_t blocks_bytes(const struct policy_config *config)
{
    return round64((size_t)config->blocks_max * sizeof(struct twoq_block));
}

size_t twoq_mem_bytes(const struct policy_config *config, size_t head, uint32_t ghosts)
{
    return round64(head) + blocks_bytes(config) + ghost_small_mem_bytes(ghosts);
}

void twoq_init(struct twoq *t, void *mem, const struct policy_config *config, size_t head,
               uint32_t ghosts)
{
    unsigned char *at = (unsigned char *)mem + round64(head);
    t->block = (struct twoq_block *)at;
    ghost_small_init(&t->ghosts, at + blocks_bytes(config), ghosts);
    t->last = POLICY_NO_BLOCK;
    for (uint32_t i = 0; i < POLICY_LISTS_MAX; i++)
        for (unsigned q = 0; q < 2; q++)
            t->queue[i][q] = (struct twoq_queue){.young = POLICY_NO_BLOCK, .old = POLICY_NO_BLOCK};
}

static struct twoq_queue *queue_of(struct twoq *t, uint32_t block)
{
    const struct twoq_block *b = &t->block[block];
    return &t->queue[b->list][b->queue];
}

static void twoq_count(struct twoq *t, uint32_t block, int32_t more)
{
    queue_of(t, block)->n += (uint32_t)more;
    t->n += (uint32_t)more;
}

/* Between `younger`, or the young end, and what is behind it. */
static void link_behind(struct twoq *t, uint32_t block, uint32_t younger)
{
    struct twoq_queue *q = queue_of(t, block);
    struct twoq_block *b = &t->block[block];
    b->place = TWOQ_IN;
    b->younger = younger;
    b->older = younger == POLICY_NO_BLOCK ? q->young : t->block[younger].older;
    *(younger == POLICY_NO_BLOCK ? &q->young : &t->block[younger].older) = block;
    *(b->older == POLICY_NO_BLOCK ? &q->old : &t->block[b->older].younger) = block;
}

static void unlink_block(struct twoq *t, uint32_t block)
{
    struct twoq_queue *q = queue_of(t, block);
    const struct twoq_block *b = &t->block[block];
    *(b->younger == POLICY_NO_BLOCK ? &q->young : &t->block[b->younger].older) = b->older;
    *(b->older == POLICY_NO_BLOCK ? &q->old : &t->block[b->older].younger) = b->younger;
}

/* Out of the order and out of the count, wherever it is. */
static void twoq_leave(struct twoq *t, uint32_t block)
{
    const struct twoq_block *b = &t->block[block];
    if (b->place == TWOQ_IN)
        unlink_block(t, block);
    if (b->place == TWOQ_IN || b->place == TWOQ_ASIDE)
        twoq_count(t, block, -1);
}

void twoq_enter(struct twoq *t, uint32_t block, const struct policy_hint *hint, unsigned queue)
{
    t->block[block] = (struct twoq_block){.used = (uint32_t)(hint->used_ms >> TIME_SHIFT),
                                          .print = ghost_small_print(hint->hash),
                                          .list = hint->list,
                                          .queue = queue & 1u};
    const uint32_t parent = hint->parent;
    const struct twoq_block *above = parent == POLICY_NO_BLOCK ? NULL : &t->block[parent];
    const bool behind = above && parent == t->last && above->place == TWOQ_IN &&
                        above->list == hint->list && above->queue == queue;
    link_behind(t, block, behind ? parent : POLICY_NO_BLOCK);
    twoq_count(t, block, 1);
    t->last = block;
}

void twoq_move(struct twoq *t, uint32_t block, unsigned queue)
{
    struct twoq_block *b = &t->block[block];
    const bool in = b->place == TWOQ_IN, counts = in || b->place == TWOQ_ASIDE;
    twoq_leave(t, block);
    b->queue = queue & 1u;
    if (in)
        link_behind(t, block, POLICY_NO_BLOCK);
    if (counts)
        twoq_count(t, block, 1);
}

void twoq_aside(struct twoq *t, uint32_t block)
{
    unlink_block(t, block);
    t->block[block].place = TWOQ_ASIDE;
}

void twoq_forget(struct twoq *t, uint32_t block)
{
    twoq_leave(t, block);
    t->block[block].place = TWOQ_UNKNOWN;
}

void twoq_park(struct twoq *t, uint32_t block)
{
    twoq_leave(t, block);
    t->block[block].place = TWOQ_PARKED;
}

void twoq_unpark(struct twoq *t, uint32_t block, unsigned queue)
{
    if (t->block[block].place != TWOQ_PARKED)
        return;
    t->block[block].queue = queue & 1u;
    link_behind(t, block, POLICY_NO_BLOCK);
    twoq_count(t, block, 1);
}

void twoq_assign(struct twoq *t, uint32_t block, uint8_t list)
{
    struct twoq_block *b = &t->block[block];
    const bool in = b->place == TWOQ_IN, counts = in || b->place == TWOQ_ASIDE;
    twoq_leave(t, block);
    b->list = list;
    if (in)
        link_behind(t, block, POLICY_NO_BLOCK);
    if (counts)
        twoq_count(t, block, 1);
}

void twoq_release(struct twoq *t, uint32_t block, bool last)
{
    if (t->block[block].place == TWOQ_ASIDE)
        link_behind(t, block, last ? queue_of(t, block)->old : POLICY_NO_BLOCK);
}

void twoq_use(struct twoq *t, uint32_t block, uint64_t now_ms)
{
    t->block[block].used = (uint32_t)(now_ms >> TIME_SHIFT);
}

uint32_t twoq_age(const struct twoq *t, uint32_t block, uint64_t now_ms)
{
    return (uint32_t)(now_ms >> TIME_SHIFT) - t->block[block].used;
}
