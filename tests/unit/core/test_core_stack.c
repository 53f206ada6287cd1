/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory and two storage tiers, the second plain memory: down through all three, and back. */
#include <errno.h>
#include <stdlib.h>

#include "admin.h"
#include "one_core.h"

#define REGION 8u

/* Host memory of 16 blocks, a disk of `disk` in regions of 8 that rewrites nothing, behind it slow
 * storage. */
static void begin(uint32_t disk, uint32_t slow)
{
    rig_defaults(&r);
    r.tier_cfg.regions = 1;
    r.tier_cfg.region_bytes = 16 * 64;
    r.disk_cfg = (struct fake_disk_config){.slots = disk, .region_slots = REGION, .seed = 3};
    r.slow_slots = slow;
    begin_ns();
    fake_disk_keeps(r.disk, false);
}

/* The same with another disk behind it, of which a region is `region` slots. */
static void begin_disks(uint32_t region)
{
    rig_defaults(&r);
    r.tier_cfg.regions = 1;
    r.tier_cfg.region_bytes = 16 * 64;
    r.disk_cfg = (struct fake_disk_config){.slots = 64, .region_slots = REGION, .seed = 3};
    r.slow_cfg = (struct fake_disk_config){.slots = 64, .region_slots = region, .seed = 80};
    begin_ns();
    fake_disk_keeps(r.disk, false);
}

static struct stack_stats stats(void)
{
    struct stack_stats st;
    stack_stats(r.stack, &st);
    return st;
}

static uint64_t present(void)
{
    return metrics()->blocks_present;
}

CASES(.teardown = end);

CASE(what_the_disk_wants_back_goes_down_and_is_read_from_there)
{
    begin(64, 64);
    store_chains(1, 16);
    const uint64_t before = present();
    ck_assert_uint_eq(memory_storage_used(r.slow), 0);
    for (uint32_t region = 0; region < 3; region++) {
        fake_disk_want(r.disk, region);
        rig_settle(&r);
    }
    ck_assert_uint_gt(stats().demoted, REGION);
    ck_assert_uint_eq(stats().demoted, memory_storage_used(r.slow));
    ck_assert_uint_eq(present(), before); /* nothing was forgotten for it */
    ck_assert_uint_eq(metrics()->blocks_reclaimed, 0);
    for (uint32_t i = 1; i <= 16; i++)
        ck_assert_uint_eq(load(i, 16), 16);
}

CASE(what_was_read_from_below_is_stored_above_again)
{
    begin(64, 64);
    store_chains(1, 16);
    for (uint32_t region = 0; region < 3; region++) {
        fake_disk_want(r.disk, region);
        rig_settle(&r);
    }
    const uint32_t below = memory_storage_used(r.slow), above = fake_disk_used(r.disk);
    fake_disk_admit(r.disk, false);
    for (uint32_t i = 1; i <= 4; i++)
        ck_assert_uint_eq(load(i, 16), 16);
    rig_settle(&r);
    ck_assert_uint_eq(memory_storage_used(r.slow), below); /* the disk takes nothing now */
    fake_disk_admit(r.disk, true);
    store_chains(17, 8); /* memory lets go of them */
    const uint32_t later = fake_disk_used(r.disk);
    for (uint32_t i = 1; i <= 4; i++)
        ck_assert_uint_eq(load(i, 16), 16);
    rig_settle(&r);
    ck_assert_uint_lt(memory_storage_used(r.slow), below);
    ck_assert_uint_gt(fake_disk_used(r.disk), MAX(above, later));
}

/* Both storage tiers are too small: what was used longest ago leaves the slowest for good. */
CASE(what_the_slowest_wants_back_goes_for_good)
{
    begin(24, 16);
    for (uint32_t i = 0; i < 40; i++) {
        store_chains(1 + i, 1);
        if (fake_disk_used(r.disk) + REGION > 24)
            fake_disk_want(r.disk, i % 3);
        rig_settle(&r);
    }
    ck_assert_uint_gt(metrics()->blocks_reclaimed, 0);
    ck_assert_uint_gt(stats().demoted, 16);
    ck_assert_uint_le(memory_storage_used(r.slow), 16);
    for (uint32_t i = 1; i <= 40; i++) {
        const uint32_t there = rig_lookup(&r, ns, i, 16).tokens;
        ck_assert_uint_eq(load(i, 16), there);
    }
}

CASE(a_promise_stays_above)
{
    begin(64, 64);
    struct rig_put *p = calloc(1, sizeof *p);
    struct rig_commit *m = calloc(1, sizeof *m);
    ck_assert(p && m);
    *p = (struct rig_put){.ns = ns, .chain = 1, .n = 2, .durable = true};
    ck_assert_int_eq(rig_reserve(&r, 1, p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, p, m), 1);
    rig_settle(&r);
    rig_commit_free(m);
    free(p);
    free(m);
    store_chains(2, 20);
    for (uint32_t region = 0; region < 8; region++) {
        fake_disk_want(r.disk, region);
        rig_settle(&r);
    }
    ck_assert_uint_gt(stats().demoted, 0);
    ck_assert(fake_disk_plain(r.disk, rig_key(1, 0).b, 0)); /* it is there */
    ck_assert(fake_disk_plain(r.disk, rig_key(1, 1).b, 0));
}

/* Neither direction leaves anything behind when an operation fails. */
CASE(what_fails_on_its_way_is_lost_and_is_a_miss)
{
    begin(64, 64);
    store_chains(1, 16);
    memory_storage_fail(r.slow, 3);
    fake_disk_want(r.disk, 0);
    rig_settle(&r);
    ck_assert_uint_ge(stats().failed, 1); /* what is below a lost block goes with it, untold */
    ck_assert_uint_le(stats().failed, 3);
    ck_assert_uint_eq(metrics()->blocks_lost_disk, stats().failed);
    ck_assert_uint_eq(stats().demoted, memory_storage_used(r.slow));
    for (uint32_t i = 1; i <= 16; i++) {
        const uint32_t there = rig_lookup(&r, ns, i, 16).tokens;
        ck_assert_uint_eq(load(i, 16), there);
    }
}

/* Removed while it is read above (0), written below (1). */
CASE_EACH(what_is_removed_on_its_way_is_gone, 2)
{
    begin(64, 64);
    store_chains(1, 16);
    fake_disk_want(r.disk, 0);
    for (unsigned i = 0; i < 40 && fake_disk_inflight(r.disk) == 0; i++)
        (void)core_background_step(r.core);
    ck_assert_uint_gt(fake_disk_inflight(r.disk), 0);
    if (_i == 1) {
        r.cfg.tier[CORE_STORAGE]->storage->kick(r.cfg.tier[CORE_STORAGE]);
        (void)fake_disk_run(r.disk, 1000, 0);
    }
    struct core_evict_job job = {.client = r.cl[0], .force = true};
    rig_evict(&r, &job);
    rig_settle(&r);
    ck_assert_uint_eq(present(), 0);
    ck_assert_uint_eq(fake_disk_used(r.disk) + memory_storage_used(r.slow), 0);
}

static unsigned ended, told;
static struct tier_loc where;

static void on_ended(struct tier_op *op)
{
    ck_assert_int_eq(op->status, 0);
    ended++;
}

static void on_told(void *ctx, uint32_t block_no, struct tier_loc from, struct tier_loc to)
{
    (void)ctx;
    (void)block_no;
    (void)from;
    where = to;
    told++;
}

static void on_wake(struct core_waiter *w)
{
    (void)w;
}

/* Chain 1 has gone down while who waits for it reads it above; the read is in flight. */
static void land_while_read(void)
{
    static struct core_waiter waiter;
    struct tier *t = r.cfg.tier[CORE_STORAGE];
    const struct core_acquire in = {.seq = rig_seq(ns, 1, 16), .load = true};
    struct core_held held;
    store_chains(1, 16);
    fake_disk_want(r.disk, 0);
    for (unsigned i = 0; i < 40 && fake_disk_inflight(r.disk) == 0; i++)
        (void)core_background_step(r.core);
    const unsigned down = fake_disk_inflight(r.disk);
    ck_assert_uint_gt(down, 0);
    t->storage->kick(t);
    waiter = (struct core_waiter){.fn = on_wake};
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, &waiter, &held, &r.why), 1);
    (void)core_background_step(r.core);
    ck_assert_uint_gt(fake_disk_inflight(r.disk), down);
    ck_assert_uint_eq(fake_disk_run(r.disk, down, 0), down); /* the loads are not kicked yet */
    t->storage->kick(t);
    ck_assert_uint_eq(fake_disk_run(r.slow_disk, down, 0), down);
    core_check(r.core);
    core_waiter_cancel(r.core, &waiter);
}

/* Every block is found where core says, with its bytes. */
static void all_is_well(void)
{
    rig_settle(&r);
    for (uint32_t i = 1; i <= 16; i++) {
        const uint32_t there = rig_lookup(&r, ns, i, 16).tokens;
        ck_assert_uint_eq(load(i, 16), there);
    }
}

/* Lost (0), moved (1). */
CASE_EACH(what_has_landed_is_lost_or_moved_below_while_it_is_read_above, 2)
{
    begin_disks(REGION);
    land_while_read();
    const uint32_t landed = fake_disk_used(r.slow_disk);
    ck_assert_uint_gt(landed, 0);
    if (_i == 0) {
        for (uint32_t i = 0; i < landed; i++)
            ck_assert(fake_disk_lose(r.slow_disk));
        ck_assert_uint_eq(metrics()->blocks_lost_disk, landed);
    } else {
        fake_disk_want(r.slow_disk, 0);
        for (unsigned i = 0; i < 10; i++) {
            (void)core_background_step(r.core);
            (void)fake_disk_run(r.slow_disk, 10, 0);
        }
        ck_assert_uint_gt(metrics()->blocks_kept, 0);
    }
    core_check(r.core);
    all_is_well();
}

/* It says once which blocks are to go. */
CASE(a_region_below_that_is_wanted_while_it_is_read_above_is_emptied)
{
    begin_disks(64); /* all of it */
    land_while_read();
    const uint32_t landed = fake_disk_used(r.slow_disk);
    fake_disk_admit(r.disk, false); /* else what was read goes up again */
    fake_disk_keeps(r.slow_disk, false);
    fake_disk_want(r.slow_disk, 0);
    for (unsigned i = 0; i < 10; i++)
        (void)core_background_step(r.core);
    rig_settle(&r);
    for (unsigned i = 0; i < 10; i++) {
        rig_step(&r);
        rig_settle(&r);
    }
    ck_assert_uint_gt(landed, 0);
    ck_assert_uint_eq(fake_disk_used(r.slow_disk), 0);
    all_is_well();
}

/* After a restart each tier has what it had, and core knows in which one a block is: what is then
 * wanted back below goes, and what is wanted above goes down. */
CASE(what_both_tiers_have_is_found_again)
{
    begin_disks(REGION);
    store_chains(1, 16);
    for (uint32_t region = 0; region < 2; region++) {
        fake_disk_want(r.disk, region);
        rig_settle(&r);
    }
    const uint32_t up = fake_disk_used(r.disk), down = fake_disk_used(r.slow_disk);
    ck_assert_uint_gt(up, 0);
    ck_assert_uint_gt(down, REGION);
    ck_assert_uint_le(down, 2 * REGION);
    rig_restart(&r, false);
    open_ns();
    ck_assert_uint_eq(fake_disk_used(r.disk), up);
    ck_assert_uint_eq(fake_disk_used(r.slow_disk), down);
    fake_disk_keeps(r.slow_disk, false);
    fake_disk_want(r.slow_disk, 1);
    rig_settle(&r);
    ck_assert_uint_eq(fake_disk_used(r.slow_disk), REGION);
    ck_assert_uint_eq(present(), up + REGION);
    fake_disk_want(r.disk, 2);
    rig_settle(&r);
    ck_assert_uint_gt(stats().demoted, 0); /* of the new stack */
    ck_assert_uint_eq(fake_disk_used(r.slow_disk), REGION + stats().demoted);
    fake_disk_admit(r.disk, false); /* they are read where they are */
    uint32_t tokens = 0;
    for (uint32_t i = 1; i <= 16; i++) {
        const uint32_t there = rig_lookup(&r, ns, i, 16).tokens;
        ck_assert_uint_eq(load(i, 16), there);
        tokens += there;
    }
    ck_assert_uint_eq(tokens, (up + REGION) * BT);
}

/* A crash comes after blocks have landed below and before their places above are free. */
CASE(what_is_found_above_and_below_is_kept_above)
{
    begin_disks(REGION);
    land_while_read();
    const uint32_t landed = fake_disk_used(r.slow_disk);
    rig_restart(&r, false);
    open_ns();
    ck_assert_uint_lt(fake_disk_used(r.slow_disk), landed);
    ck_assert_uint_eq(fake_disk_used(r.disk) + fake_disk_used(r.slow_disk), present());
    for (uint32_t i = 0; i < 2; i++)
        ck_assert(fake_disk_plain(r.disk, rig_key(1, i).b, 0)); /* it is there */
    all_is_well();
}

/* ---- a stack alone ---- */

static uint8_t bytes[4096], page[4096];
static struct fake_disk *above;
static struct memory_storage *below;
static struct stack *stack;
static struct tier *tier;
static struct tier_op put;

/* One block above, on its way down: its read is in flight. */
static void demotion_begin(void)
{
    above = fake_disk_create(&(struct fake_disk_config){.slots = 8, .region_slots = 8, .seed = 1});
    below = memory_storage_create(8);
    const struct stack_config cfg = {.tier = {fake_disk_of(above), memory_storage_tier(below)},
                                     .tiers = 2,
                                     .shard_bytes = sizeof bytes,
                                     .moves = 1};
    ck_assert_int_eq(stack_create(&cfg, &stack), 0);
    tier = stack_tier(stack);
    tier->events = (struct tier_events){.moved = on_told};
    put = (struct tier_op){.kind = TIER_PUT,
                           .src = bytes,
                           .bytes = sizeof bytes,
                           .deadline_ns = 1,
                           .label = {.print = 1},
                           .sum = hash_sum(bytes, sizeof bytes),
                           .done = on_ended};
    ended = told = 0;
    ck_assert_int_eq(tier->ops->alloc(tier, 1, sizeof bytes, (struct tier_loc){0}, 5, &put.loc), 0);
    tier->ops->submit(tier, &put);
    tier->storage->kick(tier);
    (void)fake_disk_run(above, 1, 0);
    ck_assert_uint_eq(ended, 1);
    tier->ops->set_label(tier, &put);
    const struct tier_demotion what = {.loc = put.loc,
                                       .block_no = 5,
                                       .principal = 1,
                                       .bytes = sizeof bytes,
                                       .label = {.print = 1},
                                       .deadline_ns = 1};
    ck_assert(tier->storage->demote(tier, &what));
    ck_assert(tier->storage->demote(tier, &what)); /* it is on its way */
    tier->storage->kick(tier);
}

static void demotion_end(void)
{
    stack_destroy(&stack);
    fake_disk_destroy(&above);
    memory_storage_destroy(&below);
}

/* What was freed is not said to stay away while its place above is still read: a crash would bring
 * it back. */
CASE(a_removal_is_confirmed_when_the_place_above_is_free)
{
    struct tier_op confirm = {.done = on_ended};
    demotion_begin();
    tier->ops->free(tier, put.loc);
    tier->storage->confirm_frees(tier, &confirm);
    tier->storage->kick(tier);
    ck_assert_uint_eq(ended, 1);
    (void)fake_disk_run(above, 1, 0);
    tier->storage->kick(tier);
    ck_assert_uint_eq(ended, 2);
    ck_assert_uint_eq(told + fake_disk_used(above) + memory_storage_used(below), 0);
    demotion_end();
}

CASE(who_reads_above_has_it_there_until_he_has_read_it)
{
    struct tier_op get = {.kind = TIER_GET,
                          .dst = page,
                          .bytes = sizeof bytes,
                          .deadline_ns = 1,
                          .label = {.print = 1},
                          .done = on_ended};
    demotion_begin();
    (void)fake_disk_run(above, 1, 0); /* read; to be written below */
    get.loc = put.loc;
    tier->ops->submit(tier, &get);
    tier->storage->kick(tier);
    ck_assert_uint_eq(memory_storage_puts(below), 1);
    ck_assert_uint_eq(told, 1); /* at once: it may be lost below from now on */
    ck_assert_uint_eq(fake_disk_used(above), 1);
    (void)fake_disk_run(above, 1, 0);
    ck_assert_uint_eq(ended, 2);
    ck_assert_uint_eq(told, 1);
    ck_assert_uint_eq(fake_disk_used(above), 0);
    ck_assert_uint_eq(get.loc.id, put.loc.id);
    tier->ops->free(tier, where);
    demotion_end();
}

CASE(a_wrong_configuration_is_refused)
{
    struct memory_storage *m = memory_storage_create(8);
    struct tier memory = {.ops = NULL};
    stack = NULL;
    const struct stack_config good = {
        .tier = {memory_storage_tier(m)}, .tiers = 1, .shard_bytes = 1, .moves = 1};
    struct stack_config bad[5] = {good, good, good, good, good};
    bad[0].tiers = 0;
    bad[1].tiers = STACK_TIERS_MAX + 1;
    bad[2].tier[0] = &memory;
    bad[3].moves = 0;
    bad[4].shard_bytes = 0;
    for (unsigned i = 0; i < 5; i++)
        ck_assert_int_eq(stack_create(&bad[i], &stack), -EINVAL);
    ck_assert_int_eq(stack_create(&good, &stack), 0);
    stack_destroy(&stack);
    memory_storage_destroy(&m);
}
