/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was stored, evicted and promised, kept outside of the daemon, and workers that change it.
 *
 * A chain has one owner, the worker that stores and evicts it; all workers read it. The bytes of a
 * block follow from its key and a version. The version of a chain grows when an eviction of all of
 * it was acknowledged, so that a block that comes back from before is told from the one that was
 * stored after. A real cache has no versions: the same key is the same bytes. They are here to see
 * old data in a new place.
 */
#ifndef KVC_TEST_CRASH_WORLD_H
#define KVC_TEST_CRASH_WORLD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "rig_device.h"

#define WORLD_BT      16u /* tokens of a block */
#define WORLD_SIZES   3u  /* namespaces, one for each size of blocks */
#define WORLD_LEN     16u /* blocks of a chain */
#define WORLD_CHAINS  96u
#define WORLD_WORKERS 3u
#define WORLD_STAGING (2u << 20)
#define WORLD_SHARDS  3u /* of a block, at most */

extern const uint32_t world_block_bytes[WORLD_SIZES];

struct world_block {
    /* Versions below are wrong in a read that begins now. */
    _Atomic uint32_t floor;
    /* Version that was acknowledged as durable, 0: none; one below is wrong after a crash, too. */
    _Atomic uint32_t durable;
    /* Versions up to this one went by an eviction that was acknowledged: none is back, ever. */
    _Atomic uint32_t removed;
    /* An eviction was acknowledged, and no store has been sent since: no version is there. */
    _Atomic bool gone;
};

struct world_chain {
    uint32_t size; /* index into world_block_bytes */
    uint8_t keys[WORLD_LEN * KVC_KEY_BYTES];
    _Atomic uint32_t newest; /* version that its owner stores */
    struct world_block block[WORLD_LEN];
};

/* Makes the checks see what is not so, one kind a run: a check that does not notice checks nothing.
 */
enum world_spoil {
    SPOIL_NOTHING,
    SPOIL_BYTES,   /* one bit of one block is other after it was read */
    SPOIL_DURABLE, /* a block that was never stored counts as acknowledged */
    SPOIL_OLD,     /* a chain counts as evicted and stored again, and was not */
    SPOIL_REMOVED, /* a chain that is there counts as evicted */
    SPOIL_COUNT,   /* one block less in the walk over all blocks */
    SPOIL_STORE,   /* the store's file is damaged before it is checked offline */
};

struct world_counts {
    _Atomic uint64_t stored, durable, hits, evicted, calls, failed;
    _Atomic uint64_t wrong_bytes;  /* blocks of no version that may be seen */
    _Atomic uint64_t durable_lost; /* promised, and not found by their owner in the same run */
    _Atomic uint64_t page_blocks;  /* stored out of pages, or loaded into them */
    _Atomic uint64_t hbm_blocks;   /* read in slots of the device */
    _Atomic uint64_t rank_stores;  /* acknowledged as durable to one of several ranks */
    _Atomic uint64_t faults;       /* errors that say that a program is wrong */
};

struct world {
    const struct rig *rig;
    bool hbm;           /* there is a device: workers keep pages there, and read there */
    bool durable_works; /* there is a storage tier */
    double durable_share;
    enum world_spoil spoil;
    uint32_t shards[WORLD_SIZES];             /* of the blocks of each namespace; 0: one */
    uint8_t seed[WORLD_SIZES][KVC_KEY_BYTES]; /* of the namespaces: the same in each run */
    bool have_keys;
    struct world_chain chain[WORLD_CHAINS];
    struct world_counts counts;
    _Atomic bool stop;
    char first_fault[256]; /* what the first fault was; "" */
};

/* Who stores and reads one shard of each block: a session of its own. */
struct world_rank {
    struct kvc *k;
    struct kvc_ns *ns[WORLD_SIZES];
};

struct world_session {
    struct world *w;
    struct kvc *k; /* of rank 0, as are its namespaces */
    struct kvc_ns *ns[WORLD_SIZES];
    struct world_rank rank[WORLD_SHARDS];
    uint64_t dice;       /* which ranks ask for a durable block, and in which order they store */
    struct kvc_gpu *gpu; /* NULL: no device */
    /* Of two chains; the first is stored from, the second loaded into. Made when first wanted;
     * .pool is NULL before. */
    struct rig_pages pages[WORLD_SIZES];
    uint32_t turn; /* of stores: from staging and out of pages */
};

/* How a chain is read. Where there is no device, or it is not up, all are the first. */
enum world_way {
    WORLD_IN_MEMORY,
    WORLD_INTO_PAGES,
    WORLD_ON_DEVICE, /* in place: what is in slots there, and the rest in memory */
    WORLD_WAYS
};

/* Connects, and makes the keys when it is the first. 0; a negative error of kvcache.h; -ESTALE when
 * a namespace's seed is other than it was, so that nothing of before can be found. */
int world_open(struct world *w, uint64_t staging_bytes, struct world_session *ret_session);
void world_close(struct world_session *s);

/* What this shard of a block of this version contains. */
void world_fill(const struct world_chain *chain, uint32_t block, uint32_t version, uint32_t shard,
                void *p);

/* What one read of a chain found. */
struct world_read {
    uint32_t present;            /* leading blocks that lookup told */
    uint32_t hit;                /* of them, held and read */
    uint32_t version[WORLD_LEN]; /* of those read, the oldest of its shards'; 0: of no version there
                                  * ever was */
};
/* Looks up and reads a whole chain, all shards, waiting for what is on disk. `floor` of each block
 * is what the caller demands. 0, or the error of the call. KVC_STALE: nothing is known. */
int world_read(struct world_session *s, const struct world_chain *chain, enum world_way way,
               unsigned timeout_ms, struct world_read *ret_read);

/* Stores blocks first .. n-1 of a chain at its newest version, each shard by its own rank; durable:
 * at least one of them asks for that. Returns how many were OK for all of them, or the error of the
 * call; what was acknowledged to any rank is written down. */
int world_store(struct world_session *s, struct world_chain *chain, uint32_t first, uint32_t n,
                bool durable);

/* Starts WORLD_WORKERS threads on a running daemon. */
void world_start(struct world *w, uint64_t seed, pthread_t ret_threads[WORLD_WORKERS]);
/* They end at their next call. */
void world_join(struct world *w, pthread_t threads[WORLD_WORKERS]);

/* The daemon is gone without notice: what was not promised may be of any version. */
void world_crashed(struct world *w);

uint64_t world_random(uint64_t *state);

#endif
