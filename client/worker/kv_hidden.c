/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hidden: the daemon keeps the input x of each layer, and K and V are projected from x when it is
 * loaded (HCache: Gao et al., arXiv:2410.05004). If every head has its own K and V, x has half
 * their size, and costs two products per layer; with grouped heads x may be larger than K and V.
 * The products are those of prefill, so K and V have the same bits.
 */
#include <errno.h>
#include <kvcache/kvcache.h>
#include <stdlib.h>
#include <string.h>

#include "kv_pages.h"
#include "model.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* K and V are in pages. Beside them are pages of x, [layer][token][hidden], which are the daemon's
 * blocks. */
struct hidden {
    struct kv kv;
    struct kv *paged;
    struct kv_table x;
    uint64_t token_bytes, layer_bytes, copied;
};

static uint64_t hidden_block_bytes(const struct kv *kv)
{
    const struct hidden *h = (const struct hidden *)kv;
    return h->layer_bytes * kv->setup.model->is.layers;
}

static void hidden_destroy(struct kv *kv)
{
    struct hidden *h = (struct hidden *)kv;
    if (h->paged)
        h->paged->is->destroy(h->paged);
    table_destroy(&h->x);
    free(h);
}

static int hidden_create(const struct kv_setup *s, struct kv **ret_kv)
{
    struct hidden *h = calloc(1, sizeof(*h));
    struct kv_setup inner = *s;
    if (!h)
        return -ENOMEM;
    h->kv = (struct kv){.is = &kv_hidden, .setup = *s};
    h->token_bytes = s->model->is.hidden * sizeof(float);
    h->layer_bytes = h->token_bytes * s->block_tokens;
    inner.peer = s->peer ? ((struct hidden *)s->peer)->paged : NULL;
    int rc = kv_paged.create(&inner, &h->paged);
    if (rc == 0 && s->peer)
        h->x.pool = kv_pool_share(((struct hidden *)s->peer)->x.pool);
    else if (rc == 0)
        rc = kv_pool_create(hidden_block_bytes(&h->kv), kv_blocks(&h->kv, s->tokens_max) * s->seqs,
                            &h->x.pool);
    if (rc != 0) {
        hidden_destroy(&h->kv);
        return rc;
    }
    *ret_kv = &h->kv;
    return 0;
}

static int hidden_room(struct kv *kv, uint32_t tokens)
{
    struct hidden *h = (struct hidden *)kv;
    const int rc = table_grow(&h->x, kv_blocks(kv, tokens));
    return rc == 0 ? h->paged->is->room(h->paged, tokens) : rc;
}

/* Offset of a token's x in a block. */
static uint64_t x_at(const struct hidden *h, uint32_t layer, uint32_t token)
{
    return layer * h->layer_bytes + token % h->kv.setup.block_tokens * h->token_bytes;
}

static int hidden_write(struct kv *kv, uint32_t layer, uint32_t first, uint32_t n, const float *k,
                        const float *v, const float *x)
{
    struct hidden *h = (struct hidden *)kv;
    const uint32_t per = kv->setup.block_tokens;
    for (uint32_t t = first; t < first + n; t++)
        memcpy((char *)pool_page(h->x.pool, h->x.page[t / per]) + x_at(h, layer, t),
               x + (size_t)(t - first) * kv->setup.model->is.hidden, h->token_bytes);
    return h->paged->is->write(h->paged, layer, first, n, k, v, x);
}

static int hidden_view(struct kv *kv, uint32_t layer, uint32_t tokens, struct kv_view *view)
{
    struct kv *paged = ((struct hidden *)kv)->paged;
    return paged->is->view(paged, layer, tokens, view);
}

static int hidden_advance(struct kv *kv, uint32_t tokens)
{
    struct kv *paged = ((struct hidden *)kv)->paged;
    kv->tokens = tokens;
    return paged->is->advance(paged, tokens);
}

static void hidden_truncate(struct kv *kv, uint32_t tokens)
{
    struct hidden *h = (struct hidden *)kv;
    kv->tokens = MIN(kv->tokens, tokens);
    table_cut(&h->x, kv_blocks(kv, tokens));
    h->paged->is->truncate(h->paged, tokens);
}

static void hidden_usage(const struct kv *kv, struct kv_usage *ret_usage)
{
    const struct hidden *h = (const struct hidden *)kv;
    struct kv_usage usage;
    h->paged->is->usage(h->paged, &usage);
    usage.bytes += h->x.n * h->x.pool->page_bytes;
    usage.copied += h->copied;
    *ret_usage = usage;
}

static int hidden_block_out(struct kv *kv, uint32_t block, uint32_t tokens, void *to)
{
    const struct hidden *h = (const struct hidden *)kv;
    const char *from = pool_page(h->x.pool, h->x.page[block]);
    if (tokens < kv->setup.block_tokens)
        memset(to, 0, hidden_block_bytes(kv));
    for (uint32_t layer = 0; layer < kv->setup.model->is.layers; layer++)
        memcpy((char *)to + x_at(h, layer, 0), from + x_at(h, layer, 0), tokens * h->token_bytes);
    return 0;
}

/* Projects K and V of the tokens of one chunk, at every layer. */
static int project_chunk(struct hidden *h, uint32_t begin, uint32_t n, float *k, float *v, float *x)
{
    struct model *m = h->kv.setup.model;
    const uint32_t per = h->kv.setup.block_tokens;
    int rc = 0;
    for (uint32_t layer = 0; rc == 0 && layer < m->is.layers; layer++) {
        for (uint32_t t = begin; t < begin + n; t++)
            memcpy(x + (size_t)(t - begin) * m->is.hidden,
                   (char *)pool_page(h->x.pool, h->x.page[t / per]) + x_at(h, layer, t),
                   h->token_bytes);
        model_project(m, layer, x, begin, n, k, v);
        rc = h->paged->is->write(h->paged, layer, begin, n, k, v, x);
    }
    return rc;
}

static int hidden_adopt(struct kv *kv, const struct kvc_block *block, uint32_t first, uint32_t n,
                        uint32_t tokens)
{
    struct hidden *h = (struct hidden *)kv;
    const struct model *m = kv->setup.model;
    const uint32_t per = kv->setup.block_tokens, chunk = m->chunk;
    const size_t kv_dim = (size_t)m->is.kv_heads * m->is.head_size;
    float *k = calloc(chunk * (2 * kv_dim + m->is.hidden), sizeof(*k));
    int rc = k ? hidden_room(kv, tokens) : -ENOMEM;
    for (uint32_t b = first; rc == 0 && b < first + n && b * per < tokens; b++) {
        memcpy(pool_page(h->x.pool, h->x.page[b]), block[b - first].data, hidden_block_bytes(kv));
        h->copied += hidden_block_bytes(kv);
    }
    for (uint32_t at = kv->tokens; rc == 0 && at < tokens;) {
        const uint32_t here = MIN(chunk - at % chunk, tokens - at);
        rc = project_chunk(h, at, here, k, k + chunk * kv_dim, k + 2 * chunk * kv_dim);
        at += here;
    }
    free(k);
    return rc == 0 ? hidden_advance(kv, tokens) : rc;
}

const struct kv_strategy kv_hidden = {
    .name = "hidden",
    .what = "the daemon has the layers' inputs; K and V are projected when they are loaded",
    .create = hidden_create,
    .destroy = hidden_destroy,
    .room = hidden_room,
    .write = hidden_write,
    .view = hidden_view,
    .advance = hidden_advance,
    .truncate = hidden_truncate,
    .usage = hidden_usage,
    .layout = "[layer][token][hidden]",
    .block_bytes = hidden_block_bytes,
    .block_out = hidden_block_out,
    .adopt = hidden_adopt,
};
