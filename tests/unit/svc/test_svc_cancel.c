/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines of copies, and CANCEL: its reply means that nothing touches staging any more. */
#include "cases.h"
#include "svc_rig.h"

static struct srig s;
static struct sr_peer *p;
static struct sr_blocks b;

static void setup(void)
{
    sr_defaults(&s);
    sr_begin(&s);
    p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    b = (struct sr_blocks){.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 2, .deadline_ms = 100};
}

static void teardown(void)
{
    sr_end(&s);
}

static bool found(uint64_t corr)
{
    struct msg_reply_head head;
    struct msg_cancel_reply reply;
    SR_READ(&s, corr, cancel, &head, &reply);
    return reply.found;
}

/* Ends the oldest copy as a copy worker would that has been asked to stop, or not. */
static void end_one(int status)
{
    fake_tier_end(s.tier, fake_tier_op(s.tier, 0), status);
    sr_turn(&s, 0);
}

CASES(.setup = setup, .teardown = teardown);

CASE(copies_that_hang_time_out_and_cancel_waits_for_them)
{
    uint64_t store = sr_store(&s, p, &b);
    sr_turn(&s, 99);
    ck_assert_uint_eq(sr_replies(&s, store), 0);
    sr_turn(&s, 3);
    ck_assert_uint_eq(sr_status(&s, store), KVC_ST_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(sr_detail(&s, store), "cancel"));
    uint64_t cancel = sr_cancel(&s, p, store);
    sr_turn(&s, 1000);
    ck_assert_uint_eq(sr_replies(&s, cancel), 0); /* staging is still being read */
    end_one(-ECANCELED);
    ck_assert_uint_eq(sr_replies(&s, cancel), 0);
    end_one(0);
    ck_assert(found(cancel));
    ck_assert_uint_eq(sr_replies(&s, store), 1);
    ck_assert_uint_lt(sr_order(&s, store), sr_order(&s, cancel));
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
    ck_assert_uint_eq(sr_metric(&s, "replies_timeout"), 1);
}

CASE(a_commit_times_out_like_a_store)
{
    uint64_t resv = sr_reservation(&s, sr_reserve(&s, p, &b));
    uint64_t commit = sr_commit(&s, p, resv, &b);
    sr_turn(&s, 102);
    ck_assert_uint_eq(sr_status(&s, commit), KVC_ST_TIMEOUT);
    sr_copies(&s);
    ck_assert_uint_eq(sr_replies(&s, commit), 1);
    ck_assert(!found(sr_cancel(&s, p, commit))); /* nothing left to end */
}

CASE(cancel_before_the_deadline_answers_the_target_first)
{
    uint64_t store = sr_store(&s, p, &b);
    uint64_t cancel = sr_cancel(&s, p, store);
    ck_assert_uint_eq(sr_replies(&s, store) + sr_replies(&s, cancel), 0);
    ck_assert(atomic_load(&fake_tier_op(s.tier, 0)->cancel));
    end_one(-ECANCELED);
    end_one(-ECANCELED);
    ck_assert_uint_eq(sr_status(&s, store), KVC_ST_CANCELLED);
    ck_assert(found(cancel));
    ck_assert_uint_lt(sr_order(&s, store), sr_order(&s, cancel));
    ck_assert_uint_eq(core_metrics(s.core)->blocks_pending, 0);
}

/* Who cancels is still owed the target's reply by its deadline, though copies hang. */
CASE(a_cancelled_store_is_answered_by_its_deadline)
{
    uint64_t store = sr_store(&s, p, &b);
    uint64_t cancel = sr_cancel(&s, p, store);
    sr_turn(&s, 102);
    ck_assert_uint_eq(sr_status(&s, store), KVC_ST_TIMEOUT);
    ck_assert_uint_eq(sr_replies(&s, cancel), 0);
    sr_copies(&s);
    ck_assert(found(cancel));
    ck_assert_uint_eq(sr_replies(&s, store), 1);
}

CASE(blocks_that_landed_before_the_cancel_stay)
{
    uint64_t store = sr_store(&s, p, &b);
    end_one(0);
    uint64_t cancel = sr_cancel(&s, p, store);
    end_one(-ECANCELED);
    ck_assert_uint_eq(sr_status(&s, store), KVC_ST_CANCELLED);
    ck_assert(found(cancel));
    ck_assert_uint_eq(sr_hit(&s, sr_lookup(&s, p, &b)), 8);
}

CASE(a_wait_is_cancelled_at_once)
{
    struct sr_peer *q = sr_peer(&s, 1, SR_UID_ONE, 0);
    (void)sr_reserve(&s, p, &b);
    uint64_t wait = sr_acquire(&s, q, &b, true);
    ck_assert(!found(sr_cancel(&s, p, wait))); /* it is the other session's */
    uint64_t cancel = sr_cancel(&s, q, wait);
    ck_assert_uint_eq(sr_status(&s, wait), KVC_ST_CANCELLED);
    ck_assert(found(cancel));
    ck_assert_uint_lt(sr_order(&s, wait), sr_order(&s, cancel));
    ck_assert_uint_eq(s.kept, 0);
    sr_turn(&s, 10000);
    ck_assert_uint_eq(sr_replies(&s, wait), 1);
}

CASE(an_eviction_is_cancelled_or_times_out)
{
    struct msg_evict all = {.flags = KVC_F_DRY_RUN};
    uint64_t a =
        sr_send(&s, p, codec_enc_evict(s.buf, sizeof(s.buf), sr_head(&s, KVC_OP_EVICT, 50), &all));
    uint64_t cancel = sr_cancel(&s, p, a);
    ck_assert_uint_eq(sr_status(&s, a), KVC_ST_CANCELLED);
    ck_assert(found(cancel));
    uint64_t c =
        sr_send(&s, p, codec_enc_evict(s.buf, sizeof(s.buf), sr_head(&s, KVC_OP_EVICT, 50), &all));
    s.now_ns += 60000000;
    core_tick(s.core, s.now_ns);
    svc_turn_begin(s.svc, s.now_ns); /* before any step of work */
    ck_assert_uint_eq(sr_status(&s, c), KVC_ST_TIMEOUT);
    sr_settle(&s);
    ck_assert_uint_eq(sr_replies(&s, a) + sr_replies(&s, c), 2);
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
}

CASE(nothing_to_cancel_and_a_second_cancel)
{
    ck_assert(!found(sr_cancel(&s, p, 4711)));
    uint64_t store = sr_store(&s, p, &b);
    uint64_t first = sr_cancel(&s, p, store), second = sr_cancel(&s, p, store);
    ck_assert_uint_eq(sr_status(&s, second), KVC_ST_BUSY);
    sr_copies(&s);
    ck_assert(found(first));
    ck_assert_uint_eq(sr_replies(&s, store), 1);
}

CASE(a_session_that_ends_in_the_middle_of_a_cancel)
{
    uint64_t store = sr_store(&s, p, &b);
    uint64_t cancel = sr_cancel(&s, p, store);
    sr_leave(&s, p);
    sr_turn(&s, 1000);
    sr_copies(&s);
    ck_assert_uint_eq(sr_replies(&s, store) + sr_replies(&s, cancel), 0);
    ck_assert(svc_is_empty(s.svc) && svc_is_quiet(s.svc));
}

/* A new session in the place of one whose copies are still running is another. */
CASE(late_copies_do_not_reach_a_successor)
{
    uint64_t store = sr_store(&s, p, &b);
    sr_leave(&s, p);
    struct sr_peer *q = sr_peer(&s, 2, SR_UID_TWO, 4096);
    unsigned before = s.nreplies;
    sr_copies(&s);
    ck_assert_uint_eq(s.nreplies, before);
    ck_assert_uint_eq(sr_replies(&s, store), 0);
    ck_assert_ptr_null(s.staging[0].mem);
    ck_assert_ptr_nonnull(s.staging[1].mem);
    ck_assert_uint_eq(sr_status(&s, sr_bare(&s, q, KVC_OP_PING)), KVC_ST_OK);
}
