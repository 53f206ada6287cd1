/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <kvcache/kvcache.h>
#include <stdlib.h>
#include <string.h>

#include "kv_flat.h"

#define ALIGN 64u

int flat_create(const struct kv_strategy *is, const struct kv_setup *setup, struct kv **ret_kv)
{
    struct kv_flat *f = calloc(1, sizeof(*f));
    if (!f)
        return -ENOMEM;
    f->kv = (struct kv){.is = is, .setup = *setup};
    *ret_kv = &f->kv;
    return 0;
}

void flat_destroy(struct kv *kv)
{
    struct kv_flat *f = (struct kv_flat *)kv;
    free(f->memory);
    free(f);
}

int flat_resize(struct kv *kv, uint32_t capacity)
{
    struct kv_flat *f = (struct kv_flat *)kv;
    struct kv_layout l;
    int rc = kv_layout_make(kv->setup.model, capacity, kv->setup.k_type, kv->setup.v_type, &l);
    if (rc != 0)
        return rc;
    char *memory = aligned_alloc(ALIGN, l.block_bytes);
    if (!memory)
        return -ENOMEM;
    if (kv->tokens > 0) {
        rc = kv_rows_copy(&f->l, f->memory, 0, &l, memory, 0, kv->tokens);
        f->copied += kv->tokens * (f->l.block_bytes / f->l.tokens);
    }
    free(f->memory);
    f->memory = memory;
    f->l = l;
    return rc;
}

int flat_write(struct kv *kv, uint32_t layer, uint32_t first, uint32_t n, const float *k,
               const float *v, const float *x)
{
    struct kv_flat *f = (struct kv_flat *)kv;
    (void)x;
    return kv_rows_put(&f->l, layer, first, n, k, v, f->memory);
}

int flat_view(struct kv *kv, uint32_t layer, uint32_t tokens, struct kv_view *view)
{
    static const uint32_t only = 0;
    const struct kv_flat *f = (const struct kv_flat *)kv;
    kv_view_add(view, &f->l, layer, f->memory, f->l.block_bytes, &only, tokens);
    return 0;
}

int flat_advance(struct kv *kv, uint32_t tokens)
{
    kv->tokens = tokens;
    return 0;
}

void flat_truncate(struct kv *kv, uint32_t tokens)
{
    kv->tokens = tokens < kv->tokens ? tokens : kv->tokens;
}

void flat_usage(const struct kv *kv, struct kv_usage *ret_usage)
{
    const struct kv_flat *f = (const struct kv_flat *)kv;
    *ret_usage = (struct kv_usage){.bytes = f->l.block_bytes, .copied = f->copied};
}

int flat_adopt(struct kv *kv, const struct kvc_block *block, uint32_t first, uint32_t n,
               uint32_t tokens)
{
    struct kv_flat *f = (struct kv_flat *)kv;
    const struct kv_setup *s = &kv->setup;
    const uint32_t per = s->block_tokens;
    struct kv_layout l;
    int rc = kv_layout_make(s->model, per, s->k_type, s->v_type, &l);
    if (rc == 0)
        rc = kv->is->room(kv, tokens);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        const uint32_t begin = (first + i) * per;
        const uint32_t here = tokens - begin < per ? tokens - begin : per;
        rc = kv_rows_copy(&l, block[i].data, 0, &f->l, f->memory, begin, here);
        f->copied += here * (l.block_bytes / l.tokens);
    }
    return rc == 0 ? kv->is->advance(kv, tokens) : rc;
}
