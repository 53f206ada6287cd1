/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storage tiers behind one another, seen by core as one.
 *
 * The stack passes an operation of core on as one of its own, with the tier's own location. A block
 * that moves down is read into a buffer, written to the tier below and labelled there. Core is
 * told at once, because from then on the tier below may lose the block, move it or want its place
 * back. Until then core can read the block above, and may free it. Its place above is freed when
 * reads of it have ended.
 */
#include "stack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "list.h"
#include "pool.h"
#include "sys.h"

#define STACK_OPS_MAX 4096u /* most operations that tiers work on; others wait */
#define STACK_PAGE    4096u

/* READING, WRITING: the move's operation is in flight. LANDED: the block is below, and core knows.
 * FAILED: the block did not get below and is lost. LANDED and FAILED last until all reads of the
 * place above have ended. */
enum stack_move_state { MOVE_IDLE, MOVE_READING, MOVE_WRITING, MOVE_LANDED, MOVE_FAILED };

struct stack_move {
    struct tier_op op;
    struct stack *stack;
    struct tier_demotion what;
    enum stack_move_state state;
    unsigned tier;      /* of the place above; the block goes to the next one */
    struct tier_loc to; /* the place below */
    bool freed;         /* core has freed the block above: the move ends without an event */
    bool left;          /* the place above is freed */
    void *buffer;
};

/* An operation of core's that a tier works on. */
struct stack_op {
    struct tier_op op; /* loc: as the tier knows it */
    struct tier_op *outer;
    struct stack *stack;
    struct list_node node; /* of all in flight */
    unsigned tier;
};

struct stack_level {
    struct stack *stack;
    struct tier *tier;
    unsigned no;
};

struct stack {
    struct tier tier;
    struct stack_level level[STACK_TIERS_MAX];
    struct stack_config cfg;
    struct stack_stats stats;
    struct pool *ops;
    struct list_node active;            /* stack_op */
    struct tier_op *wait_first, **wait; /* operations of core that wait for one of `ops` */
    struct tier_op *confirm_first, **confirm;
    struct stack_move *move;
    unsigned char *buffers;
};

static struct stack *stack_of(const struct tier *t)
{
    return CONTAINER_OF((struct tier *)(uintptr_t)t, struct stack, tier);
}

/* ---- locations ---- */

static unsigned loc_level(struct tier_loc loc)
{
    return loc.id >> STACK_LOC_BITS;
}

static struct tier_loc loc_below(struct tier_loc loc)
{
    return (struct tier_loc){loc.id & ((1u << STACK_LOC_BITS) - 1)};
}

struct tier_loc stack_loc(unsigned level, struct tier_loc loc)
{
    MUST(loc.id != 0 && loc.id >> STACK_LOC_BITS == 0 && level < STACK_TIERS_MAX);
    return (struct tier_loc){loc.id | level << STACK_LOC_BITS};
}

static struct tier *tier_at(const struct stack *s, struct tier_loc loc)
{
    MUST(loc.id != 0 && loc_level(loc) < s->cfg.tiers);
    return s->level[loc_level(loc)].tier;
}

/* ---- operations of core's ---- */

static void move_finish(struct stack_move *m);

static void moves_unread(struct stack *s)
{
    for (uint32_t i = 0; i < s->cfg.moves; i++)
        if (s->move[i].state == MOVE_LANDED || s->move[i].state == MOVE_FAILED)
            move_finish(&s->move[i]);
}

static void op_pass_on(struct stack *s, struct tier_op *outer);

static void op_done(struct tier_op *op)
{
    struct stack_op *o = CONTAINER_OF(op, struct stack_op, op);
    struct stack *s = o->stack;
    struct tier_op *outer = o->outer;
    outer->status = op->status;
    outer->sum = op->sum;
    list_remove(&o->node);
    pool_put(s->ops, o);
    if (s->wait_first) {
        struct tier_op *next = s->wait_first;
        s->wait_first = next->next;
        if (!s->wait_first)
            s->wait = &s->wait_first;
        op_pass_on(s, next);
    }
    outer->done(outer);
    moves_unread(s);
}

static void op_pass_on(struct stack *s, struct tier_op *outer)
{
    struct stack_op *o = pool_take(s->ops);
    o->stack = s;
    o->outer = outer;
    o->tier = loc_level(outer->loc);
    o->op = (struct tier_op){.kind = outer->kind,
                             .flags = outer->flags,
                             .loc = loc_below(outer->loc),
                             .src = outer->src,
                             .dst = outer->dst,
                             .bytes = outer->bytes,
                             .label = outer->label,
                             .deadline_ns = outer->deadline_ns,
                             .sum = outer->sum,
                             .cancel = outer->cancel,
                             .done = op_done};
    list_push_back(&s->active, &o->node);
    struct tier *t = tier_at(s, outer->loc);
    t->ops->submit(t, &o->op);
}

static void stack_submit(struct tier *t, struct tier_op *op)
{
    struct stack *s = stack_of(t);
    MUST(op->done != NULL);
    if (pool_used(s->ops) < STACK_OPS_MAX) {
        op_pass_on(s, op);
        return;
    }
    op->next = NULL;
    *s->wait = op;
    s->wait = &op->next;
}

static bool loc_in_use(const struct stack *s, unsigned tier, struct tier_loc loc)
{
    LIST_FOR_EACH_SAFE (node, next, &s->active) {
        const struct stack_op *o = CONTAINER_OF(node, const struct stack_op, node);
        if (o->tier == tier && o->op.loc.id == loc.id)
            return true;
    }
    return false;
}

/* ---- down ---- */

/* The move of the block that core has at loc; NULL: none. A move whose block core freed does not
 * count, for loc may be another block's; nor one that has landed, for core has the block below. */
static struct stack_move *move_of(const struct stack *s, struct tier_loc loc)
{
    for (uint32_t i = 0; i < s->cfg.moves; i++) {
        struct stack_move *m = &s->move[i];
        if (m->state != MOVE_IDLE && m->state != MOVE_LANDED && !m->freed &&
            m->what.loc.id == loc.id)
            return m;
    }
    return NULL;
}

/* Frees the move's location above, once. */
static void move_leave(struct stack_move *m)
{
    struct tier *above = m->stack->level[m->tier].tier;
    if (!m->left)
        above->ops->free(above, loc_below(m->what.loc));
    m->left = true;
}

/* Ends the move with no block below: frees both locations. */
static void move_abandon(struct stack_move *m)
{
    struct tier *below = m->stack->level[m->tier + 1].tier;
    below->ops->free(below, m->to);
    move_leave(m);
    m->state = MOVE_IDLE;
}

/* Ends a move in state LANDED or FAILED, unless the location above is still read. */
static void move_finish(struct stack_move *m)
{
    struct stack *s = m->stack;
    const struct tier_events *events = &s->tier.events;
    if (loc_in_use(s, m->tier, loc_below(m->what.loc)))
        return;
    if (m->state == MOVE_FAILED) {
        s->stats.failed++;
        move_abandon(m);
        events->lost(events->ctx, m->what.block_no, m->what.loc);
        return;
    }
    move_leave(m);
    m->state = MOVE_IDLE;
}

/* True: its operation has ended well, and it goes on. */
static bool move_goes_on(struct stack_move *m, const struct tier_op *op)
{
    if (m->freed) {
        move_abandon(m);
        return false;
    }
    if (op->status == 0)
        return true;
    m->state = MOVE_FAILED;
    move_finish(m);
    return false;
}

static void stack_on_written(struct tier_op *op)
{
    struct stack_move *m = CONTAINER_OF(op, struct stack_move, op);
    struct stack *s = m->stack;
    struct tier *below = s->level[m->tier + 1].tier;
    const struct tier_events *events = &s->tier.events;
    if (!move_goes_on(m, op))
        return;
    below->ops->set_label(below, op);
    m->state = MOVE_LANDED;
    s->stats.demoted++;
    events->moved(events->ctx, m->what.block_no, m->what.loc, stack_loc(m->tier + 1, m->to));
    move_finish(m);
}

static void stack_on_read(struct tier_op *op)
{
    struct stack_move *m = CONTAINER_OF(op, struct stack_move, op);
    struct tier *above = m->stack->level[m->tier].tier, *below = m->stack->level[m->tier + 1].tier;
    if (!move_goes_on(m, op))
        return;
    m->state = MOVE_WRITING;
    m->op = (struct tier_op){.kind = TIER_PUT,
                             .loc = m->to,
                             .src = m->buffer,
                             .bytes = m->what.bytes,
                             .label = m->what.label,
                             .deadline_ns = m->what.deadline_ns,
                             .sum = above->ops->sum(above, loc_below(m->what.loc)),
                             .done = stack_on_written};
    below->ops->submit(below, &m->op);
}

static bool stack_demote(struct tier *t, const struct tier_demotion *what)
{
    struct stack *s = stack_of(t);
    struct tier *above = tier_at(s, what->loc);
    const unsigned level = loc_level(what->loc);
    struct stack_move *m = NULL;
    for (uint32_t i = 0; i < s->cfg.moves && !m; i++)
        m = s->move[i].state == MOVE_IDLE ? &s->move[i] : NULL;
    if (move_of(s, what->loc))
        return true;
    if (!m || level + 1 == s->cfg.tiers || what->bytes > s->cfg.shard_bytes)
        return false;
    struct tier *below = s->level[level + 1].tier;
    if (!below->storage->admits(below, what->bytes, 0) ||
        below->ops->alloc(below, what->principal, what->bytes, (struct tier_loc){0}, what->block_no,
                          &m->to) != 0)
        return false;
    m->what = *what;
    m->tier = level;
    m->freed = m->left = false;
    m->state = MOVE_READING;
    m->op = (struct tier_op){.kind = TIER_GET,
                             .loc = loc_below(what->loc),
                             .dst = m->buffer,
                             .bytes = what->bytes,
                             .label = what->label,
                             .deadline_ns = what->deadline_ns,
                             .done = stack_on_read};
    above->ops->submit(above, &m->op);
    return true;
}

static bool stack_faster(const struct tier *t, struct tier_loc loc, uint32_t bytes)
{
    const struct tier *first = stack_of(t)->level[0].tier;
    return loc_level(loc) > 0 && first->storage->admits(first, bytes, 0);
}

/* ---- room ---- */

static int stack_alloc(struct tier *t, uint32_t principal, uint32_t bytes, struct tier_loc beside,
                       uint32_t block_no, struct tier_loc *ret_loc)
{
    struct tier *first = stack_of(t)->level[0].tier;
    const struct tier_loc there = loc_level(beside) == 0 ? beside : (struct tier_loc){0};
    struct tier_loc loc;
    const int err = first->ops->alloc(first, principal, bytes, there, block_no, &loc);
    if (!err)
        *ret_loc = stack_loc(0, loc);
    return err;
}

static void stack_free(struct tier *t, struct tier_loc loc)
{
    struct stack *s = stack_of(t);
    struct stack_move *m = move_of(s, loc);
    if (!m) {
        struct tier *at = tier_at(s, loc);
        at->ops->free(at, loc_below(loc));
        return;
    }
    m->freed = true;
    if (m->state == MOVE_WRITING)
        move_leave(m);
    else if (m->state != MOVE_READING)
        move_abandon(m);
}

static void stack_invalidate(struct tier *t, struct tier_loc loc)
{
    struct tier *at = tier_at(stack_of(t), loc);
    at->ops->invalidate(at, loc_below(loc));
}

static void stack_set_label(struct tier *t, const struct tier_op *op)
{
    struct tier *at = tier_at(stack_of(t), op->loc);
    const struct tier_op below = {.kind = op->kind,
                                  .flags = op->flags,
                                  .loc = loc_below(op->loc),
                                  .bytes = op->bytes,
                                  .label = op->label,
                                  .status = op->status,
                                  .sum = op->sum};
    at->ops->set_label(at, &below);
}

static struct hash128 stack_sum(const struct tier *t, struct tier_loc loc)
{
    const struct tier *at = tier_at(stack_of(t), loc);
    return at->ops->sum(at, loc_below(loc));
}

static uint32_t stack_slot_bytes(const struct tier *t, uint32_t bytes)
{
    const struct tier *first = stack_of(t)->level[0].tier;
    return first->ops->slot_bytes(first, bytes);
}

/* Sums the figures of all tiers. lasting_bytes stays the first tier's: durable blocks are not
 * demoted. */
static void stack_figures(const struct tier *t, struct tier_stats *ret)
{
    const struct stack *s = stack_of(t);
    s->level[0].tier->ops->stats(s->level[0].tier, ret);
    for (uint32_t i = 1; i < s->cfg.tiers; i++) {
        struct tier_stats st;
        s->level[i].tier->ops->stats(s->level[i].tier, &st);
        ret->limit_bytes += st.limit_bytes;
        ret->used_bytes += st.used_bytes;
        ret->used_slots += st.used_slots;
        ret->inflight_ops += st.inflight_ops;
        ret->inflight_bytes += st.inflight_bytes;
        ret->turn_ms = ret->turn_ms && st.turn_ms ? ret->turn_ms + st.turn_ms : 0;
    }
}

/* ---- storage ---- */

static void confirm_next(struct stack *s, struct tier_op *outer, unsigned tier);

static void stack_on_confirmed(struct tier_op *op)
{
    struct stack_op *o = CONTAINER_OF(op, struct stack_op, op);
    struct stack *s = o->stack;
    struct tier_op *outer = o->outer;
    const unsigned tier = o->tier;
    const int status = op->status;
    list_remove(&o->node);
    pool_put(s->ops, o);
    if (status == 0) {
        confirm_next(s, outer, tier + 1);
        return;
    }
    outer->status = status;
    outer->done(outer);
}

/* Asks the tiers one after the other, from `tier` on. Tiers without confirm_frees() are skipped. */
static void confirm_next(struct stack *s, struct tier_op *outer, unsigned tier)
{
    while (tier < s->cfg.tiers && !s->level[tier].tier->storage->confirm_frees)
        tier++;
    if (tier == s->cfg.tiers) {
        outer->status = 0;
        outer->done(outer);
        return;
    }
    struct stack_op *o = pool_take(s->ops);
    o->stack = s;
    o->outer = outer;
    o->tier = tier;
    o->op = (struct tier_op){.done = stack_on_confirmed};
    list_push_back(&s->active, &o->node);
    s->level[tier].tier->storage->confirm_frees(s->level[tier].tier, &o->op);
}

static void stack_confirm_frees(struct tier *t, struct tier_op *op)
{
    struct stack *s = stack_of(t);
    op->next = NULL;
    *s->confirm = op;
    s->confirm = &op->next;
}

/* Whether a place that core freed is not free yet, because a move still reads it. */
static bool frees_pending(const struct stack *s)
{
    for (uint32_t i = 0; i < s->cfg.moves; i++)
        if (s->move[i].state == MOVE_READING && s->move[i].freed)
            return true;
    return false;
}

static void stack_kick(struct tier *t)
{
    struct stack *s = stack_of(t);
    while (s->confirm_first && !frees_pending(s) && pool_used(s->ops) < STACK_OPS_MAX) {
        struct tier_op *op = s->confirm_first;
        s->confirm_first = op->next;
        if (!s->confirm_first)
            s->confirm = &s->confirm_first;
        confirm_next(s, op, 0);
    }
    for (uint32_t i = 0; i < s->cfg.tiers; i++)
        s->level[i].tier->storage->kick(s->level[i].tier);
}

static bool stack_readable(const struct tier *t, struct tier_loc loc)
{
    const struct tier *at = tier_at(stack_of(t), loc);
    return at->storage->readable(at, loc_below(loc));
}

struct stack_told {
    tier_occupant_fn *each;
    void *ctx;
    unsigned level;
};

static void on_occupant(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    const struct stack_told *told = ctx;
    told->each(told->ctx, stack_loc(told->level, loc), block_no);
}

static uint32_t moves_idle(const struct stack *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->cfg.moves; i++)
        n += s->move[i].state == MOVE_IDLE;
    return n;
}

/* Begins with the lowest tier, so that it has room for blocks that are demoted. The tiers above
 * reclaim no more blocks than there are idle moves. */
static uint32_t stack_reclaim(struct tier *t, uint32_t max, tier_occupant_fn *each, void *ctx)
{
    const struct stack *s = stack_of(t);
    uint32_t n = 0;
    for (uint32_t i = s->cfg.tiers; i-- > 0;) {
        struct stack_told told = {each, ctx, i};
        struct tier *at = s->level[i].tier;
        const uint32_t most = i + 1 == s->cfg.tiers ? max : MIN(max - n, moves_idle(s));
        n += most > 0 ? at->storage->reclaim(at, most, on_occupant, &told) : 0;
    }
    return n;
}

static bool stack_keep(struct tier *t, struct tier_loc loc, uint32_t block_no)
{
    struct stack *s = stack_of(t);
    struct tier *at = tier_at(s, loc);
    return move_of(s, loc) || at->storage->keep(at, loc_below(loc), block_no);
}

static void stack_make_ordinary(struct tier *t, struct tier_loc loc)
{
    struct tier *at = tier_at(stack_of(t), loc);
    if (at->storage->make_ordinary)
        at->storage->make_ordinary(at, loc_below(loc));
}

static uint64_t stack_granted(struct tier *t)
{
    struct tier *first = stack_of(t)->level[0].tier;
    return first->storage->granted ? first->storage->granted(first) : UINT64_MAX;
}

static bool stack_admits(const struct tier *t, uint32_t bytes, uint64_t age_ms)
{
    const struct tier *first = stack_of(t)->level[0].tier;
    return first->storage->admits(first, bytes, age_ms);
}

static bool stack_room_soon(const struct tier *t)
{
    const struct tier *first = stack_of(t)->level[0].tier;
    return first->storage->room_soon && first->storage->room_soon(first);
}

static bool stack_durable_room(const struct tier *t)
{
    const struct tier *first = stack_of(t)->level[0].tier;
    return !first->storage->durable_room || first->storage->durable_room(first);
}

static const struct tier_ops stack_ops = {
    .name = "stack",
    .alloc = stack_alloc,
    .free = stack_free,
    .invalidate = stack_invalidate,
    .submit = stack_submit,
    .set_label = stack_set_label,
    .sum = stack_sum,
    .slot_bytes = stack_slot_bytes,
    .stats = stack_figures,
};

static const struct tier_storage_ops stack_storage_ops = {
    .kick = stack_kick,
    .readable = stack_readable,
    .reclaim = stack_reclaim,
    .keep = stack_keep,
    .demote = stack_demote,
    .faster = stack_faster,
    .make_ordinary = stack_make_ordinary,
    .granted = stack_granted,
    .admits = stack_admits,
    .room_soon = stack_room_soon,
    .durable_room = stack_durable_room,
    .confirm_frees = stack_confirm_frees,
};

/* ---- events of the tiers ---- */

/* The block at loc was moved or lost, and its place is free: its demotion ends. */
static void move_lose(const struct stack_level *l, struct tier_loc loc)
{
    struct stack_move *m = move_of(l->stack, stack_loc(l->no, loc));
    if (!m)
        return;
    MUST(m->state == MOVE_WRITING); /* readers end before */
    m->freed = m->left = true;
}

static void stack_on_moved(void *ctx, uint32_t block_no, struct tier_loc from, struct tier_loc to)
{
    const struct stack_level *l = ctx;
    const struct tier_events *events = &l->stack->tier.events;
    move_lose(l, from); /* the tier moved the block itself, so its demotion ends */
    events->moved(events->ctx, block_no, stack_loc(l->no, from), stack_loc(l->no, to));
}

static void stack_on_lost(void *ctx, uint32_t block_no, struct tier_loc loc)
{
    const struct stack_level *l = ctx;
    const struct tier_events *events = &l->stack->tier.events;
    move_lose(l, loc);
    events->lost(events->ctx, block_no, stack_loc(l->no, loc));
}

static void stack_on_room(void *ctx)
{
    const struct stack_level *l = ctx;
    const struct tier_events *events = &l->stack->tier.events;
    events->room(events->ctx);
}

/* ---- life ---- */

static bool config_is_valid(const struct stack_config *config)
{
    bool ok = config->tiers >= 1 && config->tiers <= STACK_TIERS_MAX && config->moves > 0 &&
              config->shard_bytes > 0;
    for (uint32_t i = 0; ok && i < config->tiers; i++)
        ok = config->tier[i] && config->tier[i]->storage;
    return ok;
}

int stack_create(const struct stack_config *config, struct stack **ret_stack)
{
    if (!config_is_valid(config))
        return -EINVAL;
    const size_t room = ((size_t)config->shard_bytes + STACK_PAGE - 1) / STACK_PAGE * STACK_PAGE;
    struct stack *s = sys_calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->cfg = *config;
    s->tier.ops = &stack_ops;
    s->tier.storage = &stack_storage_ops;
    s->wait = &s->wait_first;
    s->confirm = &s->confirm_first;
    list_init(&s->active);
    s->move = sys_calloc(config->moves, sizeof *s->move);
    s->buffers = sys_aligned_alloc(STACK_PAGE, config->moves * room);
    if (!s->move || !s->buffers ||
        pool_create(&s->ops, "operations of a stack", sizeof(struct stack_op), STACK_OPS_MAX)) {
        stack_destroy(&s);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < config->moves; i++) {
        s->move[i].stack = s;
        s->move[i].buffer = s->buffers + i * room;
    }
    for (uint32_t i = 0; i < config->tiers; i++) {
        s->level[i] = (struct stack_level){s, config->tier[i], i};
        config->tier[i]->events = (struct tier_events){.ctx = &s->level[i],
                                                       .moved = stack_on_moved,
                                                       .lost = stack_on_lost,
                                                       .room = stack_on_room};
    }
    *ret_stack = s;
    return 0;
}

void stack_destroy(struct stack **stack)
{
    struct stack *s = *stack;
    if (!s)
        return;
    MUST(list_empty(&s->active));
    pool_destroy(&s->ops);
    free(s->buffers);
    free(s->move);
    free(s);
    *stack = NULL;
}

struct tier *stack_tier(struct stack *s)
{
    return &s->tier;
}

void stack_stats(const struct stack *s, struct stack_stats *ret_stats)
{
    *ret_stats = s->stats;
}
