/* SPDX-License-Identifier: Apache-2.0 */
/* kvcachectl stats: the daemon's counters by section, once or again and again with rates. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ctl.h"
#include "gpus.h"
#include "json.h"
#include "paths.h"
#include "stat_help.h"
#include "stat_text.h"
#include "stdfds.h"
#include "table.h"
#include "units.h"

enum { STATS_MAX = 1024 };

static const char help[] =
    "Usage: kvcachectl stats [--watch [SECONDS]] [--json] [PREFIX...]\n"
    "       kvcachectl stats --help [NAME...]\n"
    "\n"
    "The daemon's statistics, then those of the paths of the storage tier, then the speed of "
    "copies to and from its devices. With a PREFIX only statistics whose names begin with it; "
    "'paths' and 'devices' name the other two sections.\n"
    "\n" ARGS_HERE "\n"
    "Examples:\n"
    "  kvcachectl stats --help core.blocks_hit kvcache_svc_lookup_seconds\n"
    "  kvcachectl stats core. daemon.host\n"
    "  kvcachectl stats --watch 5\n"
    "  kvcachectl stats paths\n"
    "  kvcachectl stats device0. devices\n"
    "  kvcachectl stats --json | jq '.[\"core.blocks_hit\"] / .[\"core.blocks_asked\"]'\n";

struct snapshot {
    struct kvc_stat stat[STATS_MAX];
    size_t n;
    uint64_t taken_ns;
};

struct stats {
    struct ctl *ctl;
    char **prefixes;
    int n_prefixes;
    bool watch;
    bool explain; /* --help */
    double seconds;
    struct snapshot now, before;
    struct paths paths;
    struct devices devices;
};

static int collect(void *ctx, const struct kvc_stat *stat)
{
    struct stats *s = ctx;
    bool wanted = s->n_prefixes == 0;
    for (int i = 0; i < s->n_prefixes; i++)
        wanted |= strncmp(stat->name, s->prefixes[i], strlen(s->prefixes[i])) == 0;
    if (wanted && s->now.n < STATS_MAX)
        s->now.stat[s->now.n++] = *stat;
    return 0;
}

/* Whether the section was asked for. *ret_alone: it was asked for by name, and no other was. */
static bool wants(const struct stats *s, const char *section, bool *ret_alone)
{
    bool named = false, other = false;
    for (int i = 0; i < s->n_prefixes; i++) {
        bool is = strncmp(section, s->prefixes[i], strlen(s->prefixes[i])) == 0;
        named |= is;
        other |= !is;
    }
    *ret_alone = named && !other;
    return named || s->n_prefixes == 0;
}

static int take_sections(struct stats *s)
{
    bool paths_alone, devices_alone;
    const bool paths = wants(s, "paths", &paths_alone);
    const bool devices = wants(s, "devices", &devices_alone);
    paths_free(&s->paths); /* of the previous look */
    devices_free(&s->devices);
    int rc = paths ? paths_take(s->ctl, &s->paths) : 0;
    if (rc >= 0 && devices)
        rc = devices_take(s->ctl, &s->devices);
    if (rc < 0)
        return ctl_fail(s->ctl, rc);
    if (s->now.n > 0)
        return 0;
    if (paths_alone && s->paths.rows.n == 0)
        ctl_error("the daemon has no storage tier (nvme.paths), so there are no paths");
    else if (devices_alone && s->devices.rows.n == 0)
        ctl_error("the daemon has no devices; give it some with hbm.devices in its configuration");
    else
        return 0;
    return CTL_NOTHING;
}

static int stats_take(struct stats *s)
{
    struct timespec t;
    s->before = s->now;
    s->now.n = 0;
    int rc = kvc_stats(s->ctl->kvc, collect, s);
    clock_gettime(CLOCK_MONOTONIC, &t);
    s->now.taken_ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    if (rc < 0)
        return ctl_fail(s->ctl, rc);
    rc = take_sections(s);
    if (rc != 0)
        return rc;
    if (s->now.n + s->paths.rows.n + s->devices.rows.n == 0 && s->n_prefixes > 0) {
        if (s->watch)
            ctl_error("'%s' is no number of seconds for --watch, and no statistic has such a name; "
                      "'kvcachectl stats' shows them all",
                      s->prefixes[0]);
        else
            ctl_error("no statistic has such a name; 'kvcachectl stats' shows them all");
        return CTL_NOTHING;
    }
    return 0;
}

/* Writes a rate; "" for a gauge, for a statistic that is new, and after a restart of the daemon. */
static void rate_text(const struct stats *s, const struct kvc_stat *stat,
                      char text[STAT_TEXT_BYTES])
{
    text[0] = '\0';
    for (size_t i = 0; !stat->gauge && i < s->before.n; i++) {
        const struct kvc_stat *old = &s->before.stat[i];
        if (strcmp(old->name, stat->name) == 0 && stat->value > old->value) {
            double gained = (double)(stat->value - old->value);
            double seconds = (double)(s->now.taken_ns - s->before.taken_ns) * 1e-9;
            stat_rate_text(stat->name, gained / seconds, text);
        }
    }
}

static void stats_print_json(const struct stats *s)
{
    json_t *object = json_object();
    for (size_t i = 0; i < s->now.n; i++)
        json_object_set_new(object, s->now.stat[i].name,
                            json_integer((json_int_t)s->now.stat[i].value));
    if (s->paths.rows.n > 0) {
        json_t *paths = paths_json(&s->paths);
        json_object_update(object, paths);
        json_decref(paths);
    }
    if (s->devices.rows.n > 0)
        json_object_set_new(object, "devices", devices_json(&s->devices));
    json_print(object);
}

static void stats_print_table(const struct stats *s)
{
    static const char *const once[] = {"NAME", ">VALUE", NULL};
    static const char *const again[] = {"NAME", ">VALUE", ">PER SECOND", NULL};
    struct table *table = table_create(s->watch ? again : once);
    for (size_t i = 0; i < s->now.n; i++) {
        char text[STAT_TEXT_BYTES];
        const struct kvc_stat *stat = &s->now.stat[i];
        table_cell(table, "%s", stat->name);
        stat_value_text(stat->name, stat->value, text);
        table_cell(table, "%s", text);
        if (s->watch) {
            rate_text(s, stat, text);
            table_cell(table, "%s", text);
        }
    }
    if (s->watch && isatty(STDOUT_FILENO))
        fputs("\033[H\033[2J", stdout);
    if (s->now.n > 0)
        table_print(table, stdout, s->ctl->colour);
    if (s->now.n > 0 && s->paths.rows.n > 0)
        putchar('\n');
    paths_print(&s->paths, s->ctl->colour);
    devices_print_rates(&s->devices, s->now.n + s->paths.rows.n > 0 ? "\n" : "", s->ctl->colour);
    if (s->watch && !isatty(STDOUT_FILENO))
        putchar('\n');
    table_destroy(&table);
}

static int stats_show(struct stats *s)
{
    int rc;
    while ((rc = stats_take(s)) == 0) {
        if (s->ctl->json)
            stats_print_json(s);
        else
            stats_print_table(s);
        if (stdfds_flush() < 0 || !s->watch)
            return CTL_OK;
        struct timespec pause = {.tv_sec = (time_t)s->seconds};
        pause.tv_nsec = (long)((s->seconds - (double)pause.tv_sec) * 1e9);
        nanosleep(&pause, NULL);
    }
    return rc;
}

static int take_seconds(const char *text, double *ret_seconds)
{
    if (!args_is_number(text, 0.1, 86400, ret_seconds))
        return ctl_usage("--watch %s: must be a number of seconds from 0.1 to 86400", text);
    return 0;
}

static int take_watch(void *ctx, const char *seconds)
{
    struct stats *s = ctx;
    s->watch = true;
    return seconds ? take_seconds(seconds, &s->seconds) : 0;
}

static const struct arg option_table[] = {
    {"--watch [SECONDS]",
     "again every SECONDS (default 2), with the gain of counters per second; Ctrl-C ends it",
     ARG_DO(take_watch)},
    {"--json",
     "one object per line: {\"name\": value, ...}; with a storage tier also \"paths\": [...] and "
     "\"writes\": {...}, with devices \"devices\": [...]",
     ARG_SHOWN},
    {"--help NAME",
     "what statistics mean whose names begin so: help, type, unit, and name at /metrics; such "
     "names are understood too; '' is all. Needs no daemon",
     ARG_SHOWN},
    {"--help", NULL, ARG_FLAG(struct stats, explain)},
    {0},
};

/* A first operand that is a number belongs to --watch: no statistic's name begins with a digit. */
static int take_operands(struct stats *s, int argc, char **argv)
{
    int first = optind;
    if (s->watch && first < argc && argv[first][0] >= '0' && argv[first][0] <= '9') {
        int rc = take_seconds(argv[first++], &s->seconds);
        if (rc != 0)
            return rc;
    }
    s->prefixes = argv + first;
    s->n_prefixes = argc - first;
    return 0;
}

static int explain(const struct stats *s)
{
    if (s->n_prefixes == 0)
        args_help(stdout, help, option_table);
    for (int i = 0; i < s->n_prefixes; i++)
        if (stat_help_print(s->prefixes[i]) == 0) {
            ctl_error(
                "no statistic begins with '%s'; 'kvcachectl stats --help \"\"' shows them all",
                s->prefixes[i]);
            return CTL_NOTHING;
        }
    return CTL_OK;
}

int cmd_stats(struct ctl *ctl, int argc, char **argv)
{
    static struct stats s;
    s.ctl = ctl;
    s.seconds = 2;
    int rc = ctl_options(ctl, argc, argv, option_table, help, &s);
    if (rc == 0)
        rc = take_operands(&s, argc, argv);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    if (s.explain)
        return explain(&s);
    rc = ctl_connect(ctl);
    if (rc == 0)
        rc = stats_show(&s);
    paths_free(&s.paths);
    devices_free(&s.devices);
    return rc;
}
