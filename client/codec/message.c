/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoders and decoders of requests and replies, made from the schemas. The client encodes a
 * request, the daemon decodes it for its handler (daemon/svc); the reply goes the same way back.
 */
#include "message.h"

#include <errno.h>
#include <string.h>

#include "field.h"
#include "must.h"

#define NO_REQUEST "not a request: an array that begins with operation, corr and deadline_ms"
#define NO_REPLY   "not a reply: an array that begins with operation | 128, corr and status"

#define HEAD_ITEMS 3u

/* ---- writing ---- */

/* The length of s cut to at most `max` bytes, without cutting a character in two. */
static uint32_t clipped(struct codec_bin s, uint32_t max)
{
    if (s.n <= max)
        return s.n;
    while (max > 0 && (s.p[max] & 0xc0) == 0x80)
        max--;
    return max;
}

static void pack_plain(struct pack *pk, const struct field *f, const uint8_t *at)
{
    struct codec_bin s = {0};
    MUST(f->kind != FIELD_ARRAY); /* items have no arrays */
    if (f->kind == FIELD_TEXT || f->kind == FIELD_DETAIL || f->kind == FIELD_BLOB)
        memcpy(&s, at, sizeof(s));
    else if (f->kind == FIELD_STRING)
        s = (struct codec_bin){.p = at, .n = (uint32_t)strnlen((const char *)at, f->width)};
    switch ((enum field_kind)f->kind) {
    case FIELD_UINT:
    case FIELD_FLAGS:
        pack_uint(pk, field_get_uint(at, f->width));
        break;
    case FIELD_DETAIL:
    case FIELD_STRING:
        pack_text(pk, s.p, clipped(s, (uint32_t)f->max));
        break;
    case FIELD_TEXT:
        pack_text(pk, s.p, s.n);
        break;
    case FIELD_BLOB:
        pack_blob(pk, s.p, s.n);
        break;
    case FIELD_FIXED:
        pack_blob(pk, at, f->width);
        break;
    case FIELD_MAGIC:
        pack_text(pk, KVC_PROTO_MAGIC, sizeof(KVC_PROTO_MAGIC) - 1);
        break;
    case FIELD_ARRAY:
        break;
    }
}

static void pack_items(struct pack *pk, const struct field *f, const uint8_t *msg)
{
    const struct schema *items = f->items;
    MUST(items != NULL && (!items->bare || items->nfields == 1));
    uint64_t n = field_get_uint(msg + f->count_at, sizeof(uint32_t));
    if (n > f->max) {
        pk->err = -EINVAL;
        return;
    }
    pack_array(pk, (uint32_t)n);
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t *item = msg + f->at + i * items->size;
        if (!items->bare)
            pack_array(pk, items->nfields);
        for (uint32_t k = 0; k < items->nfields; k++)
            pack_plain(pk, &items->fields[k], item + items->fields[k].at);
    }
}

void message_pack_fields(struct pack *pk, const struct schema *schema, const void *msg)
{
    for (uint32_t i = 0; pk->err == 0 && i < schema->nfields; i++) {
        const struct field *f = &schema->fields[i];
        if (f->kind == FIELD_ARRAY)
            pack_items(pk, f, msg);
        else
            pack_plain(pk, f, (const uint8_t *)msg + f->at);
    }
}

void message_pack_reply_head(struct pack *pk, const struct msg_head *head, uint16_t status,
                             uint32_t nfields)
{
    pack_array(pk, HEAD_ITEMS + nfields);
    pack_uint(pk, head->op | KVC_OP_REPLY);
    pack_uint(pk, head->corr);
    pack_uint(pk, status);
}

int message_packed(const struct pack *pk)
{
    MUST(pk->err <= 0 && pk->len <= INT32_MAX);
    return pk->err != 0 ? pk->err : (int)pk->len;
}

static int encode_request(const struct schema *schema, uint8_t op, void *buf, size_t cap,
                          const struct msg_head *head, const void *msg)
{
    struct pack pk;
    pack_init(&pk, buf, cap);
    pack_array(&pk, HEAD_ITEMS + schema->nfields);
    pack_uint(&pk, op);
    pack_uint(&pk, head->corr);
    pack_uint(&pk, head->deadline_ms);
    message_pack_fields(&pk, schema, msg);
    return message_packed(&pk);
}

static bool message_has_op(const struct schema *schema, uint8_t op)
{
    return op != 0 && memchr(schema->ops, op, sizeof schema->ops) != NULL;
}

static int encode_reply(const struct schema *schema, void *buf, size_t cap,
                        const struct msg_head *head, const void *msg)
{
    struct pack pk;
    if (!message_has_op(schema, head->op))
        return -EINVAL;
    pack_init(&pk, buf, cap);
    message_pack_reply_head(&pk, head, KVC_ST_OK, schema->nfields);
    message_pack_fields(&pk, schema, msg);
    return message_packed(&pk);
}

int codec_enc_error(void *buf, size_t cap, const struct msg_head *head, uint16_t status,
                    const char *detail)
{
    struct pack pk;
    if (status == KVC_ST_OK)
        return -EINVAL;
    struct codec_bin text = codec_text(detail);
    pack_init(&pk, buf, cap);
    message_pack_reply_head(&pk, head, status, 1);
    message_pack_fields(&pk, &codec__rep_error, &text);
    return message_packed(&pk);
}

/* ---- reading ---- */

int message_error(uint16_t status)
{
    return status < KVC_ST_COUNT ? -(1000 + status) : KVC_E_INTERNAL;
}

/* Reads the head. A deadline beyond its limits does not make the head invalid: the request gets a
 * reply, because its own decoder refuses the deadline. Returns the number of items of the array. */
static uint32_t unpack_head(struct unpack *un, struct msg_head *ret_head)
{
    struct msg_head head = {0};
    uint32_t n = unpack_array(un, NO_REQUEST);
    if (un->err == 0 && n < HEAD_ITEMS)
        unpack_fail(un, KVC_E_BAD_MESSAGE, NO_REQUEST);
    head.op = (uint8_t)unpack_uint(un, 0, KVC_OP_REPLY - 1, NO_REQUEST);
    head.corr = unpack_uint(un, 0, UINT64_MAX, NO_REQUEST);
    uint64_t deadline_ms = unpack_uint(un, 0, UINT64_MAX, NO_REQUEST);
    head.deadline_ms = deadline_ms < UINT32_MAX ? (uint32_t)deadline_ms : UINT32_MAX;
    if (un->err != 0) {
        un->err = KVC_E_BAD_MESSAGE;
        head = (struct msg_head){0};
    }
    *ret_head = head;
    return n;
}

int codec_dec_head(const void *buf, size_t len, struct msg_head *ret_head)
{
    struct unpack un;
    unpack_init(&un, buf, len);
    (void)unpack_head(&un, ret_head);
    ret_head->detail = un.detail;
    return un.err;
}

static int decode_request(const struct schema *schema, const void *buf, size_t len,
                          struct msg_head *ret_head, void *msg)
{
    struct unpack un;
    unpack_init(&un, buf, len);
    uint32_t n = unpack_head(&un, ret_head);
    if (un.err == 0 && !message_has_op(schema, ret_head->op))
        unpack_fail(&un, KVC_E_BAD_MESSAGE, "another operation than expected");
    if (un.err == 0 && n != HEAD_ITEMS + schema->nfields)
        unpack_fail(&un, KVC_E_BAD_MESSAGE, "the request has too few or too many fields");
    if (un.err == 0 && ret_head->deadline_ms > KVC_DEADLINE_MAX_MS)
        unpack_fail(&un, KVC_E_BAD_ARGUMENT, "deadline_ms must be an integer from 0 to 600000");
    unpack_fields(&un, schema, msg);
    unpack_end(&un);
    const char *wrong = un.err == 0 && schema->check != NULL ? schema->check(msg) : NULL;
    if (wrong != NULL)
        unpack_fail(&un, KVC_E_BAD_ARGUMENT, wrong);
    ret_head->detail = un.detail;
    return un.err;
}

uint32_t message_unpack_reply_head(struct unpack *un, struct msg_reply_head *ret_head)
{
    struct msg_reply_head head = {0};
    uint32_t n = unpack_array(un, NO_REPLY);
    if (un->err == 0 && n < HEAD_ITEMS)
        unpack_fail(un, KVC_E_BAD_MESSAGE, NO_REPLY);
    head.op = (uint8_t)(unpack_uint(un, KVC_OP_REPLY, 0xff, NO_REPLY) & ~KVC_OP_REPLY);
    head.corr = unpack_uint(un, 0, UINT64_MAX, NO_REPLY);
    head.status = (uint16_t)unpack_uint(un, 0, UINT16_MAX, NO_REPLY);
    if (un->err == 0 && head.status != KVC_ST_OK) {
        if (n != HEAD_ITEMS + 1)
            unpack_fail(un, KVC_E_BAD_MESSAGE, "a reply with an error must have 4 fields");
        unpack_fields(un, &codec__rep_error, &head.detail);
        unpack_end(un);
    }
    if (un->err != 0) {
        un->err = KVC_E_BAD_MESSAGE;
        head = (struct msg_reply_head){.detail = codec_text(un->detail)};
    }
    *ret_head = head;
    return n - HEAD_ITEMS;
}

int codec_dec_reply_head(const void *buf, size_t len, struct msg_reply_head *ret_head)
{
    struct unpack un;
    unpack_init(&un, buf, len);
    (void)message_unpack_reply_head(&un, ret_head);
    return un.err;
}

static int decode_reply(const struct schema *schema, const void *buf, size_t len,
                        struct msg_reply_head *ret_head, void *msg)
{
    struct unpack un;
    unpack_init(&un, buf, len);
    uint32_t n = message_unpack_reply_head(&un, ret_head);
    if (un.err == 0 && !message_has_op(schema, ret_head->op))
        unpack_fail(&un, KVC_E_BAD_MESSAGE, "a reply to another operation than expected");
    if (un.err == 0 && ret_head->status != KVC_ST_OK)
        return message_error(ret_head->status);
    if (un.err == 0 && n != schema->nfields)
        unpack_fail(&un, KVC_E_BAD_MESSAGE, "the reply has too few or too many fields");
    unpack_fields(&un, schema, msg);
    unpack_end(&un);
    if (un.err != 0)
        ret_head->detail = codec_text(un.detail);
    return un.err;
}

/* ---- the functions of codec.h ---- */

#define X(OP, name)                                                                  \
    int codec_enc_##name(void *buf, size_t cap, const struct msg_head *head,         \
                         const struct msg_##name *msg)                               \
    {                                                                                \
        return encode_request(&codec__req_##name, KVC_OP_##OP, buf, cap, head, msg); \
    }                                                                                \
    int codec_dec_##name(const void *buf, size_t len, struct msg_head *ret_head,     \
                         struct msg_##name *ret_msg)                                 \
    {                                                                                \
        struct msg_##name msg;                                                       \
        memset(&msg, 0, sizeof(msg));                                                \
        int rc = decode_request(&codec__req_##name, buf, len, ret_head, &msg);       \
        if (rc == 0)                                                                 \
            *ret_msg = msg;                                                          \
        return rc;                                                                   \
    }
CODEC_REQUEST_LIST(X)
#undef X

int codec_enc_bare(void *buf, size_t cap, const struct msg_head *head)
{
    if (!message_has_op(&codec__req_bare, head->op))
        return -EINVAL;
    return encode_request(&codec__req_bare, head->op, buf, cap, head, NULL);
}

int codec_dec_bare(const void *buf, size_t len, struct msg_head *ret_head)
{
    return decode_request(&codec__req_bare, buf, len, ret_head, NULL);
}

#define X(name)                                                                                \
    int codec_enc_##name##_reply(void *buf, size_t cap, const struct msg_head *head,           \
                                 const struct msg_##name##_reply *msg)                         \
    {                                                                                          \
        return encode_reply(&codec__rep_##name, buf, cap, head, msg);                          \
    }                                                                                          \
    int codec_dec_##name##_reply(const void *buf, size_t len, struct msg_reply_head *ret_head, \
                                 struct msg_##name##_reply *ret_msg)                           \
    {                                                                                          \
        struct msg_##name##_reply msg;                                                         \
        memset(&msg, 0, sizeof(msg));                                                          \
        int rc = decode_reply(&codec__rep_##name, buf, len, ret_head, &msg);                   \
        if (rc == 0)                                                                           \
            *ret_msg = msg;                                                                    \
        return rc;                                                                             \
    }
CODEC_REPLY_LIST(X)
#undef X

int codec_enc_bare_reply(void *buf, size_t cap, const struct msg_head *head)
{
    return encode_reply(&codec__rep_bare, buf, cap, head, NULL);
}

int codec_dec_bare_reply(const void *buf, size_t len, struct msg_reply_head *ret_head)
{
    return decode_reply(&codec__rep_bare, buf, len, ret_head, NULL);
}
