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

const char *kv_form_missing(const struct kv_model *m, enum kv_form form)
{
    if (form != KV_FORM_HIDDEN && m->full + m->sliding == 0)
        return "no layer attends, so none keeps KV";
    if (form == KV_FORM_LATENT && !m->latent)
        return "no MLA: there is no kv_lora_rank";
    if (form == KV_FORM_ABSORBED && !m->latent && (uint64_t)m->kv_heads * m->head_size < m->hidden)
        return "V cannot be had from K: H·d is below hidden_size";
    if (form == KV_FORM_EXPANDED && !m->latent)
        return "no MLA: K+V is what there is";
    if (form == KV_FORM_EXPANDED && !m->expanded)
        return "the file lacks num_attention_heads, qk_nope_head_dim or v_head_dim";
    if (form == KV_FORM_KV && m->latent)
        return "MLA: attention reads the latents";
    return NULL;
}

/* Elements and vectors (each with a scale, where there is one) of one token in one layer. */
static void shape(const struct kv_model *m, enum kv_form form, uint64_t *ret_elements,
                  uint64_t *ret_vectors)
{
    bool latent = form == KV_FORM_LATENT || (form == KV_FORM_ABSORBED && m->latent);
    uint64_t heads = (uint64_t)m->kv_heads * m->head_size;
    if (form == KV_FORM_HIDDEN)
        *ret_elements = m->hidden;
    else if (form == KV_FORM_EXPANDED)
        *ret_elements = m->expanded;
    else if (latent)
        *ret_elements = (uint64_t)m->latent + m->rope;
    else
        *ret_elements = form == KV_FORM_KV ? 2 * heads : heads;
    if (form == KV_FORM_HIDDEN || latent)
        *ret_vectors = 1;
    else if (form == KV_FORM_EXPANDED)
        *ret_vectors = 2 * (uint64_t)m->expanded_heads;
    else
        *ret_vectors = form == KV_FORM_KV ? 2 * (uint64_t)m->kv_heads : m->kv_heads;
}

uint64_t kv_token_bytes(const struct kv_model *m, enum kv_form form, const struct kv_type *type,
                        uint32_t layers)
{
    uint64_t elements, vectors;
    shape(m, form, &elements, &vectors);
    return layers * ((elements * type->bits + 7) / 8 + vectors * type->scale_bytes);
}

uint64_t kv_context_bytes(const struct kv_model *m, enum kv_form form, const struct kv_type *type,
                          uint64_t tokens, uint32_t block_tokens)
{
    uint64_t all = (tokens + block_tokens - 1) / block_tokens;
    uint64_t outside = tokens > m->window ? (tokens - m->window) / block_tokens : 0;
    if (form == KV_FORM_HIDDEN)
        return all * block_tokens * kv_token_bytes(m, form, type, m->layers);
    return block_tokens * (all * kv_token_bytes(m, form, type, m->full) +
                           (all - outside) * kv_token_bytes(m, form, type, m->sliding));
}

/* "·2" for a whole number of bytes, "·0.5" for half a byte. */
static void bytes_text(const struct kv_type *type, char text[16])
{
    if (type->bits % 8)
        snprintf(text, 16, "0.%u", type->bits * 1000 / 8 / 100);
    else
        snprintf(text, 16, "%u", type->bits / 8);
}

void kv_form_formula(const struct kv_model *m, enum kv_form form, const struct kv_type *type,
                     char *text, size_t cap)
{
    char b[16], scales[48] = "", numbers[64] = "";
    uint32_t layers = form == KV_FORM_HIDDEN ? m->layers : m->full + m->sliding;
    uint64_t elements, vectors;
    if (kv_form_missing(m, form)) {
        snprintf(text, cap, "-");
        return;
    }
    shape(m, form, &elements, &vectors);
    bytes_text(type, b);
    if (type->scale_bytes) {
        snprintf(scales, sizeof(scales), " + %s%s·s",
                 form == KV_FORM_KV || form == KV_FORM_EXPANDED ? "2·n·L·H" : "n·L",
                 form == KV_FORM_ABSORBED && !m->latent ? "·H" : "");
        snprintf(numbers, sizeof(numbers), " + %llu·%u·%u", (unsigned long long)vectors, layers,
                 type->scale_bytes);
    }
    if (form == KV_FORM_KV)
        snprintf(text, cap, "2·n·d·L·H·b%s = 2·1·%u·%u·%u·%s%s", scales, m->head_size, layers,
                 m->kv_heads, b, numbers);
    else if (form == KV_FORM_EXPANDED)
        snprintf(text, cap, "n·H·(k+v)·L·b%s = 1·%u·%llu·%u·%s%s", scales, m->expanded_heads,
                 (unsigned long long)(m->expanded / m->expanded_heads), layers, b, numbers);
    else if (form == KV_FORM_HIDDEN)
        snprintf(text, cap, "n·h·L·b%s = 1·%u·%u·%s%s", scales, m->hidden, layers, b, numbers);
    else if (m->latent)
        snprintf(text, cap, "n·(r+q)·L·b%s = 1·(%u+%u)·%u·%s%s", scales, m->latent, m->rope, layers,
                 b, numbers);
    else
        snprintf(text, cap, "n·d·L·H·b%s = 1·%u·%u·%u·%s%s", scales, m->head_size, layers,
                 m->kv_heads, b, numbers);
}
