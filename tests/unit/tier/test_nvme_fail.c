/* SPDX-License-Identifier: Apache-2.0 */
/* Every I/O, sync and journal commit of a short story fails once: nothing durable is lost. */
#include "cases.h"
#include "nvme_rig.h"

#include <stdlib.h>

#define PATH_BYTES (UINT64_C(4) * 4096 + UINT64_C(8) * 65536)
#define BLOCKS     80u

static struct rig g;
static struct tier_loc where[BLOCKS + 1];
static bool is_durable[BLOCKS + 1];

static void on_lost(void *ctx, uint32_t block_no, struct tier_loc loc)
{
    (void)ctx;
    ck_assert(!is_durable[block_no]);
    ck_assert_uint_eq(where[block_no].id, loc.id);
    where[block_no].id = 0;
}

static void on_moved(void *ctx, uint32_t block_no, struct tier_loc from, struct tier_loc to)
{
    (void)ctx;
    ck_assert_uint_eq(where[block_no].id, from.id);
    where[block_no] = to;
}

static void occupant(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    (void)ctx;
    ck_assert_uint_eq(where[block_no].id, loc.id);
    if (g.tier->storage->keep(g.tier, loc, block_no) || is_durable[block_no])
        return;
    g.tier->ops->free(g.tier, loc);
    where[block_no].id = 0;
}

/* Stores, reads, frees and reclaims; everything may fail. */
static void story(void)
{
    g.tier->events = (struct tier_events){.moved = on_moved, .lost = on_lost};
    for (uint32_t id = 1; id <= BLOCKS; id++) {
        const bool durable = id % 3 == 0;
        if (rig_put(&g, id, 6000 + id, durable, &where[id]) != 0)
            where[id].id = 0;
        else
            is_durable[id] = durable;
        rig_turn(&g, UINT64_C(300) * 1000000);
        (void)g.tier->storage->reclaim(g.tier, 8, occupant, NULL);
        if (id % 5 == 0 && where[id - 1].id != 0 && !is_durable[id - 1]) {
            g.tier->ops->free(g.tier, where[id - 1]);
            where[id - 1].id = 0;
        }
    }
    for (uint32_t id = 1; id <= BLOCKS; id++)
        if (where[id].id != 0) {
            const int r = rig_get(&g, where[id], id, 6000 + id);
            ck_assert(r == 0 || r == -EIO);
        }
    for (unsigned i = 0; i < 100; i++)
        rig_turn(&g, 1000000000);
}

static void check_durable(bool power)
{
    rig_crash(&g, power);
    ck_assert_int_eq(rig_open(&g), 0);
    for (uint32_t id = 1; id <= BLOCKS; id++)
        if (is_durable[id]) {
            ck_assert_uint_ne(rig_where(&g, id).id, 0);
            ck_assert_int_eq(rig_get(&g, rig_where(&g, id), id, 6000 + id), 0);
        }
}

/* Whether the n-th operation of the disk, or commit, was reached. */
static bool once(uint64_t nth, bool journal, int error)
{
    rig_init(&g, 1 + nth % 2, PATH_BYTES, 3);
    for (uint32_t id = 0; id <= BLOCKS; id++) {
        where[id].id = 0;
        is_durable[id] = false;
    }
    g.config.retry_ns = 1000000000;
    g.by_id = true;
    const uint64_t ops = fake_disk_ops(g.disk), commits = fake_journal_commits(g.journal);
    if (journal)
        fake_journal_fail_nth(g.journal, nth, error);
    else
        fake_disk_fail_nth(g.disk, nth, error);
    const int opened = rig_open(&g);
    if (opened == 0) {
        for (unsigned i = 0; i < 50; i++)
            rig_turn(&g, 1000000000);
        story();
    } else {
        ck_assert(g.report.note[0] != '\0');
        fake_on(g.disk, g.journal, true);
        ck_assert_int_eq(rig_open(&g), 0);
    }
    const bool reached = journal ? fake_journal_commits(g.journal) - commits >= nth
                                 : fake_disk_ops(g.disk) - ops >= nth;
    check_durable(nth % 3 != 0);
    rig_destroy(&g);
    return reached;
}

CASES(.timeout_s = 300);

CASE(every_operation_of_the_disk)
{
    static const int errors[] = {-EIO, -ENOSPC, -EROFS};
    uint64_t n = 1;
    while (once(n, false, errors[n % 3]))
        n++;
    ck_assert_uint_gt(n, 100);
}

CASE(every_commit)
{
    uint64_t n = 1;
    while (once(n, true, -EIO))
        n++;
    ck_assert_uint_gt(n, 8);
}

static uint64_t countdown;
static enum disk_kind failed_kind; /* of the operation at which it ended */

static void on_submit(void *ctx, const struct disk_op *op)
{
    (void)ctx;
    if (countdown != 0 && --countdown == 0)
        failed_kind = op->kind;
}

/* The same when the store is opened again, with a journal (0) or without (1): each read of
 * superblocks, tables, and of what may not have been synced. A failed sync of what was found
 * without a journal loses it, as any failed sync does. */
CASE_EACH(every_operation_of_a_recovery, 2)
{
    for (uint64_t n = 1, reached = 1; reached; n++) {
        rig_init(&g, 1, PATH_BYTES, 5);
        g.by_id = true;
        ck_assert_int_eq(rig_open(&g), 0);
        rig_settle(&g);
        for (uint32_t id = 1; id <= 9; id++)
            ck_assert_int_eq(rig_put(&g, id, 5000, true, &where[id]), 0);
        rig_crash(&g, true);
        if (_i == 1)
            fake_journal_damage(g.journal);
        const uint64_t before = fake_disk_ops(g.disk);
        fake_disk_fail_nth(g.disk, n, -EIO);
        fake_disk_on_submit(g.disk, on_submit, NULL);
        countdown = n;
        const int r = rig_open(&g);
        reached = fake_disk_ops(g.disk) - before >= n;
        if (r == 0)
            rig_crash(&g, true);
        else
            fake_on(g.disk, g.journal, true);
        ck_assert_int_eq(rig_open(&g), 0);
        if (!(_i == 1 && r == 0 && reached && failed_kind == DISK_SYNC))
            ck_assert_uint_eq(g.founds, 9);
        rig_destroy(&g);
    }
}

static void on_done(struct tier_op *op)
{
    *(bool *)op->ctx = true;
}

CASE(a_slow_path_is_taken_out_and_comes_back)
{
    struct nvme_path_stats st;
    static uint8_t dst[8192] __attribute__((aligned(4096)));
    bool done = false;
    rig_init(&g, 1, PATH_BYTES, 5);
    ck_assert_int_eq(rig_open(&g), 0);
    rig_settle(&g);
    ck_assert_int_eq(rig_put(&g, 1, 5000, true, &where[1]), 0);
    struct tier_op op = {.kind = TIER_GET,
                         .loc = where[1],
                         .dst = dst,
                         .bytes = 5000,
                         .done = on_done,
                         .ctx = &done};

    fake_disk_stall(g.disk, 0, true);
    g.tier->ops->submit(g.tier, &op);
    for (unsigned i = 0; i < 10; i++)
        rig_turn(&g, 1000000000);
    nvme_path_stats(g.nvme, 0, &st);
    ck_assert_int_eq(st.state, NVME_PATH_OUT);
    ck_assert_int_eq(st.error, -ETIMEDOUT);
    ck_assert(!done && !g.tier->storage->readable(g.tier, where[1]));

    fake_disk_stall(g.disk, 0, false);
    for (unsigned i = 0; i < 10; i++)
        rig_turn(&g, 1000000000);
    ck_assert(done && g.tier->storage->readable(g.tier, where[1]));
    ck_assert_int_eq(rig_get(&g, where[1], 1, 5000), 0);
    rig_destroy(&g);
}

/* What is written into a file without a name is lost at the next start, however well it is synced:
 * durable stores were acknowledged there. */
CASE(a_file_that_loses_its_name_is_taken_out_until_it_is_back)
{
    struct nvme_path_stats st;
    rig_init(&g, 1, PATH_BYTES, 5);
    ck_assert_int_eq(rig_open(&g), 0);
    rig_settle(&g);
    ck_assert_int_eq(rig_put(&g, 1, 5000, true, &where[1]), 0);
    fake_disk_unlink(g.disk, 0, true);
    for (unsigned i = 0; i < 100; i++)
        rig_turn(&g, 1000000000);
    nvme_path_stats(g.nvme, 0, &st);
    ck_assert_int_eq(st.state, NVME_PATH_OUT);
    ck_assert_int_eq(st.error, -ENOENT);
    ck_assert_uint_eq(st.outs, 1);
    ck_assert_int_eq(rig_put(&g, 2, 5000, true, &where[2]), KVC_E_TIER);

    fake_disk_unlink(g.disk, 0, false);
    for (unsigned i = 0; i < 5; i++)
        rig_turn(&g, 1000000000);
    ck_assert_int_eq(rig_get(&g, where[1], 1, 5000), 0);
    ck_assert_int_eq(rig_put(&g, 2, 5000, true, &where[2]), 0);
    rig_destroy(&g);
}

/* A superblock was written over whatever had taken its place, and then it was in service. */
CASE(another_store_in_its_place_does_not_come_into_service)
{
    struct nvme_path_stats st;
    rig_init(&g, 1, PATH_BYTES, 5);
    ck_assert_int_eq(rig_open(&g), 0);
    rig_settle(&g);
    ck_assert_int_eq(rig_put(&g, 1, 5000, true, &where[1]), 0);
    fake_disk_break(g.disk, 0, -EIO);
    ck_assert_int_lt(rig_put(&g, 2, 5000, true, &where[2]), 0);
    nvme_path_stats(g.nvme, 0, &st);
    ck_assert_int_eq(st.state, NVME_PATH_OUT);
    fake_disk_break(g.disk, 0, 0);
    fake_disk_swap(g.disk, 0);
    for (unsigned i = 0; i < 100; i++)
        rig_turn(&g, 1000000000);
    nvme_path_stats(g.nvme, 0, &st);
    ck_assert_int_eq(st.state, NVME_PATH_OUT);
    ck_assert_int_eq(st.error, -ESTALE);
    for (unsigned i = 0; i < 4096; i++)
        ck_assert_uint_eq(fake_disk_bytes(g.disk, 0)[i], 0);
    fake_disk_swap(g.disk, 0);
    for (unsigned i = 0; i < 100; i++)
        rig_turn(&g, 1000000000);
    nvme_path_stats(g.nvme, 0, &st);
    ck_assert_int_ne(st.state, NVME_PATH_OUT);
    ck_assert_int_eq(rig_get(&g, where[1], 1, 5000), 0);
    rig_destroy(&g);
}

CASE(a_file_that_is_cut_stays_out_of_service)
{
    struct nvme_path_stats st;
    rig_init(&g, 1, PATH_BYTES, 5);
    ck_assert_int_eq(rig_open(&g), 0);
    rig_settle(&g);
    ck_assert_int_eq(rig_put(&g, 1, 5000, true, &where[1]), 0);
    fake_disk_cut(g.disk, 0, true);
    for (unsigned i = 0; i < 100; i++)
        rig_turn(&g, 1000000000);
    nvme_path_stats(g.nvme, 0, &st);
    ck_assert_int_eq(st.state, NVME_PATH_OUT);
    ck_assert_int_eq(st.error, -ENODATA);
    ck_assert_uint_eq(st.outs, 1);
    fake_disk_cut(g.disk, 0, false);
    for (unsigned i = 0; i < 5; i++)
        rig_turn(&g, 1000000000);
    ck_assert_int_eq(rig_get(&g, where[1], 1, 5000), 0);
    rig_destroy(&g);
}

/* Of 39 blocks that had gone bad no figure and no line of the log spoke. */
CASE(blocks_that_are_wrong_count_for_their_path)
{
    rig_init(&g, 2, PATH_BYTES, 5);
    ck_assert_int_eq(rig_open(&g), 0);
    rig_settle(&g);
    ck_assert_int_eq(rig_put(&g, 1, 5000, true, &where[1]), 0);
    g.tier->ops->invalidate(g.tier, where[1]);
    ck_assert_uint_eq(nvme_path_corrupt(g.nvme, 0) + nvme_path_corrupt(g.nvme, 1), 1);
    const struct metric_set set = nvme_metric_set(g.nvme);
    ck_assert_uint_eq(metric_value(&set, (unsigned)metric_find(&set, "blocks_corrupt")), 1);
    rig_destroy(&g);
}

CASE(a_journal_that_loses_its_name_takes_no_durable_put)
{
    rig_init(&g, 1, PATH_BYTES, 5);
    ck_assert_int_eq(rig_open(&g), 0);
    rig_settle(&g);
    ck_assert_int_eq(rig_put(&g, 1, 5000, true, &where[1]), 0);
    fake_journal_unlink(g.journal);
    for (unsigned i = 0; i < 5; i++)
        rig_turn(&g, 1000000000);
    ck_assert_int_eq(nvme_journal_error(g.nvme), -ENOENT);
    ck_assert_int_eq(rig_put(&g, 2, 5000, true, &where[2]), -EIO);
    ck_assert_int_eq(rig_get(&g, where[1], 1, 5000), 0);
    rig_destroy(&g);
}
