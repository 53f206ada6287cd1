/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the policies with two queues share (S3-FIFO: small and main; ARC: used once and used more
 * often): for each list of the policy two queues from young to old, the place of each block, and
 * hashes of evicted blocks. A block is in a queue's order, aside (it was refused as a victim; it
 * counts for its queue), or parked. Pure.
 */
#ifndef KVC_POLICY_TWOQ_H
#define KVC_POLICY_TWOQ_H

#include "ghost_small.h"
#include "policy.h"

enum twoq_place { TWOQ_UNKNOWN, TWOQ_IN, TWOQ_ASIDE, TWOQ_PARKED };

struct twoq_block {
    uint32_t younger, older;
    uint32_t used; /* in units of 16 ms */
    uint32_t print;
    uint8_t list;
    uint8_t queue : 1;
    uint8_t place : 2;
    uint8_t uses : 2; /* its policy's */
};

struct twoq_queue {
    uint32_t young, old;
    uint32_t n; /* with those aside */
};

struct twoq {
    struct twoq_queue queue[POLICY_LISTS_MAX][2];
    struct twoq_block *block;
    uint32_t n;     /* in all queues */
    uint32_t last;  /* the block that came in last */
    uint32_t stamp; /* of ghosts: counts those that went */
    struct ghost_small_table ghosts;
};

/* Behind `head` bytes of the policy's own, for `ghosts` of them. */
size_t twoq_mem_bytes(const struct policy_config *config, size_t head, uint32_t ghosts);
void twoq_init(struct twoq *t, void *mem, const struct policy_config *config, size_t head,
               uint32_t ghosts);

/* As the youngest; or directly behind its parent, if that came in just before it and stands in the
 * same queue, so that of a chain that comes in the deepest is the oldest. */
void twoq_enter(struct twoq *t, uint32_t block, const struct policy_hint *hint, unsigned queue);
/* To the young end of a queue; of what is aside or parked, which queue it will come back to. */
void twoq_move(struct twoq *t, uint32_t block, unsigned queue);
/* Out of the order because it was refused. */
void twoq_aside(struct twoq *t, uint32_t block);
void twoq_forget(struct twoq *t, uint32_t block);
void twoq_park(struct twoq *t, uint32_t block);
void twoq_unpark(struct twoq *t, uint32_t block, unsigned queue);
void twoq_assign(struct twoq *t, uint32_t block, uint8_t list);
void twoq_release(struct twoq *t, uint32_t block, bool last);
/* Since its last use, in units of 16 ms. */
uint32_t twoq_age(const struct twoq *t, uint32_t block, uint64_t now_ms);
void twoq_use(struct twoq *t, uint32_t block, uint64_t now_ms);

#endif
