/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches on a disk, for peerdisk: threads that put and get blocks of one size, one request each, in
 * a set of a fixed number of blocks that is larger than the memory given to it. Every put beyond
 * that number evicts the oldest block.
 *
 * Each (round, peer, setting) is a process of its own. put(), evict(), get() and done() are called
 * by many threads at once, each with its own number. Functions return 0 or an enum bench_exit after
 * saying what is wrong (bench.h).
 */
#ifndef DISK_PEER_H
#define DISK_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include <kvcache/proto.h>

#include "bench.h"
#include "bench_rig.h"
#include "lat.h"

#define DISK_THREADS_MAX 64
#define DISK_MISS        (-1) /* of get(): the block is not there any more */

struct disk_plan {
    uint64_t block_bytes; /* whole pages */
    uint64_t memory;      /* what a peer may use for caching and gathering */
    uint32_t blocks;      /* that are kept */
    uint32_t puts;        /* that are timed, after as many as are kept */
    uint32_t threads;
    bool sync;       /* a put ends when the block is on stable storage */
    bool cgroup;     /* bounds the page cache to `memory`; otherwise who uses it does so */
    const char *dir; /* empty, emptied by the caller */
    const char *daemon_path;
};

struct disk_peer {
    const struct disk_ops *ops;
    const struct disk_plan *plan;
    uint8_t *buffer[DISK_THREADS_MAX]; /* page-aligned, one block each; put() takes it from there */
    struct rig *rig;                   /* the server, if there is one */
    void *state;                       /* the back-end's */
};

struct disk_ops {
    const char *name;
    const char *settings;
    const char *(*missing)(void); /* NULL, or why it cannot be measured here: static text */
    /* May set the buffers to memory that it wants values in. */
    int (*open)(struct disk_peer *peer);
    int (*put)(struct disk_peer *peer, uint32_t thread, uint64_t index);
    int (*evict)(struct disk_peer *peer, uint32_t thread,
                 uint64_t index); /* NULL: does so itself */
    /* *ret_data until done(). DISK_MISS. */
    int (*get)(struct disk_peer *peer, uint32_t thread, uint64_t index, const uint8_t **ret_data);
    void (*done)(struct disk_peer *peer, uint32_t thread);
    /* Payload that has reached storage so far, of a peer that lets blocks go unwritten when puts
     * are faster than the disk. NULL: all that was put. */
    int (*accepted)(struct disk_peer *peer, uint64_t *ret_bytes);
    /* All that was put is on disk. May be NULL. */
    int (*settle)(struct disk_peer *peer);
    void (*close)(struct disk_peer *peer);
};

extern const struct disk_ops disk_ours, disk_rocksdb, disk_files, disk_files_direct;

/* One turn of one peer; rates in bytes per second, CPU in seconds for 1e9 bytes. */
enum disk_metric { D_PUT, D_PUT_CPU, D_AMPLIFICATION, D_GET, D_GET_CPU, D_MISSED, D_METRICS };
#define DISK_ROUNDS_MAX 32

struct disk_result {
    bool measured;
    char reason[128]; /* why not */
    uint32_t rounds;
    uint64_t checked_bytes, wrong_bytes;
    double value[D_METRICS][DISK_ROUNDS_MAX];
    struct lat put, get;
};

/* Opens the peer, measures a round, adds it to *result, closes the peer. In a process of its own.
 */
BENCH_MUST_USE int disk_measure(const struct disk_ops *ops, const struct disk_plan *plan,
                                struct disk_result *result);

#endif
