/* SPDX-License-Identifier: Apache-2.0 */
#include "units.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128;

#define KI                  UINT64_C(1024)
#define MI                  (KI * 1024)
#define GI                  (MI * 1024)
#define TI                  (GI * 1024)
#define US                  UINT64_C(1000)
#define MS                  (US * 1000)
#define S                   (MS * 1000)
#define FRACTION_DIGITS_MAX 9

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit byte_units[] = {
    {"B", 1},     {"KiB", KI},     {"MiB", MI},        {"GiB", GI},           {"TiB", TI},
    {"kB", 1000}, {"MB", 1000000}, {"GB", 1000000000}, {"TB", 1000000000000}, {NULL, 0},
};

static const struct unit time_units[] = {
    {"ns", 1},       {"us", US},      {"ms", MS},       {"s", S},
    {"min", 60 * S}, {"h", 3600 * S}, {"d", 86400 * S}, {NULL, 0},
};

/* What people write instead of a unit, and what to tell them. */
struct hint {
    const char *name;
    const char *why;
};

#define WHY_BYTES    "a size is a number and a unit, such as '64GiB', '1.5TiB', '512MB' or '4096'"
#define WHY_TIME     "a duration is a number and a unit, such as '250ms', '2s', '5min' or '7d'"
#define WHY_COUNT    "a count is decimal digits alone, such as '4096'"
#define MAX_BYTES    "a size is at most 18446744073709551615, or 16777215TiB"
#define MAX_TIME     "a duration is at most 18446744073s, or 213503d" /* 64 bits of ns */
#define MAX_COUNT    "a count is at most 18446744073709551615"
#define WHY_FRACTION "at most 9 digits may follow the decimal point"

#define HINT_K "a unit is written in full: KiB (1024 bytes) or kB (1000 bytes)"
#define HINT_M "a unit is written in full: MiB (1024^2 bytes) or MB (1000^2 bytes)"
#define HINT_G "a unit is written in full: GiB (1024^3 bytes) or GB (1000^3 bytes), such as '64GiB'"
#define HINT_P \
    "the largest units are TiB (1024^4 bytes) and TB (1000^4 bytes): write 1024TiB for a PiB"
#define HINT_T "a unit is written in full: TiB (1024^4 bytes) or TB (1000^4 bytes)"

static const struct hint byte_hints[] = {
    {"k", HINT_K},   {"K", HINT_K},   {"Ki", HINT_K}, {"KB", HINT_K},  {"kb", HINT_K},
    {"kib", HINT_K}, {"kiB", HINT_K}, {"Kb", HINT_K}, {"Mb", HINT_M},  {"Gb", HINT_G},
    {"Tb", HINT_T},  {"P", HINT_P},   {"PB", HINT_P}, {"PiB", HINT_P}, {"m", HINT_M},
    {"M", HINT_M},   {"Mi", HINT_M},  {"mb", HINT_M}, {"mib", HINT_M}, {"g", HINT_G},
    {"G", HINT_G},   {"Gi", HINT_G},  {"gb", HINT_G}, {"gib", HINT_G}, {"t", HINT_T},
    {"T", HINT_T},   {"Ti", HINT_T},  {"tb", HINT_T}, {"tib", HINT_T}, {NULL, NULL},
};

#define HINT_MIN "'m' could be minutes or milliseconds: write 'min' or 'ms'"
static const struct hint time_hints[] = {
    {"", "a duration needs a unit: ns, us, ms, s, min, h or d, such as '250ms' or '2s'"},
    {"m", HINT_MIN},
    {"sec", "seconds are written 's', such as '2s'"},
    {"hour", "hours are written 'h', such as '1h'"},
    {"day", "days are written 'd', such as '7d'"},
    {NULL, NULL},
};

static int units_refuse(int err, const char *why, const char **ret_why)
{
    if (ret_why != NULL)
        *ret_why = why;
    return err;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads digits at *s and moves past them. False when they exceed 64 bits. */
static bool read_digits(const char **s, uint64_t *ret)
{
    uint64_t v = 0;
    for (; is_digit(**s); (*s)++) {
        if (__builtin_mul_overflow(v, UINT64_C(10), &v) ||
            __builtin_add_overflow(v, (uint64_t)(**s - '0'), &v))
            return false;
    }
    *ret = v;
    return true;
}

static const struct unit *find_unit(const struct unit *units, const char *name)
{
    for (; units->name != NULL; units++)
        if (strcmp(units->name, name) == 0)
            return units;
    return NULL;
}

static const char *find_hint(const struct hint *hints, const char *name, const char *otherwise)
{
    for (; hints->name != NULL; hints++)
        if (strcmp(hints->name, name) == 0)
            return hints->why;
    return otherwise;
}

/* A number split as written: whole + fraction / scale, and the text of the unit. */
struct number {
    uint64_t whole, fraction, scale;
    const char *unit;
};

/* `why` and `range`: what to say of what is no number, and of one that is too large. */
static int read_number(const char *s, struct number *ret, const char *why, const char *range,
                       const char **ret_why)
{
    struct number num = {.scale = 1};
    if (!is_digit(*s))
        return units_refuse(-EINVAL, why, ret_why);
    if (!read_digits(&s, &num.whole))
        return units_refuse(-ERANGE, range, ret_why);
    if (*s == '.') {
        const char *first = ++s;
        if (!is_digit(*s))
            return units_refuse(-EINVAL, why, ret_why);
        while (is_digit(*s)) {
            if (s - first >= FRACTION_DIGITS_MAX)
                return units_refuse(-EINVAL, WHY_FRACTION, ret_why);
            num.fraction = num.fraction * 10 + (uint64_t)(*s++ - '0');
            num.scale *= 10;
        }
    }
    if (*s == ' ' && s[1] != '\0')
        s++;
    num.unit = s;
    *ret = num;
    return 0;
}

static int apply_unit(const struct number *num, const struct unit *unit, const char *range,
                      uint64_t *ret, const char **ret_why)
{
    if (num->scale != 1 && unit->factor == 1)
        return units_refuse(
            -EINVAL, "a fraction needs a larger unit: '1.5GiB' or '1.5s', not '1.5'", ret_why);
    const u128 v =
        (u128)num->whole * unit->factor + (u128)num->fraction * unit->factor / num->scale;
    if (v > UINT64_MAX)
        return units_refuse(-ERANGE, range, ret_why);
    *ret = (uint64_t)v;
    return 0;
}

int units_parse_bytes(const char *s, uint64_t *ret, const char **ret_why)
{
    struct number num;
    int r = read_number(s, &num, WHY_BYTES, MAX_BYTES, ret_why);
    if (r < 0)
        return r;
    const struct unit *unit = find_unit(byte_units, num.unit[0] == '\0' ? "B" : num.unit);
    if (unit == NULL)
        return units_refuse(-EINVAL, find_hint(byte_hints, num.unit, WHY_BYTES), ret_why);
    return apply_unit(&num, unit, MAX_BYTES, ret, ret_why);
}

int units_parse_duration(const char *s, uint64_t *ret_ns, const char **ret_why)
{
    if (strcmp(s, "0") == 0) {
        *ret_ns = 0;
        return 0;
    }
    struct number num;
    int r = read_number(s, &num, WHY_TIME, MAX_TIME, ret_why);
    if (r < 0)
        return r;
    const struct unit *unit = find_unit(time_units, num.unit);
    if (unit == NULL)
        return units_refuse(-EINVAL, find_hint(time_hints, num.unit, WHY_TIME), ret_why);
    return apply_unit(&num, unit, MAX_TIME, ret_ns, ret_why);
}

int units_parse_count(const char *s, uint64_t *ret, const char **ret_why)
{
    uint64_t v;
    if (!is_digit(*s))
        return units_refuse(-EINVAL, WHY_COUNT, ret_why);
    if (!read_digits(&s, &v))
        return units_refuse(-ERANGE, MAX_COUNT, ret_why);
    if (*s != '\0')
        return units_refuse(-EINVAL, WHY_COUNT, ret_why);
    *ret = v;
    return 0;
}

/* v / factor with two decimals, rounded half up. */
static const char *format_scaled(uint64_t v, uint64_t factor, const char *unit, char *buf)
{
    const u128 hundredths = ((u128)v * 100 + factor / 2) / factor;
    const uint64_t h = (uint64_t)hundredths;
    const int n = snprintf(buf, UNITS_TEXT_BYTES, "%u.%02u %s", (unsigned)(h / 100),
                           (unsigned)(h % 100), unit);
    (void)n; /* the longest is "1023.99 KiB" */
    return buf;
}

/* The largest unit of which `v`, rounded as it will be shown, is at least one. `step` is the ratio
 * of neighbours. */
static const char *format_steps(uint64_t v, uint64_t step, const char *const *units, unsigned n,
                                char *buf)
{
    if (v < step) {
        const int len = snprintf(buf, UNITS_TEXT_BYTES, "%u %s", (unsigned)v, units[0]);
        (void)len;
        return buf;
    }
    uint64_t factor = step;
    unsigned i = 1;
    while (i + 1 < n && (u128)v * 100 + factor / 2 >= (u128)factor * step * 100) {
        factor *= step;
        i++;
    }
    return format_scaled(v, factor, units[i], buf);
}

const char *units_format_bytes(uint64_t bytes, char buf[UNITS_TEXT_BYTES])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    return format_steps(bytes, KI, units, 7, buf);
}

const char *units_format_rate(uint64_t bytes_per_s, char buf[UNITS_TEXT_BYTES])
{
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s", "EB/s"};
    return format_steps(bytes_per_s, 1000, units, 7, buf);
}

static const char *format_pair(uint64_t seconds, unsigned big, unsigned small, const char *big_name,
                               const char *small_name, char *buf)
{
    const int n = snprintf(buf, UNITS_TEXT_BYTES, "%u %s %u %s", (unsigned)(seconds / big),
                           big_name, (unsigned)(seconds % big / small), small_name);
    (void)n; /* the longest is "213503 d 23 h" */
    return buf;
}

const char *units_format_duration_ns(uint64_t ns, char buf[UNITS_TEXT_BYTES])
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    const uint64_t seconds = ns / S;
    /* 59.995 s and more would show as "60.00 s". */
    if (ns < 60 * S - 5 * MS)
        return format_steps(ns, 1000, units, 4, buf);
    if (seconds < 60)
        return format_pair(60, 60, 1, "min", "s", buf);
    if (seconds < 3600)
        return format_pair(seconds, 60, 1, "min", "s", buf);
    if (seconds < 86400)
        return format_pair(seconds, 3600, 60, "h", "min", buf);
    return format_pair(seconds, 86400, 3600, "d", "h", buf);
}

const char *units_format_duration_ms(uint64_t ms, char buf[UNITS_TEXT_BYTES])
{
    return units_format_duration_ns(ms > UINT64_MAX / MS ? UINT64_MAX : ms * MS, buf);
}

const char *units_format_count(uint64_t n, char buf[UNITS_COUNT_BYTES])
{
    char reversed[UNITS_COUNT_BYTES];
    unsigned len = 0, digits = 0;
    do {
        if (digits != 0 && digits % 3 == 0)
            reversed[len++] = ',';
        reversed[len++] = (char)('0' + n % 10);
        digits++;
        n /= 10;
    } while (n != 0);
    for (unsigned i = 0; i < len; i++)
        buf[i] = reversed[len - 1 - i];
    buf[len] = '\0';
    return buf;
}

/* The largest unit of the first `n` that divides v; a unit with a factor of 1 always does. */
static const char *format_exact(uint64_t v, const struct unit *units, unsigned n, bool bare_one,
                                char *buf)
{
    const struct unit *best = &units[0];
    for (unsigned i = 1; i < n; i++)
        if (v % units[i].factor == 0)
            best = &units[i];
    const bool bare = v == 0 || (bare_one && best->factor == 1);
    const int len = snprintf(buf, UNITS_COUNT_BYTES, "%llu%s",
                             (unsigned long long)(v / best->factor), bare ? "" : best->name);
    (void)len; /* the longest is 20 digits and "ns" */
    return buf;
}

const char *units_exact_bytes(uint64_t bytes, char buf[UNITS_COUNT_BYTES])
{
    return format_exact(bytes, byte_units, 5, true, buf); /* B to TiB */
}

const char *units_exact_duration(uint64_t ns, char buf[UNITS_COUNT_BYTES])
{
    return format_exact(ns, time_units, 7, false, buf);
}

/* ---- statistics ---- */

static bool stat_ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

static bool stat_has_word(const char *name, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = strstr(name, word); at != NULL; at = strstr(at + 1, word)) {
        const bool begins = at == name || at[-1] == '.' || at[-1] == '_';
        const bool ends = at[n] == '\0' || at[n] == '.' || at[n] == '_';
        if (begins && ends)
            return true;
    }
    return false;
}

void units_of_stat(const char *name, struct units_stat *ret)
{
    static const struct units_stat known[] = {
        {"_ns", "seconds", 1000000000, true, false},
        {"_us", "seconds", 1000000, true, false},
        {"_ms", "seconds", 1000, true, false},
        {"_bytes_per_s", "bytes_per_second", 1, false, false},
        {"_bytes", "bytes", 1, false, false},
        {"_percent", "ratio", 100, false, false},
    };
    *ret = (struct units_stat){"", "", 1, false, false};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && ret->suffix[0] == '\0'; i++)
        if (stat_ends_with(name, known[i].suffix))
            *ret = known[i];
    ret->is_bytes = stat_has_word(name, "bytes");
}
