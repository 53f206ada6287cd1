/* SPDX-License-Identifier: Apache-2.0 */
/* Namespaces: what must be equal for a block to be usable, and for whom. */
#include <stdlib.h>

#include "core__.h"

#define NS_ID_SLOT_BITS 16

/* Schemes in which a token's KV depends on nothing but the tokens up to it. */
static const char *const sound_positions[] = {"rope",       "rope-linear", "yarn",  "llama3",
                                              "longrope",   "mrope",       "alibi", "learned",
                                              "sinusoidal", "relative",    "none"};

static const char *ns_unsound(const struct core_ns_spec *s)
{
    if (strcmp(s->attention, "causal") != 0)
        return "attention must be 'causal': elsewhere later tokens change the KV of earlier ones, "
               "so a "
               "cached prefix is wrong for any other continuation";
    if (strcmp(s->position, "rerope") == 0)
        return "position 'rerope' re-embeds old positions as the sequence grows, so cached KV "
               "becomes "
               "wrong";
    if (strcmp(s->position, "dynamic-ntk") == 0)
        return "position 'dynamic-ntk' rescales the rotation of all positions as the sequence "
               "grows, so "
               "cached KV becomes wrong";
    for (size_t i = 0; i < ARRAY_LEN(sound_positions); i++)
        if (strcmp(s->position, sound_positions[i]) == 0)
            return NULL;
    return "position scheme not known to be sound for reuse; known: rope, rope-linear, yarn, "
           "llama3, "
           "longrope, mrope, alibi, learned, sinusoidal, relative, none";
}

static const char *group_fault(const struct core_group *g)
{
    if (g->block_tokens < 1 || g->block_tokens > KVC_BLOCK_TOKENS_MAX)
        return "block_tokens must be 1 to 1024";
    if (g->block_bytes < 1 || g->block_bytes > KVC_BLOCK_BYTES_MAX)
        return "block_bytes must be 1 byte to 1 GiB";
    if (g->rule > KVC_RULE_STATE)
        return "rule must be full (0), window (1) or state (2)";
    if ((g->rule == KVC_RULE_WINDOW) != (g->window > 0))
        return "window must be given, in tokens, for the window rule and for no other";
    if (g->flags & ~(uint32_t)KVC_F_REPLICATED)
        return "unknown group flag";
    return NULL;
}

static const char *ns_fault(const struct core_ns_spec *s)
{
    if (!s->model[0])
        return "model must not be empty";
    if (s->shards < 1 || s->shards > KVC_SHARDS_MAX)
        return "shards must be 1 to 64";
    if (s->ngroups < 1 || s->ngroups > KVC_GROUPS_MAX)
        return "groups must be 1 to 16";
    for (uint32_t g = 0; g < s->ngroups; g++) {
        const char *why = group_fault(&s->group[g]);
        if (why)
            return why;
    }
    return NULL;
}

static int add_text(struct sha256 *sha, uint8_t tag, const char *s)
{
    return sha256_add(sha, tag, s, strlen(s));
}

static int add_u32(struct sha256 *sha, uint8_t tag, uint32_t v)
{
    uint8_t le[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
    return sha256_add(sha, tag, le, sizeof le);
}

/* Everything that makes two namespaces different, in a fixed order. Costs do not. */
static int add_spec(struct sha256 *sha, const struct core_ns_spec *s)
{
    const char *text[] = {s->model,    s->revision,        s->dtype,     s->quant, s->layout,
                          s->position, s->position_params, s->attention, s->lora,  s->extra,
                          s->sub};
    uint32_t number[] = {s->layers, s->kv_heads, s->head_size, s->shards, s->flags, s->ngroups};
    int err = 0;
    for (size_t i = 0; !err && i < ARRAY_LEN(text); i++)
        err = add_text(sha, 0x20, text[i]);
    for (size_t i = 0; !err && i < ARRAY_LEN(number); i++)
        err = add_u32(sha, 0x21, number[i]);
    for (uint32_t g = 0; !err && g < s->ngroups; g++) {
        const struct core_group *p = &s->group[g];
        uint32_t n[] = {p->block_tokens, p->block_bytes, p->rule, p->window, p->flags};
        for (size_t i = 0; !err && i < ARRAY_LEN(n); i++)
            err = add_u32(sha, 0x22, n[i]);
    }
    return err;
}

static int ns_digest(struct core *c, const char *what, const struct core_identity *who,
                     const struct core_ns_spec *spec, struct key256 *ret)
{
    int err = sha256_begin(c->sha);
    if (!err)
        err = add_text(c->sha, 0x10, what);
    if (!err)
        err = sha256_add(c->sha, 0x11, c->cfg.secret.b, sizeof c->cfg.secret.b);
    if (!err)
        err = add_text(c->sha, 0x12, who->name);
    if (!err)
        err = add_text(c->sha, 0x13, who->tenant);
    if (!err)
        err = add_spec(c->sha, spec);
    return err ? err : sha256_end(c->sha, ret);
}

uint32_t ns_diff(const struct core_ns *a, const struct core_ns *b)
{
    const struct core_ns_spec *x = &a->spec, *y = &b->spec;
    uint32_t d = 0;
#define TEXT(FIELD, name)   d |= (uint32_t)(strcmp(x->name, y->name) != 0) << KVC_NS_FIELD_##FIELD
#define NUMBER(FIELD, name) d |= (uint32_t)(x->name != y->name) << KVC_NS_FIELD_##FIELD
    TEXT(MODEL, model);
    TEXT(REVISION, revision);
    TEXT(DTYPE, dtype);
    TEXT(QUANT, quant);
    TEXT(LAYOUT, layout);
    NUMBER(LAYERS, layers);
    NUMBER(KV_HEADS, kv_heads);
    NUMBER(HEAD_SIZE, head_size);
    TEXT(POSITION, position);
    TEXT(POSITION_PARAMS, position_params);
    TEXT(ATTENTION, attention);
    TEXT(LORA, lora);
    NUMBER(SHARDS, shards);
    TEXT(EXTRA, extra);
    TEXT(SUB_TENANT, sub);
#undef TEXT
#undef NUMBER
    bool groups = x->ngroups != y->ngroups;
    for (uint32_t g = 0; !groups && g < x->ngroups; g++) {
        const struct core_group *p = &x->group[g], *q = &y->group[g];
        groups = p->block_tokens != q->block_tokens || p->block_bytes != q->block_bytes ||
                 p->window != q->window || p->flags != q->flags || p->rule != q->rule;
    }
    return d | (uint32_t)groups << KVC_NS_FIELD_GROUPS;
}

static bool same_owner(const struct core_client *cl, const struct core_ns *ns)
{
    return ns->id && ns->principal == cl->who.principal;
}

bool ns_visible(const struct core_client *cl, const struct core_ns *ns)
{
    if (!ns->id)
        return false;
    if (cl->who.admin)
        return true;
    return same_owner(cl, ns) && (!ns->spec.sub[0] || cl->who.gateway);
}

struct core_ns *ns_by_id(struct core *c, uint32_t id)
{
    uint32_t slot = id & ((1u << NS_ID_SLOT_BITS) - 1);
    if (!id || slot >= c->cfg.namespaces_max || c->ns[slot].id != id)
        return NULL;
    return &c->ns[slot];
}

/* A free slot, or that of the namespace that was opened longest ago among those without blocks. */
static struct core_ns *ns_slot(struct core *c)
{
    struct core_ns *best = NULL;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++) {
        struct core_ns *ns = &c->ns[i];
        if (!ns->id)
            return ns;
        if (ns->records == 0 && (!best || ns->opened_ms < best->opened_ms))
            best = ns;
    }
    return best;
}

static int ns_find_or_make(struct core *c, const struct core_client *cl,
                           const struct core_ns_spec *spec, struct core_ns **ret_ns)
{
    struct key256 print, seed;
    int err = ns_digest(c, "kvcache namespace print 1", &cl->who, spec, &print);
    if (err)
        return KVC_E_INTERNAL;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++) {
        struct core_ns *ns = &c->ns[i];
        if (!ns->id || ns->principal != cl->who.principal || !key256_equal(&ns->print, &print))
            continue;
        ns->opened_ms = c->now_ms;
        ns->spec.prefill_ns_per_token = spec->prefill_ns_per_token;
        ns->spec.prefill_ns_per_token_pair = spec->prefill_ns_per_token_pair;
        *ret_ns = ns;
        return 0;
    }
    if (ns_digest(c, "kvcache namespace seed 1", &cl->who, spec, &seed))
        return KVC_E_INTERNAL;
    struct core_ns *ns = ns_slot(c);
    if (!ns)
        return KVC_E_LIMIT;
    if (!ns->id)
        c->m.namespaces++;
    uint32_t slot = (uint32_t)(ns - c->ns);
    if ((++c->ns_serial << NS_ID_SLOT_BITS) == 0)
        c->ns_serial = 1;
    *ns = (struct core_ns){.id = c->ns_serial << NS_ID_SLOT_BITS | slot,
                           .principal = cl->who.principal,
                           .tenant = cl->who.tenant,
                           .spec = *spec,
                           .print = print,
                           .seed = seed,
                           .opened_ms = c->now_ms};
    *ret_ns = ns;
    return 0;
}

static uint32_t ns_near(struct core *c, const struct core_ns *ns, struct core_near *near)
{
    uint32_t n = 0;
    for (uint32_t i = 0; n < 4 && i < c->cfg.namespaces_max; i++) {
        const struct core_ns *o = &c->ns[i];
        if (o == ns || !o->id || o->principal != ns->principal)
            continue;
        uint32_t fields = ns_diff(ns, o);
        if (fields & (1u << KVC_NS_FIELD_MODEL | 1u << KVC_NS_FIELD_SUB_TENANT))
            continue;
        near[n++] = (struct core_near){.ns = o->id, .fields = fields};
    }
    return n;
}

int core_ns_open(struct core *c, struct core_client *cl, const struct core_ns_spec *spec,
                 struct core_ns **ret_ns, struct core_near *ret_near, uint32_t *ret_nnear,
                 const char **ret_why)
{
    if ((*ret_why = ns_fault(spec)))
        return KVC_E_BAD_ARGUMENT;
    if ((*ret_why = ns_unsound(spec)))
        return KVC_E_UNSOUND;
    if (spec->sub[0] && !cl->who.gateway) {
        *ret_why = "only a gateway session may name a sub-tenant (principals: gateway: true)";
        return KVC_E_DENIED;
    }
    const struct tier *host = c->cfg.host;
    for (uint32_t g = 0; g < spec->ngroups; g++) {
        if (host->ops->slot_bytes(host, spec->group[g].block_bytes) != 0)
            continue;
        *ret_why = "block_bytes is larger than a chunk of the host tier can hold (host.chunk)";
        return KVC_E_TOO_LARGE;
    }
    struct core_ns *ns;
    int err = ns_find_or_make(c, cl, spec, &ns);
    if (err) {
        if (err == KVC_E_LIMIT)
            *ret_why = "every namespace slot holds blocks (limits.namespaces); evict one first";
        return err;
    }
    *ret_nnear = ns_near(c, ns, ret_near);
    *ret_ns = ns;
    return 0;
}

/* The namespace that differs from `base` in its sub-tenant alone; no digest in the common case. */
static int ns_of_sub(struct core *c, const struct core_client *cl, const struct core_ns *base,
                     const char *sub, struct core_ns **ret_ns)
{
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++) {
        struct core_ns *ns = &c->ns[i];
        if (!same_owner(cl, ns) || strcmp(ns->spec.sub, sub) != 0)
            continue;
        if (ns->spec.flags != base->spec.flags)
            continue;
        if (ns_diff(ns, base) & ~(1u << KVC_NS_FIELD_SUB_TENANT))
            continue;
        *ret_ns = ns;
        return 0;
    }
    struct core_ns_spec spec = base->spec;
    memcpy(spec.sub, sub, sizeof spec.sub);
    return ns_find_or_make(c, cl, &spec, ret_ns);
}

int core_ns_get(struct core *c, struct core_client *cl, uint32_t id, const uint8_t *sub,
                uint32_t sub_bytes, struct core_ns **ret_ns)
{
    struct core_ns *ns = ns_by_id(c, id);
    if (!ns || !same_owner(cl, ns))
        return KVC_E_NO_NAMESPACE;
    if ((sub_bytes > 0 || ns->spec.sub[0]) && !cl->who.gateway)
        return KVC_E_DENIED;
    if (sub_bytes == 0) {
        *ret_ns = ns;
        return 0;
    }
    char name[KVC_STRING_MAX] = "";
    if (sub_bytes >= sizeof name || memchr(sub, 0, sub_bytes))
        return KVC_E_BAD_ARGUMENT;
    memcpy(name, sub, sub_bytes);
    if (strcmp(ns->spec.sub, name) == 0) {
        *ret_ns = ns;
        return 0;
    }
    return ns_of_sub(c, cl, ns, name, ret_ns);
}

bool core_ns_exists(struct core *c, const struct core_client *cl, uint32_t id)
{
    const struct core_ns *ns = ns_by_id(c, id);
    return ns && ns_visible(cl, ns);
}

struct core_ns *core_ns_next(struct core *c, struct core_client *cl, uint32_t after)
{
    struct core_ns *best = NULL;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++) {
        struct core_ns *ns = &c->ns[i];
        if (ns->id > after && ns_visible(cl, ns) && (!best || ns->id < best->id))
            best = ns;
    }
    return best;
}

void core_ns_view(const struct core_ns *ns, struct core_ns_view *ret_view)
{
    *ret_view = (struct core_ns_view){.id = ns->id,
                                      .principal = ns->principal,
                                      .tenant = ns->tenant,
                                      .spec = &ns->spec,
                                      .seed = &ns->seed,
                                      .blocks = ns->blocks,
                                      .bytes = ns->bytes};
}
