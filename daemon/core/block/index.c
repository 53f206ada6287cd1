/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index, from key to record, and the ghosts: why an evicted block is missing. Each lookup,
 * store and hit goes through it; index.h has the part that runs for each key.
 *
 * One open-addressed table with linear probing. An entry holds a record number and 32 bits of its
 * hash, so that a miss rarely touches a record. The hash has a random secret: keys are chosen by
 * clients.
 */
#include "index.h"
#include "block.h"

#define GHOST_WAYS        4u
#define GHOST_REASON_BITS 3

/* Ghosts of evicted blocks in a bucket, latest first: tag << 3 | reason. */
struct ghosts {
    uint32_t way[GHOST_WAYS];
};

static uint32_t ghosts_max(const struct core_config *cfg)
{
    return cfg->blocks_max / GHOST_WAYS + 1;
}

uint64_t ghosts_bytes(const struct core_config *cfg)
{
    return (uint64_t)ghosts_max(cfg) * sizeof(struct ghosts);
}

uint32_t index_table_size(uint32_t blocks_max)
{
    return blocks_max + blocks_max * 2ull / 5 + 16;
}

static uint64_t entry_of(uint64_t hash, uint32_t no)
{
    return hash << 32 | (no + 1u);
}

struct block *index_get(struct core *c, const struct core_ns *ns, uint32_t group,
                        const uint8_t *key)
{
    uint32_t slot = (uint32_t)(ns - c->ns);
    c->index.probes++;
    return index_find(c, index_hash(c, slot, group, key), slot, group, key);
}

void index_add(struct core *c, struct block *b)
{
    uint64_t hash = index_hash(c, b->ns, b->group, b->key.b);
    uint32_t s = slot_of(c, hash);
    while (c->index.table[s])
        s = next_slot(c, s);
    c->index.table[s] = entry_of(hash, block_no(c, b));
}

/* Deletion moves later entries of the probe run back, so there are no tombstones. */
void index_del(struct core *c, const struct block *b)
{
    uint64_t hash = index_hash(c, b->ns, b->group, b->key.b);
    uint64_t entry = entry_of(hash, block_no(c, b));
    uint32_t hole = slot_of(c, hash);
    while (c->index.table[hole] != entry) {
        MUST(c->index.table[hole] != 0);
        hole = next_slot(c, hole);
    }
    for (uint32_t s = next_slot(c, hole); c->index.table[s]; s = next_slot(c, s)) {
        const uint32_t home = slot_of(c, c->index.table[s] >> 32);
        bool stays = hole <= s ? (hole < home && home <= s) : (hole < home || home <= s);
        if (stays)
            continue;
        c->index.table[hole] = c->index.table[s];
        hole = s;
    }
    c->index.table[hole] = 0;
}

static uint32_t *ghost_ways(const struct core *c, uint64_t hash)
{
    uint64_t i = ((unsigned __int128)hash * ghosts_max(&c->cfg)) >> 64;
    return c->index.ghosts[i].way;
}

static uint32_t ghost_tag(uint64_t hash)
{
    return (uint32_t)hash << GHOST_REASON_BITS;
}

void ghost_note(struct core *c, const struct block *b, enum kvc_miss reason)
{
    uint64_t hash = index_hash(c, b->ns, b->group, b->key.b);
    index_prefetch(c, hash); /* b leaves the index next */
    uint32_t *way = ghost_ways(c, hash);
    uint32_t value = ghost_tag(hash) | (uint32_t)reason;
    for (unsigned i = GHOST_WAYS - 1; i > 0; i--)
        way[i] = way[i - 1];
    way[0] = value;
}

enum kvc_miss ghost_reason(const struct core *c, uint64_t hash)
{
    const uint32_t *way = ghost_ways(c, hash);
    for (unsigned i = 0; i < GHOST_WAYS; i++)
        if (way[i] && (way[i] >> GHOST_REASON_BITS << GHOST_REASON_BITS) == ghost_tag(hash))
            return (enum kvc_miss)(way[i] & ((1u << GHOST_REASON_BITS) - 1));
    return KVC_MISS_NEVER;
}
