/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remembers evicted blocks: 32 bits of each hash, and a stamp of the policy's. Bounded: buckets of
 * eight, of which the oldest stamp is overwritten. It may forget early, and one answer in some
 * hundred million is about another block; neither makes a policy wrong. Pure.
 */
#ifndef KVC_POLICY_GONE_H
#define KVC_POLICY_GONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gone_entry {
    uint32_t print;
    uint32_t stamp; /* 0: empty */
};

struct gone_table {
    struct gone_entry *entry;
    uint32_t mask; /* buckets - 1 */
};

/* For at least n of them; at most twice as many. */
size_t gone_mem_bytes(uint32_t n);
/* mem: zeroed, 64-byte aligned. */
void gone_init(struct gone_table *g, void *mem, uint32_t n);
/* What stands for a hash here: a policy keeps this of its blocks. */
uint32_t gone_print(uint64_t hash);
/* Stamps are not 0 and grow, and may wrap: the oldest is furthest behind this one. Returns the
 * stamp of what was forgotten for it (it itself, when it was there), or 0. */
uint32_t gone_put(struct gone_table *g, uint32_t print, uint32_t stamp);
/* Its stamp, and it is forgotten; 0 when it is not there. */
uint32_t gone_take(struct gone_table *g, uint32_t print);

#endif
