/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a model decides how large its KV cache is, read from the config.json that models are
 * published with; and the arithmetic. No daemon is needed. One thread.
 */
#ifndef MODEL_KV_MODEL_H
#define MODEL_KV_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_WHY_BYTES  400
#define KV_LAYERS_MAX 1024u

enum kv_kind {
    KV_FULL,    /* attends to everything */
    KV_SLIDING, /* attends to the last `window` tokens */
    KV_STATE,   /* keeps a state of constant size instead of KV */
    KV_NONE,    /* keeps nothing of a token */
    KV_SHARED,  /* attends to the KV of another layer and keeps none */
    KV_KINDS
};

struct kv_layer {
    enum kv_kind kind;
    uint32_t window;     /* KV_SLIDING: tokens */
    uint32_t kv_heads;   /* 0 with MLA */
    uint32_t key, value; /* elements of one head */
    uint32_t side; /* bytes of a token in a cache beside KV (an indexer's keys), in any type */
};

struct kv_model {
    char name[64];    /* model_type; "model" when there is none */
    char dtype[16];   /* "bf16", ... of the KV, as the file says; "" = it does not, or see below */
    char stated[64];  /* the key that says so; "" = none */
    bool unsized;     /* `stated` says a type that has no name here: somebody must choose one */
    char inside[64];  /* where the text model is in the file: "text_config"; "" = at the top */
    uint32_t layers;  /* all of them */
    uint32_t context; /* tokens that the model was made for; 0 = the file does not say */
    uint32_t hidden;
    uint32_t latent, rope; /* MLA: elements of a token's latent and of its rotary key; else 0 */
    /* MLA: heads, and elements of all their K and V, were they kept; 0 = the file does not say */
    uint32_t expanded_heads;
    uint64_t expanded;
    struct kv_layer layer[KV_LAYERS_MAX];
};

/* A part of the model that one accelerator holds: its layers, and a share of their heads. */
struct kv_part {
    uint32_t tp; /* over how many the heads of a layer are split; what cannot be split is in each */
    uint32_t first, layers;
};
struct kv_part kv_part_whole(const struct kv_model *m);
/* Layers of stage `i` of `pp`: as even as can be, the last stages but one take one more. */
struct kv_part kv_part_stage(const struct kv_model *m, uint32_t tp, uint32_t pp, uint32_t i);
/* Whether KV heads can be split over `tp`: each layer's divide it or are divided by it. */
bool kv_model_splits(const struct kv_model *m, uint32_t tp, uint32_t *ret_heads);

uint32_t kv_model_count(const struct kv_model *m, enum kv_kind kind);
/* Layers that keep KV. */
uint32_t kv_model_caching_layers(const struct kv_model *m);
/* The i-th kind of layer that keeps KV, in the order of the layers, and how many are like it.
 * False: there are fewer. */
bool kv_model_group(const struct kv_model *m, unsigned i, const struct kv_layer **ret_layer,
                    uint32_t *ret_count);

/* Reads the text of a config.json; `name` is for messages. 0; -EBADMSG: it is no object of JSON;
 * -EINVAL: a key is not understood; -ENOMEM. `why` says it: what is wrong, and what would be right.
 * A model whose layers keep states alone is read without its heads;
 * *ret_model's `inside` is right for -EINVAL, too. */
__attribute__((warn_unused_result)) int kv_model_read(const char *name, const char *text, size_t n,
                                                      char why[KV_WHY_BYTES],
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

/* Bytes of one token in the layers of a part; exact. The form is not missing. */
uint64_t kv_token_bytes(const struct kv_model *m, enum kv_form form, const struct kv_type *type,
                        struct kv_part part);
/* Bytes that a context of `tokens` keeps there, in whole blocks: all of it in layers that attend to
 * everything, the blocks that hold the last `window` tokens in those that slide. Hidden states are
 * kept of every token in every layer. */
uint64_t kv_context_bytes(const struct kv_model *m, enum kv_form form, const struct kv_type *type,
                          uint64_t tokens, uint32_t block_tokens, struct kv_part part);

#endif
