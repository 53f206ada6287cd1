/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the bytes of a request to its handler: finds the session, decodes the head, and calls the
 * entry of the table `ops`. Every request over the ZeroMQ socket begins here.
 */
#include "svc__.h"

static void op_hello(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_hello msg;
    int err = codec_dec_hello(rq->buf, rq->len, &rq->head, &msg);
    const char *why = err ? rq->head.detail : NULL;
    if (!err && (msg.ver_min > rq->se->version || msg.ver_max < rq->se->version)) {
        err = KVC_E_VERSION;
        why = "the range does not contain the version settled on when attaching";
    }
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    rq->se->greeted = true;
    struct msg_hello_reply reply = {.version = rq->se->version,
                                    .server = codec_text(s->cfg.server)};
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_enc_hello_reply(s->out, sizeof s->out, &rq->head, &reply));
}

static void op_ping(struct request *rq)
{
    struct svc *s = rq->s;
    int err = codec_dec_bare(rq->buf, rq->len, &rq->head);
    if (err) {
        reply_error(s, rq->se, &rq->head, err, rq->head.detail);
        return;
    }
    struct msg_ping_reply reply = {.uptime_ms = (s->now_ns - s->start_ns) / 1000000};
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_enc_ping_reply(s->out, sizeof s->out, &rq->head, &reply));
}

typedef void(op_fn)(struct request *rq);

static op_fn *const ops[] = {
    [KVC_OP_HELLO] = op_hello,
    [KVC_OP_PING] = op_ping,
    [KVC_OP_NS_OPEN] = op_ns_open,
    [KVC_OP_LOOKUP] = op_lookup,
    [KVC_OP_ACQUIRE] = op_acquire,
    [KVC_OP_REDEEM] = op_redeem,
    [KVC_OP_RELEASE] = op_release,
    [KVC_OP_RESERVE] = op_reserve,
    [KVC_OP_COMMIT] = op_commit,
    [KVC_OP_STORE] = op_store,
    [KVC_OP_DROP] = op_drop,
    [KVC_OP_CANCEL] = op_cancel,
    [KVC_OP_STATS] = op_stats,
    [KVC_OP_EVICT] = op_evict,
    [KVC_OP_VERIFY] = op_verify,
    [KVC_OP_TRACE] = op_trace,
    [KVC_OP_TRACE_DUMP] = op_trace_dump,
    [KVC_OP_DRAIN] = op_drain,
    [KVC_OP_PIN] = op_pin,
    [KVC_OP_UNPIN] = op_unpin,
    [KVC_OP_QUOTA_SET] = op_quota_set,
    [KVC_OP_SESSION_END] = op_session_end,
    [KVC_OP_POLICY] = op_policy,
    [KVC_OP_HINT] = op_hint,
    [KVC_OP_NS_SPEC] = op_ns_spec,
    [KVC_OP_NAME_PUT] = op_name_put,
    [KVC_OP_NAME_FORGET] = op_name_forget,
    [KVC_OP_NAME_LOAD] = op_name_load,
    [KVC_OP_NAME_TOKENS] = op_name_tokens,
    [KVC_OP_POOL_OPEN] = op_pool_open,
    [KVC_OP_POOL_CLOSE] = op_pool_close,
    [KVC_OP_PAGES_LOAD] = op_pages_load,
    [KVC_OP_PAGES_STORE] = op_pages_store,
    [KVC_OP_ACQUIRE_ON] = op_acquire_on,
    [KVC_OP_LIST] = op_list,
};

/* Whether a session may make this request when it has too many in flight, or the daemon stops:
 * requests that release things, and PING and STATS. */
static bool always_allowed(uint8_t op)
{
    return op == KVC_OP_RELEASE || op == KVC_OP_DROP || op == KVC_OP_CANCEL || op == KVC_OP_PING ||
           op == KVC_OP_STATS;
}

static bool dispatch_is_full(const struct request *rq)
{
    return rq->se->inflight >= rq->s->cfg.requests_max && !always_allowed(rq->head.op);
}

static void refuse_full(struct request *rq)
{
    reply_error(rq->s, rq->se, &rq->head, KVC_E_BUSY,
                "too many requests of this session are in flight (limits.requests)");
}

static void dispatch(struct request *rq)
{
    struct svc *s = rq->s;
    uint8_t op = rq->head.op;
    if (op >= ARRAY_LEN(ops) || !ops[op]) {
        reply_error(s, rq->se, &rq->head, KVC_E_UNKNOWN_OP, NULL);
    } else if (!rq->se->greeted && op != KVC_OP_HELLO) {
        reply_error(s, rq->se, &rq->head, KVC_E_VERSION, "HELLO must be the first request");
    } else if (s->stopping && !always_allowed(op)) {
        reply_error(s, rq->se, &rq->head, KVC_E_SHUTDOWN, NULL);
    } else if (dispatch_is_full(rq)) {
        refuse_full(rq);
    } else {
        ops[op](rq);
    }
}

/* Runs in the turn of a request that was not handled when it was received. */
static void turn_comes(struct call *call)
{
    struct svc *s = call->session->svc;
    struct request rq;
    call_resume(call, &rq);
    call_end(s, call);
    dispatch(&rq);
    request_end(&rq);
}

/* A request that waits for its turn, because other requests are due first. */
static const struct call_kind turn_kind = {
    .late = "other requests of the session, or of others, took so long"};

static void turn_queue(struct request *rq)
{
    struct call *call = call_new_kept(rq, &turn_kind);
    if (call)
        work_wait(call, turn_comes);
}

void svc_request(struct svc *s, const void *route, size_t route_len, const void *buf, size_t len,
                 void *msg)
{
    struct session *se = session_by_route(s, route, route_len);
    if (!se || se->close_pending) {
        s->m.unknown_routes++;
        return;
    }
    struct request rq = {.s = s, .se = se, .buf = buf, .len = len, .msg = msg};
    s->m.requests++;
    if (codec_dec_head(buf, len, &rq.head) != 0) {
        s->m.bad_messages++;
        session_close_soon(se, KVC_ST_BAD_MESSAGE, "its bytes are not a request of this protocol");
        return;
    }
    FLIGHT(REQ, rq.head.op, se->index, rq.head.corr);
    const uint64_t begun = work_begin(s);
    /* A CANCEL is not queued: its target may be queued before it. */
    if (rq.head.op == KVC_OP_CANCEL || work_comes_first(se))
        dispatch(&rq);
    else if (dispatch_is_full(&rq))
        refuse_full(&rq);
    else
        turn_queue(&rq);
    request_end(&rq);
    work_charge(se, rq.head.op, begun, len);
}
