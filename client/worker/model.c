/* SPDX-License-Identifier: Apache-2.0 */
/* Passes through the layers of a model. */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kv.h"
#include "model.h"
#include "pointwise.h"
#include "product.h"

#define MAX(a, b)  ((a) > (b) ? (a) : (b))
#define ALIGN      64u
#define CHUNK      256u /* large enough for BLAS to be quick */
#define TINY       512u /* hidden: products are small whatever is done */
#define CHUNK_TINY 32u

/* Rows of a pass: [chunk or MODEL_SEQS_MAX][...]. */
struct model_scratch {
    float *x, *h, *q, *k, *v, *attn, *gate, *up, *cosine, *sine;
};

/* The rows of one pass through the model. */
struct pass {
    struct model *m;
    bool chunked;            /* products of m->chunk rows; else of one row each */
    uint32_t rows, first, n; /* of the products; those that are tokens */
    struct kv *const *kv;    /* chunked: the one; else one for each row */
    uint32_t position;       /* chunked: of the first token */
    char *why;
};

int model_wrong(char why[MODEL_WHY_BYTES], int error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, MODEL_WHY_BYTES, format, args);
    va_end(args);
    return error;
}

/* ---- rows ---- */

static void product(const struct pass *p, const float *x, const float *w, float *y, uint32_t n,
                    uint32_t k)
{
    if (p->chunked) {
        product_rows(x, w, y, p->rows, n, k);
        return;
    }
    for (uint32_t r = 0; r < p->n; r++)
        product_row(x + (size_t)r * k, w, y + (size_t)r * n, n, k);
}

static uint32_t position_of(const struct pass *p, uint32_t i)
{
    return p->chunked ? p->position + i : p->kv[i]->tokens;
}

/* Rows without a token are zero, so that their products are zero, too. */
static void norm(const struct pass *p, const float *weight)
{
    const struct model_scratch *s = p->m->scratch;
    const size_t n = p->m->is.hidden, past = p->first + p->n;
    memset(s->h, 0, p->first * n * sizeof(float));
    if (past < p->rows)
        memset(s->h + past * n, 0, (p->rows - past) * n * sizeof(float));
    for (uint32_t r = p->first; r < p->first + p->n; r++)
        norm_row(s->x + r * n, weight, p->m->is.norm_eps, (uint32_t)n, s->h + r * n);
}

static void angles(const struct pass *p)
{
    const struct model_config *c = &p->m->is;
    const size_t half = c->head_size / 2;
    for (uint32_t i = 0; i < p->n; i++)
        rope_angles(c->rope_theta, c->head_size, position_of(p, i),
                    p->m->scratch->cosine + (p->first + i) * half,
                    p->m->scratch->sine + (p->first + i) * half);
}

static void rope(const struct pass *p, float *x, uint32_t heads)
{
    const struct model_config *c = &p->m->is;
    const size_t half = c->head_size / 2, row = (size_t)heads * c->head_size;
    for (uint32_t r = p->first; r < p->first + p->n; r++)
        rope_row(x + r * row, heads, c->head_size, p->m->scratch->cosine + r * half,
                 p->m->scratch->sine + r * half);
}

/* ---- attention ---- */

/* Attention of n rows of one sequence, which has `tokens` tokens, those of the rows included. */
static int attend_rows(const struct pass *p, uint32_t layer, struct kv *kv, uint32_t row,
                       uint32_t n, uint32_t tokens)
{
    const struct model_config *c = &p->m->is;
    const size_t at = (size_t)row * c->heads * c->head_size;
    const uint32_t q_first[2] = {0, n};
    struct kv_view view = {0};
    const int rc = kv->is->view(kv, layer, tokens, &view);
    if (rc != 0)
        return model_wrong(p->why, rc, "the %s cache has lost layer %u", kv->is->name, layer);
    struct kvc_attention a = {.seqs = 1,
                              .heads = c->heads,
                              .kv_heads = c->kv_heads,
                              .head_size = c->head_size,
                              .scale = 1.0f / sqrtf((float)c->head_size),
                              .split_tokens = MODEL_SPLIT_TOKENS,
                              .lists = view.lists,
                              .q_first = q_first,
                              .q = p->m->scratch->q + at,
                              .out = p->m->scratch->attn + at};
    memcpy(a.list, view.list, sizeof(a.list));
    return kvc_attend_cpu(&a, p->m->attenders, p->why);
}

static int attend(const struct pass *p, uint32_t layer)
{
    if (p->chunked)
        return attend_rows(p, layer, p->kv[0], p->first, p->n, p->position + p->n);
    int rc = 0;
    for (uint32_t s = 0; rc == 0 && s < p->n; s++)
        rc = attend_rows(p, layer, p->kv[s], s, 1, p->kv[s]->tokens + 1);
    return rc;
}

static int keep_rows(const struct pass *p, uint32_t layer, struct kv *kv, uint32_t row, uint32_t n,
                     uint32_t position)
{
    const struct model_config *c = &p->m->is;
    const struct model_scratch *s = p->m->scratch;
    const size_t at = (size_t)row * c->kv_heads * c->head_size;
    const int rc =
        kv->is->write(kv, layer, position, n, s->k + at, s->v + at, s->x + (size_t)row * c->hidden);
    return rc == 0 ? 0
                   : model_wrong(p->why, rc, "the %s cache takes no K and V: %s", kv->is->name,
                                 strerror(-rc));
}

static int keep(const struct pass *p, uint32_t layer)
{
    if (p->chunked)
        return keep_rows(p, layer, p->kv[0], p->first, p->n, p->position);
    int rc = 0;
    for (uint32_t s = 0; rc == 0 && s < p->n; s++)
        rc = keep_rows(p, layer, p->kv[s], s, 1, p->kv[s]->tokens);
    return rc;
}

/* ---- layers ---- */

static int layer_run(const struct pass *p, uint32_t layer)
{
    const struct model_config *c = &p->m->is;
    const struct model_layer *w = &p->m->layer[layer];
    const struct model_scratch *s = p->m->scratch;
    const uint32_t q_dim = c->heads * c->head_size, kv_dim = c->kv_heads * c->head_size;
    const size_t at = (size_t)p->first * c->hidden, values = (size_t)p->n * c->hidden;
    norm(p, w->attn_norm);
    product(p, s->h, w->q, s->q, q_dim, c->hidden);
    product(p, s->h, w->k, s->k, kv_dim, c->hidden);
    product(p, s->h, w->v, s->v, kv_dim, c->hidden);
    rope(p, s->q, c->heads);
    rope(p, s->k, c->kv_heads);
    int rc = keep(p, layer);
    rc = rc == 0 ? attend(p, layer) : rc;
    if (rc != 0)
        return rc;
    product(p, s->attn, w->o, s->h, c->hidden, q_dim);
    add_to(s->x + at, s->h + at, values);
    norm(p, w->ffn_norm);
    product(p, s->h, w->gate, s->gate, c->inner, c->hidden);
    product(p, s->h, w->up, s->up, c->inner, c->hidden);
    swiglu(s->gate + (size_t)p->first * c->inner, s->up + (size_t)p->first * c->inner,
           (uint64_t)p->n * c->inner);
    product(p, s->gate, w->down, s->h, c->hidden, c->inner);
    add_to(s->x + at, s->h + at, values);
    return 0;
}

static int model_take_tokens(const struct pass *p, const uint32_t *token)
{
    const struct model_config *c = &p->m->is;
    for (uint32_t i = 0; i < p->n; i++) {
        if (token[i] >= c->vocab)
            return model_wrong(p->why, -EINVAL, "token %u: the model has tokens 0 to %u", token[i],
                               c->vocab - 1);
        if (position_of(p, i) >= c->tokens_max)
            return model_wrong(p->why, -ENOSPC, "the model takes %u tokens, and this is one more",
                               c->tokens_max);
        memcpy(p->m->scratch->x + (size_t)(p->first + i) * c->hidden,
               p->m->embed + (size_t)token[i] * c->hidden, c->hidden * sizeof(float));
    }
    return 0;
}

static int pass_run(const struct pass *p, const uint32_t *token)
{
    int rc = model_take_tokens(p, token);
    for (uint32_t i = 0; rc == 0 && i < (p->chunked ? 1 : p->n); i++) {
        rc = p->kv[i]->is->room(p->kv[i], p->chunked ? p->position + p->n : p->kv[i]->tokens + 1);
        if (rc != 0)
            return model_wrong(p->why, rc, "the %s cache has no room for another token: %s",
                               p->kv[i]->is->name, strerror(-rc));
    }
    if (rc == 0)
        angles(p);
    for (uint32_t layer = 0; rc == 0 && layer < p->m->is.layers; layer++)
        rc = layer_run(p, layer);
    for (uint32_t i = 0; rc == 0 && i < (p->chunked ? 1 : p->n); i++) {
        rc =
            p->kv[i]->is->advance(p->kv[i], p->chunked ? p->position + p->n : p->kv[i]->tokens + 1);
        if (rc != 0)
            return model_wrong(p->why, rc, "the %s cache: %s", p->kv[i]->is->name, strerror(-rc));
    }
    return rc;
}

/* One product per row, so that no row of logits depends on the number of rows. */
static void logits_of(const struct pass *p, float *logits)
{
    const struct model_config *c = &p->m->is;
    norm(p, p->m->norm);
    for (uint32_t i = 0; i < p->n; i++)
        product_row(p->m->scratch->h + (size_t)(p->first + i) * c->hidden, p->m->head,
                    logits + (size_t)i * c->vocab, c->vocab, c->hidden);
}

static struct pass chunk_pass(struct model *model, struct kv **kv, uint32_t first, uint32_t n,
                              char *why)
{
    return (struct pass){.m = model,
                         .chunked = true,
                         .rows = model->chunk,
                         .first = first % model->chunk,
                         .n = n,
                         .kv = kv,
                         .position = first,
                         .why = why};
}

int model_chunk(struct model *model, struct kv *kv, const uint32_t *tokens, uint32_t first,
                uint32_t n, float *logits, char why[MODEL_WHY_BYTES])
{
    const struct pass p = chunk_pass(model, &kv, first, n, why);
    const int rc = pass_run(&p, tokens);
    if (rc == 0 && logits)
        logits_of(&p, logits);
    return rc;
}

int model_chunk_logits(struct model *model, struct kv *kv, const uint32_t *tokens, uint32_t first,
                       uint32_t n, float *logits, char why[MODEL_WHY_BYTES])
{
    const struct pass p = chunk_pass(model, &kv, first, n, why);
    const int rc = pass_run(&p, tokens);
    if (rc == 0) {
        norm(&p, model->norm);
        product(&p, model->scratch->h, model->head, logits, model->is.vocab, model->is.hidden);
    }
    return rc;
}

int model_step(struct model *model, uint32_t seqs, struct kv *const *kv, const uint32_t *token,
               float *logits, char why[MODEL_WHY_BYTES])
{
    const struct pass p = {.m = model, .rows = seqs, .n = seqs, .kv = kv, .why = why};
    const int rc = pass_run(&p, token);
    if (rc == 0)
        logits_of(&p, logits);
    return rc;
}

void model_project(struct model *model, uint32_t layer, const float *x, uint32_t first, uint32_t n,
                   float *k, float *v)
{
    const struct model_config *c = &model->is;
    const struct model_scratch *s = model->scratch;
    const uint32_t kv_dim = c->kv_heads * c->head_size;
    const struct pass p = {.m = model,
                           .chunked = true,
                           .rows = model->chunk,
                           .first = first % model->chunk,
                           .n = n,
                           .position = first};
    const size_t at = (size_t)p.first * kv_dim, bytes = (size_t)n * kv_dim * sizeof(float);
    memcpy(s->x + (size_t)p.first * c->hidden, x, (size_t)n * c->hidden * sizeof(float));
    angles(&p);
    norm(&p, model->layer[layer].attn_norm);
    product(&p, s->h, model->layer[layer].k, s->k, kv_dim, c->hidden);
    product(&p, s->h, model->layer[layer].v, s->v, kv_dim, c->hidden);
    rope(&p, s->k, c->kv_heads);
    memcpy(k, s->k + at, bytes);
    memcpy(v, s->v + at, bytes);
}

/* ---- memory ---- */

static float *zeroes(uint64_t n)
{
    const uint64_t bytes = (n * sizeof(float) + ALIGN - 1) / ALIGN * ALIGN;
    float *memory = aligned_alloc(ALIGN, bytes);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

static uint32_t cpus_here(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

int model_begin(struct model *model, uint32_t chunk, uint32_t threads, char why[MODEL_WHY_BYTES])
{
    const struct model_config *c = &model->is;
    const bool is_tiny = c->hidden < TINY; /* threads would wait for each other */
    model->chunk = chunk > 0 ? chunk : is_tiny ? CHUNK_TINY : CHUNK;
    model->threads = threads > 0 ? threads : is_tiny ? 1 : cpus_here();
    const uint64_t rows = MAX(model->chunk, MODEL_SEQS_MAX);
    const uint64_t q_dim = (uint64_t)c->heads * c->head_size;
    const uint64_t kv_dim = (uint64_t)c->kv_heads * c->head_size;
    struct model_scratch *s = calloc(1, sizeof(*s));
    model->scratch = s;
    if (s) {
        s->x = zeroes(rows * c->hidden);
        s->h = zeroes(rows * c->hidden);
        s->q = zeroes(rows * q_dim);
        s->k = zeroes(rows * kv_dim);
        s->v = zeroes(rows * kv_dim);
        s->attn = zeroes(rows * q_dim);
        s->gate = zeroes(rows * c->inner);
        s->up = zeroes(rows * c->inner);
        s->cosine = zeroes(rows * c->head_size);
        s->sine = zeroes(rows * c->head_size);
    }
    if (!s || !s->x || !s->h || !s->q || !s->k || !s->v || !s->attn || !s->gate || !s->up ||
        !s->cosine || !s->sine)
        return model_wrong(why, -ENOMEM, "no memory for chunks of %u tokens; a smaller --chunk?",
                           model->chunk);
    product_begin(model->threads);
    const int rc = kvc_threads_create(model->threads, &model->attenders);
    return rc == 0 ? 0 : model_wrong(why, rc, "no %u threads: %s", model->threads, strerror(-rc));
}

void model_end(struct model *model)
{
    struct model_scratch *s = model->scratch;
    if (s) {
        float *all[] = {s->x, s->h, s->q, s->k, s->v, s->attn, s->gate, s->up, s->cosine, s->sine};
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
            free(all[i]);
        free(s);
    }
    kvc_threads_destroy(&model->attenders);
    free(model->layer);
    free(model->weights);
    *model = (struct model){0};
}
