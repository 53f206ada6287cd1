/* SPDX-License-Identifier: Apache-2.0 */
/* Requests on long names go on in slices: test_svc_turns.c has the other requests. */
#include <check.h>

#include "check_run.h"
#include "core__.h"
#include "core_names.h"
#include "names__.h"
#include "svc__.h"
#include "svc_rig.h"

#define LONG_BLOCKS 40u
#define LONG_BYTES  (LONG_BLOCKS * 64u)
#define TURNS       200u /* more than any of them takes */

static struct srig s;
static struct sr_peer *p, *q;
static struct sr_blocks longer;
static struct msg_paths_reply paths;

/* A turn has one slice of requests, which looks at 10 blocks. */
static void begin(bool storage)
{
    sr_defaults(&s);
    s.core_cfg.slice_work = 10;
    s.core_cfg.names_max = 4;
    s.core_cfg.pins_max = 2;
    s.core_cfg.lease_bytes_max = LONG_BYTES;
    s.cfg.turn_work = 1;
    paths = (struct msg_paths_reply){.npaths = 0};
    s.paths = storage ? &paths : NULL;
    if (storage)
        s.regions = 1;
    sr_begin(&s);
    p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    sr_turn(&s, 0);
    q = sr_peer(&s, 1, SR_UID_ONE, 4096);
    sr_turn(&s, 0);
    longer = (struct sr_blocks){.ns = sr_ns(&s, p, "m"), .chain = 1, .n = LONG_BLOCKS};
    sr_turn(&s, 0);
}

static void setup(void)
{
    begin(false);
}

/* Memory for 64 blocks. */
static void setup_storage(void)
{
    begin(true);
}

static void teardown(void)
{
    sr_end(&s);
}

static struct core_name *named(void)
{
    const struct core_name_id id = {
        .kind = KVC_NAME_CONVERSATION, .name = (const uint8_t *)"chat", .name_bytes = 4};
    struct core_name *nm = NULL;
    return core_name_find(s.core, s.svc->sessions[0].client, &id, &nm) == 0 ? nm : NULL;
}

/* Turns until it is answered; how many that took. */
static unsigned turns_until(uint64_t corr)
{
    unsigned n = 0;
    for (; sr_replies(&s, corr) == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
    }
    return n;
}

static void copies_until(uint64_t corr)
{
    for (unsigned n = 0; sr_replies(&s, corr) == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_copies(&s);
        sr_turn(&s, 0);
    }
}

static void store(const struct sr_blocks *b)
{
    const uint64_t corr = sr_store(&s, q, b);
    copies_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_OK);
}

/* The name covers the first blocks of a chain. */
static uint64_t put(struct sr_peer *peer, uint32_t chain, uint32_t blocks)
{
    static uint8_t keys[LONG_BLOCKS * KVC_KEY_BYTES];
    for (uint32_t i = 0; i < blocks; i++)
        sr_key(chain, i, &keys[(size_t)i * KVC_KEY_BYTES]);
    const struct msg_name_put msg = {.kind = KVC_NAME_CONVERSATION,
                                     .name = codec_text("chat"),
                                     .seq = {.ns = longer.ns,
                                             .tokens = blocks * 8,
                                             .ngroups = 1,
                                             .keys = {{keys, blocks * KVC_KEY_BYTES}}}};
    return sr_send(&s, peer,
                   codec_enc_name_put(s.buf, sizeof s.buf, sr_head(&s, KVC_OP_NAME_PUT, 0), &msg));
}

static uint64_t load(struct sr_peer *peer, uint32_t flags)
{
    const struct msg_name_load msg = {.kind = KVC_NAME_CONVERSATION,
                                      .flags = flags,
                                      .name = codec_text("chat"),
                                      .ttl_ms = UINT64_MAX};
    return sr_send(
        &s, peer, codec_enc_name_load(s.buf, sizeof s.buf, sr_head(&s, KVC_OP_NAME_LOAD, 0), &msg));
}

static uint64_t loaded(uint64_t corr)
{
    struct msg_reply_head head;
    struct msg_name_load_reply reply;
    const struct sr_reply *r = sr_reply(&s, corr);
    ck_assert_int_eq(codec_dec_name_load_reply(r->bytes, r->len, &head, &reply), 0);
    ck_assert_uint_eq(head.status, KVC_ST_OK);
    return reply.bytes;
}

static void name_long(void)
{
    store(&longer);
    const uint64_t corr = put(p, longer.chain, LONG_BLOCKS);
    (void)turns_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_OK);
    for (unsigned i = 0; i < 20; i++) {
        sr_turn(&s, 0);
        sr_copies(&s);
    }
}

static void nothing_is_held(void)
{
    ck_assert_uint_eq(asks_hold(s.core), 0);
    ck_assert_uint_eq(sr_metric(&s, "calls") + s.kept, 0);
    core_check(s.core);
}

static void evict_all(void)
{
    const struct msg_evict all = {.ns = longer.ns};
    (void)sr_send(&s, q, codec_enc_evict(s.buf, sizeof s.buf, sr_head(&s, KVC_OP_EVICT, 0), &all));
    for (unsigned i = 0; i < 4; i++)
        while (core_placement_step(s.core))
            continue;
}

/* ---- NAME_LOAD ---- */

/* Until some blocks have been found, and others have not. */
static uint64_t load_partly(uint32_t flags)
{
    const uint64_t corr = load(p, flags);
    for (unsigned n = 0; asks_hold(s.core) == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
    }
    ck_assert_uint_lt(asks_hold(s.core), LONG_BLOCKS);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    core_check(s.core);
    return corr;
}

START_TEST(a_long_name_is_loaded_in_slices)
{
    name_long();
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t corr = load_partly(i ? KVC_F_WAIT : 0);
        ck_assert_uint_le(asks_hold(s.core), 10);
        ck_assert_uint_ge(turns_until(corr), LONG_BLOCKS * 3 / 10 - 2);
        ck_assert_uint_eq(loaded(corr), LONG_BYTES);
        nothing_is_held();
    }
}
END_TEST

START_TEST(a_load_that_is_cancelled_or_left_between_two_slices_holds_nothing)
{
    name_long();
    const uint64_t corr = load_partly(0);
    (void)sr_cancel(&s, p, corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_CANCELLED);
    nothing_is_held();
    (void)load_partly(KVC_F_WAIT);
    sr_leave(&s, p);
    sr_turn(&s, 0);
    nothing_is_held();
}
END_TEST

START_TEST(a_name_that_is_forgotten_between_two_slices_is_loaded_as_it_was)
{
    name_long();
    const uint64_t corr = load_partly(0);
    ck_assert_int_eq(core_name_forget(s.core, named(), NULL, NULL), 0);
    evict_all(); /* what was found stays, and all before it */
    (void)turns_until(corr);
    ck_assert_uint_eq(loaded(corr), LONG_BYTES);
    nothing_is_held();
}
END_TEST

/* Its bytes are bad. */
START_TEST(a_block_that_goes_between_two_slices_is_not_loaded)
{
    name_long();
    const uint64_t corr = load_partly(0);
    struct core_seq seq;
    ck_assert(core_name_seq(s.core, named(), &seq));
    block_kill_tree(s.core,
                    index_get(s.core, seq.ns, 0, seq.keys[0] + (LONG_BLOCKS - 1) * KVC_KEY_BYTES),
                    KVC_MISS_CORRUPT);
    (void)turns_until(corr);
    ck_assert_uint_eq(loaded(corr), LONG_BYTES - 64);
    nothing_is_held();
}
END_TEST

/* The name's blocks are on disk alone, but for some. */
static void out_of_memory(void)
{
    struct core_name_view v;
    struct sr_blocks other = {.ns = longer.ns, .chain = 2, .n = LONG_BLOCKS};
    name_long();
    store(&other);
    (void)core_name_view(s.core, named(), &v);
    ck_assert_uint_eq(v.bytes_on_disk, LONG_BYTES);
    ck_assert_uint_lt(v.bytes_in_memory, LONG_BYTES);
    evict_all(); /* the others */
}

START_TEST(what_a_long_name_lacks_is_held_in_slices_and_waited_for)
{
    out_of_memory();
    const uint64_t corr = load_partly(KVC_F_WAIT);
    for (unsigned n = 0; core_metrics(s.core)->loads == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
        core_check(s.core);
    }
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    copies_until(corr);
    ck_assert_uint_eq(loaded(corr), LONG_BYTES);
    nothing_is_held();
}
END_TEST

START_TEST(a_load_that_is_cancelled_while_it_is_made_holds_nothing)
{
    out_of_memory();
    const uint64_t corr = load_partly(KVC_F_WAIT);
    for (unsigned n = 0; s.core->wanted_bytes == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
    }
    core_check(s.core);
    ck_assert_uint_eq(core_metrics(s.core)->loads, 0);
    (void)sr_cancel(&s, p, corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_CANCELLED);
    ck_assert_uint_eq(s.core->wanted_bytes, 0);
    nothing_is_held();
}
END_TEST

START_TEST(more_than_a_client_may_hold_is_begun_and_not_waited_for)
{
    s.core->cfg.lease_bytes_max = LONG_BYTES - 1;
    out_of_memory();
    const uint64_t corr = load_partly(KVC_F_WAIT);
    (void)turns_until(corr);
    ck_assert_uint_lt(loaded(corr), LONG_BYTES);
    ck_assert_uint_gt(core_metrics(s.core)->prefetches, 0);
    ck_assert_uint_eq(core_metrics(s.core)->loads + s.core->wanted_bytes, 0);
    nothing_is_held();
}
END_TEST

START_TEST(what_nobody_waits_for_is_begun_in_slices)
{
    out_of_memory();
    const uint64_t corr = load_partly(0);
    (void)turns_until(corr);
    ck_assert_uint_lt(loaded(corr), LONG_BYTES);
    ck_assert_uint_gt(core_metrics(s.core)->prefetches, 0);
    nothing_is_held();
}
END_TEST

START_TEST(a_load_whose_deadline_comes_tells_what_there_is)
{
    out_of_memory();
    const uint64_t corr = load_partly(KVC_F_WAIT);
    sr_turn(&s, KVC_DEADLINE_DEFAULT_MS);
    (void)turns_until(corr);
    ck_assert_uint_lt(loaded(corr), LONG_BYTES);
    nothing_is_held();
}
END_TEST

/* ---- NAME_FORGET ---- */

static uint64_t still_named(void)
{
    return core_metrics(s.core)->named_blocks;
}

static uint64_t forget(struct sr_peer *peer, bool evict, uint32_t deadline_ms)
{
    const struct msg_name_forget msg = {
        .kind = KVC_NAME_CONVERSATION, .evict = evict, .name = codec_text("chat")};
    return sr_send(&s, peer,
                   codec_enc_name_forget(s.buf, sizeof s.buf,
                                         sr_head(&s, KVC_OP_NAME_FORGET, deadline_ms), &msg));
}

static struct msg_name_forget_reply forgotten(uint64_t corr)
{
    struct msg_reply_head head;
    struct msg_name_forget_reply reply;
    const struct sr_reply *r = sr_reply(&s, corr);
    ck_assert_int_eq(codec_dec_name_forget_reply(r->bytes, r->len, &head, &reply), 0);
    ck_assert_uint_eq(head.status, KVC_ST_OK);
    return reply;
}

/* Until it has let go of some blocks, and not of others. */
static uint64_t forget_partly(bool evict)
{
    const uint64_t corr = forget(p, evict, 0);
    for (unsigned n = 0; still_named() > LONG_BLOCKS - 5; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
        core_check(s.core);
    }
    ck_assert_uint_gt(still_named(), 0);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    ck_assert_ptr_null(named());
    return corr;
}

static void nothing_is_left(uint32_t blocks)
{
    for (unsigned i = 0; i < LONG_BLOCKS; i++) {
        sr_turn(&s, 0);
        core_check(s.core);
    }
    ck_assert_uint_eq(still_named() + core_metrics(s.core)->named_bytes, 0);
    ck_assert_uint_eq(core_metrics(s.core)->pinned_blocks, 0);
    ck_assert_uint_eq(core_metrics(s.core)->blocks_present, blocks);
    nothing_is_held();
}

START_TEST(a_long_name_lets_go_of_its_blocks_in_slices)
{
    name_long();
    const uint64_t corr = forget_partly(false), again = forget(q, false, 0);
    ck_assert_uint_ge(turns_until(corr), 1);
    ck_assert_uint_eq(forgotten(corr).blocks, 0);
    ck_assert_uint_eq(still_named(), 0); /* the answer says so */
    (void)turns_until(again);
    ck_assert_uint_eq(sr_status(&s, again), KVC_ST_NO_NAME);
    nothing_is_left(LONG_BLOCKS);
}
END_TEST

START_TEST(the_blocks_of_a_long_name_are_evicted_in_slices)
{
    name_long();
    const uint64_t corr = forget_partly(true);
    ck_assert_uint_ge(turns_until(corr), LONG_BLOCKS / 2 - 5);
    ck_assert_uint_eq(forgotten(corr).blocks, LONG_BLOCKS);
    ck_assert_uint_eq(forgotten(corr).bytes, LONG_BYTES);
    ck_assert_uint_eq(forgotten(corr).kept_blocks, 0);
    nothing_is_left(0);
}
END_TEST

START_TEST(a_forget_that_is_cancelled_left_or_late_goes_on)
{
    for (unsigned i = 0; i < 3; i++) {
        name_long();
        const uint64_t corr = forget_partly(true);
        if (i == 0)
            (void)sr_cancel(&s, p, corr);
        else if (i == 1)
            sr_turn(&s, KVC_DEADLINE_DEFAULT_MS);
        else
            sr_leave(&s, p);
        if (i < 2)
            ck_assert_uint_eq(sr_status(&s, corr), i ? KVC_ST_TIMEOUT : KVC_ST_CANCELLED);
        nothing_is_left(0);
    }
}
END_TEST

START_TEST(a_name_that_is_put_again_between_two_slices_keeps_its_blocks)
{
    name_long();
    const uint64_t corr = forget_partly(true), again = put(q, longer.chain, 20);
    (void)turns_until(again);
    ck_assert_uint_eq(sr_status(&s, again), KVC_ST_OK);
    (void)turns_until(corr);
    ck_assert_uint_eq(forgotten(corr).blocks, LONG_BLOCKS - 20);
    ck_assert_uint_eq(forgotten(corr).kept_named, 20);
    ck_assert_uint_eq(forgotten(corr).kept_blocks, 20);
    ck_assert_uint_eq(still_named(), 20);
    ck_assert_ptr_nonnull(named());
    core_check(s.core);
    const uint64_t last = forget(q, true, 0);
    (void)turns_until(last);
    nothing_is_left(0);
}
END_TEST

START_TEST(blocks_that_go_or_are_leased_between_two_slices_of_a_forget)
{
    name_long();
    const uint64_t corr = forget_partly(true);
    struct sr_blocks some = {.ns = longer.ns, .chain = 1, .n = 10};
    const uint64_t lease = sr_acquire(&s, q, &some, false);
    (void)turns_until(lease);
    struct core_name *nm =
        CONTAINER_OF(list_first(&s.core->names->leaving), struct core_name, leave);
    block_kill_tree(s.core, &s.core->blocks[s.core->names->ref[nm->refs].block],
                    KVC_MISS_CORRUPT); /* its bytes are bad */
    core_check(s.core);
    (void)turns_until(corr);
    ck_assert_uint_lt(forgotten(corr).blocks, LONG_BLOCKS - 10);
    ck_assert_uint_eq(forgotten(corr).kept_used, 10);
    ck_assert_uint_eq(forgotten(corr).kept_blocks, 10);
    (void)sr_release(&s, q, sr_held(&s, lease).lease);
    nothing_is_left(10);
}
END_TEST

START_TEST(a_name_past_its_time_lets_go_in_slices)
{
    name_long();
    named()->ttl_ms = 1000;
    name_arm(s.core, named());
    sr_turn(&s, 1100);
    ck_assert_ptr_null(named());
    ck_assert_uint_gt(still_named(), 0);
    ck_assert_uint_lt(still_named(), LONG_BLOCKS + 1);
    nothing_is_left(LONG_BLOCKS);
}
END_TEST

START_TEST(a_name_that_is_pinned_lets_go_of_that_first)
{
    name_long();
    struct core_seq seq;
    ck_assert(core_name_seq(s.core, named(), &seq));
    ck_assert_int_eq(name_pin(s.core, named(), &seq), 0);
    const uint64_t corr = forget(p, true, 0);
    (void)turns_until(corr);
    ck_assert_uint_eq(forgotten(corr).blocks, LONG_BLOCKS);
    nothing_is_left(0);
}
END_TEST

int main(void)
{
    Suite *su = suite_create("turns_names");
    TCase *t = tcase_create("load");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_long_name_is_loaded_in_slices);
    tcase_add_test(t, a_load_that_is_cancelled_or_left_between_two_slices_holds_nothing);
    tcase_add_test(t, a_name_that_is_forgotten_between_two_slices_is_loaded_as_it_was);
    tcase_add_test(t, a_block_that_goes_between_two_slices_is_not_loaded);
    suite_add_tcase(su, t);
    t = tcase_create("forget");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_long_name_lets_go_of_its_blocks_in_slices);
    tcase_add_test(t, the_blocks_of_a_long_name_are_evicted_in_slices);
    tcase_add_test(t, a_forget_that_is_cancelled_left_or_late_goes_on);
    tcase_add_test(t, a_name_that_is_put_again_between_two_slices_keeps_its_blocks);
    tcase_add_test(t, blocks_that_go_or_are_leased_between_two_slices_of_a_forget);
    tcase_add_test(t, a_name_past_its_time_lets_go_in_slices);
    tcase_add_test(t, a_name_that_is_pinned_lets_go_of_that_first);
    suite_add_tcase(su, t);
    t = tcase_create("load_storage");
    tcase_add_checked_fixture(t, setup_storage, teardown);
    tcase_add_test(t, what_a_long_name_lacks_is_held_in_slices_and_waited_for);
    tcase_add_test(t, a_load_that_is_cancelled_while_it_is_made_holds_nothing);
    tcase_add_test(t, more_than_a_client_may_hold_is_begun_and_not_waited_for);
    tcase_add_test(t, what_nobody_waits_for_is_begun_in_slices);
    tcase_add_test(t, a_load_whose_deadline_comes_tells_what_there_is);
    suite_add_tcase(su, t);
    return check_run(su);
}
