/* SPDX-License-Identifier: Apache-2.0 */
/* config.json: the names that the families of models use for the same things. */
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "infile.h"
#include "kv_model.h"

#define LAYERS_MAX 4096u
#define NUMBER_MAX 16777216

struct reader {
    const char *path;
    const json_t *object;
    char *why;
};

__attribute__((format(printf, 3, 4))) static void say(const struct reader *r, const char *field,
                                                      const char *format, ...)
{
    char text[KV_WHY_BYTES / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    snprintf(r->why, KV_WHY_BYTES, "%s: %s: %s", r->path, field, text);
}

/* In sight of who calls, also of an analyser, that it fails. */
#define refuse(...) (say(__VA_ARGS__), -EINVAL)

static const json_t *get(const struct reader *r, const char *field)
{
    const json_t *v = json_object_get(r->object, field);
    return v && !json_is_null(v) ? v : NULL;
}

/* `otherwise` where the field is missing; 0 = it must be there. */
static int number(const struct reader *r, const char *field, uint32_t otherwise, const char *what,
                  uint32_t *ret)
{
    const json_t *v = get(r, field);
    if (!v && !otherwise)
        return refuse(r, field, "missing; expected %s", what);
    if (!v) {
        *ret = otherwise;
        return 0;
    }
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > NUMBER_MAX)
        return refuse(r, field, "expected %s, a whole number from 1 to %d", what, NUMBER_MAX);
    *ret = (uint32_t)json_integer_value(v);
    return 0;
}

/* The first of several names that is there, else the first one. */
static const char *named(const struct reader *r, const char *const *names)
{
    for (unsigned i = 0; names[i]; i++)
        if (get(r, names[i]))
            return names[i];
    return names[0];
}

/* Its files leave out what is usual in the family: one layer in 6 is full; 8 heads of 256, 4 of KV.
 */
static bool is_gemma3(const struct kv_model *m)
{
    return !strcmp(m->name, "gemma3") || !strcmp(m->name, "gemma3_text");
}

/* ---- which layers keep what ---- */

static int window_of(const struct reader *r, const char *field, struct kv_model *m)
{
    return number(r, field, 0, "the window in tokens, for the layers that slide", &m->window);
}

/* layer_types and its like: one name per layer. */
static int count_types(const struct reader *r, const char *field, const json_t *list,
                       struct kv_model *m)
{
    if (!json_is_array(list) || json_array_size(list) != m->layers)
        return refuse(r, field, "expected a list of %u names, one per layer", m->layers);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *type = json_string_value(json_array_get(list, i));
        if (!type)
            return refuse(r, field, "entry %zu is no text; expected a list of names", i);
        if (!strcmp(type, "full_attention") || !strcmp(type, "attention") ||
            !strcmp(type, "hybrid"))
            m->full++;
        else if (!strcmp(type, "sliding_attention") || !strcmp(type, "chunked_attention"))
            m->sliding++;
        else if (!strcmp(type, "linear_attention") || !strcmp(type, "mamba") ||
                 !strcmp(type, "conv") || !strcmp(type, "recurrent"))
            m->linear++;
        else
            return refuse(r, field,
                          "entry %zu is '%.40s'; known are full_attention, sliding_attention, "
                          "chunked_attention, linear_attention, mamba, conv, recurrent, attention "
                          "and hybrid",
                          i, type);
    }
    if (m->sliding == 0)
        return 0;
    return window_of(r, get(r, "sliding_window") ? "sliding_window" : "attention_chunk_size", m);
}

/* A list of one number per layer: 0 is `zero`, 1 is `one`. */
static int count_flags(const struct reader *r, const char *field, uint32_t *zero, uint32_t *one,
                       const struct kv_model *m)
{
    const json_t *list = get(r, field);
    if (!json_is_array(list) || json_array_size(list) != m->layers)
        return refuse(r, field, "expected a list of %u numbers, one per layer", m->layers);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || (json_integer_value(v) != 0 && json_integer_value(v) != 1))
            return refuse(r, field, "entry %zu is neither 0 nor 1", i);
        ++*(json_integer_value(v) ? one : zero);
    }
    return 0;
}

/* One letter per layer: '*' attends, 'M' keeps a state, the others keep nothing of a token. */
static int count_letters(const struct reader *r, const char *field, struct kv_model *m)
{
    const char *text = json_string_value(get(r, field));
    if (!text || strlen(text) != m->layers)
        return refuse(r, field, "expected a text of %u letters, one per layer", m->layers);
    for (const char *c = text; *c; c++) {
        if (*c == '*')
            m->full++;
        else if (*c == 'M')
            m->linear++;
        else if (*c == '-' || *c == 'E')
            m->plain++;
        else
            return refuse(r, field,
                          "known are '*' (attention), 'M' (state), '-' and 'E' (neither)");
    }
    return 0;
}

/* A few kinds that are repeated until there are enough layers; attention looks at a window. */
static int count_blocks(const struct reader *r, const char *field, struct kv_model *m)
{
    const json_t *list = get(r, field);
    size_t n = json_array_size(list);
    if (n == 0)
        return refuse(r, field, "expected a list of names that is repeated over the layers");
    for (uint32_t i = 0; i < m->layers; i++) {
        const char *type = json_string_value(json_array_get(list, i % n));
        if (type && !strcmp(type, "attention"))
            m->sliding++;
        else if (type && !strcmp(type, "recurrent"))
            m->linear++;
        else
            return refuse(r, field, "entry %zu: known are attention and recurrent", i % n);
    }
    return m->sliding ? window_of(r, "attention_window_size", m) : 0;
}

/* The numbers of the layers that attend; the others keep a state. Layers count from 0 or from 1. */
static int count_ids(const struct reader *r, const char *field, const json_t *list,
                     struct kv_model *m)
{
    bool seen[LAYERS_MAX + 1] = {0};
    if (!json_is_array(list))
        return refuse(r, field, "expected a list of the layers that attend to everything");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id > m->layers || seen[id])
            return refuse(r, field, "entry %zu is no layer, or there twice; there are %u layers", i,
                          m->layers);
        seen[id] = true;
    }
    if (json_array_size(list) > m->layers)
        return refuse(r, field, "names more than the %u layers", m->layers);
    m->full = (uint32_t)json_array_size(list);
    m->linear = m->layers - m->full;
    return 0;
}

/* Every `period`-th layer attends to everything; the others slide, or keep a state. */
static int count_period(const struct reader *r, const char *field, uint32_t otherwise,
                        const char *window, struct kv_model *m)
{
    uint32_t period = 1;
    int rc = number(r, field, otherwise, "every how many layers one is full", &period);
    if (rc < 0)
        return rc;
    m->full = m->layers / period;
    *(window ? &m->sliding : &m->linear) = m->layers - m->full;
    return window && m->sliding ? window_of(r, window, m) : 0;
}

/* Layer `attn_layer_offset` and every period-th one behind it attend; the others keep a state. */
static int count_offset(const struct reader *r, struct kv_model *m)
{
    const json_t *v = get(r, "attn_layer_offset");
    uint32_t period = 1;
    if (!v)
        return count_period(r, "attn_layer_period", 0, NULL, m);
    int rc = number(r, "attn_layer_period", 0, "every how many layers one is full", &period);
    if (rc < 0)
        return rc;
    json_int_t first = json_integer_value(v);
    if (!json_is_integer(v) || first < 0 || first >= period)
        return refuse(r, "attn_layer_offset", "expected a whole number below the period of %u",
                      period);
    m->full = first < m->layers ? (m->layers - (uint32_t)first + period - 1) / period : 0;
    m->linear = m->layers - m->full;
    return 0;
}

/* "LLLG", repeated: L slides, G is full. Or a number: every so many layers one is full. */
static int count_pattern(const struct reader *r, const char *field, struct kv_model *m)
{
    const char *text = json_string_value(get(r, field));
    size_t n = text ? strlen(text) : 0;
    if (!text)
        return count_period(r, field, 0, "sliding_window", m);
    if (n == 0 || strspn(text, "LG") != n)
        return refuse(r, field, "expected a number, or letters L (slides) and G (full) like LLLG");
    for (uint32_t i = 0; i < m->layers; i++)
        ++*(text[i % n] == 'G' ? &m->full : &m->sliding);
    return m->sliding ? window_of(r, "sliding_window", m) : 0;
}

/* Chunks in the layers that turn their keys; those that do not see everything. */
static int count_chunks(const struct reader *r, struct kv_model *m)
{
    int rc;
    if (json_array_size(get(r, "no_rope_layers")) == 0)
        return count_period(r, "no_rope_layer_interval", 4, "attention_chunk_size", m);
    rc = count_flags(r, "no_rope_layers", &m->full, &m->sliding, m);
    return rc == 0 && m->sliding ? window_of(r, "attention_chunk_size", m) : rc;
}

/* Some files write -1 where others leave the window out. */
static bool has_window(const struct reader *r)
{
    const json_t *v = get(r, "sliding_window");
    return v && !(json_is_integer(v) && json_integer_value(v) == -1);
}

/* A window without a list of layers: all of them slide, or those that the family says. */
static int count_window(const struct reader *r, struct kv_model *m)
{
    const json_t *use = get(r, "use_sliding_window");
    uint32_t full = 0;
    if (use && !json_is_boolean(use))
        return refuse(r, "use_sliding_window", "expected true or false");
    if (!has_window(r) || (use && !json_is_true(use))) {
        m->full = m->layers;
        return 0;
    }
    if (!strcmp(m->name, "gemma2"))
        full = m->layers / 2; /* every second one; the file does not say so */
    else if (use && get(r, "max_window_layers")) {
        const json_t *v = get(r, "max_window_layers");
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return refuse(r, "max_window_layers", "expected how many of the first layers are full");
        full = json_integer_value(v) < m->layers ? (uint32_t)json_integer_value(v) : m->layers;
    }
    m->full = full;
    m->sliding = m->layers - full;
    return m->sliding ? window_of(r, "sliding_window", m) : 0;
}

/* Keys that say which layers keep what, or share it, and that nothing here reads. A wrong size is
 * worse than none. */
static int check_unread(const struct reader *r, const char *used)
{
    static const char *const names[] = {"attn_type_list",
                                        "block_types",
                                        "linear_attn_config",
                                        "attention_types",
                                        "multi_query_group_num",
                                        "full_attn_idxs",
                                        "cla_share_factor",
                                        "attention_chunk_size",
                                        "attention_window_size",
                                        "attn_layer_list",
                                        "use_cla",
                                        NULL};
    json_t *object = json_incref((json_t *)r->object);
    const char *key, *bad = NULL;
    json_t *v;
    json_object_foreach(object, key, v)
    {
        size_t n = strlen(key);
        bool odd = (n > 8 && !strcmp(key + n - 8, "_pattern")) || !strncmp(key, "hybrid_", 7);
        for (unsigned i = 0; names[i]; i++)
            odd |= !strcmp(key, names[i]);
        if (odd && !json_is_null(v) && !json_is_false(v) && strcmp(key, used) != 0)
            bad = key;
    }
    int rc = 0;
    if (bad)
        rc = refuse(r, bad,
                    "this file has '%.60s', which this tool does not read: it says which layers "
                    "keep what, so a size without it would be wrong",
                    bad);
    json_decref(object);
    return rc;
}

static bool is_off(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) ||
           (json_is_integer(v) && json_integer_value(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0);
}

/* Keys that make layers differ, add a cache beside K and V, or state another size than the keys
 * read here; each with what it says. */
static const struct {
    const char *key, *says;
} sizes_unread[] = {
    {"num_kv_shared_layers", "layers that share KV"},
    {"num_global_key_value_heads", "other KV heads in the layers that are full"},
    {"global_head_dim", "another head size in the layers that are full"},
    {"swa_num_key_value_heads", "other KV heads in the layers that slide"},
    {"swa_head_dim", "another head size in the layers that slide"},
    {"swa_v_head_dim", "another size of values in the layers that slide"},
    {"attention_other_setting", "other heads in some layers"},
    {"block_configs", "attention of its own in each layer"},
    {"attn_config", "KV heads in an object of their own"},
    {"attn_layer_indices", "which layers attend"},
    {"cross_attention_layers", "layers that attend to another input"},
    {"layer_group_size", "groups of layers of which one attends"},
    {"compress_ratios", "layers that keep KV of several tokens as one"},
    {"index_n_heads", "an indexer, which keeps a cache of its own"},
    {"index_head_dim", "an indexer, which keeps a cache of its own"},
    {"is_encoder_decoder", "an encoder and a decoder, which keep KV of two inputs"},
};

/* A wrong size is worse than none. */
static int check_sizes(const struct reader *r)
{
    for (size_t i = 0; i < sizeof(sizes_unread) / sizeof(sizes_unread[0]); i++)
        if (!is_off(get(r, sizes_unread[i].key)))
            return refuse(r, sizes_unread[i].key,
                          "this file has %s, which this tool does not read, so a size would be "
                          "wrong",
                          sizes_unread[i].says);
    return 0;
}

/* They see the whole input at once, so nothing is kept for tokens to come. */
static int check_decoder(const struct reader *r, const struct kv_model *m)
{
    static const char *const encoders[] = {"albert",     "bert",    "deberta",    "deberta-v2",
                                           "distilbert", "electra", "modernbert", "mpnet",
                                           "nomic_bert", "roberta", "xlm-roberta"};
    for (size_t i = 0; i < sizeof(encoders) / sizeof(encoders[0]); i++)
        if (!strcmp(m->name, encoders[i]))
            return refuse(r, "model_type",
                          "%s is an encoder, which keeps no KV; expected a model that generates "
                          "text",
                          m->name);
    return 0;
}

/* Each family's own way to say it, where there is no list of names. */
static int read_kinds(const struct reader *r, struct kv_model *m)
{
    static const char *const patterns[] = {"sliding_window_pattern", "_sliding_window_pattern",
                                           NULL};
    const char *pattern = named(r, patterns), *used = "";
    const json_t *linear = get(r, "linear_attn_config");
    int rc;
    if (get(r, "hybrid_override_pattern")) /* one entry per layer: nothing else matters */
        return count_letters(r, "hybrid_override_pattern", m);
    if (get(r, "attn_type_list"))
        return count_flags(r, "attn_type_list", &m->linear, &m->full, m);
    if (get(r, "hybrid_layer_ids"))
        return count_ids(r, "hybrid_layer_ids", get(r, "hybrid_layer_ids"), m);
    if (json_object_get(linear, "full_attn_layers"))
        return count_ids(r, "linear_attn_config.full_attn_layers",
                         json_object_get(linear, "full_attn_layers"), m);
    if (get(r, "block_types"))
        return count_blocks(r, "block_types", m);
    if (get(r, "attention_chunk_size") && !strncmp(m->name, "llama4", 6)) {
        rc = count_chunks(r, m);
        used = "attention_chunk_size";
    } else if (get(r, "attn_layer_period")) {
        rc = count_offset(r, m);
    } else if (get(r, "full_attention_interval")) {
        rc = count_period(r, "full_attention_interval", 0, NULL, m);
    } else if (get(r, pattern)) {
        rc = count_pattern(r, pattern, m);
        used = pattern;
    } else if (is_gemma3(m)) {
        rc = count_period(r, pattern, 6, "sliding_window", m);
    } else {
        rc = count_window(r, m);
    }
    return rc < 0 ? rc : check_unread(r, used);
}

static int read_layers(const struct reader *r, struct kv_model *m)
{
    static const char *const names[] = {"num_hidden_layers", "n_layer", "n_layers", NULL};
    static const char *const lists[] = {"layer_types", "layers_block_type", NULL};
    const char *field = named(r, names), *list = named(r, lists);
    int rc = number(r, field, 0, "the number of layers, like 32", &m->layers);
    if (rc < 0)
        return rc;
    if (m->layers > LAYERS_MAX)
        return refuse(r, field, "expected at most %u layers, got %u", LAYERS_MAX, m->layers);
    if (get(r, list))
        return count_types(r, list, get(r, list), m);
    return read_kinds(r, m);
}

/* ---- heads ---- */

static int read_latent(const struct reader *r, struct kv_model *m)
{
    int rc = number(r, "kv_lora_rank", 0, "the elements of a latent, like 512", &m->latent);
    if (rc == 0)
        rc = number(r, "qk_rope_head_dim", 0,
                    "the elements of the rotary key beside the latent, like 64", &m->rope);
    if (rc < 0 || !get(r, "num_attention_heads") || !get(r, "qk_nope_head_dim") ||
        !get(r, "v_head_dim"))
        return rc;
    uint32_t heads = 1, plain = 1, value = 1;
    rc = number(r, "num_attention_heads", 0, "the number of attention heads, like 128", &heads);
    if (rc == 0)
        rc = number(r, "qk_nope_head_dim", 0, "a key's elements without the rotary, like 128",
                    &plain);
    if (rc == 0)
        rc = number(r, "v_head_dim", 0, "a value's elements, like 128", &value);
    if (rc == 0 && heads > 65536)
        return refuse(r, "num_attention_heads", "expected at most 65536");
    m->expanded_heads = heads;
    m->expanded = heads * ((uint64_t)plain + m->rope + value);
    return rc;
}

/* Falcon and its like: all heads share one K and V, unless the file says otherwise. */
static int read_kv_heads(const struct reader *r, uint32_t all, struct kv_model *m)
{
    static const char *const names[] = {"num_key_value_heads", "num_kv_heads", "n_head_kv", NULL};
    const char *field = named(r, names);
    const json_t *multi = get(r, "multi_query"), *grouped = get(r, "new_decoder_architecture");
    bool family = !strcmp(m->name, "falcon") || !strcmp(m->name, "gpt_bigcode");
    if (multi && !json_is_boolean(multi))
        return refuse(r, "multi_query", "expected true or false");
    if (!json_is_true(grouped) && (multi ? json_is_true(multi) : family)) {
        m->kv_heads = 1;
        return 0;
    }
    if (family && !json_is_true(grouped)) {
        m->kv_heads = all;
        return 0;
    }
    int rc =
        number(r, field, is_gemma3(m) ? 4 : all, "the number of KV heads, like 8", &m->kv_heads);
    if (rc < 0)
        return rc;
    if (m->kv_heads > all || all % m->kv_heads)
        return refuse(r, field, "%u does not divide the %u attention heads; expected 1, 2, ... %u",
                      m->kv_heads, all, all);
    return 0;
}

static int read_heads(const struct reader *r, struct kv_model *m)
{
    static const char *const hidden[] = {"hidden_size", "n_embd", "d_model", NULL};
    static const char *const heads[] = {"num_attention_heads", "n_head", "n_heads", NULL};
    static const char *const sizes[] = {"head_dim", "attention_head_dim", NULL};
    const char *size = named(r, sizes);
    uint32_t all = 1;
    int rc = number(r, named(r, hidden), 0, "the width of the model, like 4096", &m->hidden);
    if (rc < 0)
        return rc;
    if (get(r, "kv_lora_rank"))
        return read_latent(r, m);
    rc = number(r, named(r, heads), is_gemma3(m) ? 8 : 0, "the number of attention heads, like 32",
                &all);
    if (rc == 0)
        rc = read_kv_heads(r, all, m);
    if (rc < 0)
        return rc;
    if (!strncmp(m->name, "gemma", 5))
        return number(r, size, 256, "the size of a head, like 256", &m->head_size);
    if (!get(r, size) && m->hidden % all)
        return refuse(
            r, size, "missing, and it cannot be derived: hidden_size %u is no multiple of %u heads",
            m->hidden, all);
    return number(r, size, m->hidden / all, "the size of a head, like 128", &m->head_size);
}

static void read_dtype(const struct reader *r, struct kv_model *m)
{
    static const char *const names[] = {"torch_dtype", "dtype", NULL};
    const char *text = json_string_value(get(r, named(r, names)));
    if (!text)
        return;
    if (!strcmp(text, "bfloat16"))
        snprintf(m->dtype, sizeof(m->dtype), "bf16");
    else if (!strcmp(text, "float16"))
        snprintf(m->dtype, sizeof(m->dtype), "fp16");
    else if (!strcmp(text, "float32"))
        snprintf(m->dtype, sizeof(m->dtype), "fp32");
}

static int read_model(const char *path, const json_t *root, char *why, struct kv_model *m)
{
    static const char *const inner[] = {"text_config", "language_config", "llm_config", NULL};
    struct reader r = {.path = path, .object = root, .why = why};
    if (!json_is_object(root))
        return refuse(&r, "the file", "expected an object, as config.json of a model has it");
    const json_t *text = get(&r, named(&r, inner));
    read_dtype(&r, m);
    if (!get(&r, "num_hidden_layers") && json_is_object(text))
        r.object = text;
    read_dtype(&r, m);
    const char *type = json_string_value(get(&r, "model_type"));
    if (!type)
        type = json_string_value(json_object_get(root, "model_type"));
    snprintf(m->name, sizeof(m->name), "%s", type ? type : "model");
    int rc = check_decoder(&r, m);
    if (rc == 0)
        rc = check_sizes(&r);
    if (rc == 0)
        rc = read_layers(&r, m);
    return rc < 0 ? rc : read_heads(&r, m);
}

int kv_model_load(const char *path, char why[KV_WHY_BYTES], struct kv_model *ret_model)
{
    FILE *file;
    const char *fault;
    int rc = infile_open(path, &file, &fault);
    if (rc == -EISDIR) {
        snprintf(why, KV_WHY_BYTES, "%s: is a directory; name the config.json in it", path);
        return -EINVAL;
    }
    if (rc < 0) {
        snprintf(why, KV_WHY_BYTES, "%s: %s", path, fault);
        return rc;
    }
    json_error_t error;
    json_t *root = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    fclose(file);
    if (!root) {
        snprintf(why, KV_WHY_BYTES, "%s:%d: not JSON: %s", path, error.line, error.text);
        return -EINVAL;
    }
    struct kv_model m = {0};
    rc = read_model(path, root, why, &m);
    json_decref(root);
    if (rc == 0)
        *ret_model = m;
    return rc;
}
