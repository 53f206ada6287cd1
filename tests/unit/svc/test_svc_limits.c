/* SPDX-License-Identifier: Apache-2.0 */
/* What a session is refused: arguments of each operation, token ids, silence after connecting. */
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

CASES(.setup = setup, .teardown = teardown);

/* A head that is good, and nothing behind it. */
CASE_RANGE(every_operation_without_its_arguments_gets_one_error_and_the_session_lives, KVC_OP_HELLO,
           KVC_OP_EVICT + 1)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_OPS, 0);
    uint8_t op = (uint8_t)_i;
    uint8_t raw[] = {0x93, op, 0xcc, 200, 0};
    sr_send_raw(&s, p->route, KVC_ROUTE_BYTES, raw, sizeof raw);
    sr_settle(&s);
    unsigned status = sr_status(&s, 200);
    const bool gone = op == 14 || op == 15 || op == 17; /* of version 1 */
    if (op == KVC_OP_PING || op == KVC_OP_STATS)
        ck_assert_uint_eq(status, KVC_ST_OK); /* these have none */
    else
        ck_assert_uint_eq(status, gone ? KVC_ST_UNKNOWN_OP : KVC_ST_BAD_MESSAGE);
    ck_assert_uint_eq(sr_status(&s, sr_bare(&s, p, KVC_OP_PING)), KVC_ST_OK);
}

static uint32_t ns_with_tokens(struct sr_peer *p)
{
    struct msg_ns_open msg = {.model = codec_text("m"),
                              .position = codec_text("rope"),
                              .attention = codec_text("causal"),
                              .shards = 1,
                              .flags = KVC_F_TOKENS,
                              .ngroups = 1};
    msg.groups[0] = (struct msg_group){.block_tokens = 8, .block_bytes = 64};
    uint64_t corr = SR_SEND(&s, p, ns_open, NS_OPEN, &msg);
    struct msg_reply_head head;
    struct msg_ns_open_reply reply;
    SR_READ(&s, corr, ns_open, &head, &reply);
    return reply.ns;
}

static uint64_t store_one(struct sr_peer *p, uint32_t ns, uint32_t token_bytes, uint32_t offsets)
{
    static uint8_t ids[64 * 4], off[2 * 8];
    static const uint8_t key[KVC_KEY_BYTES] = {1};
    struct msg_store msg = {.reserve = {.ns = ns, .keys = {key, sizeof key}},
                            .offsets = {off, offsets * 8},
                            .tokens = {ids, token_bytes}};
    return SR_SEND(&s, p, store, STORE, &msg);
}

CASE(token_ids_are_whole_and_not_more_than_the_blocks_hold)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    uint32_t ns = ns_with_tokens(p);
    uint64_t broken = store_one(p, ns, 8 * 4 - 1, 1);
    ck_assert_uint_eq(sr_status(&s, broken), KVC_ST_BAD_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(sr_detail(&s, broken), "tokens"));
    uint64_t many = store_one(p, ns, 9 * 4, 1);
    ck_assert_uint_eq(sr_status(&s, many), KVC_ST_BAD_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(sr_detail(&s, many), "tokens"));
    ck_assert_uint_eq(core_metrics(s.core)->blocks_pending, 0);
    uint64_t good = store_one(p, ns, 8 * 4, 1);
    sr_copies(&s);
    sr_all(&s, good, KVC_ST_OK);
}

CASE(a_store_has_one_offset_per_key)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    uint64_t two = store_one(p, sr_ns(&s, p, "m"), 0, 2);
    ck_assert_uint_eq(sr_status(&s, two), KVC_ST_BAD_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(sr_detail(&s, two), "offsets"));
    ck_assert_uint_eq(core_metrics(s.core)->reservations, 0);
}

CASE(a_text_with_a_zero_in_it_is_no_model)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 0);
    struct msg_ns_open msg = {.model = {(const uint8_t *)"a\0b", 3},
                              .position = codec_text("rope"),
                              .attention = codec_text("causal"),
                              .shards = 1,
                              .ngroups = 1};
    msg.groups[0] = (struct msg_group){.block_tokens = 8, .block_bytes = 64};
    int len = codec_enc_ns_open(s.buf, sizeof s.buf, sr_head(&s, KVC_OP_NS_OPEN, 0), &msg);
    if (len > 0)
        ck_assert_uint_eq(sr_status(&s, sr_send(&s, p, len)), KVC_ST_BAD_ARGUMENT);
    else
        ck_assert_int_eq(len, -EINVAL); /* the encoder refuses it as well */
}

CASE(who_connects_and_says_nothing_loses_the_place)
{
    struct sr_peer *p = sr_connect(&s, 0, SR_UID_ONE);
    sr_turn(&s, 4000);
    ck_assert(!p->closed);
    ck_assert_uint_eq(p->messages, 0);
    sr_turn(&s, 2000);
    sr_settle(&s);
    ck_assert_uint_eq(sr_dropped_status(p), KVC_ST_TIMEOUT);
}

CASE(who_waits_when_the_daemon_leaves_is_answered)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096), *q = sr_peer(&s, 1, SR_UID_ONE, 0);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 1};
    (void)sr_reserve(&s, p, &b);
    b.ns = sr_ns(&s, q, "m");
    uint64_t wait = sr_acquire(&s, q, &b, true);
    ck_assert_uint_eq(sr_replies(&s, wait), 0);
    svc_shutdown(s.svc);
    ck_assert_uint_eq(sr_held(&s, wait).hit_tokens, 0);
    ck_assert(svc_is_quiet(s.svc));
}
