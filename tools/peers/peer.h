/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer: something else that can keep blocks for a worker, or our own daemon, behind one small
 * interface, so that all are driven by the same loop, with the same values, by the same reader.
 *
 * Each (block size, round, peer) is measured in a process of its own that opens the peer, works,
 * and ends. Back-ends may use threads of their libraries; the measuring loop is one thread, one
 * client. Functions return 0 or an enum bench_exit after saying what is wrong (bench.h).
 */
#ifndef PEER_H
#define PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench.h"
#include "bench_rig.h"

#define PEER_LOADS_MAX  2
#define PEER_TEXT_BYTES 128
#define PEER_KEY_BYTES  36 /* as text: "kv:" and 32 hexadecimal digits, and the NUL */

/* What is measured, the same for every peer. */
struct peer_plan {
    uint64_t block_bytes;
    uint32_t blocks;  /* in the working set */
    uint32_t singles; /* requests of one block, one in flight, for latencies */
    double seconds;   /* of one measurement at least */
    const char *daemon_path;
    const char *tmpfs; /* empty private directories, emptied by the caller */
    const char *disk;
    const char *python; /* an interpreter that has LMCache, or NULL */
    const char *script; /* lmcache_peer.py */
    const char *reader; /* libpeerread.so, the reader for it */
};

/* What is done with a block once its bytes are in hand. */
enum peer_use {
    PEER_TAKE, /* nothing more */
    PEER_READ, /* every byte goes through the reader */
    PEER_CHECK /* every byte is compared with what was stored */
};

struct peer {
    const struct peer_ops *ops;
    const struct peer_plan *plan;
    uint8_t *source;               /* block i lies at i * block_bytes */
    uint8_t *target;               /* one block: where loads that copy put it */
    struct rig *rig;               /* the server, if there is one */
    char version[PEER_TEXT_BYTES]; /* of what was opened; written by open */
    enum peer_use use;
    uint64_t wrong_bytes, sum;
    uint64_t own_ns; /* set by a back-end that is driven from here and works elsewhere: the time
                      * that its last call took there */
    void *state;     /* the back-end's */
};

struct peer_load {
    const char *how; /* "in place"; NULL ends the list */
    /* Blocks first .. first + n - 1: peer_use_block() for each, in order, once its bytes are in
     * hand. With n = 1: one request, answered before it returns. With more: as many in flight as
     * serve the peer best. A block that is not there is an error. */
    int (*run)(struct peer *peer, uint32_t first, uint32_t n);
};

struct peer_ops {
    const char *name;
    const char *settings; /* what was chosen for it, for the report */
    uint32_t fills;       /* times that all is stored before anything is timed; 0 = twice, so that
                           * all its memory is there and a cache of limited size evicts */
    /* NULL, or why it cannot be measured here: static text. */
    const char *(*missing)(const struct peer_plan *plan);
    /* Starts its server, if any, and connects. It may set `source` to memory that it wants values
     * in; the caller fills that, and provides `source` otherwise. */
    int (*open)(struct peer *peer);
    /* Stores blocks first .. first + n - 1 in place of those of before; n as in peer_load. */
    int (*store)(struct peer *peer, uint32_t first, uint32_t n);
    struct peer_load load[PEER_LOADS_MAX + 1];
    /* Of a peer whose loads are those of another: only for comparing what was stored. */
    int (*check)(struct peer *peer, uint32_t first, uint32_t n);
    /* Before the loads, outside what is timed: brings what was stored to where it stays. May be
     * NULL. */
    int (*settle)(struct peer *peer);
    void (*close)(struct peer *peer);
};

/* All, ours first; ends with NULL. */
extern const struct peer_ops *const peers[];
#define PEERS_MAX 16

extern const struct peer_ops peer_ours, peer_ours_copied, peer_memcached, peer_redis, peer_hiredis,
    peer_rocksdb, peer_tmpfs, peer_disk, peer_slots, peer_lmcache_cpu, peer_lmcache_disk,
    peer_lmcache_server;

void peer_use_block(struct peer *peer, uint32_t index, const void *data);
/* From the index, the same for every peer and run. */
void peer_content_key(uint32_t index, uint8_t key[]);
void peer_text_key(uint32_t index, char key[PEER_KEY_BYTES]);
/* Whether a program is in PATH. */
bool peer_has_program(const char *name);

#endif
