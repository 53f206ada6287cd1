/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "out.h"
#include "replay_report.h"
#include "stdfds.h"
#include "units.h"

static double replay_hit_ratio(const struct replay_result *result)
{
    const struct replay_counts *counts = &result->tally.counts;
    return counts->accesses ? (double)counts->hits / (double)counts->accesses : 0;
}

/* Blocks hit that had to be read from storage; the others were in memory. */
static uint64_t replay_nvme_hits(const struct replay_result *result)
{
    uint64_t loaded = result->tally.storage.loaded_blocks, hits = result->tally.counts.hits;
    return loaded < hits ? loaded : hits;
}

/* All bytes written, by the payload bytes that went to storage. */
static double write_amplification(const struct replay_result *result)
{
    const struct replay_storage *storage = &result->tally.storage;
    double written = (double)(storage->written_bytes + storage->journal_bytes);
    return storage->accepted_bytes ? written / (double)storage->accepted_bytes : 0;
}

static double prefill_saved_s(const struct replay_result *result)
{
    return (double)result->tally.counts.reused_tokens * result->prefill_us_per_token * 1e-6;
}

static double bytes_per_s(const struct replay_result *result)
{
    const struct replay_counts *counts = &result->tally.counts;
    double bytes = (double)counts->stored_bytes + (double)counts->loaded_bytes;
    return result->seconds > 0 ? bytes / result->seconds : 0;
}

static void replay_report_metric(const struct replay_result *result, const char *name, double value,
                                 const char *unit)
{
    struct out_metric line = {
        .bench = "replay",
        .keys = {{.key = "capacity", .text = result->capacity},
                 {.key = "policy", .text = result->policy},
                 {.key = "workers", .number = result->workers},
                 {.key = "block_bytes", .number = result->block_bytes},
                 {.key = "capacity_blocks", .number = result->capacity_blocks}},
        .metric = name,
        .value = value,
        .unit = unit};
    struct out_key *further = &line.keys[5];
    if (result->nvme_blocks)
        *further++ = (struct out_key){.key = "nvme_blocks", .number = result->nvme_blocks};
    if (result->hbm_blocks)
        *further = (struct out_key){.key = "hbm_blocks", .number = result->hbm_blocks};
    if (strcmp(name, "disk_bytes_max") == 0) {
        line.limit_what = "nvme.limit";
        line.limit = (double)result->nvme_limit;
        line.ratio = value / line.limit;
    }
    out_json(&line);
}

static void storage_metrics(const struct replay_result *result)
{
    const struct replay_storage *storage = &result->tally.storage;
    uint64_t hits = replay_nvme_hits(result);
    replay_report_metric(result, "host_hits", (double)(result->tally.counts.hits - hits), "1");
    replay_report_metric(result, "nvme_hits", (double)hits, "1");
    replay_report_metric(result, "disk_bytes_max", (double)storage->disk_bytes_max, "B");
    replay_report_metric(result, "disk_samples", (double)storage->samples, "1");
    replay_report_metric(result, "journal_bytes_max", (double)storage->other_bytes_max, "B");
    replay_report_metric(result, "nvme_accepted_bytes", (double)storage->accepted_bytes, "B");
    replay_report_metric(result, "nvme_kept_bytes", (double)storage->kept_bytes, "B");
    replay_report_metric(result, "write_amplification", write_amplification(result), "1");
}

static void device_metrics(const struct replay_result *result)
{
    const struct replay_counts *counts = &result->tally.counts;
    const struct replay_hbm *hbm = &result->tally.hbm;
    replay_report_metric(result, "page_blocks", (double)counts->page_blocks, "1");
    replay_report_metric(result, "hbm_blocks", (double)counts->hbm_blocks, "1");
    replay_report_metric(result, "not_loaded_blocks", (double)counts->not_loaded, "1");
    replay_report_metric(result, "hbm_hits", (double)hbm->hits, "1");
    replay_report_metric(result, "hbm_only_hits", (double)hbm->only_hits, "1");
    replay_report_metric(result, "hbm_fills", (double)hbm->fills, "1");
    replay_report_metric(result, "hbm_drops", (double)hbm->drops, "1");
    replay_report_metric(result, "device_copies", (double)hbm->copies, "1");
    replay_report_metric(result, "device_copy_bytes", (double)hbm->copy_bytes, "B");
    replay_report_metric(result, "device_failures", (double)(hbm->failures + hbm->outs), "1");
}

static void latency_metrics(const struct replay_result *result, const char *name,
                            const struct lat *lat)
{
    char text[32];
    snprintf(text, sizeof(text), "%s_p50", name);
    replay_report_metric(result, text, (double)lat_quantile_ns(lat, 0.50) * 1e-9, "s");
    snprintf(text, sizeof(text), "%s_p99", name);
    replay_report_metric(result, text, (double)lat_quantile_ns(lat, 0.99) * 1e-9, "s");
}

void replay_report_json(const struct replay_result *result)
{
    const struct replay_counts *counts = &result->tally.counts;
    replay_report_metric(result, "hit_ratio", replay_hit_ratio(result), "1");
    replay_report_metric(result, "wrong_bytes", (double)counts->wrong_bytes, "B");
    replay_report_metric(result, "requests", (double)counts->requests, "1");
    replay_report_metric(result, "block_accesses", (double)counts->accesses, "1");
    replay_report_metric(result, "block_hits", (double)counts->hits, "1");
    replay_report_metric(result, "stored_bytes", (double)counts->stored_bytes, "B");
    replay_report_metric(result, "loaded_bytes", (double)counts->loaded_bytes, "B");
    replay_report_metric(result, "bytes_per_s", bytes_per_s(result), "B/s");
    replay_report_metric(result, "seconds", result->seconds, "s");
    latency_metrics(result, "lookup", &result->tally.lookup);
    latency_metrics(result, "acquire", &result->tally.acquire);
    latency_metrics(result, "store", &result->tally.store);
    replay_report_metric(result, "reused_tokens", (double)counts->reused_tokens, "1");
    replay_report_metric(result, "prefill_saved", prefill_saved_s(result), "s");
    replay_report_metric(result, "stale", (double)counts->stale, "1");
    replay_report_metric(result, "stored_already_blocks", (double)counts->stored_already, "1");
    replay_report_metric(result, "refused_full_blocks", (double)counts->refused_full, "1");
    replay_report_metric(result, "not_worth_blocks", (double)counts->refused_not_worth, "1");
    replay_report_metric(result, "refused_other_blocks", (double)counts->refused_other, "1");
    replay_report_metric(result, "lookup_differs", (double)counts->lookup_differs, "1");
    if (result->nvme_blocks)
        storage_metrics(result);
    if (result->hbm_blocks)
        device_metrics(result);
}

__attribute__((format(printf, 2, 3))) static void row(const char *name, const char *format, ...)
{
    char value[128];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof(value), format, args);
    va_end(args);
    printf("  %-26s %s\n", name, value);
}

static void row_latency(const char *name, const struct lat *lat)
{
    char median[UNITS_TEXT_BYTES], tail[UNITS_TEXT_BYTES];
    row(name, "%s median, %s at the 99th percentile",
        units_format_duration_ns(lat_quantile_ns(lat, 0.50), median),
        units_format_duration_ns(lat_quantile_ns(lat, 0.99), tail));
}

/* Rows about unusual events only; no row means that none happened. */
static void rows_of_trouble(const struct replay_counts *counts)
{
    char n[UNITS_COUNT_BYTES];
    if (counts->stored_already)
        row("stored by another worker", "%s blocks", units_format_count(counts->stored_already, n));
    if (counts->refused_full)
        row("found no room", "%s blocks", units_format_count(counts->refused_full, n));
    if (counts->refused_not_worth)
        row("not worth their room", "%s blocks", units_format_count(counts->refused_not_worth, n));
    if (counts->refused_other)
        row("store refused", "%s blocks", units_format_count(counts->refused_other, n));
    if (counts->stale)
        row("reads discarded as stale", "%s", units_format_count(counts->stale, n));
}

static void rows_of_storage(const struct replay_result *result)
{
    const struct replay_storage *storage = &result->tally.storage;
    char a[UNITS_COUNT_BYTES], b[UNITS_COUNT_BYTES], most[UNITS_TEXT_BYTES];
    char limit[UNITS_TEXT_BYTES], other[UNITS_TEXT_BYTES], kept[UNITS_TEXT_BYTES];
    uint64_t hits = replay_nvme_hits(result);
    row("hits by tier", "%s blocks in memory, %s read from storage",
        units_format_count(result->tally.counts.hits - hits, a), units_format_count(hits, b));
    row("store on disk", "%s at most in %s samples, limit %s; journal %s",
        units_format_bytes(storage->disk_bytes_max, most), units_format_count(storage->samples, a),
        units_format_bytes(result->nvme_limit, limit),
        units_format_bytes(storage->other_bytes_max, other));
    row("written to it", "%s of payload, %.3f bytes for each; %s again by reclaim",
        units_format_bytes(storage->accepted_bytes, most), write_amplification(result),
        units_format_bytes(storage->kept_bytes, kept));
}

static void rows_of_device(const struct replay_result *result)
{
    const struct replay_counts *counts = &result->tally.counts;
    const struct replay_hbm *hbm = &result->tally.hbm;
    char a[UNITS_COUNT_BYTES], b[UNITS_COUNT_BYTES], c[UNITS_COUNT_BYTES], size[UNITS_TEXT_BYTES];
    row("of the device", "%s blocks, %s of slots in use at the end",
        units_format_count(result->hbm_blocks, a), units_format_bytes(hbm->used_bytes, size));
    row("read there", "%s blocks loaded into pages, %s read in place in slots",
        units_format_count(counts->page_blocks, a), units_format_count(counts->hbm_blocks, b));
    row("slots", "%s hits, %s fills, %s dropped", units_format_count(hbm->hits, a),
        units_format_count(hbm->fills, b), units_format_count(hbm->drops, c));
    if (hbm->only_hits)
        row("in slots alone", "%s blocks were read there instead of loaded from storage",
            units_format_count(hbm->only_hits, a));
    row("copied by the device", "%s in %s copies", units_format_bytes(hbm->copy_bytes, size),
        units_format_count(hbm->copies, a));
    if (counts->not_loaded)
        row("did not come into pages", "%s blocks", units_format_count(counts->not_loaded, a));
    if (hbm->failures + hbm->outs)
        row("failures of the device", "%s, out %s times", units_format_count(hbm->failures, a),
            units_format_count(hbm->outs, b));
}

static void report_full(const struct replay_result *result)
{
    const struct replay_counts *counts = &result->tally.counts;
    char a[UNITS_COUNT_BYTES], b[UNITS_COUNT_BYTES], size[UNITS_TEXT_BYTES];
    char rate[UNITS_TEXT_BYTES], saved[UNITS_TEXT_BYTES];

    printf("\nReplay, %u worker%s, blocks of %s, policy %s\n\n", result->workers,
           result->workers == 1 ? "" : "s", units_format_bytes(result->block_bytes, size),
           result->policy);
    if (result->capacity_blocks) {
        uint64_t bytes = result->capacity_blocks * result->block_bytes;
        row("capacity", "%s: %s blocks, %s", result->capacity,
            units_format_count(result->capacity_blocks, a), units_format_bytes(bytes, size));
    }
    if (result->nvme_blocks)
        row("of storage", "%s blocks, %s with all that the store needs",
            units_format_count(result->nvme_blocks, a),
            units_format_bytes(result->nvme_limit, size));
    row("requests", "%s in %.1f s", units_format_count(counts->requests, a), result->seconds);
    row("hit ratio", "%.4f (%s of %s blocks)", replay_hit_ratio(result),
        units_format_count(counts->hits, a), units_format_count(counts->accesses, b));
    if (result->nvme_blocks)
        rows_of_storage(result);
    if (result->hbm_blocks)
        rows_of_device(result);
    row("stored", "%s", units_format_bytes(counts->stored_bytes, size));
    row("loaded", "%s, every byte checked", units_format_bytes(counts->loaded_bytes, size));
    row("throughput", "%s stored and loaded, making and checking the contents included",
        units_format_rate((uint64_t)bytes_per_s(result), rate));
    row_latency("lookup", &result->tally.lookup);
    row_latency("acquire", &result->tally.acquire);
    row_latency("store of a batch", &result->tally.store);
    row("prompt tokens reused", "%s of %s", units_format_count(counts->reused_tokens, a),
        units_format_count(counts->input_tokens, b));
    row("prefill time saved", "%s of GPU time, at %g us per token (stated, not measured)",
        units_format_duration_ns((uint64_t)(prefill_saved_s(result) * 1e9), saved),
        result->prefill_us_per_token);
    rows_of_trouble(counts);
    row("wrong bytes", "%" PRIu64, counts->wrong_bytes);
    putchar('\n');
}

static void report_rows(const struct replay_result *results, size_t n)
{
    printf("\n  %-14s %10s %9s %10s %10s %13s %11s %11s\n", "capacity", "blocks", "hit ratio",
           "stored", "loaded", "throughput", "acquire p50", "wrong bytes");
    for (size_t i = 0; i < n; i++) {
        const struct replay_counts *counts = &results[i].tally.counts;
        char blocks[UNITS_COUNT_BYTES], stored[UNITS_TEXT_BYTES], loaded[UNITS_TEXT_BYTES];
        char rate[UNITS_TEXT_BYTES], acquire[UNITS_TEXT_BYTES];
        uint64_t acquire_ns = lat_quantile_ns(&results[i].tally.acquire, 0.50);
        printf("  %-14s %10s %9.4f %10s %10s %13s %11s %11" PRIu64 "\n", results[i].capacity,
               units_format_count(results[i].capacity_blocks, blocks),
               replay_hit_ratio(&results[i]), units_format_bytes(counts->stored_bytes, stored),
               units_format_bytes(counts->loaded_bytes, loaded),
               units_format_rate((uint64_t)bytes_per_s(&results[i]), rate),
               units_format_duration_ns(acquire_ns, acquire), counts->wrong_bytes);
    }
    putchar('\n');
}

void replay_report_table(const struct replay_result *results, size_t n)
{
    if (n == 1)
        report_full(&results[0]);
    else
        report_rows(results, n);
    (void)stdfds_flush();
}
