/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's transformer beside Hugging Face's: the same logits within 1e-3 for models that
 * make_llama.py wrote, and directories that are no such model are refused by what is wrong. With
 * KVC_MODEL, a directory that smollm2_reference.py or byte_model.py filled: that model alone.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cases.h"
#include "product.h"
#include "safetensors.h"
#include "sequence.h"

static char why[MODEL_WHY_BYTES];

static void path_of(const char *model, char path[256])
{
    const char *root = getenv("KVC_SOURCE_DIR");
    snprintf(path, 256, "%s/tests/worker/llama/%s", root ? root : ".", model);
}

/* A tensor of logits.safetensors, to be freed. */
static void *read_tensor(const char *dir, const char *name, struct st_tensor *ret_tensor)
{
    char file_name[300], st_why[ST_WHY_BYTES];
    struct st_header header;
    snprintf(file_name, sizeof(file_name), "%s/logits.safetensors", dir);
    FILE *file = fopen(file_name, "rbe");
    ck_assert_msg(file != NULL, "%s", file_name);
    ck_assert_msg(st_read(file, st_why, &header) == 0, "%s", st_why);
    const struct st_tensor *t = st_find(&header, name);
    ck_assert_ptr_nonnull(t);
    void *bytes = malloc(t->bytes);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_int_eq(fseeko(file, (off_t)(header.data_at + t->begin), SEEK_SET), 0);
    ck_assert_uint_eq(fread(bytes, 1, t->bytes, file), t->bytes);
    *ret_tensor = *t;
    st_free(&header);
    fclose(file);
    return bytes;
}

static double difference(const float *a, const float *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)a[i] - b[i]));
    return most;
}

static struct kv *paged_kv(struct model *m)
{
    const struct kv_setup setup = {
        .model = m, .tokens_max = m->is.tokens_max, .block_tokens = 8, .seqs = 1};
    struct kv *kv = NULL;
    ck_assert_int_eq(kv_paged.create(&setup, &kv), 0);
    return kv;
}

/* In chunks, then token by token. */
static void check_logits(struct model *m, const uint32_t *token, uint32_t tokens, const float *want)
{
    const size_t vocab = m->is.vocab;
    float *got = calloc(tokens * vocab, sizeof(*got));
    ck_assert_ptr_nonnull(got);
    struct kv *kv = paged_kv(m);
    for (uint32_t t = 0, n; t < tokens; t += n) {
        n = t + m->chunk <= tokens ? m->chunk : tokens - t;
        ck_assert_msg(model_chunk(m, kv, token + t, t, n, got + t * vocab, why) == 0, "%s", why);
    }
    const double chunks = difference(want, got, tokens * vocab);
    kv->is->destroy(kv);
    kv = paged_kv(m);
    for (uint32_t t = 0; t < tokens; t++)
        ck_assert_msg(model_step(m, 1, &kv, token + t, got + t * vocab, why) == 0, "%s", why);
    const double steps = difference(want, got, tokens * vocab);
    kv->is->destroy(kv);
    printf("%s: %u tokens; largest difference of a logit: %g in chunks, %g in steps\n", m->is.name,
           tokens, chunks, steps);
    ck_assert_msg(chunks < 1e-3 && steps < 1e-3, "%s: chunks differ by %g, steps by %g", m->is.name,
                  chunks, steps);
    free(got);
}

static void check_model(const char *path, const char *name)
{
    struct st_tensor tokens, logits;
    struct model m = {0};
    uint32_t *token = read_tensor(path, "tokens", &tokens);
    float *want = read_tensor(path, "logits", &logits);
    ck_assert_msg(model_load(path, why, &m) == 0, "%s", why);
    ck_assert_str_eq(m.is.name, name);
    ck_assert_uint_eq(tokens.shape[0], logits.shape[0]);
    ck_assert_uint_gt(tokens.shape[0], 40);
    ck_assert_uint_eq(m.is.vocab, logits.shape[1]);
    ck_assert_msg(model_begin(&m, 20, 1, why) == 0, "%s", why);
    check_logits(&m, token, (uint32_t)tokens.shape[0], want);
    model_end(&m);
    free(token);
    free(want);
}

CASES(.left_out = getenv("KVC_MODEL") != NULL);

CASE_EACH(logits_are_those_of_transformers, 2)
{
    static const char *const names[] = {"bf16", "tied"}; /* grouped heads; several files */
    char path[256];
    path_of(names[_i], path);
    check_model(path, names[_i]);
}

CASES(.left_out = getenv("KVC_MODEL") == NULL, .timeout_s = 900);

CASE(logits_of_a_given_model_are_those_of_transformers)
{
    const char *path = getenv("KVC_MODEL"), *slash = strrchr(path, '/');
    check_model(path, slash ? slash + 1 : path);
}

/* ---- what is refused ---- */

static char copy[64];

static void copy_file(const char *from, const char *to)
{
    char bytes[4096];
    size_t n;
    FILE *in = fopen(from, "rbe"), *out = fopen(to, "wbe");
    ck_assert_msg(in && out, "%s", from);
    while ((n = fread(bytes, 1, sizeof(bytes), in)) > 0)
        ck_assert_uint_eq(fwrite(bytes, 1, n, out), n);
    fclose(in);
    ck_assert_int_eq(fclose(out), 0);
}

static void copy_make(void)
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    char path[256], from[300], to[100];
    strcpy(copy, "/tmp/kvc-llama-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(copy));
    path_of("bf16", path);
    for (size_t i = 0; i < 2; i++) {
        snprintf(from, sizeof(from), "%s/%s", path, files[i]);
        snprintf(to, sizeof(to), "%s/%s", copy, files[i]);
        copy_file(from, to);
    }
}

static void copy_remove(void)
{
    char path[100];
    snprintf(path, sizeof(path), "%s/config.json", copy);
    (void)unlink(path);
    snprintf(path, sizeof(path), "%s/model.safetensors", copy);
    (void)unlink(path);
    ck_assert_int_eq(rmdir(copy), 0);
}

/* The first `from` in a file of the copy becomes `to`, which is as long. */
static void change(const char *name, const char *from, const char *to)
{
    char path[100];
    snprintf(path, sizeof(path), "%s/%s", copy, name);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    char bytes[8192];
    const ssize_t n = pread(fd, bytes, sizeof(bytes), 0);
    char *at = n > 0 ? memmem(bytes, (size_t)n, from, strlen(from)) : NULL;
    ck_assert_msg(at != NULL, "no %s", from);
    ck_assert_uint_eq(strlen(from), strlen(to));
    ck_assert_int_eq(pwrite(fd, to, strlen(to), at - bytes), (ssize_t)strlen(to));
    close(fd);
}

static void refused(const char *what)
{
    struct model m = {0};
    ck_assert_int_lt(model_load(copy, why, &m), 0);
    ck_assert_msg(strstr(why, what) != NULL, "'%s' does not say '%s'", why, what);
}

static const struct {
    const char *file, *from, *to, *what;
} wrong[] = {
    {"config.json", "\"silu\"", "\"gelu\"", "gelu"},
    {"config.json", "\"model_type\": \"llama\"", "\"model_type\": \"qwen2\"", "qwen2"},
    {"config.json", "\"rope_type\": \"default\"", "\"rope_type\": \"llama31\"", "llama31"},
    {"config.json", "\"mlp_bias\": false", "\"mlp_bias\": true ", "bias"},
    {"config.json", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", "multiple of KV"},
    {"config.json", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 1", "another shape"},
    {"config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "layers.2."},
    {"config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 0", "num_hidden_layers"},
    {"config.json", "\"mlp_bias\": false", "\"mlp_bias\": \"yes\"", "mlp_bias"},
    {"config.json", "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": -1e-5", "rms_norm_eps"},
    {"config.json", "\"initializer_range\": 0.15", "\"sliding_window\": 4      ", "sliding_window"},
    {"config.json", "\"transformers_version\": \"5.19.0\"", "\"partial_rotary_factor\": 0.5    ",
     "partial_rotary"},
    {"config.json", "\"rope_theta\": 100000.0", "\"rope_theta\": \"100000\"", "rope_theta"},
    {"config.json", "{", "[", "no JSON"},
    {"model.safetensors", "BF16", "I16\"", "header"},
    {"model.safetensors", "\"lm_head.weight\"", "\"lm_heap.weight\"", "lm_head.weight"},
};

CASES(.left_out = getenv("KVC_MODEL") != NULL);

CASE_EACH(a_model_that_is_not_computed_is_refused_by_name, sizeof(wrong) / sizeof(wrong[0]))
{
    copy_make();
    change(wrong[_i].file, wrong[_i].from, wrong[_i].to);
    refused(wrong[_i].what);
    copy_remove();
}

CASE(a_file_that_is_cut_is_refused)
{
    char path[100];
    copy_make();
    snprintf(path, sizeof(path), "%s/model.safetensors", copy);
    ck_assert_int_eq(truncate(path, 70000), 0);
    refused("model.safetensors");
    ck_assert_int_eq(unlink(path), 0);
    refused("model.safetensors");
    copy_remove();
}

CASE(other_numbers_of_the_configuration_are_another_revision)
{
    char first[36];
    struct model m = {0};
    copy_make();
    ck_assert_int_eq(model_load(copy, why, &m), 0);
    memcpy(first, m.is.revision, sizeof(first));
    model_end(&m);
    change("config.json", "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 2e-05");
    ck_assert_int_eq(model_load(copy, why, &m), 0);
    ck_assert_str_ne(m.is.revision, first);
    model_end(&m);
    copy_remove();
}

CASE(other_weights_are_another_revision)
{
    char path[256], first[36];
    struct model m = {0};
    path_of("bf16", path);
    ck_assert_int_eq(model_load(path, why, &m), 0);
    memcpy(first, m.is.revision, sizeof(first));
    model_end(&m);
    copy_make();
    ck_assert_int_eq(model_load(copy, why, &m), 0);
    ck_assert_str_eq(m.is.revision, first);
    model_end(&m);
    snprintf(path, sizeof(path), "%s/model.safetensors", copy);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(pwrite(fd, "\1\2", 2, 60000), 2);
    close(fd);
    ck_assert_int_eq(model_load(copy, why, &m), 0);
    ck_assert_str_ne(m.is.revision, first);
    model_end(&m);
    copy_remove();
}

int main(int argc, char **argv)
{
    (void)argc;
    if (getenv("KVC_MODEL"))
        product_choose_core(argv);
    return cases_run();
}
