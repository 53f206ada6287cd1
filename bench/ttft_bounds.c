/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bounds of time to first token: the products and the attention that a prefill needs, and a
 * plain copy of the cached bytes.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "product.h"
#include "ttft.h"

#define MAX(a, b) ((a) > (b) ? (a) : (b))

static double since(uint64_t begin)
{
    return (double)(now_ns() - begin) * 1e-9;
}

static uint64_t longest(const struct ttft *t)
{
    uint64_t most = 1;
    for (size_t i = 0; i < t->lengths; i++)
        most = MAX(most, t->length[i].tokens);
    return most;
}

static uint64_t chunks_of(const struct ttft *t, const struct ttft_length *l)
{
    return (l->tokens - 1 + t->model.chunk - 1) / t->model.chunk;
}

int ttft_bounds_open(struct ttft *t)
{
    const struct model_config *c = &t->model.is;
    const uint64_t rows = t->model.chunk, q_dim = (uint64_t)c->heads * c->head_size;
    /* Keys up to the end of the last chunk. */
    const uint64_t all = (longest(t) + rows) / rows * rows;
    const uint64_t wide = MAX(MAX(c->inner, all), MAX(q_dim, c->hidden));
    uint64_t bytes = 0;
    for (size_t i = 0; i < t->lengths; i++)
        bytes = MAX(bytes, t->length[i].of[0].bytes);
    t->copy_from = perf_private_memory(bytes);
    t->copy_to = perf_private_memory(bytes);
    /* Rows of x, and behind them keys, which some products have in place of weights. */
    t->x = calloc(rows * wide + all * c->head_size, sizeof(*t->x));
    t->y = calloc(rows * wide, sizeof(*t->y));
    t->copy_bytes = bytes;
    if (!t->copy_from || !t->copy_to || !t->x || !t->y) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    for (uint64_t i = 0; i < rows * wide + all * c->head_size; i++)
        t->x[i] = 0.5f;
    return 0;
}

void ttft_bounds_close(struct ttft *t)
{
    if (t->copy_from)
        munmap(t->copy_from, t->copy_bytes);
    if (t->copy_to)
        munmap(t->copy_to, t->copy_bytes);
    free(t->x);
    free(t->y);
}

/* ---- BLAS ---- */

/* Time of the products of one chunk at every layer, with the model's own weights. */
static double products_of_chunk(const struct ttft *t)
{
    const struct model_config *c = &t->model.is;
    const uint32_t rows = t->model.chunk, q_dim = c->heads * c->head_size;
    const uint32_t kv_dim = c->kv_heads * c->head_size;
    const uint64_t begin = now_ns();
    for (uint32_t i = 0; i < c->layers; i++) {
        const struct model_layer *w = &t->model.layer[i];
        product_rows(t->x, w->q, t->y, rows, q_dim, c->hidden);
        product_rows(t->x, w->k, t->y, rows, kv_dim, c->hidden);
        product_rows(t->x, w->v, t->y, rows, kv_dim, c->hidden);
        product_rows(t->x, w->o, t->y, rows, c->hidden, q_dim);
        product_rows(t->x, w->gate, t->y, rows, c->inner, c->hidden);
        product_rows(t->x, w->up, t->y, rows, c->inner, c->hidden);
        product_rows(t->x, w->down, t->y, rows, c->hidden, c->inner);
    }
    return since(begin);
}

/* Time of scores and sums of one chunk behind `keys - rows` tokens: all heads at one layer. Scores
 * that causality would leave out are computed too, because BLAS computes whole products. */
static double attention_of_chunk(const struct ttft *t, uint32_t keys)
{
    const struct model_config *c = &t->model.is;
    const uint32_t rows = t->model.chunk;
    const float *k = t->x + (size_t)rows * MAX(MAX(c->inner, keys), c->hidden);
    const uint64_t begin = now_ns();
    for (uint32_t h = 0; h < c->heads; h++) {
        product_rows(t->x, k, t->y, rows, keys, c->head_size);
        product_rows(t->x, k, t->y, rows, c->head_size, keys);
    }
    return since(begin);
}

int ttft_bound_blas(struct ttft *t, struct ttft_length *l)
{
    const uint64_t chunks = chunks_of(t, l);
    double attention = 0;
    if (chunks == 0)
        return 0;
    ttft_add(&l->products, products_of_chunk(t) * (double)chunks);
    for (uint64_t i = 1; i <= chunks; i++)
        attention += attention_of_chunk(t, (uint32_t)(i * t->model.chunk));
    ttft_add(&l->attention, attention * t->model.is.layers);
    return 0;
}

/* ---- loads ---- */

/* Makes a sequence of the prompt without its last token, in one tensor. */
static int resident_make(struct ttft *t, const struct ttft_length *l, struct ttft_case *c,
                         const struct ttft_variant *v)
{
    const struct kv_setup setup = {.model = &t->model,
                                   .tokens_max = l->tokens,
                                   .block_tokens = (uint32_t)t->block,
                                   .k_type = v->types.type[0],
                                   .v_type = v->types.type[1],
                                   .seqs = 1};
    int rc = kv_static.create(&setup, &c->resident);
    if (rc != 0)
        return model_wrong(t->why, rc, "no memory for %u tokens", setup.tokens_max);
    for (uint32_t first = 0, n; rc == 0 && first < l->tokens - 1; first += n) {
        n = t->model.chunk < l->tokens - 1 - first ? t->model.chunk : l->tokens - 1 - first;
        rc = model_chunk(&t->model, c->resident, l->token + first, first, n, NULL, t->why);
    }
    return rc;
}

int ttft_bound_load(struct ttft *t, struct ttft_length *l, size_t variant)
{
    struct ttft_case *c = &l->of[variant];
    int rc = c->resident ? 0 : resident_make(t, l, c, &t->variant[variant]);
    uint64_t begin = now_ns();
    memcpy(t->copy_to, t->copy_from, c->bytes);
    ttft_add(&c->copy, since(begin));
    begin = now_ns();
    if (rc == 0)
        rc = model_step(&t->model, 1, &c->resident, &l->token[l->tokens - 1], t->logits, t->why);
    if (rc != 0) {
        say_error("%s", t->why);
        return BENCH_FAILED;
    }
    ttft_add(&c->step, since(begin));
    c->resident->is->truncate(c->resident, l->tokens - 1); /* for the next round's step */
    return 0;
}
