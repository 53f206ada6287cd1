/* SPDX-License-Identifier: Apache-2.0 */
/* Queues of blocks by class, band of age and value. */
#include <stdlib.h>

#include "cases.h"
#include "order.h"
#include "policy.h"

#define BLOCKS 20000u

static float older_is_less(const void *ctx, const struct order_node *node, uint32_t now)
{
    (void)ctx;
    return 1.0f / (float)(now - node->used + 1);
}

static struct order *order;
static void *mem;

static void setup(void)
{
    const size_t bytes = (order_mem_bytes(BLOCKS, 4, 1) + 63) / 64 * 64;
    mem = aligned_alloc(64, bytes);
    ck_assert_ptr_nonnull(mem);
    for (size_t i = 0; i < bytes; i++)
        ((char *)mem)[i] = 0;
    order = order_init(mem, BLOCKS, 4, 1);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        struct order_node *n = order_node(order, i);
        *n = (struct order_node){.hash = i, .used = 1 + i / 100, .value = 1, .class = 1};
        order_young(order, i, n->used, 1);
    }
}

static void teardown(void)
{
    free(mem);
}

static uint32_t in_first_band(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < BLOCKS; i++)
        n += order_node(order, i)->state == ORDER_IN && order_node(order, i)->band == 0;
    return n;
}

CASES(.setup = setup, .teardown = teardown);

/* All have outgrown their band at once; a decision moves a few of them, and is right all the same.
 */
CASE(after_a_pause_a_decision_takes_no_longer)
{
    uint32_t before = in_first_band(), now = 1u << 20;
    ck_assert_uint_gt(before, BLOCKS / 2);
    for (unsigned i = 0; i < 100; i++) {
        const uint32_t block = order_least(order, 0, now, older_is_less, NULL);
        ck_assert_uint_ne(block, POLICY_NO_BLOCK);
        ck_assert_uint_eq(order_node(order, block)->used, 1); /* of the oldest hundred */
        order_out(order, block);
        order_node(order, block)->state = ORDER_ASIDE;
        const uint32_t after = in_first_band();
        ck_assert_uint_le(before - after, 1000);
        before = after;
    }
}

/* In the order of their ages, whatever has passed so far. */
CASE(the_oldest_goes_first_while_blocks_pass)
{
    uint32_t now = 300, last = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        now += i % 97 == 0 ? 1u << (i / 97 % 12) : 0;
        const uint32_t block = order_least(order, 0, now, older_is_less, NULL);
        ck_assert_uint_ne(block, POLICY_NO_BLOCK);
        ck_assert_uint_ge(order_node(order, block)->used, last);
        last = order_node(order, block)->used;
        order_out(order, block);
        order_node(order, block)->state = ORDER_ASIDE;
    }
    ck_assert_uint_eq(order_least(order, 0, now, older_is_less, NULL), POLICY_NO_BLOCK);
}
