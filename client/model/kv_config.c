/* SPDX-License-Identifier: Apache-2.0 */
/* Reads config.json as a file: as Python writes it, with the text model at the top or nested. Also
 * names, types, and the model's context. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file_kind.h"
#include "kv_read.h"

#define NUMBER_MAX 16777216
#define NESTED_MAX 3 /* how deep the text model may lie: thinker_config, text_config */

/* ---- keys ---- */

void reader_say(const struct reader *r, const char *field, const char *format, ...)
{
    char text[KV_WHY_BYTES / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    snprintf(r->why, KV_WHY_BYTES, "%s: %s: %s", r->path, field, text);
}

const json_t *reader_get(const struct reader *r, const char *field)
{
    const json_t *v = json_object_get(r->object, field);
    return v && !json_is_null(v) ? v : NULL;
}

const char *reader_named(const struct reader *r, const char *const *names)
{
    for (unsigned i = 0; names[i]; i++)
        if (reader_get(r, names[i]))
            return names[i];
    return names[0];
}

int reader_number_of(const struct reader *r, const json_t *v, const char *field, const char *what,
                     uint32_t *ret)
{
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > NUMBER_MAX)
        return refuse(r, field, "expected %s, a whole number from 1 to %d", what, NUMBER_MAX);
    *ret = (uint32_t)json_integer_value(v);
    return 0;
}

int reader_number(const struct reader *r, const char *field, uint32_t otherwise, const char *what,
                  uint32_t *ret)
{
    const json_t *v = reader_get(r, field);
    if (!v && !otherwise)
        return refuse(r, field, "missing; expected %s", what);
    if (!v) {
        *ret = otherwise;
        return 0;
    }
    return reader_number_of(r, v, field, what, ret);
}

bool reader_is_off(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) ||
           (json_is_integer(v) && json_integer_value(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0);
}

/* ---- types ---- */

static void set_dtype(struct kv_model *m, const char *name, const char *key)
{
    snprintf(m->dtype, sizeof(m->dtype), "%s", name);
    snprintf(m->stated, sizeof(m->stated), "%s", key);
    m->unsized = !name[0];
}

static void read_dtype(const struct reader *r, struct kv_model *m)
{
    static const char *const names[] = {"torch_dtype", "dtype", NULL};
    static const char *const types[][2] = {
        {"bfloat16", "bf16"}, {"float16", "fp16"}, {"half", "fp16"}, {"float32", "fp32"}};
    static const char torch[] = "torch.";
    const char *key = reader_named(r, names), *text = json_string_value(reader_get(r, key));
    if (!reader_get(r, key) || (text && (!text[0] || !strcmp(text, "auto"))))
        return;
    if (text && !strncmp(text, torch, strlen(torch)))
        text += strlen(torch);
    set_dtype(m, "", key);
    for (size_t i = 0; text && i < sizeof(types) / sizeof(types[0]); i++)
        if (!strcmp(text, types[i][0]))
            set_dtype(m, types[i][1], key);
}

/* Reads what a checkpoint says about the type of KV itself; such a checkpoint brings calibrated
 * scales for it. */
static void read_scheme(const json_t *quant, struct kv_model *m)
{
    const json_t *scheme = json_object_get(quant, "kv_cache_scheme");
    const char *type = json_string_value(json_object_get(scheme, "type"));
    const json_t *inner = json_object_get(quant, "quantization");
    const char *algo = json_string_value(json_object_get(quant, "kv_cache_quant_algo"));
    if (!algo)
        algo = json_string_value(json_object_get(inner, "kv_cache_quant_algo"));
    if (json_is_string(scheme))
        algo = json_string_value(scheme);
    if (json_is_object(scheme) && !reader_is_off(scheme)) {
        bool fp8 = json_integer_value(json_object_get(scheme, "num_bits")) == 8 &&
                   (!type || !strcmp(type, "float"));
        set_dtype(m, fp8 ? "fp8" : "", "kv_cache_scheme");
    } else if (algo && (!strcmp(algo, "FP8") || !strncmp(algo, "fp8", 3))) {
        set_dtype(m, "fp8", "kv_cache_quant_algo");
    } else if (algo && strcmp(algo, "auto") != 0) {
        set_dtype(m, "", "kv_cache_quant_algo");
    }
}

static void read_quantization(const struct reader *r, struct kv_model *m)
{
    static const char *const names[] = {"quantization_config", "compression_config", NULL};
    for (unsigned i = 0; names[i]; i++) {
        read_scheme(json_object_get(r->root, names[i]), m);
        read_scheme(reader_get(r, names[i]), m);
    }
}

/* ---- the context that the model was made for ---- */

static void read_context(const struct reader *r, struct kv_model *m)
{
    static const char *const names[] = {
        "max_position_embeddings", "n_positions",         "max_seq_len", "seq_length",
        "model_max_length",        "max_sequence_length", "n_ctx",       NULL};
    static const char *const scalings[] = {"rope_scaling", "rope_parameters", NULL};
    const json_t *v = reader_get(r, reader_named(r, names));
    const json_t *scaling = reader_get(r, reader_named(r, scalings));
    double n = json_is_number(v) ? json_number_value(v) : 0;
    /* The stretched context counts, where the file has the number of positions before stretching.
     */
    double before = json_number_value(json_object_get(scaling, "original_max_position_embeddings"));
    double stretched = before * json_number_value(json_object_get(scaling, "factor"));
    n = stretched > n ? stretched : n;
    m->context = n >= 1 && n < UINT32_MAX ? (uint32_t)n : 0;
}

/* ---- the file ---- */

/* Finds the object that describes the layers: the file's top, or the text model inside it. */
static void find_text(struct reader *r, struct kv_model *m)
{
    static const char *const inner[] = {"text_config",    "language_config", "llm_config",
                                        "thinker_config", "language_model",  NULL};
    static const char *const layers[] = {"num_hidden_layers", "n_layer",           "n_layers",
                                         "num_layers",        "layers_block_type", NULL};
    read_dtype(r, m);
    for (unsigned i = 0; i < NESTED_MAX && !reader_get(r, reader_named(r, layers)); i++) {
        const json_t *text = reader_get(r, reader_named(r, inner));
        if (!json_is_object(text))
            return;
        const size_t n = strlen(m->inside);
        snprintf(m->inside + n, sizeof(m->inside) - n, "%s%s", n ? "." : "",
                 reader_named(r, inner));
        r->object = text;
        read_dtype(r, m);
    }
}

static int read_model(const char *path, const json_t *root, char *why, struct kv_model *m)
{
    struct reader r = {.path = path, .root = root, .object = root, .why = why};
    if (!json_is_object(root)) {
        reader_say(&r, "the file", "expected an object, as config.json of a model has it");
        return -EBADMSG;
    }
    find_text(&r, m);
    read_quantization(&r, m);
    const char *type = json_string_value(reader_get(&r, "model_type"));
    if (!type)
        type = json_string_value(json_object_get(root, "model_type"));
    snprintf(m->name, sizeof(m->name), "%s", type ? type : "model");
    read_context(&r, m);
    int rc = kv_kinds_read(&r, m);
    if (rc < 0 || kv_model_caching_layers(m) == 0)
        return rc; /* no layer keeps KV whose size a key could change */
    rc = kv_unread_check(&r, m);
    return rc < 0 ? rc : kv_heads_read(&r, m);
}

/* Python writes NaN, Infinity and -Infinity, which are not JSON. They are read as texts, and
 * refused only where a number is needed. The caller frees the copy. */
static char *quote_numbers(const char *text, size_t n, size_t *ret_n)
{
    static const char *const names[] = {"-Infinity", "Infinity", "NaN"};
    char *copy = malloc(2 * n + 1);
    size_t to = 0;
    bool inside = false;
    for (size_t i = 0; copy && i < n;) {
        size_t word = 0;
        for (unsigned k = 0; k < 3 && !inside && !word; k++)
            if (n - i >= strlen(names[k]) && !memcmp(text + i, names[k], strlen(names[k])))
                word = strlen(names[k]);
        if (word) {
            copy[to++] = '"';
            memcpy(copy + to, text + i, word);
            copy[to + word] = '"';
            to += word + 1;
            i += word;
            continue;
        }
        if (inside && text[i] == '\\' && i + 1 < n)
            copy[to++] = text[i++];
        else if (text[i] == '"')
            inside = !inside;
        copy[to++] = text[i++];
    }
    *ret_n = to;
    return copy;
}

static int no_memory(const char *path, char *why)
{
    snprintf(why, KV_WHY_BYTES, "%s: %s", path, strerror(ENOMEM));
    return -ENOMEM;
}

static int load_root(const char *path, const char *text, size_t n, char *why, json_t **ret_root)
{
    json_error_t error;
    size_t copied = 0;
    char *copy = quote_numbers(text, n, &copied);
    if (!copy)
        return no_memory(path, why);
    *ret_root = json_loadb(copy, copied, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    free(copy);
    if (*ret_root)
        return 0;
    if (json_error_code(&error) == json_error_out_of_memory)
        return no_memory(path, why);
    snprintf(why, KV_WHY_BYTES, "%s:%d: not JSON: %s%s", path, error.line, error.text,
             file_kind_text_hint(text, n));
    return -EBADMSG;
}

int kv_model_read(const char *name, const char *text, size_t n, char why[KV_WHY_BYTES],
                  struct kv_model *ret_model)
{
    json_t *root = NULL;
    int rc = load_root(name, text, n, why, &root);
    if (rc < 0)
        return rc;
    memset(ret_model, 0, sizeof(*ret_model));
    rc = read_model(name, root, why, ret_model);
    json_decref(root);
    return rc;
}
