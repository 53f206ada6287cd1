/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of published models, worked out by hand. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"
#include "kv_file.h"
#include "kv_model.h"

static struct kv_model m;

static const char *path_of(const char *name)
{
    static char path[512];
    const char *source = getenv("KVC_SOURCE_DIR");
    snprintf(path, sizeof(path), "%s/tests/unit/ctl/configs/%s.json", source ? source : ".", name);
    return path;
}

static void load(const char *name)
{
    char why[KV_WHY_BYTES] = "";
    int rc = kv_file_load(path_of(name), why, &m);
    ck_assert_msg(rc == 0, "%s", why);
}

static uint64_t per_token(enum kv_form form, const char *type)
{
    return kv_token_bytes(&m, form, kv_type_find(type), kv_part_whole(&m));
}

/* The first layer that keeps KV. */
static const struct kv_layer *first(void)
{
    const struct kv_layer *l = NULL;
    uint32_t n;
    ck_assert(kv_model_group(&m, 0, &l, &n));
    return l;
}

static uint64_t context(enum kv_form form, uint64_t tokens)
{
    return kv_context_bytes(&m, form, kv_type_find("bf16"), tokens, 16, kv_part_whole(&m));
}

CASE(llama_has_8_heads_of_128_in_32_layers)
{
    load("llama-3.1-8b");
    ck_assert_uint_eq(first()->key, 4096 / 32); /* derived */
    ck_assert_str_eq(m.dtype, "bf16");
    ck_assert_uint_eq(per_token(KV_FORM_KV, "bf16"), 2 * 128 * 32 * 8 * 2); /* 131,072 */
    ck_assert_uint_eq(per_token(KV_FORM_KV, "fp32"), 262144);
    ck_assert_uint_eq(per_token(KV_FORM_KV, "fp8"), 65536);
    /* a scale of 2 bytes for K and V of each head and layer: 65,536 + 2 * 8 * 32 * 2 */
    ck_assert_uint_eq(per_token(KV_FORM_KV, "int8"), 65536 + 1024);
    ck_assert_uint_eq(per_token(KV_FORM_KV, "int4"), 32768 + 1024);
    ck_assert_uint_eq(per_token(KV_FORM_HIDDEN, "bf16"), 4096 * 32 * 2);
    ck_assert_uint_eq(context(KV_FORM_KV, 8192), (uint64_t)8192 * 131072); /* 1 GiB */
    ck_assert_uint_eq(context(KV_FORM_KV, 8193), (uint64_t)8208 * 131072); /* a whole block more */
    ck_assert_ptr_nonnull(kv_form_missing(&m, KV_FORM_LATENT));
    ck_assert_ptr_nonnull(kv_form_missing(&m, KV_FORM_ABSORBED)); /* 8 * 128 < 4096 */
}

CASE(the_formula_has_the_numbers_in_it)
{
    char text[256];
    load("llama-3.1-8b");
    kv_form_formula(&m, KV_FORM_KV, kv_type_find("bf16"), text, sizeof(text));
    ck_assert_str_eq(text, "2·n·d·L·H·b = 2·1·128·32·8·2");
    kv_form_formula(&m, KV_FORM_KV, kv_type_find("int4"), text, sizeof(text));
    ck_assert_str_eq(text, "2·n·d·L·H·b + 2·n·L·H·s = 2·1·128·32·8·0.5 + 16·32·2");
    kv_form_formula(&m, KV_FORM_LATENT, kv_type_find("bf16"), text, sizeof(text));
    ck_assert_str_eq(text, "-");
    load("deepseek-v3");
    kv_form_formula(&m, KV_FORM_LATENT, kv_type_find("bf16"), text, sizeof(text));
    ck_assert_str_eq(text, "n·(r+q)·L·b = 1·(512+64)·61·2");
}

CASE(mistral_keeps_its_window)
{
    load("mistral-7b");
    ck_assert_uint_eq(kv_model_count(&m, KV_SLIDING), 32);
    ck_assert_uint_eq(kv_model_count(&m, KV_FULL), 0);
    ck_assert_uint_eq(context(KV_FORM_KV, 4096), (uint64_t)4096 * 131072);
    ck_assert_uint_eq(context(KV_FORM_KV, 32768), (uint64_t)4096 * 131072);
    /* 4,101 tokens end in block 256 of 0 to 256; the last 4,096 begin at token 5, in block 0 */
    ck_assert_uint_eq(context(KV_FORM_KV, 4101), (uint64_t)257 * 16 * 131072);
    /* hidden states have no window */
    ck_assert_uint_eq(context(KV_FORM_HIDDEN, 32768), (uint64_t)32768 * 4096 * 32 * 2);
}

CASE(qwen_says_that_it_does_not_use_its_window)
{
    load("qwen2.5-7b");
    ck_assert_uint_eq(kv_model_count(&m, KV_FULL), 28);
    ck_assert_uint_eq(kv_model_count(&m, KV_SLIDING), 0);
    ck_assert_uint_eq(per_token(KV_FORM_KV, "bf16"), 2 * 128 * 28 * 4 * 2); /* 57,344 */
}

CASE(deepseek_keeps_latents)
{
    load("deepseek-v3");
    ck_assert_uint_eq(per_token(KV_FORM_LATENT, "bf16"), (512 + 64) * 61 * 2); /* 70,272 */
    ck_assert_uint_eq(per_token(KV_FORM_ABSORBED, "bf16"), 70272);
    ck_assert_uint_eq(per_token(KV_FORM_EXPANDED, "bf16"), 128ull * (128 + 64 + 128) * 61 * 2);
    ck_assert_uint_eq(per_token(KV_FORM_EXPANDED, "int8"), (128ull * 320 + 2 * 128 * 2) * 61);
    ck_assert_uint_eq(per_token(KV_FORM_LATENT, "int8"), 576 * 61 + 61 * 2);
    ck_assert_uint_eq(per_token(KV_FORM_HIDDEN, "bf16"), 7168 * 61 * 2);
    ck_assert_ptr_nonnull(kv_form_missing(&m, KV_FORM_KV));
}

CASE(a_nested_file_with_windows_in_some_layers)
{
    load("nested-hybrid");
    ck_assert_uint_eq(m.layers, 6); /* not the vision part's 27 */
    ck_assert_uint_eq(kv_model_count(&m, KV_FULL), 1);
    ck_assert_uint_eq(kv_model_count(&m, KV_SLIDING), 5);
    ck_assert_uint_eq(first()->key, 256);
    ck_assert_str_eq(m.dtype, "bf16");
    /* a layer and token: 2 * 256 * 4 * 2 = 4,096 bytes; 1 layer x 8,192 and 5 x 1,024 tokens */
    ck_assert_uint_eq(context(KV_FORM_KV, 8192), (uint64_t)4096 * (8192 + 5 * 1024)); /* 52 MiB */
}

CASE(gpt2_has_names_of_its_own_and_as_many_kv_heads_as_heads)
{
    load("gpt2");
    ck_assert_uint_eq(per_token(KV_FORM_KV, "fp16"), 2 * 64 * 12 * 12 * 2); /* 36,864 */
    ck_assert_uint_eq(per_token(KV_FORM_ABSORBED, "fp16"), 18432);          /* half */
    ck_assert_ptr_null(kv_form_missing(&m, KV_FORM_ABSORBED));
}

CASE(layers_with_a_state_keep_no_kv)
{
    load("linear-hybrid");
    ck_assert_uint_eq(kv_model_count(&m, KV_FULL), 12);
    ck_assert_uint_eq(kv_model_count(&m, KV_STATE), 36);
    ck_assert_uint_eq(per_token(KV_FORM_KV, "bf16"), 2 * 256 * 12 * 2 * 2); /* 24,576 */
}

CASE(families_that_name_their_layers_in_their_own_way)
{
    static const struct {
        const char *file;
        uint32_t full, sliding, linear, plain, window, kv_heads, head_size;
        uint64_t token; /* 2 x head size x KV heads x layers that attend x 2 bytes */
    } want[] = {
        {"gemma-3-27b", 62 / 6, 52, 0, 0, 1024, 16, 128, 2ull * 128 * 16 * 62 * 2},
        {"gemma-3-4b", 34 / 6, 29, 0, 0, 1024, 4, 256, 2ull * 256 * 4 * 34 * 2},
        {"nemotron-h", 2, 0, 5, 5, 0, 8, 128, 2ull * 128 * 8 * 2 * 2},
        {"falcon-7b", 32, 0, 0, 0, 0, 1, 4544 / 71, 2ull * 64 * 1 * 32 * 2}, /* 8,192 */
        {"falcon-40b", 60, 0, 0, 0, 0, 8, 8192 / 128, 2ull * 64 * 8 * 60 * 2},
        {"minimax", 1, 0, 7, 0, 0, 8, 128, 2ull * 128 * 8 * 1 * 2},
        {"kimi-linear", 7, 0, 20, 0, 0, 0, 0, 0}, /* latents, below */
        {"recurrent-gemma-2b", 0, 8, 18, 0, 2048, 1, 256, 2ull * 256 * 1 * 8 * 2},
        {"zamba2", 9, 0, 45, 0, 0, 32, 160, 2ull * 160 * 32 * 9 * 2},
        {"llama-4-scout", 48 / 4, 36, 0, 0, 8192, 8, 128, 2ull * 128 * 8 * 48 * 2},
        {"qwen3-8b", 36, 0, 0, 0, 0, 8, 128, 2ull * 128 * 8 * 36 * 2},
        {"gpt-oss-20b", 12, 12, 0, 0, 128, 8, 64, 2ull * 64 * 8 * 24 * 2},
        {"qwen3-next-80b", 12, 0, 36, 0, 0, 2, 256, 2ull * 256 * 2 * 12 * 2},
        {"exaone-4-32b", 64 / 4, 48, 0, 0, 4096, 8, 128, 2ull * 128 * 8 * 64 * 2},
    };
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        load(want[i].file);
        ck_assert_msg(kv_model_count(&m, KV_FULL) == want[i].full &&
                          kv_model_count(&m, KV_SLIDING) == want[i].sliding &&
                          kv_model_count(&m, KV_STATE) == want[i].linear &&
                          kv_model_count(&m, KV_NONE) == want[i].plain,
                      "%s: %u full, %u sliding, %u linear, %u plain", want[i].file,
                      kv_model_count(&m, KV_FULL), kv_model_count(&m, KV_SLIDING),
                      kv_model_count(&m, KV_STATE), kv_model_count(&m, KV_NONE));
        ck_assert_msg(first()->window == want[i].window && first()->kv_heads == want[i].kv_heads &&
                          first()->key == want[i].head_size,
                      "%s: window %u, %u heads of %u", want[i].file, first()->window,
                      first()->kv_heads, first()->key);
        if (!m.latent)
            ck_assert_uint_eq(per_token(KV_FORM_KV, "bf16"), want[i].token);
    }
    load("kimi-linear");
    ck_assert_uint_eq(per_token(KV_FORM_LATENT, "bf16"), (512 + 64) * 7 * 2);
}

/* ---- what is wrong, and what would be right ---- */

#define SMALL "\"hidden_size\": 64, \"num_attention_heads\": 8, \"dtype\": \"bfloat16\""

static int load_text(const char *text, char why[KV_WHY_BYTES])
{
    char path[] = "/tmp/kvc-config-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    int rc = kv_file_load(path, why, &m);
    unlink(path);
    return rc;
}

static void refused_as(int rc, const char *text, const char *field, const char *hint)
{
    char why[KV_WHY_BYTES] = "";
    ck_assert_int_eq(load_text(text, why), rc);
    ck_assert_msg(strstr(why, field) && strstr(why, hint), "%s", why);
}

static void refused(const char *text, const char *field, const char *hint)
{
    refused_as(-EINVAL, text, field, hint);
}

static void accepted(const char *text)
{
    char why[KV_WHY_BYTES] = "";
    ck_assert_msg(load_text(text, why) == 0, "%s", why);
}

CASE(errors_name_the_field_and_what_would_be_right)
{
    refused_as(-EBADMSG, "{", "not JSON", ":1:");
    refused_as(-EBADMSG, "[]", "the file", "expected an object");
    refused("{\"hidden_size\": 4096}", "num_hidden_layers", "missing; expected the number of");
    refused("{\"num_hidden_layers\": \"32\"}", "num_hidden_layers", "a whole number from 1");
    refused("{\"num_hidden_layers\": 0}", "num_hidden_layers", "a whole number from 1");
    refused("{\"num_hidden_layers\": 2, \"hidden_size\": 8}", "num_attention_heads", "missing");
    refused("{\"num_hidden_layers\": 2, \"hidden_size\": 8, \"num_attention_heads\": 3}",
            "head_dim", "no multiple of 3 heads");
    refused("{\"num_hidden_layers\": 2, \"hidden_size\": 8, \"num_attention_heads\": 4,"
            " \"num_key_value_heads\": 3}",
            "num_key_value_heads", "does not divide");
    refused("{\"num_hidden_layers\": 2, \"hidden_size\": 8, \"kv_lora_rank\": 4}",
            "qk_rope_head_dim", "missing");
    refused("{\"num_hidden_layers\": 2, \"layer_types\": [\"full_attention\"]}", "layer_types",
            "a list of 2 names");
    refused("{\"num_hidden_layers\": 1, \"layer_types\": [\"odd\"]}", "layer_types", "known are");
    refused("{\"num_hidden_layers\": 1, \"layer_types\": [\"sliding_attention\"]}",
            "sliding_window", "missing");
    refused("{\"num_hidden_layers\": 2, \"odd_pattern\": 3}", "odd_pattern", "does not read");
    refused("{\"num_hidden_layers\": 2, \"hybrid_odd\": [1]}", "hybrid_odd", "does not read");
    refused("{\"num_hidden_layers\": 2, \"linear_attn_config\": {\"x\": 1}}", "linear_attn_config",
            "does not read");
    refused("{\"num_hidden_layers\": 2, \"attention_chunk_size\": 8}", "attention_chunk_size",
            "does not read");
    refused("{\"num_hidden_layers\": 2, \"num_kv_shared_layers\": 2}", "num_kv_shared_layers",
            "less than the 2 layers");
    refused("{\"num_hidden_layers\": 2, \"hybrid_override_pattern\": \"M\"}",
            "hybrid_override_pattern", "2 letters");
    refused("{\"num_hidden_layers\": 2, \"hybrid_override_pattern\": \"Mx\"}",
            "hybrid_override_pattern", "known are");
    refused("{\"num_hidden_layers\": 2, \"attn_type_list\": [0, 2]}", "attn_type_list", "nor 1");
    refused("{\"num_hidden_layers\": 2, \"hybrid_layer_ids\": [1, 1]}", "hybrid_layer_ids",
            "twice");
    refused("{\"num_hidden_layers\": 2, \"block_types\": []}", "block_types", "repeated");
    refused("{\"num_hidden_layers\": 2, \"sliding_window_pattern\": \"LX\"}",
            "sliding_window_pattern", "LLLG");
    refused("{\"num_hidden_layers\": 1, \"use_sliding_window\": 1}", "use_sliding_window",
            "true or false");
}

/* Each of these was passed over, and a size was given as if it were not there. */
CASE(what_changes_the_size_and_is_not_read_is_refused_by_name)
{
    static const char *const facts[][2] = {
        {"attention_other_setting", "{\"attention_type\": \"odd\"}"},
        {"cross_attention_layers", "[1]"},
        {"compress_ratios", "[4, 128]"},
        {"index_head_dim", "128"},
        {"index_kpool", "16"},
        {"sparse_attention_config", "{\"use_sparse_attention\": true}"},
        {"num_layers_per_stack", "16"},
        {"loop_window_size", "64"},
        {"attention_types", "[[[\"global\", \"local\"], 12]]"},
        {"local_layer_ids", "[0]"},
        {"mamba_layer_step", "2"},
        {"sliding_window_size", "128"},
        {"linear_attn_config", "{\"x\": 1}"},
        {"some_kv_thing_of_tomorrow", "3"},
        {"per_layer_config", "{\"1\": {\"some_thing\": 3}}"},
        {"is_encoder_decoder", "true"},
    };
    for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text),
                 "{\"num_hidden_layers\": 2, \"hidden_size\": 8, \"num_attention_heads\": 4,"
                 " \"%s\": %s}",
                 facts[i][0], facts[i][1]);
        refused(text, facts[i][0], "does not read");
    }
    refused("{\"model_type\": \"bert\", \"num_hidden_layers\": 2, \"hidden_size\": 8,"
            " \"num_attention_heads\": 4}",
            "model_type", "encoder");
    refused("{\"model_type\": \"qwen3_next\", " SMALL ", \"num_hidden_layers\": 4}", "layer_types",
            "differ");
    refused("{\"model_type\": \"gpt_oss\", " SMALL
            ", \"num_hidden_layers\": 4, \"sliding_window\": 128}",
            "layer_types", "differ");
    accepted("{\"model_type\": \"plamo2\", " SMALL
             ", \"num_hidden_layers\": 6, \"mamba_step\": 2}");
    ck_assert_uint_eq(kv_model_count(&m, KV_FULL), 3);
    ck_assert_uint_eq(kv_model_count(&m, KV_STATE), 3);
    accepted("{\"model_type\": \"mamba2\", \"num_hidden_layers\": 2}");
    ck_assert_uint_eq(kv_model_caching_layers(&m), 0); /* which the command refuses */
    refused("{\"num_hidden_layers\": 2, \"hidden_size\": 8, \"num_attention_heads\": 4,"
            " \"sliding_window\": Infinity}",
            "sliding_window", "a whole number");
}

CASE(what_is_switched_off_changes_nothing)
{
    accepted("{\"num_hidden_layers\": 2, \"hidden_size\": 8, \"num_attention_heads\": 4,"
             " \"sliding_window\": -1, \"num_kv_shared_layers\": 0, \"block_configs\": [],"
             " \"attn_config\": {}, \"index_n_heads\": null, \"is_encoder_decoder\": false}");
    ck_assert_uint_eq(kv_model_count(&m, KV_FULL), 2);
    ck_assert_uint_eq(kv_model_count(&m, KV_SLIDING), 0);
    ck_assert_uint_eq(per_token(KV_FORM_KV, "bf16"), 2 * 2 * 4 * 2 * 2);
}

/* ---- layers that differ ---- */

static uint64_t token_of(const char *text)
{
    accepted(text);
    return per_token(KV_FORM_KV, m.dtype);
}

CASE(heads_and_sizes_of_each_layer_count)
{
    /* 5 slide with 8 heads of 256, 1 is full with 2 of 512; keys and values; 2 bytes */
    ck_assert_uint_eq(token_of("{" SMALL ", \"num_hidden_layers\": 6, \"num_key_value_heads\": 8,"
                               " \"head_dim\": 256, \"num_global_key_value_heads\": 2,"
                               " \"global_head_dim\": 512, \"sliding_window\": 1024,"
                               " \"sliding_window_pattern\": 6}"),
                      (5 * 8 * 256 + 2 * 512) * 2 * 2);
    ck_assert_uint_eq(context(KV_FORM_KV, 8192),
                      (uint64_t)(5 * 8 * 256) * 4 * 1024 + (uint64_t)(2 * 512) * 4 * 8192);
    /* blocks of their own: 8 heads among 2, none, 8 among 4 */
    ck_assert_uint_eq(token_of("{" SMALL ", \"num_hidden_layers\": 3, \"block_configs\": ["
                               "{\"attention\": {\"no_op\": false, \"n_heads_in_group\": 2}},"
                               "{\"attention\": {\"no_op\": true, \"n_heads_in_group\": null}},"
                               "{\"attention\": {\"n_heads_in_group\": 4}}]}"),
                      (4 + 2) * 8 * 2 * 2);
    ck_assert_uint_eq(kv_model_count(&m, KV_NONE), 1);
    /* a list of heads; 0 is a layer without attention */
    ck_assert_uint_eq(token_of("{" SMALL ", \"num_hidden_layers\": 3,"
                               " \"num_key_value_heads\": [2, 0, 4]}"),
                      (2 + 4) * 8 * 2 * 2);
    /* by number of the layer */
    ck_assert_uint_eq(token_of("{" SMALL ", \"num_hidden_layers\": 3, \"per_layer_config\":"
                               " {\"01\": {\"head_dim\": 16, \"num_key_value_heads\": 2}}}"),
                      (8 * 8 + 2 * 16 + 8 * 8) * 2 * 2);
    ck_assert_uint_eq(token_of("{" SMALL ", \"num_hidden_layers\": 2, \"sliding_window\": 16,"
                               " \"layer_types\": [\"full_attention\", \"sliding_attention\"],"
                               " \"num_attention_groups\": 2, \"attention_other_setting\":"
                               " {\"attention_type\": \"sliding_attention\","
                               " \"num_attention_groups\": 4, \"head_dim\": 32}}"),
                      (2 * 8 + 4 * 32) * 2 * 2);
}

CASE(layers_that_share_keep_nothing)
{
    ck_assert_uint_eq(token_of("{" SMALL ", \"num_hidden_layers\": 5,"
                               " \"num_kv_shared_layers\": 2}"),
                      3 * 8 * 8 * 2 * 2);
    ck_assert_uint_eq(kv_model_count(&m, KV_SHARED), 2);
    ck_assert_uint_eq(token_of("{" SMALL ", \"num_hidden_layers\": 5, \"use_cla\": true,"
                               " \"cla_share_factor\": 2}"),
                      3 * 8 * 8 * 2 * 2);
}

CASE(an_indexer_keeps_keys_in_the_layers_that_choose)
{
    accepted("{" SMALL ", \"num_hidden_layers\": 3, \"kv_lora_rank\": 32,"
             " \"qk_rope_head_dim\": 8, \"index_head_dim\": 128,"
             " \"indexer_types\": [\"full\", \"shared\", \"full\"]}");
    ck_assert_uint_eq(per_token(KV_FORM_LATENT, "bf16"), 3 * 40 * 2 + 2 * (128 + 4));
    ck_assert_uint_eq(per_token(KV_FORM_LATENT, "fp8"), 3 * 40 + 2 * (128 + 4));
}

CASE(what_the_checkpoint_says_of_kv_comes_before_its_weights)
{
    accepted("{" SMALL ", \"num_hidden_layers\": 1, \"quantization_config\":"
             " {\"kv_cache_scheme\": {\"num_bits\": 8, \"type\": \"float\"}}}");
    ck_assert_str_eq(m.dtype, "fp8");
    ck_assert_str_eq(m.stated, "kv_cache_scheme");
    accepted("{" SMALL ", \"num_hidden_layers\": 1, \"quantization_config\":"
             " {\"quantization\": {\"kv_cache_quant_algo\": \"NVFP4\"}}}");
    ck_assert(m.unsized);
    accepted("{" SMALL ", \"num_hidden_layers\": 1, \"quantization_config\":"
             " {\"kv_cache_scheme\": null}, \"time_step_limit\": [-Infinity, Infinity, NaN]}");
    ck_assert_str_eq(m.dtype, "bf16");
    ck_assert_str_eq(m.stated, "dtype");
    ck_assert(!m.unsized);
}

CASE(a_type_is_read_as_torch_writes_it_and_never_passed_over)
{
    accepted("{\"num_hidden_layers\": 1, \"hidden_size\": 8, \"num_attention_heads\": 1,"
             " \"torch_dtype\": \"torch.float16\"}");
    ck_assert_str_eq(m.dtype, "fp16");
    accepted("{\"num_hidden_layers\": 1, \"hidden_size\": 8, \"num_attention_heads\": 1,"
             " \"dtype\": \"auto\"}");
    ck_assert_str_eq(m.stated, "");
    accepted("{\"num_hidden_layers\": 1, \"hidden_size\": 8, \"num_attention_heads\": 1,"
             " \"dtype\": \"float8_e4m3fn\"}");
    ck_assert_str_eq(m.stated, "dtype");
    ck_assert(m.unsized);
}

CASE(stages_share_the_layers_and_ranks_the_heads)
{
    uint32_t heads = 0;
    accepted("{" SMALL ", \"num_hidden_layers\": 10, \"num_key_value_heads\": 2}");
    const struct kv_type *type = kv_type_find("bf16");
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 4; i++) {
        struct kv_part part = kv_part_stage(&m, 1, 4, i);
        ck_assert_uint_eq(part.layers, i == 1 || i == 2 ? 3 : 2);
        sum += kv_token_bytes(&m, KV_FORM_KV, type, part);
    }
    ck_assert_uint_eq(sum, kv_token_bytes(&m, KV_FORM_KV, type, kv_part_whole(&m)));
    /* 2 heads among 8: one in each */
    ck_assert_uint_eq(kv_token_bytes(&m, KV_FORM_KV, type, kv_part_stage(&m, 8, 1, 0)),
                      10 * 8 * 2 * 2);
    ck_assert(kv_model_splits(&m, 8, &heads));
    ck_assert(!kv_model_splits(&m, 3, &heads));
    ck_assert_uint_eq(heads, 2);
}

CASE(the_context_is_the_stretched_one)
{
    accepted("{" SMALL ", \"num_hidden_layers\": 1, \"max_position_embeddings\": 4096}");
    ck_assert_uint_eq(m.context, 4096);
    accepted("{" SMALL ", \"num_hidden_layers\": 1, \"max_position_embeddings\": 4096,"
             " \"rope_scaling\": {\"factor\": 4.0, \"original_max_position_embeddings\": 4096}}");
    ck_assert_uint_eq(m.context, 16384);
}

CASE(a_file_that_is_not_there_is_named)
{
    char why[KV_WHY_BYTES] = "";
    ck_assert_int_eq(kv_file_load("/nowhere/config.json", why, &m), -ENOENT);
    ck_assert_ptr_nonnull(strstr(why, "/nowhere/config.json"));
}
