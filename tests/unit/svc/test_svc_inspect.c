/* SPDX-License-Identifier: Apache-2.0 */
/* What operators ask for: blocks one by one, verification, the trace of requests. */
#include <check.h>
#include <stdlib.h>

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

/* ---- BLOCKS ---- */

static uint64_t send_blocks(struct sr_peer *p, const struct msg_blocks *msg)
{
    return sr_send(&s, p,
                   codec_enc_blocks(s.buf, sizeof(s.buf), sr_head(&s, KVC_OP_BLOCKS, 0), msg));
}

static struct msg_blocks_reply blocks(struct sr_peer *p, const struct msg_blocks *msg)
{
    struct msg_reply_head head;
    struct msg_blocks_reply reply;
    const struct sr_reply *r = sr_reply(&s, send_blocks(p, msg));
    ck_assert_int_eq(codec_dec_blocks_reply(r->bytes, r->len, &head, &reply), 0);
    return reply;
}

START_TEST(a_chain_is_listed_in_pieces)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    uint8_t key[KVC_KEY_BYTES], parent[KVC_KEY_BYTES];
    sr_key(1, 4, key);
    struct msg_blocks msg = {.ns = store_chain(p, 5), .key = {key, sizeof(key)}, .limit = 3};
    struct msg_blocks_reply r = blocks(p, &msg);
    ck_assert_uint_eq(r.nitems, 3);
    ck_assert_uint_ne(r.cursor, 0);
    sr_key(1, 3, parent);
    ck_assert_mem_eq(r.items[0].key, key, sizeof(key));
    ck_assert_mem_eq(r.items[0].parent.p, parent, sizeof(parent));
    ck_assert_uint_eq(r.items[0].depth, 4);
    ck_assert_uint_eq(r.items[0].state, KVC_BLOCK_PRESENT);
    ck_assert_uint_eq(r.items[0].tier, KVC_TIER_HOST);
    ck_assert_uint_eq(r.items[0].bytes, 64);
    ck_assert_uint_eq(r.items[1].children, 1);
    msg.cursor = r.cursor;
    r = blocks(p, &msg);
    ck_assert_uint_eq(r.nitems, 2);
    ck_assert_uint_eq(r.cursor, 0);
    ck_assert_uint_eq(r.items[1].parent.n, 0);
}
END_TEST

START_TEST(blocks_of_others_are_no_namespace)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096), *two = sr_peer(&s, 1, SR_UID_TWO, 0);
    struct sr_peer *ops = sr_peer(&s, 2, SR_UID_OPS, 0);
    struct msg_blocks msg = {.ns = store_chain(p, 5), .mode = KVC_WALK_ROOTS, .limit = 9};
    ck_assert_uint_eq(sr_status(&s, send_blocks(two, &msg)), KVC_ST_NO_NAMESPACE);
    ck_assert_uint_eq(blocks(ops, &msg).nitems, 1);
    msg.group = 3;
    ck_assert_uint_eq(sr_status(&s, send_blocks(p, &msg)), KVC_ST_BAD_ARGUMENT);
}
END_TEST

int main(void)
{
    Suite *su = suite_create("inspect");
    TCase *t = tcase_create("inspect");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_chain_is_listed_in_pieces);
    tcase_add_test(t, blocks_of_others_are_no_namespace);
    suite_add_tcase(su, t);
    SRunner *sr = srunner_create(su);
    srunner_run_all(sr, CK_NORMAL);
    int bad = srunner_ntests_failed(sr);
    srunner_free(sr);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}
