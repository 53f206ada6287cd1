/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replies, items of lists, and messages of the attach channel, field by field, as schema.c has
 * the requests. message.c, list.c and attach.c encode and decode by these tables.
 */
#include "schema_fields.h"

/* ---- replies ---- */

struct error_reply {
    struct codec_bin detail;
};
static const struct field error_fields[] = {DETAIL(struct error_reply, detail)};
SCHEMA(codec__rep_error, struct error_reply, error_fields, .bare = false);

const struct schema codec__rep_bare = {.name = "codec__rep_bare",
                                       .ops = {KVC_OP_DROP, KVC_OP_HINT, KVC_OP_UNPIN,
                                               KVC_OP_QUOTA_SET, KVC_OP_SESSION_END,
                                               KVC_OP_POOL_OPEN, KVC_OP_POOL_CLOSE}};

static const struct field hello_reply_fields[] = {
    U32(struct msg_hello_reply, version),
    NAME(struct msg_hello_reply, server),
};
SCHEMA(codec__rep_hello, struct msg_hello_reply, hello_reply_fields, .ops = {KVC_OP_HELLO});

static const struct field ping_reply_fields[] = {U64(struct msg_ping_reply, uptime_ms)};
SCHEMA(codec__rep_ping, struct msg_ping_reply, ping_reply_fields, .ops = {KVC_OP_PING});

static const struct field similar_fields[] = {
    U32(struct msg_similar, ns),
    U32(struct msg_similar, fields),
};
static SCHEMA(similar, struct msg_similar, similar_fields, .bare = false);

static const struct field ns_open_reply_fields[] = {
    U32(struct msg_ns_open_reply, ns),
    FIXED(struct msg_ns_open_reply, seed, "seed must be binary of 32 bytes"),
    ARRAY(struct msg_ns_open_reply, similar, nsimilar, similar, 0, 4,
          "similar must be an array of at most 4 arrays of 2"),
};
SCHEMA(codec__rep_ns_open, struct msg_ns_open_reply, ns_open_reply_fields, .ops = {KVC_OP_NS_OPEN});

static const struct field ns_spec_reply_fields[] = {
    BOOL(struct msg_ns_spec_reply, own),
    SPEC_FIELDS(struct msg_ns_spec_reply, spec.),
};
SCHEMA(codec__rep_ns_spec, struct msg_ns_spec_reply, ns_spec_reply_fields, .ops = {KVC_OP_NS_SPEC});

static const struct field group_hit_fields[] = {
    U32(struct msg_group_hit, blocks),
    U8(struct msg_group_hit, reason),
    U32(struct msg_group_hit, detail),
};
static SCHEMA(group_hit, struct msg_group_hit, group_hit_fields, .bare = false);

static const struct field lookup_reply_fields[] = {
    U32(struct msg_lookup_reply, hit_tokens),
    U32(struct msg_lookup_reply, cached_tokens),
    U64(struct msg_lookup_reply, load_us),
    ARRAY(struct msg_lookup_reply, groups, ngroups, group_hit, 1, KVC_GROUPS_MAX,
          "groups must be an array of 1 to 16 arrays of 3"),
};
SCHEMA(codec__rep_lookup, struct msg_lookup_reply, lookup_reply_fields, .ops = {KVC_OP_LOOKUP});

static const struct field group_locs_fields[] = {
    U32(struct msg_group_locs, first),
    BLOB(struct msg_group_locs, locs, KVC_LOC_BYTES, 0, KVC_KEYS_MAX,
         "locs must be binary of at most 131072 x 32 bytes"),
    U8(struct msg_group_locs, reason),
    U32(struct msg_group_locs, detail),
};
static SCHEMA(group_locs, struct msg_group_locs, group_locs_fields, .bare = false);

static const struct field acquire_reply_fields[] = {
    U32(struct msg_acquire_reply, hit_tokens),
    U32(struct msg_acquire_reply, cached_tokens),
    U64(struct msg_acquire_reply, lease),
    FIXED(struct msg_acquire_reply, ticket, TICKET_MUST),
    ARRAY(struct msg_acquire_reply, groups, ngroups, group_locs, 1, KVC_GROUPS_MAX,
          "groups must be an array of 1 to 16 arrays of 4"),
};
SCHEMA(codec__rep_acquire, struct msg_acquire_reply, acquire_reply_fields,
       .ops = {KVC_OP_ACQUIRE, KVC_OP_REDEEM, KVC_OP_ACQUIRE_ON});

static const struct field release_reply_fields[] = {U32(struct msg_release_reply, released)};
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
       .ops = {KVC_OP_COMMIT, KVC_OP_STORE, KVC_OP_PAGES_STORE});

static const struct field cancel_reply_fields[] = {BOOL(struct msg_cancel_reply, found)};
SCHEMA(codec__rep_cancel, struct msg_cancel_reply, cancel_reply_fields, .ops = {KVC_OP_CANCEL});

static const struct field name_put_reply_fields[] = {
    U32(struct msg_name_put_reply, tokens),
    U64(struct msg_name_put_reply, bytes),
};
SCHEMA(codec__rep_name_put, struct msg_name_put_reply, name_put_reply_fields,
       .ops = {KVC_OP_NAME_PUT});

static const struct field name_load_reply_fields[] = {U64(struct msg_name_load_reply, bytes)};
SCHEMA(codec__rep_name_load, struct msg_name_load_reply, name_load_reply_fields,
       .ops = {KVC_OP_NAME_LOAD});

static const struct field name_tokens_reply_fields[] = {
    U32(struct msg_name_tokens_reply, tokens),
    BLOB(struct msg_name_tokens_reply, ids, 4, 0, MSG_NAME_IDS_MAX,
         "ids must be binary of at most 262144 x 4 bytes"),
};
SCHEMA(codec__rep_name_tokens, struct msg_name_tokens_reply, name_tokens_reply_fields,
       .ops = {KVC_OP_NAME_TOKENS});

static const struct field evict_reply_fields[] = {
    U64(struct msg_evict_reply, blocks),      U64(struct msg_evict_reply, bytes),
    U64(struct msg_evict_reply, kept_blocks), U64(struct msg_evict_reply, host_bytes),
    U64(struct msg_evict_reply, nvme_bytes),  U64(struct msg_evict_reply, device_bytes),
};
SCHEMA(codec__rep_evict, struct msg_evict_reply, evict_reply_fields, .ops = {KVC_OP_EVICT});

static const struct field name_forget_reply_fields[] = {
    U64(struct msg_name_forget_reply, blocks),      U64(struct msg_name_forget_reply, bytes),
    U64(struct msg_name_forget_reply, kept_blocks), U64(struct msg_name_forget_reply, host_bytes),
    U64(struct msg_name_forget_reply, nvme_bytes),  U64(struct msg_name_forget_reply, device_bytes),
    U64(struct msg_name_forget_reply, kept_named),  U64(struct msg_name_forget_reply, kept_pinned),
    U64(struct msg_name_forget_reply, kept_used),   U64(struct msg_name_forget_reply, kept_below),
    U64(struct msg_name_forget_reply, kept_passed),
};
SCHEMA(codec__rep_name_forget, struct msg_name_forget_reply, name_forget_reply_fields,
       .ops = {KVC_OP_NAME_FORGET});

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
         "ids must be binary of at most 131072 x 8 bytes"),
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

static const struct field pin_reply_fields[] = {
    U64(struct msg_pin_reply, pin),
    U64(struct msg_pin_reply, bytes),
};
SCHEMA(codec__rep_pin, struct msg_pin_reply, pin_reply_fields, .ops = {KVC_OP_PIN});

static const struct field level_item_fields[] = {
    UINT(struct msg_level_item, priority, 0, KVC_PRIORITY_MAX,
         "priority must be an integer from 0 to 100"),
    U64(struct msg_level_item, blocks),
};
static SCHEMA(level_item, struct msg_level_item, level_item_fields, .bare = false);

static const struct field policy_reply_fields[] = {
    NAME(struct msg_policy_reply, name),
    DETAIL(struct msg_policy_reply, text),
    PARAMS_AT(struct msg_policy_reply, , chosen),
    U32(struct msg_policy_reply, keep_percent),
    BOOL(struct msg_policy_reply, load_or_recompute),
    BOOL(struct msg_policy_reply, admission),
    U64(struct msg_policy_reply, pin_bytes_max),
    U32(struct msg_policy_reply, keep_percent_start),
    BOOL(struct msg_policy_reply, load_or_recompute_start),
    BOOL(struct msg_policy_reply, admission_start),
    U64(struct msg_policy_reply, pin_bytes_max_start),
    BOOL(struct msg_policy_reply, storage),
    BOOL(struct msg_policy_reply, hints),
    BOOL(struct msg_policy_reply, admits),
    BOOL(struct msg_policy_reply, pins),
    BOOL(struct msg_policy_reply, all),
    U64(struct msg_policy_reply, writes_per_day),
    U64(struct msg_policy_reply, spent_bytes),
    U64(struct msg_policy_reply, left_bytes),
    U64(struct msg_policy_reply, load_bytes_per_s),
    U64(struct msg_policy_reply, load_latency_us),
    U64(struct msg_policy_reply, hints_ended),
    U64(struct msg_policy_reply, hints_continue),
    U64(struct msg_policy_reply, hints_soon),
    U64(struct msg_policy_reply, hints_scan),
    U64(struct msg_policy_reply, wishes),
    U64(struct msg_policy_reply, wishes_ended),
    ARRAY(struct msg_policy_reply, levels, nlevels, level_item, 0, KVC_PRIORITY_MAX + 1,
          "levels must be an array of at most 101 arrays of 2"),
};
SCHEMA(codec__rep_policy, struct msg_policy_reply, policy_reply_fields, .ops = {KVC_OP_POLICY});

static const struct field group_loaded_fields[] = {
    U32(struct msg_group_loaded, first),
    BLOB(struct msg_group_loaded, statuses, 1, 0, KVC_STORE_MAX,
         "statuses must be binary of at most 4096 bytes"),
    U8(struct msg_group_loaded, reason),
    U32(struct msg_group_loaded, detail),
};
static SCHEMA(group_loaded, struct msg_group_loaded, group_loaded_fields, .bare = false);

static const struct field pages_load_reply_fields[] = {
    U32(struct msg_pages_load_reply, hit_tokens),
    U32(struct msg_pages_load_reply, cached_tokens),
    ARRAY(struct msg_pages_load_reply, groups, ngroups, group_loaded, 1, KVC_GROUPS_MAX,
          "groups must be an array of 1 to 16 arrays of 4"),
};
SCHEMA(codec__rep_pages_load, struct msg_pages_load_reply, pages_load_reply_fields,
       .ops = {KVC_OP_PAGES_LOAD});

/* ---- items of lists ---- */

struct list_reply {
    uint8_t more;
};
static const struct field list_fields[] = {BOOL(struct list_reply, more)};
SCHEMA(codec__rep_list, struct list_reply, list_fields, .bare = false);

static const struct field stat_fields[] = {
    TEXT(struct msg_stat, name, 1, 63, "name must be UTF-8 text of 1 to 63 bytes without NUL"),
    UINT(struct msg_stat, kind, 0, 1, "kind must be 0 (counter) or 1 (gauge)"),
    U64(struct msg_stat, value),
};
SCHEMA(codec__item_stat, struct msg_stat, stat_fields, .ops = {KVC_OP_STATS});

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
    PARAMS_AT(struct att_welcome, , endpoint),
    U64(struct att_welcome, staging_bytes),
    NAME(struct att_welcome, principal),
    NAME(struct att_welcome, tenant),
    BOOL(struct att_welcome, admin),
    BOOL(struct att_welcome, gateway),
};
SCHEMA(codec__att_welcome, struct att_welcome, att_welcome_fields, .ops = {KVC_ATTACH_WELCOME},
       .check = check_att_welcome);

static const struct field att_map_fields[] = {U32(struct att_map, chunk)};
SCHEMA(codec__att_map, struct att_map, att_map_fields, .ops = {KVC_ATTACH_MAP});

static const struct field att_chunk_fields[] = {
    STATUS(struct att_chunk),
    DETAIL(struct att_chunk, detail),
    U32(struct att_chunk, chunk),
    U64(struct att_chunk, bytes),
};
SCHEMA(codec__att_chunk, struct att_chunk, att_chunk_fields, .ops = {KVC_ATTACH_CHUNK});

static const struct field att_retired_fields[] = {U32(struct att_retired, chunk)};
SCHEMA(codec__att_retired, struct att_retired, att_retired_fields, .ops = {KVC_ATTACH_RETIRED});

static const struct field att_dropped_fields[] = {
    STATUS(struct att_dropped),
    DETAIL(struct att_dropped, detail),
};
SCHEMA(codec__att_dropped, struct att_dropped, att_dropped_fields, .ops = {KVC_ATTACH_DROPPED});

static const struct field att_words_fields[] = {
    UINT(struct att_words, words, 0, KVC_WORDS, "words must be an integer from 0 to 512"),
};
SCHEMA(codec__att_words, struct att_words, att_words_fields, .ops = {KVC_ATTACH_WORDS});

static const struct field att_words_are_fields[] = {
    STATUS(struct att_words_are),
    DETAIL(struct att_words_are, detail),
    U64(struct att_words_are, bytes),
};
SCHEMA(codec__att_words_are, struct att_words_are, att_words_are_fields,
       .ops = {KVC_ATTACH_WORDS_ARE});

#define IPC(T) BLOB(T, ipc, 1, 0, KVC_IPC_BYTES, "ipc must be binary of 0 or 64 bytes")

static const char *check_att_mem(const void *p)
{
    const struct att_mem *msg = p;
    const bool ipc = msg->kind == KVC_HANDLE_IPC;
    if (msg->ipc.n != (ipc ? KVC_IPC_BYTES : 0))
        return "ipc must be binary of 64 bytes with kind 2 (IPC), else empty";
    if (!ipc && msg->offset != 0)
        return "offset must be 0 unless kind is 2 (IPC)";
    return msg->offset > UINT64_MAX - msg->bytes
               ? "offset and bytes must add up to at most 2^64 - 1"
               : NULL;
}

static const struct field att_mem_fields[] = {
    MEM(struct att_mem),
    UUID(struct att_mem),
    UINT(struct att_mem, kind, KVC_HANDLE_FD, KVC_HANDLE_EMU,
         "kind must be 1 (descriptor), 2 (IPC) or 3 (emulated)"),
    UINT(struct att_mem, bytes, 1, UINT64_MAX, "bytes must be an integer from 1 to 2^64 - 1"),
    U64(struct att_mem, offset),
    IPC(struct att_mem),
};
SCHEMA(codec__att_mem, struct att_mem, att_mem_fields, .ops = {KVC_ATTACH_MEM},
       .check = check_att_mem);

static const struct field att_mem_is_fields[] = {
    STATUS(struct att_mem_is),
    DETAIL(struct att_mem_is, detail),
    U32(struct att_mem_is, mem),
};
SCHEMA(codec__att_mem_is, struct att_mem_is, att_mem_is_fields, .ops = {KVC_ATTACH_MEM_IS});

static const struct field att_mem_drop_fields[] = {MEM(struct att_mem_drop)};
SCHEMA(codec__att_mem_drop, struct att_mem_drop, att_mem_drop_fields, .ops = {KVC_ATTACH_MEM_DROP});

static const struct field att_map_on_fields[] = {U32(struct att_map_on, chunk)};
SCHEMA(codec__att_map_on, struct att_map_on, att_map_on_fields, .ops = {KVC_ATTACH_MAP_ON});

static const char *check_att_chunk_on(const void *p)
{
    const struct att_chunk_on *msg = p;
    const uint32_t ipc =
        msg->status == KVC_ST_OK && msg->kind == KVC_HANDLE_IPC ? KVC_IPC_BYTES : 0;
    if ((msg->status == KVC_ST_OK) != (msg->kind != 0))
        return "kind must be 0 unless status is 0 (OK)";
    return msg->ipc.n != ipc ? "ipc must be binary of 64 bytes with kind 2 (IPC), else empty"
                             : NULL;
}

static const struct field att_chunk_on_fields[] = {
    STATUS(struct att_chunk_on),
    DETAIL(struct att_chunk_on, detail),
    U32(struct att_chunk_on, chunk),
    UUID(struct att_chunk_on),
    UINT(struct att_chunk_on, kind, 0, KVC_HANDLE_EMU, "kind must be an integer from 0 to 3"),
    U64(struct att_chunk_on, bytes),
    U64(struct att_chunk_on, offset),
    IPC(struct att_chunk_on),
};
SCHEMA(codec__att_chunk_on, struct att_chunk_on, att_chunk_on_fields, .ops = {KVC_ATTACH_CHUNK_ON},
       .check = check_att_chunk_on);

static const struct field att_unmapped_fields[] = {U32(struct att_unmapped, chunk)};
SCHEMA(codec__att_unmapped, struct att_unmapped, att_unmapped_fields, .ops = {KVC_ATTACH_UNMAPPED});
