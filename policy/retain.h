/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Retention and quotas: whose block goes, and at which level, before a policy says which one. Pure
 * like a policy: no clock, I/O, lock, log, and no allocation after init.
 *
 * Level: 0 to RETAIN_MAX, RETAIN_DEFAULT where nothing was wished. The lowest level that has a
 * block which may be evicted is emptied first. A wish without end is a block's base; one with an
 * end counts while it is above the base, and at its end the block goes back to its base, or to
 * RETAIN_DEFAULT, as the youngest there.
 *
 * Owner: a tenant, sub-tenant or namespace that has a quota; owners form a tree, at most
 * RETAIN_TREE deep, and 0 is everybody, its root. An owner has for each tier a hard limit of bytes,
 * and a guaranteed share: of what it holds up to that, nothing is taken for others. What an owner
 * holds counts for the owners above it too.
 *
 * A block is in one list of the policy: that of its owner and level. Lists come with the first
 * block and go with the last. There are POLICY_LISTS_MAX; each owner can always have one, and when
 * there are no more a block goes to the nearest level that its owner has.
 */
#ifndef KVC_RETAIN_H
#define KVC_RETAIN_H

#include "policy.h"

#define RETAIN_DEFAULT  35u
#define RETAIN_MAX      100u
#define RETAIN_OWNERS   128u
#define RETAIN_TREE     4u /* everybody, tenant, sub-tenant, namespace */
#define RETAIN_NO_OWNER UINT32_MAX
#define RETAIN_FOR_EVER 0u /* no end */
#define RETAIN_TIERS    2u /* 0: the tier that is evicted from (host); 1: the one below (NVMe) */
#define RETAIN_NO_LIMIT UINT64_MAX
/* Ends are kept in these, rounded up, in 32 bits. */
#define RETAIN_UNIT_MS 64u

struct retain;

struct retain_quota {
    uint64_t limit[RETAIN_TIERS]; /* bytes; RETAIN_NO_LIMIT */
    uint64_t share[RETAIN_TIERS]; /* guaranteed bytes; 0 */
};

/* 8 bytes per block, and some 40 KiB. */
size_t retain_mem_bytes(uint32_t blocks_max);
/* mem: zeroed, 64-byte aligned. The policy must have been made for POLICY_LISTS_MAX lists. */
struct retain *retain_init(void *mem, uint32_t blocks_max, const struct policy_ops *ops,
                           struct policy *policy);

/* ---- owners ---- */

/* A new owner below `above`, which exists, without limit or share. RETAIN_NO_OWNER when all are in
 * use or the tree would be too deep. */
uint32_t retain_owner_add(struct retain *r, uint32_t above);
/* Another place in the tree, with all that it holds and what is below it; true when the tree is not
 * too deep there, else nothing is done. */
bool retain_owner_place(struct retain *r, uint32_t owner, uint32_t above);
/* What is held above a limit may stay, and not grow. */
void retain_owner_set(struct retain *r, uint32_t owner, const struct retain_quota *quota);
/* It is as good as the owner above it, and goes when it has no block left: those are the caller's
 * to move. It holds nothing, and nobody is below it. */
void retain_owner_end(struct retain *r, uint32_t owner);
bool retain_owner_is(const struct retain *r, uint32_t owner);
const struct retain_quota *retain_quota_of(const struct retain *r, uint32_t owner);
/* The owner above; 0: everybody, of whom none is above. */
uint32_t retain_owner_above(const struct retain *r, uint32_t owner);
/* Bytes that came to a tier or left it. */
void retain_count(struct retain *r, uint32_t owner, unsigned tier, int64_t bytes);
uint64_t retain_held(const struct retain *r, uint32_t owner, unsigned tier);
/* The owner, it or one above it, whose hard limit `bytes` more in this tier would exceed, or
 * RETAIN_NO_OWNER. */
uint32_t retain_over(const struct retain *r, uint32_t owner, unsigned tier, uint64_t bytes);
/* Whether a block of `bytes` of this owner is guaranteed to stay when `taker` wants room. */
bool retain_protects(const struct retain *r, uint32_t owner, uint32_t taker, unsigned tier,
                     uint64_t bytes);
/* The same whoever wants room, where only so much of each share can be kept. */
bool retain_keeps(const struct retain *r, uint32_t owner, unsigned tier, uint64_t bytes,
                  uint32_t percent);
/* Whether it, or one above it, holds less in tier 0 than is guaranteed to it. */
bool retain_lacks(const struct retain *r, uint32_t owner);
/* Whether `owner` is `above` or below it. */
bool retain_is_within(const struct retain *r, uint32_t owner, uint32_t above);

/* ---- blocks ---- */

/* A block comes in, without a wish: its list, for policy_hint.list. */
uint8_t retain_enter(struct retain *r, uint32_t block, uint32_t owner);
/* A wish for a block that is in; until_ms is a time, or RETAIN_FOR_EVER. Of several: core.h, struct
 * core_retention. `set`: those before are forgotten. Moves it in the policy if its list changes. */
void retain_wish(struct retain *r, uint32_t block, unsigned level, uint64_t until_ms, bool set,
                 uint64_t now_ms);
/* Another owner has it now. */
void retain_give(struct retain *r, uint32_t block, uint32_t owner, uint64_t now_ms);
void retain_leave(struct retain *r, uint32_t block);
bool retain_is_in(const struct retain *r, uint32_t block);
unsigned retain_level(const struct retain *r, uint32_t block);
uint32_t retain_owner(const struct retain *r, uint32_t block);
/* The end of the wish that counts, RETAIN_FOR_EVER. */
uint64_t retain_until(const struct retain *r, uint32_t block);
/* The level wished without end; RETAIN_MAX + 1: none. */
unsigned retain_base(const struct retain *r, uint32_t block);
/* Takes back what has ended by now; at most `max` blocks a call, *ret_ended of them. True: there is
 * more. Costs nothing while nothing ends. */
bool retain_tick(struct retain *r, uint64_t now_ms, uint32_t max, uint32_t *ret_ended);

/* The block that goes so that `owner` gets room in tier 0, or POLICY_NO_BLOCK. Only from `within`
 * and those below it (0: from everybody), and not what is guaranteed to others; bytes: of the
 * largest block, so that no share is cut into. Who holds less than is guaranteed takes from others
 * first, whatever the level. Lowest level first; among the lists of one level the block that is
 * worth least. */
uint32_t retain_victim(struct retain *r, uint32_t owner, uint32_t within, uint64_t bytes,
                       uint64_t now_ms, policy_can_evict_fn *can_evict, void *ctx);

/* Whether a block of `owner` that would come in at this level is worth more than the victim. What
 * is guaranteed to it comes in whatever others hold; so that nobody is kept out for good by the
 * levels of others, a level that is higher than the block's keeps out only what is below
 * RETAIN_DEFAULT. */
bool retain_admits(struct retain *r, uint32_t owner, const struct policy_hint *hint, unsigned level,
                   uint32_t victim, uint64_t now_ms);

/* How many blocks the lists of each level have. */
void retain_levels(const struct retain *r, uint64_t ret_blocks[RETAIN_MAX + 1]);

/* That all counts are what a scan finds; for tests. */
bool retain_is_sound(const struct retain *r);

#endif
