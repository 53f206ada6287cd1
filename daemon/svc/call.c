/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls: requests that outlive their handler, because they wait or copy. Deadlines, CANCEL, and the
 * one end that each has.
 */
#include "svc__.h"

#define TOO_MANY_CALLS "too many requests are waiting (limits.waiters)"

static uint64_t deadline_of(const struct svc *s, const struct msg_head *head)
{
    uint32_t ms = head->deadline_ms ? head->deadline_ms : KVC_DEADLINE_DEFAULT_MS;
    return s->now_ns + MIN(ms, KVC_DEADLINE_MAX_MS) * 1000000ull;
}

#define GONE_LATE                                                                                  \
    "the blocks are removed, but storage has not said in time that they stay away after a crash; " \
    "ask again to wait for it"

static void gone_leave(struct call *call)
{
    core_gone_cancel(&call->gone);
}

/* A call that waits until its removals outlive a crash. */
static const struct call_kind gone_kind = {.leave = gone_leave, .late = GONE_LATE};

void call_await_gone(struct call *call, void (*fn)(struct core_gone *gone, int err))
{
    call->gone = (struct core_gone){.fn = fn};
    call->kind = &gone_kind;
    core_gone_await(call->session->svc->core, &call->gone);
}

const char *call_gone_detail(int err)
{
    return err == KVC_E_TIMEOUT
               ? GONE_LATE
               : "the blocks are removed, but the journal of the storage tier "
                 "takes no commits: after a restart they may be back (kvcachectl stats)";
}

static void call_off(struct call *call, int err)
{
    const struct call_kind *kind = call->kind;
    call->err = err;
    work_leave(call);
    if (kind->leave)
        kind->leave(call); /* a call with copies may end in here */
    if (!kind->copies)
        call_end(call->session->svc, call);
}

static void call_expire(void *ctx, uint64_t now_ns)
{
    struct call *call = ctx;
    const struct call_kind *kind = call->kind;
    (void)now_ns;
    FLIGHT(TIMEOUT, call->head.op, call->session->index, call->head.corr);
    if (kind->expire) {
        kind->expire(call);
        return;
    }
    reply_error(call->session->svc, call->session, &call->head, KVC_E_TIMEOUT,
                kind->late_of ? kind->late_of(call) : kind->late);
    call->answered = true;
    call_off(call, KVC_E_TIMEOUT);
}

void *call_try(struct request *rq, const struct call_kind *kind)
{
    struct svc *s = rq->s;
    struct call *call = share_get(&s->call_share, rq->se->index, s->calls);
    if (!call)
        return NULL;
    call->session = rq->se;
    call->head = rq->head;
    call->kind = kind;
    call->begun_ns = request_begun_ns(rq);
    call->buf = rq->buf;
    call->len = rq->len;
    call->timer.fn = call_expire;
    call->timer.ctx = call;
    call->due_ns = rq->due_ns ? rq->due_ns : deadline_of(s, &rq->head);
    list_push_back(&rq->se->calls, &call->node);
    wheel_add(&s->wheel, &call->timer, call->due_ns);
    rq->se->inflight++;
    s->m.calls++;
    return call;
}

void *call_new(struct request *rq, const struct call_kind *kind)
{
    struct call *call = call_try(rq, kind);
    if (!call)
        reply_error(rq->s, rq->se, &rq->head, KVC_E_BUSY, TOO_MANY_CALLS);
    return call;
}

bool call_keep(struct request *rq, struct call *call)
{
    struct svc *s = rq->s;
    if (rq->kept) {
        call->kept = rq->kept;
        call->kept_bytes = rq->kept_bytes;
        rq->kept = NULL;
    } else if (share_take(&s->kept_share, rq->se->index, rq->len)) {
        call->kept_bytes = rq->len;
        call->kept = s->ports.keep(s->ports.ctx, rq->msg, &call->buf);
    }
    return call->kept != NULL;
}

void refuse_to_keep(struct request *rq, struct call *call)
{
    reply_error(rq->s, rq->se, &rq->head, KVC_E_BUSY, TOO_MANY_CALLS);
    call_end(rq->s, call);
}

void *call_new_kept(struct request *rq, const struct call_kind *kind)
{
    struct call *call = call_new(rq, kind);
    if (!call || call_keep(rq, call))
        return call;
    refuse_to_keep(rq, call);
    return NULL;
}

void call_unkeep(struct request *rq, struct call *call)
{
    MUST(!rq->kept);
    rq->kept = call->kept;
    rq->kept_bytes = call->kept_bytes;
    call->kept = NULL;
    call->kept_bytes = 0;
}

void call_resume(struct call *call, struct request *ret_rq)
{
    *ret_rq = (struct request){.s = call->session->svc,
                               .se = call->session,
                               .head = call->head,
                               .buf = call->buf,
                               .len = call->len,
                               .begun_ns = call->begun_ns,
                               .due_ns = call->due_ns,
                               .kept = call->kept,
                               .kept_bytes = call->kept_bytes};
    call->kept = NULL;
    call->kept_bytes = 0;
}

void request_end(struct request *rq)
{
    struct svc *s = rq->s;
    if (!rq->kept)
        return; /* the request's bytes are not kept, or a call owns them now */
    s->ports.unkeep(s->ports.ctx, rq->kept);
    share_give(&s->kept_share, rq->se->index, rq->kept_bytes);
    rq->kept = NULL;
}

void call_rearm(struct call *call, uint64_t due_ns)
{
    wheel_add(&call->session->svc->wheel, &call->timer, due_ns);
}

/* The most of the remaining time that is kept for copies that have begun, of which few are given to
 * a device at a time. */
#define COPIES_END_NS (UINT64_C(100) * 1000000)

uint64_t call_copies_due(const struct call *call)
{
    const uint64_t now_ns = call->session->svc->now_ns;
    const uint64_t left_ns = call->due_ns > now_ns ? call->due_ns - now_ns : 0;
    return call->due_ns - MIN(left_ns / 8, COPIES_END_NS);
}

void call_bytes_end(struct call *call)
{
    struct svc *s = call->session->svc;
    if (call->kept)
        s->ports.unkeep(s->ports.ctx, call->kept);
    share_give(&s->kept_share, call->session->index, call->kept_bytes);
    call->kept = NULL;
    call->kept_bytes = 0;
}

void call_end(struct svc *s, struct call *call)
{
    struct session *se = call->session;
    wheel_del(&s->wheel, &call->timer);
    list_remove(&call->node);
    work_leave(call);
    if (call->pages)
        call->pages->calls--;
    call_bytes_end(call);
    se->inflight--; /* not earlier, at a timeout: a copy that still runs counts as in flight */
    if (call->has_cancel && se->state == SESSION_READY) {
        struct msg_cancel_reply msg = {.found = 1};
        s->m.replies_ok++;
        reply_send(s, se, codec_enc_cancel_reply(s->out, sizeof s->out, &call->cancel, &msg));
    }
    share_put(&s->call_share, se->index, s->calls, call);
    s->m.calls--;
}

bool call_tells(struct call *call)
{
    struct session *se = call->session;
    if (call->answered || se->state != SESSION_READY)
        return false;
    if (call->err)
        reply_error(se->svc, se, &call->head, call->err,
                    call->err == KVC_E_BUSY ? TOO_MANY_CALLS : NULL);
    return !call->err;
}

/* Ends a call early. A call whose copies must end first keeps its timer if a client cancels it,
 * because the CANCEL must be answered by the deadline. */
static void call_stop(struct call *call, bool answer)
{
    struct svc *s = call->session->svc;
    if (call->kind->copies && !answer)
        wheel_del(&s->wheel, &call->timer);
    if (!call->kind->copies && answer)
        reply_error(s, call->session, &call->head, KVC_E_CANCELLED, NULL);
    call_off(call, KVC_E_CANCELLED);
}

void call_cancel_all(struct session *se)
{
    LIST_FOR_EACH_SAFE (node, next, &se->calls)
        call_stop(CONTAINER_OF(node, struct call, node), false);
}

void op_cancel(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_cancel msg;
    int err = codec_dec_cancel(rq->buf, rq->len, &rq->head, &msg);
    if (err) {
        reply_error(s, rq->se, &rq->head, err, rq->head.detail);
        return;
    }
    reply_owed(s, rq->se); /* the target's own reply is sent before that to the CANCEL */
    LIST_FOR_EACH_SAFE (node, next, &rq->se->calls) {
        struct call *call = CONTAINER_OF(node, struct call, node);
        if (call->head.corr != msg.target)
            continue;
        FLIGHT(CANCEL, call->head.op, rq->se->index, msg.target);
        if (call->has_cancel) {
            reply_error(s, rq->se, &rq->head, KVC_E_BUSY, "a cancel of this request is under way");
            return;
        }
        call->has_cancel = true;
        call->cancel = rq->head;
        if (call->kind->cancel)
            call->kind->cancel(call);
        else
            call_stop(call, true);
        return;
    }
    struct msg_cancel_reply reply = {.found = 0};
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_enc_cancel_reply(s->out, sizeof s->out, &rq->head, &reply));
}
