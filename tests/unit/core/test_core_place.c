/* SPDX-License-Identifier: Apache-2.0 */
/* Two tiers: what goes to disk, what comes back, what is promised, what storage wants back. */
#include <stdlib.h>

#include "admin.h"
#include "one_core.h"

static void store_durable(uint32_t chain, uint32_t first, uint32_t n, uint8_t want)
{
    struct rig_put *p = calloc(1, sizeof *p);
    struct rig_commit *m = calloc(1, sizeof *m);
    ck_assert(p && m);
    *p = (struct rig_put){.ns = ns, .chain = chain, .first = first, .n = n, .durable = true};
    ck_assert_int_eq(rig_reserve(&r, 1, p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, p, m), 1);
    rig_settle(&r);
    ck_assert_uint_eq(m->done, 1);
    for (uint32_t i = 0; i < n; i++)
        ck_assert_uint_eq(m->statuses[i], want);
    rig_commit_free(m);
    free(p);
    free(m);
}

CASES(.teardown = end);

CASE(what_leaves_memory_is_on_disk_and_comes_back)
{
    begin_core(16, 64);
    store_chains(1, 16);
    const struct core_metrics *m = metrics();
    ck_assert_uint_eq(m->blocks_present, 32);
    ck_assert_uint_eq(m->blocks_lost_unsaved, 0);
    ck_assert_uint_gt(m->blocks_demoted, 0);
    for (uint32_t i = 1; i <= 16; i++)
        ck_assert_uint_eq(rig_lookup(&r, ns, i, 16).tokens, 16);
    struct core_held held = rig_acquire(&r, 1, ns, 1, 16); /* nothing of it is in memory */
    ck_assert_uint_eq(held.prefix.tokens, 0);
    ck_assert_uint_eq(held.prefix.group[0].reason, KVC_MISS_NOT_LOADED);
    for (uint32_t i = 1; i <= 16; i++)
        ck_assert_uint_eq(load(i, 16), 16);
    ck_assert_uint_gt(m->blocks_loaded, 16);
}

CASE(memory_is_not_written_while_there_is_room)
{
    begin_core(64, 64);
    store_chains(1, 4);
    ck_assert_uint_eq(fake_disk_used(r.disk), 0);
}

static void loaded(struct core_waiter *w)
{
    w->keys = UINT32_MAX;
}

/* What it has found is looked at again when it is in memory, by its records. */
CASE(a_cold_acquire_looks_up_each_key_once)
{
    begin_core(16, 64);
    store_chains(1, 16);
    struct core_acquire in = {.seq = rig_seq(ns, 1, 16), .load = true};
    struct core_waiter w = {.fn = loaded};
    struct core_held held;
    uint64_t before = r.core->index.probes;
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, &w, &held, &r.why), 1);
    ck_assert_uint_eq(r.core->index.probes, before + 2);
    rig_settle(&r);
    while (w.keys != UINT32_MAX)
        (void)core_run_done(r.core);
    in.seq = rig_seq(ns, 1, 16);
    before = r.core->index.probes;
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, &w, &held, &r.why), 0);
    ck_assert_uint_eq(r.core->index.probes, before);
    ck_assert_uint_eq(held.prefix.tokens, 16);
    rig_check_lease(&r, 1, held.lease, 0);
}

/* What went while it was being loaded is not taken for what it was. */
CASE(a_cold_acquire_finds_no_block_that_went_meanwhile)
{
    begin_core(16, 64);
    store_chains(1, 16);
    struct core_acquire in = {.seq = rig_seq(ns, 1, 16), .load = true};
    struct core_waiter w = {.fn = loaded};
    struct core_held held;
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, &w, &held, &r.why), 1);
    struct block *last = index_get(r.core, ns, 0, in.seq.keys[0] + KVC_KEY_BYTES);
    ck_assert_ptr_nonnull(last);
    block_kill(r.core, last, KVC_MISS_DROPPED);
    rig_settle(&r);
    while (w.keys != UINT32_MAX)
        (void)core_run_done(r.core);
    in.wait = true; /* and nobody is storing it */
    in.seq = rig_seq(ns, 1, 16);
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, &w, &held, &r.why), 0);
    ck_assert_uint_eq(held.prefix.tokens, 8);
}

CASE(a_block_is_loaded_once_for_all_who_ask)
{
    begin_core(16, 64);
    store_chains(1, 16);
    const uint64_t before = metrics()->blocks_loaded;
    struct core_waiter w[2] = {{.keys = 0}};
    struct core_held held;
    for (unsigned i = 0; i < 2; i++) {
        struct core_acquire in = {.seq = rig_seq(ns, 1, 16), .load = true};
        ck_assert_int_eq(core_acquire(r.core, r.cl[1 + i], &in, &w[i], &held, &r.why), 1);
    }
    ck_assert_uint_eq(metrics()->loads_in_flight, 2);
    core_waiter_cancel(r.core, &w[0]);
    core_waiter_cancel(r.core, &w[1]);
    rig_settle(&r);
    ck_assert_uint_eq(metrics()->blocks_loaded, before + 2);
}

CASE(wrong_bytes_from_disk_are_a_miss)
{
    begin_core(16, 64);
    store_chains(1, 16);
    struct key256 key = rig_key(1, 0);
    ck_assert(fake_disk_flip(r.disk, key.b, 0));
    ck_assert_uint_eq(load(1, 16), 0);
    struct core_prefix p = rig_lookup(&r, ns, 1, 16);
    ck_assert_uint_eq(p.tokens, 0);
    ck_assert_uint_eq(p.group[0].reason, KVC_MISS_CORRUPT);
    ck_assert_uint_eq(metrics()->blocks_corrupt, 1);
    ck_assert_uint_eq(fake_disk_invalidated(r.disk), 1); /* its tier is told, which counts them */
    ck_assert_uint_eq(load(2, 16), 16);
}

CASE(what_is_out_of_service_is_absent_and_comes_back)
{
    begin_core(16, 64);
    store_chains(1, 16);
    fake_disk_out(r.disk, true);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 16).tokens, 0);
    ck_assert_uint_eq(load(1, 16), 0);
    fake_disk_out(r.disk, false);
    ck_assert_uint_eq(load(1, 16), 16);
}

/* It was told EXISTS, and counted as a use, though nobody could read it. */
CASE(what_is_out_of_service_does_not_exist_for_a_store)
{
    begin_core(16, 64);
    store_chains(1, 16);
    fake_disk_out(r.disk, true);
    struct rig_put p = {.ns = ns, .chain = 1, .n = 3};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_uint_eq(p.statuses[0], KVC_ST_TIER);
    ck_assert_uint_eq(p.statuses[1], KVC_ST_TIER);
    ck_assert_uint_eq(p.statuses[2], KVC_ST_OK); /* a hit with them, once they can be read */
    ck_assert_uint_eq(rig_explain(&r, 1, 0, 1, 0).reason, KVC_MISS_NOT_LOADED);
    p = (struct rig_put){.ns = ns, .chain = 16, .n = 2};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_uint_eq(p.statuses[0], KVC_ST_EXISTS); /* in memory too */
    fake_disk_out(r.disk, false);
    p = (struct rig_put){.ns = ns, .chain = 1, .n = 2};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_uint_eq(p.statuses[0], KVC_ST_EXISTS);
    ck_assert_uint_eq(rig_explain(&r, 1, 0, 1, 0).reason, KVC_MISS_NONE);
}

/* OK would promise all that comes before it too. */
CASE(nothing_is_promised_behind_what_is_out_of_service)
{
    begin_core(16, 64);
    store_chains(1, 16);
    fake_disk_out(r.disk, true);
    struct rig_put p = {.ns = ns, .chain = 1, .first = 2, .n = 2, .durable = true};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_uint_eq(p.statuses[0], KVC_ST_TIER);
    ck_assert_uint_eq(p.statuses[1], KVC_ST_NO_PARENT);
    ck_assert_uint_eq(p.reservation, 0);
    fake_disk_out(r.disk, false);
    store_durable(1, 2, 2, KVC_ST_OK);
}

CASE(without_admission_memory_evicts_as_ever)
{
    begin_core(16, 64);
    fake_disk_admit(r.disk, false);
    store_chains(1, 16);
    ck_assert_uint_eq(fake_disk_used(r.disk), 0);
    ck_assert_uint_eq(metrics()->blocks_present, 16);
    ck_assert_uint_eq(metrics()->blocks_lost_unsaved, 16);
}

static unsigned fired;
static void on_fired(struct core_waiter *w)
{
    (void)w;
    fired++;
}

CASE(a_store_waits_for_what_is_on_its_way)
{
    begin_core(16, 64);
    fired = 0;
    for (uint32_t i = 1; i <= 8; i++)
        rig_store(&r, 1, ns, 0, i, 0, 2);
    struct core_waiter w = {.fn = on_fired};
    ck_assert(core_store_must_wait(r.core, 128, &w));
    (void)core_run_done(r.core);
    ck_assert_uint_eq(fired, 0);
    rig_settle(&r);
    ck_assert_uint_eq(fired, 1);
    struct core_waiter again = {.fn = on_fired};
    ck_assert(!core_store_must_wait(r.core, 128, &again));
    rig_store(&r, 1, ns, 0, 9, 0, 2);
    ck_assert_uint_eq(metrics()->blocks_lost_unsaved, 0);
}

static float chance_now;
static uint64_t asked_for_ms;

static float chance_of(const struct policy *p, uint32_t block, uint64_t for_ms, uint64_t now_ms)
{
    (void)p;
    (void)block;
    (void)now_ms;
    asked_for_ms = for_ms;
    return chance_now;
}

/* A policy that gives each block this chance to be asked for while a place on disk lasts. */
static void begin_chance(uint32_t host, uint32_t disk, uint64_t turn_ms, float chance)
{
    static struct policy_ops ops;
    ops = policy_lru;
    ops.chance = chance_of;
    chance_now = chance;
    rig_defaults(&r);
    r.cfg.policy = &ops;
    r.tier_cfg.regions = 1;
    r.tier_cfg.region_bytes = host * 64;
    r.disk_cfg =
        (struct fake_disk_config){.slots = disk, .region_slots = 8, .seed = 3, .turn_ms = turn_ms};
    begin_ns();
}

/* A store waits for the disk to have what is worth a write, and for nothing else, though blocks are
 * on their way there. */
CASE(no_store_waits_for_what_is_not_worth_a_write)
{
    const float chance[] = {0, 1};
    for (unsigned i = 0; i < 2; i++) {
        begin_chance(16, 64, 1000, 1);
        (void)core_background_step(r.core); /* learns how long a place lasts */
        for (uint32_t n = 1; n <= 8; n++)
            rig_store(&r, 1, ns, 0, n, 0, 2);
        (void)core_background_step(r.core);
        ck_assert_uint_gt(metrics()->saving_bytes, 0);
        chance_now = chance[i];
        struct core_waiter w = {.fn = on_fired};
        ck_assert_int_eq(core_store_must_wait(r.core, 128, &w), i == 1);
        if (i == 1)
            core_waiter_cancel(r.core, &w);
        rig_store(&r, 1, ns, 0, 9, 0, 2);
        ck_assert_uint_eq(asked_for_ms, 1000);
        ck_assert_uint_eq(metrics()->blocks_not_worth > 0, i == 0);
        rig_settle(&r);
        rig_end(&r);
    }
}

/* It was told so while nobody wanted room; a store that does has it gone, and what is behind it
 * written. Once all that the store had to evict was lost. */
CASE(what_is_not_worth_a_write_does_not_stand_before_what_is)
{
    begin_chance(16, 64, 1000, 0);
    (void)core_background_step(r.core);
    for (uint32_t n = 1; n <= 8; n++)
        rig_store(&r, 1, ns, 0, n, 0, 2);
    (void)core_background_step(r.core);
    ck_assert_uint_eq(metrics()->blocks_not_worth, 1);
    ck_assert_uint_eq(metrics()->blocks_evicted, 0);
    chance_now = 1;
    struct core_waiter w = {.fn = on_fired};
    ck_assert(core_store_must_wait(r.core, 4 * 64, &w));
    rig_settle(&r);
    rig_store(&r, 1, ns, 0, 9, 0, 4);
    ck_assert_uint_eq(metrics()->blocks_lost_unsaved, 1);
    rig_settle(&r);
}

/* Whatever the rest is worth; 1000 ms is how long its place would last. */
CASE(reclaim_writes_nothing_again_that_brings_no_hit)
{
    const float chance[] = {0, 1};
    for (unsigned i = 0; i < 2; i++) {
        begin_chance(16, 64, 1000, 1);
        core_keep_percent(r.core, 1);
        for (uint32_t n = 1; n <= 32; n++) { /* nothing builds on any of them */
            rig_store(&r, 1, ns, 0, n, 0, 1);
            rig_settle(&r);
            rig_step(&r);
        }
        for (unsigned n = 0; n < 400; n++)
            (void)core_background_step(r.core);
        chance_now = chance[i];
        fake_disk_want(r.disk, 0);
        rig_settle(&r);
        const struct core_metrics *m = metrics();
        ck_assert_uint_eq(m->blocks_kept > 0, i == 1);
        ck_assert(m->blocks_reclaimed > 0 || i == 1);
        rig_end(&r);
    }
}

static void on_store(struct core_waiter *w)
{
    (void)w;
    rig_store(&r, 1, ns, 0, 20 + fired++, 0, 2);
}

/* What lands wakes those that it has room for; the others wait for what they make leave. */
CASE(stores_that_wait_get_no_more_than_there_is)
{
    enum { N = 6 };
    begin_core(16, 64);
    fired = 0;
    for (uint32_t i = 1; i <= 8; i++)
        rig_store(&r, 1, ns, 0, i, 0, 2);
    struct core_waiter w[N] = {0};
    for (unsigned i = 0; i < N; i++) {
        w[i].fn = on_store;
        ck_assert(core_store_must_wait(r.core, 128, &w[i]));
    }
    rig_settle(&r);
    ck_assert_uint_eq(fired, N);
    ck_assert_uint_eq(metrics()->blocks_lost_unsaved, 0);
}

/* Who comes later takes no room that others were woken for and have not run to take. */
CASE(a_store_that_comes_leaves_room_to_those_that_were_woken)
{
    begin_core(16, 64);
    fired = 0;
    for (uint32_t i = 1; i <= 8; i++)
        rig_store(&r, 1, ns, 0, i, 0, 2);
    struct core_waiter w = {.fn = on_store}, late = {.fn = on_store};
    ck_assert(core_store_must_wait(r.core, 128, &w));
    (void)core_background_step(r.core);
    r.cfg.tier[CORE_STORAGE]->storage->kick(r.cfg.tier[CORE_STORAGE]);
    for (unsigned i = 0; i < 100 && !core_has_done(r.core); i++)
        (void)fake_disk_run(r.disk, 1, 0);
    ck_assert(core_has_done(r.core));
    ck_assert_uint_eq(metrics()->clean_bytes, 128);
    ck_assert(core_store_must_wait(r.core, 128, &late));
    rig_settle(&r);
    ck_assert_uint_eq(fired, 2);
    ck_assert_uint_eq(metrics()->blocks_lost_unsaved, 0);
}

CASE(a_touch_keeps_a_clean_block_in_memory)
{
    begin_core(16, 64);
    store_chains(1, 8);
    ck_assert_uint_gt(metrics()->clean_bytes, 0);
    struct core_held held = rig_acquire(&r, 1, ns, 1, 16); /* the oldest: clean */
    ck_assert_uint_eq(held.prefix.tokens, 16);
    ck_assert_int_eq(core_release(r.core, r.cl[1], held.lease), 0);
    store_chains(9, 2);
    held = rig_acquire(&r, 1, ns, 1, 16);
    ck_assert_uint_eq(held.prefix.tokens, 16);
    ck_assert_int_eq(core_release(r.core, r.cl[1], held.lease), 0);
}

/* ---- promises ---- */

CASE(a_promise_takes_the_whole_chain_to_disk)
{
    begin_core(64, 64);
    rig_store(&r, 1, ns, 0, 1, 0, 3); /* not promised */
    store_durable(1, 3, 2, KVC_ST_OK);
    ck_assert_uint_eq(fake_disk_puts(r.disk, true), 5);
    for (uint32_t i = 0; i < 5; i++)
        ck_assert(rig_explain(&r, 1, 0, 1, i).durable);
    fake_disk_out(r.disk, true);
    store_durable(2, 0, 2, KVC_ST_TIER); /* FULL asks to evict: that helps nobody */
    fake_disk_out(r.disk, false);
    ck_assert_uint_eq(rig_lookup(&r, ns, 2, 16).tokens, 16);
    ck_assert(!rig_explain(&r, 1, 0, 2, 0).durable);
}

static struct rig_commit *commit_durable(uint32_t chain)
{
    struct rig_commit *m = calloc(1, sizeof *m);
    struct rig_put p = {.ns = ns, .chain = chain, .n = 2, .durable = true};
    ck_assert_ptr_nonnull(m);
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, m), 1);
    rig_settle(&r);
    return m;
}

/* A new store gives its first room after seconds: promises were refused with FULL until then. */
CASE(promises_wait_for_a_store_that_is_being_formatted)
{
    struct rig_commit *m[4];
    begin_core(64, 64);
    fake_disk_grows(r.disk, true);
    for (uint32_t i = 0; i < ARRAY_LEN(m); i++) {
        m[i] = commit_durable(1 + i);
        ck_assert_uint_eq(m[i]->done, 0);
    }
    fake_disk_grows(r.disk, false);
    rig_step(&r);
    rig_settle(&r);
    for (uint32_t i = 0; i < ARRAY_LEN(m); i++) {
        ck_assert_uint_eq(m[i]->done, 1);
        ck_assert_uint_eq(m[i]->statuses[0], KVC_ST_OK);
        ck_assert_uint_eq(m[i]->statuses[1], KVC_ST_OK);
        rig_commit_free(m[i]);
        free(m[i]);
    }
}

CASE(what_is_promised_does_not_go_for_room)
{
    begin_core(16, 24);
    store_durable(1, 0, 2, KVC_ST_OK);
    store_chains(2, 30); /* more than both tiers hold */
    fake_disk_keeps(r.disk, false);
    for (uint32_t region = 0; region < 3; region++) {
        fake_disk_want(r.disk, region);
        rig_settle(&r);
    }
    ck_assert_uint_eq(load(1, 16), 16);
}

/* ---- reclaim, and what storage tells ---- */

CASE(reclaim_keeps_what_was_used_and_drops_the_rest)
{
    begin_core(16, 64);
    store_chains(1, 16);
    rig_step(&r);
    for (unsigned i = 0; i < 400; i++)
        (void)core_background_step(r.core); /* learns how old things are */
    fake_disk_want(r.disk, 0);
    rig_settle(&r);
    const struct core_metrics *m = metrics();
    ck_assert_uint_gt(m->blocks_reclaimed + m->blocks_kept, 0);
    for (uint32_t i = 1; i <= 16; i++) {
        uint32_t there = rig_lookup(&r, ns, i, 16).tokens;
        ck_assert_uint_eq(load(i, 16), there);
    }
}

/* What is written and never used again goes, oldest first, without being written again: in a store
 * that is full after a tenth of a second too. */
CASE(reclaim_keeps_nothing_of_a_plain_stream)
{
    begin_core(16, 96);
    for (uint32_t i = 1; i <= 40; i++) {
        rig_store(&r, 1, ns, 0, i, 0, 2);
        rig_settle(&r);
        r.now_ns += 2500000;
        core_tick(r.core, r.now_ns);
        for (unsigned n = 0; n < 50; n++)
            (void)core_background_step(r.core); /* learns how old things are */
    }
    fake_disk_want(r.disk, 0);
    rig_settle(&r);
    ck_assert_uint_eq(metrics()->blocks_kept, 0);
    ck_assert_uint_gt(metrics()->blocks_reclaimed, 0);
}

CASE(what_is_lost_on_disk_is_lost_unless_memory_has_it)
{
    begin_core(16, 64);
    store_chains(1, 16);
    while (fake_disk_lose(r.disk))
        core_check(r.core);
    const struct core_metrics *m = metrics();
    ck_assert_uint_eq(m->blocks_on_disk, 0);
    ck_assert_uint_eq(m->blocks_present, m->blocks_in_memory);
    for (uint32_t i = 1; i <= 16; i++) {
        uint32_t there = rig_lookup(&r, ns, i, 16).tokens;
        ck_assert_uint_eq(load(i, 16), there);
    }
}

/* Four of the largest are to be clean: more of the small ones than may be. */
CASE(no_more_is_written_than_may_be_clean)
{
    rig_defaults(&r);
    r.tier_cfg.regions = 2;
    r.tier_cfg.region_bytes = 400 * 64;
    r.disk_cfg = (struct fake_disk_config){.slots = 1024, .region_slots = 8, .seed = 3};
    r.cfg.blocks_max = 400;
    rig_begin(&r);
    struct core_ns_spec small = rig_spec("m", 8, 64), large = rig_spec("l", 8, 40 * 64);
    ns = rig_ns(&r, 1, &small);
    store_chains(1, 190);
    ck_assert_uint_eq(metrics()->blocks_demoted, 0);
    rig_store(&r, 1, rig_ns(&r, 1, &large), 0, 1000, 0, 10);
    rig_settle(&r);
    const uint64_t most = 400 / 8 + 64, demoted = metrics()->blocks_demoted;
    ck_assert_uint_ge(demoted, most);
    ck_assert_uint_le(demoted, most + 64); /* begun before these had landed */
}

CASE(a_drain_leaves_nothing_in_memory_alone)
{
    begin_core(64, 64);
    store_chains(1, 10);
    ck_assert_uint_eq(rig_drain(&r, 1u << 20), 20 * 64);
    rig_settle(&r);
    ck_assert_uint_eq(rig_drain(&r, 1u << 20), 0);
    ck_assert_uint_eq(metrics()->blocks_on_disk, 20);
}

CASE(a_drain_ends_with_the_write_budget)
{
    begin_core(64, 64);
    store_chains(1, 10);
    fake_disk_admit(r.disk, false);
    ck_assert_uint_eq(rig_drain(&r, 1u << 20), 20 * 64);
    rig_settle(&r);
    ck_assert_uint_eq(metrics()->blocks_on_disk, 0);
    fake_disk_admit(r.disk, true);
    ck_assert_uint_eq(rig_drain(&r, 1u << 20), 20 * 64);
    rig_settle(&r);
    ck_assert_uint_eq(metrics()->blocks_on_disk, 20);
}

/* ---- over a restart ---- */

CASE(a_restart_finds_what_both_tiers_have)
{
    for (unsigned host = 0; host < 2; host++) {
        begin_core(16, 64);
        store_chains(1, 16);
        (void)rig_drain(&r, 1u << 20);
        rig_settle(&r);
        rig_restart(&r, host);
        ck_assert_uint_eq(metrics()->blocks_present, 32);
        struct core_ns_spec spec = rig_spec("m", 8, 64);
        ns = rig_ns(&r, 1, &spec);
        for (uint32_t i = 16; i > 0; i--) /* what memory has, first */
            ck_assert_uint_eq(load(i, 16), 16);
        ck_assert_int_eq(metrics()->blocks_checked > 0, host);
        rig_end(&r);
    }
}

CASE(a_chain_without_its_beginning_does_not_come_back)
{
    begin_core(16, 64);
    rig_store(&r, 1, ns, 0, 1, 0, 4);
    rig_restart(&r, true); /* all of it was in memory, nothing on disk */
    ck_assert_uint_eq(metrics()->blocks_present, 4);
    rig_restart(&r, false);
    ck_assert_uint_eq(metrics()->blocks_present, 0);
}

/* A chain of 12 of which the end has left memory, and the beginning is used all the time. */
static void half_a_chain_leaves(void)
{
    rig_store(&r, 1, ns, 0, 1, 0, 12);
    rig_settle(&r);
    for (uint32_t i = 2; i <= 8; i++) {
        struct core_held held = rig_acquire(&r, 1, ns, 1, 32);
        ck_assert_uint_eq(held.prefix.tokens, 32);
        store_chains(i, 1);
        ck_assert_int_eq(core_release(r.core, r.cl[1], held.lease), 0);
    }
    rig_settle(&r);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 96).tokens, 96);
}

static void begin_again(void)
{
    rig_restart(&r, false);
    open_ns();
}

CASE(what_is_on_disk_has_its_beginning_there)
{
    begin_core(16, 64);
    half_a_chain_leaves();
    begin_again();
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 96).tokens, 96);
    ck_assert_uint_eq(load(1, 96), 96);
}

CASE(a_beginning_stays_on_disk_for_what_builds_on_it)
{
    begin_core(16, 64);
    half_a_chain_leaves();
    for (uint32_t region = 4; region > 0; region--) { /* the end of the chain was written first */
        fake_disk_want(r.disk, region);
        rig_settle(&r);
    }
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 96).tokens, 96);
    begin_again();
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 96).tokens, 96);
}

CASE(wrong_bytes_in_memory_after_a_restart_are_a_miss)
{
    begin_core(16, 64);
    rig_store(&r, 1, ns, 0, 1, 0, 2);
    struct rig_block x = rig_explain(&r, 1, 0, 1, 1);
    fake_tier_flip(r.tier, &x.view, 5);
    rig_restart(&r, true);
    open_ns();
    ck_assert_uint_eq(rig_acquire(&r, 1, ns, 1, 16).prefix.tokens, 0); /* nothing unchecked */
    ck_assert_uint_eq(load(1, 16), 8);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 16).group[0].reason, KVC_MISS_CORRUPT);
}
