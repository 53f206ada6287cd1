/* SPDX-License-Identifier: Apache-2.0 */
/* Lookup, leases, tickets and waiting. */
#include <stdlib.h>

#include "cases.h"
#include "core_rig.h"

static struct rig r;

static void setup(void)
{
    rig_defaults(&r);
    r.cfg.lease_bytes_max = 10 * 64;
    r.cfg.leases_max = 3;
    rig_begin(&r);
}

static void teardown(void)
{
    rig_end(&r);
}

/* The namespace of PROTOCOL.md's example: 16 full, 16 with a window of 32, 32 state. */
static struct core_ns *three_groups(void)
{
    struct core_ns_spec spec = rig_spec("hybrid", 16, 64);
    spec.ngroups = 3;
    spec.group[1] = (struct core_group){
        .block_tokens = 16, .block_bytes = 64, .rule = KVC_RULE_WINDOW, .window = 32};
    spec.group[2] =
        (struct core_group){.block_tokens = 32, .block_bytes = 64, .rule = KVC_RULE_STATE};
    return rig_ns(&r, 1, &spec);
}

static struct core_ns *one_group(void)
{
    struct core_ns_spec spec = rig_spec("plain", 8, 64);
    return rig_ns(&r, 1, &spec);
}

/* ---- hits ---- */

CASES(.setup = setup, .teardown = teardown);

CASE(the_example_of_the_protocol)
{
    struct core_ns *ns = three_groups();
    rig_store(&r, 1, ns, 0, 1, 0, 5);
    rig_store(&r, 1, ns, 1, 1001, 2, 4);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 96).tokens, 0);
    rig_store(&r, 1, ns, 2, 2001, 1, 1);
    struct core_prefix p = rig_lookup(&r, ns, 1, 96);
    ck_assert_uint_eq(p.tokens, 64);
    ck_assert_uint_eq(p.group[0].blocks, 5);
    ck_assert_uint_eq(p.group[1].blocks, 0);
    ck_assert_uint_eq(p.group[0].reason, KVC_MISS_NEVER);
    ck_assert_uint_eq(p.group[1].reason, KVC_MISS_OTHER_GROUP);
    ck_assert_uint_eq(p.group[2].reason, KVC_MISS_NEVER);
    struct core_held held = rig_acquire(&r, 1, ns, 1, 96);
    ck_assert_uint_eq(held.prefix.tokens, 64);
    ck_assert(held.group[0].first == 0 && held.group[0].n == 4);
    ck_assert(held.group[1].first == 2 && held.group[1].n == 2);
    ck_assert(held.group[2].first == 1 && held.group[2].n == 1);
    rig_check_lease(&r, 1, held.lease, 0);
}

CASE(a_partly_filled_block_hits_at_its_own_length_only)
{
    struct core_ns *ns = one_group();
    struct rig_put p = {.ns = ns, .chain = 1, .n = 3, .last_tokens = 5};
    struct rig_commit *m = malloc(sizeof(*m));
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, m), 1);
    (void)fake_tier_run(r.tier, 10, 0);
    rig_commit_free(m);
    free(m);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 21).tokens, 21);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 20).tokens, 16); /* other tokens, other block */
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 22).tokens, 16);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 24).tokens, 16);
    struct core_seq whole = rig_seq(ns, 1, 21);
    whole.n[0] = 2; /* the key of the last one is left out */
    struct core_prefix prefix;
    ck_assert_int_eq(core_lookup(r.core, &whole, false, &prefix, &r.why), 0);
    ck_assert_uint_eq(prefix.tokens, 16);
    ck_assert_uint_eq(prefix.group[0].reason, KVC_MISS_NONE);
}

CASE(sequences_that_do_not_fit_the_namespace_are_refused)
{
    struct core_ns *ns = one_group();
    struct core_prefix prefix;
    struct core_seq seq = rig_seq(ns, 1, 20);
    seq.n[0] = 1;
    ck_assert_int_eq(core_lookup(r.core, &seq, false, &prefix, &r.why), KVC_E_BAD_ARGUMENT);
    ck_assert_ptr_nonnull(r.why);
    seq.n[0] = 4;
    ck_assert_int_eq(core_lookup(r.core, &seq, false, &prefix, &r.why), KVC_E_BAD_ARGUMENT);
    seq = rig_seq(ns, 1, 20);
    seq.ngroups = 2;
    ck_assert_int_eq(core_lookup(r.core, &seq, false, &prefix, &r.why), KVC_E_BAD_ARGUMENT);
    seq = rig_seq(ns, 1, 0);
    ck_assert_int_eq(core_lookup(r.core, &seq, false, &prefix, &r.why), 0);
    ck_assert_uint_eq(prefix.tokens, 0);
}

CASE(a_lookup_has_no_side_effects_unless_it_touches)
{
    struct core_ns *ns = one_group();
    rig_store(&r, 1, ns, 0, 1, 0, 2);
    for (unsigned i = 0; i < 10; i++)
        rig_step(&r);
    (void)rig_lookup(&r, ns, 1, 16);
    ck_assert_uint_ge(rig_explain(&r, 1, 0, 1, 1).age_ms, 100);
    struct core_seq seq = rig_seq(ns, 1, 16);
    struct core_prefix prefix;
    ck_assert_int_eq(core_lookup(r.core, &seq, true, &prefix, &r.why), 0);
    ck_assert_uint_eq(rig_explain(&r, 1, 0, 1, 1).age_ms, 0);
    ck_assert_uint_eq(rig_explain(&r, 1, 0, 1, 0).age_ms, 0);
}

CASE(reasons_follow_the_life_of_a_block)
{
    struct core_ns *ns = one_group();
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 8).group[0].reason, KVC_MISS_NEVER);
    struct rig_put p = {.ns = ns, .chain = 1, .n = 1};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 8).group[0].reason, KVC_MISS_PENDING);
    ck_assert_int_eq(core_drop(r.core, r.cl[1], p.reservation), 0);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 8).group[0].reason, KVC_MISS_DROPPED);
    rig_store(&r, 1, ns, 0, 1, 0, 1);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 8).group[0].reason, KVC_MISS_NONE);
    struct core_evict_job job = {.client = r.cl[1]};
    rig_evict(&r, &job);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 8).group[0].reason, KVC_MISS_EVICTED);
}

/* ---- leases ---- */

CASE(from_tokens_leaves_out_what_the_worker_has)
{
    static const uint32_t want[][3] = {/* from, first, n */
                                       {0, 0, 4},
                                       {7, 0, 4},
                                       {8, 1, 3},
                                       {9, 1, 3},
                                       {31, 3, 1}};
    struct core_ns *ns = one_group();
    rig_store(&r, 1, ns, 0, 1, 0, 4);
    struct core_acquire in = {.seq = rig_seq(ns, 1, 32)};
    struct core_held held;
    for (unsigned i = 0; i < ARRAY_LEN(want); i++) {
        in.from_tokens = want[i][0];
        ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, NULL, &held, &r.why), 0);
        ck_assert_uint_eq(held.group[0].first, want[i][1]);
        ck_assert_uint_eq(held.group[0].n, want[i][2]);
        ck_assert_int_eq(core_release(r.core, r.cl[1], held.lease), 0);
    }
    in.from_tokens = 32;
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, NULL, &held, &r.why), 0);
    ck_assert(held.lease == 0 && held.prefix.tokens == 32);
}

/* What the worker has was not asked for, nor is anything by who asks for no engine. */
CASE(what_was_asked_for_is_counted_and_no_more)
{
    struct core_ns *ns = one_group();
    const struct core_metrics *m = core_metrics(r.core);
    rig_store(&r, 1, ns, 0, 1, 0, 4);
    struct core_acquire in = {.seq = rig_seq(ns, 1, 48), .from_tokens = 16, .unasked = true};
    struct core_held held;
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, NULL, &held, &r.why), 0);
        ck_assert_uint_eq(held.group[0].n, 2);
        ck_assert_int_eq(core_release(r.core, r.cl[1], held.lease), 0);
        ck_assert_uint_eq(m->acquires, i);
        in.unasked = false;
    }
    ck_assert(m->blocks_asked == 4 && m->blocks_hit == 2);
    ck_assert(m->tokens_hit == 16 && m->tokens_recomputed_by_miss == 16);
    in.seq = rig_seq(ns, 2, 48); /* nothing of it is there: what the worker has is no miss */
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, NULL, &held, &r.why), 0);
    ck_assert(m->tokens_hit == 16 && m->tokens_recomputed_by_miss == 16 + 32);
}

CASE(lease_bytes_and_leases_are_limited)
{
    struct core_ns *ns = one_group();
    rig_store(&r, 1, ns, 0, 1, 0, 6);
    struct core_held a = rig_acquire(&r, 1, ns, 1, 48), b;
    struct core_acquire in = {.seq = rig_seq(ns, 1, 40)};
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, NULL, &b, &r.why), KVC_E_LIMIT);
    ck_assert_uint_eq(core_client_lease_bytes(r.cl[1]), 6 * 64); /* all or nothing */
    in.seq = rig_seq(ns, 1, 32);
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, NULL, &b, &r.why), 0);
    struct core_held c = rig_acquire(&r, 2, ns, 1, 48); /* another client's are its own */
    ck_assert_int_eq(core_acquire(r.core, r.cl[2], &in, NULL, &b, &r.why), KVC_E_BUSY);
    ck_assert_int_eq(core_release(r.core, r.cl[2], a.lease), KVC_E_NO_LEASE);
    ck_assert_int_eq(core_release(r.core, r.cl[1], a.lease), 0);
    ck_assert_int_eq(core_release(r.core, r.cl[1], a.lease), KVC_E_NO_LEASE);
    ck_assert_int_eq(core_release(r.core, r.cl[2], c.lease), 0);
}

CASE(a_ticket_is_for_its_principal_and_as_long_as_its_lease)
{
    struct core_ns *ns = one_group();
    rig_store(&r, 1, ns, 0, 1, 0, 3);
    struct core_held a = rig_acquire(&r, 1, ns, 1, 24), b;
    ck_assert_int_eq(core_redeem(r.core, r.cl[3], a.ticket, &b), KVC_E_NO_LEASE);
    ck_assert_int_eq(core_redeem(r.core, r.cl[2], a.ticket, &b), 0);
    ck_assert_uint_eq(b.prefix.tokens, 24);
    ck_assert(b.group[0].first == 0 && b.group[0].n == 3 && b.lease != a.lease);
    for (unsigned i = 0; i < KVC_TICKET_BYTES; i++) {
        struct core_held c;
        a.ticket[i] ^= 0x40;
        ck_assert_int_eq(core_redeem(r.core, r.cl[2], a.ticket, &c), KVC_E_NO_LEASE);
        a.ticket[i] ^= 0x40;
    }
    ck_assert_int_eq(core_release(r.core, r.cl[1], a.lease), 0);
    struct core_held c;
    ck_assert_int_eq(core_redeem(r.core, r.cl[2], a.ticket, &c), KVC_E_NO_LEASE);
    rig_check_lease(&r, 2, b.lease, 0); /* outlives the first */
    ck_assert_int_eq(core_redeem(r.core, r.cl[1], b.ticket, &c), 0);
}

/* ---- waiting ---- */

struct waiter {
    struct core_waiter w; /* first */
    unsigned woken;
};

static void on_wake(struct core_waiter *w)
{
    ((struct waiter *)(void *)w)->woken++;
}

static int wait_for(struct core_ns *ns, uint32_t chain, uint32_t tokens, uint32_t enough,
                    struct waiter *w, struct core_held *held)
{
    struct core_acquire in = {
        .seq = rig_seq(ns, chain, tokens), .wait = true, .wait_tokens = enough};
    w->w.fn = on_wake;
    return core_acquire(r.core, r.cl[2], &in, &w->w, held, &r.why);
}

CASE(who_waits_is_woken_block_by_block)
{
    struct core_ns *ns = one_group();
    struct rig_put p = {.ns = ns, .chain = 1, .n = 3};
    struct rig_commit *m = malloc(sizeof(*m));
    struct waiter w = {.woken = 0};
    struct core_held held;
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(wait_for(ns, 1, 24, 16, &w, &held), 1);
    ck_assert_uint_eq(core_run_done(r.core), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, m), 1);
    fake_tier_end(r.tier, fake_tier_op(r.tier, 0), 0);
    ck_assert_uint_eq(w.woken, 0); /* not from inside */
    ck_assert_uint_eq(core_run_done(r.core), 1);
    ck_assert_uint_eq(w.woken, 1);
    ck_assert_int_eq(wait_for(ns, 1, 24, 16, &w, &held), 1); /* 8 are not enough */
    fake_tier_end(r.tier, fake_tier_op(r.tier, 0), 0);
    ck_assert_uint_eq(core_run_done(r.core), 1);
    ck_assert_int_eq(wait_for(ns, 1, 24, 16, &w, &held), 0);
    ck_assert_uint_eq(held.prefix.tokens, 16);
    fake_tier_end(r.tier, fake_tier_op(r.tier, 0), 0);
    rig_commit_free(m);
    free(m);
}

CASE(the_writers_end_ends_the_wait)
{
    struct core_ns *ns = one_group();
    struct rig_put p = {.ns = ns, .chain = 1, .n = 2};
    struct waiter w = {.woken = 0};
    struct core_held held;
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(wait_for(ns, 1, 16, 0, &w, &held), 1);
    rig_close(&r, 1);
    ck_assert_uint_eq(core_run_done(r.core), 1);
    ck_assert_int_eq(wait_for(ns, 1, 16, 0, &w, &held), 0);
    ck_assert(held.prefix.tokens == 0 && held.prefix.group[0].reason == KVC_MISS_DROPPED);
}

CASE(nobody_waits_for_what_nobody_writes)
{
    struct core_ns *ns = one_group();
    struct waiter w = {.woken = 0};
    struct core_held held;
    ck_assert_int_eq(wait_for(ns, 1, 16, 0, &w, &held), 0);
    struct rig_put p = {.ns = ns, .chain = 2, .n = 1};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(wait_for(ns, 2, 16, 8, &w, &held), 1);
    core_waiter_cancel(r.core, &w.w);
    core_waiter_cancel(r.core, &w.w); /* does no harm */
    ck_assert_int_eq(core_drop(r.core, r.cl[1], p.reservation), 0);
    ck_assert_uint_eq(core_run_done(r.core), 0);
    ck_assert_uint_eq(w.woken, 0);
}

/* Recurrent states are stored at some boundaries only; the ones that are left out do not end a wait
 * for a later one. */
CASE(a_wait_looks_beyond_states_that_nobody_writes)
{
    struct core_ns *ns = three_groups();
    struct waiter w = {.woken = 0};
    struct core_held held;
    rig_store(&r, 1, ns, 0, 1, 0, 6);
    rig_store(&r, 1, ns, 1, 1001, 0, 6);
    struct rig_put p = {.ns = ns, .group = 2, .chain = 2001, .first = 2, .n = 1};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(wait_for(ns, 1, 96, 0, &w, &held), 1);
    struct rig_commit *m = malloc(sizeof(*m));
    ck_assert_int_eq(rig_commit(&r, 1, &p, m), 1);
    (void)fake_tier_run(r.tier, 1, 0);
    ck_assert_uint_eq(core_run_done(r.core), 1);
    ck_assert_int_eq(wait_for(ns, 1, 96, 0, &w, &held), 0);
    ck_assert_uint_eq(held.prefix.tokens, 96);
    rig_commit_free(m);
    free(m);
}

/* Of two states that are being written, the one that makes enough is waited for, whichever lands
 * first. */
CASE_EACH(a_wait_is_for_what_makes_enough, 2)
{
    static const uint32_t enough[] = {96, 20};
    static const uint32_t lands[] = {2, 0};
    struct core_ns *ns = three_groups();
    struct waiter w = {.woken = 0};
    struct core_held held;
    struct rig_commit *m[2];
    rig_store(&r, 1, ns, 0, 1, 0, 6);
    rig_store(&r, 1, ns, 1, 1001, 0, 6);
    for (uint32_t i = 0; i < 2; i++) {
        struct rig_put p = {.ns = ns, .group = 2, .chain = 2001, .first = 2 * i, .n = 1};
        m[i] = malloc(sizeof(*m[i]));
        ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
        ck_assert_int_eq(rig_commit(&r, 1, &p, m[i]), 1);
    }
    ck_assert_int_eq(wait_for(ns, 1, 96, enough[_i], &w, &held), 1);
    fake_tier_end(r.tier, fake_tier_op(r.tier, lands[_i] / 2), 0);
    ck_assert_uint_eq(core_run_done(r.core), 1);
    ck_assert_int_eq(wait_for(ns, 1, 96, enough[_i], &w, &held), 0);
    ck_assert_uint_eq(held.prefix.tokens, (lands[_i] + 1) * 32);
    (void)fake_tier_run(r.tier, 10, 0);
    for (uint32_t i = 0; i < 2; i++) {
        rig_commit_free(m[i]);
        free(m[i]);
    }
}

#define MANY 1000u

/* One that waits elsewhere costs what lands nothing. */
CASE(who_waits_in_another_namespace_is_not_looked_at)
{
    static struct waiter many[MANY];
    struct core_held held;
    struct rig_commit *m = malloc(sizeof(*m));
    struct core_ns *there = one_group(), *here = three_groups();
    struct rig_put awaited = {.ns = there, .chain = 1, .n = 1};
    ck_assert_int_eq(rig_reserve(&r, 1, &awaited), 0);
    struct rig_put lands = {.ns = here, .group = 1, .chain = 1001, .n = 8};
    ck_assert_int_eq(rig_reserve(&r, 1, &lands), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &lands, m), 1);
    for (uint32_t i = 0; i < MANY; i++)
        ck_assert_int_eq(wait_for(there, 1, 8, 0, &many[i], &held), 1);
    const uint64_t before = core_work(r.core);
    ck_assert_uint_eq(fake_tier_run(r.tier, 8, 0), 8);
    ck_assert_uint_lt(core_work(r.core) - before, MANY);
    for (uint32_t i = 0; i < MANY; i++)
        core_waiter_cancel(r.core, &many[i].w);
    rig_commit_free(m);
    free(m);
}

/* What makes enough may be announced when the wait has begun, and land before what is waited for.
 */
CASE(a_state_that_was_announced_later_ends_the_wait_too)
{
    struct core_ns *ns = three_groups();
    struct waiter w = {.woken = 0};
    struct core_held held;
    rig_store(&r, 1, ns, 0, 1, 0, 6);
    rig_store(&r, 1, ns, 1, 1001, 0, 6);
    struct rig_put first = {.ns = ns, .group = 2, .chain = 2001, .first = 0, .n = 1};
    ck_assert_int_eq(rig_reserve(&r, 1, &first), 0);
    ck_assert_int_eq(wait_for(ns, 1, 96, 0, &w, &held), 1);
    rig_store(&r, 1, ns, 2, 2001, 2, 1);
    ck_assert_uint_eq(core_run_done(r.core), 1);
    ck_assert_int_eq(wait_for(ns, 1, 96, 0, &w, &held), 0);
    ck_assert_uint_eq(held.prefix.tokens, 96);
}

CASE(a_pending_block_that_cannot_help_is_not_waited_for)
{
    struct core_ns *ns = three_groups();
    struct waiter w = {.woken = 0};
    struct core_held held;
    struct rig_put p = {.ns = ns, .chain = 1, .n = 6};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(wait_for(ns, 1, 96, 0, &w, &held), 0); /* no window, no state */
    ck_assert_uint_eq(held.prefix.group[0].reason, KVC_MISS_PENDING);
}

CASE(a_half_stored_block_is_worth_waiting_for)
{
    struct core_ns_spec spec = rig_spec("two ranks", 8, 64);
    spec.shards = 2;
    struct core_ns *ns = rig_ns(&r, 1, &spec);
    struct waiter w = {.woken = 0};
    struct core_held held;
    rig_store(&r, 1, ns, 0, 1, 0, 1);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 8).tokens, 0);
    ck_assert_int_eq(wait_for(ns, 1, 8, 0, &w, &held), 1);
    rig_store_shards(&r, 1, ns, 0, 1, 0, 1);
    ck_assert_uint_eq(core_run_done(r.core), 1);
    ck_assert_int_eq(wait_for(ns, 1, 8, 0, &w, &held), 0);
    ck_assert_uint_eq(held.prefix.tokens, 8);
    rig_check_lease(&r, 2, held.lease, 0);
    rig_check_lease(&r, 2, held.lease, 1);
}
