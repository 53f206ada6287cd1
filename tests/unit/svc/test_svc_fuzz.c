/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random requests, right, wrong and mutilated, from several sessions that come and go, with copies
 * that hang and fail. Every request whose head is good gets exactly one reply, by its deadline,
 * while its session lives; the reply to a CANCEL comes after that of its target.
 *
 * KVC_SEED=n runs that seed alone.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cases.h"
#include "svc_rig.h"

#define SEEDS        12
#define TURNS        1200
#define REQUESTS_MAX 4000

struct sent {
    uint64_t corr, due_ns, target; /* target: of a CANCEL */
    unsigned peer, life;           /* whose, and in which of its lives */
    uint8_t op;
};

static struct srig s;
static struct sent sent[REQUESTS_MAX];
static unsigned nsent, life[SR_PEERS];
static uint64_t state, held[32];
static uint8_t tickets[32][KVC_TICKET_BYTES];
static uint64_t reservations[32];
static uint32_t spaces[SR_PEERS][4]; /* namespaces that a peer has opened */

static uint32_t dice(uint32_t below)
{
    return (uint32_t)(fake_random(&state) % below);
}

static bool lives(unsigned i)
{
    return s.peer[i].conn != UINT32_MAX && !s.peer[i].closed;
}

/* ---- requests ---- */

static struct sr_blocks random_blocks(unsigned peer)
{
    static const char *const subs[] = {NULL, NULL, NULL, NULL, NULL, "a", "b"};
    return (struct sr_blocks){.ns = dice(12) ? spaces[peer][dice(4)] : dice(300000),
                              .chain = dice(5),
                              .first = dice(3) ? 0 : dice(6),
                              .n = 1 + dice(12),
                              .deadline_ms = 1 + dice(200),
                              .sub = subs[dice(7)]};
}

static uint64_t send_evict(struct sr_peer *p, const struct sr_blocks *b)
{
    struct msg_evict msg = {.flags = dice(2) ? KVC_F_DRY_RUN : 0,
                            .ns = dice(2) ? b->ns : 0,
                            .older_than_ms = dice(3) ? dice(2000) : 0,
                            .bytes = dice(1000)};
    return sr_send(&s, p,
                   codec_enc_evict(s.buf, sizeof(s.buf), sr_head(&s, KVC_OP_EVICT, 40), &msg));
}

static uint64_t send_redeem(struct sr_peer *p)
{
    struct msg_redeem msg = {.shard = dice(8) ? 0 : dice(64)};
    memcpy(msg.ticket, tickets[dice(32)], sizeof(msg.ticket));
    return SR_SEND(&s, p, redeem, REDEEM, &msg);
}

static uint64_t send_keys(struct sr_peer *p, const struct sr_blocks *b)
{
    static uint8_t keys[4 * KVC_KEY_BYTES];
    for (unsigned i = 0; i < sizeof(keys); i++)
        keys[i] = (uint8_t)dice(3);
    struct msg_list msg = {.table = KVC_TABLE_BLOCKS,
                           .mode = KVC_WALK_KEYS,
                           .ns = dice(2) ? b->ns : 0,
                           .keys = {keys, sizeof(keys)}};
    return SR_SEND(&s, p, list, LIST, &msg);
}

static uint64_t send_blocks(struct sr_peer *p, const struct sr_blocks *b)
{
    uint8_t key[KVC_KEY_BYTES], cursor[8] = {(uint8_t)dice(64), 0, 0, 0, (uint8_t)dice(4)};
    sr_key(b->chain, b->first, key);
    struct msg_list msg = {.table = KVC_TABLE_BLOCKS,
                           .max = 1 + dice(256),
                           .cursor = {cursor, dice(2) ? 0 : sizeof(cursor)},
                           .ns = b->ns,
                           .group = dice(8) ? 0 : dice(16),
                           .mode = (uint8_t)dice(5),
                           .depth = dice(4)};
    msg.keys = (struct codec_bin){key, msg.mode == KVC_WALK_ROOTS ? 0 : sizeof(key)};
    if (msg.mode >= KVC_WALK_MATCH) {
        msg.group = 0;
        msg.depth = 1 + dice(8 * KVC_KEY_BYTES);
    }
    return SR_SEND(&s, p, list, LIST, &msg);
}

static uint64_t send_verify(struct sr_peer *p, const struct sr_blocks *b)
{
    struct msg_verify msg = {.ns = dice(2) ? b->ns : 0,
                             .tier = (uint8_t)dice(3),
                             .cursor = dice(2) ? 0 : dice(100),
                             .bytes_max = 1 + dice(1000)};
    return sr_send(
        &s, p,
        codec_enc_verify(s.buf, sizeof(s.buf), sr_head(&s, KVC_OP_VERIFY, b->deadline_ms), &msg));
}

static uint64_t send_trace(struct sr_peer *p, uint8_t op)
{
    struct msg_trace msg = {.action = (uint8_t)dice(3)};
    struct msg_trace_dump dump = {.cursor = dice(300)};
    const struct msg_head *head = sr_head(&s, op, 0);
    return sr_send(&s, p,
                   op == KVC_OP_TRACE ? codec_enc_trace(s.buf, sizeof(s.buf), head, &msg)
                                      : codec_enc_trace_dump(s.buf, sizeof(s.buf), head, &dump));
}

static uint64_t send_shutdown(struct sr_peer *p)
{
    struct msg_drain msg = {.bytes_max = dice(1000)};
    return SR_SEND(&s, p, drain, DRAIN, &msg);
}

static uint64_t send_list(struct sr_peer *p)
{
    static const uint8_t after[8] = {7, 1};
    const struct msg_list msg = {.table = (uint8_t)(1 + dice(KVC_TABLE_END)),
                                 .max = dice(3),
                                 .cursor = {after, dice(2) ? 0 : 8}};
    return SR_SEND(&s, p, list, LIST, &msg);
}

static uint64_t send_random(unsigned i, uint8_t op)
{
    struct sr_peer *p = &s.peer[i];
    static const char *const models[] = {"a", "b", "c"};
    struct sr_blocks b = random_blocks(i);
    switch (op) {
    case KVC_OP_HELLO:
        return sr_hello(&s, p);
    case KVC_OP_NS_OPEN:
        return sr_ns_open(&s, p, models[dice(3)], b.sub);
    case KVC_OP_LOOKUP:
        return sr_lookup(&s, p, &b);
    case KVC_OP_ACQUIRE:
        return sr_acquire(&s, p, &b, dice(2));
    case KVC_OP_REDEEM:
        return send_redeem(p);
    case KVC_OP_RELEASE:
        return sr_release(&s, p, held[dice(32)]);
    case KVC_OP_RESERVE:
        return sr_reserve(&s, p, &b);
    case KVC_OP_COMMIT:
        return sr_commit(&s, p, reservations[dice(32)], &b);
    case KVC_OP_STORE:
        return sr_store(&s, p, &b);
    case KVC_OP_DROP:
        return sr_drop(&s, p, reservations[dice(32)]);
    case KVC_OP_LIST:
        return dice(3) == 0 ? send_keys(p, &b) : dice(2) ? send_blocks(p, &b) : send_list(p);
    case KVC_OP_EVICT:
        return send_evict(p, &b);
    case KVC_OP_VERIFY:
        return send_verify(p, &b);
    case KVC_OP_TRACE:
    case KVC_OP_TRACE_DUMP:
        return send_trace(p, op);
    case KVC_OP_DRAIN:
        return send_shutdown(p);
    case KVC_OP_STATS:
        return sr_bare(&s, p, op);
    default:
        return sr_bare(&s, p, KVC_OP_PING);
    }
}

/* What replies gave, for later requests to use. */
static void learn(unsigned from)
{
    for (unsigned i = from; i < s.nreplies; i++) {
        struct msg_reply_head head;
        struct msg_acquire_reply a;
        struct msg_reserve_reply r;
        struct msg_ns_open_reply n;
        const struct sr_reply *y = &s.reply[i];
        unsigned peer = 0;
        while (peer < SR_PEERS - 1 && memcmp(s.peer[peer].route, y->route, KVC_ROUTE_BYTES) != 0)
            peer++;
        if (codec_dec_acquire_reply(y->bytes, y->len, &head, &a) == 0) {
            held[dice(32)] = a.lease;
            memcpy(tickets[dice(32)], a.ticket, sizeof(a.ticket));
        } else if (codec_dec_reserve_reply(y->bytes, y->len, &head, &r) == 0) {
            reservations[dice(32)] = r.reservation;
        } else if (codec_dec_ns_open_reply(y->bytes, y->len, &head, &n) == 0) {
            spaces[peer][dice(4)] = n.ns;
        }
    }
}

static void note(unsigned peer, uint8_t op, uint64_t corr, uint32_t deadline_ms, uint64_t target)
{
    if (nsent == REQUESTS_MAX)
        return;
    sent[nsent++] = (struct sent){.corr = corr,
                                  .due_ns = s.now_ns + deadline_ms * 1000000ull,
                                  .target = target,
                                  .peer = peer,
                                  .life = life[peer],
                                  .op = op};
}

static void do_request(void)
{
    unsigned i = dice(5);
    if (!lives(i))
        return;
    static const uint8_t often[] = {KVC_OP_STORE,   KVC_OP_ACQUIRE, KVC_OP_RESERVE, KVC_OP_COMMIT,
                                    KVC_OP_STORE,   KVC_OP_ACQUIRE, KVC_OP_RELEASE, KVC_OP_CANCEL,
                                    KVC_OP_NS_OPEN, KVC_OP_LIST};
    uint8_t op = dice(2) ? often[dice(sizeof often)] : (uint8_t)(1 + dice(KVC_OP_DRAIN));
    if (op == KVC_OP_CANCEL) {
        uint64_t target = nsent ? sent[nsent - 1 - dice(MIN(nsent, 10u))].corr : 1;
        note(i, op, sr_cancel(&s, &s.peer[i], target), 0, target);
        return;
    }
    note(i, op, send_random(i, op), 5000, 0);
}

/* Keeps the head and damages the rest; or the other way round, which costs the session. */
static void do_mutilated(void)
{
    unsigned i = dice(5);
    if (!lives(i))
        return;
    struct sr_blocks b = random_blocks(i);
    unsigned replies = s.nreplies;
    struct sr_peer ghost = {.staging = NULL}; /* its route is unknown: only to encode */
    uint64_t corr = dice(2) ? sr_store(&s, &ghost, &b) : sr_acquire(&s, &ghost, &b, true);
    ck_assert_uint_eq(s.nreplies, replies);
    size_t len = 24 + dice(60), head = 12;
    if (dice(3) == 0)
        len = dice((uint32_t)len); /* cut off */
    for (unsigned n = 1 + dice(4); n > 0; n--)
        if (len > head)
            s.buf[head + dice((uint32_t)(len - head))] ^= (uint8_t)(1 + dice(255));
    struct msg_head h;
    bool readable = codec_dec_head(s.buf, len, &h) == 0;
    sr_send_raw(&s, s.peer[i].route, KVC_ROUTE_BYTES, s.buf, len);
    if (readable)
        note(i, h.op, corr, 600000, 0);
    sr_turn(&s, 0);
    if (!readable)
        ck_assert_uint_eq(sr_dropped_status(&s.peer[i]), KVC_ST_BAD_MESSAGE);
}

/* ---- sessions ---- */

static void do_session(void)
{
    static const uid_t uids[] = {SR_UID_ONE, SR_UID_ONE + 1, SR_UID_TWO, SR_UID_GW, SR_UID_OPS};
    unsigned i = dice(5);
    struct sr_peer *p = &s.peer[i];
    if (p->conn != UINT32_MAX && !p->closed) {
        if (dice(3) == 0)
            sr_leave(&s, p);
        return;
    }
    if (s.nstaging + 1 >= ARRAY_LEN(s.staging) || sr_metric(&s, "sessions") == s.cfg.sessions_max)
        return;
    life[i]++;
    (void)sr_peer(&s, i, uids[i], dice(4) ? 1024 : 0);
}

/* ---- the check ---- */

static bool was_there(const struct sent *x)
{
    return life[x->peer] == x->life && lives(x->peer) &&
           codec_att_code(s.peer[x->peer].last, s.peer[x->peer].last_len) != KVC_ATTACH_DROPPED;
}

/* A CANCEL found its target: then that has been answered, and before. */
static bool was_found(uint64_t corr)
{
    const struct sr_reply *r = sr_reply(&s, corr);
    struct msg_reply_head head;
    struct msg_cancel_reply reply;
    return codec_dec_cancel_reply(r->bytes, r->len, &head, &reply) == 0 && reply.found;
}

static void check_replies(void)
{
    for (unsigned i = 0; i < nsent; i++) {
        const struct sent *x = &sent[i];
        unsigned n = sr_replies(&s, x->corr);
        ck_assert_msg(n <= 1, "request %u, operation %u: %u replies", i, x->op, n);
        if (n == 0 && was_there(x) && x->op != KVC_OP_CANCEL)
            ck_assert_msg(s.now_ns < x->due_ns + 2000000, "operation %u: no reply in time", x->op);
        if (n == 1 && x->op == KVC_OP_CANCEL && was_found(x->corr))
            ck_assert_uint_lt(sr_order(&s, x->target), sr_order(&s, x->corr));
    }
}

static void check_all_answered(void)
{
    for (unsigned i = 0; i < nsent; i++)
        if (was_there(&sent[i]))
            ck_assert_msg(sr_replies(&s, sent[i].corr) == 1, "operation %u: no reply", sent[i].op);
}

CASES(.timeout_s = 300);

CASE_EACH(every_request_gets_exactly_one_reply, getenv("KVC_SEED") ? 1 : SEEDS)
{
    const char *want = getenv("KVC_SEED");
    uint64_t seed = want ? strtoull(want, NULL, 10) : (uint64_t)_i + 1;
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    state = seed * 77777 + 1;
    nsent = 0;
    memset(life, 0, sizeof(life));
    memset(spaces, 0, sizeof(spaces));
    sr_defaults(&s);
    if (seed % 2 == 0) { /* in slices of a few blocks, few a turn */
        s.core_cfg.slice_work = 1 + dice(60);
        s.cfg.turn_work = 40;
    }
    sr_begin(&s);
    s.corr = 1000000; /* encodes in 5 bytes, so a head has one length */
    for (unsigned i = 0; i < 5; i++)
        do_session();
    for (unsigned turn = 0; turn < TURNS && s.nreplies < SR_REPLIES - 64; turn++) {
        unsigned replies = s.nreplies, what = dice(20);
        if (what < 12)
            do_request();
        else if (what == 12)
            do_mutilated();
        else if (what == 13)
            do_session();
        else if (what < 17)
            (void)fake_tier_run(s.tier, 1 + dice(8), dice(4) ? 0 : 30);
        sr_turn(&s, dice(3) ? 0 : dice(40));
        learn(replies);
        if (turn % 16 == 0)
            check_replies();
    }
    while (fake_tier_inflight(s.tier) > 0)
        sr_copies(&s);
    sr_turn(&s, 600001);
    sr_settle(&s);
    check_replies();
    check_all_answered();
    ck_assert(svc_is_quiet(s.svc));
    ck_assert_uint_eq(sr_metric(&s, "replies_ok") + sr_metric(&s, "replies_error"), s.nreplies);
    printf("%u requests, %u replies, %llu without error\n", nsent, s.nreplies,
           (unsigned long long)sr_metric(&s, "replies_ok"));
    ck_assert_uint_gt(sr_metric(&s, "replies_ok"), 100);
    ck_assert(want != NULL || core_metrics(s.core)->blocks_stored > 0);
    sr_end(&s);
}
