/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Durable commits. A block that has landed in memory for one is written to disk with a promise, and
 * so is everything before it in its chain that is not there with one yet; then its commit is told.
 * An entry waits for the nearest block, upwards, that is not durable.
 */
#include "core__.h"

/* Begins what p needs. 0: it is under way, or cannot be begun before something else ends. */
static int promise_make(struct core *c, struct block *p)
{
    if (p->state != BLOCK_PRESENT || p->moving > 0)
        return 0;
    return p->flags & BLOCK_F_HOST ? save_begin(c, p, true, false) : load_begin(c, p);
}

/* From b upwards: begins what can be; *ret_await: the nearest block that is not durable. */
static int promise_push(struct core *c, struct block *b, uint32_t *ret_await)
{
    uint32_t nearest = CORE_NONE;
    for (uint32_t no = block_no(c, b); no != CORE_NONE; no = c->blocks[no].parent) {
        struct block *p = &c->blocks[no];
        if (p->flags & BLOCK_F_SAFE)
            break;
        if (p->flags & BLOCK_F_DURABLE)
            continue;
        if (nearest == CORE_NONE)
            nearest = no;
        const bool under_way = p->flags & BLOCK_F_SAVING;
        int err = promise_make(c, p);
        if (err == KVC_E_BUSY) {
            c->promise_short = true;
            break;
        }
        if (err)
            return err;
        if (under_way && no != nearest && !c->promise_short)
            break; /* who began that has begun what is before it */
    }
    *ret_await = nearest;
    return 0;
}

static void mark_safe(struct core *c, struct block *b)
{
    while (!(b->flags & BLOCK_F_SAFE)) {
        b->flags |= BLOCK_F_SAFE;
        if (b->parent == CORE_NONE)
            return;
        b = &c->blocks[b->parent];
    }
}

/* True: the status of the entry is final. */
static bool promise_check(struct core *c, struct core_op *o, uint8_t *ret_status)
{
    struct block *b = &c->blocks[o->block];
    if (o->verdict != KVC_ST_OK) {
        *ret_status = o->verdict;
        return true;
    }
    if (atomic_load_explicit(&o->op.cancel, memory_order_relaxed)) {
        *ret_status = KVC_ST_CANCELLED;
        return true;
    }
    if (b->gen != o->gen || b->state != BLOCK_PRESENT) {
        *ret_status = KVC_ST_GONE;
        return true;
    }
    uint32_t await = CORE_NONE;
    int err = promise_push(c, b, &await);
    if (err || await == CORE_NONE) {
        *ret_status = err == KVC_E_FULL ? KVC_ST_FULL : err ? KVC_ST_TIER : KVC_ST_OK;
        if (!err) {
            mark_safe(c, b);
            c->m.blocks_promised++;
        }
        return true;
    }
    o->await = await;
    c->blocks[await].flags |= BLOCK_F_PROMISED;
    return false;
}

void promise_add(struct core *c, struct core_op *o)
{
    o->gen = c->blocks[o->block].gen;
    o->await = CORE_NONE;
    o->verdict = KVC_ST_OK;
    list_push_back(&c->promised, &o->node);
    c->promise_due = true;
}

void promise_event(struct core *c, struct block *b, int err)
{
    if (!(b->flags & BLOCK_F_PROMISED))
        return;
    const uint32_t no = block_no(c, b);
    block_clear(b, BLOCK_F_PROMISED);
    LIST_FOR_EACH_SAFE (node, next, &c->promised) {
        struct core_op *o = CONTAINER_OF(node, struct core_op, node);
        if (o->await != no)
            continue;
        o->await = CORE_NONE;
        o->verdict = err ? KVC_ST_TIER : KVC_ST_OK;
    }
    c->promise_due = true;
}

void promise_step(struct core *c)
{
    if (!c->promise_due && !c->promise_short)
        return;
    const bool again = c->promise_short;
    c->promise_due = c->promise_short = false;
    uint32_t left = 0;
    LIST_FOR_EACH_SAFE (node, next, &c->promised)
        left++;
    /* What could not be begun is tried again, up to the first that cannot be begun still. */
    for (struct list_node *node; left > 0 && (node = list_first(&c->promised)); left--) {
        struct core_op *o = CONTAINER_OF(node, struct core_op, node);
        list_remove(node);
        list_push_back(&c->promised, node);
        const bool cancelled = atomic_load_explicit(&o->op.cancel, memory_order_relaxed);
        if (o->await != CORE_NONE && !cancelled && !(again && !c->promise_short))
            continue;
        uint8_t status;
        if (promise_check(c, o, &status))
            op_finish(c, o, status);
    }
}

void promise_begin(struct core *c, struct block *b)
{
    uint32_t await;
    if (c->cfg.disk && b->state == BLOCK_PRESENT && promise_push(c, b, &await) != 0)
        c->m.demotion_failures++;
}
