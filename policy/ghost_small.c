/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remembers hashes of evicted blocks for the policies `arc`, `s3fifo` and `lru2`: a hash table of
 * buckets with eight entries each, in which the oldest entry is overwritten.
 */
#include "ghost_small.h"

#define WAYS 8u

static uint32_t buckets(uint32_t n)
{
    uint32_t b = 1;
    while (b < UINT32_MAX / 2 / WAYS && b * WAYS < n)
        b *= 2;
    return b;
}

size_t ghost_small_mem_bytes(uint32_t n)
{
    return (size_t)buckets(n) * WAYS * sizeof(struct ghost_small_entry);
}

void ghost_small_init(struct ghost_small_table *g, void *mem, uint32_t n)
{
    *g = (struct ghost_small_table){.entry = mem, .mask = buckets(n) - 1};
}

uint32_t ghost_small_print(uint64_t hash)
{
    return (uint32_t)(hash * 0x9e3779b97f4a7c15u >> 32);
}

/* Another mix than the print's, so that a bucket's prints differ in all their bits. */
static struct ghost_small_entry *gone_bucket(const struct ghost_small_table *g, uint32_t print)
{
    const uint32_t mixed = (print ^ print >> 15) * 0x2c1b3c6du;
    return &g->entry[(size_t)((mixed ^ mixed >> 13) & g->mask) * WAYS];
}

uint32_t ghost_small_put(struct ghost_small_table *g, uint32_t print, uint32_t stamp)
{
    struct ghost_small_entry *e = gone_bucket(g, print), *oldest = e;
    for (struct ghost_small_entry *x = e; x < e + WAYS; x++) {
        if (x->stamp && x->print == print) {
            oldest = x;
            break;
        }
        if (oldest->stamp && (!x->stamp || stamp - x->stamp > stamp - oldest->stamp))
            oldest = x;
    }
    const uint32_t before = oldest->stamp;
    *oldest = (struct ghost_small_entry){.print = print, .stamp = stamp};
    return before;
}

uint32_t ghost_small_take(struct ghost_small_table *g, uint32_t print)
{
    struct ghost_small_entry *e = gone_bucket(g, print);
    for (struct ghost_small_entry *x = e; x < e + WAYS; x++) {
        if (x->stamp && x->print == print) {
            const uint32_t stamp = x->stamp;
            x->stamp = 0;
            return stamp;
        }
    }
    return 0;
}
