/* SPDX-License-Identifier: Apache-2.0 */
/* A core on a fake tier, and short words for what tests do with it. Failures fail the test. */
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
#define RIG_STEP_NS 20000000ull /* more than the core's resolution of ages */

struct rig {
    struct core *core;
    struct core_config cfg;
    struct fake_tier *tier;
    struct fake_tier_config tier_cfg;
    struct fake_disk *disk; /* with disk_cfg.slots > 0 */
    struct fake_disk_config disk_cfg;
    /* Slow storage behind the disk: plain memory with slow_slots > 0, which a restart empties; or
     * another disk with slow_cfg.slots > 0. */
    uint32_t slow_slots;
    struct memory_storage *slow;
    struct fake_disk *slow_disk;
    struct fake_disk_config slow_cfg;
    struct stack *stack;                     /* of both, then */
    struct fake_device *device[RIG_DEVICES]; /* cfg.ndevices of them */
    struct fake_device_config device_cfg[RIG_DEVICES];
    struct device *devices[RIG_DEVICES];
    struct fake_journal *journal; /* of names; NULL: there is none */
    bool with_journal;            /* before rig_begin() */
    int journal_err;              /* what its commits end with */
    struct core_names_found names_found;
    uint64_t wall_ms; /* at the next restart */
    bool now_unknown; /* then: what the wall clock says is not to be relied on */
    uint64_t now_ns;
    struct core_client *cl[RIG_CLIENTS];
    unsigned idle[RIG_CLIENTS]; /* times that the core called it */
    const char *why;            /* of the last call that failed */
};

/* Limits that tests may change between the two calls; the defaults never bind. */
void rig_defaults(struct rig *r);
/* Client 0 is an administrator that is a gateway too; 1 and 2 are of principal 1, 3 of 2. */
void rig_begin(struct rig *r);
/* Closes what is open, evicts all, and wants nothing left. */
void rig_end(struct rig *r);
void rig_step(struct rig *r); /* time */
/* Turns until nothing is under way any more. */
void rig_settle(struct rig *r);
/* core_drain_disk(); what quotas keep off is not asked for. */
uint64_t rig_drain(struct rig *r, uint64_t bytes_max);
/* The daemon dies and comes back, with what its tiers hold. Its clients are new. */
void rig_restart(struct rig *r, bool host_survives);
void rig_close(struct rig *r, unsigned client);

/* One FULL group of these sizes; change it before rig_ns(). */
struct core_ns_spec rig_spec(const char *model, uint32_t block_tokens, uint32_t block_bytes);
struct core_ns *rig_ns(struct rig *r, unsigned client, const struct core_ns_spec *spec);

/* The key of the i-th block of a chain. */
struct key256 rig_key(uint32_t chain, uint32_t i);
/* Keys first .. first + n - 1, one after the other, in static memory of `slot` (0 to 7). */
const uint8_t *rig_keys(unsigned slot, uint32_t chain, uint32_t first, uint32_t n);

struct rig_put {
    struct core_ns *ns;
    uint32_t group, shard, chain, first, n, last_tokens;
    bool durable, decoded, judged;
    bool below; /* of reserve: all blocks before the first are of its chain too */
    const struct core_retention *retention;
    uint8_t statuses[KVC_STORE_MAX]; /* of reserve */
    uint64_t reservation;
};
/* Reserves blocks first .. first + n - 1 of the chain, below block first - 1 in a FULL group. */
int rig_reserve(struct rig *r, unsigned client, struct rig_put *p);

struct rig_commit {
    struct core_commit c; /* first */
    unsigned done;
    uint8_t *staging, *offsets;
    uint32_t *pages;
    uint8_t statuses[KVC_STORE_MAX];
    /* Of one block that is to be durable: where to look when it is said to be so. */
    struct rig *durable_in;
    uint32_t ns, chain, from, at;
};
/* Commits all that was reserved. As core_commit(); rig_commit_free() once it is done. */
int rig_commit(struct rig *r, unsigned client, const struct rig_put *p, struct rig_commit *m);
void rig_commit_free(struct rig_commit *m);
/* Both, and lets the copies end. Every block must then be there. */
void rig_store(struct rig *r, unsigned client, struct core_ns *ns, uint32_t group, uint32_t chain,
               uint32_t first, uint32_t n);
/* The same for every shard, one after the other. */
void rig_store_shards(struct rig *r, unsigned client, struct core_ns *ns, uint32_t group,
                      uint32_t chain, uint32_t first, uint32_t n);

/* The first `tokens` of a chain, in every group; blocks of group g are those of chain + g x 1000.
 */
struct core_seq rig_seq(struct core_ns *ns, uint32_t chain, uint32_t tokens);
/* The hit, without side effects. */
struct core_prefix rig_lookup(struct rig *r, struct core_ns *ns, uint32_t chain, uint32_t tokens);
/* A lease on as much as there is. */
struct core_held rig_acquire(struct rig *r, unsigned client, struct core_ns *ns, uint32_t chain,
                             uint32_t tokens);
/* The same, with what is on disk loaded for it. */
struct core_held rig_load(struct rig *r, unsigned client, struct core_ns *ns, uint32_t chain,
                          uint32_t tokens);
/* What is in the leased blocks is what was put there. */
void rig_check_lease(struct rig *r, unsigned client, uint64_t lease, uint32_t shard);
/* The same of where core_lease_locs_hbm() says they are; returns how many are on the device. */
uint32_t rig_check_hbm(struct rig *r, unsigned client, uint64_t lease, uint32_t shard);

/* ---- devices ---- */

#define RIG_LAYERS 4u
#define RIG_PAGES  2u /* of a block, in each layer */
/* With the groups of a namespace, whose blocks come out even. */
struct device_pool *rig_pool(struct rig *r, unsigned device, struct core_ns *ns,
                             uint32_t pages_max);
struct rig_fill {
    struct core_fill f; /* first */
    unsigned done;
};
/* core_fill_start(). */
int rig_fill(struct rig *r, unsigned client, uint64_t lease, unsigned device, uint32_t shard,
             struct rig_fill *ret_fill);
struct rig_send {
    struct core_send s; /* first */
    unsigned done;
    uint32_t n;
    _Atomic uint64_t *word; /* that counts layers from 0; these three are the caller's, or 0 */
    struct device_fence after;
    struct device_pool *pool;
    uint32_t pages[4096];
    uint8_t statuses[CORE_SEND_BLOCKS];
};
/* core_send_start() of all of the lease, as `held` has it, to pages from `page` on. */
int rig_send(struct rig *r, unsigned client, const struct core_held *held, unsigned device,
             struct device_pool *pool, uint32_t page, struct rig_send *x);
/* Block i of the send, of this group and key, is in its pages. */
bool rig_has_arrived(const struct rig_send *s, struct core_ns *ns, uint32_t group, uint32_t i,
                     const uint8_t key[32]);
/* As rig_commit(), out of pages from `page` on, which are filled with what belongs there;
 * m->c.transfer.after is the caller's, or 0. */
int rig_commit_pages(struct rig *r, unsigned client, const struct rig_put *p, unsigned device,
                     struct device_pool *pool, uint32_t page, struct rig_commit *m);
/* Leads a job to its end. */
void rig_evict(struct rig *r, struct core_evict_job *job);
uint64_t rig_slots(const struct rig *r);
/* The lease ends, and all is well then. */
void rig_release(struct rig *r, unsigned client, const struct core_held *held);
/* What is on a device, and slots in use there. */
struct core_hbm_stats rig_hbm_stats(const struct rig *r, unsigned device);
uint64_t rig_device_slots(const struct rig *r, unsigned device);
/* The last row that a client is told of block i, and what its record has beside that. */
struct rig_block {
    union {
        struct kvc_block_info row;
        struct {
#define X(name, type, unit, meaning) KVC_CELL_##type(name)
            KVC_ROW_BLOCKS(X)
#undef X
        };
    };
    bool durable;           /* on disk with a promise */
    uint32_t level;         /* of retention; RETAIN_DEFAULT if nothing is wished */
    uint64_t level_left_ms; /* until its wish ends; 0: it has no end */
    uint32_t pins;          /* that hold it */
    bool pinned_in_memory;
    struct tier_view view; /* of shard 0, when it is in host memory; else zero */
};
struct rig_block rig_explain(struct rig *r, unsigned client, uint32_t ns, uint32_t chain,
                             uint32_t i);

#endif
