/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads a model in Hugging Face's form: config.json and safetensors, one file or several with an
 * index. The files are not trusted: each size is checked. Features that the worker does not compute
 * (other activations, biases, scaled RoPE) are refused by name.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hash.h"
#include "infile.h"
#include "model.h"
#include "plain.h"
#include "safetensors.h"

#define PATH_BYTES 4096u
#define PIECE      (1u << 16) /* numbers that are converted at a time */
#define FILES_MAX  256u
#define JSON_MAX   (64u << 20)

struct weight_file {
    char name[128];
    FILE *file;
    struct st_header header;
};

struct loader {
    const char *dir;
    struct model *m;
    char *why;
    struct weight_file *files;
    uint32_t n;
    struct hash_stream *hash;
    uint16_t *half; /* [PIECE] */
};

static int loader_wrong(const struct loader *l, const char *file, const char *what,
                        const char *detail)
{
    return model_wrong(l->why, -EINVAL, "%.120s/%s: %s%.120s", l->dir, file, what, detail);
}

/* ---- config.json ---- */

static int take_size(const struct loader *l, const json_t *config, const char *key,
                     json_int_t otherwise, uint32_t *ret_value)
{
    const json_t *value = json_object_get(config, key);
    const json_int_t n = json_is_integer(value) ? json_integer_value(value) : otherwise;
    if ((value && !json_is_integer(value) && !json_is_null(value)) || n <= 0 || n > 1 << 24)
        return loader_wrong(l, "config.json", "no size of a model is its ", key);
    *ret_value = (uint32_t)n;
    return 0;
}

static int model_load_take_number(const struct loader *l, const json_t *config, const char *key,
                                  double otherwise, double *ret_value)
{
    const json_t *value = json_object_get(config, key);
    const bool none = !value || json_is_null(value);
    *ret_value = none ? otherwise : json_number_value(value);
    if (!none && (!json_is_number(value) || !(*ret_value > 0)))
        return loader_wrong(l, "config.json", "no number above 0 is its ", key);
    return 0;
}

/* Whether a key is false, null or missing: only then the worker can compute the model. */
static bool is_off(const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);
    return !value || json_is_null(value) || json_is_false(value);
}

/* Whether the object says more about RoPE than the base of its angles. */
static bool rope_has_more(const json_t *rope)
{
    return json_is_object(rope) &&
           json_object_size(rope) > (json_object_get(rope, "rope_theta") ? 1u : 0u);
}

/* Refuses keys that change the arithmetic in ways that are not computed here. */
static int refuse_others(const struct loader *l, const json_t *config)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const char *act = json_string_value(json_object_get(config, "hidden_act"));
    const json_t *scaling = json_object_get(config, "rope_scaling");
    if (!json_is_object(scaling)) /* the name of the key in files of transformers 5 */
        scaling = json_object_get(config, "rope_parameters");
    const char *scaled = json_string_value(json_object_get(scaling, "rope_type"));
    if (!type || strcmp(type, "llama") != 0)
        return loader_wrong(l, "config.json", "the worker computes model_type \"llama\", this is ",
                            type ? type : "none");
    if (act && strcmp(act, "silu") != 0)
        return loader_wrong(l, "config.json", "the worker computes hidden_act \"silu\", this is ",
                            act);
    if (!is_off(config, "rope_scaling") && !json_is_object(scaling))
        return loader_wrong(l, "config.json", "no object is its ", "rope_scaling");
    if (scaled ? strcmp(scaled, "default") != 0 : rope_has_more(scaling))
        return loader_wrong(l, "config.json", "rope_scaling is not computed here: ",
                            scaled ? scaled : "of another kind");
    static const char *const others[] = {"attention_bias", "mlp_bias", "sliding_window"};
    for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (!is_off(config, others[i]))
            return loader_wrong(l, "config.json", "not computed here: ", others[i]);
    double part;
    int rc = model_load_take_number(l, scaling, "partial_rotary_factor", 1, &part);
    rc = rc ? rc : model_load_take_number(l, config, "partial_rotary_factor", part, &part);
    if (rc == 0 && part < 1)
        rc = loader_wrong(l, "config.json", "not computed here: ", "partial_rotary_factor");
    return rc;
}

static int take_config(const struct loader *l, const json_t *config)
{
    struct model_config *c = &l->m->is;
    int rc = refuse_others(l, config);
    rc = rc ? rc : take_size(l, config, "num_hidden_layers", 0, &c->layers);
    rc = rc ? rc : take_size(l, config, "hidden_size", 0, &c->hidden);
    rc = rc ? rc : take_size(l, config, "num_attention_heads", 0, &c->heads);
    rc = rc ? rc : take_size(l, config, "num_key_value_heads", c->heads, &c->kv_heads);
    rc =
        rc ? rc
           : take_size(l, config, "head_dim", c->hidden / (c->heads ? c->heads : 1), &c->head_size);
    rc = rc ? rc : take_size(l, config, "intermediate_size", 0, &c->inner);
    rc = rc ? rc : take_size(l, config, "vocab_size", 0, &c->vocab);
    rc = rc ? rc : take_size(l, config, "max_position_embeddings", 2048, &c->tokens_max);
    if (rc != 0)
        return rc;
    if (c->kv_heads == 0 || c->heads % c->kv_heads != 0 ||
        kvc_row_bytes(KVC_F32, c->head_size) == 0)
        return loader_wrong(l, "config.json",
                            "heads are a multiple of KV heads, and their size one of 16 up to 512",
                            "");
    const json_t *rope = json_object_get(config, "rope_parameters");
    double eps, theta;
    rc = model_load_take_number(l, config, "rms_norm_eps", 1e-6, &eps);
    rc = rc ? rc : model_load_take_number(l, rope, "rope_theta", 10000, &theta);
    rc = rc ? rc : model_load_take_number(l, config, "rope_theta", theta, &c->rope_theta);
    c->norm_eps = (float)eps;
    c->tied = json_is_true(json_object_get(config, "tie_word_embeddings"));
    return rc;
}

static int model_load_path_of(const struct loader *l, const char *file, char path[PATH_BYTES])
{
    const int n = snprintf(path, PATH_BYTES, "%s/%s", l->dir, file);
    return n > 0 && (unsigned)n < PATH_BYTES ? 0 : -ENAMETOOLONG;
}

/* Reads a JSON file; NULL: it failed, with `why`. */
static json_t *read_json(const struct loader *l, const char *file)
{
    char path[PATH_BYTES], *text = NULL;
    const char *wrong = "the path is too long";
    json_error_t error;
    size_t n = 0;
    const int rc = model_load_path_of(l, file, path);
    if (rc < 0 || infile_read(path, JSON_MAX, &text, &n, &wrong) < 0) {
        (void)loader_wrong(l, file,
                           "not readable; a model is a directory with config.json and "
                           "*.safetensors: ",
                           wrong);
        return NULL;
    }
    json_t *json = json_loadb(text, n, 0, &error);
    free(text);
    if (!json)
        (void)loader_wrong(l, file, "no JSON: ", error.text);
    return json;
}

/* ---- safetensors ---- */

static struct weight_file *file_open(struct loader *l, const char *name)
{
    char path[PATH_BYTES], why[ST_WHY_BYTES];
    const char *wrong;
    for (uint32_t i = 0; i < l->n; i++)
        if (strcmp(l->files[i].name, name) == 0)
            return &l->files[i];
    struct weight_file *f = &l->files[l->n];
    if (l->n == FILES_MAX || strlen(name) >= sizeof(f->name) || strchr(name, '/') ||
        model_load_path_of(l, name, path) != 0) {
        (void)loader_wrong(l, "model.safetensors.index.json",
                           "names too many files, or no file: ", name);
        return NULL;
    }
    if (infile_open(path, &f->file, &wrong) < 0) {
        (void)loader_wrong(l, name, "", wrong);
        return NULL;
    }
    memcpy(f->name, name, strlen(name) + 1);
    l->n++;
    if (st_read(f->file, why, &f->header) < 0) {
        (void)loader_wrong(l, name, "", why);
        return NULL;
    }
    return f;
}

static int files_open(struct loader *l)
{
    char path[PATH_BYTES];
    const char *key;
    json_t *value;
    int rc = model_load_path_of(l, "model.safetensors.index.json", path);
    if (rc < 0 || access(path, F_OK) != 0)
        return file_open(l, "model.safetensors") ? 0 : -EINVAL;
    json_t *json = read_json(l, "model.safetensors.index.json");
    json_t *map = json_object_get(json, "weight_map");
    rc = json && json_is_object(map) ? 0 : -EINVAL;
    json_object_foreach(map, key, value)
    {
        if (rc == 0 && !(json_is_string(value) && file_open(l, json_string_value(value))))
            rc = -EINVAL;
    }
    if (json && !json_is_object(map))
        (void)loader_wrong(l, "model.safetensors.index.json", "has no weight_map", "");
    json_decref(json);
    return rc;
}

static void files_close(struct loader *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        st_free(&l->files[i].header);
        (void)fclose(l->files[i].file);
    }
    free(l->files);
}

/* Reads numbers as fp32. Kernels convert halves in rows of 16 numbers, and tensors of these sizes
 * consist of such rows. */
static int read_numbers(struct loader *l, FILE *file, enum kvc_type type, float *to, uint64_t n)
{
    const size_t bytes = type == KVC_F32 ? sizeof(float) : sizeof(uint16_t);
    for (uint64_t done = 0; done < n;) {
        const uint64_t here = n - done < PIECE ? n - done : PIECE;
        void *at = type == KVC_F32 ? (void *)(to + done) : (void *)l->half;
        if (fread(at, bytes, here, file) != here)
            return -EIO;
        hash_stream_update(l->hash, at, here * bytes);
        if (type != KVC_F32) {
            const int rc = kvc_dequantise(type, 16, here / 16, l->half, 32, to + done, 64, NULL);
            if (rc != 0)
                return rc;
        }
        done += here;
    }
    return 0;
}

static int type_of(const char *dtype)
{
    return strcmp(dtype, "F32") == 0    ? KVC_F32
           : strcmp(dtype, "F16") == 0  ? KVC_F16
           : strcmp(dtype, "BF16") == 0 ? KVC_BF16
                                        : -EINVAL;
}

/* A tensor of [rows][columns], or [columns] where rows is 0. */
static int take_tensor(struct loader *l, const char *name, uint64_t rows, uint64_t columns,
                       float *to)
{
    const struct st_tensor *t = NULL;
    uint32_t i = 0;
    while (i < l->n && !(t = st_find(&l->files[i].header, name)))
        i++;
    if (!t)
        return loader_wrong(l, "*.safetensors", "there is no tensor ", name);
    const struct weight_file *f = &l->files[i];
    const bool fits = rows == 0 ? t->dims == 1 && t->shape[0] == columns
                                : t->dims == 2 && t->shape[0] == rows && t->shape[1] == columns;
    const uint64_t n = (rows ? rows : 1) * columns;
    const int type = type_of(t->dtype);
    if (!fits || n % 16 != 0)
        return loader_wrong(l, f->name, "config.json says another shape of ", name);
    if (type < 0)
        return loader_wrong(l, f->name, "weights are F32, F16 or BF16; another type has ", name);
    hash_stream_update(l->hash, name, strlen(name));
    if (fseeko(f->file, (off_t)(f->header.data_at + t->begin), SEEK_SET) != 0 ||
        read_numbers(l, f->file, (enum kvc_type)type, to, n) != 0)
        return loader_wrong(l, f->name, "not readable: ", name);
    return 0;
}

static int take_layer(struct loader *l, uint32_t i)
{
    const struct model_config *c = &l->m->is;
    const struct model_layer *w = &l->m->layer[i];
    const uint64_t d = c->hidden, inner = c->inner;
    const uint64_t q_dim = (uint64_t)c->heads * c->head_size;
    const uint64_t kv_dim = (uint64_t)c->kv_heads * c->head_size;
    const struct {
        const char *name;
        uint64_t rows, columns;
        float *to;
    } all[] = {
        {"input_layernorm", 0, d, w->attn_norm}, {"self_attn.q_proj", q_dim, d, w->q},
        {"self_attn.k_proj", kv_dim, d, w->k},   {"self_attn.v_proj", kv_dim, d, w->v},
        {"self_attn.o_proj", d, q_dim, w->o},    {"post_attention_layernorm", 0, d, w->ffn_norm},
        {"mlp.gate_proj", inner, d, w->gate},    {"mlp.up_proj", inner, d, w->up},
        {"mlp.down_proj", d, inner, w->down}};
    int rc = 0;
    for (size_t t = 0; rc == 0 && t < sizeof(all) / sizeof(all[0]); t++) {
        char name[ST_NAME_BYTES];
        (void)snprintf(name, sizeof(name), "model.layers.%u.%s.weight", i, all[t].name);
        rc = take_tensor(l, name, all[t].rows, all[t].columns, all[t].to);
    }
    return rc;
}

static int take_weights(struct loader *l)
{
    const struct model_config *c = &l->m->is;
    int rc = files_open(l);
    rc = rc ? rc : model_allocate(l->m, l->why);
    rc = rc ? rc : take_tensor(l, "model.embed_tokens.weight", c->vocab, c->hidden, l->m->embed);
    rc = rc ? rc : take_tensor(l, "model.norm.weight", 0, c->hidden, l->m->norm);
    if (!c->tied)
        rc = rc ? rc : take_tensor(l, "lm_head.weight", c->vocab, c->hidden, l->m->head);
    for (uint32_t i = 0; rc == 0 && i < c->layers; i++)
        rc = take_layer(l, i);
    return rc;
}

/* ---- the directory ---- */

static void name_model(struct loader *l)
{
    struct model_config *c = &l->m->is;
    char numbers[64]; /* values of config.json that change K and V and that no shape shows */
    (void)snprintf(numbers, sizeof(numbers), "eps %.9g, theta %.17g", c->norm_eps, c->rope_theta);
    hash_stream_update(l->hash, numbers, strlen(numbers));
    const struct hash128 sum = hash_stream_final(l->hash);
    size_t end = strlen(l->dir);
    while (end > 1 && l->dir[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && l->dir[begin - 1] != '/')
        begin--;
    (void)snprintf(c->name, sizeof(c->name), "%.*s", (int)(end - begin), l->dir + begin);
    (void)plain(c->name);
    for (unsigned i = 0; i < sizeof(sum.b); i++)
        (void)snprintf(c->revision + 2 * i, 3, "%02x", sum.b[i]);
}

int model_load(const char *dir, char why[MODEL_WHY_BYTES], struct model *ret_model)
{
    struct model m = {0};
    struct loader l = {.dir = dir, .m = &m, .why = why};
    json_t *config = read_json(&l, "config.json");
    if (!config)
        return -EINVAL;
    l.files = calloc(FILES_MAX, sizeof(*l.files));
    l.half = aligned_alloc(64, PIECE * sizeof(*l.half));
    l.hash = aligned_alloc(64, sizeof(*l.hash));
    int rc = l.files && l.half && l.hash ? take_config(&l, config)
                                         : model_wrong(why, -ENOMEM, "no memory");
    if (rc == 0) {
        hash_stream_init(l.hash);
        rc = take_weights(&l);
    }
    if (rc == 0)
        name_model(&l);
    files_close(&l);
    free(l.half);
    free(l.hash);
    json_decref(config);
    if (rc != 0)
        model_end(&m);
    else
        *ret_model = m;
    return rc;
}
