/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What policy `density` remembers of blocks by their hash, whether they are in the cache or not: a
 * table of fixed size, eight entries to a set. Entries of evicted blocks are overwritten first;
 * among these the one used longest ago, four times as soon if it was used once. Pure.
 */
#ifndef KVC_GHOST_H
#define KVC_GHOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ghost {
    uint32_t tag;     /* of the hash; 0: free */
    uint32_t used;    /* GHOST_MS; when the use that is under way began */
    uint16_t class;   /* of that use */
    uint16_t gap;     /* mean time between uses; ghost_get_gap */
    uint8_t uses;     /* saturates */
    uint8_t turn;     /* of the conversation that used it last; saturates */
    uint8_t left : 2; /* blocks of the chain that were behind it in that use; saturates */
    uint8_t kept : 1; /* it is in the cache */
    uint8_t size : 5; /* log2 of the blocks that the use is counted together with */
    uint8_t gone;     /* how old the use was when the cache let go of the block; ghost_get_gone */
};

#define GHOST_LEFT_MAX 3u

#define GHOST_MS 16u /* unit of time: 2^32 are two years; see ghost_earlier */

struct ghost_table;

size_t ghost_mem_bytes(uint32_t blocks_max);
struct ghost_table *ghost_init(void *mem, uint32_t blocks_max);
/* Brings what ghost_find will read nearer. */
void ghost_prefetch(struct ghost_table *t, uint64_t hash);
struct ghost *ghost_find(struct ghost_table *t, uint64_t hash);
/* Of one that ghost_find found for this hash earlier: it is still that. */
bool ghost_is_of(const struct ghost *g, uint64_t hash);
/* One for a hash that ghost_find did not find. now: GHOST_MS. `ret_gone` is what made room; its tag
 * is 0 if nothing did. */
struct ghost *ghost_add(struct ghost_table *t, uint64_t hash, uint32_t now, struct ghost *ret_gone);
/* Time is told from `by` later on: what was before it is at 0. GHOST_MS. */
void ghost_earlier(struct ghost_table *t, uint64_t by);

/* GHOST_MS. The mean time between its uses, of the last `uses_max` about, if it is used now. */
uint32_t ghost_gap(const struct ghost *g, uint32_t now, unsigned uses_max);
uint32_t ghost_get_gap(const struct ghost *g);
uint32_t ghost_unpack_gap(uint16_t gap); /* of one that was copied */
void ghost_set_gap(struct ghost *g, uint32_t gap);
/* GHOST_MS, to one part in sixteen; 0: it did not go, or nothing is known. */
uint32_t ghost_get_gone(const struct ghost *g);
void ghost_set_gone(struct ghost *g, uint32_t age);

#endif
