/* SPDX-License-Identifier: Apache-2.0 */
/* kvc_put and kvc_get, and pages in the worker's own memory, through a real daemon. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvcache/gpu.h>

#include "cases.h"
#include "rig.h"

#define BT         16u
#define TOKENS_MAX 2048u
/* Of staging: less than most chains. */
#define ROOM 4u
/* A killed daemon's connections are closed within that time, or the test fails. */
#define END_MS 10000u

static struct rig rig;
static struct kvc *k;
static struct kvc_ns *ns;
static uint32_t tokens[TOKENS_MAX];

static void start(uint64_t staging_bytes)
{
    rig_start(&rig, NULL);
    k = rig_open(&rig, staging_bytes);
    ns = rig_ns(k, "m", BT, RIG_BLOCK);
    for (uint32_t i = 0; i < TOKENS_MAX; i++)
        tokens[i] = 7 * i + 1;
}

static void setup(void)
{
    start(ROOM * RIG_BLOCK);
}

static void teardown(void)
{
    kvc_close(&k);
    rig_stop(&rig);
    rig_clean(&rig);
}

static void evict_all(void)
{
    const struct kvc_evict_filter all = {.force = true};
    struct kvc_evicted gone;
    ck_assert_int_eq(kvc_evict(k, &all, &gone), 0);
}

/* ---- a caller that has every block, and says which it was asked for ---- */

struct caller {
    const struct kvc_seq *seq;
    uint32_t filled[KVC_GROUPS_MAX], runs, taken;
    uint32_t lacks[KVC_GROUPS_MAX]; /* blocks below it are not the caller's any more */
    int error;                      /* what fill and take return */
    bool kills;
    struct kvc_hold *seen; /* kills: taken before, and stale once the daemon's connection ended */
    bool is_right;
};

static const uint8_t *key_of(const struct caller *c, uint32_t group, uint32_t i)
{
    return c->seq->group[group].keys + (size_t)i * KVC_KEY_BYTES;
}

static int fill(void *ctx, const struct kvc_run *run)
{
    struct caller *c = ctx;
    c->runs++;
    if (c->error != 0)
        return c->error;
    if (run->first < c->lacks[run->group])
        return 1;
    ck_assert_uint_eq(run->first_token, run->first * BT);
    ck_assert_uint_eq(run->tokens, run->first_token + run->n * BT > c->seq->tokens
                                       ? c->seq->tokens - run->first_token
                                       : run->n * BT);
    for (uint32_t i = 0; i < run->n; i++)
        rig_fill(key_of(c, run->group, run->first + i),
                 (uint8_t *)run->data + i * run->stride_bytes, run->block_bytes);
    c->filled[run->group] += run->n;
    return 0;
}

/* The kernel closes a killed daemon's connections some time after its process has ended; holds are
 * stale from then on, and not before. */
static void kill_and_see(const struct kvc_hold *seen)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    rig_kill(&rig);
    for (unsigned left = END_MS; left > 0 && kvc_hold_check(seen) == 0; left--)
        (void)nanosleep(&ms, NULL);
    ck_assert_int_eq(kvc_hold_check(seen), KVC_STALE);
}

static int take(void *ctx, const struct kvc_run *run)
{
    struct caller *c = ctx;
    if (c->error != 0)
        return c->error;
    for (uint32_t i = 0; i < run->n; i++)
        c->is_right &=
            rig_check(key_of(c, run->group, run->first + i),
                      (const uint8_t *)run->data + i * run->stride_bytes, run->block_bytes);
    c->taken += run->n;
    if (c->kills)
        kill_and_see(c->seen);
    c->kills = false;
    return 0;
}

/* Sequence of so many tokens, and a caller that has it. */
static struct caller caller_of(uint32_t n)
{
    struct kvc_seq *seq = NULL;
    ck_assert_int_eq(kvc_seq_new(ns, tokens, n, NULL, 0, &seq), 0);
    return (struct caller){.seq = seq, .is_right = true};
}

static void caller_end(struct caller *c)
{
    struct kvc_seq *seq = (struct kvc_seq *)(uintptr_t)c->seq;
    kvc_seq_free(&seq);
    ck_assert_ptr_null(seq);
}

static struct kvc_put_result put(struct caller *c, uint32_t from_tokens)
{
    const struct kvc_put p = {.seq = c->seq, .from_tokens = from_tokens, .fill = fill, .ctx = c};
    struct kvc_put_result r;
    const int rc = kvc_put(ns, &p, &r);
    ck_assert_msg(rc == 0, "%s: %s", kvc_error_name(rc), kvc_last_error(k));
    return r;
}

static struct kvc_got get(struct caller *c, uint32_t from_tokens)
{
    const struct kvc_get g = {
        .seq = c->seq, .acquire = {.from_tokens = from_tokens}, .take = take, .ctx = c};
    struct kvc_got got;
    const int rc = kvc_get(ns, &g, &got);
    ck_assert_msg(rc == 0, "%s: %s", kvc_error_name(rc), kvc_last_error(k));
    ck_assert(c->is_right);
    return got;
}

static void expect_group(const struct kvc_put_result *r, uint32_t group, uint32_t stored,
                         uint32_t there, uint32_t left)
{
    ck_assert_uint_eq(r->group[group].stored, stored);
    ck_assert_uint_eq(r->group[group].there, there);
    ck_assert_uint_eq(r->group[group].left, left);
}

CASES(.setup = setup, .teardown = teardown);

CASE(a_chain_longer_than_staging_is_stored_and_read_back)
{
    struct caller c = caller_of(60 * BT + 5);
    struct kvc_put_result r = put(&c, 0);
    expect_group(&r, 0, 61, 0, 0);
    ck_assert_uint_eq(r.tokens, 60 * BT + 5);
    ck_assert_uint_eq(r.bytes, 61 * RIG_BLOCK);
    ck_assert_uint_eq(c.runs, 16);
    struct kvc_got got = get(&c, 0);
    ck_assert_uint_eq(got.tokens, 60 * BT + 5);
    ck_assert_uint_eq(c.taken, 61);
    caller_end(&c);
}

CASE(what_is_there_is_not_asked_for)
{
    struct caller head = caller_of(10 * BT), whole = caller_of(20 * BT + 1);
    (void)put(&head, 0);
    struct kvc_put_result r = put(&whole, 0);
    expect_group(&r, 0, 11, 10, 0);
    ck_assert_uint_eq(whole.filled[0], 11);
    r = put(&whole, 0);
    expect_group(&r, 0, 0, 21, 0);
    ck_assert_uint_eq(whole.filled[0], 11);
    ck_assert_uint_eq(r.bytes, 0);
    caller_end(&head);
    caller_end(&whole);
}

CASE(a_put_goes_on_from_the_last_one_without_asking)
{
    struct caller c = caller_of(20 * BT), head = caller_of(10 * BT);
    (void)put(&head, 0);
    const uint64_t asked = rig_stat(k, "core.lookups");
    struct kvc_put_result r = put(&c, 10 * BT + 3);
    expect_group(&r, 0, 10, 10, 0);
    ck_assert_uint_eq(c.filled[0], 10);
    r = put(&c, 20 * BT);
    expect_group(&r, 0, 0, 20, 0);
    struct caller tail = caller_of(20 * BT + 3);
    (void)put(&tail, 20 * BT);
    ck_assert_uint_eq(tail.filled[0], 1);
    r = put(&tail, 20 * BT + 3); /* the partly filled block ends there too */
    expect_group(&r, 0, 0, 21, 0);
    ck_assert_uint_eq(tail.filled[0], 1);
    ck_assert_uint_eq(rig_stat(k, "core.lookups"), asked);
    caller_end(&tail);
    caller_end(&head);
    caller_end(&c);
}

CASE(a_parent_that_went_meanwhile_is_stored_again)
{
    struct caller head = caller_of(10 * BT), c = caller_of(20 * BT);
    (void)put(&head, 0);
    evict_all();
    uint8_t st[20];
    const struct kvc_put p = {
        .seq = c.seq, .from_tokens = 10 * BT, .fill = fill, .ctx = &c, .statuses = {st}};
    struct kvc_put_result r;
    ck_assert_int_eq(kvc_put(ns, &p, &r), 0);
    expect_group(&r, 0, 20, 0, 0);
    ck_assert_uint_eq(get(&c, 0).tokens, 20 * BT);
    for (uint32_t i = 0; i < 20; i++)
        ck_assert_uint_eq(st[i], KVC_ST_OK);
    caller_end(&head);
    caller_end(&c);
}

CASE(what_the_caller_does_not_have_ends_the_chain)
{
    struct caller c = caller_of(20 * BT);
    c.lacks[0] = 10;
    uint8_t st[20];
    const struct kvc_put p = {
        .seq = c.seq, .from_tokens = 10 * BT, .fill = fill, .ctx = &c, .statuses = {st}};
    struct kvc_put_result r;
    ck_assert_int_eq(kvc_put(ns, &p, &r), 0);
    expect_group(&r, 0, 0, 0, 20);
    ck_assert_uint_eq(r.group[0].status, KVC_ST_NO_STORE);
    ck_assert_uint_eq(r.tokens, 0);
    ck_assert_uint_eq(st[0], KVC_ST_NO_STORE);
    ck_assert_uint_eq(st[19], KVC_ST_NO_PARENT);
    caller_end(&c);
}

CASE(what_a_callback_returns_is_returned)
{
    struct caller c = caller_of(4 * BT);
    (void)put(&c, 0);
    c.error = -ECANCELED;
    evict_all();
    const struct kvc_put p = {.seq = c.seq, .fill = fill, .ctx = &c};
    ck_assert_int_eq(kvc_put(ns, &p, NULL), -ECANCELED);
    c.error = 0;
    (void)put(&c, 0);
    c.error = 77;
    const struct kvc_get g = {.seq = c.seq, .take = take, .ctx = &c};
    struct kvc_got got = {.tokens = 9};
    ck_assert_int_eq(kvc_get(ns, &g, &got), 77);
    ck_assert_uint_eq(got.tokens, 9);
    ck_assert_uint_eq(rig_stat(k, "core.leases"), 0);
    caller_end(&c);
}

CASE(a_get_holds_what_ends_after_from_tokens)
{
    struct caller c = caller_of(12 * BT), longer = caller_of(20 * BT);
    (void)put(&c, 0);
    ck_assert_uint_eq(get(&longer, 8 * BT).tokens, 12 * BT);
    ck_assert_uint_eq(longer.taken, 4);
    ck_assert_uint_eq(get(&longer, 12 * BT).tokens, 0);
    caller_end(&c);
    caller_end(&longer);
}

CASE(what_is_read_while_the_daemon_dies_is_discarded)
{
    struct caller c = caller_of(4 * BT);
    struct kvc_got got;
    (void)put(&c, 0);
    ck_assert_int_eq(kvc_acquire(ns, c.seq, NULL, &c.seen), 0);
    c.kills = true;
    got = get(&c, 0);
    kvc_release(k, &c.seen);
    ck_assert(!c.kills);
    ck_assert_uint_eq(got.prefix.tokens, 4 * BT);
    ck_assert_uint_eq(got.tokens, 0);
    ck_assert_uint_eq(get(&c, 0).tokens, 0);
    const struct kvc_put p = {.seq = c.seq, .from_tokens = BT, .fill = fill, .ctx = &c};
    ck_assert_int_eq(kvc_put(ns, &p, NULL), KVC_E_DOWN);
    struct kvc_counters counters;
    kvc_get_counters(k, &counters);
    ck_assert_uint_eq(counters.stores_dropped_blocks, 3);
    rig_restart(&rig, NULL);
    caller_end(&c);
}

CASE(tokens_are_enough)
{
    struct kvc_ns_spec spec = rig_spec("t", BT, RIG_BLOCK);
    spec.with_tokens = true;
    ck_assert_int_eq(kvc_ns_open(k, &spec, &ns), 0);
    struct caller c = caller_of(9 * BT + 2);
    const struct kvc_put p = {.tokens = tokens,
                              .ntokens = 9 * BT + 2,
                              .extra = "x",
                              .extra_bytes = 1,
                              .fill = fill,
                              .ctx = &c};
    struct kvc_put_result r;
    ck_assert_int_eq(kvc_put(ns, &p, &r), 0);
    expect_group(&r, 0, 10, 0, 0);
    const struct kvc_get g = {.tokens = tokens,
                              .ntokens = 9 * BT + 2,
                              .extra = "x",
                              .extra_bytes = 1,
                              .take = take,
                              .ctx = &c};
    struct kvc_got got;
    ck_assert_int_eq(kvc_get(ns, &g, &got), 0);
    ck_assert_uint_eq(got.tokens, 9 * BT + 2);
    ck_assert(c.is_right);
    ck_assert_uint_eq(get(&c, 0).tokens, 0); /* without the extra they are others */
    caller_end(&c);
}

/* A full group, a window of two blocks, states. */
static void open_groups(void)
{
    struct kvc_ns_spec spec = rig_spec("groups", BT, RIG_BLOCK);
    spec.groups = 3;
    spec.group[1] = (struct kvc_group_spec){
        .block_tokens = BT, .block_bytes = 1000, .rule = KVC_RULE_WINDOW, .window = 2 * BT};
    spec.group[2] = (struct kvc_group_spec){
        .block_tokens = BT, .block_bytes = RIG_BLOCK, .rule = KVC_RULE_STATE};
    ck_assert_int_eq(kvc_ns_open(k, &spec, &ns), 0);
}

CASE(of_a_window_what_the_caller_still_has_is_stored)
{
    open_groups();
    struct caller c = caller_of(10 * BT);
    c.lacks[1] = 8;
    c.lacks[2] = 9;
    struct kvc_put_result r = put(&c, 0);
    expect_group(&r, 0, 10, 0, 0);
    expect_group(&r, 1, 2, 0, 8);
    expect_group(&r, 2, 1, 0, 9);
    ck_assert_uint_eq(r.group[1].status, KVC_ST_NO_STORE);
    ck_assert_uint_eq(r.tokens, 10 * BT);
    ck_assert_uint_eq(get(&c, 0).tokens, 10 * BT);
    ck_assert_uint_eq(c.taken, 13);
    caller_end(&c);
}

CASE(bad_arguments_are_named)
{
    struct caller c = caller_of(4 * BT);
    struct kvc_seq cut = *c.seq;
    struct kvc_put p = {.seq = c.seq, .ctx = &c};
    ck_assert_int_eq(kvc_put(ns, &p, NULL), -EINVAL);
    p.fill = fill;
    p.flags = KVC_F_ALL;
    ck_assert_int_eq(kvc_put(ns, &p, NULL), -EINVAL);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(k), "ADMIT"));
    p.flags = 0;
    cut.group[0].n = 2;
    p.seq = &cut;
    ck_assert_int_eq(kvc_put(ns, &p, NULL), -EINVAL);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(k), "4 blocks of 16"));
    struct kvc_ns *large = rig_ns(k, "large", BT, ROOM * RIG_BLOCK + 64);
    p.seq = c.seq;
    ck_assert_int_eq(kvc_put(large, &p, NULL), -EINVAL);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(k), "staging"));
    p.flags = KVC_F_NO_STORE;
    struct kvc_put_result r;
    ck_assert_int_eq(kvc_put(ns, &p, &r), 0);
    expect_group(&r, 0, 0, 0, 4);
    ck_assert_uint_eq(c.filled[0], 0);
    caller_end(&c);
}

/* ---- pages in the worker's own memory ---- */

#define LAYERS     4u
#define PAGES      64u
#define PPB        2u /* pages of 8 tokens */
#define PAGE_BYTES (RIG_BLOCK / PPB / LAYERS)
#define STRIDE     (PAGE_BYTES + 64u)

static uint8_t memory[LAYERS][PAGES * STRIDE], before[LAYERS][PAGES * STRIDE];
static struct kvc_gpu *host;
static struct kvc_pool *pool;
static struct kvc_pool_region regions[LAYERS];
static struct kvc_pool_spec pool_spec;

/* As engines have them: a tensor for each layer, pages of all blocks in each. */
static void open_pool(void)
{
    for (uint32_t l = 0; l < LAYERS; l++)
        regions[l] = (struct kvc_pool_region){.base = (uint64_t)(uintptr_t)memory[l],
                                              .stride_bytes = STRIDE,
                                              .page_bytes = PAGE_BYTES,
                                              .layer = l};
    pool_spec = (struct kvc_pool_spec){
        .pages_max = PAGES,
        .groups = 1,
        .group = {{.pages_per_block = PPB, .regions = LAYERS, .region = regions}}};
    ck_assert_int_eq(kvc_gpu_open(k, "host", &host), 0);
    const int rc = kvc_pool_open(host, &pool_spec, &pool);
    ck_assert_msg(rc == 0, "%s", kvc_last_error(k));
}

static void dirty(uint8_t seed)
{
    for (size_t i = 0; i < sizeof(memory); i++)
        ((uint8_t *)memory)[i] = (uint8_t)(seed + i * 31 + i / 997);
    memcpy(before, memory, sizeof(memory));
}

/* Numbers that are not in order. */
static void deal(uint32_t *pages, uint32_t n, uint32_t step)
{
    for (uint32_t i = 0; i < n; i++)
        pages[i] = (i * step + 5) % PAGES;
}

static void expect_page(uint32_t page, uint32_t was)
{
    for (uint32_t l = 0; l < LAYERS; l++)
        ck_assert_mem_eq(memory[l] + (size_t)page * STRIDE, before[l] + (size_t)was * STRIDE,
                         PAGE_BYTES);
}

/* A put that names a word is refused, and stores nothing. */
static void expect_no_words(const struct kvc_seq *seq, const struct kvc_put *put)
{
    struct kvc_prefix prefix;
    ck_assert_int_eq(kvc_put(ns, put, NULL), -EINVAL);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(k), "host memory has no words"));
    ck_assert_int_eq(kvc_lookup(ns, seq, 0, &prefix), 0);
    ck_assert_uint_eq(prefix.tokens, 0);
}

CASE(a_put_from_host_memory_waits_for_no_word)
{
    struct caller c = caller_of(2 * BT);
    uint32_t from[2 * PPB];
    struct kvc_word after = {.word = 1, .value = 1};
    struct kvc_put p = {.seq = c.seq, .fill = fill, .ctx = &c, .after = &after};
    open_pool();
    deal(from, 2 * PPB, 7);
    expect_no_words(c.seq, &p);
    ck_assert_uint_eq(c.runs, 0);
    p.fill = NULL;
    p.pool = pool;
    p.pages[0] = from;
    expect_no_words(c.seq, &p);
    after.word = 0;
    ck_assert_int_eq(kvc_put(ns, &p, NULL), 0);
    caller_end(&c);
}

/* Puts 10 blocks and 3 tokens out of pages `from`, of which the last has none. */
static void put_pages(struct caller *c, uint32_t *from)
{
    deal(from, 11 * PPB, 7);
    from[11 * PPB - 1] = KVC_NO_PAGE;
    const struct kvc_put p = {.seq = c->seq, .pool = pool, .pages = {from}};
    struct kvc_put_result r;
    const int rc = kvc_put(ns, &p, &r);
    ck_assert_msg(rc == 0, "%s", kvc_last_error(k));
    expect_group(&r, 0, 11, 0, 0);
}

CASE(pages_of_host_memory_come_back_in_other_pages)
{
    struct caller c = caller_of(10 * BT + 3);
    uint32_t from[11 * PPB], to[11 * PPB];
    struct kvc_loaded loaded;
    open_pool();
    dirty(1);
    put_pages(&c, from);
    deal(to, 11 * PPB, 11);
    to[11 * PPB - 1] = KVC_NO_PAGE;
    uint8_t was[LAYERS][PAGES * STRIDE];
    memcpy(was, before, sizeof(was));
    memset(memory, 0, sizeof(memory));
    const struct kvc_pages_load load = {.pages = {to}};
    ck_assert_int_eq(kvc_pages_load(ns, c.seq, pool, &load, &loaded), 0);
    ck_assert_uint_eq(loaded.tokens, 10 * BT + 3);
    ck_assert_uint_eq(loaded.group[0].n, 11);
    ck_assert_uint_eq(loaded.group[0].statuses[10], KVC_ST_OK);
    bool written[PAGES] = {false};
    for (uint32_t i = 0; i < 11 * PPB - 1; i++) {
        expect_page(to[i], from[i]);
        written[to[i]] = true;
    }
    for (uint32_t page = 0; page < PAGES; page++) /* and nothing beside them */
        for (uint32_t b = 0; b < STRIDE; b++)
            ck_assert(written[page] && b < PAGE_BYTES ? true : memory[1][page * STRIDE + b] == 0);
    caller_end(&c);
}

CASE(a_load_begins_at_the_block_of_from_tokens)
{
    struct caller c = caller_of(10 * BT + 3);
    uint32_t from[11 * PPB], to[7 * PPB];
    struct kvc_loaded loaded;
    open_pool();
    dirty(2);
    put_pages(&c, from);
    deal(to, 7 * PPB, 13);
    const struct kvc_pages_load load = {.from_tokens = 4 * BT, .pages = {to}};
    memset(memory, 0, sizeof(memory));
    ck_assert_int_eq(kvc_pages_load(ns, c.seq, pool, &load, &loaded), 0);
    ck_assert_uint_eq(loaded.tokens, 10 * BT + 3);
    ck_assert_uint_eq(loaded.group[0].first, 4);
    for (uint32_t i = 0; i < 6 * PPB; i++)
        expect_page(to[i], from[4 * PPB + i]);
    /* What a partly filled block has no page for is stored as zeros. */
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t b = 0; b < PAGE_BYTES; b++)
            ck_assert_uint_eq(memory[l][to[7 * PPB - 1] * STRIDE + b], 0);
    caller_end(&c);
}

CASE(a_store_out_of_pages_takes_as_many_pieces_as_staging_demands)
{
    struct caller c = caller_of(12 * BT);
    uint32_t from[12 * PPB], to[12 * PPB];
    uint8_t st[12];
    struct kvc_loaded loaded;
    open_pool();
    dirty(3);
    deal(from, 12 * PPB, 7);
    deal(to, 12 * PPB, 9);
    const struct kvc_blocks b = {.keys = c.seq->group[0].keys, .n = 12};
    ck_assert_int_eq(kvc_pages_store(ns, &b, pool, from, (struct kvc_word){0}, NULL, 0, st), 0);
    for (uint32_t i = 0; i < 12; i++)
        ck_assert_uint_eq(st[i], KVC_ST_OK);
    memset(memory, 0, sizeof(memory));
    const struct kvc_pages_load load = {.pages = {to}};
    ck_assert_int_eq(kvc_pages_load(ns, c.seq, pool, &load, &loaded), 0);
    ck_assert_uint_eq(loaded.tokens, 12 * BT);
    for (uint32_t i = 0; i < 12 * PPB; i++)
        expect_page(to[i], from[i]);
    caller_end(&c);
}

CASE(a_ticket_is_redeemed_into_pages)
{
    struct caller c = caller_of(10 * BT + 3);
    uint32_t from[11 * PPB], to[11 * PPB];
    struct kvc_hold *hold, *mine;
    open_pool();
    dirty(4);
    put_pages(&c, from);
    deal(to, 11 * PPB, 3);
    memset(memory, 0, sizeof(memory));
    ck_assert_int_eq(kvc_acquire(ns, c.seq, NULL, &hold), 0);
    ck_assert_int_eq(kvc_redeem(ns, hold->ticket, &mine), 0);
    const uint32_t *const lists[KVC_GROUPS_MAX] = {to};
    ck_assert_int_eq(kvc_gpu_load(host, mine, &pool_spec, lists, NULL), 0);
    ck_assert_int_eq(kvc_hold_check(mine), 0);
    for (uint32_t i = 0; i < 11 * PPB - 1; i++)
        expect_page(to[i], from[i]);
    kvc_release(k, &mine);
    kvc_release(k, &hold);
    caller_end(&c);
}

CASE(what_host_memory_cannot_do_is_refused)
{
    struct caller c = caller_of(2 * BT);
    uint32_t pages[2 * PPB] = {0, 1, 2, PAGES};
    struct kvc_pages_load load = {.pages = {pages}};
    struct kvc_loaded loaded;
    struct kvc_hold *hold;
    struct kvc_op *op;
    open_pool();
    ck_assert_int_eq(kvc_pages_load(ns, c.seq, pool, &load, &loaded), -EINVAL);
    pages[3] = 3;
    ck_assert_int_eq(kvc_pages_load_begin(ns, c.seq, pool, &load, &op), -EOPNOTSUPP);
    load.ready.word = 1;
    ck_assert_int_eq(kvc_pages_load(ns, c.seq, pool, &load, &loaded), -EINVAL);
    ck_assert_int_eq(kvc_acquire_on(ns, c.seq, host, NULL, &hold), -EINVAL);
    load.ready.word = 0;
    ck_assert_int_eq(kvc_pages_load(ns, c.seq, pool, &load, &loaded), 0);
    ck_assert_uint_eq(loaded.tokens, 0);
    caller_end(&c);
}

CASE(a_pool_in_host_memory_needs_no_daemon)
{
    struct caller c = caller_of(2 * BT);
    uint32_t pages[2 * PPB] = {0, 1, 2, 3};
    const struct kvc_pages_load load = {.pages = {pages}};
    const struct kvc_put p = {.seq = c.seq, .pool = pool, .pages = {pages}};
    struct kvc_loaded loaded;
    rig_kill(&rig);
    open_pool();
    ck_assert_int_eq(kvc_pages_load(ns, c.seq, pool, &load, &loaded), 0);
    ck_assert_uint_eq(loaded.tokens, 0);
    struct kvc_put there = p;
    there.pool = pool;
    ck_assert_int_lt(kvc_put(ns, &there, NULL), 0);
    rig_restart(&rig, NULL);
    uint64_t ms;
    for (int i = 0; i < 5000 && kvc_ping(k, &ms) < 0; i++)
        rig_sleep_ms(1);
    ck_assert_int_eq(kvc_put(ns, &there, NULL), 0);
    ck_assert_int_eq(kvc_pages_load(ns, c.seq, pool, &load, &loaded), 0);
    ck_assert_uint_eq(loaded.tokens, 2 * BT);
    caller_end(&c);
}
