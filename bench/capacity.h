/* SPDX-License-Identifier: Apache-2.0 */
/* Capacities as they are asked for: "1%" of a trace's unique blocks, "64GiB", "2000 blocks". Pure.
 */
#ifndef BENCH_CAPACITY_H
#define BENCH_CAPACITY_H

#include <stddef.h>
#include <stdint.h>

#include "bench.h"

#define CAPACITY_LIST_MAX  32
#define CAPACITY_WHY_BYTES 256
/* Host memory is handed out in pieces of this size. */
#define CAPACITY_SLOT_BYTES 4096u

struct capacity {
    char text[32];  /* as given, without the tier: names the case in the output */
    double percent; /* of the unique blocks; 0 when `bytes` or `blocks` is given */
    uint64_t bytes;
    uint64_t blocks;
};

/* "1%,5%", "host=10%", "2GiB,4GiB". 0 with `n` entries, or -EINVAL with `why`. */
BENCH_MUST_USE int capacity_parse_list(const char *text, char why[CAPACITY_WHY_BYTES],
                                       struct capacity list[CAPACITY_LIST_MAX], size_t *ret_n);
/* What a block takes in host memory. */
uint64_t capacity_slot_bytes(uint64_t block_bytes);
/* Blocks of that size in this capacity, at least one. */
uint64_t capacity_blocks(const struct capacity *capacity, uint64_t unique_blocks,
                         uint64_t block_bytes);

#endif
