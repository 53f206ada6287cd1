/* SPDX-License-Identifier: Apache-2.0 */
#include "messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "field.h"

/* ---- one signature for all ---- */

#define X(OP, id)                                                                   \
    static int dec_##id(const void *buf, size_t len, void *head, void *msg)         \
    {                                                                               \
        _Static_assert(sizeof(struct msg_##id) <= sizeof(union message_room), #id); \
        return codec_dec_##id(buf, len, head, msg);                                 \
    }                                                                               \
    static int enc_##id(void *buf, size_t cap, const void *head, const void *msg)   \
    {                                                                               \
        return codec_enc_##id(buf, cap, head, msg);                                 \
    }
CODEC_REQUEST_LIST(X)
#undef X

static struct msg_head as_request_head(const struct msg_reply_head *head)
{
    return (struct msg_head){.op = head->op, .corr = head->corr};
}

#define X(id)                                                                               \
    static int dec_##id##_reply(const void *buf, size_t len, void *head, void *msg)         \
    {                                                                                       \
        _Static_assert(sizeof(struct msg_##id##_reply) <= sizeof(union message_room), #id); \
        return codec_dec_##id##_reply(buf, len, head, msg);                                 \
    }                                                                                       \
    static int enc_##id##_reply(void *buf, size_t cap, const void *head, const void *msg)   \
    {                                                                                       \
        struct msg_head to = as_request_head(head);                                         \
        return codec_enc_##id##_reply(buf, cap, &to, msg);                                  \
    }
CODEC_REPLY_LIST(X)
#undef X

#define X(id)                                                                         \
    static int dec_att_##id(const void *buf, size_t len, void *head, void *msg)       \
    {                                                                                 \
        (void)head;                                                                   \
        return codec_dec_att_##id(buf, len, msg);                                     \
    }                                                                                 \
    static int enc_att_##id(void *buf, size_t cap, const void *head, const void *msg) \
    {                                                                                 \
        (void)head;                                                                   \
        return codec_enc_att_##id(buf, cap, msg);                                     \
    }
CODEC_ATTACH_LIST(X)
#undef X

static int dec_bare(const void *buf, size_t len, void *head, void *msg)
{
    (void)msg;
    return codec_dec_bare(buf, len, head);
}

static int enc_bare(void *buf, size_t cap, const void *head, const void *msg)
{
    (void)msg;
    return codec_enc_bare(buf, cap, head);
}

static int dec_bare_reply(const void *buf, size_t len, void *head, void *msg)
{
    (void)msg;
    return codec_dec_bare_reply(buf, len, head);
}

static int enc_bare_reply(void *buf, size_t cap, const void *head, const void *msg)
{
    struct msg_head to = as_request_head(head);
    (void)msg;
    return codec_enc_bare_reply(buf, cap, &to);
}

static int dec_head(const void *buf, size_t len, void *head, void *msg)
{
    (void)msg;
    return codec_dec_head(buf, len, head);
}

/* Also "error": a reply whose status is not OK is all head. */
static int dec_reply_head(const void *buf, size_t len, void *head, void *msg)
{
    (void)msg;
    return codec_dec_reply_head(buf, len, head);
}

static int enc_error(void *buf, size_t cap, const void *head, const void *msg)
{
    const struct msg_reply_head *from = head;
    struct msg_head to = as_request_head(from);
    char detail[CODEC_DETAIL_MAX + 1] = "";
    (void)msg;
    if (from->detail.n != 0 && memchr(from->detail.p, 0, from->detail.n) != NULL)
        return 0; /* the encoder takes a C string */
    if (from->detail.n != 0)
        memcpy(detail, from->detail.p, from->detail.n);
    return codec_enc_error(buf, cap, &to, from->status, detail);
}

static const struct schema empty;

const struct message_kind message_kinds[] = {
#define X(OP, id) {#id, MESSAGE_REQUEST, &codec__req_##id, KVC_OP_##OP, dec_##id, enc_##id},
    CODEC_REQUEST_LIST(X)
#undef X
#define X(id) {"att_" #id, MESSAGE_ATTACH, &codec__att_##id, 0, dec_att_##id, enc_att_##id},
        CODEC_ATTACH_LIST(X)
#undef X
#define REPLY(OP, name, id)                                                            \
    {                                                                                  \
        name "_reply", MESSAGE_REPLY, &codec__rep_##id, KVC_OP_##OP, dec_##id##_reply, \
            enc_##id##_reply                                                           \
    }
            REPLY(HELLO, "hello", hello),
    REPLY(PING, "ping", ping),
    REPLY(NS_OPEN, "ns_open", ns_open),
    REPLY(NS_SPEC, "ns_spec", ns_spec),
    REPLY(LOOKUP, "lookup", lookup),
    REPLY(ACQUIRE, "acquire", acquire),
    REPLY(REDEEM, "redeem", acquire),
    REPLY(RELEASE, "release", release),
    REPLY(RESERVE, "reserve", reserve),
    REPLY(COMMIT, "commit", commit),
    REPLY(STORE, "store", commit),
    REPLY(DROP, "drop", bare),
    REPLY(CANCEL, "cancel", cancel),
    REPLY(HINT, "hint", bare),
    REPLY(NAME_PUT, "name_put", name_put),
    REPLY(NAME_FORGET, "name_forget", name_forget),
    REPLY(NAME_LOAD, "name_load", name_load),
    REPLY(NAME_TOKENS, "name_tokens", name_tokens),
    REPLY(EVICT, "evict", evict),
    REPLY(VERIFY, "verify", verify),
    REPLY(TRACE, "trace", trace),
    REPLY(TRACE_DUMP, "trace_dump", trace_dump),
    REPLY(DRAIN, "drain", drain),
    REPLY(PIN, "pin", pin),
    REPLY(UNPIN, "unpin", bare),
    REPLY(QUOTA_SET, "quota_set", bare),
    REPLY(SESSION_END, "session_end", bare),
    REPLY(POLICY, "policy", policy),
    REPLY(POOL_OPEN, "pool_open", bare),
    REPLY(POOL_CLOSE, "pool_close", bare),
    REPLY(PAGES_LOAD, "pages_load", pages_load),
    REPLY(PAGES_STORE, "pages_store", commit),
    REPLY(ACQUIRE_ON, "acquire_on", acquire),
#undef REPLY
    {"ping", MESSAGE_REQUEST, &codec__req_bare, KVC_OP_PING, dec_bare, enc_bare},
    {"stats", MESSAGE_REQUEST, &codec__req_bare, KVC_OP_STATS, dec_bare, enc_bare},
    {"error", MESSAGE_HEAD, &empty, KVC_OP_REPLY, dec_reply_head, enc_error},
    {"reply_head", MESSAGE_HEAD, &empty, KVC_OP_REPLY, dec_reply_head, NULL},
    {"head", MESSAGE_HEAD, &empty, 0, dec_head, NULL},
    {"stats_reply", MESSAGE_LIST, &codec__item_stat, KVC_OP_STATS, NULL, NULL},
    {"list_reply", MESSAGE_LIST, &empty, KVC_OP_LIST, NULL, NULL},
};
const size_t message_kinds_n = sizeof(message_kinds) / sizeof(message_kinds[0]);

const struct message_kind *message_find(const char *name)
{
    for (size_t i = 0; i < message_kinds_n; i++)
        if (strcmp(message_kinds[i].name, name) == 0)
            return &message_kinds[i];
    return NULL;
}

/* ---- printing ---- */

static void print_text(FILE *to, struct codec_bin s)
{
    fputc('"', to);
    for (uint32_t i = 0; i < s.n; i++) {
        if (s.p[i] == '"' || s.p[i] == '\\')
            fprintf(to, "\\%c", s.p[i]);
        else if (s.p[i] < 0x20 || s.p[i] == 0x7f)
            fprintf(to, "\\x%02x", s.p[i]);
        else
            fputc(s.p[i], to);
    }
    fputs("\"\n", to);
}

static void print_blob(FILE *to, struct codec_bin s)
{
    bool gap = false;
    if (s.n == 0)
        fputc('-', to);
    for (uint32_t i = 0, run; i < s.n; i += run) {
        for (run = 1; i + run < s.n && s.p[i + run] == s.p[i]; run++)
            ;
        bool is_long = run > 64;
        fputs(i != 0 && (is_long || gap) ? " " : "", to);
        if (is_long)
            fprintf(to, "%02x*%u", s.p[i], run);
        for (uint32_t k = 0; !is_long && k < run; k++) {
            fputc_unlocked("0123456789abcdef"[s.p[i] >> 4], to);
            fputc_unlocked("0123456789abcdef"[s.p[i] & 15], to);
        }
        gap = is_long;
    }
    fputc('\n', to);
}

static void print_value(FILE *to, const struct field *f, const uint8_t *at)
{
    struct codec_bin s;
    switch ((enum field_kind)f->kind) {
    case FIELD_UINT:
    case FIELD_FLAGS:
        fprintf(to, "%llu\n", (unsigned long long)field_get_uint(at, f->width));
        break;
    case FIELD_TEXT:
    case FIELD_DETAIL:
        memcpy(&s, at, sizeof(s));
        print_text(to, s);
        break;
    case FIELD_BLOB:
        memcpy(&s, at, sizeof(s));
        print_blob(to, s);
        break;
    case FIELD_FIXED:
        print_blob(to, (struct codec_bin){.p = at, .n = f->width});
        break;
    case FIELD_STRING: /* of rows alone */
    case FIELD_MAGIC:
    case FIELD_ARRAY:
        abort();
    }
}

/* What follows the last dot of the C member's name, and the space that a macro may leave there. */
static const char *paper_name(const struct field *f)
{
    const char *dot = strrchr(f->name, '.');
    const char *name = dot != NULL ? dot + 1 : f->name;
    return name + strspn(name, " ");
}

static void print_item(FILE *to, const char *array, uint32_t i, const struct schema *items,
                       const uint8_t *item)
{
    for (uint32_t k = 0; k < items->nfields; k++) {
        const struct field *f = &items->fields[k];
        fprintf(to, "%s[%u]%s%s = ", array, i, items->bare ? "" : ".", paper_name(f));
        print_value(to, f, item + f->at);
    }
}

static void print_struct(FILE *to, const struct schema *schema, const uint8_t *msg)
{
    for (uint32_t i = 0; i < schema->nfields; i++) {
        const struct field *f = &schema->fields[i];
        if (f->kind == FIELD_MAGIC)
            continue;
        if (f->kind != FIELD_ARRAY) {
            fprintf(to, "%s = ", paper_name(f));
            print_value(to, f, msg + f->at);
            continue;
        }
        uint32_t n = (uint32_t)field_get_uint(msg + f->count_at, sizeof(n));
        fprintf(to, "%s = %u items\n", paper_name(f), n);
        for (uint32_t k = 0; k < n; k++)
            print_item(to, paper_name(f), k, f->items, msg + f->at + (size_t)k * f->items->size);
    }
}

static void print_reply_head(FILE *to, const struct msg_reply_head *head)
{
    fprintf(to, "op = %u\ncorr = %llu\nstatus = %u\n", head->op, (unsigned long long)head->corr,
            head->status);
}

static void print_head(FILE *to, const struct message_kind *kind, const void *head)
{
    const struct msg_head *request = head;
    const struct msg_reply_head *reply = head;
    if (kind->family == MESSAGE_ATTACH)
        return;
    if (kind->family == MESSAGE_REPLY || kind->op == KVC_OP_REPLY)
        print_reply_head(to, reply);
    else
        fprintf(to, "op = %u\ncorr = %llu\ndeadline_ms = %u\n", request->op,
                (unsigned long long)request->corr, request->deadline_ms);
    if (kind->op == KVC_OP_REPLY && reply->status != KVC_ST_OK) {
        fputs("detail = ", to);
        print_text(to, reply->detail);
    }
}

char *message_print(const struct message_kind *kind, const void *head, const void *msg)
{
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    if (to == NULL)
        abort();
    print_head(to, kind, head);
    print_struct(to, kind->schema, msg);
    fclose(to);
    return text;
}

/* ---- there and back ---- */

/* Room for what the input holds, whatever widths it was written with. */
static size_t out_cap(size_t len)
{
    return 2 * len + 1024;
}

static void keep_detail(struct message_outcome *o, struct codec_bin detail)
{
    snprintf(o->detail, sizeof(o->detail), "%.*s", (int)detail.n,
             detail.n != 0 ? (const char *)detail.p : "");
}

static void recode_items(const struct message_kind *kind, struct codec_iter *iter, FILE *to,
                         const struct msg_head *head, struct message_outcome *o, size_t cap)
{
    struct msg_stat item;
    struct codec_list list;
    o->rc = codec_list_begin(&list, o->out, cap, head);
    for (uint32_t i = 0; o->rc == 0; i++) {
        o->rc = codec_iter_stat(iter, &item);
        if (o->rc == 0)
            break;
        if (o->rc == 1) {
            print_item(to, "items", i, kind->schema, (const uint8_t *)&item);
            o->rc = codec_list_add_stat(&list, &item);
        }
    }
    o->out_len = o->rc == 0 ? (int)codec_list_end(&list, iter->more) : 0;
}

static void recode_list(const struct message_kind *kind, const void *buf, size_t len,
                        struct message_outcome *o)
{
    struct msg_reply_head head;
    struct codec_iter iter;
    o->rc = codec_iter_begin(buf, len, &head, &iter);
    keep_detail(o, head.detail);
    if (o->rc != 0)
        return;
    size_t n = 0;
    FILE *to = open_memstream(&o->text, &n);
    struct msg_head request = as_request_head(&head);
    o->out = malloc(out_cap(len));
    if (to == NULL || o->out == NULL)
        abort();
    print_reply_head(to, &head);
    fprintf(to, "more = %d\nitems = %u items\n", iter.more, iter.left);
    recode_items(kind, &iter, to, &request, o, out_cap(len));
    fclose(to);
}

/* ---- the reply of LIST ---- */

static void print_cell(FILE *to, const struct kvc_column *c, const uint8_t *at)
{
    if (c->type == KVC_COLUMN_NAME || c->type == KVC_COLUMN_TEXT)
        print_text(to, codec_text((const char *)at));
    else if (c->type == KVC_COLUMN_KEY || c->type == KVC_COLUMN_UUID)
        print_blob(to, (struct codec_bin){.p = at, .n = c->bytes});
    else
        fprintf(to, "%llu\n", (unsigned long long)field_get_uint(at, c->bytes));
}

/* Which table it is, the reply says. */
static int rows_read(const void *buf, size_t len, struct msg_reply_head *head,
                     struct codec_rows *rows)
{
    int rc = KVC_E_BAD_MESSAGE;
    for (unsigned id = 1; codec_table(id) != NULL; id++) {
        rc = codec_rows_read(buf, len, codec_table(id), head, rows);
        if (head->detail.n == 0 || memmem(head->detail.p, head->detail.n, "another table",
                                          strlen("another table")) == NULL)
            break;
    }
    return rc;
}

static void recode_rows(const void *buf, size_t len, struct message_outcome *o)
{
    struct msg_reply_head head;
    struct codec_rows rows;
    struct codec_list list;
    union message_room row;
    size_t n = 0;
    o->rc = rows_read(buf, len, &head, &rows);
    keep_detail(o, head.detail);
    if (o->rc != 0)
        return;
    FILE *to = open_memstream(&o->text, &n);
    const struct msg_head request = as_request_head(&head);
    o->out = malloc(out_cap(len));
    if (to == NULL || o->out == NULL)
        abort();
    print_reply_head(to, &head);
    fprintf(to, "table = %d\nrows = %u items\n", (int)rows.table->id, rows.left);
    o->rc = codec_rows_begin(&list, o->out, out_cap(len), &request, rows.table);
    for (uint32_t i = 0; o->rc == 0 && (o->rc = codec_rows_next(&rows, &row)) == 1; i++) {
        for (uint32_t k = 0; k < rows.table->columns; k++) {
            const struct kvc_column *c = &rows.table->column[k];
            fprintf(to, "rows[%u].%s = ", i, c->name);
            print_cell(to, c, row.bytes + c->at);
        }
        o->rc = codec_rows_add(&list, rows.table, &row);
    }
    if (o->rc == 0) {
        fputs("cursor = ", to);
        print_blob(to, rows.cursor);
        o->out_len = codec_rows_end(&list, rows.cursor);
    }
    fclose(to);
}

struct message_outcome message_recode(const struct message_kind *kind, const void *buf, size_t len)
{
    struct message_outcome o = {0};
    union message_room msg;
    union {
        struct msg_head request;
        struct msg_reply_head reply;
    } head = {0};
    if (kind->family == MESSAGE_LIST) {
        if (kind->op == KVC_OP_LIST)
            recode_rows(buf, len, &o);
        else
            recode_list(kind, buf, len, &o);
        return o;
    }
    o.rc = kind->dec(buf, len, &head, &msg);
    if (kind->family == MESSAGE_REPLY || kind->op == KVC_OP_REPLY)
        keep_detail(&o, head.reply.detail);
    else if (kind->family != MESSAGE_ATTACH && head.request.detail != NULL)
        snprintf(o.detail, sizeof(o.detail), "%s", head.request.detail);
    if (o.rc != 0)
        return o;
    o.text = message_print(kind, &head, &msg);
    if (kind->enc == NULL)
        return o;
    o.out = malloc(out_cap(len));
    if (o.out == NULL)
        abort();
    o.out_len = kind->enc(o.out, out_cap(len), &head, &msg);
    return o;
}

void message_outcome_free(struct message_outcome *o)
{
    free(o->text);
    free(o->out);
    *o = (struct message_outcome){0};
}
