/* SPDX-License-Identifier: Apache-2.0 */
/* A promised block loses its copy on disk: nothing below it is told durable until it is so again,
 * and it is written again whoever asks. */
#include "admin.h"
#include "lapse.h"
#include "names_rig.h"

static struct stored {
    struct rig_put put;
    struct rig_commit commit;
} made, beside;

/* Of the core and of storage: what reads or writes memory goes on when the test says so. */
static void turns(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        core_run_done(r.core);
        (void)core_background_step(r.core);
        r.cfg.tier[CORE_STORAGE]->storage->kick(r.cfg.tier[CORE_STORAGE]);
        fake_disk_run(r.disk, 1, 0);
        core_check(r.core);
    }
}

static void lose(uint32_t chain, uint32_t i)
{
    const struct key256 key = rig_key(chain, i);
    ck_assert(fake_disk_lose_this(r.disk, key.b, 0));
    core_check(r.core);
    ck_assert(!rig_explain(&r, 1, 0, chain, i).durable);
}

/* A durable commit. Its blocks get into memory; nothing of it is on its way to disk yet. */
static void commit_begin(struct stored *x, uint32_t chain, uint32_t first, uint32_t n)
{
    x->put = (struct rig_put){.ns = ns, .chain = chain, .first = first, .n = n, .durable = true};
    ck_assert_int_eq(rig_reserve(&r, 1, &x->put), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &x->put, &x->commit), 1);
    while (fake_tier_run(r.tier, UINT32_MAX, 0) > 0)
        continue;
    ck_assert_uint_eq(x->commit.done, 0);
}

static void commit_end(struct stored *x, uint8_t status)
{
    rig_settle(&r);
    ck_assert_uint_eq(x->commit.done, 1);
    for (uint32_t i = 0; i < x->put.n; i++)
        ck_assert_uint_eq(x->commit.statuses[i], status);
    rig_commit_free(&x->commit);
}

static void store_durable(uint32_t chain, uint32_t first, uint32_t n)
{
    commit_begin(&made, chain, first, n);
    commit_end(&made, KVC_ST_OK);
}

static void are_durable(uint32_t chain, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        ck_assert_msg(rig_explain(&r, 1, 0, chain, i).durable, "block %u is not", i);
    ck_assert_uint_eq(lapse_blocks(r.core), 0);
}

/* Of what memory had, nothing is left. */
static void comes_back_after_a_crash(uint32_t chain, uint32_t n)
{
    rig_restart(&r, false);
    open_ns();
    ck_assert_uint_eq(rig_lookup(&r, ns, chain, n * BT).tokens, n * BT);
}

CASES(.teardown = end);

CASE(what_is_told_durable_has_all_before_it_on_disk)
{
    begin(32, 64, false);
    store_durable(1, 0, 4);
    lose(1, 0);
    commit_begin(&made, 1, 4, 1); /* when it is told, the rig looks at all before it */
    commit_end(&made, KVC_ST_OK);
    comes_back_after_a_crash(1, 5);
}

CASE(what_was_promised_is_written_again_though_nobody_asks)
{
    begin(32, 64, false);
    store_durable(1, 0, 6);
    lose(1, 1);
    lose(1, 4);
    ck_assert_uint_eq(lapse_blocks(r.core), 2);
    rig_settle(&r);
    are_durable(1, 6);
    ck_assert_uint_eq(fake_disk_puts(r.disk, true), 8);
    comes_back_after_a_crash(1, 6);
}

/* The mark itself comes back with the blocks. */
CASE(what_was_promised_before_a_restart_is_written_again_too)
{
    begin(32, 64, false);
    store_durable(1, 0, 3);
    comes_back_after_a_crash(1, 3);
    const struct core_held held = rig_load(&r, 1, ns, 1, 3 * BT);
    lose(1, 1);
    rig_settle(&r);
    are_durable(1, 3);
    rig_release(&r, 1, &held);
}

/* So it is with a block that was found to be wrong on disk, which a slice still holds then. */
static void on_slice(struct core_verify *v)
{
    (void)v;
}

static void on_corrupt(struct core_verify *v, const struct core_corrupt *x)
{
    (void)v;
    ck_assert(x->kept);
}

CASE(what_is_wrong_on_disk_is_written_again_before_more_is_told)
{
    begin(32, 64, false);
    store_durable(1, 0, 4);
    const struct key256 key = rig_key(1, 0); /* of the first block there is: a slice takes one */
    ck_assert(fake_disk_flip(r.disk, key.b, 0));
    struct core_verify v = {.tier = CORE_VERIFY_DISK,
                            .client = r.cl[0],
                            .bytes_max = 1,
                            .deadline_ns = UINT64_MAX,
                            .corrupt = on_corrupt,
                            .done = on_slice};
    ck_assert_int_eq(core_verify_start(r.core, &v), 1);
    r.cfg.tier[CORE_STORAGE]->storage->kick(r.cfg.tier[CORE_STORAGE]);
    commit_begin(&made, 1, 4, 1);
    commit_end(&made, KVC_ST_OK);
    ck_assert_uint_eq(metrics()->blocks_corrupt, 1);
    are_durable(1, 5);
    comes_back_after_a_crash(1, 5);
}

/* It waits for a read, and with it the promise below it; the one beside it does not. */
CASE(below_what_cannot_be_written_again_yet_nothing_is_told)
{
    begin(32, 64, false);
    store_durable(1, 0, 2);
    commit_begin(&made, 1, 2, 1);
    commit_begin(&beside, 2, 0, 3);
    struct core_verify v = {.client = r.cl[0],
                            .bytes_max = 1,
                            .deadline_ns = UINT64_MAX,
                            .corrupt = on_corrupt,
                            .done = on_slice};
    ck_assert_int_eq(core_verify_start(r.core, &v), 1); /* reads the first block there is */
    lose(1, 0);
    turns(50);
    ck_assert_uint_eq(made.commit.done, 0);
    ck_assert_uint_eq(beside.commit.done, 1);
    ck_assert_uint_eq(lapse_blocks(r.core), 1);
    commit_end(&beside, KVC_ST_OK); /* and the read has ended */
    commit_end(&made, KVC_ST_OK);
    are_durable(1, 3);
    comes_back_after_a_crash(1, 3);
}

/* Storage refuses, then takes it. */
CASE(what_storage_refuses_is_tried_again)
{
    begin(32, 64, false);
    store_durable(1, 0, 3);
    fake_disk_out(r.disk, true);
    lose(1, 1);
    const uint64_t work = core_work(r.core);
    for (unsigned i = 0; i < 40; i++, rig_step(&r)) /* 800 ms */
        turns(1);
    ck_assert_uint_eq(lapse_blocks(r.core), 1);
    ck_assert_uint_le(core_work(r.core) - work, 9); /* looks at it: not at each turn */
    fake_disk_out(r.disk, false);
    for (unsigned i = 0; i < 60; i++)
        rig_step(&r);
    rig_settle(&r);
    are_durable(1, 3);
    /* The write itself fails. */
    lose(1, 2);
    core_run_done(r.core);
    (void)core_background_step(r.core);
    r.cfg.tier[CORE_STORAGE]->storage->kick(r.cfg.tier[CORE_STORAGE]);
    ck_assert_uint_eq(fake_disk_run(r.disk, 1, 100), 1);
    rig_settle(&r);
    ck_assert_uint_eq(lapse_blocks(r.core), 1);
    for (unsigned i = 0; i < 600; i++)
        rig_step(&r);
    rig_settle(&r);
    are_durable(1, 3);
}

CASE(a_call_begins_some_and_goes_on_behind_them)
{
    begin(2048, 2048, false);
    for (uint32_t i = 0; i < 3; i++)
        store_durable(1, i * 512, 512);
    lose(1, 0); /* the first record, and the last */
    lose(1, 1535);
    lose(1, 700);
    r.core->cfg.slice_work = 2;
    ck_assert(reconcile_step(r.core));
    ck_assert_uint_eq(metrics()->saving_bytes, 2 * 64);
    lose(1, 1); /* behind what has been looked at */
    ck_assert(reconcile_step(r.core));
    (void)reconcile_step(r.core);
    ck_assert_uint_eq(metrics()->saving_bytes, 4 * 64);
    ck_assert(!reconcile_step(r.core)); /* none is begun twice */
    ck_assert_uint_eq(metrics()->saving_bytes, 4 * 64);
    rig_settle(&r);
    are_durable(1, 1536);
}

/* The pin that is taken meanwhile would have lent it, and given it back with its end. */
CASE(what_was_promised_does_not_become_a_pin_s)
{
    begin(32, 64, false);
    store_durable(1, 0, 2);
    lose(1, 1);
    const struct core_pin in = {.seq = rig_seq(ns, 1, 2 * BT)};
    struct core_pinned pinned;
    ck_assert_int_eq(core_pin(r.core, &in, &pinned, &r.why), 0);
    rig_settle(&r);
    are_durable(1, 2);
    ck_assert_int_eq(core_unpin(r.core, r.cl[1], pinned.id), 0);
    rig_settle(&r);
    are_durable(1, 2);
    ck_assert_uint_eq(fake_disk_made_ordinary(r.disk), 0);
}

/* What has gone has not lapsed any more. */
CASE(what_goes_on_request_is_not_waited_for)
{
    begin(32, 64, false);
    store_durable(1, 0, 3);
    fake_disk_grows(r.disk, true);
    lose(1, 0);
    lose(1, 2);
    struct core_evict_job job = {.client = r.cl[0], .force = true};
    rig_evict(&r, &job);
    ck_assert_uint_eq(lapse_blocks(r.core), 0);
    fake_disk_grows(r.disk, false);
    store_durable(2, 0, 2);
}

/* So it is with names, whose promises are lent. */
CASE(a_name_is_not_kept_before_all_that_it_reaches_is_so_again)
{
    begin(32, 64, false);
    store(1, 0, 4);
    named("c", 1, 2 * BT);
    rig_settle(&r);
    are_durable(1, 2);
    lose(1, 0);
    struct waited w;
    struct core_named n;
    ck_assert_int_eq(put("c", 1, 4 * BT, (struct core_name_put){.durable = true}, &w, &n), 1);
    for (unsigned i = 0; i < 100 && w.calls == 0; i++)
        turns(1);
    ck_assert(w.calls == 1 && w.err == 0);
    are_durable(1, 4);
    lose(1, 1);
    rig_settle(&r);
    are_durable(1, 4);
    forget("c", false);
    rig_settle(&r);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert(!rig_explain(&r, 1, 0, 1, i).durable);
}

/* ---- chains that are longer than what one turn looks at ---- */

#define DEEP  10000u
#define TURN  4096u /* blocks that one call looks at for promises */
#define PIECE 1000u

/* A chain of DEEP blocks that are durable, and another of one that has lapsed. Nothing is written
 * again before core_background_step(). */
static void begin_deep(void)
{
    rig_defaults(&r);
    r.cfg.blocks_max = 2 * DEEP;
    r.tier_cfg.regions = 4;
    r.tier_cfg.region_bytes = DEEP / 3 * 64;
    r.disk_cfg = (struct fake_disk_config){.slots = 2 * DEEP, .region_slots = 8, .seed = 3};
    begin_ns();
    for (uint32_t first = 0; first < DEEP; first += PIECE)
        store(1, first, PIECE);
    store_durable(1, DEEP, 1);
    store_durable(2, 0, 1);
    are_durable(1, DEEP + 1);
    lose(2, 0);
    ck_assert_uint_eq(lapse_blocks(r.core), 1);
}

/* All records are looked at for what has lapsed. */
static void mended(void)
{
    for (unsigned i = 0; i < DEEP / 1024 + 2; i++)
        rig_settle(&r);
}

/* One turn of promises. */
static void promises_turn(void)
{
    const uint64_t before = promise_looks(r.core);
    core_run_done(r.core);
    ck_assert_uint_le(promise_looks(r.core) - before, TURN);
}

static void promises_until_done(const struct stored *x)
{
    for (unsigned n = 0; x->commit.done == 0; n++) {
        ck_assert_uint_lt(n, 20);
        r.cfg.tier[CORE_STORAGE]->storage->kick(r.cfg.tier[CORE_STORAGE]);
        fake_disk_run(r.disk, UINT32_MAX, 0);
        promises_turn();
    }
    core_check(r.core);
}

/* The chain of whoever asks first is looked at in slices, of the next one no more than is new. */
CASE(a_long_chain_is_looked_at_in_slices_and_once)
{
    begin_deep();
    const uint64_t before = promise_looks(r.core);
    commit_begin(&made, 1, DEEP + 1, 1);
    promises_until_done(&made);
    ck_assert_uint_eq(lapse_blocks(r.core), 1);
    const uint64_t looks = promise_looks(r.core) - before;
    ck_assert_uint_ge(looks, DEEP);
    commit_begin(&beside, 1, DEEP + 2, 1);
    promises_until_done(&beside);
    ck_assert_uint_lt(promise_looks(r.core) - before - looks, PIECE);
    commit_end(&made, KVC_ST_OK);
    commit_end(&beside, KVC_ST_OK);
}

/* The rig looks at the whole chain when its last block is told durable. */
CASE(a_block_that_is_lost_behind_the_slices_is_waited_for)
{
    begin_deep();
    commit_begin(&made, 1, DEEP + 1, 1);
    r.cfg.tier[CORE_STORAGE]->storage->kick(r.cfg.tier[CORE_STORAGE]);
    for (unsigned n = 0; made.commit.done == 0 && n < 2; n++) {
        fake_disk_run(r.disk, UINT32_MAX, 0);
        promises_turn();
        r.cfg.tier[CORE_STORAGE]->storage->kick(r.cfg.tier[CORE_STORAGE]);
    }
    ck_assert_uint_gt(promise_looks(r.core), TURN);
    lose(1, DEEP - 5);
    commit_end(&made, KVC_ST_OK);
    mended();
    are_durable(1, DEEP + 2);
}

/* What the first has found does not hold for the second. */
CASE(a_block_that_is_lost_between_two_promises_is_waited_for)
{
    begin_deep();
    commit_begin(&made, 1, DEEP + 1, 1);
    promises_until_done(&made);
    lose(1, DEEP - 5);
    commit_begin(&beside, 1, DEEP + 2, 1);
    commit_end(&beside, KVC_ST_OK);
    commit_end(&made, KVC_ST_OK);
    mended();
    are_durable(1, DEEP + 3);
}

/* Nobody waits for that: it looks at no more than a turn's. */
CASE(who_is_told_that_a_block_exists_has_a_part_of_its_chain_looked_at)
{
    begin_deep();
    store(1, DEEP + 1, 1);
    const uint64_t before = promise_looks(r.core);
    struct rig_put p = {.ns = ns, .chain = 1, .first = DEEP + 1, .n = 1, .durable = true};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_uint_eq(p.statuses[0], KVC_ST_EXISTS);
    ck_assert_uint_le(promise_looks(r.core) - before, TURN);
    rig_settle(&r);
    mended();
    are_durable(1, DEEP + 2);
}
