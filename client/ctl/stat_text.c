/* SPDX-License-Identifier: Apache-2.0 */
#include "stat_text.h"

#include <stdio.h>
#include <string.h>

#include "units.h"

/* The name without what a histogram appends to it; "" for the number of its samples. */
static void base_of(const char *name, char base[80])
{
    static const char *const parts[] = {".mean", ".p50", ".p99", ".p9999", ".max"};
    snprintf(base, 80, "%s", name);
    size_t n = strlen(base);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        size_t part = strlen(parts[i]);
        if (n > part && strcmp(base + n - part, parts[i]) == 0)
            base[n - part] = '\0';
    }
    if (n > 6 && strcmp(base + n - 6, ".count") == 0)
        base[0] = '\0';
}

void stat_value_text(const char *name, uint64_t value, char text[STAT_TEXT_BYTES])
{
    char base[80], number[UNITS_COUNT_BYTES];
    base_of(name, base);
    struct units_stat u;
    units_of_stat(base, &u);
    uint64_t unit_ns = 1000000000 / u.per_base;
    if (u.is_bytes)
        units_format_bytes(value, number);
    else if (u.is_time && value <= UINT64_MAX / unit_ns)
        units_format_duration_ns(value * unit_ns, number);
    else
        units_format_count(value, number);
    snprintf(text, STAT_TEXT_BYTES, "%s", number);
}

void stat_rate_text(const char *name, double per_second, char text[STAT_TEXT_BYTES])
{
    char base[80], number[UNITS_COUNT_BYTES];
    base_of(name, base);
    struct units_stat u;
    units_of_stat(base, &u);
    if (u.is_bytes)
        snprintf(text, STAT_TEXT_BYTES, "%s", units_format_rate((uint64_t)per_second, number));
    else if (per_second < 100)
        snprintf(text, STAT_TEXT_BYTES, "%.1f", per_second);
    else
        snprintf(text, STAT_TEXT_BYTES, "%s", units_format_count((uint64_t)per_second, number));
}
