/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a made-up trace: growing conversations with shared beginnings. */
#ifndef KVC_TEST_STREAM_H
#define KVC_TEST_STREAM_H

#include <stdint.h>

#define STREAM_NODES 200000u
#define STREAM_DEPTH 96u
#define STREAM_CONVS 64u

/* Zeroed except `random`, which must not be 0. */
struct stream {
    uint64_t random;
    uint32_t nodes; /* number of blocks so far */
    uint32_t path[STREAM_CONVS][STREAM_DEPTH], len[STREAM_CONVS];
};

/* The next request: numbers of its blocks, from the root downwards. Returns how many. */
uint32_t stream_next(struct stream *s, const uint32_t **ret_path);

#endif
