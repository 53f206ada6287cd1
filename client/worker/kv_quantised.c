/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantised: the last tokens are exact, and those before them have smaller types, for K and V apart
 * (KIVI does so, Liu et al., arXiv:2402.02750, with other types). Pages of both kinds are lists of
 * one call of attention, so they need not be joined. A page is quantised when all its tokens have
 * become old. The daemon has blocks in the small types alone, so blocks that come back have no
 * exact tokens.
 */
#include <errno.h>
#include <kvcache/kvcache.h>
#include <stdlib.h>

#include "kv_pages.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* Blocks in their order: lent, old, exact. */
struct quantised {
    struct kv kv;
    struct kv_layout small, wide;
    struct kv_lent lent;
    struct kv_table old, exact;
    uint64_t copied;
};

/* The block number of the first exact page. */
static uint32_t exact_block(const struct quantised *q)
{
    return q->lent.n + q->old.n;
}

static void quantised_destroy(struct kv *kv)
{
    struct quantised *q = (struct quantised *)kv;
    lent_destroy(&q->lent);
    table_destroy(&q->old);
    table_destroy(&q->exact);
    free(q);
}

static int pools_make(struct quantised *q)
{
    const struct kv_setup *s = &q->kv.setup;
    const struct quantised *peer = (const struct quantised *)s->peer;
    const uint32_t pages = kv_blocks(&q->kv, s->tokens_max) * s->seqs;
    if (peer) {
        q->old.pool = kv_pool_share(peer->old.pool);
        q->exact.pool = kv_pool_share(peer->exact.pool);
        return 0;
    }
    const int rc = kv_pool_create(q->small.block_bytes, pages, &q->old.pool);
    return rc == 0 ? kv_pool_create(q->wide.block_bytes, pages, &q->exact.pool) : rc;
}

static int quantised_create(const struct kv_setup *s, struct kv **ret_kv)
{
    struct quantised *q = calloc(1, sizeof(*q));
    if (!q)
        return -ENOMEM;
    q->kv = (struct kv){.is = &kv_quantised, .setup = *s};
    int rc = kv_layout_make(s->model, s->block_tokens, s->k_type, s->v_type, &q->small);
    rc = rc ? rc : kv_layout_make(s->model, s->block_tokens, KVC_F32, KVC_F32, &q->wide);
    rc = rc ? rc : pools_make(q);
    if (rc != 0) {
        quantised_destroy(&q->kv);
        return rc;
    }
    *ret_kv = &q->kv;
    return 0;
}

static int quantised_room(struct kv *kv, uint32_t tokens)
{
    struct quantised *q = (struct quantised *)kv;
    const uint32_t blocks = kv_blocks(kv, tokens), before = exact_block(q);
    return blocks <= before ? 0 : table_grow(&q->exact, blocks - before);
}

static void *exact_at(const struct quantised *q, uint32_t block)
{
    return pool_page(q->exact.pool, q->exact.page[block - exact_block(q)]);
}

static int quantised_write(struct kv *kv, uint32_t layer, uint32_t first, uint32_t n,
                           const float *k, const float *v, const float *x)
{
    const struct quantised *q = (const struct quantised *)kv;
    (void)x;
    return table_write(&q->exact, &q->wide, exact_block(q), layer, first, n, k, v);
}

static int quantised_view(struct kv *kv, uint32_t layer, uint32_t tokens, struct kv_view *view)
{
    const struct quantised *q = (const struct quantised *)kv;
    const uint32_t per = q->small.tokens;
    const uint32_t lent = MIN(tokens, q->lent.n * per), old = MIN(tokens - lent, q->old.n * per);
    kv_view_add(view, &q->small, layer, q->lent.base, q->lent.step, q->lent.page, lent);
    kv_view_add(view, &q->small, layer, q->old.pool->base, q->small.block_bytes, q->old.page, old);
    kv_view_add(view, &q->wide, layer, q->exact.pool->base, q->wide.block_bytes, q->exact.page,
                tokens - lent - old);
    return 0;
}

static int quantised_advance(struct kv *kv, uint32_t tokens)
{
    struct quantised *q = (struct quantised *)kv;
    const uint32_t per = q->small.tokens;
    kv->tokens = tokens;
    while (q->exact.n > 0 &&
           (uint64_t)(exact_block(q) + 1) * per + kv->setup.exact_tokens <= tokens) {
        const void *from = pool_page(q->exact.pool, q->exact.page[0]);
        int rc = table_grow(&q->old, q->old.n + 1);
        if (rc == 0)
            rc = kv_rows_copy(&q->wide, from, 0, &q->small,
                              pool_page(q->old.pool, q->old.page[q->old.n - 1]), 0, per);
        if (rc != 0)
            return rc;
        q->copied += q->small.block_bytes;
        table_shift(&q->exact);
    }
    return 0;
}

static void quantised_truncate(struct kv *kv, uint32_t tokens)
{
    struct quantised *q = (struct quantised *)kv;
    const uint32_t blocks = kv_blocks(kv, tokens), before = exact_block(q);
    kv->tokens = MIN(kv->tokens, tokens);
    table_cut(&q->exact, blocks > before ? blocks - before : 0);
    table_cut(&q->old, blocks > q->lent.n ? blocks - q->lent.n : 0);
    lent_cut(&q->lent, blocks);
}

static void quantised_usage(const struct kv *kv, struct kv_usage *ret_usage)
{
    const struct quantised *q = (const struct quantised *)kv;
    *ret_usage = (struct kv_usage){.bytes = q->old.n * q->small.block_bytes +
                                            q->exact.n * q->wide.block_bytes,
                                   .borrowed = q->lent.n * q->small.block_bytes,
                                   .copied = q->copied};
}

/* Blocks that cannot be used in place, and a last block that the sequence will write to, are
 * converted to exact pages. */
static int quantised_adopt(struct kv *kv, const struct kvc_block *block, uint32_t first, uint32_t n,
                           uint32_t tokens)
{
    struct quantised *q = (struct quantised *)kv;
    const uint32_t per = q->small.tokens, whole = tokens / per - first;
    int rc = 0;
    if (first == q->lent.n && q->old.n == 0 && q->exact.n == 0 && whole > 0)
        rc = lent_add(&q->lent, block, whole);
    rc = rc == -ERANGE ? 0 : rc;
    rc = rc == 0 ? quantised_room(kv, tokens) : rc;
    for (uint32_t b = q->lent.n > first ? q->lent.n : first; rc == 0 && b < first + n; b++) {
        if (b * per >= tokens)
            break;
        rc = kv_rows_copy(&q->small, block[b - first].data, 0, &q->wide, exact_at(q, b), 0,
                          MIN(per, tokens - b * per));
        q->copied += q->small.block_bytes;
    }
    return rc == 0 ? quantised_advance(kv, tokens) : rc;
}

const struct kv_strategy kv_quantised = {
    .name = "quantised",
    .what = "pages in the types of --types, the last --exact tokens in fp32",
    .lossy = true,
    .create = quantised_create,
    .destroy = quantised_destroy,
    .room = quantised_room,
    .write = quantised_write,
    .view = quantised_view,
    .advance = quantised_advance,
    .truncate = quantised_truncate,
    .usage = quantised_usage,
    .layout = "[layer][K|V][token][head][size]",
    .block_bytes = kv_block_bytes,
    .block_out = kv_block_out,
    .adopt = quantised_adopt,
};
