/* SPDX-License-Identifier: Apache-2.0 */
/* Output about peers on disk: medians over the rounds, as a table or as JSON. */
#include <inttypes.h>
#include <string.h>

#include "disk_report.h"
#include "out.h"
#include "units.h"

#define GB 1e9

static double median(const struct disk_result *result, enum disk_metric metric)
{
    double values[DISK_ROUNDS_MAX];
    memcpy(values, result->value[metric], sizeof(values));
    return out_median(values, result->rounds);
}

struct cell {
    const struct disk_report *report;
    size_t peer, setting;
    /* ours: the daemon's result; NULL if it was not measured, or is this one. */
    const struct disk_result *result, *ours;
};

static struct cell cell_of(const struct disk_report *report, size_t peer, size_t setting)
{
    const struct disk_result *ours = &report->results->cell[0][setting];
    return (struct cell){.report = report,
                         .peer = peer,
                         .setting = setting,
                         .result = &report->results->cell[peer][setting],
                         .ours = peer > 0 && ours->measured ? ours : NULL};
}

static struct out_metric disk_report_line_of(const struct cell *cell, const char *metric,
                                             const char *unit)
{
    const struct disk_report *report = cell->report;
    const struct disk_plan *plan = report->plan;
    return (struct out_metric){
        .bench = "peers_disk",
        .keys = {{.key = "peer", .text = report->ops[cell->peer]->name},
                 {.key = "setting", .text = report->setting[cell->setting]},
                 {.key = "block_bytes", .number = plan->block_bytes},
                 {.key = "threads", .number = plan->threads},
                 {.key = "page_cache", .text = plan->cgroup ? "cgroup" : "window"}},
        .metric = metric,
        .unit = unit};
}

/* limit: the daemon's value, if the cell is another peer's; ratio: that peer's value by the
 * daemon's. */
static void json_value(const struct cell *cell, const char *metric, const char *unit, double value,
                       double ours)
{
    struct out_metric line = disk_report_line_of(cell, metric, unit);
    line.value = value;
    if (cell->ours && ours > 0) {
        line.limit_what = "kvcache-daemon";
        line.limit = ours;
        line.ratio = value / ours;
    }
    out_json(&line);
}

static void json_cell(const struct cell *cell)
{
    static const struct {
        const char *name, *unit;
        enum disk_metric metric;
    } values[] = {{"put_bytes_per_s", "B/s", D_PUT},
                  {"put_cpu", "s/GB", D_PUT_CPU},
                  {"write_amplification", "1", D_AMPLIFICATION},
                  {"get_bytes_per_s", "B/s", D_GET},
                  {"get_cpu", "s/GB", D_GET_CPU},
                  {"missed_share", "1", D_MISSED}};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        json_value(cell, values[i].name, values[i].unit, median(cell->result, values[i].metric),
                   cell->ours ? median(cell->ours, values[i].metric) : 0);
    json_value(cell, "put_p50", "s", (double)lat_quantile_ns(&cell->result->put, .5) * 1e-9, 0);
    json_value(cell, "put_p99", "s", (double)lat_quantile_ns(&cell->result->put, .99) * 1e-9, 0);
    json_value(cell, "get_p50", "s", (double)lat_quantile_ns(&cell->result->get, .5) * 1e-9, 0);
    json_value(cell, "get_p99", "s", (double)lat_quantile_ns(&cell->result->get, .99) * 1e-9, 0);
    json_value(cell, "wrong_bytes", "B", (double)cell->result->wrong_bytes, 0);
    json_value(cell, "checked_bytes", "B", (double)cell->result->checked_bytes, 0);
}

static void each(const struct disk_report *report, FILE *to,
                 void (*one)(FILE *to, const struct cell *cell))
{
    for (size_t setting = 0; setting < DISK_SETTINGS; setting++) {
        for (size_t peer = 0; peer < DISK_PEERS; peer++) {
            struct cell cell = cell_of(report, peer, setting);
            if (report->wanted[peer] && report->wanted_setting[setting])
                one(to, &cell);
        }
    }
}

static void json_one(FILE *to, const struct cell *cell)
{
    (void)to;
    if (cell->result->measured) {
        json_cell(cell);
        return;
    }
    struct out_metric line = disk_report_line_of(cell, "not_measured", "");
    line.keys[2] = (struct out_key){.key = "reason", .text = cell->result->reason};
    line.value = 1;
    out_json(&line);
}

void disk_report_json(const struct disk_report *report)
{
    each(report, NULL, json_one);
}

static void print_times(FILE *to, const struct cell *cell, enum disk_metric metric)
{
    if (cell->ours)
        fprintf(to, " %6.2fx", median(cell->ours, metric) / median(cell->result, metric));
    else
        fprintf(to, " %7s", "-");
}

static void table_one(FILE *to, const struct cell *cell)
{
    const struct disk_result *result = cell->result;
    fprintf(to, "  %-15s %-9s", cell->report->ops[cell->peer]->name,
            cell->report->setting[cell->setting]);
    if (!result->measured) {
        fprintf(to, " not measured: %s\n", result->reason);
        return;
    }
    fprintf(to, " %6.2f", median(result, D_PUT) / GB);
    print_times(to, cell, D_PUT);
    fprintf(to, " %8.1f %7.3f %6.2f", (double)lat_quantile_ns(&result->put, .99) * 1e-6,
            median(result, D_PUT_CPU), median(result, D_AMPLIFICATION));
    fprintf(to, "  %6.2f", median(result, D_GET) / GB);
    print_times(to, cell, D_GET);
    fprintf(to, " %8.1f %7.3f", (double)lat_quantile_ns(&result->get, .99) * 1e-6,
            median(result, D_GET_CPU));
    if (median(result, D_MISSED) > 0)
        fprintf(to, "  %.1f %% evicted before", 100 * median(result, D_MISSED));
    fputc('\n', to);
}

void disk_report_table(FILE *to, const struct disk_report *report)
{
    const struct disk_plan *plan = report->plan;
    char size[UNITS_TEXT_BYTES], memory[UNITS_TEXT_BYTES], all[UNITS_TEXT_BYTES];
    fprintf(to, "\nBlocks of %s, %s of them kept, %s of memory for each (%s), %u threads\n",
            units_format_bytes(plan->block_bytes, size),
            units_format_bytes(plan->blocks * plan->block_bytes, all),
            units_format_bytes(plan->memory, memory), plan->cgroup ? "a cgroup" : "no cgroup",
            plan->threads);
    fprintf(to, "  %-25s %14s %8s %7s %6s  %14s %8s %7s\n", "", "put GB/s  ours", "p99 ms", "s/GB",
            "ampl.", "get GB/s  ours", "p99 ms", "s/GB");
    each(report, to, table_one);
    fputs("\nSettings\n", to);
    for (size_t i = 0; i < DISK_PEERS; i++) {
        if (report->wanted[i] && report->ops[i]->settings)
            fprintf(to, "  %s: %s\n", report->ops[i]->name, report->ops[i]->settings);
    }
    fflush(to);
}
