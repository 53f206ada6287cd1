/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replay of a trace by worker processes. The parent plans, forks, shows progress and adds up the
 * results. Each worker has its own session, and writes its results to its slot of shared memory.
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
    uint32_t batch_blocks; /* blocks of one store */
    uint64_t run; /* part of the namespace's name, so that each run begins with a cold cache */
    bool wait;    /* wait for blocks that another worker is storing */
    bool storage; /* the rig's daemon has a store, whose size is watched */
    bool device;  /* the daemon has the device REPLAY_DEVICE, too; workers keep their pages on it */
};

struct replay_counts {
    uint64_t requests;
    uint64_t accesses; /* blocks that the requests consist of */
    uint64_t hits;     /* blocks among them that were found, read and checked */
    uint64_t reused_tokens;
    uint64_t input_tokens;
    uint64_t loaded_bytes;
    uint64_t stored_bytes;
    uint64_t stored_blocks;
    uint64_t wrong_bytes;
    uint64_t wrong_blocks;
    uint64_t stale; /* acquires whose bytes were discarded because the generation had changed */
    uint64_t stored_already; /* another worker had stored or was storing the block */
    uint64_t refused_full; /* blocks for which memory had no room, or whose parent was refused so */
    uint64_t refused_not_worth;
    uint64_t refused_other;
    uint64_t lookup_differs; /* requests for which lookup and acquire found different prefixes */
    /* Hits with a device: blocks read in place in slots of the device; blocks loaded into pages. */
    uint64_t hbm_blocks, page_blocks;
    uint64_t not_loaded; /* blocks that were found but did not arrive in the pages */
};

/* Figures of the daemon's storage and of its files. */
struct replay_storage {
    uint64_t samples;         /* how often the files' sizes were read during the run */
    uint64_t disk_bytes_max;  /* most bytes of the files that hold blocks */
    uint64_t other_bytes_max; /* most bytes of the other files (the journal) */
    uint64_t loaded_blocks, written_bytes, accepted_bytes, journal_bytes, kept_bytes;
};

/* Figures that the daemon gives for the device. */
struct replay_hbm {
    uint64_t used_bytes, hits, fills, drops, copies, copy_bytes, failures, outs;
    uint64_t only_hits; /* blocks leased in slots, without a copy in host memory */
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
    struct replay_tally tally; /* written by the worker alone until it has ended */
    int error;                 /* 0, or the error that ended the worker */
    char why[REPLAY_WHY_BYTES];
};

struct replay_shared {
    _Atomic uint32_t ready; /* workers that wait for the start */
    _Atomic uint32_t go;
    _Atomic uint64_t next; /* request of the trace that the next free worker takes */
    struct replay_slot slot[REPLAY_WORKERS_MAX];
};

/* Runs one worker to its end in the calling process. 0, or a negative error, which is in the
 * worker's slot too. */
BENCH_MUST_USE int replay_work(const struct replay_plan *plan, uint32_t worker,
                               struct replay_shared *shared);

/* Asks the daemon for its figures after a run: of its store into `storage`, whose samples stay as
 * they are, and of its device into `hbm`, each if the plan has it. Opens a session, so call it in a
 * process of its own. */
BENCH_MUST_USE int replay_ask(const struct replay_plan *plan, struct replay_storage *storage,
                              struct replay_hbm *hbm);

/* Forks the workers, waits for them and adds up their results. An enum bench_exit; errors are
 * printed. */
struct rig;
BENCH_MUST_USE int replay_run(const struct replay_plan *plan, struct rig *rig, const char *label,
                              struct replay_tally *ret_tally, double *ret_seconds);

#endif
