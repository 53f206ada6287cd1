/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a model decides how large its KV cache is, read from the config.json that models are
 * published with; and the arithmetic. No daemon is needed. One thread.
 */
#ifndef CTL_KV_MODEL_H
#define CTL_KV_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_WHY_BYTES 400

struct kv_model {
    char name[64];    /* model_type; "model" when there is none */
    char dtype[16];   /* "bf16", ... as the file says; "" = it does not */
    uint32_t layers;  /* all of them */
    uint32_t full;    /* of them, those that attend to everything */
    uint32_t sliding; /* that attend to the last `window` tokens */
    uint32_t linear;  /* that keep a state of constant size instead of KV */
    uint32_t plain;   /* that keep nothing of a token */
    uint32_t window;
    uint32_t kv_heads, head_size, hidden;
    uint32_t latent, rope; /* MLA: elements of a token's latent and of its rotary key; else 0 */
    /* MLA: heads, and elements of all their K and V, were they kept; 0 = the file does not say */
    uint32_t expanded_heads;
    uint64_t expanded;
};

/* 0; -EINVAL or an errno of opening the file, with `why` naming the field and what would be right.
 */
__attribute__((warn_unused_result)) int kv_model_load(const char *path, char why[KV_WHY_BYTES],
                                                      struct kv_model *ret_model);

/* How an element is kept. Those below 16 bits with a scale have one per vector (a head's K or V of
 * one token, a latent, a hidden state). */
struct kv_type {
    const char *name;
    uint32_t bits;
    uint32_t scale_bytes;
};
const struct kv_type *kv_type_at(unsigned i); /* NULL behind the last */
const struct kv_type *kv_type_find(const char *name);

/* What may be kept of a token to save computing it again. */
enum kv_form {
    KV_FORM_KV,
    KV_FORM_EXPANDED,
    KV_FORM_LATENT,
    KV_FORM_ABSORBED,
    KV_FORM_HIDDEN,
    KV_FORM_COUNT
};
const char *kv_form_name(enum kv_form form);
/* NULL, or why this model has no such form. */
const char *kv_form_missing(const struct kv_model *m, enum kv_form form);
/* "2·n·d·L·H·b = 2·1·128·32·8·2"; for a missing form "-". */
void kv_form_formula(const struct kv_model *m, enum kv_form form, const struct kv_type *type,
                     char *text, size_t cap);

/* Bytes of one token in `layers` layers; exact. The form is not missing. */
uint64_t kv_token_bytes(const struct kv_model *m, enum kv_form form, const struct kv_type *type,
                        uint32_t layers);
/* Bytes that a context of `tokens` keeps, in whole blocks: all of it in layers that attend to
 * everything, the blocks that hold the last `window` tokens in those that slide. Hidden states are
 * kept of every token in every layer. */
uint64_t kv_context_bytes(const struct kv_model *m, enum kv_form form, const struct kv_type *type,
                          uint64_t tokens, uint32_t block_tokens);

#endif
