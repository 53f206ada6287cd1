/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of an eviction policy. Policies are pure: no clock, I/O, lock, log, and no
 * allocation after init; the same .c serves the daemon, the simulator and the benchmarks.
 *
 * Blocks are numbers below `blocks_max`; a policy keeps what it knows about each in memory that its
 * caller provides. The caller is one thread. Time is given, in whole milliseconds that never go
 * back.
 *
 * The cache is a forest and a hit is a prefix, so a block with descendants in the cache is not
 * evicted for good: the caller's `can_evict` says whether a block may leave the policy's tier, and
 * says no to blocks that are leased or being written. Touches of one request come deepest block
 * first, so that in any recency order a parent is younger than its children; insert() keeps that
 * for a new child of an old parent.
 *
 * Lists. A policy keeps up to `lists_max` orders apart: one for each pair of an owner with a quota
 * and a level of retention (retain.h says which is asked). Each block is in one list. What is
 * learned may be shared by all of them.
 *
 * A block is known from insert() to remove(). It is in its list's order, or aside (see victim), or
 * parked: out of the order, because it is not in the policy's tier or leaves that tier now, and
 * still known, so that worth() can rank it.
 */
#ifndef KVC_POLICY_H
#define KVC_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_NO_BLOCK  UINT32_MAX
#define POLICY_LISTS_MAX 256u

struct policy;

struct policy_config {
    uint32_t blocks_max;
    uint32_t lists_max; /* 1 to POLICY_LISTS_MAX */
    uint64_t seed;      /* of what is drawn at random */
};

/* What is known of a block when it comes in. */
struct policy_hint {
    uint64_t hash;   /* of its contents' name: the same whenever the same block comes again */
    uint32_t parent; /* its parent in the policy, or POLICY_NO_BLOCK */
    uint32_t depth;  /* blocks before it in its chain */
    uint32_t bytes;
    uint32_t saves; /* what a hit of it saves, in units of the caller's; 0: as much as others do,
                     * per byte */
    uint8_t list;
    uint64_t used_ms; /* its last use: now, or earlier for what was found at start */
};

/* How far a request is that is told in pieces: other calls may come between two of them. */
struct policy_part {
    uint32_t most;     /* blocks of a piece, 1 at least; the caller's */
    uint64_t state[8]; /* the policy's; zeroed before the first piece */
};

/* A worker asks for a chain: comes before the touches and inserts that it causes. */
struct policy_request {
    const uint64_t *hash; /* of the chain's blocks from its first; borrowed during the call */
    uint32_t n;
    uint32_t hits;            /* leading blocks that are cached, in whatever tier */
    uint32_t source;          /* who asks: requests of one source are more alike than others' */
    struct policy_part *part; /* NULL: it is told in one piece */
};

/* A worker's advice about a chain. It may be wrong; a policy learns how far it can be believed. */
enum policy_advice {
    POLICY_ADVICE_NONE,
    POLICY_ADVICE_ENDED,    /* nobody will continue it */
    POLICY_ADVICE_CONTINUE, /* somebody will */
    POLICY_ADVICE_SOON,     /* somebody will within `within_ms` */
    POLICY_ADVICE_SCAN,     /* read once, in passing */
    POLICY_ADVICE_COUNT
};

typedef bool(policy_can_evict_fn)(void *ctx, uint32_t block);

struct policy_ops {
    const char *name;
    const char *help;
    /* Bytes of memory that this needs; zeroed, 64-byte aligned memory of that size goes to init. */
    size_t (*mem_bytes)(const struct policy_config *config);
    struct policy *(*init)(void *mem, const struct policy_config *config);
    void (*insert)(struct policy *p, uint32_t block, const struct policy_hint *hint,
                   uint64_t now_ms);
    void (*touch)(struct policy *p, uint32_t block, uint64_t now_ms);
    /* Forgets it, but for what outlives a block (its hash, say). Of a block that is not known it
     * means nothing. */
    void (*remove)(struct policy *p, uint32_t block);
    /* Out of the order; stays known. unpark puts it back: as it was last used. */
    void (*park)(struct policy *p, uint32_t block);
    void (*unpark)(struct policy *p, uint32_t block, uint64_t now_ms);
    /* Into another list, as its youngest (parked blocks: when they come back). */
    void (*assign)(struct policy *p, uint32_t block, uint8_t list, uint64_t now_ms);
    /* can_evict, which may have refused this block before, would now agree. `last`: because its
     * last child went, and it is as old as that one; else because its last use ended now. */
    void (*release)(struct policy *p, uint32_t block, bool last);
    /* The block of this list to evict next, or POLICY_NO_BLOCK when it has none or can_evict
     * refuses all. It stays until remove() or park(). A block that can_evict refuses may be put
     * aside and not be asked for again until release(), so that a cache full of blocks in use costs
     * each of them one question. */
    uint32_t (*victim)(struct policy *p, uint8_t list, uint64_t now_ms,
                       policy_can_evict_fn *can_evict, void *ctx);
    /* How much a known block is worth keeping, more is better; comparable between the blocks of one
     * policy at one time, and slowly changing. */
    float (*worth)(const struct policy *p, uint32_t block, uint64_t now_ms);
    /* The same by what is seen of the tier that is evicted from alone, as its victims go: between
     * the victims of several lists. */
    float (*rank)(const struct policy *p, uint32_t block, uint64_t now_ms);
    /* These five may be NULL. */
    /* The chance that somebody asks for a known block within `for_ms` from now, 0 to 1. */
    float (*chance)(const struct policy *p, uint32_t block, uint64_t for_ms, uint64_t now_ms);
    /* Whether a block that would come in now is worth more than `victim`, which would have to go
     * for it; NULL: always. One that is not is taken for gone: it need not be told again. */
    bool (*admits)(struct policy *p, const struct policy_hint *hint, uint32_t victim,
                   uint64_t now_ms);
    /* The block with this hash comes in soon: what will be read then is brought nearer. */
    void (*prefetch)(const struct policy *p, uint64_t hash);
    /* True: there is another piece to come, with the same request. */
    bool (*request)(struct policy *p, const struct policy_request *request, uint64_t now_ms);
    /* Of a chain's blocks that are known and that no other chain shares, deepest first. Of a long
     * chain in pieces, the one with its first blocks first. */
    void (*advise)(struct policy *p, enum policy_advice advice, uint32_t within_ms,
                   const uint32_t *block, uint32_t n, uint64_t now_ms);
};

extern const struct policy_ops policy_density; /* the default: expected hits per byte-second */
extern const struct policy_ops policy_lru;     /* least recently used, leaf first */
extern const struct policy_ops policy_s3fifo;
extern const struct policy_ops policy_arc;
extern const struct policy_ops policy_lru2;

#define POLICY_DEFAULT "density"

/* NULL when there is no such policy; "default" is POLICY_DEFAULT. */
const struct policy_ops *policy_by_name(const char *name);
/* The i-th policy, NULL past the last. */
const struct policy_ops *policy_at(unsigned i);

#endif
