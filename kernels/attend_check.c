/* SPDX-License-Identifier: Apache-2.0 */
/* What attention refuses, by name. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "attend__.h"
#include "numeric.h"

#define TOKENS_MAX (UINT32_C(1) << 30) /* of a sequence */

int attend__refuse(char why[KVC_WHY_BYTES], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (why)
        (void)vsnprintf(why, KVC_WHY_BYTES, format, args);
    va_end(args);
    return -EINVAL;
}

/* ---- types ---- */

static const struct {
    const char *name;
    uint32_t alignment, head_bytes, block_values, block_bytes;
} types[KVC_TYPES] = {
    [KVC_F32] = {"fp32", 4, 0, 1, 4},
    [KVC_F16] = {"fp16", 2, 0, 1, 2},
    [KVC_BF16] = {"bf16", 2, 0, 1, 2},
    [KVC_F8] = {"fp8", 1, 0, 1, 1},
    [KVC_Q8_0] = {"q8_0", 2, 0, BLOCK_VALUES, Q8_0_BYTES},
    [KVC_Q4_0] = {"q4_0", 2, 0, BLOCK_VALUES, Q4_0_BYTES},
    [KVC_I8] = {"int8", 4, I8_HEAD, 1, 1},
};

const char *kvc_type_name(enum kvc_type type)
{
    return (unsigned)type < KVC_TYPES ? types[type].name : NULL;
}

uint32_t kvc_row_bytes(enum kvc_type type, uint32_t head_size)
{
    if ((unsigned)type >= KVC_TYPES || head_size == 0 || head_size > KVC_HEAD_SIZE_MAX ||
        head_size % 16 != 0 || head_size % types[type].block_values != 0)
        return 0;
    return types[type].head_bytes + head_size / types[type].block_values * types[type].block_bytes;
}

uint32_t attend__type_alignment(uint32_t type)
{
    return types[type].alignment;
}

/* ---- lists ---- */

uint32_t attend__list_tokens(const struct kvc_paged *list, uint32_t s)
{
    const uint32_t pages = list->first[s + 1] - list->first[s];
    return pages == 0 ? 0 : (pages - 1) * list->page_tokens + list->last_tokens[s];
}

static int check_plane(const struct kvc_attention *a, uint32_t l, const struct kvc_plane *plane,
                       const char *name, char *why)
{
    if (plane->type >= KVC_TYPES)
        return attend__refuse(why, "list %u: %s has type %u; types are 0 to %u", l, name,
                              plane->type, KVC_TYPES - 1);
    const uint32_t alignment = types[plane->type].alignment;
    if (kvc_row_bytes((enum kvc_type)plane->type, a->head_size) == 0)
        return attend__refuse(
            why, "list %u: %s in %s needs a head size that is a multiple of %u, not %u", l, name,
            types[plane->type].name, types[plane->type].block_values, a->head_size);
    if (((uintptr_t)plane->base | plane->page_stride | plane->token_stride | plane->head_stride) %
            alignment !=
        0)
        return attend__refuse(why, "list %u: base and strides of %s in %s must be multiples of %u",
                              l, name, types[plane->type].name, alignment);
    return 0;
}

static int check_pages(const struct kvc_attention *a, uint32_t l, uint32_t s, char *why)
{
    const struct kvc_paged *list = &a->list[l];
    const uint32_t first = list->first[s], end = list->first[s + 1];
    if (end < first)
        return attend__refuse(why, "list %u, sequence %u: its pages begin at %u and end at %u", l,
                              s, first, end);
    if (end == first)
        return 0;
    if (list->last_tokens[s] == 0 || list->last_tokens[s] > list->page_tokens)
        return attend__refuse(why, "list %u, sequence %u: %u tokens in the last page; 1 to %u", l,
                              s, list->last_tokens[s], list->page_tokens);
    if ((uint64_t)(end - first) * list->page_tokens > TOKENS_MAX)
        return attend__refuse(
            why, "list %u, sequence %u: %u pages of %u tokens are more than 2^30 tokens", l, s,
            end - first, list->page_tokens);
    for (uint32_t i = first; i < end; i++)
        if (list->page[i] >= list->pages)
            return attend__refuse(why, "list %u, sequence %u: page %u is %u, and there are %u", l,
                                  s, i - first, list->page[i], list->pages);
    return 0;
}

static int check_list(const struct kvc_attention *a, uint32_t l, char *why)
{
    const struct kvc_paged *list = &a->list[l];
    if (list->page_tokens == 0 || list->page_tokens > KVC_PAGE_TOKENS_MAX)
        return attend__refuse(why, "list %u: pages of %u tokens; 1 to %u", l, list->page_tokens,
                              KVC_PAGE_TOKENS_MAX);
    int rc = check_plane(a, l, &list->k, "K", why);
    if (rc == 0)
        rc = check_plane(a, l, &list->v, "V", why);
    for (uint32_t s = 0; rc == 0 && s < a->seqs; s++)
        rc = check_pages(a, l, s, why);
    return rc;
}

/* ---- queries ---- */

static int check_sequence(const struct kvc_attention *a, uint32_t s, char *why)
{
    const uint32_t dropped = a->dropped ? a->dropped[s] : 0;
    uint64_t tokens = 0;
    for (uint32_t l = 0; l < a->lists; l++)
        tokens += attend__list_tokens(&a->list[l], s);
    if (a->q_first[s + 1] < a->q_first[s])
        return attend__refuse(why, "sequence %u: its queries begin at %u and end at %u", s,
                              a->q_first[s], a->q_first[s + 1]);
    const uint32_t queries = a->q_first[s + 1] - a->q_first[s];
    if (queries > tokens)
        return attend__refuse(
            why, "sequence %u: %u queries and %ju tokens; a query's own token is listed", s,
            queries, (uintmax_t)tokens);
    if (dropped + tokens > TOKENS_MAX)
        return attend__refuse(why, "sequence %u: more than 2^30 tokens", s);
    /* The first query has tokens - queries listed tokens before it. */
    if (dropped > 0 && queries > 0 && (a->window == 0 || a->window > tokens - queries + 1))
        return attend__refuse(
            why, "sequence %u: %u tokens are dropped that a query's window reaches", s, dropped);
    return 0;
}

int attend__check(const struct kvc_attention *a, char why[KVC_WHY_BYTES])
{
    if (a->heads == 0 || a->kv_heads == 0 || a->heads % a->kv_heads != 0)
        return attend__refuse(why, "%u heads do not share %u KV heads evenly", a->heads,
                              a->kv_heads);
    if (kvc_row_bytes(KVC_F32, a->head_size) == 0)
        return attend__refuse(why, "head size %u; a multiple of 16 up to %u", a->head_size,
                              KVC_HEAD_SIZE_MAX);
    if (!isfinite(a->scale))
        return attend__refuse(why, "the scale is not finite");
    if (a->split_tokens % KVC_TILE_TOKENS != 0)
        return attend__refuse(why, "split_tokens is %u; a multiple of %u, or 0", a->split_tokens,
                              KVC_TILE_TOKENS);
    if (a->lists == 0 || a->lists > KVC_LISTS_MAX)
        return attend__refuse(why, "%u lists; 1 to %u", a->lists, KVC_LISTS_MAX);
    int rc = 0;
    for (uint32_t l = 0; rc == 0 && l < a->lists; l++)
        rc = check_list(a, l, why);
    for (uint32_t s = 0; rc == 0 && s < a->seqs; s++)
        rc = check_sequence(a, s, why);
    return rc;
}
