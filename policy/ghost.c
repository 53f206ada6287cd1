/* SPDX-License-Identifier: Apache-2.0 */
#include "ghost.h"

#define WAYS     8u
#define SETS_MIN (1u << 14)
/* Times the mean: what comes back after a pause comes as often as before it. */
#define LONGEST 8.0f
#define LEAST   16.0f /* ticks: uses of one moment have a mean, too, that can grow */

struct ghost_table {
    uint32_t sets;
    _Alignas(64) struct ghost entry[];
};

static uint32_t sets_for(uint32_t blocks_max)
{
    uint32_t sets = SETS_MIN;
    while ((uint64_t)sets * WAYS < 2ull * blocks_max)
        sets *= 2;
    return sets;
}

size_t ghost_mem_bytes(uint32_t blocks_max)
{
    return sizeof(struct ghost_table) + (size_t)sets_for(blocks_max) * WAYS * sizeof(struct ghost);
}

struct ghost_table *ghost_init(void *mem, uint32_t blocks_max)
{
    struct ghost_table *t = mem;
    t->sets = sets_for(blocks_max);
    return t;
}

static struct ghost *set_of(struct ghost_table *t, uint64_t hash)
{
    return &t->entry[(size_t)(hash & (t->sets - 1)) * WAYS];
}

static uint32_t tag_of(uint64_t hash)
{
    return (uint32_t)(hash >> 32) | 1u;
}

struct ghost *ghost_find(struct ghost_table *t, uint64_t hash)
{
    struct ghost *set = set_of(t, hash);
    for (unsigned i = 0; i < WAYS; i++)
        if (set[i].tag == tag_of(hash))
            return &set[i];
    return NULL;
}

struct ghost *ghost_add(struct ghost_table *t, uint64_t hash, struct ghost *ret_gone)
{
    struct ghost *set = set_of(t, hash), *at = &set[0];
    for (unsigned i = 0; i < WAYS && at->tag; i++)
        if (!set[i].tag || set[i].used < at->used)
            at = &set[i];
    *ret_gone = *at;
    *at = (struct ghost){.tag = tag_of(hash)};
    return at;
}

/* Kept in 16 bits: exact below 4096, 11 bits of fraction above. */
uint32_t ghost_get_gap(const struct ghost *g)
{
    return g->gap < 4096 ? g->gap : ((g->gap & 2047u) + 2048u) << ((g->gap >> 11) - 1);
}

void ghost_set_gap(struct ghost *g, uint32_t gap)
{
    unsigned up = gap < 4096 ? 0 : 20u - (unsigned)__builtin_clz(gap);
    g->gap = (uint16_t)(up ? (up << 11) + (gap >> up) : gap);
}

uint32_t ghost_gap(const struct ghost *g, uint32_t now, unsigned uses_max)
{
    float mean = (float)ghost_get_gap(g), gap = (float)(now - g->used);
    const float longest = LONGEST * (mean > LEAST ? mean : LEAST);
    if (g->uses >= 2 && gap > longest)
        gap = longest;
    float uses = (float)(g->uses < 1 ? 1 : g->uses < uses_max ? g->uses : uses_max);
    return (uint32_t)(mean + (gap - mean) / uses + 0.5f);
}
