/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcachebench scan: how much each policy keeps of a hot set that pauses while new blocks pass
 * through.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "out.h"
#include "simulate.h"

#define SIZES_MAX 8
#define COLUMNS   16

static const char help[] =
    "Usage: kvcachebench scan [OPTIONS]\n"
    "\n"
    "A hot set is asked for again and again, pauses while new blocks stream through memory, and is "
    "asked for once more: how much of it is still there, by eviction policy, without a daemon. "
    "Four scans: one stream; many streams; bursts; a stream of which a third is asked for again.\n"
    "\n" ARGS_HERE "\n"
    "Pauses of 0.2, 2, 20 and 200 seconds; scans of 2, 4 and 20 times the memory.\n"
    "\n"
    "Example:\n"
    "  kvcachebench scan --hot 256MiB\n";

static const uint32_t pauses_ms[] = {200, 2000, 20000, 200000}, times[] = {2, 4, 20};
enum {
    PAUSES = sizeof(pauses_ms) / sizeof(pauses_ms[0]),
    TIMES = sizeof(times) / sizeof(times[0])
};

struct scan {
    uint64_t memory, hot, chain;
    uint64_t block_bytes[SIZES_MAX];
    size_t sizes;
    double active_s;
    bool asked, admit_all, json;
};

/* ---- one case ---- */

/* Names the columns: the daemon's policies, then the published ones. */
static const char *column_at(unsigned i, const struct policy_ops **ret_ops)
{
    unsigned ours = 0;
    while (policy_at(ours))
        ours++;
    *ret_ops = i < ours ? policy_at(i) : NULL;
    return *ret_ops ? (*ret_ops)->name : sim_published_at(i - ours);
}

static int case_run(const struct scan *s, const struct sim_forest *forest, unsigned column,
                    uint32_t room, struct sim_hit *hits)
{
    struct sim_config config = {.host_blocks = room,
                                .block_bytes = (uint32_t)(s->memory / room),
                                .seed = 1,
                                .admit_all = s->admit_all};
    struct sim_counts counts;
    const char *name = column_at(column, &config.ops);
    return config.ops ? sim_run(forest, &config, hits, &counts)
                      : sim_published(forest, name, room, hits, &counts);
}

/* Measures for each column the part of the hot set that is left. */
static int case_left(const struct scan *s, const struct sim_scan *scan, uint32_t room,
                     double ret_left[COLUMNS])
{
    struct trace *trace = NULL;
    struct sim_forest *forest = NULL;
    struct sim_hit *hits = NULL;
    const struct policy_ops *ops;
    size_t after = 0;
    int rc = sim_scan(scan, &trace, &after);
    if (rc == 0)
        rc = sim_forest_create(trace, &forest);
    if (rc == 0) {
        hits = calloc(trace->n_requests, sizeof(*hits));
        rc = hits ? 0 : -ENOMEM;
    }
    for (unsigned i = 0; rc == 0 && i < COLUMNS && column_at(i, &ops); i++) {
        rc = case_run(s, forest, i, room, hits);
        uint64_t left = 0;
        for (size_t r = after; rc == 0 && r < trace->n_requests; r++)
            left += hits[r].host;
        ret_left[i] = (double)left / scan->hot;
    }
    free(hits);
    sim_forest_destroy(&forest);
    trace_destroy(&trace);
    return rc;
}

/* ---- report ---- */

static void scan_report_json(const struct scan *s, const struct sim_scan *scan,
                             unsigned times_memory, const double *left)
{
    const struct policy_ops *ops;
    const char *name;
    for (unsigned i = 0; i < COLUMNS && (name = column_at(i, &ops)); i++)
        out_json(&(struct out_metric){.bench = "scan",
                                      .keys = {{.key = "scan", .text = sim_scan_name(scan->kind)},
                                               {.key = "policy", .text = name},
                                               {.key = "block_bytes", .number = s->hot / scan->hot},
                                               {.key = "pause_ms", .number = scan->pause_ms},
                                               {.key = "times_memory", .number = times_memory}},
                                      .metric = "hot_left",
                                      .value = left[i],
                                      .unit = "1"});
}

static void report_names(void)
{
    const struct policy_ops *ops;
    const char *name;
    printf("%-8s %8s %7s %5s", "scan", "block", "pause", "times");
    for (unsigned i = 0; i < COLUMNS && (name = column_at(i, &ops)); i++)
        printf(" %*s", (int)(strlen(name) > 10 ? strlen(name) - 10 : 7),
               ops ? name : name + strlen("published-"));
    putchar('\n');
}

static void report_row(const struct scan *s, const struct sim_scan *scan, unsigned times_memory,
                       const double *left)
{
    const struct policy_ops *ops;
    const char *name;
    printf("%-8s %7" PRIu64 "K %6.1fs %4ux", sim_scan_name(scan->kind), (s->hot / scan->hot) >> 10,
           scan->pause_ms * 1e-3, times_memory);
    for (unsigned i = 0; i < COLUMNS && (name = column_at(i, &ops)); i++)
        printf(" %*.3f", (int)(strlen(name) > 10 ? strlen(name) - 10 : 7), left[i]);
    putchar('\n');
}

/* ---- the command ---- */

static int scan_all(const struct scan *s, enum sim_scan_kind kind, uint64_t block_bytes)
{
    double left[COLUMNS];
    const uint32_t room = (uint32_t)(s->memory / block_bytes);
    for (unsigned p = 0; p < PAUSES; p++)
        for (unsigned v = 0; v < TIMES; v++) {
            const struct sim_scan scan = {.kind = kind,
                                          .hot = (uint32_t)(s->hot / block_bytes),
                                          .volume = room * times[v],
                                          .chain = (uint32_t)s->chain,
                                          .active_ms = (uint32_t)(s->active_s * 1e3),
                                          .pause_ms = pauses_ms[p],
                                          .stored = !s->asked};
            const int rc = case_left(s, &scan, room, left);
            if (rc < 0) {
                say_error("%s", strerror(-rc));
                return BENCH_FAILED;
            }
            (s->json ? scan_report_json : report_row)(s, &scan, times[v], left);
        }
    return BENCH_OK;
}

static int scan_take_sizes(void *ctx, const char *text)
{
    struct scan *s = ctx;
    return opt_bytes_list("block-bytes", text, s->block_bytes, SIZES_MAX, &s->sizes);
}

static const struct arg option_table[] = {
    {"--memory SIZE", "host memory (default 512MiB)",
     ARG_BYTES(struct scan, memory, 1 << 20, UINT64_C(1) << 34)},
    {"--hot SIZE", "the hot set (default 64MiB)",
     ARG_BYTES(struct scan, hot, 1 << 20, UINT64_C(1) << 34)},
    {"--block-bytes LIST", "(default 64KiB,256KiB,2MiB)", ARG_DO(scan_take_sizes)},
    {"--active S", "seconds for which the hot set is asked for (default 2)",
     ARG_NUMBER(struct scan, active_s, 0, 3600)},
    {"--chain N", "blocks of a chain, at most (default 32)",
     ARG_COUNT(struct scan, chain, 1, 4096)},
    {"--asked", "the scan asks for its blocks before it stores them", ARG_FLAG(struct scan, asked)},
    {"--admit-all", "every block comes in, whatever it is worth (policy.admission: false)",
     ARG_FLAG(struct scan, admit_all)},
    {"--json", "one JSON object per line on stdout, nothing else there",
     ARG_FLAG(struct scan, json)},
    {0},
};

static int scan_check(const struct scan *s)
{
    if (s->hot > s->memory)
        return say_usage("--hot must be at most --memory: else no policy can keep it");
    for (size_t i = 0; i < s->sizes; i++)
        if (s->block_bytes[i] < 4096 || s->block_bytes[i] > s->hot)
            return say_usage("--block-bytes: each must be from 4KiB to the size of --hot");
    return 0;
}

int cmd_scan(int argc, char **argv)
{
    struct scan s = {.memory = 512u << 20,
                     .hot = 64u << 20,
                     .chain = 32,
                     .block_bytes = {64u << 10, 256u << 10, 2u << 20},
                     .sizes = 3,
                     .active_s = 2};
    int rc = opt_take_only(argc, argv, option_table, help, &s);
    if (rc == 0)
        rc = scan_check(&s);
    if (rc != 0)
        return rc < 0 ? BENCH_OK : rc;
    if (!s.json)
        report_names();
    for (unsigned kind = 0; rc == 0 && kind < SIM_SCAN_KINDS; kind++)
        for (size_t i = 0; rc == 0 && i < s.sizes; i++)
            rc = scan_all(&s, (enum sim_scan_kind)kind, s.block_bytes[i]);
    return rc;
}
