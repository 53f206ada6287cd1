/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers that store, evict and read chains, and a record of what was stored, evicted and
 * acknowledged as durable. The record is kept outside of the daemon.
 *
 * A chain has one owner, the worker that stores and evicts it; all workers read it. The bytes of a
 * block follow from its key and a version. A chain's version grows when an eviction of the whole
 * chain was acknowledged. So a block that comes back from before differs from one that was stored
 * afterwards. A real cache has no versions: the same key has the same bytes. Here they show old
 * data in a new place.
 */
#ifndef KVC_TEST_CRASH_WORLD_H
#define KVC_TEST_CRASH_WORLD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "rig_device.h"

#define WORLD_BT      16u /* tokens of a block */
#define WORLD_SIZES   3u  /* namespaces; each has its own block size */
#define WORLD_LEN     16u /* blocks of a chain */
#define WORLD_CHAINS  96u
#define WORLD_WORKERS 3u
#define WORLD_STAGING (2u << 20)
#define WORLD_SHARDS  3u /* most shards of a block */

extern const uint32_t world_block_bytes[WORLD_SIZES];

struct world_block {
    /* A read that begins now must not find a version below this one. */
    _Atomic uint32_t floor;
    /* The version whose durability was acknowledged; 0: none. A version below is wrong even after a
     * crash. */
    _Atomic uint32_t durable;
    /* Evictions of versions up to this one were acknowledged: none of them may ever come back. */
    _Atomic uint32_t removed;
    /* An eviction was acknowledged and no store was sent since: the block must be missing. */
    _Atomic bool gone;
};

struct world_chain {
    uint32_t size; /* index into world_block_bytes */
    uint8_t keys[WORLD_LEN * KVC_KEY_BYTES];
    _Atomic uint32_t newest; /* version that the owner stores */
    struct world_block block[WORLD_LEN];
};

/* Makes a check see a fault that is not there, one kind in a run: the check must report it. */
enum world_spoil {
    SPOIL_NOTHING,
    SPOIL_BYTES,   /* one bit of one block is changed after the block was read */
    SPOIL_DURABLE, /* a block that was never stored counts as acknowledged as durable */
    SPOIL_OLD,     /* a chain that was not evicted counts as evicted and stored again */
    SPOIL_REMOVED, /* a chain that is cached counts as evicted */
    SPOIL_COUNT,   /* the walk over all blocks leaves one block out */
    SPOIL_STORE,   /* the store's file is damaged before it is checked offline */
};

struct world_counts {
    _Atomic uint64_t stored, durable, hits, evicted, calls, failed;
    _Atomic uint64_t wrong_bytes; /* blocks with contents of a version that must not be seen */
    /* Blocks that were acknowledged as durable, and that their owner did not find in the same run.
     */
    _Atomic uint64_t durable_lost;
    _Atomic uint64_t page_blocks; /* blocks stored out of pages, or loaded into them */
    _Atomic uint64_t hbm_blocks;  /* blocks read in slots of the device */
    /* Stores whose durability was acknowledged to one of several ranks. */
    _Atomic uint64_t rank_stores;
    _Atomic uint64_t faults; /* errors that a correct program never gets */
};

struct world {
    const struct rig *rig;
    bool hbm; /* the daemon has a device; workers keep pages on it and read blocks on it */
    bool durable_works; /* the daemon has a storage tier */
    double durable_share;
    enum world_spoil spoil;
    uint32_t shards[WORLD_SIZES]; /* shards of the blocks of each namespace; 0 means 1 */
    uint8_t seed[WORLD_SIZES][KVC_KEY_BYTES]; /* seeds of the namespaces; the same in each run */
    bool have_keys;
    struct world_chain chain[WORLD_CHAINS];
    struct world_counts counts;
    _Atomic bool stop;
    char first_fault[256]; /* text of the first fault; "" */
};

/* A session that stores and reads one shard of each block. */
struct world_rank {
    struct kvc *k;
    struct kvc_ns *ns[WORLD_SIZES];
};

struct world_session {
    struct world *w;
    struct kvc *k; /* session of rank 0; so are the namespaces below */
    struct kvc_ns *ns[WORLD_SIZES];
    struct world_rank rank[WORLD_SHARDS];
    uint64_t dice; /* random state: which ranks ask for durability, and in which order they store */
    struct kvc_gpu *gpu; /* NULL: the daemon has no device */
    /* Pages for two chains for each size: stores use the first chain's, loads the second's. Made at
     * first use; before that .pool is NULL. */
    struct rig_pages pages[WORLD_SIZES];
    uint32_t turn; /* alternates between stores from staging and stores out of pages */
};

/* How a chain is read. Without a device that is up, every read is WORLD_IN_MEMORY. */
enum world_way {
    WORLD_IN_MEMORY,
    WORLD_INTO_PAGES,
    WORLD_ON_DEVICE, /* in place: blocks in slots of the device there, the others in memory */
    WORLD_WAYS
};

/* Connects; the first call makes the keys. 0; a negative error of kvcache.h; -ESTALE: a namespace
 * has another seed than before, so no earlier block can be found. */
int world_open(struct world *w, uint64_t staging_bytes, struct world_session *ret_session);
void world_close(struct world_session *s);

/* Writes the contents of this shard of a block in this version. */
void world_fill(const struct world_chain *chain, uint32_t block, uint32_t version, uint32_t shard,
                void *p);

/* The result of one read of a chain. */
struct world_read {
    uint32_t present; /* leading blocks that the lookup found */
    uint32_t hit;     /* blocks among them that were held and read */
    /* For each block read, the oldest version among its shards; 0: contents of no version. */
    uint32_t version[WORLD_LEN];
};
/* Looks up a whole chain and reads all its shards; waits for blocks that are on disk. The caller
 * compares versions with each block's `floor`. 0, or the error of the call; KVC_STALE: the read
 * says nothing. */
int world_read(struct world_session *s, const struct world_chain *chain, enum world_way way,
               unsigned timeout_ms, struct world_read *ret_read);

/* Stores blocks first .. n-1 of a chain in its newest version, each shard by its own rank. durable:
 * at least one rank asks for durability. Returns how many blocks were OK for all ranks, or the
 * error of the call. What was acknowledged to any rank is recorded. */
int world_store(struct world_session *s, struct world_chain *chain, uint32_t first, uint32_t n,
                bool durable);

/* Starts WORLD_WORKERS threads on a running daemon. */
void world_start(struct world *w, uint64_t seed, pthread_t ret_threads[WORLD_WORKERS]);
/* Ends the threads; each ends before its next call. */
void world_join(struct world *w, pthread_t threads[WORLD_WORKERS]);

/* Call it when the daemon was killed: blocks that were not acknowledged as durable may have any
 * version. */
void world_crashed(struct world *w);

uint64_t world_random(uint64_t *state);

#endif
