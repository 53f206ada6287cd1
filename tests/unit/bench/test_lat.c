/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cases.h"
#include "lat.h"

static struct lat lat, other;

static void setup(void)
{
    memset(&lat, 0, sizeof(lat));
    memset(&other, 0, sizeof(other));
}

static void assert_hbm(uint64_t value, uint64_t expected)
{
    uint64_t off = value > expected ? value - expected : expected - value;
    ck_assert_msg(off * 100 <= expected * 7, "%lu is not within 7 %% of %lu", (unsigned long)value,
                  (unsigned long)expected);
}

CASES(.setup = setup);

CASE(empty_has_no_quantile)
{
    ck_assert_uint_eq(lat_quantile_ns(&lat, 0.5), 0);
}

CASE(one_sample_is_every_quantile)
{
    for (uint64_t ns = 1; ns < UINT64_C(1) << 50; ns = ns * 3 + 1) {
        setup();
        lat_add(&lat, ns);
        assert_hbm(lat_quantile_ns(&lat, 0), ns);
        assert_hbm(lat_quantile_ns(&lat, 1), ns);
    }
}

CASE(quantiles_of_a_ramp)
{
    for (uint64_t i = 1; i <= 10000; i++)
        lat_add(&lat, i * 100);
    assert_hbm(lat_quantile_ns(&lat, 0.50), 500000);
    assert_hbm(lat_quantile_ns(&lat, 0.99), 990000);
}

CASE(merged_is_as_if_added_to_one)
{
    for (uint64_t i = 0; i < 99; i++)
        lat_add(&lat, 1000);
    lat_add(&other, 9000000);
    lat_merge(&lat, &other);
    ck_assert_uint_eq(lat.count, 100);
    assert_hbm(lat_quantile_ns(&lat, 0.5), 1000);
    assert_hbm(lat_quantile_ns(&lat, 1), 9000000);
}

CASE(the_largest_number_has_a_bucket)
{
    lat_add(&lat, UINT64_MAX);
    ck_assert_uint_eq(lat.bucket[LAT_BUCKETS - 1], 1);
}
