/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of a caller's own loop (kvcache/async.h): requests that were begun continue here, and
 * their outcomes are taken.
 */
#include <errno.h>
#include <string.h>

#include "client.h"
#include "client_gpu__.h"

int kvc_progress(struct kvc *kvc)
{
    if (fork__is_child(kvc))
        return kvc__fail(kvc, -EPERM, "this session belongs to the parent process");
    if (kvc->state != LINK_UP)
        (void)!kvc__connect(kvc, 0, 0);
    else
        (void)!kvc__news(kvc);
    while (kvc->state >= LINK_GREETING && op__pump(kvc, 0, false) > 0)
        continue;
    daemon_exit__look(kvc);
    op__expire(kvc);
    watch__update(kvc);
    return (int)kvc->ops.ready_n;
}

bool kvc_done(const struct kvc_op *op)
{
    return op->stage == OP_DONE;
}

void kvc_op_set_user(struct kvc_op *op, void *user)
{
    op->user = user;
}

void *kvc_op_user(const struct kvc_op *op)
{
    return op->user;
}

static int async_finish(struct kvc_op *op, struct kvc_result *r)
{
    uint8_t *statuses = op->kvc->statuses;
    uint32_t n = 0;
    int rc;
    switch (op->head.op) {
    case KVC_OP_LOOKUP:
        return read__finish_lookup(op, &r->prefix);
    case KVC_OP_ACQUIRE:
    case KVC_OP_REDEEM:
        return read__finish_acquire(op, &r->hold);
    case KVC_OP_NS_OPEN:
        return ns__finish(op, &r->ns);
    case KVC_OP_PING:
        return session__finish_ping(op, &r->uptime_ms);
    case KVC_OP_DROP:
        return write__finish_drop(op);
    case KVC_OP_RESERVE:
        rc = write__finish_reserve(op, &r->reservation, statuses);
        break;
    case KVC_OP_COMMIT:
        rc = write__finish_commit(op, statuses);
        break;
    case KVC_OP_PAGES_LOAD:
        return pages__finish_load(op, &r->prefix);
    case KVC_OP_PAGES_STORE:
        rc = pages__finish_store(op, statuses);
        break;
    default:
        rc = write__finish_store(op, statuses);
        break;
    }
    n = rc == 0 ? op->blocks : 0;
    r->statuses = n > 0 ? statuses : NULL;
    r->n = n;
    return rc;
}

int kvc_finish(struct kvc_op **op, struct kvc_result *ret_result)
{
    if (op == NULL || *op == NULL)
        return -EINVAL;
    struct kvc_op *o = *op;
    struct kvc *k = o->kvc;
    *op = NULL;
    struct kvc_result r = {.kind = o->head.op, .user = o->user};
    int rc = fork__is_child(k) ? kvc__fail(k, -EPERM, "this request belongs to the parent process")
                               : async_finish(o, &r);
    op__free(o);
    watch__update(k);
    *ret_result = r;
    return rc;
}

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
    else if (o->head.op == KVC_OP_LOOKUP && ret_prefix != NULL)
        rc = read__finish_lookup(o, ret_prefix);
    else if (o->head.op == KVC_OP_PAGES_LOAD && ret_prefix != NULL)
        rc = pages__finish_load(o, ret_prefix);
    else if (o->head.op == KVC_OP_ACQUIRE || o->head.op == KVC_OP_REDEEM ||
             o->head.op == KVC_OP_ACQUIRE_ON)
        rc = read__finish_hold(o, ret_hold);
    else if (o->head.op == KVC_OP_PAGES_STORE)
        rc = pages__finish_store(o, ret_statuses);
    else if (o->head.op == KVC_OP_STORE)
        rc = write__finish_store(o, ret_statuses);
    else if (o->head.op == KVC_OP_COMMIT && ret_statuses != NULL)
        rc = write__finish_commit(o, ret_statuses);
    else
        rc = kvc__fail(k, -EINVAL, "no output for what this request brings; it is given up");
    if (rc == -EINVAL && o->borrows && o->pool != NULL)
        op__stop(o);
    op__free(o);
    watch__update(k);
    return rc;
}
