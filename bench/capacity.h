/* SPDX-License-Identifier: Apache-2.0 */
/* Capacities of the command line: "1%" of a trace's unique blocks, "64GiB", "2000 blocks", or
 * several tiers, "hbm=1%,host=5%,nvme=20%". A number without a unit is refused. Pure. */
#ifndef BENCH_CAPACITY_H
#define BENCH_CAPACITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench.h"

#define CAPACITY_LIST_MAX  32
#define CAPACITY_WHY_BYTES 256
/* Host memory is handed out in pieces of this size. */
#define CAPACITY_SLOT_BYTES 4096u

/* The capacity of one tier. Exactly one of the three is not 0. */
struct capacity_room {
    double percent; /* of the trace's unique blocks */
    uint64_t bytes;
    uint64_t blocks;
};
struct capacity {
    /* As given, without "host=" if it is host memory alone; the output's "case" has it. */
    char text[64];
    struct capacity_room hbm, host, nvme;
    bool has_hbm, has_nvme;
};

/* A sweep over host memory ("1%,5%", "host=10%", "2GiB,4GiB"), or one daemon with several tiers
 * if "nvme=" or "hbm=" is in it. 0 with `n` entries, or -EINVAL with `why`. */
BENCH_MUST_USE int capacity_parse_list(const char *text, char why[CAPACITY_WHY_BYTES],
                                       struct capacity list[CAPACITY_LIST_MAX], size_t *ret_n);
/* Bytes that a block of block_bytes takes in host memory. */
uint64_t capacity_slot_bytes(uint64_t block_bytes);
/* Number of blocks of that size that fit this capacity; at least one. */
uint64_t capacity_blocks(const struct capacity_room *room, uint64_t unique_blocks,
                         uint64_t block_bytes);

#endif
