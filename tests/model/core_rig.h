/* SPDX-License-Identifier: Apache-2.0 */
/* A core on a fake tier, and short functions for tests of it. A failure in them fails the test. */
#ifndef KVC_TEST_CORE_RIG_H
#define KVC_TEST_CORE_RIG_H

#include <kvcache/rows.h>

#include "core.h"
#include "core_names.h"
#include "fake_device.h"
#include "fake_disk.h"
#include "fake_journal.h"
#include "fake_tier.h"
#include "memory_storage.h"
#include "stack.h"

#define RIG_CLIENTS 4
#define RIG_DEVICES 2
#define RIG_STEP_NS 20000000ull /* longer than the resolution of block ages in core */

struct rig {
    struct core *core;
    struct core_config cfg;
    struct fake_tier *tier;
    struct fake_tier_config tier_cfg;
    struct fake_disk *disk; /* exists if disk_cfg.slots > 0 */
    struct fake_disk_config disk_cfg;
    /* Slow storage behind the disk. slow_slots > 0: plain memory, which a restart empties;
     * slow_cfg.slots > 0: another disk. */
    uint32_t slow_slots;
    struct memory_storage *slow;
    struct fake_disk *slow_disk;
    struct fake_disk_config slow_cfg;
    struct stack *stack; /* the tier that joins disk and slow storage, if there is slow storage */
    struct fake_device *device[RIG_DEVICES]; /* cfg.ndevices of them */
    struct fake_device_config device_cfg[RIG_DEVICES];
    struct device *devices[RIG_DEVICES];
    struct fake_journal *journal; /* journal of names; NULL: none */
    bool with_journal;            /* set it before rig_begin() */
    int journal_err;              /* the error with which the journal's commits end */
    struct core_names_found names_found;
    uint64_t wall_ms; /* wall clock at the next restart */
    bool now_unknown; /* at the next restart the wall clock must not be relied on */
    uint64_t now_ns;
    struct core_client *cl[RIG_CLIENTS];
    unsigned idle[RIG_CLIENTS]; /* how often the core reported each client idle */
    const char *why;            /* text of the last call that failed */
};

/* Sets limits so high that none is reached. Tests may change them before rig_begin(). */
void rig_defaults(struct rig *r);
/* Starts the core. Client 0 is an administrator and a gateway; 1 and 2 belong to principal 1, 3 to
 * principal 2. */
void rig_begin(struct rig *r);
/* Closes all clients and evicts all blocks; fails if anything is left. */
void rig_end(struct rig *r);
void rig_step(struct rig *r); /* lets time pass */
/* Runs turns until no work is left. */
void rig_settle(struct rig *r);
/* Calls core_drain_disk(); blocks that quotas keep off the disk do not count. */
uint64_t rig_drain(struct rig *r, uint64_t bytes_max);
/* Simulates the daemon's death and restart with the contents of its tiers. All clients are new. */
void rig_restart(struct rig *r, bool host_survives);
void rig_close(struct rig *r, unsigned client);

/* A spec with one FULL group of these sizes; the caller may change it before rig_ns(). */
struct core_ns_spec rig_spec(const char *model, uint32_t block_tokens, uint32_t block_bytes);
struct core_ns *rig_ns(struct rig *r, unsigned client, const struct core_ns_spec *spec);

/* The key of the i-th block of a chain. */
struct key256 rig_key(uint32_t chain, uint32_t i);
/* Keys first .. first + n - 1 in a row, in static memory number `slot` (0 to 7). */
const uint8_t *rig_keys(unsigned slot, uint32_t chain, uint32_t first, uint32_t n);

struct rig_put {
    struct core_ns *ns;
    uint32_t group, shard, chain, first, n, last_tokens;
    bool durable, decoded, judged;
    bool below; /* rig_reserve(): parents of all blocks before the first are in the chain too */
    const struct core_retention *retention;
    uint8_t statuses[KVC_STORE_MAX]; /* result of rig_reserve() */
    uint64_t reservation;
};
/* Reserves blocks first .. first + n - 1 of the chain; in a FULL group block first - 1 is the
 * parent. */
int rig_reserve(struct rig *r, unsigned client, struct rig_put *p);

struct rig_commit {
    struct core_commit c; /* must be first */
    unsigned done;
    uint8_t *staging, *offsets;
    uint32_t *pages;
    uint8_t statuses[KVC_STORE_MAX];
    /* For a commit of one durable block: the rig whose disk must have the block when the commit
     * ends. */
    struct rig *durable_in;
    uint32_t ns, chain, from, at;
};
/* Commits all reserved blocks, as core_commit() does. Call rig_commit_free() when it has ended. */
int rig_commit(struct rig *r, unsigned client, const struct rig_put *p, struct rig_commit *m);
void rig_commit_free(struct rig_commit *m);
/* Reserves, commits, and runs the copies to their end. Every block must be present then. */
void rig_store(struct rig *r, unsigned client, struct core_ns *ns, uint32_t group, uint32_t chain,
               uint32_t first, uint32_t n);
/* The same for each shard in turn. */
void rig_store_shards(struct rig *r, unsigned client, struct core_ns *ns, uint32_t group,
                      uint32_t chain, uint32_t first, uint32_t n);

/* The first `tokens` tokens of a chain, for all groups; group g has the keys of chain + g x 1000.
 */
struct core_seq rig_seq(struct core_ns *ns, uint32_t chain, uint32_t tokens);
/* The hit of a lookup without side effects. */
struct core_prefix rig_lookup(struct rig *r, struct core_ns *ns, uint32_t chain, uint32_t tokens);
/* Leases the longest prefix that is in memory. */
struct core_held rig_acquire(struct rig *r, unsigned client, struct core_ns *ns, uint32_t chain,
                             uint32_t tokens);
/* The same, after blocks on disk were loaded. */
struct core_held rig_load(struct rig *r, unsigned client, struct core_ns *ns, uint32_t chain,
                          uint32_t tokens);
/* Checks that the leased blocks have the bytes that were stored. */
void rig_check_lease(struct rig *r, unsigned client, uint64_t lease, uint32_t shard);
/* The same, by the locations of core_lease_locs_hbm(). Returns how many blocks are on the device.
 */
uint32_t rig_check_hbm(struct rig *r, unsigned client, uint64_t lease, uint32_t shard);

/* ---- devices ---- */

#define RIG_LAYERS 4u
#define RIG_PAGES  2u /* pages of a block in each layer */
/* A pool with the groups of a namespace; a block must be a whole number of pages. */
struct device_pool *rig_pool(struct rig *r, unsigned device, struct core_ns *ns,
                             uint32_t pages_max);
struct rig_fill {
    struct core_fill f; /* must be first */
    unsigned done;
};
/* Calls core_fill_start(). */
int rig_fill(struct rig *r, unsigned client, uint64_t lease, unsigned device, uint32_t shard,
             struct rig_fill *ret_fill);
struct rig_send {
    struct core_send s; /* must be first */
    unsigned done;
    uint32_t n;
    /* Word that counts layers from 0. The caller may set these three fields, else they are 0. */
    _Atomic uint64_t *word;
    struct device_fence after;
    struct device_pool *pool;
    uint32_t pages[4096];
    uint8_t statuses[CORE_SEND_BLOCKS];
};
/* Calls core_send_start() for the whole lease `held`, to pages from `page` on. */
int rig_send(struct rig *r, unsigned client, const struct core_held *held, unsigned device,
             struct device_pool *pool, uint32_t page, struct rig_send *x);
/* Whether block i of the send, with this group and key, is in its pages. */
bool rig_has_arrived(const struct rig_send *s, struct core_ns *ns, uint32_t group, uint32_t i,
                     const uint8_t key[32]);
/* As rig_commit(), out of pages from `page` on, which it fills. The caller may set
 * m->c.transfer.after, else it is 0. */
int rig_commit_pages(struct rig *r, unsigned client, const struct rig_put *p, unsigned device,
                     struct device_pool *pool, uint32_t page, struct rig_commit *m);
/* Runs an eviction job to its end. */
void rig_evict(struct rig *r, struct core_evict_job *job);
uint64_t rig_slots(const struct rig *r);
/* Releases the lease and checks the core. */
void rig_release(struct rig *r, unsigned client, const struct core_held *held);
/* Figures of a device: copies of blocks, and slots in use. */
struct core_hbm_stats rig_hbm_stats(const struct rig *r, unsigned device);
uint64_t rig_device_slots(const struct rig *r, unsigned device);
/* The row that a client would get for block i, and figures of its record. */
struct rig_block {
    union {
        struct kvc_block_info row;
        struct {
#define X(name, type, unit, meaning) KVC_CELL_##type(name)
            KVC_ROW_BLOCKS(X)
#undef X
        };
    };
    bool durable;           /* on disk durably */
    uint32_t level;         /* retention level; RETAIN_DEFAULT without a wish */
    uint64_t level_left_ms; /* until its wish ends; 0: it has no end */
    uint32_t pins;          /* pins that hold the block */
    bool pinned_in_memory;
    struct tier_view view; /* view of shard 0 if it is in host memory; else zero */
};
struct rig_block rig_explain(struct rig *r, unsigned client, uint32_t ns, uint32_t chain,
                             uint32_t i);

#endif
