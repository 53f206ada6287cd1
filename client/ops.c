/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests in flight: sent, answered, waited for. Every call passes op__send() and, if it waits,
 * op__await(). A reply whose op is gone is discarded, after giving back what the reply grants.
 */
#include "client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "client_gpu__.h"

/* ---- sending ---- */

/* Handles the result of a send. -EAGAIN: the connection has ended, and the attach channel may say
 * why; or the daemon has left thousands of requests unread, which counts as an end, too. */
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

/* Sends the request, and keeps a copy of it in op->sent. */
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
    op->head.deadline_ms = kvc__ms_until(op->grace_ns - GRACE_MS * NS_PER_MS);
    if (op->head.deadline_ms == 0) /* on the wire 0 means the longest deadline */
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
    return (struct msg_head){.op = code, .corr = ++k->ops.corr, .deadline_ms = k->timeout_ms};
}

void op__post(struct kvc *k, int len)
{
    int rc = len < 0 ? kvc__down(k, KVC_E_DOWN, "cannot encode a message of the library's own")
                     : sent(k, wire__send(&k->wire, k->tx, (size_t)len));
    if (rc == 0)
        watch__update(k);
}

void op__post_release(struct kvc *k, uint64_t lease)
{
    if (k->state != LINK_UP)
        return;
    struct msg_release m = {.leases = {.p = (const uint8_t *)&lease, .n = sizeof(lease)}};
    struct msg_head head = op__post_head(k, KVC_OP_RELEASE);
    op__post(k, codec_enc_release(k->tx, KVC_MESSAGE_MAX, &head, &m));
}

void op__post_drop(struct kvc *k, uint64_t id)
{
    if (k->state != LINK_UP)
        return; /* it ended with the connection */
    struct msg_drop m = {.reservation = id};
    struct msg_head head = op__post_head(k, KVC_OP_DROP);
    op__post(k, codec_enc_drop(k->tx, KVC_MESSAGE_MAX, &head, &m));
}

/* ---- receiving ---- */

/* Whether the reply to this operation grants a lease. */
static bool is_acquire(uint8_t code)
{
    return code == KVC_OP_ACQUIRE || code == KVC_OP_REDEEM || code == KVC_OP_ACQUIRE_ON;
}

/* A reply has come whose op was given up: ends the lease or reservation that it grants. */
static void give_back(struct kvc *k, const struct msg_reply_head *h, const struct wire_msg *msg)
{
    struct msg_reply_head head;
    if (h->status != KVC_ST_OK || h->corr > k->ops.corr)
        return;
    if (is_acquire(h->op)) {
        struct msg_acquire_reply reply;
        if (codec_dec_acquire_reply(msg->data, msg->len, &head, &reply) == 0 && reply.lease != 0)
            op__post_release(k, reply.lease);
    } else if (h->op == KVC_OP_RESERVE) {
        struct msg_reserve_reply reply;
        if (codec_dec_reserve_reply(msg->data, msg->len, &head, &reply) == 0 &&
            reply.reservation != 0)
            op__post_drop(k, reply.reservation);
    }
}

/* The daemon has removed the empty namespace: opens it again, and then sends the request again. */
static void send_again(struct kvc_op *op)
{
    struct kvc_ns *ns = op->ns;
    wire__msg_free(&op->msg);
    op->retried = true;
    op__slot_enter(op);                                  /* it waits for another reply */
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

/* Whether the daemon may still use the caller's memory, though it has answered: the op timed out in
 * the daemon, or is being cancelled. */
static bool must_quiesce(const struct kvc_op *op)
{
    return op->borrows && (op->partner != NULL || op->error == KVC_E_TIMEOUT);
}

/* The reply to the op has come, and is in op->msg. */
static void on_reply(struct kvc_op *op, uint16_t status)
{
    op__slot_leave(op);
    op->error = status == KVC_ST_OK ? 0 : kvc__status_error(status);
    if (op->then != NULL) {
        op->then(op);
    } else if (op->error == KVC_E_NO_NAMESPACE && op->sent.full && !op->retried) {
        send_again(op);
    } else if (must_quiesce(op)) {
        op->stage = OP_QUIESCING;
        op__quiesce(op);
    } else if (op->error == 0 && op->arrived != NULL) {
        op->arrived(op);
    } else {
        op__complete(op, op->error);
    }
}

/* Gives a message to the op that it answers. */
static int dispatch(struct kvc *k, struct wire_msg *msg)
{
    struct msg_reply_head h;
    if (codec_dec_reply_head(msg->data, msg->len, &h) < 0) {
        wire__msg_free(msg);
        return kvc__down(k, KVC_E_BAD_MESSAGE, "the daemon sent a malformed reply; disconnected");
    }
    k->silent_ns = 0;
    struct kvc_op *op = op__find(k, h.corr);
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
        /* Receiving has reset `fd`, which so no longer tells that the connection has ended. */
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
    MUST(op->stage != OP_FREE);
    while (op->stage != OP_DONE) {
        if (op->stage == OP_DAEMON_EXIT)
            op__await_exit(op);
        else if (op__pump(k, op->grace_ns, op->stage == OP_SENT) == 0)
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
