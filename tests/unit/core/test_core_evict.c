/* SPDX-License-Identifier: Apache-2.0 */
/* Room on demand, and eviction on request. */
#include <stdlib.h>

#include "cases.h"
#include "core_rig.h"

static struct rig r;

static void begin(uint32_t regions, uint32_t region_bytes)
{
    rig_defaults(&r);
    r.tier_cfg.regions = regions;
    r.tier_cfg.region_bytes = region_bytes;
    rig_begin(&r);
}

static void end(void)
{
    rig_end(&r);
}

static struct core_ns *open_ns(unsigned client, uint32_t block_bytes)
{
    struct core_ns_spec spec = rig_spec("m", 8, block_bytes);
    return rig_ns(&r, client, &spec);
}

static uint8_t reserve_one(unsigned client, struct core_ns *ns, uint32_t chain)
{
    struct rig_put p = {.ns = ns, .chain = chain, .n = 1};
    ck_assert_int_eq(rig_reserve(&r, client, &p), 0);
    return p.statuses[0];
}

/* ---- on demand ---- */

CASES(.teardown = end);

CASE(the_least_recently_used_leaf_goes)
{
    begin(1, 4 * 64);
    struct core_ns *ns = open_ns(1, 64);
    rig_store(&r, 1, ns, 0, 1, 0, 2);
    rig_step(&r);
    rig_store(&r, 1, ns, 0, 2, 0, 2);
    rig_step(&r);
    struct core_held held = rig_acquire(&r, 1, ns, 1, 16); /* chain 1 is young again */
    ck_assert_int_eq(core_release(r.core, r.cl[1], held.lease), 0);
    rig_store(&r, 1, ns, 0, 3, 0, 1);
    ck_assert_uint_eq(rig_lookup(&r, ns, 2, 16).tokens, 8);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 16).tokens, 16);
    rig_store(&r, 1, ns, 0, 3, 1, 1);
    ck_assert_uint_eq(rig_lookup(&r, ns, 2, 16).tokens, 0);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 16).tokens, 16);
    ck_assert_uint_eq(core_metrics(r.core)->blocks_evicted, 2);
    ck_assert_uint_eq(core_metrics(r.core)->bytes_evicted, 128);
}

CASE(full_of_leases_is_a_status)
{
    begin(1, 4 * 64);
    struct core_ns *ns = open_ns(1, 64);
    rig_store(&r, 1, ns, 0, 1, 0, 4);
    struct core_held held = rig_acquire(&r, 1, ns, 1, 32);
    struct rig_put p = {.ns = ns, .chain = 2, .n = 3};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_uint_eq(p.statuses[i], KVC_ST_FULL);
    ck_assert_uint_eq(p.reservation, 0);
    rig_check_lease(&r, 1, held.lease, 0);
    ck_assert_int_eq(core_release(r.core, r.cl[1], held.lease), 0);
    ck_assert_uint_eq(reserve_one(1, ns, 2), KVC_ST_OK);
}

CASE(a_leased_leaf_keeps_its_ancestors)
{
    begin(1, 4 * 64);
    struct core_ns *ns = open_ns(1, 64);
    rig_store(&r, 1, ns, 0, 1, 0, 3);
    struct core_acquire in = {.seq = rig_seq(ns, 1, 24), .from_tokens = 16};
    struct core_held held;
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, NULL, &held, &r.why), 0);
    ck_assert_uint_eq(held.group[0].n, 1);
    rig_store(&r, 1, ns, 0, 2, 0, 1);
    ck_assert_uint_eq(reserve_one(1, ns, 3), KVC_ST_OK); /* chain 2 went */
    ck_assert_uint_eq(reserve_one(1, ns, 4), KVC_ST_FULL);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 24).tokens, 24);
}

CASE(a_chain_longer_than_the_cache_is_stored_as_far_as_it_goes)
{
    begin(1, 4 * 64);
    struct core_ns *ns = open_ns(1, 64);
    struct rig_put p = {.ns = ns, .chain = 1, .n = 6};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    for (unsigned i = 0; i < 6; i++)
        ck_assert_uint_eq(p.statuses[i], i < 4 ? KVC_ST_OK : KVC_ST_FULL);
    struct rig_commit *m = malloc(sizeof(*m));
    ck_assert_int_eq(rig_commit(&r, 1, &p, m), 1);
    (void)fake_tier_run(r.tier, 10, 0);
    rig_commit_free(m);
    free(m);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 48).tokens, 32);
}

CASE(a_full_index_evicts_too)
{
    rig_defaults(&r);
    r.cfg.blocks_max = 16;
    rig_begin(&r);
    struct core_ns *ns = open_ns(1, 64);
    rig_store(&r, 1, ns, 0, 1, 0, 16);
    rig_step(&r);
    rig_store(&r, 1, ns, 0, 2, 0, 4);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 128).tokens, 96);
    struct core_held held = rig_acquire(&r, 1, ns, 1, 96);
    ck_assert_uint_ne(held.lease, 0);
    held = rig_acquire(&r, 1, ns, 2, 32);
    ck_assert_uint_eq(reserve_one(1, ns, 3), KVC_ST_FULL);
}

/* Another size, another principal: what belongs to the others goes until there is room. */
CASE(room_moves_between_sizes_and_principals)
{
    begin(4, 1024);
    struct core_ns *small = open_ns(1, 64), *other = open_ns(3, 64);
    rig_store(&r, 1, small, 0, 1, 0, 64);
    ck_assert_uint_eq(rig_slots(&r), 64);
    rig_step(&r);
    rig_store(&r, 3, other, 0, 1, 0, 16);
    ck_assert_uint_ge(rig_lookup(&r, small, 1, 512).tokens, 8 * 8);
    struct core_ns *large = open_ns(1, 1024);
    rig_store(&r, 1, large, 0, 5, 0, 4);
    ck_assert_uint_eq(rig_lookup(&r, large, 5, 32).tokens, 32);
    core_check(r.core);
}

/* Scattered over all regions, blocks of the other size would nearly all have to go; a region is
 * emptied on purpose instead. */
CASE(a_region_is_emptied_when_eviction_alone_is_in_vain)
{
    begin(16, 64 * 64);
    struct core_ns *small = open_ns(1, 64), *large = open_ns(1, 4096);
    for (uint32_t i = 0; i < 16 * 64; i++) /* single blocks: any may go first */
        rig_store(&r, 1, small, 0, 10 + i, 0, 1);
    rig_step(&r);
    for (uint32_t k = 0; k < 16 * 64; k++) { /* touch them across the regions */
        struct core_seq seq = rig_seq(small, 10 + (k * 64 + k / 16) % 1024, 8);
        struct core_prefix p;
        ck_assert_int_eq(core_lookup(r.core, &seq, true, &p, &r.why), 0);
    }
    ck_assert_uint_eq(reserve_one(1, large, 1), KVC_ST_OK);
    ck_assert_uint_eq(core_metrics(r.core)->evacuations, 1);
    ck_assert_uint_eq(fake_tier_evacuations(r.tier), 1);
    ck_assert_uint_ge(core_metrics(r.core)->blocks_present, 16 * 64 - 200);
    core_check(r.core);
}

/* ---- half a block ---- */

CASE(half_a_block_whose_other_rank_never_came_goes_like_any_other)
{
    begin(1, 4 * 64);
    struct core_ns_spec spec = rig_spec("two ranks", 8, 64);
    spec.shards = 2;
    struct core_ns *two = rig_ns(&r, 1, &spec), *ns = open_ns(1, 64);
    rig_store(&r, 1, two, 0, 1, 0, 2);
    rig_close(&r, 1);
    ck_assert_uint_eq(core_metrics(r.core)->blocks_pending, 2);
    struct rig_put p = {.ns = ns, .chain = 2, .n = 4};
    ck_assert_int_eq(rig_reserve(&r, 2, &p), 0);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_uint_eq(p.statuses[i], KVC_ST_OK);
    ck_assert_uint_eq(core_metrics(r.core)->blocks_evicted, 2);
    core_check(r.core);
}

CASE(half_a_block_stays_while_its_other_rank_makes_room_for_it)
{
    begin(1, 2 * 64);
    struct core_ns_spec spec = rig_spec("two ranks", 8, 64);
    spec.shards = 2;
    struct core_ns *two = rig_ns(&r, 1, &spec), *ns = open_ns(1, 64);
    rig_store(&r, 1, two, 0, 1, 0, 1);
    rig_step(&r);
    rig_store(&r, 1, ns, 0, 2, 0, 1);
    struct rig_put p = {.ns = two, .shard = 1, .chain = 1, .n = 1};
    ck_assert_int_eq(rig_reserve(&r, 2, &p), 0);
    ck_assert_uint_eq(p.statuses[0], KVC_ST_OK);
    ck_assert_uint_eq(rig_lookup(&r, ns, 2, 8).tokens, 0);
    ck_assert_uint_eq(rig_explain(&r, 1, 0, 1, 0).shards_present, 1);
}

CASE(of_half_a_block_half_its_bytes_count)
{
    begin(1, 64 * 64);
    struct core_ns_spec spec = rig_spec("two ranks", 8, 64);
    spec.shards = 2;
    struct core_ns *two = rig_ns(&r, 1, &spec);
    rig_store(&r, 1, two, 0, 1, 0, 8);
    ck_assert_uint_eq(rig_explain(&r, 1, 0, 1, 0).bytes, 64);
    for (unsigned i = 0; i < 9; i++)
        rig_step(&r);
    struct core_evict_job job = {.client = r.cl[1], .dry_run = true};
    rig_evict(&r, &job);
    ck_assert(job.ret_blocks == 8 && job.ret_bytes == 8 * 64);
    job = (struct core_evict_job){.client = r.cl[1], .bytes = 4 * 64};
    rig_evict(&r, &job);
    ck_assert(job.ret_blocks == 4 && job.ret_bytes == 4 * 64);
}

/* ---- on request ---- */

CASE(a_key_goes_with_what_builds_on_it)
{
    begin(4, 4096);
    struct core_ns *ns = open_ns(1, 64), *other = open_ns(3, 64);
    rig_store(&r, 1, ns, 0, 1, 0, 5);
    rig_store(&r, 1, ns, 0, 2, 0, 5);
    rig_store(&r, 3, other, 0, 1, 0, 5);
    struct core_evict_job job = {
        .client = r.cl[1], .have_key = true, .key = rig_key(1, 2), .dry_run = true};
    rig_evict(&r, &job);
    ck_assert(job.ret_blocks == 3 && job.ret_bytes == 3 * 64 && job.ret_kept == 0);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 40).tokens, 40);
    job.dry_run = false;
    rig_evict(&r, &job);
    ck_assert(job.ret_blocks == 3 && job.ret_bytes == 3 * 64 && job.ret_kept == 0);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 40).tokens, 16);
    ck_assert_uint_eq(rig_lookup(&r, ns, 2, 40).tokens, 40);
    ck_assert_uint_eq(rig_lookup(&r, other, 1, 40).tokens, 40);
}

CASE(a_key_goes_in_each_group_and_namespace_that_has_it)
{
    begin(4, 4096);
    struct core_ns_spec spec = rig_spec("m", 8, 64);
    struct core_ns *one = open_ns(1, 128);
    spec.ngroups = 2;
    spec.group[1] = spec.group[0];
    struct core_ns *two = rig_ns(&r, 1, &spec);
    rig_store(&r, 1, two, 0, 1, 0, 5);
    rig_store(&r, 1, two, 1, 1, 0, 5);
    rig_store(&r, 1, one, 0, 1, 0, 5);
    struct core_ns_view view;
    core_ns_view(two, &view);
    struct core_evict_job job = {
        .client = r.cl[1], .ns = view.id, .have_key = true, .key = rig_key(1, 2), .dry_run = true};
    rig_evict(&r, &job);
    ck_assert(job.ret_blocks == 6 && job.ret_bytes == 6 * 64);
    job.dry_run = false;
    rig_evict(&r, &job);
    ck_assert(job.ret_blocks == 6 && job.ret_bytes == 6 * 64);
    rig_store(&r, 1, two, 0, 1, 2, 3);
    rig_store(&r, 1, two, 1, 1, 2, 3);
    job = (struct core_evict_job){.client = r.cl[1], .have_key = true, .key = rig_key(1, 2)};
    rig_evict(&r, &job);
    ck_assert(job.ret_blocks == 9 && job.ret_bytes == 6 * 64 + 3 * 128);
}

CASE(what_stays_is_counted_once)
{
    begin(4, 4096);
    struct core_ns *ns = open_ns(1, 64);
    rig_store(&r, 1, ns, 0, 1, 0, 6);
    rig_store(&r, 1, ns, 0, 2, 0, 2);
    struct core_acquire in = {.seq = rig_seq(ns, 1, 32), .from_tokens = 24};
    struct core_held held;
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, NULL, &held, &r.why), 0);
    struct core_evict_job job = {.client = r.cl[1], .dry_run = true};
    rig_evict(&r, &job);
    ck_assert(job.ret_blocks == 4 && job.ret_kept == 4);
    job.dry_run = false;
    rig_evict(&r, &job);
    ck_assert(job.ret_blocks == 4 && job.ret_kept == 4);
    ck_assert_uint_eq(core_metrics(r.core)->blocks_evicted_admin, 4);
}

CASE(by_age_and_bytes_the_oldest_go_and_leased_ones_do_not_count)
{
    begin(4, 4096);
    struct core_ns *ns = open_ns(1, 64);
    rig_store(&r, 1, ns, 0, 1, 0, 4);
    struct core_held held = rig_acquire(&r, 1, ns, 1, 32); /* the oldest, and they stay */
    ck_assert_uint_ne(held.lease, 0);
    for (uint32_t chain = 2; chain < 6; chain++) {
        for (unsigned i = 0; i < 1u << chain; i++)
            rig_step(&r);
        rig_store(&r, 1, ns, 0, chain, 0, 4);
    }
    struct core_evict_job job = {.client = r.cl[1], .bytes = 4 * 64};
    rig_evict(&r, &job);
    ck_assert(job.ret_blocks == 4 && job.ret_bytes == 4 * 64);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 32).tokens, 32);
    ck_assert_uint_eq(rig_lookup(&r, ns, 5, 32).tokens, 32);
    job = (struct core_evict_job){.client = r.cl[1], .older_than_ms = 1000000};
    rig_evict(&r, &job);
    ck_assert_uint_eq(job.ret_blocks, 0);
    job = (struct core_evict_job){.client = r.cl[1], .older_than_ms = 400};
    rig_evict(&r, &job);
    ck_assert_uint_gt(job.ret_blocks, 0);
    ck_assert_uint_eq(rig_lookup(&r, ns, 5, 32).tokens, 32);
}

CASE(everybody_evicts_their_own_and_administrators_all)
{
    begin(4, 4096);
    struct core_ns *a = open_ns(1, 64), *b = open_ns(3, 64);
    struct core_ns_view v;
    core_ns_view(b, &v);
    rig_store(&r, 1, a, 0, 1, 0, 2);
    rig_store(&r, 3, b, 0, 1, 0, 3);
    struct core_evict_job job = {.client = r.cl[1], .ns = v.id};
    rig_evict(&r, &job);
    ck_assert(job.ret_blocks == 0 && job.ret_kept == 0);
    job.ns = 0;
    rig_evict(&r, &job);
    ck_assert_uint_eq(job.ret_blocks, 2);
    job = (struct core_evict_job){.client = r.cl[0], .ns = v.id};
    rig_evict(&r, &job);
    ck_assert_uint_eq(job.ret_blocks, 3);
}

/* ---- what a dry run says ---- */

/* Returns what went, which is what the dry run has said. */
static uint64_t as_said(struct core_evict_job job)
{
    struct core_evict_job dry = job;
    dry.dry_run = true;
    rig_evict(&r, &dry);
    core_check(r.core);
    rig_evict(&r, &job);
    core_check(r.core);
    ck_assert_uint_eq(dry.ret_blocks, job.ret_blocks);
    ck_assert_uint_eq(dry.ret_bytes, job.ret_bytes);
    ck_assert_uint_eq(dry.ret_kept, job.ret_kept);
    ck_assert_mem_eq(&dry.ret_in, &job.ret_in, sizeof job.ret_in);
    return job.ret_blocks;
}

static void wish(struct core_ns *ns, uint32_t chain, uint32_t from, uint32_t end, uint32_t level)
{
    const struct core_seq seq = rig_seq(ns, chain, 8 * end);
    const struct core_wish w = {.level = level, .duration_ms = RETAIN_FOR_EVER};
    ck_assert_int_ge(core_wish(r.core, &seq, 8 * from, &w, true, &r.why), 0);
}

static void name_it(struct core_ns *ns, uint32_t chain, uint32_t blocks)
{
    const struct core_seq seq = rig_seq(ns, chain, 8 * blocks);
    struct core_named named;
    const struct core_name_put in = {.id = {.kind = KVC_NAME_CONVERSATION,
                                            .name = (const uint8_t *)"n",
                                            .name_bytes = 1,
                                            .sub = (const uint8_t *)""},
                                     .seq = &seq};
    ck_assert_int_eq(core_name_put(r.core, r.cl[1], &in, NULL, &named, &r.why), 0);
}

static struct core_ns *mine, *theirs, *model;

/* In memory and on disk: chains of three namespaces; of the first, chain 1 whose end is of a higher
 * priority than what it builds on, 2 that is old, 3 that is pinned in part, 4 named, 5 leased. */
static void world(void)
{
    struct core_pinned pinned;
    rig_defaults(&r);
    r.tier_cfg.regions = 4;
    r.tier_cfg.region_bytes = 64 * 64;
    r.disk_cfg = (struct fake_disk_config){.slots = 256, .region_slots = 8, .seed = 3};
    rig_begin(&r);
    mine = open_ns(1, 64);
    theirs = open_ns(3, 64);
    const struct core_ns_spec spec = rig_spec("n", 8, 64);
    model = rig_ns(&r, 1, &spec);
    rig_store(&r, 1, mine, 0, 2, 0, 5);
    (void)rig_drain(&r, UINT64_MAX);
    rig_settle(&r);
    for (unsigned i = 0; i < 40; i++)
        rig_step(&r);
    for (uint32_t chain = 1; chain <= 5; chain++)
        if (chain != 2)
            rig_store(&r, 1, mine, 0, chain, 0, 6);
    rig_store(&r, 3, theirs, 0, 1, 0, 4);
    rig_store(&r, 1, model, 0, 1, 0, 3);
    wish(mine, 1, 0, 4, 10);
    wish(mine, 1, 4, 6, 80);
    const struct core_pin pin = {.seq = rig_seq(mine, 3, 16)};
    ck_assert_int_eq(core_pin(r.core, &pin, &pinned, &r.why), 0);
    name_it(mine, 4, 4);
    ck_assert_uint_ne(rig_acquire(&r, 1, mine, 5, 24).lease, 0);
    rig_settle(&r);
    core_check(r.core);
}

/* Of mine: 29 blocks, of which 2 are pinned, 4 named, 3 leased. */
CASE_EACH(a_dry_run_says_what_each_selector_evicts, 12)
{
    struct core_ns_view v;
    world();
    core_ns_view(mine, &v);
    const struct {
        struct core_evict_job job;
        uint64_t blocks;
    } each[] = {
        {{.client = r.cl[0], .tenant = "t1"}, 29 - 2 - 4 - 3 + 3},
        {{.client = r.cl[0], .tenant = "t2"}, 4},
        {{.client = r.cl[1], .model = "n"}, 3},
        {{.client = r.cl[1], .ns = v.id}, 29 - 2 - 4 - 3},
        {{.client = r.cl[1], .have_key = true, .key = rig_key(1, 2)}, 4 + 1},
        {{.client = r.cl[1], .have_key = true, .key = rig_key(4, 0)}, 2},
        {{.client = r.cl[1], .older_than_ms = 500}, 5},
        {{.client = r.cl[1], .level_below = 35}, 6},
        {{.client = r.cl[1], .bytes = 7 * 64}, 7},
        {{.client = r.cl[1], .have_key = true, .key = rig_key(2, 1), .bytes = 2 * 64}, 2},
        {{.client = r.cl[1], .force = true}, 29 + 3 - 3},
        {{.client = r.cl[0]}, 29 - 2 - 4 - 3 + 3 + 4},
    };
    const unsigned i = (unsigned)_i;
    ck_assert_uint_eq(sizeof each / sizeof each[0], 12);
    ck_assert_uint_eq(as_said(each[i].job), each[i].blocks);
    ck_assert_uint_eq(as_said(each[i].job) > 0, each[i].job.bytes > 0);
}

CASE(a_dry_run_says_what_goes_from_which_tier)
{
    world();
    struct core_evict_job job = {
        .client = r.cl[1], .have_key = true, .key = rig_key(2, 0), .dry_run = true};
    rig_evict(&r, &job);
    ck_assert_uint_eq(job.ret_blocks, 5);
    ck_assert_uint_eq(job.ret_in.host, 5 * 64);
    ck_assert_uint_eq(job.ret_in.disk, 5 * 64);
    ck_assert_uint_eq(job.ret_in.hbm, 0);
    (void)as_said((struct core_evict_job){.client = r.cl[1], .force = true});
}

/* Chains grow and lose their ends at random, so that records come in any order. */
CASE_EACH(a_dry_run_is_right_in_any_order_of_records, 8)
{
    uint32_t n[9] = {0};
    uint64_t went = 0;
    srand((unsigned)_i + 1);
    rig_defaults(&r);
    r.tier_cfg.regions = 4;
    r.tier_cfg.region_bytes = 128 * 64;
    rig_begin(&r);
    mine = open_ns(1, 64);
    for (unsigned round = 0; round < 120; round++) {
        const uint32_t chain = 1 + (uint32_t)rand() % 8, more = 1 + (uint32_t)rand() % 4;
        rig_store(&r, 1, mine, 0, chain, n[chain], more);
        n[chain] += more;
        if (rand() % 3 == 0)
            wish(mine, chain, n[chain] - 1, n[chain], (uint32_t)rand() % 100);
        rig_step(&r);
        if (round % 6 != 5)
            continue;
        struct core_evict_job job = {.client = r.cl[1]};
        switch (rand() % 4) {
        case 0:
            job.have_key = true;
            job.key = rig_key(chain, (uint32_t)rand() % n[chain]);
            break;
        case 1:
            job.level_below = 1 + (uint32_t)rand() % 100;
            break;
        case 2:
            job.older_than_ms = (uint64_t)rand() % 2000;
            break;
        default:
            job.bytes = 64 * (1 + (uint64_t)rand() % 20);
        }
        went += as_said(job);
        for (uint32_t i = 1; i < 9; i++)
            n[i] = rig_lookup(&r, mine, i, 8 * n[i]).tokens / 8;
    }
    ck_assert_uint_gt(went, 0);
}

/* ---- turns ---- */

static unsigned jobs_done;

static void on_job(struct core_evict_job *job)
{
    (void)job;
    jobs_done++;
}

CASE(jobs_take_turns_and_end_with_their_client)
{
    begin(4, 4096);
    struct core_ns *ns = open_ns(1, 64);
    rig_store(&r, 1, ns, 0, 1, 0, 8);
    struct core_evict_job a = {.client = r.cl[1], .done = on_job};
    struct core_evict_job b = {.client = r.cl[2], .done = on_job};
    struct core_evict_job c = {.client = r.cl[2], .done = on_job};
    jobs_done = 0;
    core_evict_start(r.core, &a);
    core_evict_start(r.core, &b);
    core_evict_start(r.core, &c);
    ck_assert(core_background_step(r.core));
    core_cancel(r.core, &b.req);
    rig_close(&r, 1);
    while (core_background_step(r.core))
        continue;
    ck_assert_uint_eq(jobs_done, 1);
    ck_assert_uint_eq(c.ret_blocks, 8);
    ck_assert(!core_background_step(r.core));
}

CASE(children_are_counted_however_many)
{
    enum { CHILDREN = 1200 };
    static uint8_t statuses[1];
    static struct key256 key[CHILDREN];
    rig_defaults(&r);
    r.cfg.commits_max = 2 * CHILDREN;
    rig_begin(&r);
    struct core_ns *ns = open_ns(1, 64);
    rig_store(&r, 1, ns, 0, 1, 0, 1);
    const struct key256 parent = rig_key(1, 0);
    uint64_t reservation = 0;
    for (uint32_t i = 0; i < CHILDREN; i++) {
        key[i] = rig_key(100, i);
        struct core_reserve in = {
            .ns = ns, .parent = parent.b, .first_token = 8, .keys = key[i].b, .n = 1};
        ck_assert_int_eq(core_reserve(r.core, r.cl[1], &in, &reservation, statuses, &r.why), 0);
        ck_assert_uint_eq(statuses[0], KVC_ST_OK);
    }
    core_check(r.core);
    ck_assert_uint_eq(rig_explain(&r, 1, 0, 1, 0).children, CHILDREN);
    ck_assert_int_eq(core_drop(r.core, r.cl[1], reservation), 0);
    core_check(r.core);
    ck_assert_uint_eq(rig_explain(&r, 1, 0, 1, 0).children, CHILDREN - 1);
}

CASE(explain_says_where_and_why_not)
{
    begin(4, 4096);
    struct core_ns *ns = open_ns(1, 64);
    rig_store(&r, 1, ns, 0, 1, 0, 3);
    struct core_held held = rig_acquire(&r, 1, ns, 1, 16);
    ck_assert_uint_ne(held.lease, 0);
    struct rig_block x = rig_explain(&r, 1, 0, 1, 1);
    ck_assert(x.state == KVC_BLOCK_PRESENT && x.leases == 1 && x.children == 1);
    ck_assert(x.tokens == 8 && x.bytes == 64 && x.view.chunk != 0);
    ck_assert_uint_eq(rig_explain(&r, 3, 0, 1, 1).state, KVC_BLOCK_ABSENT); /* not theirs */
    ck_assert_uint_eq(rig_explain(&r, 3, 0, 1, 1).reason, KVC_MISS_NEVER);
    ck_assert_uint_eq(rig_explain(&r, 0, 0, 1, 1).state, KVC_BLOCK_PRESENT);
    struct core_evict_job job = {.client = r.cl[1]};
    rig_evict(&r, &job);
    x = rig_explain(&r, 1, 0, 1, 2);
    ck_assert(x.state == KVC_BLOCK_ABSENT && x.reason == KVC_MISS_EVICTED);
}
