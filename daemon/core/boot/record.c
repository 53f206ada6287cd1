/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restart: the bytes by which a namespace outlives a run: its principal and all that tells it from
 * others, little-endian, with a checksum behind. The print in the record is not trusted: it
 * is computed again from the other fields.
 */
#include "cursor.h"
#include "serve.h"

#define RECORD_MAGIC   0x534e564bu /* "KVNS" */
#define RECORD_VERSION 1u

static void record_put_text(struct wcursor *w, const char *text)
{
    const size_t n = strlen(text);
    wcursor_put_u16le(w, (uint16_t)n);
    wcursor_put(w, text, n);
}

static void put_spec(struct wcursor *w, const struct core_ns_spec *s)
{
    const char *text[] = {s->model,    s->revision,        s->dtype,     s->quant, s->layout,
                          s->position, s->position_params, s->attention, s->lora,  s->extra,
                          s->sub};
    const uint32_t number[] = {s->layers, s->kv_heads, s->head_size, s->shards, s->flags};
    for (size_t i = 0; i < ARRAY_LEN(text); i++)
        record_put_text(w, text[i]);
    for (size_t i = 0; i < ARRAY_LEN(number); i++)
        wcursor_put_u32le(w, number[i]);
    wcursor_put_u64le(w, s->prefill_ns_per_token);
    wcursor_put_u64le(w, s->prefill_ns_per_token_pair);
    wcursor_put_u32le(w, s->ngroups);
    for (uint32_t g = 0; g < s->ngroups; g++) {
        const struct core_group *p = &s->group[g];
        wcursor_put_u32le(w, p->block_tokens);
        wcursor_put_u32le(w, p->block_bytes);
        wcursor_put_u32le(w, p->window);
        wcursor_put_u32le(w, p->flags);
        wcursor_put_u8(w, p->rule);
    }
}

uint32_t core_ns_record(const struct core *c, uint64_t print,
                        uint8_t ret_record[CORE_NS_RECORD_MAX])
{
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++) {
        const struct core_ns *ns = &c->ns[i];
        if (!ns->id || ns->short_print != print)
            continue;
        struct wcursor w;
        wcursor_init(&w, ret_record, CORE_NS_RECORD_MAX);
        wcursor_put_u32le(&w, RECORD_MAGIC);
        wcursor_put_u32le(&w, RECORD_VERSION);
        wcursor_put_u64le(&w, print);
        record_put_text(&w, ns->principal_name);
        record_put_text(&w, ns->tenant);
        put_spec(&w, &ns->spec);
        const struct hash128 sum = hash_sum(ret_record, wcursor_len(&w));
        wcursor_put(&w, sum.b, sizeof sum.b);
        MUST(wcursor_ok(&w)); /* bounded strings use at most half of the room */
        return (uint32_t)wcursor_len(&w);
    }
    return 0;
}

/* ---- decoding ---- */

static void record_take_text(struct cursor *r, char *ret_text, size_t room)
{
    const size_t n = cursor_u16le(r);
    const uint8_t *at = cursor_take(r, n);
    if (!at || n >= room || memchr(at, 0, n)) {
        r->bad = true;
        return;
    }
    memcpy(ret_text, at, n);
    ret_text[n] = 0;
}

static void take_spec(struct cursor *r, struct core_ns_spec *s)
{
    struct {
        char *at;
        size_t room;
    } text[] = {
        {s->model, sizeof s->model},
        {s->revision, sizeof s->revision},
        {s->dtype, sizeof s->dtype},
        {s->quant, sizeof s->quant},
        {s->layout, sizeof s->layout},
        {s->position, sizeof s->position},
        {s->position_params, sizeof s->position_params},
        {s->attention, sizeof s->attention},
        {s->lora, sizeof s->lora},
        {s->extra, sizeof s->extra},
        {s->sub, sizeof s->sub},
    };
    uint32_t *number[] = {&s->layers, &s->kv_heads, &s->head_size, &s->shards, &s->flags};
    for (size_t i = 0; i < ARRAY_LEN(text); i++)
        record_take_text(r, text[i].at, text[i].room);
    for (size_t i = 0; i < ARRAY_LEN(number); i++)
        *number[i] = cursor_u32le(r);
    s->prefill_ns_per_token = cursor_u64le(r);
    s->prefill_ns_per_token_pair = cursor_u64le(r);
    s->ngroups = cursor_u32le(r);
    for (uint32_t g = 0; cursor_ok(r) && g < MIN(s->ngroups, KVC_GROUPS_MAX); g++) {
        struct core_group *p = &s->group[g];
        p->block_tokens = cursor_u32le(r);
        p->block_bytes = cursor_u32le(r);
        p->window = cursor_u32le(r);
        p->flags = cursor_u32le(r);
        p->rule = cursor_u8(r);
    }
}

/* The head of a record; the cursor then is before the specification. */
struct record_head {
    uint64_t print;
    char principal_name[KVC_PARAMS_MAX], tenant[KVC_PARAMS_MAX];
};

static bool record_take_head(const uint8_t *record, uint32_t bytes, struct cursor *ret_cursor,
                             struct record_head *ret)
{
    struct hash128 sum;
    if (bytes < sizeof sum.b || bytes > CORE_NS_RECORD_MAX)
        return false;
    const uint32_t n = bytes - (uint32_t)sizeof sum.b;
    sum = hash_sum(record, n);
    if (memcmp(sum.b, record + n, sizeof sum.b) != 0)
        return false;
    cursor_init(ret_cursor, record, n);
    if (cursor_u32le(ret_cursor) != RECORD_MAGIC || cursor_u32le(ret_cursor) != RECORD_VERSION)
        return false;
    ret->print = cursor_u64le(ret_cursor);
    record_take_text(ret_cursor, ret->principal_name, sizeof ret->principal_name);
    record_take_text(ret_cursor, ret->tenant, sizeof ret->tenant);
    return cursor_ok(ret_cursor);
}

int core_ns_record_principal(const uint8_t *record, uint32_t bytes,
                             char ret_principal[KVC_PARAMS_MAX], char ret_tenant[KVC_PARAMS_MAX])
{
    struct cursor r;
    struct record_head h = {0};
    if (!record_take_head(record, bytes, &r, &h))
        return KVC_E_GONE;
    memcpy(ret_principal, h.principal_name, sizeof h.principal_name);
    memcpy(ret_tenant, h.tenant, sizeof h.tenant);
    return 0;
}

int core_ns_restore(struct core *c, const uint8_t *record, uint32_t bytes, core_who_fn *who,
                    void *ctx)
{
    struct cursor r;
    struct record_head h;
    struct core_ns_spec spec = {0};
    if (!record_take_head(record, bytes, &r, &h))
        return KVC_E_GONE;
    take_spec(&r, &spec);
    if (!cursor_ok(&r) || cursor_left(&r) > 0 || core__ns_fault(&spec) || core__ns_unsound(&spec))
        return KVC_E_GONE;
    const struct core_identity *id = who(ctx, h.principal_name);
    if (!id || strcmp(id->tenant, h.tenant) != 0 || strcmp(id->name, h.principal_name) != 0)
        return KVC_E_DENIED;
    struct key256 now;
    if (core__ns_print(c, id, &spec, &now))
        return KVC_E_INTERNAL;
    if (core__short_print(&now) != h.print)
        return KVC_E_DENIED;
    struct core_ns *ns;
    return core__ns_find_or_make(c, id, &spec, &ns);
}

uint32_t core_ns_prints(const struct core *c, uint32_t *cursor, uint64_t *ret_print, uint32_t n)
{
    uint32_t got = 0;
    for (; *cursor < c->cfg.namespaces_max && got < n; ++*cursor)
        if (c->ns[*cursor].id)
            ret_print[got++] = c->ns[*cursor].short_print;
    return got;
}

uint64_t core_ns_changes(const struct core *c)
{
    return c->ns_changes;
}
