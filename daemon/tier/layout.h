/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands in arena memory beside the payload: one page at the start of each chunk, and the
 * header pages of each slab. Native byte order; it is for this machine's restarts, not for others.
 *
 *   chunk: | chunk header page | slab | slab | free pages | slab | ...
 *   slab:  | slab_header, slot_header[slots], padding to a page | payload slot 0 | slot 1 | ...
 *
 * Everything is counted in pages of 4 KiB, so that a payload is always aligned for direct I/O.
 * Workers map chunks read-only; the one field they read here is slot_header.gen.
 */
#ifndef KVC_TIER_LAYOUT_H
#define KVC_TIER_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

#include "hash.h"

#define LAYOUT_PAGE_BYTES  4096u
#define LAYOUT_PAGE_SHIFT  12u
#define LAYOUT_VERSION     1u
#define LAYOUT_CHUNK_MAGIC UINT64_C(0x6b6e756863637663) /* "cvcchunk" */
#define LAYOUT_SLAB_MAGIC  UINT32_C(0x62616c73)         /* "slab" */
/* 64-byte headers of slab and slots then fill 8 pages exactly. */
#define LAYOUT_SLAB_SLOTS    511u
#define LAYOUT_CHUNK_PAGES_0 1u /* pages before the first slab */

struct chunk_header {
    uint64_t magic;
    uint32_t version;
    uint32_t chunk; /* its id */
    uint64_t bytes;
    uint8_t store[16]; /* random, one per start of the daemon */
};

struct slab_header {
    uint32_t magic; /* 0 when the slab has been given back */
    uint32_t slot_bytes;
    uint32_t slots;
    uint32_t first; /* page in the chunk of slot 0's payload */
    uint8_t unused[48];
};
_Static_assert(sizeof(struct slab_header) == 64, "one cache line");

struct slot_header {
    _Atomic uint64_t gen; /* never 0, never the same twice; differs as soon as the slot is freed */
    uint16_t pad;         /* payload bytes = slot bytes - pad */
    uint8_t group;
    uint8_t shard;
    uint32_t ns; /* 0: nothing has been published here */
    struct hash128 sum;
    struct key256 key;
};
_Static_assert(sizeof(struct slot_header) == 64, "one cache line");
_Static_assert(sizeof(_Atomic uint64_t) == 8, "what a worker reads as a plain 64-bit word");

static inline uint32_t layout_header_pages(uint32_t slots)
{
    return (uint32_t)((sizeof(struct slab_header) + slots * sizeof(struct slot_header) +
                       LAYOUT_PAGE_BYTES - 1) >>
                      LAYOUT_PAGE_SHIFT);
}

#endif
