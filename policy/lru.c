/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Least recently used, leaf first. One list from young to old. A new child goes in directly behind
 * its parent (on the older side), which is where a touch of the whole chain, deepest block first,
 * would have put it; so a parent is younger than its children and the old end is a leaf. Blocks
 * that may not go when the old end reaches them are in use: they leave the list until release().
 */
#include <string.h>

#include "policy.h"

struct lru_node {
    uint32_t younger, older;
};

struct policy {
    uint32_t young_end, old_end;
    uint32_t count, blocks_max;
    struct lru_node node[];
};

/* A block outside the list, put aside for instance, points at itself, or was never in and holds
 * whatever the memory held. */
static bool lru_is_in(const struct policy *p, uint32_t block)
{
    uint32_t younger = p->node[block].younger;
    if (younger == POLICY_NO_BLOCK)
        return p->young_end == block;
    return younger != block && younger < p->blocks_max && p->node[younger].older == block;
}

static size_t lru_mem_bytes(uint32_t blocks_max)
{
    return sizeof(struct policy) + (size_t)blocks_max * sizeof(struct lru_node);
}

static struct policy *lru_init(void *mem, uint32_t blocks_max)
{
    struct policy *p = mem;
    *p = (struct policy){
        .young_end = POLICY_NO_BLOCK, .old_end = POLICY_NO_BLOCK, .blocks_max = blocks_max};
    return p;
}

static void lru_link_behind(struct policy *p, uint32_t block, uint32_t younger)
{
    uint32_t older = younger == POLICY_NO_BLOCK ? p->young_end : p->node[younger].older;
    p->node[block] = (struct lru_node){.younger = younger, .older = older};
    if (younger == POLICY_NO_BLOCK)
        p->young_end = block;
    else
        p->node[younger].older = block;
    if (older == POLICY_NO_BLOCK)
        p->old_end = block;
    else
        p->node[older].younger = block;
    p->count++;
}

static void lru_link_last(struct policy *p, uint32_t block)
{
    p->node[block] = (struct lru_node){.younger = p->old_end, .older = POLICY_NO_BLOCK};
    if (p->old_end == POLICY_NO_BLOCK)
        p->young_end = block;
    else
        p->node[p->old_end].older = block;
    p->old_end = block;
    p->count++;
}

static void lru_unlink(struct policy *p, uint32_t block)
{
    struct lru_node n = p->node[block];
    if (n.younger == POLICY_NO_BLOCK)
        p->young_end = n.older;
    else
        p->node[n.younger].older = n.older;
    if (n.older == POLICY_NO_BLOCK)
        p->old_end = n.younger;
    else
        p->node[n.older].younger = n.younger;
    p->node[block] = (struct lru_node){.younger = block, .older = block};
    p->count--;
}

static void lru_insert(struct policy *p, uint32_t block, const struct policy_hint *hint,
                       uint64_t now_ms)
{
    (void)now_ms;
    bool behind = hint->parent != POLICY_NO_BLOCK && lru_is_in(p, hint->parent);
    lru_link_behind(p, block, behind ? hint->parent : POLICY_NO_BLOCK);
}

static void lru_touch(struct policy *p, uint32_t block, uint64_t now_ms)
{
    (void)now_ms;
    if (p->young_end == block || !lru_is_in(p, block))
        return;
    lru_unlink(p, block);
    lru_link_behind(p, block, POLICY_NO_BLOCK);
}

static void lru_remove(struct policy *p, uint32_t block)
{
    if (lru_is_in(p, block))
        lru_unlink(p, block);
}

static void lru_release(struct policy *p, uint32_t block, bool last)
{
    if (lru_is_in(p, block))
        return;
    if (last)
        lru_link_last(p, block);
    else
        lru_link_behind(p, block, POLICY_NO_BLOCK);
}

static uint32_t lru_victim(struct policy *p, policy_can_evict_fn *can_evict, void *ctx)
{
    while (p->old_end != POLICY_NO_BLOCK && !can_evict(ctx, p->old_end))
        lru_unlink(p, p->old_end);
    return p->old_end;
}

const struct policy_ops policy_lru = {
    .name = "lru",
    .help = "least recently used, leaf first",
    .mem_bytes = lru_mem_bytes,
    .init = lru_init,
    .insert = lru_insert,
    .touch = lru_touch,
    .remove = lru_remove,
    .release = lru_release,
    .victim = lru_victim,
};
