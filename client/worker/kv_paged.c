/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paged: pages of block_tokens tokens from a pool that sequences share (Kwon et al.,
 * arXiv:2309.06180). A page has the layout of a daemon's block, so a prefix that the daemon has is
 * read in place: attention gets one list of the daemon's blocks and one of the sequence's pages. A
 * block is copied to a page only if the sequence goes on writing to it.
 */
#include <errno.h>
#include <kvcache/kvcache.h>
#include <stdlib.h>

#include "kv_pages.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))

struct paged {
    struct kv kv;
    struct kv_layout l;
    struct kv_lent lent; /* the daemon's blocks, which come first */
    struct kv_table own; /* pages of the other blocks */
    uint64_t copied;
};

static void paged_destroy(struct kv *kv)
{
    struct paged *p = (struct paged *)kv;
    lent_destroy(&p->lent);
    table_destroy(&p->own);
    free(p);
}

static int paged_create(const struct kv_setup *s, struct kv **ret_kv)
{
    struct paged *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->kv = (struct kv){.is = &kv_paged, .setup = *s};
    int rc = kv_layout_make(s->model, s->block_tokens, s->k_type, s->v_type, &p->l);
    if (rc == 0 && s->peer)
        p->own.pool = kv_pool_share(((struct paged *)s->peer)->own.pool);
    else if (rc == 0)
        rc = kv_pool_create(p->l.block_bytes, kv_blocks(&p->kv, s->tokens_max) * s->seqs,
                            &p->own.pool);
    if (rc != 0) {
        paged_destroy(&p->kv);
        return rc;
    }
    *ret_kv = &p->kv;
    return 0;
}

static int paged_room(struct kv *kv, uint32_t tokens)
{
    struct paged *p = (struct paged *)kv;
    const uint32_t blocks = kv_blocks(kv, tokens);
    return blocks <= p->lent.n ? 0 : table_grow(&p->own, blocks - p->lent.n);
}

static void *own_block(const struct paged *p, uint32_t block)
{
    return pool_page(p->own.pool, p->own.page[block - p->lent.n]);
}

static int paged_write(struct kv *kv, uint32_t layer, uint32_t first, uint32_t n, const float *k,
                       const float *v, const float *x)
{
    const struct paged *p = (const struct paged *)kv;
    (void)x;
    return table_write(&p->own, &p->l, p->lent.n, layer, first, n, k, v);
}

static int paged_view(struct kv *kv, uint32_t layer, uint32_t tokens, struct kv_view *view)
{
    const struct paged *p = (const struct paged *)kv;
    const uint32_t lent = MIN(tokens, p->lent.n * p->l.tokens);
    kv_view_add(view, &p->l, layer, p->lent.base, p->lent.step, p->lent.page, lent);
    kv_view_add(view, &p->l, layer, p->own.pool->base, p->l.block_bytes, p->own.page,
                tokens - lent);
    return 0;
}

static int paged_advance(struct kv *kv, uint32_t tokens)
{
    kv->tokens = tokens;
    return 0;
}

static void paged_truncate(struct kv *kv, uint32_t tokens)
{
    struct paged *p = (struct paged *)kv;
    const uint32_t blocks = kv_blocks(kv, tokens);
    kv->tokens = MIN(kv->tokens, tokens);
    table_cut(&p->own, blocks > p->lent.n ? blocks - p->lent.n : 0);
    lent_cut(&p->lent, blocks);
}

static void paged_usage(const struct kv *kv, struct kv_usage *ret_usage)
{
    const struct paged *p = (const struct paged *)kv;
    *ret_usage = (struct kv_usage){.bytes = p->own.n * p->l.block_bytes,
                                   .borrowed = p->lent.n * p->l.block_bytes,
                                   .copied = p->copied};
}

static int paged_adopt(struct kv *kv, const struct kvc_block *block, uint32_t first, uint32_t n,
                       uint32_t tokens)
{
    struct paged *p = (struct paged *)kv;
    const uint32_t per = p->l.tokens, whole = tokens / per - first;
    int rc =
        first == p->lent.n && p->own.n == 0 && whole > 0 ? lent_add(&p->lent, block, whole) : 0;
    if (rc == -ERANGE)
        rc = 0; /* the blocks are copied instead */
    if (rc == 0)
        rc = paged_room(kv, tokens);
    for (uint32_t b = p->lent.n > first ? p->lent.n : first; rc == 0 && b < first + n; b++) {
        if (b * per >= tokens)
            break;
        const uint32_t here = MIN(per, tokens - b * per);
        rc = kv_rows_copy(&p->l, block[b - first].data, 0, &p->l, own_block(p, b), 0, here);
        p->copied += here * (p->l.block_bytes / per);
    }
    return rc == 0 ? paged_advance(kv, tokens) : rc;
}

const struct kv_strategy kv_paged = {
    .name = "paged",
    .what = "pages out of a pool; blocks of the daemon are read where they lie",
    .create = paged_create,
    .destroy = paged_destroy,
    .room = paged_room,
    .write = paged_write,
    .view = paged_view,
    .advance = paged_advance,
    .truncate = paged_truncate,
    .usage = paged_usage,
    .layout = "[layer][K|V][token][head][size]",
    .block_bytes = kv_block_bytes,
    .block_out = kv_block_out,
    .adopt = paged_adopt,
};
