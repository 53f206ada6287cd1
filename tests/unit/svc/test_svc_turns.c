/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that take long go on in slices, and sessions and principals take turns at them. */
#include <check.h>

#include "check_run.h"
#include "svc_rig.h"

#define LONG_BLOCKS 40u
#define TURNS       40u /* more than any of them takes */

static struct srig s;
static struct sr_peer *p, *q;
static struct sr_blocks longer, shorter;

/* A slice announces four blocks, or begins five copies; a turn has one slice. */
static void setup(void)
{
    sr_defaults(&s);
    s.core_cfg.slice_work = 32;
    s.cfg.turn_work = 1;
    sr_begin(&s);
    p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    sr_turn(&s, 0);
    q = sr_peer(&s, 1, SR_UID_ONE, 4096);
    sr_turn(&s, 0);
    const uint32_t ns = sr_ns(&s, p, "m");
    sr_turn(&s, 0);
    longer = (struct sr_blocks){.ns = ns, .chain = 1, .n = LONG_BLOCKS};
    shorter = (struct sr_blocks){.ns = ns, .chain = 2, .n = 1};
}

static void teardown(void)
{
    s.keep_fails = false;
    sr_end(&s);
}

static uint64_t pending(void)
{
    return core_metrics(s.core)->blocks_pending;
}

/* Turns until it is answered; how many that took. */
static unsigned turns_until(uint64_t corr)
{
    unsigned n = 0;
    for (; sr_replies(&s, corr) == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
    }
    return n;
}

static void copies_until(uint64_t corr)
{
    for (unsigned n = 0; sr_replies(&s, corr) == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_copies(&s);
    }
}

/* Statuses of the reply to a RESERVE. */
static const uint8_t *reserved(uint64_t corr)
{
    static struct msg_reserve_reply reply;
    const struct sr_reply *r = sr_reply(&s, corr);
    struct msg_reply_head head;
    ck_assert_int_eq(codec_dec_reserve_reply(r->bytes, r->len, &head, &reply), 0);
    ck_assert_uint_eq(reply.statuses.n, LONG_BLOCKS);
    return reply.statuses.p;
}

START_TEST(a_long_reserve_takes_a_slice_a_turn)
{
    const uint64_t corr = sr_reserve(&s, p, &longer);
    ck_assert_uint_eq(pending(), 4);
    sr_turn(&s, 0);
    ck_assert_uint_eq(pending(), 8);
    ck_assert_uint_eq(turns_until(corr), LONG_BLOCKS / 4 - 2);
    ck_assert_uint_eq(pending(), LONG_BLOCKS);
    ck_assert_uint_ne(sr_reservation(&s, corr), 0);
    ck_assert_uint_eq(s.kept, 0);
    ck_assert_uint_eq(svc_next_ns(s.svc) == 0, 0);
}
END_TEST

START_TEST(a_long_store_is_stored_as_if_in_one_piece)
{
    const uint64_t corr = sr_store(&s, p, &longer);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    copies_until(corr);
    sr_all(&s, corr, KVC_ST_OK);
    ck_assert_uint_eq(core_metrics(s.core)->blocks_present, LONG_BLOCKS);
    ck_assert_uint_eq(core_metrics(s.core)->reservations, 0);
    const uint64_t again = sr_store(&s, p, &longer);
    copies_until(again);
    sr_all(&s, again, KVC_ST_EXISTS);
    ck_assert_uint_eq(s.kept, 0);
}
END_TEST

START_TEST(a_long_commit_begins_its_copies_in_slices)
{
    const uint64_t resv = sr_reserve(&s, p, &longer);
    (void)turns_until(resv);
    const uint64_t corr = sr_commit(&s, p, sr_reservation(&s, resv), &longer);
    sr_turn(&s, 0);
    ck_assert_uint_lt(fake_tier_inflight(s.tier), LONG_BLOCKS / 2);
    copies_until(corr);
    sr_all(&s, corr, KVC_ST_OK);
}
END_TEST

START_TEST(others_are_served_between_two_slices)
{
    const uint64_t corr = sr_reserve(&s, p, &longer);
    sr_turn(&s, 0);
    for (unsigned i = 0; i < 3; i++) {
        const uint64_t look = sr_lookup(&s, q, &shorter);
        ck_assert_uint_le(turns_until(look), 2);
        ck_assert_uint_eq(sr_replies(&s, corr), 0);
    }
}
END_TEST

START_TEST(requests_of_one_session_keep_their_order)
{
    const uint64_t resv = sr_reserve(&s, p, &longer);
    const uint64_t look = sr_lookup(&s, p, &shorter);
    const uint64_t again = sr_reserve(&s, p, &longer);
    (void)turns_until(again);
    ck_assert_uint_lt(sr_order(&s, resv), sr_order(&s, look));
    ck_assert_uint_lt(sr_order(&s, look), sr_order(&s, again));
    for (uint32_t i = 0; i < LONG_BLOCKS; i++)
        ck_assert_uint_eq(reserved(again)[i], KVC_ST_PENDING);
}
END_TEST

START_TEST(cancel_between_two_slices_drops_what_was_reserved)
{
    const uint64_t ops[] = {sr_reserve(&s, p, &longer), sr_store(&s, p, &longer),
                            sr_lookup(&s, p, &shorter)};
    sr_turn(&s, 0);
    ck_assert_uint_eq(pending(), 8);
    for (unsigned i = 3; i-- > 0;) {
        const uint64_t cancel = sr_cancel(&s, p, ops[i]);
        ck_assert_uint_eq(sr_status(&s, ops[i]), KVC_ST_CANCELLED);
        ck_assert_uint_lt(sr_order(&s, ops[i]), sr_order(&s, cancel));
    }
    ck_assert_uint_eq(pending(), 0);
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
    ck_assert_uint_eq(s.kept, 0);
}
END_TEST

/* Into its copies, of which some are under way. */
static uint64_t store_into_copies(uint32_t deadline_ms)
{
    longer.deadline_ms = deadline_ms;
    const uint64_t corr = sr_store(&s, p, &longer);
    for (unsigned n = 0; fake_tier_inflight(s.tier) == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
    }
    ck_assert_uint_lt(fake_tier_inflight(s.tier), LONG_BLOCKS - 1);
    return corr;
}

START_TEST(cancel_among_the_copies_of_a_store_ends_with_those_that_were_begun)
{
    const uint64_t corr = store_into_copies(0), cancel = sr_cancel(&s, p, corr);
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_replies(&s, corr) + sr_replies(&s, cancel), 0); /* staging is being read */
    while (fake_tier_inflight(s.tier) > 0)
        fake_tier_end(s.tier, fake_tier_op(s.tier, 0), -ECANCELED);
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_CANCELLED);
    ck_assert_uint_eq(sr_replies(&s, cancel), 1);
    sr_settle(&s);
    ck_assert_uint_eq(pending(), 0);
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
}
END_TEST

START_TEST(a_deadline_between_two_slices_is_kept)
{
    longer.deadline_ms = 100;
    const uint64_t resv = sr_reserve(&s, p, &longer), behind = sr_store(&s, p, &longer);
    sr_turn(&s, 102);
    ck_assert_uint_eq(sr_status(&s, resv), KVC_ST_TIMEOUT);
    ck_assert_uint_eq(sr_status(&s, behind), KVC_ST_TIMEOUT);
    ck_assert_uint_eq(pending(), 0);
    const uint64_t store = store_into_copies(100);
    sr_turn(&s, 102);
    ck_assert_uint_eq(sr_status(&s, store), KVC_ST_TIMEOUT);
    sr_copies(&s);
    ck_assert_uint_eq(sr_replies(&s, store), 1);
    sr_settle(&s);
    ck_assert_uint_eq(pending(), 0);
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
}
END_TEST

START_TEST(a_session_may_end_between_two_slices)
{
    const uint64_t corr = sr_store(&s, p, &longer);
    (void)sr_reserve(&s, p, &longer);
    sr_turn(&s, 0);
    sr_leave(&s, p);
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    ck_assert_uint_eq(core_metrics(s.core)->reservations, 0);
    p = sr_peer(&s, 2, SR_UID_ONE, 4096);
    sr_turn(&s, 0);
    (void)store_into_copies(0);
    sr_leave(&s, p);
    sr_copies(&s);
    sr_settle(&s);
    ck_assert_uint_eq(core_metrics(s.core)->reservations + pending(), 0);
    ck_assert_uint_eq(s.kept, 0);
}
END_TEST

START_TEST(what_is_dropped_between_two_slices_breaks_the_chain)
{
    struct sr_blocks head = longer;
    head.n = 2;
    const uint64_t above = sr_reserve(&s, q, &head);
    (void)turns_until(above);
    const uint64_t resv = sr_reserve(&s, p, &longer);
    sr_turn(&s, 0);
    ck_assert_uint_gt(pending(), 2);
    const uint64_t drop = sr_drop(&s, q, sr_reservation(&s, above));
    (void)turns_until(drop);
    ck_assert_uint_eq(sr_replies(&s, resv), 0);
    (void)turns_until(resv);
    ck_assert_uint_eq(reserved(resv)[0], KVC_ST_PENDING);
    ck_assert_uint_eq(reserved(resv)[2], KVC_ST_OK);
    ck_assert_uint_eq(reserved(resv)[LONG_BLOCKS - 1], KVC_ST_NO_PARENT);
    ck_assert_uint_eq(pending(), 0);
}
END_TEST

/* A slice looks at 32 keys that exist. */
START_TEST(what_was_found_stays_until_the_next_slice_builds_on_it)
{
    struct sr_blocks there = longer;
    there.n = 34;
    copies_until(sr_store(&s, q, &there));
    const uint64_t resv = sr_reserve(&s, p, &longer);
    const struct msg_evict all = {.ns = longer.ns};
    (void)sr_send(&s, q, codec_enc_evict(s.buf, sizeof s.buf, sr_head(&s, KVC_OP_EVICT, 0), &all));
    for (unsigned i = 0; sr_replies(&s, resv) == 0; i++) {
        sr_settle(&s);
        ck_assert_uint_lt(i, TURNS);
    }
    ck_assert_uint_eq(reserved(resv)[31], KVC_ST_EXISTS);
    ck_assert_uint_eq(reserved(resv)[LONG_BLOCKS - 1], KVC_ST_OK);
    ck_assert_uint_ge(core_metrics(s.core)->blocks_present, 32);
}
END_TEST

START_TEST(a_request_that_cannot_be_kept_is_refused_and_leaves_nothing)
{
    s.keep_fails = true;
    const uint64_t resv = sr_reserve(&s, p, &longer);
    ck_assert_uint_eq(sr_status(&s, resv), KVC_ST_BUSY);
    sr_turn(&s, 0);
    const uint64_t store = sr_store(&s, p, &longer);
    ck_assert_uint_eq(sr_status(&s, store), KVC_ST_BUSY);
    const uint64_t look = sr_lookup(&s, p, &shorter); /* the turn is over */
    ck_assert_uint_eq(sr_status(&s, look), KVC_ST_BUSY);
    ck_assert_uint_eq(pending(), 0);
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
}
END_TEST

/* Three sessions of one principal, each with a long request, have as much done for them together as
 * one session of another: whose request is through when theirs are at a third. */
START_TEST(principals_take_turns_by_work_and_so_do_their_sessions)
{
    struct sr_peer *all[] = {p, q, NULL, NULL};
    const unsigned n = 4, slices = LONG_BLOCKS / 4;
    uint64_t corr[4];
    struct sr_blocks b = longer;
    all[2] = sr_peer(&s, 2, SR_UID_ONE, 0);
    sr_turn(&s, 0);
    all[3] = sr_peer(&s, 3, SR_UID_TWO, 0);
    sr_turn(&s, 0);
    const uint32_t ns = sr_ns(&s, all[3], "m");
    sr_turn(&s, 0);
    for (unsigned i = 0; i < n; i++) {
        b.chain = 10 + i;
        b.ns = i < n - 1 ? longer.ns : ns;
        corr[i] = sr_reserve(&s, all[i], &b);
    }
    ck_assert_uint_le(turns_until(corr[n - 1]), 2 * slices + 2);
    for (unsigned i = 0; i < n - 1; i++)
        ck_assert_uint_eq(sr_replies(&s, corr[i]), 0);
    ck_assert_uint_ge(pending(), 2 * LONG_BLOCKS - 8);
    ck_assert_uint_le(pending(), 2 * LONG_BLOCKS + 8);
    const unsigned first = turns_until(corr[0]);
    ck_assert_uint_le(turns_until(corr[1]) + turns_until(corr[2]), 4);
    ck_assert_uint_ge(first, 2 * slices - 4); /* not one after the other */
}
END_TEST

int main(void)
{
    Suite *su = suite_create("turns");
    TCase *t = tcase_create("turns");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_long_reserve_takes_a_slice_a_turn);
    tcase_add_test(t, a_long_store_is_stored_as_if_in_one_piece);
    tcase_add_test(t, a_long_commit_begins_its_copies_in_slices);
    tcase_add_test(t, others_are_served_between_two_slices);
    tcase_add_test(t, requests_of_one_session_keep_their_order);
    tcase_add_test(t, cancel_between_two_slices_drops_what_was_reserved);
    tcase_add_test(t, cancel_among_the_copies_of_a_store_ends_with_those_that_were_begun);
    tcase_add_test(t, a_deadline_between_two_slices_is_kept);
    tcase_add_test(t, a_session_may_end_between_two_slices);
    tcase_add_test(t, what_is_dropped_between_two_slices_breaks_the_chain);
    tcase_add_test(t, what_was_found_stays_until_the_next_slice_builds_on_it);
    tcase_add_test(t, a_request_that_cannot_be_kept_is_refused_and_leaves_nothing);
    tcase_add_test(t, principals_take_turns_by_work_and_so_do_their_sessions);
    suite_add_tcase(su, t);
    return check_run(su);
}
