/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a block, and the functions for it that every strategy needs. */
#include <errno.h>
#include <string.h>

#include "kv.h"
#include "model.h"

#define MIN(a, b)   ((a) < (b) ? (a) : (b))
#define PLANE_ALIGN 64u

const struct kv_strategy *const kv_strategies[] = {
    &kv_none, &kv_static, &kv_doubling, &kv_paged, &kv_offloaded, &kv_quantised, &kv_hidden, NULL};

/* ---- types ---- */

static int type_parse(const char *text, size_t n, uint32_t *ret_type)
{
    for (uint32_t t = 0; t < KVC_TYPES; t++) {
        const char *name = kvc_type_name((enum kvc_type)t);
        if (strlen(name) == n && strncmp(name, text, n) == 0) {
            *ret_type = t;
            return 0;
        }
    }
    return -EINVAL;
}

int kv_types_parse(const char *text, uint32_t *ret_k_type, uint32_t *ret_v_type)
{
    const size_t k = strcspn(text, ":");
    const char *v = text[k] ? text + k + 1 : text;
    uint32_t type[2];
    if (type_parse(text, k, &type[0]) != 0 || type_parse(v, strlen(v), &type[1]) != 0)
        return -EINVAL;
    *ret_k_type = type[0];
    *ret_v_type = type[1];
    return 0;
}

/* ---- blocks ---- */

int kv_layout_make(const struct model *model, uint32_t tokens, uint32_t k_type, uint32_t v_type,
                   struct kv_layout *ret_layout)
{
    struct kv_layout l = {.tokens = tokens,
                          .layers = model->is.layers,
                          .kv_heads = model->is.kv_heads,
                          .head_size = model->is.head_size,
                          .type = {k_type, v_type}};
    for (unsigned plane = 0; plane < 2; plane++) {
        l.row_bytes[plane] = kvc_row_bytes((enum kvc_type)l.type[plane], l.head_size);
        if (l.row_bytes[plane] == 0)
            return -EINVAL;
        l.offset[plane] = l.layer_bytes;
        const uint64_t bytes = (uint64_t)tokens * l.kv_heads * l.row_bytes[plane];
        l.layer_bytes += (bytes + PLANE_ALIGN - 1) / PLANE_ALIGN * PLANE_ALIGN;
    }
    l.block_bytes = l.layer_bytes * l.layers;
    *ret_layout = l;
    return 0;
}

/* Converts rows that lie side by side from one type to another. */
static int rows_convert(uint32_t from_type, const void *from, uint32_t to_type, void *to,
                        uint64_t rows, uint32_t head_size)
{
    const uint32_t from_bytes = kvc_row_bytes((enum kvc_type)from_type, head_size);
    const uint32_t to_bytes = kvc_row_bytes((enum kvc_type)to_type, head_size);
    const uint64_t exact = head_size * sizeof(float);
    if (from_type == to_type) {
        memcpy(to, from, rows * from_bytes);
        return 0;
    }
    if (from_type == KVC_F32)
        return kvc_quantise((enum kvc_type)to_type, head_size, rows, from, exact, to, to_bytes,
                            NULL);
    float row[KVC_HEAD_SIZE_MAX];
    for (uint64_t r = 0; r < rows; r++) {
        int rc = kvc_dequantise((enum kvc_type)from_type, head_size, 1,
                                (const char *)from + r * from_bytes, from_bytes, row, exact, NULL);
        if (rc == 0)
            rc = kvc_quantise((enum kvc_type)to_type, head_size, 1, row, exact,
                              (char *)to + r * to_bytes, to_bytes, NULL);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int kv_rows_put(const struct kv_layout *l, uint32_t layer, uint32_t first, uint32_t n,
                const float *k, const float *v, void *block)
{
    const uint64_t rows = (uint64_t)n * l->kv_heads;
    int rc = rows_convert(KVC_F32, k, l->type[0], (char *)block + kv_at(l, layer, 0, first), rows,
                          l->head_size);
    if (rc == 0)
        rc = rows_convert(KVC_F32, v, l->type[1], (char *)block + kv_at(l, layer, 1, first), rows,
                          l->head_size);
    return rc;
}

int kv_rows_copy(const struct kv_layout *from_is, const void *from, uint32_t from_first,
                 const struct kv_layout *to_is, void *to, uint32_t to_first, uint32_t n)
{
    int rc = 0;
    for (uint32_t layer = 0; rc == 0 && layer < from_is->layers; layer++)
        for (unsigned plane = 0; rc == 0 && plane < 2; plane++)
            rc = rows_convert(from_is->type[plane],
                              (const char *)from + kv_at(from_is, layer, plane, from_first),
                              to_is->type[plane], (char *)to + kv_at(to_is, layer, plane, to_first),
                              (uint64_t)n * from_is->kv_heads, from_is->head_size);
    return rc;
}

/* ---- views ---- */

void kv_view_add(struct kv_view *view, const struct kv_layout *l, uint32_t layer, const void *base,
                 uint64_t stride, const uint32_t *page, uint32_t tokens)
{
    if (tokens == 0)
        return;
    const uint32_t i = view->lists++;
    struct kvc_plane plane[2];
    for (unsigned p = 0; p < 2; p++)
        plane[p] = (struct kvc_plane){.base = (const char *)base + kv_at(l, layer, p, 0),
                                      .page_stride = stride,
                                      .token_stride = l->kv_heads * l->row_bytes[p],
                                      .head_stride = l->row_bytes[p],
                                      .type = l->type[p]};
    view->first[i][0] = 0;
    view->first[i][1] = (tokens + l->tokens - 1) / l->tokens;
    view->last[i] = (tokens - 1) % l->tokens + 1;
    view->list[i] = (struct kvc_paged){.k = plane[0],
                                       .v = plane[1],
                                       .page_tokens = l->tokens,
                                       .pages = UINT32_MAX,
                                       .page = page,
                                       .first = view->first[i],
                                       .last_tokens = &view->last[i]};
}

/* Copies tokens first .. first + n - 1 of a list to a block, from the block's token `at` on. */
static int list_copy(const struct kvc_paged *list, uint32_t first, uint32_t n,
                     const struct kv_layout *to_is, uint32_t layer, void *to, uint32_t at)
{
    int rc = 0;
    for (uint32_t done = 0; rc == 0 && done < n;) {
        const uint32_t t = (first + done) % list->page_tokens;
        const uint64_t page = list->page[(first + done) / list->page_tokens];
        const uint32_t run = MIN(n - done, list->page_tokens - t);
        const struct kvc_plane *plane[2] = {&list->k, &list->v};
        for (unsigned p = 0; rc == 0 && p < 2; p++)
            rc = rows_convert(plane[p]->type,
                              (const char *)plane[p]->base + page * plane[p]->page_stride +
                                  t * plane[p]->token_stride,
                              to_is->type[p], (char *)to + kv_at(to_is, layer, p, at + done),
                              (uint64_t)run * to_is->kv_heads, to_is->head_size);
        done += run;
    }
    return rc;
}

static uint32_t list_tokens(const struct kvc_paged *list)
{
    return (list->first[1] - 1) * list->page_tokens + list->last_tokens[0];
}

int kv_block_out(struct kv *kv, uint32_t block, uint32_t tokens, void *to)
{
    const struct kv_setup *s = &kv->setup;
    const uint32_t begin = block * s->block_tokens, end = begin + tokens;
    struct kv_layout l;
    int rc = kv_layout_make(s->model, s->block_tokens, s->k_type, s->v_type, &l);
    if (rc == 0 && tokens < s->block_tokens)
        memset(to, 0, l.block_bytes);
    for (uint32_t layer = 0; rc == 0 && layer < l.layers; layer++) {
        struct kv_view view = {0};
        rc = kv->is->view(kv, layer, kv->tokens, &view);
        for (uint32_t i = 0, before = 0; rc == 0 && i < view.lists; i++) {
            const uint32_t past = before + list_tokens(&view.list[i]);
            const uint32_t from = begin > before ? begin : before, until = MIN(end, past);
            if (from < until)
                rc = list_copy(&view.list[i], from - before, until - from, &l, layer, to,
                               from - begin);
            before = past;
        }
    }
    return rc;
}

uint64_t kv_block_bytes(const struct kv *kv)
{
    struct kv_layout l;
    const struct kv_setup *s = &kv->setup;
    return kv_layout_make(s->model, s->block_tokens, s->k_type, s->v_type, &l) == 0 ? l.block_bytes
                                                                                    : 0;
}
