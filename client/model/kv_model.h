/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large a model's KV cache is: reads the shape of the model from the config.json that models
 * are published with, and computes sizes from it. Needs no daemon. One thread.
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
    /* Bytes of a token in a second cache beside KV (an indexer's keys); the type of KV does not
     * change them. */
    uint32_t side;
};

struct kv_model {
    char name[64];    /* model_type; "model" when there is none */
    char dtype[16];   /* type of the KV by the file ("bf16", ...); "" = the file names none, or
                         `unsized` */
    char stated[64];  /* the key in the file that names the type; "" = none */
    bool unsized;     /* the type that `stated` names is unknown here: the user must choose one */
    char inside[64];  /* key of the text model's part of the file ("text_config"); "" = the top */
    uint32_t layers;  /* all layers */
    uint32_t context; /* tokens that the model was made for; 0 = the file does not say */
    uint32_t hidden;
    uint32_t latent, rope; /* MLA: elements of a token's latent and of its rotary key; else 0 */
    /* MLA: number of heads, and of elements of a token's K and V in all heads, which MLA does not
     * keep; 0 = the file does not say. */
    uint32_t expanded_heads;
    uint64_t expanded;
    struct kv_layer layer[KV_LAYERS_MAX];
};

/* The part of a model that one accelerator has: some layers, and a share of their heads. */
struct kv_part {
    /* The heads of a layer are split over so many accelerators; parts of a layer that cannot be
     * split are on each. */
    uint32_t tp;
    uint32_t first, layers; /* layers first .. first + layers - 1 */
};
struct kv_part kv_part_whole(const struct kv_model *m);
/* The layers of stage `i` of `pp` stages. All stages have equally many layers; layers that are left
 * over go to the stages just before the last one, one each. */
struct kv_part kv_part_stage(const struct kv_model *m, uint32_t tp, uint32_t pp, uint32_t i);
/* Whether KV heads can be split over `tp`: for each layer one of the two numbers divides the other.
 * Else *ret_heads is the number of heads that cannot be split. */
bool kv_model_splits(const struct kv_model *m, uint32_t tp, uint32_t *ret_heads);

/* How many layers are of this kind. */
uint32_t kv_model_count(const struct kv_model *m, enum kv_kind kind);
/* How many layers keep KV. */
uint32_t kv_model_caching_layers(const struct kv_model *m);
/* The layers that keep KV fall into groups of equal layers. Returns a layer of the i-th group, in
 * the order of the layers, and how many layers the group has. False: there are fewer groups. */
bool kv_model_group(const struct kv_model *m, unsigned i, const struct kv_layer **ret_layer,
                    uint32_t *ret_count);

/* Reads the text of a config.json; `name` is for messages. 0; -EBADMSG: it is not a JSON object;
 * -EINVAL: a key is not understood; -ENOMEM. `why` says what is wrong and what would be right. For
 * a model whose layers all keep states, the heads are not read. ret_model->inside is valid after
 * -EINVAL, too. */
__attribute__((warn_unused_result)) int kv_model_read(const char *name, const char *text, size_t n,
                                                      char why[KV_WHY_BYTES],
                                                      struct kv_model *ret_model);

/* The type of an element of KV. A type with scales has one scale for each vector (a head's K or V
 * of one token, a latent, a hidden state). */
struct kv_type {
    const char *name;
    uint32_t bits;
    uint32_t scale_bytes;
};
const struct kv_type *kv_type_at(unsigned i); /* NULL: there are not so many */
const struct kv_type *kv_type_find(const char *name);

/* The forms in which a cache can keep a token, so that it is not computed again. */
enum kv_form {
    KV_FORM_KV,
    KV_FORM_EXPANDED,
    KV_FORM_LATENT,
    KV_FORM_ABSORBED,
    KV_FORM_HIDDEN,
    KV_FORM_COUNT
};
const char *kv_form_name(enum kv_form form);
/* NULL: the model has this form; else a text that says why not. */
const char *kv_form_missing(const struct kv_model *m, enum kv_form form);
/* Writes the formula of a token's size, "2·n·d·L·H·b = 2·1·128·32·8·2"; "-" for a missing form. */
void kv_form_formula(const struct kv_model *m, enum kv_form form, const struct kv_type *type,
                     char *text, size_t cap);

/* Exact bytes of one token in the layers of a part. The model must have the form. */
uint64_t kv_token_bytes(const struct kv_model *m, enum kv_form form, const struct kv_type *type,
                        struct kv_part part);
/* Bytes of a context of `tokens` tokens in the layers of a part, in whole blocks. A layer of full
 * attention keeps all blocks, a sliding one those of the last `window` tokens. Hidden states are
 * kept for every token in every layer. */
uint64_t kv_context_bytes(const struct kv_model *m, enum kv_form form, const struct kv_type *type,
                          uint64_t tokens, uint32_t block_tokens, struct kv_part part);

#endif
