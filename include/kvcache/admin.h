/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvcache for operators and tools: statistics, walks, pins, quotas, the policy, eviction.
 *
 * A session needs admin rights to see or change blocks and names of other principals. A callback
 * may call any function of its session except kvc_close. Return values, threads and fork are those
 * of <kvcache/kvcache.h>.
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

/* The description of a table: names, types and places of the columns of its rows. Static; NULL:
 * there is no such table. */
KVC_API const struct kvc_table *kvc_table(enum kvc_table_id table);
/* Selects rows of the tables CONVERSATIONS, DOCUMENTS and BLOCKS. Of other tables kvc_list returns
 * all rows. */
struct kvc_filter {
    /* CONVERSATIONS, DOCUMENTS. */
    const char *prefix; /* names that begin with it; with `exact` the whole name; NULL: any */
    const char
        *sub_tenant; /* of gateways; NULL: any, or with `exact` the name without sub-tenant */
    bool exact;      /* the one name that equals prefix; KVC_E_NO_NAME if there is none */
    /* BLOCKS. */
    enum kvc_walk_mode mode;
    uint32_t ns, group;  /* MATCH, KEYS: ns 0 = all that the session may see; group must be 0 */
    const uint8_t *keys; /* n keys of KVC_KEY_BYTES. UP, DOWN: 1, the block where the walk begins;
                          * MATCH: 1, whose first bits are compared; ROOTS: none; KEYS: 1 to
                          * KVC_LIST_MAX */
    uint32_t n;
    uint32_t depth; /* DOWN: levels below the key; 0 = all. MATCH: bits of the key, 1 to 256 */
};
/* Calls fn for each row that the session may see and the filter selects (NULL: all). row: the
 * table's struct of rows.h, valid until fn returns. If fn returns non-zero, the walk ends and
 * kvc_list returns that value. Rows that are made or removed meanwhile may be missed; none comes
 * twice. KVC_E_DENIED: the table needs admin rights. BLOCKS: a walk from a key that is not cached
 * has no rows. KVC_E_GONE: blocks that the walk was among were removed; the rows that fn got were
 * true. KVC_E_NO_NAMESPACE. */
KVC_API KVC_MUST_USE int kvc_list(struct kvc *kvc, enum kvc_table_id table,
                                  const struct kvc_filter *filter,
                                  int (*fn)(void *ctx, const void *row), void *ctx);

/* The spec with which a namespace was opened. The caller owns *ret_spec; one free() frees the
 * struct and its texts. *ret_own (may be NULL): true if kvc_ns_open with this spec opens the same
 * namespace in this session; false for one of another principal. KVC_E_NO_NAMESPACE. */
KVC_API KVC_MUST_USE int kvc_ns_spec_of(struct kvc *kvc, uint32_t ns, struct kvc_ns_spec **ret_spec,
                                        bool *ret_own);

/* One slice of a pass over the stored blocks, which reads them again and compares checksums. The
 * caller begins with cursor 0, and continues with ret_verified->cursor until that is 0. */
struct kvc_verify {
    uint32_t ns;           /* 0 = any */
    enum kvc_tier_id tier; /* KVC_TIER_NONE = all */
    uint64_t cursor;
    uint64_t bytes_max; /* about this much payload is read; at least 1 */
};
/* A copy whose bytes did not match the block's checksum. The daemon has removed it. If the block
 * had no other copy to keep, the block and all blocks that built on it are removed too. Tier HBM:
 * only the copy in that slot is removed. */
struct kvc_corrupt {
    uint8_t key[KVC_KEY_BYTES];
    uint32_t ns, group, shard, chunk, below; /* below: blocks that built on it, removed too */
    uint8_t tier;                            /* enum kvc_tier_id */
    uint64_t off;
};
struct kvc_verified {
    uint64_t cursor, bytes; /* cursor: of the next slice, 0: the end; bytes: payload read */
    uint32_t blocks, skipped, failed; /* blocks (HBM: copies) that were read; that were passed over
                                       * because they are being written; that could not be read */
    uint32_t corrupt;                 /* entries of found */
    struct kvc_corrupt found[KVC_VERIFY_MAX];
};
/* KVC_E_BUSY: other passes run too; try again. KVC_E_NO_NAMESPACE. KVC_E_BAD_ARGUMENT: there is no
 * such tier. */
KVC_API KVC_MUST_USE int kvc_verify_slice(struct kvc *kvc, const struct kvc_verify *verify,
                                          struct kvc_verified *ret_verified);

/* The daemon's record of what was asked for, for replaying: needs admin rights. */
struct kvc_trace_state {
    bool on;
    uint32_t ns; /* 0 = all */
    uint64_t bytes, used_bytes, records, dropped, age_ms;
};
/* ON uses bytes (memory for the trace, 0 = the daemon's default) and ns (0 = all). OFF discards the
 * trace, and *ret_state is its last state. KVC_E_EXISTS: a trace is on already. */
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

/* Pins the cached prefix of seq. ttl_ms 0: until kvc_unpin. The pin outlives the session, but ends
 * with the daemon (names survive a restart). KVC_E_PIN_LIMIT: the tenant's budget of pinned bytes
 * is exhausted, or pins of all principals would hold more than seven eighths of memory.
 * KVC_E_QUOTA: the bytes that must stay exceed a hard limit, or the guaranteed shares of others
 * leave too little. KVC_E_GONE: no block of seq is cached. KVC_E_TIER: the blocks are on a storage
 * path that is out of service. */
KVC_API KVC_MUST_USE int kvc_pin(struct kvc_ns *ns, const struct kvc_seq *seq, bool in_memory,
                                 uint64_t ttl_ms, uint64_t *ret_pin);
/* Ends a pin. KVC_E_NO_NAME: this principal has no such pin. */
KVC_API KVC_MUST_USE int kvc_unpin(struct kvc *kvc, uint64_t pin);

/* Sets or changes a quota. Only scope, tenant, sub_tenant, ns, limits and shares of *quota are
 * read. All limits UINT64_MAX and all shares 0 remove the quota. It lasts until the daemon ends;
 * the next start takes quotas from the configuration. Needs admin rights. KVC_E_NO_NAMESPACE.
 * KVC_E_LIMIT: there are too many quotas. */
KVC_API KVC_MUST_USE int kvc_quota_set(struct kvc *kvc, const struct kvc_quota *quota);

/* Ends a session of this principal; with admin rights, any session. Its leases and reservations end
 * at once, though its process may still live and read. KVC_E_GONE: this session sees no such one.
 */
KVC_API KVC_MUST_USE int kvc_session_end(struct kvc *kvc, uint32_t session);

/* The eviction policy, and its parameters that can be set while the daemon runs. Setting needs
 * admin rights. */
struct kvc_level {
    uint32_t priority;
    uint64_t blocks; /* blocks that are kept at this priority */
};
struct kvc_policy_info {
    char name[64], text[512];    /* text: a description for people */
    char chosen[KVC_PARAMS_MAX]; /* "default", "--set", "FILE:LINE" of the daemon's configuration */
    uint32_t keep_percent;       /* of what is on disk, the part that is not worth writing again */
    bool load_or_recompute;      /* whether the daemon compares loading with computing again */
    uint64_t pin_bytes_max;      /* budget of pinned bytes per tenant */
    /* The values with which the daemon began; one that differs was set since. */
    uint32_t keep_percent_start;
    bool load_or_recompute_start;
    uint64_t pin_bytes_max_start;
    bool storage; /* there is a storage tier */
    bool hints;   /* the policy heeds hints */
    bool pins;    /* pins are taken: else each is KVC_E_LIMIT */
    bool all;     /* false: the session has no admin rights, and the fields from here on are 0 */
    uint64_t writes_per_day, spent_bytes, left_bytes; /* as in struct kvc_writes */
    uint64_t load_bytes_per_s, load_latency_us;       /* measured of storage; 0 = nothing yet */
    uint64_t hints_ended, hints_continue, hints_soon, hints_scan; /* given since the daemon began */
    uint64_t wishes, wishes_ended;                                /* blocks */
    uint32_t levels;
    struct kvc_level level[KVC_PRIORITY_MAX + 1]; /* levels that have blocks, lowest first */
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
    uint64_t host_bytes, nvme_bytes, device_bytes; /* by tier; dry_run: what would be evicted */
};
/* Evicts blocks. Returns when a crash can no longer bring them back. KVC_E_TIER, KVC_E_TIMEOUT: the
 * blocks are evicted, but may be back after a crash. */
KVC_API KVC_MUST_USE int kvc_evict(struct kvc *kvc, const struct kvc_evict_filter *filter,
                                   struct kvc_evicted *ret_evicted);
/* Removes a name and evicts its blocks, except those that others share, pin or use (kept_blocks).
 * dry_run: reports what would be evicted, and changes nothing. KVC_E_NO_NAME. */
KVC_API KVC_MUST_USE int kvc_name_evict(struct kvc *kvc, enum kvc_name_kind kind, const char *name,
                                        const char *sub, bool dry_run,
                                        struct kvc_evicted *ret_evicted);
/* Why blocks of a name stay. Each block counts once, for the first reason that holds. */
struct kvc_kept {
    uint64_t named;  /* other names reach them */
    uint64_t pinned; /* pins hold them */
    uint64_t used;   /* under lease, or being written */
    uint64_t below;  /* blocks of others, or that stay, build on them */
    uint64_t passed; /* partly filled ends of earlier turns, beside such blocks: stored durably, or
                      * in use when a name went on */
};
/* kvc_name_evict, which also tells why kept_blocks stay. */
KVC_API KVC_MUST_USE int kvc_name_evict_kept(struct kvc *kvc, enum kvc_name_kind kind,
                                             const char *name, const char *sub, bool dry_run,
                                             struct kvc_evicted *ret_evicted,
                                             struct kvc_kept *ret_kept);

#ifdef __cplusplus
}
#endif
#endif
