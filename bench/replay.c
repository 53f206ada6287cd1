/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvcache/kvcache.h>

#include "bench_rig.h"
#include "capacity.h"
#include "replay.h"
#include "replay_report.h"
#include "units.h"

enum { BATCH_BYTES = 16 << 20, BATCH_BLOCKS_MAX = 256, SLOTS_PER_CHUNK = 16, INDEX_SPARE = 65536 };

#define CHUNK_MIN   (UINT64_C(2) << 20)
#define CHUNK_MAX   (UINT64_C(1) << 30)
#define LIMIT_MIN   (UINT64_C(4) << 20)
#define HBM_MIN     (UINT64_C(16) << 20)
#define SEGMENT_MIN (UINT64_C(1) << 20)

static const char help[] =
    "Usage: kvcachebench replay TRACE [OPTIONS]\n"
    "\n"
    "Replays a request trace (Mooncake's JSONL form) against a daemon. For each request a worker "
    "finds the longest cached prefix, reads it in place, compares every byte with what was stored, "
    "and stores the rest. Contents follow from the keys, so every byte is known.\n"
    "\n" ARGS_HERE "\n"
    "Exit codes: 0 good, 1 wrong bytes were read, 2 usage, 3 no daemon, 4 denied, 5 other.\n"
    "\n"
    "Examples:\n"
    "  kvcachebench replay conversation_trace.jsonl --capacity 1%,5%,10%\n"
    "  kvcachebench replay conversation_trace.jsonl --capacity host=1%,nvme=10%\n"
    "  kvcachebench replay conversation_trace.jsonl --capacity hbm=1%,host=5%,nvme=20% "
    "--block-bytes 16KiB\n"
    "  kvcachebench replay talks.jsonl --capacity 10% --block-bytes 64KiB\n"
    "  kvcachebench replay talks.jsonl --workers 2 --model qwen2.5-7b --capacity 8GiB\n";

struct args {
    const char *path;
    const char *policy;
    const char *socket;
    const char *daemon_path;
    const char *dir; /* NULL = not given */
    const struct known_model *model;
    struct capacity capacity[CAPACITY_LIST_MAX];
    size_t n_capacities; /* 0 = --capacity was not given */
    uint64_t workers, block_bytes, block_tokens, requests;
    double prefill_us_per_token;
    bool wait, json;
};

static void print_models(void)
{
    puts("\nModels (bytes of KV per token, 16 bits):");
    for (unsigned i = 0; known_model_at(i); i++) {
        char size[UNITS_TEXT_BYTES];
        printf("  %-16s %s\n", known_model_at(i)->name,
               units_format_bytes(known_model_bytes_per_token(known_model_at(i)), size));
    }
}

static int take_capacity(void *ctx, const char *text)
{
    struct args *args = ctx;
    char why[CAPACITY_WHY_BYTES];
    if (capacity_parse_list(text, why, args->capacity, &args->n_capacities) < 0)
        return say_usage("--capacity: %s", why);
    return 0;
}

static int take_model(void *ctx, const char *name)
{
    struct args *args = ctx;
    args->model = known_model_by_name(name);
    return args->model ? 0 : say_usage("--model %s: not known; --help lists the models", name);
}

static const struct arg option_table[] = {
    {"--workers N", "worker processes; each takes the next request when it is free (default 1)",
     ARG_COUNT(struct args, workers, 1, REPLAY_WORKERS_MAX)},
    {"--policy P", "eviction policy: lru, or the daemon's default (default)",
     ARG_TEXT(struct args, policy)},
    {"--capacity LIST",
     "host memory: a share of the trace's unique blocks (5%), a size (4GiB) or '2000 blocks'; a "
     "list is a sweep (default 10%); host=1%,nvme=10% gives one daemon both tiers: its nvme.limit, "
     "exactly, all overhead in it; hbm=1%,host=5%,nvme=20% adds memory of an emulated GPU: "
     "workers' "
     "pages are there, and blocks are loaded into them or read in place in turn",
     ARG_DO(take_capacity)},
    {"--dir DIR", "where the store of an nvme tier lies (default: the working directory)",
     ARG_TEXT(struct args, dir)},
    {"--block-bytes SIZE", "payload of a block (default 4KiB)",
     ARG_BYTES(struct args, block_bytes, 1, KVC_BLOCK_BYTES_MAX)},
    {"--model NAME", "take the size from a model's KV shape instead; see below",
     ARG_DO(take_model)},
    {"--block-tokens N", "tokens that one hash id of the trace stands for (default 512)",
     ARG_COUNT(struct args, block_tokens, 1, KVC_BLOCK_TOKENS_MAX)},
    {"--requests N", "only the first N requests", ARG_COUNT(struct args, requests, 1, UINT32_MAX)},
    {"--wait", "wait for blocks that another worker is storing", ARG_FLAG(struct args, wait)},
    {"--prefill-us-per-token X",
     "what computing a token costs, for the time saved (default 40, a rate of 25,000 prompt tokens "
     "a second; an assumption: give yours)",
     ARG_NUMBER(struct args, prefill_us_per_token, 0, 1e6)},
    {"--socket PATH", "use the daemon that runs there, at the capacity that it has",
     ARG_TEXT(struct args, socket)},
    {"--daemon PATH", "the daemon to start otherwise (default: beside this program)",
     ARG_TEXT(struct args, daemon_path)},
    {"--json", "one JSON object per line on stdout, nothing else there",
     ARG_FLAG(struct args, json)},
    {0},
};

/* Checks combinations of options. */
static int replay_check_args(struct args *args)
{
    if (args->model && args->block_bytes)
        return say_usage("--model and --block-bytes both say how large a block is; give one");
    if (args->socket && args->n_capacities)
        return say_usage("the daemon at %s has its own capacity; leave --capacity away, or leave "
                         "--socket away and a private daemon is started",
                         args->socket);
    if (args->socket && strcmp(args->policy, "default") != 0)
        return say_usage("the daemon at %s has its own policy; leave --policy away", args->socket);
    if (args->block_bytes == 0)
        args->block_bytes = 4096;
    if (args->model)
        args->block_bytes = known_model_bytes_per_token(args->model) * args->block_tokens;
    if (args->block_bytes > KVC_BLOCK_BYTES_MAX)
        return say_usage("a block of %" PRIu64 " bytes is above the limit of %u; use fewer "
                         "--block-tokens",
                         args->block_bytes, KVC_BLOCK_BYTES_MAX);
    char why[CAPACITY_WHY_BYTES];
    if (!args->socket && args->n_capacities == 0 &&
        capacity_parse_list("10%", why, args->capacity, &args->n_capacities) < 0)
        return say_usage("%s", why);
    if (args->dir && !(args->n_capacities && args->capacity[0].has_nvme))
        return say_usage("--dir is for a daemon with an nvme tier, as in "
                         "--capacity host=1%%,nvme=10%%");
    return 0;
}

/* 0, an enum bench_exit, or -1 when --help was printed. */
static int parse_args(int argc, char **argv, struct args *ret_args)
{
    const int rc = opt_take(argc, argv, option_table, help, ret_args);
    if (rc < 0)
        print_models();
    if (rc != 0)
        return rc;
    if (optind == argc)
        return say_usage("which trace? Give a file, or make one with 'kvcachebench gen'");
    if (optind + 1 < argc)
        return say_usage("one trace at a time; '%s' is too much", argv[optind + 1]);
    ret_args->path = argv[optind];
    return replay_check_args(ret_args);
}

/* At least 16 slots in a chunk, and enough chunks that a small capacity is reached exactly. */
static uint64_t chunk_bytes(uint64_t slot, uint64_t limit)
{
    uint64_t chunk = CHUNK_MIN;
    while (chunk < CHUNK_MAX && (chunk < SLOTS_PER_CHUNK * slot || chunk < limit / 64))
        chunk *= 2;
    return chunk;
}

/* The least limit that a daemon accepts for slots of this size; a chunk must fit in it. */
static uint64_t limit_min(uint64_t slot)
{
    uint64_t chunk = chunk_bytes(slot, 0);
    return chunk > LIMIT_MIN ? chunk : LIMIT_MIN;
}

/* Prints what would be enough: a size; a percentage, if the trace is large enough for one; a block
 * size, if a number of blocks was asked for. */
static int refuse_small(const struct args *args, const struct capacity *capacity, uint64_t blocks,
                        uint64_t unique)
{
    uint64_t slot = capacity_slot_bytes(args->block_bytes);
    uint64_t need = (limit_min(slot) + slot - 1) / slot;
    uint64_t percent_100 = (need * 10000 + unique - 1) / unique; /* hundredths, rounded up */
    const char *tier = capacity->has_nvme || capacity->has_hbm ? "host=" : "";
    char share[48] = "", larger[64] = "";
    char slots[UNITS_COUNT_BYTES], least[UNITS_COUNT_BYTES], enough[UNITS_COUNT_BYTES];
    char block[UNITS_COUNT_BYTES];
    if (percent_100 <= 10000)
        snprintf(share, sizeof(share), "%s%g%% or ", tier, (double)percent_100 / 100);
    /* With fewer blocks the chunk grows with them and stays too large. */
    if (!capacity->host.bytes && !args->model && blocks >= SLOTS_PER_CHUNK)
        snprintf(larger, sizeof(larger), ", or --block-bytes %s",
                 units_exact_bytes(capacity_slot_bytes((LIMIT_MIN + blocks - 1) / blocks), block));
    return say_usage("--capacity %s is %" PRIu64 " blocks of %s in memory; a daemon has at least "
                     "%s, which takes --capacity %s%s%s%s",
                     capacity->text, blocks, units_exact_bytes(slot, slots),
                     units_exact_bytes(limit_min(slot), least), share, tier,
                     units_exact_bytes(need * slot, enough), larger);
}

static uint64_t hbm_bytes(const struct args *args, const struct capacity *capacity, uint64_t blocks)
{
    return capacity->hbm.bytes ? capacity->hbm.bytes
                               : blocks * capacity_slot_bytes(args->block_bytes);
}

/* The same for memory of a device. */
static int refuse_small_hbm(const struct args *args, const struct capacity *capacity,
                            uint64_t blocks, uint64_t unique)
{
    uint64_t slot = capacity_slot_bytes(args->block_bytes);
    uint64_t percent_100 = ((HBM_MIN + slot - 1) / slot * 10000 + unique - 1) / unique;
    char share[48] = "", larger[64] = "", slots[UNITS_COUNT_BYTES], block[UNITS_COUNT_BYTES];
    if (percent_100 <= 10000)
        snprintf(share, sizeof(share), "hbm=%g%% or ", (double)percent_100 / 100);
    if (!capacity->hbm.bytes && !args->model && HBM_MIN / blocks <= KVC_BLOCK_BYTES_MAX)
        snprintf(larger, sizeof(larger), ", or --block-bytes %s",
                 units_exact_bytes(capacity_slot_bytes((HBM_MIN + blocks - 1) / blocks), block));
    return say_usage("--capacity %s is %" PRIu64 " blocks of %s on the device; a daemon has at "
                     "least 16MiB there, which takes --capacity %shbm=16MiB%s",
                     capacity->text, blocks, units_exact_bytes(slot, slots), share, larger);
}

static uint32_t batch_blocks(uint64_t block_bytes, uint64_t capacity)
{
    uint64_t n = BATCH_BYTES / block_bytes;
    if (n > BATCH_BLOCKS_MAX)
        n = BATCH_BLOCKS_MAX;
    /* Blocks being stored cannot be evicted: two batches must be a small part of the cache. */
    if (capacity && n > capacity / 8)
        n = capacity / 8;
    return n ? (uint32_t)n : 1;
}

/* A 64th of the store, as a large store has by itself, so that one reclaim is small beside it. */
static uint64_t segment_bytes(uint64_t slot, uint64_t limit)
{
    const uint64_t unit = 64 * 1024, large = 4 * (slot > unit ? slot : unit);
    const uint64_t least = large > SEGMENT_MIN ? large : SEGMENT_MIN;
    return (limit / 64 > least ? limit / 64 : least) / unit * unit;
}

/* Bytes of a store that holds so many blocks. Besides blocks it needs a label of 128 bytes for each
 * block, in whole pages; segments that are open, being emptied or kept free, 4 of 64; and
 * superblocks. */
static uint64_t store_bytes(uint64_t slot, uint64_t blocks)
{
    const uint64_t payload = blocks * slot, tables = blocks * 128;
    return (payload + tables) / 60 * 64 + 1024 * 1024;
}

static void configure(const struct args *args, uint64_t blocks, uint64_t nvme_blocks,
                      uint64_t hbm_limit, const struct replay_plan *plan,
                      struct rig_options *ret_options)
{
    uint64_t slot = capacity_slot_bytes(args->block_bytes);
    uint64_t limit = blocks * slot;
    uint64_t staging = 2 * (uint64_t)plan->batch_blocks * (args->block_bytes + 64);
    ret_options->daemon_path = args->daemon_path;
    rig_set(ret_options, "host.limit=%" PRIu64, limit);
    rig_set(ret_options, "host.chunk=%" PRIu64, chunk_bytes(slot, limit));
    rig_set(ret_options, "staging.session_max=%" PRIu64, staging);
    rig_set(ret_options, "staging.total=%" PRIu64, staging * plan->workers);
    /* The index and the limit of leases are large enough for everything, because the capacity is
     * not about them. */
    uint64_t all = blocks + nvme_blocks;
    rig_set(ret_options, "index.blocks=%" PRIu64, all + all / 4 + INDEX_SPARE);
    if (nvme_blocks) {
        ret_options->store_in = args->dir ? args->dir : ".";
        const uint64_t bytes = store_bytes(slot, nvme_blocks);
        rig_set(ret_options, "nvme.limit=%" PRIu64, bytes);
        rig_set(ret_options, "nvme.segment=%" PRIu64, segment_bytes(slot, bytes));
    }
    if (plan->device)
        rig_set(ret_options, "hbm.devices=" REPLAY_DEVICE "=%" PRIu64, hbm_limit);
    rig_set(ret_options, "limits.lease_bytes=%" PRIu64, limit);
    rig_set(ret_options, "log.level=warn");
    if (strcmp(args->policy, "default") != 0)
        rig_set(ret_options, "policy.eviction=%s", args->policy);
}

static uint64_t replay_blocks_of(const struct args *args, bool has,
                                 const struct capacity_room *room, uint64_t unique)
{
    return has ? capacity_blocks(room, unique, args->block_bytes) : 0;
}

static int run_plan(const struct args *args, const struct rig_options *options,
                    struct replay_plan *plan, struct replay_result *ret)
{
    struct rig *rig;
    int rc = rig_start(options, &rig);
    if (rc != 0)
        return rc;
    plan->socket = rig_socket(rig);
    rc = replay_run(plan, rig, ret->capacity, &ret->tally, &ret->seconds);
    rig_stop(&rig);
    ret->prefill_us_per_token = args->prefill_us_per_token;
    return rc;
}

static int run_case(const struct args *args, const struct trace *trace,
                    const struct capacity *capacity, uint64_t unique, struct replay_result *ret)
{
    static const struct capacity none = {0};
    const struct capacity *c = capacity ? capacity : &none;
    uint64_t blocks = replay_blocks_of(args, capacity, &c->host, unique);
    uint64_t nvme_blocks = replay_blocks_of(args, c->has_nvme, &c->nvme, unique);
    uint64_t hbm_blocks = replay_blocks_of(args, c->has_hbm, &c->hbm, unique);
    struct replay_plan plan = {.trace = trace,
                               .model = args->model,
                               .workers = (uint32_t)args->workers,
                               .block_tokens = (uint32_t)args->block_tokens,
                               .block_bytes = (uint32_t)args->block_bytes,
                               .batch_blocks = batch_blocks(args->block_bytes, blocks),
                               .run = now_ns(),
                               .wait = args->wait,
                               .storage = nvme_blocks > 0,
                               .device = hbm_blocks > 0};
    struct rig_options options = {.socket = args->socket};
    uint64_t slot = capacity_slot_bytes(args->block_bytes);
    if (capacity && blocks * slot < limit_min(slot))
        return refuse_small(args, capacity, blocks, unique);
    if (hbm_blocks && hbm_bytes(args, c, hbm_blocks) < HBM_MIN)
        return refuse_small_hbm(args, capacity, hbm_blocks, unique);
    if (capacity)
        configure(args, blocks, nvme_blocks, hbm_bytes(args, c, hbm_blocks), &plan, &options);
    *ret = (struct replay_result){.capacity = capacity ? capacity->text : "daemon",
                                  .policy = args->policy,
                                  .capacity_blocks = blocks,
                                  .hbm_blocks = hbm_blocks,
                                  .nvme_blocks = nvme_blocks,
                                  .nvme_limit = nvme_blocks ? store_bytes(slot, nvme_blocks) : 0,
                                  .workers = plan.workers,
                                  .block_bytes = plan.block_bytes};
    return run_plan(args, &options, &plan, ret);
}

static int verdict(const struct replay_result *results, size_t n)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < n; i++)
        wrong += results[i].tally.counts.wrong_bytes;
    if (wrong) {
        say_error("%" PRIu64 " bytes were not what had been stored", wrong);
        return BENCH_WRONG;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t most = results[i].tally.storage.disk_bytes_max;
        if (most > results[i].nvme_limit) {
            say_error("the store took %" PRIu64 " bytes on disk and its limit is %" PRIu64, most,
                      results[i].nvme_limit);
            return BENCH_FAILED;
        }
    }
    return BENCH_OK;
}

static int replay_sweep(const struct args *args, const struct trace *trace, uint64_t unique)
{
    size_t n = args->n_capacities ? args->n_capacities : 1;
    struct replay_result *results = calloc(n, sizeof(*results));
    if (!results) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    int rc = 0;
    size_t done = 0;
    while (rc == 0 && done < n) {
        const struct capacity *capacity = args->n_capacities ? &args->capacity[done] : NULL;
        rc = run_case(args, trace, capacity, unique, &results[done]);
        if (rc != 0)
            break;
        if (args->json)
            replay_report_json(&results[done]);
        done++;
    }
    if (!args->json && done > 0)
        replay_report_table(results, done);
    if (rc == 0)
        rc = verdict(results, done);
    free(results);
    return rc;
}

int cmd_replay(int argc, char **argv)
{
    struct args args = {
        .policy = "default", .workers = 1, .block_tokens = 512, .prefill_us_per_token = 40};
    int rc = parse_args(argc, argv, &args);
    if (rc != 0)
        return rc < 0 ? BENCH_OK : rc;

    char why[TRACE_WHY_BYTES];
    struct trace *trace;
    if (trace_load(args.path, args.requests, why, &trace) < 0) {
        say_error("%s", why);
        return BENCH_USAGE;
    }
    uint64_t unique;
    if (trace_unique_blocks(trace, &unique) < 0) {
        say_error("out of memory");
        rc = BENCH_FAILED;
    } else {
        rc = replay_sweep(&args, trace, unique);
    }
    trace_destroy(&trace);
    return rc;
}
