/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy `s3fifo`: S3-FIFO (Yang et al., SOSP 2023), leaf first. New blocks enter a small FIFO, a
 * tenth of all. Those that are used twice there, or return soon after their eviction from there,
 * enter the main FIFO. At its old end a used block goes round again with one use less. The room of
 * a list is what is in it: a policy is asked for a victim when that is full.
 *
 * It differs from the published form: in a new chain the deepest block is the oldest; a block with
 * descendants waits aside until the last of them is evicted; a block that returns from a tier below
 * counts as used again, so it enters the main queue.
 */
#include "twoq.h"

#define SMALL 0u
#define MAIN  1u

#define SMALL_SHARE 10u /* one in so many */
#define USES_MAX    3u
#define USES_MOVE   2u /* enough to go from small to main */

struct policy {
    struct twoq q;
};

static size_t s3_mem_bytes(const struct policy_config *config)
{
    return twoq_mem_bytes(config, sizeof(struct policy), config->blocks_max);
}

static struct policy *s3_init(void *mem, const struct policy_config *config)
{
    struct policy *p = mem;
    twoq_init(&p->q, mem, config, sizeof(*p), config->blocks_max);
    return p;
}

static void s3_insert(struct policy *p, uint32_t block, const struct policy_hint *hint,
                      uint64_t now_ms)
{
    (void)now_ms;
    const uint32_t stamp = ghost_small_take(&p->q.ghosts, ghost_small_print(hint->hash));
    /* As many are remembered as the main queue has room for. */
    const bool lately = stamp && p->q.stamp - stamp < p->q.n - p->q.n / SMALL_SHARE;
    twoq_enter(&p->q, block, hint, lately ? MAIN : SMALL);
}

static void s3_touch(struct policy *p, uint32_t block, uint64_t now_ms)
{
    struct twoq_block *b = &p->q.block[block];
    if (b->uses < USES_MAX)
        b->uses++;
    twoq_use(&p->q, block, now_ms);
}

static void s3_remove(struct policy *p, uint32_t block)
{
    const struct twoq_block *b = &p->q.block[block];
    if (b->queue == SMALL && (b->place == TWOQ_IN || b->place == TWOQ_ASIDE)) {
        p->q.stamp += p->q.stamp == UINT32_MAX ? 2 : 1; /* never 0 */
        ghost_small_put(&p->q.ghosts, b->print, p->q.stamp);
    }
    twoq_forget(&p->q, block);
}

static void s3_park(struct policy *p, uint32_t block)
{
    twoq_park(&p->q, block);
}

static void s3_unpark(struct policy *p, uint32_t block, uint64_t now_ms)
{
    (void)now_ms;
    twoq_unpark(&p->q, block, MAIN);
}

static void s3_assign(struct policy *p, uint32_t block, uint8_t list, uint64_t now_ms)
{
    (void)now_ms;
    twoq_assign(&p->q, block, list);
}

static void s3_release(struct policy *p, uint32_t block, bool last)
{
    twoq_release(&p->q, block, last);
}

/* Each turn returns, takes a block out of the order, or takes a use from one. */
static uint32_t s3_victim(struct policy *p, uint8_t list, uint64_t now_ms,
                          policy_can_evict_fn *can_evict, void *ctx)
{
    (void)now_ms;
    const struct twoq_queue *small = &p->q.queue[list][SMALL], *main = &p->q.queue[list][MAIN];
    for (;;) {
        const uint32_t room = small->n + main->n;
        const bool from_small = small->old != POLICY_NO_BLOCK &&
                                (main->old == POLICY_NO_BLOCK || small->n >= room / SMALL_SHARE);
        const uint32_t block = from_small ? small->old : main->old;
        if (block == POLICY_NO_BLOCK)
            return block;
        struct twoq_block *b = &p->q.block[block];
        if (from_small ? b->uses >= USES_MOVE : b->uses > 0) {
            b->uses -= !from_small;
            twoq_move(&p->q, block, MAIN);
        } else if (can_evict(ctx, block)) {
            return block;
        } else {
            twoq_aside(&p->q, block);
        }
    }
}

static float s3_worth(const struct policy *p, uint32_t block, uint64_t now_ms)
{
    const float uses = (float)p->q.block[block].uses + (float)p->q.block[block].queue;
    return -(float)twoq_age(&p->q, block, now_ms) / (1 + uses);
}

const struct policy_ops policy_s3fifo = {
    .name = "s3fifo",
    .help = "S3-FIFO: a small queue for what is new, a main one for what is used again",
    .mem_bytes = s3_mem_bytes,
    .init = s3_init,
    .insert = s3_insert,
    .touch = s3_touch,
    .remove = s3_remove,
    .park = s3_park,
    .unpark = s3_unpark,
    .assign = s3_assign,
    .release = s3_release,
    .victim = s3_victim,
    .worth = s3_worth,
    .rank = s3_worth,
};
