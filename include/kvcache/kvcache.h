/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvcache: the client of kvcache-daemon. A worker needs this header. The same library also has
 * <kvcache/async.h> for a caller's event loop, <kvcache/gpu.h> for paged memory (on GPUs and in
 * host memory), and <kvcache/admin.h> for operators and tools.
 *
 * A `struct kvc` is one session with the daemon of this node. It has an attach connection (which
 * passes identity and descriptors, and whose end is the session's end), a control socket, a staging
 * area, and read-only mappings of the daemon's memory.
 *
 * Return values: 0 or a positive number is success; a negative one is an errno or a KVC_E_* of
 * <kvcache/proto.h>. A miss is not an error. Output parameters come last, and a call that fails
 * leaves them as they were.
 *
 * The daemon may be absent at any time. Lookups and acquires then return 0 with no hit within their
 * deadline. Stores return KVC_E_DOWN and are counted (kvc_counters). A later call reconnects the
 * session; kvc_staging does so too. A reconnect makes earlier holds, reservations and staging
 * contents void: holds report KVC_STALE (but see kvc_hold_check), and stores return KVC_E_DOWN
 * until the caller has called kvc_staging again.
 *
 * A daemon that runs but does not answer (frozen, stopped) costs one call its deadline and up to
 * 250 ms more. A store may wait another 250 ms, to make sure that nothing reads staging. Then a
 * lookup or acquire is a miss, and a store returns KVC_E_TIMEOUT and is counted as dropped. From
 * then on the daemon is *silent*. The library has sent it a PING, for whose reply the next call may
 * wait 125 ms once. Until the daemon answers, calls fail at once: reads are misses, stores return
 * KVC_E_TIMEOUT or KVC_E_DOWN, and kvc_is_up is false. After its answer the next call works, and
 * the caller need not open anything again.
 *
 * Errors and aborts. A wrong argument, a daemon that is gone and a malformed message are errors
 * that a call returns. The library aborts the process only where its own state is broken, or where
 * a handle is used after its end: for instance a hold is released twice by copies of its pointer,
 * or a request is finished twice.
 *
 * Threads. One thread at a time may use a session and all that belongs to it: namespaces, requests,
 * holds. Another thread may take it over by anything that orders memory (a mutex, a queue). While
 * one thread uses the session, any other may wait on the descriptor of kvc_fd, read the bytes of a
 * hold, and read or write staging. Different sessions are independent. Any thread may call
 * kvc_hash_chain and the functions that name errors at any time.
 *
 * Fork. A child must not use a session of its parent: calls return -EPERM, and kvc_close,
 * kvc_release and kvc_finish only free the child's memory. The parent's session is not disturbed. A
 * child must not read the blocks of its parent's holds, and must not wait on kvc_fd: the child's
 * copies of the descriptors are closed. A child opens a session of its own after fork(). All
 * descriptors of the library are close-on-exec. After vfork() a child may only exec or _exit.
 *
 * Signals. No call returns early because of a signal, and none raises SIGPIPE. A signal handler
 * must not call any function of this library.
 *
 * Structs that callers allocate. Set them to zero (or use an initializer) before you fill them in:
 * a later version adds fields, and zero in such a field means the behaviour of before. Size and
 * layout are part of the ABI of one soname. A field is added at the end, in a release with a new
 * soname, so recompiling is enough. Before 1.0 each minor version has its own soname
 * (libkvcache.so.0.MINOR).
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
struct kvc_ns; /* a namespace that a session has opened; it lives as long as the session */

/* ---- ABI ----
 *
 * For bindings, which are compiled or written apart from the library. A binding calls this once,
 * before anything else:
 *
 *     static const struct kvc_abi mine[] = {KVC_ABI_STRUCTS};
 *     const char *differs = kvc_abi(KVC_API_VERSION, mine, sizeof(mine) / sizeof(mine[0]));
 *
 * A binding that describes the structs by hand fills `mine` with its own names and sizes.
 */

#define KVC_API_VERSION "0.8" /* the soname's version; layouts may differ between versions */
/* The size of a struct as the caller sees it. */
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
/* Compares the caller's version and struct sizes with the library's. Returns NULL when all agree,
 * else a text that names the first difference, valid until this thread's next call. Known are the
 * structs of KVC_ABI_STRUCTS, KVC_ABI_ASYNC (async.h), KVC_ABI_ADMIN (admin.h) and KVC_ABI_GPU
 * (gpu.h). */
KVC_API const char *kvc_abi(const char *version, const struct kvc_abi *abi, size_t n);
/* KVC_API_VERSION with which the library was compiled. A static string. */
KVC_API const char *kvc_version(void);

/* ---- session ---- */

struct kvc_options {
    /* Path of the daemon's attach socket; NULL = $KVCACHE_SOCKET, else /run/kvcache/attach.sock. */
    const char *socket;
    /* Shown in stats and logs, cut to 63 bytes; NULL = the program's name. In a name that is not
     * UTF-8 every byte beyond ASCII is shown as '?'. */
    const char *name;
    /* Size of the staging area, through which blocks enter the cache; 0 = none (a session that only
     * reads). */
    uint64_t staging_bytes;
    uint32_t shard;      /* which shard of every block this rank stores; 0 on a single rank */
    uint32_t timeout_ms; /* default deadline of every call; 0 = KVC_DEADLINE_DEFAULT_MS */
    /* kvc_open and kvc_ns_open fail when no daemon answers. false: they succeed, and the session is
     * down at first. */
    bool must_connect;
    /* kvc_open does not wait for the daemon: the session is down at first, and later calls or
     * kvc_progress bring it up. If the daemon refuses this uid, only kvc_last_error says so. */
    bool no_wait;
};

/* Opens a session, which the caller owns and ends with kvc_close. options may be NULL. -EACCES or
 * KVC_E_DENIED: this uid has no rights. KVC_E_VERSION, KVC_E_DOWN (must_connect only), -ENOMEM,
 * -EINVAL. kvc_last_error(NULL) says why. */
KVC_API KVC_MUST_USE int kvc_open(const struct kvc_options *options, struct kvc **ret_kvc);
/* Releases every hold and reservation, frees requests that were begun and not finished, and ends
 * the session. Accepts NULL and a pointer to NULL. */
KVC_API void kvc_close(struct kvc **kvc);
/* The text of this session's last error; "" if there was none. Borrowed until the next call. For
 * NULL: the text of this thread's last kvc_open that failed. */
KVC_API const char *kvc_last_error(const struct kvc *kvc);
/* The name ("NO_PARENT", "ETIMEDOUT", ...) of any value that a function here returns. Static. */
KVC_API const char *kvc_error_name(int error);
/* The same as a text for people. */
KVC_API const char *kvc_error_text(int error);
/* Name and text of an enum kvc_miss. Static. */
KVC_API const char *kvc_miss_name(unsigned reason);
KVC_API const char *kvc_miss_text(unsigned reason);
/* Whether the link to the daemon is up, as far as this session knows. Sends nothing. */
KVC_API bool kvc_is_up(const struct kvc *kvc);
/* One round trip to the daemon. *ret_uptime_ms: how long the daemon runs; ret_uptime_ms may be
 * NULL. */
KVC_API KVC_MUST_USE int kvc_ping(struct kvc *kvc, uint64_t *ret_uptime_ms);
/* The writable staging area and its size (what the daemon granted; ret_bytes may be NULL). NULL:
 * the session is down, or has no staging. Never waits; in a session that is down it takes the next
 * step of connecting.
 *
 * A reconnect makes the contents void, and they are not stored before the caller has called this
 * again: call it before you fill the area, not between filling and storing. The old addresses stay
 * mapped until then. Other memory may take their place when the session loses its daemon, so
 * memory that was registered with a device must be registered again when kvc_epoch has changed.
 *
 * Where several parts of a program fill one area, each notes kvc_epoch() when it calls this, and
 * stores only if kvc_epoch() is still the same: the library takes the call of any one part as
 * meant for all contents. */
KVC_API void *kvc_staging(struct kvc *kvc, uint64_t *ret_bytes);
/* The number of the present or last connection; each (re)connect adds one. 0 = never connected. */
KVC_API uint32_t kvc_epoch(const struct kvc *kvc);

struct kvc_counters {
    uint64_t lookups_down; /* lookups and acquires that no daemon answered: misses, reason NONE */
    /* Blocks of reserve, commit and store calls that failed with KVC_E_DOWN or KVC_E_TIMEOUT. */
    uint64_t stores_dropped_blocks;
    uint64_t stores_dropped_bytes;
    uint64_t reconnects;
    uint64_t stale; /* holds that kvc_hold_check found stale */
};
KVC_API void kvc_get_counters(const struct kvc *kvc, struct kvc_counters *ret_counters);

/* ---- namespaces ---- */

struct kvc_group_spec {
    uint32_t block_tokens; /* 1 to KVC_BLOCK_TOKENS_MAX */
    uint32_t block_bytes;  /* payload of one shard of one whole block */
    enum kvc_rule rule;    /* which blocks of this group a prefix needs */
    uint32_t window;       /* in tokens; KVC_RULE_WINDOW only */
    bool replicated;       /* all ranks have the same bytes, so one shard is stored */
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
    uint32_t shards;  /* ranks that hold parts of a block; 0 = 1 */
    bool with_tokens; /* stores pass the token ids of their blocks */
    /* What this session needs to compute KV. 0 = unknown: all that is cached is worth loading. */
    uint64_t prefill_ns_per_token;
    uint64_t prefill_ns_per_token_pair; /* the quadratic part: a token costs so many millionths of
                                         * a nanosecond more for each token before it */
    uint32_t groups;                    /* 1 to KVC_GROUPS_MAX */
    struct kvc_group_spec group[KVC_GROUPS_MAX];
};

/* Opens a namespace. The session owns the handle; an equal specification gives the same handle.
 *
 * KVC_E_UNSOUND: the daemon refuses the specification, and kvc_last_error says why. When the daemon
 * is absent or does not answer the call returns 0, and a later call opens the namespace; sessions
 * with must_connect get KVC_E_DOWN or KVC_E_TIMEOUT. Until it is open, reads are misses and stores
 * return KVC_E_DOWN. If the daemon refuses it then, the calls that name it return the refusal.
 *
 * The library opens the namespace again after a reconnect. It does so once, too, when the daemon
 * has removed the empty namespace, and sends the request again without the caller's noticing. */
KVC_API KVC_MUST_USE int kvc_ns_open(struct kvc *kvc, const struct kvc_ns_spec *spec,
                                     struct kvc_ns **ret_ns);
/* The key that every first block has as its parent, KVC_KEY_BYTES long; the daemon chooses it.
 * NULL: no daemon has opened the namespace yet. May change at a reconnect (kvc_epoch). */
KVC_API const uint8_t *kvc_ns_seed(const struct kvc_ns *ns);
/* The daemon's number for the namespace; 0: no daemon has opened it yet. */
KVC_API uint32_t kvc_ns_id(const struct kvc_ns *ns);

/* ---- keys ---- */

/* Keys of the consecutive blocks of `tokens` (PROTOCOL.md, "Keys"): SHA-256 over parent, tokens and
 * extra, each tagged and length-prefixed. `parent` is the namespace's seed, or the key of the block
 * before the first token. Writes ceil(ntokens / block_tokens) keys of KVC_KEY_BYTES to `keys`, and
 * returns their number. -EINVAL, -ENOMEM. Uses no session. */
KVC_API KVC_MUST_USE int kvc_hash_chain(const uint8_t parent[KVC_KEY_BYTES], const uint32_t *tokens,
                                        size_t ntokens, uint32_t block_tokens, const void *extra,
                                        size_t extra_bytes, uint8_t *keys);

/* ---- reading ---- */

/* A token sequence as chains of keys: one chain for each group, in the namespace's order of groups.
 * All groups together have at most KVC_KEYS_MAX keys, else -EINVAL (a million tokens at 16 a block
 * are 62,500 keys per group). A call with a sequence of any length is one request: all blocks that
 * it finds, holds, pins or names are in the cache at one moment, even while the daemon serves
 * others. */
struct kvc_seq {
    uint32_t tokens; /* that the keys cover; the last block may be partly filled */
    struct {
        const uint8_t *keys; /* n x KVC_KEY_BYTES; borrowed until the call returns */
        uint32_t n;
    } group[KVC_GROUPS_MAX];
    const char *sub_tenant; /* gateway sessions: the sub-tenant whose data this is; else NULL */
};

/* Makes a sequence from token ids: the keys of kvc_hash_chain from the namespace's seed on, for all
 * blocks, a partly filled last one included. The caller frees it with kvc_seq_free. KVC_E_DOWN: no
 * daemon has opened the namespace yet. */
KVC_API KVC_MUST_USE int kvc_seq_new(struct kvc_ns *ns, const uint32_t *tokens, uint32_t ntokens,
                                     const void *extra, size_t extra_bytes,
                                     struct kvc_seq **ret_seq);
/* Accepts NULL and a pointer to NULL. */
KVC_API void kvc_seq_free(struct kvc_seq **seq);

struct kvc_prefix {
    uint32_t tokens; /* length of the longest cached prefix that satisfies every group and that is
                        worth loading */
    struct {
        uint32_t blocks; /* cached blocks of this group from the sequence's start on */
        /* enum kvc_miss: why the prefix is no longer. NONE also if no daemon answered, or if the
         * device is out of service. */
        uint8_t reason;
        uint32_t detail; /* KVC_MISS_NAMESPACE: bits 1 << enum kvc_ns_field that differ; else 0 */
    } group[KVC_GROUPS_MAX];
    uint32_t cached_tokens; /* as `tokens`, but also what is not worth loading */
    /* Estimate of how long it takes to load the blocks that are not in memory; lookups only. */
    uint64_t load_us;
};

/* Finds the longest cached prefix. If the namespace states its prefill cost, the prefix ends where
 * loading would take longer than computing; the tiers' measured bandwidths and queues decide that
 * (KVC_F_ALL: the whole prefix). flags: 0 = no side effect; KVC_F_TOUCH = the lookup counts as a
 * use; KVC_F_PREFETCH = the daemon begins to load the blocks that are on disk into memory, as far
 * as there is room, and the call does not wait for that. */
KVC_API KVC_MUST_USE int kvc_lookup(struct kvc_ns *ns, const struct kvc_seq *seq, unsigned flags,
                                    struct kvc_prefix *ret_prefix);

/* One rank's shard of one block, readable in place until the hold is released. Blocks that were
 * stored together mostly lie side by side. Where the next block's data begins at data + bytes,
 * small blocks are read fastest as one piece. Blocks of 1 MiB and more do not lie side by side: the
 * daemon divides memory into pieces of 2 MiB, each with a page of headers before its blocks. Blocks
 * of that size are read no faster together. */
struct kvc_block {
    const void *data;
    uint32_t bytes;
    uint64_t gen;           /* value of *gen_at when the block was acquired */
    const uint64_t *gen_at; /* changes before the daemon writes other contents to this memory */
};

struct kvc_hold {
    uint64_t lease; /* 0 = nothing is held */
    /* Other ranks of this principal redeem it (kvc_redeem) while this hold lasts. */
    uint8_t ticket[KVC_TICKET_BYTES];
    uint32_t epoch; /* kvc_epoch() when the blocks were acquired */
    struct kvc_prefix prefix;
    struct {
        uint32_t first, n;             /* blocks first .. first + n - 1 of the group */
        const struct kvc_block *block; /* n; owned by the library until kvc_release */
    } group[KVC_GROUPS_MAX];
};

struct kvc_acquire_options {
    unsigned flags; /* KVC_F_WAIT: wait for blocks that are being stored; KVC_F_NO_LOAD: do not
                       wait for blocks that are on disk; KVC_F_READ_ONLY; KVC_F_ALL */
    uint32_t from_tokens; /* hold only blocks that end after this token */
    uint32_t wait_tokens; /* with KVC_F_WAIT: a prefix of this length is enough; 0 = all tokens */
    uint32_t timeout_ms;  /* 0 = the session's */
};

/* Holds the blocks that the longest cached prefix needs. The daemon loads those that are on disk,
 * and the call waits for them until the timeout; then it holds what has been loaded. No hit: 0,
 * with ret_hold->lease 0. The caller must release the hold whatever it contains. options may be
 * NULL. */
KVC_API KVC_MUST_USE int kvc_acquire(struct kvc_ns *ns, const struct kvc_seq *seq,
                                     const struct kvc_acquire_options *options,
                                     struct kvc_hold **ret_hold);
/* Holds the same blocks as the hold that the ticket is from, but this session's shard of them.
 * KVC_E_NO_LEASE: that hold has ended, or it is of kvc_acquire_on() (gpu.h) and some of its blocks
 * are on the device and not in host memory. */
KVC_API KVC_MUST_USE int kvc_redeem(struct kvc_ns *ns, const uint8_t ticket[KVC_TICKET_BYTES],
                                    struct kvc_hold **ret_hold);
/* Call it after reading. 0 = the bytes that were read are those that were stored; KVC_STALE =
 * discard them. Sends nothing.
 *
 * If the daemon ends, every hold becomes stale once the kernel has closed its connections
 * (milliseconds after its process); until then the memory stays as it was. If the session ends
 * while the daemon runs (it dropped the session, or the library gave it up: kvc_last_error says
 * why), holds last until they are released. Release them soon, because they keep the daemon's
 * memory. Reading a hold's bytes never faults before its release. */
KVC_API KVC_MUST_USE int kvc_hold_check(const struct kvc_hold *hold);
/* Releases the hold and its lease, and sets *hold to NULL. Does not wait for a reply. Accepts NULL
 * and a pointer to NULL. kvc is not used, because the hold knows its session; NULL will
 * do. */
KVC_API void kvc_release(struct kvc *kvc, struct kvc_hold **hold);

/* ---- writing ---- */

/* A wish how long blocks stay: those that hold a token of [first_token, end_token). Blocks of lower
 * priority are evicted first. A block without a wish has KVC_PRIORITY_DEFAULT; when a wish ends its
 * blocks have that again, as if they were just used. duration_ms runs from the blocks' commit.
 * Where the ranges of a list overlap, the earlier wish counts. If a block that has a wish gets a
 * second one, the one of higher priority counts while it lasts. */
struct kvc_retain {
    uint32_t first_token, end_token; /* of the sequence; end_token 0 = to the sequence's end */
    uint32_t priority;               /* 0 (evicted first) to KVC_PRIORITY_MAX (evicted last) */
    uint64_t duration_ms;            /* 0 = without end */
};

/* Consecutive blocks of one group. The call borrows all pointers until it returns. */
struct kvc_blocks {
    uint32_t group;
    const uint8_t *parent;  /* key of the block before the first; NULL = the sequence starts here */
    const uint8_t *keys;    /* n x KVC_KEY_BYTES, consecutive */
    uint32_t n;             /* up to KVC_STORE_MAX */
    uint32_t first_token;   /* position in the sequence of the first block's first token */
    uint32_t last_tokens;   /* tokens in the last block; 0 = the block is full */
    const char *sub_tenant; /* gateway sessions: whose data this is; else NULL */
    /* KVC_F_DURABLE: the call that commits the blocks returns when they, and all blocks before them
     * in their chains, are on stable storage. Status OK: they are. QUOTA, FULL, TIER: they are
     * cached, but not on stable storage. EXISTS: the daemon writes the block there, and the call
     * does not wait for that. A block of several shards needs all of them, so the call waits until
     * the other ranks have stored theirs (GONE: a rank dropped its shard). A thread that stores the
     * shards of several ranks begins all stores (kvc_store_begin) before it waits.
     * KVC_E_BAD_ARGUMENT: the daemon has no storage tier.
     *
     * KVC_F_DECODED: the blocks hold decoded tokens. KVC_F_ADMIT: kvc_store takes the blocks
     * whatever they are worth, for instance to be named or pinned. KVC_F_NO_STORE: each block gets
     * the status KVC_ST_NO_STORE, and nothing is sent. */
    unsigned flags;
    const struct kvc_retain *retain; /* nretain wishes, at most KVC_RETAIN_MAX; NULL = none */
    uint32_t nretain;
};

/* Announces blocks (others can wait for them) and takes room for them. statuses[i]: KVC_ST_OK =
 * write the block and commit it; KVC_ST_EXISTS or KVC_ST_PENDING = nothing to do; else why it was
 * not reserved. KVC_ST_FULL also: the session would be writing more than half of the daemon's
 * host.limit. KVC_ST_TIER: the block's only copy is on a storage path that is out of service.
 * *ret_reservation 0: nothing was reserved. Only this session may use the handle. It ends when its
 * last block is committed, or with kvc_drop. */
KVC_API KVC_MUST_USE int kvc_reserve(struct kvc_ns *ns, const struct kvc_blocks *blocks,
                                     uint64_t *ret_reservation, uint8_t *statuses);
/* Commits blocks first .. first + n - 1 of a reservation. offsets[i] is the place of a block in
 * staging, a multiple of 64; UINT64_MAX = do not commit this block. An offset that is no multiple
 * of 64, or whose block would end outside of staging, gives the status BAD_ARGUMENT, and the block
 * stays reserved. When the call returns, others see the blocks, and staging may be reused. tokens:
 * the ids in the committed blocks for a namespace with_tokens, else NULL. */
KVC_API KVC_MUST_USE int kvc_commit(struct kvc_ns *ns, uint64_t reservation, uint32_t first,
                                    uint32_t n, const uint64_t *offsets, const uint32_t *tokens,
                                    size_t ntokens, uint8_t *statuses);
/* Reserves and commits in one round trip blocks that are all in staging already: an offset of
 * UINT64_MAX is -EINVAL here. One call stores at most half of the daemon's host.limit. Nobody waits
 * for these blocks, so the daemon judges their worth. KVC_ST_NOT_WORTH: memory is full of blocks
 * that are worth more, and the daemon has no storage. It does not judge with KVC_F_ADMIT, within a
 * guaranteed share, or where blocks continue a named conversation (PROTOCOL.md, Admission). */
KVC_API KVC_MUST_USE int kvc_store(struct kvc_ns *ns, const struct kvc_blocks *blocks,
                                   const uint64_t *offsets, const uint32_t *tokens, size_t ntokens,
                                   uint8_t *statuses);
/* Gives up the blocks of a reservation that are not committed yet. 0 also when the reservation has
 * ended with its connection. KVC_E_GONE: there is no such reservation. */
KVC_API KVC_MUST_USE int kvc_drop(struct kvc *kvc, uint64_t reservation);

/* ---- a sequence in one call ----
 *
 * kvc_put and kvc_get make the calls above for a whole sequence: they find the missing blocks and
 * their parents, divide the work into pieces, and check what was read. Both wait, and call back in
 * the caller's thread. A callback may use the memory that it is given in other threads too, until
 * it returns. It must not call any function with its session.
 */

struct kvc_pool; /* pages of a worker, on a device or in host memory; gpu.h */
struct kvc_word; /* a completion word and a value; gpu.h */

/* Consecutive blocks of a group: this session's shard of each. */
struct kvc_run {
    uint32_t group, first, n;     /* blocks first .. first + n - 1 of the group */
    uint32_t first_token, tokens; /* that the blocks hold; the last block may be partly filled */
    uint32_t block_bytes;
    uint64_t stride_bytes; /* block first + i is at data + i * stride_bytes */
    void *data;            /* kvc_put: to be written. kvc_get: for reading only, a write faults */
};

struct kvc_put {
    const struct kvc_seq *seq; /* the whole sequence; NULL: kvc_seq_new makes it of `tokens` */
    const uint32_t *tokens;    /* all ids; needed without seq, and for a namespace with_tokens */
    uint32_t ntokens;
    const void *extra; /* without seq: passed to kvc_seq_new */
    size_t extra_bytes;
    /* 0: the library asks the daemon which blocks it has. Else it takes the blocks that end at or
     * before this token as stored (by an earlier put, or because they were loaded), and does not
     * ask. If the daemon has lost one of them since (NO_PARENT), the put begins with the first
     * block that is missing. */
    uint32_t from_tokens;
    unsigned flags; /* KVC_F_DURABLE, KVC_F_DECODED, KVC_F_ADMIT, KVC_F_NO_STORE of kvc_blocks */
    const struct kvc_retain *retain; /* as in kvc_blocks */
    uint32_t nretain;
    /* The source of the blocks: `fill` with `ctx`, or `pool` with `pages`. fill writes the blocks
     * of a run to staging, all block_bytes of each. It returns 0 = done; 1 = the caller does not
     * have these blocks; negative = the put ends and returns this number. In groups of rule FULL a
     * run is as long as staging has room for; in other groups it is one block. */
    int (*fill)(void *ctx, const struct kvc_run *run);
    void *ctx;
    /* A pool, and for each key of each group pages_per_block page numbers. A block whose numbers
     * all are KVC_NO_PAGE is one that the caller does not have. */
    struct kvc_pool *pool;
    const uint32_t *pages[KVC_GROUPS_MAX];
    /* For a pool on a device: nothing is read before this word has its value; NULL = at once. */
    const struct kvc_word *after;
    /* Output for each group: NULL, or room for one status per key. KVC_ST_OK = stored now; EXISTS =
     * cached already; PENDING = another writer is storing it; NO_STORE = the caller did not have
     * it; else why it was not stored, as from kvc_store. */
    uint8_t *statuses[KVC_GROUPS_MAX];
};
struct kvc_put_result {
    struct {
        uint32_t stored, there, left; /* blocks with status OK; EXISTS or PENDING; any other */
        uint8_t status;               /* of the first block of `left` */
    } group[KVC_GROUPS_MAX];
    uint32_t tokens; /* every group of rule FULL has its blocks up to this token */
    uint64_t bytes;  /* of this shard that were stored now */
};
/* Stores the blocks of a sequence that are missing. Blocks of `fill` pass through the whole staging
 * area, in as many pieces as are needed: meanwhile the caller has no store in flight, and nothing
 * of its own in staging. Returns 0 also when blocks were refused (see ret_result, statuses). After
 * an error statuses are void, and the pieces before it are stored. KVC_E_DOWN and KVC_E_TIMEOUT
 * (blocks that were not sent are counted as dropped), -EINVAL, or the number that fill returned.
 * ret_result may be NULL. */
KVC_API KVC_MUST_USE int kvc_put(struct kvc_ns *ns, const struct kvc_put *put,
                                 struct kvc_put_result *ret_result);

struct kvc_get {
    const struct kvc_seq *seq; /* this and the next four fields as in kvc_put */
    const uint32_t *tokens;
    uint32_t ntokens;
    const void *extra;
    size_t extra_bytes;
    struct kvc_acquire_options acquire;
    /* Copies the blocks of a run to memory of the caller's. A value other than 0: the get ends and
     * returns it. Blocks that lie side by side come in one run (stride_bytes == block_bytes). */
    int (*take)(void *ctx, const struct kvc_run *run);
    void *ctx;
};
struct kvc_got {
    struct kvc_prefix prefix; /* that was found */
    /* Tokens of the prefix whose blocks were read. 0 = none: discard all bytes that `take` got. */
    uint32_t tokens;
};
/* Reads the blocks of the longest cached prefix that end after acquire.from_tokens: it acquires
 * them, calls `take`, checks that they have not changed meanwhile, and releases them. No hit, no
 * daemon, or blocks that changed: 0 with ret_got->tokens 0. kvc_pages_load (gpu.h) does the same
 * into pages. */
KVC_API KVC_MUST_USE int kvc_get(struct kvc_ns *ns, const struct kvc_get *get,
                                 struct kvc_got *ret_got);

/* ---- hints, conversations, documents ----
 *
 * A name stands for a chain: a conversation for what was said so far, a document for KV that is
 * computed once and used often (CAG). Names belong to a principal, tenant and sub-tenant. A
 * conversation and a document may have the same name.
 *
 * While a name lasts, its blocks have at least the priority `priority` in memory, and eviction on
 * request passes over them. A daemon with storage writes them there as soon as it can, does not
 * remove them there for room, and finds them again after a restart. Without storage, or where
 * storage could not take them, memory evicts them when room is short, those of lower priority
 * sooner. The name then stands for the blocks that are left (kvc_name_info.tokens_cached). With
 * KVC_F_PINNED they are not evicted for room in either case. A name can be moved to another chain
 * (the conversation goes on; an answer is regenerated). Blocks that no name reaches any more lose
 * their protection at once.
 *
 * These calls wait for the reply, so do not make them for each token. */

/* Tells the daemon what will become of a chain (enum kvc_hint_kind). within_ms: for KVC_HINT_SOON.
 * Does not wait for the reply (kvc_close waits a little for it), and sends nothing when the session
 * is down. -EINVAL. */
KVC_API KVC_MUST_USE int kvc_hint(struct kvc_ns *ns, const struct kvc_seq *seq,
                                  enum kvc_hint_kind kind, uint32_t within_ms);

struct kvc_name_options {
    unsigned flags; /* KVC_F_PINNED: no block of the name is evicted while the name lasts; the bytes
                       count against the budget of pinned bytes. KVC_F_DURABLE: the call returns
                       when the blocks are on stable storage */
    uint32_t priority; /* 0 = KVC_PRIORITY_DEFAULT */
    /* The name ends when it was not used for so long; 0 = never. When the machine restarts, the
     * time since the last use of any name does not count. */
    uint64_t ttl_ms;
    /* Documents: the ids of all seq->tokens tokens, kept for export; NULL = none. Ids and keys
     * together have at most KVC_MESSAGE_MAX bytes, else KVC_E_TOO_LARGE. */
    const uint32_t *tokens;
};
struct kvc_named {
    uint32_t tokens; /* that the name covers, those of a partly filled last block included */
    uint64_t bytes;
};
/* Makes a name, or moves it to seq. The name covers the longest prefix of seq that is cached now.
 * So store blocks that get their first name with KVC_F_ADMIT; blocks that continue a named
 * conversation are taken anyway. options may be NULL.
 *
 * KVC_E_GONE: no block of seq is cached. KVC_E_TIER: the cached ones are on a storage path that is
 * out of service; the name is as it was. KVC_E_QUOTA: a hard limit on storage, or what is
 * guaranteed to others, leaves too little room for the promise; the name is as it was.
 * KVC_E_PIN_LIMIT. KVC_E_LIMIT: too many names.
 *
 * With KVC_F_DURABLE also KVC_E_FULL (promises have half of the storage), KVC_E_TIER and
 * KVC_E_TIMEOUT: the name is made, but not all of it is on stable storage. The daemon tries again,
 * and *ret_named is not set. KVC_E_NO_NAME: before that the name was forgotten, or its ttl ended
 * it. */
KVC_API KVC_MUST_USE int kvc_name_put(struct kvc_ns *ns, enum kvc_name_kind kind, const char *name,
                                      const struct kvc_seq *seq,
                                      const struct kvc_name_options *options,
                                      struct kvc_named *ret_named);
/* Calls fn for each name of a kind (0: of both kinds) that begins with `prefix` (NULL: any), in
 * order. If fn returns other than 0, the walk ends and returns that. sub: gateway sessions only. */
KVC_API KVC_MUST_USE int kvc_name_list(struct kvc *kvc, unsigned kind, const char *prefix,
                                       const char *sub,
                                       int (*fn)(void *ctx, const struct kvc_name_info *),
                                       void *ctx);
/* The state of one name. KVC_E_NO_NAME. */
KVC_API KVC_MUST_USE int kvc_name_show(struct kvc *kvc, enum kvc_name_kind kind, const char *name,
                                       const char *sub, struct kvc_name_info *ret_info);
/* Ends a name; its blocks become ordinary ones. evict: evicts the blocks too, except those that
 * others share, pin or use (kvc_name_evict also counts them). KVC_E_NO_NAME. */
KVC_API KVC_MUST_USE int kvc_name_forget(struct kvc *kvc, enum kvc_name_kind kind, const char *name,
                                         const char *sub, bool evict);
/* Counts as a use of the name, renews its ttl (ttl_ms: a new ttl; UINT64_MAX = the old one), and
 * begins to load its blocks from storage into memory. wait: returns when all are in memory, when no
 * more can be loaded, or at the deadline. *ret_bytes: bytes of the name that are in memory now.
 * KVC_E_NO_NAME. */
KVC_API KVC_MUST_USE int kvc_name_load(struct kvc *kvc, enum kvc_name_kind kind, const char *name,
                                       const char *sub, uint64_t ttl_ms, bool wait,
                                       uint32_t timeout_ms, uint64_t *ret_bytes);
/* Writes up to `max` of the token ids that kvc_name_put passed, from number `first` on, to
 * `tokens`; returns their number. */
KVC_API KVC_MUST_USE int kvc_name_tokens(struct kvc *kvc, enum kvc_name_kind kind, const char *name,
                                         const char *sub, uint32_t first, uint32_t *tokens,
                                         uint32_t max);

#ifdef __cplusplus
}
#endif
#endif
