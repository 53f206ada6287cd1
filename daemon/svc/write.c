/* SPDX-License-Identifier: Apache-2.0 */
/* RESERVE, COMMIT, STORE, DROP. */
#include "svc__.h"

static int reserve_in(struct request *rq, const struct msg_reserve *msg,
                      struct core_reserve *ret_in)
{
    struct core_reserve in = {.group = msg->group,
                              .shard = msg->shard,
                              .parent = msg->parent.n ? msg->parent.p : NULL,
                              .first_token = msg->first_token,
                              .keys = msg->keys.p,
                              .n = msg->keys.n / KVC_KEY_BYTES,
                              .last_tokens = msg->last_tokens};
    int err = core_ns_get(rq->s->core, rq->se->client, msg->ns, msg->sub.p, msg->sub.n, &in.ns);
    if (!err)
        *ret_in = in;
    return err;
}

void op_reserve(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_reserve msg;
    struct core_reserve in;
    struct msg_reserve_reply reply = {0};
    const char *why = NULL;
    int err = codec_dec_reserve(rq->buf, rq->len, &rq->head, &msg);
    if (err)
        why = rq->head.detail;
    if (!err && (err = reserve_in(rq, &msg, &in)))
        why = ns_detail(err);
    if (!err)
        err = core_reserve(s->core, rq->se->client, &in, &reply.reservation, s->scratch, &why);
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    if (s->trace)
        trace__stored(s, rq->se, &in);
    reply.statuses = (struct codec_bin){s->scratch, in.n};
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_enc_reserve_reply(s->out, sizeof s->out, &rq->head, &reply));
}

static void reply_commit(struct svc *s, struct session *se, const struct msg_head *head,
                         const uint8_t *statuses, uint32_t n)
{
    struct msg_commit_reply reply = {.statuses = {statuses, n}};
    s->m.replies_ok++;
    reply_send(s, se, codec_enc_commit_reply(s->out, sizeof s->out, head, &reply));
}

static void on_commit_done(struct core_commit *m)
{
    struct call *call = CONTAINER_OF(m, struct call, commit);
    struct session *se = call->session;
    struct svc *s = se->svc;
    histo_add(&s->m.commit_ns, s->now_ns - call->begun_ns);
    if (!call->answered && se->state == SESSION_READY) {
        if (call->cancelled)
            reply_error(s, se, &call->head, KVC_E_CANCELLED, NULL);
        else
            reply_commit(s, se, &call->head, call->statuses, m->n);
    }
    call_end(s, call);
}

/* Token ids, where the namespace wants them: as many as the committed blocks can hold. They are
 * checked here; what consumes them attaches to this place. */
static const char *tokens_fault(const struct core_ns *ns, uint32_t group, uint32_t blocks,
                                struct codec_bin tokens)
{
    struct core_ns_view v;
    core_ns_view(ns, &v);
    if (!(v.spec->flags & KVC_F_TOKENS))
        return tokens.n ? "tokens: the namespace was opened without them" : NULL;
    uint64_t most = (uint64_t)blocks * v.spec->group[group].block_tokens * 4;
    if (tokens.n % 4)
        return "tokens: not a multiple of 4 bytes";
    return tokens.n > most ? "tokens: more than the blocks hold" : NULL;
}

/* Starts the copies of `call`, or answers when there are none. */
static void commit_run(struct request *rq, struct call *call, const char *why)
{
    struct svc *s = rq->s;
    struct core_commit *m = &call->commit;
    m->staging = rq->se->staging_base;
    m->staging_bytes = rq->se->staging_bytes;
    m->deadline_ns = call->timer.due_ns;
    m->statuses = call->statuses;
    m->done = on_commit_done;
    int err = core_commit(s->core, rq->se->client, m, &why);
    if (err == 1)
        return;
    if (err)
        reply_error(s, rq->se, &rq->head, err, why);
    else
        reply_commit(s, rq->se, &rq->head, call->statuses, m->n);
    call_end(s, call);
}

void op_commit(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_commit msg;
    const char *why = NULL;
    int err = codec_dec_commit(rq->buf, rq->len, &rq->head, &msg);
    if (err) {
        reply_error(s, rq->se, &rq->head, err, rq->head.detail);
        return;
    }
    struct core_ns *ns;
    uint32_t group;
    err = core_reservation(s->core, rq->se->client, msg.reservation, &ns, &group);
    if (!err && (why = tokens_fault(ns, group, msg.offsets.n / 8, msg.tokens)))
        err = KVC_E_BAD_ARGUMENT;
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    struct call *call = call_new(rq, CALL_COMMIT);
    if (!call)
        return;
    memset(call->statuses, KVC_ST_OK, msg.offsets.n / 8);
    call->commit = (struct core_commit){.reservation = msg.reservation,
                                        .first = msg.first,
                                        .n = msg.offsets.n / 8,
                                        .offsets = msg.offsets.p};
    commit_run(rq, call, why);
}

void op_store(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_store msg;
    struct core_reserve in;
    const char *why = NULL;
    int err = codec_dec_store(rq->buf, rq->len, &rq->head, &msg);
    if (err)
        why = rq->head.detail;
    if (!err && (err = reserve_in(rq, &msg.reserve, &in)))
        why = ns_detail(err);
    if (!err && msg.offsets.n / 8 != in.n) {
        err = KVC_E_BAD_ARGUMENT;
        why = "offsets: one per key";
    }
    if (!err && in.group < KVC_GROUPS_MAX &&
        (why = tokens_fault(in.ns, in.group, in.n, msg.tokens)))
        err = KVC_E_BAD_ARGUMENT;
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    struct call *call = call_new(rq, CALL_COMMIT);
    if (!call)
        return;
    uint64_t reservation;
    err = core_reserve(s->core, rq->se->client, &in, &reservation, call->statuses, &why);
    if (!err && s->trace)
        trace__stored(s, rq->se, &in);
    if (err || !reservation) {
        if (err)
            reply_error(s, rq->se, &rq->head, err, why);
        else
            reply_commit(s, rq->se, &rq->head, call->statuses, in.n);
        call_end(s, call);
        return;
    }
    call->commit = (struct core_commit){
        .reservation = reservation, .n = in.n, .offsets = msg.offsets.p, .store = true};
    commit_run(rq, call, why);
    /* What was reserved and not copied (a bad offset, an empty pool) has nobody to commit it. */
    err = core_drop(s->core, rq->se->client, reservation);
    MUST(err == 0 || err == KVC_E_GONE);
}

void op_drop(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_drop msg;
    int err = codec_dec_drop(rq->buf, rq->len, &rq->head, &msg);
    const char *why = err ? rq->head.detail : NULL;
    if (!err)
        err = core_drop(s->core, rq->se->client, msg.reservation);
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_enc_bare_reply(s->out, sizeof s->out, &rq->head));
}
