/* SPDX-License-Identifier: Apache-2.0 */
/* Writers that announce blocks and then hang. */
#include <stdlib.h>

#include "cases.h"
#include "core_rig.h"

#define MOST_MS 30000u

static struct rig r;
static struct core_ns *ns;
static struct rig_commit *m, *late;

static void setup(void)
{
    rig_defaults(&r);
    r.cfg.progress_ms = MOST_MS;
    rig_begin(&r);
    struct core_ns_spec spec = rig_spec("m", 8, 64);
    ns = rig_ns(&r, 1, &spec);
    m = calloc(1, sizeof(*m));
    late = calloc(1, sizeof(*late));
    ck_assert(m != NULL && late != NULL);
}

static void teardown(void)
{
    rig_end(&r);
    rig_commit_free(m);
    rig_commit_free(late);
    free(m);
    free(late);
}

static void pass(uint64_t ms)
{
    r.now_ns += ms * 1000000;
    core_tick(r.core, r.now_ns);
    (void)core_background_step(r.core);
    core_check(r.core);
}

static void on_wake(struct core_waiter *w)
{
    (void)w;
}

static int wait_for(uint32_t chain, struct core_waiter *w, struct core_held *held)
{
    const struct core_acquire in = {.seq = rig_seq(ns, chain, 16), .wait = true};
    *w = (struct core_waiter){.fn = on_wake};
    return core_acquire(r.core, r.cl[2], &in, w, held, &r.why);
}

static void reserve(unsigned client, uint32_t chain, uint32_t n, struct rig_put *p)
{
    *p = (struct rig_put){.ns = ns, .chain = chain, .n = n};
    ck_assert_int_eq(rig_reserve(&r, client, p), 0);
}

static void commit(unsigned client, const struct rig_put *p)
{
    rig_commit_free(m);
    memset(m, 0, sizeof(*m));
    ck_assert_int_eq(rig_commit(&r, client, p, m), 1);
    while (fake_tier_inflight(r.tier) > 0)
        (void)fake_tier_run(r.tier, 1000, 0);
    for (uint32_t i = 0; i < p->n; i++)
        ck_assert_uint_eq(m->statuses[i], KVC_ST_OK);
}

CASES(.setup = setup, .teardown = teardown);

CASE(who_waits_is_told_when_the_writer_is_late)
{
    struct rig_put p;
    struct core_waiter w;
    struct core_held held;
    reserve(1, 1, 2, &p);
    ck_assert_int_eq(wait_for(1, &w, &held), 1);
    pass(MOST_MS - 1);
    ck_assert_uint_eq(core_run_done(r.core), 0);
    pass(100);
    ck_assert_uint_eq(core_run_done(r.core), 1);
    ck_assert_int_eq(wait_for(1, &w, &held), 0); /* and waits no more */
    ck_assert_uint_eq(held.prefix.tokens, 0);
    ck_assert_uint_eq(held.prefix.group[0].reason, KVC_MISS_DROPPED);
}

CASE(another_stores_what_the_late_one_announced_and_the_late_one_is_told)
{
    struct rig_put p, other;
    reserve(1, 1, 2, &p);
    reserve(2, 1, 2, &other);
    ck_assert_uint_eq(other.statuses[0], KVC_ST_PENDING);
    pass(MOST_MS);
    reserve(2, 1, 2, &other);
    ck_assert(other.statuses[0] == KVC_ST_OK && other.statuses[1] == KVC_ST_OK);
    core_check(r.core);
    ck_assert_uint_eq(core_metrics(r.core)->blocks_taken_over, 2);
    struct core_waiter w;
    struct core_held held;
    ck_assert_int_eq(wait_for(1, &w, &held), 1); /* somebody stores it again */
    commit(2, &other);
    ck_assert_uint_eq(core_run_done(r.core), 1);
    ck_assert_int_eq(rig_commit(&r, 1, &p, late), KVC_E_GONE);
    struct core_held got = rig_acquire(&r, 2, ns, 1, 16);
    ck_assert_uint_eq(got.prefix.tokens, 16);
    rig_check_lease(&r, 2, got.lease, 0);
}

/* Of a reservation of which others took one block alone. */
CASE(what_nobody_took_over_is_still_the_late_one_s)
{
    struct rig_put p, other;
    reserve(1, 1, 2, &p);
    pass(MOST_MS);
    reserve(2, 1, 1, &other);
    commit(2, &other);
    ck_assert_int_eq(rig_commit(&r, 1, &p, late), 1);
    while (fake_tier_inflight(r.tier) > 0)
        (void)fake_tier_run(r.tier, 1000, 0);
    ck_assert_uint_eq(late->statuses[0], KVC_ST_GONE);
    ck_assert_uint_eq(late->statuses[1], KVC_ST_OK);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 16).tokens, 16);
}

CASE(a_late_commit_counts_when_nobody_was_quicker)
{
    struct rig_put p;
    reserve(1, 1, 2, &p);
    pass(10 * MOST_MS);
    commit(1, &p);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 16).tokens, 16);
}

/* Commits of its session renew the time of all that it has reserved. */
CASE(progress_renews_the_time)
{
    struct rig_put p, own, other;
    reserve(1, 1, 2, &p);
    for (uint32_t i = 0; i < 4; i++) {
        pass(MOST_MS / 2);
        reserve(1, 100 + i, 1, &own);
        commit(1, &own);
        reserve(2, 1, 2, &other);
        ck_assert_uint_eq(other.statuses[0], KVC_ST_PENDING);
    }
}

/* A writer whose steps take 100 ms has less than one of which nothing is known, and not nothing. */
CASE(the_time_is_a_multiple_of_the_writer_s_own_steps)
{
    struct rig_put p, other;
    reserve(1, 9, 1, &p);
    pass(100);
    commit(1, &p);
    reserve(1, 1, 2, &p);
    pass(1000);
    reserve(2, 1, 2, &other);
    ck_assert_uint_eq(other.statuses[0], KVC_ST_PENDING);
    pass(MOST_MS / 10);
    reserve(2, 1, 2, &other);
    ck_assert_uint_eq(other.statuses[0], KVC_ST_OK);
}

/* What is being copied has the deadline of its copies. */
CASE(what_is_being_copied_is_in_progress)
{
    struct rig_put p, other;
    reserve(1, 1, 2, &p);
    ck_assert_int_eq(rig_commit(&r, 1, &p, late), 1);
    pass(10 * MOST_MS);
    reserve(2, 1, 2, &other);
    ck_assert(other.statuses[0] == KVC_ST_PENDING && other.statuses[1] == KVC_ST_PENDING);
    while (fake_tier_inflight(r.tier) > 0)
        (void)fake_tier_run(r.tier, 1000, 0);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 16).tokens, 16);
}

static void of_shards(uint32_t shards)
{
    struct core_ns_spec spec = rig_spec("several", 8, 64);
    spec.shards = shards;
    ns = rig_ns(&r, 1, &spec);
}

static uint8_t reserve_shard(unsigned client, uint32_t shard, struct rig_put *p)
{
    *p = (struct rig_put){.ns = ns, .chain = 1, .n = 2, .shard = shard};
    ck_assert_int_eq(rig_reserve(&r, client, p), 0);
    ck_assert_uint_eq(p->statuses[0], p->statuses[1]);
    return p->statuses[0];
}

static void store_shard(unsigned client, uint32_t shard)
{
    struct rig_put p;
    ck_assert_uint_eq(reserve_shard(client, shard, &p), KVC_ST_OK);
    commit(client, &p);
}

/* Its writer is gone, and who stores again what is there renews nothing. */
CASE(a_block_of_which_a_rank_never_begins_is_waited_for_so_long)
{
    struct rig_put again;
    struct core_waiter w;
    struct core_held held;
    of_shards(2);
    store_shard(1, 0);
    rig_close(&r, 1);
    ck_assert_int_eq(wait_for(1, &w, &held), 1);
    pass(MOST_MS / 2);
    ck_assert_uint_eq(reserve_shard(3, 0, &again), KVC_ST_PENDING);
    pass(MOST_MS / 2 - 100);
    ck_assert_uint_eq(core_run_done(r.core), 0);
    pass(200);
    ck_assert_uint_eq(core_run_done(r.core), 1);
    ck_assert_int_eq(wait_for(1, &w, &held), 0);
    ck_assert_uint_eq(held.prefix.group[0].reason, KVC_MISS_DROPPED);
}

CASE(a_rank_that_comes_later_completes_its_block)
{
    struct rig_put p;
    struct core_waiter w;
    struct core_held held;
    of_shards(2);
    store_shard(1, 0);
    pass(10 * MOST_MS);
    ck_assert_int_eq(wait_for(1, &w, &held), 0);
    ck_assert_uint_eq(reserve_shard(2, 1, &p), KVC_ST_OK);
    ck_assert_int_eq(wait_for(1, &w, &held), 1); /* somebody stores it again */
    commit(2, &p);
    ck_assert_uint_eq(core_run_done(r.core), 1);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 16).tokens, 16);
}

CASE(each_rank_that_claims_or_lands_renews_the_time)
{
    struct rig_put p;
    struct core_waiter w;
    struct core_held held;
    of_shards(3);
    store_shard(1, 0);
    pass(MOST_MS - 1000);
    ck_assert_uint_eq(reserve_shard(2, 1, &p), KVC_ST_OK);
    pass(MOST_MS - 1000);
    ck_assert_int_eq(wait_for(1, &w, &held), 1);
    commit(2, &p);
    pass(MOST_MS - 1000);
    ck_assert_uint_eq(core_run_done(r.core), 0);
    pass(2000);
    ck_assert_uint_eq(core_run_done(r.core), 1);
}

CASE(the_oldest_lease_and_reservation_are_told)
{
    struct rig_put p;
    rig_store(&r, 1, ns, 0, 1, 0, 1);
    pass(100);
    struct core_held held = rig_acquire(&r, 2, ns, 1, 8);
    pass(5000);
    reserve(1, 2, 1, &p);
    (void)rig_acquire(&r, 2, ns, 1, 8);
    pass(1000);
    ck_assert_uint_eq(core_metrics(r.core)->lease_oldest_ms, 6000);
    ck_assert_uint_eq(core_metrics(r.core)->reservation_oldest_ms, 1000);
    rig_release(&r, 2, &held);
    ck_assert_int_eq(core_drop(r.core, r.cl[1], p.reservation), 0);
    pass(1000);
    ck_assert_uint_eq(core_metrics(r.core)->lease_oldest_ms, 2000);
    ck_assert_uint_eq(core_metrics(r.core)->reservation_oldest_ms, 0);
}
