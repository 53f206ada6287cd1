/* SPDX-License-Identifier: Apache-2.0 */
/* What is left of a hot set that pauses while a scan passes, block by block. */
#include <stdlib.h>

#include "cases.h"
#include "simulate.h"

/* The room that a hot set of an eighth of it is in: blocks of 256 KiB or of 2 MiB in 512 MiB. */
static const uint32_t rooms[] = {2048, 256};
static const uint32_t pauses_ms[] = {200, 2000, 200000};
static const uint32_t times[] = {2, 20};
enum { ROOMS = 2, PAUSES = 3, TIMES = 2, WAYS = 4 };

static struct trace *trace;
static struct sim_forest *forest;
static struct sim_hit *hits;
static size_t after;

static void setup(void)
{
    trace = NULL;
    forest = NULL;
    hits = NULL;
}

static void teardown(void)
{
    free(hits);
    sim_forest_destroy(&forest);
    trace_destroy(&trace);
}

static void make_scan(const struct sim_scan *scan)
{
    ck_assert_int_eq(sim_scan(scan, &trace, &after), 0);
    ck_assert_int_eq(sim_forest_create(trace, &forest), 0);
    hits = calloc(trace->n_requests, sizeof(*hits));
    ck_assert_ptr_nonnull(hits);
}

static uint64_t left(void)
{
    uint64_t n = 0;
    for (size_t r = after; r < trace->n_requests; r++)
        n += hits[r].host;
    return n;
}

static uint64_t left_by_default(uint32_t room, bool admit_all)
{
    const struct sim_config config = {.ops = policy_by_name("default"),
                                      .host_blocks = room,
                                      .block_bytes = 4096,
                                      .seed = 1,
                                      .admit_all = admit_all};
    struct sim_counts counts;
    ck_assert_int_eq(sim_run(forest, &config, hits, &counts), 0);
    return left();
}

static uint64_t left_by(const char *published, uint32_t room)
{
    struct sim_counts counts;
    ck_assert_int_eq(sim_published(forest, published, room, hits, &counts), 0);
    return left();
}

/* Of a scan of which a part is asked for again ARC keeps all, or nothing when it is long. */
static void expect_kept(const struct sim_scan *scan, uint32_t room, bool admit_all)
{
    make_scan(scan);
    const uint64_t kept = left_by_default(room, admit_all);
    /* In 16 ms, which are one time to the policy, more comes than there is room for. */
    const bool too_quick = scan->pause_ms * (uint64_t)room < 16 * (uint64_t)scan->volume;
    const uint64_t want =
        scan->kind == SIM_SCAN_REUSED && too_quick ? left_by("published-arc", room) : scan->hot;
    ck_assert_msg(kept >= want, "%s, %u blocks of room, %u ms, %u blocks: %u of %u left",
                  sim_scan_name(scan->kind), room, scan->pause_ms, scan->volume, (unsigned)kept,
                  scan->hot);
    teardown();
    setup();
}

CASES(.setup = setup, .teardown = teardown);

/* Whether the scan asks before it stores, and whether blocks may be refused. */
CASE_EACH(a_hot_set_that_pauses_is_kept, (WAYS * SIM_SCAN_KINDS))
{
    for (unsigned i = 0; i < ROOMS * PAUSES * TIMES; i++) {
        const uint32_t room = rooms[i % ROOMS];
        const struct sim_scan scan = {.kind = (enum sim_scan_kind)(_i / WAYS),
                                      .hot = room / 8,
                                      .volume = room * times[i / ROOMS / PAUSES],
                                      .chain = 32,
                                      .active_ms = 2000,
                                      .pause_ms = pauses_ms[i / ROOMS % PAUSES],
                                      .stored = _i % 2};
        expect_kept(&scan, room, _i / 2 % 2);
    }
}

/* Three eighths of the room, in one chain, and in chains of one block. */
CASE_EACH(a_large_hot_set_that_pauses_is_kept, (2 * SIM_SCAN_REUSED))
{
    static const uint32_t chains[] = {1, 32, 768};
    for (unsigned i = 0; i < 3 * PAUSES; i++) {
        const struct sim_scan scan = {.kind = (enum sim_scan_kind)(_i / 2),
                                      .hot = 768,
                                      .volume = 8192,
                                      .chain = chains[i % 3],
                                      .active_ms = 500,
                                      .pause_ms = pauses_ms[i / 3],
                                      .stored = _i % 2};
        expect_kept(&scan, 2048, true);
    }
}

CASE_EACH(the_scan_is_what_was_asked_for, SIM_SCAN_KINDS)
{
    const struct sim_scan scan = {.kind = (enum sim_scan_kind)_i,
                                  .hot = 100,
                                  .volume = 1000,
                                  .chain = 32,
                                  .active_ms = 50,
                                  .pause_ms = 400,
                                  .stored = true};
    make_scan(&scan);
    uint64_t hot = 0, stored = 0;
    for (size_t r = 0; r < trace->n_requests; r++) {
        const struct trace_request *x = &trace->requests[r];
        stored += x->stored ? x->blocks : 0;
        hot += r >= after ? x->blocks : 0;
        ck_assert(r == 0 || x->timestamp_ms >= trace->requests[r - 1].timestamp_ms);
        ck_assert(r < after || trace->ids[x->first] < 100);
    }
    ck_assert_uint_eq(stored, 1000);
    ck_assert_uint_eq(hot, 100);
    ck_assert_uint_eq(forest->n_nodes, 1100);
    ck_assert_uint_eq(trace->requests[after].timestamp_ms, 60 + 400);
    ck_assert_uint_eq(left_by("published-lru", 200), 0);
    ck_assert_uint_eq(left_by("published-lfu", 200), 100);
}
