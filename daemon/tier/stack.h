/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several storage tiers as one, the fastest first. Core stores blocks in the first. A block that is
 * not worth its place there goes down to the next (tier_storage_ops.demote). A block that core has
 * read from below may be stored above again (faster()). Core sees one storage tier; the upper bits
 * of a location say which tier has the block.
 *
 * All functions run on the control thread. The tiers outlive the stack; their events are the
 * stack's from stack_create() on.
 */
#ifndef KVC_STACK_H
#define KVC_STACK_H

#include <stdint.h>

#include "tier.h"

/* A location's upper bits are the number of its tier, the other bits the tier's own location. */
#define STACK_TIERS_MAX 4u
#define STACK_LOC_BITS  30u

struct stack;

struct stack_config {
    struct tier *tier[STACK_TIERS_MAX]; /* storage, fastest first */
    uint32_t tiers;                     /* at least 1 */
    uint32_t shard_bytes;               /* payload of the largest shard that goes down */
    uint32_t moves;                     /* most moves down at a time; each has a buffer */
};

struct stack_stats {
    uint64_t demoted; /* shards that went down, since the start */
    uint64_t failed;  /* shards that were lost on their way down, or found no room */
};

/* 0, -EINVAL, -ENOMEM. */
int stack_create(const struct stack_config *config, struct stack **ret_stack) KVC_WARN_UNUSED;
/* No operation may be in flight. */
void stack_destroy(struct stack **stack);
struct tier *stack_tier(struct stack *s);
/* For blocks found at start: the stack's location of the block at loc in tier number `level`. */
struct tier_loc stack_loc(unsigned level, struct tier_loc loc);
void stack_stats(const struct stack *s, struct stack_stats *ret_stats);

#endif
