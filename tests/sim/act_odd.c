/* SPDX-License-Identifier: Apache-2.0 */
/* NS_OPEN, what people ask for, and requests that are wrong. */
#include "sim.h"

#define BIT(status) (1u << KVC_ST_##status)

static struct codec_bin text(const char *t)
{
    return (struct codec_bin){(const uint8_t *)t, (uint32_t)strlen(t)};
}

void sim_ns_open(struct sim *s, struct sim_client *cl, uint32_t spec, uint32_t sub)
{
    struct sim_req *r = sim_req_new(s, cl, KVC_OP_NS_OPEN);
    if (!r)
        return;
    r->seq.space = (struct sim_space){cl->principal, spec, sub};
    r->allowed = BIT(OK) | BIT(BUSY) | BIT(LIMIT);
    struct msg_ns_open msg = s->spec[spec];
    msg.sub = text(sim_sub(sub));
    sim_send(s, cl, r, codec_enc_ns_open(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

static void ns_open(struct sim *s, struct sim_client *cl)
{
    bool gateway = sim_principals[cl->principal].gateway;
    const uint32_t sub = gateway ? sim_rnd(s, SIM_SUBS) : 0;
    sim_ns_open(s, cl, sim_rnd(s, s->swarm.specs), sub);
}

static void explain(struct sim *s, struct sim_client *cl)
{
    struct sim_seq q;
    struct sim_req *r = sim_some_seq(s, cl, &q) ? sim_req_new(s, cl, KVC_OP_LIST) : NULL;
    if (!r)
        return;
    r->allowed |= BIT(NO_NAMESPACE);
    struct msg_seq seq = sim_msg_seq(s, cl, &q);
    struct msg_list msg = {.table = KVC_TABLE_BLOCKS,
                           .mode = KVC_WALK_KEYS,
                           .ns = sim_rnd(s, 2) ? seq.ns : 0,
                           .keys = seq.keys[0]};
    if (!msg.keys.n) {
        r->used = false;
        return;
    }
    sim_send(s, cl, r, codec_enc_list(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

static void evict(struct sim *s, struct sim_client *cl)
{
    struct sim_seq q;
    struct sim_req *r = sim_some_seq(s, cl, &q) ? sim_req_new(s, cl, KVC_OP_EVICT) : NULL;
    if (!r)
        return;
    r->allowed |= BIT(NO_NAMESPACE) | BIT(TIMEOUT) | BIT(CANCELLED);
    struct msg_seq seq = sim_msg_seq(s, cl, &q);
    struct msg_evict msg = {.flags = sim_rnd(s, 2) ? KVC_F_DRY_RUN : 0,
                            .ns = sim_rnd(s, 2) ? seq.ns : 0,
                            .older_than_ms = sim_rnd(s, 2) ? sim_rnd(s, 500) : 0,
                            .bytes = sim_rnd(s, 2) ? sim_rnd(s, 5000) : 0};
    if (!sim_rnd(s, 3) && seq.keys[0].n)
        msg.key = (struct codec_bin){seq.keys[0].p, KVC_KEY_BYTES};
    sim_send(s, cl, r, codec_enc_evict(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

static void bare(struct sim *s, struct sim_client *cl, uint8_t op)
{
    struct sim_req *r = sim_req_new(s, cl, op);
    if (!r)
        return;
    if (op == KVC_OP_STATS)
        r->allowed = sim_principals[cl->principal].admin ? BIT(OK) : BIT(DENIED);
    sim_send(s, cl, r, codec_enc_bare(s->buf, sizeof s->buf, sim_head(s, r)));
}

static void blocks(struct sim *s, struct sim_client *cl)
{
    struct sim_seq q;
    struct sim_req *r = sim_some_seq(s, cl, &q) ? sim_req_new(s, cl, KVC_OP_LIST) : NULL;
    if (!r)
        return;
    r->allowed |= BIT(NO_NAMESPACE) | BIT(GONE);
    struct msg_seq seq = sim_msg_seq(s, cl, &q);
    const uint32_t depth = sim_rnd(s, 4), max = 1 + sim_rnd(s, 20);
    const uint64_t cursor = sim_rnd(s, 3) ? 0 : htole64(cl->cursor);
    struct msg_list msg = {.table = KVC_TABLE_BLOCKS,
                           .max = max,
                           .cursor = {(const uint8_t *)&cursor, cursor ? sizeof cursor : 0},
                           .ns = seq.ns,
                           .mode = KVC_WALK_ROOTS,
                           .depth = depth};
    uint32_t n = seq.keys[0].n / KVC_KEY_BYTES;
    if (n && sim_rnd(s, 3)) {
        static const uint8_t modes[] = {KVC_WALK_UP, KVC_WALK_DOWN, KVC_WALK_MATCH};
        msg.mode = modes[sim_rnd(s, 3)];
        msg.depth += msg.mode == KVC_WALK_MATCH;
        msg.keys = (struct codec_bin){seq.keys[0].p + (size_t)sim_rnd(s, n) * KVC_KEY_BYTES,
                                      KVC_KEY_BYTES};
    }
    sim_send(s, cl, r, codec_enc_list(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

static void verify(struct sim *s, struct sim_client *cl)
{
    struct sim_req *r = sim_req_new(s, cl, KVC_OP_VERIFY);
    if (!r)
        return;
    r->allowed |= BIT(TIMEOUT) | BIT(CANCELLED);
    struct msg_verify msg = {.cursor = sim_rnd(s, 2) ? 0 : sim_rnd(s, 200),
                             .bytes_max = 1 + sim_rnd(s, 4000)};
    sim_send(s, cl, r, codec_enc_verify(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

static void list(struct sim *s, struct sim_client *cl)
{
    struct sim_req *r = sim_req_new(s, cl, KVC_OP_LIST);
    if (!r)
        return;
    const uint64_t after = htole64(sim_rnd(s, 2) ? 0 : sim_rnd(s, 1u << 20));
    struct msg_list msg = {.table = KVC_TABLE_NAMESPACES,
                           .cursor = {(const uint8_t *)&after, after ? sizeof after : 0}};
    sim_send(s, cl, r, codec_enc_list(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

/* ---- wrong requests: each gets one reply, and it says so ---- */

static void wrong_open(struct sim *s, struct sim_client *cl)
{
    struct sim_req *r = sim_req_new(s, cl, KVC_OP_NS_OPEN);
    if (!r)
        return;
    struct msg_ns_open msg = s->spec[0];
    r->any = true;
    switch (sim_rnd(s, 4)) {
    case 0:
        msg.attention = text("bidirectional");
        r->allowed = BIT(UNSOUND);
        break;
    case 1:
        msg.groups[0].block_bytes = s->tier_cfg.region_bytes + 1;
        r->allowed = BIT(TOO_LARGE);
        break;
    case 2:
        msg.sub = text("a");
        r->allowed = sim_principals[cl->principal].gateway ? BIT(OK) | BIT(LIMIT) : BIT(DENIED);
        break;
    default:
        msg.groups[0].block_tokens = 0;
        r->allowed = BIT(BAD_ARGUMENT);
        break;
    }
    r->allowed |= BIT(BUSY);
    sim_send(s, cl, r, codec_enc_ns_open(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

static void wrong_read(struct sim *s, struct sim_client *cl)
{
    struct sim_seq q;
    struct sim_req *r = sim_some_seq(s, cl, &q) ? sim_req_new(s, cl, KVC_OP_ACQUIRE) : NULL;
    if (!r)
        return;
    r->any = true;
    r->wait = sim_rnd(s, 2);
    struct msg_acquire msg = {.seq = sim_msg_seq(s, cl, &q), .flags = r->wait ? KVC_F_WAIT : 0};
    r->allowed = BIT(BAD_ARGUMENT) | BIT(NO_NAMESPACE) | BIT(BUSY) | BIT(LIMIT);
    if (sim_rnd(s, 2))
        msg.seq.tokens += 1000;
    else
        msg.seq.ns = 0xdead0001;
    sim_send(s, cl, r, codec_enc_acquire(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

/* Another principal's namespace is as if it did not exist, for an administrator's reads too. */
static void foreign_space(struct sim *s, struct sim_client *cl)
{
    struct sim_seq q;
    const struct sim_client *other = &s->client[sim_rnd(s, s->swarm.clients)];
    bool some = other->principal != cl->principal && sim_some_seq(s, other, &q);
    bool write = sim_rnd(s, 2);
    struct sim_req *r = some ? sim_req_new(s, cl, write ? KVC_OP_RESERVE : KVC_OP_ACQUIRE) : NULL;
    if (!r)
        return;
    r->any = true;
    r->allowed = BIT(NO_NAMESPACE) | BIT(BUSY);
    struct msg_acquire get = {.seq = sim_msg_seq(s, other, &q)};
    struct msg_reserve put = {.ns = get.seq.ns, .sub = get.seq.sub, .keys = get.seq.keys[0]};
    if (write && !put.keys.n)
        r->allowed |= BIT(BAD_ARGUMENT);
    sim_send(s, cl, r,
             write ? codec_enc_reserve(s->buf, sizeof s->buf, sim_head(s, r), &put)
                   : codec_enc_acquire(s->buf, sizeof s->buf, sim_head(s, r), &get));
}

/* What another has reserved is nobody else's to commit or drop. */
static void wrong_commit(struct sim *s, struct sim_client *cl)
{
    const struct sim_client *other = &s->client[sim_rnd(s, SIM_CLIENTS)];
    const struct sim_resv *v = &other->resv[sim_rnd(s, SIM_RESVS)];
    uint64_t id = other != cl && v->used && !v->asked ? v->id : sim_rnd(s, 1u << 30);
    bool drop = sim_rnd(s, 2);
    struct sim_req *r = sim_req_new(s, cl, drop ? KVC_OP_DROP : KVC_OP_COMMIT);
    if (!r)
        return;
    r->any = true;
    r->allowed = BIT(GONE) | BIT(BUSY);
    struct msg_drop d = {.reservation = id};
    struct msg_commit c = {.reservation = id, .offsets = {s->offsets, 8}};
    memset(s->offsets, 0, 8);
    sim_send(s, cl, r,
             drop ? codec_enc_drop(s->buf, sizeof s->buf, sim_head(s, r), &d)
                  : codec_enc_commit(s->buf, sizeof s->buf, sim_head(s, r), &c));
}

static void wrong_reserve(struct sim *s, struct sim_client *cl)
{
    struct sim_span p;
    struct sim_req *r = sim_some_span(s, cl, &p) ? sim_req_new(s, cl, KVC_OP_RESERVE) : NULL;
    if (!r)
        return;
    r->any = true;
    r->allowed = BIT(BAD_ARGUMENT) | BIT(NO_NAMESPACE) | BIT(BUSY) | BIT(LIMIT);
    if (sim_with_disk) /* it waits for room first, and is looked at then */
        r->allowed |= BIT(TIMEOUT) | BIT(CANCELLED);
    struct msg_reserve msg = sim_msg_reserve(s, cl, &p);
    switch (sim_rnd(s, 4)) {
    case 0:
        msg.group = KVC_GROUPS_MAX - 1;
        break;
    case 1:
        msg.shard = KVC_SHARDS_MAX - 1;
        break;
    case 2:
        msg.first_token++;
        break;
    default:
        msg.last_tokens = 999;
        break;
    }
    sim_send(s, cl, r, codec_enc_reserve(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

/* [op, corr, deadline] of an operation that there is not. */
static void unknown_op(struct sim *s, struct sim_client *cl)
{
    struct sim_req *r = sim_req_new(s, cl, 0);
    if (!r)
        return;
    r->op = (uint8_t)(100 + sim_rnd(s, 20));
    r->any = true;
    r->allowed = BIT(UNKNOWN_OP);
    s->buf[0] = 0x93;
    s->buf[1] = r->op;
    s->buf[2] = 0xcf;
    for (unsigned k = 0; k < 8; k++)
        s->buf[3 + k] = (uint8_t)(r->corr >> 8 * (7 - k));
    s->buf[11] = 0;
    sim_send(s, cl, r, 12);
}

static void wrong_deadline(struct sim *s, struct sim_client *cl)
{
    struct sim_req *r = sim_req_new(s, cl, KVC_OP_PING);
    if (!r)
        return;
    r->any = true;
    r->allowed = BIT(BAD_ARGUMENT);
    struct msg_head head = {.op = r->op, .corr = r->corr, .deadline_ms = UINT32_MAX};
    sim_send(s, cl, r, codec_enc_bare(s->buf, sizeof s->buf, &head));
}

/* A request cut short: answered when its head is whole, else the session's end. */
static void cut_short(struct sim *s, struct sim_client *cl)
{
    struct sim_seq q;
    struct sim_req *r = sim_some_seq(s, cl, &q) ? sim_req_new(s, cl, KVC_OP_LOOKUP) : NULL;
    if (!r)
        return;
    r->any = true;
    r->allowed = BIT(BAD_MESSAGE) | BIT(BAD_ARGUMENT) | BIT(BUSY);
    struct msg_lookup msg = {.seq = sim_msg_seq(s, cl, &q)};
    int len = codec_enc_lookup(s->buf, sizeof s->buf, sim_head(s, r), &msg);
    MUST(len > 0);
    if (!sim_rnd(s, s->swarm.calm))
        len = (int)sim_rnd(s, MIN((uint32_t)len, 20));
    else if (len > 20)
        len = 20 + (int)sim_rnd(s, (uint32_t)len - 19);
    s->buf[len] = 0xc0;
    sim_send(s, cl, r, len + 1);
}

static void junk(struct sim *s, struct sim_client *cl)
{
    uint32_t len = sim_rnd(s, 64);
    struct msg_head head;
    for (uint32_t i = 0; i < len; i++)
        s->buf[i] = (uint8_t)sim_rnd(s, 256);
    if (codec_dec_head(s->buf, len, &head) != 0) /* else it would be answered with its own corr */
        sim_send(s, cl, NULL, (int)len);
}

static void illegal(struct sim *s, struct sim_client *cl)
{
    switch (sim_rnd(s, 8)) {
    case 0:
        wrong_open(s, cl);
        return;
    case 1:
        wrong_read(s, cl);
        return;
    case 2:
        wrong_commit(s, cl);
        return;
    case 3:
        wrong_reserve(s, cl);
        return;
    case 4:
        unknown_op(s, cl);
        return;
    case 6:
        foreign_space(s, cl);
        return;
    case 5:
        wrong_deadline(s, cl);
        return;
    default:
        cut_short(s, cl);
        return;
    }
}

void sim_act_odd(struct sim *s, struct sim_client *cl, enum sim_action act)
{
    switch (act) {
    case ACT_NS_OPEN:
        ns_open(s, cl);
        return;
    case ACT_EXPLAIN:
        explain(s, cl);
        return;
    case ACT_EVICT:
        evict(s, cl);
        return;
    case ACT_BLOCKS:
        blocks(s, cl);
        return;
    case ACT_VERIFY:
        verify(s, cl);
        return;
    case ACT_STATS:
        bare(s, cl, KVC_OP_STATS);
        return;
    case ACT_LIST:
        list(s, cl);
        return;
    case ACT_PING:
        bare(s, cl, KVC_OP_PING);
        return;
    case ACT_ILLEGAL:
        illegal(s, cl);
        return;
    case ACT_GARBAGE:
        junk(s, cl);
        return;
    default:
        return; /* of the attach channel: done earlier in the turn */
    }
}
