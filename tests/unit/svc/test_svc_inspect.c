/* SPDX-License-Identifier: Apache-2.0 */
/* What operators ask for: blocks one by one, verification, the trace of requests. */
#include <stdlib.h>

#include "cases.h"
#include "svc_rig.h"

static struct srig s;

static void setup(void)
{
    sr_defaults(&s);
    sr_begin(&s);
}

static void teardown(void)
{
    sr_end(&s);
}

/* Chain 1 of `n` blocks in a new namespace of peer 0; returns the namespace. */
static uint32_t store_chain(struct sr_peer *p, uint32_t n)
{
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = n};
    uint64_t stored = sr_store(&s, p, &b);
    sr_copies(&s);
    sr_all(&s, stored, KVC_ST_OK);
    return b.ns;
}

/* ---- blocks ---- */

CASES(.setup = setup, .teardown = teardown);

CASE(a_chain_is_listed_in_pieces)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    uint8_t key[KVC_KEY_BYTES], parent[KVC_KEY_BYTES], cursor[KVC_CURSOR_MAX];
    static const uint8_t none[KVC_KEY_BYTES];
    struct kvc_block_info x[3];
    sr_key(1, 4, key);
    struct msg_list msg = {
        .table = KVC_TABLE_BLOCKS, .ns = store_chain(p, 5), .keys = {key, sizeof key}, .max = 3};
    msg.cursor = sr_page(&s, p, &msg, cursor, x, 3);
    ck_assert_uint_ne(msg.cursor.n, 0);
    sr_key(1, 3, parent);
    ck_assert_mem_eq(x[0].key, key, sizeof key);
    ck_assert_mem_eq(x[0].parent, parent, sizeof parent);
    ck_assert_uint_eq(x[0].ns, msg.ns);
    ck_assert_uint_eq(x[0].depth, 4);
    ck_assert_uint_eq(x[0].state, KVC_BLOCK_PRESENT);
    ck_assert_uint_eq(x[0].tier, KVC_TIER_HOST);
    ck_assert_uint_eq(x[0].bytes, 64);
    ck_assert_uint_eq(x[1].children, 1);
    msg.cursor = sr_page(&s, p, &msg, cursor, x, 2);
    ck_assert_uint_eq(msg.cursor.n, 0);
    ck_assert_mem_eq(x[1].parent, none, sizeof none);
}

CASE(blocks_of_others_are_no_namespace)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096), *two = sr_peer(&s, 1, SR_UID_TWO, 0);
    struct sr_peer *ops = sr_peer(&s, 2, SR_UID_OPS, 0);
    uint8_t key[KVC_KEY_BYTES], cursor[KVC_CURSOR_MAX];
    struct kvc_block_info x[1];
    struct msg_list msg = {
        .table = KVC_TABLE_BLOCKS, .ns = store_chain(p, 5), .mode = KVC_WALK_ROOTS};
    ck_assert_uint_eq(sr_list(&s, two, &msg)->status, KVC_ST_NO_NAMESPACE);
    (void)sr_page(&s, ops, &msg, cursor, x, 1);
    msg.group = 3;
    ck_assert_uint_eq(sr_list(&s, p, &msg)->status, KVC_ST_BAD_ARGUMENT);
    sr_key(1, 2, key);
    msg = (struct msg_list){
        .table = KVC_TABLE_BLOCKS, .mode = KVC_WALK_KEYS, .ns = msg.ns, .keys = {key, sizeof key}};
    ck_assert_uint_eq(sr_list(&s, two, &msg)->status, KVC_ST_NO_NAMESPACE);
    (void)sr_page(&s, p, &msg, cursor, x, 1);
    ck_assert_uint_eq(x[0].state, KVC_BLOCK_PRESENT);
    msg.ns = 0;
    (void)sr_page(&s, two, &msg, cursor, x, 1);
    ck_assert_uint_eq(x[0].state, KVC_BLOCK_ABSENT);
    ck_assert_uint_eq(x[0].reason, KVC_MISS_NEVER);
}

/* ---- VERIFY ---- */

static uint64_t send_verify(struct sr_peer *p, uint32_t ns, uint32_t deadline_ms)
{
    struct msg_verify msg = {.ns = ns, .bytes_max = 1u << 20};
    return sr_send(
        &s, p,
        codec_enc_verify(s.buf, sizeof(s.buf), sr_head(&s, KVC_OP_VERIFY, deadline_ms), &msg));
}

static struct msg_verify_reply verified(uint64_t corr)
{
    struct msg_reply_head head;
    struct msg_verify_reply reply;
    SR_READ(&s, corr, verify, &head, &reply);
    return reply;
}

/* One bit of block i of chain 1. */
static void flip(struct sr_peer *p, uint32_t ns, uint32_t i)
{
    struct sr_blocks b = {.ns = ns, .chain = 1, .n = i + 1};
    struct msg_acquire_reply held = sr_held(&s, sr_acquire(&s, p, &b, false));
    struct msg_loc loc;
    codec_get_loc(held.groups[0].locs.p + (size_t)i * KVC_LOC_BYTES, &loc);
    struct tier_view view = {.chunk = loc.chunk, .off = loc.off, .gen = loc.gen};
    fake_tier_flip(s.tier, &view, 5);
    (void)sr_release(&s, p, held.lease);
}

CASE(a_corrupt_block_is_reported_and_missed)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    uint32_t ns = store_chain(p, 5);
    uint8_t key[KVC_KEY_BYTES];
    flip(p, ns, 3);
    uint64_t corr = send_verify(p, ns, 0);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    sr_copies(&s);
    struct msg_verify_reply r = verified(corr);
    for (unsigned i = 0; i < 9 && r.ncorrupt == 0; i++) { /* an eighth of five is one block */
        struct msg_verify msg = {.ns = ns, .cursor = r.cursor, .bytes_max = 1};
        corr = SR_SEND(&s, p, verify, VERIFY, &msg);
        sr_copies(&s);
        r = verified(corr);
    }
    sr_key(1, 3, key);
    ck_assert_uint_eq(r.ncorrupt, 1);
    ck_assert_mem_eq(r.corrupt[0].key, key, sizeof(key));
    ck_assert_uint_eq(r.corrupt[0].below, 1);
    ck_assert_uint_eq(r.corrupt[0].ns, ns);
    struct sr_blocks all = {.ns = ns, .chain = 1, .n = 5};
    corr = sr_lookup(&s, p, &all);
    ck_assert_uint_eq(sr_hit(&s, corr), 24);
    struct msg_reply_head head;
    struct msg_lookup_reply looked;
    const struct sr_reply *y = sr_reply(&s, corr);
    ck_assert_int_eq(codec_dec_lookup_reply(y->bytes, y->len, &head, &looked), 0);
    ck_assert_uint_eq(looked.groups[0].reason, KVC_MISS_CORRUPT);
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
}

CASE(a_verify_that_comes_too_late_or_is_cancelled_says_so_once)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    uint32_t ns = store_chain(p, 5);
    struct sr_peer *also = sr_peer(&s, 1, SR_UID_ONE, 0);
    uint64_t late = send_verify(p, ns, 50), stopped = send_verify(also, ns, 0);
    ck_assert_uint_eq(sr_status(&s, send_verify(p, ns, 0)), KVC_ST_BUSY);
    sr_turn(&s, 100);
    ck_assert_uint_eq(sr_status(&s, late), KVC_ST_TIMEOUT);
    uint64_t cancel = sr_cancel(&s, also, stopped);
    ck_assert_uint_eq(sr_replies(&s, stopped), 0);
    sr_copies(&s);
    ck_assert_uint_eq(sr_status(&s, stopped), KVC_ST_CANCELLED);
    ck_assert_uint_lt(sr_order(&s, stopped), sr_order(&s, cancel));
    ck_assert_uint_eq(sr_replies(&s, late), 1);
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
}

CASE(a_session_that_leaves_takes_its_verify_with_it)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    uint64_t corr = send_verify(p, store_chain(p, 5), 0);
    sr_leave(&s, p);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 1);
    sr_copies(&s);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 0);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
}

CASE(everybody_may_verify_their_own)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096), *two = sr_peer(&s, 1, SR_UID_TWO, 0);
    uint32_t ns = store_chain(p, 5);
    ck_assert_uint_eq(sr_status(&s, send_verify(two, ns, 0)), KVC_ST_NO_NAMESPACE);
    uint64_t nothing = send_verify(two, 0, 0);
    ck_assert_uint_eq(verified(nothing).blocks, 0);
}

/* ---- TRACE ---- */

static uint64_t send_trace(struct sr_peer *p, uint8_t action, uint64_t bytes)
{
    struct msg_trace msg = {.action = action, .bytes = bytes};
    return SR_SEND(&s, p, trace, TRACE, &msg);
}

static uint64_t send_dump(struct sr_peer *p, uint32_t ns, uint64_t cursor)
{
    struct msg_trace_dump msg = {.ns = ns, .cursor = cursor};
    return SR_SEND(&s, p, trace_dump, TRACE_DUMP, &msg);
}

static struct msg_trace_dump_reply dumped(uint64_t corr)
{
    struct msg_reply_head head;
    struct msg_trace_dump_reply reply;
    SR_READ(&s, corr, trace_dump, &head, &reply);
    return reply;
}

CASE(a_trace_has_acquires_and_what_follows_them)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096), *ops = sr_peer(&s, 1, SR_UID_OPS, 0);
    struct sr_blocks prompt = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 4};
    struct sr_blocks out = {.ns = prompt.ns, .chain = 1, .first = 4, .n = 2};
    (void)sr_acquire(&s, p, &prompt, false); /* before it is on */
    ck_assert_uint_eq(sr_status(&s, send_trace(ops, KVC_TRACE_ON, KVC_TRACE_BYTES_MIN)), 0);
    (void)sr_lookup(&s, p, &prompt);
    (void)sr_acquire(&s, p, &prompt, false);
    (void)sr_store(&s, p, &prompt);
    (void)sr_store(&s, p, &out);
    sr_copies(&s);
    (void)sr_acquire(&s, p, &prompt, true); /* recorded when it arrives, waiting or not */
    struct msg_trace_dump_reply r = dumped(send_dump(ops, 0, 0));
    ck_assert_uint_eq(r.nitems, 2);
    ck_assert_uint_eq(r.cursor, 0);
    ck_assert_uint_eq(r.items[0].block_tokens, 8);
    ck_assert_uint_eq(r.items[0].input_tokens, 32);
    ck_assert_uint_eq(r.items[0].output_tokens, 16);
    ck_assert_uint_eq(r.items[0].ids.n, 4 * 8);
    ck_assert_mem_eq(r.items[0].ids.p, r.items[1].ids.p, 4 * 8);
    ck_assert_uint_eq(dumped(send_dump(ops, prompt.ns + 1, 0)).nitems, 0);
    ck_assert_uint_eq(sr_status(&s, send_trace(ops, KVC_TRACE_ON, 0)), KVC_ST_EXISTS);
    ck_assert_uint_eq(sr_status(&s, send_trace(ops, KVC_TRACE_OFF, 0)), 0);
    ck_assert_uint_eq(sr_status(&s, send_dump(ops, 0, 0)), KVC_ST_GONE);
}

CASE(a_long_trace_comes_in_pieces)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096), *ops = sr_peer(&s, 1, SR_UID_OPS, 0);
    struct sr_blocks prompt = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 4};
    ck_assert_uint_eq(sr_status(&s, send_trace(ops, KVC_TRACE_ON, KVC_TRACE_BYTES_MIN)), 0);
    for (unsigned i = 0; i < 600; i++)
        (void)sr_acquire(&s, p, &prompt, false);
    uint64_t cursor = 0;
    unsigned n = 0, pieces = 0;
    do {
        struct msg_trace_dump_reply r = dumped(send_dump(ops, 0, cursor));
        cursor = r.cursor;
        n += r.nitems;
        ck_assert_uint_lt(pieces++, 10);
    } while (cursor);
    ck_assert_uint_eq(n, 600);
    ck_assert_uint_eq(pieces, 3);
    (void)dumped(send_dump(ops, 0, UINT64_MAX)); /* a cursor that nobody gave */
}

CASE(a_trace_is_for_administrators)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 0);
    ck_assert_uint_eq(sr_status(&s, send_trace(p, KVC_TRACE_ON, 0)), KVC_ST_DENIED);
    ck_assert_uint_eq(sr_status(&s, send_dump(p, 0, 0)), KVC_ST_DENIED);
}
