/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out what each layer keeps, by the keys that the families of models use for it. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "kv_read.h"

/* The usual key of the window of sliding layers. */
#define WINDOW "sliding_window"

static int window_of(const struct reader *r, const char *field, struct kv_model *m)
{
    uint32_t window = 0;
    int rc = 0;
    if (kv_model_count(m, KV_SLIDING))
        rc = reader_number(r, field, 0, "the window in tokens, for the layers that slide", &window);
    for (uint32_t i = 0; i < m->layers; i++)
        if (m->layer[i].kind == KV_SLIDING)
            m->layer[i].window = window;
    return rc;
}

static void set_all(struct kv_model *m, enum kv_kind kind)
{
    for (uint32_t i = 0; i < m->layers; i++)
        m->layer[i].kind = kind;
}

/* ---- a list with an entry for each layer ---- */

static const struct {
    const char *name;
    enum kv_kind kind;
} types[] = {
    {"full_attention", KV_FULL},
    {"attention", KV_FULL},
    {"hybrid", KV_FULL},
    {"full", KV_FULL},
    {"indexed_attention", KV_FULL},
    {"sliding_attention", KV_SLIDING},
    {"chunked_attention", KV_SLIDING},
    {"linear_attention", KV_STATE},
    {"mamba", KV_STATE},
    {"mamba2", KV_STATE},
    {"conv", KV_STATE},
    {"recurrent", KV_STATE},
    {"moe", KV_NONE},
    {"mlp", KV_NONE},
};

static int type_find(const char *name, enum kv_kind *ret)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (!strcmp(types[i].name, name)) {
            *ret = types[i].kind;
            return 0;
        }
    return -ENOENT;
}

/* layer_types and similar keys: one name per layer. */
static int count_types(const struct reader *r, const char *field, const json_t *list,
                       struct kv_model *m)
{
    static const char *const windows[] = {WINDOW, "attention_chunk_size", "sliding_window_size",
                                          NULL};
    if (!json_is_array(list) || json_array_size(list) != m->layers)
        return refuse(r, field, "expected a list of %u names, one per layer", m->layers);
    for (uint32_t i = 0; i < m->layers; i++) {
        const char *type = json_string_value(json_array_get(list, i));
        if (!type)
            return refuse(r, field, "entry %u is no text; expected a list of names", i);
        if (type_find(type, &m->layer[i].kind) < 0)
            return refuse(r, field,
                          "entry %u is '%.40s'; known are full_attention, sliding_attention, "
                          "chunked_attention, indexed_attention, linear_attention, mamba, conv, "
                          "recurrent, attention, hybrid, moe and mlp",
                          i, type);
    }
    return window_of(r, reader_named(r, windows), m);
}

/* A list with one number per layer: 0 means kind `zero`, 1 means `one`. */
static int count_flags(const struct reader *r, const char *field, enum kv_kind zero,
                       enum kv_kind one, struct kv_model *m)
{
    const json_t *list = reader_get(r, field);
    if (!json_is_array(list) || json_array_size(list) != m->layers)
        return refuse(r, field, "expected a list of %u numbers, one per layer", m->layers);
    for (uint32_t i = 0; i < m->layers; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || (json_integer_value(v) != 0 && json_integer_value(v) != 1))
            return refuse(r, field, "entry %u is neither 0 nor 1", i);
        m->layer[i].kind = json_integer_value(v) ? one : zero;
    }
    return 0;
}

/* One letter per layer: '*' attends, 'M' keeps a state, the others keep nothing of a token. */
static int count_letters(const struct reader *r, const char *field, struct kv_model *m)
{
    const char *text = json_string_value(reader_get(r, field));
    if (!text || strlen(text) != m->layers)
        return refuse(r, field, "expected a text of %u letters, one per layer", m->layers);
    for (uint32_t i = 0; i < m->layers; i++) {
        if (!strchr("*M-E", text[i]))
            return refuse(r, field,
                          "known are '*' (attention), 'M' (state), '-' and 'E' (neither)");
        m->layer[i].kind = text[i] == '*' ? KV_FULL : text[i] == 'M' ? KV_STATE : KV_NONE;
    }
    return 0;
}

/* A short list of kinds that is repeated over all layers; its attention slides. */
static int count_blocks(const struct reader *r, const char *field, struct kv_model *m)
{
    const json_t *list = reader_get(r, field);
    size_t n = json_array_size(list);
    if (n == 0)
        return refuse(r, field, "expected a list of names that is repeated over the layers");
    for (uint32_t i = 0; i < m->layers; i++) {
        const char *type = json_string_value(json_array_get(list, i % n));
        if (!type || (strcmp(type, "attention") != 0 && strcmp(type, "recurrent") != 0))
            return refuse(r, field, "entry %zu: known are attention and recurrent", i % n);
        m->layer[i].kind = strcmp(type, "attention") ? KV_STATE : KV_SLIDING;
    }
    return window_of(r, "attention_window_size", m);
}

/* A list of layer numbers, counted from 0 or from 1. These layers are `in`, the others `out`. */
static int count_ids(const struct reader *r, const char *field, const json_t *list, enum kv_kind in,
                     enum kv_kind out, struct kv_model *m)
{
    bool seen[KV_LAYERS_MAX + 1] = {0};
    if (!json_is_array(list))
        return refuse(r, field, "expected a list of layers");
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
    unsigned base = seen[m->layers]; /* the number `layers` occurs only if counting begins at 1 */
    for (uint32_t i = 0; i < m->layers; i++)
        m->layer[i].kind = seen[i + base] ? in : out;
    return 0;
}

/* ---- a rule ---- */

/* Every `period`-th layer is full; the others slide, or keep a state if `window` is NULL. */
static int count_period(const struct reader *r, const char *field, uint32_t otherwise,
                        const char *window, struct kv_model *m)
{
    uint32_t period = 1;
    int rc = reader_number(r, field, otherwise, "every how many layers one is full", &period);
    for (uint32_t i = 0; i < m->layers; i++)
        m->layer[i].kind = (i + 1) % period == 0 ? KV_FULL : window ? KV_SLIDING : KV_STATE;
    return rc < 0 || !window ? rc : window_of(r, window, m);
}

/* Layer `attn_layer_offset` and every period-th layer behind it are full; the others keep a state.
 */
static int count_offset(const struct reader *r, struct kv_model *m)
{
    const json_t *v = reader_get(r, "attn_layer_offset");
    uint32_t period = 1;
    if (!v)
        return count_period(r, "attn_layer_period", 0, NULL, m);
    int rc = reader_number(r, "attn_layer_period", 0, "every how many layers one is full", &period);
    if (rc < 0)
        return rc;
    json_int_t first = json_integer_value(v);
    if (!json_is_integer(v) || first < 0 || first >= period)
        return refuse(r, "attn_layer_offset", "expected a whole number below the period of %u",
                      period);
    for (uint32_t i = 0; i < m->layers; i++)
        m->layer[i].kind = i % period == first ? KV_FULL : KV_STATE;
    return 0;
}

/* Of each `mamba_step` layers the middle one is full and the others keep a state. If the model has
 * at most half as many layers, its last layer is full. */
static int count_steps(const struct reader *r, struct kv_model *m)
{
    const json_t *use = reader_get(r, "mamba_enabled");
    uint32_t step = 1;
    if (use && !json_is_boolean(use))
        return refuse(r, "mamba_enabled", "expected true or false");
    int rc = reader_number(r, "mamba_step", 0, "of how many layers one attends", &step);
    for (uint32_t i = 0; i < m->layers; i++) {
        bool attends = m->layers <= step / 2 ? i + 1 == m->layers : i % step == step / 2;
        m->layer[i].kind = attends || json_is_false(use) ? KV_FULL : KV_STATE;
    }
    return rc;
}

/* The last layer of each group is full. In some families so are the layers behind the last whole
 * group. */
static int count_groups(const struct reader *r, struct kv_model *m)
{
    uint32_t n = 1;
    int rc = reader_number(r, "layer_group_size", 0, "layers in a group, of which one is full", &n);
    bool rest = !strncmp(m->name, "bailing_moe_v3", 14) || !strncmp(m->name, "bailing_hybrid", 14);
    for (uint32_t i = 0; i < m->layers; i++)
        m->layer[i].kind =
            (i + 1) % n == 0 || (rest && i >= m->layers / n * n) ? KV_FULL : KV_STATE;
    return rc;
}

/* A text like "LLLG", which is repeated: L slides, G is full. Or a number: every so many layers one
 * is full. */
static int count_pattern(const struct reader *r, const char *field, struct kv_model *m)
{
    const char *text = json_string_value(reader_get(r, field));
    size_t n = text ? strlen(text) : 0;
    if (!text)
        return count_period(r, field, 0, WINDOW, m);
    if (n == 0 || strspn(text, "LG") != n)
        return refuse(r, field, "expected a number, or letters L (slides) and G (full) like LLLG");
    for (uint32_t i = 0; i < m->layers; i++)
        m->layer[i].kind = text[i % n] == 'G' ? KV_FULL : KV_SLIDING;
    return window_of(r, WINDOW, m);
}

/* Layers that rotate their keys attend in chunks; layers that do not are full. */
static int count_chunks(const struct reader *r, struct kv_model *m)
{
    if (json_array_size(reader_get(r, "no_rope_layers")) == 0)
        return count_period(r, "no_rope_layer_interval", 4, "attention_chunk_size", m);
    int rc = count_flags(r, "no_rope_layers", KV_FULL, KV_SLIDING, m);
    return rc < 0 ? rc : window_of(r, "attention_chunk_size", m);
}

/* Whether there is a window: some files write -1 where others leave the key out. */
static bool has_window(const struct reader *r)
{
    const json_t *v = reader_get(r, WINDOW);
    return v && !(json_is_integer(v) && json_integer_value(v) == -1);
}

/* A window and no list of layers: all layers slide, or those that the family prescribes. */
static int count_window(const struct reader *r, struct kv_model *m)
{
    const json_t *use = reader_get(r, "use_sliding_window");
    const json_t *full = reader_get(r, "max_window_layers");
    if (use && !json_is_boolean(use))
        return refuse(r, "use_sliding_window", "expected true or false");
    set_all(m, KV_FULL);
    if (!has_window(r) || (use && !json_is_true(use)))
        return 0;
    if (use && full && (!json_is_integer(full) || json_integer_value(full) < 0))
        return refuse(r, "max_window_layers", "expected how many of the first layers are full");
    for (uint32_t i = 0; i < m->layers; i++) {
        bool slides = true;
        if (!strcmp(m->name, "gemma2")) /* every second layer slides; the file does not say so */
            slides = i % 2 == 0;
        else if (use && full)
            slides = i >= json_integer_value(full);
        m->layer[i].kind = slides ? KV_SLIDING : KV_FULL;
    }
    return window_of(r, WINDOW, m);
}

/* ---- layers that others share, and those that have no attention ---- */

/* The last `num_kv_shared_layers` layers use the KV of layers before them. */
static int share_last(const struct reader *r, struct kv_model *m)
{
    const json_t *v = reader_get(r, "num_kv_shared_layers");
    uint32_t n = 0;
    if (reader_is_off(v))
        return 0;
    int rc =
        reader_number_of(r, v, "num_kv_shared_layers", "how many of the last layers share", &n);
    if (rc < 0)
        return rc;
    if (n >= m->layers)
        return refuse(r, "num_kv_shared_layers", "expected less than the %u layers", m->layers);
    for (uint32_t i = m->layers - n; i < m->layers; i++)
        m->layer[i].kind = KV_SHARED;
    return 0;
}

/* In each group of `cla_share_factor` layers the first keeps KV for all. */
static int share_groups(const struct reader *r, struct kv_model *m)
{
    const json_t *use = reader_get(r, "use_cla");
    uint32_t n = 1;
    if (use && !json_is_boolean(use))
        return refuse(r, "use_cla", "expected true or false");
    if (!json_is_true(use))
        return 0;
    int rc = reader_number(r, "cla_share_factor", 0, "how many layers share KV", &n);
    for (uint32_t i = 0; i < m->layers; i++)
        if (i % n)
            m->layer[i].kind = KV_SHARED;
    return rc;
}

static bool kv_kinds_is_of(const struct kv_model *m, const char *const *names)
{
    while (*names && strcmp(*names, m->name) != 0)
        names++;
    return *names != NULL;
}

/* Refuses families whose layers differ if the file does not say which is which: defaults of some
 * engine would decide, and are not read here. */
static int check_mixed(const struct reader *r, const struct kv_model *m)
{
    static const char *const slide[] = {"afmoe",
                                        "cohere2",
                                        "cohere2_moe",
                                        "cohere_compass_text",
                                        "cwm",
                                        "exaone4",
                                        "exaone_moe",
                                        "gemma3n",
                                        "gemma3n_text",
                                        "gemma4",
                                        "gemma4_text",
                                        "gemma4_unified_text",
                                        "gpt_oss",
                                        "granite_swa",
                                        "granitemoe_swa",
                                        "laguna",
                                        "mellum",
                                        "mimo_v2_flash",
                                        "modernbert-decoder",
                                        "olmo3",
                                        "vaultgemma",
                                        NULL};
    static const char *const keep_states[] = {"bamba",
                                              "granitemoehybrid",
                                              "jamba",
                                              "kimi_linear",
                                              "lfm2",
                                              "lfm2_moe",
                                              "minimax",
                                              "minimax_m1",
                                              "minimax_text_01",
                                              "nemotron_h",
                                              "olmo_hybrid",
                                              "plamo2",
                                              "qwen3_5_moe_text",
                                              "qwen3_5_text",
                                              "qwen3_next",
                                              "recurrent_gemma",
                                              "zamba",
                                              "zamba2",
                                              NULL};
    if ((kv_kinds_is_of(m, slide) && has_window(r)) || kv_kinds_is_of(m, keep_states))
        return refuse(r, "layer_types",
                      "missing, and the layers of %s differ; expected which layer is of which type",
                      m->name);
    return 0;
}

/* Reads the key by which a family says it, if there is no list of names. */
static int read_rule(const struct reader *r, struct kv_model *m)
{
    static const char *const patterns[] = {"sliding_window_pattern", "_sliding_window_pattern",
                                           "global_attn_every_n_layers", NULL};
    const char *pattern = reader_named(r, patterns);
    const json_t *linear = reader_get(r, "linear_attn_config");
    /* It has an entry for each layer, so no other key matters. */
    if (reader_get(r, "hybrid_override_pattern"))
        return count_letters(r, "hybrid_override_pattern", m);
    if (reader_get(r, "attn_type_list"))
        return count_flags(r, "attn_type_list", KV_STATE, KV_FULL, m);
    if (reader_get(r, "hybrid_layer_pattern")) {
        int rc = count_flags(r, "hybrid_layer_pattern", KV_FULL, KV_SLIDING, m);
        return rc < 0 ? rc : window_of(r, WINDOW, m);
    }
    if (json_object_get(linear, "full_attn_layers"))
        return count_ids(r, "linear_attn_config.full_attn_layers",
                         json_object_get(linear, "full_attn_layers"), KV_FULL, KV_STATE, m);
    static const char *const attend[] = {"hybrid_layer_ids", "attn_layer_indices", "full_attn_idxs",
                                         NULL};
    const char *ids = reader_named(r, attend);
    if (reader_get(r, ids))
        return count_ids(r, ids, reader_get(r, ids), KV_FULL, KV_STATE, m);
    if (reader_get(r, "block_types"))
        return count_blocks(r, "block_types", m);
    if (reader_get(r, "attention_chunk_size") && !strncmp(m->name, "llama4", 6))
        return count_chunks(r, m);
    if (reader_get(r, "attn_layer_period"))
        return count_offset(r, m);
    if (reader_get(r, "mamba_step"))
        return count_steps(r, m);
    if (reader_get(r, "full_attention_interval"))
        return count_period(r, "full_attention_interval", 0, NULL, m);
    if (!reader_is_off(reader_get(r, "layer_group_size")))
        return count_groups(r, m);
    if (reader_get(r, pattern))
        return count_pattern(r, pattern, m);
    if (!strcmp(m->name, "gemma3") || !strcmp(m->name, "gemma3_text"))
        return count_period(r, pattern, 6, WINDOW, m);
    int rc = check_mixed(r, m);
    return rc < 0 ? rc : count_window(r, m);
}

/* Refuses encoders. They see the whole input at once and keep nothing for later tokens. */
static int check_decoder(const struct reader *r, const struct kv_model *m)
{
    static const char *const encoders[] = {
        "albert", "bert",       "deberta", "deberta-v2",  "distilbert", "electra", "modernbert",
        "mpnet",  "nomic_bert", "roberta", "xlm-roberta", "gte",        "new",     NULL};
    if (kv_kinds_is_of(m, encoders))
        return refuse(r, "model_type",
                      "%s is an encoder, which keeps no KV; expected a model that generates text",
                      m->name);
    if (json_is_true(json_object_get(r->root, "is_encoder_decoder")) ||
        json_is_true(reader_get(r, "is_encoder_decoder")))
        return refuse(r, "is_encoder_decoder",
                      "this file has an encoder and a decoder, which keep KV of two inputs; this "
                      "tool does not read that, so a size would be wrong");
    return 0;
}

/* In these families no layer attends, and the files do not say so. */
static const char *const states[] = {"mamba", "mamba2", "falcon_mamba", "rwkv", "rwkv7",
                                     "xlstm", NULL};

/* The number of layers by a list or text that has an entry for each; used if the number is left
 * out. */
static uint32_t count_entries(const struct reader *r)
{
    static const char *const lists[] = {"layers_block_type", "layer_types",
                                        "hybrid_override_pattern", NULL};
    const json_t *v = reader_get(r, reader_named(r, lists));
    size_t n = json_is_string(v) ? json_string_length(v) : json_array_size(v);
    return n <= KV_LAYERS_MAX ? (uint32_t)n : 0;
}

static int read_count(const struct reader *r, struct kv_model *m)
{
    static const char *const names[] = {"num_hidden_layers", "n_layer", "n_layers", "num_layers",
                                        NULL};
    const char *field = reader_named(r, names);
    uint32_t times = 1;
    if (!strncmp(m->name, "longcat_flash", 13) && reader_get(r, "num_layers")) {
        field = "num_layers"; /* each of them counts for two layers of attention */
        times = 2;
    }
    int rc = reader_number(r, field, count_entries(r), "the number of layers, like 32", &m->layers);
    if (rc < 0)
        return rc;
    if (m->layers > KV_LAYERS_MAX / times)
        return refuse(r, field, "expected at most %u layers, got %u", KV_LAYERS_MAX / times,
                      m->layers);
    m->layers *= times;
    return 0;
}

int kv_kinds_read(const struct reader *r, struct kv_model *m)
{
    static const char *const lists[] = {"layer_types", "layers_block_type", NULL};
    const char *list = reader_named(r, lists);
    int rc = check_decoder(r, m);
    if (rc == 0)
        rc = read_count(r, m);
    if (rc < 0)
        return rc;
    if (kv_kinds_is_of(m, states)) {
        set_all(m, KV_STATE);
        return 0;
    }
    rc = reader_get(r, list) ? count_types(r, list, reader_get(r, list), m) : read_rule(r, m);
    if (rc == 0)
        rc = share_groups(r, m);
    return rc < 0 ? rc : share_last(r, m);
}
