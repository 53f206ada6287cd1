/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that take long go on in slices, and sessions and principals take turns at them. */
#include "turns_rig.h"

#define SLICE_BLOCKS 2u

static struct sr_blocks shorter;

/* A slice announces two blocks, or begins as many copies; a turn has one slice. */
static void setup(void)
{
    sr_defaults(&s);
    s.core_cfg.slice_work = 34;
    s.core_cfg.lease_bytes_max = 1u << 20;
    begin_turns();
    shorter = (struct sr_blocks){.ns = longer.ns, .chain = 2, .n = 1};
}

static void teardown(void)
{
    s.keep_fails = false;
    end_turns();
}

static uint64_t pending(void)
{
    return core_metrics(s.core)->blocks_pending;
}

/* Statuses of the reply to a RESERVE. */
static const uint8_t *reserved(uint64_t corr)
{
    static struct msg_reserve_reply reply;
    struct msg_reply_head head;
    SR_READ(&s, corr, reserve, &head, &reply);
    ck_assert_uint_eq(reply.statuses.n, LONG_BLOCKS);
    return reply.statuses.p;
}

CASES(.setup = setup, .teardown = teardown);

CASE(a_long_reserve_takes_a_slice_a_turn)
{
    const uint64_t corr = sr_reserve(&s, p, &longer);
    ck_assert_uint_eq(pending(), SLICE_BLOCKS);
    sr_turn(&s, 0);
    ck_assert_uint_eq(pending(), 2 * SLICE_BLOCKS);
    ck_assert_uint_eq(turns_until(corr), LONG_BLOCKS / SLICE_BLOCKS - 2);
    ck_assert_uint_eq(pending(), LONG_BLOCKS);
    ck_assert_uint_ne(sr_reservation(&s, corr), 0);
    ck_assert_uint_eq(s.kept, 0);
    ck_assert_uint_eq(svc_next_ns(s.svc) == 0, 0);
}

CASE(a_long_store_is_stored_as_if_in_one_piece)
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

CASE(a_long_commit_begins_its_copies_in_slices)
{
    const uint64_t resv = sr_reserve(&s, p, &longer);
    (void)turns_until(resv);
    const uint64_t corr = sr_commit(&s, p, sr_reservation(&s, resv), &longer);
    sr_turn(&s, 0);
    ck_assert_uint_lt(fake_tier_inflight(s.tier), LONG_BLOCKS / 2);
    copies_until(corr);
    sr_all(&s, corr, KVC_ST_OK);
}

CASE(others_are_served_between_two_slices)
{
    const uint64_t corr = sr_reserve(&s, p, &longer);
    sr_turn(&s, 0);
    for (unsigned i = 0; i < 3; i++) {
        const uint64_t look = sr_lookup(&s, q, &shorter);
        ck_assert_uint_le(turns_until(look), 2);
        ck_assert_uint_eq(sr_replies(&s, corr), 0);
    }
}

/* However much a turn may take. */
CASE(a_turn_begins_one_long_request)
{
    s.svc->cfg.turn_work = 1000;
    const uint64_t first = sr_reserve(&s, p, &longer), look = sr_lookup(&s, q, &shorter);
    struct sr_blocks other = longer;
    other.chain = 3;
    const uint64_t second = sr_reserve(&s, q, &other);
    ck_assert_uint_eq(pending(), SLICE_BLOCKS);
    ck_assert_uint_le(turns_until(look), 2);
    (void)turns_until(first);
    (void)turns_until(second);
    ck_assert_uint_eq(pending(), 2 * LONG_BLOCKS);
}

CASE(requests_of_one_session_keep_their_order)
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

/* Its session was dropped, though it had no more requests in flight than it may. */
CASE(requests_wait_until_replies_are_read)
{
    p->backlogged = true;
    const uint64_t resv = sr_reserve(&s, p, &longer), look = sr_lookup(&s, p, &shorter);
    const uint64_t off = sr_lookup(&s, p, &shorter), others = sr_lookup(&s, q, &shorter);
    for (unsigned i = 0; i < TURNS; i++)
        sr_turn(&s, 0);
    ck_assert_uint_eq(sr_status(&s, others), KVC_ST_OK);
    ck_assert_uint_eq(sr_replies(&s, resv) + sr_replies(&s, look) + sr_replies(&s, off), 0);
    ck_assert_uint_eq(pending(), 0);
    ck_assert_uint_gt(svc_next_ns(s.svc), s.now_ns); /* and no turn after the other */
    ck_assert_uint_le(svc_next_ns(s.svc), s.now_ns + 1000000);
    const uint64_t cancel = sr_cancel(&s, p, off);
    ck_assert_uint_eq(sr_status(&s, cancel), KVC_ST_OK);
    ck_assert_uint_eq(sr_status(&s, off), KVC_ST_CANCELLED);
    p->backlogged = false;
    ck_assert_uint_eq(svc_next_ns(s.svc), 0);
    (void)turns_until(look);
    ck_assert_uint_lt(sr_order(&s, resv), sr_order(&s, look));
    ck_assert_uint_eq(pending(), LONG_BLOCKS);
}

static void all_goes(void)
{
    while (core_has_steps(s.core))
        sr_turn(&s, 0);
    ck_assert_uint_eq(pending() + core_metrics(s.core)->reservations, 0);
}

CASE(cancel_between_two_slices_drops_what_was_reserved)
{
    const uint64_t ops[] = {sr_reserve(&s, p, &longer), sr_store(&s, p, &longer),
                            sr_lookup(&s, p, &shorter)};
    sr_turn(&s, 0);
    ck_assert_uint_eq(pending(), 2 * SLICE_BLOCKS);
    for (unsigned i = 3; i-- > 0;) {
        const uint64_t cancel = sr_cancel(&s, p, ops[i]);
        ck_assert_uint_eq(sr_status(&s, ops[i]), KVC_ST_CANCELLED);
        ck_assert_uint_lt(sr_order(&s, ops[i]), sr_order(&s, cancel));
    }
    ck_assert_uint_eq(sr_metric(&s, "calls") + s.kept, 0);
    all_goes();
}

/* How much a RESERVE has left that is cancelled between two slices. */
static uint64_t cancel_partly(void)
{
    const uint64_t corr = sr_reserve(&s, p, &longer);
    while (pending() < 30)
        sr_turn(&s, 0);
    (void)sr_cancel(&s, p, corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_CANCELLED);
    return pending();
}

CASE(a_long_reserve_that_is_cancelled_is_dropped_in_slices)
{
    const uint64_t before = cancel_partly();
    sr_turn(&s, 0);
    ck_assert(pending() < before && pending() > 0);
    all_goes();
}

CASE(who_reserves_what_a_cancelled_reserve_leaves_takes_it_over)
{
    (void)cancel_partly();
    const uint64_t again = sr_reserve(&s, q, &longer);
    (void)turns_until(again);
    for (uint32_t i = 0; i < LONG_BLOCKS; i++)
        ck_assert_uint_eq(reserved(again)[i], KVC_ST_OK);
    copies_until(sr_commit(&s, q, sr_reservation(&s, again), &longer));
    ck_assert_uint_eq(core_metrics(s.core)->blocks_present, LONG_BLOCKS);
}

CASE(a_long_drop_takes_a_slice_a_turn)
{
    const uint64_t resv = sr_reserve(&s, p, &longer);
    (void)turns_until(resv);
    const uint64_t corr = sr_drop(&s, p, sr_reservation(&s, resv));
    const uint64_t behind = sr_reserve(&s, p, &longer);
    sr_turn(&s, 0);
    ck_assert_uint_ge(pending(), LONG_BLOCKS / 2);
    (void)turns_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_OK);
    (void)turns_until(behind);
    ck_assert_uint_eq(reserved(behind)[LONG_BLOCKS - 1], KVC_ST_OK);
    const uint64_t last = sr_drop(&s, p, sr_reservation(&s, behind));
    sr_turn(&s, 0);
    (void)sr_cancel(&s, p, last);
    ck_assert_uint_eq(sr_status(&s, last), KVC_ST_OK);
    ck_assert_uint_eq(pending() + core_metrics(s.core)->reservations, 0);
}

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

CASE(cancel_among_the_copies_of_a_store_ends_with_those_that_were_begun)
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

/* _i: turns that it has had. Between its last key and its first copy it is cancelled as well. */
CASE_EACH(cancel_of_a_store_at_any_turn_leaves_nothing, LONG_BLOCKS / SLICE_BLOCKS + 4)
{
    const uint64_t corr = sr_store(&s, p, &longer);
    for (int i = 0; i < _i; i++)
        sr_turn(&s, 0);
    const uint64_t cancel = sr_cancel(&s, p, corr);
    for (unsigned n = 0; n < TURNS && sr_replies(&s, cancel) == 0; n++) {
        while (fake_tier_inflight(s.tier) > 0)
            fake_tier_end(s.tier, fake_tier_op(s.tier, 0), -ECANCELED);
        sr_turn(&s, 0);
    }
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_CANCELLED);
    sr_settle(&s);
    ck_assert_uint_eq(pending() + core_metrics(s.core)->reservations, 0);
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
    ck_assert_uint_eq(s.kept, 0);
}

CASE(a_deadline_between_two_slices_is_kept)
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

CASE(a_session_may_end_between_two_slices)
{
    const uint64_t corr = sr_store(&s, p, &longer);
    (void)sr_reserve(&s, p, &longer);
    sr_turn(&s, 0);
    sr_leave(&s, p);
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    all_goes();
    p = sr_peer(&s, 2, SR_UID_ONE, 4096);
    sr_turn(&s, 0);
    (void)store_into_copies(0);
    sr_leave(&s, p);
    sr_copies(&s);
    sr_settle(&s);
    ck_assert_uint_eq(core_metrics(s.core)->reservations + pending(), 0);
    ck_assert_uint_eq(s.kept, 0);
}

CASE(what_is_dropped_between_two_slices_breaks_the_chain)
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
    ck_assert_uint_eq(reserved(resv)[2], KVC_ST_GONE); /* there is no reservation that has it */
    ck_assert_uint_eq(sr_reservation(&s, resv), 0);
    ck_assert_uint_eq(reserved(resv)[LONG_BLOCKS - 1], KVC_ST_NO_PARENT);
    ck_assert_uint_eq(pending(), 0);
}

/* The same of a STORE: what it had announced has gone, and it says so. */
CASE(a_store_that_lost_all_between_two_slices_stored_nothing)
{
    struct sr_blocks head = longer;
    head.n = 2;
    const uint64_t above = sr_reserve(&s, q, &head);
    (void)turns_until(above);
    const uint64_t corr = sr_store(&s, p, &longer);
    sr_turn(&s, 0);
    (void)turns_until(sr_drop(&s, q, sr_reservation(&s, above)));
    copies_until(corr);
    static struct msg_commit_reply reply;
    struct msg_reply_head h;
    SR_READ(&s, corr, commit, &h, &reply);
    for (uint32_t i = 0; i < reply.statuses.n; i++)
        ck_assert_uint_ne(reply.statuses.p[i], KVC_ST_OK);
    ck_assert_uint_eq(core_metrics(s.core)->blocks_present, 0);
}

CASE(what_a_session_leaves_reserved_goes_in_slices)
{
    const uint64_t resv = sr_reserve(&s, p, &longer);
    (void)turns_until(resv);
    sr_turn(&s, 0);
    sr_leave(&s, p);
    ck_assert_uint_ge(pending(), LONG_BLOCKS / 2);
    ck_assert(core_has_steps(s.core));
    const uint64_t before = pending();
    sr_turn(&s, 0);
    ck_assert_uint_ge(pending() + 2 * SLICE_BLOCKS, before);
    ck_assert_uint_lt(pending(), before);
    ck_assert_ptr_nonnull(s.svc->sessions[0].client);
    for (unsigned i = 0; i < TURNS && core_has_steps(s.core); i++)
        sr_turn(&s, 0);
    ck_assert_uint_eq(pending() + core_metrics(s.core)->reservations, 0);
    ck_assert_ptr_null(s.svc->sessions[0].client);
}

/* Begun behind the turn's step of work, it needs no timer for the next. */
CASE(an_eviction_that_had_to_wait_is_work_to_do)
{
    const uint64_t resv = sr_reserve(&s, p, &longer);
    const struct msg_evict all = {.ns = longer.ns, .flags = KVC_F_DRY_RUN};
    const uint64_t corr = SR_SEND(&s, p, evict, EVICT, &all);
    (void)turns_until(resv);
    ck_assert(!core_has_steps(s.core));
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    ck_assert(core_has_steps(s.core));
    for (unsigned i = 0; i < TURNS && core_has_steps(s.core); i++)
        (void)core_background_step(s.core);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_OK);
}

/* Its first slice has begun copies, which read staging until they have ended. */
CASE(a_commit_that_cannot_be_kept_is_refused_behind_its_copies)
{
    const uint64_t resv = sr_reserve(&s, p, &longer);
    (void)turns_until(resv);
    sr_turn(&s, 0);
    s.keep_fails = true;
    const uint64_t corr = sr_commit(&s, p, sr_reservation(&s, resv), &longer);
    ck_assert_uint_gt(fake_tier_inflight(s.tier), 0);
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    while (fake_tier_inflight(s.tier) > 0)
        fake_tier_end(s.tier, fake_tier_op(s.tier, 0), -ECANCELED);
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_BUSY);
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
}

/* A slice looks at 34 keys that exist. */
CASE(what_was_found_stays_until_the_next_slice_builds_on_it)
{
    struct sr_blocks there = longer;
    there.n = 38;
    copies_until(sr_store(&s, q, &there));
    const uint64_t resv = sr_reserve(&s, p, &longer);
    const struct msg_evict all = {.ns = longer.ns};
    (void)SR_SEND(&s, q, evict, EVICT, &all);
    for (unsigned i = 0; sr_replies(&s, resv) == 0; i++) {
        sr_settle(&s);
        ck_assert_uint_lt(i, TURNS);
    }
    ck_assert_uint_eq(reserved(resv)[33], KVC_ST_EXISTS);
    ck_assert_uint_eq(reserved(resv)[LONG_BLOCKS - 1], KVC_ST_OK);
    ck_assert_uint_ge(core_metrics(s.core)->blocks_present, 34);
}

CASE(a_request_that_cannot_be_kept_is_refused_and_leaves_nothing)
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

/* Three sessions of one principal, each with a long request, have as much done for them together as
 * one session of another: whose request is through when theirs are at a third. */
CASE(principals_take_turns_by_work_and_so_do_their_sessions)
{
    struct sr_peer *all[] = {p, q, NULL, NULL};
    const unsigned n = 4, slices = LONG_BLOCKS / SLICE_BLOCKS;
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

/* ---- what is looked up in slices ---- */

CASE(a_long_lookup_finds_what_one_in_one_piece_finds)
{
    struct sr_blocks some = longer;
    some.n = LONG_BLOCKS - 3;
    copies_until(sr_store(&s, q, &some));
    sr_turn(&s, 0);
    const uint64_t corr = sr_lookup(&s, p, &longer);
    ck_assert_uint_ge(turns_until(corr), 1);
    ck_assert_uint_eq(sr_hit(&s, corr), some.n * 8);
    ck_assert_uint_eq(core_metrics(s.core)->lookups, 1);
    ck_assert_uint_eq(s.kept, 0);
}

CASE(a_long_acquire_holds_what_one_in_one_piece_holds)
{
    struct sr_blocks some = longer;
    some.n = LONG_BLOCKS - 3;
    copies_until(sr_store(&s, q, &some));
    sr_turn(&s, 0);
    const uint64_t corr = sr_acquire(&s, p, &longer, false);
    ck_assert_uint_ge(turns_until(corr), 2);
    const struct msg_acquire_reply held = sr_held(&s, corr);
    ck_assert_uint_eq(held.hit_tokens, some.n * 8);
    ck_assert_uint_eq(held.groups[0].first, 0);
    ck_assert_uint_eq(held.groups[0].locs.n, some.n * KVC_LOC_BYTES);
    ck_assert_uint_eq(held.groups[0].reason, KVC_MISS_NEVER);
    const struct core_metrics *m = core_metrics(s.core);
    ck_assert(m->acquires == 1 && m->tokens_hit == some.n * 8);
    ck_assert(m->leases == 1 && m->leased_bytes == some.n * 64);
    ck_assert_uint_eq(s.kept, 0);
}

CASE(what_a_long_acquire_found_is_not_evicted_before_it_is_held)
{
    store(&longer);
    const uint64_t corr = sr_acquire(&s, p, &longer, false);
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    evict_all();
    sr_turn(&s, 0);
    evict_all();
    (void)turns_until(corr);
    ck_assert_uint_ge(sr_held(&s, corr).hit_tokens, 34 * 8);
    ck_assert_uint_eq(core_metrics(s.core)->blocks_present, sr_held(&s, corr).hit_tokens / 8);
}

/* Their bytes are bad, for instance. */
CASE(what_has_gone_since_it_was_found_is_looked_up_again)
{
    store(&longer);
    const uint64_t corr = sr_acquire(&s, p, &longer, false);
    sr_turn(&s, 0);
    uint8_t key[KVC_KEY_BYTES];
    sr_key(longer.chain, 20, key);
    struct core_ns *ns = ns_by_id(s.core, longer.ns);
    block_kill_tree(s.core, index_get(s.core, ns, 0, key), KVC_MISS_CORRUPT);
    (void)turns_until(corr);
    ck_assert_uint_eq(sr_held(&s, corr).hit_tokens, 20 * 8);
    ck_assert_uint_eq(core_metrics(s.core)->leased_bytes, 20 * 64);
}

CASE(cancel_and_end_of_a_long_acquire_let_go_of_what_was_found)
{
    store(&longer);
    for (unsigned turns = 0; turns < 5; turns++) {
        const uint64_t corr = sr_acquire(&s, p, &longer, false);
        for (unsigned i = 0; i < turns && sr_replies(&s, corr) == 0; i++)
            sr_turn(&s, 0);
        (void)sr_cancel(&s, p, corr);
        if (sr_status(&s, corr) == KVC_ST_OK)
            (void)sr_release(&s, p, sr_held(&s, corr).lease);
        sr_turn(&s, 0);
        ck_assert_uint_eq(core_metrics(s.core)->leased_bytes, 0);
    }
    const uint64_t corr = sr_acquire(&s, p, &longer, false);
    (void)sr_lookup(&s, p, &longer);
    sr_turn(&s, 0);
    sr_leave(&s, p);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    evict_all();
    sr_turn(&s, 0);
    evict_all();
    ck_assert_uint_eq(core_metrics(s.core)->blocks_present, 0);
    sr_turn(&s, 0);
    ck_assert_uint_eq(s.kept, 0);
}

/* A lease of 40 blocks; a turn lets go of 34. */
CASE(a_large_lease_counts_no_more_at_once_and_lets_go_in_slices)
{
    store(&longer);
    const uint64_t corr = sr_acquire(&s, p, &longer, false);
    (void)turns_until(corr);
    const uint64_t release = sr_release(&s, p, sr_held(&s, corr).lease);
    sr_turn(&s, 2);
    ck_assert_uint_eq(sr_status(&s, release), KVC_ST_OK);
    ck_assert_uint_eq(core_metrics(s.core)->leased_bytes, 0);
    ck_assert_uint_eq(core_metrics(s.core)->leases, 1);
    const uint64_t again = sr_acquire(&s, p, &longer, false);
    (void)turns_until(again);
    sr_leave(&s, p); /* its session does not end before */
    ck_assert_uint_eq(core_client_lease_bytes(s.svc->sessions[0].client), 0);
    for (unsigned i = 0; i < 4; i++)
        sr_turn(&s, 0);
    ck_assert_ptr_null(s.svc->sessions[0].client);
    ck_assert_uint_eq(core_metrics(s.core)->leases, 0);
    evict_all();
    ck_assert_uint_eq(core_metrics(s.core)->blocks_present, 0);
    sr_turn(&s, 0);
}

static struct {
    unsigned pieces;
    uint32_t most;
} heard;

static bool on_request(struct policy *policy, const struct policy_request *request, uint64_t now_ms)
{
    (void)policy;
    (void)now_ms;
    const uint32_t most = request->part ? request->part->most : request->n;
    heard.pieces++;
    heard.most = MAX(heard.most, most);
    return request->part && ++request->part->state[0] * most < 2 * (uint64_t)request->n;
}

/* 40 blocks in pieces of a slice each, twice. */
CASE(the_policy_hears_of_a_long_acquire_in_slices)
{
    static struct policy_ops ops;
    ops = policy_lru;
    ops.request = on_request;
    heard.pieces = heard.most = 0;
    store(&longer);
    s.core->cfg.policy = &ops;
    const uint64_t corr = sr_acquire(&s, p, &longer, false);
    for (unsigned n = 0, before = 0; sr_replies(&s, corr) == 0; n++, before = heard.pieces) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
        ck_assert_uint_le(heard.pieces - before, 1);
    }
    ck_assert_uint_eq(heard.pieces, 3);
    ck_assert_uint_le(heard.most, 34);
    ck_assert_uint_eq(sr_held(&s, corr).hit_tokens, LONG_BLOCKS * 8);
}

/* Of an acquire of all blocks, to where a slice has told 32 of 40 locations. */
static uint64_t acquire_into_locs(void)
{
    s.core->cfg.slice_work = 4;
    const uint64_t corr = sr_acquire(&s, p, &longer, false);
    for (unsigned n = 0; !s.svc->long_locs.used[0]; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
    }
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    ck_assert_uint_eq(core_metrics(s.core)->leases, 1);
    return corr;
}

static void release(uint64_t corr)
{
    (void)turns_until(sr_release(&s, p, sr_held(&s, corr).lease));
}

CASE(locations_in_slices_are_those_in_one_piece)
{
    static uint8_t whole[LONG_BLOCKS * KVC_LOC_BYTES];
    store(&longer);
    const uint64_t first = sr_acquire(&s, p, &longer, false);
    (void)turns_until(first);
    memcpy(whole, sr_held(&s, first).groups[0].locs.p, sizeof whole);
    release(first);
    const uint64_t corr = acquire_into_locs();
    (void)turns_until(corr);
    const struct msg_acquire_reply held = sr_held(&s, corr);
    ck_assert_uint_eq(held.hit_tokens, LONG_BLOCKS * 8);
    ck_assert_uint_eq(held.groups[0].locs.n, sizeof whole);
    ck_assert_mem_eq(held.groups[0].locs.p, whole, sizeof whole);
    ck_assert(!s.svc->long_locs.used[0]);
    release(corr);
}

CASE(who_is_cancelled_or_leaves_among_its_locations_holds_nothing)
{
    store(&longer);
    const uint64_t corr = acquire_into_locs();
    (void)sr_cancel(&s, p, corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_CANCELLED);
    ck_assert_uint_eq(core_metrics(s.core)->leased_bytes, 0);
    ck_assert(!s.svc->long_locs.used[0]);
    for (unsigned i = 0; i < TURNS && core_metrics(s.core)->leases > 0; i++)
        sr_turn(&s, 0);
    longer.deadline_ms = 100;
    const uint64_t late = acquire_into_locs();
    sr_turn(&s, 102);
    (void)turns_until(late);
    ck_assert_uint_eq(sr_held(&s, late).hit_tokens, LONG_BLOCKS * 8);
    release(late);
    for (unsigned i = 0; i < TURNS && core_metrics(s.core)->leases > 0; i++)
        sr_turn(&s, 0);
    (void)acquire_into_locs();
    sr_leave(&s, p);
    for (unsigned i = 0; i < TURNS && core_metrics(s.core)->leases > 0; i++)
        sr_turn(&s, 0);
    ck_assert_uint_eq(core_metrics(s.core)->leases, 0);
    ck_assert(!s.svc->long_locs.used[0]);
    ck_assert_uint_eq(s.kept, 0);
}

/* The generation that would be told is that of now, after its bytes were found to be bad. */
CASE(what_goes_bad_among_the_locations_is_not_told)
{
    store(&longer);
    const uint64_t corr = acquire_into_locs();
    uint8_t key[KVC_KEY_BYTES];
    sr_key(longer.chain, 38, key);
    struct block *b = index_get(s.core, ns_by_id(s.core, longer.ns), 0, key);
    b->flags |= BLOCK_F_CORRUPT;
    block_kill_tree(s.core, b, KVC_MISS_CORRUPT);
    (void)turns_until(corr);
    ck_assert_uint_eq(sr_held(&s, corr).hit_tokens, 38 * 8);
    ck_assert_uint_eq(core_metrics(s.core)->leased_bytes, 38 * 64);
    release(corr);
}

static struct {
    unsigned pieces;
    uint32_t most, blocks;
} said;

static void on_advise(struct policy *policy, enum policy_advice advice, uint32_t within_ms,
                      const uint32_t *block, uint32_t n, uint64_t now_ms)
{
    said.pieces++;
    said.most = MAX(said.most, n);
    said.blocks += n;
    policy_lru.advise(policy, advice, within_ms, block, n, now_ms);
}

static uint64_t hint(const struct sr_blocks *b)
{
    uint8_t keys[LONG_BLOCKS * KVC_KEY_BYTES];
    struct msg_hint msg = {.seq = {.ns = b->ns, .tokens = b->n * 8, .ngroups = 1},
                           .kind = KVC_HINT_ENDED};
    for (uint32_t i = 0; i < b->n; i++)
        sr_key(b->chain, i, &keys[(size_t)i * KVC_KEY_BYTES]);
    msg.seq.keys[0] = (struct codec_bin){keys, b->n * KVC_KEY_BYTES};
    return SR_SEND(&s, p, hint, HINT, &msg);
}

CASE(a_long_hint_is_passed_on_in_slices)
{
    static struct policy_ops ops;
    ops = policy_lru;
    ops.advise = on_advise;
    memset(&said, 0, sizeof said);
    store(&longer);
    s.core->cfg.policy = &ops;
    const uint64_t corr = hint(&longer);
    for (unsigned n = 0, before = 0; sr_replies(&s, corr) == 0; n++, before = said.pieces) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
        ck_assert_uint_le(said.pieces - before, 1);
    }
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_OK);
    ck_assert_uint_eq(said.pieces, 2);
    ck_assert_uint_eq(said.blocks, LONG_BLOCKS);
    ck_assert_uint_le(said.most, 34);
    ck_assert_uint_eq(s.core->m.advice, 1);
    ck_assert_uint_eq(s.core->hinted[POLICY_ADVICE_ENDED], 1);
    ck_assert_uint_eq(s.kept, 0);
}

CASE(a_long_acquire_has_what_is_there_at_its_deadline)
{
    store(&longer);
    longer.deadline_ms = 100;
    const uint64_t corr = sr_acquire(&s, p, &longer, false), look = sr_lookup(&s, p, &longer);
    sr_turn(&s, 102);
    ck_assert_uint_eq(sr_status(&s, look), KVC_ST_TIMEOUT);
    (void)turns_until(corr);
    ck_assert_uint_eq(sr_held(&s, corr).hit_tokens, LONG_BLOCKS * 8);
}

/* ---- waiting ---- */

static struct sr_blocks last_one(void)
{
    struct sr_blocks last = longer;
    last.first = LONG_BLOCKS - 1;
    last.n = 1;
    return last;
}

static uint64_t reserve_last(void)
{
    const struct sr_blocks last = last_one();
    const uint64_t corr = sr_reserve(&s, q, &last);
    (void)turns_until(corr);
    return sr_reservation(&s, corr);
}

static void drop(uint64_t reservation)
{
    (void)turns_until(sr_drop(&s, q, reservation));
}

/* All blocks but the last are there, which is announced, and p waits for it. */
static uint64_t wait_for_last(uint64_t *ret_reservation)
{
    struct sr_blocks before = longer;
    before.n = LONG_BLOCKS - 1;
    copies_until(sr_store(&s, q, &before));
    sr_turn(&s, 0);
    *ret_reservation = reserve_last();
    const uint64_t corr = sr_acquire(&s, p, &longer, true);
    for (unsigned i = 0; svc_next_ns(s.svc) == 0; i++) {
        ck_assert_uint_lt(i, TURNS);
        sr_turn(&s, 0);
    }
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    ck_assert_uint_eq(core_metrics(s.core)->waits, 1);
    return corr;
}

/* Both before anybody else has a turn. */
static uint64_t drop_and_reserve(uint64_t reservation)
{
    struct core_client *cl = s.svc->sessions[1].client;
    uint8_t keys[2 * KVC_KEY_BYTES], status;
    const char *why;
    sr_key(longer.chain, LONG_BLOCKS - 2, keys);
    sr_key(longer.chain, LONG_BLOCKS - 1, keys + KVC_KEY_BYTES);
    const struct core_reserve in = {.ns = ns_by_id(s.core, longer.ns),
                                    .parent = keys,
                                    .first_token = (LONG_BLOCKS - 1) * 8,
                                    .keys = keys + KVC_KEY_BYTES,
                                    .n = 1};
    ck_assert_int_eq(core_drop(s.core, cl, reservation), 0);
    ck_assert_int_eq(core_reserve(s.core, cl, &in, &reservation, &status, &why), 0);
    ck_assert_uint_eq(status, KVC_ST_OK);
    return reservation;
}

CASE(who_waits_again_does_not_look_up_what_was_there)
{
    uint64_t resv;
    const uint64_t corr = wait_for_last(&resv);
    for (unsigned i = 0; i < 5; i++) {
        const uint64_t waits = core_metrics(s.core)->waits;
        resv = drop_and_reserve(resv);
        const uint64_t before = core_work(s.core);
        for (unsigned t = 0; t < 3; t++)
            sr_turn(&s, 0);
        ck_assert_uint_lt(core_work(s.core) - before, LONG_BLOCKS / 2);
        ck_assert_uint_eq(core_metrics(s.core)->waits, waits + 1);
        ck_assert_uint_eq(sr_replies(&s, corr), 0);
    }
    drop(resv);
    (void)turns_until(corr);
    ck_assert_uint_eq(sr_held(&s, corr).hit_tokens, (LONG_BLOCKS - 1) * 8);
}

CASE(what_a_long_wait_waits_for_comes)
{
    uint64_t resv;
    const uint64_t corr = wait_for_last(&resv);
    struct sr_blocks last = last_one();
    last.first = 0; /* of staging */
    copies_until(sr_commit(&s, q, resv, &last));
    (void)turns_until(corr);
    ck_assert_uint_eq(sr_held(&s, corr).hit_tokens, LONG_BLOCKS * 8);
}

CASE(a_long_wait_ends_at_its_deadline_or_when_it_is_cancelled)
{
    uint64_t resv;
    longer.deadline_ms = 100;
    const uint64_t corr = wait_for_last(&resv);
    sr_turn(&s, 102);
    (void)turns_until(corr);
    ck_assert_uint_eq(sr_held(&s, corr).hit_tokens, (LONG_BLOCKS - 1) * 8);
    longer.deadline_ms = 0;
    const uint64_t again = sr_acquire(&s, p, &longer, true);
    sr_turn(&s, 0);
    (void)sr_cancel(&s, p, again);
    ck_assert_uint_eq(sr_status(&s, again), KVC_ST_CANCELLED);
    drop(resv);
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
}

/* Woken when it has found what it waits for, and has not let go of the rest yet. */
CASE(who_is_woken_in_its_last_slice_asks_again)
{
    struct sr_blocks before = longer;
    before.n = LONG_BLOCKS - 1;
    copies_until(sr_store(&s, q, &before));
    sr_turn(&s, 0);
    const uint64_t resv = reserve_last();
    const uint64_t corr = sr_acquire(&s, p, &longer, true);
    while (core_metrics(s.core)->waits == 0)
        sr_turn(&s, 0);
    ck_assert_uint_eq(svc_next_ns(s.svc), 0);
    MUST(core_drop(s.core, s.svc->sessions[1].client, resv) == 0);
    (void)turns_until(corr);
    ck_assert_uint_eq(sr_held(&s, corr).hit_tokens, (LONG_BLOCKS - 1) * 8);
}
