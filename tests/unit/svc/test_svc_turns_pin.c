/* SPDX-License-Identifier: Apache-2.0 */
/* Long pins go on in slices: test_svc_turns.c has the other requests. */
#include "turns_rig.h"

/* A turn has one slice of requests. */
static void begin(uint32_t slice_work)
{
    sr_defaults(&s);
    s.core_cfg.slice_work = slice_work;
    s.core_cfg.pins_max = 2;
    begin_turns();
}

/* A slice pins at most 34 blocks. */
static void setup(void)
{
    begin(34);
}

/* Or lets go of 10. */
static void setup_short(void)
{
    begin(10);
}

static uint64_t pin(const struct sr_blocks *b)
{
    const struct msg_pin msg = {.seq = seq_of(b->chain, b->n)};
    return SR_SEND(&s, p, pin, PIN, &msg);
}

static uint64_t pinned(void)
{
    return core_metrics(s.core)->pinned_blocks;
}

/* Until some blocks are pinned, and others are not. */
static uint64_t pin_partly(void)
{
    const uint64_t corr = pin(&longer);
    for (unsigned n = 0; pinned() == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
    }
    ck_assert_uint_lt(pinned(), LONG_BLOCKS);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    core_check(s.core);
    return corr;
}

/* What did not come to be, and what was found for it, is let go of in slices. */
static void no_pin_is_left(void)
{
    for (unsigned n = 0; pinned() + asks_hold(s.core) > 0; n++) {
        ck_assert_uint_lt(n, LONG_BLOCKS);
        sr_turn(&s, 0);
    }
    ck_assert_uint_eq(pinned() + core_metrics(s.core)->pinned_bytes, 0);
    ck_assert_uint_eq(core_metrics(s.core)->pins + asks_hold(s.core), 0);
    no_call_is_left();
}

CASES(.setup = setup, .teardown = end_turns);

CASE(a_long_pin_holds_its_blocks_in_slices)
{
    struct core_pin_view v;
    uint64_t cursor = 0;
    store(&longer);
    const uint64_t corr = pin_partly();
    ck_assert_uint_le(pinned(), 34);
    ck_assert(!core_pin_next(s.core, NULL, &cursor, &v));
    ck_assert_uint_ge(turns_until(corr), 2);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_OK);
    ck_assert_uint_eq(pinned(), LONG_BLOCKS);
    ck_assert(core_pin_next(s.core, NULL, &cursor, &v));
    ck_assert_uint_eq(v.blocks, LONG_BLOCKS);
    ck_assert_uint_eq(v.tokens, LONG_BLOCKS * 8);
    ck_assert_uint_eq(asks_hold(s.core), 0);
    core_check(s.core);
    if (core_unpin(s.core, NULL, v.id) == CORE_MORE)
        while (core_unpin_step(s.core, v.id))
            continue;
    no_pin_is_left();
}

CASE(a_pin_that_is_cancelled_or_left_between_two_slices_holds_nothing)
{
    store(&longer);
    s.core->cfg.slice_work = 10;
    const uint64_t corr = pin_partly();
    sr_turn(&s, 0);
    sr_turn(&s, 0);
    ck_assert_uint_eq(pinned(), 30);
    const uint64_t before = core_work(s.core);
    (void)sr_cancel(&s, p, corr);
    ck_assert_uint_le(core_work(s.core) - before, 10);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_CANCELLED);
    no_pin_is_left();
    (void)pin_partly();
    sr_leave(&s, p);
    sr_turn(&s, 0);
    no_pin_is_left();
}

CASE(a_pin_over_its_budget_between_two_slices_holds_nothing)
{
    store(&longer);
    const uint64_t corr = pin_partly();
    core_pin_budget(s.core, core_metrics(s.core)->pinned_bytes);
    (void)turns_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_PIN_LIMIT);
    ck_assert_uint_eq(core_metrics(s.core)->pins_refused, 1);
    no_pin_is_left();
}

CASE(an_eviction_between_two_slices_leaves_what_is_to_be_pinned)
{
    store(&longer);
    const uint64_t corr = pin_partly();
    evict_all();
    (void)turns_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_OK);
    ck_assert_uint_eq(pinned(), LONG_BLOCKS);
    ck_assert_uint_eq(core_metrics(s.core)->blocks_present, LONG_BLOCKS);
    core_check(s.core);
}

/* ---- UNPIN ---- */

/* The long chain is pinned; its pin. */
static uint64_t pin_all(void)
{
    struct core_pin_view v;
    uint64_t cursor = 0;
    store(&longer);
    const uint64_t corr = pin(&longer);
    (void)turns_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_OK);
    ck_assert(core_pin_next(s.core, NULL, &cursor, &v));
    return v.id;
}

static uint64_t unpin(struct sr_peer *peer, uint64_t id)
{
    const struct msg_unpin msg = {.pin = id};
    return SR_SEND(&s, peer, unpin, UNPIN, &msg);
}

/* Until it has let go of some blocks, and pins others yet. */
static uint64_t unpin_partly(uint64_t id)
{
    const uint64_t corr = unpin(p, id);
    for (unsigned n = 0; pinned() == LONG_BLOCKS; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
    }
    ck_assert_uint_gt(pinned(), 0);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    return corr;
}

CASES(.setup = setup_short, .teardown = end_turns);

CASE(a_long_unpin_lets_go_of_its_blocks_in_slices)
{
    struct core_pin_view v;
    uint64_t cursor = 0;
    const uint64_t id = pin_all(), corr = unpin_partly(id);
    ck_assert(!core_pin_next(s.core, NULL, &cursor, &v));
    ck_assert_uint_eq(core_metrics(s.core)->pins, 0);
    const uint64_t again = unpin(q, id);
    ck_assert_uint_ge(turns_until(corr), 1);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_OK);
    (void)turns_until(again);
    ck_assert_uint_eq(sr_status(&s, again), KVC_ST_NO_NAME);
    no_pin_is_left();
}

/* Its answer says that the budget has room again. */
CASE(a_pin_behind_a_long_unpin_finds_its_budget)
{
    const uint64_t id = pin_all();
    core_pin_budget(s.core, core_metrics(s.core)->pinned_bytes);
    const uint64_t corr = unpin_partly(id);
    longer.n--;
    const uint64_t behind = pin(&longer);
    (void)turns_until(corr);
    (void)turns_until(behind);
    ck_assert_uint_eq(sr_status(&s, behind), KVC_ST_OK);
    ck_assert_uint_eq(pinned(), LONG_BLOCKS - 1);
}

CASE(an_unpin_that_is_cancelled_or_left_between_two_slices_goes_on)
{
    uint64_t id = pin_all();
    const uint64_t corr = unpin_partly(id);
    (void)sr_cancel(&s, p, corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_CANCELLED);
    for (unsigned i = 0; i < LONG_BLOCKS; i++)
        sr_turn(&s, 0);
    no_pin_is_left();
    id = pin_all();
    (void)unpin_partly(id);
    sr_leave(&s, p);
    for (unsigned i = 0; i < LONG_BLOCKS; i++)
        sr_turn(&s, 0);
    no_pin_is_left();
}

CASE(what_another_pins_and_what_goes_between_two_slices_of_an_unpin)
{
    struct core_pinned other;
    const uint64_t id = pin_all(), corr = unpin_partly(id);
    uint8_t key[2 * KVC_KEY_BYTES];
    const char *why;
    for (uint32_t i = 0; i < 2; i++)
        sr_key(longer.chain, i, &key[(size_t)i * KVC_KEY_BYTES]);
    const struct core_pin in = {.seq = {.ns = ns_by_id(s.core, longer.ns),
                                        .tokens = 16,
                                        .ngroups = 1,
                                        .keys = {key},
                                        .n = {2}}};
    ck_assert_int_eq(core_pin(s.core, &in, &other, &why), 0);
    evict_all(); /* what is pinned by neither */
    ck_assert_uint_lt(core_metrics(s.core)->blocks_present, LONG_BLOCKS + 1);
    core_check(s.core);
    (void)turns_until(corr);
    ck_assert_uint_eq(pinned(), 2);
    evict_all();
    ck_assert_uint_eq(core_metrics(s.core)->blocks_present, 2);
    ck_assert_int_eq(core_unpin(s.core, NULL, other.id), 0);
    ck_assert_uint_eq(pinned() + core_metrics(s.core)->pins, 0);
    core_check(s.core);
}
