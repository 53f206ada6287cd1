/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvcache: the client of kvcache-daemon.
 *
 * A `struct kvc` is one session with the daemon of this node: an attach connection (identity,
 * descriptors, life), a control socket, a staging area and read-only mappings of the arena. It is
 * used by one thread at a time; different sessions are independent. After fork() the child must not
 * use a session of its parent: calls return -EPERM, kvc_close and kvc_release only free memory.
 *
 * Return values: 0 or positive is good; negative is an errno or a KVC_E_* of <kvcache/proto.h>.
 * A miss is not an error. Outputs are last and untouched on failure.
 *
 * The daemon may be absent at any time. Lookups and acquires then return 0 with no hit within their
 * deadline, stores return KVC_E_DOWN and are counted (kvc_counters), and the session reconnects by
 * itself at a later call. After a reconnect all holds, reservations and staging contents of before
 * are void: holds report KVC_STALE, stores return KVC_E_DOWN until kvc_staging was asked again.
 *
 * A daemon that is there and does not answer costs a call its deadline and up to 250 ms more; one
 * that stores as long again, to make sure that nothing reads staging. A lookup or acquire is then a
 * miss; a store is KVC_E_TIMEOUT, and counted like one that was dropped.
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
struct kvc_op; /* a request in flight */

/* ---- session ---- */

struct kvc_options {
    const char *socket; /* attach socket; NULL = $KVCACHE_SOCKET, else /run/kvcache/attach.sock */
    const char *name;   /* shown in stats and logs; NULL = the program's name */
    uint64_t staging_bytes; /* room for blocks on their way into the cache; 0 = none (a reader) */
    uint32_t shard;         /* this rank's shard of every block, 0 on a single rank */
    uint32_t timeout_ms;    /* default deadline of every call; 0 = KVC_DEADLINE_DEFAULT_MS */
    bool must_connect;      /* kvc_open fails when no daemon answers, instead of starting down */
};

/* Returns owned. options may be NULL. -EACCES / KVC_E_DENIED when this uid has no rights,
 * KVC_E_VERSION, KVC_E_DOWN (must_connect only), -ENOMEM, -EINVAL; kvc_last_error(NULL) says why.
 */
KVC_API KVC_MUST_USE int kvc_open(const struct kvc_options *options, struct kvc **ret_kvc);
/* Accepts NULL and a pointer to NULL. Releases every hold and reservation. */
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
 * it before the area is filled, not between filling and storing. The memory stays mapped until
 * then. */
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
    uint64_t prefill_ns_per_token;      /* 0 = unknown: a hit is always worth loading */
    uint64_t prefill_ns_per_token_pair; /* quadratic part, in 1e-6 ns */
    uint32_t groups;                    /* 1 to KVC_GROUPS_MAX */
    struct kvc_group_spec group[KVC_GROUPS_MAX];
};

/* KVC_E_UNSOUND with the reason in kvc_last_error; KVC_E_DOWN when no daemon ever answered for this
 * specification. The handle is borrowed from the session, is the same for an equal specification,
 * and is reopened by itself after a reconnect. */
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
    uint32_t tokens; /* longest cached prefix that satisfies every group */
    struct {
        uint32_t blocks; /* leading cached blocks of this group */
        uint8_t reason;  /* enum kvc_miss: why no more */
        uint32_t detail;
    } group[KVC_GROUPS_MAX];
};

/* flags: 0 = no side effect, KVC_F_TOUCH = counts as a use. */
KVC_API KVC_MUST_USE int kvc_lookup(struct kvc_ns *ns, const struct kvc_seq *seq, unsigned flags,
                                    struct kvc_prefix *ret_prefix);

/* Bytes of this rank's shard of one block, readable in place until the hold is released. */
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
    unsigned flags;       /* KVC_F_WAIT: wait for blocks that are being stored */
    uint32_t from_tokens; /* hold only blocks that end after this token */
    uint32_t wait_tokens; /* enough to return at once; 0 = all */
    uint32_t timeout_ms;  /* 0 = the session's */
};

/* Holds the blocks that the longest cached prefix needs. No hit: 0, with ret_hold->lease 0. The
 * hold must be released whatever it contains. options may be NULL. */
KVC_API KVC_MUST_USE int kvc_acquire(struct kvc_ns *ns, const struct kvc_seq *seq,
                                     const struct kvc_acquire_options *options,
                                     struct kvc_hold **ret_hold);
/* The same blocks for this session's shard, from a ticket. KVC_E_NO_LEASE. */
KVC_API KVC_MUST_USE int kvc_redeem(struct kvc_ns *ns, const uint8_t ticket[KVC_TICKET_BYTES],
                                    struct kvc_hold **ret_hold);
/* After reading: 0 = what was read is what was stored; KVC_STALE = discard it. No traffic. Once the
 * session has lost its daemon every hold is stale, but of one that the daemon dropped
 * (kvc_last_error says so) holds last until they are released: release them soon, they keep its
 * memory. */
KVC_API KVC_MUST_USE int kvc_hold_check(const struct kvc_hold *hold);
/* Releases hold and leases; sent without waiting for the reply. Accepts NULL. The hold knows its
 * session; kvc may be NULL. */
KVC_API void kvc_release(struct kvc *kvc, struct kvc_hold **hold);

/* ---- writing ---- */

struct kvc_blocks {
    uint32_t group;
    const uint8_t *parent; /* key before the first, NULL = the sequence starts here */
    const uint8_t *keys;   /* n x KVC_KEY_BYTES, consecutive */
    uint32_t n;            /* up to KVC_STORE_MAX */
    uint32_t first_token;  /* position of the first key's first token */
    uint32_t last_tokens;  /* tokens in the last block; 0 = full */
    const char *sub_tenant;
};

/* Announces blocks (others can wait for them) and takes room. statuses[i]: KVC_ST_OK = write it and
 * commit, KVC_ST_EXISTS or KVC_ST_PENDING = nothing to do, else why not. 0 in *ret_reservation:
 * nothing was reserved. The handle is this session's; it ends with its last block or kvc_drop. */
KVC_API KVC_MUST_USE int kvc_reserve(struct kvc_ns *ns, const struct kvc_blocks *blocks,
                                     uint64_t *ret_reservation, uint8_t *statuses);
/* Commits blocks first .. first + n - 1 of a reservation: offsets[i] in staging, UINT64_MAX = not
 * this one. Visible to others when it returns; staging may then be reused. tokens: the ids in the
 * committed blocks for a namespace with_tokens, else NULL. */
KVC_API KVC_MUST_USE int kvc_commit(struct kvc_ns *ns, uint64_t reservation, uint32_t first,
                                    uint32_t n, const uint64_t *offsets, const uint32_t *tokens,
                                    size_t ntokens, uint8_t *statuses);
/* Reserve and commit in one round trip, for blocks that are in staging already. */
KVC_API KVC_MUST_USE int kvc_store(struct kvc_ns *ns, const struct kvc_blocks *blocks,
                                   const uint64_t *offsets, const uint32_t *tokens, size_t ntokens,
                                   uint8_t *statuses);
/* Gives up what is not committed yet. 0 also when it ended with its connection; KVC_E_GONE. */
KVC_API KVC_MUST_USE int kvc_drop(struct kvc *kvc, uint64_t reservation);

/* ---- requests in flight ----
 *
 * The same calls in two halves: *_begin sends, kvc_wait returns the outcome and frees the op. Up to
 * the daemon's limit (64 by default) may be in flight; the inputs may be reused once begin returns.
 */
KVC_API KVC_MUST_USE int kvc_lookup_begin(struct kvc_ns *ns, const struct kvc_seq *seq,
                                          unsigned flags, struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_acquire_begin(struct kvc_ns *ns, const struct kvc_seq *seq,
                                           const struct kvc_acquire_options *options,
                                           struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_store_begin(struct kvc_ns *ns, const struct kvc_blocks *blocks,
                                         const uint64_t *offsets, const uint32_t *tokens,
                                         size_t ntokens, struct kvc_op **ret_op);
/* Exactly one of the outputs is used, that of the op's kind; the others may be NULL. Waits at most
 * until the op's deadline. Frees *op and sets it to NULL whatever it returns. */
KVC_API KVC_MUST_USE int kvc_wait(struct kvc_op **op, struct kvc_prefix *ret_prefix,
                                  struct kvc_hold **ret_hold, uint8_t *ret_statuses);
/* Ends a request early. Returns when nothing will touch this session's staging for it any more; the
 * op is then waited for as usual and returns KVC_E_CANCELLED or its outcome. */
KVC_API KVC_MUST_USE int kvc_cancel(struct kvc_op *op);

/* ---- operation (needs admin rights for what belongs to others) ---- */

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

struct kvc_explanation {
    uint32_t key, ns, group;
    uint8_t state, reason; /* enum kvc_block_state, enum kvc_miss */
    uint32_t detail, tokens, shards, shards_present, leases, children, chunk;
    uint64_t bytes, age_ms, off;
};
KVC_API KVC_MUST_USE int kvc_explain(struct kvc *kvc, uint32_t ns, const uint8_t *keys, uint32_t n,
                                     int (*fn)(void *ctx, const struct kvc_explanation *),
                                     void *ctx);

struct kvc_evict_filter {
    uint32_t ns;            /* 0 = any */
    const uint8_t *key;     /* NULL, or this block and its descendants */
    uint64_t older_than_ms; /* 0 = any age */
    uint64_t bytes;         /* stop after this much; 0 = no limit */
    bool dry_run;
};
struct kvc_evicted {
    uint64_t blocks, bytes, kept_blocks;
};
KVC_API KVC_MUST_USE int kvc_evict(struct kvc *kvc, const struct kvc_evict_filter *filter,
                                   struct kvc_evicted *ret_evicted);

#ifdef __cplusplus
}
#endif
#endif
