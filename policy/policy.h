/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of an eviction policy. Policies are pure: no clock, I/O, lock, log, and no
 * allocation after init; the same .c serves the daemon, the simulator and the benchmarks.
 *
 * Blocks are numbers below `blocks_max`; a policy keeps what it knows about each in memory that its
 * caller provides. The caller is one thread. Time is given, in whole milliseconds that never go
 * back.
 *
 * The cache is a forest and a hit is a prefix, so a block with descendants in the cache may not go:
 * the caller's `can_evict` says so, and also no to blocks that are leased or being written. Touches
 * of one request come deepest block first, so that in any recency order a parent is younger than
 * its children; insert() keeps that for a new child of an old parent.
 */
#ifndef KVC_POLICY_H
#define KVC_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_NO_BLOCK UINT32_MAX

struct policy;

/* What is known of a block when it comes in. */
struct policy_hint {
    uint32_t parent; /* its parent in the cache, or POLICY_NO_BLOCK */
    uint32_t depth;  /* blocks before it in its chain */
    uint32_t bytes;
};

typedef bool(policy_can_evict_fn)(void *ctx, uint32_t block);

struct policy_ops {
    const char *name;
    const char *help;
    /* Bytes of memory for this many blocks; zeroed, 64-byte aligned memory of that size goes to
     * init. */
    size_t (*mem_bytes)(uint32_t blocks_max);
    struct policy *(*init)(void *mem, uint32_t blocks_max);
    void (*insert)(struct policy *p, uint32_t block, const struct policy_hint *hint,
                   uint64_t now_ms);
    void (*touch)(struct policy *p, uint32_t block, uint64_t now_ms);
    void (*remove)(struct policy *p, uint32_t block);
    /* can_evict, which may have refused this block before, would now agree. `last`: because its
     * last child went, and it is as old as that one; else because its last use ended now. */
    void (*release)(struct policy *p, uint32_t block, bool last);
    /* The block to evict next, or POLICY_NO_BLOCK when can_evict refuses all. It stays until
     * remove(). A block that can_evict refuses may be put aside and not be asked for again until
     * release(), so that a cache full of blocks in use costs each of them one question. */
    uint32_t (*victim)(struct policy *p, policy_can_evict_fn *can_evict, void *ctx);
};

extern const struct policy_ops policy_lru; /* least recently used, leaf first */

/* NULL when there is no such policy. */
const struct policy_ops *policy_by_name(const char *name);
/* The i-th policy, NULL past the last. */
const struct policy_ops *policy_at(unsigned i);

#endif
