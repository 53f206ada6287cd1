/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "cases.h"
#include "units.h"

#define KI UINT64_C(1024)
#define S  UINT64_C(1000000000)

struct good {
    const char *text;
    uint64_t value;
};

typedef int parser(const char *s, uint64_t *ret, const char **ret_why);

static void accepts(parser *parse, const struct good *cases, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        uint64_t v = 0;
        const char *why = NULL;
        ck_assert_msg(parse(cases[i].text, &v, &why) == 0, "'%s' refused: %s", cases[i].text, why);
        ck_assert_msg(v == cases[i].value, "'%s' gave %" PRIu64, cases[i].text, v);
        ck_assert_ptr_null(why);
    }
}

static void refuses(parser *parse, int err, const char *const *cases)
{
    for (; *cases != NULL; cases++) {
        uint64_t v = 77;
        const char *why = NULL;
        ck_assert_msg(parse(*cases, &v, &why) == err, "'%s' was not refused so", *cases);
        ck_assert_uint_eq(v, 77);
        ck_assert_ptr_nonnull(why);
        ck_assert_int_eq(parse(*cases, &v, NULL), err);
    }
}

CASE(sizes_are_read)
{
    static const struct good cases[] = {
        {"0", 0},
        {"4096", 4096},
        {"4096B", 4096},
        {"512 B", 512},
        {"64GiB", 64 * KI * KI * KI},
        {"64 GiB", 64 * KI * KI * KI},
        {"512MiB", 512 * KI * KI},
        {"1.5TiB", KI * KI * KI * KI * 3 / 2},
        {"1KiB", 1024},
        {"1kB", 1000},
        {"2MB", 2000000},
        {"3GB", 3000000000},
        {"4TB", 4000000000000},
        {"10TB", 10000000000000},
        {"10 TB", 10000000000000},
        {"0.25KiB", 256},
        {"1.0001KiB", 1024},
        {"18446744073709551615", UINT64_MAX},
    };
    accepts(units_parse_bytes, cases, sizeof(cases) / sizeof(cases[0]));
}

CASE(sizes_that_say_too_little_or_too_much_are_refused)
{
    static const char *const malformed[] = {"",        "12abc",  "-1",  "+1",     " 1",
                                            "1 ",      "64Gi",   "64G", "64g",    "64gib",
                                            "64KB",    "1.5",    "1.",  ".5GiB",  "1.5B",
                                            "1..5GiB", "0x10",   "1e3", "1,5GiB", "64GiB ",
                                            "64  GiB", "64GiBs", "GiB", "1 2",    "0.0009765625KiB",
                                            NULL};
    static const char *const large[] = {"18446744073709551616", "99999999999999999999999GiB",
                                        "16777216TiB", NULL};
    refuses(units_parse_bytes, -EINVAL, malformed);
    refuses(units_parse_bytes, -ERANGE, large);
}

CASE(an_unfinished_unit_is_told_how_to_finish)
{
    uint64_t v;
    const char *why = NULL;
    static const char *const sizes[][2] = {
        {"64Gi", "GiB (1024^3 bytes) or GB (1000^3 bytes)"},
        {"128k", "KiB (1024 bytes) or kB (1000 bytes)"},
        {"128Kb", "KiB (1024 bytes)"},
        {"5Mb", "MiB (1024^2 bytes)"},
        {"10tb", "TiB (1024^4 bytes) or TB (1000^4 bytes)"},
        {"10T", "TB (1000^4 bytes)"},
        {"1PB", "write 1024TiB for a PiB"},
        {"1PiB", "write 1024TiB for a PiB"},
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        ck_assert_int_eq(units_parse_bytes(sizes[i][0], &v, &why), -EINVAL);
        ck_assert_msg(strstr(why, sizes[i][1]) != NULL, "%s: %s", sizes[i][0], why);
    }
    ck_assert_int_eq(units_parse_duration("5m", &v, &why), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "min"));
}

CASE(durations_are_read)
{
    static const struct good cases[] = {
        {"0", 0},           {"250ms", S / 4},  {"2s", 2 * S},
        {"10us", 10000},    {"5min", 300 * S}, {"1h", 3600 * S},
        {"7d", 604800 * S}, {"15ns", 15},      {"1.5 s", S * 3 / 2},
        {"0.5h", 1800 * S},
    };
    accepts(units_parse_duration, cases, sizeof(cases) / sizeof(cases[0]));
}

CASE(durations_without_a_clear_unit_are_refused)
{
    static const char *const malformed[] = {"",   "10", "5m",   "2sec", "1.5ns", "-1s",
                                            "1S", "s",  "1h30", "2 ",   "00",    NULL};
    static const char *const large[] = {"213504d", "99999999999999999999s", NULL};
    refuses(units_parse_duration, -EINVAL, malformed);
    refuses(units_parse_duration, -ERANGE, large);
}

CASE(counts_are_digits_alone)
{
    static const struct good cases[] = {
        {"0", 0}, {"12031", 12031}, {"18446744073709551615", UINT64_MAX}};
    static const char *const malformed[] = {"",   "10k", "1_000", "-1",  "+1",
                                            " 1", "1 ",  "0x1",   "1.0", NULL};
    static const char *const large[] = {"18446744073709551616", NULL};
    accepts(units_parse_count, cases, 3);
    refuses(units_parse_count, -EINVAL, malformed);
    refuses(units_parse_count, -ERANGE, large);
}

/* What is too large is answered with what is not. */
static void names_largest(parser *parse, const char *text, const char *const *largest)
{
    uint64_t v;
    const char *why = "";
    ck_assert_int_eq(parse(text, &v, &why), -ERANGE);
    for (; *largest; largest++) {
        ck_assert_msg(strstr(why, *largest) != NULL, "'%s': no '%s' in: %s", text, *largest, why);
        ck_assert_int_eq(parse(*largest, &v, NULL), 0);
    }
}

CASE(what_is_too_large_is_told_the_largest)
{
    uint64_t v;
    static const char *const times[] = {"18446744073s", "213503d", NULL};
    static const char *const sizes[] = {"18446744073709551615", "16777215TiB", NULL};
    static const char *const counts[] = {"18446744073709551615", NULL};
    names_largest(units_parse_duration, "18446744073709551615ms", times);
    names_largest(units_parse_duration, "99999999999999999999s", times);
    names_largest(units_parse_bytes, "16777216TiB", sizes);
    names_largest(units_parse_count, "18446744073709551616", counts);
    ck_assert_int_eq(units_parse_duration("18446744074s", &v, NULL), -ERANGE);
}

CASE(sizes_and_rates_are_shown)
{
    char b[UNITS_TEXT_BYTES];
    ck_assert_str_eq(units_format_bytes(0, b), "0 B");
    ck_assert_str_eq(units_format_bytes(1023, b), "1023 B");
    ck_assert_str_eq(units_format_bytes(1024, b), "1.00 KiB");
    ck_assert_str_eq(units_format_bytes(KI * KI * KI * 3 / 2, b), "1.50 GiB");
    ck_assert_str_eq(units_format_bytes(KI * KI - 1, b), "1.00 MiB"); /* not "1024.00 KiB" */
    ck_assert_str_eq(units_format_bytes(UINT64_MAX, b), "16.00 EiB");
    ck_assert_str_eq(units_format_rate(999, b), "999 B/s");
    ck_assert_str_eq(units_format_rate(17200000000, b), "17.20 GB/s");
    ck_assert_str_eq(units_format_rate(999999, b), "1.00 MB/s");
    ck_assert_str_eq(units_format_rate(UINT64_MAX, b), "18.45 EB/s");
}

CASE(durations_are_shown)
{
    char b[UNITS_TEXT_BYTES];
    ck_assert_str_eq(units_format_duration_ns(0, b), "0 ns");
    ck_assert_str_eq(units_format_duration_ns(850, b), "850 ns");
    ck_assert_str_eq(units_format_duration_ns(12300, b), "12.30 us");
    ck_assert_str_eq(units_format_duration_ns(1500000, b), "1.50 ms");
    ck_assert_str_eq(units_format_duration_ns(2340000000, b), "2.34 s");
    ck_assert_str_eq(units_format_duration_ns(60 * S - 1, b), "1 min 0 s");
    ck_assert_str_eq(units_format_duration_ns(200 * S, b), "3 min 20 s");
    ck_assert_str_eq(units_format_duration_ns(3900 * S, b), "1 h 5 min");
    ck_assert_str_eq(units_format_duration_ns(615600 * S, b), "7 d 3 h");
    ck_assert_str_eq(units_format_duration_ns(UINT64_MAX, b), "213503 d 23 h");
    ck_assert_str_eq(units_format_duration_ms(1500, b), "1.50 s");
    ck_assert_str_eq(units_format_duration_ms(UINT64_MAX / 1000000 + 1, b), "213503 d 23 h");
    ck_assert_str_eq(units_format_duration_ms(UINT64_MAX, b), "213503 d 23 h");
}

CASE(counts_have_separators)
{
    char b[UNITS_COUNT_BYTES];
    ck_assert_str_eq(units_format_count(0, b), "0");
    ck_assert_str_eq(units_format_count(999, b), "999");
    ck_assert_str_eq(units_format_count(12031, b), "12,031");
    ck_assert_str_eq(units_format_count(100000, b), "100,000");
    ck_assert_str_eq(units_format_count(UINT64_MAX, b), "18,446,744,073,709,551,615");
}

CASE(exact_texts_are_read_back)
{
    static const uint64_t values[] = {
        0,      1,        1000,      1023,   1024,      1025, 1536 * KI, 64 * KI * KI * KI,
        60 * S, 3600 * S, 86400 * S, 90 * S, UINT64_MAX};
    for (unsigned i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        char b[UNITS_COUNT_BYTES];
        uint64_t v = 0;
        ck_assert_int_eq(units_parse_bytes(units_exact_bytes(values[i], b), &v, NULL), 0);
        ck_assert_uint_eq(v, values[i]);
        ck_assert_int_eq(units_parse_duration(units_exact_duration(values[i], b), &v, NULL), 0);
        ck_assert_uint_eq(v, values[i]);
    }
    char b[UNITS_COUNT_BYTES];
    ck_assert_str_eq(units_exact_bytes(64 * KI * KI * KI, b), "64GiB");
    ck_assert_str_eq(units_exact_bytes(4097, b), "4097");
    ck_assert_str_eq(units_exact_duration(S / 4, b), "250ms");
    ck_assert_str_eq(units_exact_duration(90 * S, b), "90s");
    ck_assert_str_eq(units_exact_duration(0, b), "0");
}

CASE(the_unit_of_a_statistic_follows_from_its_name)
{
    static const struct {
        const char *name, *suffix, *base;
        uint64_t per_base;
        bool is_time, is_bytes;
    } cases[] = {
        {"svc.wait_ns", "_ns", "seconds", S, true, false},
        {"age_us", "_us", "seconds", 1000000, true, false},
        {"uptime_ms", "_ms", "seconds", 1000, true, false},
        {"host_limit_bytes", "_bytes", "bytes", 1, false, true},
        {"core.host_bytes_per_s", "_bytes_per_s", "bytes_per_second", 1, false, true},
        {"write_amplification_percent", "_percent", "ratio", 100, false, false},
        {"bytes_read", "", "", 1, false, true},
        {"kilobytes", "", "", 1, false, false},
        {"leases", "", "", 1, false, false},
        {"_ns", "", "", 1, false, false},
    };
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct units_stat u;
        units_of_stat(cases[i].name, &u);
        ck_assert_str_eq(u.suffix, cases[i].suffix);
        ck_assert_str_eq(u.base, cases[i].base);
        ck_assert_uint_eq(u.per_base, cases[i].per_base);
        ck_assert(u.is_time == cases[i].is_time && u.is_bytes == cases[i].is_bytes);
    }
}
