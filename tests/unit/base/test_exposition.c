/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "exposition.h"

#define SHOP_METRICS(X)                    \
    X(COUNTER, hits, "lookups that found") \
    X(GAUGE, used_bytes, "bytes held now") \
    X(GAUGE, full_percent, "of the limit") \
    X(GAUGE, age_ms, "age of the oldest")  \
    X(HISTO, wait_ns, "time in the queue")

METRIC_STRUCT(shop, SHOP_METRICS);
METRIC_DESC(shop, SHOP_METRICS);

static struct shop_metrics a, b;

static const char *text_of(const struct metric_set *sets, unsigned n, enum exposition form)
{
    static char text[32768];
    const size_t len = exposition_write(sets, n, "1.2", form, text, sizeof(text) - 1);
    ck_assert_uint_lt(len, sizeof(text));
    text[len] = '\0';
    return text;
}

/* Whether the text has these lines, one behind the other. */
static bool has(const char *text, const char *lines)
{
    const char *at = strstr(text, lines);
    return at != NULL && (at == text || at[-1] == '\n');
}

#define ASSERT_HAS(text, lines)                              \
    do {                                                     \
        if (!has(text, lines))                               \
            ck_abort_msg("no\n%s\nin\n%s", (lines), (text)); \
    } while (0)

CASE(counters_and_gauges_have_names_kinds_and_base_units)
{
    const struct metric_set set = METRIC_SET(shop, "shop", &a);
    a = (struct shop_metrics){.hits = 3, .used_bytes = 4096, .full_percent = 150, .age_ms = 2500};
    const char *text = text_of(&set, 1, EXPOSITION_TEXT);
    ASSERT_HAS(text, "kvcache_build_info{version=\"1.2\"} 1\n");
    ASSERT_HAS(text, "# HELP kvcache_shop_hits_total lookups that found\n"
                     "# TYPE kvcache_shop_hits_total counter\n"
                     "kvcache_shop_hits_total 3\n");
    ASSERT_HAS(text, "# TYPE kvcache_shop_used_bytes gauge\nkvcache_shop_used_bytes 4096\n");
    ASSERT_HAS(text, "kvcache_shop_full_ratio 1.5\n");
    ASSERT_HAS(text, "kvcache_shop_age_seconds 2.5\n");
    ck_assert_ptr_null(strstr(text, "# UNIT"));
    ck_assert_ptr_null(strstr(text, "# EOF"));
}

CASE(openmetrics_names_families_and_units_and_ends)
{
    const struct metric_set set = METRIC_SET(shop, "shop", &a);
    a = (struct shop_metrics){.hits = 3};
    const char *text = text_of(&set, 1, EXPOSITION_OPENMETRICS);
    ASSERT_HAS(text, "# HELP kvcache_shop_hits lookups that found\n"
                     "# TYPE kvcache_shop_hits counter\n"
                     "kvcache_shop_hits_total 3\n");
    ASSERT_HAS(text,
               "# TYPE kvcache_shop_used_bytes gauge\n# UNIT kvcache_shop_used_bytes bytes\n");
    ck_assert_str_eq(text + strlen(text) - 6, "# EOF\n");
}

CASE(a_histogram_has_buckets_sum_count_and_its_longest)
{
    const struct metric_set set = METRIC_SET(shop, "shop", &a);
    a = (struct shop_metrics){0};
    histo_add(&a.wait_ns, 1000);
    histo_add(&a.wait_ns, 1024);
    histo_add(&a.wait_ns, UINT64_C(100000000000)); /* beyond the last bucket */
    const char *text = text_of(&set, 1, EXPOSITION_TEXT);
    ASSERT_HAS(text, "# TYPE kvcache_shop_wait_seconds histogram\n"
                     "kvcache_shop_wait_seconds_bucket{le=\"1.023e-06\"} 1\n"
                     "kvcache_shop_wait_seconds_bucket{le=\"2.047e-06\"} 2\n");
    ASSERT_HAS(text, "kvcache_shop_wait_seconds_bucket{le=\"68.719476735\"} 2\n"
                     "kvcache_shop_wait_seconds_bucket{le=\"+Inf\"} 3\n"
                     "kvcache_shop_wait_seconds_sum 100.000002024\n"
                     "kvcache_shop_wait_seconds_count 3\n");
    ASSERT_HAS(text, "# TYPE kvcache_shop_wait_max_seconds gauge\n"
                     "kvcache_shop_wait_max_seconds 100\n");
}

CASE(sets_of_one_table_are_one_family)
{
    const struct metric_set sets[] = {METRIC_SET(shop, "device0", &a), METRIC_SET(shop, "svc", &a),
                                      METRIC_SET(shop, "device12", &b)};
    a = (struct shop_metrics){.hits = 3};
    b = (struct shop_metrics){.hits = 5};
    histo_add(&b.wait_ns, 5);
    const char *text = text_of(sets, 3, EXPOSITION_TEXT);
    ASSERT_HAS(text, "# TYPE kvcache_device_hits_total counter\n"
                     "kvcache_device_hits_total{device=\"0\"} 3\n"
                     "kvcache_device_hits_total{device=\"12\"} 5\n");
    ASSERT_HAS(text, "kvcache_device_wait_seconds_bucket{device=\"12\",le=\"1.023e-06\"} 1\n");
    ASSERT_HAS(text, "kvcache_svc_hits_total 3\n");
    const char *once = strstr(text, "# TYPE kvcache_device_hits_total");
    ck_assert_ptr_null(strstr(once + 1, "# TYPE kvcache_device_hits_total"));
}

CASE(what_has_no_room_is_counted_and_not_written)
{
    static char part[64];
    const struct metric_set set = METRIC_SET(shop, "shop", &a);
    const size_t all = strlen(text_of(&set, 1, EXPOSITION_TEXT));
    memset(part, 'x', sizeof(part));
    ck_assert_uint_eq(exposition_write(&set, 1, "1.2", EXPOSITION_TEXT, NULL, 0), all);
    ck_assert_uint_eq(exposition_write(&set, 1, "1.2", EXPOSITION_TEXT, part, 63), all);
    ck_assert_int_eq(part[63], 'x');
    ck_assert_int_eq(memcmp(part, text_of(&set, 1, EXPOSITION_TEXT), 63), 0);
}

CASE_DIES(a_version_that_would_need_quoting_aborts, SIGABRT)
{
    const struct metric_set set = METRIC_SET(shop, "shop", &a);
    (void)exposition_write(&set, 1, "1\"", EXPOSITION_TEXT, NULL, 0);
}
