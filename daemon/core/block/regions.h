/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions: chunks of host memory, each of one principal, with slots that cannot be evicted now.
 * Acquires, stores and pins ask here whether their principal may keep one more region.
 */
#ifndef KVC_CORE_REGIONS_H
#define KVC_CORE_REGIONS_H

#include "block.h"

/* Only where regions are counted (core->mod.regions is not NULL): bytes of one region. */
uint64_t regions_region_bytes(const struct core *c);
/* The same: how many regions each principal keeps. */
const struct share *regions_share(const struct core *c);
/* Counts that from now on all slots of b in memory stay, or (false) that they can be evicted. */
void regions_count(struct core *c, const struct block *b, bool stays);
/* Whether b, whose slots are not counted yet, may stay in its regions; if not, b is moved to one
 * where it may. Returns what unevictable_take() does; KVC_E_BUSY: too much was moved in this
 * turn. */
int regions_admit(struct core *c, struct block *b) KVC_WARN_UNUSED;
/* Whether a hold of a block keeps all blocks before it. Without storage a block leaves memory after
 * all that build on it; so a block that is held, or has parts to be written, holds the block before
 * it in its chain. With one principal regions are not counted, and chains are not held. */
static inline bool chains_are_held(const struct core *c)
{
    return c->mod.regions && !core_stores(c);
}
/* Whether b holds the block before it in its chain. */
static inline bool block_keeps_above(struct core *c, const struct block *b)
{
    return chains_are_held(c) && b->parent != CORE_NONE &&
           (b->holds > 0 || (b->state == BLOCK_PENDING && unevictable_of(c, b) > 0));
}
/* unevictable.c: unevictable_hold() of b and of all blocks before it in its chain that are not held
 * yet. */
int chain_admit(struct core *c, struct block *b, uint64_t *left) KVC_WARN_UNUSED;
/* Whether a hold of b, of ns, may keep it in memory, counted in bytes and in regions; to be called
 * before block_hold(). Returns what unevictable_take() and regions_admit() do. b may be in another
 * place in memory afterwards. Each hit calls this. */
KVC_WARN_UNUSED static inline int unevictable_hold(struct core *c, const struct core_ns *ns,
                                                   struct block *b, uint64_t *left)
{
    const uint64_t bytes = unevictable_by_hold(c, b);
    if (chains_are_held(c) && bytes > 0 && b->parent != CORE_NONE &&
        c->blocks[b->parent].holds == 0)
        return chain_admit(c, b, left);
    const int err = unevictable_take(c, ns, bytes, left);
    return err || !c->mod.regions || bytes == 0 ? err : regions_admit(c, b);
}
/* regions_admit() for a new slot *loc, which was taken for one more shard of b. *loc may change. */
int regions_admit_new(struct core *c, const struct block *b, struct tier_loc *loc) KVC_WARN_UNUSED;
/* quota.c: quota_unevictable_left(), in regions. */
uint64_t quota_regions_left(const struct core *c, const struct core_ns *ns, uint64_t *ret_own);
/* quota.c: computes again how much memory shares need, because they have changed, or a namespace
 * has blocks of another size. */
void quota_guarantee(struct core *c);
/* A namespace was made: the sizes of its blocks are known. */
void regions_ns_new(struct core *c, struct core_ns *ns);
/* A namespace is removed: its slot is given to another one. */
void regions_ns_gone(struct core *c, const struct core_ns *ns);
void regions_turn(struct core *c); /* a turn begins */
void regions_check(struct core *c);

#endif
