/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks through chains, or looks for keys, for a LIST of blocks: a bounded piece for each request.
 * Between two pieces anything may happen. A cursor into a chain names the record at which the walk
 * stands, with its generation, so that the walk never continues from another block in the same
 * record.
 */
#include <kvcache/rows.h>

#include "admin.h"

/* Records looked at in one piece: some 100 us. */
#define WALK_STEPS 2048u
/* In a cursor, above the record number + 1: the generation's low bits, and whether everything below
 * the record was seen. */
#define WALK_GEN_MASK 0x7fffffffu
#define WALK_CLIMBS   (UINT64_C(1) << 63)

struct walk {
    struct core *c;
    const struct core_client *cl;
    const struct core_walk *in;
    const struct core_ns *ns; /* MATCH, KEYS: NULL = all that the client may see */
    void (*fn)(void *ctx, const struct kvc_block_info *);
    void *ctx;
    uint32_t shown, steps;
};

static uint64_t cursor_of(const struct core *c, uint32_t no, bool climbs)
{
    uint64_t gen = c->blocks[no].gen & WALK_GEN_MASK;
    return (climbs ? WALK_CLIMBS : 0) | gen << 32 | (no + 1u);
}

static bool walk_owns(const struct walk *w, const struct block *b)
{
    return (b->flags & BLOCK_F_LINKED) && block_ns(w->c, b) == w->ns && b->group == w->in->group;
}

/* The record of a cursor, CORE_NONE when it is another block's by now. */
static uint32_t cursor_block(const struct walk *w, uint64_t cursor)
{
    uint32_t no = (uint32_t)cursor - 1;
    if (no >= w->c->blocks_high)
        return CORE_NONE;
    const struct block *b = &w->c->blocks[no];
    bool same = (b->gen & WALK_GEN_MASK) == (cursor >> 32 & WALK_GEN_MASK);
    return same && walk_owns(w, b) ? no : CORE_NONE;
}

static void walk_show(struct walk *w, const struct block *b)
{
    struct kvc_block_info row;
    core__explain(w->c, b, &row);
    w->shown++;
    w->fn(w->ctx, &row);
}

static bool piece_full(const struct walk *w)
{
    return w->shown >= w->in->limit || w->steps >= WALK_STEPS;
}

static uint64_t walk_up(struct walk *w, uint32_t no)
{
    for (; no != CORE_NONE; no = w->c->blocks[no].parent, w->steps++) {
        if (piece_full(w))
            return cursor_of(w->c, no, false);
        walk_show(w, &w->c->blocks[no]);
    }
    return 0;
}

/* Shows `no` and the blocks below it, as far as the piece has room. Returns the cursor to continue
 * at; 0: the tree at `root` is done. climbs: everything below `no` was shown before. */
static uint64_t walk_down(struct walk *w, uint32_t root, uint32_t no, bool climbs)
{
    struct core *c = w->c;
    const uint32_t top = c->blocks[root].depth;
    const bool all = w->in->depth == 0 || w->in->depth > UINT32_MAX - top;
    const uint32_t deepest = all ? UINT32_MAX : top + w->in->depth;
    for (; no != CORE_NONE; w->steps++) {
        if (piece_full(w))
            return cursor_of(c, no, climbs);
        const struct block *b = &c->blocks[no];
        if (!climbs) {
            walk_show(w, b);
            climbs = b->child == CORE_NONE || b->depth >= deepest;
            no = climbs ? no : b->child;
        } else if (no == root) {
            return 0;
        } else {
            climbs = b->next == CORE_NONE;
            no = climbs ? b->parent : b->next;
        }
    }
    return 0;
}

static bool begins_with(const uint8_t *key, const uint8_t *with, uint32_t bits)
{
    const uint32_t whole = bits / 8, rest = bits % 8;
    return memcmp(key, with, whole) == 0 &&
           (rest == 0 || (key[whole] ^ with[whole]) >> (8 - rest) == 0);
}

/* For ROOTS and MATCH: whether the walk shows this record. */
static bool walk_wants(const struct walk *w, const struct block *b)
{
    if (w->in->mode == KVC_WALK_ROOTS)
        return walk_owns(w, b) && b->parent == CORE_NONE;
    if (!(b->flags & BLOCK_F_LINKED) || !begins_with(b->key.b, w->in->key, w->in->depth))
        return false;
    const struct core_ns *ns = block_ns(w->c, b);
    return w->ns ? ns == w->ns : ns_visible(w->cl, ns);
}

/* Walks by record number: the cursor is a record number too, so it is always valid. */
static uint64_t walk_records(struct walk *w)
{
    const struct core *c = w->c;
    for (uint64_t no = w->in->cursor; no < c->blocks_high; no++, w->steps++) {
        if (piece_full(w))
            return no;
        const struct block *b = &c->blocks[no];
        if (walk_wants(w, b))
            walk_show(w, b);
    }
    return 0;
}

/* ---- keys ---- */

/* Why a key is in none of the places that were searched: the first place that knows a reason
 * gives it. A walk through all namespaces shows by itself those that have the key. */
static void absent_ask(const struct walk *w, const struct core_ns *ns, uint32_t group,
                       struct kvc_block_info *absent)
{
    uint32_t detail = 0;
    if (absent->reason != KVC_MISS_NEVER)
        return;
    const enum kvc_miss reason = w->ns ? miss_reason(w->c, ns, group, absent->key, &detail)
                                       : miss_trace(w->c, ns, group, absent->key);
    if (reason == KVC_MISS_NEVER)
        return;
    absent->reason = (uint8_t)reason;
    absent->ns = ns->id;
    absent->group = group;
    absent->detail = detail;
}

/* A place is a namespace's record and a group; one behind the first is asked for when those before
 * it have been shown. false: there is no room for the block at *place. */
static bool walk_places(struct walk *w, const uint8_t *key, uint32_t *place)
{
    struct core *c = w->c;
    struct kvc_block_info absent = {.ns = w->in->ns, .reason = KVC_MISS_NEVER};
    uint32_t at = *place;
    bool found = at > 0;
    memcpy(absent.key, key, sizeof absent.key);
    w->steps++;
    for (; at / KVC_GROUPS_MAX < c->cfg.namespaces_max; at++) {
        const struct core_ns *ns = &c->ns[at / KVC_GROUPS_MAX];
        const uint32_t g = at % KVC_GROUPS_MAX;
        if (!ns_visible(w->cl, ns) || (w->ns && ns != w->ns) || g >= ns->spec.ngroups) {
            at |= KVC_GROUPS_MAX - 1; /* on to the next namespace */
            continue;
        }
        w->steps++;
        const struct block *b = index_get(c, ns, g, key);
        if (!b) {
            absent_ask(w, ns, g, &absent);
            continue;
        }
        *place = at;
        if (w->shown >= w->in->limit)
            return false;
        walk_show(w, b);
        found = true;
    }
    if (!found) {
        w->shown++;
        w->fn(w->ctx, &absent);
    }
    return true;
}

/* The cursor: a key's number, and the place to begin with. */
static uint64_t walk_keys(struct walk *w)
{
    uint32_t key = (uint32_t)(w->in->cursor >> 32), place = (uint32_t)w->in->cursor;
    for (; key < w->in->keys; key++, place = 0) {
        const uint32_t before = w->steps;
        const bool full = w->shown >= w->in->limit || (before > 0 && *w->in->places == 0);
        if (full || !walk_places(w, w->in->key + (size_t)key * KVC_KEY_BYTES, &place))
            return (uint64_t)key << 32 | place;
        *w->in->places -= MIN(w->steps - before, *w->in->places);
    }
    return 0;
}

int core_walk(struct core *c, const struct core_client *cl, const struct core_walk *in,
              void (*fn)(void *ctx, const struct kvc_block_info *), void *ctx, uint64_t *ret_cursor)
{
    const bool any = in->mode >= KVC_WALK_MATCH && in->ns == 0;
    const struct core_ns *ns = any ? NULL : ns_by_id(c, in->ns);
    if (!any && (!ns || !ns_visible(cl, ns)))
        return KVC_E_NO_NAMESPACE;
    if (ns && in->group >= ns->spec.ngroups)
        return KVC_E_BAD_ARGUMENT;
    struct walk w = {.c = c, .cl = cl, .in = in, .ns = ns, .fn = fn, .ctx = ctx};
    if (in->mode == KVC_WALK_ROOTS || in->mode == KVC_WALK_MATCH) {
        *ret_cursor = walk_records(&w);
        return 0;
    }
    if (in->mode == KVC_WALK_KEYS) {
        *ret_cursor = walk_keys(&w);
        return 0;
    }
    const struct block *top = index_get(c, ns, in->group, in->key);
    uint32_t root = top ? block_no(c, top) : CORE_NONE;
    uint32_t no = in->cursor ? cursor_block(&w, in->cursor) : root;
    bool lost = no == CORE_NONE || (in->mode == KVC_WALK_DOWN && !top);
    if (in->cursor && lost)
        return KVC_E_GONE;
    if (no == CORE_NONE)
        *ret_cursor = 0;
    else if (in->mode == KVC_WALK_UP)
        *ret_cursor = walk_up(&w, no);
    else
        *ret_cursor = walk_down(&w, root, no, in->cursor & WALK_CLIMBS);
    return 0;
}
