/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Acquires and lookups of many keys, in slices over several turns, so that others are served
 * between. Pins and puts of names with many keys come here too.
 *
 * A block that was found is held until the end, so that the lease covers what the answer says.
 * There is room for the results of a few such requests at a time (ASKS_MAX).
 */
#include "names_table.h"
#include "regions.h"
#include "serve.h"

enum ask_phase {
    ASK_LOOK,   /* look the keys up */
    ASK_DECIDE, /* decide which prefix was found */
    ASK_CLIMB,  /* for a name: hold its last blocks */
    ASK_UP,     /* for a name: find the blocks before its last ones */
    ASK_PUT,    /* for a put: the name takes the blocks */
    ASK_LEASE,  /* lease the blocks */
    ASK_TELL,   /* tell the policy which keys were asked for */
    ASK_TOUCH,  /* count a use of each block */
    ASK_LOAD,   /* hold the blocks whose loads the request waits for */
    ASK_AHEAD,  /* begin loads that the request does not wait for */
    ASK_SETTLE, /* after a put: raise levels, and release the blocks that the name had */
    ASK_COUNT,  /* for advice: count the blocks that no other chain shares */
    ASK_SAY,    /* for advice: tell the policy */
    ASK_PIN,    /* pin the blocks */
    ASK_FREE    /* release the blocks that were found */
};
/* The most blocks that advice or a pin takes in one step. */
#define SAY_PIECE 256u

struct core_ask {
    struct find f;
    struct core_seq seq;   /* copy of f's, after a cancel; its keys are not read */
    struct list_node node; /* in asks->going, after a cancel, until all is released */
    struct core_client *client;
    struct core_held held;
    struct lease *lease;
    struct pin *pin;             /* while it is being made */
    struct core_load *load;      /* while it is being made */
    struct name_putting putting; /* while the put is under way */
    struct core_climb climb;
    struct core_seen tip[KVC_GROUPS_MAX]; /* in CLIMB: last block of each full group */
    uint32_t climbed;                     /* in CLIMB: the block that it holds, or CORE_NONE */
    bool lacks;                           /* some of a name's blocks are not in memory */
    uint8_t phase;                        /* enum ask_phase */
    bool whole;                           /* slices cannot do it: ask_end() does it in one piece */
    bool again;                           /* after FREE look up once more, in memory alone */
    uint32_t cached, worth;               /* tokens that the first lookup found; that are worth
                                           * loading */
    int rc;                               /* what the request returns */
    const char *why;                      /* the reason, for the client; NULL: none */
    uint32_t group, at; /* in UP, LEASE, TOUCH, LOAD, AHEAD, COUNT, SAY, PIN: the next group and
                         * block */
    uint32_t said[KVC_GROUPS_MAX]; /* blocks of each group that are advised on; counted first */
    struct telling telling;
    uint64_t hold_bits[(KVC_KEYS_MAX + 63) / 64];
};

#define ASK_ROOM_BYTES (ASKS_MAX * sizeof(struct find_room))

struct asks {
    struct pool *pool;
    struct share share;       /* of asks, by principal */
    struct list_node going;   /* core_ask: ended asks, which are being released in slices */
    struct find_room *sliced; /* room of each ask */
    struct find_room room;    /* room of the lookup that is done in one piece */
};

uint64_t asks_bytes(void)
{
    return pool_bytes_for(sizeof(struct core_ask), ASKS_MAX) + ASK_ROOM_BYTES;
}

static void ask_room_enter(struct core *c, struct find_room *room)
{
    c->lookup.found = room->found;
    c->lookup.runlen = room->runlen;
    c->lookup.hash = room->hash;
}

/* From here on lookups are done in one piece, in the room for these. */
static void ask_leave(struct core *c)
{
    ask_room_enter(c, &c->mod.asks->room);
}

static int asks_create(struct core *c)
{
    struct asks *a = c->mod.asks;
    list_init(&a->going);
    ask_leave(c);
    a->sliced = core__pages(ASK_ROOM_BYTES);
    if (!a->sliced)
        return -ENOMEM;
    return core__shared_pool(c, &a->pool, &a->share, "lookups in slices", sizeof(struct core_ask),
                             ASKS_MAX, MAX(c->cfg.principals_max, 1u));
}

static void asks_destroy(struct core *c)
{
    core__shared_pool_free(&c->mod.asks->pool, &c->mod.asks->share);
    core__pages_put(c->mod.asks->sliced, ASK_ROOM_BYTES);
}

static struct sys_range asks_memory(const struct core *c)
{
    return (struct sys_range){c->mod.asks->sliced, ASK_ROOM_BYTES};
}

const struct core_module asks_module = {CORE_STATE(asks), .create = asks_create,
                                        .destroy = asks_destroy, .memory = asks_memory};

bool asks_are_going(const struct core *c)
{
    return !list_empty(&c->mod.asks->going);
}

uint64_t asks_hold(const struct core *c)
{
    uint64_t n = 0;
    const struct core_ask *ask;
    POOL_FOR_EACH (ask, i, c->mod.asks->pool)
        n += ask->f.holds + (ask->climbed != CORE_NONE);
    return n;
}

static void ask_enter(struct core *c, const struct core_ask *ask)
{
    ask_room_enter(c, &c->mod.asks->sliced[pool_index(c->mod.asks->pool, ask)]);
}

/* Begins the next phase, from the first block on. */
static void ask_then(struct core_ask *ask, enum ask_phase phase)
{
    ask->phase = phase;
    ask->group = 0;
    ask->at = 0;
}

/* ---- phases: each goes on to the next phase when it is done ---- */

/* Whether the request can be answered now, because it needs no load first. */
static bool all_ready(const struct core_asking *x, const struct find *f)
{
    return x->looks || f->where == FIND_HOST || !f->unready;
}

static void ask_begin(struct core *c, struct core_asking *x, struct core_client *cl,
                      struct core_ask *ask)
{
    ask->client = cl;
    find_begin(c, &x->in.seq, FIND_ANY, x->looks ? 0 : x->in.from_tokens, &ask->f);
    ask->f.held = ask->hold_bits;
    ask->f.asks_ready = !x->looks;
    ask->f.asks_cost = x->looks && !x->advice && !x->pins && !x->put;
    ask->phase = x->name ? ASK_CLIMB : ASK_LOOK;
    ask->climbed = CORE_NONE;
    ask_enter(c, ask);
    if (x->name)
        ask->whole = !name_find_tips(c, x->name, &ask->f, ask->tip);
    if (ask->whole)
        ask->phase = ASK_FREE;
}

static struct core_pin pin_of(const struct core_asking *x)
{
    return (struct core_pin){.seq = x->in.seq, .in_memory = x->in_memory, .ttl_ms = x->ttl_ms};
}

static void ask_pin_begin(struct core *c, const struct core_asking *x, struct core_ask *ask)
{
    const struct core_pin in = pin_of(x);
    if (ask->f.tokens == 0) {
        ask->rc = find_absence(c, &x->in.seq, &ask->held.prefix, &ask->why);
        return;
    }
    ask->pin = pin_new(c, &in, &ask->f);
    ask->rc = ask->pin ? 0 : KVC_E_LIMIT;
    ask->phase = ask->pin ? ASK_PIN : ASK_FREE;
}

/* Undoes the lease, load, pin or name that was being made for the request. again: at once, because
 * the same room is needed to make it anew; else in slices, if it has many blocks. */
static void ask_unmake(struct core *c, struct core_ask *ask, bool again)
{
    if (ask->lease && again)
        lease_free(c, ask->lease);
    else if (ask->lease)
        lease_end(c, ask->lease);
    ask->lease = NULL;
    if (ask->pin && again)
        pin_drop(c, ask->pin);
    else if (ask->pin)
        pin_leave(c, ask->pin);
    ask->pin = NULL;
    if (ask->load)
        load_free(c, ask->load);
    ask->load = NULL;
    name_put_drop(c, &ask->f, &ask->putting);
    climb_let_go(c, &ask->climbed);
}

/* Ends the ask with rc. 0: a block was removed since it was found, so all is looked up again. */
static void ask_give_up(struct core *c, struct core_ask *ask, int rc)
{
    ask_unmake(c, ask, rc == 0);
    ask->rc = rc;
    ask->whole = rc == 0;
    ask->phase = ASK_FREE;
}

/* All blocks that the name is to hold are found, and held: ends the put. */
static void ask_put_end(struct core *c, struct core_asking *x, struct core_ask *ask)
{
    if (ask->putting.next->cut) { /* a block of the name was removed since */
        ask_give_up(c, ask, 0);
        return;
    }
    if (ask->pin) {
        ask->pin->of_name = true;
        pin_begin(c, ask->pin, 0, &x->pinned);
        ask->putting.next->pin = x->pinned.id;
        ask->pin = NULL;
    }
    ask->rc = name_put_end(c, ask->client, x->put, &ask->f, &ask->putting, x->name_waiter,
                           &x->named, &ask->why);
    ask->phase = ASK_SETTLE;
}

/* The name is put. Before the client is told, all that the name had is released. */
static void ask_settle(struct core *c, struct core_asking *x, struct core_ask *ask)
{
    if (name_put_settle(c, &ask->f, &ask->putting))
        return;
    x->named.went = ask->putting.went;
    ask->phase = ASK_FREE;
}

/* The request does not wait for loads: looks up all once more, and counts blocks in memory only. */
static void ask_in_memory(const struct core_asking *x, struct core_ask *ask)
{
    ask->again = true;
    ask_then(ask, x->load_bytes > 0 ? ASK_AHEAD : ASK_FREE);
}

static void ask_begin_again(struct core *c, const struct core_asking *x, struct core_ask *ask)
{
    ask->again = false;
    ask->cached = ask->held.prefix.cached_tokens;
    find_begin(c, &x->in.seq, FIND_HOST, x->in.from_tokens, &ask->f);
    ask->f.held = ask->hold_bits;
    ask->phase = ASK_LOOK;
}

/* Tokens that are in memory, where all groups are full. */
static uint32_t tokens_ready(struct core *c, const struct find *f)
{
    uint32_t tokens = f->tokens;
    for (uint32_t g = 0; g < f->seq->ngroups; g++) {
        const uint32_t bt = f->seq->ns->spec.group[g].block_tokens;
        uint32_t first, end;
        find_lease(f, g, f->from, &first, &end);
        while (first < end && find_ready(c, f, &c->blocks[c->lookup.found[f->at[g] + first]]))
            first++;
        tokens = MIN(tokens, first < end ? first * bt : tokens);
    }
    while (!find_satisfies(c, f, tokens))
        tokens = (tokens - 1) / f->coarsest * f->coarsest;
    return tokens;
}

/* Begins the loads of the blocks that ask->load holds, unless err is set already. in_memory: tokens
 * of an acquire that were in memory before. */
static void ask_load_go(struct core *c, const struct core_asking *x, struct core_ask *ask, int err,
                        uint32_t in_memory)
{
    const uint32_t cached = ask->held.prefix.cached_tokens;
    if (!err)
        err = load_go(c, ask->load, x->waiter);
    if (err == 1) {
        if (!x->name) {
            x->waiter->worth = ask->worth;
            x->waiter->cached = cached;
            x->waiter->in_memory = in_memory;
        }
        ask->load = NULL; /* the waiter owns it now */
        ask->rc = 1;
        ask_then(ask, ASK_FREE);
        return;
    }
    if (!x->name && err == KVC_E_LIMIT) {
        ask_give_up(c, ask, err);
        return;
    }
    ask_give_up(c, ask, 0);
    ask->whole = err == KVC_E_GONE;
    if (x->name)
        ask_then(ask, err == KVC_E_LIMIT ? ASK_AHEAD : ASK_FREE);
    else if (!ask->whole)
        ask_in_memory(x, ask);
}

/* A block of an acquire is not in memory: decides whether the acquire waits for loads. */
static void ask_lacks(struct core *c, const struct core_asking *x, struct core_ask *ask)
{
    const bool loads = x->in.load && x->waiter && !x->waiter->load;
    ask->load = loads ? load_new(c, ask->client) : NULL;
    if (ask->load)
        ask_then(ask, ASK_LOAD);
    else
        ask_in_memory(x, ask);
}

/* The phase after telling. Loads of an acquire are begun before it. */
static enum ask_phase ask_last(const struct core_asking *x)
{
    return x->looks && x->load_bytes > 0 ? ASK_AHEAD : ASK_FREE;
}

/* Decides what follows when all keys were looked up. */
static void ask_decide(struct core *c, struct core_asking *x, struct core_ask *ask)
{
    struct find *f = &ask->f;
    const struct core_acquire *in = &x->in;
    if (!f->refused && !find_decide(c, f, &ask->held.prefix))
        return;
    ask->phase = ASK_FREE;
    if (f->refused) {
        ask_give_up(c, ask, 0);
        return;
    }
    ask->held.prefix.cached_tokens = MAX(ask->held.prefix.cached_tokens, ask->cached);
    if (ask->load) {
        ask_load_go(c, x, ask, 0, f->tokens);
        return;
    }
    if (!all_ready(x, f)) {
        ask_lacks(c, x, ask);
        return;
    }
    ask->held.ngroups = in->seq.ngroups;
    if (x->advice) {
        ask->phase = ASK_COUNT;
        return;
    }
    if (x->pins) {
        ask_pin_begin(c, x, ask);
        return;
    }
    if (x->put) {
        ask->whole = !f->linked;
        ask->phase = f->linked ? ASK_PUT : ASK_FREE;
        return;
    }
    if (x->looks) {
        c->m.lookups++;
        ask_then(ask, in->read_only ? ask_last(x) : ASK_TELL);
        return;
    }
    if (find_wait(c, in, f, x->waiter)) {
        ask->rc = 1;
        return;
    }
    find_count(c, in, f, x->waiter, &ask->held.prefix);
    ask->phase = in->read_only ? ASK_FREE : ASK_TELL;
    if (f->tokens <= in->from_tokens)
        return;
    ask->lease = lease_begin(c, ask->client, f, in->from_tokens);
    ask->phase = ask->lease ? ASK_LEASE : ASK_FREE;
    ask->rc = ask->lease ? 0 : KVC_E_BUSY;
}

/* Holds the last blocks of a name's full groups. */
static void ask_climb(struct core *c, struct core_ask *ask)
{
    struct find *f = &ask->f;
    for (; ask->group < f->seq->ngroups; ask->group++) {
        if (f->seq->ns->spec.group[ask->group].rule != KVC_RULE_FULL)
            continue;
        struct block *b = seen_block(c, ask->tip[ask->group]);
        const bool there = b && b->state == BLOCK_PRESENT;
        int rc = there ? 0 : KVC_E_GONE;
        if (there && chains_are_held(c)) /* else find_put() checks whether b may be held */
            rc = climb_step(c, &ask->climb, b, &ask->climbed);
        if (rc == CORE_MORE)
            return;
        if (rc || !find_put(c, f, ask->group, f->seq->n[ask->group] - 1, b)) {
            ask_give_up(c, ask, 0);
            return;
        }
        climb_let_go(c, &ask->climbed);
    }
    ask_then(ask, ASK_UP);
}

/* Finds the blocks on which the last blocks of a name's full groups build. */
static void ask_up(struct core *c, struct core_ask *ask)
{
    struct find *f = &ask->f;
    for (; ask->group < f->seq->ngroups; ask->group++, ask->at = 0) {
        const bool full = f->seq->ns->spec.group[ask->group].rule == KVC_RULE_FULL;
        for (; full && ask->at + 1 < f->seq->n[ask->group]; ask->at++) {
            if (slice_over(c))
                return;
            const uint32_t i = f->seq->n[ask->group] - 1 - ask->at;
            const struct block *b = &c->blocks[c->lookup.found[f->at[ask->group] + i]];
            if (b->state != BLOCK_PRESENT || b->parent == CORE_NONE ||
                !find_put(c, f, ask->group, i - 1, &c->blocks[b->parent])) {
                ask_give_up(c, ask, 0);
                return;
            }
        }
    }
    ask_then(ask, ASK_TOUCH);
}

/* Ends a put of a name: limits refuse its blocks in group g, or one of these was removed. */
static void ask_refused(struct core *c, const struct core_asking *x, struct core_ask *ask,
                        uint32_t g, int err)
{
    ask_give_up(c, ask, name_put_refused(c, ask->client, x->put, g, err, &ask->why));
}

static void ask_put(struct core *c, const struct core_asking *x, struct core_ask *ask)
{
    int rc = 0;
    if (!ask->putting.next)
        rc = name_put_begin(c, ask->client, x->put, &ask->f, &ask->held.prefix, &ask->putting,
                            &ask->why);
    if (rc == KVC_E_BUSY)
        return;
    if (!rc)
        rc = name_put_step(c, x->put, &ask->f, &ask->putting, &ask->why);
    if (rc == CORE_MORE)
        return;
    if (rc && !ask->putting.next)
        ask_give_up(c, ask, rc);
    else if (rc)
        ask_refused(c, x, ask, ask->putting.group, rc);
    else if (x->put->pinned)
        ask_pin_begin(c, x, ask);
    else
        ask_then(ask, ASK_TOUCH);
    if (ask->rc == KVC_E_LIMIT && ask->putting.next) /* no pin is free */
        ask_refused(c, x, ask, 0, ask->rc);
}

static void ask_lease(struct core *c, struct core_ask *ask, const char **ret_why)
{
    uint64_t left = 0;
    struct find *f = &ask->f;
    struct lease *l = ask->lease;
    for (; ask->group < l->ngroups; ask->group++, ask->at = 0) {
        for (; ask->at < l->group[ask->group].n; ask->at++) {
            if (slice_over(c))
                return;
            const uint32_t i = l->group[ask->group].first + ask->at;
            struct block *b = &c->blocks[c->lookup.found[f->at[ask->group] + i]];
            c->work.done += WORK_LOOK;
            const bool there = b->state == BLOCK_PRESENT && find_ready(c, f, b);
            const int err = there ? lease_add_found(c, l, f, b, &left, ret_why) : 0;
            if (err || !there) {
                ask_give_up(c, ask, err);
                return;
            }
        }
    }
    lease_held(c, l, &ask->held);
    ask->phase = ASK_TELL;
}

static void ask_tell(struct core *c, const struct core_asking *x, struct core_ask *ask)
{
    const bool tells = !x->in.read_only && !x->in.unasked;
    if (tells && !tell_step(c, &ask->f, &ask->telling))
        return;
    ask_then(ask, x->in.read_only ? ASK_FREE : ASK_TOUCH);
}

static void count_in_memory(struct core *c, struct core_asking *x, struct core_ask *ask,
                            const struct block *b)
{
    x->bytes_in_memory += copy_there(b, CORE_HOST) ? block_bytes(c, b) : 0;
    ask->lacks |= !find_ready(c, &ask->f, b);
}

static enum ask_phase ask_loads(struct core *c, const struct core_asking *x, struct core_ask *ask)
{
    if (!ask->lacks)
        return ASK_FREE;
    if (x->in.load && x->waiter && !x->waiter->load)
        ask->load = load_new(c, ask->client);
    return ask->load ? ASK_LOAD : x->load_bytes > 0 && !x->in.load ? ASK_AHEAD : ASK_FREE;
}

/* find_touch(), in slices. */
static void ask_touch(struct core *c, struct core_asking *x, struct core_ask *ask)
{
    const struct find *f = &ask->f;
    for (; ask->group < f->seq->ngroups; ask->group++, ask->at = 0) {
        uint32_t first, end;
        find_needs(f, ask->group, f->tokens, &first, &end);
        for (; ask->at < end - first; ask->at++) {
            if (slice_over(c))
                return;
            struct block *b = &c->blocks[c->lookup.found[f->at[ask->group] + end - 1 - ask->at]];
            c->work.done += WORK_LOOK;
            block_touch(c, b);
            if (x->name)
                count_in_memory(c, x, ask, b);
        }
    }
    ask_then(ask, x->name ? ask_loads(c, x, ask) : ask_last(x));
    if (x->put)
        ask_put_end(c, x, ask);
}

/* The next block that f needs beyond `from`, root first. NULL: that was the last one, or
 * (*ret_over) the slice is over. */
static struct block *ask_next(struct core *c, struct core_ask *ask, bool *ret_over)
{
    const struct find *f = &ask->f;
    *ret_over = slice_over(c);
    for (; !*ret_over && ask->group < f->seq->ngroups; ask->group++, ask->at = 0) {
        uint32_t first, end;
        find_lease(f, ask->group, f->from, &first, &end);
        if (ask->at == end - first)
            continue;
        c->work.done += WORK_LOOK;
        return &c->blocks[c->lookup.found[f->at[ask->group] + first + ask->at++]];
    }
    return NULL;
}

/* If a client would hold more than it may, blocks are loaded as far as there is room. */
static void ask_load(struct core *c, const struct core_asking *x, struct core_ask *ask)
{
    uint64_t left = 0;
    int err = 0;
    bool over;
    for (struct block *b; !err && (b = ask_next(c, ask, &over));) {
        const bool there = b->state == BLOCK_PRESENT;
        err = there ? load_add(c, ask->load, &ask->f, b, 1, &left, &ask->why) : KVC_E_GONE;
    }
    if (!err && over)
        return;
    ask->worth = ask->f.tokens;
    if (err || x->name || ns_is_full(x->in.seq.ns)) {
        ask_load_go(c, x, ask, err, x->name || err ? 0 : tokens_ready(c, &ask->f));
        return;
    }
    /* In other groups a walk does not show how much is in memory. */
    ask->again = true;
    ask_then(ask, ASK_FREE);
}

static void ask_ahead(struct core *c, struct core_asking *x, struct core_ask *ask)
{
    bool over;
    for (struct block *b; (b = ask_next(c, ask, &over));) {
        const int got = load_ahead(c, &ask->f, b, &x->load_bytes);
        c->work.done += got == 1 ? WORK_BLOCK : 0;
        if (got < 0)
            break;
    }
    if (!over)
        ask_then(ask, ASK_FREE);
}

/* Counts the blocks of each group that no other chain shares. */
static void ask_count(struct core *c, struct core_ask *ask)
{
    const struct find *f = &ask->f;
    for (; ask->group < f->seq->ngroups; ask->group++) {
        uint32_t first, end, *n = &ask->said[ask->group];
        own_range(f, ask->group, &first, &end);
        for (; *n < end - first; ++*n) {
            if (slice_over(c))
                return;
            c->work.done += WORK_LOOK;
            if (is_shared(&c->blocks[c->lookup.found[f->at[ask->group] + end - 1 - *n]], *n == 0))
                break;
        }
    }
    ask->group = 0;
    ask->phase = ASK_SAY;
}

/* Tells the policy a chain's first pieces first, because a block to be evicted next is put at the
 * end of its order. */
static void ask_say(struct core *c, const struct core_asking *x, struct core_ask *ask)
{
    const struct find *f = &ask->f;
    const struct policy_ops *policy = c->cfg.policy;
    uint32_t block[SAY_PIECE];
    for (; policy->advise && ask->group < f->seq->ngroups; ask->group++, ask->at = 0) {
        uint32_t first, end;
        own_range(f, ask->group, &first, &end);
        first = end - ask->said[ask->group];
        while (first + ask->at < end) {
            if (slice_over(c))
                return;
            const uint32_t n = MIN(MIN(end - first - ask->at, SAY_PIECE), work_of_slice(c));
            for (uint32_t i = 0; i < n; i++) /* deepest first */
                block[i] = c->lookup.found[f->at[ask->group] + first + ask->at + n - 1 - i];
            policy->advise(c->policy, x->advice, x->within_ms, block, n, c->now_ms);
            c->work.done += n * WORK_LOOK;
            ask->at += n;
        }
    }
    c->m.advice++;
    c->hinted[x->advice]++;
    ask_then(ask, ask_last(x));
}

/* Whether blocks first .. end-1 of group g are PRESENT, and no other piece has one of them. In a
 * full group each has the depth of its key; any other group must fit in one piece. */
static bool can_pin(struct core *c, const struct find *f, uint32_t g, uint32_t first, uint32_t end)
{
    const bool full = f->seq->ns->spec.group[g].rule == KVC_RULE_FULL;
    for (uint32_t i = first; i < end; i++) {
        const struct block *b = &c->blocks[c->lookup.found[f->at[g] + i]];
        if (b->state != BLOCK_PRESENT || (full && b->depth != i))
            return false;
    }
    return full || end - first <= SAY_PIECE;
}

static void ask_pin(struct core *c, const struct core_asking *x, struct core_ask *ask)
{
    const struct find *f = &ask->f;
    for (; ask->group < f->seq->ngroups; ask->group++, ask->at = 0) {
        const bool full = f->seq->ns->spec.group[ask->group].rule == KVC_RULE_FULL;
        uint32_t first, end;
        find_needs(f, ask->group, f->tokens, &first, &end);
        for (uint32_t n; first + ask->at < end; ask->at += n) {
            if (slice_over(c))
                return;
            const uint32_t from = first + ask->at;
            n = full ? MIN(MIN(end - from, SAY_PIECE), work_of_slice(c)) : end - from;
            c->work.done += n * WORK_LOOK;
            const bool can = can_pin(c, f, ask->group, from, from + n);
            const int err = can ? pin_add(c, ask->pin, f, ask->group, from, from + n) : 0;
            if (err || !can) {
                if (x->put)
                    ask_refused(c, x, ask, ask->group, err);
                else
                    ask_give_up(c, ask, err);
                return;
            }
        }
    }
    ask_then(ask, x->put ? ASK_TOUCH : ASK_FREE);
}

/* Releases what was found, deepest first, so that no block is evicted before those that build on
 * it. */
static bool ask_free(struct core *c, struct core_ask *ask, bool all)
{
    struct find *f = &ask->f;
    for (uint32_t w = ARRAY_LEN(ask->hold_bits); w-- > 0 && f->holds > 0;) {
        while (f->held[w]) {
            if (!all && slice_over(c))
                return false;
            const uint32_t bit = 63u - (uint32_t)__builtin_clzll(f->held[w]);
            f->held[w] &= ~(UINT64_C(1) << bit);
            f->holds--;
            c->work.done += WORK_LOOK;
            block_unhold(c, &c->blocks[c->lookup.found[w * 64 + bit]]);
        }
    }
    return true;
}

static void ask_free_slot(struct core *c, struct core_ask *ask)
{
    share_put(&c->mod.asks->share, principal_index(c, ask->client->who.principal),
              c->mod.asks->pool, ask);
    ask_leave(c);
}

/* Releases the blocks of a cancelled request: at once if they are few, else in ask_step(). */
void core_ask_cancel(struct core *c, struct core_asking *x)
{
    struct core_ask *ask = x->ask;
    if (!ask)
        return;
    x->ask = NULL;
    ask_enter(c, ask);
    if (!ask->putting.name) /* else the name exists, and ask_step() raises its levels */
        ask_unmake(c, ask, false);
    if (!ask->putting.name && ask->f.holds <= c->work.end_left) {
        c->work.end_left -= ask->f.holds;
        (void)ask_free(c, ask, true);
        ask_free_slot(c, ask);
        return;
    }
    ask->seq = *ask->f.seq;
    ask->f.seq = &ask->seq;
    ask->client->going++;
    list_push_back(&c->mod.asks->going, &ask->node);
    ask_leave(c);
}

bool ask_step(struct core *c)
{
    struct list_node *node = list_first(&c->mod.asks->going);
    if (!node)
        return false;
    struct core_ask *ask = CONTAINER_OF(node, struct core_ask, node);
    struct core_client *cl = ask->client;
    work_slice(c);
    ask_enter(c, ask);
    const bool over = !name_put_settle(c, &ask->f, &ask->putting) && ask_free(c, ask, false);
    if (over)
        core_name_forget_cancel(&ask->putting.old);
    ask_leave(c);
    if (!over)
        return true;
    list_remove(&ask->node);
    ask_free_slot(c, ask);
    cl->going--;
    core__client_settle(c, cl);
    return asks_are_going(c);
}

/* Ends an ask, with a lookup in one piece where slices could not do it. */
static int ask_end(struct core *c, struct core_client *cl, struct core_asking *x,
                   struct core_held *ret_held, const char **ret_why)
{
    struct core_ask *ask = x->ask;
    const int rc = ask->rc;
    *ret_why = ask->why;
    const bool whole = ask->whole;
    if (rc == 0 && !whole) {
        *ret_held = ask->held;
        if (!x->looks && ask->f.cut && !x->in.read_only)
            worth_probe(c, &ask->f);
    }
    if (ask->pin)
        pin_begin(c, ask->pin, x->ttl_ms, &x->pinned);
    x->ask = NULL;
    ask_free_slot(c, ask);
    if (x->put)
        return whole ? core_name_put(c, cl, x->put, x->name_waiter, &x->named, ret_why) : rc;
    if (x->name)
        return whole ? KVC_E_GONE : rc;
    if (whole && x->pins) {
        const struct core_pin in = pin_of(x);
        return core_pin(c, &in, &x->pinned, ret_why);
    }
    if (whole && x->advice) {
        const int n = core_advise(c, &x->in.seq, x->advice, x->within_ms, ret_why);
        return n < 0 ? n : 0;
    }
    if (whole && x->looks)
        return core_lookup(c, &x->in.seq, !x->in.read_only, &ret_held->prefix, ret_why);
    if (whole)
        return core_acquire(c, cl, &x->in, x->waiter, ret_held, ret_why);
    if (rc != 1 && !x->looks)
        waiter_done(c, x->waiter);
    return rc;
}

int core_ask_step(struct core *c, struct core_client *cl, struct core_asking *x,
                  struct core_held *ret_held, const char **ret_why)
{
    work_slice(c);
    *ret_why = NULL;
    if (!x->ask) {
        if (x->name && !name_shape(c, x->name, &x->in.seq))
            return KVC_E_GONE;
        if (!x->ns || x->name)
            x->ns = x->in.seq.ns->id;
        if (x->in.seq.ns->id != x->ns)
            return KVC_E_NO_NAMESPACE; /* it was removed, and another has its slot */
        if ((*ret_why = core_seq_fault(&x->in.seq)))
            return KVC_E_BAD_ARGUMENT;
        x->ask = share_get(&c->mod.asks->share, principal_index(c, cl->who.principal),
                           c->mod.asks->pool);
        if (!x->ask)
            return CORE_MORE;
        ask_begin(c, x, cl, x->ask);
    }
    struct core_ask *ask = x->ask;
    ask_enter(c, ask);
    ask->f.left = 0;               /* other requests may have taken room since */
    if (x->in.seq.ns->id != x->ns) /* another namespace has the slot */
        ask_give_up(c, ask, KVC_E_NO_NAMESPACE);
    if (ask->phase == ASK_LOOK && find_look(c, &ask->f))
        ask->phase = ASK_DECIDE;
    if (ask->phase == ASK_DECIDE)
        ask_decide(c, x, ask);
    if (ask->phase == ASK_CLIMB)
        ask_climb(c, ask);
    if (ask->phase == ASK_UP && !slice_over(c))
        ask_up(c, ask);
    if (ask->phase == ASK_PUT && !slice_over(c))
        ask_put(c, x, ask);
    if (ask->phase == ASK_PIN && !slice_over(c))
        ask_pin(c, x, ask);
    if (ask->phase == ASK_LEASE && !slice_over(c))
        ask_lease(c, ask, &ask->why);
    if (ask->phase == ASK_TELL && !slice_over(c))
        ask_tell(c, x, ask);
    if (ask->phase == ASK_TOUCH && !slice_over(c))
        ask_touch(c, x, ask);
    if (ask->phase == ASK_SETTLE && !slice_over(c))
        ask_settle(c, x, ask);
    if (ask->phase == ASK_LOAD && !slice_over(c))
        ask_load(c, x, ask);
    if (ask->phase == ASK_AHEAD && !slice_over(c))
        ask_ahead(c, x, ask);
    if (ask->phase == ASK_COUNT && !slice_over(c))
        ask_count(c, ask);
    if (ask->phase == ASK_SAY && !slice_over(c))
        ask_say(c, x, ask);
    if (ask->phase == ASK_FREE && !slice_over(c) && ask_free(c, ask, false)) {
        if (!ask->again)
            return ask_end(c, cl, x, ret_held, ret_why);
        ask_begin_again(c, x, ask);
    }
    ask_leave(c);
    return CORE_MORE;
}
