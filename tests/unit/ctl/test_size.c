/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of published models, worked out by hand. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    int rc = kv_model_load(path_of(name), why, &m);
    ck_assert_msg(rc == 0, "%s", why);
}

static uint64_t per_token(enum kv_form form, const char *type)
{
    uint32_t layers = form == KV_FORM_HIDDEN ? m.layers : m.full + m.sliding;
    return kv_token_bytes(&m, form, kv_type_find(type), layers);
}

static uint64_t context(enum kv_form form, uint64_t tokens)
{
    return kv_context_bytes(&m, form, kv_type_find("bf16"), tokens, 16);
}

START_TEST(llama_has_8_heads_of_128_in_32_layers)
{
    load("llama-3.1-8b");
    ck_assert_uint_eq(m.head_size, 4096 / 32); /* derived */
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
END_TEST

START_TEST(the_formula_has_the_numbers_in_it)
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
END_TEST

START_TEST(mistral_keeps_its_window)
{
    load("mistral-7b");
    ck_assert_uint_eq(m.sliding, 32);
    ck_assert_uint_eq(m.full, 0);
    ck_assert_uint_eq(context(KV_FORM_KV, 4096), (uint64_t)4096 * 131072);
    ck_assert_uint_eq(context(KV_FORM_KV, 32768), (uint64_t)4096 * 131072);
    /* 4,101 tokens end in block 256 of 0 to 256; the last 4,096 begin at token 5, in block 0 */
    ck_assert_uint_eq(context(KV_FORM_KV, 4101), (uint64_t)257 * 16 * 131072);
    /* hidden states have no window */
    ck_assert_uint_eq(context(KV_FORM_HIDDEN, 32768), (uint64_t)32768 * 4096 * 32 * 2);
}
END_TEST

START_TEST(qwen_says_that_it_does_not_use_its_window)
{
    load("qwen2.5-7b");
    ck_assert_uint_eq(m.full, 28);
    ck_assert_uint_eq(m.sliding, 0);
    ck_assert_uint_eq(per_token(KV_FORM_KV, "bf16"), 2 * 128 * 28 * 4 * 2); /* 57,344 */
}
END_TEST

START_TEST(deepseek_keeps_latents)
{
    load("deepseek-v3");
    ck_assert_uint_eq(per_token(KV_FORM_LATENT, "bf16"), (512 + 64) * 61 * 2); /* 70,272 */
    ck_assert_uint_eq(per_token(KV_FORM_ABSORBED, "bf16"), 70272);
    ck_assert_uint_eq(per_token(KV_FORM_LATENT, "int8"), 576 * 61 + 61 * 2);
    ck_assert_uint_eq(per_token(KV_FORM_HIDDEN, "bf16"), 7168 * 61 * 2);
    ck_assert_ptr_nonnull(kv_form_missing(&m, KV_FORM_KV));
}
END_TEST

START_TEST(a_nested_file_with_windows_in_some_layers)
{
    load("nested-hybrid");
    ck_assert_uint_eq(m.layers, 6); /* not the vision part's 27 */
    ck_assert_uint_eq(m.full, 1);
    ck_assert_uint_eq(m.sliding, 5);
    ck_assert_uint_eq(m.head_size, 256);
    ck_assert_str_eq(m.dtype, "bf16");
    /* a layer and token: 2 * 256 * 4 * 2 = 4,096 bytes; 1 layer x 8,192 and 5 x 1,024 tokens */
    ck_assert_uint_eq(context(KV_FORM_KV, 8192), (uint64_t)4096 * (8192 + 5 * 1024)); /* 52 MiB */
}
END_TEST

START_TEST(gpt2_has_names_of_its_own_and_as_many_kv_heads_as_heads)
{
    load("gpt2");
    ck_assert_uint_eq(per_token(KV_FORM_KV, "fp16"), 2 * 64 * 12 * 12 * 2); /* 36,864 */
    ck_assert_uint_eq(per_token(KV_FORM_ABSORBED, "fp16"), 18432);          /* half */
    ck_assert_ptr_null(kv_form_missing(&m, KV_FORM_ABSORBED));
}
END_TEST

START_TEST(layers_with_a_state_keep_no_kv)
{
    load("linear-hybrid");
    ck_assert_uint_eq(m.full, 12);
    ck_assert_uint_eq(m.linear, 36);
    ck_assert_uint_eq(per_token(KV_FORM_KV, "bf16"), 2 * 256 * 12 * 2 * 2); /* 24,576 */
}
END_TEST

/* ---- what is wrong, and what would be right ---- */

static void refused(const char *text, const char *field, const char *hint)
{
    char path[] = "/tmp/kvc-config-XXXXXX", why[KV_WHY_BYTES] = "";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    int rc = kv_model_load(path, why, &m);
    unlink(path);
    ck_assert_int_eq(rc, -EINVAL);
    ck_assert_msg(strstr(why, field) && strstr(why, hint), "%s", why);
}

START_TEST(errors_name_the_field_and_what_would_be_right)
{
    refused("{", "not JSON", ":1:");
    refused("[]", "the file", "expected an object");
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
            "attention_chunk_size", "missing");
    refused("{\"num_hidden_layers\": 1, \"use_sliding_window\": 1}", "use_sliding_window",
            "true or false");
}
END_TEST

START_TEST(a_file_that_is_not_there_is_named)
{
    char why[KV_WHY_BYTES] = "";
    ck_assert_int_eq(kv_model_load("/nowhere/config.json", why, &m), -ENOENT);
    ck_assert_ptr_nonnull(strstr(why, "/nowhere/config.json"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("size");
    TCase *t = tcase_create("size");
    tcase_add_test(t, llama_has_8_heads_of_128_in_32_layers);
    tcase_add_test(t, the_formula_has_the_numbers_in_it);
    tcase_add_test(t, mistral_keeps_its_window);
    tcase_add_test(t, qwen_says_that_it_does_not_use_its_window);
    tcase_add_test(t, deepseek_keeps_latents);
    tcase_add_test(t, a_nested_file_with_windows_in_some_layers);
    tcase_add_test(t, gpt2_has_names_of_its_own_and_as_many_kv_heads_as_heads);
    tcase_add_test(t, layers_with_a_state_keep_no_kv);
    tcase_add_test(t, errors_name_the_field_and_what_would_be_right);
    tcase_add_test(t, a_file_that_is_not_there_is_named);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
