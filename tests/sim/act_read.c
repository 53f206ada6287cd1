/* SPDX-License-Identifier: Apache-2.0 */
/* LOOKUP, ACQUIRE, REDEEM, RELEASE. */
#include "sim.h"

#define READ_STATUSES \
    (1u << KVC_ST_OK | 1u << KVC_ST_BUSY | 1u << KVC_ST_NO_NAMESPACE | 1u << KVC_ST_LIMIT)

static void lookup(struct sim *s, struct sim_client *cl, const struct sim_seq *q)
{
    struct sim_req *r = sim_req_new(s, cl, KVC_OP_LOOKUP);
    if (!r)
        return;
    r->seq = *q;
    r->allowed = READ_STATUSES;
    struct msg_lookup msg = {.seq = sim_msg_seq(s, cl, q),
                             .flags = sim_rnd(s, 2) ? KVC_F_TOUCH : 0};
    sim_send(s, cl, r, codec_enc_lookup(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

/* There will be a place for one more. */
static bool has_place(const struct sim_client *cl)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < SIM_LEASES; i++)
        n += cl->lease[i].id != 0;
    for (uint32_t i = 0; i < SIM_REQS; i++)
        n += cl->req[i].used && (cl->req[i].op == KVC_OP_ACQUIRE || cl->req[i].op == KVC_OP_REDEEM);
    return n < SIM_LEASES;
}

void sim_acquire(struct sim *s, struct sim_client *cl, const struct sim_seq *q, bool wait)
{
    struct sim_req *r = has_place(cl) ? sim_req_new(s, cl, KVC_OP_ACQUIRE) : NULL;
    if (!r)
        return;
    r->seq = *q;
    r->wait = wait;
    r->shard = sim_rnd(s, s->spec[q->space.spec].shards);
    r->from = sim_rnd(s, 3) ? 0 : sim_rnd(s, q->tokens + 4);
    r->wait_tokens = wait && sim_rnd(s, 2) ? sim_rnd(s, q->tokens + 10) : 0;
    r->allowed = READ_STATUSES | (wait || sim_with_disk ? 1u << KVC_ST_CANCELLED : 0);
    SIM_TRACE(s,
              "client %u asks for %u tokens of chain %u in namespace %u%s%s, shard %u, from %u, "
              "enough %u",
              sim_index(s, cl), q->tokens, q->chain, q->space.spec,
              *sim_sub(q->space.sub) ? "/" : "", sim_sub(q->space.sub), r->shard, r->from,
              r->wait_tokens);
    struct msg_acquire msg = {.seq = sim_msg_seq(s, cl, q),
                              .flags = wait ? KVC_F_WAIT : 0,
                              .shard = r->shard,
                              .from_tokens = r->from,
                              .wait_tokens = r->wait_tokens};
    sim_send(s, cl, r, codec_enc_acquire(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

static void redeem(struct sim *s, struct sim_client *cl)
{
    struct sim_req *r = has_place(cl) && s->nticket ? sim_req_new(s, cl, KVC_OP_REDEEM) : NULL;
    if (!r)
        return;
    struct msg_redeem msg = {0};
    const struct sim_ticket *t;
    uint32_t tries = sim_rnd(s, 6); /* mostly one of its own principal, and a new one */
    do
        t = &s->ticket[(s->nticket - 1 - sim_rnd(s, MIN(s->nticket, 6))) % SIM_TICKETS];
    while (t->principal != cl->principal && tries--);
    r->ticket = *t;
    memcpy(msg.ticket, t->bytes, sizeof msg.ticket);
    r->seq = t->seq;
    r->from = t->from;
    r->shard = msg.shard = sim_rnd(s, s->spec[t->seq.space.spec].shards);
    r->allowed |= 1u << KVC_ST_LIMIT | 1u << KVC_ST_NO_LEASE;
    if (!sim_rnd(s, 8)) { /* a guess */
        r->ticket.lease = 0;
        r->ticket_bad = true;
        const uint32_t at = 4 + sim_rnd(s, KVC_TICKET_BYTES - 4);
        msg.ticket[at] ^= (uint8_t)(1u << sim_rnd(s, 8));
    }
    sim_send(s, cl, r, codec_enc_redeem(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

static void put_u64le(uint8_t *to, uint64_t v)
{
    for (unsigned k = 0; k < 8; k++)
        to[k] = (uint8_t)(v >> 8 * k);
}

/* Some of its own, sometimes one that is not its own; r->lease counts those that are. */
static void release(struct sim *s, struct sim_client *cl)
{
    struct sim_req *r = sim_req_new(s, cl, KVC_OP_RELEASE);
    if (!r)
        return;
    uint8_t ids[(SIM_LEASES + 1) * 8];
    uint32_t n = 0, most = 1 + sim_rnd(s, 4);
    for (uint32_t i = 0; i < SIM_LEASES && n < most; i++) {
        struct sim_lease *l = &cl->lease[(i + s->turn) % SIM_LEASES];
        if (!l->id || l->releasing)
            continue;
        l->releasing = r->corr;
        put_u64le(&ids[n++ * 8u], l->id);
    }
    r->lease = n;
    const struct sim_client *other = &s->client[sim_rnd(s, SIM_CLIENTS)];
    const struct sim_lease *foreign = &other->lease[sim_rnd(s, SIM_LEASES)];
    if (other != cl && foreign->id)
        put_u64le(&ids[n++ * 8u], foreign->id);
    if (!n) {
        r->used = false;
        return;
    }
    struct msg_release msg = {.leases = {ids, n * 8}};
    sim_send(s, cl, r, codec_enc_release(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

void sim_act_read(struct sim *s, struct sim_client *cl, enum sim_action act)
{
    struct sim_seq q;
    if (act == ACT_REDEEM) {
        redeem(s, cl);
    } else if (act == ACT_RELEASE) {
        release(s, cl);
    } else if (!sim_some_seq(s, cl, &q)) {
        sim_ns_open(s, cl, q.space.spec, 0);
    } else if (act == ACT_LOOKUP) {
        lookup(s, cl, &q);
    } else {
        sim_acquire(s, cl, &q, act == ACT_WAIT);
    }
}
