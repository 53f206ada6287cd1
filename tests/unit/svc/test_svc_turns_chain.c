/* SPDX-License-Identifier: Apache-2.0 */
/* Without storage what is held holds what is before it: of a long chain in slices. */
#include "turns_rig.h"

#define PART 40u

static uint32_t ns;

/* A slice announces two blocks; a turn has one slice. */
static void setup(void)
{
    sr_defaults(&s);
    s.core_cfg.slice_work = 34;
    s.core_cfg.principals_max = 8;
    s.core_cfg.lease_bytes_max = 1u << 20;
    begin_turns();
    ns = longer.ns;
}

/* A turn has a slice, and a key more. */
static void work_is_short(uint64_t before)
{
    ck_assert_uint_le(core_work(s.core) - before, 2 * s.core_cfg.slice_work);
    core_check(s.core);
}

/* A chain is let go of in slices. How many turns that takes. */
static unsigned nothing_stays(void)
{
    unsigned turns = 0;
    for (uint64_t was; (was = core_metrics(s.core)->unevictable_bytes) > 0; turns++) {
        const uint64_t before = core_work(s.core);
        sr_turn(&s, 0);
        work_is_short(before);
        ck_assert_uint_lt(core_metrics(s.core)->unevictable_bytes, was);
    }
    return turns;
}

#define DEEP (3 * PART)

static void store_deep(void)
{
    for (uint32_t at = 0; at < DEEP; at += PART) {
        const struct sr_blocks part = {.ns = ns, .chain = 3, .first = at, .n = PART};
        const uint64_t corr = sr_store(&s, q, &part);
        copies_until(corr);
        ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_OK);
    }
    core_check(s.core);
    (void)nothing_stays();
}

static uint64_t reserve_behind(void)
{
    return sr_reserve(&s, p, &(struct sr_blocks){ns, 3, DEEP, 2, 0, NULL});
}

CASES(.setup = setup, .teardown = end_turns);

CASE(a_long_chain_is_held_in_slices_before_what_follows_it)
{
    store_deep();
    uint64_t before = core_work(s.core);
    const uint64_t corr = reserve_behind();
    unsigned turns = 0;
    for (; sr_replies(&s, corr) == 0; turns++) {
        ck_assert_uint_lt(turns, TURNS);
        work_is_short(before);
        before = core_work(s.core);
        sr_turn(&s, 0);
    }
    work_is_short(before);
    ck_assert_uint_ge(turns, DEEP / s.core_cfg.slice_work);
    ck_assert_uint_eq(core_metrics(s.core)->unevictable_bytes, (DEEP + 2) * 64);
    before = core_work(s.core);
    const uint64_t drop = sr_drop(&s, p, sr_reservation(&s, corr));
    work_is_short(before);
    ck_assert_uint_ge(nothing_stays(), DEEP / s.core_cfg.slice_work - 1);
    (void)turns_until(drop);
}

/* Some of the chain is held. */
static uint64_t reserve_partly(void)
{
    const uint64_t corr = reserve_behind();
    for (unsigned n = 0; core_metrics(s.core)->unevictable_bytes == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
    }
    ck_assert_uint_lt(core_metrics(s.core)->unevictable_bytes, DEEP * 64);
    ck_assert_uint_eq(core_metrics(s.core)->blocks_pending + sr_replies(&s, corr), 0);
    core_check(s.core);
    return corr;
}

CASE(a_reserve_that_is_called_off_while_it_holds_a_chain_holds_nothing)
{
    store_deep();
    const uint64_t corr = reserve_partly();
    (void)sr_cancel(&s, p, corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_CANCELLED);
    ck_assert_uint_eq(core_metrics(s.core)->unevictable_bytes, 0);
    (void)reserve_partly();
    sr_leave(&s, p);
    sr_turn(&s, 0);
    ck_assert_uint_eq(core_metrics(s.core)->unevictable_bytes + s.kept, 0);
}

CASE(a_chain_that_goes_while_it_is_being_held_has_nothing_behind_it)
{
    store_deep();
    const uint64_t corr = reserve_partly();
    for (uint32_t no = 0; no < s.core->blocks_high; no++)
        if (s.core->blocks[no].state == BLOCK_PRESENT && s.core->blocks[no].parent == CORE_NONE)
            block_kill_tree(s.core, &s.core->blocks[no], KVC_MISS_CORRUPT); /* its bytes are bad */
    core_check(s.core);
    (void)turns_until(corr);
    ck_assert_uint_eq(sr_reservation(&s, corr), 0);
    ck_assert_uint_eq(
        core_metrics(s.core)->unevictable_bytes + core_metrics(s.core)->blocks_pending, 0);
    core_check(s.core);
}

/* Keys that are there take the hold along. */
CASE(what_is_there_is_held_until_the_next_slice)
{
    store_deep();
    const struct sr_blocks again = {.ns = ns, .chain = 3, .n = PART};
    s.core->cfg.slice_work = 4;
    const uint64_t corr = sr_reserve(&s, p, &again);
    for (unsigned n = 0; sr_replies(&s, corr) == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        ck_assert_uint_ge(core_metrics(s.core)->unevictable_bytes, n * 4 * 64);
        core_check(s.core);
        sr_turn(&s, 0);
    }
    s.core->cfg.slice_work = 34;
    (void)nothing_stays();
}

/* The block before them is not held when the first slice ends, for there is no room then. */
CASE(new_keys_are_not_refused_for_room_that_was_short_before)
{
    const struct sr_blocks first = {.ns = ns, .chain = 4, .n = 1};
    copies_until(sr_store(&s, q, &first));
    uint64_t *room = &s.core->unevictable_share.total, all = *room;
    const uint64_t touched = core_metrics(s.core)->blocks_touched;
    s.core->cfg.slice_work = 1;
    *room = 0;
    const uint64_t corr = sr_reserve(&s, p, &(struct sr_blocks){ns, 4, 0, 3, 0, NULL});
    for (unsigned n = 0; core_metrics(s.core)->blocks_touched == touched; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
    }
    ck_assert_uint_eq(core_metrics(s.core)->unevictable_bytes + sr_replies(&s, corr), 0);
    *room = all;
    (void)turns_until(corr);
    ck_assert_uint_eq(core_metrics(s.core)->blocks_pending, 2);
    (void)turns_until(sr_drop(&s, p, sr_reservation(&s, corr)));
    core_check(s.core);
}

CASE(a_chain_that_is_refused_each_time_is_not_climbed_for_ever)
{
    store_deep();
    uint64_t *room = &s.core->unevictable_share.total, all = *room;
    s.core->cfg.slice_work = 10;
    *room = 0;
    const uint64_t corr = sr_reserve(&s, p, &(struct sr_blocks){ns, 3, DEEP - 2, 4, 0, NULL});
    (void)turns_until(corr);
    ck_assert_uint_eq(sr_reservation(&s, corr), 0);
    *room = all;
    ck_assert_uint_eq(core_metrics(s.core)->unevictable_bytes, 0);
    core_check(s.core);
}

/* Called off, or its session goes, at each of its turns: the work of no turn is more for that. */
CASE(an_acquire_that_is_called_off_lets_go_in_slices)
{
    const struct sr_blocks all = {.ns = ns, .chain = 3, .n = DEEP};
    bool over = false;
    store_deep();
    for (unsigned turns = 0; !over; turns++) {
        const uint64_t corr = sr_acquire(&s, p, &all, false);
        for (unsigned i = 0; i < turns / 2; i++)
            sr_turn(&s, 0);
        over = sr_replies(&s, corr) > 0;
        uint64_t before = core_work(s.core);
        if (turns % 2 == 0)
            (void)sr_cancel(&s, p, corr);
        else
            sr_leave(&s, p);
        if (over && turns % 2 == 0)
            (void)sr_release(&s, p, sr_held(&s, corr).lease);
        for (unsigned n = 0, left = 1; left; n++) {
            ck_assert_uint_lt(n, TURNS);
            ck_assert_uint_le(core_work(s.core) - before, 3 * s.core_cfg.slice_work + 1);
            core_check(s.core);
            left = core_metrics(s.core)->unevictable_bytes > 0;
            before = core_work(s.core);
            sr_turn(&s, 0);
        }
        ck_assert_uint_eq(core_metrics(s.core)->leases + asks_hold(s.core) + s.kept, 0);
        if (turns % 2 == 1) {
            ck_assert_ptr_null(s.svc->sessions[0].client);
            p = sr_peer(&s, 0, SR_UID_ONE, 0);
            sr_turn(&s, 0);
        }
    }
}
