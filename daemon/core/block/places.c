/* SPDX-License-Identifier: Apache-2.0 */
/* Where the bytes of a block are, with all that is counted by that. */
#include "block.h"
#include "lapse.h"
#include "regions.h"

/* What is counted of the copies of a PRESENT block, by its flags. */
static void count_places(struct core *c, const struct block *b, bool more)
{
    const uint64_t bytes = block_bytes(c, b), by = more ? bytes : -bytes, one = more ? 1 : -1ull;
    const bool host = b->flags & BLOCK_F_HOST, disk = b->flags & BLOCK_F_DISK;
    c->m.bytes_in_memory += host ? by : 0;
    c->m.bytes_on_disk += disk ? by : 0;
    c->m.blocks_in_memory += host ? one : 0;
    c->m.blocks_on_disk += disk ? one : 0;
    c->m.bytes_unsaved += host && !disk ? by : 0;
    c->unchecked += b->flags & BLOCK_F_UNCHECKED ? one : 0;
}

void block_place(struct core *c, struct block *b, uint32_t set, uint32_t clear)
{
    const uint64_t was = unevictable_change(c, b);
    const bool lapsed = block_lapsed(c, b), promised = block_promised(b);
    count_places(c, b, false);
    block_clear(b, clear);
    b->flags |= set & BLOCK_F_ALL;
    if (promised && !block_promised(b))
        c->promises_lost++;
    count_places(c, b, true);
    lapse_changed(c, b, lapsed);
    unevictable_changed(c, b, was);
    room_bind(c, b);
}

bool block_readable(struct core *c, const struct block *b)
{
    const struct tier *disk = c->cfg.disk;
    const uint32_t shards = block_shards(c, b);
    if (!(b->flags & BLOCK_F_DISK))
        return false;
    for (uint32_t i = 0; i < shards; i++)
        if (!disk->storage->readable(disk, block_disk(c, b, i)))
            return false;
    return true;
}

bool block_reachable(struct core *c, const struct block *b)
{
    return (b->flags & BLOCK_F_HOST) || block_readable(c, b);
}

void host_give_back(struct core *c, struct block *b, uint32_t shards)
{
    const uint64_t was = unevictable_change(c, b);
    for (uint32_t i = 0; i < shards; i++) {
        struct tier_loc loc = block_loc(c, b, i);
        if (loc.id)
            host_give(c, b, loc);
        block_set_loc(c, b, i, (struct tier_loc){0});
    }
    unevictable_changed(c, b, was);
}

void host_drop(struct core *c, struct block *b)
{
    const uint32_t shards = block_shards(c, b);
    MUST(b->state == BLOCK_PRESENT && (b->flags & BLOCK_F_HOST) && !block_in_use(c, b) &&
         b->host_pins == 0);
    if (block_in_policy(b))
        block_park(c, b);
    clean_end(c, b);
    block_place(c, b, 0, BLOCK_F_HOST | BLOCK_F_UNCHECKED);
    host_give_back(c, b, shards);
}

void disk_drop(struct core *c, struct block *b)
{
    if (!c->cfg.disk)
        return;
    const uint32_t shards = block_shards(c, b);
    for (uint32_t i = 0; i < shards; i++) {
        struct tier_loc loc = block_disk(c, b, i);
        if (!loc.id)
            continue;
        disk_give(c, b, loc);
        block_set_disk(c, b, i, (struct tier_loc){0});
    }
    if (b->state == BLOCK_PRESENT)
        block_place(c, b, 0, BLOCK_F_DISK | BLOCK_F_DURABLE | BLOCK_F_BY_PIN);
}

void promise_end(struct core *c, struct block *b)
{
    struct tier *disk = c->cfg.disk;
    const uint32_t shards = block_shards(c, b);
    MUST(b->state == BLOCK_PRESENT && b->flags & BLOCK_F_BY_PIN);
    block_place(c, b, 0, BLOCK_F_DURABLE | BLOCK_F_BY_PIN);
    for (uint32_t i = 0; i < shards && disk->storage->unpromise; i++)
        disk->storage->unpromise(disk, block_disk(c, b, i));
}
