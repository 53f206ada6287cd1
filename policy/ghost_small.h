/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remembers evicted blocks: 32 bits of each hash, and a stamp of the policy's. Bounded: buckets of
 * eight, of which the oldest stamp is overwritten. It may forget early, and one answer in some
 * hundred million is about another block; neither makes a policy wrong. Pure.
 */
#ifndef KVC_POLICY_GHOST_SMALL_H
#define KVC_POLICY_GHOST_SMALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ghost_small_entry {
    uint32_t print;
    uint32_t stamp; /* 0: empty */
};

struct ghost_small_table {
    struct ghost_small_entry *entry;
    uint32_t mask; /* buckets - 1 */
};

/* For at least n of them; at most twice as many. */
size_t ghost_small_mem_bytes(uint32_t n);
/* mem: zeroed, 64-byte aligned. */
void ghost_small_init(struct ghost_small_table *g, void *mem, uint32_t n);
/* What stands for a hash here: a policy keeps this of its blocks. */
uint32_t ghost_small_print(uint64_t hash);
/* Stamps are not 0 and grow, and may wrap: the oldest is furthest behind this one. Returns the
 * stamp of what was forgotten for it (it itself, when it was there), or 0. */
uint32_t ghost_small_put(struct ghost_small_table *g, uint32_t print, uint32_t stamp);
/* Its stamp, and it is forgotten; 0 when it is not there. */
uint32_t ghost_small_take(struct ghost_small_table *g, uint32_t print);

#endif
