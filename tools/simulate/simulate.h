/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace run through the daemon's core without a daemon: over tiers that hold no bytes, as one
 * worker asks, at the trace's times. One thread; nothing here prints.
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

/* A trace as a prefix forest. An id names a block together with all before it: where a trace has
 * one id behind two others, it is two nodes here. Accesses are numbered through the whole trace, in
 * order; those of request r begin at trace->requests[r].first. */
struct sim_forest {
    const struct trace *trace; /* borrowed */
    uint32_t n_nodes;
    uint32_t *node;  /* of each access; numbered as they come */
    uint64_t *hash;  /* of each access: of the chain to here */
    uint32_t *next;  /* of each access: the next request that has this node, or SIM_NEVER */
    uint64_t *at_ms; /* of each request; never goes back. All of one time, or none: one a second */
};

/* Borrows `trace`. 0, -ENOMEM, or -E2BIG: more than 2^31 accesses. */
BENCH_MUST_USE int sim_forest_create(const struct trace *trace, struct sim_forest **ret_forest);
/* Accepts NULL and a pointer to NULL. */
void sim_forest_destroy(struct sim_forest **forest);

/* What workers say when a request has ended; made from the trace's future, wrong with probability
 * 1 - right. A chain ends when its last block but one, which is its last full one, is never asked
 * for again; it is soon continued when that is within `within_ms`. It is read in passing when it
 * ends with the request that it began with: nothing behind its first block, which others may share,
 * was asked for before. */
struct sim_hints {
    enum policy_advice kind; /* POLICY_ADVICE_NONE: none are given */
    double right;
    uint32_t within_ms; /* SOON */
};

/* Processor time that it took to choose blocks and to let them go, each. */
struct sim_decisions {
    struct lat lat;
    uint64_t ns;
    uint64_t clock_ns; /* of reading the clock: taken off */
};

struct sim_config {
    const struct policy_ops *ops;
    uint32_t host_blocks, nvme_blocks; /* nvme_blocks 0: no such tier */
    uint32_t block_bytes;
    uint64_t seed;
    bool admit_all; /* as policy.admission: false */
    struct sim_hints hints;
    double write_budget;   /* blocks written for each block accessed, at no time more than that and
                            * 64, or a 64th of nvme_blocks; 0: no limit */
    unsigned keep_percent; /* of what is on NVMe, the part that is not worth writing again */
    struct sim_decisions *decisions; /* added to, unless NULL: reading the clock takes time */
};

/* Hits of one request, by where they lay. */
struct sim_hit {
    uint32_t host, nvme;
};

struct sim_counts {
    uint64_t accesses, host_hits, nvme_hits;
    uint64_t evicted;        /* victims that left host memory */
    uint64_t nvme_written;   /* blocks written when they left host memory */
    uint64_t nvme_rewritten; /* written again when their room was reclaimed */
    uint64_t no_room;        /* blocks that did not come in: all others were in use */
    uint64_t not_worth;      /* and those that were worth less than what would have gone */
};

/* Runs the whole trace: hits[r] of each request, and their sums. 0 or -ENOMEM. */
BENCH_MUST_USE int sim_run(const struct sim_forest *forest, const struct sim_config *config,
                           struct sim_hit *hits, struct sim_counts *ret_counts);

/* The bound: what is asked for again last goes first, and what is never asked for again does not
 * stay. The same for `blocks` of room in whatever tiers. */
BENCH_MUST_USE int sim_belady(const struct sim_forest *forest, uint32_t blocks,
                              struct sim_hit *hits, struct sim_counts *ret_counts);

/* Published policies in their published form, one tier of `blocks`, which is not 0: what the
 * daemon's are compared with. -EINVAL: no such policy. sim_published_at: the i-th name, NULL past
 * the last.
 */
BENCH_MUST_USE int sim_published(const struct sim_forest *forest, const char *name, uint32_t blocks,
                                 struct sim_hit *hits, struct sim_counts *ret_counts);
const char *sim_published_at(unsigned i);

/* A hot set, asked for again and again, which pauses while other clients store or ask for what is
 * new; then it is asked for once more. What a scan is like: */
enum sim_scan_kind {
    SIM_SCAN_STREAM, /* one client, at an even rate */
    SIM_SCAN_MANY,   /* eight, with chains of different lengths */
    SIM_SCAN_BURSTS, /* all in four bursts, the last at the end of the pause */
    SIM_SCAN_REUSED, /* a third of the chains is asked for again, soon after */
    SIM_SCAN_KINDS
};

struct sim_scan {
    enum sim_scan_kind kind;
    uint32_t hot, volume; /* blocks: of the hot set, of the scan */
    uint32_t chain;       /* blocks of a chain, at most */
    uint32_t active_ms, pause_ms;
    bool stored; /* nobody asks for what the scan brings before it is stored */
};

/* Returns owned; *ret_after: the first of the requests that come after the pause, which ask for
 * each block of the hot set once. 0 or -ENOMEM. */
BENCH_MUST_USE int sim_scan(const struct sim_scan *scan, struct trace **ret_trace,
                            size_t *ret_after);
const char *sim_scan_name(enum sim_scan_kind kind);

/* A trace of conversations in which room for so many blocks is needed half as often again. Returns
 * owned; 0 or -ENOMEM. */
BENCH_MUST_USE int sim_conversations(uint64_t blocks, struct trace **ret_trace);

#endif
