/* SPDX-License-Identifier: Apache-2.0 */
#include "schema.h"

_Static_assert(KVC_STRING_MAX == 128 && KVC_PARAMS_MAX == 256 && CODEC_DETAIL_MAX == 512 &&
                   KVC_GROUPS_MAX == 16 && KVC_SHARDS_MAX == 64 && KVC_BLOCK_TOKENS_MAX == 1024 &&
                   KVC_BLOCK_BYTES_MAX == 1 << 30 && KVC_KEYS_MAX == 32768 &&
                   KVC_STORE_MAX == 4096 && KVC_RELEASE_MAX == 1024 && KVC_EXPLAIN_MAX == 256 &&
                   KVC_BLOCKS_MAX == 256 && KVC_VERIFY_MAX == 64 && KVC_TRACE_MAX == 256 &&
                   KVC_PATHS_MAX == 16 && KVC_TRACE_BYTES_MIN == 1 << 20 &&
                   KVC_TRACE_BYTES_MAX == 1 << 30,
               "the texts below spell these limits out");

#define MEMBER(T, m) .name = #m, .at = offsetof(T, m), .width = sizeof(((T *)0)->m)
#define UINT(T, m, lo, hi, text)                                                 \
    {                                                                            \
        MEMBER(T, m), .kind = FIELD_UINT, .min = (lo), .max = (hi), .must = text \
    }
#define U8(T, m)   UINT(T, m, 0, UINT8_MAX, #m " must be an integer from 0 to 255")
#define U32(T, m)  UINT(T, m, 0, UINT32_MAX, #m " must be an integer from 0 to 2^32 - 1")
#define U64(T, m)  UINT(T, m, 0, UINT64_MAX, #m " must be an integer from 0 to 2^64 - 1")
#define BOOL(T, m) UINT(T, m, 0, 1, #m " must be 0 or 1")
#define FLAGS(T, m, mask, text)                                        \
    {                                                                  \
        MEMBER(T, m), .kind = FIELD_FLAGS, .max = (mask), .must = text \
    }
#define TEXT(T, m, lo, hi, text)                                                 \
    {                                                                            \
        MEMBER(T, m), .kind = FIELD_TEXT, .min = (lo), .max = (hi), .must = text \
    }
/* One byte less than the constant, which counts the zero of a C string. */
#define NAME(T, m) \
    TEXT(T, m, 0, KVC_STRING_MAX - 1, #m " must be UTF-8 text of at most 127 bytes without NUL")
#define PARAMS(T, m) \
    TEXT(T, m, 0, KVC_PARAMS_MAX - 1, #m " must be UTF-8 text of at most 255 bytes without NUL")
#define DETAIL(T, m)                                                  \
    {                                                                 \
        MEMBER(T, m), .kind = FIELD_DETAIL, .max = CODEC_DETAIL_MAX,  \
                      .must = #m " must be text of at most 512 bytes" \
    }
#define BLOB(T, m, bytes, lo, hi, text)                                                           \
    {                                                                                             \
        MEMBER(T, m), .kind = FIELD_BLOB, .unit = (bytes), .min = (lo), .max = (hi), .must = text \
    }
#define FIXED(T, m, text)                               \
    {                                                   \
        MEMBER(T, m), .kind = FIELD_FIXED, .must = text \
    }
#define ARRAY(T, m, n, of, lo, hi, text)                                               \
    {                                                                                  \
        MEMBER(T, m), .kind = FIELD_ARRAY, .count_at = offsetof(T, n), .items = &(of), \
                      .min = (lo), .max = (hi), .must = text                           \
    }
#define SCHEMA(id, T, list, ...)                                           \
    const struct schema id = {.name = #id,                                 \
                              .fields = (list),                            \
                              .nfields = sizeof(list) / sizeof((list)[0]), \
                              .size = sizeof(T),                           \
                              __VA_ARGS__}

#define NS_MUST     "ns must be an integer from 0 to 2^32 - 1"
#define SUB_MUST    "sub must be UTF-8 text of at most 127 bytes without NUL"
#define TICKET_MUST "ticket must be binary of 16 bytes"
#define GROUP_MUST  "group must be an integer from 0 to 15"
#define SHARD(T, m) UINT(T, m, 0, KVC_SHARDS_MAX - 1, "shard must be an integer from 0 to 63")
#define OFFSETS(T, m) \
    BLOB(T, m, 8, 1, KVC_STORE_MAX, "offsets must be binary of 1 to 4096 x 8 bytes")
#define TOKENS(T, m) \
    BLOB(T, m, 4, 0, KVC_MESSAGE_MAX / 4, "tokens must be binary of n x 4 bytes in one message")

/* ---- requests ---- */

static const char *check_versions(uint32_t ver_min, uint32_t ver_max)
{
    return ver_min <= ver_max ? NULL : "ver_min must not be above ver_max";
}

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
                                       .ops = {KVC_OP_PING, KVC_OP_STATS, KVC_OP_PATHS}};

static const struct field group_fields[] = {
    UINT(struct msg_group, block_tokens, 1, KVC_BLOCK_TOKENS_MAX,
         "block_tokens must be an integer from 1 to 1024"),
    UINT(struct msg_group, block_bytes, 1, KVC_BLOCK_BYTES_MAX,
         "block_bytes must be an integer from 1 to 1073741824"),
    UINT(struct msg_group, rule, KVC_RULE_FULL, KVC_RULE_STATE,
         "rule must be 0 (full), 1 (window) or 2 (state)"),
    U32(struct msg_group, window),
    FLAGS(struct msg_group, flags, KVC_F_REPLICATED, "flags of a group must be 0 or 16"),
};
static SCHEMA(group, struct msg_group, group_fields, .bare = false);

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

static const struct field ns_open_fields[] = {
    TEXT(struct msg_ns_open, model, 1, KVC_STRING_MAX - 1,
         "model must be UTF-8 text of 1 to 127 bytes without NUL"),
    NAME(struct msg_ns_open, revision),
    NAME(struct msg_ns_open, dtype),
    NAME(struct msg_ns_open, quant),
    NAME(struct msg_ns_open, layout),
    NAME(struct msg_ns_open, position),
    PARAMS(struct msg_ns_open, position_params),
    NAME(struct msg_ns_open, attention),
    NAME(struct msg_ns_open, lora),
    PARAMS(struct msg_ns_open, extra),
    NAME(struct msg_ns_open, sub),
    U32(struct msg_ns_open, layers),
    U32(struct msg_ns_open, kv_heads),
    U32(struct msg_ns_open, head_size),
    UINT(struct msg_ns_open, shards, 1, KVC_SHARDS_MAX, "shards must be an integer from 1 to 64"),
    FLAGS(struct msg_ns_open, flags, KVC_F_TOKENS, "flags of NS_OPEN must be 0 or 8"),
    U64(struct msg_ns_open, prefill_ns_per_token),
    U64(struct msg_ns_open, prefill_ns_per_token_pair),
    ARRAY(struct msg_ns_open, groups, ngroups, group, 1, KVC_GROUPS_MAX,
          "groups must be an array of 1 to 16 arrays of 5"),
};
SCHEMA(codec__req_ns_open, struct msg_ns_open, ns_open_fields, .ops = {KVC_OP_NS_OPEN},
       .check = check_ns_open);

static const struct field chain_fields[] = {
    {.name = "",
     .kind = FIELD_BLOB,
     .unit = KVC_KEY_BYTES,
     .max = KVC_KEYS_MAX,
     .width = sizeof(struct codec_bin),
     .must = "keys of a group must be binary of at most 32768 x 32 bytes"},
};
static SCHEMA(chain, struct codec_bin, chain_fields, .bare = true);

#define SEQ_FIELDS(T)                                                                           \
    UINT(T, seq.ns, 0, UINT32_MAX, NS_MUST), TEXT(T, seq.sub, 0, KVC_STRING_MAX - 1, SUB_MUST), \
        UINT(T, seq.tokens, 0, UINT32_MAX, "tokens must be an integer from 0 to 2^32 - 1"),     \
        ARRAY(T, seq.keys, seq.ngroups, chain, 1, KVC_GROUPS_MAX,                               \
              "keys must be an array of 1 to 16 blobs")

static const char *check_seq(const struct msg_seq *seq)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < seq->ngroups; i++)
        bytes += seq->keys[i].n;
    return bytes <= (uint64_t)KVC_KEYS_MAX * KVC_KEY_BYTES
               ? NULL
               : "keys must be at most 32768, summed over the groups";
}

static const char *check_lookup(const void *p)
{
    return check_seq(&((const struct msg_lookup *)p)->seq);
}

static const char *check_acquire(const void *p)
{
    return check_seq(&((const struct msg_acquire *)p)->seq);
}

static const struct field lookup_fields[] = {
    SEQ_FIELDS(struct msg_lookup),
    FLAGS(struct msg_lookup, flags, KVC_F_TOUCH | KVC_F_PREFETCH,
          "flags of LOOKUP must be 0, 2, 64 or 66"),
};
SCHEMA(codec__req_lookup, struct msg_lookup, lookup_fields, .ops = {KVC_OP_LOOKUP},
       .check = check_lookup);

static const struct field acquire_fields[] = {
    SEQ_FIELDS(struct msg_acquire),
    FLAGS(struct msg_acquire, flags, KVC_F_WAIT | KVC_F_NO_LOAD,
          "flags of ACQUIRE must be 0, 1, 128 or 129"),
    SHARD(struct msg_acquire, shard),
    U32(struct msg_acquire, from_tokens),
    U32(struct msg_acquire, wait_tokens),
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
        FLAGS(T, r flags, KVC_F_DURABLE, "flags of RESERVE and STORE must be 0 or 32"),     \
        UINT(T, r group, 0, KVC_GROUPS_MAX - 1, GROUP_MUST), SHARD(T, r shard),             \
        BLOB(T, r parent, KVC_KEY_BYTES, 0, 1, "parent must be binary of 0 or 32 bytes"),   \
        UINT(T, r first_token, 0, UINT32_MAX,                                               \
             "first_token must be an integer from 0 to 2^32 - 1"),                          \
        BLOB(T, r keys, KVC_KEY_BYTES, 1, KVC_STORE_MAX,                                    \
             "keys must be binary of 1 to 4096 x 32 bytes"),                                \
        UINT(T, r last_tokens, 0, KVC_BLOCK_TOKENS_MAX,                                     \
             "last_tokens must be an integer from 0 to 1024")

static const struct field reserve_fields[] = {
    RESERVE_FIELDS(struct msg_reserve, ),
};
SCHEMA(codec__req_reserve, struct msg_reserve, reserve_fields, .ops = {KVC_OP_RESERVE});

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
               ? NULL
               : "offsets must be as many as keys";
}

static const struct field store_fields[] = {
    RESERVE_FIELDS(struct msg_store, reserve.),
    OFFSETS(struct msg_store, offsets),
    TOKENS(struct msg_store, tokens),
};
SCHEMA(codec__req_store, struct msg_store, store_fields, .ops = {KVC_OP_STORE},
       .check = check_store);

static const struct field drop_fields[] = {
    U64(struct msg_drop, reservation),
};
SCHEMA(codec__req_drop, struct msg_drop, drop_fields, .ops = {KVC_OP_DROP});

static const struct field cancel_fields[] = {
    U64(struct msg_cancel, target),
};
SCHEMA(codec__req_cancel, struct msg_cancel, cancel_fields, .ops = {KVC_OP_CANCEL});

static const struct field ns_list_fields[] = {
    U32(struct msg_ns_list, after),
};
SCHEMA(codec__req_ns_list, struct msg_ns_list, ns_list_fields, .ops = {KVC_OP_NS_LIST});

static const struct field explain_fields[] = {
    U32(struct msg_explain, ns),
    BLOB(struct msg_explain, keys, KVC_KEY_BYTES, 1, KVC_EXPLAIN_MAX,
         "keys must be binary of 1 to 256 x 32 bytes"),
};
SCHEMA(codec__req_explain, struct msg_explain, explain_fields, .ops = {KVC_OP_EXPLAIN});

static const struct field evict_fields[] = {
    FLAGS(struct msg_evict, flags, KVC_F_DRY_RUN, "flags of EVICT must be 0 or 4"),
    U32(struct msg_evict, ns),
    BLOB(struct msg_evict, key, KVC_KEY_BYTES, 0, 1, "key must be binary of 0 or 32 bytes"),
    U64(struct msg_evict, older_than_ms),
    U64(struct msg_evict, bytes),
};
SCHEMA(codec__req_evict, struct msg_evict, evict_fields, .ops = {KVC_OP_EVICT});

static const char *check_blocks(const void *p)
{
    const struct msg_blocks *msg = p;
    if (msg->mode == KVC_WALK_ROOTS)
        return msg->key.n == 0 ? NULL : "key must be empty for mode 2 (roots)";
    return msg->key.n != 0 ? NULL : "key must be binary of 32 bytes for modes 0 (up) and 1 (down)";
}

static const struct field blocks_fields[] = {
    U32(struct msg_blocks, ns),
    UINT(struct msg_blocks, group, 0, KVC_GROUPS_MAX - 1, GROUP_MUST),
    UINT(struct msg_blocks, mode, KVC_WALK_UP, KVC_WALK_ROOTS,
         "mode must be 0 (up), 1 (down) or 2 (roots)"),
    BLOB(struct msg_blocks, key, KVC_KEY_BYTES, 0, 1, "key must be binary of 0 or 32 bytes"),
    U32(struct msg_blocks, depth),
    UINT(struct msg_blocks, limit, 1, KVC_BLOCKS_MAX, "limit must be an integer from 1 to 256"),
    U64(struct msg_blocks, cursor),
};
SCHEMA(codec__req_blocks, struct msg_blocks, blocks_fields, .ops = {KVC_OP_BLOCKS},
       .check = check_blocks);

static const struct field verify_fields[] = {
    U32(struct msg_verify, ns),
    UINT(struct msg_verify, tier, KVC_TIER_NONE, KVC_TIER_NVME,
         "tier must be 0 (all), 1 (host) or 2 (nvme)"),
    U64(struct msg_verify, cursor),
    UINT(struct msg_verify, bytes_max, 1, UINT64_MAX,
         "bytes_max must be an integer from 1 to 2^64 - 1"),
};
SCHEMA(codec__req_verify, struct msg_verify, verify_fields, .ops = {KVC_OP_VERIFY});

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

/* ---- replies ---- */

struct error_reply {
    struct codec_bin detail;
};
static const struct field error_fields[] = {
    DETAIL(struct error_reply, detail),
};
SCHEMA(codec__rep_error, struct error_reply, error_fields, .bare = false);

const struct schema codec__rep_bare = {.name = "codec__rep_bare", .ops = {KVC_OP_DROP}};

static const struct field hello_reply_fields[] = {
    U32(struct msg_hello_reply, version),
    NAME(struct msg_hello_reply, server),
};
SCHEMA(codec__rep_hello, struct msg_hello_reply, hello_reply_fields, .ops = {KVC_OP_HELLO});

static const struct field ping_reply_fields[] = {
    U64(struct msg_ping_reply, uptime_ms),
};
SCHEMA(codec__rep_ping, struct msg_ping_reply, ping_reply_fields, .ops = {KVC_OP_PING});

static const struct field near_fields[] = {
    U32(struct msg_near, ns),
    U32(struct msg_near, fields),
};
static SCHEMA(near, struct msg_near, near_fields, .bare = false);

static const struct field ns_open_reply_fields[] = {
    U32(struct msg_ns_open_reply, ns),
    FIXED(struct msg_ns_open_reply, seed, "seed must be binary of 32 bytes"),
    ARRAY(struct msg_ns_open_reply, near, nnear, near, 0, 4,
          "near must be an array of at most 4 arrays of 2"),
};
SCHEMA(codec__rep_ns_open, struct msg_ns_open_reply, ns_open_reply_fields, .ops = {KVC_OP_NS_OPEN});

static const struct field group_hit_fields[] = {
    U32(struct msg_group_hit, blocks),
    U8(struct msg_group_hit, reason),
    U32(struct msg_group_hit, detail),
};
static SCHEMA(group_hit, struct msg_group_hit, group_hit_fields, .bare = false);

static const struct field lookup_reply_fields[] = {
    U32(struct msg_lookup_reply, hit_tokens),
    ARRAY(struct msg_lookup_reply, groups, ngroups, group_hit, 1, KVC_GROUPS_MAX,
          "groups must be an array of 1 to 16 arrays of 3"),
};
SCHEMA(codec__rep_lookup, struct msg_lookup_reply, lookup_reply_fields, .ops = {KVC_OP_LOOKUP});

static const struct field group_locs_fields[] = {
    U32(struct msg_group_locs, first),
    BLOB(struct msg_group_locs, locs, KVC_LOC_BYTES, 0, KVC_KEYS_MAX,
         "locs must be binary of at most 32768 x 32 bytes"),
    U8(struct msg_group_locs, reason),
    U32(struct msg_group_locs, detail),
};
static SCHEMA(group_locs, struct msg_group_locs, group_locs_fields, .bare = false);

static const struct field acquire_reply_fields[] = {
    U32(struct msg_acquire_reply, hit_tokens),
    U64(struct msg_acquire_reply, lease),
    FIXED(struct msg_acquire_reply, ticket, TICKET_MUST),
    ARRAY(struct msg_acquire_reply, groups, ngroups, group_locs, 1, KVC_GROUPS_MAX,
          "groups must be an array of 1 to 16 arrays of 4"),
};
SCHEMA(codec__rep_acquire, struct msg_acquire_reply, acquire_reply_fields,
       .ops = {KVC_OP_ACQUIRE, KVC_OP_REDEEM});

static const struct field release_reply_fields[] = {
    U32(struct msg_release_reply, released),
};
SCHEMA(codec__rep_release, struct msg_release_reply, release_reply_fields, .ops = {KVC_OP_RELEASE});

#define STATUSES(T) \
    BLOB(T, statuses, 1, 1, KVC_STORE_MAX, "statuses must be binary of 1 to 4096 bytes")

static const struct field reserve_reply_fields[] = {
    U64(struct msg_reserve_reply, reservation),
    STATUSES(struct msg_reserve_reply),
};
SCHEMA(codec__rep_reserve, struct msg_reserve_reply, reserve_reply_fields, .ops = {KVC_OP_RESERVE});

static const struct field commit_reply_fields[] = {
    STATUSES(struct msg_commit_reply),
};
SCHEMA(codec__rep_commit, struct msg_commit_reply, commit_reply_fields,
       .ops = {KVC_OP_COMMIT, KVC_OP_STORE});

static const struct field cancel_reply_fields[] = {
    BOOL(struct msg_cancel_reply, found),
};
SCHEMA(codec__rep_cancel, struct msg_cancel_reply, cancel_reply_fields, .ops = {KVC_OP_CANCEL});

static const struct field evict_reply_fields[] = {
    U64(struct msg_evict_reply, blocks),
    U64(struct msg_evict_reply, bytes),
    U64(struct msg_evict_reply, kept_blocks),
};
SCHEMA(codec__rep_evict, struct msg_evict_reply, evict_reply_fields, .ops = {KVC_OP_EVICT});

static const struct field block_item_fields[] = {
    FIXED(struct msg_block_item, key, "key must be binary of 32 bytes"),
    BLOB(struct msg_block_item, parent, KVC_KEY_BYTES, 0, 1,
         "parent must be binary of 0 or 32 bytes"),
    U32(struct msg_block_item, depth),
    U8(struct msg_block_item, state),
    U32(struct msg_block_item, tokens),
    U32(struct msg_block_item, shards),
    U32(struct msg_block_item, shards_present),
    U32(struct msg_block_item, leases),
    U32(struct msg_block_item, children),
    U64(struct msg_block_item, bytes),
    U64(struct msg_block_item, age_ms),
    U8(struct msg_block_item, tiers),
    U32(struct msg_block_item, chunk),
    U64(struct msg_block_item, off),
};
static SCHEMA(block_item, struct msg_block_item, block_item_fields, .bare = false);

static const struct field blocks_reply_fields[] = {
    U64(struct msg_blocks_reply, cursor),
    ARRAY(struct msg_blocks_reply, items, nitems, block_item, 0, KVC_BLOCKS_MAX,
          "items must be an array of at most 256 arrays of 14"),
};
SCHEMA(codec__rep_blocks, struct msg_blocks_reply, blocks_reply_fields, .ops = {KVC_OP_BLOCKS});

static const struct field corrupt_item_fields[] = {
    FIXED(struct msg_corrupt_item, key, "key must be binary of 32 bytes"),
    U32(struct msg_corrupt_item, ns),
    U8(struct msg_corrupt_item, group),
    U8(struct msg_corrupt_item, shard),
    U8(struct msg_corrupt_item, tier),
    U32(struct msg_corrupt_item, below),
    U32(struct msg_corrupt_item, chunk),
    U64(struct msg_corrupt_item, off),
};
static SCHEMA(corrupt_item, struct msg_corrupt_item, corrupt_item_fields, .bare = false);

static const struct field verify_reply_fields[] = {
    U64(struct msg_verify_reply, cursor),
    U32(struct msg_verify_reply, blocks),
    U64(struct msg_verify_reply, bytes),
    U32(struct msg_verify_reply, skipped),
    U32(struct msg_verify_reply, failed),
    ARRAY(struct msg_verify_reply, corrupt, ncorrupt, corrupt_item, 0, KVC_VERIFY_MAX,
          "corrupt must be an array of at most 64 arrays of 8"),
};
SCHEMA(codec__rep_verify, struct msg_verify_reply, verify_reply_fields, .ops = {KVC_OP_VERIFY});

static const struct field trace_reply_fields[] = {
    BOOL(struct msg_trace_reply, on),     U32(struct msg_trace_reply, ns),
    U64(struct msg_trace_reply, bytes),   U64(struct msg_trace_reply, used_bytes),
    U64(struct msg_trace_reply, records), U64(struct msg_trace_reply, dropped),
    U64(struct msg_trace_reply, age_ms),
};
SCHEMA(codec__rep_trace, struct msg_trace_reply, trace_reply_fields, .ops = {KVC_OP_TRACE});

static const struct field trace_item_fields[] = {
    U32(struct msg_trace_item, ns),
    U32(struct msg_trace_item, block_tokens),
    U64(struct msg_trace_item, timestamp_ms),
    U32(struct msg_trace_item, input_tokens),
    U32(struct msg_trace_item, output_tokens),
    BLOB(struct msg_trace_item, ids, 8, 0, KVC_KEYS_MAX,
         "ids must be binary of at most 32768 x 8 bytes"),
};
static SCHEMA(trace_item, struct msg_trace_item, trace_item_fields, .bare = false);

static const struct field trace_dump_reply_fields[] = {
    U64(struct msg_trace_dump_reply, cursor),
    U64(struct msg_trace_dump_reply, lost),
    ARRAY(struct msg_trace_dump_reply, items, nitems, trace_item, 0, KVC_TRACE_MAX,
          "items must be an array of at most 256 arrays of 6"),
};
SCHEMA(codec__rep_trace_dump, struct msg_trace_dump_reply, trace_dump_reply_fields,
       .ops = {KVC_OP_TRACE_DUMP});

static const struct field drain_reply_fields[] = {
    U64(struct msg_drain_reply, left),
    U8(struct msg_drain_reply, stop),
};
SCHEMA(codec__rep_drain, struct msg_drain_reply, drain_reply_fields, .ops = {KVC_OP_DRAIN});

static const struct field path_item_fields[] = {
    PARAMS(struct msg_path_item, name),      U8(struct msg_path_item, state),
    NAME(struct msg_path_item, error),       U64(struct msg_path_item, bytes),
    U64(struct msg_path_item, used_bytes),   U64(struct msg_path_item, formatted_bytes),
    U64(struct msg_path_item, reads),        U64(struct msg_path_item, writes),
    U64(struct msg_path_item, syncs),        U64(struct msg_path_item, read_bytes),
    U64(struct msg_path_item, write_bytes),  U64(struct msg_path_item, errors),
    U64(struct msg_path_item, outs),         U64(struct msg_path_item, queued),
    U64(struct msg_path_item, queued_bytes), U64(struct msg_path_item, read_p50_us),
    U64(struct msg_path_item, read_p99_us),  U64(struct msg_path_item, read_max_us),
    U64(struct msg_path_item, write_p50_us), U64(struct msg_path_item, write_p99_us),
    U64(struct msg_path_item, write_max_us),
};
static SCHEMA(path_item, struct msg_path_item, path_item_fields, .bare = false);

static const struct field paths_reply_fields[] = {
    U64(struct msg_paths_reply, writes_per_day),
    U64(struct msg_paths_reply, spent_bytes),
    U64(struct msg_paths_reply, left_bytes),
    U64(struct msg_paths_reply, accepted_bytes),
    U64(struct msg_paths_reply, written_bytes),
    U64(struct msg_paths_reply, kept_bytes),
    U64(struct msg_paths_reply, journal_bytes),
    ARRAY(struct msg_paths_reply, paths, npaths, path_item, 0, KVC_PATHS_MAX,
          "paths must be an array of at most 16 arrays of 21"),
};
SCHEMA(codec__rep_paths, struct msg_paths_reply, paths_reply_fields, .ops = {KVC_OP_PATHS});

/* ---- items of lists ---- */

struct list_reply {
    uint8_t more;
};
static const struct field list_fields[] = {
    BOOL(struct list_reply, more),
};
SCHEMA(codec__rep_list, struct list_reply, list_fields, .bare = false);

static const struct field stat_fields[] = {
    TEXT(struct msg_stat, name, 1, 63, "name must be UTF-8 text of 1 to 63 bytes without NUL"),
    UINT(struct msg_stat, kind, 0, 1, "kind must be 0 (counter) or 1 (gauge)"),
    U64(struct msg_stat, value),
};
SCHEMA(codec__item_stat, struct msg_stat, stat_fields, .ops = {KVC_OP_STATS});

static const struct field ns_fields[] = {
    U32(struct msg_ns_item, ns),
    NAME(struct msg_ns_item, principal),
    NAME(struct msg_ns_item, tenant),
    NAME(struct msg_ns_item, sub),
    NAME(struct msg_ns_item, model),
    NAME(struct msg_ns_item, dtype),
    U32(struct msg_ns_item, shards),
    U32(struct msg_ns_item, ngroups),
    U32(struct msg_ns_item, block_tokens0),
    U32(struct msg_ns_item, block_bytes0),
    U64(struct msg_ns_item, blocks),
    U64(struct msg_ns_item, bytes),
};
SCHEMA(codec__item_ns, struct msg_ns_item, ns_fields, .ops = {KVC_OP_NS_LIST});

static const struct field explain_item_fields[] = {
    UINT(struct msg_explain_item, key, 0, KVC_EXPLAIN_MAX - 1,
         "key must be an integer from 0 to 255"),
    U32(struct msg_explain_item, ns),
    U32(struct msg_explain_item, group),
    U8(struct msg_explain_item, state),
    U8(struct msg_explain_item, reason),
    U32(struct msg_explain_item, detail),
    U32(struct msg_explain_item, tokens),
    U32(struct msg_explain_item, shards),
    U32(struct msg_explain_item, shards_present),
    U32(struct msg_explain_item, leases),
    U32(struct msg_explain_item, children),
    U64(struct msg_explain_item, bytes),
    U64(struct msg_explain_item, age_ms),
    U8(struct msg_explain_item, tiers),
    U32(struct msg_explain_item, chunk),
    U64(struct msg_explain_item, off),
};
SCHEMA(codec__item_explain, struct msg_explain_item, explain_item_fields, .ops = {KVC_OP_EXPLAIN});

/* ---- attach channel ---- */

static const char *check_att_hello(const void *p)
{
    const struct att_hello *msg = p;
    return check_versions(msg->ver_min, msg->ver_max);
}

static const struct field att_hello_fields[] = {
    {.name = "magic", .kind = FIELD_MAGIC, .must = "magic must be the text \"kvca\""},
    U32(struct att_hello, ver_min),
    U32(struct att_hello, ver_max),
    NAME(struct att_hello, client),
    U64(struct att_hello, staging_bytes),
    SHARD(struct att_hello, shard),
};
SCHEMA(codec__att_hello, struct att_hello, att_hello_fields, .ops = {KVC_ATTACH_HELLO},
       .check = check_att_hello);

static const char *check_att_welcome(const void *p)
{
    const struct att_welcome *msg = p;
    return msg->status != KVC_ST_OK || msg->route[0] != 0 ? NULL
                                                          : "route must not begin with a zero byte";
}

#define STATUS(T) UINT(T, status, 0, UINT16_MAX, "status must be an integer from 0 to 65535")

static const struct field att_welcome_fields[] = {
    STATUS(struct att_welcome),
    DETAIL(struct att_welcome, detail),
    U32(struct att_welcome, version),
    U32(struct att_welcome, session),
    FIXED(struct att_welcome, route, "route must be binary of 16 bytes"),
    PARAMS(struct att_welcome, endpoint),
    U64(struct att_welcome, staging_bytes),
    NAME(struct att_welcome, principal),
    NAME(struct att_welcome, tenant),
    BOOL(struct att_welcome, admin),
    BOOL(struct att_welcome, gateway),
};
SCHEMA(codec__att_welcome, struct att_welcome, att_welcome_fields, .ops = {KVC_ATTACH_WELCOME},
       .check = check_att_welcome);

static const struct field att_map_fields[] = {
    U32(struct att_map, chunk),
};
SCHEMA(codec__att_map, struct att_map, att_map_fields, .ops = {KVC_ATTACH_MAP});

static const struct field att_chunk_fields[] = {
    STATUS(struct att_chunk),
    DETAIL(struct att_chunk, detail),
    U32(struct att_chunk, chunk),
    U64(struct att_chunk, bytes),
};
SCHEMA(codec__att_chunk, struct att_chunk, att_chunk_fields, .ops = {KVC_ATTACH_CHUNK});

static const struct field att_retired_fields[] = {
    U32(struct att_retired, chunk),
};
SCHEMA(codec__att_retired, struct att_retired, att_retired_fields, .ops = {KVC_ATTACH_RETIRED});

static const struct field att_dropped_fields[] = {
    STATUS(struct att_dropped),
    DETAIL(struct att_dropped, detail),
};
SCHEMA(codec__att_dropped, struct att_dropped, att_dropped_fields, .ops = {KVC_ATTACH_DROPPED});
