/* SPDX-License-Identifier: Apache-2.0 */
/* Promises that are kept before the journal has them: found behind what it names, or nowhere. */
#include "check_run.h"
#include "nvme__.h"
#include "nvme_rig.h"

#include <check.h>
#include <string.h>

#define PATH_BYTES (UINT64_C(4) * 4096 + UINT64_C(16) * 65536)

static struct rig g;
static uint64_t last_off, last_bytes; /* the last write of an extent */
static uint32_t last_path;

static void on_submit(void *ctx, const struct disk_op *op)
{
    (void)ctx;
    if (op->kind != DISK_WRITE || op->off < (uint64_t)NVME_HEADER_PAGES * NVME_PAGE)
        return;
    last_off = op->off;
    last_bytes = op->bytes;
    last_path = op->path;
}

static void begin(uint32_t paths)
{
    rig_init(&g, paths, PATH_BYTES, 11);
    g.config.segment_bytes = 65536;
    g.config.extent_bytes = 32768;
    g.config.retry_ns = 1000000000;
    g.by_id = true;
    ck_assert_int_eq(rig_open(&g), 0);
    rig_settle(&g);
    fake_disk_on_submit(g.disk, on_submit, NULL);
}

static void setup(void)
{
    begin(1);
}

static void teardown(void)
{
    rig_destroy(&g);
}

static struct tier_loc promise(uint32_t id)
{
    struct tier_loc loc;
    ck_assert_int_eq(rig_put(&g, id, 5000, true, &loc), 0);
    return loc;
}

/* One that the journal has, and one that it has not. */
static void two_promises(void)
{
    promise(1);
    rig_settle(&g);
    const uint64_t commits = fake_journal_commits(g.journal);
    promise(2);
    ck_assert_uint_eq(fake_journal_commits(g.journal), commits);
}

static bool is_there(uint32_t id)
{
    const struct tier_loc loc = rig_where(&g, id);
    return loc.id != 0 && rig_get(&g, loc, id, 5000) == 0;
}

static void open_again(uint32_t forward)
{
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(!g.report.rebuilt);
    ck_assert_uint_eq(g.report.extents_forward, forward);
}

START_TEST(a_promise_that_the_journal_does_not_have_is_found)
{
    two_promises();
    rig_crash(&g, _i == 1);
    open_again(1);
    ck_assert(is_there(1) && is_there(2));
    ck_assert_uint_eq(g.report.blocks_torn, 0);
}
END_TEST

START_TEST(the_first_of_a_segment_waits_for_the_journal)
{
    const uint64_t commits = fake_journal_commits(g.journal);
    promise(1);
    ck_assert_uint_gt(fake_journal_commits(g.journal), commits);
    rig_crash(&g, true);
    open_again(0);
    ck_assert(is_there(1));
}
END_TEST

START_TEST(what_was_found_once_is_in_the_journal)
{
    two_promises();
    rig_crash(&g, true);
    open_again(1);
    rig_crash(&g, true);
    open_again(0);
    ck_assert(is_there(1) && is_there(2));
}
END_TEST

START_TEST(the_journal_has_it_soon)
{
    two_promises();
    rig_turn(&g, 50000000);
    rig_turn(&g, 1);
    rig_crash(&g, true);
    open_again(0);
    ck_assert(is_there(1) && is_there(2));
}
END_TEST

/* Its new place is written, and not synced. */
START_TEST(a_torn_one_does_not_hide_what_is_whole)
{
    const struct tier_loc loc = promise(1);
    rig_settle(&g);
    const uint64_t before = last_off;
    ck_assert(g.tier->ops->keep(g.tier, loc, 1));
    for (unsigned i = 0; i < 100 && last_off == before; i++) {
        nvme_tick(g.nvme, ++g.now_ns, ++g.wall_ns);
        g.tier->ops->kick(g.tier);
        if (last_off == before)
            fake_disk_run(g.disk, 1);
    }
    ck_assert_uint_ne(last_off, before);
    fake_disk_run(g.disk, 1);
    rig_crash(&g, false);
    memset(fake_disk_bytes(g.disk, 0) + last_off + last_bytes - NVME_PAGE, 0xee, NVME_PAGE);
    open_again(1);
    ck_assert_uint_eq(g.report.blocks_torn, 1);
    ck_assert_uint_eq(g.founds, 1);
    ck_assert(is_there(1));
}
END_TEST

START_TEST(what_was_lost_is_not_looked_for)
{
    struct tier_loc loc;
    promise(1);
    rig_settle(&g);
    const uint64_t before = last_off;
    fake_disk_fail_nth(g.disk, 2, -EIO); /* written, and its sync fails */
    ck_assert_int_eq(rig_put(&g, 2, 5000, true, &loc), -EIO);
    ck_assert_uint_ne(last_off, before);
    for (unsigned i = 0; i < 10; i++)
        rig_turn(&g, 1000000000);
    ck_assert_int_eq(nvme_path_error(g.nvme, 0), 0);
    rig_crash(&g, false);
    open_again(0);
    ck_assert(is_there(1));
    ck_assert_uint_eq(rig_where(&g, 2).id, 0);
}
END_TEST

/* A path that cannot be read at one start keeps its promises for the next. */
START_TEST(a_path_that_was_out_is_looked_at_when_it_is_back)
{
    rig_destroy(&g);
    begin(2);
    for (uint32_t id = 1; id <= 2; id++)
        promise(id); /* one on each path */
    rig_settle(&g);
    promise(3);
    const uint32_t path = last_path;
    rig_crash(&g, true);
    fake_disk_break(g.disk, path, -EIO);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_eq(rig_where(&g, 3).id, 0);
    promise(4);
    rig_settle(&g);
    fake_disk_break(g.disk, path, 0);
    rig_crash(&g, true);
    open_again(1);
    for (uint32_t id = 1; id <= 4; id++)
        ck_assert(is_there(id));
}
END_TEST

/* The same for a page that can be read only later. */
START_TEST(what_cannot_be_read_is_left_for_the_next_start)
{
    two_promises();
    rig_crash(&g, true);
    fake_disk_unreadable(g.disk, 0, last_off, last_bytes);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_eq(g.report.tables_damaged, 1);
    ck_assert_uint_eq(rig_where(&g, 2).id, 0);
    rig_settle(&g);
    fake_disk_unreadable(g.disk, 0, 0, 0);
    rig_crash(&g, true);
    open_again(1);
    ck_assert(is_there(1) && is_there(2));
}
END_TEST

static int pump(void *ctx)
{
    (void)ctx;
    fake_disk_run(g.disk, 8);
    return 0;
}

static void say(void *ctx, const char *line)
{
    (void)ctx;
    ck_abort_msg("%s", line);
}

START_TEST(an_offline_check_counts_it)
{
    struct nvme_report r;
    two_promises();
    rig_crash(&g, true);
    ck_assert_int_eq(
        nvme_check(fake_disk_of(g.disk), fake_journal_of(g.journal), _i == 1, pump, NULL, say, &r),
        0);
    ck_assert_uint_eq(r.blocks, 2);
    ck_assert_uint_eq(r.extents_forward, 1);
    memset(fake_disk_bytes(g.disk, 0) + last_off + last_bytes - NVME_PAGE, 0xee, NVME_PAGE);
    ck_assert_int_eq(
        nvme_check(fake_disk_of(g.disk), fake_journal_of(g.journal), _i == 1, pump, NULL, say, &r),
        0);
    ck_assert_uint_eq(r.blocks, 1);
    ck_assert_uint_eq(r.blocks_torn, 1);
    ck_assert_int_eq(rig_open(&g), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nvme_forward");
    TCase *t = tcase_create("promises");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_promise_that_the_journal_does_not_have_is_found, 0, 2);
    tcase_add_test(t, the_first_of_a_segment_waits_for_the_journal);
    tcase_add_test(t, what_was_found_once_is_in_the_journal);
    tcase_add_test(t, the_journal_has_it_soon);
    tcase_add_test(t, a_torn_one_does_not_hide_what_is_whole);
    tcase_add_test(t, what_was_lost_is_not_looked_for);
    tcase_add_test(t, a_path_that_was_out_is_looked_at_when_it_is_back);
    tcase_add_test(t, what_cannot_be_read_is_left_for_the_next_start);
    tcase_add_loop_test(t, an_offline_check_counts_it, 0, 2);
    suite_add_tcase(s, t);
    return check_run(s);
}
