/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator on traces so small that every hit can be told by hand. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "sim_rig.h"
#include "simulate_cost.h"

static struct sim_config config(const struct policy_ops *ops, uint32_t host, uint32_t nvme)
{
    return (struct sim_config){.ops = ops,
                               .host_blocks = host,
                               .nvme_blocks = nvme,
                               .block_bytes = 4096,
                               .seed = 1,
                               .keep_percent = 100};
}

static void run(struct sim_config c)
{
    ck_assert_int_eq(sim_run(forest, &c, hits, &counts), 0);
}

/* n ids from `first` on. */
static void ask_chain_at(unsigned ms, unsigned first, unsigned n)
{
    char line[4096];
    int at = snprintf(line, sizeof(line), "{\"timestamp\": %u, \"hash_ids\": [%u", ms, first);
    for (unsigned i = 1; i < n; i++)
        at += snprintf(line + at, sizeof(line) - (size_t)at, ",%u", first + i);
    snprintf(line + at, sizeof(line) - (size_t)at, "]}");
    ask(line);
}

static void ask_chain(unsigned second, unsigned first, unsigned n)
{
    ask_chain_at(second * 1000, first, n);
}

/* ---- the forest ---- */

CASES(.setup = setup, .teardown = teardown);

CASE(equal_ids_are_one_node_below_one_parent)
{
    make("1 2 3, 1 2 4, 2 4");
    ck_assert_uint_eq(forest->n_nodes, 6); /* 1 2 3 4, and another 2 4 that begins a chain */
    ck_assert_uint_eq(forest->node[0], forest->node[3]);
    ck_assert_uint_ne(forest->node[1], forest->node[6]);
    ck_assert_uint_eq(forest->hash[1], forest->hash[4]);
    ck_assert_uint_ne(forest->hash[5], forest->hash[7]);
    ck_assert_uint_eq(forest->next[0], 1);
    ck_assert_uint_eq(forest->next[2], SIM_NEVER);
    ck_assert_uint_eq(forest->next[4], SIM_NEVER);
}

CASE(time_does_not_go_back_and_a_trace_without_it_gets_one)
{
    ask("{\"timestamp\": 500, \"hash_ids\": [1]}");
    ask("{\"timestamp\": 400, \"hash_ids\": [1]}");
    ask("{\"timestamp\": 600, \"hash_ids\": [1]}");
    ck_assert_int_eq(sim_forest_create(&trace, &forest), 0);
    ck_assert_uint_eq(forest->at_ms[0], 500);
    ck_assert_uint_ge(forest->at_ms[1], 500);
    ck_assert_uint_eq(forest->at_ms[2], 600);
    teardown();
    setup();
    ask("{\"hash_ids\": [1]}");
    ask("{\"hash_ids\": [1]}");
    ck_assert_int_eq(sim_forest_create(&trace, &forest), 0);
    ck_assert_uint_eq(forest->at_ms[1], 1000);
}

static void expect_times(unsigned n, const uint64_t *time, const uint64_t *want)
{
    for (unsigned i = 0; i < n; i++) {
        char line[64];
        snprintf(line, sizeof(line), "{\"timestamp\": %" PRIu64 ", \"hash_ids\": [1]}", time[i]);
        ask(line);
    }
    ck_assert_int_eq(sim_forest_create(&trace, &forest), 0);
    for (unsigned i = 0; i < n; i++)
        ck_assert_msg(forest->at_ms[i] == want[i], "%u of %u: %" PRIu64 ", not %" PRIu64, i, n,
                      forest->at_ms[i], want[i]);
    teardown();
    setup();
}

#define EPOCH UINT64_C(1700000000000)

/* Three requests in the first ten seconds, one in the next, two in the last; as far apart as six
 * are in twenty seconds, there. The same in any year. */
CASE(requests_of_one_coarse_time_are_spread_over_it)
{
    static const uint64_t time[] = {0, 0, 0, 10000, 20000, 20000},
                          want[] = {0, 3333, 6666, 10000, 20000, 23333};
    expect_times(6, time, want);
    uint64_t later[6], want_later[6];
    for (unsigned i = 0; i < 6; i++) {
        later[i] = EPOCH + time[i];
        want_later[i] = EPOCH + want[i];
    }
    expect_times(6, later, want_later);
}

/* Six of eight requests in the last of three seconds, so 250 ms apart on average. */
CASE(requests_of_the_last_time_are_spread_no_wider_than_others)
{
    static const uint64_t time[] = {EPOCH,        EPOCH + 1000, EPOCH + 2000, EPOCH + 2000,
                                    EPOCH + 2000, EPOCH + 2000, EPOCH + 2000, EPOCH + 2000},
                          want[] = {EPOCH,        EPOCH + 1000, EPOCH + 2000, EPOCH + 2166,
                                    EPOCH + 2333, EPOCH + 2500, EPOCH + 2666, EPOCH + 2833};
    expect_times(8, time, want);
}

CASE(requests_of_one_time_come_a_second_apart)
{
    static const uint64_t ones[] = {1, 1, 1}, want_ones[] = {1, 1001, 2001},
                          epoch[] = {EPOCH, EPOCH, EPOCH},
                          want_epoch[] = {EPOCH, EPOCH + 1000, EPOCH + 2000};
    expect_times(3, ones, want_ones);
    expect_times(3, epoch, want_epoch);
}

CASE(time_does_not_wrap)
{
    static const uint64_t whole[] = {0, 0, 0, UINT64_MAX, UINT64_MAX},
                          want_whole[] = {0, UINT64_MAX / 3, UINT64_MAX / 3 * 2, UINT64_MAX,
                                          UINT64_MAX},
                          one[] = {UINT64_MAX - 1000, UINT64_MAX - 1000},
                          want_one[] = {UINT64_MAX - 1000, UINT64_MAX - 500},
                          end[] = {UINT64_MAX - 3000, UINT64_MAX - 1, UINT64_MAX - 1},
                          want_end[] = {UINT64_MAX - 3000, UINT64_MAX - 1, UINT64_MAX - 1};
    expect_times(5, whole, want_whole);
    expect_times(2, one, want_one);
    expect_times(3, end, want_end);
}

/* ---- one tier ---- */

CASE(lru_goes_leaf_first)
{
    make("1 2 3, 1 2 4, 1 2 3, 5 6, 1 2 3, 1 2 4");
    run(config(&policy_lru, 4, 0));
    expect_hits("0 2 3 0 2 2");
    ck_assert_uint_eq(counts.host_hits, 9);
    ck_assert_uint_eq(counts.accesses, 17);
    /* 4 and 3 for 5 6; 6 for 3; 5 for 4 */
    ck_assert_uint_eq(counts.evicted, 4);
}

CASE(each_policy_hits_as_told_by_hand)
{
    static const struct {
        const char *requests;
        const struct policy_ops *ops;
        const char *hits;
    } cases[] = {
        /* 1 was used three times, and is the longest unused when 5 comes */
        {"1, 1, 1, 2, 3, 4, 5, 6, 1", &policy_lru, "0 1 1 0 0 0 0 0 0"},
        {"1, 1, 1, 2, 3, 4, 5, 6, 1", &policy_s3fifo, "0 1 1 0 0 0 0 0 1"},
        {"1, 1, 1, 2, 3, 4, 5, 6, 1", &policy_arc, "0 1 1 0 0 0 0 0 1"},
        {"1, 1, 1, 2, 3, 4, 5, 6, 1", &policy_lru2, "0 1 1 0 0 0 0 0 1"},
        /* used twice is not enough for S3-FIFO */
        {"1, 1, 2, 3, 4, 5, 6, 1", &policy_s3fifo, "0 1 0 0 0 0 0 0"},
        {"1, 1, 2, 3, 4, 5, 6, 1", &policy_arc, "0 1 0 0 0 0 0 1"},
        /* 1 goes, comes again, and is remembered */
        {"1, 2, 3, 4, 5, 1, 6, 7, 8, 9, 1", &policy_lru, "0 0 0 0 0 0 0 0 0 0 0"},
        {"1, 2, 3, 4, 5, 1, 6, 7, 8, 9, 1", &policy_s3fifo, "0 0 0 0 0 0 0 0 0 0 1"},
        {"1, 2, 3, 4, 5, 1, 6, 7, 8, 9, 1", &policy_arc, "0 0 0 0 0 0 0 0 0 0 1"},
        {"1, 2, 3, 4, 5, 1, 6, 7, 8, 9, 1", &policy_lru2, "0 0 0 0 0 0 0 0 0 0 1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        make(cases[i].requests);
        run(config(cases[i].ops, 4, 0));
        expect_hits(cases[i].hits);
        teardown();
        setup();
    }
}

CASE(a_request_that_is_larger_than_the_cache_keeps_its_beginning)
{
    make("1 2 3 4 5, 1 2 3 4 5, 6, 1 2 3");
    run(config(&policy_lru, 3, 0));
    expect_hits("0 3 0 2");
    ck_assert_uint_eq(counts.no_room, 4);
}

/* ---- what a policy is told ---- */

static char story[4096];
static unsigned said_times;

static void tell(const char *what, uint64_t number)
{
    snprintf(story + strlen(story), sizeof(story) - strlen(story), "%s%u ", what, (unsigned)number);
}

static void spy_insert(struct policy *p, uint32_t block, const struct policy_hint *hint,
                       uint64_t now_ms)
{
    tell("i", hint->depth);
    policy_lru.insert(p, block, hint, now_ms);
}

static void spy_touch(struct policy *p, uint32_t block, uint64_t now_ms)
{
    tell("t", block);
    policy_lru.touch(p, block, now_ms);
}

static bool spy_request(struct policy *p, const struct policy_request *request, uint64_t now_ms)
{
    (void)p;
    (void)now_ms;
    tell("r", request->hits);
    ck_assert_uint_eq(request->n, 3);
    return false;
}

static void spy_advise(struct policy *p, enum policy_advice advice, uint32_t within_ms,
                       const uint32_t *block, uint32_t n, uint64_t now_ms)
{
    static const char *const said[POLICY_ADVICE_COUNT] = {"", "ended", "continue", "soon", "scan"};
    (void)p;
    (void)now_ms;
    if (advice == POLICY_ADVICE_SOON)
        tell("within", within_ms);
    tell(said[advice], n);
    said_times++;
    for (uint32_t i = 0; i < n; i++)
        tell("b", block[i]);
}

static struct policy_ops spy(void)
{
    struct policy_ops ops = policy_lru;
    ops.insert = spy_insert;
    ops.touch = spy_touch;
    ops.request = spy_request;
    ops.advise = spy_advise;
    story[0] = '\0';
    return ops;
}

CASE(requests_come_before_touches_and_these_before_inserts)
{
    const struct policy_ops ops = spy();
    make("1 2 3, 1 2 4");
    run(config(&ops, 10, 0));
    ck_assert_str_eq(story, "r0 i0 i1 i2 r2 t1 t0 i2 ");
}

/* Blocks 0 to 5 are 1 2 3, 4 5 and 6. */
CASE(hints_name_the_blocks_that_no_other_chain_shares)
{
    const struct policy_ops ops = spy();
    make("1 2 3, 1 4 5, 1 2 6");
    struct sim_config c = config(&ops, 10, 0);
    c.hints = (struct sim_hints){POLICY_ADVICE_ENDED, 1, 0};
    run(c);
    ck_assert_str_eq(story, "r0 i0 i1 i2 r1 t0 i1 i2 ended2 b4 b3 r2 t1 t0 i2 ended1 b5 ");
    story[0] = '\0';
    c.hints = (struct sim_hints){POLICY_ADVICE_CONTINUE, 1, 0};
    run(c);
    ck_assert_str_eq(story, "r0 i0 i1 i2 continue3 b2 b1 b0 r1 t0 i1 i2 r2 t1 t0 i2 ");
    story[0] = '\0';
    c.hints = (struct sim_hints){POLICY_ADVICE_ENDED, 0, 0}; /* always wrong */
    run(c);
    ck_assert_str_eq(story, "r0 i0 i1 i2 ended3 b2 b1 b0 r1 t0 i1 i2 r2 t1 t0 i2 ");
}

static const char *story_of(const struct policy_ops *ops, struct sim_hints hints)
{
    struct sim_config c = config(ops, 20, 0);
    c.hints = hints;
    story[0] = '\0';
    run(c);
    return story;
}

/* Requests are a second apart; 1 4 5 is continued after two, 1 2 3 after three. */
CASE(soon_is_said_of_what_is_asked_for_within_the_time)
{
    const struct policy_ops ops = spy();
    make("1 2 3, 1 4 5, 1 6 7, 1 4 5, 1 2 3");
    const char *want = "r0 i0 i1 i2 r1 t0 i1 i2 within2000 soon2 b4 b3 r1 t0 i1 i2 "
                       "r3 t4 t3 t0 r3 t2 t1 t0 ";
    ck_assert_str_eq(story_of(&ops, (struct sim_hints){POLICY_ADVICE_SOON, 1, 2000}), want);
    want = "r0 i0 i1 i2 r1 t0 i1 i2 r1 t0 i1 i2 r3 t4 t3 t0 r3 t2 t1 t0 ";
    ck_assert_str_eq(story_of(&ops, (struct sim_hints){POLICY_ADVICE_SOON, 1, 1999}), want);
    want = "r0 i0 i1 i2 within4000 soon3 b2 b1 b0 r1 t0 i1 i2 within4000 soon2 b4 b3 r1 t0 i1 i2 "
           "r3 t4 t3 t0 r3 t2 t1 t0 ";
    ck_assert_str_eq(story_of(&ops, (struct sim_hints){POLICY_ADVICE_SOON, 1, 4000}), want);
    want = "r0 i0 i1 i2 r1 t0 i1 i2 r1 t0 i1 i2 within4000 soon2 b6 b5 "
           "r3 t4 t3 t0 within4000 soon2 b4 b3 r3 t2 t1 t0 within4000 soon2 b2 b1 ";
    ck_assert_str_eq(story_of(&ops, (struct sim_hints){POLICY_ADVICE_SOON, 0, 4000}), want);
}

/* 1 2 3 and 1 4 5 come again; of what ends, 1 4 5 is not new, and 1 6 7 and 8 9 10 are. */
CASE(scan_is_said_of_what_is_new_and_never_comes_again)
{
    const struct policy_ops ops = spy();
    make("1 2 3, 1 4 5, 1 6 7, 1 4 5, 8 9 10, 1 2 3");
    const char *want = "r0 i0 i1 i2 r1 t0 i1 i2 r1 t0 i1 i2 scan2 b6 b5 r3 t4 t3 t0 "
                       "r0 i0 i1 i2 scan3 b9 b8 b7 r3 t2 t1 t0 ";
    ck_assert_str_eq(story_of(&ops, (struct sim_hints){POLICY_ADVICE_SCAN, 1, 0}), want);
    want = "r0 i0 i1 i2 scan3 b2 b1 b0 r1 t0 i1 i2 scan2 b4 b3 r1 t0 i1 i2 r3 t4 t3 t0 scan2 b4 b3 "
           "r0 i0 i1 i2 r3 t2 t1 t0 scan2 b2 b1 ";
    ck_assert_str_eq(story_of(&ops, (struct sim_hints){POLICY_ADVICE_SCAN, 0, 0}), want);
}

/* Of a thousand that are never asked for again, as many as it is right of. */
CASE(hints_are_right_as_often_as_is_said)
{
    const struct policy_ops ops = spy();
    for (unsigned i = 0; i < 1000; i++)
        ask_chain(i, 10 * i, 3);
    ck_assert_int_eq(sim_forest_create(&trace, &forest), 0);
    for (unsigned kind = POLICY_ADVICE_ENDED; kind < POLICY_ADVICE_COUNT; kind++) {
        const bool so = kind == POLICY_ADVICE_ENDED || kind == POLICY_ADVICE_SCAN;
        said_times = 0;
        (void)story_of(&ops, (struct sim_hints){(enum policy_advice)kind, 0.8, 60000});
        const unsigned right = so ? said_times : 1000 - said_times;
        ck_assert_msg(right > 760 && right < 840, "kind %u: %u of 1000", kind, right);
    }
}

/* ---- two tiers ---- */

CASE(what_leaves_memory_is_written_once_and_comes_back)
{
    make("1, 2, 3, 1, 4, 5, 1");
    run(config(&policy_lru, 2, 6));
    expect_hits("0 0 0 1 0 0 1");
    ck_assert_uint_eq(counts.nvme_hits, 2);
    /* 1, 2, 3, 4, and 5, which goes next; 1 leaves memory a second time and is there still */
    ck_assert_uint_eq(counts.nvme_written, 5);
    ck_assert_uint_eq(counts.nvme_rewritten, 0);
    ck_assert_uint_eq(counts.evicted, 5);
}

CASE(the_oldest_writing_is_reclaimed_first)
{
    make("1, 2, 3, 4, 5, 6, 1, 2");
    run(config(&policy_lru, 1, 4));
    /* 5 takes the place of 1, 6 that of 2 */
    expect_hits("0 0 0 0 0 0 0 0");
    ck_assert_uint_eq(counts.nvme_written, 8); /* ahead of need */
    ck_assert_uint_eq(counts.nvme_rewritten, 0);
}

CASE(a_chain_comes_back_whole)
{
    make("1 2, 3, 4, 5, 1 2");
    run(config(&policy_lru, 2, 6));
    expect_hits("0 0 0 0 2");
    ck_assert_uint_eq(counts.nvme_hits, 2);
}

CASE(a_subtree_goes_with_its_root)
{
    make("1, 3, 4, 1 2, 5 6, 7 8, 1 2, 1 2");
    run(config(&policy_lru, 2, 5));
    /* 1 was written first, and 2 later: when 5 takes the place of 1, 2 goes too */
    expect_hits("0 0 0 1 0 0 0 2");
}

/* Chains of 4 blocks, each continued now and then; more of them than both tiers hold. */
static void make_random(unsigned requests)
{
    uint64_t r = 88172645463325252u;
    for (unsigned i = 0; i < requests; i++) {
        r ^= r << 13, r ^= r >> 7, r ^= r << 17;
        const unsigned chain = (unsigned)(r >> 20) % 400, length = 2 + (unsigned)(r >> 40) % 5;
        char ids[128] = "";
        for (unsigned d = 0; d < length; d++)
            snprintf(ids + strlen(ids), sizeof(ids) - strlen(ids), "%s%u", d ? "," : "",
                     10 * chain + d);
        char line[256];
        snprintf(line, sizeof(line), "{\"timestamp\": %u, \"hash_ids\": [%s]}", 1000 + 50 * i, ids);
        ask(line);
    }
    ck_assert_int_eq(sim_forest_create(&trace, &forest), 0);
}

CASE(the_write_budget_is_kept)
{
    make_random(REQUESTS_MAX);
    struct sim_config c = config(&policy_lru, 50, 400);
    c.keep_percent = 50;
    run(c);
    const double all = (double)(counts.nvme_written + counts.nvme_rewritten);
    ck_assert_msg(all > 0.6 * (double)counts.accesses, "%f", all / (double)counts.accesses);
    ck_assert_uint_gt(counts.nvme_rewritten, 0);
    c.write_budget = 0.3;
    run(c);
    const double part =
        (double)(counts.nvme_written + counts.nvme_rewritten) / (double)counts.accesses;
    const double ahead = 400.0 / 64 / (double)counts.accesses;
    ck_assert_msg(part > 0.25 && part <= 0.3 + ahead, "%f", part);
}

CASE(storage_of_which_all_is_worth_keeping_is_written_all_the_same)
{
    make_random(1000);
    struct sim_config c = config(&policy_lru, 20, 200);
    c.keep_percent = 0;
    run(c);
    ck_assert_uint_gt(counts.nvme_rewritten, counts.nvme_written / 2);
    ck_assert_uint_gt(counts.nvme_written, 1000);
    ck_assert_uint_gt(counts.nvme_hits, 0);
}

/* Once all was written until 256 blocks had been offered. */
CASE(the_write_budget_is_kept_from_the_first_request_on)
{
    make_random(REQUESTS_MAX);
    const size_t all = trace.n_requests;
    for (unsigned percent = 1; percent <= 40; percent = 3 * percent + 1)
        for (trace.n_requests = 1; trace.n_requests <= all; trace.n_requests *= 2) {
            struct sim_config c = config(percent % 2 ? &policy_density : &policy_lru, 50, 400);
            c.keep_percent = 50;
            c.write_budget = percent / 100.0;
            run(c);
            const struct trace_request *last = &trace.requests[trace.n_requests - 1];
            const double asked = (double)(last->first + last->blocks);
            const double wrote = (double)(counts.nvme_written + counts.nvme_rewritten);
            ck_assert_msg(wrote <= asked * c.write_budget + 400.0 / 64,
                          "%u %%, %zu requests: %.0f of %.0f", percent, trace.n_requests, wrote,
                          asked);
        }
}

CASE(a_run_is_the_same_every_time)
{
    make_random(2000);
    for (unsigned i = 0; policy_at(i); i++) {
        struct sim_config c = config(policy_at(i), 50, 200);
        c.hints = (struct sim_hints){POLICY_ADVICE_ENDED, 0.7, 0};
        c.write_budget = 0.3;
        c.keep_percent = 50;
        run(c);
        const struct sim_counts first = counts;
        run(c);
        ck_assert_msg(memcmp(&first, &counts, sizeof(first)) == 0, "%s", c.ops->name);
        ck_assert_uint_gt(counts.nvme_hits, 0);
    }
}

CASE(each_decision_is_timed)
{
    struct trace *made;
    ck_assert_int_eq(sim_conversations(3000, &made), 0);
    trace = *made;
    free(made);
    ck_assert_uint_le(trace.n_requests, REQUESTS_MAX);
    ck_assert_int_eq(sim_forest_create(&trace, &forest), 0);
    ck_assert_uint_gt(forest->n_nodes, 4000);
    struct sim_decisions decisions = {.ns = 0};
    struct sim_config c = config(&policy_lru, 3000, 0);
    c.decisions = &decisions;
    run(c);
    ck_assert_uint_gt(counts.evicted, 1000);
    ck_assert_uint_eq(decisions.lat.count, counts.evicted);
    ck_assert_uint_gt(decisions.clock_ns, 0);
}

/* ---- a sweep ---- */

#define DOCS 32u
#define DOC  64u /* blocks; all of them five times what memory holds */

/* Ten minutes of people: each four seconds one begins, who asks one to five times, 15 to 60 seconds
 * apart. */
static void chats(unsigned scale)
{
    for (unsigned second = 0; second < 600; second++)
        for (unsigned who = 0; 4 * who <= second; who++) {
            const unsigned since = second - 4 * who, each = 15 * (1 + who % 4), turn = since / each;
            if (since % each == 0 && turn < 1 + who % 5)
                ask_chain(second, 100000 + 1000 * who, scale * (8 + 3 * turn));
        }
}

static void sweep(unsigned room, unsigned want_hits, bool admit_all)
{
    struct sim_config c = config(&policy_density, room, 0);
    c.admit_all = admit_all;
    ck_assert_int_eq(sim_forest_create(&trace, &forest), 0);
    run(c);
    const uint32_t hit = hits[trace.n_requests - 1].host;
    ck_assert_msg(hit >= want_hits, "hit %u, wanted %u", hit, want_hits);
    ck_assert_uint_gt(counts.evicted + counts.not_worth, room * 5 / 2);
}

/* In a fresh daemon or one that has served for a while; a quick one and a slow one; of large blocks
 * and of small ones; where blocks may be refused and where not. No hints. */
CASE_EACH(a_sweep_over_documents_does_not_evict_a_conversation, 16)
{
    const unsigned each_s = _i / 2 % 2, scale = _i / 4 % 2 ? 5 : 1;
    if (_i % 2)
        chats(scale);
    for (unsigned turn = 0; turn < 3; turn++)
        ask_chain(600 + 20 * turn, 1000, scale * (16 + 4 * turn));
    for (unsigned i = 0; i < DOCS; i++)
        ask_chain(641 + i * each_s, 1000000 + 1000 * i, scale * DOC);
    ask_chain(641 + DOCS * each_s + 2, 1000, scale * 24);
    sweep(scale * DOCS * DOC / 5, scale * 23, _i / 8);
}

/* Chats that end after the third turn, all of them, and answer after the same time, and one that
 * waits longer than anybody before it. Time goes on as in tests, as with agents, as with people. */
CASE_EACH(a_sweep_does_not_evict_who_waits_longer_than_all_others, 12)
{
    enum { CHATS = 150, TURN = 20, CONV = 256, BIG = 320 };
    static const unsigned turns[] = {8, 200, 5000};
    const unsigned each = turns[_i % 3], wait = each * (_i / 3 % 2 ? 10 : 3);
    unsigned now = 160;
    for (unsigned i = 0; i < CHATS; i++)
        for (unsigned turn = 1; turn <= 3; turn++, now += each)
            ask_chain_at(now, 10000000 + 10000 * i, turn * TURN);
    ask_chain_at(now, 1000, CONV / 2);
    now += each;
    ask_chain_at(now, 1000, CONV);
    now += wait;
    for (unsigned i = 0; i < DOCS; i++, now += each)
        ask_chain_at(now, 1000000 + 1000 * i, BIG);
    ask_chain_at(now, 1000, CONV);
    sweep(DOCS * BIG / 5, CONV * 95 / 100, _i / 6);
}

#define DAYS 41u
#define DAY  96u /* requests: one each quarter of an hour */

/* Three chains of five are asked for again 1 to 16 days later, and so on; the others never. */
static void ask_for_days(void)
{
    static uint32_t due[DAYS * DAY]; /* chain + 1, by the number of the request */
    memset(due, 0, sizeof(due));
    uint32_t chains = 0, seed = 1;
    for (unsigned i = 0; i < DAYS * DAY; i++) {
        const uint32_t chain = due[i] ? due[i] - 1 : chains++;
        seed = seed * 1664525u + 1013904223u;
        unsigned at = i + DAY + (seed >> 8) % (15 * DAY);
        while (at < DAYS * DAY && due[at])
            at++;
        if ((seed >> 27) % 5 < 3 && at < DAYS * DAY)
            due[at] = chain + 1;
        char line[128];
        snprintf(line, sizeof(line), "{\"timestamp\": %" PRIu64 ", \"hash_ids\": [%u,%u]}",
                 i * UINT64_C(86400000) / DAY, 2 * chain, 2 * chain + 1);
        ask(line);
    }
    ck_assert_int_eq(sim_forest_create(&trace, &forest), 0);
}

static double hit_ratio(const struct policy_ops *ops, uint32_t room)
{
    run(config(ops, room, 0));
    return (double)counts.host_hits / (double)counts.accesses;
}

/* Once ages above nine days were one age: what had grown older seemed to come back at once, and was
 * kept for good. */
CASE(ages_of_weeks_are_told_apart)
{
    ask_for_days();
    for (unsigned percent = 30; percent <= 60; percent += 10) {
        const uint32_t room = forest->n_nodes * percent / 100;
        const double lru = hit_ratio(&policy_lru, room);
        const double density = hit_ratio(&policy_density, room);
        ck_assert_msg(density >= lru - 0.01, "at %u %%: %f, LRU %f", percent, density, lru);
    }
}

/* In units of 16 ms, as times are kept in 32 bits: what is remembered is told from another time on
 * when the first half of them is used up. */
CASE_EACH(uptime_of_years_changes_nothing, 6)
{
    static const uint64_t passed[] = {UINT64_C(16) << 31, UINT64_C(16) << 32, UINT64_C(16) << 36};
    const struct policy_ops *of[] = {&policy_density, &policy_lru2};
    const struct policy_ops *ops = of[_i / 3];
    chats(1);
    ck_assert_int_eq(sim_forest_create(&trace, &forest), 0);
    const uint32_t room = forest->n_nodes / 5;
    const double young = hit_ratio(ops, room);
    const uint64_t middle = forest->at_ms[trace.n_requests / 2] / 16 * 16;
    for (size_t r = 0; r < trace.n_requests; r++)
        forest->at_ms[r] += passed[_i % 3] - middle;
    const double old = hit_ratio(ops, room);
    ck_assert_msg(old > young - 0.001 && old < young + 0.001, "%f, not %f", old, young);
}

/* Once the clock of 32 bits had wrapped, all was taken for younger, or older, than it was. */
CASE(work_goes_on_as_before_after_a_year_of_it)
{
    enum { YEARS = 4, DAY_MS = 86400000 };
    chats(1);
    const unsigned day = (unsigned)trace.n_requests;
    ck_assert_uint_le(day * (YEARS + 1), REQUESTS_MAX);
    const size_t ids = trace.n_ids;
    for (unsigned y = 0; y < YEARS; y++)
        chats(1);
    for (size_t i = 0; i < trace.n_ids; i++) /* nobody asks for what was there a year ago */
        trace.ids[i] += i / ids * 10000000;
    ck_assert_int_eq(sim_forest_create(&trace, &forest), 0);
    for (size_t r = 0; r < trace.n_requests; r++)
        forest->at_ms[r] = trace.requests[r].timestamp_ms + r / day * UINT64_C(365) * DAY_MS;
    run(config(&policy_density, 200, 0));
    uint64_t hit[YEARS + 1] = {0};
    for (size_t r = 0; r < trace.n_requests; r++)
        hit[r / day] += hits[r].host;
    for (unsigned y = 1; y <= YEARS; y++)
        ck_assert_msg(hit[y] >= hit[0], "year %u: %" PRIu64 " hits, %" PRIu64 " at first", y,
                      hit[y], hit[0]);
}

CASE(with_admit_all_no_block_is_refused)
{
    make_random(2000);
    struct sim_config c = config(policy_by_name("default"), 50, 0);
    ck_assert_ptr_nonnull(c.ops->admits);
    run(c);
    const struct sim_counts judged = counts;
    ck_assert_uint_gt(judged.not_worth, 0);
    c.admit_all = true;
    run(c);
    ck_assert_uint_eq(counts.not_worth, 0);
    ck_assert_uint_ne(counts.host_hits, judged.host_hits);
    ck_assert_uint_gt(counts.evicted, judged.evicted);
}

/* ---- the bound ---- */

#define SMALL_NODES    8u
#define SMALL_REQUESTS 7u

/* Nodes 0 and 1 are roots; the parent of the others is node / 2 - 1. */
static unsigned path_of(unsigned node, unsigned path[4])
{
    unsigned up[4], n = 0;
    for (up[n++] = node; node >= 2; up[n++] = node)
        node = node / 2 - 1;
    for (unsigned i = 0; i < n; i++)
        path[i] = up[n - 1 - i];
    return n;
}

/* The most hits from request r on with these nodes cached; any of what is there may be kept. */
static unsigned best_from(const unsigned *tips, unsigned r, unsigned cached, unsigned room,
                          int (*memo)[1 << SMALL_NODES])
{
    if (r == SMALL_REQUESTS)
        return 0;
    if (memo[r][cached] >= 0)
        return (unsigned)memo[r][cached];
    unsigned path[4], here = 0, all = cached, best = 0;
    const unsigned n = path_of(tips[r], path);
    while (here < n && cached >> path[here] & 1)
        here++;
    for (unsigned i = 0; i < n; i++)
        all |= 1u << path[i];
    for (unsigned keep = all;; keep = (keep - 1) & all) {
        if ((unsigned)__builtin_popcount(keep) <= room) {
            const unsigned later = best_from(tips, r + 1, keep, room, memo);
            best = later > best ? later : best;
        }
        if (keep == 0)
            break;
    }
    memo[r][cached] = (int)(here + best);
    return here + best;
}

CASE(belady_is_what_trying_everything_finds)
{
    static int memo[SMALL_REQUESTS][1 << SMALL_NODES];
    uint64_t r = 88172645463325252u;
    for (unsigned round = 0; round < 200; round++) {
        unsigned tips[SMALL_REQUESTS], path[4];
        char text[256] = "";
        for (unsigned i = 0; i < SMALL_REQUESTS; i++) {
            r ^= r << 13, r ^= r >> 7, r ^= r << 17;
            tips[i] = (unsigned)(r >> 30) % SMALL_NODES;
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s", i ? "," : "");
            for (unsigned k = 0, n = path_of(tips[i], path); k < n; k++)
                snprintf(text + strlen(text), sizeof(text) - strlen(text), " %u", path[k]);
        }
        const unsigned room = 1 + round % 4;
        memset(memo, 0xff, sizeof(memo));
        const unsigned best = best_from(tips, 0, 0, room, memo);
        make(text);
        ck_assert_int_eq(sim_belady(forest, room, hits, &counts), 0);
        ck_assert_msg(counts.host_hits == best, "%s in %u: %u, not %u", text, room,
                      (unsigned)counts.host_hits, best);
        teardown();
        setup();
    }
}

CASE(no_policy_is_better_than_belady)
{
    make_random(3000);
    ck_assert_int_eq(sim_belady(forest, 200, hits, &counts), 0);
    const uint64_t bound = counts.host_hits;
    for (unsigned i = 0; policy_at(i); i++) {
        run(config(policy_at(i), 200, 0));
        ck_assert_uint_gt(counts.host_hits, bound / 4);
        ck_assert_uint_le(counts.host_hits, bound);
    }
}

/* ---- time ---- */

static bool near(double value, double want)
{
    return value > want - 1e-9 && value < want + 1e-9;
}

CASE(time_to_first_token_as_computed_by_hand)
{
    /* blocks of 10 tokens, 1 kB each: 100 bytes a token */
    ask("{\"timestamp\": 0, \"input_length\": 25, \"hash_ids\": [1, 2, 3]}");
    ask("{\"timestamp\": 0, \"hash_ids\": [1, 2]}");
    const struct sim_hit one_each[] = {{.host = 1, .nvme = 2}, {.host = 0, .nvme = 0}};
    struct sim_cost cost = {0};
    ck_assert_int_eq(sim_cost_parse("1000000,20000,0.001,0.0001", &cost), 0);
    struct sim_times t;
    ck_assert_int_eq(sim_times(&trace, one_each, &cost, 10, 1000, &t), 0);
    /* All 25 are reused: the last block is not full. 5 tokens from memory at 1e6 bytes/s and 20
     * from storage at 1e5: .0005 s and .02 s. The other computes 20 tokens, and 200 pairs. */
    ck_assert(near(t.token_hit_ratio, 25.0 / 45));
    ck_assert(near(t.mean_s, (0.0205 + 0.024) / 2));
    ck_assert(near(t.p50_s, 0.0205));
    ck_assert(near(t.p95_s, 0.024));
    /* without a cache: 25 tokens and 312.5 pairs, and the other */
    ck_assert(near(t.time_hit_ratio, 1 - (0.0205 + 0.024) / (0.025 + 0.00625 + 0.024)));
}

CASE(a_cost_may_be_given_in_part_and_must_be_one)
{
    struct sim_cost cost = {1, 2, 3, 4};
    ck_assert_int_eq(sim_cost_parse("7", &cost), 0);
    ck_assert(near(cost.ns_per_token, 7) && near(cost.ns_per_pair, 2));
    static const char *const wrong[] = {"",          "x",         "1,",   "-1",    "1,1,0",
                                        "1,1,1,1,1", "1,1,1,inf", "1e16", "1,nan", "1,1,1e-13"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        ck_assert_msg(sim_cost_parse(wrong[i], &cost) < 0, "'%s'", wrong[i]);
    ck_assert(near(cost.ns_per_token, 7) && near(cost.nvme_gbs, 4));
}
