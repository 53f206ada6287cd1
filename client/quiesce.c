/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends requests before their reply: the caller cancels them, their time is up, or their pages are
 * wanted back.
 *
 * A store is not over when its time is up: the daemon may read staging until it has answered a
 * CANCEL. If it does not answer, the link ends, and staging becomes the caller's own memory. The
 * same holds for pages, but they cannot be taken away from the daemon: such a request goes to
 * daemon_exit.c.
 */
#include "client.h"

#include <errno.h>

/* The CANCEL of `op` got no answer: the daemon may still touch the caller's memory. */
static void quiesce_failed(struct kvc_op *op)
{
    int error = op->msg.full ? op->error : KVC_E_TIMEOUT;
    op__silent(op->kvc);
    (void)kvc__down(op->kvc, KVC_E_DOWN,
                    "the daemon neither ends a request nor cancels it; disconnected, so that its "
                    "%s the caller's again",
                    op->pool != NULL ? "pages are" : "staging is");
    if (op->stage == OP_DAEMON_EXIT)
        op->error = error;
    else
        op__complete(op, error);
}

/* The CANCEL was answered, or given up. */
static void cancelled(struct kvc_op *cancel)
{
    struct kvc *k = cancel->kvc;
    struct kvc_op *target = cancel->partner;
    MUST(cancel->head.op == KVC_OP_CANCEL && target != cancel);
    struct msg_reply_head head;
    struct msg_cancel_reply reply;
    int rc = cancel->error;
    bool malformed =
        rc == 0 && codec_dec_cancel_reply(cancel->msg.data, cancel->msg.len, &head, &reply) < 0;
    op__free(cancel);
    if (malformed)
        (void)kvc__down(k, KVC_E_BAD_MESSAGE,
                        "the daemon sent a malformed reply to CANCEL; disconnected");
    else if (target == NULL || target->stage == OP_DONE)
        return;
    else if (rc < 0 && target->borrows)
        quiesce_failed(target);
    else if (rc == 0 && target->stage == OP_SENT)
        (void)kvc__down(k, KVC_E_BAD_MESSAGE,
                        "the daemon answered CANCEL before the request; disconnected");
    else if (target->stage == OP_QUIESCING)
        op__complete(target, target->error);
}

/* Sends a CANCEL, unless one is in flight. The replies to the request and to the CANCEL complete
 * the op. */
static int op__cancel(struct kvc_op *op)
{
    struct kvc *k = op->kvc;
    if (op->partner != NULL || op->stage == OP_DAEMON_EXIT)
        return 0;
    if (op->stage == OP_PARKED || op->stage == OP_CHUNKS) { /* not sent yet, or answered */
        op__complete(op, KVC_E_CANCELLED);
        return 0;
    }
    uint64_t until = kvc__now() + GRACE_MS * NS_PER_MS;
    struct kvc_op *cancel;
    int rc = op__new_own(k, KVC_OP_CANCEL, until, &cancel);
    if (rc < 0)
        return rc;
    cancel->grace_ns = until;
    cancel->then = cancelled;
    cancel->partner = op;
    op->partner = cancel;
    if (op->borrows)
        op->grace_ns = until;
    struct msg_cancel m = {.target = op->head.corr};
    rc = op__send(cancel, codec_enc_cancel(k->tx, KVC_MESSAGE_MAX, &cancel->head, &m));
    if (rc < 0)
        op__free(cancel);
    return rc;
}

void op__quiesce(struct kvc_op *op)
{
    if (op__cancel(op) < 0 && op->kvc->state != LINK_DOWN)
        quiesce_failed(op);
}

/* ---- a daemon that does not answer ---- */

static void probed(struct kvc_op *probe)
{
    probe->kvc->is_probed = false; /* dispatch has noted that it lives */
    op__free(probe);
}

void op__silent(struct kvc *k)
{
    struct kvc_op *probe = NULL;
    if (k->silent_ns == 0)
        k->silent_ns = kvc__now();
    if (k->is_probed || k->state != LINK_UP ||
        op__new_own(k, KVC_OP_PING, kvc__now() + KVC_DEADLINE_MAX_MS * NS_PER_MS, &probe) < 0)
        return;
    probe->grace_ns = UINT64_MAX; /* the answer is of use whenever it comes */
    probe->then = probed;
    k->is_probed = op__send(probe, codec_enc_bare(k->tx, KVC_MESSAGE_MAX, &probe->head)) == 0;
    if (!k->is_probed)
        op__free(probe);
}

/* `op` has waited beyond its grace deadline. */
static void expire(struct kvc_op *op)
{
    struct kvc *k = op->kvc;
    bool is_known = op->stage == OP_SENT || op->stage == OP_QUIESCING;
    if (op->stage == OP_DAEMON_EXIT) {
        op__complete(op, op->error);
    } else if (op->borrows && is_known) {
        op->is_overdue = true;
        op__quiesce(op);
    } else {
        const bool unanswered = op->is_callers && op->stage != OP_CHUNKS;
        if (op->stage == OP_CHUNKS)
            kvc__forget_asked(k); /* the next acquire asks for its chunks again */
        op__end(op, KVC_E_TIMEOUT);
        if (unanswered)
            op__silent(k);
    }
}

/* Whether the op's grace deadline has passed. An op that borrows memory and is being cancelled
 * waits for its CANCEL instead, which has a grace deadline of its own. */
static bool quiesce_is_due(const struct kvc_op *op, uint64_t now)
{
    return op->stage != OP_DONE && op->stage != OP_NEW && op->grace_ns <= now &&
           !(op->borrows && op->partner != NULL);
}

void op__expire(struct kvc *k)
{
    uint64_t now = kvc__now();
    struct kvc_op *op = k->ops.live;
    while (op != NULL) {
        if (!quiesce_is_due(op, now)) {
            op = op->next;
            continue;
        }
        expire(op);
        op = k->ops.live; /* other ops may have ended too, so the walk begins again */
    }
}

void op__await_exit(struct kvc_op *op)
{
    struct kvc *k = op->kvc;
    while (op->stage == OP_DAEMON_EXIT) {
        daemon_exit__wait(op);
        daemon_exit__look(k);
        op__expire(k);
    }
}

int kvc_cancel_begin(struct kvc_op *op)
{
    struct kvc *k = op->kvc;
    if (fork__is_child(k))
        return kvc__fail(k, -EPERM, "this request belongs to the parent process");
    if (op->stage == OP_DONE)
        return 0;
    int rc = op__cancel(op);
    if (rc < 0 && op->stage != OP_DONE && op->borrows)
        quiesce_failed(op);
    watch__update(k);
    return op->stage == OP_DONE || op->stage == OP_DAEMON_EXIT ? 0 : rc;
}

int kvc_cancel(struct kvc_op *op)
{
    struct kvc *k = op->kvc;
    int rc = kvc_cancel_begin(op);
    while (rc == 0 && op->partner != NULL) {
        if (op__pump(k, op->partner->grace_ns, true) == 0)
            op__expire(k);
    }
    if (op->stage == OP_DAEMON_EXIT)
        op__await_exit(op);
    watch__update(k);
    if (rc < 0 || op->stage == OP_DONE)
        return rc;
    return kvc__fail(k, KVC_E_TIMEOUT, "the daemon does not answer CANCEL");
}

/* ---- what touches pages ---- */

static bool quiesce_is_of(const struct kvc_op *op, const struct kvc_pool *p)
{
    return op->borrows && op->pool != NULL && (p == NULL || op->pool == p) && op->stage != OP_DONE;
}

void op__stop(struct kvc_op *op)
{
    if (op->stage != OP_DONE && kvc_cancel(op) < 0 && op->stage != OP_DONE)
        op__quiesce(op);
    if (op->stage != OP_DONE)
        (void)!op__await(op);
}

void op__stop_all(struct kvc *k, const struct kvc_pool *p)
{
    struct kvc_op *op = k->ops.live;
    while (op != NULL) {
        if (!quiesce_is_of(op, p)) {
            op = op->next;
            continue;
        }
        op__stop(op);
        op = k->ops.live; /* other ops may have ended too, so the walk begins again */
    }
}
