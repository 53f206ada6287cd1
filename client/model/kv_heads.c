/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what a layer keeps for each token: heads and their sizes, latents, an indexer's keys. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kv_read.h"

#define HEADS_MAX 65536u

static bool is_kind_of(const struct kv_model *m, const char *family)
{
    return !strncmp(m->name, family, strlen(family));
}

/* Files of this family leave out its usual values: 8 heads of 256 elements, 4 KV heads. */
static bool is_gemma3(const struct kv_model *m)
{
    return !strcmp(m->name, "gemma3") || !strcmp(m->name, "gemma3_text");
}

static void set_heads(struct kv_model *m, uint32_t heads)
{
    for (uint32_t i = 0; i < m->layers; i++)
        m->layer[i].kv_heads = heads;
}

/* ---- MLA ---- */

static int read_latent(const struct reader *r, struct kv_model *m)
{
    const json_t *rope = reader_get(r, "qk_rope_head_dim");
    int rc = reader_number(r, "kv_lora_rank", 0, "the elements of a latent, like 512", &m->latent);
    if (rc == 0 && !(json_is_integer(rope) && json_integer_value(rope) == 0))
        rc = reader_number(r, "qk_rope_head_dim", 0,
                           "the elements of the rotary key beside the latent, like 64", &m->rope);
    if (rc < 0 || !reader_get(r, "num_attention_heads") || !reader_get(r, "qk_nope_head_dim") ||
        !reader_get(r, "v_head_dim"))
        return rc;
    uint32_t heads = 1, plain = 1, value = 1;
    rc = reader_number(r, "num_attention_heads", 0, "the number of attention heads, like 128",
                       &heads);
    if (rc == 0)
        rc = reader_number(r, "qk_nope_head_dim", 0,
                           "a key's elements without the rotary, like 128", &plain);
    if (rc == 0)
        rc = reader_number(r, "v_head_dim", 0, "a value's elements, like 128", &value);
    if (rc == 0 && heads > HEADS_MAX)
        return refuse(r, "num_attention_heads", "expected at most %u", HEADS_MAX);
    m->expanded_heads = heads;
    m->expanded = heads * ((uint64_t)plain + m->rope + value);
    return rc;
}

/* An indexer keeps one key for each token, in each layer that does not use another layer's choice.
 * A key is FP8, with a scale of 4 bytes for every 128 elements. */
static int read_indexer(const struct reader *r, struct kv_model *m)
{
    const json_t *list = reader_get(r, "indexer_types");
    uint32_t elements = 0;
    if (reader_is_off(reader_get(r, "index_head_dim")))
        return 0;
    int rc = reader_number(r, "index_head_dim", 0, "the elements of an index key", &elements);
    if (rc < 0)
        return rc;
    if (!m->latent)
        return refuse(r, "index_head_dim",
                      "this file has an indexer, which this tool does not read without latents "
                      "(kv_lora_rank), so a size would be wrong");
    if (list && json_array_size(list) != m->layers)
        return refuse(r, "indexer_types", "expected a list of %u names, one per layer", m->layers);
    for (uint32_t i = 0; i < m->layers; i++) {
        const char *type = list ? json_string_value(json_array_get(list, i)) : "full";
        if (!type || (strcmp(type, "full") != 0 && strcmp(type, "shared") != 0))
            return refuse(r, "indexer_types", "entry %u: known are full and shared", i);
        if (!strcmp(type, "full"))
            m->layer[i].side = elements + (elements + 127) / 128 * 4;
    }
    return 0;
}

/* ---- KV heads ---- */

/* Reads one number for all layers, or a list with one for each layer. */
static int read_number_or_list(const struct reader *r, const char *field, uint32_t otherwise,
                               struct kv_model *m)
{
    const json_t *v = reader_get(r, field);
    uint32_t heads = otherwise;
    if (!json_is_array(v)) {
        int rc = reader_number(r, field, otherwise, "the number of KV heads, like 8", &heads);
        set_heads(m, heads);
        return rc;
    }
    if (json_array_size(v) != m->layers)
        return refuse(r, field, "expected a number, or a list of %u numbers, one per layer",
                      m->layers);
    for (uint32_t i = 0; i < m->layers; i++) {
        const json_t *one = json_array_get(v, i);
        if (json_is_integer(one) && json_integer_value(one) == 0) {
            m->layer[i].kind = KV_NONE;
            continue;
        }
        int rc =
            reader_number_of(r, one, field, "a list of numbers of KV heads", &m->layer[i].kv_heads);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* attn_config: an object that has the keys of attention. */
static int read_nested(const struct reader *r, const json_t *config, uint32_t all,
                       struct kv_model *m)
{
    const char *type = json_string_value(json_object_get(config, "attn_type"));
    const json_t *v = json_object_get(config, "kv_n_heads");
    uint32_t heads = all;
    int rc = 0;
    if (type && !strcmp(type, "multiquery_attention"))
        heads = 1;
    else if (v && !json_is_null(v))
        rc = reader_number_of(r, v, "attn_config.kv_n_heads", "the number of KV heads", &heads);
    else if (!type)
        rc = refuse(r, "attn_config.kv_n_heads", "missing; expected the number of KV heads");
    set_heads(m, heads);
    return rc;
}

/* Falcon and similar models: all heads share one K and V, unless the file says otherwise. */
static bool is_single(const struct reader *r, const struct kv_model *m, bool *ret_all)
{
    const json_t *multi = reader_get(r, "multi_query");
    const json_t *grouped = reader_get(r, "new_decoder_architecture");
    bool family = !strcmp(m->name, "falcon") || !strncmp(m->name, "RefinedWeb", 10) ||
                  !strcmp(m->name, "gpt_bigcode");
    bool single = !json_is_true(grouped) && (multi ? json_is_true(multi) : family);
    *ret_all = family && !single && !json_is_true(grouped);
    return single;
}

static int read_kv_heads(const struct reader *r, uint32_t all, struct kv_model *m)
{
    static const char *const names[] = {"num_key_value_heads",
                                        "num_kv_heads",
                                        "n_head_kv",
                                        "n_kv_heads",
                                        "num_attention_groups",
                                        "num_key_value_heads_per_layer",
                                        NULL};
    const char *field = reader_named(r, names);
    const json_t *multi = reader_get(r, "multi_query");
    const json_t *config = reader_get(r, "attn_config");
    bool every;
    if (multi && !json_is_boolean(multi))
        return refuse(r, "multi_query", "expected true or false");
    if (is_single(r, m, &every) || every) {
        set_heads(m, every ? all : 1);
        return 0;
    }
    if (json_is_true(reader_get(r, "multi_query_attention")))
        field = "multi_query_group_num";
    if (!reader_is_off(config) && !reader_get(r, field))
        return read_nested(r, config, all, m);
    int rc = read_number_or_list(r, field, is_gemma3(m) ? 4 : all, m);
    for (uint32_t i = 0; i < m->layers && rc == 0; i++) {
        uint32_t heads = m->layer[i].kv_heads;
        if (heads && (heads > all || all % heads) && !reader_get(r, "swa_num_attention_heads") &&
            !json_is_array(reader_get(r, field)))
            return refuse(r, field,
                          "%u does not divide the %u attention heads; expected 1, 2, ... %u", heads,
                          all, all);
    }
    return rc;
}

/* block_configs: each layer has its own entry. It may have no attention, or share its KV among more
 * heads. */
static int read_blocks(const struct reader *r, uint32_t all, struct kv_model *m)
{
    const json_t *list = reader_get(r, "block_configs");
    if (json_array_size(list) != m->layers)
        return refuse(r, "block_configs", "expected a list of %u objects, one per layer",
                      m->layers);
    for (uint32_t i = 0; i < m->layers; i++) {
        const json_t *attention = json_object_get(json_array_get(list, i), "attention");
        const json_t *share = json_object_get(attention, "n_heads_in_group");
        uint32_t n = 1;
        if (!json_is_object(attention))
            return refuse(r, "block_configs", "entry %u has no object 'attention'", i);
        if (!reader_is_off(json_object_get(attention, "no_op")) ||
            !reader_is_off(json_object_get(attention, "replace_with_linear"))) {
            m->layer[i].kind = KV_NONE;
            continue;
        }
        int rc = reader_number_of(r, share, "block_configs attention.n_heads_in_group",
                                  "how many heads share KV", &n);
        if (rc < 0)
            return rc;
        if (n > all || all % n)
            return refuse(r, "block_configs", "entry %u: %u does not divide the %u heads", i, n,
                          all);
        m->layer[i].kv_heads = all / n;
    }
    return 0;
}

/* ---- layers of one kind with their own number or size of heads ---- */

enum part { HEADS, SIZE, VALUE };

static const struct {
    const char *key;
    enum kv_kind kind;
    enum part part;
} own[] = {
    {"num_global_key_value_heads", KV_FULL, HEADS}, {"global_head_dim", KV_FULL, SIZE},
    {"swa_num_key_value_heads", KV_SLIDING, HEADS}, {"swa_head_dim", KV_SLIDING, SIZE},
    {"swa_v_head_dim", KV_SLIDING, VALUE},
};

static void set_part(struct kv_layer *l, enum part part, uint32_t n)
{
    if (part == HEADS)
        l->kv_heads = n;
    else if (part == SIZE)
        l->key = n;
    if (part == SIZE || part == VALUE)
        l->value = n;
}

static int read_own(const struct reader *r, struct kv_model *m)
{
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        uint32_t n = 0;
        if (reader_is_off(reader_get(r, own[i].key)))
            continue;
        /* These layers have their own number of heads only if they use the key as value too. */
        if (own[i].kind == KV_FULL && own[i].part == HEADS &&
            json_is_false(reader_get(r, "attention_k_eq_v")))
            continue;
        int rc = reader_number(r, own[i].key, 0, "a number of heads or elements", &n);
        if (rc < 0)
            return rc;
        for (uint32_t j = 0; j < m->layers; j++)
            if (m->layer[j].kind == own[i].kind)
                set_part(&m->layer[j], own[i].part, n);
    }
    return 0;
}

/* attention_other_setting: the same in an object, which names the kind of the layers. */
static int read_other_setting(const struct reader *r, struct kv_model *m)
{
    const json_t *o = reader_get(r, "attention_other_setting");
    const char *type = json_string_value(json_object_get(o, "attention_type"));
    const json_t *groups = json_object_get(o, "num_attention_groups");
    const json_t *size = json_object_get(o, "head_dim");
    uint32_t heads = 0, elements = 0;
    if (reader_is_off(o))
        return 0;
    if (!type || strcmp(type, "sliding_attention") != 0)
        return refuse(r, "attention_other_setting",
                      "expected attention_type sliding_attention; this tool does not read others, "
                      "so a size would be wrong");
    int rc = groups ? reader_number_of(r, groups, "attention_other_setting.num_attention_groups",
                                       "the number of KV heads", &heads)
                    : 0;
    if (rc == 0 && size)
        rc = reader_number_of(r, size, "attention_other_setting.head_dim", "the size of a head",
                              &elements);
    for (uint32_t i = 0; i < m->layers && rc == 0; i++) {
        if (m->layer[i].kind != KV_SLIDING)
            continue;
        if (heads)
            set_part(&m->layer[i], HEADS, heads);
        if (elements)
            set_part(&m->layer[i], SIZE, elements);
    }
    return rc;
}

/* Reads an entry of per_layer_config: the keys in which one layer differs from the rest. */
static int read_one_layer(const struct reader *r, const char *key, const json_t *o,
                          struct kv_layer *l)
{
    static const char *const known[] = {"head_dim", "num_key_value_heads", "v_head_dim"};
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)o, name, v)
    {
        uint32_t n = 0;
        size_t part = 0;
        if (!strcmp(name, "intermediate_size") || !strcmp(name, "num_attention_heads"))
            continue;
        while (part < 3 && strcmp(known[part], name) != 0)
            part++;
        if (part == 3)
            return refuse(r, "per_layer_config",
                          "layer %.16s has '%.40s', which this tool does not read; known are "
                          "head_dim, num_key_value_heads and v_head_dim",
                          key, name);
        int rc = reader_number_of(r, v, "per_layer_config", "a number of heads or elements", &n);
        if (rc < 0)
            return rc;
        set_part(l, part == 1 ? HEADS : part == 0 ? SIZE : VALUE, n);
    }
    return 0;
}

static int read_per_layer(const struct reader *r, struct kv_model *m)
{
    const json_t *all = reader_get(r, "per_layer_config");
    const char *key;
    json_t *o;
    if (reader_is_off(all))
        return 0;
    if (!json_is_object(all))
        return refuse(r, "per_layer_config", "expected an object with a key for each layer");
    json_object_foreach((json_t *)all, key, o)
    {
        char *end;
        const unsigned long i = strtoul(key, &end, 10);
        if (key[0] < '0' || key[0] > '9' || *end != '\0' || i >= m->layers || !json_is_object(o))
            return refuse(r, "per_layer_config", "'%.16s' is no layer; there are %u", key,
                          m->layers);
        int rc = read_one_layer(r, key, o, &m->layer[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- sizes ---- */

static int read_sizes(const struct reader *r, uint32_t all, struct kv_model *m)
{
    static const char *const sizes[] = {"head_dim", "attention_head_dim", "kv_channels",
                                        "hidden_size_per_head", NULL};
    const char *size = reader_named(r, sizes);
    uint32_t key = 0, value = 0, usual = m->hidden / all;
    if (is_kind_of(m, "gemma"))
        usual = 256;
    else if (!reader_get(r, size) && m->hidden % all)
        return refuse(
            r, size, "missing, and it cannot be derived: hidden_size %u is no multiple of %u heads",
            m->hidden, all);
    if (!strcmp(m->name, "zamba2") && !strcmp(size, "kv_channels"))
        usual = 0; /* its heads span twice the width of the model, so no default is known */
    int rc = reader_number(r, size, usual, "the size of a head, like 128", &key);
    if (rc == 0)
        rc = reader_number(r, "v_head_dim", key ? key : 1, "the size of a head's value", &value);
    for (uint32_t i = 0; i < m->layers; i++) {
        m->layer[i].key = key;
        m->layer[i].value = value;
    }
    return rc;
}

int kv_heads_read(const struct reader *r, struct kv_model *m)
{
    static const char *const hidden[] = {"hidden_size", "n_embd", "d_model",
                                         "n_embed",     "dim",    NULL};
    static const char *const heads[] = {"num_attention_heads", "n_head", "n_heads", NULL};
    uint32_t all = 1;
    int rc = reader_number(r, reader_named(r, hidden), 0, "the width of the model, like 4096",
                           &m->hidden);
    if (rc < 0)
        return rc;
    if (reader_get(r, "kv_lora_rank")) {
        rc = read_latent(r, m);
        return rc < 0 ? rc : read_indexer(r, m);
    }
    rc = reader_number(r, reader_named(r, heads), is_gemma3(m) ? 8 : 0,
                       "the number of attention heads, like 32", &all);
    if (rc == 0)
        rc = read_sizes(r, all, m);
    if (rc == 0)
        rc = reader_is_off(reader_get(r, "block_configs")) ? read_kv_heads(r, all, m)
                                                           : read_blocks(r, all, m);
    if (rc == 0)
        rc = read_own(r, m);
    if (rc == 0)
        rc = read_other_setting(r, m);
    if (rc == 0)
        rc = read_per_layer(r, m);
    return rc < 0 ? rc : read_indexer(r, m);
}
