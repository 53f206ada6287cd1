/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets of large leases are redeemed in slices: test_svc_turns.c has the other requests. */
#include <string.h>

#include "turns_rig.h"

#define SLICE 4u

static struct msg_acquire_reply first;
static uint8_t first_locs[LONG_BLOCKS * KVC_LOC_BYTES];
static uint64_t leased; /* by `first` alone */

static unsigned slices_until(uint64_t corr)
{
    unsigned n = 0;
    for (; sr_replies(&s, corr) == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        const uint64_t before = core_work(s.core);
        sr_turn(&s, 0);
        ck_assert_uint_le(core_work(s.core) - before, 2 * SLICE + 1);
    }
    return n;
}

/* p holds the chain, and told q its ticket. A turn has one slice of requests. */
static void setup(void)
{
    sr_defaults(&s);
    s.core_cfg.lease_bytes_max = 1u << 20;
    begin_turns();
    store(&longer);
    first = sr_held(&s, sr_acquire(&s, p, &longer, false));
    memcpy(first_locs, first.groups[0].locs.p, sizeof first_locs);
    leased = core_metrics(s.core)->leased_bytes;
    s.core->cfg.slice_work = SLICE;
}

static uint64_t redeem(uint32_t shard, uint32_t deadline_ms)
{
    struct msg_redeem msg = {.shard = shard};
    memcpy(msg.ticket, first.ticket, sizeof msg.ticket);
    return sr_send(
        &s, q,
        codec_enc_redeem(s.buf, sizeof s.buf, sr_head(&s, KVC_OP_REDEEM, deadline_ms), &msg));
}

/* Until some blocks are held twice, and others are not. */
static uint64_t redeem_partly(uint32_t deadline_ms)
{
    const uint64_t corr = redeem(0, deadline_ms);
    sr_turn(&s, 0);
    const uint64_t more = core_metrics(s.core)->leased_bytes - leased;
    ck_assert(more > 0 && more < leased);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    core_check(s.core);
    return corr;
}

/* Until its locations are being told. */
static uint64_t redeem_into_locs(void)
{
    const uint64_t corr = redeem(0, 0);
    for (unsigned n = 0; !s.svc->long_locs.used[0]; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
    }
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    return corr;
}

/* Of two leases one is left, or none, when what the other held is let go of. */
static void leases_are_left(uint64_t leases)
{
    for (unsigned n = 0; core_metrics(s.core)->leases > leases; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
    }
    ck_assert_uint_eq(core_metrics(s.core)->leased_bytes, leases * leased);
    ck_assert(!s.svc->long_locs.used[0]);
    no_call_is_left();
}

CASES(.setup = setup, .teardown = end_turns);

CASE(a_large_lease_is_redeemed_in_slices_as_in_one_piece)
{
    const uint64_t corr = redeem_partly(0);
    ck_assert_uint_ge(slices_until(corr), LONG_BLOCKS / SLICE - 2);
    const struct msg_acquire_reply held = sr_held(&s, corr);
    ck_assert(held.hit_tokens == LONG_BLOCKS * 8 && held.cached_tokens == held.hit_tokens);
    ck_assert_uint_eq(held.groups[0].locs.n, sizeof first_locs);
    ck_assert_mem_eq(held.groups[0].locs.p, first_locs, sizeof first_locs);
    ck_assert_uint_eq(core_metrics(s.core)->leased_bytes, 2 * leased);
    ck_assert_mem_ne(held.ticket, first.ticket, sizeof held.ticket);
    (void)slices_until(sr_release(&s, p, first.lease));
    leases_are_left(1);
    (void)slices_until(sr_release(&s, q, held.lease));
    leases_are_left(0);
}

CASE(who_is_cancelled_late_or_leaves_holds_nothing)
{
    uint64_t corr = redeem_partly(0);
    (void)sr_cancel(&s, q, corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_CANCELLED);
    leases_are_left(1);
    corr = redeem_into_locs();
    (void)sr_cancel(&s, q, corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_CANCELLED);
    leases_are_left(1);
    corr = redeem_partly(100);
    sr_turn(&s, 102);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_TIMEOUT);
    leases_are_left(1);
    (void)redeem_partly(0);
    sr_leave(&s, q);
    leases_are_left(1);
}

CASE(a_lease_that_ends_between_two_slices_is_not_redeemed)
{
    const uint64_t corr = redeem_partly(0);
    (void)sr_release(&s, p, first.lease);
    (void)slices_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_NO_LEASE);
    leases_are_left(0);
}

static void goes_bad(uint32_t i)
{
    uint8_t key[KVC_KEY_BYTES];
    sr_key(longer.chain, i, key);
    struct block *b = index_get(s.core, ns_by_id(s.core, longer.ns), 0, key);
    b->flags |= BLOCK_F_CORRUPT;
    block_kill_tree(s.core, b, KVC_MISS_CORRUPT);
}

/* Before it is held, and when it is. The generation that would be told is that of now. */
CASE(what_goes_bad_between_two_slices_is_not_told)
{
    uint64_t corr = redeem_into_locs();
    goes_bad(LONG_BLOCKS - 1);
    (void)slices_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_NO_LEASE);
    leases_are_left(1);
    corr = redeem(0, 0);
    (void)slices_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_NO_LEASE);
    leases_are_left(1);
}

/* There is no room to tell it in slices. */
CASE(what_goes_bad_is_not_told_at_once_either)
{
    for (unsigned i = 0; i < SVC_LONG_LOCS; i++)
        s.svc->long_locs.used[i] = true;
    uint64_t corr = redeem_partly(0);
    (void)slices_until(corr);
    ck_assert_mem_eq(sr_held(&s, corr).groups[0].locs.p, first_locs, sizeof first_locs);
    (void)slices_until(sr_release(&s, q, sr_held(&s, corr).lease));
    corr = redeem_partly(0);
    goes_bad(0);
    (void)slices_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_NO_LEASE);
    memset(s.svc->long_locs.used, 0, sizeof s.svc->long_locs.used);
    leases_are_left(1);
}

CASE(a_shard_that_is_not_there_is_refused)
{
    const uint64_t corr = redeem(5, 0);
    (void)slices_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_BAD_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(sr_detail(&s, corr), "fewer shards"));
    leases_are_left(1);
}

CASE(more_than_may_be_held_is_refused)
{
    s.core->cfg.lease_bytes_max = leased - 1;
    const uint64_t corr = redeem_partly(0);
    (void)slices_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_LIMIT);
    leases_are_left(1);
}
