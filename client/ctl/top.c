/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcachectl top: one screen that is drawn again and again, with requests, hits, bytes moved,
 * tiers, and who holds the room. Its figures are those of stats, usage and gpu, divided by the time
 * between two looks; on the first screen, by the time since the daemon's start.
 */
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "ctl.h"
#include "gpus.h"
#include "json.h"
#include "plain.h"
#include "rows.h"
#include "stdfds.h"
#include "units.h"
#include "width.h"

enum { STATS_MAX = 1024, LINES_AROUND = 15, COLUMNS_NAME = 70, COLUMNS_WIDE = 120 };

static const char help[] =
    "Usage: kvcachectl top [--every SECONDS] [--count N] [--json]\n"
    "\n"
    "What happens now: requests, hits, bytes moved, how full the tiers are, and the namespaces, "
    "the largest first. On a terminal the screen is drawn again in place; Ctrl-C ends it. The "
    "first screen has rates since the daemon's start, the others since the screen before. Needs "
    "admin rights ('kvcachectl usage' shows what your own principal holds without them).\n"
    "\n" ARGS_HERE "\n"
    "Columns for which the terminal has no room are left out; the most important ones come first. "
    "Namespaces that hold nothing, and held nothing on the screen before, are left out "
    "('kvcachectl ns' has them).\n"
    "\n"
    "  hits       percent of the blocks asked for that were found\n"
    "  tokens     found: workers need not compute them; loaded: of these, from storage\n"
    "  FULL       USED in percent of what the tier may hold\n"
    "  IN, OUT    bytes per second into the tier and out of it\n"
    "  HOST, NVME, HBM   bytes of the namespace in host memory, on storage, on devices\n"
    "  LEASED     bytes under lease, which workers read now and which stay\n"
    "  GROWS      bytes that the namespace gained or lost in all tiers, per second\n"
    "\n"
    "Examples:\n"
    "  kvcachectl top\n"
    "  kvcachectl top --every 10 --count 6 --json | jq .hit_ratio\n";

struct look {
    struct kvc_stat stat[STATS_MAX];
    size_t stats;
    struct rows rows; /* of namespaces */
    double at_s;
};

struct top {
    struct ctl *ctl;
    double every_s;
    uint64_t count; /* 0: never ends */
    struct look now, before;
    struct devices devices;
};

/* ---- looking ---- */

static int add_stat(void *ctx, const struct kvc_stat *stat)
{
    struct look *l = ctx;
    if (l->stats < STATS_MAX)
        l->stat[l->stats++] = *stat;
    return 0;
}

static const struct kvc_ns_info *ns_at(const struct look *l, size_t i)
{
    return rows_at(&l->rows, i);
}

static uint64_t held(const struct kvc_ns_info *u)
{
    return u->host_bytes + u->nvme_bytes + u->device_bytes;
}

static int larger(const void *a, const void *b)
{
    const uint64_t x = held(a), y = held(b);
    return (x < y) - (x > y);
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t value(const struct look *l, const char *name)
{
    for (size_t i = 0; i < l->stats; i++)
        if (strcmp(l->stat[i].name, name) == 0)
            return l->stat[i].value;
    return 0;
}

static int top_take(struct top *t)
{
    rows_free(&t->before.rows);
    devices_free(&t->devices);
    t->before = t->now;
    t->now.stats = 0;
    int rc = kvc_stats(t->ctl->kvc, add_stat, &t->now);
    t->now.at_s = seconds_now();
    const int error = rows_take(t->ctl, KVC_TABLE_NAMESPACES, &t->now.rows);
    rc = rc < 0 ? rc : error;
    if (rc >= 0)
        rc = devices_take(t->ctl, &t->devices);
    if (rc < 0)
        return ctl_fail(t->ctl, rc);
    if (t->now.rows.n > 0)
        qsort(t->now.rows.row, t->now.rows.n, sizeof(struct kvc_ns_info), larger);
    /* The first look, or another daemon answers: rates are since its start. */
    const double up_s = (double)value(&t->now, "daemon.uptime_ms") * 1e-3;
    if (t->before.stats == 0 || up_s < t->now.at_s - t->before.at_s) {
        t->before.stats = t->before.rows.n = 0;
        t->before.at_s = t->now.at_s - up_s;
    }
    return 0;
}

static double since_s(const struct top *t)
{
    const double s = t->now.at_s - t->before.at_s;
    return s > 1e-3 ? s : 1e-3;
}

static uint64_t gained(const struct top *t, const char *name)
{
    const uint64_t now = value(&t->now, name), before = value(&t->before, name);
    return now > before ? now - before : 0;
}

static double rate(const struct top *t, const char *name)
{
    return (double)gained(t, name) / since_s(t);
}

static double top_ratio(uint64_t part, uint64_t all)
{
    return all != 0 ? (double)part / (double)all : 0;
}

static double recomputed(const struct top *t)
{
    return rate(t, "core.tokens_recomputed_by_miss") +
           rate(t, "core.tokens_recomputed_by_decision");
}

/* *ret: bytes per second by which the namespace grows. False: the previous look did not have it. */
static bool grows(const struct top *t, const struct kvc_ns_info *u, double *ret)
{
    for (size_t i = 0; i < t->before.rows.n; i++) {
        if (ns_at(&t->before, i)->ns != u->ns)
            continue;
        *ret = ((double)held(u) - (double)held(ns_at(&t->before, i))) / since_s(t);
        return true;
    }
    return false;
}

/* ---- tiers ---- */

struct tier_row {
    char name[KVC_STRING_MAX];
    uint64_t blocks, used, limit;
    double in, out; /* bytes per second into the tier, and out of it */
};

static size_t tiers(const struct top *t, struct tier_row row[2 + KVC_DEVICES_MAX])
{
    size_t n = 0;
    row[n++] = (struct tier_row){.name = "host",
                                 .blocks = value(&t->now, "core.blocks_in_memory"),
                                 .used = value(&t->now, "daemon.host_used_bytes"),
                                 .limit = value(&t->now, "daemon.host_limit_bytes"),
                                 .in = rate(t, "core.bytes_stored") + rate(t, "core.bytes_loaded"),
                                 .out = rate(t, "core.bytes_leased")};
    if (value(&t->now, "nvme.limit_bytes") != 0)
        row[n++] = (struct tier_row){.name = "nvme",
                                     .blocks = value(&t->now, "core.blocks_on_disk"),
                                     .used = value(&t->now, "nvme.used_bytes"),
                                     .limit = value(&t->now, "nvme.limit_bytes"),
                                     .in = rate(t, "nvme.bytes_written"),
                                     .out = rate(t, "nvme.bytes_read")};
    for (uint32_t i = 0; i < t->devices.rows.n; i++) {
        const struct kvc_device *d = devices_at(&t->devices, i);
        char name[32];
        snprintf(name, sizeof(name), "device%u.copy_bytes", i);
        row[n] = (struct tier_row){.blocks = d->blocks,
                                   .used = d->used_bytes,
                                   .limit = d->limit_bytes,
                                   .in = rate(t, name)};
        snprintf(row[n].name, sizeof(row[n].name), "%s", d->device);
        n++;
    }
    return n;
}

static const char *bytes_rate(double per_second, char text[UNITS_TEXT_BYTES])
{
    return per_second >= 1 ? units_format_rate((uint64_t)per_second, text) : "-";
}

static void print_tiers(const struct top *t, size_t columns, FILE *to)
{
    static const char *const heads[] = {"TIER",  ">BLOCKS", ">USED", ">OF",
                                        ">FULL", ">IN",     ">OUT",  NULL};
    struct tier_row row[2 + KVC_DEVICES_MAX];
    struct table *table = table_create(heads);
    const size_t n = tiers(t, row);
    for (size_t i = 0; i < n; i++) {
        char text[UNITS_TEXT_BYTES], count[UNITS_COUNT_BYTES];
        table_cell(table, "%s", row[i].name);
        table_cell(table, "%s", units_format_count(row[i].blocks, count));
        table_cell(table, "%s", units_format_bytes(row[i].used, text));
        table_cell(table, "%s", row[i].limit ? units_format_bytes(row[i].limit, text) : "-");
        table_cell(table, "%.1f %%", 100 * top_ratio(row[i].used, row[i].limit));
        table_cell(table, "%s", bytes_rate(row[i].in, text));
        table_cell(table, "%s", bytes_rate(row[i].out, text));
    }
    table_fit(table, columns);
    table_print(table, to, t->ctl->colour);
    table_destroy(&table);
}

/* ---- the screen ---- */

struct size {
    size_t rows, columns; /* SIZE_MAX: no terminal */
};

static struct size screen_size(void)
{
    struct winsize w;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 || w.ws_row == 0 ||
        w.ws_col == 0)
        return (struct size){SIZE_MAX, SIZE_MAX};
    return (struct size){w.ws_row, w.ws_col};
}

/* How many rows of namespaces the terminal has room for. */
static size_t room(const struct top *t, struct size size)
{
    const size_t around = LINES_AROUND + t->devices.rows.n;
    return size.rows > around + 1 ? size.rows - around : 1;
}

static bool is_empty(const struct kvc_ns_info *u)
{
    return u->blocks == 0 && held(u) == 0 && u->leased_bytes == 0;
}

/* Whether the namespace is shown. One that has just become empty is shown once more. */
static bool is_shown(const struct top *t, const struct kvc_ns_info *u)
{
    for (size_t i = 0; is_empty(u) && i < t->before.rows.n; i++)
        if (ns_at(&t->before, i)->ns == u->ns)
            return !is_empty(ns_at(&t->before, i));
    return !is_empty(u);
}

__attribute__((format(printf, 2, 3))) static void line(FILE *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    plain_line(to, format, args);
    va_end(args);
}

/* The most important parts come first, because a narrow terminal cuts the rest. */
static void add_name(const struct top *t, struct table *table, const struct kvc_ns_info *u,
                     struct size size)
{
    const uint64_t part[] = {u->host_bytes, u->nvme_bytes, u->device_bytes, u->leased_bytes};
    const size_t model = size.columns < COLUMNS_WIDE ? size.columns / 3 : SIZE_MAX;
    char text[UNITS_TEXT_BYTES], count[UNITS_COUNT_BYTES];
    double by = 0;
    table_cell(table, "%u", u->ns);
    table_cell(table, "%.*s", (int)width_fit(u->model, strlen(u->model), model), u->model);
    table_cell(table, "%s", units_format_count(u->blocks, count));
    for (size_t k = 0; k < sizeof(part) / sizeof(part[0]); k++)
        table_cell(table, "%s", part[k] ? units_format_bytes(part[k], text) : "-");
    if (grows(t, u, &by) && (by >= 1 || by <= -1))
        table_cell(table, "%s%s", by < 0 ? "-" : "+", bytes_rate(by < 0 ? -by : by, text));
    else
        table_cell(table, "-");
    table_cell(table, "%s%s%s", u->tenant[0] ? u->tenant : "-", u->sub_tenant[0] ? "/" : "",
               u->sub_tenant);
    table_cell(table, "%s", u->principal);
}

static void print_names(const struct top *t, struct size size, FILE *to)
{
    static const char *const heads[] = {">NS",    "MODEL",     ">BLOCKS", ">HOST",
                                        ">NVME",  ">HBM",      ">LEASED", ">GROWS",
                                        "TENANT", "PRINCIPAL", NULL};
    struct table *table = table_create(heads);
    size_t shown = 0;
    for (size_t i = 0; i < t->now.rows.n; i++)
        if (is_shown(t, ns_at(&t->now, i)) && shown++ < room(t, size))
            add_name(t, table, ns_at(&t->now, i), size);
    table_fit(table, size.columns);
    if (shown > 0)
        table_print(table, to, t->ctl->colour);
    else
        line(to, t->now.rows.n > 0 ? "no namespace holds anything; 'kvcachectl ns' shows them"
                                   : "no namespaces yet; they appear when a worker opens one");
    if (shown > table_rows(table))
        line(to, "%zu more: kvcachectl usage", shown - table_rows(table));
    table_destroy(&table);
}

static void print_screen(const struct top *t, struct size size, FILE *to)
{
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], c[UNITS_TEXT_BYTES];
    char sessions[UNITS_COUNT_BYTES], requests[UNITS_COUNT_BYTES], errors[UNITS_COUNT_BYTES];
    char found[UNITS_COUNT_BYTES], loaded[UNITS_COUNT_BYTES], computed[UNITS_COUNT_BYTES];
    const uint64_t asked = gained(t, "core.blocks_asked");
    const bool began = t->before.stats == 0;
    line(to, "%sup %s, sessions: %s; rates %s%s",
         size.columns < COLUMNS_NAME ? "" : "kvcache-daemon, ",
         units_format_duration_ms(value(&t->now, "daemon.uptime_ms"), a),
         units_format_count(value(&t->now, "svc.sessions"), sessions),
         began ? "since it began" : "of the last ",
         began ? "" : units_format_duration_ns((uint64_t)(since_s(t) * 1e9), b));
    line(to, "requests  %s/s, errors %s/s, median of all %s",
         units_format_count((uint64_t)(rate(t, "svc.requests") + .5), requests),
         units_format_count((uint64_t)(rate(t, "svc.replies_error") + .999), errors),
         units_format_duration_ns(value(&t->now, "svc.handle_ns.p50"), a));
    if (asked != 0)
        line(to, "hits      %.1f %% of blocks asked for (since it began %.1f %%)",
             100 * top_ratio(gained(t, "core.blocks_hit"), asked),
             100 *
                 top_ratio(value(&t->now, "core.blocks_hit"), value(&t->now, "core.blocks_asked")));
    else
        line(to, "hits      no block was asked for");
    line(to, "tokens    %s/s found, %s/s of them loaded, %s/s recomputed",
         units_format_count((uint64_t)(rate(t, "core.tokens_hit") + .5), found),
         units_format_count((uint64_t)(rate(t, "core.tokens_loaded") + .5), loaded),
         units_format_count((uint64_t)(recomputed(t) + .5), computed));
    line(to, "moved     read %s, stored %s, evicted %s",
         bytes_rate(rate(t, "core.bytes_leased"), a), bytes_rate(rate(t, "core.bytes_stored"), b),
         bytes_rate(rate(t, "core.bytes_evicted"), c));
    fputc('\n', to);
    print_tiers(t, size.columns, to);
    fputc('\n', to);
    print_names(t, size, to);
    if (size.columns != SIZE_MAX) {
        fputc('\n', to);
        line(to, "Ctrl-C ends; 'kvcachectl top --help' explains the columns");
    }
}

/* Prints the screen, cut to the terminal's size, and without a last line break, which would scroll.
 */
static void top_draw(const struct top *t)
{
    const struct size size = screen_size();
    char *text = NULL;
    size_t bytes = 0, rows = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) {
        fputs("kvcachectl: out of memory\n", stderr);
        abort();
    }
    print_screen(t, size, to);
    if (fclose(to) != 0) {
        fputs("kvcachectl: out of memory\n", stderr);
        abort();
    }
    if (size.columns != SIZE_MAX)
        fputs("\033[H\033[2J", stdout);
    for (const char *at = text; *at != '\0' && ++rows < size.rows;) {
        const size_t n = strcspn(at, "\n"), fit = width_fit(at, n, size.columns);
        (void)!fwrite(at, 1, fit, stdout);
        fputs(fit < n && t->ctl->colour ? "\033[0m\n" : "\n", stdout);
        at += n + (at[n] != '\0');
    }
    free(text);
}

static json_t *ns_json(const struct top *t, const struct kvc_ns_info *u)
{
    double by = 0;
    const bool known = grows(t, u, &by);
    return json_pack("{s:I, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o}", "ns",
                     (json_int_t)u->ns, "principal", u->principal, "tenant", u->tenant,
                     "sub_tenant", u->sub_tenant, "model", u->model, "blocks",
                     (json_int_t)u->blocks, "host_bytes", (json_int_t)u->host_bytes, "nvme_bytes",
                     (json_int_t)u->nvme_bytes, "device_bytes", (json_int_t)u->device_bytes,
                     "leased_bytes", (json_int_t)u->leased_bytes, "grows_bytes_per_s",
                     known ? json_real(by) : json_null());
}

static void top_print_json(const struct top *t)
{
    struct tier_row row[2 + KVC_DEVICES_MAX];
    json_t *tier = json_array(), *ns = json_array();
    const size_t n = tiers(t, row);
    const uint64_t asked = gained(t, "core.blocks_asked");
    for (size_t i = 0; i < n; i++)
        json_array_append_new(tier, json_pack("{s:s, s:I, s:I, s:I, s:f, s:f}", "tier", row[i].name,
                                              "blocks", (json_int_t)row[i].blocks, "used_bytes",
                                              (json_int_t)row[i].used, "limit_bytes",
                                              (json_int_t)row[i].limit, "in_bytes_per_s", row[i].in,
                                              "out_bytes_per_s", row[i].out));
    for (size_t i = 0; i < t->now.rows.n; i++) {
        json_t *item = ns_json(t, ns_at(&t->now, i));
        if (item) /* NULL when a name is not UTF-8; the others are still worth showing */
            json_array_append_new(ns, item);
        else
            ctl_error("namespace %u has a name that is not UTF-8; left out", ns_at(&t->now, i)->ns);
    }
    json_print(json_pack(
        "{s:I, s:f, s:I, s:f, s:f, s:I, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "uptime_ms",
        (json_int_t)value(&t->now, "daemon.uptime_ms"), "seconds", since_s(t), "sessions",
        (json_int_t)value(&t->now, "svc.sessions"), "requests_per_s", rate(t, "svc.requests"),
        "errors_per_s", rate(t, "svc.replies_error"), "handle_p50_ns",
        (json_int_t)value(&t->now, "svc.handle_ns.p50"), "hit_ratio",
        asked != 0 ? json_real(top_ratio(gained(t, "core.blocks_hit"), asked)) : json_null(),
        "tokens_found_per_s", rate(t, "core.tokens_hit"), "tokens_loaded_per_s",
        rate(t, "core.tokens_loaded"), "tokens_recomputed_per_s", recomputed(t), "read_bytes_per_s",
        rate(t, "core.bytes_leased"), "stored_bytes_per_s", rate(t, "core.bytes_stored"),
        "evicted_bytes_per_s", rate(t, "core.bytes_evicted"), "tiers", tier, "namespaces", ns));
}

static int top_show(struct top *t)
{
    int rc;
    for (uint64_t shown = 0; (rc = top_take(t)) == 0;) {
        if (t->ctl->json)
            top_print_json(t);
        else
            top_draw(t);
        if (stdfds_flush() < 0 || ++shown == t->count)
            return CTL_OK;
        if (!t->ctl->json && !isatty(STDOUT_FILENO))
            putchar('\n');
        struct timespec pause = {.tv_sec = (time_t)t->every_s};
        pause.tv_nsec = (long)((t->every_s - (double)pause.tv_sec) * 1e9);
        nanosleep(&pause, NULL);
    }
    return rc;
}

static const struct arg option_table[] = {
    {"--every SECONDS", "between two screens, 0.1 to 86400 (default 2)",
     ARG_NUMBER(struct top, every_s, 0.1, 86400)},
    {"--count N", "end after N screens (default: on a terminal never, else 1)",
     ARG_COUNT(struct top, count, 1, UINT32_MAX)},
    {"--json", "one object per screen, on a line; names of rates end in _per_s", ARG_SHOWN},
    {0},
};

int cmd_top(struct ctl *ctl, int argc, char **argv)
{
    static struct top t;
    t.ctl = ctl;
    t.every_s = 2;
    t.count = isatty(STDOUT_FILENO) ? 0 : 1;
    int rc = ctl_options_only(ctl, argc, argv, option_table, help, &t);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc == 0)
        rc = top_show(&t);
    rows_free(&t.now.rows);
    rows_free(&t.before.rows);
    devices_free(&t.devices);
    return rc;
}
