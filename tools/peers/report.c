/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "out.h"
#include "report.h"
#include "units.h"

#define GB 1e9

struct scatter {
    double low, median, high;
};

static struct scatter spread_of(const struct peer_result *result, unsigned metric)
{
    double values[ROUNDS_MAX];
    memcpy(values, result->value[metric], sizeof(values));
    double median = out_median(values, result->rounds);
    return (struct scatter){values[0], median, values[result->rounds - 1]};
}

static const struct peer_result *measured(const struct peer_ops *const *list,
                                          const struct peer_result *results,
                                          const struct peer_ops *ops)
{
    for (size_t i = 0; list[i]; i++) {
        if (list[i] == ops && results[i].outcome == PEER_MEASURED)
            return &results[i];
    }
    return NULL;
}

/* The daemon's median by the peer's, of the same rounds. */
static double report_ratio(const struct peer_result *ours, unsigned our_metric,
                           const struct peer_result *theirs, unsigned metric)
{
    return spread_of(ours, our_metric).median / spread_of(theirs, metric).median;
}

struct line {
    const struct peer_plan *plan;
    const struct peer_ops *ops;
    const struct peer_result *result;
    const struct peer_result *ours; /* NULL if the daemon was not measured, or is this peer */
    const char *how;                /* way of loading, or NULL */
};

static struct out_metric out_of(const struct line *line, const char *metric, const char *unit)
{
    return (struct out_metric){.bench = "peers",
                               .keys = {{.key = "peer", .text = line->ops->name},
                                        {.key = "block_bytes", .number = line->plan->block_bytes},
                                        {.key = line->how ? "how" : NULL, .text = line->how}},
                               .metric = metric,
                               .unit = unit};
}

/* Prints the median, with the daemon's as `limit` if this is another peer; then the lowest and the
 * highest round. */
static void json_rate(const struct line *line, const char *metric, unsigned at, unsigned ours_at)
{
    static const char *const ends[] = {"low", "high"};
    struct scatter spread = spread_of(line->result, at);
    const double values[] = {spread.low, spread.high};
    struct out_metric out = out_of(line, metric, "B/s");
    out.value = spread.median;
    if (line->ours) {
        out.limit_what = "kvcache-daemon";
        out.limit = spread_of(line->ours, ours_at).median;
        out.ratio = spread.median / out.limit;
    }
    out_json(&out);
    for (int i = 0; i < 2; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s_%s", metric, ends[i]);
        out = out_of(line, name, "B/s");
        out.value = values[i];
        out_json(&out);
    }
}

static void json_latency(const struct line *line, const char *name, const struct lat *lat)
{
    static const struct {
        const char *suffix;
        double quantile;
    } quantiles[] = {{"p50", .5}, {"p99", .99}};
    for (int i = 0; i < 2; i++) {
        char metric[64];
        snprintf(metric, sizeof(metric), "%s_%s", name, quantiles[i].suffix);
        struct out_metric out = out_of(line, metric, "s");
        out.value = (double)lat_quantile_ns(lat, quantiles[i].quantile) * 1e-9;
        out_json(&out);
    }
}

static void json_cpu(const struct line *line, const char *metric, unsigned at)
{
    struct out_metric out = out_of(line, metric, "s/GB");
    out.value = spread_of(line->result, at).median;
    out_json(&out);
}

static void json_text(const struct line *line, const char *metric, const char *key,
                      const char *text)
{
    struct out_metric out = out_of(line, metric, "");
    out.keys[2] = (struct out_key){.key = key, .text = text};
    out.value = 1;
    out_json(&out);
}

static void json_count(const struct line *line, const char *metric, uint64_t value,
                       const char *unit)
{
    struct out_metric out = out_of(line, metric, unit);
    out.value = (double)value;
    out_json(&out);
}

static void json_peer(struct line line)
{
    const struct peer_result *result = line.result;
    json_text(&line, "version", "version", result->version);
    json_count(&line, "rounds", result->rounds, "");
    json_count(&line, "checked_bytes", result->checked_bytes, "B");
    json_count(&line, "wrong_bytes", result->wrong_bytes, "B");
    json_rate(&line, "store_bytes_per_s", M_STORE, M_STORE);
    json_cpu(&line, "store_cpu", M_STORE_CPU);
    json_latency(&line, "store", &result->store);
    for (unsigned way = 0; line.ops->load[way].how; way++) {
        line.how = line.ops->load[way].how;
        json_rate(&line, "taken_bytes_per_s", measure_load(M_TAKE, way), M_TAKE);
        json_rate(&line, "load_bytes_per_s", measure_load(M_READ, way), M_READ);
        json_cpu(&line, "load_cpu", measure_load(M_LOAD_CPU, way));
        json_latency(&line, "load", &result->load[way]);
    }
}

void report_json(const struct peer_plan *plan, const struct peer_ops *const *list,
                 struct peer_result *results)
{
    const struct peer_result *ours = measured(list, results, &peer_ours);
    for (size_t i = 0; list[i]; i++) {
        struct line line = {.plan = plan, .ops = list[i], .result = &results[i]};
        if (list[i] != &peer_ours)
            line.ours = ours;
        if (results[i].outcome == PEER_MEASURED)
            json_peer(line);
        else
            json_text(&line, "not_measured", "reason", results[i].reason);
    }
}

static void print_rate(FILE *to, struct scatter spread)
{
    char range[32];
    snprintf(range, sizeof(range), "(%.2f-%.2f)", spread.low / GB, spread.high / GB);
    fprintf(to, " %6.2f %-15s", spread.median / GB, range);
}

static void print_latency(FILE *to, const struct lat *lat)
{
    fprintf(to, " %7.0f %7.0f", (double)lat_quantile_ns(lat, .5) * 1e-3,
            (double)lat_quantile_ns(lat, .99) * 1e-3);
}

static void print_times(FILE *to, const struct line *line, unsigned ours_at, unsigned at)
{
    if (line->ours)
        fprintf(to, " %6.2fx", report_ratio(line->ours, ours_at, line->result, at));
    else
        fprintf(to, " %7s", "-");
}

static void table_store(FILE *to, const struct line *line)
{
    fprintf(to, "  %-26s %-10s", line->ops->name, "");
    if (line->result->outcome != PEER_MEASURED) {
        fprintf(to, " not measured: %s\n", line->result->reason);
        return;
    }
    print_rate(to, spread_of(line->result, M_STORE));
    print_latency(to, &line->result->store);
    fprintf(to, " %7.3f", spread_of(line->result, M_STORE_CPU).median);
    print_times(to, line, M_STORE, M_STORE);
    fputc('\n', to);
}

static void table_load(FILE *to, const struct line *line, unsigned way)
{
    fprintf(to, "  %-26s %-10s", line->ops->name, line->ops->load[way].how);
    print_rate(to, spread_of(line->result, measure_load(M_READ, way)));
    print_latency(to, &line->result->load[way]);
    fprintf(to, " %7.3f", spread_of(line->result, measure_load(M_LOAD_CPU, way)).median);
    print_times(to, line, M_READ, measure_load(M_READ, way));
    double taken = spread_of(line->result, measure_load(M_TAKE, way)).median / GB;
    if (taken < 1000)
        fprintf(to, " %8.2f", taken);
    else
        fprintf(to, " %8s", ">1000");
    if (line->ours)
        print_times(to, line, M_TAKE, measure_load(M_TAKE, way));
    fputc('\n', to);
}

static void table_head(FILE *to, const char *what, const char *more)
{
    fprintf(to, "  %-37s %22s %15s %7s %7s%s\n", what, "GB/s (low-high)  ", "p50 us  p99 us",
            "CPU s/GB", "ours/it", more);
}

void report_table(FILE *to, const struct peer_plan *plan, const struct peer_ops *const *list,
                  struct peer_result *results)
{
    char size[UNITS_TEXT_BYTES];
    const struct peer_result *ours = measured(list, results, &peer_ours);
    fprintf(to, "\nBlocks of %s, %u of them\n", units_format_bytes(plan->block_bytes, size),
            plan->blocks);
    table_head(to, "store", "");
    for (size_t i = 0; list[i]; i++) {
        struct line line = {plan, list[i], &results[i], list[i] == &peer_ours ? NULL : ours, NULL};
        table_store(to, &line);
    }
    table_head(to, "load, every byte read", "  in hand ours/it");
    for (size_t i = 0; list[i]; i++) {
        struct line line = {plan, list[i], &results[i], list[i] == &peer_ours ? NULL : ours, NULL};
        for (unsigned way = 0; results[i].outcome == PEER_MEASURED && list[i]->load[way].how; way++)
            table_load(to, &line, way);
    }
    fflush(to);
}

void report_notes(FILE *to, const struct peer_ops *const *list, const struct peer_result *results)
{
    fputs("\nSettings\n", to);
    for (size_t i = 0; list[i]; i++) {
        if (results[i].outcome == PEER_MEASURED)
            fprintf(to, "  %s (%s; %llu MiB compared, %llu wrong bytes): %s\n", list[i]->name,
                    results[i].version, (unsigned long long)(results[i].checked_bytes >> 20),
                    (unsigned long long)results[i].wrong_bytes, list[i]->settings);
        else
            fprintf(to, "  %s: not measured: %s\n", list[i]->name, results[i].reason);
    }
}
