/* SPDX-License-Identifier: Apache-2.0 */
/* Durable PUTs that end before the journal has them: found behind what it names, or nowhere. */
#include "cases.h"
#include "nvme__.h"
#include "nvme_rig.h"

#include <string.h>

#define PATH_BYTES (UINT64_C(4) * 4096 + UINT64_C(16) * 65536)

static struct rig g;
static uint64_t last_off, last_bytes; /* the last write of an extent */
static uint32_t last_path, writes;

static unsigned bad_sync; /* the sync that fails, counted down; 0: none does */
static unsigned bad_read; /* the read of the last extent from which on it cannot be */
static bool deny_writes;  /* on the path of the last extent */

static void on_submit(void *ctx, const struct disk_op *op)
{
    (void)ctx;
    if (op->kind == DISK_SYNC && bad_sync != 0 && --bad_sync == 0)
        fake_disk_fail_nth(g.disk, 1, -EIO);
    if (op->kind == DISK_READ && op->off == last_off && bad_read != 0 && --bad_read == 0)
        fake_disk_unreadable(g.disk, 0, last_off, NVME_PAGE);
    if (op->kind == DISK_WRITE && op->path == last_path && deny_writes)
        fake_disk_break(g.disk, last_path, -EIO);
    if (op->kind != DISK_WRITE || op->off < (uint64_t)NVME_HEADER_PAGES * NVME_PAGE)
        return;
    writes++;
    last_off = op->off;
    last_bytes = op->bytes;
    last_path = op->path;
}

static uint64_t dice = 11;

static void begin_with(uint32_t paths, uint64_t path_bytes, uint64_t segment_bytes,
                       uint32_t blocks_max)
{
    bad_sync = bad_read = 0;
    deny_writes = false;
    rig_init(&g, paths, path_bytes, dice);
    g.config.segment_bytes = segment_bytes;
    g.config.extent_bytes = segment_bytes / 2;
    g.config.blocks_max = blocks_max;
    g.config.retry_ns = 1000000000;
    g.by_id = true;
    ck_assert_int_eq(rig_open(&g), 0);
    rig_settle(&g);
    fake_disk_on_submit(g.disk, on_submit, NULL);
}

static void begin(uint32_t paths)
{
    begin_with(paths, PATH_BYTES, 65536, 4096);
}

static void setup(void)
{
    begin(1);
}

static void teardown(void)
{
    rig_destroy(&g);
}

static struct tier_loc put_durable(uint32_t id)
{
    struct tier_loc loc;
    ck_assert_int_eq(rig_put(&g, id, 5000, true, &loc), 0);
    return loc;
}

/* One that the journal has, and one that it has not. */
static void two_durable_puts(void)
{
    put_durable(1);
    rig_settle(&g);
    const uint64_t commits = fake_journal_commits(g.journal);
    put_durable(2);
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

CASES(.setup = setup, .teardown = teardown);

CASE_EACH(a_durable_block_that_the_journal_does_not_have_is_found, 2)
{
    two_durable_puts();
    rig_crash(&g, _i == 1);
    open_again(1);
    ck_assert(is_there(1) && is_there(2));
    ck_assert_uint_eq(g.report.blocks_torn, 0);
}

CASE(the_first_of_a_segment_waits_for_the_journal)
{
    const uint64_t commits = fake_journal_commits(g.journal);
    put_durable(1);
    ck_assert_uint_gt(fake_journal_commits(g.journal), commits);
    rig_crash(&g, true);
    open_again(0);
    ck_assert(is_there(1));
}

CASE(what_was_found_once_is_in_the_journal)
{
    two_durable_puts();
    rig_crash(&g, true);
    open_again(1);
    rig_crash(&g, true);
    open_again(0);
    ck_assert(is_there(1) && is_there(2));
}

CASE(the_journal_has_it_soon)
{
    two_durable_puts();
    rig_turn(&g, 50000000);
    rig_turn(&g, 1);
    rig_crash(&g, true);
    open_again(0);
    ck_assert(is_there(1) && is_there(2));
}

/* A durable block whose new place is written, and not synced. */
static void move(uint32_t id, struct tier_loc loc)
{
    const uint32_t before = writes;
    ck_assert(g.tier->storage->keep(g.tier, loc, id));
    for (unsigned i = 0; i < 100 && writes == before; i++) {
        nvme_tick(g.nvme, ++g.now_ns, ++g.wall_ns);
        g.tier->storage->kick(g.tier);
        if (writes == before)
            fake_disk_run(g.disk, 1);
    }
    ck_assert_uint_ne(writes, before);
    fake_disk_run(g.disk, 1);
}

static void move_unsynced(void)
{
    const struct tier_loc loc = put_durable(1);
    rig_settle(&g);
    move(1, loc);
}

static void tear(uint64_t from_end)
{
    memset(fake_disk_bytes(g.disk, 0) + last_off + last_bytes - from_end, 0xee, NVME_PAGE);
}

CASE(a_torn_one_does_not_hide_what_is_whole)
{
    move_unsynced();
    rig_crash(&g, false);
    tear(NVME_PAGE);
    open_again(1);
    ck_assert_uint_eq(g.report.blocks_torn, 1);
    ck_assert_uint_eq(g.founds, 1);
    ck_assert(is_there(1));
}

/* What was killed is synced before it counts, and a sync that fails loses nothing. 2: the journal
 * is gone too. */
CASE_EACH(a_sync_that_fails_at_start_loses_nothing, 3)
{
    two_durable_puts();
    rig_crash(&g, _i == 1);
    if (_i == 2)
        fake_journal_damage(g.journal);
    bad_sync = 1;
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_eq(bad_sync, 0);
    for (unsigned i = 0; i < 10; i++)
        rig_turn(&g, 1000000000);
    rig_crash(&g, true);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(is_there(1) && is_there(2));
}

CASE_EACH(a_sync_that_fails_at_start_does_not_kill_the_old_place, 8)
{
    rig_destroy(&g);
    dice = 11 + (uint64_t)_i;
    begin(1);
    move_unsynced();
    rig_crash(&g, false);
    bad_sync = 1;
    ck_assert_int_eq(rig_open(&g), 0);
    for (unsigned i = 0; i < 10 && _i % 2 == 1; i++)
        rig_turn(&g, 1000000000);
    rig_crash(&g, true);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(is_there(1));
}

/* The new place on a path that cannot be written at start: the old one's death is not told. */
CASE(the_old_place_stays_until_the_path_of_the_new_is_back)
{
    rig_destroy(&g);
    begin(2);
    struct tier_loc loc[5];
    uint32_t id = 0;
    bool other = false;
    for (uint32_t i = 1; i <= 4; i++)
        loc[i] = put_durable(i);
    put_durable(5);
    rig_settle(&g);
    while (!other) {
        ck_assert_uint_lt(id, 4);
        const struct nvme_entry *e = nvme__entry(g.nvme, loc[++id]);
        const uint32_t from = nvme__entry_path(g.nvme, e)->number;
        move(id, loc[id]);
        other = last_path != from;
        if (!other)
            rig_settle(&g);
    }
    rig_crash(&g, false);
    deny_writes = true;
    ck_assert_int_eq(rig_open(&g), 0);
    for (unsigned i = 0; i < 5; i++)
        rig_turn(&g, 1000000);
    deny_writes = false;
    fake_disk_break(g.disk, last_path, 0);
    rig_crash(&g, true);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(is_there(id));
}

/* Without its record what is behind it could not be told at later starts. */
CASE_EACH(an_extent_with_a_torn_record_does_not_count, 2)
{
    static const uint32_t same[] = {3, 6, 9, 12}; /* of one namespace */
    struct tier_loc loc[4];
    for (unsigned i = 0; i < 4; i++)
        loc[i] = put_durable(same[i]);
    put_durable(1); /* of another, in the next segment */
    rig_settle(&g);
    move(3, loc[0]);
    ck_assert_uint_eq(last_bytes, 4 * NVME_PAGE); /* table, record, block */
    rig_crash(&g, false);
    tear(3 * NVME_PAGE);
    if (_i == 1)
        fake_journal_damage(g.journal);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_eq(g.report.blocks_torn, 1);
    for (unsigned i = 1; i < 4; i++)
        g.tier->ops->free(g.tier, rig_where(&g, same[i]));
    ck_assert(is_there(3));
    for (unsigned i = 0; i < 10; i++)
        rig_turn(&g, 1000000000);
    rig_crash(&g, false);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(is_there(3));
    ck_assert_uint_eq(g.records, 2);
}

CASE(what_was_lost_is_not_looked_for)
{
    struct tier_loc loc;
    put_durable(1);
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

/* A path that cannot be read at one start keeps its durable blocks for the next. */
CASE(a_path_that_was_out_is_looked_at_when_it_is_back)
{
    rig_destroy(&g);
    begin(2);
    for (uint32_t id = 1; id <= 2; id++)
        put_durable(id); /* one on each path */
    rig_settle(&g);
    put_durable(3);
    const uint32_t path = last_path;
    rig_crash(&g, true);
    fake_disk_break(g.disk, path, -EIO);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_eq(rig_where(&g, 3).id, 0);
    put_durable(4);
    rig_settle(&g);
    fake_disk_break(g.disk, path, 0);
    rig_crash(&g, true);
    open_again(1);
    for (uint32_t id = 1; id <= 4; id++)
        ck_assert(is_there(id));
}

/* The same for a page that can be read only later. */
CASE(what_cannot_be_read_is_left_for_the_next_start)
{
    two_durable_puts();
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

/* Core gives back what builds on what was not found: that is for the next start too. */
CASE(what_is_not_taken_for_want_of_another_stays)
{
    two_durable_puts();
    rig_settle(&g); /* the journal has both */
    rig_crash(&g, true);
    fake_disk_unreadable(g.disk, 0, last_off, last_bytes);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_eq(rig_where(&g, 2).id, 0);
    const struct tier_loc loc = rig_where(&g, 1);
    ck_assert_uint_ne(loc.id, 0);
    g.tier->ops->free(g.tier, loc);
    for (unsigned i = 0; i < 5; i++)
        rig_turn(&g, 1000000000); /* deaths are told by then */
    fake_disk_unreadable(g.disk, 0, 0, 0);
    rig_crash(&g, true);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(is_there(1) && is_there(2));
    /* Once all is seen, what is given back has gone. */
    g.tier->ops->free(g.tier, rig_where(&g, 1));
    for (unsigned i = 0; i < 5; i++)
        rig_turn(&g, 1000000000);
    rig_crash(&g, true);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_eq(rig_where(&g, 1).id, 0);
}

CASE(a_bad_page_elsewhere_hides_nothing)
{
    two_durable_puts();
    rig_crash(&g, true);
    fake_disk_unreadable(g.disk, 0, last_off + last_bytes + NVME_PAGE, NVME_PAGE);
    open_again(1);
    ck_assert_uint_eq(g.report.tables_damaged, 0);
    ck_assert(is_there(1) && is_there(2));
}

CASE(payload_that_cannot_be_read_is_left_for_the_next_start)
{
    struct tier_loc loc;
    rig_destroy(&g);
    begin_with(1, 4 * 4096 + (UINT64_C(16) << 21), UINT64_C(1) << 21, 4096);
    put_durable(1);
    rig_settle(&g);
    ck_assert_int_eq(rig_put(&g, 2, 400000, true, &loc), 0);
    rig_crash(&g, true);
    fake_disk_unreadable(g.disk, 0, last_off + last_bytes - NVME_PAGE, NVME_PAGE);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_eq(rig_where(&g, 2).id, 0);
    rig_settle(&g);
    fake_disk_unreadable(g.disk, 0, 0, 0);
    rig_crash(&g, true);
    open_again(1);
    ck_assert_int_eq(rig_get(&g, rig_where(&g, 2), 2, 400000), 0);
}

/* From its _i-th read on: when it is looked for, read whole, or told. Then the start is refused. */
CASE_RANGE(a_table_that_goes_while_it_is_looked_at_is_left, 1, 5)
{
    two_durable_puts();
    rig_crash(&g, true);
    bad_read = (unsigned)_i;
    const int r = rig_open(&g);
    ck_assert(r == 0 || (r == -EIO && g.report.note[0] != '\0'));
    ck_assert_uint_eq(bad_read, 0);
    fake_disk_unreadable(g.disk, 0, 0, 0);
    if (r == 0) {
        ck_assert_uint_eq(rig_where(&g, 2).id, 0);
        rig_settle(&g);
        rig_crash(&g, true);
    }
    open_again(1);
    ck_assert(is_there(1) && is_there(2));
}

static void on_mark(struct tier_op *op)
{
    ck_assert_int_eq(op->status, 0);
    g.tier->ops->set_label(g.tier, op);
    *(bool *)op->ctx = true;
}

/* While the journal takes its time. */
static void put_durable_without_journal(uint32_t id)
{
    static uint8_t src[NVME_PAGE] __attribute__((aligned(4096)));
    bool done = false;
    rig_fill(src, sizeof(src), id, 1);
    struct tier_op op = {.kind = TIER_PUT,
                         .flags = TIER_F_DURABLE,
                         .src = src,
                         .bytes = sizeof(src),
                         .sum = hash_sum(src, sizeof(src)),
                         .label = rig_label(id),
                         .ctx = &done,
                         .done = on_mark};
    op.label.durable = true;
    ck_assert_int_eq(g.tier->ops->alloc(g.tier, 1, sizeof(src), (struct tier_loc){0}, id, &op.loc),
                     0);
    g.tier->ops->submit(g.tier, &op);
    for (unsigned i = 0; i < 200 && !done; i++) {
        nvme_tick(g.nvme, g.now_ns += 100000, g.wall_ns);
        g.tier->storage->kick(g.tier);
        fake_disk_run(g.disk, 16);
    }
    ck_assert(done);
}

/* More than a commit takes: should the second one fail, the rest is found behind the first. */
CASE(what_is_found_is_told_in_its_order)
{
    enum { MANY = 2000 };
    rig_destroy(&g);
    begin_with(1, 4 * 4096 + (UINT64_C(6) << 26), UINT64_C(1) << 26, 8000);
    put_durable(1);
    rig_settle(&g);
    for (uint32_t id = 2; id <= MANY; id++)
        put_durable_without_journal(id);
    rig_crash(&g, true);
    fake_journal_fail_nth(g.journal, 2, -EIO);
    ck_assert_int_eq(rig_open(&g), -EIO);
    ck_assert_uint_gt(g.report.extents_forward, NVME_COMMIT_MAX);
    fake_off(g.disk, g.journal);
    fake_on(g.disk, g.journal, true);
    ck_assert_int_eq(rig_open(&g), 0);
    for (uint32_t id = 1; id <= MANY; id++)
        ck_assert_uint_ne(rig_where(&g, id).id, 0);
}

/* One block is freed and another one made durable, where there is no entry for both. */
CASE(a_durable_block_waits_for_the_death_whose_place_it_takes)
{
    rig_destroy(&g);
    begin_with(1, PATH_BYTES, 65536, 6);
    struct tier_loc loc[7];
    for (uint32_t id = 1; id <= 6; id++)
        loc[id] = put_durable(id);
    rig_settle(&g);
    g.tier->ops->free(g.tier, loc[5]);
    put_durable(7);
    rig_crash(&g, true);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_eq(g.report.blocks_dropped, 0);
    for (uint32_t id = 1; id <= 7; id++)
        ck_assert((rig_where(&g, id).id != 0) == (id != 5));
}

/* The store's key is not told to the journal, or the other path's segments would be free. */
CASE(a_rebuild_without_a_path_is_done_again)
{
    rig_destroy(&g);
    begin(2);
    for (uint32_t id = 1; id <= 4; id++)
        put_durable(id);
    rig_settle(&g);
    rig_crash(&g, true);
    fake_journal_damage(g.journal);
    fake_disk_break(g.disk, 1, -EIO);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_lt(g.founds, 4);
    rig_settle(&g);
    fake_disk_break(g.disk, 1, 0);
    rig_crash(&g, true);
    ck_assert_int_eq(rig_open(&g), 0);
    for (uint32_t id = 1; id <= 4; id++)
        ck_assert(is_there(id));
}

/* A store without forward marks: nothing is looked for; its next start does. */
static void forgotten(struct journal_txn *c)
{
    *(bool *)c->ctx = true;
}

CASE_EACH(a_store_without_forward_marks_gets_them, 2)
{
    bool done = false;
    struct journal *j = fake_journal_of(g.journal);
    struct journal_change change = {.key = NVME_KEY_FORWARD};
    struct journal_txn c = {.change = &change, .n = 1, .done = forgotten, .ctx = &done};
    put_durable(1);
    rig_settle(&g);
    rig_close(&g);
    j->ops->commit(j, &c);
    fake_journal_run(g.journal, 1);
    ck_assert(done);
    fake_disk_unreadable(g.disk, 0, last_off + last_bytes, NVME_PAGE);
    open_again(0);
    fake_disk_unreadable(g.disk, 0, 0, 0);
    put_durable(2);
    rig_settle(&g);
    put_durable(3);
    rig_crash(&g, _i == 1);
    open_again(1);
    ck_assert(is_there(1) && is_there(2) && is_there(3));
}

static unsigned ops_left; /* then nothing reaches disk and journal any more; 0: never */

static void spend(void)
{
    if (ops_left != 0 && --ops_left == 0)
        fake_off(g.disk, g.journal);
}

static void spend_disk(void *ctx, const struct disk_op *op)
{
    on_submit(ctx, op);
    spend();
}

static void spend_journal(void *ctx, const struct journal_txn *c)
{
    (void)ctx;
    (void)c;
    spend();
}

/* A start that dies at one of its operations, with the power or without, and the next. */
CASE_EACH(a_start_that_dies_anywhere_loses_nothing, 200)
{
    const bool power = _i % 2, moves = _i / 2 % 2;
    rig_destroy(&g);
    begin(1 + (unsigned)_i % 3 / 2);
    fake_disk_on_submit(g.disk, spend_disk, NULL);
    fake_journal_on_commit(g.journal, spend_journal, NULL);
    const struct tier_loc loc = put_durable(1);
    rig_settle(&g);
    for (uint32_t id = 2; id <= 9; id++)
        put_durable(id);
    if (moves)
        move(1, loc);
    rig_crash(&g, false);
    ops_left = 1 + (unsigned)_i / 4;
    const int r = rig_open(&g);
    ops_left = 0;
    if (r == 0) {
        rig_crash(&g, power);
    } else {
        fake_off(g.disk, g.journal);
        fake_on(g.disk, g.journal, power);
    }
    ck_assert_int_eq(rig_open(&g), 0);
    for (uint32_t id = 1; id <= 9; id++)
        ck_assert(is_there(id));
}

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

CASE_EACH(an_offline_check_counts_it, 2)
{
    struct nvme_report r;
    two_durable_puts();
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

static void count_line(void *ctx, const char *line)
{
    (void)line;
    ++*(unsigned *)ctx;
}

CASE(an_offline_check_says_what_it_cannot_read)
{
    struct nvme_report r;
    unsigned lines = 0;
    two_durable_puts();
    rig_crash(&g, true);
    fake_disk_unreadable(g.disk, 0, last_off, last_bytes);
    ck_assert_int_eq(nvme_check(fake_disk_of(g.disk), fake_journal_of(g.journal), true, pump,
                                &lines, count_line, &r),
                     1);
    ck_assert_uint_eq(lines, 1);
}
