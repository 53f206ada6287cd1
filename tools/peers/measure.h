/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One peer at one block size in one round, and the measurements of all rounds. A result lies in
 * memory that the measuring process shares with its parent.
 */
#ifndef MEASURE_H
#define MEASURE_H

#include "lat.h"
#include "peer.h"

#define ROUNDS_MAX 64

/* Rates in bytes per second; CPU in seconds per gigabyte (1e9 bytes), client and server together.
 */
enum metric {
    M_STORE,
    M_STORE_CPU,
    /* Time until the bytes are in hand; M_TAKE to M_LOAD_CPU occur once for each way of loading. */
    M_TAKE,
    M_READ, /* time until they are in hand and read */
    M_LOAD_CPU,
    M_COUNT = M_TAKE + 3 * PEER_LOADS_MAX
};

enum peer_outcome { PEER_NOT_RUN, PEER_MEASURED, PEER_MISSING, PEER_FAILED, PEER_WRONG };

struct peer_result {
    enum peer_outcome outcome;
    char reason[PEER_TEXT_BYTES], version[PEER_TEXT_BYTES];
    uint32_t rounds;
    uint64_t checked_bytes, wrong_bytes;
    double value[M_COUNT][ROUNDS_MAX];
    /* Times of single requests; loads include reading the bytes. */
    struct lat store, load[PEER_LOADS_MAX];
};

static inline unsigned measure_load(enum metric metric, unsigned way)
{
    return (unsigned)metric + 3 * way;
}

/* Opens the peer, measures one round, adds the measurements to *result, and closes the peer. 0 or
 * an enum bench_exit. Call it in a process of its own. */
BENCH_MUST_USE int measure_round(const struct peer_ops *ops, const struct peer_plan *plan,
                                 struct peer_result *result);

#endif
