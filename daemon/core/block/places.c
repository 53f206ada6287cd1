/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the bytes of a block are: the state and location of its copy in each tier. Once a block is
 * PRESENT, its copies change by copy_set() and copies_die(), which keep all counts that depend on
 * them.
 */
#include "block.h"
#include "lapse.h"
#include "regions.h"
#include "sm.h"
#include "wants.h"

/* ---- states of copies ---- */

static const char *const copy_names[] = {"none",  "filling", "suspect", "checking",
                                         "ready", "for pin", "durable", "incomplete"};
#define COPIES_ON_DISK (SM_BIT(COPY_READY) | SM_BIT(COPY_FOR_PIN) | SM_BIT(COPY_DURABLE))
static const uint32_t host_edges[] = {
    [COPY_NONE] = SM_BIT(COPY_FILLING) | SM_BIT(COPY_READY),
    [COPY_FILLING] = SM_BIT(COPY_READY) | SM_BIT(COPY_NONE),
    [COPY_SUSPECT] = SM_BIT(COPY_CHECKING) | SM_BIT(COPY_NONE),
    [COPY_CHECKING] = SM_BIT(COPY_READY) | SM_BIT(COPY_SUSPECT) | SM_BIT(COPY_NONE),
    [COPY_READY] = SM_BIT(COPY_NONE),
    [COPY_INCOMPLETE] = 0,
};
/* A write that ends replaces the copy that was there: it is written again durably, or where storage
 * is faster. */
static const uint32_t disk_edges[] = {
    [COPY_NONE] = COPIES_ON_DISK | SM_BIT(COPY_NONE) | SM_BIT(COPY_INCOMPLETE),
    [COPY_READY] = COPIES_ON_DISK | SM_BIT(COPY_NONE) | SM_BIT(COPY_INCOMPLETE),
    [COPY_FOR_PIN] = COPIES_ON_DISK | SM_BIT(COPY_NONE) | SM_BIT(COPY_INCOMPLETE),
    [COPY_DURABLE] = SM_BIT(COPY_DURABLE) | SM_BIT(COPY_NONE) | SM_BIT(COPY_INCOMPLETE),
    [COPY_INCOMPLETE] = COPIES_ON_DISK | SM_BIT(COPY_NONE) | SM_BIT(COPY_INCOMPLETE),
};
static const struct sm_table copy_sm[] = {
    [CORE_HOST] = {"copy in memory", copy_names, ARRAY_LEN(host_edges), host_edges},
    [CORE_STORAGE] = {"copy on disk", copy_names, ARRAY_LEN(disk_edges), disk_edges},
};

static void copy_move(struct block *b, enum core_tier tier, enum copy_state to)
{
    uint8_t state = (uint8_t)copy_state(b, tier);
    SM_MOVE(&copy_sm[tier], &state, to);
    if (tier == CORE_HOST)
        b->host_copy = state & 7u;
    else
        b->disk_copy = state & 7u;
}

/* Counts the copies of a PRESENT block, or (false) no more. */
static void copies_count(struct core *c, const struct block *b, bool more)
{
    const uint64_t bytes = block_bytes(c, b), by = more ? bytes : -bytes, one = more ? 1 : -1ull;
    const bool host = copy_there(b, CORE_HOST), disk = copy_there(b, CORE_STORAGE);
    c->m.bytes_in_memory += host ? by : 0;
    c->m.bytes_on_disk += disk ? by : 0;
    c->m.blocks_in_memory += host ? one : 0;
    c->m.blocks_on_disk += disk ? one : 0;
    c->m.bytes_unsaved += host && !disk ? by : 0;
    c->unchecked += host && b->host_copy != COPY_READY ? one : 0;
}

void copy_set(struct core *c, struct block *b, enum core_tier tier, enum copy_state to)
{
    const uint64_t was = unevictable_change(c, b);
    const bool lapsed = block_lapsed(c, b), promised = block_promised(b);
    const bool counts = b->state == BLOCK_PRESENT;
    if (counts)
        copies_count(c, b, false);
    copy_move(b, tier, to);
    if (promised && !block_promised(b))
        c->promises_lost++;
    if (counts)
        copies_count(c, b, true);
    if (block_lacks(c, b, tier))
        unmet_add(c, b);
    lapse_changed(c, b, lapsed);
    unevictable_changed(c, b, was);
    room_bind(c, b);
}

void copies_die(struct core *c, struct block *b)
{
    const uint64_t was = unevictable_change(c, b);
    const bool lapsed = block_lapsed(c, b);
    if (b->state == BLOCK_PRESENT)
        copies_count(c, b, false);
    block_state_set(b, BLOCK_DYING);
    if (!block_loading(b))
        b->host_copy = COPY_NONE;
    b->disk_copy = COPY_NONE;
    lapse_changed(c, b, lapsed);
    unevictable_changed(c, b, was);
    room_bind(c, b);
}

void copies_found(struct core *c, struct block *b)
{
    copies_count(c, b, true);
    room_bind(c, b);
}

/* ---- where they are ---- */

struct tier_loc copy_loc(struct core *c, const struct block *b, enum core_tier tier, uint32_t shard)
{
    if (!(b->flags & BLOCK_F_PARTS))
        return (struct tier_loc){tier == CORE_HOST ? b->where : b->disk};
    const struct part *p = block_part(c, b, shard);
    /* A block that is read in memory has all its parts; one that recovery found may lack some. */
    MUST(p != NULL || tier == CORE_STORAGE || b->state == BLOCK_FOUND);
    if (!p || (tier == CORE_STORAGE && p->state != PART_DONE))
        return (struct tier_loc){0};
    return tier == CORE_HOST ? p->loc : p->disk;
}

void copy_set_loc(struct core *c, struct block *b, enum core_tier tier, uint32_t shard,
                  struct tier_loc loc)
{
    if (!(b->flags & BLOCK_F_PARTS)) {
        *(tier == CORE_HOST ? &b->where : &b->disk) = loc.id;
        return;
    }
    struct part *p = block_part(c, b, shard);
    MUST(p != NULL && (tier == CORE_HOST || p->state == PART_DONE));
    *(tier == CORE_HOST ? &p->loc : &p->disk) = loc;
}

void copy_give(struct core *c, const struct block *b, enum core_tier tier, struct tier_loc loc)
{
    struct tier *t = c->cfg.tier[tier];
    t->ops->free(t, loc);
    room_count(c, block_ns(c, b), tier, -(int64_t)block_group(c, b)->block_bytes);
}

void copy_give_all(struct core *c, struct block *b, enum core_tier tier)
{
    const uint32_t shards = block_shards(c, b);
    const uint64_t was = tier == CORE_HOST ? unevictable_change(c, b) : 0;
    for (uint32_t i = 0; i < shards; i++) {
        const struct tier_loc loc = copy_loc(c, b, tier, i);
        if (!loc.id)
            continue;
        copy_give(c, b, tier, loc);
        copy_set_loc(c, b, tier, i, (struct tier_loc){0});
    }
    if (tier == CORE_HOST)
        unevictable_changed(c, b, was);
}

/* ---- what is there ---- */

bool block_readable(struct core *c, const struct block *b)
{
    const struct tier *disk = c->cfg.tier[CORE_STORAGE];
    const uint32_t shards = block_shards(c, b);
    if (!copy_there(b, CORE_STORAGE))
        return false;
    for (uint32_t i = 0; i < shards; i++)
        if (!disk->storage->readable(disk, copy_loc(c, b, CORE_STORAGE, i)))
            return false;
    return true;
}

bool block_reachable(struct core *c, const struct block *b)
{
    return copy_there(b, CORE_HOST) || block_readable(c, b);
}

void host_drop(struct core *c, struct block *b)
{
    MUST(copy_may_drop(c, b));
    if (block_in_policy(b))
        block_park(c, b);
    clean_end(c, b);
    copy_set(c, b, CORE_HOST, COPY_NONE);
    copy_give_all(c, b, CORE_HOST);
}

void disk_drop(struct core *c, struct block *b)
{
    if (!core_stores(c))
        return;
    copy_give_all(c, b, CORE_STORAGE);
    if (b->state == BLOCK_PRESENT)
        copy_set(c, b, CORE_STORAGE, COPY_NONE);
}

void block_unwanted(struct core *c, struct block *b)
{
    struct tier *disk = c->cfg.tier[CORE_STORAGE];
    const uint32_t shards = block_shards(c, b);
    if (b->state != BLOCK_PRESENT || b->disk_copy != COPY_FOR_PIN || block_pinned(b) ||
        block_named(c, b))
        return;
    copy_set(c, b, CORE_STORAGE, COPY_READY);
    for (uint32_t i = 0; i < shards && disk->storage->make_ordinary; i++)
        disk->storage->make_ordinary(disk, copy_loc(c, b, CORE_STORAGE, i));
}
