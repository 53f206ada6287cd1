/* SPDX-License-Identifier: Apache-2.0 */
#include "simulate_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "out.h"
#include "units.h"

static double per_access(const struct sim_result *result, uint64_t n)
{
    return (double)n / (double)result->counts.accesses;
}

double sim_hit_ratio(const struct sim_result *result)
{
    return per_access(result, result->counts.host_hits + result->counts.nvme_hits);
}

static double writes_per_access(const struct sim_result *result)
{
    return per_access(result, result->counts.nvme_written + result->counts.nvme_rewritten);
}

static double accesses_per_s(const struct sim_result *result)
{
    return result->cpu_s > 0 ? (double)result->counts.accesses / result->cpu_s : 0;
}

static void simulate_report_metric(const struct sim_result *result, const char *name, double value,
                                   const char *unit)
{
    struct out_metric line = {.bench = "simulate",
                              .keys = {{.key = "policy", .text = result->policy},
                                       {.key = "capacity", .text = result->capacity},
                                       {.key = "capacity_blocks", .number = result->host_blocks}},
                              .metric = name,
                              .value = value,
                              .unit = unit};
    size_t n = 3;
    if (result->nvme_blocks)
        line.keys[n++] = (struct out_key){.key = "nvme_blocks", .number = result->nvme_blocks};
    if (result->hints)
        line.keys[n++] = (struct out_key){.key = "hints", .text = result->hints};
    out_json(&line);
}

void sim_report_json(const struct sim_result *result)
{
    const struct sim_counts *counts = &result->counts;
    simulate_report_metric(result, "hit_ratio", sim_hit_ratio(result), "1");
    if (result->nvme_blocks) {
        simulate_report_metric(result, "host_hit_ratio", per_access(result, counts->host_hits),
                               "1");
        simulate_report_metric(result, "nvme_hit_ratio", per_access(result, counts->nvme_hits),
                               "1");
        simulate_report_metric(result, "nvme_writes_per_access", writes_per_access(result), "1");
        simulate_report_metric(result, "nvme_first_writes_per_access",
                               per_access(result, counts->nvme_written), "1");
        simulate_report_metric(result, "nvme_rewrites_per_access",
                               per_access(result, counts->nvme_rewritten), "1");
    }
    simulate_report_metric(result, "token_hit_ratio", result->times.token_hit_ratio, "1");
    simulate_report_metric(result, "time_hit_ratio", result->times.time_hit_ratio, "1");
    simulate_report_metric(result, "ttft_mean", result->times.mean_s, "s");
    simulate_report_metric(result, "ttft_p50", result->times.p50_s, "s");
    simulate_report_metric(result, "ttft_p95", result->times.p95_s, "s");
    simulate_report_metric(result, "ttft_p99", result->times.p99_s, "s");
    simulate_report_metric(result, "refused_blocks", (double)counts->no_room, "1");
    simulate_report_metric(result, "not_worth_blocks", (double)counts->not_worth, "1");
    simulate_report_metric(result, "accesses_per_s", accesses_per_s(result), "1/s");
}

/* Columns as wide as their cells, and columns that some tables lack. */
struct layout {
    int policy, capacity;
    bool nvme, hints;
    bool losses; /* some hits cost more than computing them; not a column */
};

static int wider(int width, const char *text)
{
    const int n = (int)strlen(text);
    return n > width ? n : width;
}

static struct layout layout_of(const struct sim_result *results, size_t n)
{
    struct layout layout = {.policy = 9, .capacity = 18};
    for (size_t i = 0; i < n; i++) {
        layout.policy = wider(layout.policy, results[i].policy);
        layout.capacity = wider(layout.capacity, results[i].capacity);
        layout.nvme |= results[i].nvme_blocks > 0;
        layout.hints |= results[i].hints != NULL;
        layout.losses |= results[i].times.time_hit_ratio < 0;
    }
    return layout;
}

/* A number for a column of so many characters, whatever its size. */
struct cell {
    char text[16];
};

/* In six characters: reading may cost many times what computing does. */
static struct cell saved(double ratio)
{
    struct cell cell;
    snprintf(cell.text, sizeof(cell.text), ratio >= 0 ? "%.4f" : "%.3f", ratio);
    if (ratio < -9.9994)
        snprintf(cell.text, sizeof(cell.text), "<-9.99");
    return cell;
}

/* In eight characters. */
static struct cell seconds(double s)
{
    struct cell cell;
    snprintf(cell.text, sizeof(cell.text), s < 9999.9994 ? "%.3f" : "%.2e", s);
    return cell;
}

static void row(const struct layout *layout, const struct sim_result *r)
{
    printf("%-*s %-*s %9" PRIu64 "  %6.4f %6.4f %6s  %8s %8s %8s %8s  %7.2f", layout->policy,
           r->policy, layout->capacity, r->capacity, r->host_blocks + r->nvme_blocks,
           sim_hit_ratio(r), r->times.token_hit_ratio, saved(r->times.time_hit_ratio).text,
           seconds(r->times.mean_s).text, seconds(r->times.p50_s).text,
           seconds(r->times.p95_s).text, seconds(r->times.p99_s).text, accesses_per_s(r) * 1e-6);
    if (layout->nvme)
        printf("  %5.3f  %5.3f   %5.3f  %5.3f", per_access(r, r->counts.host_hits),
               per_access(r, r->counts.nvme_hits), writes_per_access(r),
               per_access(r, r->counts.nvme_rewritten));
    if (layout->hints)
        printf("  %s", r->hints ? r->hints : "-");
    putchar('\n');
}

void sim_report_table(const struct sim_result *results, size_t n)
{
    const struct layout layout = layout_of(results, n);
    printf("%-*s %-*s %9s  %6s %6s %6s  %8s %8s %8s %8s  %7s%s%s\n", layout.policy, "policy",
           layout.capacity, "capacity", "blocks", "hits", "tokens", "time", "TTFT", "p50 s",
           "p95 s", "p99 s", "M/s", layout.nvme ? "   host   nvme  writes  again" : "",
           layout.hints ? "  hints" : "");
    for (size_t i = 0; i < n; i++)
        row(&layout, &results[i]);
    puts("\nhits, tokens, time: the part of blocks, of prompt tokens, of the time without a cache "
         "that is saved\nTTFT: simulated mean, in seconds; --help says how");
    if (layout.losses)
        puts("time below 0: with this --cost, reading what hits takes longer than computing it");
    if (layout.hints)
        puts("hints: what workers say of their chains; -: the policy does not heed it");
    if (layout.nvme)
        puts(
            "writes, again: blocks written to NVMe for each block accessed, and those of them that "
            "reclaim wrote");
}

static void decision_metric(const char *policy, uint64_t blocks, const char *name, double ns)
{
    const struct out_metric line = {
        .bench = "simulate",
        .keys = {{.key = "policy", .text = policy}, {.key = "capacity_blocks", .number = blocks}},
        .metric = name,
        .value = ns * 1e-9,
        .unit = "s"};
    out_json(&line);
}

void sim_report_decisions(const char *policy, uint64_t blocks,
                          const struct sim_decisions *decisions, bool json)
{
    const struct lat *lat = &decisions->lat;
    const double mean = lat->count ? (double)decisions->ns / (double)lat->count : 0;
    const double p50 = (double)lat_quantile_ns(lat, 0.5), p99 = (double)lat_quantile_ns(lat, 0.99);
    if (json) {
        decision_metric(policy, blocks, "decision_mean", mean);
        decision_metric(policy, blocks, "decision_p50", p50);
        decision_metric(policy, blocks, "decision_p99", p99);
        return;
    }
    printf("%-9s %9" PRIu64 " blocks, %9" PRIu64 " evicted: %6.0f ns each (p50 %.0f, p99 %.0f)\n",
           policy, blocks, lat->count, mean, p50, p99);
}
