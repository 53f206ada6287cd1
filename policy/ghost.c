/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of ghosts of policy `density`, set-associative: a hash finds its set of eight, and a
 * new ghost replaces the one of its set that is of least use. Times between uses are packed like
 * floating point, since a ghost has 16 bytes.
 */
#include "ghost.h"

#define WAYS     8u
#define SETS_MIN (1u << 14)
/* Times the mean: what comes back after a pause comes as often as before it. */
#define LONGEST       8.0f
#define GAP_FRACTION  11u
#define GONE_FRACTION 3u
#define ONCE_OLDER    4u    /* times: most of what was used once is not used again */
#define LEAST         16.0f /* ticks: uses of one moment have a mean, too, that can grow */

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

void ghost_prefetch(struct ghost_table *t, uint64_t hash)
{
    const struct ghost *set = set_of(t, hash);
    __builtin_prefetch(set);
    __builtin_prefetch(set + WAYS / 2);
}

struct ghost *ghost_find(struct ghost_table *t, uint64_t hash)
{
    struct ghost *set = set_of(t, hash);
    for (unsigned i = 0; i < WAYS; i++)
        if (set[i].tag == tag_of(hash))
            return &set[i];
    return NULL;
}

bool ghost_is_of(const struct ghost *g, uint64_t hash)
{
    return g->tag == tag_of(hash);
}

static uint64_t forgotten_by(const struct ghost *g, uint32_t now)
{
    const uint64_t age = now - g->used;
    return g->uses < 2 ? age * ONCE_OLDER : age;
}

static bool ghost_goes_before(const struct ghost *a, const struct ghost *b, uint32_t now)
{
    return a->kept != b->kept ? b->kept : forgotten_by(a, now) > forgotten_by(b, now);
}

struct ghost *ghost_add(struct ghost_table *t, uint64_t hash, uint32_t now, struct ghost *ret_gone)
{
    struct ghost *set = set_of(t, hash), *at = &set[0];
    for (unsigned i = 0; i < WAYS && at->tag; i++)
        if (!set[i].tag || ghost_goes_before(&set[i], at, now))
            at = &set[i];
    *ret_gone = *at;
    *at = (struct ghost){.tag = tag_of(hash)};
    return at;
}

void ghost_earlier(struct ghost_table *t, uint64_t by)
{
    for (size_t i = 0; i < (size_t)t->sets * WAYS; i++) {
        struct ghost *g = &t->entry[i];
        if (g->tag)
            g->used = g->used > by ? (uint32_t)(g->used - by) : 0;
    }
}

/* In few bits: exact below 2^(fraction + 1), `fraction` bits behind the first above. */
static uint32_t pack(uint32_t x, unsigned fraction)
{
    const unsigned log2 = x != 0 ? 31u - (unsigned)__builtin_clz(x) : 0;
    const unsigned up = log2 > fraction ? log2 - fraction : 0;
    return (up << fraction) + (x >> up);
}

static uint32_t unpack(uint32_t bits, unsigned fraction)
{
    const uint32_t one = UINT32_C(1) << fraction;
    return bits < 2 * one ? bits : ((bits & (one - 1)) + one) << ((bits >> fraction) - 1);
}

uint32_t ghost_unpack_gap(uint16_t gap)
{
    return unpack(gap, GAP_FRACTION);
}

uint32_t ghost_get_gap(const struct ghost *g)
{
    return ghost_unpack_gap(g->gap);
}

void ghost_set_gap(struct ghost *g, uint32_t gap)
{
    g->gap = (uint16_t)pack(gap, GAP_FRACTION);
}

uint32_t ghost_get_gone(const struct ghost *g)
{
    return unpack(g->gone, GONE_FRACTION);
}

void ghost_set_gone(struct ghost *g, uint32_t age)
{
    g->gone = (uint8_t)pack(age, GONE_FRACTION);
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
