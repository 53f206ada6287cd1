/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests in flight. A correlation id is found in a hash table, in which an op stands from its
 * making until its outcome is known: parked requests too, or two of them might share a place. A
 * reply that finds nobody is discarded, after giving back what it grants.
 */
#include "client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "client_gpu__.h"
#include "sys.h"

/* Where the op with this id hangs in its bucket, or would. */
static struct kvc_op **slot_of(struct kvc *k, uint64_t corr)
{
    struct kvc_op **at = &k->slot[corr % OPS_SLOTS];
    while (*at != NULL && (*at)->head.corr != corr)
        at = &(*at)->slot_next;
    return at;
}

static void slot_enter(struct kvc_op *op)
{
    struct kvc *k = op->kvc;
    struct kvc_op **bucket = &k->slot[op->head.corr % OPS_SLOTS];
    op->slot_next = *bucket;
    *bucket = op;
    k->in_flight += op->is_callers;
}

static void slot_leave(struct kvc_op *op)
{
    struct kvc_op **at = slot_of(op->kvc, op->head.corr);
    if (*at != op)
        return;
    *at = op->slot_next;
    op->kvc->in_flight -= op->is_callers;
}

/* ---- life of an op ---- */

int op__new_unsent(struct kvc *k, uint8_t code, struct kvc_op **ret_op)
{
    struct kvc_op *op = k->free_ops;
    if (op != NULL)
        k->free_ops = op->next;
    else
        op = sys_malloc(sizeof(*op));
    if (op == NULL)
        return kvc__fail(k, -ENOMEM, "out of memory");

    *op = (struct kvc_op){
        .kvc = k, .head = {.op = code, .corr = ++k->corr}, .epoch = k->epoch, .next = k->live_ops};
    if (op->next != NULL)
        op->next->prev = op;
    k->live_ops = op;
    slot_enter(op);
    *ret_op = op;
    return 0;
}

int op__new_own(struct kvc *k, uint8_t code, uint64_t deadline_ns, struct kvc_op **ret_op)
{
    uint32_t ms = kvc__ms_until(deadline_ns);
    if (ms == 0)
        return kvc__fail(k, KVC_E_TIMEOUT, "the deadline passed before the request was sent");
    int rc = op__new_unsent(k, code, ret_op);
    if (rc < 0)
        return rc;
    (*ret_op)->head.deadline_ms = ms;
    (*ret_op)->guard_ns = deadline_ns + GRACE_MS * NS_PER_MS;
    return 0;
}

int op__new(struct kvc *k, uint8_t code, uint64_t deadline_ns, struct kvc_op **ret_op)
{
    if (k->in_flight >= OPS_MAX)
        return kvc__fail(k, KVC_E_BUSY, "%u requests in flight: wait for some", OPS_MAX);
    int rc = op__new_own(k, code, deadline_ns, ret_op);
    if (rc < 0)
        return rc;
    (*ret_op)->is_callers = true;
    k->in_flight++;
    return 0;
}

static void leave_ready(struct kvc_op *op)
{
    struct kvc *k = op->kvc;
    if (!op->ready)
        return;
    *(op->ready_prev != NULL ? &op->ready_prev->ready_next : &k->ready_first) = op->ready_next;
    *(op->ready_next != NULL ? &op->ready_next->ready_prev : &k->ready_last) = op->ready_prev;
    op->ready = false;
    k->ready_n--;
}

void op__complete(struct kvc_op *op, int error)
{
    struct kvc *k = op->kvc;
    slot_leave(op);
    op->error = error;
    if (op->stage == OP_DONE)
        return;
    op->stage = OP_DONE;
    if (op->ready_word != 0)
        words__raise(k, op->ready_epoch, op->ready_word - 1, op->ready_at);
    if (!op->listed)
        return;
    op->ready = true;
    op->ready_next = NULL;
    op->ready_prev = k->ready_last;
    *(k->ready_last != NULL ? &k->ready_last->ready_next : &k->ready_first) = op;
    k->ready_last = op;
    k->ready_n++;
}

void op__end(struct kvc_op *op, int error)
{
    if (op->then == NULL) {
        op__complete(op, error);
        return;
    }
    op->error = error;
    op->then(op);
}

int kvc_next(struct kvc *kvc, struct kvc_op **ret_op)
{
    if (fork__is_child(kvc))
        return kvc__fail(kvc, -EPERM, "this session belongs to the parent process");
    struct kvc_op *op = kvc->ready_first;
    if (op == NULL)
        return 0;
    leave_ready(op);
    if (kvc->ready_n == 0)
        watch__update(kvc);
    *ret_op = op;
    return 1;
}

/* What an op that is given up would have left behind. */
static void let_go(struct kvc_op *op)
{
    if (op->partner != NULL)
        op->partner->partner = NULL;
    if (op->ns != NULL && op->ns->opening == op)
        op->ns->opening = NULL;
    if (op->head.op == KVC_OP_POOL_OPEN && op->pool != NULL)
        pool__gave_up(op->pool);
    if (op->owns_ns)
        free(op->ns);
    if (op->hold != NULL)
        hold__discard(op->hold);
}

void op__free(struct kvc_op *op)
{
    if (op == NULL)
        return;
    struct kvc *k = op->kvc;
    slot_leave(op);
    leave_ready(op);
    let_go(op);
    wire__msg_free(&op->msg);
    wire__msg_free(&op->sent);
    if (op->prev != NULL)
        op->prev->next = op->next;
    else
        k->live_ops = op->next;
    if (op->next != NULL)
        op->next->prev = op->prev;
    op->next = k->free_ops;
    k->free_ops = op;
}

void op__fail_all(struct kvc *k, int error)
{
    struct kvc_op *next;
    for (struct kvc_op *op = k->live_ops; op != NULL; op = next) {
        next = op->next;
        /* NEW: who is sending it sees to it; ENDING: of a link before this one. */
        if (op->stage == OP_DONE || op->stage == OP_NEW || op->stage == OP_ENDING)
            continue;
        if (op->then != NULL)
            op__free(op);
        else if (!ending__takes(op, error))
            op__complete(op, error);
    }
}

void op__destroy_all(struct kvc *k)
{
    while (k->live_ops != NULL)
        op__free(k->live_ops);
    while (k->free_ops != NULL) {
        struct kvc_op *next = k->free_ops->next;
        free(k->free_ops);
        k->free_ops = next;
    }
}

/* ---- sending ---- */

/* What sending returned. A queue to the daemon that takes no more: its connection is gone, which
 * the attach channel may know; or it has left thousands of requests unread, and is as good as gone.
 */
static int sent(struct kvc *k, int rc)
{
    if (rc == -EAGAIN) {
        rc = kvc__news(k);
        return rc < 0 ? rc
                      : kvc__down(k, KVC_E_DOWN, "the daemon takes no more requests; disconnected");
    }
    if (rc < 0)
        return kvc__down(k, KVC_E_DOWN, "cannot send to the daemon (%s)", strerrordesc_np(-rc));
    return 0;
}

static int too_large(struct kvc *k)
{
    return kvc__fail(k, KVC_E_TOO_LARGE,
                     "the request does not fit a message of %u bytes: send fewer blocks at once",
                     KVC_MESSAGE_MAX);
}

/* Keeps the request for later, and sends it. */
static int send_kept(struct kvc_op *op, int len)
{
    struct kvc *k = op->kvc;
    int rc = wire__msg_make(&op->sent, k->tx, (size_t)len);
    if (rc < 0)
        return kvc__fail(k, rc, "out of memory");
    op->ns_id = op->ns->id;
    if (ns__names(op->head.op) && op->ns->epoch != k->epoch) {
        op->stage = OP_PARKED;
        return ns__reopen(op->ns);
    }
    if (op->pool != NULL && !pool__is_open(op->pool)) {
        op->stage = OP_PARKED;
        return pool__make(op->pool);
    }
    return sent(k, wire__send_msg(&k->wire, &op->sent));
}

int op__send(struct kvc_op *op, int len)
{
    struct kvc *k = op->kvc;
    int rc = len < 0 ? too_large(k) : 0;
    if (rc == 0 && (ns__names(op->head.op) || op->head.op == KVC_OP_COMMIT)) {
        rc = send_kept(op, len);
    } else if (rc == 0) {
        rc = sent(k, wire__send(&k->wire, k->tx, (size_t)len));
    }
    if (rc < 0) {
        op__complete(op, rc);
    } else if (op->stage == OP_NEW) {
        op->stage = OP_SENT;
    }
    watch__update(k);
    return rc;
}

void op__resend(struct kvc_op *op)
{
    struct kvc *k = op->kvc;
    op->head.deadline_ms = kvc__ms_until(op->guard_ns - GRACE_MS * NS_PER_MS);
    if (op->head.deadline_ms == 0) /* which would mean the longest */
        op->head.deadline_ms = 1;
    int len = ns__renumber(op);
    op->ns_id = op->ns->id;
    op->stage = OP_NEW; /* if the link goes down in here, its end is seen to here */
    int rc = len < 0 ? too_large(k) : sent(k, wire__send(&k->wire, k->tx, (size_t)len));
    if (rc < 0) {
        op__end(op, rc);
        return;
    }
    op->stage = OP_SENT;
}

struct msg_head op__post_head(struct kvc *k, uint8_t code)
{
    return (struct msg_head){.op = code, .corr = ++k->corr, .deadline_ms = k->timeout_ms};
}

void op__post(struct kvc *k, int len)
{
    int rc = len < 0 ? kvc__down(k, KVC_E_DOWN, "cannot encode a message of the library's own")
                     : sent(k, wire__send(&k->wire, k->tx, (size_t)len));
    if (rc == 0)
        watch__update(k);
}

/* ---- receiving ---- */

/* Whether its reply grants a lease. */
static bool is_acquire(uint8_t code)
{
    return code == KVC_OP_ACQUIRE || code == KVC_OP_REDEEM || code == KVC_OP_ACQUIRE_ON;
}

/* A reply whose op was given up: nobody else will end the lease or reservation that it grants. */
static void give_back(struct kvc *k, const struct msg_reply_head *h, const struct wire_msg *msg)
{
    struct msg_reply_head head;
    if (h->status != KVC_ST_OK || h->corr > k->corr)
        return;
    if (is_acquire(h->op)) {
        struct msg_acquire_reply reply;
        if (codec_dec_acquire_reply(msg->data, msg->len, &head, &reply) == 0 && reply.lease != 0)
            hold__end_lease(k, reply.lease);
    } else if (h->op == KVC_OP_RESERVE) {
        struct msg_reserve_reply reply;
        if (codec_dec_reserve_reply(msg->data, msg->len, &head, &reply) == 0 &&
            reply.reservation != 0)
            resv__abandon(k, reply.reservation);
    }
}

/* The daemon has let an empty namespace go: it is opened once more, and the request sent again. */
static void send_again(struct kvc_op *op)
{
    struct kvc_ns *ns = op->ns;
    wire__msg_free(&op->msg);
    op->retried = true;
    slot_enter(op);                                      /* it waits for another reply */
    if (op->ns_id != ns->id && ns->epoch == op->epoch) { /* another request saw to that */
        op__resend(op);
        return;
    }
    op->stage = OP_PARKED;
    ns->epoch = 0;
    int rc = ns__reopen(ns);
    if (rc < 0)
        op__complete(op, rc);
}

/* What borrows the caller's memory may still do so when its time is up, and while it is being
 * cancelled. */
static bool must_settle(const struct kvc_op *op)
{
    return op->borrows && (op->partner != NULL || op->error == KVC_E_TIMEOUT);
}

/* op->msg is its reply. */
static void on_reply(struct kvc_op *op, uint16_t status)
{
    slot_leave(op);
    op->error = status == KVC_ST_OK ? 0 : kvc__status_error(status);
    if (op->then != NULL) {
        op->then(op);
    } else if (op->error == KVC_E_NO_NAMESPACE && op->sent.full && !op->retried) {
        send_again(op);
    } else if (must_settle(op)) {
        op->stage = OP_SETTLING;
        op__settle(op);
    } else if (op->error == 0 && is_acquire(op->head.op)) {
        read__go_on(op, 0, 0);
    } else if (op->error == 0 && op->head.op == KVC_OP_NS_OPEN) {
        op__complete(op, ns__on_reply(op));
    } else {
        op__complete(op, op->error);
    }
}

/* Gives the message to its op. */
static int dispatch(struct kvc *k, struct wire_msg *msg)
{
    struct msg_reply_head h;
    if (codec_dec_reply_head(msg->data, msg->len, &h) < 0) {
        wire__msg_free(msg);
        return kvc__down(k, KVC_E_BAD_MESSAGE, "the daemon sent a malformed reply; disconnected");
    }
    k->silent_ns = 0;
    struct kvc_op *op = *slot_of(k, h.corr);
    if (op == NULL || op->stage != OP_SENT) {
        give_back(k, &h, msg);
        wire__msg_free(msg);
        return 1;
    }
    if (h.op != op->head.op) {
        wire__msg_free(msg);
        return kvc__down(k, KVC_E_BAD_MESSAGE,
                         "the daemon answered operation %u as operation %u; disconnected",
                         op->head.op, h.op);
    }
    wire__msg_move(&op->msg, msg);
    on_reply(op, h.status);
    return k->state == LINK_DOWN ? k->down_error : 1;
}

static int op_cut(struct kvc *k)
{
    int rc = kvc__news(k); /* which may know why */
    return rc < 0 ? rc
                  : kvc__down(k, KVC_E_DOWN, "the daemon at %s closed the control connection",
                              k->socket);
}

int op__pump(struct kvc *k, uint64_t until_ns, bool nap)
{
    struct wire_msg msg = {.full = false};
    int rc = wire__recv(&k->wire, nap, &msg);
    while (rc == 0) {
        /* Receiving took from `fd` the news of a connection that has ended, if there was any. */
        if (wire__is_cut(&k->wire))
            return op_cut(k);
        uint32_t ms = kvc__ms_until(until_ns);
        if (ms == 0)
            return 0;
        struct pollfd p[2] = {{.fd = k->wire.fd, .events = POLLIN},
                              {.fd = k->attach_fd, .events = POLLIN}};
        if (k->wire.quiet)
            (void)poll(p, 2, ms > 60000 ? 60000 : (int)ms); /* a failure shows up as no events */
        if (p[1].revents != 0) {
            rc = kvc__news(k);
            return rc < 0 ? rc : 1;
        }
        rc = wire__recv(&k->wire, false, &msg);
    }
    if (rc == -EPROTO)
        return kvc__down(k, KVC_E_BAD_MESSAGE, "the daemon sent a reply in parts; disconnected");
    if (rc < 0)
        return kvc__down(k, KVC_E_DOWN, "cannot receive from the daemon (%s)",
                         strerrordesc_np(-rc));
    return dispatch(k, &msg);
}

/* ---- outcomes ---- */

void op__explain(struct kvc_op *op)
{
    struct msg_reply_head h;
    if (op->error == KVC_E_TIMEOUT && !op->msg.full && !op->borrows)
        (void)kvc__fail(op->kvc, op->error, "no reply within %u ms", op->head.deadline_ms);
    if (op->error == 0 || !op->msg.full ||
        codec_dec_reply_head(op->msg.data, op->msg.len, &h) < 0 || h.status == KVC_ST_OK)
        return;
    if (h.detail.n > 0)
        (void)kvc__fail(op->kvc, op->error, "%s: %.*s", codec_status_name(h.status),
                        (int)h.detail.n, (const char *)h.detail.p);
    else
        (void)kvc__fail(op->kvc, op->error, "%s: %s", codec_status_name(h.status),
                        codec_status_text(h.status));
}

int op__await(struct kvc_op *op)
{
    struct kvc *k = op->kvc;
    while (op->stage != OP_DONE) {
        if (op->stage == OP_ENDING)
            op__await_ending(op);
        else if (op__pump(k, op->guard_ns, op->stage == OP_SENT) == 0)
            op__expire(k);
    }
    watch__update(k);
    op__explain(op);
    return op->error;
}

int op__call(struct kvc_op *op, int len)
{
    int rc = op__send(op, len);
    return rc < 0 ? rc : op__await(op);
}

int op__checked(struct kvc_op *op, int decoded)
{
    if (decoded >= 0)
        return 0;
    if (op->epoch != op->kvc->epoch) /* of a connection that has ended since */
        return kvc__fail(op->kvc, KVC_E_BAD_MESSAGE,
                         "the daemon sent a malformed reply to operation %u", op->head.op);
    return kvc__down(op->kvc, KVC_E_BAD_MESSAGE,
                     "the daemon sent a malformed reply to operation %u; disconnected",
                     op->head.op);
}
