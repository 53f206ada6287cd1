/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the index (index.c) that runs for each key of a lookup, inlined. Shared inside
 * daemon/core only.
 */
#ifndef KVC_CORE_INDEX_H
#define KVC_CORE_INDEX_H

#include "block.h"

/* The slot depends on the half of the hash that an entry keeps, so that a deletion finds the slot
 * of other entries without reading their records. */
static inline uint32_t slot_of(const struct core *c, uint64_t hash)
{
    return (uint32_t)(((hash & UINT32_MAX) * c->index.size) >> 32);
}

static inline uint32_t next_slot(const struct core *c, uint32_t slot)
{
    return slot + 1 == c->index.size ? 0 : slot + 1;
}

static inline uint64_t hash_fold(uint64_t a, uint64_t b)
{
    unsigned __int128 m = (unsigned __int128)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

/* Multiply-and-fold over the four words of a key, as in wyhash: four multiplications, inlined into
 * the walk over a request's keys, where a call to a general hash was a quarter of the time. */
static inline uint64_t index_hash(const struct core *c, uint32_t ns_slot, uint32_t group,
                                  const uint8_t *key)
{
    uint64_t w[4];
    memcpy(w, key, sizeof w);
    /* The namespace's id, not its slot: ghosts of a removed namespace must not answer for the next
     * one in its slot. */
    uint64_t place = ((uint64_t)c->ns[ns_slot].id << 8 | group) * 0x9e3779b97f4a7c15ull;
    uint64_t a = hash_fold(w[0] ^ c->index.secret[0], w[1] ^ c->index.secret[1] ^ place);
    uint64_t b = hash_fold(w[2] ^ c->index.secret[2], w[3] ^ c->index.secret[3]);
    return hash_fold(a ^ c->index.secret[1], b ^ c->index.secret[2]);
}

static inline void index_prefetch(const struct core *c, uint64_t hash)
{
    __builtin_prefetch(&c->index.table[slot_of(c, hash)]);
}

/* Prefetches the record of the first entry in the table for this hash: both cache lines from which
 * a lookup reads. */
static inline void index_prefetch_record(const struct core *c, uint64_t hash)
{
    uint64_t e = c->index.table[slot_of(c, hash)];
    if (!e)
        return;
    __builtin_prefetch(&c->blocks[(uint32_t)e - 1]);
    __builtin_prefetch(&c->blocks[(uint32_t)e - 1].used);
}

/* The block of a key, whose index_hash() is `hash`; NULL: there is none. */
static inline struct block *index_find(struct core *c, uint64_t hash, uint32_t ns_slot,
                                       uint32_t group, const uint8_t *key)
{
    for (uint32_t s = slot_of(c, hash); c->index.table[s]; s = next_slot(c, s)) {
        uint64_t e = c->index.table[s];
        if ((uint32_t)(e >> 32) != (uint32_t)hash)
            continue;
        struct block *b = &c->blocks[(uint32_t)e - 1];
        if (b->ns == ns_slot && b->group == group && memcmp(b->key.b, key, KVC_KEY_BYTES) == 0)
            return b;
    }
    return NULL;
}

#endif
