/* SPDX-License-Identifier: Apache-2.0 */
/* What is not taken into full memory: blocks that are worth less than what would go for them. The
 * policy is LRU with an opinion of its own, which a test gives it. */
#include "names_rig.h"

#include <stdlib.h>

#include "check_run.h"

static struct {
    struct policy_ops ops;
    bool yes;
    unsigned asked;
    struct policy_hint hint; /* of the last question */
    uint32_t victim;
} judge;

static bool judge_admits(struct policy *p, const struct policy_hint *hint, uint32_t victim,
                         uint64_t now_ms)
{
    (void)p;
    (void)now_ms;
    judge.asked++;
    judge.hint = *hint;
    judge.victim = victim;
    return judge.yes;
}

/* Four blocks of host memory, filled with chain 1; `disk` blocks of a disk. */
static void begin_full(uint32_t disk, bool admission)
{
    rig_defaults(&r);
    r.tier_cfg.regions = 1;
    r.tier_cfg.region_bytes = 4 * 64;
    r.disk_cfg = (struct fake_disk_config){.slots = disk, .region_slots = 8, .seed = 3};
    judge.ops = policy_lru;
    judge.ops.admits = judge_admits;
    judge.yes = false;
    judge.asked = 0;
    r.cfg.policy = &judge.ops;
    r.cfg.admission = admission;
    rig_begin(&r);
    const struct core_ns_spec spec = rig_spec("m", BT, 64);
    ns = rig_ns(&r, 1, &spec);
    store(1, 0, 4);
    ck_assert_uint_eq(judge.asked, 0); /* there was room */
}

static uint8_t reserve(struct rig_put p)
{
    p.judged = true;
    p.ns = ns;
    p.n = p.n ? p.n : 1;
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    core_check(r.core);
    for (uint32_t i = 1; i < p.n; i++)
        ck_assert_uint_eq(p.statuses[i], p.statuses[0]);
    return p.statuses[0];
}

static uint32_t there(uint32_t chain)
{
    return rig_lookup(&r, ns, chain, 4 * BT).tokens / BT;
}

START_TEST(what_is_worth_less_is_refused_with_all_behind_it)
{
    begin_full(0, true);
    struct rig_put p = {.ns = ns, .chain = 2, .n = 3, .judged = true};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_uint_eq(p.reservation, 0);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_uint_eq(p.statuses[i], KVC_ST_NOT_WORTH);
    ck_assert_uint_eq(judge.asked, 1);
    ck_assert_uint_eq(there(1), 4);
    ck_assert_uint_eq(core_metrics(r.core)->blocks_evicted, 0);
    ck_assert_uint_eq(core_metrics(r.core)->reserve_not_worth, 1);
    ck_assert_uint_eq(core_metrics(r.core)->reserve_full, 0);
    rig_end(&r);
}
END_TEST

START_TEST(what_is_worth_more_is_taken)
{
    begin_full(0, true);
    judge.yes = true;
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 2}), KVC_ST_OK);
    ck_assert_uint_eq(there(1), 3);
    rig_end(&r);
}
END_TEST

/* As the policy is told of it when it is in. */
START_TEST(the_question_names_the_block_its_parent_and_the_victim)
{
    begin_full(0, true);
    judge.yes = true;
    store(2, 0, 1); /* the last of chain 1 went */
    judge.yes = false;
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 2, .first = 1}), KVC_ST_NOT_WORTH);
    const struct policy_hint child = judge.hint;
    ck_assert_uint_eq(child.depth, 1);
    ck_assert_uint_ne(child.parent, POLICY_NO_BLOCK);
    ck_assert_uint_ne(child.parent, judge.victim);
    ck_assert_uint_eq(child.bytes, 64);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 3}), KVC_ST_NOT_WORTH);
    ck_assert_uint_eq(judge.hint.parent, POLICY_NO_BLOCK);
    ck_assert_uint_eq(judge.hint.depth, 0);
    ck_assert_uint_ne(judge.hint.hash, child.hash);
    rig_end(&r);
}
END_TEST

START_TEST(what_is_not_judged_is_taken)
{
    begin_full(0, true);
    struct rig_put p = {.ns = ns, .chain = 2, .n = 2};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_uint_eq(p.statuses[1], KVC_ST_OK);
    ck_assert_uint_eq(judge.asked, 0);
    ck_assert_uint_eq(there(1), 2);
    rig_end(&r);
}
END_TEST

START_TEST(switched_off_all_is_taken)
{
    begin_full(0, false);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 2}), KVC_ST_OK);
    ck_assert_uint_eq(judge.asked, 0);
    rig_end(&r);
}
END_TEST

START_TEST(with_storage_all_is_taken)
{
    begin_full(64, true);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 2}), KVC_ST_OK);
    ck_assert_uint_eq(judge.asked, 0);
    rig_end(&r);
}
END_TEST

static uint8_t reserve_at(uint32_t chain, uint32_t level)
{
    const struct core_range all = {.wish = {.level = level}};
    const struct core_retention retention = {.range = &all, .n = 1};
    return reserve((struct rig_put){.chain = chain, .retention = &retention});
}

START_TEST(a_higher_level_is_worth_more_and_a_lower_one_less)
{
    begin_full(0, true);
    judge.yes = true;
    ck_assert_uint_eq(reserve_at(2, RETAIN_DEFAULT - 1), KVC_ST_NOT_WORTH);
    ck_assert_uint_eq(judge.asked, 0);
    judge.yes = false;
    ck_assert_uint_eq(reserve_at(2, RETAIN_DEFAULT), KVC_ST_NOT_WORTH);
    ck_assert_uint_eq(judge.asked, 1);
    ck_assert_uint_eq(reserve_at(2, RETAIN_DEFAULT + 1), KVC_ST_OK);
    ck_assert_uint_eq(judge.asked, 1);
    ck_assert_uint_eq(there(1), 3);
    rig_end(&r);
}
END_TEST

START_TEST(within_a_quota_it_is_judged_beside_what_is_of_that_quota)
{
    begin_full(0, true);
    const struct core_quota q = {
        .scope = KVC_SCOPE_TENANT, .tenant = "t1", .bytes = {{4 * 64, RETAIN_NO_LIMIT}, {0}}};
    ck_assert_int_eq(core_quota_set(r.core, &q), 0);
    rig_settle(&r);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 2, .n = 2}), KVC_ST_NOT_WORTH);
    ck_assert_uint_eq(core_metrics(r.core)->reserve_not_worth, 1);
    ck_assert_uint_eq(core_metrics(r.core)->quota_refused, 0);
    ck_assert_uint_eq(there(1), 4);
    rig_end(&r);
}
END_TEST

/* Its other groups, and its other shards, would be judged by themselves. */
START_TEST(blocks_of_several_groups_or_shards_are_all_taken)
{
    begin_full(0, true);
    struct core_ns_spec spec = rig_spec("two", BT, 64);
    spec.ngroups = 2;
    spec.group[1] = spec.group[0];
    ns = rig_ns(&r, 1, &spec);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 2}), KVC_ST_OK);
    spec = rig_spec("halves", BT, 64);
    spec.shards = 2;
    ns = rig_ns(&r, 1, &spec);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 3}), KVC_ST_OK);
    ck_assert_uint_eq(judge.asked, 0);
    rig_end(&r);
}
END_TEST

START_TEST(what_continues_a_name_or_a_pin_is_taken)
{
    begin_full(0, true);
    judge.yes = true;
    store(2, 0, 1);
    store(3, 0, 1);
    judge.yes = false;
    (void)named("a talk", 2, BT);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 2, .first = 1}), KVC_ST_OK);
    const struct core_pin in = {.seq = rig_seq(ns, 3, BT)};
    struct core_pinned pinned = {0};
    ck_assert_int_eq(core_pin(r.core, &in, &pinned, &r.why), 0);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 3, .first = 1}), KVC_ST_OK);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 4}), KVC_ST_FULL); /* nothing may go */
    ck_assert_int_eq(core_unpin(r.core, r.cl[1], pinned.id), 0);
    forget("a talk", false);
    rig_end(&r);
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("all");
    tcase_add_test(t, what_is_worth_less_is_refused_with_all_behind_it);
    tcase_add_test(t, what_is_worth_more_is_taken);
    tcase_add_test(t, the_question_names_the_block_its_parent_and_the_victim);
    tcase_add_test(t, what_is_not_judged_is_taken);
    tcase_add_test(t, switched_off_all_is_taken);
    tcase_add_test(t, with_storage_all_is_taken);
    tcase_add_test(t, a_higher_level_is_worth_more_and_a_lower_one_less);
    tcase_add_test(t, within_a_quota_it_is_judged_beside_what_is_of_that_quota);
    tcase_add_test(t, blocks_of_several_groups_or_shards_are_all_taken);
    tcase_add_test(t, what_continues_a_name_or_a_pin_is_taken);
    Suite *s = suite_create("core/admission");
    suite_add_tcase(s, t);
    return check_run(s);
}
