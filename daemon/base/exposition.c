/* SPDX-License-Identifier: Apache-2.0 */
#include "exposition.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "stat.h"
#include "units.h"

#define SHIFT_FIRST 10u /* buckets: below 2^10 ns .. below 2^36 ns */
#define SHIFT_LAST  36u

struct out {
    char *buf;
    size_t cap, len;
    enum exposition form;
};

/* One family: metric i of a table. */
struct family {
    char name[STAT_METRIC_BYTES]; /* without _total */
    const char *unit;             /* "" for counts */
    const char *label;            /* "" or "device" */
    const struct metric_desc *desc;
};

__attribute__((format(printf, 2, 3))) static void out_add(struct out *o, const char *fmt, ...)
{
    const size_t left = o->len < o->cap ? o->cap - o->len : 0;
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    MUST(n >= 0 && (size_t)n < sizeof(line));
    if (left > 0)
        memcpy(o->buf + o->len, line, MIN(left, (size_t)n));
    o->len += (size_t)n;
}

static bool is_plain(const char *text)
{
    for (; *text != '\0'; text++)
        if (*text < ' ' || *text > '~' || *text == '\\' || *text == '"')
            return false;
    return true;
}

/* "device0" is number 0 of "device". */
static const char *number_of(const struct metric_set *set)
{
    return set->prefix + stat_prefix_len(set->prefix);
}

static void family_name(const char *prefix, const struct metric_desc *d, const char *middle,
                        struct family *ret)
{
    struct units_stat u;
    units_of_stat(d->name, &u);
    (void)stat_metric_name(prefix, d->name, middle, ret->name);
    MUST(strlen(ret->name) < sizeof(ret->name) - 1); /* it was not cut */
    ret->unit = u.base;
    ret->label = prefix[stat_prefix_len(prefix)] != '\0' ? "device" : "";
    ret->desc = d;
}

static void family_head(struct out *o, const struct family *f, const char *type, const char *more)
{
    const bool is_total = strcmp(type, "counter") == 0 && o->form == EXPOSITION_TEXT;
    const char *total = is_total ? "_total" : "";
    MUST(is_plain(f->desc->help));
    out_add(o, "# HELP %s%s %s%s\n", f->name, total, f->desc->help, more);
    out_add(o, "# TYPE %s%s %s\n", f->name, total, type);
    if (o->form == EXPOSITION_OPENMETRICS && f->unit[0] != '\0')
        out_add(o, "# UNIT %s %s\n", f->name, f->unit);
}

/* The value in its base unit. 15 digits are exact in a double, and enough for nanoseconds. */
static const char *exposition_value_text(const struct family *f, uint64_t value, char text[32])
{
    struct units_stat u;
    units_of_stat(f->desc->name, &u);
    if (u.per_base == 1)
        (void)!snprintf(text, 32, "%" PRIu64, value);
    else
        (void)!snprintf(text, 32, "%.15g", (double)value / (double)u.per_base);
    return text;
}

/* One line: name, labels and value. Labels are as in {device="0",le="1"}; an empty one is left out.
 */
static void sample(struct out *o, const struct family *f, const char *suffix,
                   const struct metric_set *set, const char *le, const char *value)
{
    const char *no = number_of(set);
    const bool labels = *no != '\0' || le[0] != '\0';
    out_add(o, "%s%s%s", f->name, suffix, labels ? "{" : "");
    if (*no != '\0')
        out_add(o, "%s=\"%s\"%s", f->label, no, le[0] != '\0' ? "," : "");
    if (le[0] != '\0')
        out_add(o, "le=\"%s\"", le);
    out_add(o, "%s %s\n", labels ? "}" : "", value);
}

static void histo_samples(struct out *o, const struct family *f, const struct metric_set *set,
                          unsigned i)
{
    const struct histo *h = metric_histo(set, i);
    char le[32], text[32];
    for (unsigned shift = SHIFT_FIRST; shift <= SHIFT_LAST; shift++) {
        const uint64_t last = (UINT64_C(1) << shift) - 1;
        (void)!snprintf(text, sizeof(text), "%" PRIu64, histo_count_to(h, last));
        sample(o, f, "_bucket", set, exposition_value_text(f, last, le), text);
    }
    (void)!snprintf(text, sizeof(text), "%" PRIu64, histo_count(h));
    sample(o, f, "_bucket", set, "+Inf", text);
    sample(o, f, "_sum", set, "", exposition_value_text(f, h->sum, le));
    sample(o, f, "_count", set, "", text);
}

/* Whether `set` has the table and the prefix of `first`, such as device0 and device1. True also for
 * `first`. */
static bool is_sibling(const struct metric_set *first, const struct metric_set *set)
{
    return set->desc == first->desc &&
           stat_prefix_len(set->prefix) == stat_prefix_len(first->prefix) &&
           strncmp(set->prefix, first->prefix, stat_prefix_len(first->prefix)) == 0;
}

static void scalar_family(struct out *o, const struct metric_set *sets, unsigned nsets, unsigned i)
{
    const bool counter = sets->desc[i].kind == METRIC_COUNTER;
    struct family f;
    char text[32];
    family_name(sets->prefix, &sets->desc[i], "", &f);
    family_head(o, &f, counter ? "counter" : "gauge", "");
    for (unsigned s = 0; s < nsets; s++)
        if (is_sibling(sets, &sets[s]))
            sample(o, &f, counter ? "_total" : "", &sets[s], "",
                   exposition_value_text(&f, metric_value(&sets[s], i), text));
}

static void histo_family(struct out *o, const struct metric_set *sets, unsigned nsets, unsigned i)
{
    struct family f;
    char text[32];
    family_name(sets->prefix, &sets->desc[i], "", &f);
    family_head(o, &f, "histogram", "");
    for (unsigned s = 0; s < nsets; s++)
        if (is_sibling(sets, &sets[s]))
            histo_samples(o, &f, &sets[s], i);
    family_name(sets->prefix, &sets->desc[i], "_max", &f);
    family_head(o, &f, "gauge", ": the longest since the start");
    for (unsigned s = 0; s < nsets; s++)
        if (is_sibling(sets, &sets[s]))
            sample(o, &f, "", &sets[s], "",
                   exposition_value_text(&f, metric_histo(&sets[s], i)->max, text));
}

/* The families of the first set's table, with all of its siblings. */
static void table_families(struct out *o, const struct metric_set *sets, unsigned nsets)
{
    for (unsigned i = 0; i < sets->n; i++)
        if (sets->desc[i].kind == METRIC_HISTO)
            histo_family(o, sets, nsets, i);
        else
            scalar_family(o, sets, nsets, i);
}

size_t exposition_write(const struct metric_set *sets, unsigned nsets, const char *version,
                        enum exposition form, char *buf, size_t cap)
{
    struct out o = {.buf = buf, .cap = cap, .form = form};
    MUST(is_plain(version));
    out_add(&o,
            "# HELP kvcache_build_info which daemon this is\n"
            "# TYPE kvcache_build_info gauge\n"
            "kvcache_build_info{version=\"%s\"} 1\n",
            version);
    for (unsigned s = 0; s < nsets; s++) {
        bool seen = false;
        for (unsigned before = 0; before < s; before++)
            seen |= is_sibling(&sets[before], &sets[s]);
        if (!seen)
            table_families(&o, &sets[s], nsets - s);
    }
    if (form == EXPOSITION_OPENMETRICS)
        out_add(&o, "# EOF\n");
    return o.len;
}
