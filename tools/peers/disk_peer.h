/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interface of a cache on a disk, for peerdisk. Threads put and get blocks of one size, one block
 * per request. The cache keeps a fixed number of blocks, more than the memory given to it holds.
 * Each put beyond that number evicts the oldest block.
 *
 * Each (round, peer, setting) is measured in a process of its own. Many threads call put(),
 * evict(), get() and done() at once, each with its own number. Functions return 0, or an enum
 * bench_exit after printing what is wrong (bench.h).
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
    uint64_t memory;      /* bytes of memory that a peer may use to cache and to gather blocks */
    uint32_t blocks;      /* number of blocks that the cache keeps */
    uint32_t puts; /* puts that are timed; as many puts as blocks are kept come first, untimed */
    uint32_t threads;
    bool sync; /* a put ends when the block is on stable storage */
    /* A cgroup bounds the page cache to `memory`; false: the back-end must bound its own use of it.
     */
    bool cgroup;
    const char *dir; /* an empty directory; the caller empties it afterwards */
    const char *daemon_path;
};

struct disk_peer {
    const struct disk_ops *ops;
    const struct disk_plan *plan;
    /* Page-aligned, one block for each thread; put() takes the block from it. */
    uint8_t *buffer[DISK_THREADS_MAX];
    struct rig *rig; /* the server, if the peer has one */
    void *state;     /* belongs to the back-end */
};

struct disk_ops {
    const char *name;
    const char *settings;
    const char *(*missing)(void); /* NULL, or why the peer cannot be measured here: static text */
    /* May replace the buffers by memory from which the back-end prefers to take blocks. */
    int (*open)(struct disk_peer *peer);
    int (*put)(struct disk_peer *peer, uint32_t thread, uint64_t index);
    int (*evict)(struct disk_peer *peer, uint32_t thread,
                 uint64_t index); /* NULL: the back-end evicts by itself */
    /* *ret_data is valid until done(). DISK_MISS: the block is not there. */
    int (*get)(struct disk_peer *peer, uint32_t thread, uint64_t index, const uint8_t **ret_data);
    void (*done)(struct disk_peer *peer, uint32_t thread);
    /* Payload bytes that have reached storage so far, for a peer that drops blocks unwritten when
     * puts are faster than the disk. NULL: all blocks that were put. */
    int (*accepted)(struct disk_peer *peer, uint64_t *ret_bytes);
    /* Waits until all blocks that were put are on disk. May be NULL. */
    int (*settle)(struct disk_peer *peer);
    void (*close)(struct disk_peer *peer);
};

extern const struct disk_ops disk_ours, disk_rocksdb, disk_files, disk_files_direct;

/* The measurements of one round: rates in bytes per second, CPU in seconds for 1e9 bytes. */
enum disk_metric { D_PUT, D_PUT_CPU, D_AMPLIFICATION, D_GET, D_GET_CPU, D_MISSED, D_METRICS };
#define DISK_ROUNDS_MAX 32

struct disk_result {
    bool measured;
    char reason[128]; /* why it was not measured */
    uint32_t rounds;
    uint64_t checked_bytes, wrong_bytes;
    double value[D_METRICS][DISK_ROUNDS_MAX];
    struct lat put, get;
};

/* Opens the peer, measures a round, adds the measurements to *result, and closes the peer. Call it
 * in a process of its own. */
BENCH_MUST_USE int disk_measure(const struct disk_ops *ops, const struct disk_plan *plan,
                                struct disk_result *result);

#endif
