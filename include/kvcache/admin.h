/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvcache for operators and tools: statistics, walks, pins, quotas, the policy, eviction.
 *
 * What belongs to other principals needs admin rights. A function that is called for each item may
 * call other functions of its session, but kvc_close. Return values, threads and fork are those of
 * <kvcache/kvcache.h>.
 */
#ifndef KVCACHE_ADMIN_H
#define KVCACHE_ADMIN_H

#include <kvcache/kvcache.h>
#include <kvcache/rows.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVC_ABI_ADMIN                                                                      \
    KVC_ABI(kvc_stat), KVC_ABI(kvc_ns_info), KVC_ABI(kvc_filter), KVC_ABI(kvc_block_info), \
        KVC_ABI(kvc_verify), KVC_ABI(kvc_corrupt), KVC_ABI(kvc_verified),                  \
        KVC_ABI(kvc_trace_state), KVC_ABI(kvc_trace_record), KVC_ABI(kvc_drained),         \
        KVC_ABI(kvc_path), KVC_ABI(kvc_writes), KVC_ABI(kvc_pin_info), KVC_ABI(kvc_quota), \
        KVC_ABI(kvc_session_info), KVC_ABI(kvc_level), KVC_ABI(kvc_policy_info),           \
        KVC_ABI(kvc_evict_filter), KVC_ABI(kvc_evicted), KVC_ABI(kvc_kept)

struct kvc_stat {
    char name[64];
    bool gauge;
    uint64_t value;
};
/* Calls fn for each statistic; a non-zero return of fn ends the walk and is returned. */
KVC_API KVC_MUST_USE int kvc_stats(struct kvc *kvc, int (*fn)(void *ctx, const struct kvc_stat *),
                                   void *ctx);

/* The rows of a table as data: names, types and places of its columns. Static; NULL: no such table.
 */
KVC_API const struct kvc_table *kvc_table(enum kvc_table_id table);
/* Which rows; of other tables there are all. */
struct kvc_filter {
    /* CONVERSATIONS, DOCUMENTS. */
    const char *prefix;     /* the name begins with it, or is it; NULL: any */
    const char *sub_tenant; /* of gateways; NULL: any, or with `exact` none */
    bool exact;             /* the one that is called so, or KVC_E_NO_NAME */
    /* BLOCKS: from a block to the first one of its sequence, or to all that build on it; the first
     * blocks of all sequences; those whose keys begin with some bits; or, of some keys, each place
     * that has them, or why none has. */
    enum kvc_walk_mode mode;
    uint32_t ns, group;  /* MATCH, KEYS: ns 0 = all that the session may see; group 0, for all */
    const uint8_t *keys; /* n of KVC_KEY_BYTES: where UP and DOWN begin, or what MATCH compares (1);
                          * ROOTS: none; KEYS: 1 to KVC_LIST_MAX */
    uint32_t n;
    uint32_t depth; /* DOWN: levels below the key; 0 = all. MATCH: bits of the key, 1 to 256 */
};
/* Calls fn for each row that the session may see and the filter (NULL: none) takes, a struct of
 * rows.h that is fn's until it returns; a non-zero return of fn ends the walk and is returned. Rows
 * that come or go meanwhile may be missed; none comes twice. KVC_E_DENIED: a table for
 * administrators. Of BLOCKS: nothing when the key of a walk is not cached; KVC_E_GONE: blocks went
 * while the walk was among them, and what fn has got was true; KVC_E_NO_NAMESPACE. */
KVC_API KVC_MUST_USE int kvc_list(struct kvc *kvc, enum kvc_table_id table,
                                  const struct kvc_filter *filter,
                                  int (*fn)(void *ctx, const void *row), void *ctx);

/* All that a namespace was opened with. Returns owned: free() gives back the struct with its texts.
 * *ret_own (may be NULL): kvc_ns_open with it gives this session that namespace; not so for what
 * belongs to another principal. KVC_E_NO_NAMESPACE. */
KVC_API KVC_MUST_USE int kvc_ns_spec_of(struct kvc *kvc, uint32_t ns, struct kvc_ns_spec **ret_spec,
                                        bool *ret_own);

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

/* Pins what is cached of seq. ttl_ms 0: until kvc_unpin. The pin outlives the session and not the
 * daemon: names last. KVC_E_PIN_LIMIT: over the budget, or pins of all in memory would have more
 * than seven eighths of it; KVC_E_QUOTA: a hard limit is below what would have to stay, or what is
 * guaranteed to others leaves less; KVC_E_GONE: nothing is cached; KVC_E_TIER: it is, on a storage
 * path that is out of service. */
KVC_API KVC_MUST_USE int kvc_pin(struct kvc_ns *ns, const struct kvc_seq *seq, bool in_memory,
                                 uint64_t ttl_ms, uint64_t *ret_pin);
/* KVC_E_NO_NAME: there is no such pin of this principal's. */
KVC_API KVC_MUST_USE int kvc_unpin(struct kvc *kvc, uint64_t pin);

/* Sets or changes a quota, of which scope, whose it is, limits and shares count; all limits
 * UINT64_MAX and all shares 0: removes it. Lasts until the daemon ends; those of the configuration
 * come back. Admin rights. KVC_E_NO_NAMESPACE, KVC_E_LIMIT (quotas). */
KVC_API KVC_MUST_USE int kvc_quota_set(struct kvc *kvc, const struct kvc_quota *quota);

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
    /* What is stored into full memory is judged (PROTOCOL.md, Admission); and as the daemon began.
     */
    bool admission, admission_start;
    bool admits; /* the policy judges what is stored: else, and with storage, all is taken anyway */
};
/* set: NULL, or the new values of keep_percent, load_or_recompute, admission and pin_bytes_max; its
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
    uint64_t passed; /* partly filled ends of earlier turns, beside such blocks: stored durably, or
                      * in use when a name went on */
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
