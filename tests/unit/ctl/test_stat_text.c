/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"
#include "stat_text.h"

static void assert_value(const char *name, uint64_t value, const char *expected)
{
    char text[STAT_TEXT_BYTES];
    stat_value_text(name, value, text);
    ck_assert_str_eq(text, expected);
}

CASE(bytes_are_sizes)
{
    assert_value("host.used_bytes", 1536, "1.50 KiB");
    assert_value("core.bytes_stored", UINT64_C(1) << 30, "1.00 GiB");
    assert_value("bytes", 5, "5 B");
}

CASE(times_are_durations)
{
    assert_value("daemon.uptime_ms", 200000, "3 min 20 s");
    assert_value("loop.turn_ns.p99", 850, "850 ns");
    assert_value("loop.turn_ns.p9999", 850, "850 ns");
    assert_value("x.wait_us.max", 1500, "1.50 ms");
}

CASE(samples_of_a_histogram_are_a_count)
{
    assert_value("loop.turn_ns.count", 12031, "12,031");
    assert_value("x.batch_bytes.count", 2048, "2,048");
}

CASE(the_rest_is_counts)
{
    assert_value("core.blocks_hit", 1234567, "1,234,567");
    assert_value("core.kilobytesque", 2048, "2,048");
    assert_value("core.items", 0, "0");
}

CASE(a_duration_that_does_not_fit_is_a_count)
{
    assert_value("x_ms", UINT64_MAX, "18,446,744,073,709,551,615");
}

CASE(rates)
{
    char text[STAT_TEXT_BYTES];
    stat_rate_text("core.bytes_stored", 17.2e9, text);
    ck_assert_str_eq(text, "17.20 GB/s");
    stat_rate_text("core.lookups", 0.5, text);
    ck_assert_str_eq(text, "0.5");
    stat_rate_text("core.lookups", 109000, text);
    ck_assert_str_eq(text, "109,000");
}
