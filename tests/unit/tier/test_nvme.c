/* SPDX-License-Identifier: Apache-2.0 */
/* The NVMe tier through tier.h on a disk that forgets: put, get, sync, recover. */
#include "cases.h"
#include "nvme_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES (UINT64_C(4) * 4096 + UINT64_C(16) * 65536)

static struct rig g;

static void setup(void)
{
    rig_init(&g, 1, PATH_BYTES, 7);
    ck_assert_int_eq(rig_open(&g), 0);
    rig_settle(&g);
}

static void teardown(void)
{
    rig_destroy(&g);
}

CASES(.setup = setup, .teardown = teardown);

CASE(a_block_is_read_back)
{
    struct tier_loc loc;
    ck_assert(g.report.fresh);
    ck_assert_int_eq(rig_put(&g, 5, 10000, false, &loc), 0);
    ck_assert_int_eq(rig_get(&g, loc, 5, 10000), 0);
    g.tier->ops->free(g.tier, loc);
}

CASE(a_new_store_says_that_room_is_coming)
{
    struct tier_loc loc;
    rig_destroy(&g);
    rig_init(&g, 1, PATH_BYTES, 7);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_int_eq(rig_put(&g, 1, 4096, true, &loc), KVC_E_BUSY);
    int err = KVC_E_BUSY;
    for (uint32_t turns = 0; err == KVC_E_BUSY && turns < 1000; turns++) {
        rig_turn(&g, 1000000);
        err = rig_put(&g, 1, 4096, true, &loc);
    }
    ck_assert_int_eq(err, 0);
    rig_settle(&g);
    while ((err = rig_put(&g, 2, 4096, false, &loc)) == 0)
        ;
    ck_assert_int_eq(err, KVC_E_NO_ROOM);
}

CASE(a_durable_block_outlives_power)
{
    struct tier_loc loc;
    for (uint32_t id = 1; id <= 20; id++)
        ck_assert_int_eq(rig_put(&g, id, 4096 + id * 100, true, &loc), 0);
    rig_crash(&g, true);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(!g.report.fresh && !g.report.rebuilt);
    ck_assert_uint_eq(g.founds, 20);
    ck_assert_uint_ge(g.records, 3);
    for (uint32_t id = 1; id <= 20; id++)
        ck_assert_int_eq(rig_get(&g, rig_where(&g, id), id, 4096 + id * 100), 0);
}

CASE(labels_are_as_they_were)
{
    struct tier_loc loc;
    ck_assert_int_eq(rig_put(&g, 6, 4096, true, &loc), 0);
    rig_close(&g);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_eq(g.founds, 1);
    const struct tier_label want = rig_label(6), *is = &g.found[0].label;
    ck_assert(key256_equal(&is->key, &want.key) && key256_equal(&is->parent, &want.parent));
    ck_assert_uint_eq(is->print, want.print);
    ck_assert_uint_eq(is->group, want.group);
    ck_assert_uint_eq(is->shard, want.shard);
    ck_assert_uint_eq(is->tokens, want.tokens);
    ck_assert(is->has_parent == want.has_parent && is->durable && !is->by_pin);
    ck_assert_uint_eq(is->level, want.level);
    ck_assert_uint_ne(is->level, 0);
}

CASE(what_was_freed_stays_away)
{
    struct tier_loc loc;
    for (uint32_t id = 1; id <= 4; id++) {
        ck_assert_int_eq(rig_put(&g, id, 4096, true, &loc), 0);
        if (id % 2 == 0)
            g.tier->ops->free(g.tier, loc);
    }
    nvme_flush(g.nvme);
    rig_settle(&g);
    rig_crash(&g, true);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_eq(g.founds, 2);
    ck_assert_uint_eq(rig_where(&g, 2).id, 0);
}

static void on_confirmed(struct tier_op *op)
{
    *(int *)op->ctx = op->status;
}

/* By the removal's own commit: nothing else is due. */
static void confirm_now(void)
{
    int status = 1;
    struct tier_op op = {.done = on_confirmed, .ctx = &status};
    g.tier->storage->confirm_frees(g.tier, &op);
    for (unsigned i = 0; i < 100 && status == 1; i++)
        rig_turn(&g, 1000);
    ck_assert_int_eq(status, 0);
}

CASE_EACH(what_was_confirmed_stays_away, 4)
{
    struct tier_loc loc[13];
    g.config.sync_ns = UINT64_C(60) * 1000000000;
    rig_close(&g);
    ck_assert_int_eq(rig_open(&g), 0);
    for (uint32_t id = 1; id <= 12; id++)
        ck_assert_int_eq(rig_put(&g, id, 4096, id % 3 != 0, &loc[id]), 0);
    for (uint32_t id = 1; id <= 12; id += 2)
        g.tier->ops->free(g.tier, loc[id]);
    confirm_now();
    rig_crash(&g, _i % 2 == 1);
    if (_i >= 2) /* the tables know of it too */
        fake_journal_damage(g.journal);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(g.report.rebuilt == (_i >= 2));
    for (uint32_t id = 1; id <= 12; id++)
        if (id % 2 != 0)
            ck_assert_uint_eq(rig_where(&g, id).id, 0);
        else if (id % 3 != 0)
            ck_assert_uint_ne(rig_where(&g, id).id, 0);
}

static unsigned ended, failed;
static uint64_t bad_page; /* cannot be read once all is written; 0: none */

static void on_batch(struct tier_op *op)
{
    ck_assert(op->status == 0 || (bad_page != 0 && op->status == -EIO));
    failed += op->status != 0;
    if (op->kind == TIER_PUT)
        g.tier->ops->set_label(g.tier, op);
    ended++;
}

/* Puts n blocks in one turn, then reads them in one, all into the same memory. */
static void batch(uint32_t n, uint32_t bytes)
{
    struct tier_op *op = calloc(n, sizeof(*op));
    uint8_t *mem;
    ck_assert_int_eq(posix_memalign((void **)&mem, 4096, (size_t)n * bytes), 0);
    memset(mem, 0x31, (size_t)n * bytes);
    for (unsigned pass = 0; pass < 2; pass++) {
        ended = failed = 0;
        if (pass == 1 && bad_page != 0)
            fake_disk_unreadable(g.disk, 0, bad_page * 4096, 4096);
        for (uint32_t i = 0; i < n; i++) {
            const struct tier_loc loc = op[i].loc;
            op[i] = (struct tier_op){.kind = pass == 0 ? TIER_PUT : TIER_GET,
                                     .loc = loc,
                                     .src = mem + (size_t)i * bytes,
                                     .dst = mem + (size_t)i * bytes,
                                     .bytes = bytes,
                                     .label = rig_label(i),
                                     .done = on_batch};
            if (pass == 0)
                ck_assert_int_eq(g.tier->ops->alloc(g.tier, 1, bytes, loc, i, &op[i].loc), 0);
            g.tier->ops->submit(g.tier, &op[i]);
        }
        for (unsigned i = 0; i < 1000 && ended < n; i++)
            rig_turn(&g, 1000000);
        ck_assert_uint_eq(ended, n);
    }
    free(mem);
    free(op);
}

static uint64_t metric(const char *name)
{
    const struct metric_set m = nvme_metric_set(g.nvme);
    const int at = metric_find(&m, name);
    ck_assert_int_ge(at, 0);
    return metric_value(&m, (unsigned)at);
}

/* A store that is written whole before the timer of the sync fires can be written on: an eighth of
 * a path is the most that waits for it. */
/* A block that went for room, was stored again and was then removed: neither copy is back. */
CASE(no_older_copy_of_what_was_confirmed_is_back)
{
    struct tier_loc loc, other;
    for (uint32_t copy = 0; copy < 3; copy++) {
        ck_assert_int_eq(rig_put(&g, 7, 4096, copy % 2 == 0, &loc), 0);
        ck_assert_int_eq(rig_put(&g, 20 + copy, 4096, true, &other), 0);
        g.tier->ops->free(g.tier, loc);
        nvme_flush(g.nvme);
        rig_settle(&g);
    }
    confirm_now();
    rig_crash(&g, true);
    fake_journal_damage(g.journal);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(g.report.rebuilt);
    ck_assert_uint_eq(g.founds, 3);
    ck_assert_uint_eq(rig_where(&g, 7).id, 0);
}

/* Tables of many sizes, so that some would have no room behind their items. */
CASE_EACH(every_table_can_say_who_died, 12)
{
    static struct tier_op op[300];
    static uint8_t page[4096] __attribute__((aligned(4096)));
    const uint32_t n = 30 + (uint32_t)_i;
    memset(page, 1, sizeof page);
    ended = 0;
    for (uint32_t i = 0; i < n; i++) {
        op[i] = (struct tier_op){.kind = TIER_PUT, .src = page, .bytes = 64, .done = on_batch};
        op[i].label = rig_label(1 + i);
        op[i].sum = hash_sum(page, 64);
        ck_assert_int_eq(g.tier->ops->alloc(g.tier, 1, 64, (struct tier_loc){0}, i, &op[i].loc), 0);
        g.tier->ops->submit(g.tier, &op[i]);
    }
    for (unsigned i = 0; i < 1000 && ended < n; i++)
        rig_turn(&g, 1000000);
    ck_assert_uint_eq(ended, n);
    for (uint32_t i = 0; i < n; i++)
        g.tier->ops->free(g.tier, op[i].loc);
    confirm_now();
    rig_crash(&g, true);
    fake_journal_damage(g.journal);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_eq(g.founds, 0);
}

CASE(without_a_journal_the_tables_tell)
{
    struct tier_loc loc;
    for (uint32_t id = 1; id <= 20; id++)
        ck_assert_int_eq(rig_put(&g, id, 4096 + id * 100, true, &loc), 0);
    rig_crash(&g, true);
    fake_journal_damage(g.journal);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(g.report.rebuilt);
    ck_assert_uint_eq(g.founds, 20);
    /* And the journal is whole again. */
    rig_crash(&g, true);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(!g.report.rebuilt);
    ck_assert_uint_eq(g.founds, 20);
    for (uint32_t id = 1; id <= 20; id++)
        ck_assert_int_eq(rig_get(&g, rig_where(&g, id), id, 4096 + id * 100), 0);
}

CASE(a_sync_does_not_wait_for_its_time_when_much_is_written)
{
    struct tier_loc loc;
    rig_destroy(&g);
    rig_init(&g, 1, PATH_BYTES, 9);
    g.config.sync_ns = UINT64_C(1000) * 1000000000;
    ck_assert_int_eq(rig_open(&g), 0);
    rig_settle(&g);
    const uint64_t syncs = metric("syncs"), commits = metric("commits");
    ck_assert_int_eq(rig_put(&g, 1, 65536 - 8 * 4096, false, &loc), 0);
    ck_assert_uint_eq(metric("syncs"), syncs);
    for (uint32_t id = 2; id <= 6; id++)
        ck_assert_int_eq(rig_put(&g, id, 65536 - 8 * 4096, false, &loc), 0);
    ck_assert_uint_gt(metric("syncs"), syncs);
    ck_assert_uint_gt(metric("commits"), commits);
}

/* 64 KiB, 256 KiB, 1 MiB: what is written beside payload is a twentieth at most, and neighbours are
 * read as one. */
CASE_EACH(blocks_of_a_turn_are_one_write_and_one_read, 3)
{
    const uint32_t bytes = 65536u << 2 * _i, n = (16u << 20) / bytes;
    rig_destroy(&g);
    rig_init(&g, 1, UINT64_C(64) << 20, 9);
    g.config.segment_bytes = UINT64_C(8) << 20;
    g.config.extent_bytes = UINT64_C(2) << 20;
    ck_assert_int_eq(rig_open(&g), 0);
    rig_settle(&g);
    const uint64_t before = metric("bytes_written");
    batch(n, bytes);
    const uint64_t written = metric("bytes_written") - before + metric("bytes_journal");
    ck_assert_uint_eq(metric("bytes_accepted"), (uint64_t)n * bytes);
    ck_assert_uint_le(written, metric("bytes_accepted") / 100 * 105);
    ck_assert_uint_le(metric("writes"), 11);
    ck_assert_uint_le(metric("reads"), 11);
}

/* A read of many blocks fails, and one of them is bad: it costs that one, and the path stays. */
CASE_EACH(a_bad_place_costs_the_block_that_it_is_in, 3)
{
    rig_destroy(&g);
    rig_init(&g, 1, UINT64_C(64) << 20, 9);
    g.config.segment_bytes = UINT64_C(8) << 20;
    g.config.extent_bytes = UINT64_C(2) << 20;
    ck_assert_int_eq(rig_open(&g), 0);
    rig_settle(&g);
    bad_page = 4 + 16 * (unsigned)_i + 8; /* of the header, blocks, and in the middle of one */
    batch(24, 65536);
    ck_assert_uint_eq(failed, 1);
    ck_assert_int_eq(nvme_path_error(g.nvme, 0), 0);
    ck_assert_uint_ge(metric("reads"), 24);
    bad_page = 0;
}

CASE(one_bad_place_does_not_take_the_path_out)
{
    struct tier_loc a, b;
    ck_assert_int_eq(rig_put(&g, 1, 5000, false, &a), 0);
    ck_assert_int_eq(rig_put(&g, 2, 5000, false, &b), 0);
    fake_disk_unreadable(g.disk, 0, 0, PATH_BYTES);
    for (unsigned i = 0; i < 10; i++)
        ck_assert_int_eq(rig_get(&g, a, 1, 5000), -EIO);
    ck_assert_int_eq(nvme_path_error(g.nvme, 0), 0);
    ck_assert_int_eq(rig_get(&g, b, 2, 5000), -EIO);
    ck_assert_int_eq(nvme_path_error(g.nvme, 0), -EIO);
    fake_disk_unreadable(g.disk, 0, 0, 0);
    for (unsigned i = 0; i < 10; i++)
        rig_turn(&g, 1000000000);
    ck_assert_int_eq(rig_get(&g, a, 1, 5000), 0);
}

CASE(the_write_budget_outlives_a_restart)
{
    struct tier_loc loc;
    rig_destroy(&g);
    rig_init(&g, 1, PATH_BYTES, 9);
    g.config.write_per_day = 86400 * 1000;
    g.config.write_burst = 100000;
    ck_assert_int_eq(rig_open(&g), 0);
    rig_settle(&g);
    ck_assert(g.tier->storage->admits(g.tier, 4096, UINT64_C(1) << 40));
    for (uint32_t id = 1; id <= 6; id++)
        ck_assert_int_eq(rig_put(&g, id, 4096, true, &loc), 0);
    const uint64_t left = metric("budget_left_bytes");
    ck_assert_uint_lt(left, 60000);
    ck_assert(
        !g.tier->storage->admits(g.tier, 4096, UINT64_C(1) << 40)); /* too old for what is left */
    ck_assert(g.tier->storage->admits(g.tier, 4096, 10));
    rig_close(&g);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_le(metric("budget_left_bytes"), left + 5000);
    for (unsigned i = 0; i < 200; i++)
        rig_turn(&g, 1000000000);
    ck_assert_uint_eq(metric("budget_left_bytes"), 100000);
}

/* Blocks with ids below are durable; the others fill the store. */
#define DURABLES 100u

static void on_told(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    (void)ctx;
    if (block_no >= DURABLES)
        g.tier->ops->free(g.tier, loc);
    else
        (void)g.tier->storage->keep(g.tier, loc, block_no); /* refused: it is told again */
}

/* Each life leaves one more segment of durable blocks that is not full: moves may take more
 * than the half that durable blocks have, or nothing would ever be moved again. */
CASE(durable_blocks_move_when_they_have_more_than_their_half)
{
    struct tier_loc loc;
    int r = 0;
    g.by_id = true;
    for (uint32_t id = 1; r == 0; id += 2) {
        rig_crash(&g, false);
        ck_assert_int_eq(rig_open(&g), 0);
        r = rig_put(&g, id, 4096, true, &loc);
        r = r == 0 ? rig_put(&g, id + 1, 4096, true, &loc) : r;
    }
    ck_assert(r == -ENOSPC || r == KVC_E_NO_ROOM);
    for (uint32_t life = 1; life <= 8; life++) {
        for (uint32_t i = 0; i < 400 && metric("blocks_kept") == 0; i++) {
            r = rig_put(&g, life * 1000 + i, 10 * 4096, false, &loc);
            ck_assert(r == 0 || r == -ENOSPC || r == KVC_E_NO_ROOM);
            g.tier->storage->reclaim(g.tier, 1, on_told, NULL);
            rig_turn(&g, 1000000);
        }
        ck_assert_msg(metric("blocks_kept") > 0, "life %u", life);
        rig_crash(&g, false);
        ck_assert_int_eq(rig_open(&g), 0);
    }
}

/* Each life leaves a segment with two durable blocks: these are merged, so that others find room
 * after any number of restarts. _i / 2: deletions are committed late; _i % 2: lives end by a stop.
 */
CASE_EACH(durable_blocks_find_room_after_many_restarts, 4)
{
    enum { LIVES = 24 };
    struct tier_loc loc;
    rig_destroy(&g);
    rig_init(&g, 1, PATH_BYTES, 9);
    g.config.sync_ns = _i / 2 ? UINT64_C(60000000000) : 0;
    g.by_id = true;
    for (uint32_t id = 1; id <= 2 * LIVES; id++) {
        if (id % 2 == 1) {
            if (id > 1)
                (_i % 2 ? rig_close(&g) : rig_crash(&g, true));
            ck_assert_int_eq(rig_open(&g), 0);
            for (uint32_t i = 0; i < 30; i++) {
                g.tier->storage->reclaim(g.tier, 64, on_told, NULL);
                rig_turn(&g, 10000000);
            }
        }
        ck_assert_msg(rig_put(&g, id, 4096, true, &loc) == 0, "block %u", id);
    }
    rig_crash(&g, true);
    ck_assert_int_eq(rig_open(&g), 0);
    for (uint32_t id = 1; id <= 2 * LIVES; id++)
        ck_assert_int_eq(rig_get(&g, rig_where(&g, id), id, 4096), 0);
}

static void on_gone(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    (void)ctx;
    (void)block_no;
    g.tier->ops->free(g.tier, loc);
}

/* What is held back for moves is never all that reclaim keeps free, or it would stop. */
CASE_EACH(a_store_of_few_segments_is_written_on, 8)
{
    struct tier_loc loc;
    rig_destroy(&g);
    rig_init(&g, 1, UINT64_C(4) * 4096 + (UINT64_C(4) + _i) * 65536, 9);
    g.config.segment_bytes = 65536;
    ck_assert_int_eq(rig_open(&g), 0);
    rig_settle(&g);
    unsigned good = 0;
    for (uint32_t i = 0; i < 400; i++) {
        good += rig_put(&g, DURABLES + i, 10 * 4096, false, &loc) == 0;
        g.tier->storage->reclaim(g.tier, 64, on_gone, NULL);
        rig_turn(&g, 1000000);
    }
    ck_assert_uint_ge(good, 200);
}

static void on_kept(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    (void)ctx;
    (void)g.tier->storage->keep(g.tier, loc, block_no);
}

/* Of what core keeps no room is gained, and reclaim gives up for a while. Core asks whether a block
 * may be written before it asks for room: that is asking for room too, or nothing is ever written
 * again. */
CASE(who_is_refused_has_asked_for_room)
{
    struct tier_loc loc;
    uint32_t id = DURABLES, told = 0;
    while (rig_put(&g, id, 4 * 4096, false, &loc) == 0)
        id++;
    for (unsigned i = 0, rests = 0; i < 5000 && rests < 400; i++) {
        told = g.tier->storage->reclaim(g.tier, 64, on_kept, NULL);
        rests = told == 0 ? rests + 1 : 0;
        rig_turn(&g, 1000000);
    }
    ck_assert_uint_eq(told, 0);
    ck_assert_uint_gt(metric("blocks_kept"), 0);
    for (unsigned i = 0; i < 400 && told == 0; i++) {
        ck_assert(!g.tier->storage->admits(g.tier, 14 * 4096, 0));
        told = g.tier->storage->reclaim(g.tier, 64, on_gone, NULL);
        rig_turn(&g, 1000000000);
    }
    ck_assert_uint_gt(told, 0);
}

static unsigned kept_of;
static void on_half(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    (kept_of++ % 2 ? on_kept : on_gone)(ctx, loc, block_no);
}

/* Half of all is written again, so of two bytes one is payload that came. */
CASE(write_amplification_counts_what_is_written_again)
{
    struct tier_loc loc;
    ck_assert_uint_eq(metric("write_amplification_percent"), 0);
    for (uint32_t i = 0; i < 2000; i++) {
        const int r = rig_put(&g, DURABLES + i, 4 * 4096, false, &loc);
        ck_assert(r == 0 || r == -ENOSPC || r == KVC_E_NO_ROOM);
        (void)g.tier->storage->reclaim(g.tier, 8, on_half, NULL);
        rig_turn(&g, 10000000);
    }
    const uint64_t all = metric("bytes_written") + metric("bytes_journal");
    ck_assert_uint_gt(metric("bytes_kept"), metric("bytes_accepted") / 4);
    ck_assert_uint_eq(metric("write_amplification_percent"), all * 100 / metric("bytes_accepted"));
    ck_assert_uint_gt(metric("write_amplification_percent"),
                      100 + 100 * metric("bytes_kept") / metric("bytes_accepted"));
}

static int reclaim_and_put(uint32_t id, struct tier_loc *ret_loc)
{
    for (uint32_t i = 0; i < 50; i++) {
        g.tier->storage->reclaim(g.tier, 64, on_gone, NULL);
        rig_turn(&g, 1000000000);
    }
    return rig_put(&g, id, 10 * 4096, true, ret_loc);
}

/* Durable blocks have half of the store; those that become ordinary give it back. */
CASE(what_is_durable_no_more_is_reclaimed)
{
    static struct tier_loc loc[DURABLES], last;
    uint32_t n = 0, segments = 0;
    int r = 0;
    while (n < DURABLES && (r = rig_put(&g, n + 1, 10 * 4096, true, &loc[n])) == 0)
        n++;
    ck_assert_int_eq(r, -ENOSPC);
    for (; segments < DURABLES; segments++) /* the other half too, so that room is wanted */
        if (rig_put(&g, 1000 + segments, 10 * 4096, false, &last) != 0)
            break;
    ck_assert_int_eq(reclaim_and_put(500, &last), -ENOSPC);
    ck_assert_uint_eq(metric("durable_bytes"), (uint64_t)n * 10 * 4096);
    for (uint32_t i = 0; i < n; i++) {
        g.tier->storage->make_ordinary(g.tier, loc[i]);
        g.tier->storage->make_ordinary(g.tier, loc[i]); /* twice is as good as once */
        ck_assert_int_eq(rig_get(&g, loc[i], i + 1, 10 * 4096), 0);
    }
    ck_assert_uint_eq(metric("durable_bytes"), 0);
    ck_assert_int_eq(reclaim_and_put(501, &last), 0);
}

CASE(the_budget_says_once_what_came)
{
    ck_assert_uint_eq(g.tier->storage->granted(g.tier), UINT64_MAX);
    rig_destroy(&g);
    rig_init(&g, 1, PATH_BYTES, 9);
    g.config.write_per_day = 86400 * 1000;
    g.config.write_burst = 100000;
    struct tier_loc loc;
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_eq(g.tier->storage->granted(g.tier), 100000);
    rig_settle(&g);
    ck_assert_int_eq(rig_put(&g, 1, 20000, true, &loc), 0);
    (void)g.tier->storage->granted(g.tier);
    for (unsigned i = 0; i < 5; i++)
        rig_turn(&g, 1000000000);
    ck_assert_uint_eq(g.tier->storage->granted(g.tier), 5000);
    ck_assert_uint_eq(g.tier->storage->granted(g.tier), 0);
}
