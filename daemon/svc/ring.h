/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace of requests (TRACE): a ring of records in a fixed amount of memory, the oldest dropped
 * first.
 *
 * A record is one ACQUIRE: when, how many tokens, and a number for each block that stands for its
 * key. The number is a 64-bit hash with a secret made for this trace, so it leads back to no key
 * and two traces cannot be compared. Blocks that the same session stores behind the chain that it
 * asked for are the record's output, as far as that is seen.
 *
 * Thread: control thread only. Memory: all of it in ring_create().
 */
#ifndef KVC_SVC_RING_H
#define KVC_SVC_RING_H

#include "err.h"

#define RING_BYTES_MIN     (UINT64_C(1) << 20)
#define RING_BYTES_MAX     (UINT64_C(1) << 30)
#define RING_BYTES_DEFAULT (UINT64_C(64) << 20)

struct ring;

struct ring_record {
    uint32_t ns, block_tokens;
    uint32_t input_tokens, output_tokens;
    uint64_t timestamp_ms; /* since the ring was made */
    uint32_t n;
    const uint64_t *ids; /* n, little-endian; borrowed until the next call that records */
};

/* Makes a ring of `bytes`, which is all that it takes. -EINVAL: bytes outside RING_BYTES_MIN ..
 * MAX; -ENOMEM. */
KVC_WARN_UNUSED int ring_create(uint64_t bytes, uint64_t now_ns, struct ring **ret_ring);
void ring_destroy(struct ring **ring); /* accepts a pointer to NULL */

/* Blocks of one chain, from the first token on or after `parent`. */
struct ring_chain {
    uint32_t ns, session, block_tokens;
    uint32_t first_token;  /* of the first key */
    uint32_t tokens;       /* in all keys; the last block may be partly filled */
    const uint8_t *parent; /* NULL = none */
    const uint8_t *keys;   /* n x 32 */
    uint32_t n;
};
void ring_asked(struct ring *r, const struct ring_chain *chain, uint64_t now_ns);
void ring_stored(struct ring *r, const struct ring_chain *chain);

/* Records are numbered from 0 on; those from `first` to `end` - 1 are there. */
struct ring_state {
    uint64_t first, end;
    uint64_t bytes, used_bytes; /* used: by the records that are there */
    uint64_t begun_ns;
};
void ring_state(const struct ring *r, struct ring_state *ret_state);
/* Reads record `no`, which must be one of those that are there. */
void ring_at(const struct ring *r, uint64_t no, struct ring_record *ret_record);

#endif
