/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses keys that may change the size and that no file here reads: a wrong size is worse than
 * none. */
#include <jansson.h>
#include <string.h>

#include "kv_read.h"

/* A key whose name contains one of these may change what attends to what, or what is kept. */
static const char *const suspicious[] = {
    "attn",    "attention", "head",   "kv",      "key_value", "layer", "window", "cache",
    "index",   "share",     "hybrid", "pattern", "latent",    "block", "chunk",  "cross",
    "encoder", "local",     "global", "swa",     "sparse",    "recur", "memory", "loop",
    "stack",   "compress",  "mla",    "cla",     "sliding",   "pool",  "reuse",
};

/* A key whose name contains one of these is about something else: norms, rotation, experts, states,
 * training. */
static const char *const harmless_parts[] = {
    "dropout",     "pdrop",      "norm",           "_eps",       "epsilon",    "bias",
    "rope",        "rotary",     "expert",         "moe",        "router",     "mamba",
    "ssm",         "conv_",      "linear_",        "vision",     "image",      "audio",
    "video",       "init",       "scal",           "multiplier", "mlp",        "ffn",
    "ff_dim",      "token",      "loss",           "quant",      "lora_alpha", "softcap",
    "temperature", "lm_head",    "layerdrop",      "mtp",        "nextn",      "gate",
    "sink",        "qk_",        "q_lora",         "o_lora",     "_fp32",      "classif",
    "dtype",       "sparsity",   "implementation", "kernel",     "hidden_act", "scalar",
    "slope",       "alibi",      "ple_",           "engram",     "logit",      "deepstack",
    "loading",     "checkpoint",
};

/* A key that contains one of both lists says which layers keep a state. So it matters, although it
 * is about states. */
static const char *const picks[] = {"step", "period", "interval", "every",
                                    "freq", "idx",    "indices",  "layer"};
static const char *const states[] = {"mamba", "ssm", "conv_", "linear_", "recurrent_"};

/* Keys that kv_*.c read, and keys that are known not to change the size. */
static const char *const known[] = {
    /* Keys that kv_*.c read. */
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "layer_types",
    "layers_block_type",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "attention_chunk_size",
    "attention_window_size",
    "sliding_window_size",
    "sliding_window_pattern",
    "_sliding_window_pattern",
    "global_attn_every_n_layers",
    "hybrid_override_pattern",
    "attn_type_list",
    "hybrid_layer_pattern",
    "linear_attn_config",
    "hybrid_layer_ids",
    "attn_layer_indices",
    "full_attn_idxs",
    "block_types",
    "attn_layer_period",
    "attn_layer_offset",
    "mamba_step",
    "mamba_enabled",
    "full_attention_interval",
    "layer_group_size",
    "num_kv_shared_layers",
    "use_cla",
    "cla_share_factor",
    "no_rope_layers",
    "no_rope_layer_interval",
    "num_attention_heads",
    "n_head",
    "n_heads",
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "n_kv_heads",
    "num_attention_groups",
    "num_key_value_heads_per_layer",
    "multi_query_attention",
    "attn_config",
    "block_configs",
    "num_global_key_value_heads",
    "global_head_dim",
    "swa_num_key_value_heads",
    "swa_head_dim",
    "swa_v_head_dim",
    "attention_other_setting",
    "per_layer_config",
    "head_dim",
    "attention_head_dim",
    "kv_channels",
    "hidden_size_per_head",
    "v_head_dim",
    "kv_lora_rank",
    "index_head_dim",
    "indexer_types",
    "attention_k_eq_v",
    "is_encoder_decoder",
    "kv_cache_scheme",
    "kv_cache_dtype",
    /* An indexer's number of choices and of query heads; the query heads share keys. */
    "index_n_heads",
    "index_topk",
    "index_topk_freq",
    "index_skip_topk_offset",
    "index_topk_pattern",
    /* Queries, which no cache keeps. */
    "num_attention_heads_per_layer",
    "swa_num_attention_heads",
    "share_q_dim",
    "num_query_groups",
    "num_sliding_attention_heads",
    /* whether there is a cache at all, and how it is computed */
    "use_cache",
    "cache_implementation",
    "parallel_attn",
    "use_parallel_residual",
    "chunk_size",
    "chunk_size_feed_forward",
    "attention_hidden_size",
    "num_mem_blocks",
    "use_attn_output_gate",
    "use_bidirectional_attention",
    "use_flash_attn",
    "_flash_attn_2_enabled",
    "use_flash_attention",
    "flash_attention",
    "use_dynamic_ntk",
    "use_logn_attn",
    "first_k_dense_replace",
    "num_dense_layers",
    "interleave_sliding",
    "attention_type",
    "attention_method",
    "use_mem_efficient_attn",
    "block_multiple_of",
    "block_use_swiglu",
    "conv_L_cache",
    "apply_query_key_layer_scaling",
    "attention_value_scale",
    "num_conv_layers",
    "use_qkv_bias",
    "clip_qkv",
    "qkv_bias",
    "use_sparse_attention_kernel",
    "expert_layer_period",
    "expert_layer_offset",
    "decoder_sparse_step",
    "activation_sparsity_pattern",
    /* Other parts of the layers. */
    "vocab_size_per_layer_input",
    "hidden_size_per_layer_input",
    "shared_intermediate_size",
    "interleave_moe_layer_step",
    "tie_word_embeddings",
    "ignore_index",
    "number_of_conv_states",
    "global_partial_rotary_factor",
    "layer_rope_theta",
};

static bool kv_unread_is_in(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(key, list[i]))
            return true;
    return false;
}

static bool has_one(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(key, list[i]))
            return true;
    return false;
}

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Whether the key says which layers attend, and was not used. Files may say that twice, and then
 * the list alone decides; but a chunk or window that no layer uses must not be ignored. */
static bool is_unused(const struct reader *r, const struct kv_model *m, const char *key)
{
    bool listed = reader_get(r, "layer_types") || reader_get(r, "layers_block_type") ||
                  reader_get(r, "hybrid_layer_pattern");
    if (listed || kv_model_count(m, KV_SLIDING))
        return false;
    if (!strcmp(key, "linear_attn_config"))
        return kv_model_count(m, KV_STATE) == 0;
    return !strcmp(key, "attention_chunk_size") || !strcmp(key, "attention_window_size") ||
           !strcmp(key, "sliding_window_size");
}

static bool picks_layers(const char *key)
{
    return has_one(key, states, COUNT(states)) && has_one(key, picks, COUNT(picks));
}

int kv_unread_check(const struct reader *r, const struct kv_model *m)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)r->object, key, v)
    {
        bool chooses = picks_layers(key);
        if (reader_is_off(v) || (!chooses && !has_one(key, suspicious, COUNT(suspicious))))
            continue;
        bool passed = kv_unread_is_in(key, known, COUNT(known))
                          ? !is_unused(r, m, key)
                          : !chooses && has_one(key, harmless_parts, COUNT(harmless_parts));
        if (!passed)
            return refuse(r, key,
                          "this file has '%.60s', which this tool does not read and which may "
                          "change what a token keeps, so a size without it would be wrong",
                          key);
    }
    return 0;
}
