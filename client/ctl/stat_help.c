/* SPDX-License-Identifier: Apache-2.0 */
#include "stat_help.h"

#include <stdio.h>
#include <string.h>

#include "stat.h"
#include "units.h"

enum kind { COUNTER, GAUGE, HISTO };

struct row {
    const char *prefix, *name, *help;
    enum kind kind;
};

#define ROW(kind, name, help)     {0, #name, help, kind},
#define TABLE_ROWS(prefix, TABLE) {prefix, NULL, NULL, 0}, TABLE(ROW)

/* A row without a name begins the table of its prefix. */
static const struct row rows[] = {STAT_TABLES(TABLE_ROWS)};

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* Cuts off `end`, if the text has it. */
static void cut(char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    if (n > k && strcmp(text + n - k, end) == 0)
        text[n - k] = '\0';
}

/* The name of a row: without the part of a histogram, and without a device's number. */
static void plain_name(const char *name, char to[STAT_METRIC_BYTES])
{
    const size_t dot = strcspn(name, ".");
    char prefix[STAT_METRIC_BYTES];
    snprintf(prefix, sizeof(prefix), "%.*s", (int)dot, name);
    snprintf(to, STAT_METRIC_BYTES, "%.*s%s", (int)stat_prefix_len(prefix), prefix, name + dot);
    char *part = name[dot] == '.' ? strchr(to + stat_prefix_len(prefix) + 1, '.') : NULL;
    if (part != NULL)
        *part = '\0';
}

/* The name of a family: without what the formats append to it. */
static void plain_metric(const char *name, char to[STAT_METRIC_BYTES])
{
    static const char *const ends[] = {"_total", "_bucket", "_sum", "_count"};
    snprintf(to, STAT_METRIC_BYTES, "%s", name);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        cut(to, ends[i]);
}

static const char *stat_unit(const struct units_stat *u)
{
    if (u->suffix[0] != '\0')
        return u->suffix + 1;
    return u->is_bytes ? "bytes" : "none";
}

static void print_row(const struct row *r, const char *prefix)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    char metric[STAT_METRIC_BYTES], longest[STAT_METRIC_BYTES];
    struct units_stat u;
    units_of_stat(r->name, &u);
    stat_metric_name(prefix, r->name, "", metric);
    stat_metric_name(prefix, r->name, "_max", longest);
    const bool device = strcmp(prefix, "device") == 0;
    printf("%s%s.%s: %s\n", prefix, device ? "N" : "", r->name, r->help);
    printf("    type %s, unit %s\n", kinds[r->kind], stat_unit(&u));
    printf("    /metrics: %s%s%s%s\n", metric, r->kind == COUNTER ? "_total" : "",
           r->kind == HISTO ? ", and the longest: " : "", r->kind == HISTO ? longest : "");
}

size_t stat_help_print(const char *name)
{
    char stat[STAT_METRIC_BYTES], metric[STAT_METRIC_BYTES];
    const char *prefix = "";
    size_t n = 0;
    plain_name(name, stat);
    plain_metric(name, metric);
    for (const struct row *r = rows; r < rows + sizeof(rows) / sizeof(rows[0]); r++) {
        char full[STAT_METRIC_BYTES], as_metric[STAT_METRIC_BYTES], longest[STAT_METRIC_BYTES];
        if (r->prefix != NULL)
            prefix = r->prefix;
        if (r->name == NULL)
            continue;
        snprintf(full, sizeof(full), "%s.%s", prefix, r->name);
        stat_metric_name(prefix, r->name, "", as_metric);
        stat_metric_name(prefix, r->name, "_max", longest);
        if (!begins_with(full, stat) && !begins_with(as_metric, metric) &&
            !(r->kind == HISTO && strcmp(longest, metric) == 0))
            continue;
        print_row(r, prefix);
        n++;
    }
    return n;
}
