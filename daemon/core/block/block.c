/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block records: their life cycle, their tree of parents and children, their shards and their
 * holds. A store links a record here and publishes it; a hit holds it; an eviction kills it.
 */
#include "block.h"
#include "index.h"
#include "lapse.h"
#include "regions.h"
#include "sm.h"

/* The most ancestors that one store touches, which takes some 100 us. */
#define TOUCH_MAX 1024u
/* The most chains that may be released in slices at a time. */
#define RECORDS_UP 64u

struct records {
    uint32_t free_head; /* first free record; block.next names the next one */
    uint32_t used;      /* number of records in use */
    uint32_t up_left;   /* blocks of chains that may yet be released at once in this turn */
    uint32_t up[RECORDS_UP], nup; /* blocks from which a release goes on upwards in a later slice,
                                   * and their number; they are held until then */
};

static int records_create(struct core *c)
{
    c->mod.records->free_head = CORE_NONE;
    unhold_turn(c);
    return 0;
}

const struct core_module records_module = {CORE_STATE(records), .create = records_create};

uint32_t records_used(const struct core *c)
{
    return c->mod.records->used;
}

static const char *const block_state_names[] = {"free",    "found",   "reached",
                                                "pending", "present", "dying"};
static const uint32_t block_edges[] = {
    [BLOCK_FREE] = SM_BIT(BLOCK_PENDING) | SM_BIT(BLOCK_FOUND),
    [BLOCK_FOUND] = SM_BIT(BLOCK_REACHED) | SM_BIT(BLOCK_DYING),
    [BLOCK_REACHED] = SM_BIT(BLOCK_PRESENT),
    [BLOCK_PENDING] = SM_BIT(BLOCK_PRESENT) | SM_BIT(BLOCK_DYING),
    [BLOCK_PRESENT] = SM_BIT(BLOCK_DYING),
    [BLOCK_DYING] = SM_BIT(BLOCK_FREE),
};
static const struct sm_table block_sm = {
    .name = "block", .states = block_state_names, .n = 6, .edges = block_edges};

void block_state_set(struct block *b, enum block_state to)
{
    uint8_t state = b->state;
    SM_MOVE(&block_sm, &state, to);
    b->state = state & 7u;
}

struct block *block_new(struct core *c, enum block_state state)
{
    struct records *records = c->mod.records;
    uint32_t no;
    if (records->free_head != CORE_NONE) {
        no = records->free_head;
        records->free_head = c->blocks[no].next;
    } else if (c->blocks_high < c->cfg.blocks_max) {
        no = c->blocks_high++;
    } else {
        return NULL;
    }
    struct block *b = &c->blocks[no];
    uint32_t gen = b->gen + 1;
    uint32_t ring = b->flags & BLOCK_F_RING;
    *b = (struct block){.gen = gen,
                        .flags = BLOCK_F_PARTS | ring,
                        .where = CORE_NONE,
                        .parent = CORE_NONE,
                        .child = CORE_NONE,
                        .next = CORE_NONE,
                        .prev = CORE_NONE};
    block_state_set(b, state);
    records->used++;
    c->m.blocks_pending++;
    return b;
}

void block_link(struct core *c, struct block *b, struct block *parent, const struct core_cost *cost)
{
    uint32_t no = block_no(c, b);
    b->used = core__stamp(c);
    b->flags |= BLOCK_F_LINKED;
    if (parent) {
        b->parent = block_no(c, parent);
        b->depth = parent->depth + 1;
        b->next = parent->child;
        if (b->next != CORE_NONE)
            c->blocks[b->next].prev = no;
        parent->child = no;
        parent->children++;
        if (block_keeps_above(c, b))
            block_hold(c, parent);
    }
    index_add(c, b);
    block_ns(c, b)->records++;
    block_known(c, b, b->parent != CORE_NONE ? b->parent : POLICY_NO_BLOCK, cost);
}

/* The time to compute the block's tokens, in microseconds. */
static uint32_t block_saves(struct core *c, const struct block *b, uint32_t depth,
                            const struct core_cost *cost)
{
    const double first = (double)depth * block_group(c, b)->block_tokens;
    const double ns =
        (double)b->tokens * ((double)cost->ns_per_token +
                             (double)cost->ns_per_token_pair * (first + (double)b->tokens / 2));
    return ns <= 0 ? 0 : ns >= 4e12 ? UINT32_MAX : (uint32_t)(ns / 1000) + 1;
}

struct policy_hint block_hint(struct core *c, const struct block *b, uint32_t parent,
                              uint32_t depth, const struct core_cost *cost)
{
    return (struct policy_hint){.hash = index_hash(c, b->ns, b->group, b->key.b),
                                .parent = parent,
                                .depth = depth,
                                .bytes = (uint32_t)MIN(block_bytes(c, b), UINT32_MAX),
                                .saves = block_saves(c, b, depth, cost),
                                .used_ms = c->now_ms};
}

void block_known(struct core *c, struct block *b, uint32_t parent, const struct core_cost *cost)
{
    struct policy_hint hint = block_hint(c, b, parent, b->depth, cost);
    hint.list = retain_enter(c->retain, block_no(c, b), block_ns(c, b)->account);
    hint.used_ms -= MIN(c->now_ms, core__age_ms(c, b));
    c->cfg.policy->insert(c->policy, block_no(c, b), &hint, c->now_ms);
}

void block_enter(struct core *c, struct block *b)
{
    c->cfg.policy->unpark(c->policy, block_no(c, b), c->now_ms);
}

void block_park(struct core *c, struct block *b)
{
    c->cfg.policy->park(c->policy, block_no(c, b));
}

static void block_unlink(struct core *c, struct block *b)
{
    MUST(b->child == CORE_NONE);
    if (b->next != CORE_NONE)
        c->blocks[b->next].prev = b->prev;
    if (b->prev != CORE_NONE)
        c->blocks[b->prev].next = b->next;
    else if (b->parent != CORE_NONE)
        c->blocks[b->parent].child = b->next;
    if (b->parent != CORE_NONE) {
        struct block *parent = &c->blocks[b->parent];
        parent->children--;
        if (block_keeps_above(c, b))
            block_unhold_quietly(c, parent);
        block_changed(c, parent, &(struct block_change){.what = BLOCK_CHILDLESS});
    }
    b->parent = b->next = b->prev = CORE_NONE;
    index_del(c, b);
    c->cfg.policy->remove(c->policy, block_no(c, b));
    retain_leave(c->retain, block_no(c, b));
    clean_end(c, b);
    block_clear(b, BLOCK_F_LINKED);
}

static bool has_parts(const struct block *b)
{
    return b->flags & BLOCK_F_PARTS;
}

/* The payload of the namespace's largest blocks, all shards. */
static uint64_t ns_largest(const struct core_ns *ns)
{
    uint64_t most = 0;
    for (uint32_t g = 0; g < ns->spec.ngroups; g++)
        most = MAX(most,
                   (uint64_t)ns->spec.group[g].block_bytes * group_shards(ns, &ns->spec.group[g]));
    return most;
}

/* Counts a block of ns that has become PRESENT. */
static void count_present(struct core *c, struct core_ns *ns, uint64_t bytes)
{
    if (ns->blocks++ == 0)
        c->largest = MAX(c->largest, ns_largest(ns));
    ns->bytes += bytes;
    c->m.blocks_pending--;
    c->m.blocks_present++;
    c->m.bytes_present += bytes;
}

/* The namespace `gone` has lost its last block: computes core->largest again, if its blocks were
 * the largest. */
static void shrink_largest(struct core *c, const struct core_ns *gone)
{
    if (ns_largest(gone) < c->largest)
        return;
    c->largest = 0;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++)
        if (c->ns[i].id && c->ns[i].blocks > 0)
            c->largest = MAX(c->largest, ns_largest(&c->ns[i]));
}

void block_kill(struct core *c, struct block *b, enum kvc_miss reason)
{
    MUST(b->state == BLOCK_PENDING || b->state == BLOCK_PRESENT);
    uint64_t bytes = block_bytes(c, b);
    c->work.done += WORK_BLOCK;
    ghost_note(c, b, reason);
    block_changed(c, b, &(struct block_change){.what = BLOCK_UNLINKING, .reason = reason});
    block_unlink(c, b);
    b->counted = b->state == BLOCK_PRESENT && (b->copies > 0 || b->moving > 0);
    c->disk.dying += b->counted;
    if (b->state == BLOCK_PRESENT) {
        struct core_ns *ns = block_ns(c, b);
        if (--ns->blocks == 0)
            shrink_largest(c, ns);
        ns->bytes -= bytes;
        c->m.blocks_present--;
        c->m.bytes_present -= bytes;
        if (reason == KVC_MISS_EVICTED)
            c->m.bytes_evicted += bytes;
    } else {
        c->m.blocks_pending--;
        c->m.blocks_dropped++;
    }
    copies_die(c, b);
    block_changed(c, b, &(struct block_change){.what = BLOCK_GONE, .reason = reason});
}

static void record_free(struct core *c, struct block *b)
{
    block_state_set(b, BLOCK_FREE);
    b->next = c->mod.records->free_head;
    c->mod.records->free_head = block_no(c, b);
    c->mod.records->used--;
}

void settle_hear(struct core *c, struct block *b, const struct block_change *x)
{
    (void)x;
    if (b->state != BLOCK_DYING || b->copies > 0 || b->moving > 0)
        return;
    disk_drop(c, b); /* leases read from memory and slots, not from disk */
    c->disk.dying -= b->counted;
    b->counted = 0;
    if (b->holds > 0)
        return;
    MUST(!b->hbm); /* a hold on an HBM copy holds the block, too */
    if (!has_parts(b)) {
        if (b->where)
            copy_give(c, b, CORE_HOST, (struct tier_loc){b->where});
    } else {
        for (uint32_t i = b->where; i != CORE_NONE;) {
            struct part *p = pool_at(c->parts, i);
            i = p->next;
            if (p->loc.id)
                copy_give(c, b, CORE_HOST, p->loc);
            pool_put(c->parts, p);
        }
    }
    block_ns(c, b)->records--; /* last: until here the namespace says how to read the record */
    record_free(c, b);
}

void block_abandon(struct core *c, struct block *b)
{
    MUST(b->state == BLOCK_PENDING || b->state == BLOCK_FOUND);
    MUST(!(b->flags & BLOCK_F_LINKED) && b->where == CORE_NONE);
    c->m.blocks_pending--;
    block_state_set(b, BLOCK_DYING);
    record_free(c, b);
}

/* The first node of the subtree at `no` in an order in which children come before parents. */
static uint32_t block_deepest(const struct core *c, uint32_t no)
{
    while (c->blocks[no].child != CORE_NONE)
        no = c->blocks[no].child;
    return no;
}

uint32_t block_walk_first(const struct core *c, uint32_t root)
{
    return block_deepest(c, root);
}

uint32_t block_walk_next(const struct core *c, uint32_t root, uint32_t no)
{
    if (no == root)
        return CORE_NONE;
    const struct block *b = &c->blocks[no];
    return b->next != CORE_NONE ? block_deepest(c, b->next) : b->parent;
}

uint32_t block_tree_size(const struct core *c, uint32_t root)
{
    uint32_t n = 0;
    for (uint32_t no = block_walk_first(c, root); no != CORE_NONE;
         no = block_walk_next(c, root, no))
        n++;
    return n;
}

void block_kill_tree(struct core *c, struct block *b, enum kvc_miss reason)
{
    uint32_t root = block_no(c, b);
    for (uint32_t no = block_walk_first(c, root); no != CORE_NONE;) {
        uint32_t next = block_walk_next(c, root, no);
        block_kill(c, &c->blocks[no], reason);
        no = next;
    }
}

void block_hold(struct core *c, struct block *b)
{
    for (;; b = &c->blocks[b->parent]) {
        const bool kept = block_keeps_above(c, b);
        MUST(b->holds < BLOCK_HOLDS_MAX);
        if (b->holds++ > 0)
            return;
        unevictable_held(c, b);
        if (kept || !block_keeps_above(c, b))
            return;
    }
}

/* Lets unhold_step() release the hold on b later. False: its list is full, or b is not PRESENT. */
static bool block_unhold_later(struct core *c, const struct block *b)
{
    struct records *records = c->mod.records;
    if (b->state != BLOCK_PRESENT || records->nup == RECORDS_UP)
        return false;
    records->up[records->nup++] = block_no(c, b);
    return true;
}

/* Releases also the blocks before b that were held for b alone. In one turn these are a slice's
 * work over all chains, plus a few blocks for each hold; unhold_step() releases the rest. */
void block_unhold_quietly(struct core *c, struct block *b)
{
    uint32_t most = MAX(c->mod.records->up_left, work_of_slice(c) / 16);
    for (;; b = &c->blocks[b->parent]) {
        const bool kept = block_keeps_above(c, b);
        MUST(b->holds > 0);
        if (--b->holds > 0)
            return;
        unevictable_unheld(c, b);
        if (!kept || block_keeps_above(c, b))
            return;
        c->work.done += WORK_LOOK;
        c->mod.records->up_left -= c->mod.records->up_left > 0;
        if (most > 1)
            most--;
        else if (block_unhold_later(c, &c->blocks[b->parent]))
            return;
    }
}

void unhold_turn(struct core *c)
{
    c->mod.records->up_left = work_of_slice(c);
}

uint32_t unhold_waiting(const struct core *c)
{
    return c->mod.records->nup;
}

bool unhold_step(struct core *c)
{
    struct records *records = c->mod.records;
    if (records->nup == 0)
        return false;
    struct block *b = &c->blocks[records->up[0]];
    records->up[0] = records->up[--records->nup];
    block_unhold(c, b);
    return records->nup > 0;
}

void block_unhold(struct core *c, struct block *b)
{
    block_unhold_quietly(c, b);
    block_unheld(c, b);
}

void policy_hear(struct core *c, struct block *b, const struct block_change *x)
{
    if (block_in_policy(b) && block_can_leave(c, block_no(c, b)))
        c->cfg.policy->release(c->policy, block_no(c, b), x->what == BLOCK_CHILDLESS);
}

void block_touch(struct core *c, struct block *b)
{
    if (b->state != BLOCK_PENDING || b->shards_present == 0)
        b->used = core__stamp(c); /* of a block that lacks shards it says how long the block waits
                                   * for a rank */
    if (block_is_clean(b))
        clean_recall(c, b);
    if (b->flags & BLOCK_F_LINKED)
        c->cfg.policy->touch(c->policy, block_no(c, b), c->now_ms);
}

void block_touch_path(struct core *c, struct block *b)
{
    uint32_t now = core__stamp(c);
    for (uint32_t n = 0; b->used != now && n < TOUCH_MAX; n++) {
        c->work.done += WORK_LOOK;
        block_touch(c, b);
        if (b->parent == CORE_NONE)
            return;
        b = &c->blocks[b->parent];
    }
}

struct part *block_part(struct core *c, const struct block *b, uint32_t shard)
{
    for (uint32_t i = b->where; i != CORE_NONE;) {
        struct part *p = pool_at(c->parts, i);
        if (p->shard == shard)
            return p;
        i = p->next;
    }
    return NULL;
}

bool block_in_host(struct core *c, const struct block *b)
{
    if (b->state == BLOCK_PRESENT)
        return block_ready(b);
    return !block_loading(b) && copy_loc(c, b, CORE_HOST, 0).id != 0;
}

struct tier_label block_label(struct core *c, const struct block *b, uint32_t shard)
{
    const struct core_ns *ns = block_ns(c, b);
    struct tier_label label = {.key = b->key,
                               .print = ns->short_print,
                               .ns = ns->id,
                               .group = b->group,
                               .shard = shard,
                               .tokens = b->tokens,
                               .level = wish_label(c, b),
                               .has_parent = b->parent != CORE_NONE};
    if (label.has_parent)
        label.parent = c->blocks[b->parent].key;
    return label;
}

void block_publish(struct core *c, struct block *b)
{
    struct core_ns *ns = block_ns(c, b);
    uint64_t bytes = block_bytes(c, b);
    const bool kept = block_keeps_above(c, b);
    if (group_shards(ns, block_group(c, b)) == 1) {
        struct part *p = pool_at(c->parts, b->where);
        b->where = p->loc.id;
        block_clear(b, BLOCK_F_PARTS);
        pool_put(c->parts, p);
    }
    block_state_set(b, BLOCK_PRESENT);
    if (kept && !block_keeps_above(c, b))
        block_unhold_quietly(c, &c->blocks[b->parent]);
    wish_begin(c, b);
    copy_set(c, b, CORE_HOST, COPY_READY);
    count_present(c, ns, bytes);
    c->m.blocks_stored++;
    block_changed(c, b, &(struct block_change){.what = BLOCK_STORED});
}

void block_found(struct core *c, struct block *b, uint64_t bytes)
{
    block_state_set(b, BLOCK_PRESENT);
    count_present(c, block_ns(c, b), bytes);
    copies_found(c, b);
}

bool block_in_use(struct core *c, const struct block *b)
{
    return b->moving > 0 || block_held(c, b);
}

bool block_held(struct core *c, const struct block *b)
{
    if (b->holds > 0 || b->copies > 0)
        return true;
    for (uint32_t i = b->where; b->state == BLOCK_PENDING && i != CORE_NONE;) {
        const struct part *p = pool_at(c->parts, i);
        if (part_claimed(p))
            return true;
        i = p->next;
    }
    return false;
}

bool block_may_go(struct core *c, const struct block *b)
{
    return !block_in_use(c, b) && !block_kept(c, b);
}

bool copy_may_drop(struct core *c, const struct block *b)
{
    return block_on_disk(b) && copy_there(b, CORE_HOST) && b->host_pins == 0 && !block_in_use(c, b);
}

bool block_can_leave(void *ctx, uint32_t no)
{
    struct core *c = ctx;
    const struct block *b = &c->blocks[no];
    const bool stays = b->child != CORE_NONE || block_pinned(b);
    if (b->host_pins > 0 || (stays && !(core_stores(c) && b->state == BLOCK_PRESENT)))
        return false;
    return !block_in_use(c, b);
}
