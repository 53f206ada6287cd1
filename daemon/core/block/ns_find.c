/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds a namespace by id or print, says who may see it, and in which fields two of them differ.
 * serve/ns.c makes them.
 */
#include "block.h"

struct core_ns *ns_by_id(struct core *c, uint32_t id)
{
    uint32_t slot = id & ((1u << NS_ID_SLOT_BITS) - 1);
    if (!id || slot >= c->cfg.namespaces_max || c->ns[slot].id != id)
        return NULL;
    return &c->ns[slot];
}

struct core_ns *ns_by_print(struct core *c, uint64_t short_print)
{
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++)
        if (c->ns[i].id && c->ns[i].short_print == short_print)
            return &c->ns[i];
    return NULL;
}

bool ns_visible(const struct core_client *cl, const struct core_ns *ns)
{
    if (!ns->id)
        return false;
    if (cl->who.admin)
        return true;
    return ns_is_of(cl, ns) && (!ns->spec.sub[0] || cl->who.gateway);
}

bool ns_is_sibling(const struct core_ns *ns, const struct core_ns *o)
{
    return o != ns && o->id && o->principal == ns->principal &&
           strcmp(o->spec.model, ns->spec.model) == 0 && strcmp(o->spec.sub, ns->spec.sub) == 0;
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
    NUMBER(TOKENS, flags);
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
