/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdlib.h>

#include "cases.h"
#include "metric.h"

#define SHOP_METRICS(X)                    \
    X(COUNTER, hits, "lookups that found") \
    X(GAUGE, bytes, "bytes held now")      \
    X(HISTO, wait_ns, "time in the queue") \
    X(COUNTER, misses, "lookups that did not")

METRIC_STRUCT(shop, SHOP_METRICS);
METRIC_DESC(shop, SHOP_METRICS);

CASE(one_table_gives_struct_names_and_values)
{
    static struct shop_metrics m;
    const struct metric_set set = METRIC_SET(shop, "shop", &m);
    m.hits = 3;
    m.bytes = 4096;
    m.misses = 5;
    histo_add(&m.wait_ns, 100);
    ck_assert_uint_eq(set.n, 4);
    ck_assert_str_eq(set.prefix, "shop");
    ck_assert_str_eq(set.desc[0].name, "hits");
    ck_assert_str_eq(set.desc[1].help, "bytes held now");
    ck_assert_int_eq(set.desc[1].kind, METRIC_GAUGE);
    ck_assert_uint_eq(metric_value(&set, 0), 3);
    ck_assert_uint_eq(metric_value(&set, 1), 4096);
    ck_assert_uint_eq(metric_value(&set, 2), 1);
    ck_assert_uint_eq(metric_value(&set, 3), 5); /* behind the histogram: offsets are right */
    ck_assert_ptr_eq(metric_histo(&set, 2), &m.wait_ns);
    ck_assert_ptr_null(metric_histo(&set, 0));
}

CASE(metrics_are_found_by_name)
{
    static struct shop_metrics m;
    const struct metric_set set = METRIC_SET(shop, "shop", &m);
    ck_assert_int_eq(metric_find(&set, "misses"), 3);
    ck_assert_int_eq(metric_find(&set, "miss"), -ENOENT);
}

CASE_DIES(a_metric_outside_the_set_aborts, SIGABRT)
{
    static struct shop_metrics m;
    const struct metric_set set = METRIC_SET(shop, "shop", &m);
    (void)metric_value(&set, 4);
}

CASE(additions_below_a_power_of_two_are_counted)
{
    static struct histo h;
    static const uint64_t added[] = {0, 7, 8, 1023, 1024, 1025, 2047, 2048, UINT64_MAX};
    for (unsigned i = 0; i < sizeof(added) / sizeof(added[0]); i++)
        histo_add(&h, added[i]);
    ck_assert_uint_eq(histo_count_to(&h, 0), 1);
    ck_assert_uint_eq(histo_count_to(&h, 7), 2);
    ck_assert_uint_eq(histo_count_to(&h, 1023), 4);
    ck_assert_uint_eq(histo_count_to(&h, 2047), 7);
    ck_assert_uint_eq(histo_count_to(&h, UINT64_MAX), 9);
}

CASE(an_empty_histogram_says_zero)
{
    static struct histo h;
    ck_assert_uint_eq(histo_count(&h), 0);
    ck_assert_uint_eq(histo_mean(&h), 0);
    ck_assert_uint_eq(histo_quantile(&h, 0.5), 0);
}

CASE(small_values_are_exact)
{
    static struct histo h;
    for (uint64_t v = 0; v < 8; v++)
        histo_add(&h, v);
    for (unsigned v = 0; v < 8; v++)
        ck_assert_uint_eq(histo_quantile(&h, (v + 1) / 8.0), v);
    ck_assert_uint_eq(histo_mean(&h), 3);
}

CASE(one_value_is_every_quantile)
{
    static const uint64_t values[] = {1, 9, 1000, 123456789, UINT64_C(1) << 63, UINT64_MAX};
    for (unsigned i = 0; i < ARRAY_LEN(values); i++) {
        struct histo h = {0};
        histo_add(&h, values[i]);
        ck_assert_uint_eq(histo_quantile(&h, 0.0), values[i]);
        ck_assert_uint_eq(histo_quantile(&h, 0.5), values[i]);
        ck_assert_uint_eq(histo_quantile(&h, 1.0), values[i]);
        ck_assert_uint_eq(histo_mean(&h), values[i]);
    }
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Values over all magnitudes: each quantile is not below the sorted one and at most an eighth above
 * it. */
CASE(quantiles_are_within_an_eighth)
{
    enum { N = 10000 };
    static uint64_t v[N];
    static struct histo h;
    uint64_t seed = 7;
    for (unsigned i = 0; i < N; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        v[i] = seed >> (seed >> 32) % 60;
        histo_add(&h, v[i]);
    }
    qsort(v, N, sizeof(v[0]), by_value);
    static const double q[] = {0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0};
    for (unsigned i = 0; i < ARRAY_LEN(q); i++) {
        const uint64_t got = histo_quantile(&h, q[i]);
        const uint64_t want = v[(unsigned)(q[i] * N + 0.5) - 1];
        ck_assert_uint_ge(got, want);
        ck_assert_uint_le(got - want, want / 8);
    }
}

CASE(merging_is_adding_both)
{
    static struct histo a, b, both;
    for (uint64_t i = 0; i < 1000; i++) {
        histo_add(&a, i * 17);
        histo_add(&b, i * i);
        histo_add(&both, i * 17);
        histo_add(&both, i * i);
    }
    histo_merge(&a, &b);
    ck_assert_mem_eq(&a, &both, sizeof(a));
    histo_reset(&a);
    ck_assert_uint_eq(histo_count(&a), 0);
}

CASE(the_sum_stops_instead_of_wrapping)
{
    static struct histo h;
    histo_add(&h, UINT64_MAX);
    histo_add(&h, UINT64_MAX);
    ck_assert_uint_eq(histo_mean(&h), UINT64_MAX / 2);
}

CASE_DIES(a_quantile_above_one_aborts, SIGABRT)
{
    static struct histo h;
    (void)histo_quantile(&h, 99.0);
}
