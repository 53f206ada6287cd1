/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy `lru2`: LRU-2 (O'Neil, O'Neil and Weikum, SIGMOD 1993), leaf first. It evicts the block
 * whose last use but one is longest ago. Blocks used once are evicted before all others, the
 * longest unused first; of blocks used at the same times, the deepest. An evicted block's last use
 * is remembered by a bounded table (ghost_small.h), and is the last but one if the block comes
 * again.
 *
 * Each list is a pairing heap (Fredman, Sedgewick, Sleator and Tarjan, Algorithmica 1986): a use
 * takes constant time, a victim amortised logarithmic.
 */
#include "ghost_small.h"
#include "policy.h"

#define TIME_SHIFT 4u

enum place { UNKNOWN, IN, ASIDE, PARKED };

/* Times are in units of 16 ms, from 1. */
struct lru2_block {
    uint64_t last, before;      /* uses; before: 0 when there was one only */
    uint32_t child, next, prev; /* in the heap; prev: of a first child its parent */
    uint32_t print;
    uint16_t depth;
    uint8_t list, place;
};

struct policy {
    uint32_t root[POLICY_LISTS_MAX];
    struct ghost_small_table ghosts;
    struct lru2_block *block;
};

/* Evicted blocks are remembered: twice as many as the policy can know. */
static uint32_t lru2_ghosts(const struct policy_config *config)
{
    return config->blocks_max > UINT32_MAX / 4 ? config->blocks_max : 2 * config->blocks_max;
}

static size_t lru2_blocks_at(void)
{
    return (sizeof(struct policy) + 63) / 64 * 64;
}

static size_t lru2_ghosts_at(const struct policy_config *config)
{
    return lru2_blocks_at() +
           ((size_t)config->blocks_max * sizeof(struct lru2_block) + 63) / 64 * 64;
}

static size_t lru2_mem_bytes(const struct policy_config *config)
{
    return lru2_ghosts_at(config) + ghost_small_mem_bytes(lru2_ghosts(config));
}

static struct policy *lru2_init(void *mem, const struct policy_config *config)
{
    struct policy *p = mem;
    unsigned char *bytes = mem;
    p->block = (struct lru2_block *)(bytes + lru2_blocks_at());
    ghost_small_init(&p->ghosts, bytes + lru2_ghosts_at(config), lru2_ghosts(config));
    for (uint32_t i = 0; i < POLICY_LISTS_MAX; i++)
        p->root[i] = POLICY_NO_BLOCK;
    return p;
}

static uint64_t lru2_time(uint64_t ms)
{
    return (ms >> TIME_SHIFT) + 1;
}

/* A table remembers the low half of a time: it was in the two years before now. */
static uint32_t low_half(uint64_t time)
{
    return (uint32_t)time ? (uint32_t)time : 1;
}

static uint64_t whole_time(uint32_t low, uint64_t now)
{
    const uint64_t ago = (uint32_t)((uint32_t)now - low);
    return low == 0 ? 0 : now > ago ? now - ago : 1;
}

/* ---- the heap ---- */

static bool lru2_goes_before(const struct lru2_block *a, const struct lru2_block *b)
{
    if (a->before != b->before)
        return a->before < b->before;
    return a->last != b->last ? a->last < b->last : a->depth > b->depth;
}

/* Two roots; returns the one that is above the other. */
static uint32_t meld(struct policy *p, uint32_t a, uint32_t b)
{
    if (a == POLICY_NO_BLOCK)
        return b;
    if (b == POLICY_NO_BLOCK)
        return a;
    if (lru2_goes_before(&p->block[b], &p->block[a])) {
        const uint32_t t = a;
        a = b;
        b = t;
    }
    struct lru2_block *above = &p->block[a], *below = &p->block[b];
    below->next = above->child;
    below->prev = a;
    if (above->child != POLICY_NO_BLOCK)
        p->block[above->child].prev = b;
    above->child = b;
    return a;
}

/* The children of a root that goes become one tree: melded in pairs from the first to the last, and
 * the pairs from the last to the first. */
static uint32_t meld_children(struct policy *p, uint32_t first)
{
    uint32_t pairs = POLICY_NO_BLOCK, tree = POLICY_NO_BLOCK;
    while (first != POLICY_NO_BLOCK) {
        const uint32_t second = p->block[first].next;
        const uint32_t rest = second == POLICY_NO_BLOCK ? second : p->block[second].next;
        const uint32_t pair = meld(p, first, second);
        p->block[pair].next = pairs;
        pairs = pair;
        first = rest;
    }
    while (pairs != POLICY_NO_BLOCK) {
        const uint32_t next = p->block[pairs].next;
        tree = meld(p, tree, pairs);
        pairs = next;
    }
    return tree;
}

static void lru2_join(struct policy *p, uint32_t block)
{
    struct lru2_block *b = &p->block[block];
    b->place = IN;
    b->child = b->next = b->prev = POLICY_NO_BLOCK;
    p->root[b->list] = meld(p, p->root[b->list], block);
}

static void lru2_leave(struct policy *p, uint32_t block, enum place place)
{
    struct lru2_block *b = &p->block[block];
    if (b->place == IN) {
        const uint32_t tree = meld_children(p, b->child);
        uint32_t *root = &p->root[b->list];
        if (*root == block) {
            *root = tree;
        } else {
            struct lru2_block *prev = &p->block[b->prev];
            *(prev->child == block ? &prev->child : &prev->next) = b->next;
            if (b->next != POLICY_NO_BLOCK)
                p->block[b->next].prev = b->prev;
            *root = meld(p, *root, tree);
        }
    }
    b->place = (uint8_t)place;
}

/* ---- the policy ---- */

static void lru2_insert(struct policy *p, uint32_t block, const struct policy_hint *hint,
                        uint64_t now_ms)
{
    const uint32_t print = ghost_small_print(hint->hash);
    p->block[block] = (struct lru2_block){
        .last = lru2_time(hint->used_ms),
        .before = whole_time(ghost_small_take(&p->ghosts, print), lru2_time(now_ms)),
        .print = print,
        .depth = hint->depth < UINT16_MAX ? (uint16_t)hint->depth : UINT16_MAX,
        .list = hint->list};
    lru2_join(p, block);
}

static void lru2_touch(struct policy *p, uint32_t block, uint64_t now_ms)
{
    struct lru2_block *b = &p->block[block];
    const bool in = b->place == IN;
    if (in)
        lru2_leave(p, block, ASIDE);
    b->before = b->last;
    b->last = lru2_time(now_ms);
    if (in)
        lru2_join(p, block);
}

static void lru2_remove(struct policy *p, uint32_t block)
{
    const struct lru2_block *b = &p->block[block];
    if (b->place != UNKNOWN)
        ghost_small_put(&p->ghosts, b->print, low_half(b->last));
    lru2_leave(p, block, UNKNOWN);
}

static void lru2_park(struct policy *p, uint32_t block)
{
    lru2_leave(p, block, PARKED);
}

static void lru2_unpark(struct policy *p, uint32_t block, uint64_t now_ms)
{
    (void)now_ms;
    if (p->block[block].place == PARKED)
        lru2_join(p, block);
}

/* As its youngest would mean a use that there was not: it keeps its times. */
static void lru2_assign(struct policy *p, uint32_t block, uint8_t list, uint64_t now_ms)
{
    (void)now_ms;
    const bool in = p->block[block].place == IN;
    if (in)
        lru2_leave(p, block, ASIDE);
    p->block[block].list = list;
    if (in)
        lru2_join(p, block);
}

static void lru2_release(struct policy *p, uint32_t block, bool last)
{
    (void)last;
    if (p->block[block].place == ASIDE)
        lru2_join(p, block);
}

static uint32_t lru2_victim(struct policy *p, uint8_t list, uint64_t now_ms,
                            policy_can_evict_fn *can_evict, void *ctx)
{
    (void)now_ms;
    const uint32_t *root = &p->root[list];
    while (*root != POLICY_NO_BLOCK && !can_evict(ctx, *root))
        lru2_leave(p, *root, ASIDE);
    return *root;
}

/* Of blocks used once, as if the use before had been a year earlier. */
static float lru2_worth(const struct policy *p, uint32_t block, uint64_t now_ms)
{
    const struct lru2_block *b = &p->block[block];
    const uint64_t now = lru2_time(now_ms);
    return b->before ? -(float)(now - b->before) : -2e9f - (float)(now - b->last);
}

const struct policy_ops policy_lru2 = {
    .name = "lru2",
    .help = "LRU-2: the longest ago used before its last use",
    .mem_bytes = lru2_mem_bytes,
    .init = lru2_init,
    .insert = lru2_insert,
    .touch = lru2_touch,
    .remove = lru2_remove,
    .park = lru2_park,
    .unpark = lru2_unpark,
    .assign = lru2_assign,
    .release = lru2_release,
    .victim = lru2_victim,
    .worth = lru2_worth,
    .rank = lru2_worth,
};
