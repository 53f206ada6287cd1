/* SPDX-License-Identifier: Apache-2.0 */
/* Time that jumps: by seconds (a stopped machine), hours, a month (one that slept), or that does
 * not pass at all. */
#include <stdlib.h>

#include "cases.h"
#include "svc_rig.h"

#define HOUR_MS UINT64_C(3600000)

static const uint64_t jumps_ms[] = {1, 7000, HOUR_MS, 24 * HOUR_MS, 31 * 24 * HOUR_MS};
#define JUMPS ((int)(sizeof jumps_ms / sizeof jumps_ms[0]))

static struct srig s;
static struct sr_peer *p;
static struct sr_blocks stored, pending;

static void setup(void)
{
    sr_defaults(&s);
    sr_begin(&s);
    p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    uint32_t ns = sr_ns(&s, p, "m");
    stored = (struct sr_blocks){.ns = ns, .chain = 1, .n = 2};
    pending = (struct sr_blocks){.ns = ns, .chain = 2, .n = 2, .deadline_ms = 1000};
    (void)sr_store(&s, p, &stored);
    sr_copies(&s);
    sr_turn(&s, 1);
}

static void teardown(void)
{
    sr_end(&s);
}

CASES(.setup = setup, .teardown = teardown);

CASE_EACH(a_wait_is_answered_once_when_time_has_passed_its_deadline, JUMPS)
{
    (void)sr_reserve(&s, p, &pending);
    uint64_t wait = sr_acquire(&s, p, &pending, true);
    sr_turn(&s, jumps_ms[_i]);
    ck_assert_uint_eq(sr_replies(&s, wait), jumps_ms[_i] > 1000);
    sr_turn(&s, jumps_ms[_i] + 1000);
    ck_assert_uint_eq(sr_replies(&s, wait), 1);
    ck_assert_uint_eq(sr_status(&s, wait), KVC_ST_OK);
    sr_turn(&s, 31 * 24 * HOUR_MS);
    ck_assert_uint_eq(sr_replies(&s, wait), 1);
}

CASE_EACH(a_store_is_told_timeout_and_its_copy_may_still_end, JUMPS)
{
    struct sr_blocks b = {.ns = stored.ns, .chain = 3, .n = 2, .deadline_ms = 1000};
    uint64_t store = sr_store(&s, p, &b);
    sr_turn(&s, jumps_ms[_i]);
    sr_turn(&s, 1001);
    ck_assert_uint_eq(sr_status(&s, store), KVC_ST_TIMEOUT);
    sr_copies(&s);
    sr_turn(&s, jumps_ms[_i]);
    ck_assert_uint_eq(sr_replies(&s, store), 1);
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
    ck_assert_uint_eq(core_metrics(s.core)->blocks_pending, 0);
}

CASE_EACH(leases_and_blocks_outlive_any_jump, JUMPS)
{
    struct msg_acquire_reply held = sr_held(&s, sr_acquire(&s, p, &stored, false));
    uint64_t lease = held.lease;
    sr_turn(&s, jumps_ms[_i]);
    ck_assert_uint_eq(core_metrics(s.core)->leases, 1);
    ck_assert_uint_eq(sr_hit(&s, sr_lookup(&s, p, &stored)), 16);
    ck_assert_uint_eq(sr_status(&s, sr_release(&s, p, lease)), KVC_ST_OK);
    ck_assert_uint_eq(core_metrics(s.core)->leases, 0);
}

CASE_EACH(deadlines_count_from_after_a_jump, JUMPS)
{
    (void)sr_reserve(&s, p, &pending);
    sr_turn(&s, jumps_ms[_i]);
    uint64_t wait = sr_acquire(&s, p, &pending, true);
    sr_turn(&s, 999);
    ck_assert_uint_eq(sr_replies(&s, wait), 0);
    ck_assert_uint_le(svc_next_ns(s.svc), s.now_ns + 2000000);
    sr_turn(&s, 2);
    ck_assert_uint_eq(sr_replies(&s, wait), 1);
}

CASE_EACH(who_says_nothing_is_dropped_after_a_jump, JUMPS)
{
    struct sr_peer *silent = sr_connect(&s, 1, SR_UID_ONE);
    sr_turn(&s, jumps_ms[_i]);
    ck_assert_int_eq(silent->closed, jumps_ms[_i] > 5000);
}

CASE(while_no_time_passes_nothing_expires_and_work_goes_on)
{
    (void)sr_reserve(&s, p, &pending);
    uint64_t wait = sr_acquire(&s, p, &pending, true);
    uint64_t next = svc_next_ns(s.svc);
    for (unsigned i = 0; i < 10000; i++)
        sr_turn(&s, 0);
    ck_assert_uint_eq(sr_replies(&s, wait), 0);
    ck_assert_uint_eq(svc_next_ns(s.svc), next);
    struct sr_blocks b = {.ns = stored.ns, .chain = 4, .n = 2};
    uint64_t store = sr_store(&s, p, &b);
    sr_copies(&s);
    sr_turn(&s, 0);
    sr_all(&s, store, KVC_ST_OK);
    ck_assert_uint_eq(sr_hit(&s, sr_lookup(&s, p, &b)), 16);
    ck_assert_uint_eq(sr_status(&s, sr_cancel(&s, p, wait)), KVC_ST_OK);
    ck_assert_uint_eq(sr_status(&s, wait), KVC_ST_CANCELLED);
}
