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
 *  - room is taken from the tier before a block is announced; memory that a lease or a copy uses is
 *     given back when the last of them has ended; room on disk does not wait for leases;
 *  - a pinned block is never evicted for room: it is removed when an operator forces that, when its
 *     bytes are wrong or lost, and with a block before it that its writer drops;
 *  - no owner has more room than its hard limit; one that had more when the limit was set gets no
 *     more room.
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
struct core_client; /* one session: holder of leases, reservations and copies in flight */
struct core_ns;
struct kvc_block_info;

/* Tiers that have room of their own for blocks. Storage may be several tiers behind each other
 * (daemon/tier/stack.h). Devices have copies only of blocks that one of these tiers has too. */
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
    uint64_t lease_bytes_max; /* payload bytes that one client may lease */
    uint64_t claim_bytes_max; /* payload bytes that one client may have reserved and not committed;
                               * 0: no limit */
    uint64_t progress_ms;     /* after so long without a commit a writer is late: others may take
                               * its blocks over. A fast writer is late sooner; 0: never */
    /* Whether every client is promised an equal part of half of each pool, and every principal such
     * a part of the slots for namespaces (share.h). False: first come, first served.
     * principals_max: the highest number of a principal. */
    bool fair;
    uint32_t principals_max;
    const struct policy_ops *policy;
    uint64_t policy_seed;   /* seed of the policy's random numbers */
    bool load_or_recompute; /* whether loading is weighed against recomputing;
                             * core_load_or_recompute() changes it */
    bool admission;         /* without storage: a block of less worth than its victims is not
                             * stored; core_admission() changes it */
    uint32_t pins_max;      /* pins at a time; 0: none are taken */
    uint64_t pin_bytes_max; /* pinned bytes of one tenant; 0: no limit */
    /* By enum core_tier, the fastest first; borrowed. [CORE_STORAGE] NULL: there is no storage. */
    struct tier *tier[CORE_TIERS];
    /* Devices, numbered from 0; borrowed. hbm_max: how many copies of blocks all devices together
     * may have in slots; hbm_policy: the order in which a device evicts its copies. */
    struct device *const *devices;
    uint32_t ndevices;
    uint32_t hbm_max;
    const struct policy_ops *hbm_policy;
    uint32_t device_copies; /* requests that copy at a time, on each device; 0: 256 */
    uint32_t slice_work;    /* work of one slice, in core_work() units; 0: 1024, which takes 100 to
                             * 200 us */
    bool hbm_verify; /* before a device copies a block from host memory, its bytes are compared with
                      * their sum */
    struct key256 secret; /* the daemon's; prints and seeds of namespaces are digests over it */
};

/* The bytes that core_create() will allocate, by table, for the budget that the daemon prints. */
struct core_budget {
    uint64_t blocks, table, ghosts, parts, policy, retain, leases, namespaces, commits, clean, pins,
        names, hbm;
};
void core_budget(const struct core_config *config, struct core_budget *ret_budget);
/* Bytes of index per block: record, table, ghosts, shard parts, policy, retention, ring of clean
 * blocks, lists of pinned blocks. */
double core_bytes_per_block(const struct core_config *config);

/* Creates the core; `config` is copied. 0; -EINVAL: blocks_max or namespaces_max is out of bounds;
 * else what an allocation returned. */
KVC_WARN_UNUSED int core_create(const struct core_config *config, struct core **ret_core);
/* Destroys the core and sets *core to NULL. No client may be left, and core_is_still() must hold.
 * Accepts a pointer to NULL. */
void core_destroy(struct core **core);
/* ---- restart: recovery of what the run before has left ---- */

/* A namespace outlives a run as a record: bytes with a checksum, at most so many. */
#define CORE_NS_RECORD_MAX 4000u
/* Writes the record of the namespace with this print (tier_label.print). Returns its number of
 * bytes; 0: there is no such namespace. */
uint32_t core_ns_record(const struct core *c, uint64_t print,
                        uint8_t ret_record[CORE_NS_RECORD_MAX]);
/* Makes the namespace of a record again; no error if it is there already. `who` returns the
 * present identity of the principal with this name, or NULL if there is none. KVC_E_GONE: the
 * record is damaged. KVC_E_DENIED: there is no such principal, or the print differs with this
 * secret and tenant. In both cases its blocks cannot be used. */
typedef const struct core_identity *(core_who_fn)(void *ctx, const char *principal);
KVC_WARN_UNUSED int core_ns_restore(struct core *c, const uint8_t *record, uint32_t bytes,
                                    core_who_fn *who, void *ctx);
/* The principal and tenant that a record names. KVC_E_GONE: the record is damaged. */
KVC_WARN_UNUSED int core_ns_record_principal(const uint8_t *record, uint32_t bytes,
                                             char ret_principal[KVC_PARAMS_MAX],
                                             char ret_tenant[KVC_PARAMS_MAX]);
/* Writes the next prints of namespaces to ret_print, at most n, and moves *cursor on (0 at first).
 * Returns how many it wrote; 0: no more. */
uint32_t core_ns_prints(const struct core *c, uint32_t *cursor, uint64_t *ret_print, uint32_t n);
/* Grows whenever a namespace is made or removed. */
uint64_t core_ns_changes(const struct core *c);

struct core_found {
    struct tier_label label; /* ns is ignored: the print names the namespace */
    uint32_t bytes;          /* payload of this shard */
    struct tier_loc loc;
    bool in_host;    /* true: loc is in host memory; false: on disk */
    uint32_t age_ms; /* time since its last use, as far as is known */
};
/* core_recover() of a block with this label follows soon: prefetches what it reads. */
void core_recover_soon(const struct core *c, const struct tier_label *label);
/* Recovers one shard of a block of the run before, found in one tier. The order of calls does not
 * matter. 0, and the number of the block's record in *ret_block_no, by which the tier names the
 * block from now on. After an error the tier frees what is at loc. KVC_E_GONE: there is no such
 * namespace or group, or its blocks have another size; KVC_E_FULL: the index is full;
 * KVC_E_TOO_LARGE. A copy found in host memory is checked at its first use. */
KVC_WARN_UNUSED int core_recover(struct core *c, const struct core_found *found,
                                 uint32_t *ret_block_no);
/* Ends recovery, after the last core_recover(): chains are linked; blocks without their ancestors,
 * or without all their shards, are removed. Returns the number of blocks that remain. */
uint32_t core_recover_end(struct core *c);

/* The work that core has done since its start. A request of many keys does its work in slices
 * (core_reserve_step() and the like); between two slices other requests may change anything. Work
 * is counted, not timed, so that a simulation repeats itself: looking up a key is one unit. */
uint64_t core_work(const struct core *c);
/* The core's large tables, for a caller that faults their memory in before use. Unused ranges have
 * no bytes. */
#define CORE_RANGES 10u
void core_memory(const struct core *c, struct sys_range ret[CORE_RANGES]);
#define CORE_MORE 2 /* returned by a slice that is not the last */

/* From now on no move of a block between tiers begins. For the end of the daemon, when no client is
 * left. */
void core_stop(struct core *c);
/* Whether no operation is in flight that would call core at its end. Only then the core may be
 * destroyed, because tiers end their operations when they are destroyed. */
bool core_is_still(const struct core *c);
/* Sets the core's time. Called once a turn, before anything else. now_ns never goes back. */
void core_tick(struct core *c, uint64_t now_ns);
/* Looks at promises and at the queues of devices. Then calls waiters of the done queue, until they
 * may have looked at a bounded number of keys; the next turn calls the rest. Returns how many
 * waiters were called. */
unsigned core_run_done(struct core *c);
/* Whether core_run_done() or core_background_step() has something to do that a request waits for.
 */
bool core_has_done(const struct core *c);
/* Whether core_background_step() has something to do at once, perhaps begun by a request after its
 * last call. */
bool core_has_steps(const struct core *c);
/* The time at which the next step has something to do, if none has now; UINT64_MAX: no step waits
 * for time alone. */
uint64_t core_next_ns(const struct core *c);
/* Runs one bounded step of background work; true: there is more. */
bool core_background_step(struct core *c);

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
/* A namespace that resembles another one. */
struct core_similar {
    uint32_t ns;     /* its id */
    uint32_t fields; /* bit set of enum kvc_ns_field: the fields that differ */
};

/* Finds or makes the namespace of a specification. KVC_E_UNSOUND, KVC_E_BAD_ARGUMENT,
 * KVC_E_TOO_LARGE, KVC_E_DENIED with *ret_why (static text). KVC_E_LIMIT: the principal has its
 * share of the slots, and each of its namespaces has blocks. A slot is made free by removing an
 * empty namespace: the one that was used longest ago, of this principal or of one that is not
 * attached. *ret_nsimilar: the number of namespaces in ret_similar, at most 4: those of the same
 * principal and model that differ in other fields. */
KVC_WARN_UNUSED int core_ns_open(struct core *c, struct core_client *cl,
                                 const struct core_ns_spec *spec, struct core_ns **ret_ns,
                                 struct core_similar *ret_similar, uint32_t *ret_nsimilar,
                                 const char **ret_why);
/* Finds the namespace of this id for a reader, and creates none. With `sub` *ret_ns is the
 * namespace of that sub-tenant; NULL: it has none, so nothing of it is cached. *ret_base: the
 * namespace of this id. KVC_E_NO_NAMESPACE, KVC_E_DENIED, KVC_E_BAD_ARGUMENT. */
KVC_WARN_UNUSED int core_ns_find(struct core *c, struct core_client *cl, uint32_t id,
                                 const uint8_t *sub, uint32_t sub_bytes, struct core_ns **ret_ns,
                                 struct core_ns **ret_base);
/* core_ns_find() for writers: a sub-tenant's namespace is created when absent, which may give
 * KVC_E_LIMIT. */
KVC_WARN_UNUSED int core_ns_get(struct core *c, struct core_client *cl, uint32_t id,
                                const uint8_t *sub, uint32_t sub_bytes, struct core_ns **ret_ns);
/* For so many namespaces a client's stated cost is kept: those that it opened last. */
#define CORE_COSTS 32u
/* The cost that the client stated when it opened the namespace of this id; unknown if it stated
 * none, or has opened CORE_COSTS others since. The cost counts for this client's requests alone,
 * and is forgotten with the client. */
struct core_cost core_ns_cost(const struct core_client *cl, uint32_t id);
/* Whether there is a namespace of this id that the client may see. */
bool core_ns_exists(struct core *c, const struct core_client *cl, uint32_t id);
/* Whether guaranteed shares of memory can be kept although a namespace's blocks have their size,
 * and how much of memory these blocks can fill. */
struct core_share_risk {
    uint64_t fill, limit, large;    /* blocks of `large` bytes can fill `fill` of `limit` bytes */
    uint64_t chunks_needed, chunks; /* chunks that all shares need; chunks of memory */
    bool mixed; /* an owner of its principal has a share, and another one has blocks of other
                 * sizes */
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
    uint64_t print;              /* tier_label.print of its blocks */
    uint64_t blocks, bytes;      /* number of PRESENT blocks, and their payload bytes */
    uint64_t held[RETAIN_TIERS]; /* bytes of room taken in host memory, on disk; as quotas count
                                  * them */
    uint64_t pinned_bytes;       /* each block counts once */
    uint64_t leased_bytes;       /* each block counts once for each lease */
    uint64_t named_bytes;        /* bytes of blocks that names reach; each block counts once */
    uint64_t hbm_bytes;          /* bytes of slots on devices; no quota counts them */
    /* Bytes of blocks that are not evicted for room: in host memory for pins; on disk for pins,
     * names and durable commits. Blocks that are still to be written to disk count too, those of a
     * commit from its beginning. */
    uint64_t bound[RETAIN_TIERS];
};
void core_ns_view(const struct core_ns *ns, struct core_ns_view *ret_view);

/* ---- clients ---- */

/* Opens a client. `idle` is called once, after core_client_close(), when no copy touches the
 * client's staging any more and all that it had is released; perhaps inside core_client_close().
 * The client is freed before. KVC_E_LIMIT: clients_max are open. */
KVC_WARN_UNUSED int core_client_open(struct core *c, const struct core_identity *who,
                                     void (*idle)(void *ctx), void *ctx,
                                     struct core_client **ret_client);
/* Ends the client: releases its leases, drops its reservations, cancels its requests and copies. */
void core_client_close(struct core *c, struct core_client *cl);
/* Drops reservations and cancels copies now, but keeps the leases: for a session that the daemon
 * ends while its process may still be reading. core_client_close() follows later. */
void core_client_quarantine(struct core *c, struct core_client *cl);
uint64_t core_client_lease_bytes(const struct core_client *cl);
struct core_client_view {
    uint32_t leases, reservations;
    uint64_t leased_bytes, reserved_bytes;
    uint64_t lease_age_ms, reservation_age_ms; /* ages of the oldest lease and reservation */
};
void core_client_view(const struct core *c, const struct core_client *cl,
                      struct core_client_view *ret_view);

/* A request that the client has under way, and that the end of the client cancels: a commit, send,
 * verification or evict job. It is embedded in the caller's memory until done() has run. */
struct core_req {
    struct list_node node; /* the core's from here on; linked while the request is under way */
    const struct core_req_kind *kind;
};
/* Asks a request to stop; does nothing if it is not under way. done() still follows when its copies
 * and reads have ended; inside this call only for a commit between two slices. An evict job is
 * forgotten: its done() does not run. */
void core_cancel(struct core *c, struct core_req *req);

/* ---- reading ---- */

/* A sequence of tokens, as keys of its blocks. */
struct core_seq {
    struct core_ns *ns;
    bool absent; /* the sub-tenant has no namespace, so nothing is cached; ns is its base, which
                  * says how to read the keys */
    uint32_t tokens;
    uint32_t ngroups;
    const uint8_t *keys[KVC_GROUPS_MAX]; /* by group: n keys of KVC_KEY_BYTES each; borrowed */
    uint32_t n[KVC_GROUPS_MAX];
    bool worth;            /* the prefix ends where computing again is quicker than loading */
    struct core_cost cost; /* the asker's cost of prefill, with which loading is compared */
    /* The device on which the asker reads rank on_shard's part, or from which the part is copied. A
     * block whose part is in a slot there counts as in memory, and is not loaded. For
     * core_acquire() and core_prefetch(). NULL: host memory is read. */
    const struct device *on;
    uint32_t on_shard;
};
/* How much of a sequence is cached, and why not more. */
struct core_prefix {
    uint32_t tokens;
    uint32_t cached_tokens; /* what is cached in any tier, worth loading or not */
    uint64_t load_ns;       /* an estimate of how long loading `tokens` takes now */
    struct {
        uint32_t blocks; /* how many leading blocks of the group the prefix has */
        uint8_t reason;  /* enum kvc_miss: why the prefix has no more of them */
        uint32_t detail; /* more on the reason: see enum kvc_miss */
    } group[KVC_GROUPS_MAX];
};
/* Returns why the sequence does not fit its namespace; NULL: it fits. */
const char *core_seq_fault(const struct core_seq *seq);
/* Finds the cached prefix of a sequence. With `touch` the policy is told as of an acquire; without,
 * the lookup changes nothing. KVC_E_BAD_ARGUMENT with *ret_why: the sequence does not fit its
 * namespace. */
KVC_WARN_UNUSED int core_lookup(struct core *c, const struct core_seq *seq, bool touch,
                                struct core_prefix *ret_prefix, const char **ret_why);

/* A request that waits: for a block, for loads, or for room. Embedded in the caller's memory,
 * zeroed before its first use; the caller sets fn, core the rest. After fn was called the waiter
 * may still hold loaded blocks, until the request asks again with it, or core_waiter_cancel(). */
struct core_waiter {
    struct list_node node;
    /* Called from core_run_done(); the request asks again then. */
    void (*fn)(struct core_waiter *w);
    uint32_t block, gen, keys; /* the block that it waits for; keys to be looked up when it asks
                                * again */
    uint64_t bytes;            /* of a store: room that it waits for; 0: it waits for no room */
    struct core_load *load;    /* the load that holds blocks for it; NULL: none */
    /* When its loads began: tokens that were in memory, that were worth loading, and that were
     * cached. */
    uint32_t in_memory, worth, cached;
    /* How many leading blocks of its chain were there, and the last of them. chained: each builds
     * on the one before, so all are there as long as the last one is. */
    uint32_t lead, last, last_gen;
    bool chained;
};

/* The answer to an acquire. */
struct core_held {
    struct core_prefix prefix;
    uint64_t lease; /* 0: the prefix has no block to lease */
    uint8_t ticket[KVC_TICKET_BYTES];
    uint32_t ngroups;
    struct {
        uint32_t first, n; /* the leased blocks of the group: place of the first, and number */
    } group[KVC_GROUPS_MAX];
};
struct core_acquire {
    struct core_seq seq;
    uint32_t from_tokens, wait_tokens; /* only blocks that end after from_tokens are leased; with
                                        * `wait` a prefix of wait_tokens is enough, 0: of all */
    bool wait;                         /* waits for blocks that are being written */
    bool load;      /* blocks that are not in memory are loaded, and waited for */
    bool read_only; /* changes nothing: no block is touched, and the policy is not told; not
                     * together with `load` (KVC_E_BAD_ARGUMENT) */
    bool unasked;   /* no engine's request asks for it: its blocks count as used, but not as asked
                     * for, and the policy learns nothing */
};
/* Makes a lease on the cached prefix of a sequence. 0, or KVC_E_BAD_ARGUMENT, KVC_E_LIMIT (lease
 * bytes), KVC_E_BUSY (a pool is empty). The policy is told of an acquire that returns 0.
 *
 * With `load` and a prefix that is not all in memory: without a waiter 1 is returned, nothing is
 * done, and the caller asks again with a waiter. With one the loads begin, 1 is returned and the
 * waiter is queued; it is called when all blocks are in memory, or no further one can be loaded.
 * The caller then asks again without `load`: the prefix that is in memory by then is the answer. It
 * does the same at its deadline, after core_waiter_cancel(), which releases the held blocks; reads
 * that are under way go on.
 *
 * With `wait` and a prefix that may still grow: returns 1, the waiter is queued and nothing is
 * leased. With seq.on the lease holds slots of that device, from its beginning on, for blocks that
 * are not in host memory; while blocks are loaded for it, the waiter holds these slots. */
KVC_WARN_UNUSED int core_acquire(struct core *c, struct core_client *cl,
                                 const struct core_acquire *in, struct core_waiter *waiter,
                                 struct core_held *ret_held, const char **ret_why);
/* For a waiter that was called. True: it is queued again, because the next block of its chain is
 * being written (again); blocks before that one are not looked up. False: the caller asks again. */
KVC_WARN_UNUSED bool core_wait_again(struct core *c, const struct core_acquire *in,
                                     struct core_waiter *waiter);

/* Begins to load blocks that a lookup of seq finds and memory lacks: at most bytes_max, as far as
 * there is room and few loads are in flight. No request waits for them. Returns the number of
 * blocks that are being loaded. */
uint32_t core_prefetch(struct core *c, const struct core_seq *seq, uint64_t bytes_max);
/* Sets whether loading is weighed against recomputing from now on. */
void core_load_or_recompute(struct core *c, bool on);
bool core_load_or_recompute_now(const struct core *c);
/* Ends the wait, and releases the blocks that the waiter holds. No error if it neither waits nor
 * holds any. */
void core_waiter_cancel(struct core *c, struct core_waiter *waiter);
/* Makes a second lease on the blocks of the lease with this ticket, for another session of its
 * principal. KVC_E_NO_LEASE: there is no such lease, or one of its blocks is on the first lease's
 * device and not in host memory. */
KVC_WARN_UNUSED int core_redeem(struct core *c, struct core_client *cl,
                                const uint8_t ticket[KVC_TICKET_BYTES], struct core_held *ret_held);
/* Calls fn with the place in host memory of `shard` of each of the lease's blocks, in order of
 * groups and blocks. KVC_E_GONE, perhaps after some calls: a block is not in host memory, but on a
 * device. KVC_E_NO_LEASE; KVC_E_BAD_ARGUMENT (shard). */
typedef void(core_loc_fn)(void *ctx, const struct tier_view *view);
KVC_WARN_UNUSED int core_lease_locs(struct core *c, struct core_client *cl, uint64_t lease,
                                    uint32_t shard, core_loc_fn *fn, void *ctx);
/* Ends a lease. KVC_E_NO_LEASE: the client has no such lease. While fills and sends of the lease
 * are under way its blocks stay, and count for the client. */
KVC_WARN_UNUSED int core_release(struct core *c, struct core_client *cl, uint64_t lease);

/* ---- writing ---- */

/* A wish for how long blocks stay. Levels are 0 to RETAIN_MAX (kvc: priorities). Blocks of lower
 * levels are evicted first, from memory and from disk. */
struct core_wish {
    uint32_t level;
    uint64_t duration_ms; /* RETAIN_FOR_EVER: without end */
};
struct core_range {
    uint32_t first_token, end_token; /* tokens of the sequence; end_token 0: up to its end */
    struct core_wish wish;
};
/* Wishes for the blocks of a store. A block gets the wish of the first range that has one of its
 * tokens, so ranges are rounded outward to blocks; or none. These rules hold, where documents of
 * other systems differ:
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
    const uint8_t *parent; /* key of the block before the first; NULL: there is none */
    uint32_t first_token;  /* number of tokens before the first block */
    const uint8_t *keys;   /* n keys of KVC_KEY_BYTES each */
    uint32_t n;
    uint32_t last_tokens; /* tokens of the last block; 0: it is full */
    bool durable; /* a commit is done when its blocks, and all before them in their chains, are on
                   * stable storage; such blocks are removed on request only */
    bool decoded; /* the blocks are of decoded tokens */
    bool judged;  /* with core_config.admission: a block of less worth than its victims is not
                   * stored */
    struct core_cost cost; /* the writer's cost of prefill, from which the policy learns what a hit
                            * of these blocks saves */
    const struct core_retention *retention; /* borrowed; NULL: no wish. It counts also for blocks
                                             * that exist already or are being stored by others */
};
/* Takes room for blocks and announces them. Fills statuses[n]. 0, or KVC_E_BAD_ARGUMENT with
 * *ret_why, KVC_E_BUSY. *ret_reservation 0: nothing is reserved. Status KVC_ST_QUOTA: an owner of
 * the namespace is at its hard limit, and no block of that owner may be evicted. KVC_ST_NOT_WORTH:
 * in.judged is set, and a victim is worth more. */
KVC_WARN_UNUSED int core_reserve(struct core *c, struct core_client *cl,
                                 const struct core_reserve *in, uint64_t *ret_reservation,
                                 uint8_t *statuses, const char **ret_why);

/* Sets whether new blocks are judged from now on (core_config.admission). */
void core_admission(struct core *c, bool on);
bool core_admission_now(const struct core *c);

/* Whether a store should wait before it reserves so many payload bytes, because room is short and
 * the next victims are being written to disk. To be called before core_reserve(). True: `waiter` is
 * queued, and its fn is called from core_run_done() when there is room, or none can be expected;
 * the caller then reserves without asking again. The caller limits the time of the wait, and ends
 * it by core_waiter_cancel(). waiter NULL: nothing is queued. Always false without a storage tier.
 */
KVC_WARN_UNUSED bool core_store_must_wait(struct core *c, uint64_t bytes,
                                          struct core_waiter *waiter);

/* The part of a send, or of a commit out of pages, that a device copies. */
struct core_transfer {
    struct device *device;
    struct device_pool *pool;        /* the worker's pages */
    struct device_fence after;       /* the copy begins when this word has reached its value */
    const _Atomic uint64_t *revoked; /* not 0: the worker has taken the pages back; NULL: it never
                                      * does */
    uint64_t deadline_ns;

    struct list_node node; /* the core's from here on: linked while it waits for its turn */
    const struct transfer_kind *kind;
    struct core_client *client;
    bool fenced, cancelled; /* fenced: its word was not reached when it was queued */
};

/* One commit in flight. */
struct core_commit {
    struct core_req req;
    uint64_t reservation;
    uint32_t first, n;      /* entries of the reservation: number of the first, and how many */
    const uint8_t *offsets; /* n x u64 little-endian, of entries in `staging`; UINT64_MAX: the entry
                             * is skipped. Borrowed during the call */
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

    struct core_client *client;  /* the core's from here on */
    uint32_t left;               /* entries that are not done yet */
    uint32_t first_op, last_op;  /* of a commit out of pages: its list of core_op, until the copy
                                  * begins */
    struct reservation *slicing; /* until its last slice; NULL after that */
    uint32_t at, end;            /* entries: the next one to be begun; behind the last */
    bool fenced;                 /* its word was not reached when it began */
};
/* Whether the commit's word has not been reached: the bytes to be stored are not computed yet. */
bool core_commit_is_early(const struct core_commit *commit);
/* Copies reserved blocks into memory and publishes them. 1: copies are in flight or queued, and
 * done() follows. 0: nothing had to be copied, statuses are final and done() does not run.
 * KVC_E_GONE: the client has no such reservation, or it is between two slices. KVC_E_BAD_ARGUMENT,
 * KVC_E_BUSY with *ret_why (of a commit out of pages: too many blocks wait for words). */
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
/* Whether all copies of a durable commit have landed, and it waits only for shards of its blocks
 * that other commits bring. */
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
 * On each device at most device_copies sends, fills and commits out of pages are under way at a
 * time, with a share for each principal. Further sends and commits are queued: clients take turns,
 * and those of one client keep their order. core_run_done() begins them, or ends them when they are
 * cancelled or past their deadline. Copies that wait for a word get at most half of the jobs for
 * one client, and three quarters for all clients, so that other copies are not delayed by a word. A
 * fill is not queued: its blocks can be read where they are.
 *
 * With hbm_verify, bytes in host memory are read before a device copies them, and compared with
 * the checksum of the block. If they differ the block is removed as corrupt, as by a verification,
 * and is not copied: a fill leaves it out, and a send gives it the status TIER. */

/* Copies of a lease's blocks on a device; embedded in the caller's memory until done() has run. */
struct core_fill {
    uint64_t lease;
    uint32_t device; /* number */
    uint32_t shard;
    uint64_t deadline_ns;
    void (*done)(struct core_fill *f); /* once, never from inside core_fill_start() */

    uint32_t ret_blocks;   /* number of blocks that the lease holds on the device at the end */
    struct list_node node; /* the core's from here on */
    uint32_t left, next;
};
/* Copies to the device those blocks of the lease that the device lacks, as far as it has room. A
 * lease may be filled on one device only. 1: copies are in flight, done() follows, even if the
 * client is closed or the lease is released meanwhile. 0: nothing had to be copied, or can be;
 * ret_blocks is final. KVC_E_NO_LEASE, KVC_E_BAD_ARGUMENT (device, shard; a second device),
 * KVC_E_BUSY (other requests copy, or wait). A device that is out of service is no error:
 * ret_blocks is 0. */
KVC_WARN_UNUSED int core_fill_start(struct core *c, struct core_client *cl, struct core_fill *f);
/* Forgets a fill: its done() does not run. Copies in flight go on. */
void core_fill_cancel(struct core *c, struct core_fill *f);
/* core_lease_locs() of a lease that was filled, or was made with core_seq.on. Where the lease holds
 * a block on the device, the view is of the slot there (device_of_chunk() is not 0), else of host
 * memory. KVC_E_GONE, perhaps after some calls: core_lease_is_lost(). */
KVC_WARN_UNUSED int core_lease_locs_hbm(struct core *c, struct core_client *cl, uint64_t lease,
                                        uint32_t shard, core_loc_fn *fn, void *ctx);

/* Whether bytes of one of the lease's blocks were found to be wrong since the lease began. The
 * caller must not tell the lease's locations any more: a reader would take the present generation
 * for right. */
bool core_lease_is_corrupt(struct core *c, struct core_client *cl, uint64_t lease);
/* Whether there is a block of the lease that rank `shard` cannot read any more: it was in a slot of
 * a device and not in host memory, and that slot is void. */
bool core_lease_is_lost(struct core *c, struct core_client *cl, uint64_t lease, uint32_t shard);

/* A send: blocks of a lease are copied to a worker's pages. When done() runs, no copy touches the
 * pages any more. */
struct core_send {
    struct core_req req;
    uint64_t lease;                /* its blocks stay until done(), even if it is released */
    struct core_transfer transfer; /* its pool must have the groups of the namespace */
    uint32_t shard;
    struct {
        const uint32_t *pages; /* for the lease's blocks of this group, in order; borrowed */
        uint32_t pages_per_block;
    } group[KVC_GROUPS_MAX];
    /* As layers are complete, *ready becomes ready_value plus their number; the layers of the
     * groups count one group after the other. NULL: the worker does not wait for layers. */
    _Atomic uint64_t *ready;
    uint64_t ready_value;
    uint8_t *statuses; /* one per block of the lease, in order of groups and blocks: OK, TIER,
                        * BAD_ARGUMENT (a page number), TIMEOUT, CANCELLED; borrowed until done() */
    void (*done)(struct core_send *s); /* once, never from inside core_send_start() */

    uint32_t left; /* the core's */
};
#define CORE_SEND_BLOCKS 4096u
/* Copies each block from the device's slot if it is there, else from host memory; the status of a
 * block that is in neither is TIER. 1: copies are in flight or queued, done() follows; 0: the lease
 * has no blocks. KVC_E_NO_LEASE, KVC_E_BAD_ARGUMENT with *ret_why (the pool does not fit the
 * namespace), KVC_E_TOO_LARGE (more than CORE_SEND_BLOCKS blocks). */
KVC_WARN_UNUSED int core_send_start(struct core *c, struct core_client *cl, struct core_send *s,
                                    const char **ret_why);

struct core_hbm_stats {
    uint64_t blocks, bytes;      /* copies on the device now: their number and bytes */
    uint64_t hits, fills, drops; /* blocks that fills found on the device; that fills copied there;
                                  * that were evicted for others */
};
void core_hbm_stats(const struct core *c, uint32_t device, struct core_hbm_stats *ret_stats);

/* ---- wishes for stored blocks, advice ---- */

/* Adds a wish for the stored blocks, in any tier, that the prefix of seq needs and that end after
 * from_tokens. `set`: their earlier wishes are forgotten; the wish {RETAIN_DEFAULT,
 * RETAIN_FOR_EVER} then means that they have none. No use is counted. Returns the number of blocks;
 * KVC_E_BAD_ARGUMENT with *ret_why. */
KVC_WARN_UNUSED int core_wish(struct core *c, const struct core_seq *seq, uint32_t from_tokens,
                              const struct core_wish *wish, bool set, const char **ret_why);
/* Passes a hint on a chain to the policy: for those stored blocks of seq that no other chain
 * shares. Wrong advice costs hits, nothing else. SOON also begins to load blocks from disk. Returns
 * for how many blocks the hint was; KVC_E_BAD_ARGUMENT with *ret_why. */
KVC_WARN_UNUSED int core_advise(struct core *c, const struct core_seq *seq,
                                enum policy_advice advice, uint32_t within_ms,
                                const char **ret_why);

/* ---- pins ----
 *
 * A pin keeps blocks on request: until it ends, they are neither evicted for room nor reclaimed by
 * storage. It ends by its TTL or on request, and with the daemon; it outlives sessions. It belongs
 * to its namespace's principal and tenant. With storage, a pinned block is written there as for a
 * durable commit; the promise of that copy ends with the block's last pin. */

struct core_pin {
    struct core_seq seq;
    bool in_memory;  /* the blocks' copies in memory stay too; a block that is not in memory is
                      * loaded, now or when there is room. False: the last copy of each block stays,
                      * in any tier */
    uint64_t ttl_ms; /* 0: without end */
    bool of_name;    /* the pin is part of a name: it ends with the name, and no client sees it */
};
struct core_pinned {
    uint64_t id;     /* never 0, never used again */
    uint32_t tokens; /* length of the stored prefix, which is pinned */
    uint32_t blocks; /* number of pinned blocks of all groups; each block counts once */
    uint64_t bytes;  /* payload of these blocks */
};
/* Pins the prefix of seq that is stored now, in any tier: all its blocks, or after an error none.
 * KVC_E_GONE: nothing is stored. KVC_E_PIN_LIMIT: the tenant's budget would be exceeded, or pins
 * would leave hardly any memory for other blocks. KVC_E_QUOTA: more would be bound than a hard
 * limit or the guarantees of others allow. KVC_E_LIMIT: there are pins_max pins, the pool of their
 * lists is empty, or a block is in 255 pins already. */
KVC_WARN_UNUSED int core_pin(struct core *c, const struct core_pin *in,
                             struct core_pinned *ret_pinned, const char **ret_why);
/* Ends a pin. cl: the asker, which may end pins of its principal, or as an administrator any pin,
 * but no pin of a name; NULL: the daemon itself. 0. CORE_MORE: the pin has ended, and its blocks
 * are released in slices, by core_unpin_step() or else by core_background_step(). KVC_E_NO_NAME:
 * there is no such pin, or the asker may not end it. */
KVC_WARN_UNUSED int core_unpin(struct core *c, const struct core_client *cl, uint64_t id);
struct core_pin_view {
    uint64_t id, bytes, left_ms; /* left_ms 0: without end */
    uint32_t ns, tokens, blocks;
    const char *principal, *tenant, *sub; /* sub: the sub-tenant of its namespace, or "" */
    bool in_memory;
    struct key256 tip; /* the last block of group 0 that is pinned, zero if none */
};
/* The next pin behind *cursor (0 at first) that the client may see; cl NULL: of all pins. False: no
 * more. A pin that begins or ends during the list may be missed; none is told twice. */
bool core_pin_next(struct core *c, const struct core_client *cl, uint64_t *cursor,
                   struct core_pin_view *ret_view);
/* Sets the budget of each tenant from now on; 0: no limit. Pinned blocks stay. */
void core_pin_budget(struct core *c, uint64_t bytes_max);
uint64_t core_pin_budget_now(const struct core *c);

/* ---- quotas ---- */

/* A quota, for all blocks of a tenant, of one of its sub-tenants in all namespaces, or of one
 * namespace. Bytes are payload bytes of blocks that have room: announced, being copied, or
 * stored. */
struct core_quota {
    uint8_t scope;               /* enum kvc_scope: TENANT, SUB, NS */
    const char *tenant, *sub;    /* for TENANT and SUB; borrowed */
    uint32_t ns;                 /* for NS: its id; the quota ends with the namespace */
    struct retain_quota bytes;   /* limits and shares; tier 0: host memory, 1: disk */
    uint64_t held[RETAIN_TIERS]; /* in answers only: as in core_ns_view, as is bound */
    uint64_t bound[RETAIN_TIERS];
};
/* Sets or changes a quota, or removes it if it has neither limits nor shares. The tenant need not
 * have blocks yet. Under a limit below the bytes held, new blocks are refused at once, and others
 * are evicted in the background. KVC_E_BAD_ARGUMENT: a share is above the limit.
 * KVC_E_NO_NAMESPACE. KVC_E_LIMIT: there are RETAIN_OWNERS - 1 quotas. KVC_E_BUSY: a removed quota
 * is not empty yet; try again later. */
KVC_WARN_UNUSED int core_quota_set(struct core *c, const struct core_quota *quota);
/* Bytes that all shares together guarantee in a tier, if `with` replaced the quota of the same
 * tenant, sub-tenant or namespace; NULL: as they are. A tenant's share contains those of its
 * sub-tenants and namespaces. */
uint64_t core_quota_promised(struct core *c, unsigned tier, const struct core_quota *with);
/* How many bytes of a tier shares can guarantee at most; UINT64_MAX: there is no such tier. */
uint64_t core_tier_shareable(const struct core *c, unsigned tier);
/* The next quota behind *cursor (0 at first); false: no more. Its texts are valid until the next
 * call of core_quota_set(). */
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
    struct core_rules now, start;         /* the rules now, and those at the daemon's start */
    bool hints, admits;                   /* the policy heeds hints; it can judge new blocks */
    bool pins;                            /* clients can make pins */
    uint64_t hinted[POLICY_ADVICE_COUNT]; /* number of hints given, by kind */
    uint64_t disk_bytes_per_s, disk_latency_ns; /* learned from loads; 0: not known yet */
    uint64_t level_blocks[RETAIN_MAX + 1];      /* number of blocks kept at each level */
};
void core_policy_view(const struct core *c, struct core_policy_view *ret_view);

/* Sets the percentage of bytes on disk that are not written again when storage reclaims their
 * room, because they are of the least worth. */
void core_keep_percent(struct core *c, uint32_t percent);
uint32_t core_keep_percent_now(const struct core *c);

/* ---- operation ---- */

/* One piece of a walk over blocks: of a chain, of a tree of chains, of the roots of a group, or of
 * some keys. */
struct core_walk {
    uint32_t ns, group; /* ns 0 (MATCH, KEYS): all namespaces that the client may see */
    uint8_t mode;       /* enum kvc_walk_mode */
    const uint8_t *key; /* UP, DOWN: where the walk begins; MATCH: what keys are compared with;
                         * KEYS: the first key */
    uint32_t keys;      /* KEYS: their number */
    uint32_t depth;     /* DOWN: levels below the key; 0: all. MATCH: bits of `key` to compare */
    uint32_t limit;     /* the most blocks of this piece */
    uint32_t *places;   /* KEYS: the most pairs of namespace and group to look at, though one key is
                         * always looked for; those looked at are subtracted */
    uint64_t cursor;    /* 0: the start; else *ret_cursor of the piece before */
};
/* Calls fn for each block of the piece; the work is bounded. *ret_cursor: where the next piece
 * begins, 0 at the end. fn is not called for a key that is not cached; with KEYS it is called once
 * for such a key, with the reason. KVC_E_NO_NAMESPACE; KVC_E_BAD_ARGUMENT (group); KVC_E_GONE: the
 * block at the cursor was removed, so the walk has to start again. */
KVC_WARN_UNUSED int core_walk(struct core *c, const struct core_client *cl,
                              const struct core_walk *in,
                              void (*fn)(void *ctx, const struct kvc_block_info *), void *ctx,
                              uint64_t *ret_cursor);

/* Limits of one slice of a verification: so many blocks, and no further block is begun while so
 * many bytes are being read. */
#define CORE_VERIFY_BLOCKS 64u
#define CORE_VERIFY_BYTES  (UINT64_C(16) << 20)
/* Each client has at most one slice under way. All clients together have so many, or as many as
 * there are principals if those are more; principals share them. */
#define CORE_VERIFY_SLICES 4u

/* A block whose bytes are not those that were stored, as core_verify.corrupt is told of it. */
struct core_corrupt {
    const struct key256 *key; /* borrowed during the call */
    uint32_t ns, group, shard;
    uint32_t below; /* number of blocks that build on it and were removed with it */
    bool kept;      /* the block stays with another copy, and so do blocks that build on it */
    struct tier_view view; /* where the bytes were read; zero for a copy on disk */
};

enum core_verify_what { CORE_VERIFY_HOST, CORE_VERIFY_DISK, CORE_VERIFY_HBM };

/* One slice of a verification: a walk by record number over PRESENT blocks, which reads each block
 * again and compares its checksum. A corrupt block is removed at once, with blocks that build on
 * it; a lease on it keeps its room, and readers see KVC_STALE. A block is not evicted while it is
 * read; so one slice reads at most an eighth of all PRESENT blocks, and all slices half.
 *
 * With HBM the walk is over copies in slots of devices, and each counts as a block. A corrupt copy
 * is dropped, and its block stays. If a device fails meanwhile, its reads end as failed, and its
 * other copies are passed over. */
struct core_verify {
    struct core_req req;
    uint32_t ns;        /* id; 0: all namespaces that the client may see */
    uint8_t tier;       /* enum core_verify_what */
    uint64_t cursor;    /* 0: the start; else ret_cursor of the slice before */
    uint64_t bytes_max; /* no further block is begun while so many bytes, or CORE_VERIFY_BYTES, are
                         * being read */
    uint64_t deadline_ns;
    struct core_client *client;
    void (*corrupt)(struct core_verify *v, const struct core_corrupt *x); /* before done() */
    void (*done)(struct core_verify *v); /* once, never from inside core_verify_start() */

    uint64_t ret_cursor;  /* 0: the walk has ended */
    uint64_t ret_bytes;   /* bytes that were read */
    uint32_t ret_blocks;  /* number of blocks of which every shard was read */
    uint32_t ret_skipped; /* number of blocks that were passed over: being written, read by too many
                           * others, cancelled, or out of time */
    uint32_t ret_failed;  /* number of blocks that could not be read */

    uint32_t left; /* the core's from here on: blocks that are being read */
    struct {
        uint16_t left;   /* shards that are being read */
        uint8_t verdict; /* the worst of those that were read: enum verdict */
    } block[CORE_VERIFY_BLOCKS];
};
/* Begins a slice. 1: blocks are being read, done() follows. 0: the slice has no blocks, the results
 * are final and done() does not run. KVC_E_BUSY: the client has a slice under way, or its principal
 * has its share of slices. */
KVC_WARN_UNUSED int core_verify_start(struct core *c, struct core_verify *v);

/* Tells that the memory of the block's copy in the host tier is lost: its bytes are wrong. The copy
 * is dropped, and the block is removed if it has no other copy. A block in use stays; the caller
 * calls again later. */
void core_host_lost(struct core *c, uint32_t block_no);

/* Bytes of blocks, by tier; a block with copies in several tiers counts in each. */
struct core_places {
    uint64_t host, disk, hbm; /* hbm: on devices */
};

/* A wait until all removals of blocks so far outlive a crash. Zeroed before its first use. */
struct core_gone {
    struct list_node node; /* the core's: queued until fn is called or core_gone_cancel() */
    /* Called from core_background_step(). err 0: they outlive a crash; KVC_E_TIER: the blocks are
     * removed, but may come back after a crash. */
    void (*fn)(struct core_gone *g, int err);
};
/* Queues a wait. One wait of storage serves all waits that are queued when it begins. */
void core_gone_await(struct core *c, struct core_gone *g);
void core_gone_cancel(struct core_gone *g);

/* An eviction on request, of all blocks that meet its conditions. Embedded in the caller's memory
 * until done() has run or the client is closed. */
struct core_evict_job {
    struct core_req req;
    uint32_t ns;                   /* id; 0: all namespaces that the client may evict from */
    bool have_key;                 /* only the block of `key`, with blocks that build on it */
    struct key256 key;             /* used if have_key is set */
    uint64_t older_than_ms, bytes; /* only blocks not used for so long; only the oldest ones, until
                                    * so many bytes are evicted (0: all) */
    const char *tenant, *sub, *model; /* NULL: any; borrowed, live as long as the job */
    uint32_t level_below;             /* only blocks of a lower level; 0: of any level */
    bool dry_run;                     /* nothing is evicted; results say what would be */
    bool force; /* pinned and named blocks too; never one that is leased or being written */
    struct core_client *client;               /* whose rights count; closing it ends the job */
    void (*done)(struct core_evict_job *job); /* once, from core_background_step() */

    uint64_t ret_blocks, ret_bytes, ret_kept; /* results: blocks and bytes that were evicted; blocks
                                               * that meet the conditions and stay */
    struct core_places ret_in;                /* ret_bytes by tier */
    int ret_err;                              /* 0 or KVC_E_TIER, as core_gone.fn has it */
    bool evicted;                             /* the core's: all is evicted, and `gone` is queued */
    struct core_gone gone;                    /* the core's from here on */
    struct list_node node;                    /* in core->jobs, until `evicted` */
    uint32_t phase, cursor;  /* enum job_phase (bulk_evict.c); the record that is looked at */
    uint32_t next, next_gen; /* where the walk of the tree at the cursor continues */
    uint32_t place;          /* for a job by key: the namespace and group being searched */
    bool marked;             /* blocks in use are marked before the first eviction */
    uint64_t age_bytes[64];  /* bytes that meet the conditions, by age_class() */
    uint32_t age_floor;      /* only blocks of this age class and older ones are evicted */
};
/* Begins an eviction, which runs in slices from core_background_step(). done() runs there, once,
 * when the removals outlive a crash. A dry run tells what would be evicted if no other request
 * changed anything meanwhile. */
void core_evict_start(struct core *c, struct core_evict_job *job);

/* Begins to write blocks to disk that host memory alone has, until bytes_max are in flight, as far
 * as the write budget allows. Returns the payload bytes that are not on disk yet; 0 without a
 * storage tier. The caller calls again until these are 0, or do not shrink any more. *ret_quota:
 * the part of them that quotas on disk refuse, as far as the last look at all blocks found; no
 * block is evicted from disk to make room under a quota. */
uint64_t core_drain_disk(struct core *c, uint64_t bytes_max, uint64_t *ret_quota);

/* Checks counts and rules by a walk over all records, and ends the program if one does not hold.
 * For tests; slow. */
void core_check(struct core *c);

#endif
