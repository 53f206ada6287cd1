/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for a model's weights, and presets with random ones. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model.h"

#define ALIGN 64u

static const struct model_config presets[] = {
    {.name = "tiny",
     .layers = 4,
     .hidden = 128,
     .heads = 4,
     .kv_heads = 2,
     .head_size = 32,
     .inner = 256,
     .vocab = 256,
     .tokens_max = 8192,
     .tied = true},
    {.name = "125m",
     .layers = 12,
     .hidden = 768,
     .heads = 12,
     .kv_heads = 12,
     .head_size = 64,
     .inner = 2048,
     .vocab = 50304,
     .tokens_max = 8192,
     .tied = true},
    {.name = "1b",
     .layers = 16,
     .hidden = 2048,
     .heads = 32,
     .kv_heads = 8,
     .head_size = 64,
     .inner = 8192,
     .vocab = 128256,
     .tokens_max = 32768,
     .tied = true},
    {.name = "8b",
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .head_size = 128,
     .inner = 14336,
     .vocab = 128256,
     .tokens_max = 32768},
};
#define PRESETS (sizeof(presets) / sizeof(presets[0]))

const char *model_presets(void)
{
    return "tiny, 125m, 1b, 8b";
}

/* The next `n` numbers of the weights. memory NULL: only counts them. */
static float *model_weights_place(float *memory, uint64_t *at, uint64_t n)
{
    float *here = memory ? memory + *at : NULL;
    *at += (n + ALIGN / sizeof(float) - 1) / (ALIGN / sizeof(float)) * (ALIGN / sizeof(float));
    return here;
}

static uint64_t model_weights_place_all(struct model *m, float *memory)
{
    const struct model_config *c = &m->is;
    const uint64_t d = c->hidden, inner = c->inner;
    const uint64_t q_dim = (uint64_t)c->heads * c->head_size;
    const uint64_t kv_dim = (uint64_t)c->kv_heads * c->head_size;
    uint64_t at = 0;
    m->embed = model_weights_place(memory, &at, c->vocab * d);
    m->norm = model_weights_place(memory, &at, d);
    m->head = c->tied ? m->embed : model_weights_place(memory, &at, c->vocab * d);
    for (uint32_t i = 0; i < c->layers; i++)
        m->layer[i] = (struct model_layer){.attn_norm = model_weights_place(memory, &at, d),
                                           .q = model_weights_place(memory, &at, q_dim * d),
                                           .k = model_weights_place(memory, &at, kv_dim * d),
                                           .v = model_weights_place(memory, &at, kv_dim * d),
                                           .o = model_weights_place(memory, &at, d * q_dim),
                                           .ffn_norm = model_weights_place(memory, &at, d),
                                           .gate = model_weights_place(memory, &at, inner * d),
                                           .up = model_weights_place(memory, &at, inner * d),
                                           .down = model_weights_place(memory, &at, d * inner)};
    return at;
}

int model_allocate(struct model *m, char why[MODEL_WHY_BYTES])
{
    const double gib = 1 << 30;
    m->layer = calloc(m->is.layers, sizeof(*m->layer));
    if (!m->layer)
        return model_wrong(why, -ENOMEM, "no memory for %u layers", m->is.layers);
    m->weight_bytes = model_weights_place_all(m, NULL) * sizeof(float);
    const uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    m->weights = m->weight_bytes < machine ? aligned_alloc(ALIGN, m->weight_bytes) : NULL;
    if (!m->weights)
        return model_wrong(why, -ENOMEM,
                           "%s: its weights take %.1f GiB as fp32, and this machine has %.1f GiB; "
                           "take a smaller model, or a larger machine",
                           m->is.name, (double)m->weight_bytes / gib, (double)machine / gib);
    (void)model_weights_place_all(m, m->weights);
    return 0;
}

/* ---- random weights ---- */

/* splitmix64 (Steele, Lea and Flood, OOPSLA 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Fills with numbers that are evenly distributed between -bound and bound. */
static void model_weights_fill(float *w, uint64_t n, float bound, uint64_t *state)
{
    for (uint64_t i = 0; i < n; i++)
        w[i] = ((float)(next_random(state) >> 40) / (float)(1 << 23) - 1.0f) * bound;
}

static void ones(float *w, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        w[i] = 1;
}

/* Bounds keep a row's size from product to product. Embeddings are small beside what layers add:
 * else a token would be followed by itself, whatever was said before. */
static void fill_all(struct model *m, uint64_t seed)
{
    const struct model_config *c = &m->is;
    const uint64_t d = c->hidden, inner = c->inner;
    const uint64_t q_dim = (uint64_t)c->heads * c->head_size;
    const uint64_t kv_dim = (uint64_t)c->kv_heads * c->head_size;
    const float even = sqrtf(3.0f / (float)d), depth = 1 / sqrtf((float)c->layers);
    model_weights_fill(m->embed, c->vocab * d, even, &seed);
    ones(m->norm, d);
    if (!c->tied)
        model_weights_fill(m->head, c->vocab * d, even, &seed);
    for (uint32_t i = 0; i < c->layers; i++) {
        const struct model_layer *l = &m->layer[i];
        ones(l->attn_norm, d);
        ones(l->ffn_norm, d);
        model_weights_fill(l->q, q_dim * d, 2 * even, &seed);
        model_weights_fill(l->k, kv_dim * d, 2 * even, &seed);
        model_weights_fill(l->v, kv_dim * d, even, &seed);
        model_weights_fill(l->o, d * q_dim, even * depth, &seed);
        model_weights_fill(l->gate, inner * d, even, &seed);
        model_weights_fill(l->up, inner * d, even, &seed);
        model_weights_fill(l->down, d * inner, sqrtf(3.0f / (float)inner) * depth, &seed);
    }
}

int model_preset_config(const char *name, char why[MODEL_WHY_BYTES],
                        struct model_config *ret_config)
{
    for (size_t i = 0; i < PRESETS; i++)
        if (strcmp(presets[i].name, name) == 0) {
            *ret_config = presets[i];
            ret_config->norm_eps = 1e-5f;
            ret_config->rope_theta = 10000;
            return 0;
        }
    return model_wrong(why, -ENOENT, "no preset '%s'; there are %s", name, model_presets());
}

int model_preset(const char *name, uint64_t seed, char why[MODEL_WHY_BYTES],
                 struct model *ret_model)
{
    struct model m = {0};
    int rc = model_preset_config(name, why, &m.is);
    if (rc != 0)
        return rc;
    (void)snprintf(m.is.revision, sizeof(m.is.revision), "seed %ju", (uintmax_t)seed);
    rc = model_allocate(&m, why);
    if (rc != 0) {
        model_end(&m);
        return rc;
    }
    fill_all(&m, seed);
    *ret_model = m;
    return 0;
}
