/* SPDX-License-Identifier: Apache-2.0 */
/* Services of which a turn has one slice of requests, two workers of one principal, and words:
 *
 *     sr_defaults(&s); s.core_cfg.slice_work = 10; ...; begin_turns();
 *     CASES(.setup = ..., .teardown = end_turns);
 *
 * A request is on its way from turn to turn; turns_until(corr) has turns until it is answered. */
#ifndef KVC_TEST_TURNS_RIG_H
#define KVC_TEST_TURNS_RIG_H

#include "admin.h"
#include "cases.h"
#include "svc__.h"
#include "svc_rig.h"

#define LONG_BLOCKS 40u
#define LONG_BYTES  (LONG_BLOCKS * 64u)
#define TURNS       200u /* more turns than any request takes */

static CK_ATTRIBUTE_UNUSED struct srig s;
static CK_ATTRIBUTE_UNUSED struct sr_peer *p, *q;
static CK_ATTRIBUTE_UNUSED struct sr_blocks longer; /* in the namespace; not stored yet */
static CK_ATTRIBUTE_UNUSED struct sr_storage storage;

static inline void begin_workers(void)
{
    s.cfg.turn_work = 1;
    sr_begin(&s);
    p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    sr_turn(&s, 0);
    q = sr_peer(&s, 1, SR_UID_ONE, 4096);
    sr_turn(&s, 0);
}

/* begin_turns() and a namespace. */
static inline void begin_turns(void)
{
    begin_workers();
    longer = (struct sr_blocks){.ns = sr_ns(&s, p, "m"), .chain = 1, .n = LONG_BLOCKS};
    sr_turn(&s, 0);
}

/* Call it before sr_begin(): sets storage, and host memory for 64 blocks. */
static inline void with_storage(void)
{
    storage = (struct sr_storage){.paths = 0};
    s.storage = &storage;
    s.regions = 1;
}

static inline void end_turns(void)
{
    sr_end(&s);
    s.storage = NULL;
}

/* Runs turns until the request is answered. Returns their number. */
static inline unsigned turns_until(uint64_t corr)
{
    unsigned n = 0;
    for (; sr_replies(&s, corr) == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
    }
    return n;
}

/* The same, and ends copies meanwhile. */
static inline void copies_until(uint64_t corr)
{
    for (unsigned n = 0; sr_replies(&s, corr) == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_copies(&s);
        sr_turn(&s, 0);
    }
}

static inline void store(const struct sr_blocks *b)
{
    const uint64_t corr = sr_store(&s, q, b);
    copies_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_OK);
}

static inline void evict_all(void)
{
    const struct msg_evict all = {.ns = longer.ns};
    (void)SR_SEND(&s, q, evict, EVICT, &all);
    for (unsigned i = 0; i < 4; i++)
        while (core_background_step(s.core))
            continue;
}

static inline void no_call_is_left(void)
{
    ck_assert_uint_eq(sr_metric(&s, "calls") + s.kept, 0);
    core_check(s.core);
}

/* The first blocks of a chain, in one group. */
static inline struct msg_seq seq_of(uint32_t chain, uint32_t blocks)
{
    static uint8_t keys[LONG_BLOCKS * KVC_KEY_BYTES];
    for (uint32_t i = 0; i < blocks; i++)
        sr_key(chain, i, &keys[(size_t)i * KVC_KEY_BYTES]);
    return (struct msg_seq){.ns = longer.ns,
                            .tokens = blocks * 8,
                            .ngroups = 1,
                            .keys = {{keys, blocks * KVC_KEY_BYTES}}};
}

/* ---- the conversation "chat" ---- */

static inline struct core_name *named(void)
{
    const struct core_name_id id = {
        .kind = KVC_NAME_CONVERSATION, .name = (const uint8_t *)"chat", .name_bytes = 4};
    struct core_name *nm = NULL;
    return core_name_find(s.core, s.svc->sessions[1].client, &id, &nm) == 0 ? nm : NULL;
}

/* Puts the conversation on the first blocks of a chain. more: flags, ids. */
static inline uint64_t put_as(struct sr_peer *peer, uint32_t chain, uint32_t blocks,
                              struct msg_name_put msg)
{
    msg.kind = KVC_NAME_CONVERSATION;
    if (!msg.name.n)
        msg.name = codec_text("chat");
    msg.seq = seq_of(chain, blocks);
    return SR_SEND(&s, peer, name_put, NAME_PUT, &msg);
}

static inline uint64_t put(struct sr_peer *peer, uint32_t chain, uint32_t blocks)
{
    return put_as(peer, chain, blocks, (struct msg_name_put){0});
}

static inline struct msg_name_forget_reply forgotten(uint64_t corr)
{
    struct msg_reply_head head;
    struct msg_name_forget_reply reply;
    SR_READ(&s, corr, name_forget, &head, &reply);
    ck_assert_uint_eq(head.status, KVC_ST_OK);
    return reply;
}

static inline struct block *block_at(uint32_t i)
{
    uint8_t key[KVC_KEY_BYTES];
    const struct core_ns *ns = core_ns_next(s.core, s.svc->sessions[0].client, longer.ns - 1);
    sr_key(longer.chain, i, key);
    return index_get(s.core, ns, 0, key);
}

#endif
