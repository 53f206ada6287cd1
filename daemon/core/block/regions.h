/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions: chunks of host memory, of one principal each, that hold slots which cannot be evicted
 * now. Acquires, stores and pins ask here whether their principal may keep one more region.
 */
#ifndef KVC_CORE_REGIONS_H
#define KVC_CORE_REGIONS_H

#include "block.h"

/* Only where regions are counted (core->regions): the bytes of one; and how many each principal
 * keeps. */
uint64_t regions_region_bytes(const struct core *c);
const struct share *regions_share(const struct core *c);
/* All slots of b in memory stay from now on, or (false) no more. */
void regions_count(struct core *c, const struct block *b, bool stays);
/* Whether b, whose slots are not counted yet, may stay in its regions; if not, b is moved to one
 * where it may. Returns what unevictable_take() does; KVC_E_BUSY: too much was moved in this
 * turn. */
int regions_admit(struct core *c, struct block *b) KVC_WARN_UNUSED;
/* Without storage a block leaves memory after all that build on it. So a block that is held, or has
 * parts to be written, holds the block before it in its chain. Where there is one principal nobody
 * counts, and chains are not held. */
static inline bool chains_are_held(const struct core *c)
{
    return c->regions && !core_stores(c);
}
/* Whether b holds the block before it in its chain. */
static inline bool block_keeps_above(struct core *c, const struct block *b)
{
    return chains_are_held(c) && b->parent != CORE_NONE &&
           (b->holds > 0 || (b->state == BLOCK_PENDING && unevictable_of(c, b) > 0));
}
/* unevictable.c: unevictable_hold() of b and of all before it in its chain that nobody holds
 * yet. */
int chain_admit(struct core *c, struct block *b, uint64_t *left) KVC_WARN_UNUSED;
/* Whether a first hold of b, of ns, may keep it in memory, counted in bytes and in regions. b may
 * be in another place in memory afterwards. On the path of each hit. */
KVC_WARN_UNUSED static inline int unevictable_hold(struct core *c, const struct core_ns *ns,
                                                   struct block *b, uint64_t *left)
{
    const uint64_t bytes = unevictable_by_hold(c, b);
    if (chains_are_held(c) && bytes > 0 && b->parent != CORE_NONE &&
        c->blocks[b->parent].holds == 0)
        return chain_admit(c, b, left);
    const int err = unevictable_take(c, ns, bytes, left);
    return err || !c->regions || bytes == 0 ? err : regions_admit(c, b);
}
/* regions_admit() for *loc, a slot that was taken for one more shard of b, and for b with it. *loc
 * may change. */
int regions_admit_new(struct core *c, const struct block *b, struct tier_loc *loc) KVC_WARN_UNUSED;
/* quota.c: quota_unevictable_left(), in regions. */
uint64_t quota_regions_left(const struct core *c, const struct core_ns *ns, uint64_t *ret_own);
/* quota.c: computes again what shares need, because they have changed, or a namespace has blocks of
 * another size. */
void quota_guarantee(struct core *c);
/* A new namespace: the sizes of its blocks are known. */
void regions_ns_new(struct core *c, struct core_ns *ns);
/* The namespace's slot is given to another one. */
void regions_ns_gone(struct core *c, const struct core_ns *ns);
void regions_turn(struct core *c); /* a turn begins */
void regions_check(struct core *c);

#endif
