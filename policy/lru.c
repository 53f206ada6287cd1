/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy `lru`: least recently used, leaf first; the shortest policy, to be read first.
 *
 * Each of the policy's lists is a list of blocks from young to old. A new child enters directly
 * behind its parent, on the older side, where a touch of the whole chain, deepest block first,
 * would have put it. So a parent is younger than its children, and the old end is a leaf. A block
 * at the old end that may not be evicted is in use: it leaves the order until release().
 */
#include "policy.h"

struct lru_node {
    uint32_t younger, older;
};

struct lru_ends {
    uint32_t young, old;
};

/* Behind the nodes: each block's list, and when it was last used in units of 16 ms. */
struct policy {
    uint32_t blocks_max;
    struct lru_ends ends[POLICY_LISTS_MAX];
    uint32_t *used;
    uint8_t *list;
    struct lru_node node[];
};

#define LRU_TIME_SHIFT 4u

/* Outside the order `younger` is the block itself; `older` then says why. What is zero was never
 * in. */
static bool lru_is_in(const struct policy *p, uint32_t block)
{
    const uint32_t younger = p->node[block].younger;
    if (younger == POLICY_NO_BLOCK)
        return p->ends[p->list[block]].young == block;
    return younger != block && younger < p->blocks_max && p->node[younger].older == block;
}

static void lru_leave(struct policy *p, uint32_t block, bool parked)
{
    p->node[block] = (struct lru_node){.younger = block, .older = parked ? POLICY_NO_BLOCK : block};
}

static bool lru_is_parked(const struct policy *p, uint32_t block)
{
    return p->node[block].younger == block && p->node[block].older == POLICY_NO_BLOCK;
}

static size_t lru_mem_bytes(const struct policy_config *config)
{
    return sizeof(struct policy) + (size_t)config->blocks_max * (sizeof(struct lru_node) + 5);
}

static struct policy *lru_init(void *mem, const struct policy_config *config)
{
    struct policy *p = mem;
    p->blocks_max = config->blocks_max;
    p->used = (uint32_t *)&p->node[p->blocks_max];
    p->list = (uint8_t *)&p->used[p->blocks_max];
    for (uint32_t i = 0; i < POLICY_LISTS_MAX; i++)
        p->ends[i] = (struct lru_ends){POLICY_NO_BLOCK, POLICY_NO_BLOCK};
    return p;
}

/* Between `younger`, or the young end, and what is behind it. */
static void lru_link_behind(struct policy *p, uint32_t block, uint32_t younger)
{
    struct lru_ends *e = &p->ends[p->list[block]];
    const uint32_t older = younger == POLICY_NO_BLOCK ? e->young : p->node[younger].older;
    p->node[block] = (struct lru_node){.younger = younger, .older = older};
    *(younger == POLICY_NO_BLOCK ? &e->young : &p->node[younger].older) = block;
    *(older == POLICY_NO_BLOCK ? &e->old : &p->node[older].younger) = block;
}

static void lru_unlink(struct policy *p, uint32_t block)
{
    struct lru_ends *e = &p->ends[p->list[block]];
    const struct lru_node n = p->node[block];
    *(n.younger == POLICY_NO_BLOCK ? &e->young : &p->node[n.younger].older) = n.older;
    *(n.older == POLICY_NO_BLOCK ? &e->old : &p->node[n.older].younger) = n.younger;
    lru_leave(p, block, false);
}

static void lru_insert(struct policy *p, uint32_t block, const struct policy_hint *hint,
                       uint64_t now_ms)
{
    (void)now_ms;
    const uint32_t parent = hint->parent;
    p->list[block] = hint->list;
    p->used[block] = (uint32_t)(hint->used_ms >> LRU_TIME_SHIFT);
    const bool behind =
        parent != POLICY_NO_BLOCK && p->list[parent] == hint->list && lru_is_in(p, parent);
    lru_link_behind(p, block, behind ? parent : POLICY_NO_BLOCK);
}

static void lru_touch(struct policy *p, uint32_t block, uint64_t now_ms)
{
    p->used[block] = (uint32_t)(now_ms >> LRU_TIME_SHIFT);
    if (p->ends[p->list[block]].young == block || !lru_is_in(p, block))
        return;
    lru_unlink(p, block);
    lru_link_behind(p, block, POLICY_NO_BLOCK);
}

static void lru_remove(struct policy *p, uint32_t block)
{
    if (lru_is_in(p, block))
        lru_unlink(p, block);
    p->node[block] = (struct lru_node){0};
}

static void lru_park(struct policy *p, uint32_t block)
{
    if (lru_is_in(p, block))
        lru_unlink(p, block);
    lru_leave(p, block, true);
}

static void lru_unpark(struct policy *p, uint32_t block, uint64_t now_ms)
{
    (void)now_ms;
    if (lru_is_parked(p, block))
        lru_link_behind(p, block, POLICY_NO_BLOCK);
}

static void lru_assign(struct policy *p, uint32_t block, uint8_t list, uint64_t now_ms)
{
    (void)now_ms;
    const bool in = lru_is_in(p, block);
    if (in)
        lru_unlink(p, block);
    p->list[block] = list;
    if (in)
        lru_link_behind(p, block, POLICY_NO_BLOCK);
}

static void lru_release(struct policy *p, uint32_t block, bool last)
{
    if (lru_is_in(p, block) || lru_is_parked(p, block))
        return;
    const uint32_t old = p->ends[p->list[block]].old;
    lru_link_behind(p, block, last ? old : POLICY_NO_BLOCK);
}

static uint32_t lru_victim(struct policy *p, uint8_t list, uint64_t now_ms,
                           policy_can_evict_fn *can_evict, void *ctx)
{
    (void)now_ms;
    const struct lru_ends *e = &p->ends[list];
    while (e->old != POLICY_NO_BLOCK && !can_evict(ctx, e->old))
        lru_unlink(p, e->old);
    return e->old;
}

static float lru_worth(const struct policy *p, uint32_t block, uint64_t now_ms)
{
    return -(float)((uint32_t)(now_ms >> LRU_TIME_SHIFT) - p->used[block]);
}

/* Nothing is learned here, so advice is believed: what nobody will ask for is as if it had been
 * used before all else, until a touch. The deepest goes to the very end. */
static void lru_advise(struct policy *p, enum policy_advice advice, uint32_t within_ms,
                       const uint32_t *block, uint32_t n, uint64_t now_ms)
{
    (void)within_ms;
    (void)now_ms;
    if (advice != POLICY_ADVICE_ENDED && advice != POLICY_ADVICE_SCAN)
        return;
    while (n-- > 0) {
        p->used[block[n]] = 0;
        if (!lru_is_in(p, block[n]))
            continue;
        lru_unlink(p, block[n]);
        lru_link_behind(p, block[n], p->ends[p->list[block[n]]].old);
    }
}

const struct policy_ops policy_lru = {
    .name = "lru",
    .help = "least recently used, leaf first",
    .mem_bytes = lru_mem_bytes,
    .init = lru_init,
    .insert = lru_insert,
    .touch = lru_touch,
    .remove = lru_remove,
    .park = lru_park,
    .unpark = lru_unpark,
    .assign = lru_assign,
    .release = lru_release,
    .victim = lru_victim,
    .worth = lru_worth,
    .rank = lru_worth,
    .advise = lru_advise,
};
