/* SPDX-License-Identifier: Apache-2.0 */
/* Without a journal: what had been synced is believed, the rest is read and compared. */
#include "cases.h"
#include "nvme__.h"
#include "nvme_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES (UINT64_C(4) * 4096 + UINT64_C(16) * 65536)
#define WRITES_MAX 512u

static struct rig g;
/* Extents that were written, in order, and whether a sync came after the last. */
static struct {
    uint64_t off, bytes;
    uint32_t path;
} wrote[WRITES_MAX];
static uint32_t writes;
static bool syncs;
static unsigned bad_sync;  /* the how many-th sync fails */
static uint64_t bad_table; /* where the page of a table can be read no more, once asked for alone */

static void on_submit(void *ctx, const struct disk_op *op)
{
    (void)ctx;
    if (op->kind == DISK_SYNC && bad_sync != 0 && --bad_sync == 0)
        fake_disk_fail_nth(g.disk, 1, -EIO);
    syncs = op->kind == DISK_SYNC || (syncs && op->kind != DISK_WRITE);
    if (op->kind == DISK_READ && bad_table != 0 && op->off == bad_table && op->bytes == NVME_PAGE)
        fake_disk_unreadable(g.disk, op->path, op->off, op->bytes);
    if (op->kind != DISK_WRITE || op->off < (uint64_t)NVME_HEADER_PAGES * NVME_PAGE)
        return;
    ck_assert_uint_lt(writes, WRITES_MAX);
    wrote[writes].off = op->off;
    wrote[writes].bytes = op->bytes;
    wrote[writes++].path = op->path;
}

static void begin(uint32_t paths, uint64_t path_bytes, uint64_t segment_bytes,
                  uint64_t extent_bytes)
{
    rig_init(&g, paths, path_bytes, 11);
    g.config.segment_bytes = segment_bytes;
    g.config.extent_bytes = extent_bytes;
    g.config.retry_ns = 1000000000;
    g.by_id = true;
    ck_assert_int_eq(rig_open(&g), 0);
    rig_settle(&g);
    writes = 0;
    syncs = false;
    bad_table = 0;
    bad_sync = 0;
    fake_disk_on_submit(g.disk, on_submit, NULL);
}

static void setup(void)
{
    begin(1, PATH_BYTES, 65536, 32768);
}

static void teardown(void)
{
    rig_destroy(&g);
}

static uint8_t *bytes_of(uint32_t write)
{
    return fake_disk_bytes(g.disk, wrote[write].path) + wrote[write].off;
}

/* The last page of what was written then is another. */
static void tear(uint32_t write)
{
    memset(bytes_of(write) + wrote[write].bytes - NVME_PAGE, 0xee, NVME_PAGE);
}

static void put(uint32_t id, uint32_t bytes, bool durable)
{
    struct tier_loc loc;
    ck_assert_int_eq(rig_put(&g, id, bytes, durable, &loc), 0);
}

static void die(void)
{
    rig_crash(&g, false);
}

static void open_without_journal(void)
{
    fake_journal_damage(g.journal);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(g.report.rebuilt);
}

static bool is_there(uint32_t id, uint32_t bytes)
{
    const struct tier_loc loc = rig_where(&g, id);
    return loc.id != 0 && rig_get(&g, loc, id, bytes) == 0;
}

/* Begins to move a block, up to where its new place is written and the sync of it begun. Returns
 * the number of that write. */
static uint32_t move(uint32_t id, struct tier_loc loc)
{
    const uint32_t before = writes;
    ck_assert(g.tier->storage->keep(g.tier, loc, id));
    for (unsigned i = 0; i < 100 && (writes == before || !syncs); i++) {
        nvme_tick(g.nvme, ++g.now_ns, ++g.wall_ns);
        g.tier->storage->kick(g.tier);
        if (writes == before || !syncs)
            fake_disk_run(g.disk, 1);
    }
    ck_assert(writes == before + 1 && syncs);
    return before;
}

/* A durable block, and its second place, of which nobody knows whether it was synced. */
static uint32_t durable_on_the_move(uint32_t id, uint32_t bytes)
{
    struct tier_loc loc;
    ck_assert_int_eq(rig_put(&g, id, bytes, true, &loc), 0);
    rig_settle(&g);
    return move(id, loc);
}

CASES(.setup = setup, .teardown = teardown);

CASE(a_torn_new_place_does_not_hide_the_old_one)
{
    const uint32_t torn = durable_on_the_move(1, 6000);
    die();
    tear(torn);
    open_without_journal();
    ck_assert_uint_eq(g.report.blocks_torn, 1);
    ck_assert_uint_eq(g.founds, 1);
    ck_assert(is_there(1, 6000));
}

CASE(a_new_place_that_is_whole_is_taken)
{
    const uint32_t whole = durable_on_the_move(1, 6000);
    die();
    tear(whole - 1); /* the old one */
    open_without_journal();
    ck_assert_uint_eq(g.report.blocks_torn, 0);
    ck_assert(is_there(1, 6000));
}

CASE(a_new_place_that_cannot_be_read_does_not_hide_the_old_one)
{
    rig_destroy(&g);
    begin(1, UINT64_C(4) * 4096 + (UINT64_C(16) << 20), UINT64_C(1) << 20, UINT64_C(512) << 10);
    const uint32_t bad = durable_on_the_move(1, 400000);
    die();
    fake_disk_unreadable(g.disk, 0, wrote[bad].off + wrote[bad].bytes - NVME_PAGE, 1);
    open_without_journal();
    ck_assert_uint_eq(g.report.blocks_torn, 1);
    ck_assert(is_there(1, 400000));
}

CASE(a_new_place_whose_table_goes_does_not_hide_the_old_one)
{
    const uint32_t bad = durable_on_the_move(1, 6000);
    die();
    bad_table = wrote[bad].off;
    open_without_journal();
    ck_assert_uint_eq(g.report.tables_damaged, 1);
    ck_assert_uint_eq(g.report.blocks_dropped, 1);
    ck_assert(is_there(1, 6000));
}

/* What a life left unsynced, no table of the next one calls synced. */
CASE(a_torn_place_of_an_earlier_life_is_known)
{
    const uint32_t torn = durable_on_the_move(1, 6000);
    die();
    tear(torn);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(!g.report.rebuilt && is_there(1, 6000));
    for (uint32_t id = 2; id <= 5; id++)
        put(id, 5000, true);
    die();
    open_without_journal();
    ck_assert_uint_eq(g.report.blocks_torn, 1);
    for (uint32_t id = 2; id <= 5; id++)
        ck_assert(is_there(id, 5000));
    ck_assert(is_there(1, 6000));
}

/* Nor one of the same life, when its sync had failed. */
CASE(a_torn_place_of_a_failed_sync_is_known)
{
    const uint32_t torn = durable_on_the_move(1, 6000);
    fake_disk_break(g.disk, 0, -EIO);
    rig_turn(&g, 1000);
    fake_disk_break(g.disk, 0, 0);
    for (unsigned i = 0; i < 10; i++)
        rig_turn(&g, 1000000000);
    ck_assert_int_eq(nvme_path_error(g.nvme, 0), 0);
    for (uint32_t id = 2; id <= 5; id++)
        put(id, 5000, true);
    die();
    tear(torn);
    open_without_journal();
    ck_assert_uint_eq(g.report.blocks_torn, 1);
    for (uint32_t id = 2; id <= 5; id++)
        ck_assert(is_there(id, 5000));
    ck_assert(is_there(1, 6000));
}

/* A rebuild reads what had not been synced (or what no table says of), not the store. */
CASE(what_had_been_synced_is_not_read_again)
{
    for (uint32_t id = 1; id <= 10; id++)
        put(id, 5000, true);
    ck_assert_uint_eq(writes, 10);
    die();
    for (uint32_t i = 0; i < 9; i++)
        tear(i);
    open_without_journal();
    ck_assert_uint_eq(g.report.blocks_torn, 0);
    ck_assert_uint_eq(g.founds, 10);
    ck_assert(is_there(10, 5000));
}

CASE(the_last_that_was_written_is_read)
{
    for (uint32_t id = 1; id <= 10; id++)
        put(id, 5000, true);
    die();
    tear(9);
    open_without_journal();
    ck_assert_uint_eq(g.report.blocks_torn, 1);
    ck_assert_uint_eq(rig_where(&g, 10).id, 0);
    for (uint32_t id = 1; id <= 9; id++)
        ck_assert(is_there(id, 5000));
}

/* 600,000 bytes are read in several pieces; the last page of it is another (1) or not (0). */
CASE_EACH(a_large_block_is_compared_whole, 2)
{
    rig_destroy(&g);
    begin(1, UINT64_C(4) * 4096 + (UINT64_C(16) << 20), UINT64_C(1) << 20, 32768);
    put(1, 600000, true);
    die();
    if (_i == 1)
        tear(0);
    open_without_journal();
    ck_assert_uint_eq(g.report.blocks_torn, (uint32_t)_i);
    ck_assert(is_there(1, 600000) == (_i == 0));
}

static void on_done(struct tier_op *op)
{
    ck_assert_int_eq(op->status, 0);
    g.tier->ops->set_label(g.tier, op);
    ++*(uint32_t *)op->ctx;
}

static void submit_as(struct tier_op *op, uint32_t id, const uint8_t *src, uint32_t bytes,
                      uint32_t flags, uint32_t *done)
{
    *op = (struct tier_op){.kind = TIER_PUT,
                           .flags = flags,
                           .src = src,
                           .bytes = bytes,
                           .sum = hash_sum(src, bytes),
                           .label = rig_label(id),
                           .ctx = done,
                           .done = on_done};
    op->label.durable = (flags & TIER_F_DURABLE) != 0;
    ck_assert_int_eq(g.tier->ops->alloc(g.tier, 1, bytes, (struct tier_loc){0}, id, &op->loc), 0);
    g.tier->ops->submit(g.tier, op);
}

static void submit(struct tier_op *op, uint32_t id, const uint8_t *src, uint32_t bytes,
                   uint32_t *done)
{
    submit_as(op, id, src, bytes, 0, done);
}

/* Blocks 1 to MANY, of sizes that differ, in one turn: they are one extent. */
#define MANY     150u
#define SIZE(id) (4000 + (id)*50)
static void put_many(void)
{
    static struct tier_op op[MANY + 1];
    uint32_t done = 0;
    uint8_t *mem;
    ck_assert_int_eq(posix_memalign((void **)&mem, NVME_PAGE, (MANY + 1) * 12288), 0);
    memset(mem, 0, (MANY + 1) * 12288);
    for (uint32_t id = 1; id <= MANY; id++) {
        uint8_t *src = mem + (size_t)id * 12288;
        rig_fill(src, SIZE(id), id, 1);
        submit(&op[id], id, src, SIZE(id), &done);
    }
    for (unsigned i = 0; i < 1000 && done < MANY; i++)
        rig_turn(&g, 1000000);
    ck_assert_uint_eq(done, MANY);
    free(mem);
}

/* Of an extent of many blocks those stay that are there, one page torn at a time. */
CASE_EACH(blocks_of_a_torn_extent_that_are_whole_stay, 6)
{
    rig_destroy(&g);
    begin(1, UINT64_C(4) * 4096 + (UINT64_C(32) << 20), UINT64_C(2) << 20, UINT64_C(2) << 20);
    put_many();
    ck_assert_uint_eq(writes, 1);
    die();
    const uint64_t pages = wrote[0].bytes / NVME_PAGE, page = pages - 1 - (uint64_t)_i * 40;
    bytes_of(0)[page * NVME_PAGE] ^= 1;
    open_without_journal();
    ck_assert_uint_eq(g.report.blocks_torn, 1);
    ck_assert_uint_eq(g.founds, MANY - 1);
    for (uint32_t i = 0; i < g.founds; i++) {
        const uint32_t id = rig_id(&g.found[i].label);
        ck_assert(is_there(id, SIZE(id)));
    }
}

/* ---- what cannot be seen now, and can be later ---- */

/* Room is wanted meanwhile, and what was not seen is not in its way. */
static void life_in_between(void)
{
    for (uint32_t id = 100; id < 140; id++) {
        struct tier_loc loc;
        if (g.tier->ops->alloc(g.tier, 1, 5000, (struct tier_loc){0}, id, &loc) == 0)
            g.tier->ops->free(g.tier, loc);
        const int r = rig_put(&g, id, 5000, false, &loc);
        ck_assert(r == 0 || r == -ENOSPC);
        rig_turn(&g, 1000000);
    }
    for (unsigned i = 0; i < 5; i++)
        rig_turn(&g, 1000000000); /* all is synced and told by then */
}

static void both_are_there_at_the_next_start(void)
{
    die();
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(g.report.rebuilt);
    ck_assert(is_there(1, 5000) && is_there(2, 5000));
    die();
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(!g.report.rebuilt); /* that one was whole */
    ck_assert(is_there(1, 5000) && is_there(2, 5000));
}

CASE_EACH(what_a_rebuild_cannot_read_is_there_when_it_can, 2)
{
    put(1, 5000, true);
    put(2, 5000, true);
    die();
    /* The table, or the payload of what may not have been synced. */
    const uint64_t page = _i == 0 ? 0 : wrote[1].bytes - NVME_PAGE;
    fake_disk_unreadable(g.disk, 0, wrote[1].off + page, NVME_PAGE);
    open_without_journal();
    ck_assert_uint_eq(rig_where(&g, 2).id, 0);
    ck_assert_ptr_nonnull(strstr(g.report.note, "the next start does it again"));
    life_in_between();
    fake_disk_unreadable(g.disk, 0, 0, 0);
    both_are_there_at_the_next_start();
}

CASE(what_a_rebuild_cannot_sync_is_not_lost)
{
    put(1, 5000, true);
    put(2, 5000, true);
    die();
    bad_sync = 1;
    open_without_journal();
    ck_assert_uint_eq(bad_sync, 0);
    ck_assert(is_there(1, 5000) && is_there(2, 5000));
    life_in_between();
    both_are_there_at_the_next_start();
}

/* ---- a journal that is not of what is there ---- */

static void put_many_durable(uint32_t first, uint32_t n)
{
    for (uint32_t id = first; id < first + n; id++)
        put(id, 5000, true);
}

static void all_are_there(uint32_t first, uint32_t n)
{
    for (uint32_t id = first; id < first + n; id++)
        ck_assert_msg(is_there(id, 5000), "block %u", id);
}

/* On both of two paths. */
static void two_paths(void)
{
    rig_destroy(&g);
    begin(2, PATH_BYTES, 65536, 32768);
    put_many_durable(1, 40);
    rig_close(&g);
    fake_disk_swap(g.disk, 1);
}

static void end_as(int how)
{
    if (how == 0)
        rig_close(&g);
    else
        rig_crash(&g, how == 1);
}

static void it_is_back(void)
{
    fake_disk_swap(g.disk, 1);
    ck_assert_int_eq(rig_open(&g), 0);
    all_are_there(1, 40);
    rig_close(&g);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(!g.report.rebuilt); /* once is enough */
    all_are_there(1, 40);
}

/* The second is not mounted at two starts; what is in its place is left alone. */
CASE_EACH(a_path_that_is_back_has_what_it_had, 3)
{
    two_paths();
    for (uint32_t start = 0; start < 2; start++) {
        ck_assert_int_eq(rig_open(&g), 0);
        ck_assert_ptr_nonnull(strstr(g.report.note, "path 1 is empty, and"));
        ck_assert_uint_eq(g.report.durable_gone, 0);
        ck_assert_int_eq(nvme_path_error(g.nvme, 1), -ENOENT);
        put_many_durable(100 + 5 * start, 5);
        for (unsigned i = 0; i < 100; i++)
            rig_turn(&g, 1000000000);
        end_as(_i);
    }
    const uint8_t *instead = fake_disk_bytes(g.disk, 1);
    ck_assert(instead[0] == 0 && memcmp(instead, instead + 1, PATH_BYTES - 1) == 0);
    it_is_back();
    all_are_there(100, 10);
}

CASE_EACH(a_path_that_was_replaced_is_begun_anew, 3)
{
    two_paths();
    g.config.replaced = 2;
    ck_assert_int_eq(rig_open(&g), 0);
    g.config.replaced = 0;
    ck_assert_uint_gt(g.report.durable_gone, 10);
    ck_assert_int_eq(nvme_path_error(g.nvme, 1), 0);
    for (unsigned i = 0; i < 100; i++)
        rig_turn(&g, 1000000000);
    end_as(_i);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(!g.report.rebuilt);
    ck_assert_uint_eq(g.report.durable_gone, 0);
    put_many_durable(100, 5);
    end_as(_i);
    fake_disk_swap(g.disk, 1);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(g.report.rebuilt); /* it was a mistake, and nothing is lost */
    ck_assert_ptr_nonnull(strstr(g.report.note, "path 1 was away, and another in its place"));
    all_are_there(1, 40);
    rig_close(&g);
    fake_disk_swap(g.disk, 1);
    it_is_back();
}

CASE(a_journal_from_a_backup_is_not_believed)
{
    put_many_durable(1, 10);
    rig_close(&g);
    fake_journal_keep(g.journal);
    for (uint32_t start = 0; start < 2; start++) {
        ck_assert_int_eq(rig_open(&g), 0);
        ck_assert(!g.report.rebuilt);
        put_many_durable(100 + start * 10, 10);
        rig_close(&g);
    }
    fake_journal_back(g.journal);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(g.report.rebuilt);
    ck_assert_ptr_nonnull(strstr(g.report.note, "older than the store"));
    all_are_there(1, 10);
    all_are_there(100, 20);
}

/* index.blocks is lower at one start. */
CASE(durable_blocks_that_have_no_room_stay)
{
    put_many_durable(1, 30);
    die();
    g.config.blocks_max = 10;
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_eq(g.report.blocks_over, 20);
    ck_assert_ptr_nonnull(strstr(g.report.note, "index.blocks has no room for 20 blocks"));
    for (uint32_t i = 0; i < g.founds; i++)
        g.tier->ops->free(g.tier, g.found[i].loc);
    const uint32_t let_go = g.founds;
    for (uint32_t id = 200; id < 300; id++) {
        struct tier_loc loc;
        const int r = rig_put(&g, id, 5000, false, &loc);
        ck_assert(r == 0 || r == -ENOSPC);
        if (r == 0)
            g.tier->ops->free(g.tier, loc);
        rig_turn(&g, 100000000);
    }
    die();
    g.config.blocks_max = 1000;
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_eq(g.report.blocks_over, 0);
    uint32_t there = 0;
    for (uint32_t id = 1; id <= 30; id++)
        there += is_there(id, 5000);
    ck_assert_uint_ge(there, 30 - let_go); /* what was let go may be back */
    ck_assert_uint_ge(there, 20);
}

/* More extents than the index has room for. */
CASE(durable_blocks_come_first_where_the_tables_name_too_much)
{
    struct tier_loc loc;
    rig_destroy(&g);
    begin(1, UINT64_C(4) * 4096 + UINT64_C(40) * 65536, 65536, 4096);
    for (uint32_t id = 100; id < 300; id++) {
        ck_assert_int_eq(rig_put(&g, id, 4000, false, &loc), 0);
        if (id % 50 == 0)
            put(id / 50 - 1, 4000, true);
    }
    g.config.blocks_max = 10;
    die();
    open_without_journal();
    ck_assert_uint_gt(g.report.blocks_over, 0);
    ck_assert_ptr_nonnull(strstr(g.report.note, "what was stored durably last is there"));
    for (uint32_t id = 1; id <= 4; id++)
        ck_assert(is_there(id, 4000));
    die();
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(!g.report.rebuilt);
    for (uint32_t id = 1; id <= 4; id++)
        ck_assert(is_there(id, 4000));
}

static struct nvme_head head_of(uint32_t write)
{
    struct nvme_head h;
    ck_assert_int_eq(nvme__head_decode(bytes_of(write), wrote[write].bytes, &h), 0);
    return h;
}

/* As a program wrote it that does not know what has been synced. */
static void make_old(uint32_t write)
{
    struct nvme_head h = head_of(write);
    h.since = h.safe = 0;
    nvme__table_finish(bytes_of(write), &h);
}

/* A disk that held another store before: its tables are whole, and may lie where ours would. */
CASE_EACH(a_table_of_another_store_is_not_ours, 2)
{
    put(1, 5000, true);
    put(2, 5000, true);
    die();
    struct nvme_head h = head_of((uint32_t)_i);
    h.uuid[15] ^= 1;
    nvme__table_finish(bytes_of((uint32_t)_i), &h);
    open_without_journal();
    ck_assert_uint_eq(g.founds, 1);
    ck_assert_uint_eq(rig_where(&g, 1 + (uint32_t)_i).id, 0);
    ck_assert(is_there(2 - (uint32_t)_i, 5000));
}

/* What a segment held before it was used again lies behind what it holds now, or in a hole of it.
 */
CASE_EACH(a_table_of_an_older_generation_does_not_count, 2)
{
    put(1, 5000, true);
    put(2, 5000, true);
    die();
    struct nvme_head h = head_of((uint32_t)_i);
    ck_assert_uint_eq(h.seg, head_of(1 - (uint32_t)_i).seg);
    h.gen--;
    nvme__table_finish(bytes_of((uint32_t)_i), &h);
    open_without_journal();
    ck_assert_uint_eq(g.founds, 1);
    ck_assert_uint_eq(rig_where(&g, 1 + (uint32_t)_i).id, 0);
    ck_assert(is_there(2 - (uint32_t)_i, 5000));
}

CASE(tables_of_before_are_believed_as_they_were)
{
    put(1, 5000, true);
    put(2, 5000, true);
    die();
    make_old(0);
    make_old(1);
    tear(1);
    open_without_journal();
    ck_assert_uint_eq(g.report.blocks_torn, 0);
    ck_assert_uint_eq(g.founds, 2);
    ck_assert(is_there(1, 5000));
    /* And so they are beside new ones. */
    put(3, 5000, true);
    put(4, 5000, true);
    die();
    tear(3);
    open_without_journal();
    ck_assert_uint_eq(g.report.blocks_torn, 1);
    ck_assert_uint_ne(rig_where(&g, 2).id, 0);
    ck_assert_uint_eq(rig_where(&g, 4).id, 0);
    ck_assert(is_there(1, 5000) && is_there(3, 5000));
}

CASE(a_table_says_what_had_been_synced)
{
    rig_destroy(&g);
    begin(1, PATH_BYTES, 65536, 32768);
    g.config.sync_ns = UINT64_C(1000) * 1000000000;
    die();
    ck_assert_int_eq(rig_open(&g), 0);
    rig_settle(&g);
    writes = 0;
    for (uint32_t id = 1; id <= 3; id++)
        put(id, 4096, false);
    const struct nvme_head first = head_of(0);
    ck_assert_uint_eq(first.since, first.seq);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_lt(head_of(i).safe, first.since);
    nvme_flush(g.nvme);
    rig_settle(&g);
    put(4, 4096, false);
    put(5, 4096, false);
    for (uint32_t i = 3; i < 5; i++) {
        ck_assert_uint_eq(head_of(i).since, first.since);
        ck_assert_uint_eq(head_of(i).safe, head_of(2).seq);
    }
}

CASE(what_is_being_synced_is_not_synced)
{
    static struct tier_op op;
    static uint8_t mem[4096] __attribute__((aligned(4096)));
    uint32_t done = 0;
    const uint32_t moved = durable_on_the_move(1, 6000);
    submit(&op, 2, mem, sizeof(mem), &done);
    g.tier->storage->kick(g.tier);
    ck_assert_uint_eq(writes, moved + 2);
    nvme_flush(g.nvme);
    rig_settle(&g);
    ck_assert_uint_eq(done, 1);
    ck_assert_uint_eq(head_of(moved + 1).safe, head_of(moved - 1).seq);
}

/* A path that does not end its write holds back what all tables say. */
CASE(a_table_speaks_for_all_paths)
{
    static struct tier_op op;
    static uint8_t mem[4096] __attribute__((aligned(4096)));
    uint32_t done = 0;
    rig_destroy(&g);
    begin(2, PATH_BYTES, 65536, 32768);
    put(1, 4096, true);
    const uint32_t other = 1 - wrote[0].path;
    fake_disk_stall(g.disk, other, true);
    submit(&op, 2, mem, sizeof(mem), &done);
    rig_turn(&g, 1000);
    ck_assert(writes == 2 && wrote[1].path == other && done == 0);
    for (uint32_t id = 3; id <= 5; id++)
        put(id, 4096, true);
    for (uint32_t i = 2; i < 5; i++) {
        ck_assert_uint_ne(wrote[i].path, other);
        ck_assert_uint_eq(head_of(i).safe, head_of(0).seq);
    }
    fake_disk_stall(g.disk, other, false);
    nvme_flush(g.nvme);
    rig_settle(&g);
    ck_assert_uint_eq(done, 1);
    put(6, 4096, true);
    ck_assert_uint_eq(head_of(5).safe, head_of(4).seq);
}

static bool is_confirmed;

static void on_confirmed(struct tier_op *op)
{
    ck_assert_int_eq(op->status, 0);
    is_confirmed = true;
}

/* Turns until what was freed so far stays away. */
static void confirm_frees(struct tier_op *op)
{
    is_confirmed = false;
    op->done = on_confirmed;
    g.tier->storage->confirm_frees(g.tier, op);
    for (unsigned i = 0; i < 100 && !is_confirmed; i++)
        rig_turn(&g, 1000000);
    ck_assert(is_confirmed);
}

/* One dies while the table learns of the other, and its segment is given up with both: the table
 * has to learn of it, too. */
CASE(who_dies_while_a_table_is_told_stays_away)
{
    enum { EACH = 9000, FILL = 28000 };
    static struct tier_op op[2], confirm;
    static uint8_t mem[2][12288] __attribute__((aligned(4096)));
    uint32_t done = 0;
    struct tier_loc loc;
    for (uint32_t i = 0; i < 2; i++)
        submit(&op[i], 1 + i, mem[i], EACH, &done);
    for (unsigned i = 0; i < 100 && done < 2; i++)
        rig_turn(&g, 1000000);
    ck_assert(done == 2 && writes == 1); /* one extent */
    const uint32_t segment = g.nvme->extent[nvme__entry(g.nvme, op[0].loc)->extent].seg;
    for (uint32_t id = 3; g.nvme->seg[segment].state == NVME_S_OPEN; id++) {
        ck_assert_int_eq(rig_put(&g, id, FILL, false, &loc), 0);
        if (g.nvme->extent[nvme__entry(g.nvme, loc)->extent].seg == segment)
            g.tier->ops->free(g.tier, loc);
    }
    confirm_frees(&confirm);
    ck_assert_uint_eq(g.nvme->seg[segment].live, 2);
    g.tier->ops->free(g.tier, op[0].loc);
    is_confirmed = false;
    confirm.done = on_confirmed;
    g.tier->storage->confirm_frees(g.tier, &confirm);
    const uint32_t before = writes;
    for (unsigned i = 0; i < 100 && writes == before; i++) {
        nvme_tick(g.nvme, g.now_ns += 1000, ++g.wall_ns);
        g.tier->storage->kick(g.tier);
        if (writes == before)
            fake_disk_run(g.disk, 1);
    }
    ck_assert(writes == before + 1 && wrote[before].bytes == NVME_PAGE && !is_confirmed);
    g.tier->ops->free(g.tier, op[1].loc);
    for (unsigned i = 0; i < 100 && !is_confirmed; i++)
        rig_turn(&g, 1000000);
    confirm_frees(&confirm);
    ck_assert_int_eq(g.nvme->seg[segment].state, NVME_S_FREE);
    die();
    open_without_journal();
    ck_assert_uint_eq(rig_where(&g, 1).id, 0);
    ck_assert_uint_eq(rig_where(&g, 2).id, 0);
}

/* The table is as it was, and the sector that said who had died is another's: the power went while
 * the segment, which had nothing alive, was written anew. */
CASE_EACH(where_the_dead_were_written_over_nobody_comes_back, 2)
{
    struct tier_op confirm = {0};
    struct tier_loc loc;
    ck_assert_int_eq(rig_put(&g, 1, 5000, true, &loc), 0);
    put(2, 5000, true);
    g.tier->ops->free(g.tier, loc);
    confirm_frees(&confirm);
    die();
    const struct nvme_head h = head_of(0);
    uint8_t *dead = bytes_of(0) + nvme__table_pages(h.items) * NVME_PAGE - NVME_DEAD_BYTES;
    memset(dead, _i == 0 ? 0x5a : 0, _i == 0 ? 100 : NVME_DEAD_BYTES);
    open_without_journal();
    ck_assert_uint_eq(g.founds, 1);
    ck_assert_uint_eq(rig_where(&g, 1).id, 0);
    ck_assert(is_there(2, 5000));
}

static void on_cut_off(struct tier_op *op)
{
    ck_assert_int_ne(op->status, 0);
}

/* Frees a block. Its table is told; the journal refuses, and the daemon dies. */
static void tell_table_alone(struct tier_loc loc)
{
    static struct tier_op confirm;
    confirm = (struct tier_op){.done = on_cut_off};
    g.tier->ops->free(g.tier, loc);
    g.tier->storage->confirm_frees(g.tier, &confirm);
    const uint32_t before = writes;
    for (unsigned i = 0; i < 100 && writes == before; i++) {
        nvme_tick(g.nvme, g.now_ns += 1000, ++g.wall_ns);
        g.tier->storage->kick(g.tier);
        fake_disk_run(g.disk, 1);
    }
    ck_assert(writes == before + 1 && wrote[before].bytes == NVME_PAGE);
    fake_journal_fail_nth(g.journal, 1, -EIO);
    fake_disk_run(g.disk, 8);
    fake_journal_run(g.journal, 1);
    die();
}

/* A table was told that a block is dead; the journal refused, and the daemon died. By the
 * journal the block is alive, so it is found; from then on the table must say so, too. */
CASE(a_block_that_only_its_table_has_dead_lives)
{
    struct tier_loc loc;
    ck_assert_int_eq(rig_put(&g, 1, 5000, true, &loc), 0);
    put(2, 5000, true);
    nvme_flush(g.nvme);
    rig_settle(&g);
    tell_table_alone(loc);
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert(!g.report.rebuilt && is_there(1, 5000));
    nvme_flush(g.nvme);
    rig_settle(&g);
    die();
    open_without_journal();
    ck_assert(is_there(1, 5000) && is_there(2, 5000));
}

/* A durable block that has no room is not called dead when its table is told again for another one.
 */
CASE(a_durable_block_without_room_outlives_its_table)
{
    static uint8_t mem[3][8192] __attribute__((aligned(4096)));
    static struct tier_op op[3];
    uint32_t done = 0;
    for (uint32_t i = 0; i < 3; i++) {
        rig_fill(mem[i], 5000, 1 + i, 1);
        submit_as(&op[i], 1 + i, mem[i], 5000, TIER_F_DURABLE, &done);
    }
    for (unsigned i = 0; i < 100 && done < 3; i++)
        rig_turn(&g, 1000000);
    ck_assert(done == 3 && writes == 1); /* one extent */
    nvme_flush(g.nvme);
    rig_settle(&g);
    tell_table_alone(op[0].loc);
    g.config.blocks_max = 2;
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_eq(g.report.blocks_over, 1);
    nvme_flush(g.nvme);
    rig_settle(&g);
    die();
    g.config.blocks_max = 1000;
    ck_assert_int_eq(rig_open(&g), 0);
    ck_assert_uint_eq(g.report.blocks_over, 0);
    ck_assert(is_there(2, 5000) && is_there(3, 5000));
}
