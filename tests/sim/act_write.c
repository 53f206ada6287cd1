/* SPDX-License-Identifier: Apache-2.0 */
/* RESERVE, COMMIT, STORE, DROP, CANCEL. */
#include "sim.h"

#define WRITE_STATUSES \
    (1u << KVC_ST_OK | 1u << KVC_ST_BUSY | 1u << KVC_ST_NO_NAMESPACE | 1u << KVC_ST_LIMIT)
#define COPY_STATUSES                                                                 \
    (1u << KVC_ST_OK | 1u << KVC_ST_BUSY | 1u << KVC_ST_GONE | 1u << KVC_ST_TIMEOUT | \
     1u << KVC_ST_CANCELLED)

static void put_u64le(uint8_t *to, uint64_t v)
{
    for (unsigned k = 0; k < 8; k++)
        to[k] = (uint8_t)(v >> 8 * k);
}

static void trace_span(const struct sim *s, const struct sim_client *cl, const struct sim_req *r)
{
    const struct sim_span *p = &r->span;
    SIM_TRACE(s,
              "client %u writes blocks %u + %u of chain %u in namespace %u%s%s, group %u, shard %u",
              sim_index(s, cl), p->first + r->from, p->n, p->chain, p->space.spec,
              *sim_sub(p->space.sub) ? "/" : "", sim_sub(p->space.sub), p->group, p->shard);
}

static void reserve(struct sim *s, struct sim_client *cl, const struct sim_span *p)
{
    uint32_t i = 0;
    while (i < SIM_RESVS && cl->resv[i].used)
        i++;
    struct sim_req *r = i < SIM_RESVS ? sim_req_new(s, cl, KVC_OP_RESERVE) : NULL;
    if (!r)
        return;
    cl->resv[i] = (struct sim_resv){.used = true, .asked = true, .span = *p};
    r->resv = i;
    r->span = *p;
    r->allowed = WRITE_STATUSES | 1u << KVC_ST_BAD_ARGUMENT;
    if (sim_with_disk) /* it may have waited for room */
        r->allowed |= 1u << KVC_ST_TIMEOUT | 1u << KVC_ST_CANCELLED;
    trace_span(s, cl, r);
    struct msg_reserve msg = sim_msg_reserve(s, cl, p);
    sim_send(s, cl, r, codec_enc_reserve(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

/* One of its reservations, NULL when it has none. */
static struct sim_resv *some_resv(struct sim *s, struct sim_client *cl)
{
    uint32_t at = sim_rnd(s, SIM_RESVS);
    for (uint32_t i = 0; i < SIM_RESVS; i++) {
        struct sim_resv *v = &cl->resv[(at + i) % SIM_RESVS];
        if (v->used && !v->asked)
            return v;
    }
    return NULL;
}

/* A free place in staging for entry i, or SIM_NONE. */
static uint32_t slot_take(struct sim_client *cl, struct sim_req *r, uint32_t i)
{
    for (uint32_t k = 0; k < SIM_SLOTS && (k + 1) * SIM_SLOT <= cl->staging_bytes; k++) {
        if (cl->slot_req[k] != SIM_NONE)
            continue;
        cl->slot_req[k] = (uint32_t)(r - cl->req);
        r->slot[i] = (uint8_t)k;
        return k;
    }
    return SIM_NONE;
}

/* Stages entry i, key `at` of the span, and says where. */
static uint64_t stage(struct sim *s, struct sim_client *cl, struct sim_req *r, uint32_t i,
                      uint32_t at)
{
    if (!sim_rnd(s, 60)) {
        r->offset[i] = OFFSET_BAD;
        return sim_rnd(s, 2) ? 33 : (cl->staging_bytes + 63) / 64 * 64;
    }
    uint32_t slot = sim_rnd(s, 8) ? slot_take(cl, r, i) : SIM_NONE;
    if (slot == SIM_NONE) {
        r->offset[i] = OFFSET_SKIP;
        return UINT64_MAX;
    }
    const struct sim_span *p = &r->span;
    const struct msg_group *g = &s->spec[p->space.spec].groups[p->group];
    uint8_t key[KVC_KEY_BYTES];
    sim_span_key(s, p, at, key);
    uint64_t off = (uint64_t)slot * SIM_SLOT;
    sim_fill(&p->space, p->group, key, g->flags & KVC_F_REPLICATED ? 0 : p->shard,
             cl->staging + off, g->block_bytes);
    r->offset[i] = OFFSET_GOOD;
    return off;
}

static struct codec_bin tokens_of(struct sim *s, const struct sim_span *p, uint32_t n)
{
    if (!(s->spec[p->space.spec].flags & KVC_F_TOKENS))
        return (struct codec_bin){0};
    return (struct codec_bin){
        s->tokens, sim_rnd(s, n * s->spec[p->space.spec].groups[p->group].block_tokens + 1) * 4};
}

static void commit(struct sim *s, struct sim_client *cl)
{
    struct sim_resv *v = some_resv(s, cl);
    struct sim_req *r = v ? sim_req_new(s, cl, KVC_OP_COMMIT) : NULL;
    if (!r)
        return;
    r->resv = (uint32_t)(v - cl->resv);
    r->span = v->span;
    r->allowed = COPY_STATUSES;
    r->from = sim_rnd(s, 2) ? 0 : sim_rnd(s, v->span.n);
    uint32_t n = sim_rnd(s, 2) ? v->span.n - r->from : 1 + sim_rnd(s, v->span.n - r->from);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t off = UINT64_MAX;
        r->offset[i] = OFFSET_SKIP;
        if (v->status[r->from + i] == KVC_ST_OK || !sim_rnd(s, 30))
            off = stage(s, cl, r, i, r->from + i);
        put_u64le(&s->offsets[(size_t)i * 8], off);
        if (r->offset[i] == OFFSET_GOOD)
            v->status[r->from + i] = KVC_ST_EXISTS; /* ours to commit no more */
    }
    r->wait_tokens = n;
    trace_span(s, cl, r);
    struct msg_commit msg = {.reservation = v->id,
                             .first = r->from,
                             .offsets = {s->offsets, n * 8},
                             .tokens = tokens_of(s, &r->span, n)};
    bool open = !sim_rnd(s, 4); /* what has nothing left is asked for again now and then */
    for (uint32_t i = 0; i < v->span.n; i++)
        open |= v->status[i] == KVC_ST_OK;
    v->used = open;
    sim_send(s, cl, r, codec_enc_commit(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

static void store(struct sim *s, struct sim_client *cl, const struct sim_span *p)
{
    struct sim_req *r = sim_req_new(s, cl, KVC_OP_STORE);
    if (!r)
        return;
    r->span = *p;
    r->span.parent = NULL;
    r->wait_tokens = p->n;
    r->allowed = WRITE_STATUSES | COPY_STATUSES | 1u << KVC_ST_BAD_ARGUMENT;
    trace_span(s, cl, r);
    struct msg_store msg = {.reserve = sim_msg_reserve(s, cl, p)};
    for (uint32_t i = 0; i < p->n; i++)
        put_u64le(&s->offsets[(size_t)i * 8], stage(s, cl, r, i, i));
    msg.offsets = (struct codec_bin){s->offsets, p->n * 8};
    msg.tokens = tokens_of(s, p, p->n);
    sim_send(s, cl, r, codec_enc_store(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

static void drop(struct sim *s, struct sim_client *cl)
{
    struct sim_resv *v = some_resv(s, cl);
    struct sim_req *r = v ? sim_req_new(s, cl, KVC_OP_DROP) : NULL;
    if (!r)
        return;
    r->allowed |= 1u << KVC_ST_GONE;
    struct msg_drop msg = {.reservation = v->id};
    v->used = !sim_rnd(s, 6);
    sim_send(s, cl, r, codec_enc_drop(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

/* Stores what follows a prefix that it holds, but below a block of its own that it has announced
 * only, asks for more of the prefix, and gives the announced block up: who holds the longer prefix
 * by then must not lose it. */
static void confused(struct sim *s, struct sim_client *cl)
{
    const struct sim_lease *l = &cl->lease[sim_rnd(s, SIM_LEASES)];
    const struct sim_resv *v = some_resv(s, cl);
    for (uint32_t i = 0; i < SIM_LEASES && !l->id; i++)
        l = &cl->lease[i];
    if (!l->id || !cl->ns[l->seq.space.spec][0])
        return;
    struct sim_seq q = l->seq;
    uint32_t step = sim_rnd(s, 5);
    q.tokens = sim_tokens_max(s, q.space.spec);
    if (step < 2) {
        sim_acquire(s, cl, &q, false);
        return;
    }
    if (step == 2) {
        drop(s, cl);
        return;
    }
    const struct msg_ns_open *spec = &s->spec[q.space.spec];
    struct sim_span p = {.space = q.space, .chain = q.chain, .n = 1};
    p.first = l->hit / spec->groups[0].block_tokens;
    p.shard = sim_rnd(s, spec->shards);
    if (spec->groups[0].rule != KVC_RULE_FULL || p.first >= SIM_BLOCKS)
        return;
    bool fits = v && v->span.group == 0 && memcmp(&v->span.space, &p.space, sizeof p.space) == 0;
    for (uint32_t i = 0; fits && i < v->span.n; i++) {
        uint8_t key[KVC_KEY_BYTES];
        if (v->status[i] != KVC_ST_OK || (v->span.chain == p.chain && v->span.first + i >= p.first))
            continue;
        sim_span_key(s, &v->span, i, key);
        p.parent = key;
        store(s, cl, &p);
        return;
    }
    p.chain = sim_rnd(s, SIM_CHAINS); /* also of those that nobody asks for */
    p.first = 0;
    reserve(s, cl, &p);
}

static void cancel(struct sim *s, struct sim_client *cl)
{
    struct sim_req *r = sim_req_new(s, cl, KVC_OP_CANCEL);
    if (!r)
        return;
    uint32_t at = sim_rnd(s, SIM_REQS);
    for (uint32_t i = 0; i < SIM_REQS; i++) {
        const struct sim_req *t = &cl->req[(at + i) % SIM_REQS];
        if (t->used && t != r && (t->timed_out || t->op != KVC_OP_CANCEL))
            r->target = t->corr;
    }
    if (!r->target || !sim_rnd(s, 20))
        r->target = sim_rnd(s, 1u << 20);
    struct msg_cancel msg = {.target = r->target};
    sim_send(s, cl, r, codec_enc_cancel(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

void sim_act_write(struct sim *s, struct sim_client *cl, enum sim_action act)
{
    struct sim_span p;
    if (act == ACT_COMMIT) {
        commit(s, cl);
    } else if (act == ACT_CONFUSED) {
        confused(s, cl);
    } else if (act == ACT_DROP) {
        drop(s, cl);
    } else if (act == ACT_CANCEL) {
        cancel(s, cl);
    } else if (!sim_some_span(s, cl, &p)) {
        sim_ns_open(s, cl, sim_rnd(s, s->swarm.specs), 0);
    } else if (act == ACT_RESERVE) {
        reserve(s, cl, &p);
    } else {
        store(s, cl, &p);
    }
}
