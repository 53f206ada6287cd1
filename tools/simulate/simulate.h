/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a trace through the daemon's core without a daemon: over tiers that hold no bytes, with the
 * requests of one worker, at the trace's times. One thread; nothing is printed.
 */
#ifndef SIMULATE_H
#define SIMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench.h"
#include "lat.h"
#include "policy.h"
#include "trace.h"

#define SIM_NEVER UINT32_MAX

/* A trace as a prefix forest. A node is a block together with all blocks before it: if a trace has
 * one id behind two different ids, the forest has two nodes for it. Accesses are numbered through
 * the whole trace, in order. Those of request r begin at trace->requests[r].first. */
struct sim_forest {
    const struct trace *trace; /* borrowed */
    uint32_t n_nodes;
    /* For each access its node; nodes are numbered in the order of their first access. */
    uint32_t *node;
    uint64_t *hash; /* for each access the hash of the chain up to it */
    uint32_t *next; /* for each access the next request that has its node, or SIM_NEVER */
    /* For each request its time, which never decreases; if the trace has no times, or only one,
     * requests come one a second. */
    uint64_t *at_ms;
};

/* Borrows `trace`. 0, -ENOMEM, or -E2BIG: more than 2^31 accesses. */
BENCH_MUST_USE int sim_forest_create(const struct trace *trace, struct sim_forest **ret_forest);
/* Accepts NULL and a pointer to NULL. */
void sim_forest_destroy(struct sim_forest **forest);

/* What workers tell the daemon when a request has ended. It is made from the trace's future, and
 * wrong with probability 1 - right. A chain has ended if its last full block (the last but one) is
 * never asked for again. It is soon continued if that block is asked for within `within_ms`. It was
 * read in passing if it ends with the request that began it: only its first block, which others may
 * share, had been asked for before. */
struct sim_hints {
    enum policy_advice kind; /* POLICY_ADVICE_NONE: workers give no hints */
    double right;
    uint32_t within_ms; /* for the hint "soon" */
};

/* Processor time of evictions: choosing a block and removing it. */
struct sim_decisions {
    struct lat lat;
    uint64_t ns;
    uint64_t clock_ns; /* cost of reading the clock, which is subtracted */
};

struct sim_config {
    const struct policy_ops *ops;
    uint32_t host_blocks, nvme_blocks; /* nvme_blocks 0: no NVMe tier */
    uint32_t block_bytes;
    uint64_t seed;
    bool admit_all; /* as policy.admission: false */
    struct sim_hints hints;
    /* Blocks that may be written to NVMe for each block that is accessed. At the start 64 blocks,
     * or one segment if that is less, may be written as well. 0: no limit. */
    double write_budget;
    unsigned keep_percent; /* percent of the blocks on NVMe that are not worth writing again */
    /* Measurements are added to it; NULL: no eviction is timed, because reading the clock takes
     * time. */
    struct sim_decisions *decisions;
};

/* Hits of one request, by the tier in which they were found. */
struct sim_hit {
    uint32_t host, nvme;
};

struct sim_counts {
    uint64_t accesses, host_hits, nvme_hits;
    uint64_t evicted;        /* blocks that were evicted from host memory */
    uint64_t nvme_written;   /* blocks written when they left host memory */
    uint64_t nvme_rewritten; /* blocks written again when their segment was reclaimed */
    uint64_t no_room; /* blocks that host memory did not take because all its blocks were in use */
    /* Blocks that host memory did not take because the block to evict was worth more. */
    uint64_t not_worth;
};

/* Runs the whole trace. hits[r]: the hits of request r; *ret_counts: the sums. 0 or -ENOMEM. */
BENCH_MUST_USE int sim_run(const struct sim_forest *forest, const struct sim_config *config,
                           struct sim_hit *hits, struct sim_counts *ret_counts);

/* The upper bound (Belady): evicts the block whose next access is furthest in the future, and does
 * not keep blocks that are never accessed again. `blocks` is the room of all tiers together. */
BENCH_MUST_USE int sim_belady(const struct sim_forest *forest, uint32_t blocks,
                              struct sim_hit *hits, struct sim_counts *ret_counts);

/* Runs a policy as it was published, on one tier of `blocks` (not 0); the daemon's policies are
 * compared with it. -EINVAL: no such policy. sim_published_at() returns the i-th name, or NULL
 * behind the last one. */
BENCH_MUST_USE int sim_published(const struct sim_forest *forest, const char *name, uint32_t blocks,
                                 struct sim_hit *hits, struct sim_counts *ret_counts);
const char *sim_published_at(unsigned i);

/* A scan: a hot set is asked for again and again and then pauses, while other clients store or ask
 * for new blocks; afterwards the hot set is asked for once more. The kinds say how the new blocks
 * come: */
enum sim_scan_kind {
    SIM_SCAN_STREAM, /* from one client, at an even rate */
    SIM_SCAN_MANY,   /* from eight clients, with chains of different lengths */
    SIM_SCAN_BURSTS, /* in four bursts, the last at the end of the pause */
    SIM_SCAN_REUSED, /* a third of their chains is asked for again soon afterwards */
    SIM_SCAN_KINDS
};

struct sim_scan {
    enum sim_scan_kind kind;
    uint32_t hot, volume; /* hot: blocks of the hot set; volume: blocks of the scan */
    uint32_t chain;       /* most blocks of a chain */
    uint32_t active_ms, pause_ms;
    bool stored; /* the scan's blocks are stored without being asked for before */
};

/* The caller owns *ret_trace. *ret_after: the first request after the pause; from there on each
 * block of the hot set is asked for once. 0 or -ENOMEM. */
BENCH_MUST_USE int sim_scan(const struct sim_scan *scan, struct trace **ret_trace,
                            size_t *ret_after);
const char *sim_scan_name(enum sim_scan_kind kind);

/* Makes a trace of conversations that takes in about 1.5 times as many blocks as `blocks`. The
 * caller owns *ret_trace. 0 or -ENOMEM. */
BENCH_MUST_USE int sim_conversations(uint64_t blocks, struct trace **ret_trace);

#endif
