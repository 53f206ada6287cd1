/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes and decodes every message of PROTOCOL.md. The library (client/) and the daemon
 * (daemon/svc) link the same code: it is the first and the last step of each request.
 *
 * Encoders write into a caller's buffer of fixed size and allocate nothing. They return the length.
 * -ENOSPC: the message does not fit (the buffer is then half written). -EINVAL: the struct names
 * more items than its arrays hold, or the head an operation that has no such message. The reader,
 * not the writer, checks limits on values: it refuses, and says which.
 *
 * Decoders check every bound, never recurse and never allocate. Strings and blobs are *borrowed*
 * from the input buffer and are not zero-terminated. A decoder returns 0, KVC_E_BAD_MESSAGE (not
 * msgpack, wrong shape or type, bytes left over) or KVC_E_BAD_ARGUMENT (right shape, value outside
 * its limits). It stops at the first error; the `detail` of the head says what was wrong, a static
 * text. The message is untouched on failure. The head is always written, all zero when it could not
 * be read: a request whose head is good can be answered whatever else is wrong.
 *
 * All functions are pure and may be called on any thread.
 */
#ifndef KVC_CODEC_H
#define KVC_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <kvcache/proto.h>
#include <kvcache/rows.h>

#define CODEC_MUST_USE __attribute__((warn_unused_result))

/* The longest `detail` of an error; an encoder clips a longer one. */
#define CODEC_DETAIL_MAX 512u

struct codec_bin {
    const uint8_t *p; /* may be NULL when n is 0 */
    uint32_t n;       /* bytes */
};

/* A text without its zero byte; NULL is the empty text. Borrows it. */
static inline struct codec_bin codec_text(const char *s)
{
    return (struct codec_bin){.p = (const uint8_t *)s, .n = s != NULL ? (uint32_t)strlen(s) : 0};
}

/* Whether a text field may hold s: UTF-8 without a zero byte. */
bool codec_is_text(struct codec_bin s);

/* ---- heads: [op, corr, deadline_ms, ...] and [op | REPLY, corr, status, ...] ---- */

struct msg_head {
    uint8_t op;
    /* Chosen by the client, echoed in the reply; no two requests in flight have the same. */
    uint64_t corr;
    /* Counted from receipt; 0 = KVC_DEADLINE_DEFAULT_MS. A larger value than fits is read as 2^32 -
     * 1. */
    uint32_t deadline_ms;
    /* Set by a decoder that fails: what was wrong, a static text. NULL otherwise; encoders ignore
     * it. */
    const char *detail;
};

struct msg_reply_head {
    uint8_t op; /* without KVC_OP_REPLY */
    uint64_t corr;
    uint16_t status; /* enum kvc_status */
    /* The daemon's text when status is not OK; when a decoder fails, what was wrong (static). */
    struct codec_bin detail;
};

/* Decodes just the head, for dispatch; fails only when the bytes are no request at all. The
 * operation may be unknown (0 to 127) and the deadline too long: both get a reply. */
CODEC_MUST_USE int codec_dec_head(const void *buf, size_t len, struct msg_head *ret_head);
/* Decodes just the head of a reply. 0 whatever the status is, also one that this release does not
 * know. */
CODEC_MUST_USE int codec_dec_reply_head(const void *buf, size_t len,
                                        struct msg_reply_head *ret_head);
/* [op | REPLY, corr, status, detail]: the whole of a reply whose status is not OK. The detail may
 * be NULL, and is clipped to CODEC_DETAIL_MAX. -EINVAL for status OK. */
CODEC_MUST_USE int codec_enc_error(void *buf, size_t cap, const struct msg_head *, uint16_t status,
                                   const char *detail);

/* ---- requests and replies ---- */

struct msg_hello {
    uint32_t ver_min, ver_max;
};
struct msg_hello_reply {
    uint32_t version;
    struct codec_bin server; /* name and release of the daemon */
};

struct msg_ping_reply {
    uint64_t uptime_ms;
};

struct msg_group {
    uint32_t block_tokens;
    uint32_t block_bytes; /* payload of one shard of one block */
    uint8_t rule;         /* enum kvc_rule */
    uint32_t window;      /* tokens; WINDOW only, else 0 */
    uint32_t flags;       /* KVC_F_REPLICATED */
};

struct msg_ns_open {
    struct codec_bin model, revision, dtype, quant, layout, position, position_params, attention,
        lora, extra, sub;
    uint32_t layers, kv_heads, head_size, shards;
    uint32_t flags;                /* KVC_F_TOKENS */
    uint64_t prefill_ns_per_token; /* cost of computing one token; 0 = unknown */
    /* Cost of a token for each token before it, in 1e-6 ns; 0 = unknown. */
    uint64_t prefill_ns_per_token_pair;
    uint32_t ngroups;
    struct msg_group groups[KVC_GROUPS_MAX];
};
struct msg_similar {
    uint32_t ns;
    uint32_t fields; /* bit set of enum kvc_ns_field */
};
struct msg_ns_open_reply {
    uint32_t ns;
    uint8_t seed[KVC_KEY_BYTES];
    uint32_t nsimilar; /* namespaces of the same model that differ in few fields; at most 4 */
    struct msg_similar similar[4];
};

/* A token sequence as chains of keys, one chain a group. */
struct msg_seq {
    uint32_t ns;
    struct codec_bin sub; /* sub-tenant; empty = the namespace's own; gateway sessions only */
    /* Number of tokens that the keys cover; need not be a multiple of block_tokens. */
    uint32_t tokens;
    uint32_t ngroups;
    struct codec_bin keys[KVC_GROUPS_MAX]; /* n x 32 bytes */
};

struct msg_lookup {
    struct msg_seq seq;
    uint32_t flags; /* KVC_F_TOUCH, KVC_F_PREFETCH, KVC_F_READ_ONLY, KVC_F_ALL */
};
struct msg_group_hit {
    uint32_t blocks; /* leading blocks of this group that are cached */
    uint8_t reason;  /* enum kvc_miss: why no further block of the group counts */
    uint32_t detail; /* NAMESPACE: bit set of fields */
};
struct msg_lookup_reply {
    uint32_t hit_tokens;    /* longest prefix that satisfies every group, and is worth loading */
    uint32_t cached_tokens; /* longest prefix that satisfies every group, worth loading or not */
    uint64_t load_us;       /* estimated time to load the hit */
    uint32_t ngroups;
    struct msg_group_hit groups[KVC_GROUPS_MAX];
};

struct msg_acquire {
    struct msg_seq seq;
    uint32_t flags; /* KVC_F_WAIT, KVC_F_NO_LOAD, KVC_F_READ_ONLY, KVC_F_ALL */
    uint32_t shard;
    uint32_t from_tokens; /* lease only blocks that end after this token */
    uint32_t wait_tokens; /* with WAIT: so many tokens are enough; 0 = all of seq.tokens */
};
/* Where the bytes of one shard of one block are: KVC_LOC_BYTES on the wire, little-endian. */
struct msg_loc {
    uint32_t chunk;
    uint32_t bytes;
    uint64_t off; /* where the payload begins in the chunk */
    uint64_t hdr; /* where the slot's 64-bit generation is in the chunk */
    uint64_t gen;
};
struct msg_group_locs {
    uint32_t first;        /* index of the first leased block */
    struct codec_bin locs; /* n x KVC_LOC_BYTES */
    uint8_t reason;
    uint32_t detail;
};
struct msg_acquire_reply {
    uint32_t hit_tokens;
    uint32_t cached_tokens; /* as in LOOKUP */
    uint64_t lease;         /* 0 = nothing leased */
    uint8_t ticket[KVC_TICKET_BYTES];
    uint32_t ngroups;
    struct msg_group_locs groups[KVC_GROUPS_MAX];
};

struct msg_redeem { /* its reply is a msg_acquire_reply */
    uint8_t ticket[KVC_TICKET_BYTES];
    uint32_t shard;
};

struct msg_release {
    struct codec_bin leases; /* n x u64 little-endian: the leases */
};
struct msg_release_reply {
    uint32_t released;
};

struct msg_reserve {
    uint32_t ns;
    struct codec_bin sub;
    uint32_t flags; /* KVC_F_DURABLE, KVC_F_DECODED, KVC_F_ADMIT */
    uint32_t group;
    uint32_t shard;
    struct codec_bin parent; /* 0 or 32 bytes: the block before the first key */
    uint32_t first_token;    /* position of the first key's first token */
    struct codec_bin keys;   /* n x 32: consecutive blocks */
    uint32_t last_tokens;    /* tokens in the last block; 0 = full */
    struct codec_bin retain; /* n x KVC_RETAIN_BYTES; codec_get_retain() reads one */
};
struct msg_reserve_reply {
    uint64_t reservation;      /* 0 = nothing reserved */
    struct codec_bin statuses; /* n x u8: OK = reserved, EXISTS, PENDING, FULL, NO_PARENT */
};

struct msg_commit {
    uint64_t reservation;
    uint32_t first; /* index of the first block in the reservation's keys */
    /* n x u64 little-endian: offset of each block in staging; UINT64_MAX = skip it. */
    struct codec_bin offsets;
    /* u32 little-endian each: token ids of the blocks that are committed; or empty. */
    struct codec_bin tokens;
};
struct msg_commit_reply {
    struct codec_bin statuses; /* n x u8 */
};

struct msg_store { /* RESERVE and COMMIT in one; the reply is a msg_commit_reply */
    struct msg_reserve reserve;
    struct codec_bin offsets;
    struct codec_bin tokens;
};

/* ---- devices ---- */

struct msg_pool_group {
    uint32_t pages_per_block;
    struct codec_bin regions; /* n x KVC_REGION_BYTES; codec_get_region() reads one */
};
struct msg_pool_open { /* the replies of POOL_OPEN and POOL_CLOSE are bare */
    uint32_t pool;     /* chosen by the client: below KVC_POOLS_MAX, and not open */
    uint8_t uuid[KVC_UUID_BYTES];
    uint32_t pages_max;
    uint32_t ngroups;
    struct msg_pool_group groups[KVC_GROUPS_MAX];
};
struct msg_pool_close {
    uint32_t pool;
};
/* PAGES_LOAD does what ACQUIRE, copies to pages, and RELEASE do. */
struct msg_group_pages {
    /* n x u32: pages_per_block page numbers for each key of the group, except its first from_tokens
     * / block_tokens keys. */
    struct codec_bin pages;
};
struct msg_pages_load {
    struct msg_seq seq;
    uint32_t flags; /* KVC_F_WAIT, KVC_F_NO_LOAD, KVC_F_ALL */
    uint32_t shard;
    uint32_t from_tokens, wait_tokens;
    uint32_t pool;
    uint32_t after_word; /* the word to wait for, below KVC_WORDS; KVC_NO_WORD = do not wait */
    uint64_t after_value;
    /* The word that counts the layers that have been copied; KVC_NO_WORD = none. */
    uint32_t ready_word;
    uint64_t ready_value;
    uint32_t ngroups;
    struct msg_group_pages pages[KVC_GROUPS_MAX];
};
struct msg_group_loaded {
    uint32_t first;            /* index of the first block in the group */
    struct codec_bin statuses; /* n x u8: OK = the block is in its pages */
    uint8_t reason;
    uint32_t detail;
};
struct msg_pages_load_reply {
    /* Tokens that were found; statuses say which blocks were copied. */
    uint32_t hit_tokens, cached_tokens;
    uint32_t ngroups;
    struct msg_group_loaded groups[KVC_GROUPS_MAX];
};
struct msg_pages_store { /* its reply is a msg_commit_reply */
    struct msg_reserve reserve;
    uint32_t pool;
    uint32_t after_word;
    uint64_t after_value;
    struct codec_bin pages; /* n x u32: pages_per_block page numbers for each key */
    struct codec_bin tokens;
};
/* Its reply is a msg_acquire_reply. Blocks that are on the device then have locations there (bits
 * 24 and up of `chunk`), the others in host memory. */
struct msg_acquire_on {
    struct msg_acquire acquire;
    uint8_t uuid[KVC_UUID_BYTES];
};

struct msg_drop {
    uint64_t reservation;
};
struct msg_cancel {
    uint64_t target; /* corr of the request */
};
struct msg_cancel_reply {
    uint8_t found; /* 0: the request had been answered before */
};

/* ---- names ---- */

struct msg_name_put {
    uint8_t kind;          /* enum kvc_name_kind */
    struct codec_bin name; /* 1 to 127 bytes */
    struct msg_seq seq;    /* seq.sub is also the sub-tenant of the name */
    uint32_t flags;        /* KVC_F_PINNED, KVC_F_DURABLE */
    uint32_t priority;     /* 0 = KVC_PRIORITY_DEFAULT */
    uint64_t ttl_ms;       /* the name ends after so long without use; 0 = never */
    struct codec_bin ids;  /* empty, or the token id of each of seq.tokens, u32 little-endian */
};
struct msg_name_put_reply {
    uint32_t tokens; /* tokens that the name covers */
    uint64_t bytes;
};
struct msg_name_forget {
    uint8_t kind;
    struct codec_bin name, sub;
    uint8_t evict, dry_run;
};
struct msg_name_load {
    uint8_t kind;
    struct codec_bin name, sub;
    uint64_t ttl_ms; /* 2^64 - 1 = keep the present one */
    uint32_t flags;  /* KVC_F_WAIT */
};
struct msg_name_load_reply {
    uint64_t bytes; /* bytes of its blocks that are in memory now */
};
struct msg_name_tokens {
    uint8_t kind;
    struct codec_bin name, sub;
    uint32_t first;
};
/* Most token ids in one reply. */
#define MSG_NAME_IDS_MAX 262144u
struct msg_name_tokens_reply {
    uint32_t tokens;      /* number of token ids that the name has */
    struct codec_bin ids; /* n x u32 little-endian, from `first` on */
};

struct msg_stat {
    struct codec_bin name; /* 1 to 63 bytes */
    uint8_t kind;          /* 0 counter, 1 gauge */
    uint64_t value;
};
/* Replies of unbounded length are written item by item; see codec_list_*. */

/* LIST. The reply is read with struct codec_rows. */
struct msg_list {
    uint8_t table;           /* enum kvc_table_id */
    uint32_t max;            /* most rows of the reply; 0 = as many as it has room for */
    struct codec_bin cursor; /* empty = from the start, else the cursor of the last reply */
    struct codec_bin prefix; /* names: the beginning of the name or, with `exact`, all of it */
    uint8_t exact;
    struct codec_bin sub; /* empty: names of no sub-tenant if `exact`, else of all */
    /* blocks: where to look. MATCH, KEYS: ns 0 = every namespace that the caller may see. */
    uint32_t ns, group;
    uint8_t mode; /* enum kvc_walk_mode */
    /* n x 32 bytes: the key at which the walk begins; ROOTS: none; KEYS: the keys. */
    struct codec_bin keys;
    uint32_t depth; /* DOWN: levels below the key; 0 = all. MATCH: bits of the key */
};

struct msg_ns_spec {
    uint32_t ns;
};
struct msg_ns_spec_reply {
    uint8_t own; /* 1: NS_OPEN of this session with this specification opens this namespace */
    struct msg_ns_open spec;
};

struct msg_evict {
    uint32_t flags;                 /* KVC_F_DRY_RUN, KVC_F_FORCE */
    uint32_t ns;                    /* 0 = any */
    struct codec_bin key;           /* empty, or 32 bytes: this block and its descendants */
    uint64_t older_than_ms;         /* last use longer ago than this; 0 = any age */
    uint64_t bytes;                 /* stop when so many bytes are evicted; 0 = no limit */
    struct codec_bin tenant, model; /* empty = any */
    uint32_t priority_below;        /* only blocks of a lower priority; 0 = any */
};
struct msg_evict_reply {
    uint64_t blocks, bytes;
    /* Blocks that matched and stayed: leased, being written, pinned, named, or ancestors of such.
     */
    uint64_t kept_blocks;
    uint64_t host_bytes, nvme_bytes, device_bytes; /* bytes of the evicted blocks in each tier */
};
struct msg_name_forget_reply {
    uint64_t blocks, bytes;
    uint64_t kept_blocks;                          /* the sum of the kept_* below */
    uint64_t host_bytes, nvme_bytes, device_bytes; /* bytes of the evicted blocks in each tier */
    uint64_t kept_named, kept_pinned, kept_used, kept_below, kept_passed;
};

struct msg_verify {
    uint32_t ns;        /* 0 = every namespace that the caller may see */
    uint8_t tier;       /* enum kvc_tier_id; 0 = all */
    uint64_t cursor;    /* 0 = from the start, else that of the reply before */
    uint64_t bytes_max; /* payload bytes to read; at least one block is read */
};
struct msg_corrupt_item {
    uint8_t key[KVC_KEY_BYTES];
    uint32_t ns;
    uint8_t group, shard, tier;
    uint32_t below; /* blocks that build on it and were dropped with it */
    uint32_t chunk;
    uint64_t off;
};
struct msg_verify_reply {
    uint64_t cursor; /* cursor of the next request; 0 = that was all */
    uint32_t blocks; /* blocks that were read */
    uint64_t bytes;
    uint32_t skipped; /* blocks that were not read: being written, or the request ended early */
    uint32_t failed;  /* blocks that could not be read */
    uint32_t ncorrupt;
    struct msg_corrupt_item corrupt[KVC_VERIFY_MAX];
};

struct msg_trace {
    uint8_t action; /* enum kvc_trace_action */
    uint32_t ns;    /* ON: of this namespace only; 0 = all */
    uint64_t bytes; /* ON: memory of the ring; 0 = the daemon chooses */
};
struct msg_trace_reply {
    uint8_t on;
    uint32_t ns;
    uint64_t bytes, used_bytes;
    uint64_t records; /* records that are in the ring now */
    uint64_t dropped; /* older records that were dropped */
    uint64_t age_ms;  /* time since the trace was turned on */
};
struct msg_trace_dump {
    uint32_t ns;     /* records of this namespace only; 0 = all */
    uint64_t cursor; /* 0 = from the oldest, else that of the reply before */
};
struct msg_trace_item {
    uint32_t ns, block_tokens;
    uint64_t timestamp_ms; /* time since the trace was turned on */
    uint32_t input_tokens, output_tokens;
    struct codec_bin ids; /* n x u64 little-endian: equal keys have equal ids */
};
struct msg_trace_dump_reply {
    uint64_t cursor; /* cursor of the next request; 0 = that was all */
    uint64_t lost;   /* records that were dropped between the last reply and this one */
    uint32_t nitems;
    struct msg_trace_item items[KVC_TRACE_MAX];
};

struct msg_drain {
    uint64_t bytes_max; /* bytes that may be written by this request */
};
struct msg_drain_reply {
    uint64_t left; /* payload bytes that only host memory has */
    uint8_t stop;  /* enum kvc_drain_stop */
};

/* A hint about a chain. Its reply has the head only. */
struct msg_hint {
    struct msg_seq seq;
    uint8_t kind;       /* enum kvc_hint_kind */
    uint32_t within_ms; /* SOON: within this time; else 0 */
};

/* ---- pins, quotas, usage, policy ---- */

struct msg_pin {
    struct msg_seq seq;
    /* KVC_TIER_NONE: the blocks stay in any tier; KVC_TIER_HOST: they stay in host memory. */
    uint8_t tier;
    uint64_t ttl_ms;
};
struct msg_pin_reply {
    uint64_t pin, bytes;
};
struct msg_unpin { /* its reply has no fields */
    uint64_t pin;
};
struct msg_quota_set { /* its reply has no fields */
    uint8_t scope;     /* enum kvc_scope, not ALL */
    struct codec_bin tenant, sub;
    uint32_t ns;
    uint64_t host_limit, nvme_limit, host_share, nvme_share;
};
struct msg_session_end { /* its reply has no fields */
    uint32_t session;
};

struct msg_policy { /* with SHOW every field but `action` is 0 */
    uint8_t action; /* enum kvc_policy_action */
    struct codec_bin name;
    uint32_t keep_percent;
    uint8_t load_or_recompute;
    uint8_t admission;
    uint64_t pin_bytes_max;
};
struct msg_level_item {
    uint32_t priority;
    uint64_t blocks;
};
struct msg_policy_reply {
    /* chosen: the place of the configuration that names the policy. */
    struct codec_bin name, text, chosen;
    uint32_t keep_percent;
    uint8_t load_or_recompute;
    uint8_t admission;
    uint64_t pin_bytes_max;
    uint32_t keep_percent_start; /* the value at the daemon's start; so are the other *_start */
    uint8_t load_or_recompute_start;
    uint8_t admission_start;
    uint64_t pin_bytes_max_start;
    uint8_t storage;       /* 1: the daemon has a storage tier */
    uint8_t hints, admits; /* the policy uses hints; the policy judges new blocks */
    uint8_t pins;          /* 1: the daemon takes pins */
    uint8_t all;           /* 0: all fields below are 0, because the session has no admin rights */
    uint64_t writes_per_day, spent_bytes, left_bytes; /* as in LIST of paths */
    uint64_t load_bytes_per_s, load_latency_us; /* learned from loads so far; 0 = nothing yet */
    uint64_t hints_ended, hints_continue, hints_soon, hints_scan;
    uint64_t wishes, wishes_ended;
    uint32_t nlevels;
    struct msg_level_item levels[KVC_PRIORITY_MAX + 1];
};

#define CODEC_REQUEST_LIST(X)   \
    X(HELLO, hello)             \
    X(NS_OPEN, ns_open)         \
    X(LOOKUP, lookup)           \
    X(ACQUIRE, acquire)         \
    X(REDEEM, redeem)           \
    X(RELEASE, release)         \
    X(RESERVE, reserve)         \
    X(COMMIT, commit)           \
    X(STORE, store)             \
    X(DROP, drop)               \
    X(CANCEL, cancel)           \
    X(LIST, list)               \
    X(NS_SPEC, ns_spec)         \
    X(EVICT, evict)             \
    X(VERIFY, verify)           \
    X(TRACE, trace)             \
    X(TRACE_DUMP, trace_dump)   \
    X(DRAIN, drain)             \
    X(HINT, hint)               \
    X(NAME_PUT, name_put)       \
    X(NAME_FORGET, name_forget) \
    X(NAME_LOAD, name_load)     \
    X(NAME_TOKENS, name_tokens) \
    X(PIN, pin)                 \
    X(UNPIN, unpin)             \
    X(QUOTA_SET, quota_set)     \
    X(SESSION_END, session_end) \
    X(POLICY, policy)           \
    X(POOL_OPEN, pool_open)     \
    X(POOL_CLOSE, pool_close)   \
    X(PAGES_LOAD, pages_load)   \
    X(PAGES_STORE, pages_store) \
    X(ACQUIRE_ON, acquire_on)

/* int codec_enc_lookup(void *buf, size_t cap, const struct msg_head *, const struct msg_lookup *);
 * int codec_dec_lookup(const void *buf, size_t len, struct msg_head *, struct msg_lookup *);     */
#define X(OP, name)                                                                             \
    CODEC_MUST_USE int codec_enc_##name(void *buf, size_t cap, const struct msg_head *head,     \
                                        const struct msg_##name *msg);                          \
    CODEC_MUST_USE int codec_dec_##name(const void *buf, size_t len, struct msg_head *ret_head, \
                                        struct msg_##name *ret_msg);
CODEC_REQUEST_LIST(X)
#undef X
/* PING and STATS have the head only. */
CODEC_MUST_USE int codec_enc_bare(void *buf, size_t cap, const struct msg_head *head);
CODEC_MUST_USE int codec_dec_bare(const void *buf, size_t len, struct msg_head *ret_head);

#define CODEC_REPLY_LIST(X)             \
    X(hello)                            \
    X(ping)                             \
    X(ns_open)                          \
    X(ns_spec)                          \
    X(lookup)                           \
    X(acquire) /* REDEEM, ACQUIRE_ON */ \
    X(release)                          \
    X(reserve)                          \
    X(commit) /* STORE, PAGES_STORE */  \
    X(cancel)                           \
    X(name_put)                         \
    X(name_load)                        \
    X(name_tokens)                      \
    X(evict)                            \
    X(name_forget)                      \
    X(verify)                           \
    X(trace)                            \
    X(trace_dump)                       \
    X(drain)                            \
    X(pin)                              \
    X(policy)                           \
    X(pages_load)

/* Encoders write status OK; `head` is the request's. A decoder that meets another status returns
 * its KVC_E_* (KVC_E_INTERNAL for a status that this release does not know) and leaves the rest
 * untouched; status and detail are in ret_head. KVC_E_BAD_MESSAGE with ret_head->status OK means
 * that the reply itself is malformed. */
#define X(name)                                                                                    \
    CODEC_MUST_USE int codec_enc_##name##_reply(                                                   \
        void *buf, size_t cap, const struct msg_head *head, const struct msg_##name##_reply *msg); \
    CODEC_MUST_USE int codec_dec_##name##_reply(const void *buf, size_t len,                       \
                                                struct msg_reply_head *ret_head,                   \
                                                struct msg_##name##_reply *ret_msg);
CODEC_REPLY_LIST(X)
#undef X
/* The reply of DROP, HINT, UNPIN, QUOTA_SET, SESSION_END, POOL_OPEN and POOL_CLOSE. */
CODEC_MUST_USE int codec_enc_bare_reply(void *buf, size_t cap, const struct msg_head *head);
CODEC_MUST_USE int codec_dec_bare_reply(const void *buf, size_t len,
                                        struct msg_reply_head *ret_head);

/* The reply of STATS, a list: [op|REPLY, corr, OK, more, [item, ...]]. `more` = 1 when the list was
 * cut and can be continued.
 *
 * Writes a list: begin, add items until one does not fit, end. The list belongs to the buffer and
 * needs no freeing. Between begin and end the buffer holds no message yet. */
struct codec_list {
    uint8_t *buf;
    size_t cap, len;
    size_t count_at, more_at;
    uint32_t count;
    bool full; /* an item did not fit; no part of it was written */
};
CODEC_MUST_USE int codec_list_begin(struct codec_list *, void *buf, size_t cap,
                                    const struct msg_head *);
/* 0, or -ENOSPC: the item was left out, and all further ones will be. */
CODEC_MUST_USE int codec_list_add_stat(struct codec_list *, const struct msg_stat *);
/* Returns the message's length and ends the list. */
size_t codec_list_end(struct codec_list *, bool more);

/* Reads a list: codec_iter_begin() (as a reply decoder), then codec_iter_* of the reply's kind. 1:
 * an item was read. 0: that was the last one, and no bytes are left over. After an error every
 * further call fails too. */
struct codec_iter {
    const uint8_t *p, *end;
    uint32_t left;
    bool more;
};
CODEC_MUST_USE int codec_iter_begin(const void *buf, size_t len, struct msg_reply_head *ret_head,
                                    struct codec_iter *ret_iter);
CODEC_MUST_USE int codec_iter_stat(struct codec_iter *, struct msg_stat *ret_item);

/* ---- rows: the reply of LIST ---- */

/* NULL: no table has this number. */
const struct kvc_table *codec_table(unsigned id);
/* [op|REPLY, corr, OK, table, [column, ...], [row, ...], cursor]. Writes rows: begin, add rows,
 * end; a row is the table's struct. */
CODEC_MUST_USE int codec_rows_begin(struct codec_list *, void *buf, size_t cap,
                                    const struct msg_head *, const struct kvc_table *);
/* 0 or -ENOSPC, as codec_list_add_stat(). */
CODEC_MUST_USE int codec_rows_add(struct codec_list *, const struct kvc_table *, const void *row);
/* cursor: where the next request continues; empty = this was the last reply. Returns the message's
 * length, or -ENOSPC. */
CODEC_MUST_USE int codec_rows_end(struct codec_list *, struct codec_bin cursor);

/* Reads the reply of LIST. It skips columns that this release does not know. Columns that the reply
 * lacks are 0 or empty in each row. */
struct codec_rows {
    const struct kvc_table *table;
    const uint8_t *p, *end;
    uint32_t left;
    struct codec_bin cursor; /* where the next request continues */
    uint8_t columns, column[KVC_COLUMNS_MAX];
};
CODEC_MUST_USE int codec_rows_read(const void *buf, size_t len, const struct kvc_table *,
                                   struct msg_reply_head *ret_head, struct codec_rows *ret_rows);
/* As codec_iter_stat(). ret_row has table->row_bytes bytes. */
CODEC_MUST_USE int codec_rows_next(struct codec_rows *, void *ret_row);

/* ---- blobs ---- */

void codec_put_loc(uint8_t out[KVC_LOC_BYTES], const struct msg_loc *);
void codec_get_loc(const uint8_t in[KVC_LOC_BYTES], struct msg_loc *ret_loc);

/* A region of a pool: KVC_REGION_BYTES on the wire, little-endian. */
struct msg_region {
    uint32_t mem; /* number of the session's memory (MEM) */
    uint32_t layer;
    /* base: offset of page 0 in the memory; stride_bytes: distance of two pages; page_bytes: size
     * of one. */
    uint64_t base, stride_bytes, page_bytes;
    /* 8 bytes of zeroes follow */
};
void codec_put_region(uint8_t out[KVC_REGION_BYTES], const struct msg_region *);
void codec_get_region(const uint8_t in[KVC_REGION_BYTES], struct msg_region *ret_region);

/* A wish of RESERVE and STORE: KVC_RETAIN_BYTES on the wire, little-endian. */
struct msg_retain {
    uint32_t first_token, end_token; /* end 0 = to the sequence's end */
    uint32_t priority;
    uint64_t duration_ms; /* 0 = without end */
};
void codec_put_retain(uint8_t out[KVC_RETAIN_BYTES], const struct msg_retain *);
void codec_get_retain(const uint8_t in[KVC_RETAIN_BYTES], struct msg_retain *ret_retain);

/* ---- attach channel: [code, ...] datagrams ---- */

struct att_hello { /* on the wire KVC_PROTO_MAGIC comes before these fields */
    uint32_t ver_min, ver_max;
    struct codec_bin client; /* name of the client for statistics and logs */
    uint64_t staging_bytes;  /* 0 = none */
    uint32_t shard;          /* the rank's shard, for logs */
};
struct att_welcome {
    /* Not OK: `detail` says why, the other fields are 0 or empty, no descriptor comes with it. */
    uint16_t status;
    struct codec_bin detail;
    uint32_t version;
    uint32_t session;
    uint8_t route[KVC_ROUTE_BYTES]; /* the DEALER's routing id */
    struct codec_bin endpoint;      /* the ROUTER's address */
    uint64_t staging_bytes;         /* granted bytes; if not 0, the datagram has a descriptor */
    struct codec_bin principal, tenant;
    uint8_t admin, gateway;
};
struct att_map {
    uint32_t chunk;
};
struct att_chunk {
    uint16_t status;
    struct codec_bin detail;
    uint32_t chunk;
    uint64_t bytes;
};
struct att_retired {
    uint32_t chunk;
};
struct att_dropped {
    uint16_t status;
    struct codec_bin detail;
};
struct att_words { /* words: how many the client will use; 0 = all */
    uint32_t words;
};
/* With OK comes a sealed memfd of KVC_WORDS_BYTES, all zero, which both sides write. */
struct att_words_are {
    uint16_t status;
    struct codec_bin detail;
    uint64_t bytes;
};
struct att_mem {  /* with FD and EMU comes a descriptor */
    uint32_t mem; /* chosen by the client: below KVC_MEMS_MAX, and not in use */
    uint8_t uuid[KVC_UUID_BYTES];
    uint8_t kind; /* enum kvc_handle_kind */
    uint64_t bytes, offset;
    struct codec_bin ipc; /* empty, or KVC_IPC_BYTES bytes */
};
struct att_mem_is {
    uint16_t status;
    struct codec_bin detail;
    uint32_t mem;
};
struct att_mem_drop {
    uint32_t mem;
};
struct att_map_on {
    uint32_t chunk; /* bits 24 and up: the device's number + 1, as in locations */
};
/* With OK, and FD or EMU, comes a descriptor. MAP maps the headers of the chunk. */
struct att_chunk_on {
    uint16_t status;
    struct codec_bin detail;
    uint32_t chunk;
    uint8_t uuid[KVC_UUID_BYTES];
    uint8_t kind;
    uint64_t bytes, offset;
    struct codec_bin ipc;
};
struct att_unmapped { /* sent by the session that received CHUNK_ON */
    uint32_t chunk;
};
/* Returns the enum kvc_attach_code, or KVC_E_BAD_MESSAGE. Reads the head only. */
CODEC_MUST_USE int codec_att_code(const void *buf, size_t len);
#define CODEC_ATTACH_LIST(X) \
    X(hello)                 \
    X(welcome)               \
    X(map)                   \
    X(chunk)                 \
    X(retired)               \
    X(dropped)               \
    X(words)                 \
    X(words_are)             \
    X(mem)                   \
    X(mem_is)                \
    X(mem_drop)              \
    X(map_on)                \
    X(chunk_on)              \
    X(unmapped)
#define X(name)                                                                                   \
    CODEC_MUST_USE int codec_enc_att_##name(void *buf, size_t cap, const struct att_##name *msg); \
    CODEC_MUST_USE int codec_dec_att_##name(const void *buf, size_t len,                          \
                                            struct att_##name *ret_msg);
CODEC_ATTACH_LIST(X)
#undef X

/* ---- names ---- */
const char *codec_status_name(unsigned status); /* "NO_PARENT" or "?" */
const char *codec_status_text(unsigned status);
const char *codec_miss_name(unsigned reason);
const char *codec_miss_text(unsigned reason);
const char *codec_field_name(unsigned bit);

#endif
