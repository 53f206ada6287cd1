/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several storage tiers as one, the fastest first: core stores in the first, what is not worth its
 * place there goes down to the next (tier_storage_ops.demote), and what core has read from below
 * may be stored above again (faster()). Core sees one storage tier; which one has a block is in the
 * location's upper bits.
 *
 * All functions run on the control thread. The tiers outlive the stack; their events are the
 * stack's from stack_create() on.
 */
#ifndef KVC_STACK_H
#define KVC_STACK_H

#include <stdint.h>

#include "tier.h"

/* Of a location: the upper bits say which tier, the others are its own. */
#define STACK_TIERS_MAX 4u
#define STACK_LOC_BITS  30u

struct stack;

struct stack_config {
    struct tier *tier[STACK_TIERS_MAX]; /* storage, fastest first */
    uint32_t tiers;                     /* at least 1 */
    uint32_t shard_bytes;               /* payload of the largest shard that goes down */
    uint32_t moves;                     /* on their way down at a time; each has a buffer */
};

struct stack_stats {
    uint64_t demoted; /* shards that are below now */
    uint64_t failed;  /* that were lost on their way, or found no room */
};

/* 0, -EINVAL, -ENOMEM. */
int stack_create(const struct stack_config *config, struct stack **ret_stack) KVC_WARN_UNUSED;
/* No operation may be in flight. */
void stack_destroy(struct stack **stack);
struct tier *stack_tier(struct stack *s);
/* Where core finds what is at loc in that tier: of blocks that are found at start. */
struct tier_loc stack_loc(unsigned level, struct tier_loc loc);
void stack_stats(const struct stack *s, struct stack_stats *ret_stats);

#endif
