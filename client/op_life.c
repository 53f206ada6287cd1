/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An op from its making until it is freed; ops.c sends and awaits it.
 *
 * Ops are found by correlation id, in a hash table: an op is there from its making until its
 * outcome is known, also while its request is parked. The functions `then`, `arrived` and `let_go`
 * of an op handle its reply and free what it owns, so this file calls no function that sends.
 */
#include "client.h"

#include <errno.h>
#include <stdlib.h>

#include "client_gpu__.h"
#include "sys.h"

/* The pointer to the op with this id in the chain of its bucket; or the chain's end, NULL. */
static struct kvc_op **op_life_slot_of(struct kvc *k, uint64_t corr)
{
    struct kvc_op **at = &k->ops.slot[corr % OPS_SLOTS];
    while (*at != NULL && (*at)->head.corr != corr)
        at = &(*at)->slot_next;
    return at;
}

struct kvc_op *op__find(struct kvc *k, uint64_t corr)
{
    return *op_life_slot_of(k, corr);
}

void op__slot_enter(struct kvc_op *op)
{
    struct kvc *k = op->kvc;
    struct kvc_op **bucket = &k->ops.slot[op->head.corr % OPS_SLOTS];
    op->slot_next = *bucket;
    *bucket = op;
    k->ops.in_flight += op->is_callers;
}

void op__slot_leave(struct kvc_op *op)
{
    struct kvc_op **at = op_life_slot_of(op->kvc, op->head.corr);
    if (*at != op)
        return;
    MUST(op->kvc->ops.in_flight >= op->is_callers);
    *at = op->slot_next;
    op->kvc->ops.in_flight -= op->is_callers;
}

/* ---- making ---- */

int op__new_unsent(struct kvc *k, uint8_t code, struct kvc_op **ret_op)
{
    struct kvc_op *op = k->ops.free;
    if (op != NULL) {
        MUST(op->stage == OP_FREE && op->kvc == k);
        k->ops.free = op->next;
    } else {
        op = sys_malloc(sizeof(*op));
    }
    if (op == NULL)
        return kvc__fail(k, -ENOMEM, "out of memory");

    *op = (struct kvc_op){.kvc = k,
                          .head = {.op = code, .corr = ++k->ops.corr},
                          .epoch = k->epoch,
                          .next = k->ops.live};
    if (op->next != NULL)
        op->next->prev = op;
    k->ops.live = op;
    op__slot_enter(op);
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
    (*ret_op)->grace_ns = deadline_ns + GRACE_MS * NS_PER_MS;
    return 0;
}

int op__new(struct kvc *k, uint8_t code, uint64_t deadline_ns, struct kvc_op **ret_op)
{
    if (k->ops.in_flight >= OPS_MAX)
        return kvc__fail(k, KVC_E_BUSY, "%u requests in flight: wait for some", OPS_MAX);
    int rc = op__new_own(k, code, deadline_ns, ret_op);
    if (rc < 0)
        return rc;
    (*ret_op)->is_callers = true;
    k->ops.in_flight++;
    return 0;
}

/* ---- its outcome ---- */

static void leave_ready(struct kvc_op *op)
{
    struct kvc *k = op->kvc;
    if (!op->ready)
        return;
    MUST(k->ops.ready_n > 0);
    *(op->ready_prev != NULL ? &op->ready_prev->ready_next : &k->ops.ready_first) = op->ready_next;
    *(op->ready_next != NULL ? &op->ready_next->ready_prev : &k->ops.ready_last) = op->ready_prev;
    op->ready = false;
    k->ops.ready_n--;
}

void op__complete(struct kvc_op *op, int error)
{
    struct kvc *k = op->kvc;
    MUST(op->stage != OP_FREE);
    op__slot_leave(op);
    op->error = error;
    if (op->stage == OP_DONE)
        return;
    op->stage = OP_DONE;
    if (op->ready_word != 0)
        words__raise(k, op->ready_epoch, op->ready_word - 1, op->ready_at);
    if (!op->listed)
        return;
    MUST(!op->ready);
    op->ready = true;
    op->ready_next = NULL;
    op->ready_prev = k->ops.ready_last;
    *(k->ops.ready_last != NULL ? &k->ops.ready_last->ready_next : &k->ops.ready_first) = op;
    k->ops.ready_last = op;
    k->ops.ready_n++;
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
    struct kvc_op *op = kvc->ops.ready_first;
    if (op == NULL)
        return 0;
    leave_ready(op);
    if (kvc->ops.ready_n == 0)
        watch__update(kvc);
    *ret_op = op;
    return 1;
}

/* ---- its end ---- */

void op__free(struct kvc_op *op)
{
    if (op == NULL)
        return;
    struct kvc *k = op->kvc;
    MUST(op->stage != OP_FREE); /* else its outcome was taken twice */
    op__slot_leave(op);
    leave_ready(op);
    MUST(op->partner == NULL || op->partner->partner == op);
    if (op->partner != NULL)
        op->partner->partner = NULL;
    if (op->let_go != NULL)
        op->let_go(op);
    wire__msg_free(&op->msg);
    wire__msg_free(&op->sent);
    MUST(op->prev != NULL ? op->prev->next == op : k->ops.live == op);
    if (op->prev != NULL)
        op->prev->next = op->next;
    else
        k->ops.live = op->next;
    if (op->next != NULL)
        op->next->prev = op->prev;
    op->stage = OP_FREE;
    op->next = k->ops.free;
    k->ops.free = op;
}

void op__destroy_all(struct kvc *k)
{
    while (k->ops.live != NULL)
        op__free(k->ops.live);
    MUST(k->ops.in_flight == 0 && k->ops.ready_n == 0 && k->ops.ready_first == NULL);
    while (k->ops.free != NULL) {
        struct kvc_op *next = k->ops.free->next;
        free(k->ops.free);
        k->ops.free = next;
    }
}
