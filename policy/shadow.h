/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What LRU and LRU-2 would have in a cache of this size, by counting alone, for policy `density`.
 * LRU has everything used since a time T, where as many blocks were used since T as there is room
 * for. LRU-2 has everything used twice since such a time (the use before the last counts), and in
 * the room left over the youngest blocks that were used once. Blocks that are remembered (ghost.h)
 * are counted by those times, in slots (slots.h). Pure.
 *
 * The use before the last is taken to be one mean time between uses earlier: a ghost has no more.
 */
#ifndef KVC_SHADOW_H
#define KVC_SHADOW_H

#include <stdbool.h>
#include <stdint.h>

#include "ghost.h"

#define SHADOW_SLOTS 192u
#define SHADOW_TICKS 16u /* the narrowest slot: a quarter of a second */

struct shadow {
    uint32_t slots;
    uint64_t begin[SHADOW_SLOTS]; /* slots.h */
    /* Blocks by slot: all and those used once, by their last use; the rest by the one before. */
    uint32_t used[SHADOW_SLOTS], once[SHADOW_SLOTS], before[SHADOW_SLOTS];
    uint32_t since_lru, since_once, since_twice; /* what is used is kept */
};

/* Before the others, when time may have passed. All times are in GHOST_MS. */
void shadow_tick(struct shadow *s, uint32_t now);
/* Time is told from `by` later on: what was before it is at 0. */
void shadow_earlier(struct shadow *s, uint64_t by);
/* A use of g has begun, or is over (called with g as it was when it began). */
void shadow_begin(struct shadow *s, const struct ghost *g);
void shadow_end(struct shadow *s, const struct ghost *g);
/* Works out since when a cache of `room` blocks keeps what is used. */
void shadow_look(struct shadow *s, uint32_t room, uint32_t now);
/* They would have it, as of the last look. */
bool shadow_lru_has(const struct shadow *s, const struct ghost *g);
bool shadow_lru2_has(const struct shadow *s, const struct ghost *g);

#endif
