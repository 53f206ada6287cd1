/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"
#include "policy_rig.h"

static struct rig rig;

static void setup(void)
{
    rig_open(&rig, &policy_s3fifo);
}

static void teardown(void)
{
    rig_close(&rig);
}

static void come(uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i <= last; i++)
        rig_insert(&rig, i, POLICY_NO_BLOCK);
}

CASES(.setup = setup, .teardown = teardown);

CASE(what_is_new_goes_in_the_order_it_came_used_once_or_not)
{
    come(0, 3);
    rig_touch(&rig, 0);
    RIG_EXPECT(&rig, 0, 1, 2, 3);
}

CASE(what_was_used_twice_goes_last)
{
    come(0, 4);
    rig_touch(&rig, 0);
    rig_touch(&rig, 0);
    RIG_EXPECT(&rig, 1, 2, 3, 4, 0);
}

CASE(what_comes_again_soon_goes_last)
{
    come(0, 4);
    rig.ops->remove(rig.p, 0);
    rig_insert_as(&rig, 20, POLICY_NO_BLOCK, 1000 + 0);
    rig_insert(&rig, 21, POLICY_NO_BLOCK);
    RIG_EXPECT(&rig, 1, 2, 3, 4, 21, 20);
}

CASE(what_comes_again_late_is_new)
{
    come(0, 4);
    rig.ops->remove(rig.p, 0);
    for (uint32_t i = 40; i < 44; i++) { /* as many go as there are in the main queue at most */
        rig_insert(&rig, i, POLICY_NO_BLOCK);
        rig.ops->remove(rig.p, i);
    }
    rig_insert_as(&rig, 20, POLICY_NO_BLOCK, 1000 + 0);
    rig_insert(&rig, 21, POLICY_NO_BLOCK);
    RIG_EXPECT(&rig, 1, 2, 3, 4, 20, 21);
}

CASE(the_main_queue_goes_round_while_there_are_uses)
{
    come(0, 2);
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t n = 0; n < 2 + (i == 1); n++)
            rig_touch(&rig, i);
    /* all are used twice or more: main; 1 has one use more, and takes a turn more */
    RIG_EXPECT(&rig, 0, 2, 1);
}

CASE(the_small_queue_is_a_tenth)
{
    come(0, 20);
    for (uint32_t i = 0; i < 20; i++) {
        rig_touch(&rig, i);
        rig_touch(&rig, i);
    }
    /* 20 is new; the others move to main, and one of them goes as soon as the new are so few */
    ck_assert_uint_eq(rig_victim(&rig, 0), 0);
}

CASE(of_a_chain_that_comes_in_the_deepest_goes_first)
{
    rig_insert(&rig, 1, POLICY_NO_BLOCK);
    rig_insert(&rig, 2, 1);
    rig_insert(&rig, 3, 2);
    RIG_EXPECT(&rig, 3, 2, 1);
}

CASE(a_child_that_comes_later_is_new)
{
    come(1, 2);
    rig_insert(&rig, 9, 1);
    RIG_EXPECT(&rig, 1, 2, 9);
}

CASE(what_comes_back_from_below_goes_last)
{
    come(0, 3);
    rig.ops->park(rig.p, 1);
    rig.ops->unpark(rig.p, 1, 0);
    RIG_EXPECT(&rig, 0, 2, 3, 1);
}

CASE(worth_falls_with_age_and_grows_with_uses)
{
    come(0, 1);
    rig.now_ms = 1000;
    rig_touch(&rig, 1);
    rig_insert(&rig, 2, POLICY_NO_BLOCK);
    rig.now_ms = 9000;
    const float old = rig.ops->worth(rig.p, 0, rig.now_ms);
    const float used = rig.ops->worth(rig.p, 1, rig.now_ms);
    const float young = rig.ops->worth(rig.p, 2, rig.now_ms);
    ck_assert(old < young && young < used);
}
