/* SPDX-License-Identifier: Apache-2.0 */
/* Capacities as they are asked for: "1%" of a trace's unique blocks, "64GiB", "2000 blocks", and
 * those of several tiers, "hbm=1%,host=5%,nvme=20%". A number alone is none of them. Pure. */
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

/* Of one tier; one of the three is not 0. */
struct capacity_room {
    double percent; /* of the unique blocks */
    uint64_t bytes;
    uint64_t blocks;
};
struct capacity {
    char text[64]; /* as given; of host memory alone, without "host=": the case in the output */
    struct capacity_room hbm, host, nvme;
    bool has_hbm, has_nvme;
};

/* A sweep over host memory ("1%,5%", "host=10%", "2GiB,4GiB"), or one daemon with several tiers
 * if "nvme=" or "hbm=" is in it. 0 with `n` entries, or -EINVAL with `why`. */
BENCH_MUST_USE int capacity_parse_list(const char *text, char why[CAPACITY_WHY_BYTES],
                                       struct capacity list[CAPACITY_LIST_MAX], size_t *ret_n);
/* What a block takes in host memory, and its payload on storage. */
uint64_t capacity_slot_bytes(uint64_t block_bytes);
/* Blocks of that size in this capacity, at least one. */
uint64_t capacity_blocks(const struct capacity_room *room, uint64_t unique_blocks,
                         uint64_t block_bytes);

#endif
