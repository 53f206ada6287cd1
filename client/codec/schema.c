/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests, field by field: order on the wire, limits, error texts, place in the C struct.
 * PROTOCOL.md says the same for people. message.c encodes and decodes by these tables.
 */
#include <string.h>

#include "schema_fields.h"

_Static_assert(KVC_STRING_MAX == 128 && KVC_PARAMS_MAX == 256 && CODEC_DETAIL_MAX == 512 &&
                   KVC_GROUPS_MAX == 16 && KVC_SHARDS_MAX == 64 && KVC_BLOCK_TOKENS_MAX == 65536 &&
                   KVC_BLOCK_BYTES_MAX == 1 << 30 && KVC_KEYS_MAX == 131072 &&
                   KVC_STORE_MAX == 4096 && KVC_RELEASE_MAX == 1024 && KVC_VERIFY_MAX == 64 &&
                   KVC_TRACE_MAX == 256 && KVC_LIST_MAX == 256 && KVC_CURSOR_MAX == 320 &&
                   KVC_TRACE_BYTES_MIN == 1 << 20 && KVC_TRACE_BYTES_MAX == 1 << 30 &&
                   KVC_RETAIN_MAX == 16 && KVC_RETAIN_BYTES == 20 && KVC_PRIORITY_MAX == 100 &&
                   KVC_UUID_BYTES == 16 && KVC_IPC_BYTES == 64 && KVC_DEVICES_MAX == 16 &&
                   KVC_MEMS_MAX == 1024 && KVC_POOLS_MAX == 8 && KVC_WORDS == 512 &&
                   KVC_REGIONS_MAX == 4096 && KVC_REGION_BYTES == 40 && KVC_PAGES_MAX == 262144,
               "the texts below spell these limits out");

/* ---- requests ---- */

static const char *check_hello(const void *p)
{
    const struct msg_hello *msg = p;
    return check_versions(msg->ver_min, msg->ver_max);
}

static const struct field hello_fields[] = {
    U32(struct msg_hello, ver_min),
    U32(struct msg_hello, ver_max),
};
SCHEMA(codec__req_hello, struct msg_hello, hello_fields, .ops = {KVC_OP_HELLO},
       .check = check_hello);

const struct schema codec__req_bare = {.name = "codec__req_bare",
                                       .ops = {KVC_OP_PING, KVC_OP_STATS}};

static const struct field group_fields[] = {
    UINT(struct msg_group, block_tokens, 1, KVC_BLOCK_TOKENS_MAX,
         "block_tokens must be an integer from 1 to 65536"),
    UINT(struct msg_group, block_bytes, 1, KVC_BLOCK_BYTES_MAX,
         "block_bytes must be an integer from 1 to 1073741824"),
    UINT(struct msg_group, rule, KVC_RULE_FULL, KVC_RULE_STATE,
         "rule must be 0 (full), 1 (window) or 2 (state)"),
    U32(struct msg_group, window),
    FLAGS(struct msg_group, flags, KVC_F_REPLICATED, "flags of a group must be 0 or 16"),
};
SCHEMA(codec__group, struct msg_group, group_fields, .bare = false);

static const char *check_ns_open(const void *p)
{
    const struct msg_ns_open *msg = p;
    for (uint32_t i = 0; i < msg->ngroups; i++) {
        bool is_window = msg->groups[i].rule == KVC_RULE_WINDOW;
        if (is_window && msg->groups[i].window == 0)
            return "window of a group with rule 1 must be at least 1 token";
        if (!is_window && msg->groups[i].window != 0)
            return "window of a group must be 0 unless its rule is 1";
    }
    return NULL;
}

static const struct field ns_open_fields[] = {SPEC_FIELDS(struct msg_ns_open, )};
SCHEMA(codec__req_ns_open, struct msg_ns_open, ns_open_fields, .ops = {KVC_OP_NS_OPEN},
       .check = check_ns_open);

static const struct field chain_fields[] = {
    {.name = "",
     .kind = FIELD_BLOB,
     .unit = KVC_KEY_BYTES,
     .max = KVC_KEYS_MAX,
     .width = sizeof(struct codec_bin),
     .must = "keys of a group must be binary of at most 131072 x 32 bytes"},
};
static SCHEMA(chain, struct codec_bin, chain_fields, .bare = true);

#define SEQ_FIELDS(T, s)                                                                      \
    UINT(T, s seq.ns, 0, UINT32_MAX, NS_MUST),                                                \
        TEXT(T, s seq.sub, 0, KVC_STRING_MAX - 1, SUB_MUST),                                  \
        UINT(T, s seq.tokens, 0, UINT32_MAX, "tokens must be an integer from 0 to 2^32 - 1"), \
        ARRAY(T, s seq.keys, s seq.ngroups, chain, 1, KVC_GROUPS_MAX,                         \
              "keys must be an array of 1 to 16 blobs")

static const char *check_seq(const struct msg_seq *seq)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < seq->ngroups; i++)
        bytes += seq->keys[i].n;
    return bytes <= (uint64_t)KVC_KEYS_MAX * KVC_KEY_BYTES
               ? NULL
               : "keys must be at most 131072, summed over the groups";
}

static const char *check_lookup(const void *p)
{
    const struct msg_lookup *msg = p;
    if (msg->flags & KVC_F_READ_ONLY && msg->flags & (KVC_F_TOUCH | KVC_F_PREFETCH))
        return "flags of LOOKUP: 256 (READ_ONLY) excludes 2 (TOUCH) and 64 (PREFETCH)";
    return check_seq(&msg->seq);
}

static const char *check_acquire(const void *p)
{
    return check_seq(&((const struct msg_acquire *)p)->seq);
}

static const struct field lookup_fields[] = {
    SEQ_FIELDS(struct msg_lookup, ),
    FLAGS(struct msg_lookup, flags, KVC_F_TOUCH | KVC_F_PREFETCH | KVC_F_READ_ONLY | KVC_F_ALL,
          "flags of LOOKUP must be a sum of 2, 64, 256 and 512"),
};
SCHEMA(codec__req_lookup, struct msg_lookup, lookup_fields, .ops = {KVC_OP_LOOKUP},
       .check = check_lookup);

#define WANT_FIELDS(T, a) SHARD(T, a shard), U32_AT(T, a, from_tokens), U32_AT(T, a, wait_tokens)

static const struct field acquire_fields[] = {
    SEQ_FIELDS(struct msg_acquire, ),
    FLAGS(struct msg_acquire, flags, KVC_F_WAIT | KVC_F_NO_LOAD | KVC_F_READ_ONLY | KVC_F_ALL,
          "flags of ACQUIRE must be a sum of 1, 128, 256 and 512"),
    WANT_FIELDS(struct msg_acquire, ),
};
SCHEMA(codec__req_acquire, struct msg_acquire, acquire_fields, .ops = {KVC_OP_ACQUIRE},
       .check = check_acquire);

static const struct field redeem_fields[] = {
    FIXED(struct msg_redeem, ticket, TICKET_MUST),
    SHARD(struct msg_redeem, shard),
};
SCHEMA(codec__req_redeem, struct msg_redeem, redeem_fields, .ops = {KVC_OP_REDEEM});

static const struct field release_fields[] = {
    BLOB(struct msg_release, leases, 8, 0, KVC_RELEASE_MAX,
         "leases must be binary of at most 1024 x 8 bytes"),
};
SCHEMA(codec__req_release, struct msg_release, release_fields, .ops = {KVC_OP_RELEASE});

#define RESERVE_FIELDS(T, r)                                                                \
    UINT(T, r ns, 0, UINT32_MAX, NS_MUST), TEXT(T, r sub, 0, KVC_STRING_MAX - 1, SUB_MUST), \
        FLAGS(T, r flags, KVC_F_DURABLE | KVC_F_DECODED | KVC_F_ADMIT,                      \
              "flags of RESERVE and STORE must be a sum of 32, 1024 and 16384"),            \
        UINT(T, r group, 0, KVC_GROUPS_MAX - 1, GROUP_MUST), SHARD(T, r shard),             \
        BLOB(T, r parent, KVC_KEY_BYTES, 0, 1, "parent must be binary of 0 or 32 bytes"),   \
        UINT(T, r first_token, 0, UINT32_MAX,                                               \
             "first_token must be an integer from 0 to 2^32 - 1"),                          \
        BLOB(T, r keys, KVC_KEY_BYTES, 1, KVC_STORE_MAX,                                    \
             "keys must be binary of 1 to 4096 x 32 bytes"),                                \
        UINT(T, r last_tokens, 0, KVC_BLOCK_TOKENS_MAX,                                     \
             "last_tokens must be an integer from 0 to 65536"),                             \
        BLOB(T, r retain, KVC_RETAIN_BYTES, 0, KVC_RETAIN_MAX,                              \
             "retain must be binary of at most 16 x 20 bytes")

static const char *check_reserve(const void *p)
{
    const struct msg_reserve *msg = p;
    for (uint32_t at = 0; at < msg->retain.n; at += KVC_RETAIN_BYTES) {
        struct msg_retain wish;
        codec_get_retain(msg->retain.p + at, &wish);
        if (wish.end_token != 0 && wish.end_token <= wish.first_token)
            return "retain: end_token must be 0 or above first_token";
        if (wish.priority > KVC_PRIORITY_MAX)
            return "retain: priority must be an integer from 0 to 100";
    }
    return NULL;
}

static const struct field reserve_fields[] = {
    RESERVE_FIELDS(struct msg_reserve, ),
};
SCHEMA(codec__req_reserve, struct msg_reserve, reserve_fields, .ops = {KVC_OP_RESERVE},
       .check = check_reserve);

static const char *check_commit(const void *p)
{
    const struct msg_commit *msg = p;
    return msg->first + (uint64_t)msg->offsets.n / 8 <= KVC_STORE_MAX
               ? NULL
               : "first and the number of offsets must add up to at most 4096";
}

static const struct field commit_fields[] = {
    U64(struct msg_commit, reservation),
    UINT(struct msg_commit, first, 0, KVC_STORE_MAX - 1, "first must be an integer from 0 to 4095"),
    OFFSETS(struct msg_commit, offsets),
    TOKENS(struct msg_commit, tokens),
};
SCHEMA(codec__req_commit, struct msg_commit, commit_fields, .ops = {KVC_OP_COMMIT},
       .check = check_commit);

static const char *check_store(const void *p)
{
    const struct msg_store *msg = p;
    return msg->offsets.n / 8 == msg->reserve.keys.n / KVC_KEY_BYTES
               ? check_reserve(&msg->reserve)
               : "offsets must be as many as keys";
}

static const struct field store_fields[] = {
    RESERVE_FIELDS(struct msg_store, reserve.),
    OFFSETS(struct msg_store, offsets),
    TOKENS(struct msg_store, tokens),
};
SCHEMA(codec__req_store, struct msg_store, store_fields, .ops = {KVC_OP_STORE},
       .check = check_store);

static const struct field drop_fields[] = {U64(struct msg_drop, reservation)};
SCHEMA(codec__req_drop, struct msg_drop, drop_fields, .ops = {KVC_OP_DROP});

static const struct field cancel_fields[] = {U64(struct msg_cancel, target)};
SCHEMA(codec__req_cancel, struct msg_cancel, cancel_fields, .ops = {KVC_OP_CANCEL});

/* ---- names ---- */

static const char *check_name_put(const void *p)
{
    const struct msg_name_put *msg = p;
    if (msg->ids.n != 0 && msg->ids.n / 4 != msg->seq.tokens)
        return "ids must be empty, or as many as tokens";
    return check_seq(&msg->seq);
}

static const struct field name_put_fields[] = {
    NAME_KIND(struct msg_name_put),
    NAME_NAME(struct msg_name_put),
    SEQ_FIELDS(struct msg_name_put, ),
    FLAGS(struct msg_name_put, flags, KVC_F_PINNED | KVC_F_DURABLE,
          "flags of NAME_PUT must be 0, 32, 4096 or 4128"),
    UINT(struct msg_name_put, priority, 0, KVC_PRIORITY_MAX,
         "priority must be an integer from 0 to 100"),
    U64(struct msg_name_put, ttl_ms),
    BLOB(struct msg_name_put, ids, 4, 0, KVC_MESSAGE_MAX / 4,
         "ids must be binary of n x 4 bytes in one message"),
};
SCHEMA(codec__req_name_put, struct msg_name_put, name_put_fields, .ops = {KVC_OP_NAME_PUT},
       .check = check_name_put);

static const char *check_name_forget(const void *p)
{
    const struct msg_name_forget *msg = p;
    return msg->dry_run && !msg->evict ? "dry_run must be 0 unless evict is 1" : NULL;
}

static const struct field name_forget_fields[] = {
    NAME_KIND(struct msg_name_forget),     NAME_NAME(struct msg_name_forget),
    NAME(struct msg_name_forget, sub),     BOOL(struct msg_name_forget, evict),
    BOOL(struct msg_name_forget, dry_run),
};
SCHEMA(codec__req_name_forget, struct msg_name_forget, name_forget_fields,
       .ops = {KVC_OP_NAME_FORGET}, .check = check_name_forget);

static const struct field name_load_fields[] = {
    NAME_KIND(struct msg_name_load),
    NAME_NAME(struct msg_name_load),
    NAME(struct msg_name_load, sub),
    U64(struct msg_name_load, ttl_ms),
    FLAGS(struct msg_name_load, flags, KVC_F_WAIT, "flags of NAME_LOAD must be 0 or 1"),
};
SCHEMA(codec__req_name_load, struct msg_name_load, name_load_fields, .ops = {KVC_OP_NAME_LOAD});

static const struct field name_tokens_fields[] = {
    NAME_KIND(struct msg_name_tokens),
    NAME_NAME(struct msg_name_tokens),
    NAME(struct msg_name_tokens, sub),
    U32(struct msg_name_tokens, first),
};
SCHEMA(codec__req_name_tokens, struct msg_name_tokens, name_tokens_fields,
       .ops = {KVC_OP_NAME_TOKENS});

/* Checks the fields of a LIST that are about blocks. */
static const char *check_walk(const struct msg_list *msg)
{
    const uint32_t keys = msg->keys.n / KVC_KEY_BYTES;
    if (msg->mode == KVC_WALK_ROOTS && keys != 0)
        return "keys must be empty for mode 2 (roots)";
    if (msg->mode < KVC_WALK_ROOTS || msg->mode == KVC_WALK_MATCH) {
        if (keys != 1)
            return "keys must be binary of 32 bytes for modes 0 (up), 1 (down) and 3 (match)";
    } else if (msg->mode == KVC_WALK_KEYS && keys == 0) {
        return "keys must be binary of 1 to 256 x 32 bytes for mode 4 (keys)";
    }
    if (msg->mode >= KVC_WALK_MATCH && msg->group != 0)
        return "group must be 0 for modes 3 (match) and 4 (keys)";
    const bool bits = msg->depth >= 1 && msg->depth <= 8 * KVC_KEY_BYTES;
    return msg->mode != KVC_WALK_MATCH || bits
               ? NULL
               : "depth must be an integer from 1 to 256 for mode 3 (match)";
}

static const char *check_list(const void *p)
{
    const struct msg_list *msg = p;
    const bool names = msg->table == KVC_TABLE_CONVERSATIONS || msg->table == KVC_TABLE_DOCUMENTS;
    if (!names && (msg->prefix.n != 0 || msg->exact || msg->sub.n != 0))
        return "prefix, exact and sub must be empty and 0 for a table without names";
    if (msg->table == KVC_TABLE_BLOCKS)
        return check_walk(msg);
    if (msg->ns != 0 || msg->group != 0 || msg->mode != 0 || msg->keys.n != 0 || msg->depth != 0)
        return "ns, group, mode, keys and depth must be 0 and empty for a table without blocks";
    if (msg->exact && msg->prefix.n == 0)
        return "prefix must not be empty with exact 1";
    return msg->exact && msg->cursor.n != 0 ? "cursor must be empty with exact 1" : NULL;
}

static const struct field list_fields[] = {
    UINT(struct msg_list, table, 1, KVC_TABLE_END - 1, "table: there is no such table"),
    UINT(struct msg_list, max, 0, KVC_LIST_MAX, "max must be an integer from 0 to 256"),
    CURSOR(struct msg_list),
    NAME(struct msg_list, prefix),
    BOOL(struct msg_list, exact),
    NAME(struct msg_list, sub),
    U32(struct msg_list, ns),
    UINT(struct msg_list, group, 0, KVC_GROUPS_MAX - 1, GROUP_MUST),
    UINT(struct msg_list, mode, KVC_WALK_UP, KVC_WALK_KEYS,
         "mode must be 0 (up), 1 (down), 2 (roots), 3 (match) or 4 (keys)"),
    BLOB(struct msg_list, keys, KVC_KEY_BYTES, 0, KVC_LIST_MAX,
         "keys must be binary of at most 256 x 32 bytes"),
    U32(struct msg_list, depth),
};
SCHEMA(codec__req_list, struct msg_list, list_fields, .ops = {KVC_OP_LIST}, .check = check_list);

static const struct field ns_spec_fields[] = {U32(struct msg_ns_spec, ns)};
SCHEMA(codec__req_ns_spec, struct msg_ns_spec, ns_spec_fields, .ops = {KVC_OP_NS_SPEC});

static const struct field evict_fields[] = {
    FLAGS(struct msg_evict, flags, KVC_F_DRY_RUN | KVC_F_FORCE,
          "flags of EVICT must be 0, 4, 8192 or 8196"),
    U32(struct msg_evict, ns),
    BLOB(struct msg_evict, key, KVC_KEY_BYTES, 0, 1, "key must be binary of 0 or 32 bytes"),
    U64(struct msg_evict, older_than_ms),
    U64(struct msg_evict, bytes),
    NAME(struct msg_evict, tenant),
    NAME(struct msg_evict, model),
    UINT(struct msg_evict, priority_below, 0, KVC_PRIORITY_MAX + 1,
         "priority_below must be an integer from 0 to 101"),
};
SCHEMA(codec__req_evict, struct msg_evict, evict_fields, .ops = {KVC_OP_EVICT});

#define VERIFY_TIER_MUST "tier must be 0 (all), 1 (host), 2 (nvme) or 4 (hbm)"

static const char *check_verify(const void *p)
{
    const struct msg_verify *msg = p;
    return msg->tier == (KVC_TIER_HOST | KVC_TIER_NVME) ? VERIFY_TIER_MUST : NULL;
}

static const struct field verify_fields[] = {
    U32(struct msg_verify, ns),
    UINT(struct msg_verify, tier, KVC_TIER_NONE, KVC_TIER_HBM, VERIFY_TIER_MUST),
    U64(struct msg_verify, cursor),
    UINT(struct msg_verify, bytes_max, 1, UINT64_MAX,
         "bytes_max must be an integer from 1 to 2^64 - 1"),
};
SCHEMA(codec__req_verify, struct msg_verify, verify_fields, .ops = {KVC_OP_VERIFY},
       .check = check_verify);

static const char *check_trace(const void *p)
{
    const struct msg_trace *msg = p;
    if (msg->action != KVC_TRACE_ON && (msg->ns != 0 || msg->bytes != 0))
        return "ns and bytes must be 0 unless action is 1 (on)";
    return msg->bytes == 0 || msg->bytes >= KVC_TRACE_BYTES_MIN
               ? NULL
               : "bytes must be 0, or from 1048576 to 1073741824";
}

static const struct field trace_fields[] = {
    UINT(struct msg_trace, action, KVC_TRACE_STATUS, KVC_TRACE_OFF,
         "action must be 0 (status), 1 (on) or 2 (off)"),
    U32(struct msg_trace, ns),
    UINT(struct msg_trace, bytes, 0, KVC_TRACE_BYTES_MAX,
         "bytes must be 0, or from 1048576 to 1073741824"),
};
SCHEMA(codec__req_trace, struct msg_trace, trace_fields, .ops = {KVC_OP_TRACE},
       .check = check_trace);

static const struct field trace_dump_fields[] = {
    U32(struct msg_trace_dump, ns),
    U64(struct msg_trace_dump, cursor),
};
SCHEMA(codec__req_trace_dump, struct msg_trace_dump, trace_dump_fields, .ops = {KVC_OP_TRACE_DUMP});

static const struct field drain_fields[] = {
    UINT(struct msg_drain, bytes_max, 1, UINT64_MAX,
         "bytes_max must be an integer from 1 to 2^64 - 1"),
};
SCHEMA(codec__req_drain, struct msg_drain, drain_fields, .ops = {KVC_OP_DRAIN});

static const char *check_pin(const void *p)
{
    const struct msg_pin *msg = p;
    if (msg->tier != KVC_TIER_NONE && msg->tier != KVC_TIER_HOST)
        return "tier of a pin must be 0 (any) or 1 (host memory)";
    return check_seq(&msg->seq);
}

static const struct field pin_fields[] = {
    SEQ_FIELDS(struct msg_pin, ),
    U8(struct msg_pin, tier),
    U64(struct msg_pin, ttl_ms),
};
SCHEMA(codec__req_pin, struct msg_pin, pin_fields, .ops = {KVC_OP_PIN}, .check = check_pin);

static const struct field unpin_fields[] = {U64(struct msg_unpin, pin)};
SCHEMA(codec__req_unpin, struct msg_unpin, unpin_fields, .ops = {KVC_OP_UNPIN});

static const char *check_quota_set(const void *p)
{
    const struct msg_quota_set *msg = p;
    if ((msg->scope == KVC_SCOPE_NS) != (msg->ns != 0))
        return "ns of a quota must be given with scope 3 (namespace), else 0";
    if ((msg->scope == KVC_SCOPE_NS) != (msg->tenant.n == 0))
        return "tenant of a quota must be given with scopes 1 and 2, else empty";
    if ((msg->scope == KVC_SCOPE_SUB) != (msg->sub.n != 0))
        return "sub of a quota must be given with scope 2 (sub-tenant), else empty";
    return msg->host_share > msg->host_limit || msg->nvme_share > msg->nvme_limit
               ? "the share of a quota must not be above its limit"
               : NULL;
}

static const struct field quota_set_fields[] = {
    UINT(struct msg_quota_set, scope, KVC_SCOPE_TENANT, KVC_SCOPE_NS,
         "scope must be 1 (tenant), 2 (sub-tenant) or 3 (namespace)"),
    NAME(struct msg_quota_set, tenant),
    NAME(struct msg_quota_set, sub),
    U32(struct msg_quota_set, ns),
    U64(struct msg_quota_set, host_limit),
    U64(struct msg_quota_set, nvme_limit),
    U64(struct msg_quota_set, host_share),
    U64(struct msg_quota_set, nvme_share),
};
SCHEMA(codec__req_quota_set, struct msg_quota_set, quota_set_fields, .ops = {KVC_OP_QUOTA_SET},
       .check = check_quota_set);

static const struct field session_end_fields[] = {U32(struct msg_session_end, session)};
SCHEMA(codec__req_session_end, struct msg_session_end, session_end_fields,
       .ops = {KVC_OP_SESSION_END});

static const char *check_policy(const void *p)
{
    const struct msg_policy *msg = p;
    const bool empty = msg->name.n == 0 && !msg->keep_percent && !msg->load_or_recompute &&
                       !msg->admission && !msg->pin_bytes_max;
    return msg->action == KVC_POLICY_SHOW && !empty
               ? "with action 0 (show) the other fields must be 0 or empty"
               : NULL;
}

static const struct field policy_fields[] = {
    UINT(struct msg_policy, action, KVC_POLICY_SHOW, KVC_POLICY_SET,
         "action must be 0 (show) or 1 (set)"),
    NAME(struct msg_policy, name),
    UINT(struct msg_policy, keep_percent, 0, 100, "keep_percent must be an integer from 0 to 100"),
    BOOL(struct msg_policy, load_or_recompute),
    BOOL(struct msg_policy, admission),
    U64(struct msg_policy, pin_bytes_max),
};
SCHEMA(codec__req_policy, struct msg_policy, policy_fields, .ops = {KVC_OP_POLICY},
       .check = check_policy);

static const char *check_hint(const void *p)
{
    const struct msg_hint *msg = p;
    return msg->within_ms != 0 && msg->kind != KVC_HINT_SOON
               ? "within_ms must be 0 unless kind is 3 (soon)"
               : check_seq(&msg->seq);
}

static const struct field hint_fields[] = {
    SEQ_FIELDS(struct msg_hint, ),
    UINT(struct msg_hint, kind, KVC_HINT_ENDED, KVC_HINT_SCAN,
         "kind must be 1 (ended), 2 (continue), 3 (soon) or 4 (scan)"),
    U32(struct msg_hint, within_ms),
};
SCHEMA(codec__req_hint, struct msg_hint, hint_fields, .ops = {KVC_OP_HINT}, .check = check_hint);

/* ---- devices ---- */

/* The text that says why a group's regions are refused, or NULL. */
static const char *check_regions(struct codec_bin regions)
{
    struct msg_region region, before = {0};
    for (uint32_t at = 0; at < regions.n; at += KVC_REGION_BYTES) {
        static const uint8_t zeroes[8];
        codec_get_region(regions.p + at, &region);
        if (region.mem >= KVC_MEMS_MAX)
            return "mem of a region must be an integer from 0 to 1023";
        if (region.page_bytes == 0 || region.stride_bytes < region.page_bytes)
            return "page_bytes of a region must be at least 1, stride_bytes at least page_bytes";
        if (region.layer < before.layer)
            return "layers of a group's regions must be ascending";
        if (memcmp(regions.p + at + KVC_REGION_BYTES - sizeof zeroes, zeroes, sizeof zeroes) != 0)
            return "the last 8 bytes of a region must be zero";
        before = region;
    }
    return NULL;
}

static const char *check_pool_open(const void *p)
{
    const struct msg_pool_open *msg = p;
    const char *wrong = NULL;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < msg->ngroups; i++)
        bytes += msg->groups[i].regions.n;
    if (bytes > (uint64_t)KVC_REGIONS_MAX * KVC_REGION_BYTES)
        return "regions must be at most 4096, summed over the groups";
    for (uint32_t i = 0; i < msg->ngroups && wrong == NULL; i++)
        wrong = check_regions(msg->groups[i].regions);
    return wrong;
}

static const struct field pool_group_fields[] = {
    UINT(struct msg_pool_group, pages_per_block, 1, KVC_BLOCK_TOKENS_MAX,
         "pages_per_block must be an integer from 1 to 65536"),
    BLOB(struct msg_pool_group, regions, KVC_REGION_BYTES, 1, KVC_REGIONS_MAX,
         "regions must be binary of 1 to 4096 x 40 bytes"),
};
static SCHEMA(pool_group, struct msg_pool_group, pool_group_fields, .bare = false);

static const struct field pool_open_fields[] = {
    POOL(struct msg_pool_open),
    UUID(struct msg_pool_open),
    UINT(struct msg_pool_open, pages_max, 1, UINT32_MAX,
         "pages_max must be an integer from 1 to 2^32 - 1"),
    ARRAY(struct msg_pool_open, groups, ngroups, pool_group, 1, KVC_GROUPS_MAX,
          "groups must be an array of 1 to 16 arrays of 2"),
};
SCHEMA(codec__req_pool_open, struct msg_pool_open, pool_open_fields, .ops = {KVC_OP_POOL_OPEN},
       .check = check_pool_open);

static const struct field pool_close_fields[] = {POOL(struct msg_pool_close)};
SCHEMA(codec__req_pool_close, struct msg_pool_close, pool_close_fields, .ops = {KVC_OP_POOL_CLOSE});

static bool is_word(uint32_t word)
{
    return word < KVC_WORDS || word == KVC_NO_WORD;
}

static const char *check_pages_load(const void *p)
{
    const struct msg_pages_load *msg = p;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < msg->ngroups; i++)
        bytes += msg->pages[i].pages.n;
    if (!is_word(msg->after_word) || !is_word(msg->ready_word))
        return WORD_MUST;
    if (msg->ngroups != msg->seq.ngroups)
        return "pages must be an array of as many blobs as keys";
    if (bytes > (uint64_t)KVC_PAGES_MAX * 4)
        return "pages must be at most 262144, summed over the groups";
    return check_seq(&msg->seq);
}

static const struct field group_pages_fields[] = {
    {.name = "",
     .kind = FIELD_BLOB,
     .unit = 4,
     .max = KVC_PAGES_MAX,
     .width = sizeof(struct codec_bin),
     .must = "pages of a group must be binary of at most 262144 x 4 bytes"},
};
static SCHEMA(group_pages, struct msg_group_pages, group_pages_fields, .bare = true);

static const struct field pages_load_fields[] = {
    SEQ_FIELDS(struct msg_pages_load, ),
    FLAGS(struct msg_pages_load, flags, KVC_F_WAIT | KVC_F_NO_LOAD | KVC_F_ALL,
          "flags of PAGES_LOAD must be a sum of 1, 128 and 512"),
    WANT_FIELDS(struct msg_pages_load, ),
    POOL(struct msg_pages_load),
    U32(struct msg_pages_load, after_word),
    U64(struct msg_pages_load, after_value),
    U32(struct msg_pages_load, ready_word),
    U64(struct msg_pages_load, ready_value),
    ARRAY(struct msg_pages_load, pages, ngroups, group_pages, 1, KVC_GROUPS_MAX,
          "pages must be an array of 1 to 16 blobs"),
};
SCHEMA(codec__req_pages_load, struct msg_pages_load, pages_load_fields, .ops = {KVC_OP_PAGES_LOAD},
       .check = check_pages_load);

static const char *check_pages_store(const void *p)
{
    const struct msg_pages_store *msg = p;
    if (!is_word(msg->after_word))
        return WORD_MUST;
    return msg->pages.n / 4 % (msg->reserve.keys.n / KVC_KEY_BYTES) == 0
               ? check_reserve(&msg->reserve)
               : "pages must be the same number for each key";
}

static const struct field pages_store_fields[] = {
    RESERVE_FIELDS(struct msg_pages_store, reserve.),
    POOL(struct msg_pages_store),
    U32(struct msg_pages_store, after_word),
    U64(struct msg_pages_store, after_value),
    BLOB(struct msg_pages_store, pages, 4, 1, KVC_PAGES_MAX,
         "pages must be binary of 1 to 262144 x 4 bytes"),
    TOKENS(struct msg_pages_store, tokens),
};
SCHEMA(codec__req_pages_store, struct msg_pages_store, pages_store_fields,
       .ops = {KVC_OP_PAGES_STORE}, .check = check_pages_store);

static const char *check_acquire_on(const void *p)
{
    return check_seq(&((const struct msg_acquire_on *)p)->acquire.seq);
}

static const struct field acquire_on_fields[] = {
    SEQ_FIELDS(struct msg_acquire_on, acquire.),
    FLAGS(struct msg_acquire_on, acquire.flags, KVC_F_WAIT | KVC_F_NO_LOAD | KVC_F_ALL,
          "flags of ACQUIRE_ON must be a sum of 1, 128 and 512"),
    WANT_FIELDS(struct msg_acquire_on, acquire.),
    UUID(struct msg_acquire_on),
};
SCHEMA(codec__req_acquire_on, struct msg_acquire_on, acquire_on_fields, .ops = {KVC_OP_ACQUIRE_ON},
       .check = check_acquire_on);
