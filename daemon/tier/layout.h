/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The headers in arena memory beside the payload: some pages at the start of each chunk, and the
 * header pages of each slab. Native byte order; it is for this machine's restarts, not for others.
 *
 *   chunk: | chunk_header, a bit per page, padding to a page | slab | free pages | slab | ...
 *   slab:  | slab_header, slot_header[slots], padding to a page | payload slot 0 | slot 1 | ...
 *
 * Everything is counted in pages of 4 KiB, so that a payload is always aligned for direct I/O.
 * Workers map chunks read-only; the one field they read here is slot_header.gen.
 *
 * A chunk may be taken over by the next run of the daemon, so each header has a checksum over the
 * rest of it. The store and the place of the header are in the checksum too: a copy of a header
 * that lies elsewhere does not count. A slab begins only where its chunk's bit is set, for any
 * other page may hold bytes of a worker. Stores are ordered so that the headers are valid after
 * each of them (docs/notes/tier-restart.md).
 */
#ifndef KVC_TIER_LAYOUT_H
#define KVC_TIER_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "hash.h"

#define LAYOUT_PAGE_BYTES  4096u
#define LAYOUT_PAGE_SHIFT  12u
#define LAYOUT_VERSION     2u
#define LAYOUT_CHUNK_MAGIC UINT64_C(0x6b6e756863637663) /* "cvcchunk" */
#define LAYOUT_NAMES_MAGIC UINT64_C(0x73656d616e63766b) /* "kvcnames" */
#define LAYOUT_SLAB_MAGIC  UINT32_C(0x62616c73)         /* "slab" */
/* 128-byte headers of slab and slots then fill 8 pages exactly. */
#define LAYOUT_SLAB_SLOTS 255u

/* All zero: the chunk has never had a principal, and nothing was ever written to it. */
struct chunk_header {
    uint64_t magic;
    uint32_t version;
    uint32_t chunk; /* its id */
    uint64_t bytes;
    uint8_t store[16];  /* which store the chunk is of; random if it does not outlive the run */
    uint64_t principal; /* arena_config.prints of its principal; 0: it does not outlive the run */
    uint32_t place;     /* in the table of chunks, which decides the NUMA node */
    uint32_t unused[17];
    uint64_t check;
    _Atomic uint64_t slabs[]; /* bit per page: a slab begins here */
};
_Static_assert(sizeof(struct chunk_header) == 128, "two cache lines");

struct slab_header {
    uint32_t magic;
    uint32_t slot_bytes;
    uint32_t slots;
    uint32_t first; /* page in the chunk of slot 0's payload */
    uint32_t pages; /* headers included */
    uint32_t unused[25];
    uint64_t check;
};
_Static_assert(sizeof(struct slab_header) == 128, "two cache lines");

enum slot_flag { SLOT_HAS_PARENT = 1, SLOT_DURABLE = 2 };

struct slot_header {
    _Atomic uint64_t gen; /* never 0, never given twice; changes when the slot is freed */
    /* Over all fields behind it, but not over gen, which changes alone when a block is invalidated
     * or the daemon starts again. 0: the slot is free, or its payload is not whole. */
    _Atomic uint64_t check;
    struct hash128 sum; /* of the payload */
    struct key256 key;
    struct key256 parent;
    uint64_t print;  /* of the namespace */
    uint32_t bytes;  /* of payload */
    uint16_t tokens; /* its lower 16 bits */
    uint8_t group;
    uint8_t shard;
    uint8_t flags;
    uint8_t level;       /* tier_label.level */
    uint8_t tokens_high; /* the bits above; 0 in slots of older versions */
    uint8_t unused[13];
};
_Static_assert(sizeof(struct slot_header) == 128, "two cache lines");
_Static_assert(sizeof(_Atomic uint64_t) == 8, "what a worker reads as a plain 64-bit word");

static inline uint32_t layout_pages(uint64_t bytes)
{
    return (uint32_t)((bytes + LAYOUT_PAGE_BYTES - 1) >> LAYOUT_PAGE_SHIFT);
}

/* Pages before the first slab of a chunk. */
static inline uint32_t layout_chunk_header_pages(uint32_t chunk_pages)
{
    return layout_pages(sizeof(struct chunk_header) + chunk_pages / 8);
}

static inline uint32_t layout_header_pages(uint32_t slots)
{
    return layout_pages(sizeof(struct slab_header) + slots * sizeof(struct slot_header));
}

/* ---- checksums; never 0. `where` says store, chunk and the header's place in it ---- */

static inline uint64_t layout_where(const uint8_t store[16], uint32_t chunk, uint32_t byte)
{
    uint64_t words[2];
    memcpy(words, store, sizeof(words));
    return (words[0] ^ words[1]) + ((uint64_t)chunk << 32 | byte);
}

static inline uint64_t layout_check(const void *p, size_t bytes, uint64_t where)
{
    const uint64_t check = hash_u64(p, bytes, where);
    return check != 0 ? check : 1;
}

static inline uint64_t layout_chunk_check(const struct chunk_header *h, uint64_t where)
{
    return layout_check(h, offsetof(struct chunk_header, check), where);
}

static inline uint64_t layout_slab_check(const struct slab_header *h, uint64_t where)
{
    return layout_check(h, offsetof(struct slab_header, check), where);
}

static inline uint64_t layout_slot_check(const struct slot_header *h, uint64_t where)
{
    return layout_check(&h->sum, sizeof(*h) - offsetof(struct slot_header, sum), where);
}

/* Orders stores: if the process is killed and the next run finds a store made after this call, it
 * also finds all stores made before. */
static inline void layout_order(void)
{
#if defined(__SANITIZE_THREAD__)
    __sync_synchronize(); /* ThreadSanitizer has no fences */
#else
    atomic_thread_fence(memory_order_release);
#endif
}

#endif
