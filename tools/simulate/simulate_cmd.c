/* SPDX-License-Identifier: Apache-2.0 */
/* kvcachebench simulate: takes the options, and runs each policy at each capacity. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvcache/proto.h>

#include "admit.h"
#include "capacity.h"
#include "known_model.h"
#include "simulate.h"
#include "simulate_cost.h"
#include "simulate_report.h"

#define POLICIES_MAX 16
#define BELADY       "belady"
#define PUBLISHED    "published"
#define SOON_S       60.0 /* time that 'soon' means, unless the option has one */
#define SOON_MIN_S   0.001
#define SOON_MAX_S   4e6 /* 32 bits of milliseconds */
#define KEEP_UNASKED UINT64_MAX

static const char help[] =
    "Usage: kvcachebench simulate TRACE [OPTIONS]\n"
    "       kvcachebench simulate --decisions N [--policy LIST] [--json]\n"
    "\n"
    "Runs a request trace (Mooncake's JSONL form, or what 'kvcachectl trace dump' wrote) through "
    "the daemon's own core and policies, without a daemon, and says how much would have hit. It "
    "answers questions like \"what would twice the host memory give me?\"; see the last example.\n"
    "\n" ARGS_HERE "\n"
    "Exit codes: 0 good, 2 usage, 5 other.\n"
    "\n"
    "Examples:\n"
    "  kvcachebench simulate conversation_trace.jsonl --policy default,lru,belady --svg hits.svg\n"
    "  kvcachebench simulate conversation_trace.jsonl --capacity host=1%,nvme=10% --write-budget "
    "0.4\n"
    "  kvcachebench simulate monday.jsonl --block-tokens 16 --block-bytes 2MiB --capacity "
    "64GiB,128GiB\n";

struct args {
    const char *path, *svg, *hints_text;
    const struct known_model *model;
    char policies[256]; /* split at its commas */
    const char *policy[POLICIES_MAX];
    size_t n_policies;
    struct capacity capacity[CAPACITY_LIST_MAX];
    size_t n_capacities;
    struct sim_hints hints;
    struct sim_cost cost;
    uint64_t block_bytes, block_tokens, requests, seed, keep_percent, decisions;
    double write_budget;
    bool keep_asked, cost_asked, admit_all, json;
};

/* ---- options ---- */

static bool is_published(const char *name)
{
    for (unsigned i = 0; sim_published_at(i); i++)
        if (strcmp(sim_published_at(i), name) == 0)
            return true;
    return false;
}

static bool heeds_hints(const char *name)
{
    const struct policy_ops *ops = policy_by_name(name);
    return ops && ops->advise;
}

static bool judges(const char *name)
{
    const struct policy_ops *ops = policy_by_name(name);
    return ops && ops->admits;
}

static int add_policy(struct args *args, const char *name)
{
    if (args->n_policies == POLICIES_MAX)
        return say_usage("--policy: at most %d of them", POLICIES_MAX);
    args->policy[args->n_policies++] = name;
    return 0;
}

static int take_policy(struct args *args, const char *name)
{
    if (strcmp(name, PUBLISHED) == 0) {
        int rc = 0;
        for (unsigned i = 0; rc == 0 && sim_published_at(i); i++)
            rc = add_policy(args, sim_published_at(i));
        return rc;
    }
    if (strcmp(name, BELADY) == 0 || policy_by_name(name) || is_published(name))
        return add_policy(args, name);
    char all[512] = "default";
    for (unsigned i = 0; policy_at(i); i++)
        snprintf(all + strlen(all), sizeof(all) - strlen(all), ", %s", policy_at(i)->name);
    for (unsigned i = 0; sim_published_at(i); i++)
        snprintf(all + strlen(all), sizeof(all) - strlen(all), ", %s", sim_published_at(i));
    return say_usage("--policy: '%s' is none of %s, " PUBLISHED ", " BELADY, name, all);
}

static int take_policies(void *ctx, const char *text)
{
    struct args *args = ctx;
    if ((size_t)snprintf(args->policies, sizeof(args->policies), "%s", text) >=
        sizeof(args->policies))
        return say_usage("--policy: the list is too long");
    char *rest = args->policies;
    args->n_policies = 0;
    int rc = 0;
    for (char *name = strsep(&rest, ","); rc == 0 && name; name = strsep(&rest, ","))
        rc = take_policy(args, name);
    return rc;
}

static int take_capacity(void *ctx, const char *text)
{
    struct args *args = ctx;
    char why[CAPACITY_WHY_BYTES];
    if (capacity_parse_list(text, why, args->capacity, &args->n_capacities) < 0)
        return say_usage("--capacity: %s", why);
    if (args->capacity[0].has_hbm)
        return say_usage("--capacity %s: the simulation has no GPU memory; leave hbm= away", text);
    return 0;
}

static bool hint_kind(const char *name, size_t n, enum policy_advice *ret_kind)
{
    static const char *const names[POLICY_ADVICE_COUNT] = {[POLICY_ADVICE_ENDED] = "ended",
                                                           [POLICY_ADVICE_CONTINUE] = "continue",
                                                           [POLICY_ADVICE_SOON] = "soon",
                                                           [POLICY_ADVICE_SCAN] = "scan"};
    for (unsigned i = 0; i < POLICY_ADVICE_COUNT; i++) {
        if (!names[i] || strlen(names[i]) != n || memcmp(name, names[i], n) != 0)
            continue;
        *ret_kind = (enum policy_advice)i;
        return true;
    }
    return false;
}

/* Takes KIND:Q or, with soon, KIND:Q,SECONDS. */
static int take_hints(void *ctx, const char *text)
{
    struct args *args = ctx;
    const char *colon = strchr(text, ':'), *comma = colon ? strchr(colon, ',') : NULL;
    if (!colon || !hint_kind(text, (size_t)(colon - text), &args->hints.kind))
        return say_usage("--hints '%s': must be ended:Q, continue:Q, soon:Q or scan:Q, as in "
                         "ended:0.9",
                         text);
    if (comma && args->hints.kind != POLICY_ADVICE_SOON)
        return say_usage("--hints '%s': only soon has a time, as in soon:0.9,30", text);
    char right[32];
    const int n = comma ? (int)(comma - colon) - 1 : (int)strlen(colon + 1);
    double seconds = SOON_S;
    if ((size_t)snprintf(right, sizeof(right), "%.*s", n, colon + 1) >= sizeof(right) ||
        !args_is_number(right, 0, 1, &args->hints.right))
        return say_usage("--hints '%s': how often they are right must be a number between 0 and 1, "
                         "as in %.*s:0.9",
                         text, (int)(colon - text), text);
    if (comma && !args_is_number(comma + 1, SOON_MIN_S, SOON_MAX_S, &seconds))
        return say_usage("--hints '%s': how soon must be a number of seconds between %g and %.0f, "
                         "as in soon:0.9,30",
                         text, SOON_MIN_S, SOON_MAX_S);
    args->hints.within_ms = (uint32_t)(seconds * 1e3 + 0.5);
    args->hints_text = text;
    return 0;
}

static int take_model(void *ctx, const char *name)
{
    struct args *args = ctx;
    args->model = known_model_by_name(name);
    return args->model ? 0
                       : say_usage("--model %s: not known; 'kvcachebench replay --help' lists the "
                                   "models",
                                   name);
}

static int take_cost(void *ctx, const char *text)
{
    struct args *args = ctx;
    args->cost_asked = true;
    if (sim_cost_parse(text, &args->cost) < 0)
        return say_usage("--cost %s: must be ns per token, ns per pair of tokens, GB/s of memory "
                         "and of storage, as in 40000,1.3,20,5; the last may be left away",
                         text);
    return 0;
}

static const struct arg option_table[] = {
    {"--policy LIST",
     "policies; belady, the bound that knows the future; published: nine in the form in which they "
     "were published, without leases (published-lru, ...; default: default)",
     ARG_DO(take_policies)},
    {"--capacity LIST",
     "a share of the trace's unique blocks (5%), a size (64GiB, with --block-bytes or --model) or "
     "'2000 blocks'; a list is a sweep (default 1%,2%,5%,10%,20%,50%); host=1%,nvme=10% simulates "
     "both tiers",
     ARG_DO(take_capacity)},
    {"--hints KIND:Q",
     "workers say of a chain that it has 'ended', that it will 'continue', or 'soon' (within 60 s; "
     "soon:Q,SECONDS), or that it is a 'scan', read once in passing; right with probability Q, "
     "made from the trace's future, as in ended:0.9. default heeds them all, lru ended and scan",
     ARG_DO(take_hints)},
    {"--write-budget X",
     "with nvme: blocks written for each block accessed (default: no limit). At no time more, but "
     "for 64 blocks, or a 64th of nvme if that is less",
     ARG_NUMBER(struct args, write_budget, 0.001, 1000)},
    {"--keep-percent N",
     "with nvme: of what is there, the part that is not worth writing again when its room is "
     "reclaimed (default 45, as a daemon begins)",
     ARG_COUNT(struct args, keep_percent, 0, 100)},
    {"--block-tokens N",
     "tokens that one hash id of the trace stands for (default 512; 'kvcachectl trace dump' says "
     "it of its own)",
     ARG_COUNT(struct args, block_tokens, 1, KVC_BLOCK_TOKENS_MAX)},
    {"--block-bytes SIZE", "payload of a block",
     ARG_BYTES(struct args, block_bytes, 1, KVC_BLOCK_BYTES_MAX)},
    {"--model NAME",
     "take the size from a model's KV shape instead (default llama-3.1-8b; 'kvcachebench replay "
     "--help' lists them)",
     ARG_DO(take_model)},
    {"--cost NS[,NS_PER_PAIR[,HOST_GBS[,NVME_GBS]]]",
     "what computing a token costs, and each pair of it with a token before it, in ns; reading "
     "from memory and from storage, in 1e9 bytes/s (default 40000,1.3,20,5: assumptions; give "
     "yours). TTFT is the sum for one request; there is no queue. Where reading a hit takes longer "
     "than computing it, the time saved is below 0",
     ARG_DO(take_cost)},
    {"--admit-all",
     "every block comes in, whatever it is worth (policy.admission: false). Only default judges, "
     "and only without nvme",
     ARG_FLAG(struct args, admit_all)},
    {"--seed S", "of what is drawn at random (default 1)",
     ARG_COUNT(struct args, seed, 0, UINT64_MAX)},
    {"--requests N", "only the first N requests", ARG_COUNT(struct args, requests, 1, UINT32_MAX)},
    {"--svg FILE", "plot the hit ratio over capacity, a line for each policy",
     ARG_TEXT(struct args, svg)},
    {"--decisions N",
     "no trace: how much processor time a policy takes to evict a block when N are cached (of "
     "made-up conversations), its bookkeeping in it; goes with --policy (the daemon's own), "
     "--block-..., --model, --seed and --json",
     ARG_COUNT(struct args, decisions, 1, 1 << 24)},
    {"--json", "one JSON object per line on stdout, nothing else there",
     ARG_FLAG(struct args, json)},
    {0},
};

static bool has_nvme(const struct args *args)
{
    for (size_t i = 0; i < args->n_capacities; i++)
        if (args->capacity[i].has_nvme)
            return true;
    return false;
}

static bool any_policy(const struct args *args, bool (*does)(const char *name))
{
    for (size_t i = 0; i < args->n_policies; i++)
        if (does(args->policy[i]))
            return true;
    return false;
}

static int check_storage(const struct args *args)
{
    if (!has_nvme(args) && (args->keep_asked || args->write_budget > 0))
        return say_usage("%s is about storage: give it some, as in --capacity host=1%%,nvme=10%%",
                         args->keep_asked ? "--keep-percent" : "--write-budget");
    for (size_t i = 0; has_nvme(args) && i < args->n_policies; i++)
        if (is_published(args->policy[i]))
            return say_usage("--policy %s knows one tier; leave nvme= away, or take the daemon's "
                             "own",
                             args->policy[i]);
    return 0;
}

/* Refuses options that would have no effect. */
static int check_effect(const struct args *args)
{
    if (args->hints_text && !any_policy(args, heeds_hints))
        return say_usage("--hints '%s': none of the policies heeds hints; take 'default' or 'lru'",
                         args->hints_text);
    if (args->admit_all && has_nvme(args))
        return say_usage("--admit-all: with nvme= every block comes in anyway; leave one away");
    if (args->admit_all && !any_policy(args, judges))
        return say_usage("--admit-all: none of the policies judges what comes in; take 'default'");
    return 0;
}

static int check_decisions(const struct args *args)
{
    const struct {
        bool given;
        const char *name;
    } of_trace[] = {{args->n_capacities > 0, "capacity"},
                    {args->hints_text != NULL, "hints"},
                    {args->write_budget > 0, "write-budget"},
                    {args->keep_asked, "keep-percent"},
                    {args->cost_asked, "cost"},
                    {args->requests > 0, "requests"},
                    {args->admit_all, "admit-all"},
                    {args->svg != NULL, "svg"}};
    for (size_t i = 0; i < sizeof(of_trace) / sizeof(of_trace[0]); i++)
        if (of_trace[i].given)
            return say_usage("--%s goes with a trace, and --decisions has none; leave one away",
                             of_trace[i].name);
    for (size_t i = 0; i < args->n_policies; i++)
        /* The bound makes no decisions whose time could be measured. */
        if (!policy_by_name(args->policy[i]))
            return say_usage("--policy %s: --decisions is about the daemon's own policies, such as "
                             "default and lru",
                             args->policy[i]);
    return 0;
}

/* Checks combinations of options. */
static int simulate_cmd_check_args(struct args *args)
{
    if (args->model && args->block_bytes)
        return say_usage("--model and --block-bytes both say how large a block is; give one");
    if (!args->block_bytes) {
        const struct known_model *model =
            args->model ? args->model : known_model_by_name("llama-3.1-8b");
        args->block_bytes = known_model_bytes_per_token(model) * args->block_tokens;
    }
    if (args->block_bytes > KVC_BLOCK_BYTES_MAX)
        return say_usage("a block of %" PRIu64 " bytes is above the limit of %u; use fewer "
                         "--block-tokens",
                         args->block_bytes, KVC_BLOCK_BYTES_MAX);
    if (args->n_policies == 0)
        args->policy[args->n_policies++] = "default";
    if (args->decisions)
        return check_decisions(args);
    int rc = args->n_capacities ? 0 : take_capacity(args, "1%,2%,5%,10%,20%,50%");
    if (rc == 0)
        rc = check_storage(args);
    return rc != 0 ? rc : check_effect(args);
}

/* 0, an enum bench_exit, or -1 when --help was printed. */
static int parse_args(int argc, char **argv, struct args *args)
{
    const int rc = opt_take(argc, argv, option_table, help, args);
    if (rc != 0)
        return rc;
    args->keep_asked = args->keep_percent != KEEP_UNASKED;
    if (!args->keep_asked)
        args->keep_percent = ADMIT_KEEP_PERCENT;
    if (args->decisions && optind < argc)
        return say_usage("--decisions makes up what it runs; leave '%s' away", argv[optind]);
    if (!args->decisions && optind == argc)
        return say_usage("which trace? Give a file, or make one with 'kvcachebench gen'");
    if (!args->decisions && optind + 1 < argc)
        return say_usage("one trace at a time; '%s' is too much", argv[optind + 1]);
    args->path = args->decisions ? "--decisions" : argv[optind];
    return simulate_cmd_check_args(args);
}

/* ---- the sweep ---- */

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The capacity in blocks, at most as many as the whole trace fills; more would make no difference.
 */
static uint32_t blocks_in(const struct args *args, const struct capacity_room *room,
                          uint32_t unique)
{
    const uint64_t blocks = capacity_blocks(room, unique, args->block_bytes);
    return blocks < unique ? (uint32_t)blocks : unique;
}

static int run_case(const struct args *args, const struct sim_forest *forest,
                    const struct capacity *capacity, const char *policy, struct sim_hit *hits,
                    struct sim_result *ret)
{
    const struct sim_config config = {
        .ops = policy_by_name(policy),
        .host_blocks = blocks_in(args, &capacity->host, forest->n_nodes),
        .nvme_blocks = capacity->has_nvme ? blocks_in(args, &capacity->nvme, forest->n_nodes) : 0,
        .block_bytes = (uint32_t)args->block_bytes,
        .seed = args->seed,
        .admit_all = args->admit_all,
        .hints = args->hints,
        .write_budget = args->write_budget,
        .keep_percent = (unsigned)args->keep_percent};
    struct sim_result result = {.policy = policy,
                                .capacity = capacity->text,
                                .hints = heeds_hints(policy) ? args->hints_text : NULL,
                                .host_blocks = config.host_blocks,
                                .nvme_blocks = config.nvme_blocks,
                                .unique_blocks = forest->n_nodes};
    const double begin = cpu_seconds();
    int rc;
    if (config.ops)
        rc = sim_run(forest, &config, hits, &result.counts);
    else if (is_published(policy))
        rc = sim_published(forest, policy, config.host_blocks, hits, &result.counts);
    else
        rc = sim_belady(forest, config.host_blocks + config.nvme_blocks, hits, &result.counts);
    result.cpu_s = cpu_seconds() - begin;
    if (rc == 0)
        rc = sim_times(forest->trace, hits, &args->cost, (uint32_t)args->block_tokens,
                       config.block_bytes, &result.times);
    if (rc == 0)
        *ret = result;
    return rc;
}

static int simulate_cmd_sweep(const struct args *args, const struct sim_forest *forest,
                              struct sim_hit *hits, struct sim_result *results, size_t *ret_n)
{
    size_t n = 0;
    for (size_t p = 0; p < args->n_policies; p++) {
        for (size_t i = 0; i < args->n_capacities; i++, n++) {
            const int rc =
                run_case(args, forest, &args->capacity[i], args->policy[p], hits, &results[n]);
            if (rc < 0)
                return rc;
            if (args->json)
                sim_report_json(&results[n]);
        }
    }
    *ret_n = n;
    return 0;
}

static int simulate_cmd_report(const struct args *args, const struct sim_forest *forest,
                               const struct sim_result *results, size_t n)
{
    if (!args->json) {
        printf("%s: %zu requests, %zu blocks asked for, %" PRIu32
               " unique: with room for all %.4f would hit\n\n",
               args->path, forest->trace->n_requests, forest->trace->n_ids, forest->n_nodes,
               1 - (double)forest->n_nodes / (double)forest->trace->n_ids);
        sim_report_table(results, n);
    }
    const char *slash = strrchr(args->path, '/');
    const int rc = args->svg ? sim_plot(args->svg, slash ? slash + 1 : args->path, results, n) : 0;
    if (rc < 0)
        say_error("%s: %s", args->svg, strerror(-rc));
    return rc < 0 ? BENCH_FAILED : BENCH_OK;
}

static int simulate(const struct args *args, const struct trace *trace)
{
    struct sim_forest *forest = NULL;
    struct sim_hit *hits = calloc(trace->n_requests, sizeof(*hits));
    struct sim_result *results = calloc(args->n_policies * args->n_capacities, sizeof(*results));
    size_t n = 0;
    int rc = hits && results ? sim_forest_create(trace, &forest) : -ENOMEM;
    if (rc == 0)
        rc = simulate_cmd_sweep(args, forest, hits, results, &n);
    if (rc < 0)
        say_error("%s: %s", args->path, strerror(-rc));
    const int code = rc < 0 ? BENCH_FAILED : simulate_cmd_report(args, forest, results, n);
    sim_forest_destroy(&forest);
    free(results);
    free(hits);
    return code;
}

/* ---- decisions ---- */

static int time_policy(const struct args *args, const struct sim_forest *forest,
                       struct sim_hit *hits, const char *policy)
{
    struct sim_decisions *decisions = calloc(1, sizeof(*decisions));
    if (!decisions)
        return -ENOMEM;
    const struct sim_config config = {.ops = policy_by_name(policy),
                                      .host_blocks = (uint32_t)args->decisions,
                                      .block_bytes = (uint32_t)args->block_bytes,
                                      .seed = args->seed,
                                      .decisions = decisions};
    struct sim_counts counts;
    const int rc = sim_run(forest, &config, hits, &counts);
    if (rc == 0)
        sim_report_decisions(policy, args->decisions, decisions, args->json);
    free(decisions);
    return rc;
}

static int time_decisions(const struct args *args)
{
    struct trace *trace = NULL;
    struct sim_forest *forest = NULL;
    struct sim_hit *hits = NULL;
    int rc = sim_conversations(args->decisions, &trace);
    if (rc == 0)
        rc = sim_forest_create(trace, &forest);
    if (rc == 0) {
        hits = calloc(trace->n_requests, sizeof(*hits));
        rc = hits ? 0 : -ENOMEM;
    }
    for (size_t i = 0; rc == 0 && i < args->n_policies; i++)
        rc = time_policy(args, forest, hits, args->policy[i]);
    if (rc < 0)
        say_error("%s", strerror(-rc));
    free(hits);
    sim_forest_destroy(&forest);
    trace_destroy(&trace);
    return rc < 0 ? BENCH_FAILED : BENCH_OK;
}

/* Warns if block_tokens does not fit the trace: hit ratios in tokens, sizes and times would be of
 * another trace. */
static void check_block_tokens(const struct args *args, const struct trace *trace)
{
    uint32_t fit;
    char would[64] = "";
    if (trace_fits(trace, (uint32_t)args->block_tokens, &fit))
        return;
    if (fit)
        snprintf(would, sizeof(would), "; --block-tokens %" PRIu32 " fits", fit);
    say_error("%s: most requests have not as many hash ids as their input_length makes blocks of "
              "%" PRIu64 " tokens, so tokens, sizes and times below are wrong%s",
              args->path, args->block_tokens, would);
}

/* Says how times are made if the trace has none (read_times()). */
static void check_times(const struct args *args, const struct trace *trace)
{
    uint64_t now = 0, back = 0;
    for (size_t i = 0; i < trace->n_requests; i++) {
        back += trace->requests[i].timestamp_ms < now;
        if (trace->requests[i].timestamp_ms > now)
            now = trace->requests[i].timestamp_ms;
    }
    if (back > 0)
        say_error("%s: %" PRIu64 " requests have a timestamp before one that precedes them; they "
                  "are taken to come at that one's time",
                  args->path, back);
    if (now == 0 && trace->n_requests > 1)
        say_error("%s: no request has a timestamp above 0; they are taken to come a second apart",
                  args->path);
}

int cmd_simulate(int argc, char **argv)
{
    struct args args = {
        .cost = {.ns_per_token = 40000, .ns_per_pair = 1.3, .host_gbs = 20, .nvme_gbs = 5},
        .block_tokens = 512,
        .seed = 1,
        .keep_percent = KEEP_UNASKED};
    const int rc = parse_args(argc, argv, &args);
    if (rc != 0)
        return rc < 0 ? BENCH_OK : rc;
    if (args.decisions)
        return time_decisions(&args);
    char why[TRACE_WHY_BYTES];
    struct trace *trace;
    if (trace_load(args.path, args.requests, why, &trace) < 0) {
        say_error("%s", why);
        return BENCH_USAGE;
    }
    check_block_tokens(&args, trace);
    check_times(&args, trace);
    const int code = simulate(&args, trace);
    trace_destroy(&trace);
    return code;
}
