/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is to be durable: a block of which a shard has landed in memory for a durable commit, or
 * what a name reaches. When all its shards are there it is written to disk with a promise, and so
 * is everything before it in its chain that is not there with one yet; then whoever waits is told.
 * A promise waits for the nearest block, upwards, that is not durable. What is promised for names
 * is lent: for a commit it counts for nothing, and is written again.
 */
#include "core__.h"

/* At a call, so that a turn stays short: promises that are passed by and blocks that are looked at,
 * together; and promises that are looked at. */
#define STEP_PROMISES 4096u
#define STEP_CHECKS   512u

/* What is under way promises nothing. The block is bound from now on, and written behind that. */
static int promise_behind(struct core *c, struct block *b)
{
    const int err = block_is_bound(b, 1) ? 0 : quota_bind(c, block_ns(c, b), 1, block_bytes(c, b));
    if (err)
        return err;
    b->promising = 1;
    room_bind(c, b);
    return 0;
}

void promise_moved(struct core *c, struct block *b, int err)
{
    if (!b->promising || b->moving > 0)
        return;
    b->promising = 0;
    room_bind(c, b);
    if (!err && b->state == BLOCK_PRESENT && !block_promised(b))
        c->m.demotion_failures += promise_make(c, b, SAVE_PROMISE) != 0;
}

/* 0 also when it is under way, or cannot be begun before something else ends. */
int promise_make(struct core *c, struct block *b, enum save_why why)
{
    if (b->state != BLOCK_PRESENT)
        return 0;
    if (b->moving > 0)
        return why == SAVE_PROMISE ? promise_behind(c, b) : 0;
    if (why == SAVE_PIN && b->flags & BLOCK_F_SAFE)
        why = SAVE_PROMISE; /* it has lapsed: a commit was promised it, not a pin alone */
    if (b->flags & BLOCK_F_HOST)
        return save_begin(c, b, why);
    const int err = load_begin(c, b);
    return err || why != SAVE_PROMISE ? err : promise_behind(c, b);
}

void promise_end(struct core *c, struct block *b)
{
    struct tier *disk = c->cfg.disk;
    const uint32_t shards = block_shards(c, b);
    MUST(b->state == BLOCK_PRESENT && b->flags & BLOCK_F_BY_PIN);
    block_place(c, b, 0, BLOCK_F_DURABLE | BLOCK_F_BY_PIN);
    for (uint32_t i = 0; i < shards && disk->ops->unpromise; i++)
        disk->ops->unpromise(disk, block_disk(c, b, i));
}

/* It is durable, and so is all before it, if only for a name. While a block of its namespace has
 * lapsed, which may be before it, the marks do not say that, and its chain is looked at. */
static bool is_safe(struct core *c, const struct block *b, enum save_why why)
{
    return block_ns(c, b)->lapsed == 0 &&
           (b->flags & BLOCK_F_SAFE || (why == SAVE_PIN && block_names_safe(c, b)));
}

/* From b upwards: begins what can be; *ret_await: the nearest block that is not durable. */
static int promise_push(struct core *c, struct block *b, enum save_why why, uint32_t *ret_await)
{
    uint32_t nearest = CORE_NONE;
    for (uint32_t no = block_no(c, b); no != CORE_NONE; no = c->blocks[no].parent) {
        struct block *p = &c->blocks[no];
        c->promise_looks++;
        if (is_safe(c, p, why))
            break;
        if (block_promised(p) || (why == SAVE_PIN && p->flags & BLOCK_F_DURABLE))
            continue;
        if (nearest == CORE_NONE)
            nearest = no;
        if (c->promise_short && no != nearest)
            break; /* little more can be begun now; it is tried again */
        const bool under_way = why == SAVE_PROMISE ? p->promising : p->flags & BLOCK_F_SAVING;
        int err = promise_make(c, p, why);
        if (err == KVC_E_BUSY) {
            c->promise_short = true;
            break;
        }
        if (err)
            return err;
        if (under_way && no != nearest)
            break; /* who began that has begun what is before it */
    }
    *ret_await = nearest;
    return 0;
}

/* Whether b and all before it are durable; they are marked so. Each block is marked once, so that
 * many promises of one chain cost no more than its length. */
static bool mark_safe(struct core *c, struct block *b)
{
    for (struct block *p = b; !is_safe(c, p, SAVE_PROMISE); p = &c->blocks[p->parent]) {
        c->promise_looks++;
        if (!block_promised(p))
            return false;
        if (p->parent == CORE_NONE)
            break;
    }
    for (; !(b->flags & BLOCK_F_SAFE); b = &c->blocks[b->parent]) {
        b->flags |= BLOCK_F_SAFE;
        if (b->parent == CORE_NONE)
            break;
    }
    return true;
}

struct push_name {
    struct core *c;
    uint32_t await;
};

static int push_one(void *ctx, struct block *b)
{
    struct push_name *push = ctx;
    uint32_t await;
    int err = promise_push(push->c, b, SAVE_PIN, &await);
    if (err)
        return err;
    if (await == CORE_NONE)
        block_names_mark_safe(push->c, b);
    else if (push->await == CORE_NONE)
        push->await = await;
    return 0;
}

/*
 * A block that some promises awaited has become durable: what they await now. Blocks below it were
 * durable when it was awaited, so that one look from there serves all of them, instead of one from
 * the block of each.
 */
struct onward {
    uint32_t from, gen;
    uint32_t await;
    int err;
};

static int push_onward(struct core *c, const struct promise *p, struct onward *on,
                       uint32_t *ret_await)
{
    if (p->await == CORE_NONE || c->blocks[p->await].gen != p->await_gen)
        return promise_push(c, &c->blocks[p->block], SAVE_PROMISE, ret_await);
    const bool is_known = on->from == p->await && on->gen == p->await_gen;
    if (!is_known || (on->await != CORE_NONE && !(c->blocks[on->await].flags & BLOCK_F_PROMISED))) {
        *on = (struct onward){.from = p->await, .gen = p->await_gen, .await = CORE_NONE};
        on->err = promise_push(c, &c->blocks[p->await], SAVE_PROMISE, &on->await);
    }
    *ret_await = on->await;
    return on->err;
}

/* Begins what can be of all that it is about. */
static int push_all(struct core *c, const struct promise *p, struct onward *on, uint32_t *ret_await)
{
    struct push_name push = {.c = c, .await = CORE_NONE};
    if (!p->name && c->blocks[p->block].state == BLOCK_PENDING) {
        *ret_await = p->block; /* for its other shards; nothing is written for what may never be */
        return 0;
    }
    if (!p->name)
        return push_onward(c, p, on, ret_await);
    int err = name_each_block(c, p->name, push_one, &push);
    if (!err)
        *ret_await = push.await;
    return err;
}

static bool is_cancelled(const struct promise *p)
{
    return p->cancel && atomic_load_explicit(p->cancel, memory_order_relaxed);
}

/* The block of a commit. */
static bool has_gone(const struct core *c, const struct promise *p)
{
    const struct block *b = &c->blocks[p->block];
    return b->gen != p->gen || (b->state != BLOCK_PENDING && b->state != BLOCK_PRESENT);
}

/* True: its status is final. */
static bool promise_check(struct core *c, struct promise *p, struct onward *on, uint8_t *ret_status)
{
    if (p->verdict != KVC_ST_OK) {
        *ret_status = p->verdict;
        return true;
    }
    if (is_cancelled(p)) {
        *ret_status = KVC_ST_CANCELLED;
        return true;
    }
    if (!p->name && has_gone(c, p)) {
        *ret_status = KVC_ST_GONE;
        return true;
    }
    uint32_t await = CORE_NONE;
    int err = push_all(c, p, on, &await);
    if (!err && await == CORE_NONE && !p->name && !mark_safe(c, &c->blocks[p->block])) {
        p->await = CORE_NONE; /* one below has lost what it had */
        err = push_all(c, p, on, &await);
        MUST(err || await != CORE_NONE);
    }
    if (err || await == CORE_NONE) {
        *ret_status = err == KVC_E_FULL    ? KVC_ST_FULL
                      : err == KVC_E_QUOTA ? KVC_ST_QUOTA
                      : err                ? KVC_ST_TIER
                                           : KVC_ST_OK;
        if (err == KVC_E_FULL && p->name)
            *ret_status = KVC_ST_BUSY; /* it is not told before room is not made, either */
        if (!err && !p->name)
            c->m.blocks_promised++;
        return true;
    }
    p->await = await;
    p->await_gen = c->blocks[await].gen;
    c->blocks[await].flags |= BLOCK_F_PROMISED;
    return false;
}

void promise_add(struct core *c, struct promise *p)
{
    p->await = CORE_NONE;
    p->verdict = KVC_ST_OK;
    list_push_back(&c->promised, &p->node);
    c->promises++;
    c->promise_due = true;
}

void promise_remove(struct core *c, struct promise *p)
{
    list_remove(&p->node);
    c->promises--;
}

void promise_event(struct core *c, struct block *b, int err)
{
    if (!(b->flags & BLOCK_F_PROMISED))
        return;
    const uint32_t no = block_no(c, b);
    block_clear(b, BLOCK_F_PROMISED);
    c->promise_due = true;
    /* Who awaited it sees that it is not awaited any more. A name falls back on what is before a
     * block that has gone; a commit's has gone with it. */
    if (!err || err == KVC_E_GONE)
        return;
    LIST_FOR_EACH_SAFE (node, next, &c->promised) {
        struct promise *p = CONTAINER_OF(node, struct promise, node);
        if (p->await == no && p->await_gen == b->gen)
            p->verdict = err == -ENOSPC ? KVC_ST_FULL : KVC_ST_TIER;
    }
}

/* Whether nothing has happened to what it awaits. */
static bool is_awaiting(const struct core *c, const struct promise *p)
{
    if (p->await == CORE_NONE || p->verdict != KVC_ST_OK || is_cancelled(p))
        return false;
    const struct block *b = &c->blocks[p->await];
    return b->gen == p->await_gen && b->flags & BLOCK_F_PROMISED;
}

/* Each round looks at every promise once, some at a call. */
static void round_begin(struct core *c)
{
    c->promise_again = c->promise_short;
    c->promise_due = c->promise_short = false;
    c->promises_left = c->promises;
}

void promise_step(struct core *c)
{
    struct onward on = {.from = CORE_NONE};
    if (c->promises_left == 0 && (c->promise_due || c->promise_short))
        round_begin(c);
    for (uint32_t n = 0; c->promises_left > 0 && n < STEP_PROMISES; c->promises_left--) {
        struct list_node *node = list_first(&c->promised);
        if (!node)
            break;
        struct promise *p = CONTAINER_OF(node, struct promise, node);
        list_remove(node);
        list_push_back(&c->promised, node);
        /* What could not be begun is tried again until one of them falls short again. */
        if (is_awaiting(c, p) &&
            (!c->promise_again || c->promise_short || c->blocks[p->await].flags & BLOCK_F_SAVING)) {
            n++;
            continue;
        }
        const uint64_t looks = c->promise_looks;
        uint8_t status;
        const bool is_final = promise_check(c, p, &on, &status);
        n += STEP_PROMISES / STEP_CHECKS + (uint32_t)MIN(c->promise_looks - looks, STEP_PROMISES);
        if (!is_final)
            continue;
        promise_remove(c, p);
        p->done(c, p, status);
    }
    if (list_empty(&c->promised))
        c->promises_left = 0;
}

bool promise_is_due(const struct core *c)
{
    return c->promises_left > 0 || c->promise_due;
}

void promise_begin(struct core *c, struct block *b)
{
    const bool is_short = c->promise_short;
    uint32_t await;
    if (!c->cfg.disk || b->state != BLOCK_PRESENT)
        return;
    c->promise_short = false;
    if (promise_push(c, b, SAVE_PROMISE, &await) != 0)
        c->m.demotion_failures++;
    c->promise_short |= is_short;
}
