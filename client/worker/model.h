/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transformer of the Llama architecture (RMSNorm, RoPE, grouped-query attention, SwiGLU; Touvron
 * et al., arXiv:2302.13971, and Ainslie et al., arXiv:2305.13245): its weights, and the two ways
 * through it. Weights and sums are fp32; K and V are what the cache strategy makes of them.
 *
 * Bits      model_chunk() computes the token at position p as row p % chunk of products of `chunk`
 *           rows, whatever else is in them: its K, V and hidden state are the same bits whether the
 *           tokens before it were computed or came from a cache, and wherever a call begins.
 *           model_step() has products of one row: other bits for the same token, the same whoever
 *           else is in the call. So a token has one K and V for each of the two.
 * Threads   one caller at a time; both use the threads that model_begin() was given.
 */
#ifndef WORKER_MODEL_H
#define WORKER_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include <kvcache/attention.h>

#define MODEL_WHY_BYTES 320u
#define MODEL_MUST_USE  __attribute__((warn_unused_result))
/* The sequence is divided there for attention; see attention.h. */
#define MODEL_SPLIT_TOKENS 512u

struct kv;

struct model_config {
    char name[64];     /* the preset's, or the directory's */
    char revision[36]; /* what makes KV of another model's: a hash of all weights and of
                          config.json's numbers, or the seed */
    uint32_t layers, hidden, heads, kv_heads, head_size, inner, vocab, tokens_max;
    float norm_eps;
    double rope_theta;
    bool tied; /* the last product is with the embeddings */
};

struct model_layer {
    float *attn_norm, *q, *k, *v, *o, *ffn_norm, *gate, *up, *down;
};

struct model {
    struct model_config is;
    uint32_t chunk; /* rows of a chunk's products */
    uint32_t threads;
    float *embed, *norm, *head; /* [vocab][hidden], [hidden], [vocab][hidden] */
    struct model_layer *layer;
    float *weights; /* all of the above */
    uint64_t weight_bytes;
    struct kvc_threads *attenders;
    struct model_scratch *scratch;
};

/* What a preset is like, without weights. 0, -ENOENT with why. */
MODEL_MUST_USE int model_preset_config(const char *name, char why[MODEL_WHY_BYTES],
                                       struct model_config *ret_config);
/* "tiny", "125m", "1b", "8b" with random weights from a seed. 0, -ENOENT, -ENOMEM with why. */
MODEL_MUST_USE int model_preset(const char *name, uint64_t seed, char why[MODEL_WHY_BYTES],
                                struct model *ret_model);
/* A directory as Hugging Face's: config.json and *.safetensors (fp32, fp16, bf16). Errors say what
 * is wrong and what would be right. */
MODEL_MUST_USE int model_load(const char *dir, char why[MODEL_WHY_BYTES], struct model *ret_model);
/* Names of the presets, separated by commas. Static. */
const char *model_presets(void);

/* After one of the above: what a pass needs. chunk and threads 0: as suits the model. */
MODEL_MUST_USE int model_begin(struct model *model, uint32_t chunk, uint32_t threads,
                               char why[MODEL_WHY_BYTES]);
/* Accepts what was zero and never filled. */
void model_end(struct model *model);

/*
 * The tokens at positions first .. first + n - 1, all of one chunk (first / chunk is that of the
 * last); the cache has all before them, and has them afterwards. logits: [n][vocab], or NULL.
 * 0, or what the cache's strategy returned; -EINVAL with why when attention refuses.
 */
MODEL_MUST_USE int model_chunk(struct model *model, struct kv *kv, const uint32_t *tokens,
                               uint32_t first, uint32_t n, float *logits,
                               char why[MODEL_WHY_BYTES]);
/* The same with the logits of all of them by one product, [chunk][vocab]: those of the token at
 * position p are row p % chunk. Far quicker for many tokens, and other last bits. */
MODEL_MUST_USE int model_chunk_logits(struct model *model, struct kv *kv, const uint32_t *tokens,
                                      uint32_t first, uint32_t n, float *logits,
                                      char why[MODEL_WHY_BYTES]);
#define MODEL_SEQS_MAX 64u
/* One token of each of `seqs` sequences, at the position kv[s]->tokens. logits: [seqs][vocab]. */
MODEL_MUST_USE int model_step(struct model *model, uint32_t seqs, struct kv *const *kv,
                              const uint32_t *token, float *logits, char why[MODEL_WHY_BYTES]);
/* K and V again out of what the layer had as its input, x [n][hidden], as model_chunk() makes them:
 * k and v are [n][kv_heads][head_size]. */
void model_project(struct model *model, uint32_t layer, const float *x, uint32_t first, uint32_t n,
                   float *k, float *v);

/* For the files here: memory for the weights, and where each lies in it. -ENOMEM with why. */
MODEL_MUST_USE int model_allocate(struct model *model, char why[MODEL_WHY_BYTES]);
/* Writes why; returns error. */
__attribute__((format(printf, 3, 4))) int model_wrong(char why[MODEL_WHY_BYTES], int error,
                                                      const char *format, ...);

#endif
