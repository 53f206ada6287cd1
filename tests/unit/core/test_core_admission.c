/* SPDX-License-Identifier: Apache-2.0 */
/* What is not taken into full memory: blocks that are worth less than what would go for them. The
 * policy is LRU with an opinion of its own, which a test gives it. */
#include "names_rig.h"

#include <stdlib.h>

static struct {
    struct policy_ops ops;
    bool yes, once; /* once: the answer, to one question alone */
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
    const bool yes = judge.yes;
    judge.yes &= !judge.once;
    return yes;
}

/* Four blocks of host memory, filled with chain 1; `disk` blocks of a disk. */
static void begin_full(uint32_t disk, bool admission)
{
    rig_defaults(&r);
    room_for(4, disk);
    judge.ops = policy_lru;
    judge.ops.admits = judge_admits;
    judge.yes = judge.once = false;
    judge.asked = 0;
    r.cfg.policy = &judge.ops;
    r.cfg.admission = admission;
    begin_ns();
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

static uint8_t reserve_at(uint32_t chain, uint32_t level)
{
    const struct core_range all = {.wish = {.level = level}};
    const struct core_retention retention = {.range = &all, .n = 1};
    return reserve((struct rig_put){.chain = chain, .retention = &retention});
}

static uint32_t there(uint32_t chain)
{
    return rig_lookup(&r, ns, chain, 4 * BT).tokens / BT;
}

CASES(.teardown = end);

CASE(what_is_worth_less_is_refused_with_all_behind_it)
{
    begin_full(0, true);
    struct rig_put p = {.ns = ns, .chain = 2, .n = 3, .judged = true};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_uint_eq(p.reservation, 0);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_uint_eq(p.statuses[i], KVC_ST_NOT_WORTH);
    ck_assert_uint_eq(judge.asked, 1);
    ck_assert_uint_eq(there(1), 4);
    ck_assert_uint_eq(metrics()->blocks_evicted, 0);
    ck_assert_uint_eq(metrics()->reserve_not_worth, 1);
    ck_assert_uint_eq(metrics()->reserve_full, 0);
}

CASE(what_is_worth_more_is_taken)
{
    begin_full(0, true);
    judge.yes = true;
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 2}), KVC_ST_OK);
    ck_assert_uint_eq(there(1), 3);
}

/* As the policy is told of it when it is in. */
CASE(the_question_names_the_block_its_parent_and_the_victim)
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
}

CASE(what_is_not_judged_is_taken)
{
    begin_full(0, true);
    struct rig_put p = {.ns = ns, .chain = 2, .n = 2};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_uint_eq(p.statuses[1], KVC_ST_OK);
    ck_assert_uint_eq(judge.asked, 0);
    ck_assert_uint_eq(there(1), 2);
}

CASE(switched_off_all_is_taken)
{
    begin_full(0, false);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 2}), KVC_ST_OK);
    ck_assert_uint_eq(judge.asked, 0);
}

CASE(it_is_switched_while_it_runs)
{
    struct core_policy_view v;
    begin_full(0, true);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 2}), KVC_ST_NOT_WORTH);
    core_admission(r.core, false);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 2}), KVC_ST_OK);
    ck_assert_uint_eq(there(1), 3);
    ck_assert_uint_eq(judge.asked, 1);
    core_policy_view(r.core, &v);
    ck_assert(!v.now.admission && v.start.admission && v.admits);
    core_admission(r.core, true);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 3}), KVC_ST_NOT_WORTH);
}

/* Nor by level. */
CASE(a_policy_that_does_not_judge_takes_all)
{
    struct core_policy_view v;
    begin_full(0, true);
    judge.ops.admits = NULL;
    core_policy_view(r.core, &v);
    ck_assert(v.now.admission && !v.admits);
    ck_assert_uint_eq(reserve_at(2, RETAIN_DEFAULT - 1), KVC_ST_OK);
    ck_assert_uint_eq(there(1), 3);
}

CASE(with_storage_all_is_taken)
{
    begin_full(64, true);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 2}), KVC_ST_OK);
    ck_assert_uint_eq(judge.asked, 0);
}

/* A lower one is refused where it was wished below what nothing is wished for: else whoever has
 * filled memory at a high level would keep all others out. */
CASE(a_higher_level_is_worth_more_and_one_below_the_default_less)
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
}

CASE(a_high_level_of_others_keeps_nobody_out)
{
    begin_full(0, true);
    const struct core_range all = {.wish = {.level = 90}};
    const struct core_retention retention = {.range = &all, .n = 1};
    struct rig_put p = {.ns = ns, .chain = 1, .n = 4, .retention = &retention};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0); /* they exist, and are wished for */
    ck_assert_uint_eq(reserve_at(2, RETAIN_DEFAULT - 1), KVC_ST_NOT_WORTH);
    ck_assert_uint_eq(reserve_at(2, RETAIN_DEFAULT), KVC_ST_OK);
    ck_assert_uint_eq(judge.asked, 0);
}

/* Of one block of four times the size: what has gone for it went for something. */
CASE(what_something_has_gone_for_is_taken)
{
    begin_full(0, true);
    const struct core_ns_spec big = rig_spec("big", BT, 4 * 64);
    struct core_ns *of = rig_ns(&r, 1, &big);
    for (unsigned yes = 0; yes < 2; yes++) {
        struct rig_put p = {.ns = of, .chain = 2, .n = 1, .judged = true};
        judge.yes = yes;
        judge.once = true;
        ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
        ck_assert_uint_eq(p.statuses[0], yes ? KVC_ST_OK : KVC_ST_NOT_WORTH);
        ck_assert_uint_eq(there(1), yes ? 0 : 4);
    }
}

CASE(where_the_index_is_full_it_is_judged_too)
{
    begin_full(0, true);
    rig_end(&r);
    rig_defaults(&r);
    r.cfg.policy = &judge.ops;
    r.cfg.admission = true;
    r.cfg.blocks_max = 16;
    begin_ns();
    store(1, 0, 16);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 2}), KVC_ST_NOT_WORTH);
    ck_assert_uint_eq(metrics()->blocks_evicted, 0);
    judge.yes = true;
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 2}), KVC_ST_OK);
    ck_assert_uint_eq(metrics()->blocks_evicted, 1);
}

/* What is guaranteed comes in, for what others borrowed of it. */
CASE(within_a_share_nothing_is_judged)
{
    begin_full(0, true);
    const struct core_ns_spec spec = rig_spec("lender", BT, 64);
    struct core_ns *borrower = ns;
    ns = rig_ns(&r, 1, &spec);
    struct core_ns_view v;
    core_ns_view(ns, &v);
    const struct core_quota q = {.scope = KVC_SCOPE_NS,
                                 .ns = v.id,
                                 .bytes = {{RETAIN_NO_LIMIT, RETAIN_NO_LIMIT}, {2 * 64, 0}}};
    ck_assert_int_eq(core_quota_set(r.core, &q), 0);
    rig_settle(&r);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 2, .n = 2}), KVC_ST_OK);
    ck_assert_uint_eq(judge.asked, 0);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 3}), KVC_ST_NOT_WORTH);
    ck_assert_uint_eq(judge.asked, 1);
    ns = borrower;
    ck_assert_uint_eq(there(1), 2);
}

/* Half of memory is promised to the principals, in equal parts. The other one has filled all of it.
 */
CASE(within_the_part_of_its_principal_nothing_is_judged)
{
    rig_defaults(&r);
    r.tier_cfg.regions = 36;
    r.tier_cfg.region_bytes = 4 * 64;
    r.cfg.fair = true;
    r.cfg.principals_max = 9;
    judge.ops = policy_lru;
    judge.ops.admits = judge_admits;
    judge.yes = judge.once = false;
    judge.asked = 0;
    r.cfg.policy = &judge.ops;
    r.cfg.admission = true;
    rig_begin(&r);
    const struct core_ns_spec spec = rig_spec("m", BT, 64);
    struct core_ns *other = rig_ns(&r, 3, &spec);
    ns = rig_ns(&r, 1, &spec);
    for (uint32_t i = 0; i < 36; i++)
        store(1 + i, 0, 4);
    for (uint32_t i = 0; i <= 8; i++) {
        struct rig_put p = {.ns = other, .chain = 50 + i, .n = 1, .judged = true};
        struct rig_commit m;
        ck_assert_int_eq(rig_reserve(&r, 3, &p), 0);
        ck_assert_uint_eq(p.statuses[0], i < 8 ? KVC_ST_OK : KVC_ST_NOT_WORTH);
        ck_assert_uint_eq(judge.asked, i / 8);
        if (i == 8)
            break;
        ck_assert_int_ge(rig_commit(&r, 3, &p, &m), 0);
        rig_settle(&r);
        rig_commit_free(&m);
    }
    for (uint32_t i = 0; i < 8; i++)
        ck_assert_uint_eq(rig_lookup(&r, other, 50 + i, BT).tokens, BT);
    core_check(r.core);
}

CASE(within_a_quota_it_is_judged_beside_what_is_of_that_quota)
{
    begin_full(0, true);
    const struct core_quota q = {
        .scope = KVC_SCOPE_TENANT, .tenant = "t1", .bytes = {{4 * 64, RETAIN_NO_LIMIT}, {0}}};
    ck_assert_int_eq(core_quota_set(r.core, &q), 0);
    rig_settle(&r);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 2, .n = 2}), KVC_ST_NOT_WORTH);
    ck_assert_uint_eq(metrics()->reserve_not_worth, 1);
    ck_assert_uint_eq(metrics()->quota_refused, 0);
    ck_assert_uint_eq(there(1), 4);
}

/* Its other groups, and its other shards, would be judged by themselves. */
CASE(blocks_of_several_groups_or_shards_are_all_taken)
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
}

static uint8_t reserve_behind(uint32_t i, uint32_t chain)
{
    const struct key256 parent = rig_key(1, i);
    const struct core_reserve in = {.ns = ns,
                                    .parent = parent.b,
                                    .keys = rig_keys(7, chain, 0, 1),
                                    .n = 1,
                                    .first_token = (i + 1) * BT,
                                    .judged = true};
    uint64_t reservation;
    uint8_t status;
    ck_assert_int_eq(core_reserve(r.core, r.cl[1], &in, &reservation, &status, &r.why), 0);
    core_check(r.core);
    return status;
}

/* All of it, in as many stores as may be; not what branches off before. */
CASE(what_goes_on_from_the_end_of_a_conversation_is_taken)
{
    begin_full(0, true);
    store(3, 0, 2); /* the last two of chain 1 went */
    (void)named("a talk", 1, 2 * BT);
    ck_assert_uint_eq(reserve_behind(0, 5), KVC_ST_NOT_WORTH);
    ck_assert_uint_eq(judge.asked, 1);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 1, .first = 2}), KVC_ST_OK);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 1, .first = 3}), KVC_ST_OK);
    ck_assert_uint_eq(judge.asked, 1);
    forget("a talk", false);
    rig_end(&r);

    begin_full(0, true);
    store(3, 0, 2);
    (void)named("a talk", 1, 2 * BT);
    ck_assert_uint_eq(reserve((struct rig_put){.chain = 1, .first = 2, .n = 2}), KVC_ST_OK);
    ck_assert_uint_eq(judge.asked, 0);
    forget("a talk", false);
}

/* What goes on is beside that block: its tokens are in a full one now. */
CASE(what_goes_on_from_a_partly_filled_end_is_taken)
{
    begin_full(0, true);
    store(3, 0, 2);
    struct rig_put p = {.ns = ns, .chain = 1, .first = 2, .n = 1, .last_tokens = 3};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    struct rig_commit m;
    ck_assert_int_ge(rig_commit(&r, 1, &p, &m), 0);
    rig_settle(&r);
    rig_commit_free(&m);
    (void)named("a talk", 1, 2 * BT + 3);
    ck_assert_uint_eq(reserve_behind(1, 5), KVC_ST_OK);
    ck_assert_uint_eq(judge.asked, 0);
    ck_assert_uint_eq(reserve_behind(0, 6), KVC_ST_NOT_WORTH);
    forget("a talk", false);
}

CASE(what_goes_on_from_a_document_is_judged)
{
    begin_full(0, true);
    store(3, 0, 2);
    struct core_named n = {0};
    const struct core_name_put in = {.id = id_of(KVC_NAME_DOCUMENT, "a document", "")};
    ck_assert_int_eq(put("", 1, 2 * BT, in, NULL, &n), 0);
    ck_assert_uint_eq(reserve_behind(1, 5), KVC_ST_NOT_WORTH);
    (void)named("a talk", 1, 2 * BT);
    ck_assert_uint_eq(reserve_behind(1, 5), KVC_ST_OK);
    forget("a talk", false);
}
