/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks on their way between host memory and disk, all their shards together. A copy counts when
 * all shards have landed; until then its room belongs to the move (on disk) or stands in the record
 * while its copy is FILLING (in memory). A block is in one move at a time, and in use meanwhile.
 */
#include "regions.h"
#include "space.h"
#include "wants.h"

/* The most payload that is on its way from disk into memory. */
#define LOADING_BYTES_MAX (UINT64_C(64) << 20)
/* After storage has refused a write, no block is written to make room during this time. */
#define MOVE_PAUSE_MS 50u
#define MOVES_MAX     1024u
/* The most moves that are SAVE_ANCESTOR. */
#define ANCESTOR_MOVES 64u
#define MOVE_OPS_MAX   2048u

struct moves {
    struct pool *pool, *ops;
    uint32_t ancestors; /* number of moves under way that are SAVE_ANCESTOR */
    bool stopping;      /* core_stop() was called: no move begins */
};

uint64_t moves_bytes(void)
{
    return pool_bytes_for(sizeof(struct move), MOVES_MAX) +
           pool_bytes_for(sizeof(struct move_op), MOVE_OPS_MAX);
}

static int moves_create(struct core *c)
{
    struct moves *m = c->mod.moves;
    const int err = pool_create(&m->pool, "moves", sizeof(struct move), MOVES_MAX);
    return err ? err
               : pool_create(&m->ops, "moves of shards", sizeof(struct move_op), MOVE_OPS_MAX);
}

static void moves_destroy(struct core *c)
{
    pool_destroy(&c->mod.moves->pool);
    pool_destroy(&c->mod.moves->ops);
}

const struct core_module moves_module = {CORE_STATE(moves), .create = moves_create,
                                         .destroy = moves_destroy};

const struct pool *move_pool(const struct core *c)
{
    return c->mod.moves->pool;
}

void core_stop(struct core *c)
{
    c->mod.moves->stopping = true;
}

void move_hear(struct core *c, struct block *b, const struct block_change *x)
{
    (void)x;
    if (b->state != BLOCK_PRESENT || b->disk_copy != COPY_INCOMPLETE || b->copies > 0 ||
        b->moving > 0)
        return;
    disk_drop(c, b);
    if (!copy_there(b, CORE_HOST))
        block_kill_tree(c, b, KVC_MISS_DROPPED);
}

/* ---- moves ---- */

static bool moves_left(const struct core *c, uint32_t shards, bool load)
{
    /* Neither direction takes the last of them from the other. */
    const uint64_t reserve = load ? 0 : MOVE_OPS_MAX / 4;
    return !c->mod.moves->stopping &&
           pool_used(c->mod.moves->pool) + (load ? 0 : MOVES_MAX / 4) < MOVES_MAX &&
           pool_used(c->mod.moves->ops) + shards + reserve <= MOVE_OPS_MAX;
}

static struct move *move_new(struct core *c, struct block *b, enum move_kind kind)
{
    struct move *m = pool_take(c->mod.moves->pool);
    m->block = block_no(c, b);
    m->kind = (uint8_t)kind;
    m->used = b->used;
    m->bytes = block_bytes(c, b);
    return m;
}

static struct move_op *move_op_new(struct core *c, struct move *m, uint32_t shard)
{
    struct move_op *o = pool_take(c->mod.moves->ops);
    o->core = c;
    o->move = m;
    o->shard = shard;
    o->next = m->ops;
    m->ops = o;
    return o;
}

static void move_op_submit(struct core *c, struct move_op *o, struct tier *tier)
{
    struct block *b = &c->blocks[o->move->block];
    o->op.bytes = block_group(c, b)->block_bytes;
    o->op.label = block_label(c, b, o->shard);
    o->op.label.durable = (o->op.flags & TIER_F_DURABLE) != 0;
    o->op.label.by_pin = o->move->by_pin;
    o->op.deadline_ns = c->now_ns + MOVE_DEADLINE_NS;
    o->op.status = 0;
    tier->ops->submit(tier, &o->op);
}

static void ops_start(struct core *c, struct move *m, struct tier *tier)
{
    struct block *b = &c->blocks[m->block];
    for (struct move_op *o = m->ops; o; o = o->next)
        m->left++;
    b->moving = m->left;
    for (struct move_op *o = m->ops; o; o = o->next)
        move_op_submit(c, o, tier);
}

static void move_free(struct core *c, struct move *m)
{
    for (struct move_op *o = m->ops, *next; o; o = next) {
        next = o->next;
        pool_put(c->mod.moves->ops, o);
    }
    pool_put(c->mod.moves->pool, m);
}

/* Tells the hearers that a move of b has ended. The record of b may be free afterwards. */
static void move_ended(struct core *c, struct block *b, int err)
{
    block_changed(c, b, &(struct block_change){.what = BLOCK_MOVED, .err = err});
}

/* Notes that an operation has ended. True: it was the last one of its move. */
static bool op_ended(struct core *c, struct move_op *o, int err)
{
    struct move *m = o->move;
    if (!m->err)
        m->err = err;
    MUST(m->left > 0);
    c->blocks[m->block].moving--;
    return --m->left == 0;
}

/* ---- to disk ---- */

static void count_leaving(struct core *c, const struct block *b, uint64_t bytes)
{
    c->moving.leaving_bytes += bytes;
    block_ns(c, b)->leaving += bytes;
}

/* A block that was written so that its copy in memory can go (SAVE_LEAVING): lets the copy go, or
 * puts it back into the policy's order if the block was used meanwhile. */
static void save_left(struct core *c, const struct move *m, struct block *b, bool ok)
{
    if (!ok || b->used != m->used || b->holds > 0 || b->host_pins > 0) {
        block_enter(c, b);
        return;
    }
    if (!quota_tight(c, block_ns(c, b)) || b->copies > 0) {
        clean_push(c, b);
        return;
    }
    c->m.blocks_left++;
    host_drop(c, b);
}

/* The parent of b has to be on disk too, in the same way as b: if it is not, asks for its copy. */
static void save_asks(struct core *c, const struct block *b)
{
    const struct block *parent = b->parent == CORE_NONE ? NULL : &c->blocks[b->parent];
    if (parent &&
        !copy_is_enough(parent, CORE_STORAGE, block_promised(b) ? COPY_DURABLE : COPY_READY))
        unmet_add(c, parent);
}

static void save_end(struct core *c, struct move *m)
{
    struct tier *disk = c->cfg.tier[CORE_STORAGE];
    struct block *b = &c->blocks[m->block];
    const bool live = b->state == BLOCK_PRESENT, ok = m->err == 0 && live;
    for (struct move_op *o = m->ops; o; o = o->next) {
        if (!ok) {
            copy_give(c, b, CORE_STORAGE, o->op.loc);
            continue;
        }
        struct tier_loc old = copy_loc(c, b, CORE_STORAGE, o->shard);
        disk->ops->set_label(disk, &o->op);
        copy_set_loc(c, b, CORE_STORAGE, o->shard, o->op.loc);
        if (old.id)
            copy_give(c, b, CORE_STORAGE, old);
    }
    c->m.saving_bytes -= m->bytes;
    c->mod.moves->ancestors -= m->ancestor;
    if (m->leaving)
        count_leaving(c, b, -m->bytes);
    if (b->parked == PARKED_LEAVING)
        b->parked = PARKED_NOT;
    if (ok) {
        copy_set(c, b, CORE_STORAGE,
                 m->by_pin    ? COPY_FOR_PIN
                 : m->durable ? COPY_DURABLE
                              : COPY_READY);
        c->m.blocks_demoted++;
        c->m.bytes_demoted += m->bytes;
        save_asks(c, b);
    } else if (m->err) {
        c->m.demotion_failures++;
        c->disk.pause_ms = c->now_ms + MOVE_PAUSE_MS;
    }
    if (m->leaving && live)
        save_left(c, m, b, ok);
    if (ok && m->by_pin)
        block_unwanted(c, b); /* its pins and names may have ended meanwhile */
    if (m->durable && !m->by_pin) {
        b->promising = 0;
        room_bind(c, b); /* bound if the write succeeded */
    }
    const int err = m->durable ? m->err : 0;
    move_free(c, m);
    move_ended(c, b, err);
}

static void on_saved(struct tier_op *t)
{
    struct move_op *o = CONTAINER_OF(t, struct move_op, op);
    if (op_ended(o->core, o, t->status))
        save_end(o->core, o->move);
}

/* Takes room on disk for each shard, beside its parent's. */
static int save_room(struct core *c, struct block *b, uint32_t shards, bool must,
                     struct tier_loc loc[KVC_SHARDS_MAX])
{
    struct tier_loc beside = {0};
    if (b->parent != CORE_NONE)
        beside = copy_loc(c, &c->blocks[b->parent], CORE_STORAGE, 0);
    for (uint32_t i = 0; i < shards; i++) {
        int err = disk_take(c, b, beside, must, &loc[i]);
        if (err) {
            while (i > 0)
                copy_give(c, b, CORE_STORAGE, loc[--i]);
            return err == KVC_E_NO_ROOM ? KVC_E_FULL : err;
        }
        beside = loc[i];
    }
    return 0;
}

int save_begin(struct core *c, struct block *b, enum save_why why)
{
    const bool durable = why >= SAVE_PROMISE, leaving = why == SAVE_LEAVING;
    const struct tier *host = c->cfg.tier[CORE_HOST];
    const uint32_t shards = block_shards(c, b);
    struct tier_loc loc[KVC_SHARDS_MAX];
    MUST(b->state == BLOCK_PRESENT && copy_there(b, CORE_HOST) && b->moving == 0);
    if (b->copies > 0 || !moves_left(c, shards, false) ||
        (why == SAVE_ANCESTOR && c->mod.moves->ancestors >= ANCESTOR_MOVES))
        return KVC_E_BUSY;
    int err = 0;
    if (why == SAVE_PROMISE && !block_is_bound(b, CORE_STORAGE))
        err = quota_bind(c, block_ns(c, b), CORE_STORAGE, block_bytes(c, b));
    if (!err)
        err = save_room(c, b, shards, durable, loc);
    if (err) {
        c->m.quota_unsaved += err == KVC_E_QUOTA;
        if (err != KVC_E_QUOTA)
            c->disk.pause_ms = c->now_ms + MOVE_PAUSE_MS;
        return err;
    }
    struct move *m = move_new(c, b, MOVE_SAVE);
    m->durable = durable;
    m->leaving = leaving;
    m->ancestor = why == SAVE_ANCESTOR;
    c->mod.moves->ancestors += m->ancestor;
    m->by_pin = why == SAVE_PIN;
    if (leaving && block_in_policy(b))
        block_park(c, b);
    if (leaving)
        b->parked = PARKED_LEAVING;
    b->promising = why == SAVE_PROMISE;
    room_bind(c, b);
    c->m.saving_bytes += m->bytes;
    if (leaving)
        count_leaving(c, b, m->bytes);
    for (uint32_t i = shards; i-- > 0;) {
        struct move_op *o = move_op_new(c, m, i);
        struct tier_loc at = copy_loc(c, b, CORE_HOST, i);
        o->op = (struct tier_op){.kind = TIER_PUT,
                                 .flags = durable ? TIER_F_DURABLE : 0,
                                 .loc = loc[i],
                                 .src = host->memory->payload(host, at),
                                 .sum = host->ops->sum(host, at),
                                 .done = on_saved};
    }
    ops_start(c, m, c->cfg.tier[CORE_STORAGE]);
    return 0;
}

/* ---- into memory ---- */

static void landed_in_host(struct core *c, struct move *m, struct block *b)
{
    struct tier *host = c->cfg.tier[CORE_HOST];
    for (struct move_op *o = m->ops; o; o = o->next)
        host->ops->set_label(host, &o->op);
    copy_set(c, b, CORE_HOST, COPY_READY);
    block_enter(c, b);
    c->m.blocks_loaded++;
    c->m.bytes_loaded += m->bytes;
}

static void count_corrupt(struct core *c, const struct block *b)
{
    c->m.blocks_corrupt++;
    c->m.blocks_corrupt_below += block_tree_size(c, block_no(c, b)) - 1;
}

/* Removes a block that has no copy any more, with all blocks below it. */
static void load_lost(struct core *c, struct block *b, enum kvc_miss reason)
{
    if (reason == KVC_MISS_CORRUPT)
        count_corrupt(c, b);
    block_kill_tree(c, b, reason);
}

/* Whether a shard of b is in slow storage, and faster storage has room for it now. */
static bool block_promotes(struct core *c, const struct block *b)
{
    const struct tier *disk = c->cfg.tier[CORE_STORAGE];
    if (!disk->storage->faster || !block_on_disk(b) || block_is_durable(b) || b->moving > 0)
        return false;
    for (uint32_t i = 0; i < block_shards(c, b); i++)
        if (disk->storage->faster(disk, copy_loc(c, b, CORE_STORAGE, i),
                                  block_group(c, b)->block_bytes))
            return true;
    return false;
}

static void move_load_end(struct core *c, struct move *m)
{
    struct block *b = &c->blocks[m->block];
    const bool live = b->state == BLOCK_PRESENT, unread = m->unread, corrupt = m->corrupt;
    const bool ok = m->err == 0 && !corrupt && live;
    c->moving.loading_bytes -= m->bytes;
    c->moving.reading_bytes -= m->bytes;
    reads_ended(c, m->bytes, m->err == 0);
    c->m.loads_in_flight--;
    block_hold(c, b); /* until the end of this function */
    if (ok) {
        landed_in_host(c, m, b);
    } else {
        copy_set(c, b, CORE_HOST, COPY_NONE);
        copy_give_all(c, b, CORE_HOST);
    }
    c->m.load_failures += !ok;
    move_free(c, m);
    if (!ok && live) {
        if (corrupt)
            load_lost(c, b, KVC_MISS_CORRUPT);
        else if (!copy_there(b, CORE_STORAGE) ||
                 (unread && block_readable(c, b) && !block_is_durable(b)))
            load_lost(c, b, KVC_MISS_DROPPED);
    }
    /* Where that is refused the next load tries again. */
    if (ok && block_promotes(c, b) && save_begin(c, b, SAVE_COPY) != 0)
        c->m.demotion_failures++;
    block_unhold_quietly(c, b);
    move_ended(c, b, ok ? 0 : -EIO);
}

static void on_sealed(struct tier_op *t)
{
    struct move_op *o = CONTAINER_OF(t, struct move_op, op);
    if (t->status == 0 && !hash128_equal(&t->sum, &o->want)) {
        struct core *c = o->core;
        const struct block *b = &c->blocks[o->move->block];
        o->move->corrupt = true;
        if (block_on_disk(b))
            c->cfg.tier[CORE_STORAGE]->ops->invalidate(c->cfg.tier[CORE_STORAGE],
                                                       copy_loc(c, b, CORE_STORAGE, o->shard));
    }
    if (op_ended(o->core, o, t->status))
        move_load_end(o->core, o->move);
}

static void move_on_read(struct tier_op *t)
{
    struct move_op *o = CONTAINER_OF(t, struct move_op, op);
    struct core *c = o->core;
    const struct block *b = &c->blocks[o->move->block];
    if (t->status != 0 || b->state != BLOCK_PRESENT) {
        o->move->unread |= t->status == -EIO;
        if (op_ended(c, o, t->status ? t->status : -ECANCELED))
            move_load_end(c, o->move);
        return;
    }
    o->op = (struct tier_op){
        .kind = TIER_SEAL, .loc = copy_loc(c, b, CORE_HOST, o->shard), .done = on_sealed};
    move_op_submit(c, o, c->cfg.tier[CORE_HOST]);
}

/* Takes room in memory for each shard, beside its parent's. */
static int load_room(struct core *c, struct block *b, uint32_t shards)
{
    for (uint32_t i = 0; i < shards; i++) {
        struct alloc_request w = {.patient = true};
        struct tier_loc loc;
        const struct block *p = b->parent != CORE_NONE ? &c->blocks[b->parent] : NULL;
        if (p && p->state == BLOCK_PRESENT)
            w.beside = copy_loc(c, p, CORE_HOST, i);
        int err = host_take(c, b, &w, &loc);
        const bool taken = err == 0;
        if (taken)
            err = regions_admit_new(c, b, &loc);
        if (err && taken)
            copy_give(c, b, CORE_HOST, loc);
        if (err) {
            copy_give_all(c, b, CORE_HOST);
            return err;
        }
        const uint64_t was = unevictable_change(c, b);
        copy_set_loc(c, b, CORE_HOST, i, loc);
        unevictable_changed(c, b, was);
    }
    return 0;
}

static void on_checked(struct tier_op *t);

/* Begins the check of a block that was found in memory at start: its bytes are read in place. */
static void check_begin(struct core *c, struct block *b, uint32_t shards)
{
    const struct tier *host = c->cfg.tier[CORE_HOST];
    struct move *m = move_new(c, b, MOVE_CHECK);
    for (uint32_t i = shards; i-- > 0;) {
        struct move_op *o = move_op_new(c, m, i);
        struct tier_loc at = copy_loc(c, b, CORE_HOST, i);
        o->want = host->ops->sum(host, at);
        o->op = (struct tier_op){.kind = TIER_VERIFY, .loc = at, .done = on_checked};
    }
    copy_set(c, b, CORE_HOST, COPY_CHECKING);
    c->moving.loading_bytes += m->bytes;
    c->m.loads_in_flight++;
    ops_start(c, m, c->cfg.tier[CORE_HOST]);
}

int load_begin(struct core *c, struct block *b)
{
    const struct tier *disk = c->cfg.tier[CORE_STORAGE];
    const struct tier *host = c->cfg.tier[CORE_HOST];
    const uint32_t shards = block_shards(c, b);
    MUST(b->state == BLOCK_PRESENT && !block_ready(b) && b->moving == 0);
    if (b->copies > 0 || !moves_left(c, shards, true))
        return KVC_E_BUSY;
    if (c->moving.loading_bytes > 0 &&
        c->moving.loading_bytes + block_bytes(c, b) > LOADING_BYTES_MAX)
        return KVC_E_BUSY;
    if (copy_there(b, CORE_HOST)) {
        check_begin(c, b, shards);
        return 0;
    }
    if (!block_readable(c, b))
        return KVC_E_GONE;
    if (!unevictable_may_load(c, b))
        return KVC_E_FULL;
    struct block *p = b->parent != CORE_NONE ? &c->blocks[b->parent] : NULL;
    block_hold(c, b); /* so that making room evicts neither b nor its parent */
    if (p)
        block_hold(c, p);
    copy_set(c, b, CORE_HOST, COPY_FILLING); /* its room is not evicted while it is being loaded */
    int err = load_room(c, b, shards);
    if (err)
        copy_set(c, b, CORE_HOST, COPY_NONE);
    if (p)
        block_unhold(c, p);
    block_unhold_quietly(c, b);
    if (err)
        return err;
    struct move *m = move_new(c, b, MOVE_LOAD);
    for (uint32_t i = shards; i-- > 0;) {
        struct move_op *o = move_op_new(c, m, i);
        struct tier_loc from = copy_loc(c, b, CORE_STORAGE, i);
        o->want = disk->ops->sum(disk, from);
        o->op = (struct tier_op){.kind = TIER_GET,
                                 .loc = from,
                                 .dst = host->memory->payload(host, copy_loc(c, b, CORE_HOST, i)),
                                 .done = move_on_read};
    }
    reads_begun(c, m->bytes);
    c->moving.reading_bytes += m->bytes;
    c->moving.loading_bytes += m->bytes;
    c->m.loads_in_flight++;
    ops_start(c, m, c->cfg.tier[CORE_STORAGE]);
    return 0;
}

/* ---- what was found in memory ---- */

/* The bytes of b in memory are wrong. If b is on disk too, drops the copy in memory, and reads it
 * again for requests that hold b. */
static void check_failed(struct core *c, struct block *b)
{
    if (!copy_there(b, CORE_STORAGE)) {
        load_lost(c, b, KVC_MISS_CORRUPT);
        return;
    }
    c->m.blocks_corrupt++;
    if (block_in_policy(b))
        block_park(c, b);
    clean_end(c, b);
    copy_set(c, b, CORE_HOST, COPY_NONE);
    copy_give_all(c, b, CORE_HOST);
    if (b->holds > 1 && load_begin(c, b) != 0)
        c->m.load_failures++;
}

static void check_end(struct core *c, struct move *m)
{
    struct block *b = &c->blocks[m->block];
    const bool live = b->state == BLOCK_PRESENT, corrupt = m->corrupt;
    const bool ok = m->err == 0 && !corrupt;
    c->moving.loading_bytes -= m->bytes;
    c->m.loads_in_flight--;
    copy_set(c, b, CORE_HOST, !live ? COPY_NONE : ok ? COPY_READY : COPY_SUSPECT);
    block_hold(c, b);
    c->m.blocks_checked += ok && live;
    move_free(c, m);
    if (corrupt && live)
        check_failed(c, b);
    block_unhold_quietly(c, b);
    move_ended(c, b, 0);
}

static void on_checked(struct tier_op *t)
{
    struct move_op *o = CONTAINER_OF(t, struct move_op, op);
    if (t->status == 0 && !hash128_equal(&t->sum, &o->want))
        o->move->corrupt = true;
    if (op_ended(o->core, o, t->status))
        check_end(o->core, o->move);
}
