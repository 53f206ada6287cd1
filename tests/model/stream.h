/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a made-up trace: conversations that grow, over shared beginnings. */
#ifndef KVC_TEST_STREAM_H
#define KVC_TEST_STREAM_H

#include <stdint.h>

#define STREAM_NODES 200000u
#define STREAM_DEPTH 96u
#define STREAM_CONVS 64u

/* Zeroed but for `random`, which is not 0. */
struct stream {
    uint64_t random;
    uint32_t nodes; /* so many blocks there are by now */
    uint32_t path[STREAM_CONVS][STREAM_DEPTH], len[STREAM_CONVS];
};

/* The next request: numbers of its blocks from the root down; returns how many. */
uint32_t stream_next(struct stream *s, const uint32_t **ret_path);

#endif
