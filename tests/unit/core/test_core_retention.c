/* SPDX-License-Identifier: Apache-2.0 */
/* Wishes: ranges, ends, decoded tokens, in memory and on disk, over a restart; hints. */
#include "one_core.h"

/* Stores n blocks of a chain with these wishes. */
static void store(uint32_t chain, uint32_t n, const struct core_retention *wishes, bool decoded)
{
    struct rig_put p = {.ns = ns, .chain = chain, .n = n, .retention = wishes, .decoded = decoded};
    static struct rig_commit m;
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    if (p.reservation) {
        ck_assert_int_eq(rig_commit(&r, 1, &p, &m), 1);
        while (fake_tier_inflight(r.tier) > 0)
            (void)fake_tier_run(r.tier, 1000, 0);
        rig_commit_free(&m);
    }
    rig_step(&r);
    core_check(r.core);
}

static void store_level(uint32_t chain, uint32_t n, uint32_t level, uint64_t duration_ms)
{
    const struct core_range all = {.wish = {level, duration_ms}};
    store(chain, n, &(struct core_retention){.range = &all, .n = 1}, false);
}

static uint32_t level_of(uint32_t chain, uint32_t i)
{
    return rig_explain(&r, 0, 0, chain, i).level;
}

static bool is_there(uint32_t chain, uint32_t i)
{
    return rig_explain(&r, 0, 0, chain, i).state == KVC_BLOCK_PRESENT;
}

static void later(uint64_t ms)
{
    r.now_ns += ms * 1000000;
    core_tick(r.core, r.now_ns);
    while (core_background_step(r.core))
        ;
    core_check(r.core);
}

CASES(.teardown = end);

CASE(ranges_are_rounded_outward_and_the_earlier_wins)
{
    begin_core(16, 0);
    const struct core_range range[] = {{.first_token = 9, .end_token = 10, .wish = {80, 0}},
                                       {.first_token = 15, .end_token = 17, .wish = {20, 0}},
                                       {.first_token = 30, .end_token = 0, .wish = {60, 0}}};
    store(1, 6, &(struct core_retention){.range = range, .n = 3}, false);
    const uint32_t want[] = {RETAIN_DEFAULT, 80, 20, 60, 60, 60};
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_uint_eq(level_of(1, i), want[i]);
}

CASE(a_partly_filled_last_block_ends_where_its_tokens_do)
{
    begin_core(16, 0);
    const struct core_range range = {.first_token = 12, .end_token = 16, .wish = {80, 0}};
    const struct core_retention wishes = {.range = &range, .n = 1};
    struct rig_put p = {.ns = ns, .chain = 1, .n = 2, .last_tokens = 4, .retention = &wishes};
    static struct rig_commit m;
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, &m), 1);
    (void)fake_tier_run(r.tier, 100, 0);
    rig_commit_free(&m);
    ck_assert_uint_eq(level_of(1, 1), RETAIN_DEFAULT);
}

CASE(decoded_blocks_have_a_wish_of_their_own)
{
    begin_core(16, 0);
    const struct core_range range = {.wish = {80, 0}};
    const struct core_retention wishes = {
        .range = &range, .n = 1, .has_decode = true, .decode = {10, 0}};
    store(1, 1, &wishes, false);
    store(2, 1, &wishes, true);
    ck_assert_uint_eq(level_of(1, 0), 80);
    ck_assert_uint_eq(level_of(2, 0), 10);
    ck_assert_uint_eq(metrics()->wishes, 2);
}

CASE(lower_levels_go_first_whatever_their_age)
{
    begin_core(6, 0);
    store_level(1, 2, 90, 0);
    store_level(2, 2, 35, 0);
    store_level(3, 2, 10, 0);
    store_level(4, 2, 35, 0);
    ck_assert(!is_there(3, 0) && is_there(1, 1) && is_there(2, 1));
    store_level(5, 2, 35, 0);
    ck_assert(!is_there(2, 0) && is_there(1, 1));
    store_level(6, 4, 35, 0);
    ck_assert(is_there(1, 1) && is_there(6, 3) && !is_there(4, 0) && !is_there(5, 0));
}

CASE(the_time_of_a_wish_runs_from_the_commit)
{
    begin_core(8, 0);
    const struct core_range all = {.wish = {70, 1000}};
    const struct core_retention wishes = {.range = &all, .n = 1};
    struct rig_put p = {.ns = ns, .chain = 1, .n = 1, .retention = &wishes};
    static struct rig_commit m;
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, &m), 1);
    later(5000); /* the copy takes its time */
    (void)fake_tier_run(r.tier, 100, 0);
    rig_commit_free(&m);
    later(900);
    ck_assert_uint_eq(level_of(1, 0), 70);
    ck_assert_uint_gt(rig_explain(&r, 0, 0, 1, 0).level_left_ms, 0);
    ck_assert_int_eq(core_release(r.core, r.cl[1], rig_acquire(&r, 1, ns, 1, 8).lease), 0);
    later(200); /* a use renews nothing */
    ck_assert_uint_eq(level_of(1, 0), RETAIN_DEFAULT);
    ck_assert_uint_eq(metrics()->wishes_ended, 1);
}

CASE(what_has_ended_is_the_youngest_of_the_default_level)
{
    begin_core(3, 0);
    store_level(1, 1, 70, 500);
    store_level(2, 1, 35, 0);
    store_level(3, 1, 35, 0);
    later(2000);
    store_level(4, 1, 35, 0);
    store_level(5, 1, 35, 0);
    ck_assert(is_there(1, 0) && !is_there(2, 0) && !is_there(3, 0));
}

CASE(a_store_of_what_exists_wishes_too)
{
    begin_core(8, 0);
    store_level(1, 2, 50, 0);
    store_level(1, 2, 40, 0);
    ck_assert_uint_eq(level_of(1, 1), 50);
    store_level(1, 2, 90, 1000);
    ck_assert_uint_eq(level_of(1, 1), 90);
    later(1200);
    ck_assert_uint_eq(level_of(1, 1), 50);
}

CASE(a_wish_for_a_chain_can_be_set_and_taken_back)
{
    begin_core(8, 0);
    const char *why;
    store_level(1, 3, 35, 0);
    struct core_seq seq = rig_seq(ns, 1, 24);
    ck_assert_int_eq(core_wish(r.core, &seq, 8, &(struct core_wish){60, 0}, false, &why), 2);
    ck_assert_uint_eq(level_of(1, 0), RETAIN_DEFAULT);
    ck_assert_uint_eq(level_of(1, 2), 60);
    const struct core_wish none = {RETAIN_DEFAULT, RETAIN_FOR_EVER};
    ck_assert_int_eq(core_wish(r.core, &seq, 16, &none, true, &why), 1);
    ck_assert_uint_eq(level_of(1, 1), 60);
    ck_assert_uint_eq(level_of(1, 2), RETAIN_DEFAULT);
    const struct core_wish bad = {RETAIN_MAX + 1, 0};
    ck_assert_int_eq(core_wish(r.core, &seq, 0, &bad, true, &why), KVC_E_BAD_ARGUMENT);
}

CASE(faults_in_wishes_are_named)
{
    begin_core(8, 0);
    const struct core_range high = {.wish = {101, 0}}, empty = {.first_token = 8, .end_token = 8};
    const struct core_retention bad[] = {{.range = &high, .n = 1},
                                         {.range = &empty, .n = 1},
                                         {.range = &high, .n = KVC_RETAIN_MAX + 1},
                                         {.has_decode = true, .decode = {200, 0}}};
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        struct rig_put p = {.ns = ns, .chain = 1, .n = 1, .retention = &bad[i]};
        ck_assert_int_eq(rig_reserve(&r, 1, &p), KVC_E_BAD_ARGUMENT);
        ck_assert_ptr_nonnull(r.why);
    }
}

/* ---- two tiers ---- */

CASE(levels_go_with_blocks_to_disk_and_back)
{
    begin_core(4, 64);
    store_level(1, 2, 20, 0);
    for (uint32_t i = 2; i < 8; i++) {
        store_level(i, 2, 35, 0);
        rig_settle(&r);
    }
    const struct rig_block x = rig_explain(&r, 0, 0, 1, 1);
    ck_assert_uint_eq(x.tier, KVC_TIER_NVME);
    ck_assert_uint_eq(x.level, 20);
    ck_assert_int_eq(core_release(r.core, r.cl[1], rig_load(&r, 1, ns, 1, 16).lease), 0);
    ck_assert_uint_eq(level_of(1, 1), 20);
}

CASE(storage_keeps_higher_levels_and_lets_lower_ones_go)
{
    begin_core(4, 64);
    store_level(1, 2, 80, 0);
    store_level(2, 2, 10, 0);
    for (uint32_t i = 3; i < 14; i++) {
        store_level(i, 2, 35, 0);
        rig_settle(&r);
    }
    for (unsigned i = 0; i < 200; i++) /* what is there is sampled */
        rig_settle(&r);
    for (uint32_t region = 0; region < 4; region++) {
        fake_disk_want(r.disk, region);
        rig_settle(&r);
    }
    ck_assert(is_there(1, 0) && is_there(1, 1));
    ck_assert(!is_there(2, 0) && !is_there(2, 1));
    ck_assert_uint_gt(metrics()->blocks_kept, 0);
}

CASE(over_a_restart_what_was_wished_without_end_is_kept)
{
    for (unsigned host = 0; host < 2; host++) {
        begin_core(8, 64);
        store_level(1, 2, 80, 0);
        store_level(2, 2, 80, 100000);
        (void)rig_drain(&r, UINT64_MAX);
        rig_settle(&r);
        rig_restart(&r, host);
        ck_assert_uint_eq(level_of(1, 1), 80);
        ck_assert_uint_eq(level_of(2, 1), RETAIN_DEFAULT);
        struct core_ns_spec spec = rig_spec("m", 8, 64);
        ns = rig_ns(&r, 1, &spec);
        rig_end(&r);
    }
}

/* ---- what the policy hears ---- */

static struct {
    unsigned requests, advised;
    uint32_t n, hits, nadvised;
    uint32_t saves;
    enum policy_advice advice;
} heard;
static struct policy_ops spy;

static bool on_request(struct policy *p, const struct policy_request *q, uint64_t now_ms)
{
    (void)p;
    (void)now_ms;
    heard.requests++;
    heard.n = q->n;
    heard.hits = q->hits;
    return false;
}

static void on_advise(struct policy *p, enum policy_advice advice, uint32_t within_ms,
                      const uint32_t *block, uint32_t n, uint64_t now_ms)
{
    (void)p;
    (void)within_ms;
    (void)block;
    (void)now_ms;
    heard.advised++;
    heard.advice = advice;
    heard.nadvised = n;
}

static void on_insert(struct policy *p, uint32_t block, const struct policy_hint *hint,
                      uint64_t now_ms)
{
    heard.saves = hint->saves;
    policy_lru.insert(p, block, hint, now_ms);
}

static void begin_spy(uint64_t ns_per_token)
{
    memset(&heard, 0, sizeof heard);
    spy = policy_lru;
    spy.request = on_request;
    spy.advise = on_advise;
    spy.insert = on_insert;
    rig_defaults(&r);
    r.cfg.policy = &spy;
    rig_begin(&r);
    struct core_ns_spec spec = rig_spec("m", 8, 64);
    spec.prefill_ns_per_token = ns_per_token;
    ns = rig_ns(&r, 1, &spec);
}

CASE(the_policy_hears_of_each_acquire_once_with_what_was_cached)
{
    begin_spy(1000);
    rig_store(&r, 1, ns, 0, 1, 0, 3);
    ck_assert_uint_eq(heard.saves, 9); /* 8 tokens of a microsecond, and never 0 */
    ck_assert_uint_eq(heard.requests, 0);
    ck_assert_int_eq(core_release(r.core, r.cl[1], rig_acquire(&r, 1, ns, 1, 40).lease), 0);
    ck_assert_uint_eq(heard.requests, 1);
    ck_assert_uint_eq(heard.n, 5);
    ck_assert_uint_eq(heard.hits, 3);
    struct core_seq seq = rig_seq(ns, 1, 16);
    struct core_prefix prefix;
    ck_assert_int_eq(core_lookup(r.core, &seq, false, &prefix, &r.why), 0);
    ck_assert_uint_eq(heard.requests, 1);
    ck_assert_int_eq(core_lookup(r.core, &seq, true, &prefix, &r.why), 0);
    ck_assert_uint_eq(heard.requests, 2);
}

CASE(a_read_only_acquire_leaves_no_trace)
{
    begin_spy(0);
    rig_store(&r, 1, ns, 0, 1, 0, 2);
    ck_assert_uint_eq(heard.saves, 0);
    for (unsigned i = 0; i < 10; i++)
        rig_step(&r);
    const uint64_t age = rig_explain(&r, 0, 0, 1, 1).age_ms;
    struct core_acquire in = {.seq = rig_seq(ns, 1, 16), .read_only = true};
    struct core_held held;
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, NULL, &held, &r.why), 0);
    ck_assert_uint_eq(held.prefix.tokens, 16);
    ck_assert_uint_eq(rig_explain(&r, 0, 0, 1, 1).age_ms, age);
    ck_assert_uint_eq(heard.requests, 0);
    in.load = true;
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, NULL, &held, &r.why), KVC_E_BAD_ARGUMENT);
}

CASE(advice_is_for_what_no_other_chain_shares)
{
    begin_spy(0);
    rig_store(&r, 1, ns, 0, 1, 0, 3);
    const char *why;
    struct core_seq seq = rig_seq(ns, 1, 24);
    ck_assert_int_eq(core_advise(r.core, &seq, POLICY_ADVICE_ENDED, 0, &why), 3);
    ck_assert_int_eq(heard.advice, POLICY_ADVICE_ENDED);
    /* Another one branches off behind the first block. */
    struct key256 parent = rig_key(1, 0);
    uint8_t status;
    struct core_reserve in = {
        .ns = ns, .parent = parent.b, .first_token = 8, .keys = rig_keys(6, 2, 1, 1), .n = 1};
    uint64_t id;
    ck_assert_int_eq(core_reserve(r.core, r.cl[1], &in, &id, &status, &r.why), 0);
    seq = rig_seq(ns, 1, 24);
    ck_assert_int_eq(core_advise(r.core, &seq, POLICY_ADVICE_SCAN, 0, &why), 2);
    ck_assert_uint_eq(heard.nadvised, 2);
    seq = rig_seq(ns, 1, 16); /* somebody went on behind it */
    ck_assert_int_eq(core_advise(r.core, &seq, POLICY_ADVICE_ENDED, 0, &why), 0);
    ck_assert_uint_eq(heard.advised, 2);
    ck_assert_int_eq(core_advise(r.core, &seq, POLICY_ADVICE_COUNT, 0, &why), KVC_E_BAD_ARGUMENT);
    ck_assert_int_eq(core_drop(r.core, r.cl[1], id), 0);
}
