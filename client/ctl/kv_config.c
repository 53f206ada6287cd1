/* SPDX-License-Identifier: Apache-2.0 */
/* config.json: the names that the families of models use for the same things. */
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "kv_model.h"

#define LAYERS_MAX 4096u
#define NUMBER_MAX 16777216

struct reader {
    const char *path;
    const json_t *object;
    char *why;
};

__attribute__((format(printf, 3, 4))) static int refuse(const struct reader *r, const char *field,
                                                        const char *format, ...)
{
    char text[KV_WHY_BYTES / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    snprintf(r->why, KV_WHY_BYTES, "%s: %s: %s", r->path, field, text);
    return -EINVAL;
}

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

/* Every `period`-th layer attends to everything; the others slide, or keep a state. */
static int count_period(const struct reader *r, const char *field, bool slide, struct kv_model *m)
{
    uint32_t period = 1;
    int rc = number(r, field, 0, "every how many layers one is full", &period);
    if (rc < 0)
        return rc;
    m->full = m->layers / period;
    *(slide ? &m->sliding : &m->linear) = m->layers - m->full;
    return slide ? window_of(r, "sliding_window", m) : 0;
}

/* A window without a list of layers: all of them slide, or those that the family says. */
static int count_window(const struct reader *r, struct kv_model *m)
{
    const json_t *use = get(r, "use_sliding_window");
    uint32_t full = 0;
    if (use && !json_is_boolean(use))
        return refuse(r, "use_sliding_window", "expected true or false");
    if (!get(r, "sliding_window") || (use && !json_is_true(use))) {
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
    if (get(r, "attn_layer_period"))
        return count_period(r, "attn_layer_period", false, m);
    if (get(r, "full_attention_interval"))
        return count_period(r, "full_attention_interval", false, m);
    if (get(r, "sliding_window_pattern"))
        return count_period(r, "sliding_window_pattern", true, m);
    return count_window(r, m);
}

/* ---- heads ---- */

static int read_latent(const struct reader *r, struct kv_model *m)
{
    int rc = number(r, "kv_lora_rank", 0, "the elements of a latent, like 512", &m->latent);
    if (rc == 0)
        rc = number(r, "qk_rope_head_dim", 0,
                    "the elements of the rotary key beside the latent, like 64", &m->rope);
    return rc;
}

static int read_heads(const struct reader *r, struct kv_model *m)
{
    static const char *const hidden[] = {"hidden_size", "n_embd", "d_model", NULL};
    static const char *const heads[] = {"num_attention_heads", "n_head", "n_heads", NULL};
    uint32_t all = 1;
    int rc = number(r, named(r, hidden), 0, "the width of the model, like 4096", &m->hidden);
    if (rc < 0)
        return rc;
    if (get(r, "kv_lora_rank"))
        return read_latent(r, m);
    rc = number(r, named(r, heads), 0, "the number of attention heads, like 32", &all);
    if (rc < 0)
        return rc;
    rc = number(r, "num_key_value_heads", all, "the number of KV heads, like 8", &m->kv_heads);
    if (rc < 0)
        return rc;
    if (m->kv_heads > all || all % m->kv_heads)
        return refuse(r, "num_key_value_heads",
                      "%u does not divide the %u attention heads; expected 1, 2, ... %u",
                      m->kv_heads, all, all);
    if (!get(r, "head_dim") && m->hidden % all)
        return refuse(
            r, "head_dim",
            "missing, and it cannot be derived: hidden_size %u is no multiple of %u heads",
            m->hidden, all);
    return number(r, "head_dim", m->hidden / all, "the size of a head, like 128", &m->head_size);
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
    snprintf(m->name, sizeof(m->name), "%s", type ? type : "model");
    int rc = read_layers(&r, m);
    return rc < 0 ? rc : read_heads(&r, m);
}

int kv_model_load(const char *path, char why[KV_WHY_BYTES], struct kv_model *ret_model)
{
    struct stat st;
    FILE *file = fopen(path, "re");
    int err = file ? 0 : -errno;
    if (file && fstat(fileno(file), &st) == 0 && S_ISDIR(st.st_mode)) {
        fclose(file); /* opens, but cannot be read */
        err = -EISDIR;
    }
    if (err) {
        snprintf(why, KV_WHY_BYTES, "%s: %s; give a model's config.json", path, strerror(-err));
        return err;
    }
    json_error_t error;
    json_t *root = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    fclose(file);
    if (!root) {
        snprintf(why, KV_WHY_BYTES, "%s:%d: not JSON: %s", path, error.line, error.text);
        return -EINVAL;
    }
    struct kv_model m = {0};
    int rc = read_model(path, root, why, &m);
    json_decref(root);
    if (rc == 0)
        *ret_model = m;
    return rc;
}
