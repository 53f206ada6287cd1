/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replay of a trace by worker processes. The parent plans, forks, shows progress and merges; each
 * worker has a session of its own and writes to its part of memory that they share.
 */
#ifndef BENCH_REPLAY_H
#define BENCH_REPLAY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench.h"
#include "known_model.h"
#include "lat.h"
#include "trace.h"

#define REPLAY_WORKERS_MAX 64
#define REPLAY_WHY_BYTES   512
#define REPLAY_DEVICE      "emu:0"

struct replay_plan {
    const struct trace *trace;
    const char *socket;
    const struct known_model *model; /* NULL: block_bytes was given */
    uint32_t workers;
    uint32_t block_tokens;
    uint32_t block_bytes;
    uint32_t batch_blocks; /* stored with one request */
    uint64_t run;          /* makes the namespace a new one: the cache starts cold */
    bool wait;             /* wait for blocks that another worker is storing */
    bool storage;          /* the rig has a store: it is watched */
    bool device;           /* and a device, REPLAY_DEVICE: workers keep their pages there */
};

struct replay_counts {
    uint64_t requests;
    uint64_t accesses; /* blocks that the requests consist of */
    uint64_t hits;     /* of them, found, read and checked */
    uint64_t reused_tokens;
    uint64_t input_tokens;
    uint64_t loaded_bytes;
    uint64_t stored_bytes;
    uint64_t stored_blocks;
    uint64_t wrong_bytes;
    uint64_t wrong_blocks;
    uint64_t stale;          /* acquires whose bytes had to be discarded */
    uint64_t stored_already; /* another worker had stored or was storing the block */
    uint64_t refused_full;   /* no room, or its parent found none */
    uint64_t refused_not_worth;
    uint64_t refused_other;
    uint64_t lookup_differs; /* lookup and acquire found different prefixes */
    /* Of hits, with a device: in slots there and read in place; loaded into pages. */
    uint64_t hbm_blocks, page_blocks;
    uint64_t not_loaded; /* blocks that were found and did not come into the pages */
};

/* What the daemon and its files say, where it keeps blocks on storage. */
struct replay_storage {
    uint64_t samples;         /* of the files' sizes, during the run */
    uint64_t disk_bytes_max;  /* that the store took on the file system */
    uint64_t other_bytes_max; /* the journal */
    uint64_t loaded_blocks, written_bytes, accepted_bytes, journal_bytes, kept_bytes;
};

/* What the daemon says of the device. */
struct replay_hbm {
    uint64_t used_bytes, hits, fills, drops, copies, copy_bytes, failures, outs;
    uint64_t only_hits; /* blocks leased in slots that were not in host memory */
};

struct replay_tally {
    struct replay_counts counts;
    struct replay_storage storage;
    struct replay_hbm hbm;
    struct lat lookup, acquire, store;
};

struct replay_slot {
    _Atomic uint64_t done; /* requests finished; read while the worker runs */
    _Atomic uint64_t wrong_bytes;
    struct replay_tally tally; /* of the worker until it has ended */
    int error;                 /* 0, or what ended the worker */
    char why[REPLAY_WHY_BYTES];
};

struct replay_shared {
    _Atomic uint32_t ready; /* workers that wait for the start */
    _Atomic uint32_t go;
    _Atomic uint64_t next; /* request of the trace: whoever is free takes it, so order is kept */
    struct replay_slot slot[REPLAY_WORKERS_MAX];
};

/* Runs one worker to its end in the calling process. 0 or a negative error, also in its slot. */
BENCH_MUST_USE int replay_work(const struct replay_plan *plan, uint32_t worker,
                               struct replay_shared *shared);

/* What the daemon says after a run, of what the plan has: of its store into `storage`, beside the
 * samples that are there, and of its device into `hbm`. In a process of its own, which has a
 * session. */
BENCH_MUST_USE int replay_ask(const struct replay_plan *plan, struct replay_storage *storage,
                              struct replay_hbm *hbm);

/* Forks the workers, waits for them, adds up what they did. An enum bench_exit; trouble is said. */
struct rig;
BENCH_MUST_USE int replay_run(const struct replay_plan *plan, struct rig *rig, const char *label,
                              struct replay_tally *ret_tally, double *ret_seconds);

#endif
