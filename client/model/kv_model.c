/* SPDX-License-Identifier: Apache-2.0 */
#include "kv_model.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct kv_type types[] = {
    {"fp32", 32, 0}, {"bf16", 16, 0}, {"fp16", 16, 0},
    {"fp8", 8, 0},   {"int8", 8, 2},  {"int4", 4, 2},
};

const struct kv_type *kv_type_at(unsigned i)
{
    return i < sizeof(types) / sizeof(types[0]) ? &types[i] : NULL;
}

const struct kv_type *kv_type_find(const char *name)
{
    for (unsigned i = 0; kv_type_at(i); i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

const char *kv_form_name(enum kv_form form)
{
    static const char *const names[KV_FORM_COUNT] = {"K+V", "expanded K+V", "MLA latents",
                                                     "absorbed K", "hidden states"};
    return names[form];
}

/* ---- layers ---- */

static bool layer_keeps(const struct kv_layer *l)
{
    return l->kind == KV_FULL || l->kind == KV_SLIDING;
}

static bool layer_like(const struct kv_layer *a, const struct kv_layer *b)
{
    return a->kind == b->kind && a->window == b->window && a->kv_heads == b->kv_heads &&
           a->key == b->key && a->value == b->value && a->side == b->side;
}

uint32_t kv_model_count(const struct kv_model *m, enum kv_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->layers; i++)
        n += m->layer[i].kind == kind;
    return n;
}

uint32_t kv_model_caching_layers(const struct kv_model *m)
{
    return kv_model_count(m, KV_FULL) + kv_model_count(m, KV_SLIDING);
}

/* The first layer from `from` on that keeps KV and differs from all layers before it; `layers` if
 * there is none. */
static uint32_t group_next(const struct kv_model *m, uint32_t from)
{
    for (uint32_t i = from; i < m->layers; i++) {
        bool seen = !layer_keeps(&m->layer[i]);
        for (uint32_t j = 0; j < i && !seen; j++)
            seen = layer_like(&m->layer[i], &m->layer[j]);
        if (!seen)
            return i;
    }
    return m->layers;
}

bool kv_model_group(const struct kv_model *m, unsigned i, const struct kv_layer **ret_layer,
                    uint32_t *ret_count)
{
    uint32_t at = group_next(m, 0);
    while (i-- && at < m->layers)
        at = group_next(m, at + 1);
    if (at == m->layers)
        return false;
    *ret_layer = &m->layer[at];
    *ret_count = 0;
    for (uint32_t j = 0; j < m->layers; j++)
        *ret_count += layer_like(&m->layer[j], &m->layer[at]);
    return true;
}

static bool is_uniform(const struct kv_model *m)
{
    const struct kv_layer *first, *l;
    uint32_t n;
    if (!kv_model_group(m, 0, &first, &n))
        return true;
    for (unsigned i = 0; kv_model_group(m, i, &l, &n); i++)
        if (l->kv_heads != first->kv_heads || l->key != first->key || l->value != first->value)
            return false;
    return true;
}

/* ---- parts ---- */

struct kv_part kv_part_whole(const struct kv_model *m)
{
    return (struct kv_part){.tp = 1, .layers = m->layers};
}

struct kv_part kv_part_stage(const struct kv_model *m, uint32_t tp, uint32_t pp, uint32_t i)
{
    struct kv_part part = {.tp = tp};
    uint32_t rest = m->layers % pp;
    for (uint32_t j = 0; j <= i; j++) {
        part.first += part.layers;
        part.layers = m->layers / pp + (j + 1 + rest >= pp && j + 1 < pp);
    }
    return part;
}

bool kv_model_splits(const struct kv_model *m, uint32_t tp, uint32_t *ret_heads)
{
    const struct kv_layer *l;
    uint32_t n;
    for (unsigned i = 0; kv_model_group(m, i, &l, &n); i++) {
        *ret_heads = l->kv_heads ? l->kv_heads : m->expanded_heads;
        if (*ret_heads && *ret_heads % tp && tp % *ret_heads)
            return false;
    }
    return true;
}

static uint32_t share(uint32_t heads, uint32_t tp)
{
    return heads > tp ? heads / tp : 1;
}

/* ---- forms ---- */

const char *kv_form_missing(const struct kv_model *m, enum kv_form form)
{
    const struct kv_layer *l = NULL;
    uint32_t n;
    if (form != KV_FORM_HIDDEN && !kv_model_group(m, 0, &l, &n))
        return "no layer attends, so none keeps KV";
    if (form == KV_FORM_LATENT && !m->latent)
        return "no MLA: there is no kv_lora_rank";
    if (form == KV_FORM_ABSORBED && !m->latent && !is_uniform(m))
        return "layers differ in their heads";
    if (form == KV_FORM_ABSORBED && !m->latent && (uint64_t)l->kv_heads * l->key < m->hidden)
        return "V cannot be had from K: H·d is below hidden_size";
    if (form == KV_FORM_EXPANDED && !m->latent)
        return "no MLA: K+V is what there is";
    if (form == KV_FORM_EXPANDED && !m->expanded)
        return "the file lacks num_attention_heads, qk_nope_head_dim or v_head_dim";
    if (form == KV_FORM_KV && m->latent)
        return "MLA: attention reads the latents";
    return NULL;
}

/* Counts the elements that one layer keeps of one token, and the vectors that they form; each
 * vector has a scale, if the type has scales. */
static void shape(const struct kv_model *m, enum kv_form form, const struct kv_layer *l,
                  uint32_t tp, uint64_t *ret_elements, uint64_t *ret_vectors)
{
    uint32_t heads = share(l->kv_heads, tp), expanded = share(m->expanded_heads, tp);
    if (form == KV_FORM_HIDDEN) {
        *ret_elements = m->hidden;
        *ret_vectors = 1;
    } else if (form == KV_FORM_EXPANDED) {
        *ret_elements = m->expanded / m->expanded_heads * expanded;
        *ret_vectors = 2 * (uint64_t)expanded;
    } else if (m->latent) {
        *ret_elements = (uint64_t)m->latent + m->rope;
        *ret_vectors = 1;
    } else if (form == KV_FORM_KV) {
        *ret_elements = (uint64_t)heads * ((uint64_t)l->key + l->value);
        *ret_vectors = 2 * (uint64_t)heads;
    } else {
        *ret_elements = (uint64_t)heads * l->key;
        *ret_vectors = heads;
    }
}

/* Bytes of one token in layer `i`. */
static uint64_t layer_bytes(const struct kv_model *m, enum kv_form form, const struct kv_type *type,
                            uint32_t tp, uint32_t i)
{
    const struct kv_layer *l = &m->layer[i];
    uint64_t elements, vectors;
    if (form != KV_FORM_HIDDEN && !layer_keeps(l))
        return 0;
    shape(m, form, l, tp, &elements, &vectors);
    return (elements * type->bits + 7) / 8 + vectors * type->scale_bytes +
           (form == KV_FORM_HIDDEN ? 0 : l->side);
}

uint64_t kv_token_bytes(const struct kv_model *m, enum kv_form form, const struct kv_type *type,
                        struct kv_part part)
{
    uint64_t sum = 0;
    for (uint32_t i = part.first; i < part.first + part.layers; i++)
        sum += layer_bytes(m, form, type, part.tp, i);
    return sum;
}

uint64_t kv_context_bytes(const struct kv_model *m, enum kv_form form, const struct kv_type *type,
                          uint64_t tokens, uint32_t block_tokens, struct kv_part part)
{
    uint64_t all = (tokens + block_tokens - 1) / block_tokens, sum = 0;
    for (uint32_t i = part.first; i < part.first + part.layers; i++) {
        const struct kv_layer *l = &m->layer[i];
        uint64_t outside = 0;
        if (form != KV_FORM_HIDDEN && l->kind == KV_SLIDING && tokens > l->window)
            outside = (tokens - l->window) / block_tokens;
        sum += block_tokens * (all - outside) * layer_bytes(m, form, type, part.tp, i);
    }
    return sum;
}

/* ---- formulas ---- */

/* "·2" for a whole number of bytes, "·0.5" for half a byte. */
static void bytes_text(const struct kv_type *type, char text[16])
{
    if (type->bits % 8)
        snprintf(text, 16, "0.%u", type->bits * 1000 / 8 / 100);
    else
        snprintf(text, 16, "%u", type->bits / 8);
}

/* Bytes of a token that the indexers of all layers keep. */
static uint64_t side_bytes(const struct kv_model *m)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < m->layers; i++)
        sum += m->layer[i].side;
    return sum;
}

/* If layers differ: a sum over the kinds of layers, or, where that would be long, the number of
 * bytes. */
static void formula_sum(const struct kv_model *m, const struct kv_type *type, char *text,
                        size_t cap)
{
    const struct kv_layer *l;
    char b[16];
    uint32_t n;
    int at = snprintf(text, cap, "n·Σ L·H·(k+v)·b%s = 1·(", type->scale_bytes ? " + scales" : "");
    bytes_text(type, b);
    for (unsigned i = 0; kv_model_group(m, i, &l, &n); i++) {
        if (i >= 4) {
            snprintf(text, cap, "n·Σ L·H·(k+v)·b = %llu",
                     (unsigned long long)kv_token_bytes(m, KV_FORM_KV, type, kv_part_whole(m)));
            return;
        }
        at += snprintf(text + at, cap - (size_t)at, "%s%u·%u·%u", i ? " + " : "", n, l->kv_heads,
                       l->key + l->value);
    }
    snprintf(text + at, cap - (size_t)at, ")·%s", b);
}

/* If K and V have one size in all layers. */
static void formula_kv(const struct kv_layer *l, uint32_t layers, const char *scales, const char *b,
                       const char *numbers, char *text, size_t cap)
{
    if (l->key == l->value)
        snprintf(text, cap, "2·n·d·L·H·b%s = 2·1·%u·%u·%u·%s%s", scales, l->key, layers,
                 l->kv_heads, b, numbers);
    else
        snprintf(text, cap, "n·(k+v)·L·H·b%s = 1·(%u+%u)·%u·%u·%s%s", scales, l->key, l->value,
                 layers, l->kv_heads, b, numbers);
}

static void formula_of(const struct kv_model *m, enum kv_form form, const struct kv_type *type,
                       char *text, size_t cap)
{
    char b[16], scales[48] = "", numbers[64] = "";
    uint32_t layers = form == KV_FORM_HIDDEN ? m->layers : kv_model_caching_layers(m), n;
    const struct kv_layer *l = &m->layer[0];
    uint64_t elements, vectors;
    (void)kv_model_group(m, 0, &l, &n);
    shape(m, form, l, 1, &elements, &vectors);
    bytes_text(type, b);
    if (type->scale_bytes) {
        snprintf(scales, sizeof(scales), " + %s%s·s",
                 form == KV_FORM_KV || form == KV_FORM_EXPANDED ? "2·n·L·H" : "n·L",
                 form == KV_FORM_ABSORBED && !m->latent ? "·H" : "");
        snprintf(numbers, sizeof(numbers), " + %llu·%u·%u", (unsigned long long)vectors, layers,
                 type->scale_bytes);
    }
    if (form == KV_FORM_KV)
        formula_kv(l, layers, scales, b, numbers, text, cap);
    else if (form == KV_FORM_EXPANDED)
        snprintf(text, cap, "n·H·(k+v)·L·b%s = 1·%u·%llu·%u·%s%s", scales, m->expanded_heads,
                 (unsigned long long)(m->expanded / m->expanded_heads), layers, b, numbers);
    else if (form == KV_FORM_HIDDEN)
        snprintf(text, cap, "n·h·L·b%s = 1·%u·%u·%s%s", scales, m->hidden, layers, b, numbers);
    else if (m->latent)
        snprintf(text, cap, "n·(r+q)·L·b%s = 1·(%u+%u)·%u·%s%s", scales, m->latent, m->rope, layers,
                 b, numbers);
    else
        snprintf(text, cap, "n·d·L·H·b%s = 1·%u·%u·%u·%s%s", scales, l->key, layers, l->kv_heads, b,
                 numbers);
}

void kv_form_formula(const struct kv_model *m, enum kv_form form, const struct kv_type *type,
                     char *text, size_t cap)
{
    uint64_t side = form == KV_FORM_HIDDEN ? 0 : side_bytes(m);
    if (kv_form_missing(m, form)) {
        snprintf(text, cap, "-");
        return;
    }
    if (form == KV_FORM_KV && !is_uniform(m))
        formula_sum(m, type, text, cap);
    else
        formula_of(m, form, type, text, cap);
    size_t at = strlen(text);
    if (side)
        snprintf(text + at, cap - at, " + index keys %llu", (unsigned long long)side);
}
