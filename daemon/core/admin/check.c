/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the rules of core.h over every record. core_check() is for tests alone: no request runs
 * it.
 */
#include <stdlib.h>

#include "admin.h"
#include "lapse.h"
#include "regions.h"
#include "sys.h"
#include "transfer_jobs.h"
#include "wants.h"

struct tally {
    uint64_t records, linked, present, pending, present_bytes;
    uint64_t holds, copies, parts, claims; /* counted at the blocks */
    uint64_t below, children; /* blocks that name a parent; that a parent has as child */
    uint64_t kept;            /* blocks that hold their parent */
    uint64_t moving, ring, promising, dying;
    uint64_t in_memory, on_disk, memory_bytes, disk_bytes, unsaved, clean_bytes, unchecked;
};

struct room {
    uint64_t held[RETAIN_TIERS], bound[RETAIN_TIERS], pinned, unevictable, lapsed;
};

static void check_bound(struct core *c, const struct block *b, struct room *room)
{
    const bool there = b->state == BLOCK_PRESENT;
    const bool stays = block_stays(b) || b->promising || block_named(c, b);
    const bool in_memory = core_stores(c) ? b->host_pins > 0 : b->pins > 0;
    const bool want[RETAIN_TIERS] = {there && in_memory, there && core_stores(c) && stays};
    for (unsigned t = 0; t < RETAIN_TIERS; t++) {
        MUST(want[t] == block_is_bound(b, t));
        room->bound[t] += want[t] ? block_bytes(c, b) : 0;
    }
}

/* Checks that the copies asked of a block are there, or under way, or that the block is in the set
 * of unmet ones. A name's blocks are written by the name (name_save()), and enter the set when they
 * lose a copy that they had. */
static void check_wants(struct core *c, const struct block *b)
{
    if (block_pinned(b) || b->promising || b->flags & BLOCK_F_SAFE)
        MUST(b->moving > 0 || unmet_has(c, b) ||
             (!block_lacks(c, b, CORE_HOST) && !block_lacks(c, b, CORE_STORAGE)));
}

/* Checks, by namespace, the room that blocks take, what binds it, and what is pinned. */
static void check_room(struct core *c, struct room *room)
{
    for (uint32_t no = 0; no < c->blocks_high; no++) {
        const struct block *b = &c->blocks[no];
        if (b->state == BLOCK_FREE)
            continue;
        const uint64_t bytes = block_group(c, b)->block_bytes;
        if (!(b->flags & BLOCK_F_PARTS)) {
            room[b->ns].held[0] += b->where ? bytes : 0;
            room[b->ns].held[1] += b->disk ? bytes : 0;
        }
        for (uint32_t i = b->where; b->flags & BLOCK_F_PARTS && i != CORE_NONE;) {
            const struct part *p = pool_at(c->parts, i);
            room[b->ns].held[0] += p->loc.id ? bytes : 0;
            room[b->ns].held[1] += p->state == PART_DONE && p->disk.id ? bytes : 0;
            i = p->next;
        }
        room[b->ns].pinned += b->pins > 0 ? block_bytes(c, b) : 0;
        check_bound(c, b, &room[b->ns]);
        check_wants(c, b);
        room[b->ns].unevictable += unevictable_of(c, b);
        room[b->ns].lapsed += block_lapsed(c, b);
    }
    const struct move *m;
    POOL_FOR_EACH (m, i, move_pool(c))
        if (m->kind == MOVE_SAVE)
            room[c->blocks[m->block].ns].held[1] += m->bytes;
}

/* Checks the counts of unevictable bytes, of namespaces and their principals, and the bytes that a
 * principal takes in memory. */
static void check_unevictable(struct core *c, const struct room *room)
{
    const struct share *s = &c->unevictable_share;
    uint64_t all = 0;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++) {
        MUST(room[i].unevictable == c->ns[i].unevictable);
        all += room[i].unevictable;
    }
    MUST(all == s->used && all == c->m.unevictable_bytes);
    for (uint32_t p = 0; p < s->holders; p++) {
        uint64_t unevictable = 0, held = 0;
        for (uint32_t i = 0; i < c->cfg.namespaces_max; i++) {
            if (!c->ns[i].id || principal_index(c, c->ns[i].principal) != p)
                continue;
            unevictable += room[i].unevictable;
            held += room[i].held[0];
        }
        MUST(unevictable == s->held[p] && held == host_room_of(c, p));
    }
    regions_check(c);
}

/* Checks that the bytes of owners are those of their namespaces, and that nobody has grown beyond a
 * limit. */
static void check_quotas(struct core *c)
{
    struct room *room = sys_calloc(c->cfg.namespaces_max, sizeof *room);
    uint64_t owner[RETAIN_OWNERS][RETAIN_TIERS] = {{0}}, leaving = 0, pinned = 0;
    MUST(room != NULL);
    check_room(c, room);
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++) {
        const struct core_ns *ns = &c->ns[i];
        MUST(!ns->id || ns->account == quota_account(c, ns));
        MUST(room[i].pinned == ns->pinned && room[i].lapsed == ns->lapsed);
        leaving += ns->leaving;
        pinned += ns->pinned;
        for (uint32_t o = 0; o < RETAIN_OWNERS; o++)
            for (unsigned t = 0; t < RETAIN_TIERS; t++)
                if ((o == 0 || retain_owner_is(c->retain, o)) &&
                    retain_is_within(c->retain, ns->account, o))
                    owner[o][t] += room[i].held[t];
        for (unsigned t = 0; t < RETAIN_TIERS; t++)
            MUST(room[i].held[t] == ns->held[t] && room[i].bound[t] == ns->bound[t]);
    }
    for (uint32_t o = 0; o < RETAIN_OWNERS; o++)
        for (unsigned t = 0; t < RETAIN_TIERS; t++)
            MUST((o && !retain_owner_is(c->retain, o)) ||
                 owner[o][t] == retain_held(c->retain, o, t));
    MUST(quota_count(c) == c->m.quotas && leaving == c->moving.leaving_bytes &&
         pinned == c->m.pinned_bytes);
    /* The counts of owners and lists are those that a scan of all blocks finds. */
    MUST(retain_is_sound(c->retain));
    check_unevictable(c, room);
    free(room);
}

static void check_parts(struct core *c, const struct block *b, struct tally *t)
{
    if (!(b->flags & BLOCK_F_PARTS)) {
        const bool host = copy_there(b, CORE_HOST), disk = copy_there(b, CORE_STORAGE);
        MUST(b->state == BLOCK_DYING || host == (b->where != 0) || block_loading(b));
        MUST(b->state == BLOCK_DYING || disk == (b->disk != 0));
        return;
    }
    uint32_t done = 0, copying = 0;
    uint64_t shards = 0;
    for (uint32_t i = b->where; i != CORE_NONE;) {
        const struct part *p = pool_at(c->parts, i);
        MUST(p != NULL && p->shard < KVC_SHARDS_MAX);
        if (b->state == BLOCK_PRESENT) {
            MUST(!copy_there(b, CORE_HOST) == (p->loc.id == 0) || block_loading(b));
            MUST(!copy_there(b, CORE_STORAGE) == (p->disk.id == 0) ||
                 b->disk_copy == COPY_INCOMPLETE);
        } else if (b->state == BLOCK_PENDING) {
            MUST(p->loc.id != 0);
        }
        MUST(!(shards & UINT64_C(1) << p->shard));
        shards |= UINT64_C(1) << p->shard;
        done += p->state == PART_DONE;
        copying += p->state == PART_COPYING;
        bool claimed = part_claimed(p);
        MUST(!claimed || b->state == BLOCK_PENDING);
        MUST(claimed || p->state != PART_RESERVED || b->state == BLOCK_DYING);
        t->claims += claimed;
        t->parts++;
        i = p->next;
    }
    MUST(done == b->shards_present);
    /* Further operations are verifications, of what is or was present. A part of a dying block
     * keeps its mark when its copy has ended. */
    MUST(b->state != BLOCK_PENDING || copying == b->copies);
    MUST(b->state != BLOCK_PRESENT || copying == 0);
}

static void check_forest(struct core *c, uint32_t no, struct tally *t)
{
    const struct block *b = &c->blocks[no];
    uint32_t prev = CORE_NONE, children = 0;
    for (uint32_t i = b->child; i != CORE_NONE; i = c->blocks[i].next) {
        const struct block *child = &c->blocks[i];
        MUST(child->parent == no && child->prev == prev && (child->flags & BLOCK_F_LINKED));
        MUST(child->depth == b->depth + 1 && child->ns == b->ns && child->group == b->group);
        prev = i;
        children++;
    }
    MUST(children == b->children);
    t->children += children;
    if (b->parent != CORE_NONE) {
        MUST(c->blocks[b->parent].flags & BLOCK_F_LINKED);
        t->below++;
        t->kept += block_keeps_above(c, b);
    }
}

/* Checks the copies of a PRESENT block, and its moves. */
static void check_places(struct core *c, const struct block *b, struct tally *t)
{
    const uint32_t f = b->flags;
    const bool host = copy_there(b, CORE_HOST), disk = copy_there(b, CORE_STORAGE);
    const uint64_t bytes = block_bytes(c, b);
    MUST(host || disk || b->disk_copy == COPY_INCOMPLETE);
    MUST(host || (b->parked == PARKED_NOT && !block_saving(b)));
    MUST(disk || !block_is_clean(b));
    MUST(b->disk_copy != COPY_FOR_PIN || !(f & BLOCK_F_SAFE));
    MUST(!(f & BLOCK_F_SAFE) || b->parent == CORE_NONE ||
         c->blocks[b->parent].flags & BLOCK_F_SAFE);
    MUST(f & BLOCK_F_RING || !block_is_clean(b));
    MUST(block_saving(b) || b->parked != PARKED_LEAVING);
    MUST(b->moving > 0 || !block_loading(b));
    t->in_memory += host;
    t->on_disk += disk;
    t->memory_bytes += host ? bytes : 0;
    t->disk_bytes += disk ? bytes : 0;
    t->unsaved += host && !disk ? bytes : 0;
    t->clean_bytes += block_is_clean(b) ? bytes : 0;
    t->unchecked += host && b->host_copy != COPY_READY ? 1 : 0;
}

static void check_block(struct core *c, uint32_t no, struct tally *t)
{
    struct block *b = &c->blocks[no];
    t->ring += b->flags & BLOCK_F_RING ? 1 : 0;
    if (b->state == BLOCK_FREE) {
        MUST(b->holds == 0 && b->copies == 0 && b->moving == 0 && !(b->flags & BLOCK_F_LINKED));
        MUST(!b->promising && !b->listed);
        MUST(!retain_is_in(c->retain, no));
        return;
    }
    MUST(!b->listed);
    t->records++;
    t->moving += b->moving;
    t->dying += b->state == BLOCK_DYING && b->counted;
    t->promising += b->promising;
    t->holds += b->holds;
    t->copies += b->copies;
    check_parts(c, b, t);
    const struct core_ns *ns = block_ns(c, b);
    MUST(ns->id != 0 && b->group < ns->spec.ngroups);
    if (b->state == BLOCK_DYING) {
        MUST((b->holds > 0 || b->copies > 0 || b->moving > 0) && !(b->flags & BLOCK_F_LINKED));
        MUST(!b->counted || b->copies > 0 || b->moving > 0);
        MUST(!retain_is_in(c->retain, no) && b->pins == 0);
        return;
    }
    MUST(b->flags & BLOCK_F_LINKED && retain_is_in(c->retain, no));
    MUST(quota_is_giving(c) || retain_owner(c->retain, no) == ns->account);
    uint32_t shards = group_shards(ns, block_group(c, b));
    MUST(index_get(c, ns, b->group, b->key.b) == b);
    check_forest(c, no, t);
    t->linked++;
    if (b->state == BLOCK_PRESENT) {
        MUST(b->shards_present == shards);
        t->present++;
        check_places(c, b, t);
        t->present_bytes += (uint64_t)block_group(c, b)->block_bytes * shards;
    } else {
        MUST(b->shards_present < shards && b->holds <= b->children);
        t->pending++;
    }
}

static void check_namespaces(struct core *c, const struct tally *t)
{
    uint64_t in_table = 0, records = 0, blocks = 0, bytes = 0;
    for (uint32_t i = 0; i < c->index.size; i++)
        in_table += c->index.table[i] != 0;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++) {
        records += c->ns[i].records;
        blocks += c->ns[i].blocks;
        bytes += c->ns[i].bytes;
    }
    MUST(in_table == t->linked && records == t->records);
    MUST(blocks == t->present && bytes == t->present_bytes);
}

static void check_holders(struct core *c, const struct tally *t)
{
    uint64_t holds = 0, bytes = 0, open = 0;
    const struct lease *lease;
    POOL_FOR_EACH (lease, i, lease_pool(c)) {
        holds += lease->blocks.n - lease->freed;
        bytes += lease->bytes;
    }
    const struct core_load *load;
    POOL_FOR_EACH (load, i, load_pool(c))
        holds += load->blocks.n - load->freed + load->hbm.n;
    const struct reservation *r;
    POOL_FOR_EACH (r, i, resv_pool(c)) {
        MUST(r->open > r->busy || (r->open == r->busy && r->busy > 0));
        open += r->open - r->busy;
        holds += r->held != CORE_NONE;
    }
    holds += asks_hold(c) + unhold_waiting(c);
    MUST(holds + t->kept == t->holds && bytes == c->m.leased_bytes && open == t->claims);
    MUST(pool_used(lease_pool(c)) == c->m.leases && pool_used(resv_pool(c)) == c->m.reservations);
    uint64_t promised = 0;
    uint32_t promises = 0;
    for (const struct promise *p = promise_next(c, NULL); p; p = promise_next(c, p)) {
        promised += !p->name;
        promises++;
    }
    MUST(promises == promise_count(c));
    MUST(pool_used(op_pool(c)) - promised + pool_used(verify_pool(c)) == t->copies);
    MUST(pool_used(c->parts) == t->parts);
}

static void check_tiers(struct core *c, const struct tally *t)
{
    uint64_t left = 0, bytes[2] = {0}, leaving = 0, reading = 0, wanted = 0, promising = 0;
    const struct move *m;
    POOL_FOR_EACH (m, i, move_pool(c)) {
        MUST(m->left > 0 && c->blocks[m->block].moving == m->left);
        const bool promises = m->kind == MOVE_SAVE && m->durable && !m->by_pin;
        MUST(!promises || c->blocks[m->block].promising);
        promising += c->blocks[m->block].promising; /* promises made during the move count, too */
        left += m->left;
        bytes[m->kind != MOVE_SAVE] += m->bytes;
        leaving += m->leaving ? m->bytes : 0;
        reading += m->kind == MOVE_LOAD ? m->bytes : 0;
    }
    const struct core_load *l;
    POOL_FOR_EACH (l, i, load_pool(c))
        wanted += l->wanted;
    MUST(reading == c->moving.reading_bytes && wanted == c->moving.wanted_bytes);
    MUST(promising == t->promising);
    MUST(t->dying == c->disk.dying);
    MUST(left == t->moving && bytes[0] == c->m.saving_bytes && bytes[1] == c->moving.loading_bytes);
    MUST(leaving == c->moving.leaving_bytes);
    clean_check(c, t->ring);
    MUST(t->in_memory == c->m.blocks_in_memory && t->memory_bytes == c->m.bytes_in_memory);
    MUST(t->on_disk == c->m.blocks_on_disk && t->disk_bytes == c->m.bytes_on_disk);
    MUST(t->unsaved == c->m.bytes_unsaved && t->clean_bytes == c->m.clean_bytes);
    MUST(t->unchecked == c->unchecked);
}

void core_check(struct core *c)
{
    struct tally t = {0};
    for (uint32_t no = 0; no < c->blocks_high; no++)
        check_block(c, no, &t);
    MUST(t.records == records_used(c) && t.below == t.children);
    MUST(t.present == c->m.blocks_present && t.pending == c->m.blocks_pending);
    MUST(t.present_bytes == c->m.bytes_present);
    check_namespaces(c, &t);
    check_holders(c, &t);
    check_tiers(c, &t);
    names_check(c);
    hbm_check(c);
    check_quotas(c);
    pins_check(c);
}
