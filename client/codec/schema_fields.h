/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Macros with which schema.c and schema_reply.c describe a message, one line for each field. No
 * other file includes this header.
 */
#ifndef CODEC_SCHEMA_FIELDS_H
#define CODEC_SCHEMA_FIELDS_H

#include "schema.h"

#define MEMBER(T, m) .name = #m, .at = offsetof(T, m), .width = sizeof(((T *)0)->m)
#define UINT(T, m, lo, hi, text)                                                 \
    {                                                                            \
        MEMBER(T, m), .kind = FIELD_UINT, .min = (lo), .max = (hi), .must = text \
    }
#define U8(T, m) UINT(T, m, 0, UINT8_MAX, #m " must be an integer from 0 to 255")
/* `s`: path of the struct inside T that has the member. */
#define U32_AT(T, s, m) UINT(T, s m, 0, UINT32_MAX, #m " must be an integer from 0 to 2^32 - 1")
#define U64_AT(T, s, m) UINT(T, s m, 0, UINT64_MAX, #m " must be an integer from 0 to 2^64 - 1")
#define U32(T, m)       U32_AT(T, , m)
#define U64(T, m)       U64_AT(T, , m)
#define BOOL(T, m)      UINT(T, m, 0, 1, #m " must be 0 or 1")
#define FLAGS(T, m, mask, text)                                        \
    {                                                                  \
        MEMBER(T, m), .kind = FIELD_FLAGS, .max = (mask), .must = text \
    }
#define TEXT(T, m, lo, hi, text)                                                 \
    {                                                                            \
        MEMBER(T, m), .kind = FIELD_TEXT, .min = (lo), .max = (hi), .must = text \
    }
/* One byte less than the constant, which includes the zero byte of a C string. */
#define NAME_AT(T, s, m) \
    TEXT(T, s m, 0, KVC_STRING_MAX - 1, #m " must be UTF-8 text of at most 127 bytes without NUL")
#define PARAMS_AT(T, s, m) \
    TEXT(T, s m, 0, KVC_PARAMS_MAX - 1, #m " must be UTF-8 text of at most 255 bytes without NUL")
#define NAME(T, m) NAME_AT(T, , m)
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
#define UUID(T)     FIXED(T, uuid, "uuid must be binary of 16 bytes")
#define MEM(T)      UINT(T, mem, 0, KVC_MEMS_MAX - 1, "mem must be an integer from 0 to 1023")
#define POOL(T)     UINT(T, pool, 0, KVC_POOLS_MAX - 1, "pool must be an integer from 0 to 7")
#define WORD_MUST   "a word must be an integer from 0 to 511, or 2^32 - 1 for none"
#define OFFSETS(T, m) \
    BLOB(T, m, 8, 1, KVC_STORE_MAX, "offsets must be binary of 1 to 4096 x 8 bytes")
#define TOKENS(T, m) \
    BLOB(T, m, 4, 0, KVC_MESSAGE_MAX / 4, "tokens must be binary of n x 4 bytes in one message")

/* Fields that requests and replies share. */
#define SPEC_FIELDS(T, s)                                                                          \
    TEXT(T, s model, 1, KVC_STRING_MAX - 1,                                                        \
         "model must be UTF-8 text of 1 to 127 bytes without NUL"),                                \
        NAME_AT(T, s, revision), NAME_AT(T, s, dtype), NAME_AT(T, s, quant),                       \
        NAME_AT(T, s, layout), NAME_AT(T, s, position), PARAMS_AT(T, s, position_params),          \
        NAME_AT(T, s, attention), NAME_AT(T, s, lora), PARAMS_AT(T, s, extra), NAME_AT(T, s, sub), \
        U32_AT(T, s, layers), U32_AT(T, s, kv_heads), U32_AT(T, s, head_size),                     \
        UINT(T, s shards, 1, KVC_SHARDS_MAX, "shards must be an integer from 1 to 64"),            \
        FLAGS(T, s flags, KVC_F_TOKENS, "flags of NS_OPEN must be 0 or 8"),                        \
        U64_AT(T, s, prefill_ns_per_token), U64_AT(T, s, prefill_ns_per_token_pair),               \
        ARRAY(T, s groups, s ngroups, codec__group, 1, KVC_GROUPS_MAX,                             \
              "groups must be an array of 1 to 16 arrays of 5")
#define NAME_KIND(T)                                        \
    UINT(T, kind, KVC_NAME_CONVERSATION, KVC_NAME_DOCUMENT, \
         "kind must be 1 (conversation) or 2 (document)")
#define NAME_NAME(T) \
    TEXT(T, name, 1, KVC_STRING_MAX - 1, "name must be UTF-8 text of 1 to 127 bytes without NUL")
#define CURSOR(T) \
    BLOB(T, cursor, 1, 0, KVC_CURSOR_MAX, "cursor must be binary of at most 320 bytes")
extern const struct schema codec__group;

static inline const char *check_versions(uint32_t ver_min, uint32_t ver_max)
{
    return ver_min <= ver_max ? NULL : "ver_min must not be above ver_max";
}

#endif
