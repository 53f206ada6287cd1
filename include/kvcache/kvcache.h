/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvcache: the client of kvcache-daemon. This header is what a worker needs; beside it, in the
 * same library: <kvcache/async.h> for a caller's loop, <kvcache/gpu.h> for paged memory (on GPUs,
 * and in host memory), <kvcache/admin.h> for operators and tools.
 *
 * A `struct kvc` is one session with the daemon of this node: an attach connection (identity,
 * descriptors, life), a control socket, a staging area and read-only mappings of the arena.
 *
 * Return values: 0 or positive is good; negative is an errno or a KVC_E_* of <kvcache/proto.h>.
 * A miss is not an error. Outputs are last and untouched on failure.
 *
 * The daemon may be absent at any time. Lookups and acquires then return 0 with no hit within their
 * deadline, stores return KVC_E_DOWN and are counted (kvc_counters), and the session reconnects by
 * itself at a later call, kvc_staging included. After a reconnect all holds, reservations and
 * staging contents of before are void: holds report KVC_STALE (but see kvc_hold_check), stores
 * return KVC_E_DOWN until kvc_staging was asked again.
 *
 * A daemon that is there and does not answer (frozen, stopped) costs one call its deadline and up
 * to 250 ms more; one that stores up to 250 ms again, to make sure that nothing reads staging. A
 * lookup or acquire is then a miss; a store is KVC_E_TIMEOUT, and counted like one that was
 * dropped. From then on the daemon is *silent*: the library has asked it for a sign of life (a PING
 * that stays in flight; there is no thread for that), for which the next call may wait 125 ms once.
 * Until it answers calls fail at once: what reads is a miss, what stores is KVC_E_TIMEOUT or
 * KVC_E_DOWN, kvc_is_up is false. When it goes on, the next call works, without opening anything
 * again.
 *
 * Errors and aborts. A wrong argument, a daemon that is gone and a message that makes no sense are
 * errors that a call returns. The library aborts the process only where its own state is broken, or
 * a handle is used after its end: a hold released twice by copies of its pointer, a request taken
 * twice.
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

#include <kvcache/rows.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVC_API      __attribute__((visibility("default")))
#define KVC_MUST_USE __attribute__((warn_unused_result))

struct kvc;    /* a session */
struct kvc_ns; /* a namespace opened in a session; lives as long as the session */

/* ---- ABI ----
 *
 * For bindings, which are compiled or written apart from the library: once, before anything else,
 *
 *     static const struct kvc_abi mine[] = {KVC_ABI_STRUCTS};
 *     const char *differs = kvc_abi(KVC_API_VERSION, mine, sizeof(mine) / sizeof(mine[0]));
 *
 * One that describes the structs by hand gives its own names and sizes.
 */

#define KVC_API_VERSION "0.8" /* the soname's: each has layouts of its own */
struct kvc_abi {
    const char *name; /* "kvc_options" */
    size_t bytes;     /* sizeof(struct kvc_options) */
};
#define KVC_ABI(name)              \
    {                              \
#name, sizeof(struct name) \
    }
#define KVC_ABI_STRUCTS                                                                          \
    KVC_ABI(kvc_options), KVC_ABI(kvc_counters), KVC_ABI(kvc_group_spec), KVC_ABI(kvc_ns_spec),  \
        KVC_ABI(kvc_seq), KVC_ABI(kvc_prefix), KVC_ABI(kvc_block), KVC_ABI(kvc_hold),            \
        KVC_ABI(kvc_acquire_options), KVC_ABI(kvc_retain), KVC_ABI(kvc_blocks),                  \
        KVC_ABI(kvc_name_options), KVC_ABI(kvc_named), KVC_ABI(kvc_name_info), KVC_ABI(kvc_run), \
        KVC_ABI(kvc_put), KVC_ABI(kvc_put_result), KVC_ABI(kvc_get), KVC_ABI(kvc_got)
/* NULL: this library is of that version, and its structs of these names have these sizes. Else a
 * text that names the first difference; valid until the next call of this thread. The names of
 * KVC_ABI_STRUCTS, KVC_ABI_ASYNC (async.h), KVC_ABI_ADMIN (admin.h) and KVC_ABI_GPU (gpu.h) are
 * known. */
KVC_API const char *kvc_abi(const char *version, const struct kvc_abi *abi, size_t n);
/* KVC_API_VERSION of the library. Static. */
KVC_API const char *kvc_version(void);

/* ---- session ---- */

struct kvc_options {
    const char *socket; /* attach socket; NULL = $KVCACHE_SOCKET, else /run/kvcache/attach.sock */
    /* Shown in stats and logs, cut to 63 bytes; NULL = the program's name. In a name that is not
     * UTF-8 every byte beyond ASCII is shown as '?'. */
    const char *name;
    uint64_t staging_bytes; /* room for blocks on their way into the cache; 0 = none (a reader) */
    uint32_t shard;         /* this rank's shard of every block, 0 on a single rank */
    uint32_t timeout_ms;    /* default deadline of every call; 0 = KVC_DEADLINE_DEFAULT_MS */
    bool must_connect;      /* kvc_open and kvc_ns_open fail when no daemon answers, instead of
                               starting down */
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
/* Writable staging area, `*ret_bytes` long (what the daemon granted); NULL when down or 0. Never
 * waits; a session that is down goes on with connecting in it, step by step. Its contents are void
 * after a reconnect, and are not stored before this has been called again: call it before the area
 * is filled, not between filling and storing. The addresses stay mapped until then, but other
 * memory may take their place when the session loses its daemon: what a device has registered must
 * be registered again when kvc_epoch has changed. Where several parts of a program fill one area at
 * a time, each notes kvc_epoch() when it calls this, and stores only if it is the same then: the
 * call of another part makes the contents of all valid. */
KVC_API void *kvc_staging(struct kvc *kvc, uint64_t *ret_bytes);
/* Grows by one at each (re)connect; 0 = never connected. */
KVC_API uint32_t kvc_epoch(const struct kvc *kvc);

struct kvc_counters {
    uint64_t lookups_down; /* lookups and acquires that no daemon answered: misses, reason NONE */
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

/* KVC_E_UNSOUND with the reason in kvc_last_error. Without a daemon, or where it does not answer:
 * 0, and the namespace is opened by itself when one is there (sessions with must_connect:
 * KVC_E_DOWN or KVC_E_TIMEOUT). Until then what reads is a miss and what stores is KVC_E_DOWN; a
 * refusal comes from the calls that name it. The handle is borrowed from the session, is the same
 * for an equal specification, and is reopened by itself after a reconnect, and once when the daemon
 * has let it go because it was empty (requests are then sent again, unseen). */
KVC_API KVC_MUST_USE int kvc_ns_open(struct kvc *kvc, const struct kvc_ns_spec *spec,
                                     struct kvc_ns **ret_ns);
/* The parent of every first block, given by the daemon; NULL as long as none has opened the
 * namespace. May change at a reconnect (kvc_epoch). */
KVC_API const uint8_t *kvc_ns_seed(const struct kvc_ns *ns);
KVC_API uint32_t kvc_ns_id(const struct kvc_ns *ns); /* 0: none has */

/* ---- keys ---- */

/* Keys of the consecutive blocks of `tokens` (PROTOCOL.md, "Keys"): SHA-256 over parent, tokens and
 * extra, each tagged and length-prefixed. `parent` is the seed or the key before the first token.
 * Writes ceil(ntokens / block_tokens) keys to `keys`; returns their number. -EINVAL, -ENOMEM. Pure.
 */
KVC_API KVC_MUST_USE int kvc_hash_chain(const uint8_t parent[KVC_KEY_BYTES], const uint32_t *tokens,
                                        size_t ntokens, uint32_t block_tokens, const void *extra,
                                        size_t extra_bytes, uint8_t *keys);

/* ---- reading ---- */

/* A token sequence as chains of keys, one per group of the namespace, in its order: at most
 * KVC_KEYS_MAX keys over all groups (a million tokens at 16 a block are 62,500 of each), else
 * -EINVAL. A call that takes one is one request, whatever its length: what it finds, holds, pins or
 * names is there at one time, also where the daemon serves others meanwhile. */
struct kvc_seq {
    uint32_t tokens; /* covered by the keys; the last block may be partly filled */
    struct {
        const uint8_t *keys; /* n x KVC_KEY_BYTES; borrowed until the call returns */
        uint32_t n;
    } group[KVC_GROUPS_MAX];
    const char *sub_tenant; /* gateway sessions: whose data, else NULL */
};

/* A sequence of token ids, with the keys of all its blocks, a partly filled last one too: those of
 * kvc_hash_chain from the namespace's seed on. Returns owned: kvc_seq_free. KVC_E_DOWN as long as
 * no daemon has opened the namespace. */
KVC_API KVC_MUST_USE int kvc_seq_new(struct kvc_ns *ns, const uint32_t *tokens, uint32_t ntokens,
                                     const void *extra, size_t extra_bytes,
                                     struct kvc_seq **ret_seq);
/* Accepts NULL and a pointer to NULL. */
KVC_API void kvc_seq_free(struct kvc_seq **seq);

struct kvc_prefix {
    uint32_t tokens; /* longest cached prefix that satisfies every group, and is worth loading */
    struct {
        uint32_t blocks; /* leading cached blocks of this group */
        uint8_t reason;  /* enum kvc_miss: why no more; NONE too if no daemon answered, or its
                          * device is out */
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
 * the next one's data begins at data + bytes. Those of 1 MiB and more do not: memory passes from
 * block size to block size in pieces of 2 MiB, each with a page of headers before its blocks;
 * pieces of that size are read no faster together. */
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
                       decoded tokens. KVC_F_ADMIT: kvc_store takes them whatever they are worth,
                       for instance to be named or pinned. KVC_F_NO_STORE: answered with
                       KVC_ST_NO_STORE for each block, and nothing is sent */
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
 * storage behind it (PROTOCOL.md, Admission: not with KVC_F_ADMIT, not what goes on from a named
 * conversation, not within a guaranteed share). */
KVC_API KVC_MUST_USE int kvc_store(struct kvc_ns *ns, const struct kvc_blocks *blocks,
                                   const uint64_t *offsets, const uint32_t *tokens, size_t ntokens,
                                   uint8_t *statuses);
/* Gives up what is not committed yet. 0 also when it ended with its connection; KVC_E_GONE. */
KVC_API KVC_MUST_USE int kvc_drop(struct kvc *kvc, uint64_t reservation);

/* ---- a sequence in one call ----
 *
 * The calls above with their arithmetic: what is missing, parents, pieces, checks. Both wait, and
 * call back in the caller's thread. A callback may write to or read from the memory that it is
 * given, with threads of its own too; it must call nothing of its session.
 */

struct kvc_pool; /* gpu.h: pages, in host memory too */
struct kvc_word; /* gpu.h */

/* Consecutive blocks of a group, of one shard each. */
struct kvc_run {
    uint32_t group, first, n;     /* blocks first .. first + n - 1 of the sequence */
    uint32_t first_token, tokens; /* that they hold: the last block may be partly filled */
    uint32_t block_bytes;
    uint64_t stride_bytes; /* block first + i is at data + i * stride_bytes */
    void *data;            /* of kvc_get: for reading, a write faults */
};

struct kvc_put {
    const struct kvc_seq *seq; /* from its first token on; NULL: kvc_seq_new of the tokens */
    const uint32_t *tokens;    /* all ids; needed without seq, else for a namespace with_tokens */
    uint32_t ntokens;
    const void *extra; /* without seq: as kvc_seq_new's */
    size_t extra_bytes;
    /* 0: the daemon is asked which blocks it has. Else blocks that end at or before this token are
     * taken for stored, without asking: by the put before, or because they were loaded. When the
     * daemon has lost one of them meanwhile (NO_PARENT), the put begins with the first that is
     * missing. */
    uint32_t from_tokens;
    unsigned flags; /* KVC_F_DURABLE, KVC_F_DECODED, KVC_F_ADMIT, KVC_F_NO_STORE: of kvc_blocks */
    const struct kvc_retain *retain;
    uint32_t nretain;
    /* Where the blocks come from, one of the two. fill writes the blocks of a run to staging, all
     * block_bytes of each; 0 = done; 1 = the caller does not have them; negative = the put ends and
     * returns that. In groups of rule FULL a run is as long as there is room for, in others it is
     * one block. */
    int (*fill)(void *ctx, const struct kvc_run *run);
    void *ctx;
    /* Pages of a pool: pages_per_block numbers for each key of each group. A block of KVC_NO_PAGE
     * alone is one that the caller does not have. */
    struct kvc_pool *pool;
    const uint32_t *pages[KVC_GROUPS_MAX];
    const struct kvc_word
        *after; /* of a pool on a device: nothing is read before it; NULL = none */
    /* What became of each key: NULL, or room for as many as the group has. KVC_ST_OK = stored now;
     * EXISTS, PENDING = there, or being stored by another; NO_STORE = the caller did not have it;
     * else why not, as of kvc_store. */
    uint8_t *statuses[KVC_GROUPS_MAX];
};
struct kvc_put_result {
    struct {
        uint32_t stored, there, left; /* blocks: OK; EXISTS and PENDING; all others */
        uint8_t status;               /* of the first of `left` */
    } group[KVC_GROUPS_MAX];
    uint32_t tokens; /* up to here every group of rule FULL has its blocks */
    uint64_t bytes;  /* stored now, of this shard */
};
/* Stores what is missing of a sequence. What is filled goes through the whole staging area, in as
 * many pieces as it has room for: no store of the caller's may be in flight, and staging holds
 * nothing of the caller's. 0 also when blocks were refused (ret_result, statuses); after an error
 * statuses are void, and pieces before it are stored: KVC_E_DOWN and KVC_E_TIMEOUT (what was not
 * sent is counted as dropped), -EINVAL, what fill returned. ret_result may be NULL. */
KVC_API KVC_MUST_USE int kvc_put(struct kvc_ns *ns, const struct kvc_put *put,
                                 struct kvc_put_result *ret_result);

struct kvc_get {
    const struct kvc_seq *seq; /* these as in kvc_put */
    const uint32_t *tokens;
    uint32_t ntokens;
    const void *extra;
    size_t extra_bytes;
    struct kvc_acquire_options acquire;
    /* Copies the blocks of a run away; other than 0 = the get ends and returns that. Blocks that
     * lie side by side come in one run (stride_bytes == block_bytes). */
    int (*take)(void *ctx, const struct kvc_run *run);
    void *ctx;
};
struct kvc_got {
    struct kvc_prefix prefix; /* found */
    uint32_t tokens;          /* of it, read: 0 = none, whatever take was given */
};
/* Reads the blocks of the longest cached prefix that end after acquire.from_tokens: acquire, take,
 * the check after reading, release. No hit, no daemon, or blocks that changed while they were read:
 * 0 with ret_got->tokens 0. kvc_pages_load (gpu.h) does the same into pages. */
KVC_API KVC_MUST_USE int kvc_get(struct kvc_ns *ns, const struct kvc_get *get,
                                 struct kvc_got *ret_got);

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
    uint64_t ttl_ms;   /* the name goes when it was not used for so long, not counting the time from
                          the last use of any name to a new start of the machine; 0 = never */
    const uint32_t
        *tokens; /* documents: the ids of all seq->tokens tokens, kept for export; NULL. With the
                    keys they are at most KVC_MESSAGE_MAX bytes, else KVC_E_TOO_LARGE */
};
struct kvc_named {
    uint32_t tokens; /* covered: what was cached of the chain. A partly filled last block is */
    uint64_t bytes;
};
/* Makes a name or moves it to seq. What is covered is the longest prefix of seq that is cached now;
 * that is what the name stands for: what is to be named for the first time is best stored with
 * KVC_F_ADMIT, and as a conversation goes on from there it is taken anyway. options may be NULL.
 * KVC_E_GONE: nothing of it is cached; KVC_E_TIER: what is cached of it is on a storage path that
 * is out of service, and the name is as it was; KVC_E_PIN_LIMIT; KVC_E_QUOTA: a hard limit on
 * storage is below what would be promised there, or what is guaranteed to others leaves less, and
 * the name is as it was; KVC_E_LIMIT (names). With KVC_F_DURABLE: KVC_E_FULL (promises have half of
 * the storage), KVC_E_TIER and KVC_E_TIMEOUT: the name is made, but not all of it is on stable
 * storage; that is tried again by itself, and *ret_named is not set; KVC_E_NO_NAME: the name was
 * forgotten, or ended by its ttl, before that. */
KVC_API KVC_MUST_USE int kvc_name_put(struct kvc_ns *ns, enum kvc_name_kind kind, const char *name,
                                      const struct kvc_seq *seq,
                                      const struct kvc_name_options *options,
                                      struct kvc_named *ret_named);
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

#ifdef __cplusplus
}
#endif
#endif
