/* SPDX-License-Identifier: Apache-2.0 */
/* What clients do: choices, the attach channel, and the way of a request to the daemon. */
#include <stdlib.h>

#include "sim.h"

uint32_t sim_index(const struct sim *s, const struct sim_client *cl)
{
    return (uint32_t)(cl - s->client);
}

/* ---- choices ---- */

/* Its session does not survive it. */
static bool is_fatal(uint32_t act)
{
    return act == ACT_DIE || act == ACT_GARBAGE || act == ACT_BAD_ATTACH || act == ACT_DEAF;
}

static enum sim_action some_action(struct sim *s)
{
    for (;;) {
        uint32_t dice = sim_rnd(s, s->swarm.weights), i = 0;
        for (; dice >= s->swarm.weight[i]; i++)
            dice -= s->swarm.weight[i];
        if (!is_fatal(i) || !sim_rnd(s, s->swarm.calm))
            return (enum sim_action)i;
    }
}

void sim_act_choose(struct sim *s)
{
    s->nchoices = sim_rnd(s, s->swarm.actions_max + 1);
    for (uint32_t i = 0; i < s->nchoices; i++)
        s->choice[i] = (struct sim_choice){(uint8_t)some_action(s), sim_rnd(s, s->swarm.clients)};
}

/* ---- the attach channel ---- */

static void connect_client(struct sim *s, struct sim_client *cl)
{
    uint32_t who = sim_rnd(s, SIM_PRINCIPALS);
    uid_t uid = sim_uid[sim_rnd(s, 40) ? who : SIM_PRINCIPALS];
    cl->state = CL_CONNECTING;
    cl->conn = ++s->conns;
    int err = svc_attach_open(s->svc, cl->conn, uid, 100 + (pid_t)cl->conn);
    SIM_TRACE(s, "client %u connects as uid %u: %s", sim_index(s, cl), (unsigned)uid,
              err_name(err));
    if (err) {
        SIM_CHECK(s, err == -EMFILE, "attach_open: %s", err_name(err));
        SIM_CHECK(s, cl->state == CL_DROPPED || cl->doomed, "turned away without a word");
        cl->state = CL_OFF;
        cl->doomed = false;
        return;
    }
    SIM_CHECK(s, cl->state == CL_CONNECTING, "answered before it spoke");
    cl->state = CL_OPEN;
    cl->uid = uid;
    cl->principal = who;
    cl->opened_ns = s->now_ns;
}

static void attach_hello(struct sim *s, struct sim_client *cl)
{
    struct att_hello msg = {.ver_min = KVC_PROTO_MIN,
                            .ver_max = KVC_PROTO_MAX,
                            .client = {(const uint8_t *)"sim", 3},
                            .staging_bytes = sim_rnd(s, 8) ? SIM_SLOTS * SIM_SLOT : 0};
    if (!sim_rnd(s, 30))
        msg.ver_min = msg.ver_max = KVC_PROTO_MAX + 1;
    int len = codec_enc_att_hello(s->buf, sizeof s->buf, &msg);
    MUST(len > 0);
    cl->state = CL_HELLO;
    s->speaking = sim_index(s, cl);
    svc_attach_message(s->svc, cl->conn, s->buf, (size_t)len, NULL);
    s->speaking = SIM_NONE;
}

void sim_die(struct sim *s, struct sim_client *cl)
{
    SIM_TRACE(s, "client %u closes or dies", sim_index(s, cl));
    uint32_t conn = cl->conn;
    sim_client_gone(s, cl);
    svc_attach_closed(s->svc, conn);
    s->totals->deaths++;
}

/* Whether random bytes are a message that the daemon rightly answers. */
static bool is_by_chance_right(const uint8_t *junk, uint32_t len)
{
    struct att_map map;
    struct att_map_on on;
    return codec_dec_att_map(junk, len, &map) == 0 || codec_dec_att_map_on(junk, len, &on) == 0;
}

static void bad_attach(struct sim *s, struct sim_client *cl)
{
    uint8_t junk[32];
    for (uint32_t i = 0; i < sizeof junk; i++)
        junk[i] = (uint8_t)sim_rnd(s, 256);
    const uint32_t len = sim_rnd(s, sizeof junk);
    if (is_by_chance_right(junk, len))
        return;
    SIM_TRACE(s, "client %u sends junk on the attach connection", sim_index(s, cl));
    cl->doomed = true;
    s->speaking = sim_index(s, cl);
    svc_attach_message(s->svc, cl->conn, junk, len, NULL);
    s->speaking = SIM_NONE;
}

static void map_chunk(struct sim *s, struct sim_client *cl)
{
    struct att_map msg = {.chunk = sim_rnd(s, 50)};
    int len = codec_enc_att_map(s->buf, sizeof s->buf, &msg);
    MUST(len > 0);
    s->speaking = sim_index(s, cl);
    svc_attach_message(s->svc, cl->conn, s->buf, (size_t)len, NULL);
    s->speaking = SIM_NONE;
}

static void retire_chunk(struct sim *s)
{
    const uint32_t principal = 1 + sim_rnd(s, SIM_PRINCIPALS);
    svc_chunk_retired(s->svc, sim_rnd(s, 50), principal);
}

static void act_ready(struct sim *s, struct sim_client *cl, enum sim_action act)
{
    switch (act) {
    case ACT_DIE:
        sim_die(s, cl);
        return;
    case ACT_BAD_ATTACH:
        bad_attach(s, cl);
        return;
    case ACT_MAP:
        map_chunk(s, cl);
        return;
    case ACT_RETIRE:
        retire_chunk(s);
        return;
    case ACT_DEAF: /* with replies on their way or not */
        cl->deaf = true;
        return;
    default:
        return; /* a request: later in the turn */
    }
}

void sim_act_attach(struct sim *s)
{
    for (uint32_t i = 0; i < s->nchoices; i++) {
        struct sim_client *cl = &s->client[s->choice[i].client];
        switch ((enum sim_client_state)cl->state) {
        case CL_OFF:
            if (!s->draining && sim_rnd(s, 2))
                connect_client(s, cl);
            break;
        case CL_CONNECTING: /* is over when svc_attach_open() returns */
            sim_fail(s, "client %u is neither in nor out", sim_index(s, cl));
        case CL_OPEN:
            if (!sim_rnd(s, 60))
                bad_attach(s, cl);
            else if (sim_rnd(s, 4)) /* one in a while says nothing for long */
                attach_hello(s, cl);
            break;
        case CL_HELLO:
            if (!sim_rnd(s, 30))
                sim_die(s, cl);
            break;
        case CL_READY:
            act_ready(s, cl, (enum sim_action)s->choice[i].act);
            break;
        case CL_DROPPED:
            if (!sim_rnd(s, 8))
                sim_die(s, cl);
            break;
        }
    }
}

/* ---- the way of a request ---- */

struct sim_req *sim_req_new(struct sim *s, struct sim_client *cl, uint8_t op)
{
    for (uint32_t i = 0; i < SIM_REQS; i++) {
        struct sim_req *r = &cl->req[i];
        if (r->used)
            continue;
        *r = (struct sim_req){.used = true,
                              .op = op,
                              .corr = ++s->corr,
                              .turn = s->turn,
                              .resv = SIM_NONE,
                              .allowed = 1u << KVC_ST_OK | 1u << KVC_ST_BUSY};
        memset(r->slot, 0xff, sizeof r->slot);
        for (uint32_t k = 0; k < SIM_BLOCKS; k++)
            r->verdict[k] = 1;
        return r;
    }
    return NULL;
}

const struct msg_head *sim_head(struct sim *s, const struct sim_req *r)
{
    static struct msg_head head;
    head = (struct msg_head){.op = r->op, .corr = r->corr};
    if (sim_pct(s, s->swarm.short_pct))
        head.deadline_ms = 1 + sim_rnd(s, 20);
    else if (sim_rnd(s, 8))
        head.deadline_ms = 20 + sim_rnd(s, 2000);
    else if (!sim_rnd(s, 8))
        head.deadline_ms = KVC_DEADLINE_MAX_MS;
    return &head;
}

/* What only the moment of arrival decides. */
static void arrive(struct sim *s, struct sim_client *cl, struct sim_req *r,
                   const struct sim_message *m)
{
    uint32_t ms = m->deadline_ms ? m->deadline_ms : KVC_DEADLINE_DEFAULT_MS;
    r->delivered = true;
    r->due_ns = s->now_ns + MIN(ms, KVC_DEADLINE_MAX_MS) * SIM_MS;
    if (r->op == KVC_OP_RELEASE && s->slices)
        r->due_ns += SVC_RELEASE_NS; /* its turn comes until then */
    else if (r->op == KVC_OP_RELEASE)
        r->due_ns = MIN(r->due_ns, s->now_ns + SVC_RELEASE_NS);
    for (uint32_t i = 0; r->op == KVC_OP_RELEASE && i < SIM_LEASES; i++)
        if (cl->lease[i].id && cl->lease[i].releasing == r->corr)
            cl->lease[i].id = 0;
    const struct sim_ticket *t = &r->ticket;
    if (r->op != KVC_OP_REDEEM || !t->lease || s->slices) /* then it may end before its turn */
        return;
    const struct sim_client *holder = &s->client[t->client];
    for (uint32_t i = 0; i < SIM_LEASES && holder->life == t->life; i++)
        r->ticket_good |= holder->lease[i].id == t->lease;
    r->ticket_good &= t->principal == cl->principal;
    r->ticket_bad = !r->ticket_good;
}

static bool waits(const struct sim_req *r)
{
    return r->op == KVC_OP_COMMIT || r->op == KVC_OP_STORE || r->op == KVC_OP_EVICT ||
           r->op == KVC_OP_CANCEL || r->op == KVC_OP_VERIFY || r->op == KVC_OP_RELEASE ||
           (r->op == KVC_OP_ACQUIRE && (r->wait || sim_with_disk)) ||
           (r->op == KVC_OP_RESERVE && sim_with_disk);
}

static void deliver(struct sim *s, struct sim_message *m)
{
    struct sim_client *cl = &s->client[m->client];
    uint64_t corr = m->corr;
    bool alive = cl->life == m->life && cl->state == CL_READY;
    struct sim_req *r = alive && corr ? sim_req_by_corr(cl, corr) : NULL;
    bool heard = alive && !cl->doomed;
    if (r && heard)
        arrive(s, cl, r, m);
    struct msg_head head;
    if (heard && codec_dec_head(m->bytes, m->len, &head) != 0)
        cl->doomed = true;
    struct sim_message *box = m;
    s->speaking = m->client;
    s->asking = corr;
    svc_request(s->svc, m->route, sizeof m->route, m->bytes, m->len, &box);
    s->speaking = SIM_NONE;
    free(box);
    sim_read_answers(s);
    r = heard && corr ? sim_req_by_corr(cl, corr) : NULL;
    if (r && cl->late && !waits(r))
        cl->doomed = true; /* it has been, since this turn began */
    SIM_CHECK(s, !r || cl->doomed || r->timed_out || waits(r) || s->slices,
              "operation %u is not answered at once", r ? r->op : 0);
}

void sim_send(struct sim *s, struct sim_client *cl, struct sim_req *r, int len)
{
    MUST(len >= 0);
    struct sim_message *m = malloc(sizeof *m + (size_t)len);
    MUST(m != NULL);
    struct msg_head head;
    bool good = codec_dec_head(s->buf, (size_t)len, &head) == 0;
    *m = (struct sim_message){.client = sim_index(s, cl),
                              .life = cl->life,
                              .corr = r ? r->corr : 0,
                              .deadline_ms = good ? head.deadline_ms : 0,
                              .len = (size_t)len};
    memcpy(m->route, cl->route, sizeof m->route);
    memcpy(m->bytes, s->buf, (size_t)len);
    if (s->trace && good)
        sim_trace(s, "client %u: request %llu, operation %u, deadline %u ms", m->client,
                  (unsigned long long)head.corr, head.op, head.deadline_ms);
    cl->arrive_ns = MAX(cl->arrive_ns, s->now_ns);
    if (sim_pct(s, s->swarm.delay_pct))
        cl->arrive_ns += sim_rnd(s, 20) * SIM_MS;
    if (cl->arrive_ns <= s->now_ns && !s->mail) {
        deliver(s, m);
        return;
    }
    m->at_ns = cl->arrive_ns;
    struct sim_message **at = &s->mail;
    while (*at && (*at)->at_ns <= m->at_ns)
        at = &(*at)->next;
    m->next = *at;
    *at = m;
}

void sim_mail(struct sim *s, bool all)
{
    struct sim_message *m;
    while ((m = s->mail) && (all || m->at_ns <= s->now_ns)) {
        s->mail = m->next;
        m->next = NULL;
        deliver(s, m);
    }
}

/* ---- requests ---- */

static void greet(struct sim *s, struct sim_client *cl)
{
    struct msg_hello msg = {.ver_min = KVC_PROTO_MIN, .ver_max = KVC_PROTO_MAX};
    struct sim_req *r = sim_req_new(s, cl, KVC_OP_HELLO);
    if (!r)
        return;
    r->allowed |= 1u << KVC_ST_VERSION;
    if (!sim_rnd(s, 30))
        msg.ver_min = msg.ver_max = KVC_PROTO_MAX + 7;
    sim_send(s, cl, r, codec_enc_hello(s->buf, sizeof s->buf, sim_head(s, r), &msg));
}

bool sim_some_seq(struct sim *s, const struct sim_client *cl, struct sim_seq *ret)
{
    bool gateway = sim_principals[cl->principal].gateway;
    struct sim_seq q = {.space = {.principal = cl->principal,
                                  .spec = sim_rnd(s, s->swarm.specs),
                                  .sub = gateway ? sim_rnd(s, SIM_SUBS) : 0},
                        .chain = sim_rnd(s, s->swarm.chains),
                        .partial = sim_rnd(s, 2)};
    q.tokens = sim_tokens_max(s, q.space.spec);
    if (sim_rnd(s, 2))
        q.tokens = 1 + sim_rnd(s, q.tokens);
    *ret = q;
    return cl->ns[q.space.spec][0] != 0;
}

/* As an engine does: what follows a prefix that it holds. */
static bool hold_on(struct sim *s, const struct sim_client *cl, struct sim_seq *q,
                    uint32_t *ret_hit)
{
    const struct sim_lease *l = &cl->lease[sim_rnd(s, SIM_LEASES)];
    if (!l->id || !cl->ns[l->seq.space.spec][0])
        return false;
    *q = l->seq;
    q->tokens = sim_tokens_max(s, q->space.spec);
    *ret_hit = l->hit;
    return true;
}

bool sim_some_span(struct sim *s, const struct sim_client *cl, struct sim_span *ret)
{
    struct sim_seq q;
    uint32_t hit = 0;
    if (!hold_on(s, cl, &q, &hit) && !sim_some_seq(s, cl, &q))
        return false;
    const struct msg_ns_open *spec = &s->spec[q.space.spec];
    struct sim_span p = {.space = q.space,
                         .chain = q.chain,
                         .group = sim_rnd(s, spec->ngroups),
                         .shard = sim_rnd(s, spec->shards)};
    uint32_t bt = spec->groups[p.group].block_tokens;
    uint32_t blocks = MIN((q.tokens + bt - 1) / bt, SIM_BLOCKS);
    if (hit / bt < blocks && sim_rnd(s, 4))
        p.first = hit / bt;
    else
        p.first = sim_rnd(s, 3) ? 0 : sim_rnd(s, blocks);
    p.n = 1 + sim_rnd(s, blocks - p.first);
    if (sim_rnd(s, 2))
        p.n = blocks - p.first;
    if (p.first + p.n == blocks && q.tokens % bt) {
        if (q.partial)
            p.last_tokens = q.tokens % bt;
        else if (p.n > 1)
            p.n--;
    }
    /* Worlds of engines that say where they read, as devices.c has them, stay what they were. */
    p.durable = s->disk && s->seed % 7 != 6 && !sim_rnd(s, 8);
    *ret = p;
    return true;
}

static void act(struct sim *s, struct sim_client *cl, enum sim_action what)
{
    if (!cl->greeted && sim_rnd(s, 20)) {
        greet(s, cl);
        return;
    }
    switch (what) {
    case ACT_LOOKUP:
    case ACT_ACQUIRE:
    case ACT_WAIT:
    case ACT_REDEEM:
    case ACT_RELEASE:
        sim_act_read(s, cl, what);
        return;
    case ACT_RESERVE:
    case ACT_COMMIT:
    case ACT_STORE:
    case ACT_DROP:
    case ACT_CONFUSED:
    case ACT_CANCEL:
        sim_act_write(s, cl, what);
        return;
    default:
        sim_act_odd(s, cl, what);
        return;
    }
}

void sim_act_requests(struct sim *s)
{
    for (uint32_t i = 0; i < s->nchoices; i++) {
        struct sim_client *cl = &s->client[s->choice[i].client];
        if (cl->state == CL_READY)
            act(s, cl, (enum sim_action)s->choice[i].act);
    }
}
