/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests in flight. A correlation id is chosen so that its slot is free: id modulo OPS_SLOTS
 * finds the op, without a search and without collisions. A reply that finds nobody is discarded,
 * after giving back what it grants.
 */
#include "client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "sys.h"

static struct kvc_op **slot_of(struct kvc *k, uint64_t corr)
{
    return &k->slot[corr % OPS_SLOTS];
}

static bool in_flight(const struct kvc_op *op)
{
    return *slot_of(op->kvc, op->head.corr) == op;
}

static void finish(struct kvc_op *op, int error)
{
    if (in_flight(op))
        *slot_of(op->kvc, op->head.corr) = NULL;
    op->done = true;
    op->error = error;
}

/* ---- life of an op ---- */

int op__new(struct kvc *k, uint8_t code, uint64_t deadline_ns, struct kvc_op **ret_op)
{
    uint32_t ms = kvc__ms_until(deadline_ns);
    if (ms == 0)
        return kvc__fail(k, KVC_E_TIMEOUT, "the deadline passed before the request was sent");
    uint64_t corr = k->corr + 1;
    while (*slot_of(k, corr) != NULL && corr - k->corr <= OPS_SLOTS)
        corr++;
    if (*slot_of(k, corr) != NULL)
        return kvc__fail(k, KVC_E_BUSY, "%u requests in flight: wait for some", OPS_SLOTS);
    struct kvc_op *op = k->free_ops;
    if (op != NULL)
        k->free_ops = op->next;
    else
        op = sys_malloc(sizeof(*op));
    if (op == NULL)
        return kvc__fail(k, -ENOMEM, "out of memory");

    k->corr = corr;
    *op = (struct kvc_op){.kvc = k,
                          .head = {.op = code, .corr = corr, .deadline_ms = ms},
                          .guard_ns = deadline_ns + GRACE_MS * NS_PER_MS,
                          .epoch = k->epoch,
                          .next = k->live_ops};
    if (op->next != NULL)
        op->next->prev = op;
    k->live_ops = op;
    *ret_op = op;
    return 0;
}

void op__free(struct kvc_op *op)
{
    if (op == NULL)
        return;
    struct kvc *k = op->kvc;
    finish(op, op->error);
    wire__msg_free(&op->msg);
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
    for (struct kvc_op *op = k->live_ops; op != NULL; op = op->next) {
        if (!op->done)
            finish(op, error);
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

/* The queue to the daemon takes no more. Its connection is gone, which the attach channel will tell
 * in a moment; or it has left thousands of requests unread, and is as good as gone. */
static int no_room(struct kvc *k)
{
    struct pollfd p = {.fd = k->attach_fd, .events = POLLIN};
    (void)poll(&p, 1, NEWS_INTERVAL_MS); /* whatever it returns, looking is right */
    int rc = kvc__news(k);
    return rc < 0 ? rc
                  : kvc__down(k, KVC_E_DOWN, "the daemon takes no more requests; disconnected");
}

static int send_tx(struct kvc *k, int len)
{
    if (len < 0)
        return kvc__fail(
            k, KVC_E_TOO_LARGE,
            "the request does not fit a message of %u bytes: send fewer blocks at once",
            KVC_MESSAGE_MAX);
    int rc = wire__send(&k->wire, k->tx, (size_t)len);
    if (rc == -EAGAIN)
        return no_room(k);
    if (rc < 0)
        return kvc__down(k, KVC_E_DOWN, "cannot send to the daemon (%s)", strerrordesc_np(-rc));
    return 0;
}

int op__send(struct kvc_op *op, int len)
{
    int rc = send_tx(op->kvc, len);
    if (rc < 0)
        finish(op, rc);
    else
        *slot_of(op->kvc, op->head.corr) = op;
    return rc;
}

struct msg_head op__post_head(struct kvc *k, uint8_t code)
{
    return (struct msg_head){.op = code, .corr = ++k->corr, .deadline_ms = k->timeout_ms};
}

void op__post(struct kvc *k, int len)
{
    if (send_tx(k, len) < 0 && k->state != LINK_DOWN)
        (void)kvc__down(k, KVC_E_DOWN, "cannot encode a message of the library's own");
}

/* ---- receiving ---- */

/* A reply whose op was given up: nobody else will end the lease or reservation that it grants. */
static void give_back(struct kvc *k, const struct msg_reply_head *h, const struct wire_msg *msg)
{
    struct msg_reply_head head;
    if (h->status != KVC_ST_OK || h->corr > k->corr)
        return;
    if (h->op == KVC_OP_ACQUIRE || h->op == KVC_OP_REDEEM) {
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

/* Gives the message to its op. */
static int dispatch(struct kvc *k, struct wire_msg *msg)
{
    struct msg_reply_head h;
    if (codec_dec_reply_head(msg->data, msg->len, &h) < 0) {
        wire__msg_free(msg);
        return kvc__down(k, KVC_E_BAD_MESSAGE, "the daemon sent a malformed reply; disconnected");
    }
    struct kvc_op *op = *slot_of(k, h.corr);
    if (op == NULL || op->head.corr != h.corr) {
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
    finish(op, h.status == KVC_ST_OK ? 0 : kvc__status_error(h.status));
    wire__msg_move(&op->msg, msg);
    return 1;
}

/* Handles one message: 1. 0 = the time has come; an error has ended the link. */
static int pump(struct kvc *k, uint64_t until_ns)
{
    struct wire_msg msg = {.full = false};
    int rc = wire__recv(&k->wire, true, &msg);
    while (rc == 0) {
        uint32_t ms = kvc__ms_until(until_ns);
        if (ms == 0)
            return 0;
        struct pollfd p[2] = {{.fd = k->wire.fd, .events = POLLIN},
                              {.fd = k->attach_fd, .events = POLLIN}};
        (void)poll(p, 2, ms > 60000 ? 60000 : (int)ms); /* a failure shows up as no events */
        if (p[1].revents != 0) {
            rc = kvc__news(k);
            if (rc < 0)
                return rc;
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

void op__pump(struct kvc_op *op, uint64_t until_ns)
{
    struct kvc *k = op->kvc;
    while (!op->done) {
        if (pump(k, until_ns) <= 0)
            return; /* the op may be gone with the link */
    }
}

/* ---- outcomes ---- */

/* Has the daemon end `op`, and waits until it has answered both. After it nothing reads staging for
 * the op. 0, or an error: nothing is known then. */
static int settle(struct kvc_op *op)
{
    struct kvc *k = op->kvc;
    uint64_t until = kvc__now() + GRACE_MS * NS_PER_MS;
    struct kvc_op *cancel;
    int rc = op__new(k, KVC_OP_CANCEL, until, &cancel);
    if (rc < 0)
        return rc;
    cancel->guard_ns = until;
    struct msg_cancel m = {.target = op->head.corr};
    struct msg_reply_head head;
    struct msg_cancel_reply reply;
    rc = op__call(cancel, codec_enc_cancel(k->tx, KVC_MESSAGE_MAX, &cancel->head, &m));
    if (rc == 0)
        rc = op__checked(cancel,
                         codec_dec_cancel_reply(cancel->msg.data, cancel->msg.len, &head, &reply));
    op__free(cancel);
    if (rc == 0 && !op->done)
        rc = kvc__down(k, KVC_E_BAD_MESSAGE,
                       "the daemon answered CANCEL before the request; disconnected");
    return rc;
}

/* Nothing may read staging for `op` any more: the daemon says so, or the connection is closed. */
static void settle_or_disconnect(struct kvc_op *op)
{
    struct kvc *k = op->kvc;
    if (settle(op) < 0 && k->state != LINK_DOWN)
        (void)kvc__down(k, KVC_E_DOWN,
                        "the daemon neither ends a store nor cancels it; "
                        "disconnected, so that staging is the caller's again");
}

/* What the daemon says beside its status. */
static void keep_detail(struct kvc_op *op)
{
    struct msg_reply_head h;
    if (codec_dec_reply_head(op->msg.data, op->msg.len, &h) < 0 || h.status == KVC_ST_OK)
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
    op__pump(op, op->guard_ns);
    if (!op->done && op->writes_staging) {
        settle_or_disconnect(op);
        if (op->msg.full) { /* it came after all */
            op->writes_staging = false;
        } else {
            op->error = KVC_E_TIMEOUT;
        }
    } else if (!op->done) {
        finish(op, kvc__fail(k, KVC_E_TIMEOUT, "no reply within %u ms", op->head.deadline_ms));
    } else if (op->writes_staging && op->error == KVC_E_TIMEOUT) {
        settle_or_disconnect(op);
    }
    op->writes_staging = false;
    if (op->error < 0 && op->msg.full)
        keep_detail(op);
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
    return kvc__down(op->kvc, KVC_E_BAD_MESSAGE,
                     "the daemon sent a malformed reply to operation %u; disconnected",
                     op->head.op);
}

/* ---- the public half ---- */

int kvc_wait(struct kvc_op **op, struct kvc_prefix *ret_prefix, struct kvc_hold **ret_hold,
             uint8_t *ret_statuses)
{
    if (op == NULL || *op == NULL)
        return -EINVAL;
    struct kvc_op *o = *op;
    struct kvc *k = o->kvc;
    *op = NULL;
    int rc;
    if (fork__is_child(k))
        rc = kvc__fail(k, -EPERM, "this request belongs to the parent process");
    else if (o->head.op == KVC_OP_LOOKUP)
        rc = read__finish_lookup(o, ret_prefix);
    else if (o->head.op == KVC_OP_ACQUIRE)
        rc = read__finish_acquire(o, ret_hold);
    else
        rc = write__finish_store(o, ret_statuses);
    op__free(o);
    return rc;
}

int kvc_cancel(struct kvc_op *op)
{
    struct kvc *k = op->kvc;
    if (fork__is_child(k))
        return kvc__fail(k, -EPERM, "this request belongs to the parent process");
    if (op->done)
        return 0;
    int rc = settle(op);
    if (rc < 0 && op->writes_staging && !op->done)
        (void)kvc__down(k, KVC_E_DOWN,
                        "the daemon does not answer CANCEL; disconnected, so that "
                        "staging is the caller's again");
    return op->done ? 0 : rc;
}
