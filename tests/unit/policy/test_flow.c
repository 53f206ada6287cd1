/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"
#include "flow.h"

#define ROOM 1024u

static struct flow f;
static unsigned new, hot;

static void setup(void)
{
    flow_init(&f);
    new = class_first(false, 20);
    hot = class_shared(200, 1000);
}

/* Blocks of one use each, of which every `each`th comes back (0: none). */
static void pass(unsigned blocks, unsigned each)
{
    for (unsigned i = 0; i < blocks; i++) {
        flow_begins(&f, new, ROOM, 1);
        if (each && i % each == 0)
            flow_is_back(&f, new);
    }
}

static void expect_part(unsigned class, float least, float most)
{
    const float part = flow_part(&f, class);
    ck_assert_msg(part >= least && part <= most, "%g", (double)part);
}

CASES(.setup = setup);

CASE(what_comes_back_now_and_then_is_worth_what_it_was)
{
    expect_part(new, 1, 1);
    pass(10 * ROOM, 20);
    expect_part(new, 1, 1);
}

CASE(what_only_passes_is_worth_next_to_nothing)
{
    pass(10 * ROOM, 4);
    pass(ROOM / 8, 0);
    expect_part(new, 1, 1);
    pass(ROOM / 2, 0);
    expect_part(new, 0, 0.3f);
    pass(ROOM, 0);
    expect_part(new, 1e-9f, 1e-5f);
    expect_part(hot, 1, 1);
}

CASE(it_is_believed_again_when_some_come_back)
{
    pass(4 * ROOM, 0);
    pass(ROOM / 8, 8);
    expect_part(new, 1, 1);
}

CASE(what_was_seen_long_ago_says_nothing)
{
    pass(4 * ROOM, 0);
    flow_begins(&f, new, ROOM, 1 + 30000);
    expect_part(new, 0, 1e-5f);
    flow_begins(&f, new, ROOM, 1 + 30000 + 40000);
    expect_part(new, 1, 1);
}

/* A hot set of many more blocks than are counted at a time. */
CASE(a_hot_set_comes_back_whole)
{
    for (unsigned i = 0; i < 10 * ROOM; i++) {
        flow_is_back(&f, hot);
        flow_begins(&f, hot, ROOM, 1);
    }
    expect_part(hot, 1, 1);
}

CASE(kinds_are_told_apart)
{
    const unsigned last = class_tip(false, 20), next = class_next(1, 2, 1000),
                   said = class_said(next, POLICY_ADVICE_ENDED);
    ck_assert_uint_eq(class_flow(new), class_flow(last));
    ck_assert_uint_eq(class_flow(new), class_flow(class_said(new, POLICY_ADVICE_SCAN)));
    ck_assert_uint_eq(class_flow(next), class_flow(said));
    ck_assert_uint_eq(class_flow(next), class_flow(class_tip(true, 1)));
    ck_assert_uint_ne(class_flow(new), class_flow(next));
    ck_assert_uint_ne(class_flow(hot), class_flow(class_shared(2, 1000)));
    for (unsigned c = 0; c < CLASS_BLOCKS; c++)
        ck_assert_uint_lt(class_flow(c), CLASS_FLOWS);
}
