/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy `arc`: ARC (Megiddo and Modha, FAST 2003), leaf first. Blocks used once and blocks used
 * more often have an LRU order each. A block that returns soon after its eviction says which of the
 * two was too short, and shifts the share that the first is to have. The share is learned for all
 * lists together; each list applies it to its own blocks.
 *
 * It differs from the published form: evicted blocks are remembered by a bounded table
 * (ghost_small.h) instead of two lists cut to length; a block with descendants waits aside until
 * the last of them is evicted; a block that returns from a tier below counts as one that was
 * evicted and came again.
 */
#include "twoq.h"

#define ONCE 0u
#define MORE 1u

struct policy {
    struct twoq q;
    float once_share; /* of the room */
    uint32_t gone[2]; /* remembered or parked, by the queue they were in */
};

static size_t arc_mem_bytes(const struct policy_config *config)
{
    return twoq_mem_bytes(config, sizeof(struct policy), config->blocks_max);
}

static struct policy *arc_init(void *mem, const struct policy_config *config)
{
    struct policy *p = mem;
    twoq_init(&p->q, mem, config, sizeof(*p), config->blocks_max);
    return p;
}

/* One that was in this queue came again: it should have had more room. */
static void arc_learn(struct policy *p, unsigned queue)
{
    const uint32_t own = p->gone[queue] ? p->gone[queue] : 1, other = p->gone[!queue];
    const float blocks = other > own ? (float)other / (float)own : 1;
    const float step = blocks / (float)(p->q.n ? p->q.n : 1);
    p->once_share += queue == ONCE ? step : -step;
    if (p->once_share > 1)
        p->once_share = 1;
    if (p->once_share < 0)
        p->once_share = 0;
}

/* A stamp's lowest bit is the queue, the rest counts. */
static bool arc_recall(struct policy *p, uint32_t print)
{
    const uint32_t stamp = ghost_small_take(&p->q.ghosts, print);
    if (!stamp)
        return false;
    const unsigned queue = stamp & 1;
    const bool lately = (p->q.stamp - (stamp & ~1u)) / 2 < p->q.n;
    if (lately)
        arc_learn(p, queue);
    p->gone[queue]--;
    return lately;
}

static void arc_insert(struct policy *p, uint32_t block, const struct policy_hint *hint,
                       uint64_t now_ms)
{
    (void)now_ms;
    const bool again = arc_recall(p, ghost_small_print(hint->hash));
    twoq_enter(&p->q, block, hint, again ? MORE : ONCE);
}

static void arc_touch(struct policy *p, uint32_t block, uint64_t now_ms)
{
    twoq_use(&p->q, block, now_ms);
    if (p->q.block[block].place != TWOQ_PARKED)
        twoq_move(&p->q, block, MORE);
}

static void arc_remove(struct policy *p, uint32_t block)
{
    const struct twoq_block *b = &p->q.block[block];
    if (b->place == TWOQ_PARKED)
        p->gone[b->queue]--;
    if (b->place == TWOQ_IN || b->place == TWOQ_ASIDE) {
        p->q.stamp += p->q.stamp >= UINT32_MAX - 1 ? 4 : 2; /* never 0 */
        const uint32_t before = ghost_small_put(&p->q.ghosts, b->print, p->q.stamp | b->queue);
        p->gone[b->queue]++;
        if (before)
            p->gone[before & 1]--;
    }
    twoq_forget(&p->q, block);
}

static void arc_park(struct policy *p, uint32_t block)
{
    const struct twoq_block *b = &p->q.block[block];
    if (b->place == TWOQ_IN || b->place == TWOQ_ASIDE)
        p->gone[b->queue]++;
    twoq_park(&p->q, block);
}

static void arc_unpark(struct policy *p, uint32_t block, uint64_t now_ms)
{
    (void)now_ms;
    const struct twoq_block *b = &p->q.block[block];
    if (b->place != TWOQ_PARKED)
        return;
    arc_learn(p, b->queue);
    p->gone[b->queue]--;
    twoq_unpark(&p->q, block, MORE);
}

static void arc_assign(struct policy *p, uint32_t block, uint8_t list, uint64_t now_ms)
{
    (void)now_ms;
    twoq_assign(&p->q, block, list);
}

static void arc_release(struct policy *p, uint32_t block, bool last)
{
    twoq_release(&p->q, block, last);
}

static uint32_t arc_victim(struct policy *p, uint8_t list, uint64_t now_ms,
                           policy_can_evict_fn *can_evict, void *ctx)
{
    (void)now_ms;
    const struct twoq_queue *once = &p->q.queue[list][ONCE], *more = &p->q.queue[list][MORE];
    for (;;) {
        const float target = p->once_share * (float)(once->n + more->n);
        const bool from_once = once->old != POLICY_NO_BLOCK &&
                               (more->old == POLICY_NO_BLOCK || (float)once->n > target);
        const uint32_t block = from_once ? once->old : more->old;
        if (block == POLICY_NO_BLOCK || can_evict(ctx, block))
            return block;
        twoq_aside(&p->q, block);
    }
}

static float arc_worth(const struct policy *p, uint32_t block, uint64_t now_ms)
{
    const float age = (float)twoq_age(&p->q, block, now_ms);
    return p->q.block[block].queue == MORE ? -age / 2 : -age;
}

const struct policy_ops policy_arc = {
    .name = "arc",
    .help = "ARC: recency against frequency, the balance learned from what comes again",
    .mem_bytes = arc_mem_bytes,
    .init = arc_init,
    .insert = arc_insert,
    .touch = arc_touch,
    .remove = arc_remove,
    .park = arc_park,
    .unpark = arc_unpark,
    .assign = arc_assign,
    .release = arc_release,
    .victim = arc_victim,
    .worth = arc_worth,
    .rank = arc_worth,
};
