/* SPDX-License-Identifier: Apache-2.0 */
#include "metric.h"

#include <string.h>

#define SUB_BITS 3u /* eighths */

static unsigned metric_bucket_of(uint64_t v)
{
    if (v < 1u << SUB_BITS)
        return (unsigned)v;
    const unsigned top = 63u - (unsigned)__builtin_clzll(v);
    const unsigned shift = top - SUB_BITS;
    return ((shift + 1) << SUB_BITS) + ((unsigned)(v >> shift) & ((1u << SUB_BITS) - 1));
}

/* The largest value of bucket i. */
static uint64_t bucket_end(unsigned i)
{
    if (i < 1u << SUB_BITS)
        return i;
    const unsigned shift = (i >> SUB_BITS) - 1;
    const uint64_t first = (uint64_t)((1u << SUB_BITS) + (i & ((1u << SUB_BITS) - 1))) << shift;
    return first + ((UINT64_C(1) << shift) - 1);
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

void histo_add(struct histo *h, uint64_t ns)
{
    h->bucket[metric_bucket_of(ns)]++;
    h->count++;
    h->sum = add_saturated(h->sum, ns);
    h->max = MAX(h->max, ns);
}

uint64_t histo_quantile(const struct histo *h, double q)
{
    MUST(q >= 0.0 && q <= 1.0);
    if (h->count == 0)
        return 0;
    /* The rank in 1..count. Above 2^53 the product is rounded; that error is below a bucket. */
    const double exact = q * (double)h->count;
    uint64_t rank = (uint64_t)exact;
    if ((double)rank < exact || rank == 0)
        rank++;
    uint64_t seen = 0;
    for (unsigned i = 0; i < HISTO_BUCKETS; i++) {
        seen += h->bucket[i];
        if (seen >= rank)
            return MIN(bucket_end(i), h->max);
    }
    return h->max;
}

uint64_t histo_count(const struct histo *h)
{
    return h->count;
}

uint64_t histo_count_to(const struct histo *h, uint64_t ns)
{
    uint64_t n = 0;
    MUST((ns & (ns + 1)) == 0);
    for (unsigned i = 0; i <= metric_bucket_of(ns); i++)
        n += h->bucket[i];
    return n;
}

uint64_t histo_mean(const struct histo *h)
{
    return h->count != 0 ? h->sum / h->count : 0;
}

void histo_merge(struct histo *into, const struct histo *from)
{
    for (unsigned i = 0; i < HISTO_BUCKETS; i++)
        into->bucket[i] += from->bucket[i];
    into->count += from->count;
    into->sum = add_saturated(into->sum, from->sum);
    into->max = MAX(into->max, from->max);
}

void histo_reset(struct histo *h)
{
    memset(h, 0, sizeof(*h));
}

static const void *field(const struct metric_set *set, unsigned i)
{
    MUST(i < set->n);
    return (const char *)set->base + set->desc[i].offset;
}

uint64_t metric_value(const struct metric_set *set, unsigned i)
{
    const void *at = field(set, i);
    if (set->desc[i].kind == METRIC_HISTO)
        return histo_count(at);
    return *(const uint64_t *)at;
}

const struct histo *metric_histo(const struct metric_set *set, unsigned i)
{
    const void *at = field(set, i);
    return set->desc[i].kind == METRIC_HISTO ? at : NULL;
}

int metric_find(const struct metric_set *set, const char *name)
{
    for (unsigned i = 0; i < set->n; i++)
        if (strcmp(set->desc[i].name, name) == 0)
            return (int)i;
    return -ENOENT;
}
