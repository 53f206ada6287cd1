/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that outlive their handler: deadlines and cancelling. */
#include "svc__.h"

static uint64_t deadline_of(const struct svc *s, const struct msg_head *head)
{
    uint32_t ms = head->deadline_ms ? head->deadline_ms : KVC_DEADLINE_DEFAULT_MS;
    return s->now_ns + MIN(ms, KVC_DEADLINE_MAX_MS) * 1000000ull;
}

void call_await_gone(struct call *call, void (*fn)(struct core_gone *gone, int err))
{
    call->gone = (struct core_gone){.fn = fn};
    call->going = true;
    core_gone_await(call->session->svc->core, &call->gone);
}

const char *call_gone_detail(int err)
{
    return err == KVC_E_TIMEOUT ? "the blocks are removed, but storage has not said in time that "
                                  "they stay away after a crash; ask again to wait for it"
                                : "the blocks are removed, but the journal of the storage tier "
                                  "takes no commits: after a restart they may be back (PATHS)";
}

/* Answers with an error, and ends, a call whose removal is not on stable storage. */
static void gone_expire(struct call *call)
{
    core_gone_cancel(&call->gone);
    reply_error(call->session->svc, call->session, &call->head, KVC_E_TIMEOUT,
                call_gone_detail(KVC_E_TIMEOUT));
    call_end(call->session->svc, call);
}

/* The core goes on with what a name lets go of. */
static void call_leave_name(struct core *c, struct call *call)
{
    core_ask_cancel(c, &call->asking);
    core_name_cancel(&call->name_waiter);
    if (call->head.op == KVC_OP_NAME_FORGET)
        audit_forgotten(call);
    core_name_forget_cancel(&call->forgetting);
}

/* Part of it is done. */
static void evict_stop(struct call *call, int err)
{
    core_evict_cancel(call->session->svc->core, &call->job);
    call->job.ret_err = err;
    audit_evicted(call->session, &call->job);
}

/* Ends what the core does for a call that is answered with TIMEOUT at once: why; NULL: for this one
 * there is more to do. */
static const char *call_give_up(struct core *c, struct call *call)
{
    switch ((enum call_kind)call->kind) {
    case CALL_LOOK:
        core_ask_cancel(c, &call->asking);
        return "not all keys had been looked up; others had their turns too";
    case CALL_REDEEM:
        redeem_cancel(call);
        return "not all blocks had been held; others had their turns too";
    case CALL_TURN:
        return "other requests of the session, or of others, took so long";
    case CALL_RESERVE:
        reserve_cancel(call);
        return "not all blocks had been reserved; those that were are dropped";
    case CALL_UNPIN:
        return "the pin has ended, and lets go of its blocks yet";
    case CALL_NAME:
        call_leave_name(c, call);
        if (call->put.seq && call->asking.named.tokens == 0)
            return "not all keys had been looked up; the name is as it was";
        return call->put.seq && !call->put.durable
                   ? "it is done, but the name may not have let go yet of all that it was"
                   : "it is done, but not on stable storage yet";
    case CALL_EVICT:
        evict_stop(call, KVC_E_TIMEOUT);
        return call->job.evicted ? call_gone_detail(KVC_E_TIMEOUT)
                                 : "part of it is done; ask again with a longer deadline";
    default:
        return NULL;
    }
}

static void call_expire(void *ctx, uint64_t now_ns)
{
    struct call *call = ctx;
    struct svc *s = call->session->svc;
    (void)now_ns;
    FLIGHT(TIMEOUT, call->head.op, call->session->index, call->head.corr);
    if (call->going) {
        gone_expire(call);
        return;
    }
    const char *why = call_give_up(s->core, call);
    if (why) {
        reply_error(s, call->session, &call->head, KVC_E_TIMEOUT, why);
        call_end(s, call);
        return;
    }
    switch ((enum call_kind)call->kind) {
    case CALL_LOOK:
    case CALL_REDEEM:
    case CALL_TURN:
    case CALL_RESERVE:
    case CALL_UNPIN:
    case CALL_NAME:
    case CALL_EVICT:
        return; /* given up above */
    case CALL_WAIT:
        wait_finish(call);
        return;
    case CALL_DROP:
        drop_finish(call);
        return;
    case CALL_ROOM:
        room_finish(call);
        return;
    case CALL_LOAD:
        load_finish(call);
        return;
    case CALL_COMMIT:
        /* The copies still run: told now, freed when they have ended. */
        call->answered = true;
        reply_error(s, call->session, &call->head, KVC_E_TIMEOUT,
                    call->pages
                        ? "copies may still be running, cancel before reusing the pages; what was "
                          "to be durable is not known to be"
                        : "copies may still be running, cancel before reusing the staging area; "
                          "what was to be durable is not known to be");
        work_leave(call);
        core_commit_cancel(s->core, &call->commit); /* the call may end in here */
        return;
    case CALL_SEND: /* as a commit */
        call->answered = true;
        core_send_cancel(s->core, &call->send);
        reply_error(s, call->session, &call->head, KVC_E_TIMEOUT,
                    "the copies are still running; cancel before reusing the pages");
        return;
    case CALL_FILL:
        fill_finish(call);
        return;
    case CALL_VERIFY: /* as a commit */
        call->answered = true;
        core_verify_cancel(s->core, &call->verify);
        reply_error(s, call->session, &call->head, KVC_E_TIMEOUT,
                    "the blocks were not read in time; ask again with a longer deadline, or for "
                    "fewer bytes");
        return;
    }
}

struct call *call_try(struct request *rq, enum call_kind kind)
{
    struct svc *s = rq->s;
    struct call *call = share_get(&s->call_share, rq->se->index, s->calls);
    if (!call)
        return NULL;
    call->session = rq->se;
    call->head = rq->head;
    call->kind = (uint8_t)kind;
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

struct call *call_new(struct request *rq, enum call_kind kind)
{
    struct call *call = call_try(rq, kind);
    if (!call)
        reply_error(rq->s, rq->se, &rq->head, KVC_E_BUSY,
                    "too many requests are waiting (limits.waiters)");
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
    reply_error(rq->s, rq->se, &rq->head, KVC_E_BUSY,
                "too many requests are waiting (limits.waiters)");
    call_end(rq->s, call);
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
        return; /* it has none, or a call has them now */
    s->ports.unkeep(s->ports.ctx, rq->kept);
    share_give(&s->kept_share, rq->se->index, rq->kept_bytes);
    rq->kept = NULL;
}

void call_rearm(struct call *call, uint64_t due_ns)
{
    wheel_add(&call->session->svc->wheel, &call->timer, due_ns);
}

/* Of what is left; enough for copies that have begun, of which few are given to a device at a time.
 */
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
    locs_free(s, call);
    if (call->pages)
        call->pages->calls--;
    call_bytes_end(call);
    se->inflight--; /* not at a timeout: a copy that still runs counts */
    if (call->has_cancel && se->state == SESSION_READY) {
        struct msg_cancel_reply msg = {.found = 1};
        s->m.replies_ok++;
        reply_send(s, se, codec_enc_cancel_reply(s->out, sizeof s->out, &call->cancel, &msg));
    }
    share_put(&s->call_share, se->index, s->calls, call);
    s->m.calls--;
}

/* Stops a call whose requester no longer wants an answer, or (answer) gets CANCELLED. */
static void call_stop(struct svc *s, struct call *call, bool answer)
{
    if (call->going) {
        core_gone_cancel(&call->gone);
        if (answer)
            reply_error(s, call->session, &call->head, KVC_E_CANCELLED, NULL);
        call_end(s, call);
        return;
    }
    switch ((enum call_kind)call->kind) {
    case CALL_NAME:
        call_leave_name(s->core, call);
        break;
    case CALL_DROP:
        if (!answer) /* its session's end drops the rest */
            break;
        drop_finish(call); /* it is too late to change one's mind */
        return;
    case CALL_TURN:
    case CALL_UNPIN: /* the core goes on with it */
        break;
    case CALL_RESERVE:
        reserve_cancel(call);
        break;
    case CALL_REDEEM:
        redeem_cancel(call);
        break;
    case CALL_LOOK:
    case CALL_WAIT:
    case CALL_LOAD:
    case CALL_ROOM:
        if (call->locs) /* nobody has been told of the lease */
            (void)!core_release(s->core, call->session->client, call->held.lease);
        core_ask_cancel(s->core, &call->asking);
        core_waiter_cancel(s->core, &call->waiter);
        break;
    case CALL_EVICT:
        evict_stop(call, KVC_E_CANCELLED);
        break;
    case CALL_FILL: /* nobody has been told of the lease */
        core_fill_cancel(s->core, &call->fill);
        /* Unless its client has guessed the number. */
        (void)!core_release(s->core, call->session->client, call->held.lease);
        break;
    case CALL_VERIFY:
    case CALL_COMMIT:
    case CALL_SEND:
        call->cancelled = true;
        work_leave(call);
        if (!answer) /* who cancelled is still owed a reply by the deadline */
            wheel_del(&s->wheel, &call->timer);
        if (call->kind == CALL_VERIFY)
            core_verify_cancel(s->core, &call->verify);
        else if (call->kind == CALL_COMMIT)
            core_commit_cancel(s->core, &call->commit);
        else
            core_send_cancel(s->core, &call->send);
        return; /* ends in its done(), which may have run */
    }
    if (answer)
        reply_error(s, call->session, &call->head, KVC_E_CANCELLED, NULL);
    call_end(s, call);
}

void call_cancel_all(struct svc *s, struct session *se)
{
    LIST_FOR_EACH_SAFE (node, next, &se->calls)
        call_stop(s, CONTAINER_OF(node, struct call, node), false);
}

/* For what is not to come any more: a word, or what other ranks would store. */
static bool waits_for_others(struct svc *s, struct call *call)
{
    const bool sends = call->kind == CALL_SEND;
    if (call->kind == CALL_COMMIT && core_commit_lacks_shards(s->core, &call->commit))
        return true;
    if (!sends && (call->kind != CALL_COMMIT || !call->pages))
        return false;
    const _Atomic uint64_t *after = sends ? call->send.after : call->commit.after;
    const uint64_t value = sends ? call->send.after_value : call->commit.after_value;
    return after && atomic_load_explicit(after, memory_order_acquire) < value;
}

void call_drain(struct svc *s, struct call *call)
{
    if (!waits_for_others(s, call))
        return;
    call->drained = true;
    if (call->kind == CALL_SEND)
        core_send_cancel(s->core, &call->send);
    else
        core_commit_cancel(s->core, &call->commit);
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
    reply_owed(s, rq->se); /* the target's own answer comes before that to the CANCEL */
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
        call_stop(s, call, true);
        return;
    }
    struct msg_cancel_reply reply = {.found = 0};
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_enc_cancel_reply(s->out, sizeof s->out, &rq->head, &reply));
}
