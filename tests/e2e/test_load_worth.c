/* SPDX-License-Identifier: Apache-2.0 */
/* What is worth loading, requests that leave no trace, hints: with two tiers. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cases.h"
#include "rig.h"

#define BT     16u
#define BYTES  8192u
#define MIB    (1u << 20)
#define CHAIN  512u /* blocks: a prompt of 8,192 tokens, 4 MiB */
#define CHAINS 8u   /* twice what memory holds */
#define LONG   60000u

/* A token in 40 us, so that the prompt takes 328 ms; and in 10 ms. */
#define CHEAP 40000u
#define DEAR  10000000u

static struct rig rig;
static struct kvc *k;
static struct kvc_ns *ns;
static char paths[128];
static const char *const sets[] = {paths, "nvme.limit=96MiB", "nvme.segment=4MiB", NULL};
static const char *const sets_off[] = {paths, "nvme.limit=96MiB", "nvme.segment=4MiB",
                                       "policy.load_or_recompute=false", NULL};
static uint8_t keys[CHAIN * KVC_KEY_BYTES], statuses[CHAIN];

static void start(const char *const *with, const char *fault, uint64_t ns_per_token)
{
    char dir[80];
    rig_dir(&rig);
    snprintf(dir, sizeof dir, "%s/store", rig.dir);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    snprintf(paths, sizeof paths, "nvme.paths=%s", dir);
    ck_assert_int_eq(rig_try(&rig, with, fault), 0);
    k = rig_open(&rig, 4 * MIB);
    struct kvc_ns_spec spec = rig_spec("m", BT, BYTES);
    spec.prefill_ns_per_token = ns_per_token;
    ck_assert_int_eq(kvc_ns_open(k, &spec, &ns), 0);
}

static void teardown(void)
{
    kvc_close(&k);
    rig_stop(&rig);
    rig_clean(&rig);
}

static struct kvc_seq seq_of(uint32_t chain)
{
    rig_keys(ns, chain, BT, CHAIN, keys);
    return rig_seq(keys, CHAIN, BT);
}

/* All chains on disk, and at least the first three there alone. */
static void store_all(void)
{
    for (uint32_t i = 0; i < CHAINS; i++) {
        (void)seq_of(i);
        ck_assert_uint_eq(rig_store(k, ns, keys, 0, CHAIN, BT, BYTES, statuses), CHAIN);
        rig_drain(k);
    }
}

/* The prefix; the hold is released, its bytes were right. */
static struct kvc_prefix acquire(uint32_t chain, unsigned flags)
{
    struct kvc_acquire_options o = {.flags = flags, .timeout_ms = LONG};
    struct kvc_seq seq = seq_of(chain);
    struct kvc_hold *hold;
    ck_assert_int_eq(kvc_acquire(ns, &seq, &o, &hold), 0);
    for (uint32_t i = 0; i < hold->group[0].n; i++)
        ck_assert(rig_check(keys + i * KVC_KEY_BYTES, hold->group[0].block[i].data, BYTES));
    struct kvc_prefix p = hold->prefix;
    kvc_release(k, &hold);
    return p;
}

static struct kvc_prefix lookup(uint32_t chain, unsigned flags)
{
    struct kvc_seq seq = seq_of(chain);
    struct kvc_prefix p;
    ck_assert_int_eq(kvc_lookup(ns, &seq, flags, &p), 0);
    return p;
}

#define ALL (CHAIN * BT)

/* ---- load or recompute ---- */

CASES(.timeout_s = 280);

CASE(a_prompt_is_not_loaded_from_a_disk_that_is_slower_than_prefill)
{
    start(sets, "read:1-=2000ms", CHEAP);
    store_all();
    ck_assert_uint_eq(acquire(0, 0).tokens, ALL); /* nothing is known of the disk: it is tried */
    const uint64_t loads = rig_stat(k, "core.loads");
    const uint64_t decided = rig_stat(k, "core.tokens_recomputed_by_decision");
    struct kvc_prefix p = acquire(1, 0);
    ck_assert_uint_eq(p.tokens, 0);
    ck_assert_uint_eq(p.cached_tokens, ALL);
    ck_assert_uint_eq(p.group[0].reason, KVC_MISS_NOT_WORTH);
    ck_assert_uint_eq(rig_stat(k, "core.loads"), loads); /* so it did not wait either */
    ck_assert_uint_eq(rig_stat(k, "core.tokens_recomputed_by_decision"), decided + ALL);
    ck_assert_uint_eq(rig_stat(k, "core.tokens_recomputed_by_miss"), 0);

    p = lookup(1, 0);
    ck_assert_uint_eq(p.tokens, 0);
    ck_assert_uint_eq(p.cached_tokens, ALL);
    p = lookup(1, KVC_F_ALL);
    ck_assert_uint_eq(p.tokens, ALL);
    ck_assert_uint_ge(p.load_us, (uint64_t)ALL * CHEAP / 1000);
    ck_assert_uint_eq(acquire(1, KVC_F_ALL).tokens, ALL);
    ck_assert_uint_eq(acquire(1, 0).tokens, ALL); /* now it is in memory */
    teardown();
}

/* After a start nothing is known of the disk. Who states a cost has a block read, and no other; so
 * the first request is weighed. */
CASE(the_first_prompt_after_a_start_is_weighed)
{
    start(sets, NULL, 0);
    store_all();
    kvc_close(&k);
    rig_stop(&rig);
    ck_assert_int_eq(rig_try(&rig, sets, "read:1-=600ms"), 0);
    k = rig_open(&rig, 4 * MIB);
    struct kvc_ns_spec spec = rig_spec("m", BT, BYTES);
    ck_assert_int_eq(kvc_ns_open(k, &spec, &ns), 0);
    ck_assert_uint_eq(rig_stat(k, "core.prefetches"), 0);
    spec.prefill_ns_per_token = CHEAP;
    ck_assert_int_eq(kvc_ns_open(k, &spec, &ns), 0);
    ck_assert_uint_eq(rig_stat(k, "core.prefetches"), 1);
    while (rig_stat(k, "core.loads_in_flight") > 0)
        rig_sleep_ms(10);
    ck_assert_int_eq(kvc_ns_open(k, &spec, &ns), 0);
    ck_assert_uint_eq(rig_stat(k, "core.prefetches"), 1);
    const struct kvc_prefix p = acquire(0, 0);
    ck_assert_uint_eq(p.tokens, 0);
    ck_assert_uint_eq(p.cached_tokens, ALL);
    ck_assert_uint_eq(p.group[0].reason, KVC_MISS_NOT_WORTH);
    teardown();
}

static struct kvc_prefix lookup_in(struct kvc_ns *in)
{
    struct kvc_seq seq = seq_of(0);
    struct kvc_prefix p;
    ck_assert_int_eq(kvc_lookup(in, &seq, 0, &p), 0);
    return p;
}

/* One session's cost made every other's hits in memory NOT_WORTH, and stayed when it had gone. */
CASE(a_cost_counts_for_the_session_that_states_it)
{
    start(sets, NULL, DEAR);
    (void)seq_of(0);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, CHAIN, BT, BYTES, statuses), CHAIN);
    struct kvc *other = rig_open(&rig, 4 * MIB), *third;
    struct kvc_ns_spec spec = rig_spec("m", BT, BYTES);
    struct kvc_ns *cheap, *unstated;
    spec.prefill_ns_per_token = 1; /* less than any memory takes for the 512 bytes of a token */
    ck_assert_int_eq(kvc_ns_open(other, &spec, &cheap), 0);
    ck_assert_uint_eq(lookup_in(ns).tokens, ALL);
    struct kvc_prefix p = lookup_in(cheap);
    ck_assert_uint_eq(p.tokens, 0);
    ck_assert_uint_eq(p.cached_tokens, ALL);
    ck_assert_uint_eq(p.group[0].reason, KVC_MISS_NOT_WORTH);
    kvc_close(&other);
    ck_assert_uint_eq(lookup_in(ns).tokens, ALL);
    third = rig_open(&rig, 4 * MIB);
    spec.prefill_ns_per_token = 0;
    ck_assert_int_eq(kvc_ns_open(third, &spec, &unstated), 0);
    ck_assert_uint_eq(lookup_in(unstated).tokens, ALL);
    ck_assert_uint_eq(lookup_in(ns).tokens, ALL);
    kvc_close(&third);
    teardown();
}

CASE(what_is_dear_to_compute_is_loaded)
{
    start(sets, NULL, DEAR);
    store_all();
    for (uint32_t i = 0; i < 3; i++) {
        struct kvc_prefix p = acquire(i, 0);
        ck_assert_uint_eq(p.tokens, ALL);
        ck_assert_uint_eq(p.cached_tokens, ALL);
        ck_assert_uint_eq(p.group[0].reason, KVC_MISS_NONE);
    }
    ck_assert_uint_eq(rig_stat(k, "core.tokens_loaded"), 3 * ALL);
    ck_assert_uint_eq(rig_stat(k, "core.tokens_recomputed_by_decision"), 0);
    teardown();
}

CASE_EACH(without_a_cost_or_with_the_switch_off_all_is_loaded, 2)
{
    start(_i ? sets_off : sets, "read:1-=2000ms", _i ? CHEAP : 0);
    store_all();
    for (uint32_t i = 0; i < 2; i++)
        ck_assert_uint_eq(acquire(i, 0).tokens, ALL);
    ck_assert_uint_eq(rig_stat(k, "core.tokens_recomputed_by_decision"), 0);
    teardown();
}

CASE(tokens_that_nobody_has_count_as_a_miss)
{
    start(sets, NULL, DEAR);
    ck_assert_uint_eq(acquire(99, 0).cached_tokens, 0);
    ck_assert_uint_eq(rig_stat(k, "core.tokens_recomputed_by_miss"), ALL);
    teardown();
}

/* ---- requests that leave no trace ---- */

struct ages {
    uint64_t oldest;
    uint32_t loaded;
};

static int on_explained(void *ctx, const void *row)
{
    struct ages *a = ctx;
    const struct kvc_block_info *x = row;
    a->oldest = x->age_ms > a->oldest ? x->age_ms : a->oldest;
    a->loaded += (x->tier & KVC_TIER_HOST) != 0;
    return 0;
}

static struct ages ages_of(uint32_t chain)
{
    struct ages a = {0};
    (void)seq_of(chain);
    const struct kvc_filter all = {.mode = KVC_WALK_KEYS, .keys = keys, .n = KVC_LIST_MAX};
    ck_assert_int_eq(kvc_list(k, KVC_TABLE_BLOCKS, &all, on_explained, &a), 0);
    return a;
}

CASE(a_read_only_acquire_leaves_no_trace)
{
    struct kvc_trace_state t;
    start(sets, NULL, 0);
    store_all();
    ck_assert_int_eq(kvc_trace(k, KVC_TRACE_ON, 0, 0, &t), 0);
    rig_sleep_ms(50);
    const uint64_t prefetches = rig_stat(k, "core.prefetches"), loads = rig_stat(k, "core.loads");
    struct kvc_prefix p = acquire(0, KVC_F_READ_ONLY);
    ck_assert_uint_eq(p.tokens, 0);
    ck_assert_uint_eq(p.cached_tokens, ALL);
    ck_assert_uint_eq(p.group[0].reason, KVC_MISS_NOT_LOADED);
    ck_assert_uint_eq(acquire(CHAINS - 1, KVC_F_READ_ONLY).tokens, ALL); /* in memory */
    ck_assert_uint_ge(ages_of(CHAINS - 1).oldest, 32);
    ck_assert_uint_eq(rig_stat(k, "core.prefetches"), prefetches);
    ck_assert_uint_eq(rig_stat(k, "core.loads"), loads);
    ck_assert_int_eq(kvc_trace(k, KVC_TRACE_STATUS, 0, 0, &t), 0);
    ck_assert_uint_eq(t.records, 0);

    ck_assert_uint_eq(acquire(CHAINS - 1, 0).tokens, ALL);
    ck_assert_int_eq(kvc_trace(k, KVC_TRACE_STATUS, 0, 0, &t), 0);
    ck_assert_uint_eq(t.records, 1);
    teardown();
}

/* ---- hints ---- */

CASE(who_will_come_soon_is_expected)
{
    start(sets, NULL, 0);
    store_all();
    ck_assert_uint_eq(acquire(0, KVC_F_READ_ONLY).tokens, 0);
    struct kvc_seq seq = seq_of(0);
    ck_assert_int_eq(kvc_hint(ns, &seq, KVC_HINT_SOON, 10000), 0);
    const uint64_t until = rig_now_ms() + 30000;
    while (acquire(0, KVC_F_READ_ONLY).tokens < ALL && rig_now_ms() < until)
        rig_sleep_ms(10);
    ck_assert_uint_eq(acquire(0, KVC_F_READ_ONLY).tokens, ALL);
    ck_assert_uint_eq(rig_stat(k, "core.loads"), 0);
    ck_assert_uint_ge(rig_stat(k, "core.prefetches"), 1);
    teardown();
}

#define HINTS_CLOSE_MS 250u /* read.c's: so long at most a session's end waits for them */

/* The session's end reaches the daemon on another socket than its hints. An end that took its whole
 * wait, for the processors were busy, may have lost them. */
CASE(hints_just_before_the_session_ends_arrive)
{
    start(sets, NULL, 0);
    store_all();
    const struct kvc_seq seq = seq_of(0);
    const struct kvc_ns_spec spec = rig_spec("m", BT, BYTES);
    const uint64_t before = rig_stat(k, "core.advice");
    uint32_t sure = 0;
    for (uint32_t round = 0; round < 20; round++) {
        struct kvc *other = rig_open(&rig, 0);
        struct kvc_ns *of;
        ck_assert_int_eq(kvc_ns_open(other, &spec, &of), 0);
        for (uint32_t i = 0; i < 10; i++)
            ck_assert_int_eq(kvc_hint(of, &seq, KVC_HINT_SCAN, 0), 0);
        const uint64_t began = rig_now_ms();
        kvc_close(&other);
        sure += rig_now_ms() - began < HINTS_CLOSE_MS;
    }
    const uint64_t arrived = rig_stat(k, "core.advice") - before;
    ck_assert_uint_gt(sure, 0);
    ck_assert_uint_ge(arrived, 10ull * sure);
    ck_assert_uint_le(arrived, 20 * 10);
    teardown();
}

CASE(what_has_ended_goes_first)
{
    static const char *const small[] = {"policy.eviction=lru", NULL};
    rig_start(&rig, small);
    k = rig_open(&rig, 4 * MIB);
    struct kvc_ns_spec spec = rig_spec("m", BT, BYTES);
    ck_assert_int_eq(kvc_ns_open(k, &spec, &ns), 0);
    for (uint32_t i = 0; i < 3; i++) {
        (void)seq_of(i);
        ck_assert_uint_eq(rig_store(k, ns, keys, 0, CHAIN, BT, BYTES, statuses), CHAIN);
    }
    struct kvc_seq seq = seq_of(1);
    ck_assert_int_eq(kvc_hint(ns, &seq, KVC_HINT_ENDED, 0), 0);
    for (uint32_t i = 3; i < 5; i++) {
        (void)seq_of(i);
        ck_assert_uint_eq(rig_store(k, ns, keys, 0, CHAIN, BT, BYTES, statuses), CHAIN);
    }
    ck_assert_uint_eq(lookup(0, 0).tokens, ALL);
    ck_assert_uint_lt(lookup(1, 0).tokens, ALL);
    ck_assert_uint_eq(lookup(2, 0).tokens, ALL);
    teardown();
}
