/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer: kvcache-daemon, or other software that can keep blocks for a worker, behind one small
 * interface. The same loop drives all peers, with the same values, and the same reader reads them.
 *
 * Each (block size, round, peer) is measured in a process of its own, which opens the peer, works,
 * and ends. Back-ends may use threads of their libraries; the measuring loop is one thread and one
 * client. Functions return 0, or an enum bench_exit after printing what is wrong (bench.h).
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
#define PEER_KEY_BYTES  36 /* a key as text: "kv:", 32 hexadecimal digits, and a zero byte */

/* What to measure; the same for all peers. */
struct peer_plan {
    uint64_t block_bytes;
    uint32_t blocks;  /* blocks of the working set */
    uint32_t singles; /* requests of one block, sent one at a time, whose latencies are measured */
    double seconds;   /* least length of one measurement */
    const char *daemon_path;
    /* Tmpfs, disk: empty private directories; the caller empties them afterwards. */
    const char *tmpfs;
    const char *disk;
    const char *python; /* an interpreter that has LMCache, or NULL */
    const char *script; /* lmcache_peer.py */
    const char *reader; /* libpeerread.so, the reader that `script` loads */
};

/* What happens to a block once its bytes are in hand. */
enum peer_use {
    PEER_TAKE, /* nothing more */
    PEER_READ, /* every byte goes through the reader */
    PEER_CHECK /* every byte is compared with what was stored */
};

struct peer {
    const struct peer_ops *ops;
    const struct peer_plan *plan;
    uint8_t *source;               /* block i lies at i * block_bytes */
    uint8_t *target;               /* room for one block, into which loads that copy put it */
    struct rig *rig;               /* the server, if the peer has one */
    char version[PEER_TEXT_BYTES]; /* version of the software; written by open() */
    enum peer_use use;
    uint64_t wrong_bytes, sum;
    /* Nanoseconds that the last call took inside the peer, if a back-end lets another process work
     * and time itself; 0: the caller times the call. */
    uint64_t own_ns;
    void *state; /* belongs to the back-end */
};

struct peer_load {
    const char *how; /* "in place"; NULL ends the list */
    /* Loads blocks first .. first + n - 1 and calls peer_use_block() for each, in order, as soon as
     * its bytes are in hand. n = 1: one request, which has been answered on return. n > 1: as many
     * requests in flight as suit the peer best. A missing block is an error. */
    int (*run)(struct peer *peer, uint32_t first, uint32_t n);
};

struct peer_ops {
    const char *name;
    const char *settings; /* settings chosen for the peer, for the report */
    /* How often all blocks are stored before anything is timed; 0 = twice, so that the peer has
     * touched all its memory and a cache of limited size evicts. */
    uint32_t fills;
    /* NULL, or why the peer cannot be measured here: static text. */
    const char *(*missing)(const struct peer_plan *plan);
    /* Starts the peer's server, if it has one, and connects. May set `source` to memory from which
     * it prefers to take values; else the caller provides `source`. The caller fills it. */
    int (*open)(struct peer *peer);
    /* Stores blocks first .. first + n - 1, which replace those stored before; n as in
     * peer_load.run. */
    int (*store)(struct peer *peer, uint32_t first, uint32_t n);
    struct peer_load load[PEER_LOADS_MAX + 1];
    /* For a peer without loads of its own, because another peer's are equal: compares what was
     * stored. */
    int (*check)(struct peer *peer, uint32_t first, uint32_t n);
    /* Runs before the loads and is not timed: brings the stored blocks to where they stay. May be
     * NULL. */
    int (*settle)(struct peer *peer);
    void (*close)(struct peer *peer);
};

/* All peers, kvcache-daemon first; ends with NULL. */
extern const struct peer_ops *const peers[];
#define PEERS_MAX 16

extern const struct peer_ops peer_ours, peer_ours_copied, peer_memcached, peer_redis, peer_hiredis,
    peer_rocksdb, peer_tmpfs, peer_disk, peer_slots, peer_lmcache_cpu, peer_lmcache_disk,
    peer_lmcache_server;

void peer_use_block(struct peer *peer, uint32_t index, const void *data);
/* Makes the key of block `index`; equal for all peers and runs. */
void peer_content_key(uint32_t index, uint8_t key[]);
void peer_text_key(uint32_t index, char key[PEER_KEY_BYTES]);
/* Whether a program is in PATH. */
bool peer_has_program(const char *name);

#endif
