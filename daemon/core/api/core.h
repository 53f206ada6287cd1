/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core's interface: which blocks exist, in which state, where, and who holds them. Handlers in
 * daemon/svc call these functions for each request; node_turn() calls those that run in each turn.
 *
 * Thread: control thread only; nothing is locked. Time comes in through core_tick() and the core
 * keeps no clock. Memory: everything is allocated in core_create(); afterwards an empty pool is a
 * status (KVC_E_BUSY, KVC_E_LIMIT), never an allocation.
 *
 * Rules that hold after every call (tests/model checks them):
 *  - a block is served only in state PRESENT, that is, when every shard was copied and checksummed;
 *  - a leased block, a block being written and every ancestor of either stays;
 *  - room is taken from the tier before a block is announced, and given back when its last holder
 *     (lease, copy in flight) releases it, never before;
 *  - a pinned block is never evicted for room: it is removed when an operator forces it, when its
 *     bytes are bad or lost, and with a block above it that its writer drops;
 *  - nobody holds more than a hard limit; an owner that held more when the limit was set does not
 *     grow.
 */
#ifndef KVC_CORE_H
#define KVC_CORE_H

#include "device.h"
#include "err.h"
#include "hash.h"
#include "list.h"
#include "metric.h"
#include "policy.h"
#include "retain.h"
#include "stat.h"
#include "sys.h"
#include "tier.h"

#define CORE_NONE UINT32_MAX

struct core;
struct core_client; /* one session: owner of leases, reservations and copies in flight */
struct core_ns;
struct kvc_block_info;

/* Tiers that have room of their own for blocks. Storage may be several tiers behind each other
 * (daemon/tier/stack.h); what devices have are copies of blocks that one of these has. */
enum core_tier { CORE_HOST, CORE_STORAGE };
#define CORE_TIERS 2u

struct core_config {
    uint32_t blocks_max;
    uint32_t clients_max;
    uint32_t namespaces_max;
    uint32_t leases_max;      /* over all clients */
    uint32_t commits_max;     /* commits in flight */
    uint32_t names_max;       /* conversations and documents, at most; 0: none are taken */
    uint64_t name_ids_bytes;  /* memory for token ids of documents */
    uint64_t lease_bytes_max; /* per client */
    uint64_t claim_bytes_max; /* per client, reserved and not committed; 0: no limit */
    uint64_t progress_ms;     /* a writer that commits nothing for so long, or less by its own pace,
                               * keeps what it reserved from nobody; 0: no limit */
    /* Whether every client is promised an equal part of half of each pool, and every principal one
     * for its namespaces (share.h). Off: first come, first served. principals_max: the highest
     * number of a principal. */
    bool fair;
    uint32_t principals_max;
    const struct policy_ops *policy;
    uint64_t policy_seed;   /* seed of the policy's random numbers */
    bool load_or_recompute; /* whether they are weighed; core_load_or_recompute() changes it */
    bool admission;         /* without storage: a block of less worth than its victims is not
                             * stored; core_admission() changes it */
    uint32_t pins_max;      /* pins at a time; 0: none are taken */
    uint64_t pin_bytes_max; /* pinned bytes of one tenant; 0: no limit */
    /* By enum core_tier, the fastest first; borrowed. [CORE_STORAGE] NULL: there is no storage. */
    struct tier *tier[CORE_TIERS];
    /* Devices, numbered from 0; borrowed. hbm_max: copies of blocks in their slots, over all
     * devices; hbm_policy: the order in which a device evicts its copies. */
    struct device *const *devices;
    uint32_t ndevices;
    uint32_t hbm_max;
    const struct policy_ops *hbm_policy;
    uint32_t device_copies; /* requests that copy at a time, on each device; 0: 256 */
    uint32_t slice_work;    /* work of one slice, in core_work() units; 0: 1024, some 100 to 200
                             * us */
    bool hbm_verify; /* host memory is read before a device copies it, and compared with its sum */
    struct key256 secret; /* namespaces' salts are derived from it */
};

/* The memory that core_create() will allocate, by table, for the printed budget. */
struct core_budget {
    uint64_t blocks, table, ghosts, parts, policy, retain, leases, namespaces, commits, clean, pins,
        names, hbm;
};
void core_budget(const struct core_config *config, struct core_budget *ret_budget);
/* Bytes of index per block: record, table, ghosts, shard parts, policy, retention, lists of what is
 * pinned. */
double core_bytes_per_block(const struct core_config *config);

KVC_WARN_UNUSED int core_create(const struct core_config *config, struct core **ret_core);
/* No client may be left. Accepts NULL. */
void core_destroy(struct core **core);
/* ---- restart: recovery of what the run before has left ---- */

/* The record of a namespace, in which it outlives a run: bytes with a checksum. */
#define CORE_NS_RECORD_MAX 4000u
/* The record of the namespace with this print (tier_label.print). Bytes; 0: there is none. */
uint32_t core_ns_record(const struct core *c, uint64_t print,
                        uint8_t ret_record[CORE_NS_RECORD_MAX]);
/* Makes the namespace of a record again. `who` maps a principal's name to its identity now,
 * NULL: nobody. KVC_E_GONE: the record is damaged. KVC_E_DENIED: nobody owns it, or its print
 * differs with this secret and tenant. In both cases its blocks cannot be used. A second call is
 * no error. */
typedef const struct core_identity *(core_who_fn)(void *ctx, const char *principal);
KVC_WARN_UNUSED int core_ns_restore(struct core *c, const uint8_t *record, uint32_t bytes,
                                    core_who_fn *who, void *ctx);
/* The principal and tenant that a record names. KVC_E_GONE: damaged. */
KVC_WARN_UNUSED int core_ns_record_owner(const uint8_t *record, uint32_t bytes,
                                         char ret_principal[KVC_PARAMS_MAX],
                                         char ret_tenant[KVC_PARAMS_MAX]);
/* The prints of all namespaces, in pieces: from `*cursor` (0 at first), up to n; returns how many.
 */
uint32_t core_ns_prints(const struct core *c, uint32_t *cursor, uint64_t *ret_print, uint32_t n);
/* Grows whenever a namespace is made or removed. */
uint64_t core_ns_changes(const struct core *c);

struct core_found {
    struct tier_label label; /* ns is ignored: the print names the namespace */
    uint32_t bytes;          /* of payload */
    struct tier_loc loc;
    bool in_host;    /* false: on disk */
    uint32_t age_ms; /* since its last use, as far as is known */
};
/* core_recover() of a block with this label follows soon: prefetches what it reads. */
void core_recover_soon(const struct core *c, const struct tier_label *label);
/* Recovers a block of the run before. Order does not matter; the same block may be found in host
 * memory and on disk, and in each of its shards. 0, and its record's number in *ret_owner: the tier
 * names that from now on. Else the tier frees what is at loc: KVC_E_GONE (no such namespace or
 * group, or another size than its blocks have), KVC_E_FULL (index), KVC_E_TOO_LARGE. A copy found
 * in host memory is checked at its first use. */
KVC_WARN_UNUSED int core_recover(struct core *c, const struct core_found *found,
                                 uint32_t *ret_owner);
/* Ends recovery, after the last core_recover(): chains are linked; blocks without their ancestors,
 * or without all their shards, are removed. Returns the number of blocks that remain. */
uint32_t core_recover_end(struct core *c);

/* A request of many keys does its work in slices (core_reserve_step() and the like), between which
 * anything may happen. Work is counted, not timed, so that a simulation repeats itself: one unit is
 * about what looking up a key takes. */
uint64_t core_work(const struct core *c);
/* The core's large tables, for a caller that faults their memory in before use. Unused ranges have
 * no bytes. */
#define CORE_RANGES 10u
void core_memory(const struct core *c, struct sys_range ret[CORE_RANGES]);
#define CORE_MORE 2 /* returned by a slice that is not the last */

/* Stops new moves of blocks between tiers: before the end, when no client is left. */
void core_stop(struct core *c);
/* Whether nothing is in flight that would end in core. Only then the core may be destroyed, because
 * tiers end their operations when they are destroyed. */
bool core_is_still(const struct core *c);
/* Takes the time. Called once a turn, before anything else. now_ns never goes back. */
void core_tick(struct core *c, uint64_t now_ns);
/* Runs the done queue: calls waiters whose block changed, as many as look at a bounded number of
 * keys; the next turn calls the rest. Returns how many were called. */
unsigned core_run_done(struct core *c);
/* Whether the done queue has a waiter. */
bool core_has_done(const struct core *c);
/* Whether core_placement_step() has something to do at once, perhaps begun by a request after its
 * last call. */
bool core_has_steps(const struct core *c);
/* When the next step has something to do, if none has now; UINT64_MAX: no step waits for time
 * alone. */
uint64_t core_next_ns(const struct core *c);
/* Runs one bounded step of background work; true: there is more. */
bool core_placement_step(struct core *c);

METRIC_STRUCT(core, CORE_METRICS);
struct metric_set core_metric_set(const struct core *c);
const struct core_metrics *core_metrics(const struct core *c);

/* ---- namespaces ---- */

struct core_group {
    uint32_t block_tokens, block_bytes, window, flags;
    uint8_t rule; /* enum kvc_rule */
};
struct core_ns_spec {
    /* zero-terminated; see struct kvc_ns_spec */
    char model[KVC_STRING_MAX], revision[KVC_STRING_MAX], dtype[KVC_STRING_MAX],
        quant[KVC_STRING_MAX], layout[KVC_STRING_MAX], position[KVC_STRING_MAX],
        position_params[KVC_PARAMS_MAX], attention[KVC_STRING_MAX], lora[KVC_STRING_MAX],
        extra[KVC_PARAMS_MAX], sub[KVC_STRING_MAX];
    uint32_t layers, kv_heads, head_size, shards, flags;
    uint64_t prefill_ns_per_token, prefill_ns_per_token_pair;
    uint32_t ngroups;
    struct core_group group[KVC_GROUPS_MAX];
};
/* What prefill costs: for each token, and in 1e-6 ns for each token before it. Both 0: unknown. */
struct core_cost {
    uint64_t ns_per_token, ns_per_token_pair;
};
/* Who a client is; fixed while it is open. */
struct core_identity {
    uint32_t principal; /* 1 and up */
    const char *name;   /* the principal's name; borrowed, lives as long as the core */
    const char *tenant; /* borrowed, lives as long as the core */
    bool gateway;       /* may name sub-tenants */
    bool admin;         /* may see and evict what belongs to others */
};
struct core_similar {
    uint32_t ns;
    uint32_t fields;
};

/* Finds or makes the namespace of a specification. KVC_E_UNSOUND / KVC_E_BAD_ARGUMENT /
 * KVC_E_TOO_LARGE / KVC_E_DENIED with *ret_why (static text). KVC_E_LIMIT: the principal has its
 * share of the slots, and each holds blocks. Room is made by removing an empty namespace: of its
 * own the one that was used longest ago, or one of a principal that is not attached; never one of
 * an attached principal. *ret_nsimilar: up to 4 namespaces of the same principal and model that
 * differ. */
KVC_WARN_UNUSED int core_ns_open(struct core *c, struct core_client *cl,
                                 const struct core_ns_spec *spec, struct core_ns **ret_ns,
                                 struct core_similar *ret_similar, uint32_t *ret_nsimilar,
                                 const char **ret_why);
/* Finds the namespace of this id for a reader, who creates nothing. With `sub` it is the one of
 * that sub-tenant; NULL when there is none, so that nothing of it is cached. *ret_base: the
 * namespace of this id. KVC_E_NO_NAMESPACE, KVC_E_DENIED, KVC_E_BAD_ARGUMENT. */
KVC_WARN_UNUSED int core_ns_find(struct core *c, struct core_client *cl, uint32_t id,
                                 const uint8_t *sub, uint32_t sub_bytes, struct core_ns **ret_ns,
                                 struct core_ns **ret_base);
/* core_ns_find() for writers: a sub-tenant's namespace is created when absent, which may give
 * KVC_E_LIMIT. */
KVC_WARN_UNUSED int core_ns_get(struct core *c, struct core_client *cl, uint32_t id,
                                const uint8_t *sub, uint32_t sub_bytes, struct core_ns **ret_ns);
/* Namespaces for which a client's stated cost is kept: those that it opened last. */
#define CORE_COSTS 32u
/* The cost that the client stated when it opened the namespace of this id; unknown if it did not,
 * or has opened CORE_COSTS others since. It counts for this client's requests alone, and ends with
 * it. */
struct core_cost core_ns_cost(const struct core_client *cl, uint32_t id);
/* Whether there is a namespace of this id that the client may see. */
bool core_ns_exists(struct core *c, const struct core_client *cl, uint32_t id);
/* Whether guaranteed shares of memory hold with a namespace's blocks, and how much of memory these
 * can fill. */
struct core_share_risk {
    uint64_t fill, limit, large;    /* bytes that blocks of `large` bytes can fill, of `limit` */
    uint64_t chunks_needed, chunks; /* chunks that all shares need, and that there are */
    bool mixed; /* one owner of its principal has a share, another one blocks of other sizes */
};
void core_share_risk(const struct core *c, const struct core_ns *ns, struct core_share_risk *ret);
/* The next namespace by id above `after` that the client may see, NULL at the end. */
struct core_ns *core_ns_next(struct core *c, struct core_client *cl, uint32_t after);
/* As core_ns_next(), up to CORE_NS_PAGE in one pass over the table; returns how many. */
#define CORE_NS_PAGE 64u
uint32_t core_ns_page(struct core *c, struct core_client *cl, uint32_t after,
                      struct core_ns *ret_ns[CORE_NS_PAGE]);
struct core_ns_view {
    uint32_t id, principal;
    const char *tenant;
    const struct core_ns_spec *spec;
    const struct key256 *seed;
    uint64_t print;              /* as tier labels name it */
    uint64_t blocks, bytes;      /* present */
    uint64_t held[RETAIN_TIERS]; /* bytes of room taken in host memory, on disk; as quotas count
                                  * them */
    uint64_t pinned_bytes;       /* each block once */
    uint64_t leased_bytes;       /* per lease */
    uint64_t named_bytes;        /* of blocks that names reach, each once */
    uint64_t hbm_bytes;          /* of slots on devices; nobody's quota counts them */
    /* Bytes of blocks that stay whoever wants their room: in host memory for pins; on disk for
     * pins, names and durable commits, including those that are yet to be written there. A commit's
     * count from when it begins. */
    uint64_t bound[RETAIN_TIERS];
};
void core_ns_view(const struct core_ns *ns, struct core_ns_view *ret_view);

/* ---- clients ---- */

/* Opens a client. `idle` runs on the control thread after core_client_close(), once no copy touches
 * the client's staging any more; it may run inside close. The client is freed when it runs. */
KVC_WARN_UNUSED int core_client_open(struct core *c, const struct core_identity *who,
                                     void (*idle)(void *ctx), void *ctx,
                                     struct core_client **ret_client);
/* Releases leases, drops what is not committed, cancels copies. */
void core_client_close(struct core *c, struct core_client *cl);
/* Drops reservations and cancels copies now, but keeps the leases: for a session that the daemon
 * ends while its process may still be reading. core_client_close() follows later. */
void core_client_quarantine(struct core *c, struct core_client *cl);
uint64_t core_client_lease_bytes(const struct core_client *cl);
struct core_client_view {
    uint32_t leases, reservations;
    uint64_t leased_bytes, reserved_bytes;
    uint64_t lease_age_ms, reservation_age_ms; /* of the oldest */
};
void core_client_view(const struct core *c, const struct core_client *cl,
                      struct core_client_view *ret_view);

/* A request that the client has under way, and that the end of the client cancels: a commit, send,
 * verification or evict job. It is embedded in its owner's memory until done() has run. */
struct core_req {
    struct list_node node; /* the core's from here on; linked while the request is under way */
    const struct core_req_kind *kind;
};
/* Asks a request to stop; nothing if it is not under way. Copies and reads may take their time, and
 * done() still follows: within this call only for a commit between two slices. An evict job is
 * forgotten, and done() does not run. */
void core_cancel(struct core *c, struct core_req *req);

/* ---- reading ---- */

struct core_seq {
    struct core_ns *ns;
    bool absent; /* the sub-tenant has no namespace, so nothing is cached; ns says how to read the
                  * keys */
    uint32_t tokens;
    uint32_t ngroups;
    const uint8_t *keys[KVC_GROUPS_MAX];
    uint32_t n[KVC_GROUPS_MAX];
    bool worth;            /* only the part that is quicker loaded than computed again */
    struct core_cost cost; /* the asker's cost, by which that is weighed */
    /* The device on which the asker reads rank on_shard's part, or from which it is copied. A block
     * whose part is in a slot there counts as in memory, and is not loaded. For core_acquire() and
     * core_prefetch(). NULL: host memory is read. */
    const struct device *on;
    uint32_t on_shard;
};
struct core_prefix {
    uint32_t tokens;
    uint32_t cached_tokens; /* without regard to `worth`, and in whatever tier */
    uint64_t load_ns;       /* about how long loading `tokens` takes now */
    struct {
        uint32_t blocks;
        uint8_t reason;
        uint32_t detail;
    } group[KVC_GROUPS_MAX];
};
/* Returns why the sequence does not fit its namespace; NULL: it fits. */
const char *core_seq_fault(const struct core_seq *seq);
/* Finds the prefix of a sequence. KVC_E_BAD_ARGUMENT with *ret_why: the sequence does not fit its
 * namespace. With `touch` the policy is told of it as of an acquire; without, a lookup leaves no
 * trace. */
KVC_WARN_UNUSED int core_lookup(struct core *c, const struct core_seq *seq, bool touch,
                                struct core_prefix *ret_prefix, const char **ret_why);

/* A request that waits. Zeroed before its first use. Between its call and the next use of it, or
 * core_waiter_cancel(), it may hold blocks in memory. */
struct core_waiter {
    struct list_node node;
    void (*fn)(struct core_waiter *w); /* called from core_run_done(); ask again then */
    uint32_t block, gen, keys;         /* the core's */
    uint64_t bytes;
    struct core_load *load; /* the load that holds blocks for it */
    /* When its loads began: tokens that were in memory, that were worth loading, and that were
     * cached. */
    uint32_t in_memory, worth, cached;
    /* How many blocks of its chain were there, and the last of them. chained: each builds on the
     * one before, so that all are there as long as the last one is. */
    uint32_t lead, last, last_gen;
    bool chained;
};

struct core_held {
    struct core_prefix prefix;
    uint64_t lease; /* 0 = nothing */
    uint8_t ticket[KVC_TICKET_BYTES];
    uint32_t ngroups;
    struct {
        uint32_t first, n;
    } group[KVC_GROUPS_MAX];
};
struct core_acquire {
    struct core_seq seq;
    uint32_t from_tokens, wait_tokens;
    bool wait;
    bool load;      /* blocks that are not in memory are loaded, and waited for */
    bool read_only; /* leaves no trace: nothing is touched, and the policy is not told; not together
                     * with `load` (KVC_E_BAD_ARGUMENT) */
    bool unasked;   /* for no request of an engine: what it finds counts as used, but not as asked
                     * for, and the policy learns nothing from it */
};
/* Makes a lease on the prefix of a sequence. 0, or KVC_E_BAD_ARGUMENT, KVC_E_LIMIT (lease bytes),
 * KVC_E_BUSY (pools). The policy is told of an acquire when it is answered with 0.
 *
 * With `load` and a prefix that is not all in memory: without a waiter 1 is returned, nothing is
 * done, and the caller asks again with one. With a waiter the loads are started, 1 is returned and
 * the waiter is queued; it is called when all is in memory, or no more will be. Ask again then with
 * load off: the prefix in memory by then is the answer. The same at the deadline, after
 * core_waiter_cancel(), which releases what was held; loads that run continue by themselves.
 *
 * With `wait` and a prefix that may still grow: returns 1, the waiter is queued and nothing is
 * leased. With seq.on the lease holds slots of that device, from its beginning on, for blocks that
 * are not in host memory; while blocks are loaded for it, the waiter holds them. */
KVC_WARN_UNUSED int core_acquire(struct core *c, struct core_client *cl,
                                 const struct core_acquire *in, struct core_waiter *waiter,
                                 struct core_held *ret_held, const char **ret_why);
/* For a waiter that was called: true when it waits on, because the block that it waited for has
 * been announced again. Blocks before that one are not looked up anew. False: ask again. */
KVC_WARN_UNUSED bool core_wait_again(struct core *c, const struct core_acquire *in,
                                     struct core_waiter *waiter);

/* Starts loading blocks that a lookup of seq finds and memory lacks: at most bytes_max, as far as
 * there is room and few loads are in flight; nobody waits for them. Returns the number of blocks
 * under way. */
uint32_t core_prefetch(struct core *c, const struct core_seq *seq, uint64_t bytes_max);
/* Whether load and recomputation are weighed, from now on. */
void core_load_or_recompute(struct core *c, bool on);
bool core_load_or_recompute_now(const struct core *c);
/* Takes a queued waiter off, and releases what it holds. No error if it is not queued and holds
 * nothing. */
void core_waiter_cancel(struct core *c, struct core_waiter *waiter);
/* Makes a second lease on a lease's blocks, for another session of its principal. KVC_E_NO_LEASE
 * also where a block is not in host memory: it is on the first lease's device alone. */
KVC_WARN_UNUSED int core_redeem(struct core *c, struct core_client *cl,
                                const uint8_t ticket[KVC_TICKET_BYTES], struct core_held *ret_held);
/* Calls fn with the place in host memory of each of the lease's blocks for `shard`, in order of
 * groups and blocks. KVC_E_GONE, perhaps after some calls: a block is on a device alone. */
typedef void(core_loc_fn)(void *ctx, const struct tier_view *view);
KVC_WARN_UNUSED int core_lease_locs(struct core *c, struct core_client *cl, uint64_t lease,
                                    uint32_t shard, core_loc_fn *fn, void *ctx);
/* Ends a lease. KVC_E_NO_LEASE: it is not this client's. Blocks that its fills and sends still read
 * stay, and count, until these have ended. */
KVC_WARN_UNUSED int core_release(struct core *c, struct core_client *cl, uint64_t lease);

/* ---- writing ---- */

/* A wish for how long blocks stay. Levels are 0 to RETAIN_MAX (kvc: priorities). Blocks of lower
 * levels are evicted first, from memory and from disk. */
struct core_wish {
    uint32_t level;
    uint64_t duration_ms; /* RETAIN_FOR_EVER: without end */
};
struct core_range {
    uint32_t first_token, end_token; /* of the sequence; end 0: open */
    struct core_wish wish;
};
/* A block has the wish of the first range that holds one of its tokens, so that ranges are rounded
 * outward to blocks; or none. Where documents of other systems differ, this holds:
 *  - The time runs from the block's commit (all its shards are stored); for a block that is stored
 *     already, from the request. Only another wish renews it: no use, no release.
 *  - A wish without end is the block's base: of several the highest. A wish with an end counts
 *     while it is above the base. Of two wishes with an end the higher level counts, with its own
 *     end; of the same level the later end. The lower one is not remembered.
 *  - At its end the block returns to its base, or to RETAIN_DEFAULT if it has none, and is the
 *     youngest of that level.
 *  - A wish for RETAIN_DEFAULT without end is a base too.
 *  - Ends are kept to 64 ms, rounded up, and to at most eight years from the daemon's start.
 *  - Levels and ends stay with the block from tier to tier. Over a restart bases are kept, as they
 *     were when the recovered copy was written; wishes with an end are not. */
struct core_retention {
    const struct core_range *range; /* borrowed during the call */
    uint32_t n;                     /* at most KVC_RETAIN_MAX */
    bool has_decode;                /* for blocks of decoded tokens `decode` replaces the ranges */
    struct core_wish decode;
};

struct core_reserve {
    struct core_ns *ns;
    uint32_t group, shard;
    const uint8_t *parent; /* NULL = none */
    uint32_t first_token;
    const uint8_t *keys;
    uint32_t n;
    uint32_t last_tokens;
    bool durable; /* its commits are done when the blocks, and all before them in their chains, are
                   * on stable storage; such blocks are removed by request only */
    bool decoded; /* blocks of decoded tokens */
    bool judged;  /* a block of less worth than its victims is not stored */
    struct core_cost cost; /* what a hit of these blocks saves, for the policy: by the writer's
                            * statement */
    const struct core_retention *retention; /* borrowed; NULL: no wish. It counts for blocks that
                                             * exist or are being stored, too */
};
/* Takes room for blocks and announces them. Fills statuses[n]. 0, or KVC_E_BAD_ARGUMENT with
 * *ret_why, KVC_E_BUSY. *ret_reservation 0: nothing is reserved. KVC_ST_QUOTA: an owner of the
 * namespace is at its hard limit, and no block under it may be evicted. KVC_ST_NOT_WORTH: judged,
 * and a victim is worth more (core_config.admission). */
KVC_WARN_UNUSED int core_reserve(struct core *c, struct core_client *cl,
                                 const struct core_reserve *in, uint64_t *ret_reservation,
                                 uint8_t *statuses, const char **ret_why);

/* Whether new blocks are judged, from now on. */
void core_admission(struct core *c, bool on);
bool core_admission_now(const struct core *c);

/* To be called before core_reserve(), with the payload bytes to be reserved: whether the store
 * should wait, because room is short and the next victims are being written to disk. True: `waiter`
 * is queued, and its fn called from core_run_done() when there is room, or none can be expected;
 * then reserve, without asking again. The caller bounds the wait, and calls core_waiter_cancel()
 * when it ends it. False: go ahead. Always false without a storage tier. Without a waiter (NULL)
 * nothing is queued. */
KVC_WARN_UNUSED bool core_store_must_wait(struct core *c, uint64_t bytes,
                                          struct core_waiter *waiter);

/* What a send, or a commit out of pages, has a device copy. */
struct core_transfer {
    struct device *device;
    struct device_pool *pool;
    struct device_fence after;
    const _Atomic uint64_t *revoked; /* not 0: the worker has taken the pages back; NULL: never */
    uint64_t deadline_ns;

    struct list_node node; /* the core's from here on: linked while it waits for its turn */
    const struct transfer_kind *kind;
    struct core_client *client;
    bool fenced, cancelled;
};

/* One commit in flight. */
struct core_commit {
    struct core_req req;
    uint64_t reservation;
    uint32_t first, n;
    const uint8_t *offsets; /* n x u64 little-endian, borrowed during the call; UINT64_MAX = skip */
    const uint8_t *staging; /* borrowed until done() */
    uint64_t staging_bytes;
    /* Instead of offsets and staging (NULL): pages of a worker's pool, pages_per_block for each
     * entry, in order; borrowed until done(). Entries of a store that are not copied have pages
     * too. */
    const uint32_t *pages;
    uint32_t pages_per_block;
    struct core_transfer transfer; /* its deadline is this one */
    uint64_t deadline_ns;
    uint8_t *statuses; /* n, borrowed until done(); that of an entry that is skipped is not
                        * written */
    void (*done)(struct core_commit *commit); /* once, never from inside core_commit() */
    bool store; /* statuses are those of core_reserve(): only its OK entries are copied, and entries
                 * that are not copied are dropped */

    struct core_client *client; /* the core's from here on */
    uint32_t left;
    uint32_t first_op, last_op;  /* of a commit out of pages, until its copy begins */
    struct reservation *slicing; /* until its last slice */
    uint32_t at, end;
    bool fenced;
};
/* Whether the bytes to be stored are not computed yet: the commit's word has not been reached. */
bool core_commit_is_early(const struct core_commit *commit);
/* Copies reserved blocks in and publishes them. 1: copies are in flight or queued, and done()
 * follows. 0: nothing had to be copied, statuses are final and done() does not run. KVC_E_GONE (no
 * such reservation), KVC_E_BAD_ARGUMENT, KVC_E_BUSY with *ret_why (out of pages: too many blocks
 * wait for words). */
KVC_WARN_UNUSED int core_commit(struct core *c, struct core_client *cl, struct core_commit *commit,
                                const char **ret_why);
/* core_commit() in slices: core_commit_begin() returns 0, then core_commit_step() runs a slice.
 * CORE_MORE: there is another, and done() does not run before it. Offsets are borrowed until the
 * last one. */
KVC_WARN_UNUSED int core_commit_begin(struct core *c, struct core_client *cl,
                                      struct core_commit *commit, const char **ret_why);
KVC_WARN_UNUSED int core_commit_step(struct core *c, struct core_commit *commit);
/* The namespace and group of one of this client's reservations. KVC_E_GONE. */
KVC_WARN_UNUSED int core_reservation(struct core *c, struct core_client *cl, uint64_t reservation,
                                     struct core_ns **ret_ns, uint32_t *ret_group);
/* Whether a durable commit has landed, and waits for nothing but other shards, from other
 * commits. */
bool core_commit_lacks_shards(struct core *c, const struct core_commit *commit);
/* Drops the entries of a reservation that are not committed. KVC_E_GONE. */
KVC_WARN_UNUSED int core_drop(struct core *c, struct core_client *cl, uint64_t reservation);
/* A slice of core_drop(): CORE_MORE, and at last 0. KVC_E_GONE, perhaps after some slices. */
KVC_WARN_UNUSED int core_drop_step(struct core *c, struct core_client *cl, uint64_t reservation);

/* ---- devices ----
 *
 * A block in a slot of a device is a further copy of it: the block is in host memory or on disk as
 * well, so a device that fails loses nothing. Copies are made on request (core_fill_start), of one
 * shard; the device's policy (hbm_policy) says which are evicted when its slots are full. A copy
 * that a lease holds stays until the lease ends. A copy ends with its block, and with its device.
 *
 * Of sends, fills and commits out of pages, device_copies are under way at a time on each device,
 * with a share for each principal. Further sends and commits are queued: clients take turns, each
 * first come, first served. core_run_done() begins them, or ends them when they are cancelled or
 * past their deadline. Copies that wait for a word get at most half of the jobs for one client, and
 * three quarters for all, so that no word delays the others. A fill is not queued: its blocks can
 * be read where they are.
 *
 * With hbm_verify, bytes in host memory are read before a device copies them, and compared with
 * the checksum of the block. A block that differs is CORRUPT, as if core_verify() had found it, and
 * is not copied: a fill leaves it out, and a send's status of it is TIER. */

/* Copies of a lease's blocks on a device; embedded in its owner's memory until done() has run. */
struct core_fill {
    uint64_t lease;
    uint32_t device; /* number */
    uint32_t shard;
    uint64_t deadline_ns;
    void (*done)(struct core_fill *f); /* once, never from inside core_fill_start() */

    uint32_t ret_blocks;   /* blocks of the lease that it holds on the device now */
    struct list_node node; /* the core's from here on */
    uint32_t left, next;
};
/* Copies to the device the blocks of the lease that are not there, as far as there is room; a lease
 * may be filled on one device. 1: copies are in flight, done() follows. 0: nothing had to be, or
 * can be, copied, and ret_blocks is final. KVC_E_NO_LEASE, KVC_E_BAD_ARGUMENT (device, shard; a
 * second device), KVC_E_BUSY (others copy, or wait). A device that is out of service is no error:
 * ret_blocks is 0. If the client is closed or the lease released meanwhile, done() follows all the
 * same. */
KVC_WARN_UNUSED int core_fill_start(struct core *c, struct core_client *cl, struct core_fill *f);
/* Forgets a fill: done() does not run any more. Copies in flight end by themselves. */
void core_fill_cancel(struct core *c, struct core_fill *f);
/* core_lease_locs() of a lease that was filled, or was given with core_seq.on. Where the lease
 * holds a block on the device, the view is of the slot there (device_of_chunk() is not 0), else of
 * host memory. KVC_E_GONE, perhaps after some calls: core_lease_is_lost(). */
KVC_WARN_UNUSED int core_lease_locs_hbm(struct core *c, struct core_client *cl, uint64_t lease,
                                        uint32_t shard, core_loc_fn *fn, void *ctx);

/* Whether bytes of one of the lease's blocks turned out to be wrong since the lease began. Its
 * locations are not to be told any more: they would carry the present generation. */
bool core_lease_is_corrupt(struct core *c, struct core_client *cl, uint64_t lease);
/* Whether rank `shard` can read one of the lease's blocks nowhere any more: it was in a slot alone,
 * and that slot is void. */
bool core_lease_is_lost(struct core *c, struct core_client *cl, uint64_t lease, uint32_t shard);

/* A send: blocks of a lease are copied to a worker's pages. Nothing touches these any more when
 * done() runs. */
struct core_send {
    struct core_req req;
    uint64_t lease;                /* in use until done(), even if it is released meanwhile */
    struct core_transfer transfer; /* the pool's groups are the namespace's */
    uint32_t shard;
    struct {
        const uint32_t *pages; /* for the lease's blocks of this group, in order; borrowed */
        uint32_t pages_per_block;
    } group[KVC_GROUPS_MAX];
    /* *ready = ready_value + layers that are complete, the groups' layers one after the other;
     * NULL: nobody waits for layers. */
    _Atomic uint64_t *ready;
    uint64_t ready_value;
    uint8_t *statuses; /* one per block of the lease, in order of groups and blocks: OK, TIER,
                        * BAD_ARGUMENT (a page number), TIMEOUT, CANCELLED; borrowed until done() */
    void (*done)(struct core_send *s); /* once, never from inside core_send_start() */

    uint32_t left; /* the core's */
};
#define CORE_SEND_BLOCKS 4096u
/* Copies blocks from the device's slots where they are there, else from host memory; the status of
 * a block that is in neither any more is TIER. 1: copies are in flight or queued; 0: the lease has
 * no blocks. KVC_E_NO_LEASE, KVC_E_BAD_ARGUMENT with *ret_why (the pool does not fit the
 * namespace), KVC_E_TOO_LARGE (more than CORE_SEND_BLOCKS). */
KVC_WARN_UNUSED int core_send_start(struct core *c, struct core_client *cl, struct core_send *s,
                                    const char **ret_why);

struct core_hbm_stats {
    uint64_t blocks, bytes;      /* copies on the device */
    uint64_t hits, fills, drops; /* blocks that fills found there; copied; evicted for others */
};
void core_hbm_stats(const struct core *c, uint32_t device, struct core_hbm_stats *ret_stats);

/* ---- wishes for stored blocks, advice ---- */

/* Adds a wish for the blocks that the prefix of seq needs and that end after from_tokens, as far as
 * they are stored, in whatever tier. `set`: earlier wishes for them are forgotten, and
 * {RETAIN_DEFAULT, RETAIN_FOR_EVER} then is no wish at all. No use is counted. Returns how many
 * blocks; KVC_E_BAD_ARGUMENT with *ret_why. */
KVC_WARN_UNUSED int core_wish(struct core *c, const struct core_seq *seq, uint32_t from_tokens,
                              const struct core_wish *wish, bool set, const char **ret_why);
/* Passes a hint on a chain to the policy: for those stored blocks of seq that no other chain
 * shares. Wrong advice costs hits, nothing else. SOON also begins to load what is on disk. Returns
 * how many blocks it was for; KVC_E_BAD_ARGUMENT with *ret_why. */
KVC_WARN_UNUSED int core_advise(struct core *c, const struct core_seq *seq,
                                enum policy_advice advice, uint32_t within_ms,
                                const char **ret_why);

/* ---- pins ----
 *
 * A pin keeps blocks on request: they are not evicted, and not reclaimed by storage, whoever wants
 * room, until the pin ends: by its TTL, or on request. It belongs to its namespace's principal and
 * tenant, outlives sessions, and ends with the daemon. With storage, a pinned block is written
 * there as for a durable commit; that copy's promise too lasts as long as some pin. */

struct core_pin {
    struct core_seq seq;
    bool in_memory;  /* its copy in memory stays too; a block that is not there is loaded, now or
                      * when there is room. False: its last copy stays, wherever it is */
    uint64_t ttl_ms; /* 0: without end */
    bool of_name;    /* it is part of a name: it ends with the name, and no client sees it */
};
struct core_pinned {
    uint64_t id;     /* never 0, never used again */
    uint32_t tokens; /* the prefix that was stored, and is pinned */
    uint32_t blocks; /* of all groups, each block once, however often its key is there */
    uint64_t bytes;  /* of these blocks */
};
/* Pins the prefix of seq that is stored now, in whatever tier. All at once or not at all.
 * KVC_E_GONE: nothing is stored. KVC_E_PIN_LIMIT: over the tenant's budget, in which each block
 * counts once per tenant, or pins in memory would leave hardly any of it. KVC_E_QUOTA: more would
 * have to stay than a hard limit or the guarantees of others allow. KVC_E_LIMIT: pins_max, the pool
 * of their lists, or a block that is in 255 pins already. */
KVC_WARN_UNUSED int core_pin(struct core *c, const struct core_pin *in,
                             struct core_pinned *ret_pinned, const char **ret_why);
/* Ends a pin. cl: the asker, who may end pins of its principal, or any as an administrator, but
 * those of names; NULL: the daemon. 0. CORE_MORE: nobody sees the pin any more, and its blocks are
 * released in slices: core_unpin_step(), or core_placement_step() by itself. KVC_E_NO_NAME: there
 * is no such pin, or no right to it. */
KVC_WARN_UNUSED int core_unpin(struct core *c, const struct core_client *cl, uint64_t id);
struct core_pin_view {
    uint64_t id, bytes, left_ms; /* left_ms 0: without end */
    uint32_t ns, tokens, blocks;
    const char *principal, *tenant, *sub; /* sub: its namespace's, or "" */
    bool in_memory;
    struct key256 tip; /* the last block of group 0 that is pinned, zero if none */
};
/* The next pin behind *cursor (0 at first) that the client may see (NULL: all); false: no more.
 * Pins that begin or end meanwhile may be missed; each is told once. */
bool core_pin_next(struct core *c, const struct core_client *cl, uint64_t *cursor,
                   struct core_pin_view *ret_view);
/* Sets the budget of each tenant from now on; 0: no limit. Pinned blocks stay. */
void core_pin_budget(struct core *c, uint64_t bytes_max);
uint64_t core_pin_budget_now(const struct core *c);

/* ---- quotas ---- */

/* A quota, for all blocks of a tenant, of one of its sub-tenants in all namespaces, or of one
 * namespace. Bytes are payload bytes for which room is taken: announced, being copied, or
 * stored. */
struct core_quota {
    uint8_t scope;               /* enum kvc_scope: TENANT, SUB, NS */
    const char *tenant, *sub;    /* borrowed; of TENANT and SUB */
    uint32_t ns;                 /* of NS; the quota ends with the namespace */
    struct retain_quota bytes;   /* tier 0: host memory, 1: disk */
    uint64_t held[RETAIN_TIERS]; /* in answers only; bound: as in core_ns_view */
    uint64_t bound[RETAIN_TIERS];
};
/* Sets, changes, or (no limits, no shares) removes a quota. It may name a tenant that has no blocks
 * yet. A limit below the bytes held refuses new blocks at once, and is reached by evicting in the
 * background. A share above the limit is KVC_E_BAD_ARGUMENT. KVC_E_NO_NAMESPACE; KVC_E_LIMIT
 * (RETAIN_OWNERS - 1 quotas); KVC_E_BUSY (a removed quota is not empty yet; again later). */
KVC_WARN_UNUSED int core_quota_set(struct core *c, const struct core_quota *quota);
/* Bytes that all shares together guarantee in a tier, with this quota in the place of the one that
 * it would replace, if any; NULL: as they are. A tenant's share contains those of its sub-tenants
 * and namespaces. */
uint64_t core_quota_promised(struct core *c, unsigned tier, const struct core_quota *with);
/* How many bytes of a tier can be guaranteed; UINT64_MAX: there is no such tier. */
uint64_t core_tier_shareable(const struct core *c, unsigned tier);
/* The next quota behind *cursor (0 at first); its texts are borrowed until the next call of
 * core_quota_set(). false: no more. */
bool core_quota_next(const struct core *c, uint32_t *cursor, struct core_quota *ret_quota);

/* The eviction policy of this run. */
const struct policy_ops *core_policy(const struct core *c);

/* Rules that may be set while the daemon runs. */
struct core_rules {
    uint32_t keep_percent;
    bool load_or_recompute;
    bool admission;
    uint64_t pin_bytes_max;
};
struct core_policy_view {
    struct core_rules now, start;               /* start: as the daemon began */
    bool hints, admits;                         /* the policy heeds hints; it judges new blocks */
    bool pins;                                  /* pins are taken */
    uint64_t hinted[POLICY_ADVICE_COUNT];       /* hints given, by kind */
    uint64_t disk_bytes_per_s, disk_latency_ns; /* learned from loads; 0: nothing yet */
    uint64_t level_blocks[RETAIN_MAX + 1];      /* number of blocks kept at each level */
};
void core_policy_view(const struct core *c, struct core_policy_view *ret_view);

/* The percentage of what is on disk that is not worth writing again when storage wants its room. */
void core_keep_percent(struct core *c, uint32_t percent);
uint32_t core_keep_percent_now(const struct core *c);

/* ---- operation ---- */

/* One piece of a walk: through a chain, a tree of chains, the roots of a group, or for some
 * keys. */
struct core_walk {
    uint32_t ns, group; /* ns 0 (MATCH, KEYS): all that the client may see */
    uint8_t mode;       /* enum kvc_walk_mode */
    const uint8_t *key; /* where UP and DOWN begin; what MATCH compares; the first of KEYS */
    uint32_t keys;      /* KEYS: how many */
    uint32_t depth;     /* DOWN: levels below the key; 0 = all. MATCH: bits of the key */
    uint32_t limit;     /* blocks, at most */
    uint32_t *places;   /* KEYS: namespaces and groups to look at, at most, but one key; those
                         * looked at are subtracted */
    uint64_t cursor;    /* 0 = the start, else *ret_cursor of the piece before */
};
/* Calls fn for each block of the piece; the work is bounded. *ret_cursor: where the next piece
 * begins, 0 at the end. For a key that is not cached fn is not called, but with KEYS once, with the
 * reason. KVC_E_NO_NAMESPACE; KVC_E_BAD_ARGUMENT (group); KVC_E_GONE: another block is where the
 * walk stood, so it has to start again. */
KVC_WARN_UNUSED int core_walk(struct core *c, const struct core_client *cl,
                              const struct core_walk *in,
                              void (*fn)(void *ctx, const struct kvc_block_info *), void *ctx,
                              uint64_t *ret_cursor);

/* Limits of one slice: so many blocks, and no further one is begun once so many bytes are being
 * read. */
#define CORE_VERIFY_BLOCKS 64u
#define CORE_VERIFY_BYTES  (UINT64_C(16) << 20)
/* Slices under way at a time: one per client; in all these, or one per principal if those are
 * more, shared fairly among principals. */
#define CORE_VERIFY_SLICES 4u

/* A block whose bytes are not those that were stored, as core_verify.corrupt is told. */
struct core_corrupt {
    const struct key256 *key; /* borrowed during the call */
    uint32_t ns, group, shard;
    uint32_t below;        /* blocks that build on it, dropped with it */
    bool kept;             /* another copy of it stays, and what builds on it */
    struct tier_view view; /* where the bytes were read; zero for a copy on disk */
};

enum core_verify_what { CORE_VERIFY_HOST, CORE_VERIFY_DISK, CORE_VERIFY_HBM };

/* One slice of a verification: a walk by record number over PRESENT blocks, which reads each again
 * and compares its checksum. A corrupt block is removed at once, with what builds on it; a lease on
 * it keeps its room, and readers see KVC_STALE. A block that is being read stays; at most an eighth
 * of all PRESENT blocks is read by one slice, half by all.
 *
 * HBM: copies in slots of devices, each counted as a block. A corrupt copy is dropped alone. If a
 * device fails meanwhile, its reads end as failed, and its copies are not looked for any more. */
struct core_verify {
    struct core_req req;
    uint32_t ns;        /* 0 = all that the client may see */
    uint8_t tier;       /* enum core_verify_what */
    uint64_t cursor;    /* 0 = the start, else ret_cursor of the slice before */
    uint64_t bytes_max; /* no further block is begun once so much, or the limit, is being read */
    uint64_t deadline_ns;
    struct core_client *client;
    void (*corrupt)(struct core_verify *v, const struct core_corrupt *x); /* before done() */
    void (*done)(struct core_verify *v); /* once, never from inside core_verify_start() */

    uint64_t ret_cursor;  /* 0 = the end */
    uint64_t ret_bytes;   /* read */
    uint32_t ret_blocks;  /* blocks of which every shard was read */
    uint32_t ret_skipped; /* being written, read by too many others, cancelled, or out of time */
    uint32_t ret_failed;  /* could not be read */

    uint32_t left; /* the core's from here on: blocks */
    struct {
        uint16_t left;   /* shards */
        uint8_t verdict; /* the worst so far */
    } block[CORE_VERIFY_BLOCKS];
};
/* Begins a slice. 1: blocks are being read, done() follows. 0: the slice has no blocks, the results
 * are final and done() does not run. KVC_E_BUSY: the client has one under way, or its principal's
 * share of them is. */
KVC_WARN_UNUSED int core_verify_start(struct core *c, struct core_verify *v);

/* The block's memory in the host tier is lost, and its bytes are not those that were stored. Its
 * copy there is dropped, and the block removed if it has no other copy; a block in use stays until
 * this is called again. */
void core_host_lost(struct core *c, uint32_t block_no);

/* Bytes of blocks, by tier; a block with copies in several counts in each. */
struct core_places {
    uint64_t host, disk, hbm; /* hbm: on devices */
};

/* A wait until the removals so far outlive a crash. Zeroed before its first use. */
struct core_gone {
    struct list_node node; /* the core's: queued until fn is called or core_gone_cancel() */
    void (*fn)(struct core_gone *g, int err); /* from core_placement_step(). 0; KVC_E_TIER: removed,
                                               * but storage does not say that it stays away */
};
/* Queues a wait. One wait of storage serves all that are queued when it begins. */
void core_gone_await(struct core *c, struct core_gone *g);
void core_gone_cancel(struct core_gone *g);

struct core_evict_job {
    struct core_req req;
    uint32_t ns; /* 0 = any that the client may evict from */
    bool have_key;
    struct key256 key;
    uint64_t older_than_ms, bytes;
    const char *tenant, *sub, *model; /* NULL: any; live as long as the job */
    uint32_t level_below;             /* only blocks of a lower level; 0: any */
    bool dry_run;
    bool force; /* pinned and named blocks too; never one that is leased or being written */
    struct core_client *client; /* whose rights count; closing it ends the job */
    void (*done)(struct core_evict_job *job);

    uint64_t ret_blocks, ret_bytes, ret_kept; /* results */
    struct core_places ret_in;
    int ret_err;           /* as core_gone.fn's */
    bool evicted;          /* the core's: all is evicted, and `gone` is queued */
    struct core_gone gone; /* the core's */
    struct list_node node; /* the core's */
    uint32_t phase, cursor;
    uint32_t next, next_gen; /* where the walk of the tree at the cursor continues */
    uint32_t place;          /* for a job by key: the namespace and group being searched */
    bool marked;             /* what is in use is marked before the first eviction */
    uint64_t age_bytes[64];
    uint32_t age_floor;
};
/* Begins an eviction, which runs in slices from core_placement_step(). done() runs there, once,
 * when the removals outlive a crash. A dry run finds what would be evicted if nothing else happened
 * meanwhile. */
void core_evict_start(struct core *c, struct core_evict_job *job);

/* Begins to write blocks that only host memory has to disk, until bytes_max are in flight, as far
 * as the write budget allows. Returns the payload bytes that are not on disk yet: the caller calls
 * again until these are 0, or do not shrink any more. *ret_quota: the part of them that quotas on
 * disk keep off it, as far as the last look at all blocks found; no room is made under a quota. 0
 * without a storage tier. */
uint64_t core_drain_disk(struct core *c, uint64_t bytes_max, uint64_t *ret_quota);

/* Checks the rules named at the top over everything; MUSTs. For tests; slow. */
void core_check(struct core *c);

#endif
