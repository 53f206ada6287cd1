/* SPDX-License-Identifier: Apache-2.0 */
#include "attend_case.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *memory(size_t bytes)
{
    void *at = malloc(bytes > 0 ? bytes : 1);
    ck_assert_ptr_nonnull(at);
    return at;
}

float case_normal(uint64_t *state)
{
    float sum = 0;
    for (int i = 0; i < 12; i++)
        sum += (float)case_random(state) * 0x1p-31f;
    return sum - 6;
}

/* ---- what ---- */

void case_choose(struct attend_case *c, uint64_t *random)
{
    static const uint32_t sizes[] = {16, 32, 48, 64, 80, 128, 160, 256, 512};
    memset(c, 0, sizeof(*c));
    c->seqs = 1 + case_below(random, CASE_SEQS);
    c->kv_heads = 1 + case_below(random, 3);
    c->heads = c->kv_heads * (1 + case_below(random, 4));
    c->head_size = sizes[case_below(random, sizeof(sizes) / sizeof(sizes[0]))];
    c->window = case_below(random, 3) == 0 ? 1 + case_below(random, 200) : 0;
    c->split_tokens = case_below(random, 4) * KVC_TILE_TOKENS;
    uint32_t *const types[] = {&c->k_old, &c->v_old, &c->k_new, &c->v_new};
    for (int i = 0; i < 4; i++)
        do
            *types[i] = case_below(random, KVC_TYPES);
        while (kvc_row_bytes((enum kvc_type) * types[i], c->head_size) == 0);
    const uint32_t most = c->head_size > 160 ? 100 : 400; /* tests have seconds */
    for (uint32_t s = 0; s < c->seqs; s++) {
        c->tokens[s] = 1 + case_below(random, case_below(random, 2) ? most : 70);
        c->queries[s] = case_below(random, 3) == 0 ? case_below(random, c->tokens[s] + 1) : 1;
        c->exact_from[s] = case_below(random, c->tokens[s] + 1);
    }
}

void case_fill(struct attend_case *c, uint64_t *random)
{
    c->all_queries = 0;
    for (uint32_t s = 0; s < c->seqs; s++) {
        const size_t n = (size_t)c->tokens[s] * c->kv_heads * c->head_size;
        c->k[s] = memory(n * sizeof(float));
        c->v[s] = memory(n * sizeof(float));
        for (size_t i = 0; i < n; i++) {
            c->k[s][i] = case_normal(random);
            c->v[s][i] = case_normal(random);
        }
        c->all_queries += c->queries[s];
    }
    const size_t n = (size_t)c->all_queries * c->heads * c->head_size;
    c->q = memory(n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        c->q[i] = case_normal(random);
}

void case_free(struct attend_case *c)
{
    for (uint32_t s = 0; s < CASE_SEQS; s++) {
        free(c->k[s]);
        free(c->v[s]);
    }
    free(c->q);
    memset(c, 0, sizeof(*c));
}

/* ---- the result ---- */

static uint32_t type_of(const struct attend_case *c, uint32_t s, uint32_t token, int is_v)
{
    if (token < c->exact_from[s])
        return is_v ? c->v_old : c->k_old;
    return is_v ? c->v_new : c->k_new;
}

/* Rows as they are after they were kept in their types: [tokens][kv_heads][head_size], owned. */
static float *kept_rows(const struct attend_case *c, uint32_t s, int is_v)
{
    const size_t n = c->head_size, rows = (size_t)c->tokens[s] * c->kv_heads;
    const float *from = is_v ? c->v[s] : c->k[s];
    float *to = memory(rows * n * sizeof(*to));
    uint32_t row[KVC_HEAD_SIZE_MAX];
    for (size_t i = 0; i < rows; i++) {
        const enum kvc_type type = (enum kvc_type)type_of(c, s, (uint32_t)(i / c->kv_heads), is_v);
        ck_assert_int_eq(kvc_quantise(type, c->head_size, 1, from + i * n, 0, row, 0, NULL), 0);
        ck_assert_int_eq(kvc_dequantise(type, c->head_size, 1, row, 0, to + i * n, 0, NULL), 0);
    }
    return to;
}

struct span {
    const struct attend_case *c;
    const float *k, *v; /* of one KV head, rows `stride` apart */
    size_t stride;
    uint32_t from, to;
};

static void expect_row(const struct span *x, const float *q, double *out)
{
    const uint32_t n = x->c->head_size;
    double *score = memory(x->to * sizeof(*score)), top = -INFINITY, sum = 0;
    for (uint32_t t = x->from; t < x->to; t++) {
        score[t] = 0;
        for (uint32_t i = 0; i < n; i++)
            score[t] += (double)q[i] * x->k[t * x->stride + i];
        score[t] /= sqrt((double)n);
        top = fmax(top, score[t]);
    }
    memset(out, 0, n * sizeof(*out));
    for (uint32_t t = x->from; t < x->to; t++) {
        const double weight = exp(score[t] - top);
        sum += weight;
        for (uint32_t i = 0; i < n; i++)
            out[i] += weight * x->v[t * x->stride + i];
    }
    for (uint32_t i = 0; i < n; i++)
        out[i] /= sum;
    free(score);
}

static void expect_sequence(const struct attend_case *c, uint32_t s, const float *q, double *out)
{
    float *k = kept_rows(c, s, 0), *v = kept_rows(c, s, 1);
    for (uint32_t query = 0; query < c->queries[s]; query++) {
        const uint32_t to = c->tokens[s] - c->queries[s] + query + 1;
        const uint32_t from = c->window && to > c->window ? to - c->window : 0;
        for (uint32_t head = 0; head < c->heads; head++) {
            const size_t at = ((size_t)query * c->heads + head) * c->head_size;
            const size_t kv = head / (c->heads / c->kv_heads) * (size_t)c->head_size;
            const struct span x = {c, k + kv, v + kv, (size_t)c->kv_heads * c->head_size, from, to};
            expect_row(&x, q + at, out + at);
        }
    }
    free(k);
    free(v);
}

double *case_expected(const struct attend_case *c)
{
    double *all = memory((size_t)c->all_queries * c->heads * c->head_size * sizeof(*all));
    size_t at = 0;
    for (uint32_t s = 0; s < c->seqs; s++) {
        expect_sequence(c, s, c->q + at, all + at);
        at += (size_t)c->queries[s] * c->heads * c->head_size;
    }
    return all;
}

/* ---- where ---- */

/* Which tokens of a sequence are in which list: list l has those from at[l] to at[l + 1] - 1. */
struct division {
    uint32_t at[KVC_LISTS_MAX + 1];
};

/* List 0 and 1 have the old ones, 2 and 3 the new ones. */
static struct division divide(const struct attend_case *c, uint32_t s, uint32_t dropped,
                              uint64_t *random)
{
    const uint32_t middle = c->exact_from[s] > dropped ? c->exact_from[s] : dropped;
    struct division d = {{dropped, 0, middle, 0, c->tokens[s]}};
    d.at[1] = dropped + case_below(random, middle - dropped + 1);
    d.at[3] = middle + case_below(random, c->tokens[s] - middle + 1);
    return d;
}

/* Strides of a plane, of rows that lie `room` bytes apart. */
static void stride_plane(struct kvc_plane *plane, const struct attend_case *c, uint32_t page_tokens,
                         int head_first, uint64_t room)
{
    plane->token_stride = head_first ? room : room * c->kv_heads;
    plane->head_stride = head_first ? room * page_tokens : room;
    plane->page_stride = room * page_tokens * c->kv_heads;
}

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* Rows of K and V lie at multiples of it: types' own, that is, now and then nothing better. */
static uint32_t alignment_of(const struct kvc_paged *list)
{
    static const uint32_t of_type[KVC_TYPES] = {4, 2, 2, 1, 2, 2, 4};
    const uint32_t k = of_type[list->k.type], v = of_type[list->v.type];
    return k > v ? k : v;
}

/* K and V apart, or V behind K in each page. */
static void place_planes(const struct attend_case *c, struct attend_laid *l, uint32_t i,
                         uint64_t *random)
{
    struct kvc_paged *list = &l->a.list[i];
    struct kvc_plane *planes[] = {&list->k, &list->v};
    const int head_first = (int)case_below(random, 2), together = (int)case_below(random, 2);
    const uint32_t alignment = alignment_of(list);
    for (int p = 0; p < 2; p++) {
        const uint32_t bytes = kvc_row_bytes((enum kvc_type)planes[p]->type, c->head_size);
        const uint64_t room = round_up(bytes, alignment) + alignment * case_below(random, 3);
        stride_plane(planes[p], c, list->page_tokens, head_first, room);
    }
    const uint64_t k_bytes = list->k.page_stride, v_bytes = list->v.page_stride;
    l->page_bytes[2 * i] = list->pages * (together ? k_bytes + v_bytes : k_bytes);
    l->page_bytes[2 * i + 1] = together ? 0 : list->pages * v_bytes;
    for (int p = 0; p < 2; p++) {
        l->pages[2 * i + (uint32_t)p] = memory(l->page_bytes[2 * i + (uint32_t)p]);
        memset(l->pages[2 * i + (uint32_t)p], 0xff, l->page_bytes[2 * i + (uint32_t)p]);
    }
    list->k.base = l->pages[2 * i];
    list->v.base = together ? (char *)l->pages[2 * i] + k_bytes : l->pages[2 * i + 1];
    if (together)
        list->k.page_stride = list->v.page_stride = k_bytes + v_bytes;
}

static void put_row(const struct kvc_plane *plane, uint32_t head_size, uint64_t page,
                    uint64_t token, uint64_t head, const float *from)
{
    char *to = (char *)(uintptr_t)plane->base + page * plane->page_stride +
               token * plane->token_stride + head * plane->head_stride;
    ck_assert_int_eq(kvc_quantise((enum kvc_type)plane->type, head_size, 1, from, 0, to, 0, NULL),
                     0);
}

/* The tokens of one sequence that a list has. */
static void put_tokens(const struct attend_case *c, const struct kvc_paged *list, uint32_t s,
                       uint32_t from, uint32_t to)
{
    for (uint32_t t = from; t < to; t++) {
        const uint32_t page = list->page[list->first[s] + (t - from) / list->page_tokens];
        for (uint32_t h = 0; h < c->kv_heads; h++) {
            const size_t at = ((size_t)t * c->kv_heads + h) * c->head_size;
            put_row(&list->k, c->head_size, page, (t - from) % list->page_tokens, h, c->k[s] + at);
            put_row(&list->v, c->head_size, page, (t - from) % list->page_tokens, h, c->v[s] + at);
        }
    }
}

static void shuffle(uint32_t *x, uint32_t n, uint64_t *random)
{
    for (uint32_t i = n; i > 1; i--) {
        const uint32_t other = case_below(random, i), kept = x[i - 1];
        x[i - 1] = x[other];
        x[other] = kept;
    }
}

/* Page numbers of a list: all different, from a memory that has a few more. */
static void number_pages(const struct attend_case *c, struct attend_laid *l, uint32_t i,
                         const struct division *division, uint64_t *random)
{
    struct kvc_paged *list = &l->a.list[i];
    uint32_t *first = memory((c->seqs + 1) * sizeof(*first));
    uint32_t *last = memory(c->seqs * sizeof(*last));
    uint32_t n = 0;
    for (uint32_t s = 0; s < c->seqs; s++) {
        const uint32_t tokens = division[s].at[i + 1] - division[s].at[i];
        const uint32_t pages = (tokens + list->page_tokens - 1) / list->page_tokens;
        first[s] = n;
        last[s] = tokens - (pages > 0 ? pages - 1 : 0) * list->page_tokens;
        n += pages;
    }
    first[c->seqs] = n;
    list->pages = n + case_below(random, 3);
    uint32_t *page = memory(list->pages * sizeof(*page));
    for (uint32_t p = 0; p < list->pages; p++)
        page[p] = p;
    shuffle(page, list->pages, random);
    list->page = l->numbers[3 * i] = page;
    list->first = l->numbers[3 * i + 1] = first;
    list->last_tokens = l->numbers[3 * i + 2] = last;
}

static void lay_queries(const struct attend_case *c, int drop, struct attend_laid *l)
{
    l->q_first = memory((c->seqs + 1) * sizeof(*l->q_first));
    l->dropped = memory(c->seqs * sizeof(*l->dropped));
    l->q_first[0] = 0;
    for (uint32_t s = 0; s < c->seqs; s++) {
        const uint32_t first = c->tokens[s] - c->queries[s];
        l->q_first[s + 1] = l->q_first[s] + c->queries[s];
        l->dropped[s] = drop && c->window > 0 && first >= c->window ? first - c->window + 1 : 0;
    }
    l->out_bytes = (size_t)c->all_queries * c->heads * c->head_size * sizeof(float);
    l->out = memory(l->out_bytes);
    memset(l->out, 0xff, l->out_bytes);
}

void case_lay(const struct attend_case *c, uint32_t page_tokens, int drop, uint64_t *random,
              struct attend_laid *ret)
{
    static const uint32_t sizes[] = {1, 2, 3, 7, 8, 16, 31, 64, 100, 128, 1000};
    struct division division[CASE_SEQS];
    memset(ret, 0, sizeof(*ret));
    lay_queries(c, drop, ret);
    ret->a = (struct kvc_attention){.seqs = c->seqs,
                                    .heads = c->heads,
                                    .kv_heads = c->kv_heads,
                                    .head_size = c->head_size,
                                    .scale = 1.0f / sqrtf((float)c->head_size),
                                    .window = c->window,
                                    .split_tokens = c->split_tokens,
                                    .lists = KVC_LISTS_MAX,
                                    .dropped = drop ? ret->dropped : NULL,
                                    .q_first = ret->q_first,
                                    .q = c->q,
                                    .out = ret->out};
    for (uint32_t s = 0; s < c->seqs; s++)
        division[s] = divide(c, s, ret->dropped[s], random);
    for (uint32_t i = 0; i < KVC_LISTS_MAX; i++) {
        struct kvc_paged *list = &ret->a.list[i];
        list->k.type = i < 2 ? c->k_old : c->k_new;
        list->v.type = i < 2 ? c->v_old : c->v_new;
        list->page_tokens =
            page_tokens ? page_tokens : sizes[case_below(random, sizeof(sizes) / sizeof(sizes[0]))];
        number_pages(c, ret, i, division, random);
        place_planes(c, ret, i, random);
        for (uint32_t s = 0; s < c->seqs; s++)
            put_tokens(c, list, s, division[s].at[i], division[s].at[i + 1]);
    }
}

void laid_free(struct attend_laid *l)
{
    for (uint32_t i = 0; i < 2 * KVC_LISTS_MAX; i++)
        free(l->pages[i]);
    for (uint32_t i = 0; i < 3 * KVC_LISTS_MAX; i++)
        free(l->numbers[i]);
    free(l->q_first);
    free(l->dropped);
    free(l->out);
    memset(l, 0, sizeof(*l));
}

float *laid_twin(struct attend_laid *l)
{
    float *twin = memory(l->out_bytes);
    ck_assert_int_eq(kvc_attend_cpu(&l->a, NULL, NULL), 0);
    memcpy(twin, l->out, l->out_bytes);
    memset(l->out, 0xff, l->out_bytes);
    return twin;
}

void laid_assert_bits(const struct attend_laid *l, const float *twin, uint64_t seed)
{
    for (size_t i = 0; i < l->out_bytes / sizeof(float); i++)
        ck_assert_msg(memcmp(&l->out[i], &twin[i], sizeof(float)) == 0,
                      "value %zu is %.9g, the twin's %.9g (seed %ju)", i, (double)l->out[i],
                      (double)twin[i], (uintmax_t)seed);
}
