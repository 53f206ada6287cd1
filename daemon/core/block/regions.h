/* SPDX-License-Identifier: Apache-2.0 */
/* What cannot be evicted from host memory, by regions that belong to one principal each. */
#ifndef KVC_CORE_REGIONS_H
#define KVC_CORE_REGIONS_H

#include "block.h"

/* Where regions are looked at: the bytes of one; and who keeps how many. */
uint64_t regions_region_bytes(const struct core *c);
const struct share *regions_share(const struct core *c);
/* All that b has in memory stays from now on, or no more. */
void regions_count(struct core *c, const struct block *b, bool stays);
/* Whether b, whose slots are not counted, may stay where it is; it is moved where it may. As
 * unevictable_take(); KVC_E_BUSY: not in this turn. */
int regions_admit(struct core *c, struct block *b) KVC_WARN_UNUSED;
/* Without storage a block leaves memory after all that build on it. So what is held, or has parts
 * that are to be written, holds the block before it in its chain. Where there is one principal
 * nobody counts. */
static inline bool chains_are_held(const struct core *c)
{
    return c->regions && !c->cfg.disk;
}
/* Whether b does. */
static inline bool block_keeps_above(struct core *c, const struct block *b)
{
    return chains_are_held(c) && b->parent != CORE_NONE &&
           (b->leases > 0 || (b->state == BLOCK_PENDING && unevictable_of(c, b) > 0));
}
/* unevictable.c: as unevictable_hold() of b and of those before it in its chain that nobody holds.
 */
int chain_admit(struct core *c, struct block *b, uint64_t *left) KVC_WARN_UNUSED;
/* Whether a first hold of b, of ns, may keep it in memory, in bytes and in regions; it may have
 * another place there then. On the path of each hit. */
KVC_WARN_UNUSED static inline int unevictable_hold(struct core *c, const struct core_ns *ns,
                                                   struct block *b, uint64_t *left)
{
    const uint64_t bytes = unevictable_by_hold(c, b);
    if (chains_are_held(c) && bytes > 0 && b->parent != CORE_NONE &&
        c->blocks[b->parent].leases == 0)
        return chain_admit(c, b, left);
    const int err = unevictable_take(c, ns, bytes, left);
    return err || !c->regions || bytes == 0 ? err : regions_admit(c, b);
}
/* As regions_admit() of *loc, which was taken for one more shard of b, and of b with it. */
int regions_admit_new(struct core *c, const struct block *b, struct tier_loc *loc) KVC_WARN_UNUSED;
/* quota.c: as quota_unevictable_left(), in regions. */
uint64_t quota_regions_left(const struct core *c, const struct core_ns *ns, uint64_t *ret_own);
/* quota.c: what shares need is found anew: they have changed, or blocks of another size come. */
void quota_guarantee(struct core *c);
/* Its blocks have their sizes. */
void regions_ns_new(struct core *c, struct core_ns *ns);
/* The namespace's slot is given to another one. */
void regions_ns_gone(struct core *c, const struct core_ns *ns);
void regions_turn(struct core *c); /* a turn begins */
void regions_check(struct core *c);

#endif
