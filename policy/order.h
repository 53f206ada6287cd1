/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of blocks in which policy `density` looks for the one of least worth. Pure.
 *
 * A block is in one queue of its list. The queue is that of its class, of the band of its age (each
 * four times as long as the one before) and of its value (what it saves per byte, in three steps).
 * In a queue blocks are ordered from young to old and are all worth about the same, so only the old
 * end is asked. The worth of a class may rise or fall with age. Blocks pass to the next band when
 * they are met at the old end, a few dozen at a time: a decision after a long pause takes no longer
 * than others.
 *
 * There are thousands of queues, and some hundreds have blocks. All of them are compared once in
 * ORDER_LOOKS decisions. Between, the few that were least then are compared, and those that got
 * their first block since.
 */
#ifndef KVC_ORDER_H
#define KVC_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORDER_BANDS  10u
#define ORDER_VALUES 3u
#define ORDER_LOOKS  32u
#define ORDER_FEW    24u

enum order_state { ORDER_UNKNOWN, ORDER_IN, ORDER_ASIDE, ORDER_PARKED };

struct order_node {
    uint64_t hash;
    uint32_t younger, older;
    uint32_t used; /* ticks */
    float value;   /* what a hit saves per byte */
    uint16_t class;
    uint16_t gap; /* the owner's */
    uint8_t list;
    uint8_t state;
    uint8_t band, step; /* its queue, beside its class */
};

struct order;

/* Less is less worth keeping. */
typedef float(order_worth_fn)(const void *ctx, const struct order_node *node, uint32_t now);

/* order_init() takes zeroed memory of that size. */
size_t order_mem_bytes(uint32_t blocks_max, unsigned classes, unsigned lists);
struct order *order_init(void *mem, uint32_t blocks_max, unsigned classes, unsigned lists);
struct order_node *order_node(struct order *o, uint32_t block);

/* In as the youngest of its queue, which class, list, used and value of the node say (`common`: the
 * value of most blocks), as the oldest, or directly behind a block of the same queue. */
void order_young(struct order *o, uint32_t block, uint32_t now, float common);
void order_old(struct order *o, uint32_t block, uint32_t now, float common);
bool order_behind(struct order *o, uint32_t block, uint32_t younger);
/* Out, if it is in; its state is to be set by the caller. */
void order_out(struct order *o, uint32_t block);
/* Time is told from `by` later on: what was used before it was used at 0. */
void order_earlier(struct order *o, uint64_t by);
/* The block of a list that is least worth, POLICY_NO_BLOCK when there is none. When `worth` is
 * another one than at the last decision, all queues are looked at again. */
uint32_t order_least(struct order *o, unsigned list, uint32_t now, order_worth_fn *worth,
                     const void *ctx);

#endif
