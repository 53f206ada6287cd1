/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks into workers' pages, out of them, and onto devices: deadlines, CANCEL, death. */
#include <stdlib.h>

#include "cases.h"
#include "svc_rig.h"

static struct srig s;
static struct sr_peer *p;
static struct sr_pages g;        /* four blocks of a chain, pages 0 to 7 */
static struct device_pool *pool; /* of p, number 0, on device 0 */

static bool admits_none(struct policy *policy, const struct policy_hint *hint, uint32_t victim,
                        uint64_t now_ms)
{
    (void)policy;
    (void)hint;
    (void)victim;
    (void)now_ms;
    return false;
}

/* regions: of host memory; its policy admits nothing that something would have to go for. */
static void begin(uint32_t device_copies, uint32_t regions)
{
    static struct policy_ops ops;
    ops = policy_lru;
    ops.admits = admits_none;
    sr_defaults(&s);
    s.regions = regions;
    s.core_cfg.policy = &ops;
    s.core_cfg.admission = true;
    s.core_cfg.device_copies = device_copies;
    s.ndevices = 2;
    s.slots = 4;
    s.core_cfg.lease_bytes_max = 1u << 20;
    sr_begin(&s);
    p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    sr_pool(&s, p, 0, 0);
    pool = sr_pool_of(&s, p, 0);
    g = (struct sr_pages){.b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 4, .deadline_ms = 1000}};
}

static void setup(void)
{
    begin(0, 16);
}

static void setup_one(void)
{
    begin(1, 16);
}

static void teardown(void)
{
    sr_end(&s);
}

static struct device_copy *copy_no(unsigned i)
{
    return fake_device_copy(s.device[0].fake, i);
}

static unsigned copies(void)
{
    return fake_device_inflight(s.device[0].fake);
}

static void end_copy(int status)
{
    fake_device_end(s.device[0].fake, copy_no(0), status);
    sr_turn(&s, 0);
}

/* The blocks of g are cached. */
static void cached(void)
{
    uint64_t store = sr_store(&s, p, &g.b);
    sr_copies(&s);
    sr_all(&s, store, KVC_ST_OK);
}

static bool found(uint64_t corr)
{
    struct msg_reply_head head;
    struct msg_cancel_reply reply;
    SR_READ(&s, corr, cancel, &head, &reply);
    return reply.found;
}

static void expect_statuses(struct codec_bin statuses, uint32_t n, uint8_t status)
{
    ck_assert_uint_eq(statuses.n, n);
    for (uint32_t i = 0; i < n; i++)
        ck_assert_uint_eq(statuses.p[i], status);
}

static void expect_loaded(uint64_t corr, uint32_t tokens, uint32_t first, uint32_t n)
{
    struct msg_pages_load_reply reply = sr_loaded(&s, corr);
    ck_assert_uint_eq(reply.hit_tokens, tokens);
    ck_assert_uint_eq(reply.ngroups, 1);
    ck_assert_uint_eq(reply.groups[0].first, first);
    expect_statuses(reply.groups[0].statuses, n, KVC_ST_OK);
}

/* The first one failed so, and the others with it: they build on it. */
static void expect_failed(uint64_t corr, uint8_t status)
{
    struct msg_reply_head head;
    struct msg_commit_reply reply;
    SR_READ(&s, corr, commit, &head, &reply);
    ck_assert_uint_eq(reply.statuses.p[0], status);
    for (uint32_t i = 1; i < reply.statuses.n; i++)
        ck_assert(reply.statuses.p[i] == status || reply.statuses.p[i] == KVC_ST_GONE);
}

static void expect_refused(uint64_t corr, const char *word)
{
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_BAD_ARGUMENT);
    ck_assert_msg(strstr(sr_detail(&s, corr), word) != NULL, "%s", sr_detail(&s, corr));
}

/* ---- there and back ---- */

CASES(.setup = setup, .teardown = teardown);

CASE(what_is_stored_from_pages_is_loaded_into_others)
{
    for (uint32_t i = 0; i < 4; i++)
        sr_pages_put(pool, 1, i, i);
    uint64_t store = sr_pages_store(&s, p, &g);
    ck_assert_uint_eq(sr_replies(&s, store), 0);
    sr_device_copies(&s);
    sr_copies(&s);
    sr_all(&s, store, KVC_ST_OK);
    g.at = 10;
    uint64_t load = sr_pages_load(&s, p, &g);
    ck_assert_uint_eq(sr_replies(&s, load), 0);
    sr_device_copies(&s);
    expect_loaded(load, 32, 0, 4);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert(sr_pages_hold(pool, 1, i, 10 + i));
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
    ck_assert_uint_eq(s.kept, 0);
}

/* Wherever in the message the list begins: the library does not align it, and the device needs it
 * so. A sub-tenant's name of so many bytes moves it. */
CASE(lists_of_pages_begin_at_any_byte)
{
    static const char *const subs[] = {"", "a", "ab", "abc", "abcd"};
    struct sr_peer *gate = sr_peer(&s, 1, SR_UID_GW, 0);
    sr_pool(&s, gate, 0, 0);
    pool = sr_pool_of(&s, gate, 0);
    g.b.ns = sr_ns(&s, gate, "m");
    for (uint32_t k = 0; k < 5; k++) {
        g.b.sub = subs[k];
        g.at = 0;
        for (uint32_t i = 0; i < 4; i++)
            sr_pages_put(pool, 1, i, i);
        uint64_t store = sr_pages_store(&s, gate, &g);
        sr_device_copies(&s);
        sr_copies(&s);
        sr_all(&s, store, KVC_ST_OK);
        g.at = 5 + 4 * k;
        uint64_t load = sr_pages_load(&s, gate, &g);
        sr_device_copies(&s);
        expect_loaded(load, 32, 0, 4);
        for (uint32_t i = 0; i < 4; i++)
            ck_assert(sr_pages_hold(pool, 1, i, g.at + i));
    }
}

CASE(what_the_worker_has_already_is_left_out)
{
    cached();
    g.from_tokens = 17; /* block 2 holds one more */
    g.at = 20;
    uint64_t load = sr_pages_load(&s, p, &g);
    sr_device_copies(&s);
    expect_loaded(load, 32, 2, 2);
    ck_assert(sr_pages_hold(pool, 1, 2, 20) && sr_pages_hold(pool, 1, 3, 21));
    ck_assert(!sr_pages_hold(pool, 1, 0, 0));
    g.from_tokens = 32; /* all of it */
    load = sr_pages_load(&s, p, &g);
    expect_loaded(load, 32, 0, 0);
    ck_assert_uint_eq(copies(), 0);
}

CASE(a_prefix_is_loaded_and_the_rest_says_why_not)
{
    g.b.n = 2;
    cached();
    g.b.n = 4;
    uint64_t load = sr_pages_load(&s, p, &g);
    sr_device_copies(&s);
    expect_loaded(load, 16, 0, 2);
    ck_assert_uint_eq(sr_loaded(&s, load).groups[0].reason, KVC_MISS_NEVER);
    g.b.chain = 2;
    load = sr_pages_load(&s, p, &g);
    expect_loaded(load, 0, 0, 0); /* at once: there is nothing */
    ck_assert_uint_eq(copies(), 0);
}

CASE(a_block_that_is_being_stored_is_waited_for)
{
    g.flags = KVC_F_WAIT;
    for (uint32_t i = 0; i < 4; i++)
        sr_pages_put(pool, 1, i, i);
    uint64_t store = sr_pages_store(&s, p, &g);
    g.at = 10;
    uint64_t load = sr_pages_load(&s, p, &g);
    ck_assert_uint_eq(copies(), 1);
    end_copy(0);
    sr_copies(&s);
    sr_settle(&s);
    sr_all(&s, store, KVC_ST_OK);
    ck_assert_uint_eq(sr_replies(&s, load), 0);
    ck_assert_uint_eq(copies(), 1); /* into the pages */
    end_copy(0);
    expect_loaded(load, 32, 0, 4);
    ck_assert(sr_pages_hold(pool, 1, 3, 13));
}

/* Waits get three quarters of the time, so that copies have some. */
CASE(a_wait_ends_in_time_for_copies)
{
    g.b.n = 2;
    cached();
    g.b.n = 4;
    struct sr_blocks rest = g.b;
    rest.first = 2;
    rest.n = 2;
    ck_assert_uint_eq(sr_status(&s, sr_reserve(&s, p, &rest)), KVC_ST_OK);
    g.flags = KVC_F_WAIT;
    uint64_t load = sr_pages_load(&s, p, &g);
    sr_turn(&s, 749);
    ck_assert_uint_eq(copies(), 0);
    sr_turn(&s, 3);
    ck_assert_uint_eq(copies(), 1);
    end_copy(0);
    expect_loaded(load, 16, 0, 2);
}

CASE(layers_are_counted_in_a_word)
{
    _Atomic uint64_t *words = sr_words(&s, p);
    cached();
    g.ready = 5;
    g.ready_value = 1000;
    uint64_t load = sr_pages_load(&s, p, &g);
    ck_assert_uint_eq(atomic_load(&words[4]), 0);
    ck_assert(fake_device_layer(s.device[0].fake, copy_no(0)));
    ck_assert_uint_eq(atomic_load(&words[4]), 1001);
    end_copy(0);
    ck_assert_uint_eq(atomic_load(&words[4]), 1004);
    expect_loaded(load, 32, 0, 4);
}

CASE(copies_begin_behind_a_word)
{
    _Atomic uint64_t *words = sr_words(&s, p);
    g.after = KVC_WORDS;
    g.after_value = 7;
    uint64_t store = sr_pages_store(&s, p, &g);
    ck_assert(!fake_device_may_begin(copy_no(0)));
    atomic_store(&words[KVC_WORDS - 1], 6);
    ck_assert(!fake_device_may_begin(copy_no(0)));
    atomic_store(&words[KVC_WORDS - 1], 7);
    ck_assert(fake_device_may_begin(copy_no(0)));
    sr_device_copies(&s);
    sr_copies(&s);
    sr_all(&s, store, KVC_ST_OK);
    g.after_value = 8;
    (void)sr_pages_load(&s, p, &g);
    ck_assert(!fake_device_may_begin(copy_no(0)));
    atomic_store(&words[KVC_WORDS - 1], 8);
    sr_device_copies(&s);
}

/* Of what waits for its word others may wait, too: it is taken. */
CASE(what_is_stored_from_pages_is_judged_when_its_word_has_come)
{
    teardown();
    begin(0, 1);
    for (g.b.chain = 1; g.b.chain <= 16; g.b.chain++)
        cached(); /* 64 blocks: memory is full */
    sr_all(&s, sr_pages_store(&s, p, &g), KVC_ST_NOT_WORTH);
    ck_assert_uint_eq(copies(), 0);
    _Atomic uint64_t *words = sr_words(&s, p);
    g.after = 1;
    g.after_value = 7;
    uint64_t early = sr_pages_store(&s, p, &g);
    ck_assert_uint_eq(copies(), 1);
    atomic_store(&words[0], 7);
    g.b.chain++;
    sr_all(&s, sr_pages_store(&s, p, &g), KVC_ST_NOT_WORTH);
    sr_device_copies(&s);
    sr_copies(&s);
    sr_all(&s, early, KVC_ST_OK);
    ck_assert_uint_eq(core_metrics(s.core)->reserve_not_worth, 2);
}

/* The worker's stream may never come by; it hears of the end at once, and copies that run end as
 * ever. */
CASE(a_daemon_that_leaves_waits_for_no_word)
{
    (void)sr_words(&s, p);
    cached();
    uint64_t runs = sr_pages_load(&s, p, &g);
    g.after = 1;
    g.after_value = 7;
    uint64_t load = sr_pages_load(&s, p, &g);
    g.b.chain++;
    uint64_t store = sr_pages_store(&s, p, &g);
    ck_assert_uint_eq(copies(), 3);
    svc_shutdown(s.svc);
    ck_assert(!atomic_load(&copy_no(0)->cancel));
    ck_assert(atomic_load(&copy_no(1)->cancel) && atomic_load(&copy_no(2)->cancel));
    fake_device_end(s.device[0].fake, copy_no(2), -ECANCELED);
    fake_device_end(s.device[0].fake, copy_no(1), -ECANCELED);
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_status(&s, load), KVC_ST_SHUTDOWN);
    ck_assert_uint_eq(sr_status(&s, store), KVC_ST_SHUTDOWN);
    ck_assert(!svc_is_quiet(s.svc));
    end_copy(0);
    expect_loaded(runs, 32, 0, 4);
    ck_assert(svc_is_quiet(s.svc));
}

/* Its wait for another writer ends with the daemon's service, and then it waits for no word. */
CASE(what_begins_to_wait_for_a_word_while_the_daemon_leaves_is_called_off)
{
    (void)sr_words(&s, p);
    cached();
    g.b.n = 6;
    uint64_t resv = sr_reservation(&s, sr_reserve(&s, p, &g.b));
    g.after = 1;
    g.after_value = 7;
    g.flags = KVC_F_WAIT;
    uint64_t load = sr_pages_load(&s, p, &g);
    ck_assert_uint_eq(copies(), 0);
    svc_shutdown(s.svc);
    ck_assert_uint_eq(copies(), 1);
    ck_assert(atomic_load(&copy_no(0)->cancel));
    end_copy(-ECANCELED);
    ck_assert_uint_eq(sr_status(&s, load), KVC_ST_SHUTDOWN);
    ck_assert_uint_eq(sr_status(&s, sr_drop(&s, p, resv)), KVC_ST_OK);
}

/* By the word behind the worker's own; who has asked for none cannot. */
CASE_EACH(copies_of_pages_can_be_taken_back, 2)
{
    const _Atomic uint64_t *revoked = _i == 1 ? &sr_words(&s, p)[KVC_WORD_REVOKED] : NULL;
    uint64_t store = sr_pages_store(&s, p, &g);
    ck_assert_ptr_eq((const void *)copy_no(0)->revoked, (const void *)revoked);
    sr_device_copies(&s);
    sr_copies(&s);
    sr_all(&s, store, KVC_ST_OK);
    (void)sr_pages_load(&s, p, &g);
    ck_assert_ptr_eq((const void *)copy_no(0)->revoked, (const void *)revoked);
    sr_device_copies(&s);
}

CASE(a_block_whose_pages_are_out_of_range_fails_alone)
{
    cached();
    g.at = 30; /* pages 60 to 67, of 64 */
    uint64_t load = sr_pages_load(&s, p, &g);
    sr_device_copies(&s);
    struct codec_bin statuses = sr_loaded(&s, load).groups[0].statuses;
    ck_assert_uint_eq(statuses.n, 4);
    ck_assert(statuses.p[0] == KVC_ST_OK && statuses.p[1] == KVC_ST_OK);
    ck_assert(statuses.p[2] == KVC_ST_BAD_ARGUMENT && statuses.p[3] == KVC_ST_BAD_ARGUMENT);
}

CASE(a_device_that_fails_is_a_status_of_each_block)
{
    cached();
    uint64_t load = sr_pages_load(&s, p, &g);
    end_copy(-EIO);
    expect_statuses(sr_loaded(&s, load).groups[0].statuses, 4, KVC_ST_TIER);
    struct sr_blocks other = g.b;
    other.chain = 9;
    struct sr_pages from = {.b = other};
    uint64_t store = sr_pages_store(&s, p, &from);
    end_copy(-EIO);
    sr_settle(&s);
    expect_failed(store, KVC_ST_TIER);
}

/* What was imported went with it: the worker is told so, also when the device is back. */
CASE(a_pool_of_a_device_that_was_out_is_to_be_opened_again)
{
    cached();
    fake_device_lose(s.device[0].fake);
    ck_assert_uint_eq(sr_status(&s, sr_pages_load(&s, p, &g)), KVC_ST_TIER);
    fake_device_up(s.device[0].fake);
    s.device[0].outs++;
    ck_assert_uint_eq(sr_status(&s, sr_pages_load(&s, p, &g)), KVC_ST_TIER);
    ck_assert_uint_eq(sr_status(&s, sr_pages_store(&s, p, &g)), KVC_ST_TIER);
    ck_assert_uint_eq(copies(), 0);
}

CASE(storing_what_exists_copies_nothing)
{
    cached();
    uint64_t store = sr_pages_store(&s, p, &g);
    sr_all(&s, store, KVC_ST_EXISTS);
    ck_assert_uint_eq(copies(), 0);
}

/* ---- refused ---- */

CASE(pools_and_words_are_the_sessions_own)
{
    struct sr_peer *q = sr_peer(&s, 1, SR_UID_ONE + 1, 0);
    g.b.ns = sr_ns(&s, q, "m");
    expect_refused(sr_pages_load(&s, q, &g), "pool");
    expect_refused(sr_pages_store(&s, q, &g), "pool");
    g.pool = 1;
    expect_refused(sr_pages_load(&s, p, &g), "pool");
    g.pool = 0;
    g.ready = 1;
    expect_refused(sr_pages_load(&s, p, &g), "WORDS");
    g.ready = 0;
    g.after = 1;
    expect_refused(sr_pages_load(&s, p, &g), "WORDS");
    expect_refused(sr_pages_store(&s, p, &g), "WORDS");
}

/* n blocks with pages for `pages` of them. */
static uint64_t load_with(uint32_t n, uint32_t pages)
{
    static uint8_t keys[64 * KVC_KEY_BYTES];
    static uint32_t list[256];
    struct msg_pages_load msg = {.seq = {.ns = g.b.ns, .tokens = n * 8, .ngroups = 1},
                                 .after_word = KVC_NO_WORD,
                                 .ready_word = KVC_NO_WORD,
                                 .ngroups = 1};
    for (uint32_t i = 0; i < n; i++)
        sr_key(1, i, keys + (size_t)i * KVC_KEY_BYTES);
    msg.seq.keys[0] = (struct codec_bin){keys, n * KVC_KEY_BYTES};
    msg.pages[0].pages = (struct codec_bin){(const uint8_t *)list, pages * 4};
    const struct msg_head *h = sr_head(&s, KVC_OP_PAGES_LOAD, 0);
    return sr_send(&s, p, codec_enc_pages_load(s.buf, sizeof(s.buf), h, &msg));
}

CASE(a_list_of_pages_has_as_many_as_the_blocks_take)
{
    cached();
    expect_refused(load_with(4, 7), "pages");
    expect_refused(load_with(4, 9), "pages");
    expect_refused(load_with(4, 0), "pages");
    ck_assert_uint_eq(sr_status(&s, load_with(0, 0)), KVC_ST_OK);
    ck_assert_uint_eq(copies(), 0);
    struct msg_pages_store msg = {.after_word = KVC_NO_WORD};
    uint8_t key[KVC_KEY_BYTES];
    uint32_t list[3] = {0, 1, 2};
    sr_key(1, 0, key);
    msg.reserve = (struct msg_reserve){.ns = g.b.ns, .keys = {key, sizeof(key)}};
    msg.pages = (struct codec_bin){(const uint8_t *)list, sizeof(list)};
    const struct msg_head *h = sr_head(&s, KVC_OP_PAGES_STORE, 0);
    expect_refused(sr_send(&s, p, codec_enc_pages_store(s.buf, sizeof(s.buf), h, &msg)), "pages");
}

CASE(a_pool_fits_its_namespace_or_is_refused)
{
    struct msg_ns_open msg = {.model = {(const uint8_t *)"two", 3},
                              .position = {(const uint8_t *)"rope", 4},
                              .attention = {(const uint8_t *)"causal", 6},
                              .shards = 1,
                              .ngroups = 1};
    msg.groups[0] = (struct msg_group){.block_tokens = 8, .block_bytes = 128};
    const struct msg_head *h = sr_head(&s, KVC_OP_NS_OPEN, 0);
    uint64_t open = sr_send(&s, p, codec_enc_ns_open(s.buf, sizeof(s.buf), h, &msg));
    struct msg_reply_head head;
    struct msg_ns_open_reply reply;
    SR_READ(&s, open, ns_open, &head, &reply);
    g.b.ns = reply.ns;
    expect_refused(sr_pages_load(&s, p, &g), "block_bytes");
    expect_refused(sr_pages_store(&s, p, &g), "block_bytes");
    g.b.ns = 4711;
    ck_assert_uint_eq(sr_status(&s, sr_pages_load(&s, p, &g)), KVC_ST_NO_NAMESPACE);
}

CASE(a_shard_that_is_not_there_is_refused)
{
    cached();
    g.shard = 1;
    expect_refused(sr_pages_load(&s, p, &g), "shard");
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
}

CASE(without_room_to_keep_the_list_it_is_busy)
{
    s.keep_fails = true;
    ck_assert_uint_eq(sr_status(&s, sr_pages_load(&s, p, &g)), KVC_ST_BUSY);
    ck_assert_uint_eq(sr_status(&s, sr_pages_store(&s, p, &g)), KVC_ST_BUSY);
    s.keep_fails = false;
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
}

/* ---- deadlines, CANCEL ---- */

CASE(copies_that_have_not_begun_end_before_the_deadline)
{
    (void)sr_words(&s, p);
    cached();
    g.after = 1; /* never written */
    g.after_value = 1;
    uint64_t load = sr_pages_load(&s, p, &g);
    ck_assert_uint_le(copy_no(0)->deadline_ns, s.now_ns + 900000000);
    ck_assert_uint_ge(copy_no(0)->deadline_ns, s.now_ns + 800000000);
    sr_turn(&s, 900);
    end_copy(-ETIMEDOUT);
    expect_statuses(sr_loaded(&s, load).groups[0].statuses, 4, KVC_ST_TIMEOUT);
    struct sr_pages other = g;
    other.b.chain = 3;
    uint64_t store = sr_pages_store(&s, p, &other);
    ck_assert_uint_le(copy_no(0)->deadline_ns, s.now_ns + 900000000);
    sr_turn(&s, 900);
    end_copy(-ETIMEDOUT);
    sr_settle(&s);
    expect_failed(store, KVC_ST_TIMEOUT);
}

/* Load or store, whose copy hangs. */
static uint64_t hanging(bool load)
{
    if (load)
        cached();
    return load ? sr_pages_load(&s, p, &g) : sr_pages_store(&s, p, &g);
}

CASE_EACH(copies_that_hang_time_out_and_cancel_waits_for_them, 2)
{
    uint64_t target = hanging(_i);
    sr_turn(&s, 999);
    ck_assert_uint_eq(sr_replies(&s, target), 0);
    sr_turn(&s, 3);
    ck_assert_uint_eq(sr_status(&s, target), KVC_ST_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(sr_detail(&s, target), "pages"));
    ck_assert_uint_eq(sr_status(&s, sr_pool_close(&s, p, 0)), KVC_ST_BUSY);
    uint64_t cancel = sr_cancel(&s, p, target);
    sr_turn(&s, 1000);
    ck_assert_uint_eq(sr_replies(&s, cancel), 0); /* the pages are still in use */
    end_copy(0);
    sr_copies(&s);
    ck_assert(found(cancel));
    ck_assert_uint_eq(sr_replies(&s, target), 1);
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
    ck_assert_uint_eq(sr_status(&s, sr_pool_close(&s, p, 0)), KVC_ST_OK);
    pool = NULL;
}

CASE_EACH(cancel_before_the_deadline_answers_the_target_first, 2)
{
    uint64_t target = hanging(_i);
    uint64_t cancel = sr_cancel(&s, p, target);
    ck_assert(atomic_load(&copy_no(0)->cancel));
    ck_assert_uint_eq(sr_replies(&s, target) + sr_replies(&s, cancel), 0);
    ck_assert_uint_eq(sr_status(&s, sr_cancel(&s, p, target)), KVC_ST_BUSY);
    end_copy(-ECANCELED);
    sr_settle(&s);
    ck_assert_uint_eq(sr_status(&s, target), KVC_ST_CANCELLED);
    ck_assert(found(cancel));
    ck_assert_uint_lt(sr_order(&s, target), sr_order(&s, cancel));
    ck_assert(!found(sr_cancel(&s, p, target)));
}

CASE(a_load_that_still_waits_is_cancelled_at_once)
{
    ck_assert_uint_eq(sr_status(&s, sr_reserve(&s, p, &g.b)), KVC_ST_OK);
    g.flags = KVC_F_WAIT;
    uint64_t load = sr_pages_load(&s, p, &g);
    sr_turn(&s, 10);
    uint64_t cancel = sr_cancel(&s, p, load);
    ck_assert_uint_eq(sr_status(&s, load), KVC_ST_CANCELLED);
    ck_assert(found(cancel));
    ck_assert_uint_eq(s.kept, 0);
    ck_assert_uint_eq(sr_status(&s, sr_pool_close(&s, p, 0)), KVC_ST_OK);
}

/* ---- ends of sessions ---- */

CASE_EACH(a_session_that_dies_keeps_its_pages_until_copies_have_ended, 2)
{
    (void)sr_words(&s, p);
    uint64_t target = hanging(_i);
    sr_leave(&s, p);
    ck_assert(atomic_load(&copy_no(0)->cancel));
    sr_turn(&s, 5000);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 1);
    ck_assert_uint_eq(s.device[0].pools, 1);
    ck_assert_uint_eq(s.words, 1);
    end_copy(_i ? 0 : -ECANCELED);
    sr_copies(&s);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 0);
    ck_assert_uint_eq(s.device[0].pools + s.device[0].nmems + s.words, 0);
    ck_assert_uint_eq(sr_replies(&s, target), 0);
    /* Nothing is left under a lease. */
    struct sr_peer *ops = sr_peer(&s, 2, SR_UID_OPS, 0);
    struct msg_evict msg = {0};
    const struct msg_head *h = sr_head(&s, KVC_OP_EVICT, 0);
    uint64_t evict = sr_send(&s, ops, codec_enc_evict(s.buf, sizeof(s.buf), h, &msg));
    sr_settle(&s);
    struct msg_reply_head head;
    struct msg_evict_reply reply;
    SR_READ(&s, evict, evict, &head, &reply);
    ck_assert_uint_eq(reply.kept_blocks, 0);
}

CASE(a_session_that_dies_while_it_waits_is_gone_at_once)
{
    struct sr_peer *q = sr_peer(&s, 1, SR_UID_ONE + 1, 4096);
    struct sr_blocks pending = g.b;
    pending.ns = sr_ns(&s, q, "m");
    ck_assert_uint_eq(sr_status(&s, sr_reserve(&s, q, &pending)), KVC_ST_OK);
    g.flags = KVC_F_WAIT;
    (void)sr_pages_load(&s, p, &g);
    sr_leave(&s, p);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 1); /* q */
    ck_assert_uint_eq(s.device[0].pools, 0);
    ck_assert_uint_eq(s.kept, 0);
}

/* ---- turns: one copy at a time ---- */

static struct sr_peer *q;
static struct sr_pages h;

/* The only copy is p's; q's request waits for it. */
static uint64_t waiting(uint64_t *ret_first)
{
    h = g;
    *ret_first = sr_pages_store(&s, p, &g);
    q = sr_peer(&s, 1, SR_UID_ONE, 4096);
    sr_pool(&s, q, 0, 0);
    h.b.ns = sr_ns(&s, q, "m");
    h.b.chain = 2;
    uint64_t store = sr_pages_store(&s, q, &h);
    ck_assert_uint_eq(copies(), 1);
    ck_assert_uint_eq(sr_replies(&s, store), 0);
    ck_assert_uint_eq(core_metrics(s.core)->transfers_waiting, 1);
    return store;
}

static void first_ends(uint64_t first)
{
    sr_device_copies(&s);
    sr_copies(&s);
    sr_all(&s, first, KVC_ST_OK);
}

CASES(.setup = setup_one, .teardown = teardown);

CASE(a_request_that_finds_the_device_busy_has_its_turn)
{
    uint64_t first, store = waiting(&first);
    end_copy(0);
    sr_turn(&s, 1);
    ck_assert_uint_eq(core_metrics(s.core)->transfers_waiting, 0);
    ck_assert_uint_eq(copies(), 1);
    first_ends(first);
    sr_all(&s, store, KVC_ST_OK);
}

CASE(a_request_whose_turn_does_not_come_in_time_says_so)
{
    uint64_t first, store = waiting(&first);
    sr_turn(&s, 950);
    sr_turn(&s, 1);
    expect_failed(store, KVC_ST_TIMEOUT);
    ck_assert_uint_eq(copies(), 1);
    end_copy(-EIO);
    sr_settle(&s);
    expect_failed(first, KVC_ST_TIER);
}

CASE(a_request_is_cancelled_before_its_turn)
{
    uint64_t first, store = waiting(&first);
    uint64_t cancel = sr_cancel(&s, q, store);
    sr_turn(&s, 1);
    ck_assert_uint_eq(sr_status(&s, store), KVC_ST_CANCELLED);
    ck_assert(found(cancel));
    first_ends(first);
}

CASE(a_session_that_dies_before_its_turn_is_gone)
{
    uint64_t first, store = waiting(&first);
    sr_leave(&s, q);
    sr_turn(&s, 1);
    ck_assert_uint_eq(sr_replies(&s, store), 0);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 1);
    ck_assert_uint_eq(s.device[0].pools, 1);
    first_ends(first);
}

CASES(.setup = setup, .teardown = teardown);

CASE(a_session_that_is_dropped_is_not_answered)
{
    uint64_t target = hanging(true);
    sr_send_raw(&s, p->route, sizeof(p->route), "\xc1", 1);
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_dropped_status(p), KVC_ST_BAD_MESSAGE);
    ck_assert(!p->closed); /* its lease is the load's */
    end_copy(-ECANCELED);
    ck_assert_uint_eq(sr_replies(&s, target), 0);
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
    sr_leave(&s, p);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 0);
}

/* ---- onto the device ---- */

static uint32_t on_device(const struct msg_acquire_reply *reply, uint32_t device)
{
    uint32_t n = 0;
    for (uint32_t at = 0; at < reply->groups[0].locs.n; at += KVC_LOC_BYTES) {
        struct msg_loc loc;
        codec_get_loc(reply->groups[0].locs.p + at, &loc);
        n += device_of_chunk(loc.chunk) == device + 1;
    }
    return n;
}

CASE(blocks_come_onto_the_device_and_are_read_there)
{
    cached();
    uint64_t on = sr_acquire_on(&s, p, &g.b, 0);
    ck_assert_uint_eq(sr_replies(&s, on), 0);
    sr_device_copies(&s);
    struct msg_acquire_reply reply = sr_held(&s, on);
    ck_assert_uint_eq(reply.hit_tokens, 32);
    ck_assert_uint_eq(on_device(&reply, 0), 4);
    on = sr_acquire_on(&s, p, &g.b, 0); /* they are there now */
    reply = sr_held(&s, on);
    ck_assert_uint_eq(on_device(&reply, 0), 4);
    on = sr_acquire_on(&s, p, &g.b, 1); /* and not on the other one */
    sr_device_copies(&s);
    reply = sr_held(&s, on);
    ck_assert_uint_eq(on_device(&reply, 1), 4);
    uint64_t load = sr_pages_load(&s, p, &g); /* out of the slots */
    ck_assert_ptr_null(copy_no(0)->piece[0].host);
    sr_device_copies(&s);
    expect_loaded(load, 32, 0, 4);
    ck_assert(sr_pages_hold(pool, 1, 0, 0));
}

CASE(what_is_not_there_at_the_deadline_is_read_in_host_memory)
{
    cached();
    uint64_t on = sr_acquire_on(&s, p, &g.b, 0);
    sr_turn(&s, 999);
    ck_assert_uint_eq(sr_replies(&s, on), 0);
    sr_turn(&s, 3);
    struct msg_acquire_reply reply = sr_held(&s, on);
    ck_assert_uint_eq(reply.groups[0].locs.n, 4 * KVC_LOC_BYTES);
    ck_assert_uint_eq(on_device(&reply, 0), 0);
    sr_device_copies(&s); /* late, and for nobody */
    ck_assert_uint_eq(sr_replies(&s, on), 1);
    ck_assert_uint_eq(sr_status(&s, sr_release(&s, p, reply.lease)), KVC_ST_OK);
}

CASE(a_device_that_is_out_leaves_blocks_in_host_memory)
{
    cached();
    fake_device_lose(s.device[0].fake);
    struct msg_acquire_reply reply = sr_held(&s, sr_acquire_on(&s, p, &g.b, 0));
    ck_assert_uint_eq(reply.hit_tokens, 32);
    ck_assert_uint_eq(on_device(&reply, 0), 0);
    fake_device_up(s.device[0].fake);
    ck_assert_uint_eq(sr_status(&s, sr_acquire_on(&s, p, &g.b, 9)), KVC_ST_TIER);
}

CASE(a_cancelled_acquire_on_a_device_holds_nothing)
{
    cached();
    uint64_t on = sr_acquire_on(&s, p, &g.b, 0);
    uint64_t cancel = sr_cancel(&s, p, on);
    ck_assert_uint_eq(sr_status(&s, on), KVC_ST_CANCELLED);
    ck_assert(found(cancel));
    sr_device_copies(&s);
    ck_assert_uint_eq(sr_replies(&s, on), 1);
    on = sr_acquire_on(&s, p, &g.b, 1);
    sr_leave(&s, p); /* and one whose session dies */
    sr_device_copies(&s);
    ck_assert_uint_eq(sr_replies(&s, on), 0);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 0);
}

CASE(a_device_without_slots_serves_pools_alone)
{
    sr_end(&s);
    sr_defaults(&s);
    s.ndevices = 1;
    sr_begin(&s);
    p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    sr_pool(&s, p, 0, 0);
    pool = sr_pool_of(&s, p, 0);
    g.b.ns = sr_ns(&s, p, "m");
    cached();
    struct msg_acquire_reply reply = sr_held(&s, sr_acquire_on(&s, p, &g.b, 0));
    ck_assert_uint_eq(on_device(&reply, 0), 0);
    uint64_t load = sr_pages_load(&s, p, &g);
    sr_device_copies(&s);
    expect_loaded(load, 32, 0, 4);
}
