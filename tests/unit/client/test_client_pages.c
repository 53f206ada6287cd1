/* SPDX-License-Identifier: Apache-2.0 */
/* Loads into pages and stores from them, against a fake daemon. */
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "gpu_fixture.h"

/* Pages of the blocks, far from one another, and in no order. */
static const uint32_t pages[8 * PPB] = {9, 4, 20, 21, 0, 31, 7, 2, 15, 14, 3, 30, 11, 10, 5, 25};

static struct kvc_pages_load load_of(void)
{
    return (struct kvc_pages_load){.pages = {pages}};
}

/* What a case asks for: eight blocks into all of these pages, unless it says otherwise. */
static struct kvc_seq seq;
static struct kvc_pages_load load;

static void setup(void)
{
    start_pool();
    seq = seq_of(8);
    load = load_of();
}

static void hit(uint32_t blocks)
{
    atomic_store(&fake.s->hit_blocks, blocks);
}

static void reconnect(void)
{
    uint32_t epoch = kvc_epoch(kvc);
    uint64_t ms;
    fake_kill(&fake);
    fake_start(&fake);
    for (uint64_t end = fake_now_ms() + 20000; fake_now_ms() < end;) {
        if (kvc_ping(kvc, &ms) == 0 && kvc_epoch(kvc) > epoch)
            return;
        usleep(10000);
    }
    ck_abort_msg("no reconnect: %s", kvc_last_error(kvc));
}

/* The same session again, with another deadline. */
static void reopen(uint32_t timeout_ms)
{
    kvc_gpu_close(&gpu);
    kvc_close(&kvc);
    kvc = open_session(timeout_ms);
    open_gpu();
    struct kvc_ns_spec ns_spec = spec_of("llama");
    struct kvc_pool_spec spec = pool_spec();
    ck_assert_int_eq(kvc_ns_open(kvc, &ns_spec, &ns), 0);
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), 0);
}

/* ---- loads ---- */

CASES(.setup = setup, .teardown = stop);

CASE(a_load_brings_blocks_into_their_pages)
{
    struct kvc_loaded l;
    load.flags = KVC_F_WAIT | KVC_F_ALL;
    load.wait_tokens = 64;
    hit(6);
    fill_page(30, 0x77);
    fill_page(6, 0x77);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 96);
    ck_assert_uint_eq(l.prefix.tokens, 96);
    ck_assert_uint_eq(l.prefix.cached_tokens, 104);
    ck_assert_uint_eq(l.prefix.group[0].blocks, 6);
    ck_assert_uint_eq(l.prefix.group[0].reason, KVC_MISS_NEVER);
    ck_assert_uint_eq(l.group[0].first, 0);
    ck_assert_uint_eq(l.group[0].n, 6);
    for (uint32_t b = 0; b < 6; b++) {
        ck_assert_uint_eq(l.group[0].statuses[b], KVC_ST_OK);
        ck_assert_msg(block_is(b, pages + (size_t)b * PPB), "block %u", b);
    }
    ck_assert(page_is(6, 0x77));
    ck_assert_uint_eq(atomic_load(&fake.s->load_flags), KVC_F_WAIT | KVC_F_ALL);
    ck_assert_uint_eq(atomic_load(&fake.s->load_wait), 64);
    ck_assert_uint_eq(atomic_load(&fake.s->load_pages), 8 * PPB);
}

CASE(blocks_that_the_worker_has_need_no_pages)
{
    struct kvc_loaded l;
    load.from_tokens = 40; /* two blocks and a half */
    hit(5);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 80);
    ck_assert_uint_eq(l.group[0].first, 2);
    ck_assert_uint_eq(l.group[0].n, 3);
    ck_assert_uint_eq(atomic_load(&fake.s->load_from), 40);
    ck_assert_uint_eq(atomic_load(&fake.s->load_pages), 6 * PPB);
    for (uint32_t b = 2; b < 5; b++)
        ck_assert(block_is(b, pages + (size_t)(b - 2) * PPB));
    load.from_tokens = 1000;
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 0);
    ck_assert_uint_eq(atomic_load(&fake.s->load_pages), 0);
}

CASE(what_is_behind_a_block_that_failed_does_not_count)
{
    struct kvc_loaded l;
    hit(6);
    atomic_store(&fake.s->load_bad, 4);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 48);
    ck_assert_uint_eq(l.prefix.tokens, 96);
    ck_assert_uint_eq(l.group[0].statuses[2], KVC_ST_OK);
    ck_assert_uint_eq(l.group[0].statuses[3], KVC_ST_TIER);
    ck_assert_uint_eq(l.group[0].statuses[4], KVC_ST_OK);
}

CASE(no_hit_is_nothing_loaded)
{
    struct kvc_loaded l = {.tokens = 99};
    hit(0);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 0);
    ck_assert_uint_eq(l.group[0].n, 0);
}

CASE(a_load_waits_for_its_word_and_tells_of_its_layers)
{
    struct kvc_loaded l;
    struct kvc_op *op = NULL;
    struct kvc_result r;
    hit(3);
    volatile uint64_t *w = kvc_gpu_words(gpu);
    load.after = (struct kvc_word){.word = 8, .value = 5};
    load.ready = (struct kvc_word){.word = 10, .value = 100};
    ck_assert_int_eq(kvc_pages_load_begin(ns, &seq, pool, &load, &op), 0);
    usleep(20000);
    ck_assert_uint_eq(w[9], 0);
    ck_assert(page_is(9, 0));
    ck_assert_int_eq(kvc_gpu_signal(gpu, NULL, 7, 5), 0);
    ck_assert_int_eq(kvc_gpu_wait(gpu, NULL, 9, 102), 0);
    ck_assert(block_is(2, pages + 2 * PPB));
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    ck_assert_uint_eq(r.kind, KVC_OP_PAGES_LOAD);
    ck_assert_uint_eq(r.prefix.tokens, 48);
    kvc_pages_loaded(pool, &l);
    ck_assert_uint_eq(l.tokens, 48);
}

/* A stream that waits for it must not wait for ever. */
CASE_EACH(whatever_becomes_of_a_load_its_word_is_written, 6)
{
    static const struct {
        enum fake_what what;
        uint16_t status;
    } ends[] = {{FAKE_STATUS, KVC_ST_TIER},
                {FAKE_STATUS, KVC_ST_TIMEOUT},
                {FAKE_STATUS, KVC_ST_CANCELLED},
                {FAKE_STATUS, KVC_ST_TOO_LARGE},
                {FAKE_DIE, 0},
                {FAKE_BAD_BODY, 0}};
    struct kvc_loaded l;
    volatile uint64_t *w = kvc_gpu_words(gpu);
    hit(0);
    load.ready = (struct kvc_word){.word = 1, .value = 7};
    fake_rule(&fake, KVC_OP_PAGES_LOAD, ends[_i].what, ends[_i].status, 1);
    (void)!kvc_pages_load(ns, &seq, pool, &load, &l);
    ck_assert_uint_eq(w[0], 9);
    ck_assert_uint_eq(w[1], 0);
}

CASE(no_daemon_is_a_miss_of_a_load)
{
    struct kvc_loaded l = {.tokens = 99};
    struct kvc_counters c;
    struct kvc_op *op = NULL;
    struct kvc_result r;
    fake_kill(&fake);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 0);
    ck_assert_int_eq(kvc_pages_load_begin(ns, &seq, pool, &load, &op), 0);
    ck_assert(kvc_done(op));
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    kvc_get_counters(kvc, &c);
    ck_assert_uint_eq(c.lookups_down, 2);
}

CASE(a_device_that_is_out_is_a_miss_and_the_pool_is_made_again)
{
    struct kvc_loaded l = {.tokens = 99};
    hit(3);
    fake_rule(&fake, KVC_OP_PAGES_LOAD, FAKE_STATUS, KVC_ST_TIER, 1);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 0);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 48);
    ck_assert_uint_eq(atomic_load(&fake.s->mems_dropped), 1);
    ck_assert_uint_eq(atomic_load(&fake.s->mems_seen), 2);
    ck_assert_uint_eq(atomic_load(&fake.s->pools_open), 1);
}

/* One block that is corrupt is all of a short load, and says nothing of the device. */
CASE(blocks_that_failed_are_no_reason_to_open_the_pool_again)
{
    struct kvc_blocks blocks = blocks_of(2);
    struct kvc_loaded l = {.tokens = 99};
    uint8_t st[2];
    hit(1);
    atomic_store(&fake.s->load_out, true);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 0);
    ck_assert_int_eq(kvc_pages_store(ns, &blocks, pool, pages, (struct kvc_word){0}, NULL, 0, st),
                     0);
    ck_assert(st[0] == KVC_ST_TIER && st[1] == KVC_ST_TIER);
    atomic_store(&fake.s->load_out, false);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 16);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_POOL_OPEN]), 1);
    ck_assert_uint_eq(atomic_load(&fake.s->mems_dropped), 0);
}

CASE(a_device_that_stays_out_is_not_asked_for_each_time)
{
    struct kvc_loaded l;
    uint8_t st[4];
    struct kvc_blocks blocks = blocks_of(2);
    hit(3);
    fake_rule(&fake, KVC_OP_PAGES_LOAD, FAKE_STATUS, KVC_ST_TIER, 1);
    fake_rule(&fake, KVC_OP_POOL_OPEN, FAKE_STATUS, KVC_ST_TIER, 1000);
    for (int i = 0; i < 50; i++) {
        ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
        ck_assert_uint_eq(l.tokens, 0);
        int rc = kvc_pages_store(ns, &blocks, pool, pages, (struct kvc_word){0}, NULL, 0, st);
        if (i > 0)
            ck_assert_int_eq(rc, KVC_E_TIER);
    }
    ck_assert_uint_lt(atomic_load(&fake.s->requests[KVC_OP_POOL_OPEN]), 60);
    /* What it knew of the memory was void each time. */
    ck_assert_uint_ge(atomic_load(&fake.s->mems_dropped),
                      atomic_load(&fake.s->requests[KVC_OP_POOL_OPEN]) - 2);
    memset(fake.s->rule, 0, sizeof(fake.s->rule));
    for (uint64_t end = fake_now_ms() + 10000; fake_now_ms() < end && l.tokens == 0;) {
        usleep(10000);
        ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    }
    ck_assert_uint_eq(l.tokens, 48);
}

CASE(a_load_that_is_not_answered_is_a_miss_once_it_is_cancelled)
{
    struct kvc_loaded l = {.tokens = 99};
    load.timeout_ms = 50;
    hit(3);
    atomic_store(&fake.s->late, FAKE_LATE_CANCEL);
    fake_rule(&fake, KVC_OP_PAGES_LOAD, FAKE_SILENCE, 0, 1);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 0);
    ck_assert_uint_eq(atomic_load(&fake.s->late_written), 1);
    ck_assert(page_is(pages[0], FAKE_LATE_BYTE));
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "no reply within"));
    ck_assert(kvc_is_up(kvc));
}

/* A daemon whose copies run at the deadline answers TIMEOUT, and touches pages until CANCEL. */
CASE(a_timeout_is_settled_before_the_call_returns)
{
    struct kvc_loaded l = {.tokens = 99};
    hit(3);
    atomic_store(&fake.s->late, FAKE_LATE_CANCEL);
    fake_rule(&fake, KVC_OP_PAGES_LOAD, FAKE_STATUS, KVC_ST_TIMEOUT, 1);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 0);
    ck_assert_uint_eq(atomic_load(&fake.s->late_written), 1);
    ck_assert(page_is(pages[5], FAKE_LATE_BYTE));
}

CASE(bad_arguments_of_a_load_name_themselves)
{
    struct kvc_loaded l;
    uint32_t wrong[8 * PPB];
    hit(3);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, NULL, &load, &l), -EINVAL);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, NULL, &l), -EINVAL);
    load.flags = KVC_F_TOUCH;
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), -EINVAL);
    load = load_of();
    load.timeout_ms = KVC_DEADLINE_MAX_MS + 1;
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), -EINVAL);
    load = load_of();
    load.pages[0] = NULL;
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), -EINVAL);
    memcpy(wrong, pages, sizeof(wrong));
    wrong[13] = PAGES;
    load.pages[0] = wrong;
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), -EINVAL);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "page number 13 is 32"));
    load = load_of();
    load.after = (struct kvc_word){.word = KVC_WORDS + 1};
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), -EINVAL);
    load = load_of();
    load.ready = (struct kvc_word){.word = 1, .value = INT64_MAX};
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), -EINVAL);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_PAGES_LOAD]), 0);
}

CASE(a_pool_that_does_not_fit_the_namespace_is_refused)
{
    struct kvc_ns_spec other = spec_of("other");
    struct kvc_ns *wide;
    seq = seq_of(2);
    struct kvc_blocks blocks = blocks_of(2);
    struct kvc_loaded l;
    uint8_t st[2];
    other.group[0].block_bytes = 8192;
    ck_assert_int_eq(kvc_ns_open(kvc, &other, &wide), 0);
    ck_assert_int_eq(kvc_pages_load(wide, &seq, pool, &load, &l), -EINVAL);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "block_bytes"));
    ck_assert_int_eq(kvc_pages_store(wide, &blocks, pool, pages, (struct kvc_word){0}, NULL, 0, st),
                     -EINVAL);
    other.groups = 2;
    other.group[1] = other.group[0];
    ck_assert_int_eq(kvc_ns_open(kvc, &other, &wide), 0);
    ck_assert_int_eq(kvc_pages_load(wide, &seq, pool, &load, &l), -EINVAL);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "1 groups, the namespace 2"));
}

CASE_EACH(a_reply_that_cannot_be_ends_the_link, 2)
{
    struct kvc_loaded l = {.tokens = 99};
    hit(3);
    fake_rule(&fake, KVC_OP_PAGES_LOAD, _i == 0 ? FAKE_BAD_BODY : FAKE_OTHER_OP, 0, 1);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), KVC_E_BAD_MESSAGE);
    ck_assert(!kvc_is_up(kvc));
    ck_assert_uint_eq(l.tokens, 99);
}

/* ---- stores ---- */

static void fill_blocks(uint32_t n)
{
    for (uint32_t b = 0; b < n; b++) {
        for (uint32_t r = 0; r < REGIONS; r++) {
            for (uint32_t j = 0; j < PPB; j++)
                memset(page_of(r, pages[b * PPB + j]), (int)(b * 50 + r * 10 + j + 1), PAGE_BYTES);
        }
    }
}

/* A block is its regions in their order, each its pages in theirs. */
static bool is_stored(uint32_t b)
{
    for (uint32_t r = 0; r < REGIONS; r++) {
        for (uint32_t j = 0; j < PPB; j++) {
            const uint8_t *at = fake.s->stored[b] + (size_t)(r * PPB + j) * PAGE_BYTES;
            if (!is_filled(at, (uint8_t)(b * 50 + r * 10 + j + 1), PAGE_BYTES))
                return false;
        }
    }
    return true;
}

CASE(a_store_takes_blocks_from_their_pages)
{
    struct kvc_blocks blocks = blocks_of(4);
    static const uint32_t tokens[64];
    uint8_t st[4];
    fill_blocks(4);
    atomic_store(&fake.s->statuses_from, 3);
    ck_assert_int_eq(
        kvc_pages_store(ns, &blocks, pool, pages, (struct kvc_word){0}, tokens, 64, st), 0);
    ck_assert_uint_eq(st[0], KVC_ST_OK);
    ck_assert_uint_eq(st[3], KVC_ST_EXISTS);
    for (uint32_t b = 0; b < 4; b++)
        ck_assert_msg(is_stored(b), "block %u", b);
    ck_assert_uint_eq(atomic_load(&fake.s->tokens_seen), 64);
}

CASE(a_store_waits_for_its_word)
{
    struct kvc_blocks blocks = blocks_of(2);
    struct kvc_op *op = NULL;
    struct kvc_result r;
    ck_assert_ptr_nonnull((const void *)kvc_gpu_words(gpu));
    ck_assert_int_eq(kvc_pages_store_begin(ns, &blocks, pool, pages,
                                           (struct kvc_word){.word = 512, .value = 3}, NULL, 0,
                                           &op),
                     0);
    usleep(20000);
    fill_blocks(2);
    ck_assert_int_eq(kvc_gpu_signal(gpu, NULL, 511, 3), 0);
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    ck_assert_uint_eq(r.kind, KVC_OP_PAGES_STORE);
    ck_assert_uint_eq(r.n, 2);
    ck_assert_uint_eq(r.statuses[1], KVC_ST_OK);
    ck_assert(is_stored(0) && is_stored(1));
}

CASE(no_daemon_is_a_dropped_store)
{
    struct kvc_blocks blocks = blocks_of(2);
    struct kvc_counters c;
    uint8_t st[2];
    fake_kill(&fake);
    ck_assert_int_eq(kvc_pages_store(ns, &blocks, pool, pages, (struct kvc_word){0}, NULL, 0, st),
                     KVC_E_DOWN);
    kvc_get_counters(kvc, &c);
    ck_assert_uint_eq(c.stores_dropped_blocks, 2);
    ck_assert_uint_eq(c.stores_dropped_bytes, 2 * FAKE_BLOCK_BYTES);
}

CASE(a_device_that_is_out_is_an_error_of_a_store_and_the_pool_is_made_again)
{
    struct kvc_blocks blocks = blocks_of(2);
    uint8_t st[2];
    fake_rule(&fake, KVC_OP_PAGES_STORE, FAKE_STATUS, KVC_ST_TIER, 1);
    ck_assert_int_eq(kvc_pages_store(ns, &blocks, pool, pages, (struct kvc_word){0}, NULL, 0, st),
                     KVC_E_TIER);
    ck_assert_int_eq(kvc_pages_store(ns, &blocks, pool, pages, (struct kvc_word){0}, NULL, 0, st),
                     0);
    ck_assert_uint_eq(st[0], KVC_ST_OK);
    ck_assert_uint_eq(atomic_load(&fake.s->mems_seen), 2);
}

CASE(a_store_that_is_not_answered_is_dropped_once_it_is_cancelled)
{
    reopen(100);
    struct kvc_blocks blocks = blocks_of(2);
    struct kvc_counters c;
    uint8_t st[2];
    fake_rule(&fake, KVC_OP_PAGES_STORE, FAKE_SILENCE, 0, 1);
    ck_assert_int_eq(kvc_pages_store(ns, &blocks, pool, pages, (struct kvc_word){0}, NULL, 0, st),
                     KVC_E_TIMEOUT);
    kvc_get_counters(kvc, &c);
    ck_assert_uint_eq(c.stores_dropped_blocks, 2);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_CANCEL]), 1);
}

CASE(a_store_that_is_not_wished_is_not_sent)
{
    struct kvc_blocks blocks = blocks_of(2);
    uint8_t st[2];
    blocks.flags = KVC_F_NO_STORE;
    ck_assert_int_eq(kvc_pages_store(ns, &blocks, pool, pages, (struct kvc_word){0}, NULL, 0, st),
                     0);
    ck_assert_uint_eq(st[0], KVC_ST_NO_STORE);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_PAGES_STORE]), 0);
}

CASE(bad_arguments_of_a_store_name_themselves)
{
    static uint32_t many[KVC_PAGES_MAX];
    struct kvc_blocks blocks = blocks_of(2);
    uint32_t wrong[4] = {0, 1, 2, PAGES};
    uint8_t st[2];
    struct kvc_word now = {0}, bad = {.word = 1, .value = UINT64_MAX};
    ck_assert_int_eq(kvc_pages_store(ns, &blocks, NULL, pages, now, NULL, 0, st), -EINVAL);
    ck_assert_int_eq(kvc_pages_store(ns, &blocks, pool, NULL, now, NULL, 0, st), -EINVAL);
    ck_assert_int_eq(kvc_pages_store(ns, &blocks, pool, wrong, now, NULL, 0, st), -EINVAL);
    ck_assert_int_eq(kvc_pages_store(ns, &blocks, pool, pages, bad, NULL, 0, st), -EINVAL);
    ck_assert_int_eq(kvc_pages_store(ns, &blocks, pool, pages, now, NULL, 1, st), -EINVAL);
    ck_assert_int_eq(kvc_pages_store(ns, &blocks, pool, pages, now, NULL, 0, NULL), -EINVAL);
    blocks.group = 1;
    ck_assert_int_eq(kvc_pages_store(ns, &blocks, pool, many, now, NULL, 0, st), -EINVAL);
}

/* ---- ends ---- */

static struct kvc_op *begin_silent(enum fake_late late)
{
    struct kvc_op *op = NULL;
    hit(3);
    atomic_store(&fake.s->late, late);
    fake_rule(&fake, KVC_OP_PAGES_LOAD, FAKE_SILENCE, 0, 1);
    ck_assert_int_eq(kvc_pages_load_begin(ns, &seq, pool, &load, &op), 0);
    ck_assert(!kvc_done(op));
    return op;
}

/* Nothing writes to the pages any more, though all is well with the daemon. */
static void no_late_write(void)
{
    ck_assert_uint_eq(atomic_load(&fake.s->late_written), 1);
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
        fill_page(pages[i], 0x42);
    usleep(400000);
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
        ck_assert(page_is(pages[i], 0x42));
}

CASE(a_load_that_was_cancelled_touches_nothing_any_more)
{
    struct kvc_op *op = begin_silent(FAKE_LATE_CANCEL);
    struct kvc_result r;
    ck_assert_int_eq(kvc_cancel(op), 0);
    ck_assert(kvc_done(op));
    no_late_write();
    ck_assert_int_eq(kvc_finish(&op, &r), KVC_E_CANCELLED);
}

/* The daemon closes no pool while one of its requests names it, and so would not open it again. */
CASE(a_pool_is_made_again_behind_its_requests_in_flight)
{
    struct kvc_loaded l = {.tokens = 99};
    struct kvc_result r;
    struct kvc_op *op = begin_silent(FAKE_LATE_CANCEL);
    while (atomic_load(&fake.s->requests[KVC_OP_PAGES_LOAD]) == 0)
        usleep(1000);
    fake_rule(&fake, KVC_OP_PAGES_LOAD, FAKE_STATUS, KVC_ST_TIER, 1);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
        ck_assert_uint_eq(l.tokens, 0);
    }
    ck_assert_uint_eq(atomic_load(&fake.s->mems_dropped), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_POOL_CLOSE]), 0);
    ck_assert_int_eq(kvc_cancel(op), 0);
    ck_assert_int_eq(kvc_finish(&op, &r), KVC_E_CANCELLED);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 48);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_POOL_OPEN]), 2);
}

CASE(closing_a_pool_ends_its_loads)
{
    struct kvc_op *op = begin_silent(FAKE_LATE_CANCEL);
    struct kvc_result r;
    kvc_pool_close(&pool);
    no_late_write();
    ck_assert(kvc_done(op));
    ck_assert_int_eq(kvc_finish(&op, &r), KVC_E_CANCELLED);
    ck_assert(kvc_is_up(kvc));
}

CASE(closing_the_session_ends_its_loads)
{
    begin_silent(FAKE_LATE_CANCEL);
    /* The memory is mapped by this process as long as the session is; the fake sees more. */
    kvc_close(&kvc);
    ck_assert_uint_eq(atomic_load(&fake.s->late_written), 1);
}

CASE(giving_an_op_up_is_no_way_to_keep_its_pages_busy)
{
    struct kvc_op *op = begin_silent(FAKE_LATE_CANCEL);
    kvc_gpu_close(&gpu);
    ck_assert_uint_eq(atomic_load(&fake.s->late_written), 1);
    struct kvc_result r;
    ck_assert_int_eq(kvc_finish(&op, &r), KVC_E_CANCELLED);
}

/* The daemon lives, and ends the session: its copies end by themselves. */
CASE_EACH(a_load_outlasts_the_copies_of_a_session_that_ended, 2)
{
    struct kvc_loaded l = {.tokens = 99};
    hit(3);
    atomic_store(&fake.s->late, FAKE_LATE_TIMER);
    fake_rule(&fake, KVC_OP_PAGES_LOAD, _i == 0 ? FAKE_HANG_UP : FAKE_DROPPED, 0, 1);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 0);
    no_late_write();
}

CASE(a_load_ends_with_the_daemon)
{
    struct kvc_loaded l = {.tokens = 99};
    hit(3);
    atomic_store(&fake.s->late, FAKE_LATE_TIMER);
    fake_rule(&fake, KVC_OP_PAGES_LOAD, FAKE_DIE, 0, 1);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 0);
    ck_assert_int_eq(waitpid(fake.pid, NULL, WNOHANG), -1); /* the launcher's child */
    ck_assert(page_is(pages[0], 0));
}

CASE_EACH(a_loop_hears_of_a_load_whose_daemon_died, 2)
{
    struct kvc_op *op = NULL, *next = NULL;
    struct kvc_result r;
    int fd = kvc_fd(kvc);
    hit(3);
    atomic_store(&fake.s->late, FAKE_LATE_TIMER);
    fake_rule(&fake, KVC_OP_PAGES_LOAD, _i == 0 ? FAKE_DIE : FAKE_HANG_UP, 0, 1);
    ck_assert_int_eq(kvc_pages_load_begin(ns, &seq, pool, &load, &op), 0);
    for (uint64_t end = fake_now_ms() + 20000; fake_now_ms() < end && !kvc_done(op);) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ck_assert_int_ge(poll(&p, 1, 20000), 0);
        ck_assert_int_ge(kvc_progress(kvc), 0);
    }
    ck_assert_int_eq(kvc_next(kvc, &next), 1);
    ck_assert_ptr_eq(next, op);
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    ck_assert_uint_eq(r.prefix.tokens, 0);
}

CASE(a_daemon_that_does_not_even_cancel_costs_no_more_than_its_time)
{
    reopen(100);
    struct kvc_op *op = begin_silent(FAKE_LATE_NEVER);
    struct kvc_result r;
    fake_rule(&fake, KVC_OP_CANCEL, FAKE_SILENCE, 0, 1);
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    ck_assert_uint_eq(r.prefix.tokens, 0);
    ck_assert(!kvc_is_up(kvc));
}

CASE(a_frozen_daemon_is_no_reason_to_hang)
{
    reopen(100);
    struct kvc_op *op = begin_silent(FAKE_LATE_NEVER);
    ck_assert_int_eq(kill(fake.pid, SIGSTOP), 0);
    struct kvc_result r;
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    ck_assert_int_eq(kill(fake.pid, SIGCONT), 0);
}

/* The daemon may go on with it at any time: it finds the word raised, in the page of that epoch and
 * in no other. */
CASE(pages_that_are_given_up_are_taken_back)
{
    reopen(100);
    const volatile uint64_t *words = kvc_gpu_words(gpu);
    struct kvc_op *op = begin_silent(FAKE_LATE_NEVER);
    struct kvc_result r;
    fake_rule(&fake, KVC_OP_CANCEL, FAKE_SILENCE, 0, 1);
    ck_assert_uint_eq(words[KVC_WORD_REVOKED], 0);
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    ck_assert_uint_ne(words[KVC_WORD_REVOKED], 0);
    const volatile uint64_t *next = NULL;
    for (uint64_t end = fake_now_ms() + 20000; fake_now_ms() < end && next == NULL;)
        next = kvc_gpu_words(gpu);
    ck_assert_uint_eq(next[KVC_WORD_REVOKED], 0);
}

/* ---- reconnecting ---- */

CASE(a_pool_is_made_again_after_a_reconnect)
{
    struct kvc_loaded l;
    struct kvc_blocks blocks = blocks_of(2);
    uint8_t st[2];
    hit(3);
    reconnect();
    ck_assert_uint_eq(atomic_load(&fake.s->pools_open), 0);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 48);
    ck_assert(block_is(2, pages + 2 * PPB));
    fill_blocks(2);
    ck_assert_int_eq(kvc_pages_store(ns, &blocks, pool, pages, (struct kvc_word){0}, NULL, 0, st),
                     0);
    ck_assert(is_stored(1));
    ck_assert_uint_eq(atomic_load(&fake.s->pools_open), 1);
    ck_assert_uint_eq(atomic_load(&fake.s->mems_seen), 2);
}

CASE(requests_that_are_begun_meanwhile_wait_for_the_pool)
{
    struct kvc_op *op[3] = {NULL};
    struct kvc_result r;
    hit(3);
    reconnect();
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(kvc_pages_load_begin(ns, &seq, pool, &load, &op[i]), 0);
    ck_assert_int_eq(kvc_cancel(op[1]), 0);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(kvc_finish(&op[i], &r), i == 1 ? KVC_E_CANCELLED : 0);
    ck_assert_uint_eq(r.prefix.tokens, 48);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_PAGES_LOAD]), 2);
}

CASE_EACH(requests_that_wait_for_a_pool_end_when_it_cannot_be, 2)
{
    struct kvc_blocks blocks = blocks_of(2);
    struct kvc_op *op[2] = {NULL};
    struct kvc_result r;
    hit(3);
    reconnect();
    if (_i == 0)
        fake_rule(&fake, KVC_OP_POOL_OPEN, FAKE_STATUS, KVC_ST_TIER, 1);
    else
        atomic_store(&fake.s->mem, FAKE_MEM_REFUSE);
    ck_assert_int_eq(kvc_pages_load_begin(ns, &seq, pool, &load, &op[0]), 0);
    ck_assert_int_eq(
        kvc_pages_store_begin(ns, &blocks, pool, pages, (struct kvc_word){0}, NULL, 0, &op[1]), 0);
    int rc = kvc_finish(&op[0], &r);
    ck_assert_int_eq(rc, _i == 0 ? 0 : KVC_E_UNKNOWN_OP);
    ck_assert_int_eq(kvc_finish(&op[1], &r), _i == 0 ? KVC_E_TIER : KVC_E_UNKNOWN_OP);
}

CASE(a_request_whose_pool_is_closed_before_it_was_sent_is_cancelled)
{
    struct kvc_op *op = NULL;
    struct kvc_result r;
    reconnect();
    ck_assert_int_eq(kvc_pages_load_begin(ns, &seq, pool, &load, &op), 0);
    kvc_pool_close(&pool);
    ck_assert(kvc_done(op));
    ck_assert_int_eq(kvc_finish(&op, &r), KVC_E_CANCELLED);
}

CASE(words_of_the_daemon_before_are_not_waited_for)
{
    struct kvc_loaded l = {.tokens = 99};
    struct kvc_blocks blocks = blocks_of(2);
    struct kvc_word after = {.word = 1, .value = 1};
    uint8_t st[2];
    hit(3);
    volatile uint64_t *before = kvc_gpu_words(gpu);
    ck_assert_int_eq(kvc_gpu_signal(gpu, NULL, 0, 1), 0);
    reconnect();
    ck_assert_int_eq(kvc_pages_store(ns, &blocks, pool, pages, after, NULL, 0, st), KVC_E_DOWN);
    load.after = after;
    load.ready = (struct kvc_word){.word = 2, .value = 0};
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 0);
    ck_assert_uint_eq(before[1], 2); /* who waits there goes on */
    ck_assert_int_eq(kvc_gpu_signal(gpu, NULL, 0, 1), 0);
    ck_assert_uint_eq(kvc_gpu_words(gpu)[1], 0);
    ck_assert_int_eq(kvc_pages_store(ns, &blocks, pool, pages, after, NULL, 0, st), 0);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 48);
}

CASE(a_namespace_that_was_let_go_is_opened_again)
{
    struct kvc_loaded l;
    struct kvc_blocks blocks = blocks_of(2);
    uint8_t st[2];
    hit(3);
    fake_rule(&fake, KVC_OP_PAGES_LOAD, FAKE_STATUS, KVC_ST_NO_NAMESPACE, 1);
    fake_rule(&fake, KVC_OP_PAGES_STORE, FAKE_STATUS, KVC_ST_NO_NAMESPACE, 1);
    uint32_t id = kvc_ns_id(ns);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 48);
    ck_assert_uint_ne(atomic_load(&fake.s->last_ns), id);
    ck_assert_int_eq(kvc_pages_store(ns, &blocks, pool, pages, (struct kvc_word){0}, NULL, 0, st),
                     0);
}

/* ---- in flight ---- */

CASE(many_are_in_flight_at_once)
{
    seq = seq_of(1);
    struct kvc_op *op[16];
    int done = 0;
    hit(1);
    for (int i = 0; i < 16; i++) {
        load = (struct kvc_pages_load){.pages = {pages + (size_t)(i % 8) * PPB}};
        ck_assert_int_eq(kvc_pages_load_begin(ns, &seq, pool, &load, &op[i]), 0);
        kvc_op_set_user(op[i], &op[i]);
    }
    for (uint64_t end = fake_now_ms() + 20000; done < 16 && fake_now_ms() < end;) {
        struct kvc_op *next;
        (void)kvc_progress(kvc);
        while (kvc_next(kvc, &next) > 0) {
            struct kvc_result r;
            struct kvc_loaded l;
            ck_assert_int_eq(kvc_finish(&next, &r), 0);
            ck_assert_uint_eq(r.kind, KVC_OP_PAGES_LOAD);
            kvc_pages_loaded(pool, &l);
            ck_assert_uint_eq(l.tokens, 16);
            done++;
        }
    }
    ck_assert_int_eq(done, 16);
    for (int i = 0; i < 8; i++)
        ck_assert(block_is(0, pages + (size_t)i * PPB));
}

CASE(wait_takes_them_too)
{
    struct kvc_blocks blocks = blocks_of(2);
    struct kvc_op *op = NULL;
    struct kvc_prefix prefix;
    uint8_t st[2];
    hit(3);
    ck_assert_int_eq(kvc_pages_load_begin(ns, &seq, pool, &load, &op), 0);
    ck_assert_int_eq(kvc_wait(&op, &prefix, NULL, NULL), 0);
    ck_assert_uint_eq(prefix.tokens, 48);
    ck_assert_int_eq(
        kvc_pages_store_begin(ns, &blocks, pool, pages, (struct kvc_word){0}, NULL, 0, &op), 0);
    ck_assert_int_eq(kvc_wait(&op, NULL, NULL, st), 0);
    ck_assert_uint_eq(st[1], KVC_ST_OK);
    /* Without an output it is given up, but not before nothing touches its pages any more. */
    op = begin_silent(FAKE_LATE_CANCEL);
    ck_assert_int_eq(kvc_wait(&op, NULL, NULL, NULL), -EINVAL);
    ck_assert_uint_eq(atomic_load(&fake.s->late_written), 1);
}
