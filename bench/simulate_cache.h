/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated cache: blocks, where they are, who is above whom. Shared by the files that
 * simulate; see simulate.h. */
#ifndef BENCH_SIMULATE_CACHE_H
#define BENCH_SIMULATE_CACHE_H

#include "admit.h"
#include "simulate.h"

#define SIM_NONE UINT32_MAX

/* A cached block; its number is the policy's. */
struct sim_block {
    uint32_t node;
    uint32_t parent, child, next, prev; /* blocks; child: the first of a list by next and prev */
    uint32_t place;                     /* in the log of the NVMe tier, or SIM_NONE */
    uint32_t used;                      /* by this request, or an earlier one */
    bool host;
};

struct sim_cache {
    const struct sim_forest *forest;
    const struct sim_config *config;
    struct policy *policy;
    struct sim_block *blocks;
    uint32_t *block_of; /* node -> block or SIM_NONE */
    uint32_t *free;     /* block numbers */
    uint32_t n_free, n_host;
    uint32_t request; /* that runs: its number plus one */
    uint32_t known;   /* nodes that were asked for before it */
    uint64_t now_ms, random;
    struct sim_counts counts;
    /* NVMe: a ring of places, reclaimed a segment at a time */
    uint32_t *log; /* block or SIM_NONE */
    uint32_t *keep;
    uint64_t *written_ms; /* of each place, 0: not yet */
    uint32_t head, segment;
    struct admit *admit;
};

/* Makes room for one block in host memory. False: all that is there is in use. */
bool sim_make_room(struct sim_cache *c);
/* The block goes, and all below it. */
void sim_kill(struct sim_cache *c, uint32_t block);
uint64_t sim_random(struct sim_cache *c);

/* ---- simulate_nvme.c ---- */

BENCH_MUST_USE int sim_nvme_create(struct sim_cache *c);
/* Of a cache without the tier, and half made: what there is. */
void sim_nvme_destroy(struct sim_cache *c);
/* Reclaims until there is room for a block; blocks may go. */
void sim_nvme_make_room(struct sim_cache *c);
/* A victim that is not on NVMe: written there, unless it is not worth that; false then. */
bool sim_nvme_write(struct sim_cache *c, uint32_t block);
/* Its place on NVMe is free. */
void sim_nvme_forget(struct sim_cache *c, uint32_t block);
/* A request of so many blocks has ended: learns what is kept, and what can be paid for. */
void sim_nvme_learn(struct sim_cache *c, uint32_t accesses);

#endif
