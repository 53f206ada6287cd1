/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transformer of the Llama architecture (RMSNorm, RoPE, grouped-query attention, SwiGLU; Touvron
 * et al., arXiv:2302.13971, and Ainslie et al., arXiv:2305.13245): its weights, and the two ways
 * to compute tokens. Weights and sums are fp32; the cache strategy chooses the types of K and V.
 *
 * Bits      model_chunk() computes the token at position p as row p % chunk of matrix products of
 *           `chunk` rows, whatever the other rows hold. So its K, V and hidden state have the same
 *           bits whether the tokens before it were computed or came from a cache, and wherever a
 *           call begins. model_step() computes products of one row. Its bits differ from those of
 *           model_chunk(), and do not depend on the other sequences of the call.
 * Threads   one caller at a time; both functions use the threads that model_begin() made.
 */
#ifndef WORKER_MODEL_H
#define WORKER_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include <kvcache/attention.h>

#define MODEL_WHY_BYTES 320u
#define MODEL_MUST_USE  __attribute__((warn_unused_result))
/* Attention divides a sequence into parts of so many tokens; see attention.h. */
#define MODEL_SPLIT_TOKENS 512u

struct kv;

struct model_config {
    char name[64];     /* the preset's, or the directory's */
    char revision[36]; /* equal only for models whose KV is equal: a hash of all weights and of the
                          numbers in config.json, or of a preset the seed */
    uint32_t layers, hidden, heads, kv_heads, head_size, inner, vocab, tokens_max;
    float norm_eps;
    double rope_theta;
    bool tied; /* the embeddings are the weights of the last product, too */
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

/* The configuration of a preset, without weights. 0; -ENOENT: no such preset, with `why`. */
MODEL_MUST_USE int model_preset_config(const char *name, char why[MODEL_WHY_BYTES],
                                       struct model_config *ret_config);
/* Makes a preset ("tiny", "125m", "1b", "8b") with random weights from a seed. 0; -ENOENT, -ENOMEM
 * with `why`. */
MODEL_MUST_USE int model_preset(const char *name, uint64_t seed, char why[MODEL_WHY_BYTES],
                                struct model *ret_model);
/* Loads a directory in Hugging Face's form: config.json and *.safetensors (fp32, fp16, bf16). After
 * an error `why` says what is wrong and what would be right. */
MODEL_MUST_USE int model_load(const char *dir, char why[MODEL_WHY_BYTES], struct model *ret_model);
/* Names of the presets, separated by commas. Static. */
const char *model_presets(void);

/* Call it after one of the above, before the first pass: makes threads and memory for a pass. chunk
 * 0, threads 0: the function chooses. */
MODEL_MUST_USE int model_begin(struct model *model, uint32_t chunk, uint32_t threads,
                               char why[MODEL_WHY_BYTES]);
/* Frees all memory. Accepts a struct that is all zero. */
void model_end(struct model *model);

/*
 * Computes the tokens at positions first .. first + n - 1, which all belong to one chunk (position
 * / chunk is equal for all). The cache has all tokens before them, and has them too afterwards.
 * logits: [n][vocab], or NULL. 0, or an error of the cache's strategy; -EINVAL with `why`:
 * attention refuses.
 */
MODEL_MUST_USE int model_chunk(struct model *model, struct kv *kv, const uint32_t *tokens,
                               uint32_t first, uint32_t n, float *logits,
                               char why[MODEL_WHY_BYTES]);
/* The same, but one product computes all logits, [chunk][vocab]; row p % chunk is of the token at
 * position p. Far quicker for many tokens. The last bits of the logits differ. */
MODEL_MUST_USE int model_chunk_logits(struct model *model, struct kv *kv, const uint32_t *tokens,
                                      uint32_t first, uint32_t n, float *logits,
                                      char why[MODEL_WHY_BYTES]);
#define MODEL_SEQS_MAX 64u
/* Computes one token for each of `seqs` sequences, at position kv[s]->tokens. logits:
 * [seqs][vocab]. */
MODEL_MUST_USE int model_step(struct model *model, uint32_t seqs, struct kv *const *kv,
                              const uint32_t *token, float *logits, char why[MODEL_WHY_BYTES]);
/* Computes K and V, [n][kv_heads][head_size], from a layer's input x, [n][hidden], with the same
 * bits as model_chunk(). */
void model_project(struct model *model, uint32_t layer, const float *x, uint32_t first, uint32_t n,
                   float *k, float *v);

/* For the files that load models: allocates the memory for all weights, and sets the pointers of
 * each into it. -ENOMEM with `why`. */
MODEL_MUST_USE int model_allocate(struct model *model, char why[MODEL_WHY_BYTES]);
/* Writes the text to `why`; returns `error`. */
__attribute__((format(printf, 3, 4))) int model_wrong(char why[MODEL_WHY_BYTES], int error,
                                                      const char *format, ...);

#endif
