/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that do not read: their queues fill, they are dropped, and nobody else notices. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "raw.h"
#include "rig.h"

#define BT      16u
#define N       8u
#define MIB     (1u << 20)
#define STATS   3000u /* replies of some KiB each: more than the queue to one peer takes */
#define MAPS    4000u /* answers that an attach connection does not hold */
#define PATIENT 60000u

static struct rig rig;
static struct raw slow;
static struct kvc *k;
static struct kvc_ns *ns;
static uint8_t keys[N * KVC_KEY_BYTES], statuses[N];

static void setup(void)
{
    rig_start(&rig, NULL);
    k = rig_open(&rig, MIB);
    ns = rig_ns(k, "m", BT, RIG_BLOCK);
    rig_keys(ns, 1, BT, N, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, N, BT, RIG_BLOCK, statuses), N);
}

static void teardown(void)
{
    raw_close(&slow);
    kvc_close(&k);
    rig_stop(&rig);
    rig_clean(&rig);
}

/* Everybody else stores and reads as ever. */
static void others_are_served(uint32_t chain)
{
    uint8_t other[N * KVC_KEY_BYTES];
    rig_keys(ns, chain, BT, N, other);
    ck_assert_uint_eq(rig_store(k, ns, other, 0, N, BT, RIG_BLOCK, statuses), N);
    ck_assert_uint_eq(rig_load(k, ns, other, N, BT, RIG_BLOCK), N);
}

/* What the daemon said last on the attach connection, DROPPED or nothing more. */
static unsigned status_of_the_end(void)
{
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_dropped d;
    for (int n; (n = raw_news(&slow, buf, PATIENT)) > 0;)
        if (codec_att_code(buf, (size_t)n) == KVC_ATTACH_DROPPED) {
            ck_assert_int_eq(codec_dec_att_dropped(buf, (size_t)n, &d), 0);
            return d.status;
        }
    return KVC_ST_OK;
}

CASES(.setup = setup, .teardown = teardown, .timeout_s = 280);

CASE(who_never_reads_replies_is_dropped_and_the_replies_are_counted)
{
    ck_assert_int_eq(raw_open(&slow, rig.socket, 0, 1), 0);
    for (unsigned i = 0; i < STATS; i++) {
        struct msg_head head = raw_head(&slow, KVC_OP_STATS, PATIENT);
        ck_assert(raw_send(&slow, codec_enc_bare(slow.buf, sizeof slow.buf, &head)));
        if (i % 500 == 0)
            others_are_served(10 + i);
    }
    ck_assert_uint_eq(status_of_the_end(), KVC_ST_LIMIT);
    rig_wait_stat(k, "svc.sessions", 1);
    ck_assert_uint_eq(rig_stat(k, "svc.sessions_dropped"), 1);
    ck_assert_uint_ge(rig_stat(k, "svc.replies_lost"), 1);
    others_are_served(2);
}

static void ask_for_chunk(uint32_t chunk)
{
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_map ask = {.chunk = chunk};
    int len = codec_enc_att_map(buf, sizeof buf, &ask);
    ck_assert_int_gt(len, 0);
    for (unsigned i = 0; i < 20000; i++) {
        int err = raw_tell(&slow, buf, (size_t)len);
        if (err != -EAGAIN) {
            ck_assert(err == 0 || err == -EPIPE || err == -ECONNRESET);
            return;
        }
        rig_sleep_ms(1); /* the daemon reads a few of them a turn */
    }
    ck_abort_msg("the daemon does not read the attach connection");
}

CASE(who_never_reads_attach_messages_is_dropped)
{
    ck_assert_int_eq(raw_open(&slow, rig.socket, 0, 0), 0);
    for (unsigned i = 0; i < MAPS; i++)
        ask_for_chunk(1);
    rig_wait_stat(k, "svc.sessions_dropped", 1);
    others_are_served(2);
    rig_wait_stat(k, "svc.sessions", 1); /* it held nothing, so nothing is kept for it */
}

static void acquire_by_hand(void)
{
    struct kvc_ns_spec spec = rig_spec("m", BT, RIG_BLOCK);
    struct msg_acquire m = {.seq = {.ns = kvc_ns_id(ns),
                                    .tokens = N * BT,
                                    .ngroups = spec.groups,
                                    .keys[0] = {keys, sizeof keys}}};
    struct msg_head head = raw_head(&slow, KVC_OP_ACQUIRE, PATIENT);
    struct msg_reply_head reply;
    ck_assert(raw_send(&slow, codec_enc_acquire(slow.buf, sizeof slow.buf, &head, &m)));
    int len = raw_recv(&slow, PATIENT);
    ck_assert_int_gt(len, 0);
    ck_assert_int_eq(codec_dec_reply_head(slow.buf, (size_t)len, &reply), 0);
    ck_assert_uint_eq(reply.status, KVC_ST_OK);
}

CASE(who_holds_blocks_and_could_not_be_told_is_told_when_it_reads_again)
{
    ck_assert_int_eq(raw_open(&slow, rig.socket, 0, 0), 0);
    acquire_by_hand();
    ck_assert_uint_eq(rig_stat(k, "core.leases"), 1);
    for (unsigned i = 0; i < MAPS; i++)
        ask_for_chunk(1);
    rig_wait_stat(k, "svc.sessions_dropped", 1);
    ck_assert_uint_eq(rig_stat(k, "svc.quarantined"), 1);
    ck_assert_uint_eq(rig_stat(k, "core.leases"), 1); /* it may be reading */
    others_are_served(2);
    ck_assert_uint_eq(status_of_the_end(), KVC_ST_LIMIT);
    raw_close(&slow);
    rig_wait_stat(k, "svc.quarantined", 0);
    rig_wait_stat(k, "core.leases", 0);
    rig_wait_stat(k, "svc.sessions", 1);
}
