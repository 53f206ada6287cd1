/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Durable commits: a promise waits until its block, and all before it in the chain, outlive a
 * crash; then the commit's reply is sent. Names have promises too.
 *
 * When all shards of a block are there it is written to disk with a promise, and so is everything
 * before it that is not durable yet. A promise waits for the nearest block, upwards, that is not
 * durable. A promise for a name is lent: for a commit it counts for nothing, and the block is
 * written again.
 */
#include "keep.h"

/* The bounds of one call, so that a turn stays short: promises that are skipped plus blocks that
 * are looked at; and promises that are checked. */
#define STEP_PROMISES 4096u
#define STEP_CHECKS   512u

/* The result of a walk, for walks that begin at the same block. */
struct promise_known {
    uint32_t from, from_gen, nearest, nearest_gen; /* from: CORE_NONE: no result */
    uint64_t lost;                                 /* as in struct promise_walk */
    int err; /* why nearest cannot be made durable; 0: no error */
};

struct promises {
    struct list_node all; /* promise */
    uint32_t count;       /* number of promises */
    uint32_t left;        /* number of promises that this round has yet to look at */
    bool due;             /* a new round of checks is due */
    bool again;           /* this round also tries again the writes that could not be begun */
    bool fell_short;      /* a write could not be begun now (KVC_E_BUSY) */
    uint64_t looks;       /* looks at blocks, for all promises so far */
    struct promise_known known[2]; /* [0]: all durable; [1]: a block is not, or an error */
};

static int promises_create(struct core *c)
{
    list_init(&c->mod.promises->all);
    c->mod.promises->known[0].from = c->mod.promises->known[1].from = CORE_NONE;
    return 0;
}

const struct core_module promises_module = {CORE_STATE(promises), .create = promises_create};

uint64_t promise_looks(const struct core *c)
{
    return c->mod.promises->looks;
}

uint32_t promise_count(const struct core *c)
{
    return c->mod.promises->count;
}

struct promise *promise_next(const struct core *c, const struct promise *p)
{
    struct list_node *node = p ? p->node.next : c->mod.promises->all.next;
    return node == &c->mod.promises->all ? NULL : CONTAINER_OF(node, struct promise, node);
}

void promise_look(struct core *c)
{
    c->mod.promises->due = true;
}

/* A move of b is under way. Binds b to storage now; when the move has ended, promise_moved() writes
 * b with a promise, if it has none. */
static int promise_behind(struct core *c, struct block *b)
{
    const int err = block_is_bound(b, CORE_STORAGE)
                        ? 0
                        : quota_bind(c, block_ns(c, b), CORE_STORAGE, block_bytes(c, b));
    if (err)
        return err;
    b->promising = 1;
    room_bind(c, b);
    return 0;
}

static void promise_moved(struct core *c, struct block *b, int err)
{
    if (!b->promising || b->moving > 0)
        return;
    b->promising = 0;
    room_bind(c, b);
    if (!err && b->state == BLOCK_PRESENT && !block_promised(b))
        c->m.demotion_failures += promise_make(c, b, SAVE_PROMISE) != 0;
}

/* Begins to make b durable. 0 also when that is under way, or must wait until a move has ended. */
int promise_make(struct core *c, struct block *b, enum save_why why)
{
    if (b->state != BLOCK_PRESENT)
        return 0;
    if (b->moving > 0)
        return why == SAVE_PROMISE ? promise_behind(c, b) : 0;
    if (why == SAVE_PIN && b->flags & BLOCK_F_SAFE)
        why = SAVE_PROMISE; /* b has lapsed: a durable commit needs it, not only a pin */
    if (copy_there(b, CORE_HOST))
        return save_begin(c, b, why);
    const int err = load_begin(c, b);
    return err || why != SAVE_PROMISE ? err : promise_behind(c, b);
}

/* Whether marks prove that b and all before it are durable; for SAVE_PIN, durable for a name is
 * enough. False while a block of the namespace has lapsed, because it may be before b. */
static bool is_safe(struct core *c, const struct block *b, enum save_why why)
{
    return block_ns(c, b)->lapsed == 0 &&
           (b->flags & BLOCK_F_SAFE || (why == SAVE_PIN && block_names_safe(c, b)));
}

/* ---- the way up ---- */

static void walk_begin(const struct core *c, struct promise_walk *w, uint32_t from)
{
    *w = (struct promise_walk){
        .from = from, .at = from, .nearest = CORE_NONE, .lost = c->promises_lost};
}

/* The result of another walk from this block, if it still holds; NULL: none. */
static const struct promise_known *known_at(const struct core *c, uint32_t no)
{
    for (unsigned i = 0; i < ARRAY_LEN(c->mod.promises->known); i++) {
        const struct promise_known *k = &c->mod.promises->known[i];
        if (k->from != no || k->from_gen != c->blocks[no].gen || k->lost != c->promises_lost)
            continue;
        if (k->nearest == CORE_NONE || (c->blocks[k->nearest].gen == k->nearest_gen &&
                                        c->blocks[k->nearest].flags & BLOCK_F_DURABLE_WANTED))
            return k;
    }
    return NULL;
}

/* Looks at the walk's next block, and begins to make it durable where it is not. 0: the walk goes
 * on to the block before. 1: it ends here. Negative: an error ends it. */
static int walk_block(struct core *c, struct promise_walk *w, enum save_why why)
{
    struct block *p = &c->blocks[w->at];
    c->mod.promises->looks++;
    if (is_safe(c, p, why))
        return 1;
    const struct promise_known *k = why == SAVE_PROMISE ? known_at(c, w->at) : NULL;
    if (k) {
        w->nearest = w->nearest == CORE_NONE ? k->nearest : w->nearest;
        return k->err ? k->err : 1;
    }
    if (block_promised(p) || (why == SAVE_PIN && block_is_durable(p)))
        return 0;
    if (w->nearest == CORE_NONE)
        w->nearest = w->at;
    if (c->mod.promises->fell_short && w->at != w->nearest)
        return 1; /* little more can be begun now; it is tried again */
    const bool under_way = why == SAVE_PROMISE ? p->promising : block_saving(p);
    const int err = promise_make(c, p, why);
    c->mod.promises->fell_short |= err == KVC_E_BUSY;
    if (err)
        return err == KVC_E_BUSY ? 1 : err;
    /* The walk that began the write under way also began those of the blocks before. */
    return under_way && w->at != w->nearest;
}

/* Continues a walk. 0: it has ended. After `looks` blocks: CORE_MORE if all of them are durable;
 * else 0, and the promise waits for the nearest block that is not. */
static int promise_walk_on(struct core *c, struct promise_walk *w, enum save_why why,
                           uint64_t looks)
{
    int rc = 0;
    for (; rc == 0 && w->at != CORE_NONE; looks--) {
        if (looks == 0 && w->nearest == CORE_NONE)
            return CORE_MORE;
        rc = looks == 0 ? 1 : walk_block(c, w, why);
        w->at = rc == 0 ? c->blocks[w->at].parent : CORE_NONE;
    }
    return rc < 0 ? rc : 0;
}

/* Forgets the results of walks that are to be tried again. */
static void known_forget(struct core *c)
{
    struct promise_known *k = &c->mod.promises->known[1];
    if (k->err || c->mod.promises->fell_short || c->mod.promises->again)
        k->from = CORE_NONE;
}

static void known_set(struct core *c, const struct promise_walk *w, int err)
{
    const uint32_t nearest = w->nearest;
    c->mod.promises->known[err || nearest != CORE_NONE] =
        (struct promise_known){.from = w->from,
                               .from_gen = c->blocks[w->from].gen,
                               .nearest = nearest,
                               .nearest_gen = nearest == CORE_NONE ? 0 : c->blocks[nearest].gen,
                               .lost = w->lost,
                               .err = err};
}

/* Marks that b is durable, with all before it; each block is marked once. */
static void mark_safe(struct core *c, struct block *b)
{
    for (; !(b->flags & BLOCK_F_SAFE); b = &c->blocks[b->parent]) {
        b->flags |= BLOCK_F_SAFE;
        if (b->parent == CORE_NONE)
            break;
    }
}

struct push_name {
    struct core *c;
    uint32_t await;
};

static int push_one(void *ctx, struct block *b)
{
    struct push_name *push = ctx;
    struct promise_walk w;
    walk_begin(push->c, &w, block_no(push->c, b));
    const int err = promise_walk_on(push->c, &w, SAVE_PIN, UINT64_MAX);
    if (err)
        return err;
    if (w.nearest == CORE_NONE)
        block_names_mark_safe(push->c, b);
    else if (push->await == CORE_NONE)
        push->await = w.nearest;
    return 0;
}

static int push_name(struct core *c, const struct promise *p, uint32_t *ret_await)
{
    struct push_name push = {.c = c, .await = CORE_NONE};
    const int err = name_each_block(c, p->name, push_one, &push);
    *ret_await = push.await;
    return err;
}

/*
 * Continues a commit's walk from the block that it awaited, and that has become durable. Blocks
 * below were durable when it was awaited, and one look from there serves all promises that awaited
 * it. At the end all is looked at once more, because a block below may have lost its copy.
 * CORE_MORE: in the next call.
 */
static int push_commit(struct core *c, struct promise *p, uint64_t looks, uint32_t *ret_await)
{
    struct promise_walk *w = &p->walk;
    if (c->blocks[p->block].state == BLOCK_PENDING) {
        *ret_await = p->block; /* wait for its other shards: without them nothing need be durable */
        return 0;
    }
    const uint64_t end = c->mod.promises->looks + looks;
    const bool awaits = p->await != CORE_NONE && c->blocks[p->await].gen == p->await_gen;
    if (w->at == CORE_NONE)
        walk_begin(c, w, awaits ? p->await : p->block);
    else if (w->lost != c->promises_lost)
        walk_begin(c, w, p->block);
    for (;;) {
        const int err = promise_walk_on(c, w, SAVE_PROMISE, end - c->mod.promises->looks);
        if (err == CORE_MORE)
            return err;
        known_set(c, w, err);
        *ret_await = w->nearest;
        if (err || w->nearest != CORE_NONE)
            return err;
        if (w->from == p->block)
            break;
        walk_begin(c, w, p->block);
    }
    mark_safe(c, &c->blocks[p->block]);
    return 0;
}

static bool is_cancelled(const struct promise *p)
{
    return p->cancel && atomic_load_explicit(p->cancel, memory_order_relaxed);
}

/* Whether the block of a commit's promise was removed. */
static bool has_gone(const struct core *c, const struct promise *p)
{
    const struct block *b = &c->blocks[p->block];
    return b->gen != p->gen || (b->state != BLOCK_PENDING && b->state != BLOCK_PRESENT);
}

/* Checks a promise. 0: its status is final. 1: it waits. CORE_MORE: it continues in the next
 * call. */
static int promise_check(struct core *c, struct promise *p, uint64_t looks, uint8_t *ret_status)
{
    if (p->verdict != KVC_ST_OK) {
        *ret_status = p->verdict;
        return 0;
    }
    if (is_cancelled(p)) {
        *ret_status = KVC_ST_CANCELLED;
        return 0;
    }
    if (!p->name && has_gone(c, p)) {
        *ret_status = KVC_ST_GONE;
        return 0;
    }
    uint32_t await = CORE_NONE;
    const int err = p->name ? push_name(c, p, &await) : push_commit(c, p, looks, &await);
    if (err == CORE_MORE)
        return err;
    if (err || await == CORE_NONE) {
        *ret_status = err == KVC_E_FULL    ? KVC_ST_FULL
                      : err == KVC_E_QUOTA ? KVC_ST_QUOTA
                      : err                ? KVC_ST_TIER
                                           : KVC_ST_OK;
        if (err == KVC_E_FULL && p->name)
            *ret_status = KVC_ST_BUSY; /* on_saved() tries again while storage makes room */
        if (!err && !p->name)
            c->m.blocks_promised++;
        return 0;
    }
    p->await = await;
    p->await_gen = c->blocks[await].gen;
    c->blocks[await].flags |= BLOCK_F_DURABLE_WANTED;
    return 1;
}

void promise_add(struct core *c, struct promise *p)
{
    p->await = p->walk.at = CORE_NONE;
    p->verdict = KVC_ST_OK;
    list_push_back(&c->mod.promises->all, &p->node);
    c->mod.promises->count++;
    c->mod.promises->due = true;
}

void promise_remove(struct core *c, struct promise *p)
{
    list_remove(&p->node);
    c->mod.promises->count--;
}

void promise_hear(struct core *c, struct block *b, const struct block_change *x)
{
    if (x->what == BLOCK_MOVED)
        promise_moved(c, b, x->err);
    if (!(b->flags & BLOCK_F_DURABLE_WANTED))
        return;
    const uint32_t no = block_no(c, b);
    block_clear(b, BLOCK_F_DURABLE_WANTED);
    c->mod.promises->due = true;
    /* Promises that awaited the block notice that it is not awaited any more. If it was removed, a
     * name uses the block before it; a commit's own block was removed with it. */
    if (!x->err)
        return;
    LIST_FOR_EACH_SAFE (node, next, &c->mod.promises->all) {
        struct promise *p = CONTAINER_OF(node, struct promise, node);
        if (p->await == no && p->await_gen == b->gen)
            p->verdict = x->err == -ENOSPC ? KVC_ST_FULL : KVC_ST_TIER;
    }
}

/* Whether the promise still awaits its block: nothing has happened to that. */
static bool is_awaiting(const struct core *c, const struct promise *p)
{
    if (p->await == CORE_NONE || p->walk.at != CORE_NONE || p->verdict != KVC_ST_OK ||
        is_cancelled(p))
        return false;
    const struct block *b = &c->blocks[p->await];
    return b->gen == p->await_gen && b->flags & BLOCK_F_DURABLE_WANTED;
}

/* Each round looks at every promise once, some at a call. */
static void round_begin(struct core *c)
{
    c->mod.promises->again = c->mod.promises->fell_short;
    c->mod.promises->due = c->mod.promises->fell_short = false;
    c->mod.promises->left = c->mod.promises->count;
}

void promise_step(struct core *c)
{
    if (c->mod.promises->left == 0 && (c->mod.promises->due || c->mod.promises->fell_short))
        round_begin(c);
    known_forget(c);
    for (uint32_t n = 0; c->mod.promises->left > 0 && n < STEP_PROMISES; c->mod.promises->left--) {
        struct list_node *node = list_first(&c->mod.promises->all);
        if (!node)
            break;
        struct promise *p = CONTAINER_OF(node, struct promise, node);
        list_remove(node);
        list_push_back(&c->mod.promises->all, node);
        /* Writes that could not be begun are tried again, until one of them falls short again. */
        if (is_awaiting(c, p) && (!c->mod.promises->again || c->mod.promises->fell_short ||
                                  block_saving(&c->blocks[p->await]))) {
            n++;
            continue;
        }
        const uint64_t looks = c->mod.promises->looks;
        uint8_t status;
        const int rc = promise_check(c, p, STEP_PROMISES - n, &status);
        n += STEP_PROMISES / STEP_CHECKS +
             (uint32_t)MIN(c->mod.promises->looks - looks, STEP_PROMISES);
        if (rc == CORE_MORE) {
            list_remove(node);
            list_push_front(&c->mod.promises->all, node);
            return;
        }
        if (rc == 1)
            continue;
        promise_remove(c, p);
        p->done(c, p, status);
    }
    if (list_empty(&c->mod.promises->all))
        c->mod.promises->left = 0;
}

bool promise_is_due(const struct core *c)
{
    return c->mod.promises->left > 0 || c->mod.promises->due;
}

/* No request waits for this: blocks further up were promised already, or are made durable again
 * (reconcile.c). */
void promise_begin(struct core *c, struct block *b)
{
    const bool is_short = c->mod.promises->fell_short;
    const uint64_t looks = c->mod.promises->looks;
    struct promise_walk w;
    if (!core_stores(c) || b->state != BLOCK_PRESENT)
        return;
    c->mod.promises->fell_short = false;
    walk_begin(c, &w, block_no(c, b));
    if (promise_walk_on(c, &w, SAVE_PROMISE, STEP_PROMISES) < 0)
        c->m.demotion_failures++;
    c->mod.promises->fell_short |= is_short;
    c->work.done += (c->mod.promises->looks - looks) * WORK_LOOK;
}
