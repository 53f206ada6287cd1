/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core: which blocks exist, in which state, where, and who holds them.
 *
 * Thread: control thread only; nothing is locked. Time comes in through core_tick() and the core
 * keeps no clock. Memory: everything is allocated in core_create(); afterwards an empty pool is a
 * status (KVC_E_BUSY, KVC_E_LIMIT), never an allocation.
 *
 * Rules that hold after every call (tests/model checks them):
 *   - a block is served only in state PRESENT, that is, when every shard was copied and
 * checksummed;
 *   - a leased block, a block being written and every ancestor of either stays;
 *   - room is taken from the tier before a block is announced, and given back when its last holder
 *     (lease, copy in flight) lets go, never before;
 *   - a pinned block is never evicted for room: it goes when an operator forces it, when its bytes
 *     are bad or lost, and with a block above it that its writer drops;
 *   - nobody holds more than a hard limit; of who was above it when it was set, what is held does
 *     not grow.
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

struct core_config {
    uint32_t blocks_max;
    uint32_t clients_max;
    uint32_t namespaces_max;
    uint32_t leases_max;      /* over all clients */
    uint32_t commits_max;     /* commits in flight */
    uint32_t names_max;       /* conversations and documents; 0: there are none */
    uint64_t name_ids_bytes;  /* memory for token ids of documents */
    uint64_t lease_bytes_max; /* per client */
    uint64_t claim_bytes_max; /* per client, reserved and not committed; 0: no limit */
    uint64_t progress_ms;     /* a writer that commits nothing for so long, or less by its own
                               * pace, keeps what it reserved from nobody; 0: no limit */
    /* Promise every client, and every principal its namespaces, an equal part of half of each pool
     * (share.h). Off: first come, first served. principals_max: their highest number. */
    bool fair;
    uint32_t principals_max;
    const struct policy_ops *policy;
    uint64_t policy_seed;   /* of what it draws at random */
    bool load_or_recompute; /* weighs them; core_load_or_recompute() changes it */
    bool admission;         /* without storage: what is worth less than what would go is not taken;
                             * core_admission() changes it */
    uint32_t pins_max;      /* pins at a time; 0: none are taken */
    uint64_t pin_bytes_max; /* pinned bytes of one tenant; 0: no limit */
    struct tier *host;      /* borrowed */
    struct tier *disk;      /* borrowed; NULL: there is no storage tier */
    /* Devices, of numbers 0 and up; borrowed. near_max: copies of blocks in their slots, over all
     * of them; near_policy: which of a device's go first. */
    struct device *const *devices;
    uint32_t ndevices;
    uint32_t near_max;
    const struct policy_ops *near_policy;
    uint32_t device_copies; /* requests that copy at a time, of each device; 0: 256 */
    uint32_t slice_work;    /* of one slice, core_work() units; 0: 1024, some 100 to 200 us */
    bool near_verify; /* host memory is read before a device copies it, and compared with its sum */
    struct key256 secret; /* salts come from it */
};

/* What core_create() will allocate, for the printed budget. */
struct core_budget {
    uint64_t blocks, table, ghosts, parts, policy, retain, leases, namespaces, commits, clean, pins,
        names, near;
};
void core_budget(const struct core_config *config, struct core_budget *ret_budget);
/* Bytes of index per block: record, table, trace of the evicted, shard parts, policy, retention,
 * lists of what is pinned. */
double core_bytes_per_block(const struct core_config *config);

KVC_WARN_UNUSED int core_create(const struct core_config *config, struct core **ret_core);
/* No client may be left. Accepts NULL. */
void core_destroy(struct core **core);
/* ---- at start: what is still there from the run before ---- */

/* A namespace in the form in which it outlives a run: bytes with a checksum. */
#define CORE_NS_RECORD_MAX 4000u
/* The record of the namespace with this print (tier_label.print). Bytes; 0: there is none. */
uint32_t core_ns_record(const struct core *c, uint64_t print,
                        uint8_t ret_record[CORE_NS_RECORD_MAX]);
/* Makes it be there again. `who` maps a principal's name to who that is now, NULL: nobody.
 * What it holds cannot be used: KVC_E_GONE: damaged; KVC_E_DENIED: of nobody, or its print is
 * another with this secret and tenant. Told twice is no error. */
typedef const struct core_identity *(core_who_fn)(void *ctx, const char *principal);
KVC_WARN_UNUSED int core_ns_restore(struct core *c, const uint8_t *record, uint32_t bytes,
                                    core_who_fn *who, void *ctx);
/* Whose it is, by what it says. KVC_E_GONE: damaged. */
KVC_WARN_UNUSED int core_ns_record_owner(const uint8_t *record, uint32_t bytes,
                                         char ret_principal[KVC_PARAMS_MAX],
                                         char ret_tenant[KVC_PARAMS_MAX]);
/* The prints of all namespaces, in pieces: from `*cursor` (0 at first), up to n; returns how many.
 */
uint32_t core_ns_prints(const struct core *c, uint32_t *cursor, uint64_t *ret_print, uint32_t n);
/* Grows whenever a namespace comes or goes. */
uint64_t core_ns_changes(const struct core *c);

struct core_found {
    struct tier_label label; /* ns is ignored: the print says which */
    uint32_t bytes;          /* of payload */
    struct tier_loc loc;
    bool in_host;    /* else on disk */
    uint32_t age_ms; /* since its last use, as far as is known */
};
/* core_adopt of what has this label comes soon: what it will read is brought nearer. */
void core_adopt_soon(const struct core *c, const struct tier_label *label);
/* Takes a block over from before the restart. Order does not matter; the same block may come from
 * host and disk, and with each of its shards. 0 and its record's number in *ret_owner: the tier is
 * to name it from now on. Else what is at loc is not needed, and the tier frees it: KVC_E_GONE (no
 * such namespace, or group, or other bytes than its blocks have), KVC_E_FULL (index),
 * KVC_E_TOO_LARGE. What comes from the host is checked at its first use. */
KVC_WARN_UNUSED int core_adopt(struct core *c, const struct core_found *found, uint32_t *ret_owner);
/* All has been told: chains are linked; blocks without their ancestors, or without all their
 * shards, go. Returns the number of blocks that are there. */
uint32_t core_adopt_end(struct core *c);

/* What works through many keys does so in slices (core_reserve_step() and the like), between which
 * anything may happen. Work is counted, not timed, so that a simulation repeats itself: one unit is
 * about what looking up a key takes. */
uint64_t core_work(const struct core *c);
/* Its tables, for who touches them before they are used; unused ranges have no bytes. */
#define CORE_RANGES 10u
void core_memory(const struct core *c, struct sys_range ret[CORE_RANGES]);
#define CORE_MORE 2 /* what a slice returns that is not the last */

/* Before the end, when no client is left: blocks begin to move between tiers no more. */
void core_stop(struct core *c);
/* Nothing is in flight that would end in core: only then it may be destroyed, for tiers end what
 * they have when they are. */
bool core_is_still(const struct core *c);
/* Once a turn, before anything else. now_ns never goes back. */
void core_tick(struct core *c, uint64_t now_ns);
/* Runs the done queue: waiters whose block changed, as many as look at a bounded number of keys;
 * the rest has its turn in the next. Returns how many. */
unsigned core_run_done(struct core *c);
/* The done queue is not empty. */
bool core_has_done(const struct core *c);
/* core_placement_step() has something to do now, which a request may have begun after it. */
bool core_has_steps(const struct core *c);
/* When the next step has something to do, unless it has now; UINT64_MAX: not by time alone. */
uint64_t core_next_ns(const struct core *c);
/* One bounded step of background work; true while there is more. */
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
/* What prefill costs: a token, and 1e-6 ns for each token before it. Both 0: unknown. */
struct core_cost {
    uint64_t ns_per_token, ns_per_token_pair;
};
/* Who asks: fixed for a client. */
struct core_identity {
    uint32_t principal; /* 1 and up */
    const char *name;   /* of the principal; borrowed, lives as long as the core */
    const char *tenant; /* borrowed, lives as long as the core */
    bool gateway;       /* may name sub-tenants */
    bool admin;         /* may see and evict what belongs to others */
};
struct core_near {
    uint32_t ns;
    uint32_t fields;
};

/* Finds or makes. KVC_E_UNSOUND / KVC_E_BAD_ARGUMENT / KVC_E_TOO_LARGE / KVC_E_DENIED with *ret_why
 * (static text); KVC_E_LIMIT when the principal has its share of the slots and each holds blocks.
 * Of its own empty ones the one that was used longest ago makes room, or one of a principal that is
 * not attached; never one of a principal that is. *ret_nnear: up to 4 namespaces
 * of the same principal and model that differ. */
KVC_WARN_UNUSED int core_ns_open(struct core *c, struct core_client *cl,
                                 const struct core_ns_spec *spec, struct core_ns **ret_ns,
                                 struct core_near *ret_near, uint32_t *ret_nnear,
                                 const char **ret_why);
/* The namespace with this id for this client, its sub-tenant's where `sub` names one; NULL when
 * that one has none, so that nothing of it is cached. For readers, who create nothing.
 * *ret_base: the namespace with this id. KVC_E_NO_NAMESPACE, KVC_E_DENIED, KVC_E_BAD_ARGUMENT. */
KVC_WARN_UNUSED int core_ns_find(struct core *c, struct core_client *cl, uint32_t id,
                                 const uint8_t *sub, uint32_t sub_bytes, struct core_ns **ret_ns,
                                 struct core_ns **ret_base);
/* The same for writers: a sub-tenant's is created when absent, which may give KVC_E_LIMIT. */
KVC_WARN_UNUSED int core_ns_get(struct core *c, struct core_client *cl, uint32_t id,
                                const uint8_t *sub, uint32_t sub_bytes, struct core_ns **ret_ns);
/* Namespaces of which a client's stated cost is kept: those that it opened last. */
#define CORE_COSTS 32u
/* What the client stated when it opened the namespace of this id; unknown if it did not, or has
 * opened so many others since. It counts for its requests alone, and ends with it. */
struct core_cost core_ns_cost(const struct core_client *cl, uint32_t id);
/* Whether there is a namespace of this id that the client may see. */
bool core_ns_exists(struct core *c, const struct core_client *cl, uint32_t id);
/* Whether guaranteed shares of memory hold with a namespace's blocks, and what these can fill. */
struct core_share_risk {
    uint64_t fill, limit, large;    /* bytes, of memory's, by blocks of `large` */
    uint64_t chunks_needed, chunks; /* by all shares; that there are */
    bool mixed; /* one owner of its principal has a share, another one blocks of other sizes */
};
void core_share_risk(const struct core *c, const struct core_ns *ns, struct core_share_risk *ret);
/* The next namespace by id above `after` that the client may see, NULL at the end. */
struct core_ns *core_ns_next(struct core *c, struct core_client *cl, uint32_t after);
/* The next CORE_NS_PAGE of them at most, in one pass over the table; returns how many. */
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
    uint64_t held[RETAIN_TIERS]; /* bytes of room taken in host memory, on disk; as quotas count */
    uint64_t pinned_bytes;       /* each block once */
    uint64_t leased_bytes;       /* per lease */
    uint64_t named_bytes;        /* of what names reach, each block once */
    uint64_t near_bytes;         /* of slots on devices; nobody's quota counts them */
    /* Of blocks that stay whoever wants their room: in host memory for pins, on disk for pins,
     * names and durable commits, those that are yet to be written there too: of a commit from when
     * that begins. */
    uint64_t bound[RETAIN_TIERS];
};
void core_ns_view(const struct core_ns *ns, struct core_ns_view *ret_view);

/* ---- clients ---- */

/* `idle` runs on the control thread after core_client_close(), once no copy touches the client's
 * staging any more; it may run inside close. The client is gone when it runs. */
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

/* What a client has under way, and its end calls off: a commit, send, verification or evict job is
 * one, embedded in its owner's memory until done() has run. */
struct core_req {
    struct list_node node; /* the core's from here on: linked while it is under way */
    const struct core_req_kind *kind;
};
/* Asks it to stop; nothing if it is not under way. Copies and reads may take their time, and done()
 * still follows: within this call only for a commit between two slices. An evict job is forgotten,
 * and done() does not run. */
void core_cancel(struct core *c, struct core_req *req);

/* ---- reading ---- */

struct core_seq {
    struct core_ns *ns;
    bool absent; /* the sub-tenant has no namespace: nothing is there; ns says how to read it */
    uint32_t tokens;
    uint32_t ngroups;
    const uint8_t *keys[KVC_GROUPS_MAX];
    uint32_t n[KVC_GROUPS_MAX];
    bool worth;            /* only as much of it as is quicker loaded than computed again */
    struct core_cost cost; /* by which that is weighed: of who asks */
    /* Who asks reads rank on_shard's part on this device, or has it copied from there: a block of
     * which that part is in a slot there counts as in memory, and is not loaded. It does for
     * core_acquire() and core_prefetch(). NULL: host memory is read. */
    const struct device *on;
    uint32_t on_shard;
};
struct core_prefix {
    uint32_t tokens;
    uint32_t cached_tokens; /* the same without regard to `worth`, and in whatever tier */
    uint64_t load_ns;       /* about how long loading `tokens` takes now */
    struct {
        uint32_t blocks;
        uint8_t reason;
        uint32_t detail;
    } group[KVC_GROUPS_MAX];
};
/* Why the sequence does not fit its namespace; NULL = it does. */
const char *core_seq_fault(const struct core_seq *seq);
/* KVC_E_BAD_ARGUMENT with *ret_why when the sequence does not fit the namespace. With `touch` the
 * policy hears of it as of an acquire; without, a lookup leaves no trace. */
KVC_WARN_UNUSED int core_lookup(struct core *c, const struct core_seq *seq, bool touch,
                                struct core_prefix *ret_prefix, const char **ret_why);

/* Zeroed before its first use. Between its call and the next use of it, or core_waiter_cancel(), it
 * may hold blocks in memory. */
struct core_waiter {
    struct list_node node;
    void (*fn)(struct core_waiter *w); /* from core_run_done(); ask again then */
    uint32_t block, gen, keys;         /* the core's */
    uint64_t bytes;
    struct core_load *load; /* what is held for it */
    /* When its loads began: tokens that were in memory, that were worth it, and that were cached.
     */
    uint32_t in_memory, worth, cached;
    /* Blocks of its chain that were there, the last of them, and that each builds on the one
     * before: then all are there as long as that one is. */
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
    bool read_only; /* leaves no trace: nothing is touched, and the policy does not hear of it; not
                     * together with `load` (KVC_E_BAD_ARGUMENT) */
    bool unasked;   /* for no request of an engine: what it finds is used now, but not counted as
                     * asked for, and the policy learns nothing from it */
};
/* The policy hears of an acquire when it is answered with 0.
 * With `load` and a prefix that is not all in memory: without a waiter 1 is returned, nothing is
 * done, and the caller asks again with one. With it the loads are started, 1 is returned and the
 * waiter is queued; it is called when all of it has come or nothing more will. Ask again then with
 * load off: what is there by then is the answer. The same at the deadline, after
 * core_waiter_cancel(), which lets go of what was held; loads that run go on by themselves.
 * With `wait` and a prefix that may still grow: returns 1, `waiter` is queued and nothing leased.
 * With seq.on the lease holds slots of that device, from its beginning on, for what is not in host
 * memory; while blocks are loaded for it, the waiter does.
 * Else 0, or KVC_E_BAD_ARGUMENT, KVC_E_LIMIT (lease bytes), KVC_E_BUSY (pools). */
KVC_WARN_UNUSED int core_acquire(struct core *c, struct core_client *cl,
                                 const struct core_acquire *in, struct core_waiter *waiter,
                                 struct core_held *ret_held, const char **ret_why);
/* Of a waiter that was called: true when it waits on, for what it waited for has been announced
 * again. What comes before is not looked up anew. False: ask again. */
KVC_WARN_UNUSED bool core_wait_again(struct core *c, const struct core_acquire *in,
                                     struct core_waiter *waiter);

/* Starts loading what a lookup of seq finds that is not in memory: at most bytes_max, as far as
 * there is room and loads in flight are few; nobody waits for it. Returns blocks under way. */
uint32_t core_prefetch(struct core *c, const struct core_seq *seq, uint64_t bytes_max);
/* Whether load and recomputation are weighed, from now on. */
void core_load_or_recompute(struct core *c, bool on);
bool core_load_or_recompute_now(const struct core *c);
/* Takes a queued waiter off, and lets go of what it holds; nothing when it is and has neither. */
void core_waiter_cancel(struct core *c, struct core_waiter *waiter);
/* A second lease on a lease's blocks, for another session of its principal. KVC_E_NO_LEASE also
 * where one of them is not in host memory: it is on the first one's device alone. */
KVC_WARN_UNUSED int core_redeem(struct core *c, struct core_client *cl,
                                const uint8_t ticket[KVC_TICKET_BYTES], struct core_held *ret_held);
/* Where in host memory the lease's blocks are for `shard`, in order of groups and blocks: calls fn
 * for each. KVC_E_GONE, perhaps after some: one is on a device alone. */
typedef void(core_loc_fn)(void *ctx, const struct tier_view *view);
KVC_WARN_UNUSED int core_lease_locs(struct core *c, struct core_client *cl, uint64_t lease,
                                    uint32_t shard, core_loc_fn *fn, void *ctx);
/* KVC_E_NO_LEASE when it is not this client's. What fills and sends of it still read stays, and
 * counts, until they have ended. */
KVC_WARN_UNUSED int core_release(struct core *c, struct core_client *cl, uint64_t lease);

/* ---- writing ---- */

/* A wish for how long blocks stay. Levels are 0 to RETAIN_MAX (kvc: priorities); lower ones go
 * first, everywhere: from memory, from disk when room there is wanted back. */
struct core_wish {
    uint32_t level;
    uint64_t duration_ms; /* RETAIN_FOR_EVER: without end */
};
struct core_range {
    uint32_t first_token, end_token; /* of the sequence; end 0: open */
    struct core_wish wish;
};
/* A block has the wish of the first range that holds one of its tokens, so that ranges are rounded
 * outward to blocks; or none. What is decided where documents of others differ:
 *   - The time runs from the block's commit (all its shards are there); of a block that is there
 *     already, from the request. Nothing but another wish renews it: no use, no release.
 *   - A wish without end is the block's base, the highest of them if there are several. One with an
 *     end counts while it is above the base. Of two with an end the higher level counts, with its
 *     own end; of the same level the later end. What is below is not remembered.
 *   - At its end the block goes back to its base, or to RETAIN_DEFAULT if it has none, and is the
 *     youngest of that level.
 *   - A wish for RETAIN_DEFAULT without end is a base too.
 *   - Ends are kept to 64 ms, rounded up, and to at most eight years from the daemon's start.
 *   - Levels and ends go with the block from tier to tier. Over a restart bases are kept, as they
 *     were when the copy that is found was written; wishes with an end are not. */
struct core_retention {
    const struct core_range *range; /* borrowed during the call */
    uint32_t n;                     /* at most KVC_RETAIN_MAX */
    bool has_decode; /* `decode` is for blocks of decoded tokens, instead of ranges */
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
    bool durable; /* commits of it are done when the blocks, and all before them in their chains,
                   * are on stable storage; such blocks go by request only */
    bool decoded; /* blocks of decoded tokens */
    bool judged;  /* what is worth less than what would go for it is not taken */
    struct core_cost cost; /* what a hit of them saves, for the policy: of who stores them */
    const struct core_retention *retention; /* borrowed; NULL: nothing is wished. It counts for
                                             * blocks that exist or are being stored, too */
};
/* statuses[n]. 0, or KVC_E_BAD_ARGUMENT with *ret_why, KVC_E_BUSY. *ret_reservation 0: none.
 * KVC_ST_QUOTA: a hard limit of the namespace's owners is reached, and nothing under it may go.
 * KVC_ST_NOT_WORTH: judged, and something would go that is worth more (core_config.admission). */
KVC_WARN_UNUSED int core_reserve(struct core *c, struct core_client *cl,
                                 const struct core_reserve *in, uint64_t *ret_reservation,
                                 uint8_t *statuses, const char **ret_why);

/* Whether new blocks are judged, from now on. */
void core_admission(struct core *c, bool on);
bool core_admission_now(const struct core *c);

/* Before core_reserve(), with the payload bytes that it is about: whether it should wait, because
 * room is short and what would have to go is on its way to disk. True: `waiter` is queued, and its
 * fn called from core_run_done() when there is room or none will come that way; then reserve,
 * without asking again. The caller bounds the wait, and calls core_waiter_cancel() when it ends it.
 * false: go ahead. Always false without a storage tier. Without a waiter (NULL) it only says. */
KVC_WARN_UNUSED bool core_store_must_wait(struct core *c, uint64_t bytes,
                                          struct core_waiter *waiter);

/* The place of a send, or of a commit out of pages, in the queue before its device; the core's. */
struct core_turn {
    struct list_node node; /* linked while it waits */
    uint32_t device;
    const struct near_kind *kind;
    struct core_client *client;
    const _Atomic uint64_t *after; /* its word */
    uint64_t after_value, deadline_ns;
    bool gated, cancelled;
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
     * too. The copy begins when *after >= after_value (NULL: at once). */
    struct device *device;
    struct device_pool *pool;
    const uint32_t *pages;
    uint32_t pages_per_block;
    const _Atomic uint64_t *after;
    uint64_t after_value;
    const _Atomic uint64_t *revoked; /* not 0: the pages are somebody else's by now; NULL: never */
    uint64_t deadline_ns;
    uint8_t *statuses; /* n, borrowed until done(); an entry that is skipped is left alone */
    void (*done)(struct core_commit *commit); /* once, never from inside core_commit() */
    bool store; /* statuses are those of core_reserve(): only its OK entries are copied, and what
                 * is not copied is dropped */

    struct core_client *client; /* the core's from here on */
    uint32_t left;
    uint32_t first_op, last_op; /* of one out of pages, until its copy begins */
    struct core_turn turn;
    struct reservation *slicing; /* until its last slice */
    uint32_t at, end;
    bool gated;
};
/* What it stores is not computed yet: its word has not come. */
bool core_commit_is_early(const struct core_commit *commit);
/* 1 = copies are in flight, or wait for their turn, done() follows; 0 = nothing to copy, statuses
 * are final and done() does not run; KVC_E_GONE (no such reservation), KVC_E_BAD_ARGUMENT,
 * KVC_E_BUSY with *ret_why (out of pages: too many blocks wait for words). */
KVC_WARN_UNUSED int core_commit(struct core *c, struct core_client *cl, struct core_commit *commit,
                                const char **ret_why);
/* The same in slices: begun with 0, then a slice at a time. CORE_MORE: there is another, and done()
 * does not run before it. Offsets are borrowed until the last one. */
KVC_WARN_UNUSED int core_commit_begin(struct core *c, struct core_client *cl,
                                      struct core_commit *commit, const char **ret_why);
KVC_WARN_UNUSED int core_commit_step(struct core *c, struct core_commit *commit);
/* Whose and which: the namespace and group of one of this client's reservations. KVC_E_GONE. */
KVC_WARN_UNUSED int core_reservation(struct core *c, struct core_client *cl, uint64_t reservation,
                                     struct core_ns **ret_ns, uint32_t *ret_group);
/* It is durable and has landed, and all that it waits for is other shards, from other commits. */
bool core_commit_lacks_shards(struct core *c, const struct core_commit *commit);
/* Gives up what is not committed. KVC_E_GONE. */
KVC_WARN_UNUSED int core_drop(struct core *c, struct core_client *cl, uint64_t reservation);
/* A slice of it: CORE_MORE, and at last 0; KVC_E_GONE, which it may be after some too. */
KVC_WARN_UNUSED int core_drop_step(struct core *c, struct core_client *cl, uint64_t reservation);

/* ---- devices ----
 *
 * A block in a slot of a device is a further copy of it: it is in host memory or on disk as well,
 * so a device that fails loses nothing. Copies are made on request (core_fill_start), of one shard;
 * the device's policy (near_policy) says which go when its slots are full. What a lease was given
 * there stays until the lease ends. A copy goes with its block, and with its device.
 *
 * Of sends, fills and commits out of pages, device_copies are under way at a time on each device,
 * with a share for each principal. Further sends and commits wait: clients take turns, each first
 * come, first served, until core_run_done() begins them, or ends them when they are cancelled or
 * past their deadline. Of the jobs, one client has at most half, and all have three quarters, for
 * what waits for a word; so the others are held up by nobody's word. A fill does not wait: what it
 * would copy can be read where it is.
 *
 * With near_verify what a device is to copy out of host memory is read before, and compared with
 * the checksum of the block. One that differs is CORRUPT, as if core_verify() had found it, and is
 * not copied: a fill leaves it out, and a send's status of it is TIER. */

/* Copies of a lease's blocks on a device; embedded in its owner's memory until done() has run. */
struct core_fill {
    uint64_t lease;
    uint32_t device; /* number */
    uint32_t shard;
    uint64_t deadline_ns;
    void (*done)(struct core_fill *f); /* once, never from inside core_fill_start() */

    uint32_t ret_blocks;   /* of the lease, that the lease holds on the device now */
    struct list_node node; /* the core's from here on */
    uint32_t left, next;
};
/* Copies to the device what of the lease is not there, as far as there is room; a lease may be
 * filled on one device. 1: copies are in flight, done() follows; 0: nothing had to be, or can be,
 * copied, and ret_blocks is final. KVC_E_NO_LEASE, KVC_E_BAD_ARGUMENT (device, shard; a second
 * device), KVC_E_BUSY (others copy, or wait). A device that is out is no error: ret_blocks is 0. If
 * the client is closed or the lease released meanwhile, done() follows all the same. */
KVC_WARN_UNUSED int core_fill_start(struct core *c, struct core_client *cl, struct core_fill *f);
/* Forgets it: done() does not run any more. Copies in flight end by themselves. */
void core_fill_cancel(struct core *c, struct core_fill *f);
/* core_lease_locs() of a lease that was filled, or was given with core_seq.on: where it holds a
 * block on the device, the view is of the slot there (device_of_chunk() is not 0), else of host
 * memory. KVC_E_GONE, perhaps after some: core_lease_is_lost(). */
KVC_WARN_UNUSED int core_lease_locs_near(struct core *c, struct core_client *cl, uint64_t lease,
                                         uint32_t shard, core_loc_fn *fn, void *ctx);

/* Whether bytes of one of the lease's blocks turned out to be wrong since it began. Its locations
 * are not to be told any more: they would carry the generation of now. */
bool core_lease_is_corrupt(struct core *c, struct core_client *cl, uint64_t lease);
/* Whether one of its blocks is in no place any more where rank `shard` could read it: it was in a
 * slot alone, and that is void. */
bool core_lease_is_lost(struct core *c, struct core_client *cl, uint64_t lease, uint32_t shard);

/* Blocks of a lease on their way to a worker's pages; nothing touches these any more when done()
 * runs. */
struct core_send {
    struct core_req req;
    uint64_t lease; /* held until done(), whatever becomes of it otherwise */
    struct device *device;
    struct device_pool *pool; /* its groups are the namespace's */
    uint32_t shard;
    struct {
        const uint32_t *pages; /* of the lease's blocks of this group, in order; borrowed */
        uint32_t pages_per_block;
    } group[KVC_GROUPS_MAX];
    const _Atomic uint64_t *after; /* NULL: at once */
    uint64_t after_value;
    const _Atomic uint64_t *revoked; /* as in core_commit */
    /* *ready = ready_value + layers that are complete, the groups' layers one after the other;
     * NULL: nobody waits for layers. */
    _Atomic uint64_t *ready;
    uint64_t ready_value;
    uint64_t deadline_ns;
    uint8_t *statuses; /* one per block of the lease, in order of groups and blocks: OK, TIER,
                        * BAD_ARGUMENT (a page number), TIMEOUT, CANCELLED; borrowed until done() */
    void (*done)(struct core_send *s); /* once, never from inside core_send_start() */

    uint32_t left; /* the core's from here on */
    struct core_turn turn;
};
#define CORE_SEND_BLOCKS 4096u
/* Copies from the device's slots where the blocks are there, else from host memory; what is in
 * neither any more is TIER. 1: copies are
 * in flight, or wait for their turn; 0: the lease has no blocks. KVC_E_NO_LEASE, KVC_E_BAD_ARGUMENT
 * with *ret_why (the pool does not fit the namespace), KVC_E_TOO_LARGE (more than
 * CORE_SEND_BLOCKS). */
KVC_WARN_UNUSED int core_send_start(struct core *c, struct core_client *cl, struct core_send *s,
                                    const char **ret_why);

struct core_near_stats {
    uint64_t blocks, bytes;      /* copies on the device */
    uint64_t hits, fills, drops; /* blocks that fills found there; copied; let go of for others */
};
void core_near_stats(const struct core *c, uint32_t device, struct core_near_stats *ret_stats);

/* ---- wishes for what is there, advice ---- */

/* A wish for the blocks that the prefix of seq needs and that end after from_tokens; as far as they
 * are there, in whatever tier. `set`: what was wished of them before is forgotten, and
 * {RETAIN_DEFAULT, RETAIN_FOR_EVER} then is no wish at all. No use is counted. Returns how many
 * blocks; KVC_E_BAD_ARGUMENT with *ret_why. */
KVC_WARN_UNUSED int core_wish(struct core *c, const struct core_seq *seq, uint32_t from_tokens,
                              const struct core_wish *wish, bool set, const char **ret_why);
/* What is said of a chain goes to the policy: of the blocks of seq that are there, those that no
 * other chain shares. Wrong advice costs hits, nothing else. SOON also begins to load what is on
 * disk. Returns how many blocks it was for; KVC_E_BAD_ARGUMENT with *ret_why. */
KVC_WARN_UNUSED int core_advise(struct core *c, const struct core_seq *seq,
                                enum policy_advice advice, uint32_t within_ms,
                                const char **ret_why);

/* ---- pins ----
 *
 * A pin holds blocks by wish: they are not evicted, and not reclaimed by storage, whoever wants
 * room, until the pin ends: by its TTL, or on request. It belongs to its namespace's principal and
 * tenant, outlives sessions, and ends with the daemon. With storage, what is pinned is written
 * there as for a durable commit; that too lasts as long as some pin. */

struct core_pin {
    struct core_seq seq;
    bool in_memory;  /* its copy in memory stays too; what is not there is loaded, now or when there
                      * is room. Else its last copy stays, wherever it is */
    uint64_t ttl_ms; /* 0: without end */
    bool of_name;    /* it is part of a name: ends with that, and is no client's to see */
};
struct core_pinned {
    uint64_t id;     /* never 0, never used again */
    uint32_t tokens; /* the prefix that was there, and is pinned */
    uint32_t blocks; /* of all groups, each once, however often its key comes */
    uint64_t bytes;  /* of them */
};
/* Pins the prefix of seq that is there now, in whatever tier. KVC_E_GONE: nothing is.
 * KVC_E_PIN_LIMIT: over the tenant's budget, in which each block counts once per tenant,
 * or pins in memory would leave hardly any of it; KVC_E_QUOTA: more would have to stay than a hard
 * limit or what is guaranteed to others allows; KVC_E_LIMIT: pins_max, the pool of
 * their lists, or a block that is in 255 pins already. All at once or not at all. */
KVC_WARN_UNUSED int core_pin(struct core *c, const struct core_pin *in,
                             struct core_pinned *ret_pinned, const char **ret_why);
/* The pin ends. cl: who asks (its own principal's, or any for an administrator, but those of
 * names); NULL: the daemon. 0. CORE_MORE: nobody sees it any more, and it lets go of its blocks in
 * slices: core_unpin_step(), or core_placement_step() by itself.
 * KVC_E_NO_NAME: there is no such pin, or no right to it. */
KVC_WARN_UNUSED int core_unpin(struct core *c, const struct core_client *cl, uint64_t id);
struct core_pin_view {
    uint64_t id, bytes, left_ms; /* left_ms 0: without end */
    uint32_t ns, tokens, blocks;
    const char *principal, *tenant, *sub; /* sub: its namespace's, or "" */
    bool in_memory;
    struct key256 tip; /* the last block of group 0 that is pinned, zero if none */
};
/* The next pin behind *cursor (0 at first) that the client may see (NULL: all); false: no more.
 * Pins that come and go meanwhile may be missed; each is told once. */
bool core_pin_next(struct core *c, const struct core_client *cl, uint64_t *cursor,
                   struct core_pin_view *ret_view);
/* The budget of each tenant from now on; 0: no limit. What is pinned stays. */
void core_pin_budget(struct core *c, uint64_t bytes_max);
uint64_t core_pin_budget_now(const struct core *c);

/* ---- quotas ---- */

/* For all that a tenant, one of its sub-tenants in all namespaces, or one namespace holds. Bytes
 * are payload bytes for which room is taken: announced, being copied, or there. */
struct core_quota {
    uint8_t scope;               /* enum kvc_scope: TENANT, SUB, NS */
    const char *tenant, *sub;    /* borrowed; of TENANT and SUB */
    uint32_t ns;                 /* of NS; the quota ends with the namespace */
    struct retain_quota bytes;   /* tier 0: host memory, 1: disk */
    uint64_t held[RETAIN_TIERS]; /* of the answer only; bound: as core_ns_view has it */
    uint64_t bound[RETAIN_TIERS];
};
/* Sets, changes, or (no limits, no shares) removes one. It may name a tenant of which nothing is
 * there yet. A limit below what is held refuses what is new at once, and is reached by evicting in
 * the background; a share above the limit is KVC_E_BAD_ARGUMENT. KVC_E_NO_NAMESPACE; KVC_E_LIMIT
 * (RETAIN_OWNERS - 1 quotas); KVC_E_BUSY (one that was removed is not empty yet; again later). */
KVC_WARN_UNUSED int core_quota_set(struct core *c, const struct core_quota *quota);
/* Bytes that all shares together guarantee in a tier, with this quota in the place of the one that
 * it would replace, if any; NULL: as they are. A tenant's share has those of its sub-tenants and
 * namespaces in it. */
uint64_t core_quota_promised(struct core *c, unsigned tier, const struct core_quota *with);
/* What of a tier can be guaranteed; UINT64_MAX: there is none. */
uint64_t core_tier_shareable(const struct core *c, unsigned tier);
/* The next quota behind *cursor (0 at first); its texts are borrowed until the next call of
 * core_quota_set(). false: no more. */
bool core_quota_next(const struct core *c, uint32_t *cursor, struct core_quota *ret_quota);

/* The policy that runs. */
const struct policy_ops *core_policy(const struct core *c);

/* What may be set while it runs. */
struct core_rules {
    uint32_t keep_percent;
    bool load_or_recompute;
    bool admission;
    uint64_t pin_bytes_max;
};
struct core_policy_view {
    struct core_rules now, start;               /* start: as it began */
    bool hints, admits;                         /* the policy heeds hints; it judges new blocks */
    bool pins;                                  /* pins are taken */
    uint64_t hinted[POLICY_ADVICE_COUNT];       /* hints given, by kind */
    uint64_t disk_bytes_per_s, disk_latency_ns; /* learned from loads; 0: nothing yet */
    uint64_t level_blocks[RETAIN_MAX + 1];      /* blocks that are kept at each level */
};
void core_policy_view(const struct core *c, struct core_policy_view *ret_view);

/* Of what is on disk, the percentage that is not worth writing again when its room is wanted. */
void core_keep_percent(struct core *c, uint32_t percent);
uint32_t core_keep_percent_now(const struct core *c);

/* ---- operation ---- */

/* A piece of a walk: through a chain, a tree of chains, the roots of a group, or for some keys. */
struct core_walk {
    uint32_t ns, group; /* ns 0 (MATCH, KEYS): all that the client may see */
    uint8_t mode;       /* enum kvc_walk_mode */
    const uint8_t *key; /* where UP and DOWN begin; what MATCH compares; the first of KEYS */
    uint32_t keys;      /* KEYS: how many */
    uint32_t depth;     /* DOWN: levels below the key; 0 = all. MATCH: bits of the key */
    uint32_t limit;     /* blocks, at most */
    uint32_t *places;   /* KEYS: places to look at, at most, but one key; what was is taken off */
    uint64_t cursor;    /* 0 = the start, else what the piece before returned */
};
/* Calls fn for each block of the piece; bounded work whatever there is. *ret_cursor: where the
 * next piece begins, 0 at the end. A key that is not cached is an empty walk; with KEYS one row
 * that says why. KVC_E_NO_NAMESPACE; KVC_E_BAD_ARGUMENT (group); KVC_E_GONE: where the walk stood
 * there is something else by now, so it has to start again. */
KVC_WARN_UNUSED int core_walk(struct core *c, const struct core_client *cl,
                              const struct core_walk *in,
                              void (*fn)(void *ctx, const struct kvc_block_info *), void *ctx,
                              uint64_t *ret_cursor);

/* What one slice may read: so many blocks, and none is begun once so many bytes are being read. */
#define CORE_VERIFY_BLOCKS 64u
#define CORE_VERIFY_BYTES  (UINT64_C(16) << 20)
/* Slices under way at a time: one per client; in all these, or one per principal if those are
 * more, shared fairly among principals. */
#define CORE_VERIFY_SLICES 4u

/* A block whose bytes are not those that were stored. */
struct core_corrupt {
    const struct key256 *key; /* borrowed during the call */
    uint32_t ns, group, shard;
    uint32_t below;        /* blocks that build on it, dropped with it */
    bool kept;             /* another copy of it stays, and what builds on it */
    struct tier_view view; /* of what was read; zero of a copy on disk */
};

enum core_verify_what { CORE_VERIFY_HOST, CORE_VERIFY_DISK, CORE_VERIFY_NEAR };

/* One slice of a walk by record number over what is present, that reads each block again and
 * compares its checksum. What is corrupt is unserved at once, with what builds on it; a lease on it
 * keeps its room, and readers see KVC_STALE. A block that is being read stays; at most an eighth of
 * what is present is read by one, half by all.
 *
 * NEAR: copies in slots of devices, each for itself and counted as a block. One that is corrupt
 * goes, with no other copy of its block. A device that goes meanwhile ends what is read there as
 * failed, and what it had is not looked for any more. */
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
    uint32_t ret_blocks;  /* of which every shard was read */
    uint32_t ret_skipped; /* being written, read by too many others, cancelled, or out of time */
    uint32_t ret_failed;  /* could not be read */

    uint32_t left; /* the core's from here on: blocks */
    struct {
        uint16_t left;   /* shards */
        uint8_t verdict; /* the worst so far */
    } block[CORE_VERIFY_BLOCKS];
};
/* 1 = blocks are being read, done() follows; 0 = there were none in this slice, the results are
 * final and done() does not run; KVC_E_BUSY: the client has one under way, or its
 * principal's share of them is. */
KVC_WARN_UNUSED int core_verify_start(struct core *c, struct core_verify *v);

/* The block's memory in host is no more, and what is there now is not what was stored. Its copy
 * there goes, and the block if it has no other one; what is in use stays until it is told of again.
 */
void core_host_lost(struct core *c, uint32_t block_no);

/* Where the bytes of blocks are; what has a copy in several is in each. */
struct core_places {
    uint64_t host, disk, near; /* near: on devices */
};

/* Waits until what was removed so far stays away after a crash. Zeroed before its first use. */
struct core_gone {
    struct list_node node; /* the core's: queued until fn is called or core_gone_cancel() */
    void (*fn)(struct core_gone *g, int err); /* from core_placement_step(). 0; KVC_E_TIER: removed,
                                               * but storage does not say that it stays away */
};
/* One wait of storage serves all that are queued when it begins. */
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
    bool force; /* what is pinned or named too; never what is leased or being written */
    struct core_client *client; /* whose rights; a closed client ends the job */
    void (*done)(struct core_evict_job *job);

    uint64_t ret_blocks, ret_bytes, ret_kept; /* results */
    struct core_places ret_in;
    int ret_err;           /* as core_gone.fn's */
    bool evicted;          /* the core's: all is evicted, and `gone` waits */
    struct core_gone gone; /* the core's */
    struct list_node node; /* the core's */
    uint32_t phase, cursor;
    uint32_t next, next_gen; /* where the walk of the tree at the cursor goes on */
    uint32_t place;          /* of a job by key: namespace and group at hand */
    bool marked;             /* what holds blocks is marked before any goes */
    uint64_t age_bytes[64];
    uint32_t age_floor;
};
/* Runs in slices from core_placement_step(); done() runs there, once, when what went stays away
 * after a crash. A dry run finds what would go if nothing else happened meanwhile. */
void core_evict_start(struct core *c, struct core_evict_job *job);

/* Begins to write what only host memory has to disk, so much of it at most that bytes_max are on
 * their way, and as the write budget allows; returns the payload bytes that are not there yet.
 * Called again until that is 0, or does not shrink any more. *ret_quota: of them, what quotas on
 * disk keep off it, as far as the last look at all blocks found; it makes no room under a quota.
 * 0 without a storage tier. */
uint64_t core_drain_disk(struct core *c, uint64_t bytes_max, uint64_t *ret_quota);

/* Checks the rules named at the top over everything; MUSTs. For tests; slow. */
void core_check(struct core *c);

#endif
