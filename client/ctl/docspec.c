/* SPDX-License-Identifier: Apache-2.0 */
/* The specification of a namespace as JSON, and the differences between two specifications. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "docfile.h"

static const char *const rules[] = {"full", "window", "state"}; /* enum kvc_rule */

#define SPEC_TEXTS(X)  \
    X(model)           \
    X(revision)        \
    X(dtype)           \
    X(quant)           \
    X(layout)          \
    X(position)        \
    X(position_params) \
    X(attention)       \
    X(lora)            \
    X(extra)
#define SPEC_NUMBERS(X) \
    X(layers)           \
    X(kv_heads)         \
    X(head_size)        \
    X(shards)

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

/* ---- to JSON ---- */

static json_t *group_json(const struct kvc_group_spec *g)
{
    return json_pack("{s:I, s:I, s:s, s:I, s:b}", "block_tokens", (json_int_t)g->block_tokens,
                     "block_bytes", (json_int_t)g->block_bytes, "rule", rules[g->rule], "window",
                     (json_int_t)g->window, "replicated", g->replicated);
}

static json_t *cost_json(uint64_t ns)
{
    return json_integer(ns < INT64_MAX ? (json_int_t)ns : INT64_MAX);
}

json_t *docfile_spec_json(const struct kvc_ns_spec *spec)
{
    json_t *o = json_object(), *groups = json_array();
    int rc = 0;
#define X(name) rc |= json_object_set_new(o, #name, json_string(or_empty(spec->name)));
    SPEC_TEXTS(X)
#undef X
    rc |= json_object_set_new(o, "sub_tenant", json_string(or_empty(spec->sub_tenant)));
#define X(name) rc |= json_object_set_new(o, #name, json_integer(spec->name));
    SPEC_NUMBERS(X)
#undef X
    rc |= json_object_set_new(o, "with_tokens", json_boolean(spec->with_tokens));
    rc |= json_object_set_new(o, "prefill_ns_per_token", cost_json(spec->prefill_ns_per_token));
    rc |= json_object_set_new(o, "prefill_ns_per_token_pair",
                              cost_json(spec->prefill_ns_per_token_pair));
    for (uint32_t i = 0; i < spec->groups; i++)
        rc |= json_array_append_new(groups, group_json(&spec->group[i]));
    rc |= json_object_set_new(o, "groups", groups);
    if (rc == 0)
        return o;
    json_decref(o);
    return NULL;
}

/* ---- from JSON ---- */

static bool docspec_take_text(const json_t *o, const char *name, size_t max, const char **ret)
{
    const char *text = json_string_value(json_object_get(o, name));
    if (!text || strlen(text) > max)
        return false;
    *ret = text;
    return true;
}

static bool take_u64(const json_t *o, const char *name, uint64_t min, uint64_t max, uint64_t *ret)
{
    const json_t *v = json_object_get(o, name);
    if (!json_is_integer(v) || json_integer_value(v) < (json_int_t)min ||
        (uint64_t)json_integer_value(v) > max)
        return false;
    *ret = (uint64_t)json_integer_value(v);
    return true;
}

static bool take_u32(const json_t *o, const char *name, uint32_t min, uint32_t max, uint32_t *ret)
{
    uint64_t value;
    if (!take_u64(o, name, min, max, &value))
        return false;
    *ret = (uint32_t)value;
    return true;
}

/* Reads a group. NULL, or the name of the field that is wrong. */
static const char *take_group(const json_t *o, struct kvc_group_spec *g)
{
    const char *rule;
    const json_t *replicated = json_object_get(o, "replicated");
    unsigned i = 0;
    if (!docspec_take_text(o, "rule", KVC_STRING_MAX, &rule))
        return "groups[].rule";
    while (i < 3 && strcmp(rule, rules[i]) != 0)
        i++;
    if (i == 3)
        return "groups[].rule";
    g->rule = (enum kvc_rule)i;
    if (!json_is_boolean(replicated))
        return "groups[].replicated";
    g->replicated = json_is_true(replicated);
    if (!take_u32(o, "block_tokens", 1, KVC_BLOCK_TOKENS_MAX, &g->block_tokens))
        return "groups[].block_tokens";
    if (!take_u32(o, "block_bytes", 1, KVC_BLOCK_BYTES_MAX, &g->block_bytes))
        return "groups[].block_bytes";
    const bool window = g->rule == KVC_RULE_WINDOW;
    if (!take_u32(o, "window", window ? 1 : 0, window ? UINT32_MAX : 0, &g->window))
        return "groups[].window";
    return NULL;
}

static const char *take_groups(const json_t *array, struct kvc_ns_spec *s)
{
    const size_t n = json_array_size(array);
    if (n < 1 || n > KVC_GROUPS_MAX)
        return "groups";
    s->groups = (uint32_t)n;
    for (uint32_t i = 0; i < s->groups; i++) {
        const char *field = take_group(json_array_get(array, i), &s->group[i]);
        if (field)
            return field;
    }
    return NULL;
}

/* Reads a specification, which borrows the texts of the JSON. NULL, or the field that is wrong. */
static const char *spec_of(const json_t *o, struct kvc_ns_spec *s)
{
#define X(name)                                                                                 \
    if (!docspec_take_text(o, #name,                                                            \
                           strcmp(#name, "position_params") == 0 || strcmp(#name, "extra") == 0 \
                               ? KVC_PARAMS_MAX - 1                                             \
                               : KVC_STRING_MAX - 1,                                            \
                           &s->name))                                                           \
        return #name;
    SPEC_TEXTS(X)
#undef X
    if (!s->model[0])
        return "model";
    if (!docspec_take_text(o, "sub_tenant", KVC_STRING_MAX - 1, &s->sub_tenant))
        return "sub_tenant";
    if (!take_u32(o, "layers", 0, UINT32_MAX, &s->layers))
        return "layers";
    if (!take_u32(o, "kv_heads", 0, UINT32_MAX, &s->kv_heads))
        return "kv_heads";
    if (!take_u32(o, "head_size", 0, UINT32_MAX, &s->head_size))
        return "head_size";
    if (!take_u32(o, "shards", 1, KVC_SHARDS_MAX, &s->shards))
        return "shards";
    if (!json_is_boolean(json_object_get(o, "with_tokens")))
        return "with_tokens";
    s->with_tokens = json_is_true(json_object_get(o, "with_tokens"));
    if (!take_u64(o, "prefill_ns_per_token", 0, INT64_MAX, &s->prefill_ns_per_token))
        return "prefill_ns_per_token";
    if (!take_u64(o, "prefill_ns_per_token_pair", 0, INT64_MAX, &s->prefill_ns_per_token_pair))
        return "prefill_ns_per_token_pair";
    return take_groups(json_object_get(o, "groups"), s);
}

/* The first field of an object that is not in `known`, which ends with NULL. NULL: all are. */
static const char *other_field(json_t *o, const char *const *known)
{
    const char *name;
    json_t *value;
    json_object_foreach(o, name, value)
    {
        unsigned i = 0;
        while (known[i] && strcmp(known[i], name) != 0)
            i++;
        if (!known[i])
            return name;
    }
    return NULL;
}

const char *docfile_unknown_field(const struct docfile *doc)
{
#define X(name) #name,
    static const char *const fields[] = {SPEC_TEXTS(X) SPEC_NUMBERS(X) "sub_tenant",
                                         "with_tokens",
                                         "prefill_ns_per_token",
                                         "prefill_ns_per_token_pair",
                                         "groups",
                                         NULL};
#undef X
    static const char *const of_group[] = {"block_tokens", "block_bytes", "rule",
                                           "window",       "replicated",  NULL};
    const json_t *groups = json_object_get(doc->spec_json, "groups");
    const char *name = other_field(doc->spec_json, fields);
    for (size_t i = 0; !name && i < json_array_size(groups); i++)
        name = other_field(json_array_get(groups, i), of_group);
    return name;
}

const char *docfile_take_spec(struct docfile *doc, json_t *json)
{
    json_decref(doc->spec_json);
    doc->spec_json = json;
    doc->spec = (struct kvc_ns_spec){.model = ""};
    return json_is_object(json) ? spec_of(json, &doc->spec) : "it is no JSON object";
}

int docfile_set_spec(struct docfile *doc, const struct kvc_ns_spec *spec)
{
    json_t *json = docfile_spec_json(spec);
    if (!json)
        return -ENOMEM;
    return docfile_take_spec(doc, json) ? -EINVAL : 0;
}

/* ---- differences ---- */

struct compare {
    void (*fn)(void *ctx, const char *field, const char *of_a, const char *of_b);
    void *ctx;
    unsigned n;
};

static void text(struct compare *c, const char *field, const char *a, const char *b)
{
    if (strcmp(or_empty(a), or_empty(b)) == 0)
        return;
    c->fn(c->ctx, field, or_empty(a), or_empty(b));
    c->n++;
}

static void docspec_number(struct compare *c, const char *field, uint32_t a, uint32_t b)
{
    char of_a[16], of_b[16];
    snprintf(of_a, sizeof(of_a), "%u", a);
    snprintf(of_b, sizeof(of_b), "%u", b);
    text(c, field, of_a, of_b);
}

static void group(struct compare *c, uint32_t i, const struct kvc_group_spec *a,
                  const struct kvc_group_spec *b)
{
    char field[48];
#define FIELD(name) (snprintf(field, sizeof(field), "groups[%u]." name, i), field)
    docspec_number(c, FIELD("block_tokens"), a->block_tokens, b->block_tokens);
    docspec_number(c, FIELD("block_bytes"), a->block_bytes, b->block_bytes);
    text(c, FIELD("rule"), rules[a->rule], rules[b->rule]);
    docspec_number(c, FIELD("window"), a->window, b->window);
    docspec_number(c, FIELD("replicated"), a->replicated, b->replicated);
#undef FIELD
}

unsigned docfile_differences(const struct kvc_ns_spec *a, const struct kvc_ns_spec *b,
                             void (*fn)(void *ctx, const char *field, const char *of_a,
                                        const char *of_b),
                             void *ctx)
{
    struct compare c = {.fn = fn, .ctx = ctx};
#define X(name) text(&c, #name, a->name, b->name);
    SPEC_TEXTS(X)
#undef X
#define X(name) docspec_number(&c, #name, a->name, b->name);
    SPEC_NUMBERS(X)
#undef X
    docspec_number(&c, "groups", a->groups, b->groups);
    for (uint32_t i = 0; i < a->groups && i < b->groups; i++)
        group(&c, i, &a->group[i], &b->group[i]);
    return c.n;
}
