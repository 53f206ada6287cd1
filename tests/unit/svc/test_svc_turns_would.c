/* SPDX-License-Identifier: Apache-2.0 */
/* What a long name would let go of is counted in slices: the dry run of NAME_FORGET. */
#include "admin.h"
#include "cases.h"
#include "core_names.h"
#include "svc__.h"
#include "svc_rig.h"

#define LONG_BLOCKS 40u
#define SLICE       10u
#define TURNS       200u /* more than any of them takes */

static struct srig s;
static struct sr_peer *p, *q;
static struct sr_blocks longer;

static void setup(void)
{
    sr_defaults(&s);
    s.core_cfg.slice_work = SLICE;
    s.core_cfg.names_max = 4;
    s.core_cfg.lease_bytes_max = LONG_BLOCKS * 64;
    s.cfg.turn_work = 1;
    sr_begin(&s);
    p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    sr_turn(&s, 0);
    q = sr_peer(&s, 1, SR_UID_ONE, 4096);
    sr_turn(&s, 0);
    longer = (struct sr_blocks){.ns = sr_ns(&s, p, "m"), .chain = 1, .n = LONG_BLOCKS};
    sr_turn(&s, 0);
}

static void teardown(void)
{
    sr_end(&s);
}

static void turns_until(uint64_t corr)
{
    for (unsigned n = 0; sr_replies(&s, corr) == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_copies(&s);
        sr_turn(&s, 0);
    }
}

static uint64_t put(uint32_t chain, uint32_t blocks)
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
    return sr_send(&s, q,
                   codec_enc_name_put(s.buf, sizeof s.buf, sr_head(&s, KVC_OP_NAME_PUT, 0), &msg));
}

static void name_long(void)
{
    turns_until(sr_store(&s, q, &longer));
    const uint64_t corr = put(longer.chain, LONG_BLOCKS);
    turns_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_OK);
    sr_settle(&s);
}

static uint64_t forget(bool dry_run)
{
    const struct msg_name_forget msg = {.kind = KVC_NAME_CONVERSATION,
                                        .evict = true,
                                        .dry_run = dry_run,
                                        .name = codec_text("chat")};
    return sr_send(
        &s, p,
        codec_enc_name_forget(s.buf, sizeof s.buf, sr_head(&s, KVC_OP_NAME_FORGET, 0), &msg));
}

static struct msg_name_forget_reply told(uint64_t corr)
{
    struct msg_reply_head head;
    struct msg_name_forget_reply reply;
    const struct sr_reply *r = sr_reply(&s, corr);
    ck_assert_int_eq(codec_dec_name_forget_reply(r->bytes, r->len, &head, &reply), 0);
    ck_assert_uint_eq(head.status, KVC_ST_OK);
    return reply;
}

/* It has looked at some blocks, and not at others. */
static uint64_t looked_partly(void)
{
    const uint64_t corr = forget(true);
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    return corr;
}

static void nothing_is_under_way(void)
{
    ck_assert_uint_eq(sr_metric(&s, "calls") + s.kept, 0);
    core_check(s.core);
}

CASES(.setup = setup, .teardown = teardown);

CASE(a_long_name_is_looked_at_in_slices)
{
    name_long();
    uint64_t before = core_work(s.core);
    const uint64_t corr = forget(true);
    unsigned turns = 0;
    for (; sr_replies(&s, corr) == 0; turns++) {
        ck_assert_uint_lt(turns, TURNS);
        ck_assert_uint_le(core_work(s.core) - before, 2 * SLICE);
        before = core_work(s.core);
        sr_turn(&s, 0);
    }
    ck_assert_uint_ge(turns, LONG_BLOCKS / SLICE);
    const struct msg_name_forget_reply would = told(corr);
    ck_assert_uint_eq(would.blocks, LONG_BLOCKS);
    const uint64_t gone = forget(false);
    turns_until(gone);
    const struct msg_name_forget_reply did = told(gone);
    ck_assert_mem_eq(&did, &would, sizeof did);
    nothing_is_under_way();
}

static struct core_name *named(void)
{
    const struct core_name_id id = {
        .kind = KVC_NAME_CONVERSATION, .name = (const uint8_t *)"chat", .name_bytes = 4};
    struct core_name *nm = NULL;
    ck_assert_int_eq(core_name_find(s.core, s.svc->sessions[1].client, &id, &nm), 0);
    return nm;
}

CASE(a_name_that_is_forgotten_meanwhile_is_none)
{
    name_long();
    const uint64_t corr = looked_partly();
    ck_assert_int_eq(core_name_forget(s.core, named(), NULL, NULL), 0);
    turns_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_NO_NAME);
    nothing_is_under_way();
}

/* It goes on, so that all that has been looked at stays. */
CASE(a_name_that_is_put_elsewhere_meanwhile_is_looked_at_there)
{
    static uint8_t keys[LONG_BLOCKS * KVC_KEY_BYTES];
    const char *why;
    struct core_named got;
    name_long();
    struct core_seq seq;
    ck_assert(core_name_seq(s.core, named(), &seq));
    memcpy(keys, seq.keys[0], sizeof keys);
    seq.keys[0] = keys;
    turns_until(put(longer.chain, LONG_BLOCKS - 10));
    const struct core_name_put in = {
        .id = {.kind = KVC_NAME_CONVERSATION, .name = (const uint8_t *)"chat", .name_bytes = 4},
        .seq = &seq};
    const uint64_t corr = looked_partly();
    ck_assert_int_eq(core_name_put(s.core, s.svc->sessions[1].client, &in, NULL, &got, &why), 0);
    turns_until(corr);
    ck_assert_uint_eq(told(corr).blocks, LONG_BLOCKS);
    ck_assert_uint_eq(told(corr).kept_blocks, 0);
    nothing_is_under_way();
}

static struct block *block_at(uint32_t i)
{
    uint8_t key[KVC_KEY_BYTES];
    const struct core_ns *ns = core_ns_next(s.core, s.svc->sessions[0].client, longer.ns - 1);
    sr_key(longer.chain, i, key);
    return index_get(s.core, ns, 0, key);
}

CASE(blocks_that_go_meanwhile_are_not_counted)
{
    name_long();
    const uint64_t corr = looked_partly();
    block_kill_tree(s.core, block_at(5), KVC_MISS_CORRUPT); /* its bytes are bad */
    core_check(s.core);
    turns_until(corr);
    ck_assert_uint_eq(told(corr).blocks, 5);
    ck_assert_uint_eq(told(corr).kept_blocks, 0);
    nothing_is_under_way();
}

CASE(who_calls_it_off_or_leaves_has_changed_nothing)
{
    name_long();
    uint64_t corr = looked_partly();
    (void)sr_cancel(&s, p, corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_CANCELLED);
    nothing_is_under_way();
    corr = looked_partly();
    sr_turn(&s, KVC_DEADLINE_DEFAULT_MS);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_TIMEOUT);
    nothing_is_under_way();
    (void)looked_partly();
    sr_leave(&s, p);
    sr_turn(&s, 0);
    nothing_is_under_way();
    ck_assert_uint_eq(core_metrics(s.core)->named_blocks, LONG_BLOCKS);
    ck_assert_uint_eq(core_metrics(s.core)->names, 1);
}
