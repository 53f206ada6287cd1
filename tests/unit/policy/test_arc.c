/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"
#include "policy_rig.h"

static struct rig rig;

static void setup(void)
{
    rig_open(&rig, &policy_arc);
}

static void teardown(void)
{
    rig_close(&rig);
}

/* 0 and 1 were used again, 2 and 3 not. */
static void come(void)
{
    for (uint32_t i = 0; i < 4; i++) {
        rig_insert(&rig, i, POLICY_NO_BLOCK);
        if (i < 2)
            rig_touch(&rig, i);
    }
}

/* 2 goes and comes again as 10: what was used once should have had more room. */
static void miss_one_that_was_used_once(void)
{
    ck_assert_uint_eq(rig_victim(&rig, 0), 2);
    rig.ops->remove(rig.p, 2);
    rig_insert_as(&rig, 10, POLICY_NO_BLOCK, 1000 + 2);
}

CASES(.setup = setup, .teardown = teardown);

CASE(what_was_used_once_goes_first_each_in_lru_order)
{
    come();
    rig_touch(&rig, 0);
    RIG_EXPECT(&rig, 2, 3, 1, 0);
}

CASE(a_miss_of_what_was_used_once_gives_that_more_room)
{
    come();
    miss_one_that_was_used_once();
    RIG_EXPECT(&rig, 0, 1, 3, 10); /* a third for 3, until that is less than one block */
}

CASE(a_miss_of_what_was_used_more_takes_it_back)
{
    come();
    miss_one_that_was_used_once();
    ck_assert_uint_eq(rig_victim(&rig, 0), 0);
    rig.ops->remove(rig.p, 0);
    rig_insert_as(&rig, 11, POLICY_NO_BLOCK, 1000 + 0);
    RIG_EXPECT(&rig, 3, 1, 10, 11);
}

CASE(what_comes_again_late_is_new)
{
    come();
    rig.ops->remove(rig.p, 2);
    for (uint32_t i = 40; i < 44; i++) {
        rig_insert(&rig, i, POLICY_NO_BLOCK);
        rig.ops->remove(rig.p, i);
    }
    rig_insert_as(&rig, 10, POLICY_NO_BLOCK, 1000 + 2);
    RIG_EXPECT(&rig, 3, 10, 0, 1);
}

CASE(what_comes_back_from_below_is_a_miss_too)
{
    come();
    rig.ops->park(rig.p, 2);
    rig.ops->unpark(rig.p, 2, 0);
    RIG_EXPECT(&rig, 0, 1, 3, 2);
}

CASE(of_a_chain_the_deepest_goes_first)
{
    rig_insert(&rig, 1, POLICY_NO_BLOCK);
    rig_insert(&rig, 2, 1);
    rig_insert(&rig, 3, 2);
    for (uint32_t i = 3; i >= 2; i--)
        rig_touch(&rig, i);
    RIG_EXPECT(&rig, 1, 3, 2);
}

CASE(what_was_used_again_is_worth_more)
{
    come();
    rig.now_ms = 1000;
    const float more = rig.ops->worth(rig.p, 0, rig.now_ms);
    const float once = rig.ops->worth(rig.p, 2, rig.now_ms);
    ck_assert(once < more);
}
