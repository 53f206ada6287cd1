/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvcache: the client of kvcache-daemon.
 *
 * A `struct kvc` is one session with the daemon of this node: an attach connection (identity,
 * descriptors, life), a control socket, a staging area and read-only mappings of the arena.
 *
 * Return values: 0 or positive is good; negative is an errno or a KVC_E_* of <kvcache/proto.h>.
 * A miss is not an error. Outputs are last and untouched on failure.
 *
 * The daemon may be absent at any time. Lookups and acquires then return 0 with no hit within their
 * deadline, stores return KVC_E_DOWN and are counted (kvc_counters), and the session reconnects by
 * itself at a later call. After a reconnect all holds, reservations and staging contents of before
 * are void: holds report KVC_STALE (but see kvc_hold_check), stores return KVC_E_DOWN until
 * kvc_staging was asked again.
 *
 * A daemon that is there and does not answer costs a call its deadline and up to 250 ms more; one
 * that stores as long again, to make sure that nothing reads staging. A lookup or acquire is then a
 * miss; a store is KVC_E_TIMEOUT, and counted like one that was dropped.
 *
 * Threads. A session is used by one thread at a time; it may be handed from one thread to another
 * by anything that orders memory (a mutex, a queue). That holds for all that belongs to it:
 * namespaces, requests, holds. The descriptor of kvc_fd may be waited on by any thread, and the
 * bytes of a hold or of staging may be read and written by any thread, while another uses the
 * session. Different sessions are independent. kvc_hash_chain and the functions that name errors
 * may be called by any thread at any time.
 *
 * Fork. A child must not use a session of its parent: calls return -EPERM, and kvc_close,
 * kvc_release and kvc_finish only free the child's memory; the parent's session goes on
 * undisturbed. A child must not read the blocks of its parent's holds, and must not wait on kvc_fd:
 * the child's copies of the descriptors are closed. Open a session of its own after fork(). All
 * descriptors of the library are close-on-exec. After vfork() the rule of vfork() holds: exec or
 * _exit only.
 *
 * Signals. No call returns early because of one, and none raises SIGPIPE. Nothing here may be
 * called from a signal handler.
 *
 * Structs that callers allocate. Set them to zero (or use an initializer) before filling them in: a
 * zero field means what it meant before the field was there. Their size and layout are part of the
 * ABI of one soname: a field is added at the end, in a release with a new soname, so recompiling is
 * enough. Before 1.0 each minor version has a soname of its own (libkvcache.so.0.5).
 */
#ifndef KVCACHE_KVCACHE_H
#define KVCACHE_KVCACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvcache/proto.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVC_API      __attribute__((visibility("default")))
#define KVC_MUST_USE __attribute__((warn_unused_result))

struct kvc;    /* a session */
struct kvc_ns; /* a namespace opened in a session; lives as long as the session */
struct kvc_op; /* a request that was begun */

/* ---- session ---- */

struct kvc_options {
    const char *socket; /* attach socket; NULL = $KVCACHE_SOCKET, else /run/kvcache/attach.sock */
    /* Shown in stats and logs, cut to 63 bytes; NULL = the program's name. In a name that is not
     * UTF-8 every byte beyond ASCII is shown as '?'. */
    const char *name;
    uint64_t staging_bytes; /* room for blocks on their way into the cache; 0 = none (a reader) */
    uint32_t shard;         /* this rank's shard of every block, 0 on a single rank */
    uint32_t timeout_ms;    /* default deadline of every call; 0 = KVC_DEADLINE_DEFAULT_MS */
    bool must_connect;      /* kvc_open fails when no daemon answers, instead of starting down */
    bool no_wait; /* kvc_open does not wait for the daemon: the session starts down, and later calls
                     or kvc_progress bring it up; rights are then refused in kvc_last_error only */
};

/* Returns owned. options may be NULL. -EACCES / KVC_E_DENIED when this uid has no rights,
 * KVC_E_VERSION, KVC_E_DOWN (must_connect only), -ENOMEM, -EINVAL; kvc_last_error(NULL) says why.
 */
KVC_API KVC_MUST_USE int kvc_open(const struct kvc_options *options, struct kvc **ret_kvc);
/* Accepts NULL and a pointer to NULL. Releases every hold and reservation; frees requests that were
 * begun and not finished. */
KVC_API void kvc_close(struct kvc **kvc);
/* The text of the last error of this session; "" if none. Borrowed until the next call. NULL: of
 * the last kvc_open of this thread that failed. */
KVC_API const char *kvc_last_error(const struct kvc *kvc);
/* "NO_PARENT", "ETIMEDOUT", ... of any value that a function here returns. Static. */
KVC_API const char *kvc_error_name(int error);
KVC_API const char *kvc_error_text(int error);
KVC_API const char *kvc_miss_name(unsigned reason); /* enum kvc_miss */
KVC_API const char *kvc_miss_text(unsigned reason);
/* Whether the daemon is there as far as this session knows (no traffic). */
KVC_API bool kvc_is_up(const struct kvc *kvc);
/* One round trip. */
KVC_API KVC_MUST_USE int kvc_ping(struct kvc *kvc, uint64_t *ret_uptime_ms);
/* Writable staging area, `*ret_bytes` long (what the daemon granted); NULL when down or 0. Its
 * contents are void after a reconnect, and are not stored before this has been called again: call
 * it before the area is filled, not between filling and storing. The addresses stay mapped until
 * then, but other memory may take their place when the session loses its daemon: what a device has
 * registered must be registered again when kvc_epoch has changed. */
KVC_API void *kvc_staging(struct kvc *kvc, uint64_t *ret_bytes);
/* Grows by one at each (re)connect; 0 = never connected. */
KVC_API uint32_t kvc_epoch(const struct kvc *kvc);

struct kvc_counters {
    uint64_t lookups_down; /* lookups and acquires answered as misses because no daemon was there */
    uint64_t stores_dropped_blocks; /* of reserve, commit and store that returned KVC_E_DOWN */
    uint64_t stores_dropped_bytes;
    uint64_t reconnects;
    uint64_t stale; /* holds found stale by kvc_hold_check */
};
KVC_API void kvc_get_counters(const struct kvc *kvc, struct kvc_counters *ret_counters);

/* ---- namespaces ---- */

struct kvc_group_spec {
    uint32_t block_tokens; /* 1 to KVC_BLOCK_TOKENS_MAX */
    uint32_t block_bytes;  /* payload of one shard of one whole block */
    enum kvc_rule rule;
    uint32_t window; /* tokens, KVC_RULE_WINDOW only */
    bool replicated; /* all ranks hold the same bytes: stored once */
};

/* All that must be equal for a block to be usable. Strings: NULL = "". */
struct kvc_ns_spec {
    const char *model, *revision, *dtype, *quant, *layout;
    const char *position;        /* "rope", "yarn", "alibi", "learned", "none", ... */
    const char *position_params; /* as text, compared byte by byte */
    const char *attention;       /* "causal" */
    const char *lora, *extra;
    const char *sub_tenant; /* gateway sessions only */
    uint32_t layers, kv_heads, head_size;
    uint32_t shards;                    /* ranks that hold parts of a block; 0 = 1 */
    bool with_tokens;                   /* stores carry token ids */
    uint64_t prefill_ns_per_token;      /* this session's; 0 = unknown: all is worth loading */
    uint64_t prefill_ns_per_token_pair; /* quadratic part, in 1e-6 ns */
    uint32_t groups;                    /* 1 to KVC_GROUPS_MAX */
    struct kvc_group_spec group[KVC_GROUPS_MAX];
};

/* KVC_E_UNSOUND with the reason in kvc_last_error; KVC_E_DOWN when no daemon ever answered for this
 * specification. The handle is borrowed from the session, is the same for an equal specification,
 * and is reopened by itself after a reconnect, and once when the daemon has let it go because it
 * was empty (requests are then sent again, unseen). */
KVC_API KVC_MUST_USE int kvc_ns_open(struct kvc *kvc, const struct kvc_ns_spec *spec,
                                     struct kvc_ns **ret_ns);
/* The parent of every first block, given by the daemon; may change at a reconnect (kvc_epoch). */
KVC_API const uint8_t *kvc_ns_seed(const struct kvc_ns *ns);
KVC_API uint32_t kvc_ns_id(const struct kvc_ns *ns);

/* ---- keys ---- */

/* Keys of the consecutive blocks of `tokens` (PROTOCOL.md, "Keys"): SHA-256 over parent, tokens and
 * extra, each tagged and length-prefixed. `parent` is the seed or the key before the first token.
 * Writes ceil(ntokens / block_tokens) keys to `keys`; returns their number. -EINVAL, -ENOMEM. Pure.
 */
KVC_API KVC_MUST_USE int kvc_hash_chain(const uint8_t parent[KVC_KEY_BYTES], const uint32_t *tokens,
                                        size_t ntokens, uint32_t block_tokens, const void *extra,
                                        size_t extra_bytes, uint8_t *keys);

/* ---- reading ---- */

/* A token sequence as chains of keys, one per group of the namespace, in its order. */
struct kvc_seq {
    uint32_t tokens; /* covered by the keys; the last block may be partly filled */
    struct {
        const uint8_t *keys; /* n x KVC_KEY_BYTES; borrowed until the call returns */
        uint32_t n;
    } group[KVC_GROUPS_MAX];
    const char *sub_tenant; /* gateway sessions: whose data, else NULL */
};

struct kvc_prefix {
    uint32_t tokens; /* longest cached prefix that satisfies every group, and is worth loading */
    struct {
        uint32_t blocks; /* leading cached blocks of this group */
        uint8_t reason;  /* enum kvc_miss: why no more */
        uint32_t detail;
    } group[KVC_GROUPS_MAX];
    uint32_t cached_tokens; /* the same without regard to whether it is worth loading */
    uint64_t load_us;       /* about how long loading what is not in memory takes; LOOKUP only */
};

/* A session that states the namespace's prefill cost gets as much of the prefix as is quicker
 * loaded than computed again, by the measured bandwidth and queue of the tiers (KVC_F_ALL: all of
 * it). flags: 0 = no side effect, KVC_F_TOUCH = counts as a use, KVC_F_PREFETCH = what it finds on
 * disk is being loaded into memory when it returns, as far as there is room; nothing waits for
 * that. */
KVC_API KVC_MUST_USE int kvc_lookup(struct kvc_ns *ns, const struct kvc_seq *seq, unsigned flags,
                                    struct kvc_prefix *ret_prefix);

/* Bytes of this rank's shard of one block, readable in place until the hold is released. Blocks
 * that were stored together mostly lie side by side: small ones are read fastest as one piece where
 * the next one's data begins at data + bytes. */
struct kvc_block {
    const void *data;
    uint32_t bytes;
    uint64_t gen;
    const uint64_t *gen_at; /* changes when the slot is given to other contents */
};

struct kvc_hold {
    uint64_t lease;                   /* 0 = nothing held */
    uint8_t ticket[KVC_TICKET_BYTES]; /* other ranks of this principal redeem it while it is held */
    uint32_t epoch;
    struct kvc_prefix prefix;
    struct {
        uint32_t first, n;             /* blocks first .. first + n - 1 of the group */
        const struct kvc_block *block; /* owned by the library until kvc_release */
    } group[KVC_GROUPS_MAX];
};

struct kvc_acquire_options {
    unsigned flags; /* KVC_F_WAIT: wait for blocks that are being stored; KVC_F_NO_LOAD: do not
                       wait for blocks that are on disk; KVC_F_READ_ONLY; KVC_F_ALL */
    uint32_t from_tokens; /* hold only blocks that end after this token */
    uint32_t wait_tokens; /* enough to return at once; 0 = all */
    uint32_t timeout_ms;  /* 0 = the session's */
};

/* Holds the blocks that the longest cached prefix needs. Those that are on disk are loaded and
 * waited for, until the timeout; what has come by then is held. No hit: 0, with ret_hold->lease 0.
 * The hold must be released whatever it contains. options may be NULL. */
KVC_API KVC_MUST_USE int kvc_acquire(struct kvc_ns *ns, const struct kvc_seq *seq,
                                     const struct kvc_acquire_options *options,
                                     struct kvc_hold **ret_hold);
/* The same blocks for this session's shard, from a ticket. KVC_E_NO_LEASE; also where the ticket is
 * of kvc_acquire_on() (gpu.h) and some of them are on that device and not in host memory. */
KVC_API KVC_MUST_USE int kvc_redeem(struct kvc_ns *ns, const uint8_t ticket[KVC_TICKET_BYTES],
                                    struct kvc_hold **ret_hold);
/* After reading: 0 = what was read is what is stored; KVC_STALE = discard it. No traffic. Once the
 * kernel has closed the connections of a daemon that ended (milliseconds after its process), every
 * hold is stale; until then its memory is as it was. When it is there and the session has ended
 * nevertheless (it dropped it, or the library gave it up: kvc_last_error says why), holds last
 * until they are released: release them soon, they keep its memory. The bytes of a hold can be read
 * until it is released, whatever happens. */
KVC_API KVC_MUST_USE int kvc_hold_check(const struct kvc_hold *hold);
/* Releases hold and leases; sent without waiting for the reply. Accepts NULL. The hold knows its
 * session; kvc may be NULL. */
KVC_API void kvc_release(struct kvc *kvc, struct kvc_hold **hold);

/* ---- writing ---- */

/* A wish for the blocks that hold a token of [first_token, end_token): how long they stay. Lower
 * priorities go first, 0 before all and KVC_PRIORITY_MAX last; blocks without a wish have
 * KVC_PRIORITY_DEFAULT, and go back to that when the wish ends, as if just used. The time runs from
 * the blocks' commit. Where ranges overlap the earlier in the list counts. A later wish for a block
 * that has one: the higher priority counts while it lasts. */
struct kvc_retain {
    uint32_t first_token, end_token; /* of the sequence; end 0 = to its end, however long */
    uint32_t priority;               /* 0 to KVC_PRIORITY_MAX */
    uint64_t duration_ms;            /* 0 = without end */
};

struct kvc_blocks {
    uint32_t group;
    const uint8_t *parent; /* key before the first, NULL = the sequence starts here */
    const uint8_t *keys;   /* n x KVC_KEY_BYTES, consecutive */
    uint32_t n;            /* up to KVC_STORE_MAX */
    uint32_t first_token;  /* position of the first key's first token */
    uint32_t last_tokens;  /* tokens in the last block; 0 = full */
    const char *sub_tenant;
    unsigned flags; /* KVC_F_DURABLE: what commits them returns when they, and all before them in
                       their chains, are on stable storage (KVC_ST_OK; QUOTA, FULL and TIER: cached,
                       but not that; EXISTS: promised from now on, without waiting). Of a block of
                       several shards: all of them, so it waits until the other ranks have stored
                       theirs (GONE: one of them dropped it); who stores several ranks' shards in
                       one thread begins them all (kvc_store_begin) before it waits.
                       KVC_E_BAD_ARGUMENT where the daemon has no storage tier. KVC_F_DECODED: of
                       decoded tokens. KVC_F_ALL: kvc_store takes them whatever they are worth, for
                       instance to be named or pinned. KVC_F_NO_STORE: answered with KVC_ST_NO_STORE
                       for each block, and nothing is sent */
    const struct kvc_retain *retain; /* nretain wishes, at most KVC_RETAIN_MAX */
    uint32_t nretain;
};

/* Announces blocks (others can wait for them) and takes room. statuses[i]: KVC_ST_OK = write it and
 * commit, KVC_ST_EXISTS or KVC_ST_PENDING = nothing to do, else why not: KVC_ST_FULL also when the
 * session would be writing more than half of the daemon's host.limit, KVC_ST_TIER when its only
 * copy is on a storage path that is out of service. 0 in *ret_reservation:
 * nothing was reserved. The handle is this session's; it ends with its last block or kvc_drop. */
KVC_API KVC_MUST_USE int kvc_reserve(struct kvc_ns *ns, const struct kvc_blocks *blocks,
                                     uint64_t *ret_reservation, uint8_t *statuses);
/* Commits blocks first .. first + n - 1 of a reservation: offsets[i] in staging, multiples of 64;
 * UINT64_MAX = not this one. An offset that is no multiple, or whose block would end outside of
 * staging, is a BAD_ARGUMENT in statuses, and the block stays reserved. Visible to others when it
 * returns; staging may then be reused. tokens: the ids in the committed blocks for a namespace
 * with_tokens, else NULL. */
KVC_API KVC_MUST_USE int kvc_commit(struct kvc_ns *ns, uint64_t reservation, uint32_t first,
                                    uint32_t n, const uint64_t *offsets, const uint32_t *tokens,
                                    size_t ntokens, uint8_t *statuses);
/* Reserve and commit in one round trip, for blocks that are all in staging already: UINT64_MAX is
 * -EINVAL here. The same half of host.limit bounds what one call can store. Nobody waits for these,
 * so they are judged: KVC_ST_NOT_WORTH = memory is full of what is worth more, and there is no
 * storage behind it (PROTOCOL.md, Admission: not with KVC_F_ALL, not what goes on from a named
 * conversation, not within a guaranteed share). */
KVC_API KVC_MUST_USE int kvc_store(struct kvc_ns *ns, const struct kvc_blocks *blocks,
                                   const uint64_t *offsets, const uint32_t *tokens, size_t ntokens,
                                   uint8_t *statuses);
/* Gives up what is not committed yet. 0 also when it ended with its connection; KVC_E_GONE. */
KVC_API KVC_MUST_USE int kvc_drop(struct kvc *kvc, uint64_t reservation);

/* ---- hints, conversations, documents ----
 *
 * A name stands for a chain: a conversation for what was said so far, a document for KV that was
 * computed once to be used often (CAG). Names belong to the principal, tenant and sub-tenant; the
 * two kinds are apart. As long as the name lasts, what it reaches has at least the priority
 * `priority` in memory, and eviction on request passes it over. With storage it is written there as
 * soon as can be, is not given up there for room, and is found again after a restart. Without, or
 * where storage could not take it, it goes from memory when room is short, the lower its priority
 * the sooner; the name then stands for what is left (kvc_name_info.tokens_cached). KVC_F_PINNED
 * keeps it from going for room in either case. A name can be moved to another chain (the
 * conversation goes on; an answer is regenerated); what no name reaches any more loses its
 * protection at once.
 *
 * These calls wait for the reply; they are not for the path of each token. */

/* Says what will become of a chain: enum kvc_hint_kind. within_ms: for SOON. Sent without waiting
 * for the reply (kvc_close does, a little), and nothing when the session is down. -EINVAL. */
KVC_API KVC_MUST_USE int kvc_hint(struct kvc_ns *ns, const struct kvc_seq *seq,
                                  enum kvc_hint_kind kind, uint32_t within_ms);

struct kvc_name_options {
    unsigned flags; /* KVC_F_PINNED: nothing of it goes while the name lasts, within the budget of
                       pinned bytes; KVC_F_DURABLE: returns when it is on stable storage */
    uint32_t priority; /* 0 = KVC_PRIORITY_DEFAULT */
    uint64_t ttl_ms;   /* the name goes when it was not used for so long; 0 = never */
    const uint32_t
        *tokens; /* documents: the ids of all seq->tokens tokens, kept for export; NULL */
};
struct kvc_named {
    uint32_t tokens; /* covered: what was cached of the chain. A partly filled last block is */
    uint64_t bytes;
};
/* Makes a name or moves it to seq. What is covered is the longest prefix of seq that is cached now;
 * that is what the name stands for: what is to be named for the first time is best stored with
 * KVC_F_ALL, and as a conversation goes on from there it is taken anyway. options may be NULL.
 * KVC_E_GONE: nothing of it is cached; KVC_E_PIN_LIMIT; KVC_E_QUOTA: a hard limit on storage is
 * below what would be promised there, or what is guaranteed to others leaves less, and the name is
 * as it was; KVC_E_LIMIT (names). With KVC_F_DURABLE: KVC_E_FULL (promises have half of the
 * storage), KVC_E_TIER and KVC_E_TIMEOUT: the name is made, but not all of it is on stable storage;
 * that is tried again by itself, and *ret_named is not set. */
KVC_API KVC_MUST_USE int kvc_name_put(struct kvc_ns *ns, enum kvc_name_kind kind, const char *name,
                                      const struct kvc_seq *seq,
                                      const struct kvc_name_options *options,
                                      struct kvc_named *ret_named);
struct kvc_name_info {
    uint8_t kind;
    char name[KVC_STRING_MAX], principal[KVC_STRING_MAX], tenant[KVC_STRING_MAX],
        sub[KVC_STRING_MAX], model[KVC_STRING_MAX];
    uint32_t ns, tokens, blocks; /* ns: 0 when it is not open */
    uint32_t tokens_cached;      /* of them: the prefix that is there now, in whatever tier */
    uint64_t bytes, bytes_in_memory, bytes_on_disk;
    uint64_t age_ms, idle_ms, ttl_ms;
    uint32_t priority;
    bool pinned, has_tokens;
    uint8_t tip[KVC_KEY_BYTES]; /* key of group 0's last block */
};
/* Calls fn for each name of a kind (0: of both) whose name begins with `prefix` (NULL: all), in
 * order; a non-zero return of fn ends the walk and is returned. sub: gateway sessions only. */
KVC_API KVC_MUST_USE int kvc_name_list(struct kvc *kvc, unsigned kind, const char *prefix,
                                       const char *sub,
                                       int (*fn)(void *ctx, const struct kvc_name_info *),
                                       void *ctx);
/* One of them. KVC_E_NO_NAME. */
KVC_API KVC_MUST_USE int kvc_name_show(struct kvc *kvc, enum kvc_name_kind kind, const char *name,
                                       const char *sub, struct kvc_name_info *ret_info);
/* The name goes, its blocks become ordinary ones; evict: they go too, but for what others share,
 * pin or use (kvc_name_evict says how much went, and before that how much would). KVC_E_NO_NAME. */
KVC_API KVC_MUST_USE int kvc_name_forget(struct kvc *kvc, enum kvc_name_kind kind, const char *name,
                                         const char *sub, bool evict);
/* Counts as a use of the name, renews its TTL (ttl_ms: another one; UINT64_MAX = as it was), and
 * begins to load into memory what is on storage of it; wait: until all is there, or no more will
 * come, or the deadline. *ret_bytes: that are in memory now. KVC_E_NO_NAME. */
KVC_API KVC_MUST_USE int kvc_name_load(struct kvc *kvc, enum kvc_name_kind kind, const char *name,
                                       const char *sub, uint64_t ttl_ms, bool wait,
                                       uint32_t timeout_ms, uint64_t *ret_bytes);
/* The token ids that came with kvc_name_put: up to `max` from `first`; returns how many. */
KVC_API KVC_MUST_USE int kvc_name_tokens(struct kvc *kvc, enum kvc_name_kind kind, const char *name,
                                         const char *sub, uint32_t first, uint32_t *tokens,
                                         uint32_t max);

/* ---- requests in flight ----
 *
 * The same calls in two halves. *_begin sends the request and returns an op; the op is done when
 * its outcome is there; kvc_finish (or kvc_wait) hands the outcome out and frees the op. Up to the
 * daemon's limits.requests (256 by default) may be in flight, what is begun beyond ends with
 * KVC_E_BUSY. A session has 1,024 at most, those that wait for a namespace included: begin returns
 * KVC_E_BUSY for the next one. The inputs may be reused once begin returns, staging once the op is
 * finished. Replies come in any order.
 *
 * Begin halves, kvc_progress, kvc_next, kvc_cancel_begin, kvc_release, and kvc_finish of an op that
 * is done never wait, whatever the daemon does: absent, frozen, or dying. (They copy and make
 * system calls; none of these sleeps.) A session that is down goes on with connecting in them, step
 * by step. A request that is begun while the session is not up is done at once: a lookup, acquire
 * or redeem as a miss, a namespace that is known as it was before; what stores fails in its begin
 * half with KVC_E_DOWN, like a ping or a new namespace. The other functions wait as said above;
 * kvc_open waits for the daemon up to the session's timeout (no_wait: not at all), kvc_close up to
 * 250 ms for it to take hints that it has not answered yet, and for libzmq's threads to end, which
 * does not depend on the daemon.
 *
 * A loop:
 *
 *     poll for POLLIN on kvc_fd(kvc), with everything else
 *     kvc_progress(kvc);
 *     while (kvc_next(kvc, &op) > 0) {
 *         struct kvc_result r;
 *         int rc = kvc_finish(&op, &r);       r.kind, r.user say whose it is
 *     }
 */

/* An outcome. Of the fields after `user` those of the request's kind are set. */
struct kvc_result {
    uint8_t kind;             /* enum kvc_op_code: which begin half */
    void *user;               /* kvc_op_set_user */
    struct kvc_prefix prefix; /* LOOKUP, PAGES_LOAD */
    struct kvc_hold *hold;    /* ACQUIRE, REDEEM: to be released, whatever it contains */
    struct kvc_ns *ns;        /* NS_OPEN: borrowed from the session */
    uint64_t reservation;     /* RESERVE: 0 = nothing was reserved */
    uint64_t uptime_ms;       /* PING */
    const uint8_t *statuses;  /* RESERVE, COMMIT, STORE, PAGES_STORE: n of them, borrowed until the
                                 next kvc_finish of this session */
    uint32_t n;
};

KVC_API KVC_MUST_USE int kvc_ping_begin(struct kvc *kvc, struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_ns_open_begin(struct kvc *kvc, const struct kvc_ns_spec *spec,
                                           struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_lookup_begin(struct kvc_ns *ns, const struct kvc_seq *seq,
                                          unsigned flags, struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_acquire_begin(struct kvc_ns *ns, const struct kvc_seq *seq,
                                           const struct kvc_acquire_options *options,
                                           struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_redeem_begin(struct kvc_ns *ns, const uint8_t ticket[KVC_TICKET_BYTES],
                                          struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_reserve_begin(struct kvc_ns *ns, const struct kvc_blocks *blocks,
                                           struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_commit_begin(struct kvc_ns *ns, uint64_t reservation, uint32_t first,
                                          uint32_t n, const uint64_t *offsets,
                                          const uint32_t *tokens, size_t ntokens,
                                          struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_store_begin(struct kvc_ns *ns, const struct kvc_blocks *blocks,
                                         const uint64_t *offsets, const uint32_t *tokens,
                                         size_t ntokens, struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_drop_begin(struct kvc *kvc, uint64_t reservation,
                                        struct kvc_op **ret_op);

/* A word of the caller's that stays with the op; NULL at first. */
KVC_API void kvc_op_set_user(struct kvc_op *op, void *user);
KVC_API void *kvc_op_user(const struct kvc_op *op);
/* Whether its outcome is there. No traffic: kvc_progress takes in what has come. */
KVC_API bool kvc_done(const struct kvc_op *op);

/* Hands out what the call that waits would: its return value, its outputs in *ret_result (of which
 * kind and user are set on failure too; the call's outputs are zero then). Waits for the op if it
 * is not done, at most as long as that call. Frees *op and sets it to NULL whatever it returns. */
KVC_API KVC_MUST_USE int kvc_finish(struct kvc_op **op, struct kvc_result *ret_result);
/* kvc_finish for a lookup, an acquire or redeem, a store or commit. Exactly one of the outputs is
 * used, that of the op's kind; the others may be NULL. */
KVC_API KVC_MUST_USE int kvc_wait(struct kvc_op **op, struct kvc_prefix *ret_prefix,
                                  struct kvc_hold **ret_hold, uint8_t *ret_statuses);
/* Ends a request early. Returns when nothing will touch this session's staging for it any more; the
 * op is then finished as usual and gives KVC_E_CANCELLED or its outcome. Waits for up to 250 ms. */
KVC_API KVC_MUST_USE int kvc_cancel(struct kvc_op *op);
/* The same without waiting: the op is done some time later, 250 ms at most. */
KVC_API KVC_MUST_USE int kvc_cancel_begin(struct kvc_op *op);

/* The descriptor that a poll, epoll, io_uring or asyncio loop watches for POLLIN; never read or
 * written. Readable (level-triggered) while kvc_progress has something to do or kvc_next something
 * to hand out: replies, the daemon's death, deadlines, connecting. The same one until kvc_close,
 * which closes it; made by the first call. -EPERM, -EMFILE, -ENOMEM, ... */
KVC_API KVC_MUST_USE int kvc_fd(struct kvc *kvc);
/* Does what can be done now: receives replies, notices the daemon's end, ends what is beyond its
 * deadline, goes on with connecting. Returns how many ops kvc_next has; -EPERM. Without kvc_fd it
 * may be called now and then instead. */
KVC_API int kvc_progress(struct kvc *kvc);
/* 1 = *ret_op is done and has not been handed out before, in the order in which they became done;
 * 0 = none; -EPERM. The op is the caller's to finish; one that is finished without having been
 * handed out is not handed out any more. No traffic. */
KVC_API KVC_MUST_USE int kvc_next(struct kvc *kvc, struct kvc_op **ret_op);

/* ---- operation (needs admin rights for what belongs to others) ----
 *
 * A function that is called for each item may call other functions of its session, but kvc_close.
 */

struct kvc_stat {
    char name[64];
    bool gauge;
    uint64_t value;
};
/* Calls fn for each statistic; a non-zero return of fn ends the walk and is returned. */
KVC_API KVC_MUST_USE int kvc_stats(struct kvc *kvc, int (*fn)(void *ctx, const struct kvc_stat *),
                                   void *ctx);

struct kvc_ns_info {
    uint32_t ns, shards, groups, block_tokens, block_bytes; /* the last two of group 0 */
    char principal[KVC_STRING_MAX], tenant[KVC_STRING_MAX], sub[KVC_STRING_MAX],
        model[KVC_STRING_MAX], dtype[KVC_STRING_MAX];
    uint64_t blocks, bytes;
};
KVC_API KVC_MUST_USE int kvc_ns_list(struct kvc *kvc,
                                     int (*fn)(void *ctx, const struct kvc_ns_info *), void *ctx);

/* All that a namespace was opened with. Returns owned: free() gives back the struct with its texts.
 * *ret_own (may be NULL): kvc_ns_open with it gives this session that namespace; not so for what
 * belongs to another principal. KVC_E_NO_NAMESPACE. */
KVC_API KVC_MUST_USE int kvc_ns_spec_of(struct kvc *kvc, uint32_t ns, struct kvc_ns_spec **ret_spec,
                                        bool *ret_own);

struct kvc_explanation {
    uint32_t key, ns, group;
    uint8_t state, reason; /* enum kvc_block_state, enum kvc_miss */
    uint32_t detail, tokens, shards, shards_present, leases, children, chunk;
    uint64_t bytes, age_ms, off;
    uint8_t tiers; /* set of enum kvc_tier_id: where shard 0 is; chunk and off are in host memory */
};
KVC_API KVC_MUST_USE int kvc_explain(struct kvc *kvc, uint32_t ns, const uint8_t *keys, uint32_t n,
                                     int (*fn)(void *ctx, const struct kvc_explanation *),
                                     void *ctx);

/* Walks through the blocks of a namespace: from a block to the first one of its sequence, or to all
 * that build on it, or the first blocks of all sequences (enum kvc_walk_mode). */
struct kvc_walk {
    uint32_t ns, group;
    enum kvc_walk_mode mode;
    const uint8_t *key; /* where UP and DOWN begin; NULL for ROOTS */
    uint32_t depth;     /* DOWN: levels below the key; 0 = all */
};
struct kvc_walked {
    uint8_t key[KVC_KEY_BYTES], parent[KVC_KEY_BYTES];
    bool has_parent;
    uint8_t state, tiers; /* enum kvc_block_state, set of enum kvc_tier_id */
    uint32_t depth, tokens, shards, shards_present, leases, children, chunk;
    uint64_t bytes, age_ms, off;
};
/* Calls fn for each; a non-zero return of fn ends the walk and is returned. Nothing when the key is
 * not cached. KVC_E_GONE: blocks went while the walk was among them; what fn has got was true.
 * KVC_E_NO_NAMESPACE. */
KVC_API KVC_MUST_USE int kvc_walk_blocks(struct kvc *kvc, const struct kvc_walk *walk,
                                         int (*fn)(void *ctx, const struct kvc_walked *),
                                         void *ctx);

/* One slice of a pass over what is stored: reads blocks again and compares checksums. Start with
 * cursor 0, go on with ret_verified->cursor until that is 0; the pace is the caller's. */
struct kvc_verify {
    uint32_t ns;           /* 0 = any */
    enum kvc_tier_id tier; /* KVC_TIER_NONE = all */
    uint64_t cursor;
    uint64_t bytes_max; /* payload to read, about; at least 1 */
};
/* A block that was not what had been stored; it is gone now. HBM: the copy in that slot alone is.
 */
struct kvc_corrupt {
    uint8_t key[KVC_KEY_BYTES];
    uint32_t ns, group, shard, chunk, below; /* below: blocks that built on it, gone too */
    uint8_t tier;                            /* enum kvc_tier_id */
    uint64_t off;
};
struct kvc_verified {
    uint64_t cursor, bytes;           /* read */
    uint32_t blocks, skipped, failed; /* HBM: copies of them. skipped: being written; failed: could
                                       * not be read */
    uint32_t corrupt;
    struct kvc_corrupt found[KVC_VERIFY_MAX]; /* the first `corrupt` of them */
};
/* KVC_E_BUSY: others verify too; try again. KVC_E_NO_NAMESPACE; KVC_E_BAD_ARGUMENT: there is no
 * such tier. */
KVC_API KVC_MUST_USE int kvc_verify_slice(struct kvc *kvc, const struct kvc_verify *verify,
                                          struct kvc_verified *ret_verified);

/* The daemon's record of what was asked for, for replaying: needs admin rights. */
struct kvc_trace_state {
    bool on;
    uint32_t ns; /* 0 = all */
    uint64_t bytes, used_bytes, records, dropped, age_ms;
};
/* bytes: memory for ON, 0 = the daemon's default; ns: for ON, 0 = all. OFF forgets the trace, and
 * tells what it was. KVC_E_EXISTS: one is on already. */
KVC_API KVC_MUST_USE int kvc_trace(struct kvc *kvc, enum kvc_trace_action action, uint32_t ns,
                                   uint64_t bytes, struct kvc_trace_state *ret_state);
struct kvc_trace_record {
    uint32_t ns, block_tokens, input_tokens, output_tokens;
    uint64_t timestamp_ms; /* since the trace was turned on */
    uint32_t n;
    const uint8_t *ids; /* n x u64 little-endian, one per block asked for; borrowed by fn */
};
/* Calls fn for each record, oldest first; a non-zero return of fn ends the walk and is returned.
 * *ret_lost: records that were dropped while this went on. KVC_E_GONE: no trace is on. */
KVC_API KVC_MUST_USE int kvc_trace_dump(struct kvc *kvc, uint32_t ns,
                                        int (*fn)(void *ctx, const struct kvc_trace_record *),
                                        void *ctx, uint64_t *ret_lost);

/* One step of writing to storage all that only host memory holds: starts up to bytes_max (at least
 * 1) of writes. Call it again until ret_drained->left is 0 or does not fall any more. Needs admin
 * rights. KVC_E_BAD_ARGUMENT: there is no storage tier. */
struct kvc_drained {
    uint64_t left; /* payload bytes that only host memory holds */
    uint8_t stop;  /* enum kvc_drain_stop: why it will not get to 0 by itself */
};
KVC_API KVC_MUST_USE int kvc_drain(struct kvc *kvc, uint64_t bytes_max,
                                   struct kvc_drained *ret_drained);

/* A path of the storage tier: needs admin rights. */
struct kvc_path {
    char name[KVC_PARAMS_MAX], error[KVC_STRING_MAX]; /* error: why it is out, else "" */
    uint8_t state;                                    /* enum kvc_path_state */
    uint64_t bytes, used_bytes, formatted_bytes;
    uint64_t reads, writes, syncs, read_bytes, write_bytes;
    uint64_t errors, outs; /* I/Os that failed; times that it was taken out */
    uint64_t queued, queued_bytes;
    uint64_t read_p50_us, read_p99_us, read_max_us, write_p50_us, write_p99_us, write_max_us;
};
/* What is written to all of them, and what may be. */
struct kvc_writes {
    uint64_t per_day;  /* bytes; 0 = no limit */
    uint64_t spent;    /* since the budget's day began */
    uint64_t left;     /* that may be written now */
    uint64_t accepted; /* payload put */
    uint64_t written;  /* payload, tables, superblocks */
    uint64_t kept;     /* of them, payload written again when room was reclaimed */
    uint64_t journal;
};
/* Calls fn for each path (for none where there is no storage tier); a non-zero return of fn ends
 * the walk and is returned. */
KVC_API KVC_MUST_USE int kvc_paths(struct kvc *kvc, int (*fn)(void *ctx, const struct kvc_path *),
                                   void *ctx, struct kvc_writes *ret_writes);

/* A pin: nothing of a chain goes while it lasts, whoever wants room; it counts against its tenant's
 * budget of pinned bytes. */
struct kvc_pin_info {
    uint64_t id, bytes, left_ms; /* left_ms: 0 = without end */
    uint32_t ns, tokens;
    char principal[KVC_STRING_MAX], tenant[KVC_STRING_MAX];
    bool in_memory; /* its copy in memory stays too */
    uint8_t tip[KVC_KEY_BYTES];
};
/* Pins what is cached of seq. ttl_ms 0: until kvc_unpin. The pin outlives the session and not the
 * daemon: names last. KVC_E_PIN_LIMIT: over the budget, or pins of all in memory would have more
 * than seven eighths of it; KVC_E_QUOTA: a hard limit is below what would have to stay, or what is
 * guaranteed to others leaves less; KVC_E_GONE: nothing is cached. */
KVC_API KVC_MUST_USE int kvc_pin(struct kvc_ns *ns, const struct kvc_seq *seq, bool in_memory,
                                 uint64_t ttl_ms, uint64_t *ret_pin);
/* KVC_E_NO_NAME: there is no such pin of this principal's. */
KVC_API KVC_MUST_USE int kvc_unpin(struct kvc *kvc, uint64_t pin);
KVC_API KVC_MUST_USE int kvc_pin_list(struct kvc *kvc,
                                      int (*fn)(void *ctx, const struct kvc_pin_info *), void *ctx);

/* A quota, for all that a tenant, one of its sub-tenants, or a namespace holds. Admin rights. */
struct kvc_quota {
    uint8_t scope; /* enum kvc_scope, not ALL */
    char tenant[KVC_STRING_MAX],
        sub[KVC_STRING_MAX];         /* of TENANT and SUB; an answer also has an NS's */
    uint32_t ns;                     /* of NS */
    uint64_t host_limit, nvme_limit; /* bytes, never exceeded; UINT64_MAX = none */
    uint64_t host_share, nvme_share; /* guaranteed: what others borrow of it while it lies idle is
                                        taken back first; in memory but for chunks in which
                                        another principal leases, pins or reserves something */
    uint64_t host_bytes, nvme_bytes; /* held now; this and what follows of the answer only */
    /* What stays there whoever wants room: in host memory for pins, on storage for names, pins and
     * durable commits, what is yet to be written too. A limit that was lowered below that is
     * reached when some of them end. */
    uint64_t host_promised, nvme_promised;
};
/* Sets or changes one; all limits UINT64_MAX and all shares 0: removes it. Lasts until the daemon
 * ends; those of the configuration come back. KVC_E_NO_NAMESPACE, KVC_E_LIMIT (quotas). */
KVC_API KVC_MUST_USE int kvc_quota_set(struct kvc *kvc, const struct kvc_quota *quota);
KVC_API KVC_MUST_USE int kvc_quota_list(struct kvc *kvc,
                                        int (*fn)(void *ctx, const struct kvc_quota *), void *ctx);

/* Who holds the room. */
struct kvc_usage {
    char principal[KVC_STRING_MAX], tenant[KVC_STRING_MAX], sub[KVC_STRING_MAX],
        model[KVC_STRING_MAX];
    uint32_t ns;
    uint64_t blocks, host_bytes, nvme_bytes, pinned_bytes, named_bytes, leased_bytes;
    uint64_t device_bytes;   /* of slots on devices, over all of them */
    uint64_t promised_bytes; /* on storage, as nvme_promised of kvc_quota */
};
/* Calls fn for each namespace that the session may see. */
KVC_API KVC_MUST_USE int kvc_usage(struct kvc *kvc, int (*fn)(void *ctx, const struct kvc_usage *),
                                   void *ctx);

/* Sessions, what they hold in place, and for how long. */
struct kvc_session_info {
    char name[KVC_STRING_MAX], principal[KVC_STRING_MAX], tenant[KVC_STRING_MAX];
    uint32_t session, uid, pid;
    uint32_t leases, reservations;
    uint64_t leased_bytes, reserved_bytes;     /* reserved: announced, and not committed */
    uint64_t lease_age_ms, reservation_age_ms; /* of the oldest; 0: there is none */
    bool dropped; /* the daemon has ended it, and its process still holds leases */
};
/* Calls fn for each session that this one may see. */
KVC_API KVC_MUST_USE int
kvc_sessions(struct kvc *kvc, int (*fn)(void *ctx, const struct kvc_session_info *), void *ctx);
/* Ends a session of this principal, or any with admin rights: its leases and reservations too, at
 * once, though its process may live and read. KVC_E_GONE: there is no such session to see. */
KVC_API KVC_MUST_USE int kvc_session_end(struct kvc *kvc, uint32_t session);

/* The eviction policy: which it is, and what may be set while it runs. Admin rights to set. */
struct kvc_level {
    uint32_t priority;
    uint64_t blocks; /* that are kept at it */
};
struct kvc_policy_info {
    char name[64], text[512];    /* text: what it is, for people */
    char chosen[KVC_PARAMS_MAX]; /* "default", "--set", "FILE:LINE" of the daemon's configuration */
    uint32_t keep_percent;       /* of what is on disk, the part that is not worth writing again */
    bool load_or_recompute;      /* whether it is weighed */
    uint64_t pin_bytes_max;      /* per tenant */
    /* The same as the daemon began: what differs has been set since. */
    uint32_t keep_percent_start;
    bool load_or_recompute_start;
    uint64_t pin_bytes_max_start;
    bool storage; /* there is a storage tier */
    bool hints;   /* the policy heeds hints */
    bool pins;    /* pins are taken: else each is KVC_E_LIMIT */
    bool all;     /* false: what follows is 0, for want of admin rights */
    uint64_t writes_per_day, spent_bytes, left_bytes; /* as in struct kvc_writes */
    uint64_t load_bytes_per_s, load_latency_us;       /* learned of storage; 0 = nothing yet */
    uint64_t hints_ended, hints_continue, hints_soon, hints_scan; /* given since it began */
    uint64_t wishes, wishes_ended;                                /* blocks */
    uint32_t levels;
    struct kvc_level level[KVC_PRIORITY_MAX + 1]; /* those that have blocks, lowest first */
    /* What is stored into full memory is taken whatever it is worth; and as the daemon began. */
    bool admit_all, admit_all_start;
    bool admits; /* the policy judges what is stored: else, and with storage, all is taken anyway */
};
/* set: NULL, or the new values of keep_percent, load_or_recompute, admit_all and pin_bytes_max; its
 * name is compared: KVC_E_BAD_ARGUMENT when it is another one, for that takes a restart. */
KVC_API KVC_MUST_USE int kvc_policy(struct kvc *kvc, const struct kvc_policy_info *set,
                                    struct kvc_policy_info *ret_info);

struct kvc_evict_filter {
    uint32_t ns;            /* 0 = any */
    const uint8_t *key;     /* NULL, or this block and its descendants */
    uint64_t older_than_ms; /* 0 = any age */
    uint64_t bytes;         /* stop after this much; 0 = no limit */
    bool dry_run;
    const char *tenant, *model; /* NULL = any */
    uint32_t priority_below;    /* only blocks of a lower priority; 0 = any */
    bool force;                 /* what is pinned or named too, but not what is leased */
};
struct kvc_evicted {
    uint64_t blocks, bytes, kept_blocks;
    uint64_t host_bytes, nvme_bytes, device_bytes; /* where those that went were, or are */
};
/* Returns when what went stays away after a crash. KVC_E_TIER, KVC_E_TIMEOUT: it went, but may be
 * back after one. */
KVC_API KVC_MUST_USE int kvc_evict(struct kvc *kvc, const struct kvc_evict_filter *filter,
                                   struct kvc_evicted *ret_evicted);
/* The name goes, and its blocks but for those that others share, pin or use (kept_blocks). dry_run:
 * what would go now; nothing is changed. KVC_E_NO_NAME. */
KVC_API KVC_MUST_USE int kvc_name_evict(struct kvc *kvc, enum kvc_name_kind kind, const char *name,
                                        const char *sub, bool dry_run,
                                        struct kvc_evicted *ret_evicted);
/* Why blocks of a name stay: each counts once, for the first of these that holds. */
struct kvc_kept {
    uint64_t named;  /* other names reach them */
    uint64_t pinned; /* pins hold them */
    uint64_t used;   /* under lease, or being written */
    uint64_t below;  /* blocks of others, or that stay, build on them */
};
/* The same, and why kept_blocks stay. */
KVC_API KVC_MUST_USE int kvc_name_evict_kept(struct kvc *kvc, enum kvc_name_kind kind,
                                             const char *name, const char *sub, bool dry_run,
                                             struct kvc_evicted *ret_evicted,
                                             struct kvc_kept *ret_kept);

#ifdef __cplusplus
}
#endif
#endif
