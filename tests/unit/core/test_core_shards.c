/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of several shards, each stored by a rank of its own: what is asked for one of them holds
 * for the block. */
#include <stdlib.h>

#include "names_rig.h"

#define SHARDS 2u

static struct core_ns *wide; /* two shards */

/* As begin(), with a namespace of two shards beside. */
static void begin_wide(uint32_t host, uint32_t disk, bool journal)
{
    begin(host, disk, journal);
    struct core_ns_spec spec = rig_spec("wide", BT, 64);
    spec.shards = SHARDS;
    wide = rig_ns(&r, 1, &spec);
}

static void restart(bool host)
{
    rig_restart(&r, host);
    struct core_ns_spec spec = rig_spec("m", BT, 64);
    ns = rig_ns(&r, 1, &spec);
    spec = rig_spec("wide", BT, 64);
    spec.shards = SHARDS;
    wide = rig_ns(&r, 1, &spec);
}

/* What one rank stores: blocks 0 .. n - 1 of a chain. Ranks 0 and 1 are clients 1 and 2. */
struct part_of {
    struct rig_put p;
    struct rig_commit m;
};

static struct part_of *reserve(uint32_t shard, uint32_t chain, uint32_t n, bool durable)
{
    struct part_of *x = calloc(1, sizeof *x);
    ck_assert_ptr_nonnull(x);
    x->p = (struct rig_put){.ns = wide, .shard = shard, .chain = chain, .n = n, .durable = durable};
    ck_assert_int_eq(rig_reserve(&r, 1 + shard, &x->p), 0);
    for (uint32_t i = 0; i < n; i++)
        ck_assert_uint_eq(x->p.statuses[i], KVC_ST_OK);
    return x;
}

static void commit(struct part_of *x)
{
    ck_assert_int_eq(rig_commit(&r, 1 + x->p.shard, &x->p, &x->m), 1);
    rig_settle(&r);
}

static struct part_of *store_part(uint32_t shard, uint32_t chain, uint32_t n, bool durable)
{
    struct part_of *x = reserve(shard, chain, n, durable);
    commit(x);
    return x;
}

static void told(struct part_of *x, uint8_t want)
{
    ck_assert_uint_eq(x->m.done, 1);
    for (uint32_t i = 0; i < x->p.n; i++)
        ck_assert_uint_eq(x->m.statuses[i], want);
    rig_commit_free(&x->m);
    free(x);
}

static struct core_ns_view wide_view(void)
{
    struct core_ns_view v;
    core_ns_view(wide, &v);
    return v;
}

static bool is_durable(uint32_t chain, uint32_t i)
{
    return rig_explain(&r, 1, wide_view().id, chain, i).durable;
}

/* Both shards of the first n blocks can be read. */
static void check_both(uint32_t chain, uint32_t n)
{
    struct core_held held = rig_load(&r, 1, wide, chain, n * BT);
    ck_assert_uint_eq(held.prefix.tokens, n * BT);
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        rig_check_lease(&r, 1, held.lease, shard);
    rig_release(&r, 1, &held);
}

/* ---- durable stores ---- */

CASES(.teardown = end);

/* Every rank but the last heard OK before anything was on disk. */
CASE_EACH(each_rank_is_answered_when_the_whole_block_is_durable, 2)
{
    const bool last_too = _i;
    begin_wide(64, 64, false);
    struct part_of *first = store_part(0, 1, 2, true);
    ck_assert_uint_eq(first->m.done, 0);
    ck_assert_uint_eq(fake_disk_puts(r.disk, true), 0);
    struct part_of *last = store_part(1, 1, 2, last_too);
    ck_assert_uint_eq(fake_disk_puts(r.disk, true), 2 * SHARDS);
    told(first, KVC_ST_OK);
    told(last, KVC_ST_OK);
    ck_assert(is_durable(1, 0) && is_durable(1, 1));
    restart(false);
    check_both(1, 2);
}

CASE(the_last_rank_binds_the_block_too)
{
    begin_wide(64, 64, false);
    told(store_part(0, 1, 2, false), KVC_ST_OK);
    told(store_part(1, 1, 2, true), KVC_ST_OK);
    ck_assert(is_durable(1, 0) && is_durable(1, 1));
}

/* Who asked has gone, and what was asked holds. */
CASE(what_a_rank_asked_for_outlives_its_wait)
{
    begin_wide(64, 64, false);
    struct part_of *first = store_part(0, 1, 2, true);
    core_cancel(r.core, &first->m.c.req);
    rig_settle(&r);
    told(first, KVC_ST_CANCELLED);
    told(store_part(1, 1, 2, false), KVC_ST_OK);
    ck_assert(is_durable(1, 0) && is_durable(1, 1));
}

CASE(who_comes_second_to_a_shard_binds_the_block_too)
{
    begin_wide(64, 64, false);
    struct part_of *first = reserve(0, 1, 2, false);
    struct rig_put again = {.ns = wide, .chain = 1, .n = 2, .durable = true};
    ck_assert_int_eq(rig_reserve(&r, 2, &again), 0);
    ck_assert(again.statuses[0] == KVC_ST_PENDING && again.statuses[1] == KVC_ST_PENDING);
    commit(first);
    told(first, KVC_ST_OK);
    told(store_part(1, 1, 2, false), KVC_ST_OK);
    ck_assert(is_durable(1, 0) && is_durable(1, 1));
}

CASE(a_rank_whose_block_is_dropped_by_another_is_told)
{
    begin_wide(64, 64, false);
    struct part_of *other = reserve(1, 1, 2, false);
    struct part_of *first = store_part(0, 1, 2, true);
    ck_assert_uint_eq(first->m.done, 0);
    ck_assert_int_eq(core_drop(r.core, r.cl[2], other->p.reservation), 0);
    rig_settle(&r);
    told(first, KVC_ST_GONE);
    free(other);
    ck_assert_uint_eq(fake_disk_used(r.disk), 0);
}

/* A half block is not in use, whoever waits for it. */
CASE(a_rank_whose_half_block_goes_for_room_is_told)
{
    begin_wide(16, 64, false);
    struct part_of *first = store_part(0, 1, 2, true);
    for (uint32_t i = 0; i < 16; i++)
        store(10 + i, 0, 1);
    told(first, KVC_ST_GONE);
}

/* The store that waits is told when the block is complete. */
CASE(each_rank_is_told_that_storage_has_no_room)
{
    begin_wide(64, 2 * SHARDS, false);
    struct part_of *before = store_part(0, 2, 2, true);
    told(store_part(1, 2, 2, true), KVC_ST_OK);
    told(before, KVC_ST_OK);
    struct part_of *first = store_part(0, 1, 2, true);
    struct part_of *last = store_part(1, 1, 2, true);
    told(first, KVC_ST_FULL);
    told(last, KVC_ST_FULL);
    ck_assert(!is_durable(1, 0));
}

CASE(each_rank_is_told_that_storage_is_out_of_service)
{
    begin_wide(64, 64, false);
    struct part_of *first = store_part(0, 1, 2, true);
    fake_disk_out(r.disk, true);
    struct part_of *last = store_part(1, 1, 2, true);
    told(first, KVC_ST_TIER);
    told(last, KVC_ST_TIER);
    ck_assert(!is_durable(1, 0));
    fake_disk_out(r.disk, false);
}

/* ---- names and pins ---- */

static int put_wide(const char *name, uint32_t tokens, struct waited *w)
{
    struct core_seq seq = rig_seq(wide, 1, tokens);
    struct core_named n;
    const struct core_name_put in = {
        .id = id_of(KVC_NAME_CONVERSATION, name, ""), .seq = &seq, .durable = true};
    *w = (struct waited){.w = {.fn = on_waited}};
    return core_name_put(r.core, r.cl[1], &in, &w->w, &n, &r.why);
}

CASE(a_name_keeps_all_shards_of_what_it_reaches)
{
    begin_wide(64, 64, true);
    rig_store_shards(&r, 1, wide, 0, 1, 0, 3);
    struct waited w;
    ck_assert_int_eq(put_wide("c", 3 * BT, &w), 1);
    rig_settle(&r);
    ck_assert(w.calls == 1 && w.err == 0);
    ck_assert_uint_eq(fake_disk_puts(r.disk, true), 3 * SHARDS);
    restart(false);
    ck_assert_uint_eq(view("c").tokens_cached, 3 * BT);
    check_both(1, 3);
    ck_assert(is_durable(1, 2));
    forget("c", true); /* each shard of each goes */
    rig_settle(&r);
    ck_assert_uint_eq(fake_disk_used(r.disk), 0);
}

CASE(a_name_does_not_reach_a_block_that_lacks_a_shard)
{
    begin_wide(64, 64, true);
    rig_store_shards(&r, 1, wide, 0, 1, 0, 2);
    struct part_of *x = calloc(1, sizeof *x);
    ck_assert_ptr_nonnull(x);
    x->p = (struct rig_put){.ns = wide, .chain = 1, .first = 2, .n = 1};
    ck_assert_int_eq(rig_reserve(&r, 1, &x->p), 0);
    commit(x);
    told(x, KVC_ST_OK);
    struct waited w;
    ck_assert_int_eq(put_wide("c", 3 * BT, &w), 1);
    rig_settle(&r);
    ck_assert(w.calls == 1 && w.err == 0);
    ck_assert_uint_eq(view("c").tokens, 2 * BT);
}

CASE(a_pin_keeps_all_shards)
{
    begin_wide(16, 64, false);
    rig_store_shards(&r, 1, wide, 0, 1, 0, 2);
    const struct core_pin in = {.seq = rig_seq(wide, 1, 2 * BT), .in_memory = true};
    struct core_pinned pin;
    ck_assert_int_eq(core_pin(r.core, &in, &pin, &r.why), 0);
    ck_assert_uint_eq(pin.bytes, 2 * SHARDS * 64);
    rig_settle(&r);
    ck_assert_uint_eq(fake_disk_puts(r.disk, true), 2 * SHARDS);
    for (uint32_t i = 0; i < 32; i++)
        store(10 + i, 0, 1);
    struct core_held held = rig_acquire(&r, 1, wide, 1, 2 * BT); /* without a load */
    ck_assert_uint_eq(held.prefix.tokens, 2 * BT);
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        rig_check_lease(&r, 1, held.lease, shard);
    rig_release(&r, 1, &held);
    const uint32_t before = fake_disk_made_ordinary(r.disk);
    ck_assert_int_eq(core_unpin(r.core, NULL, pin.id), 0);
    ck_assert_uint_eq(fake_disk_made_ordinary(r.disk) - before, 2 * SHARDS);
    ck_assert(!is_durable(1, 0));
}

/* ---- moves, and what is left of a block ---- */

CASE(all_shards_leave_memory_and_come_back)
{
    begin_wide(16, 128, false);
    for (uint32_t i = 0; i < 12; i++) {
        rig_store_shards(&r, 1, wide, 0, 1 + i, 0, 2);
        rig_settle(&r);
        rig_step(&r);
    }
    ck_assert_uint_eq(metrics()->blocks_lost_unsaved, 0);
    for (uint32_t i = 0; i < 12; i++)
        check_both(1 + i, 2);
    ck_assert_uint_gt(metrics()->blocks_loaded, 12);
}

CASE_EACH(one_bad_shard_on_disk_costs_the_block, SHARDS)
{
    const uint32_t shard = (uint32_t)_i;
    begin_wide(64, 64, false);
    told(store_part(0, 1, 2, false), KVC_ST_OK);
    told(store_part(1, 1, 2, true), KVC_ST_OK);
    restart(false);
    ck_assert(fake_disk_flip(r.disk, rig_key(1, 1).b, shard));
    struct core_held held = rig_load(&r, 1, wide, 1, 2 * BT);
    ck_assert_uint_eq(held.prefix.tokens, BT);
    ck_assert_uint_eq(held.prefix.group[0].reason, KVC_MISS_CORRUPT);
    rig_release(&r, 1, &held);
    rig_settle(&r);
    ck_assert_uint_eq(fake_disk_used(r.disk), SHARDS);
}

static void on_woken(struct core_waiter *w)
{
    w->keys = UINT32_MAX;
}

CASE(a_shard_lost_under_a_read_takes_the_others_after_it)
{
    const struct key256 key = rig_key(1, 0);
    begin_wide(64, 64, false);
    told(store_part(0, 1, 1, false), KVC_ST_OK);
    told(store_part(1, 1, 1, true), KVC_ST_OK);
    restart(false);
    struct core_acquire in = {.seq = rig_seq(wide, 1, BT), .load = true};
    static struct core_waiter w; /* its load is let go of when the core ends */
    w = (struct core_waiter){.fn = on_woken};
    struct core_held held;
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, &w, &held, &r.why), 1);
    (void)core_background_step(r.core);
    ck_assert_uint_eq(fake_disk_inflight(r.disk), SHARDS);
    r.cfg.tier[CORE_STORAGE]->storage->kick(r.cfg.tier[CORE_STORAGE]);
    ck_assert_uint_eq(fake_disk_run(r.disk, 1, 0), 1);
    ck_assert_uint_eq(fake_disk_inflight(r.disk), SHARDS - 1);
    ck_assert(fake_disk_lose_this(r.disk, key.b, 0) || fake_disk_lose_this(r.disk, key.b, 1));
    ck_assert_uint_eq(fake_disk_used(r.disk), SHARDS - 1); /* it is being read */
    rig_settle(&r);
    ck_assert_uint_eq(w.keys, UINT32_MAX);
    ck_assert_uint_eq(fake_disk_used(r.disk), SHARDS); /* written again: it was promised */
}

CASE(eviction_takes_all_shards)
{
    begin_wide(64, 64, false);
    told(store_part(0, 1, 2, false), KVC_ST_OK);
    told(store_part(1, 1, 2, true), KVC_ST_OK);
    struct core_evict_job job = {.client = r.cl[0], .ns = wide_view().id};
    rig_evict(&r, &job);
    ck_assert_uint_eq(job.ret_blocks, 2);
    ck_assert_uint_eq(job.ret_bytes, 2 * SHARDS * 64);
    rig_settle(&r);
    ck_assert_uint_eq(fake_disk_used(r.disk), 0);
    ck_assert_uint_eq(rig_slots(&r), 0);
}

/* What a store that died in the middle of a promise leaves: shard 0 with it, shard 1 as it was. */
CASE_EACH(a_promise_of_one_shard_is_none, SHARDS)
{
    begin_wide(64, 64, false);
    told(store_part(0, 1, 1, false), KVC_ST_OK);
    told(store_part(1, 1, 1, true), KVC_ST_OK);
    ck_assert(fake_disk_plain(r.disk, rig_key(1, 0).b, (uint32_t)_i));
    restart(false);
    ck_assert(!is_durable(1, 0));
    ck_assert_uint_eq(fake_disk_made_ordinary(r.disk), SHARDS - 1);
    check_both(1, 1);
}
