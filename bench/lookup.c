/* SPDX-License-Identifier: Apache-2.0 */
/* kvcachebench lookup: round trips and rates of lookups, beside an echo over the same sockets. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echo.h"
#include "lat.h"
#include "out.h"
#include "perf.h"
#include "units.h"

/* Lookups walk over chains in turn, so that the index is not measured in the processor's cache. */
enum { CHAINS = 64, BLOCK_BYTES = 4096, BLOCK_TOKENS = 16, DEPTH_MAX = 64, STORE_BLOCKS = 256 };

/* Bytes of a LOOKUP of one group without its keys, and of its reply (PROTOCOL.md). */
enum { REQUEST_HEAD_BYTES = 20, REPLY_BYTES = 18 };

static const char help[] =
    "Usage: kvcachebench lookup [OPTIONS]\n"
    "\n"
    "How long a lookup takes, and how many a second one client gets: chains of cached blocks, "
    "every\n"
    "lookup a hit of all its keys.\n"
    "\n" ARGS_HERE "\n"
    "Example:\n"
    "  kvcachebench lookup --compare --keys 256\n";

struct lookup {
    struct perf_session session;
    const struct perf_args *args;
    struct echo *echo;
    uint32_t n; /* keys of a lookup */
    uint32_t chain_keys;
    uint64_t next;           /* the chain that is looked up next */
    uint8_t *keys;           /* CHAINS x chain_keys */
    struct lat ours, theirs; /* of all rounds, for the slowest ones */
};

static struct kvc_seq next_seq(struct lookup *l)
{
    const uint8_t *keys = l->keys + (l->next++ % CHAINS) * l->chain_keys * KVC_KEY_BYTES;
    return (struct kvc_seq){.tokens = l->n * BLOCK_TOKENS, .group = {{.keys = keys, .n = l->n}}};
}

static int check_hit(const struct lookup *l, const struct kvc_prefix *prefix)
{
    if (prefix->tokens == l->n * BLOCK_TOKENS)
        return 0;
    say_error("a lookup found %u of %u tokens: %s", prefix->tokens, l->n * BLOCK_TOKENS,
              kvc_miss_text(prefix->group[0].reason));
    return BENCH_FAILED;
}

static int run_round_trips(void *ctx, double seconds, double *ret_value)
{
    struct lookup *l = ctx;
    struct lat lat = {0};
    uint64_t until = now_ns() + (uint64_t)(seconds * 1e9);
    for (uint64_t begun = now_ns(); begun < until;) {
        struct kvc_seq seq = next_seq(l);
        struct kvc_prefix prefix;
        int rc = kvc_lookup(l->session.ns, &seq, 0, &prefix);
        if (rc < 0)
            return perf_fail(&l->session, rc, "lookup");
        uint64_t ended = now_ns();
        lat_add(&lat, ended - begun);
        begun = ended;
        rc = check_hit(l, &prefix);
        if (rc != 0)
            return rc;
    }
    lat_merge(&l->ours, &lat);
    *ret_value = (double)lat_quantile_ns(&lat, 0.5) * 1e-9;
    return 0;
}

static int run_echo_round_trips(void *ctx, double seconds, double *ret_value)
{
    struct lookup *l = ctx;
    struct lat lat = {0};
    int rc = echo_round_trips(l->echo, seconds, &lat);
    lat_merge(&l->theirs, &lat);
    *ret_value = (double)lat_quantile_ns(&lat, 0.5) * 1e-9;
    return rc;
}

static int lookup_begin(struct lookup *l, struct kvc_op **ret_op)
{
    struct kvc_seq seq = next_seq(l);
    int rc = kvc_lookup_begin(l->session.ns, &seq, 0, ret_op);
    return rc < 0 ? perf_fail(&l->session, rc, "lookup") : 0;
}

static int lookup_finish(struct lookup *l, struct kvc_op **op)
{
    struct kvc_prefix prefix;
    int rc = kvc_wait(op, &prefix, NULL, NULL);
    return rc < 0 ? perf_fail(&l->session, rc, "lookup") : check_hit(l, &prefix);
}

static int run_rate(void *ctx, double seconds, double *ret_value)
{
    struct lookup *l = ctx;
    struct kvc_op *ops[DEPTH_MAX] = {0};
    uint64_t depth = l->args->depth, begun = now_ns(), done = 0;
    uint64_t until = begun + (uint64_t)(seconds * 1e9);
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < depth; i++)
        rc = lookup_begin(l, &ops[i]);
    for (; rc == 0 && now_ns() < until; done++) {
        rc = lookup_finish(l, &ops[done % depth]);
        if (rc == 0)
            rc = lookup_begin(l, &ops[done % depth]);
    }
    for (uint64_t i = 0; rc == 0 && i < depth; i++, done++)
        rc = lookup_finish(l, &ops[done % depth]);
    *ret_value = (double)done / ((double)(now_ns() - begun) * 1e-9);
    return rc;
}

static int run_echo_rate(void *ctx, double seconds, double *ret_value)
{
    struct lookup *l = ctx;
    return echo_rate(l->echo, seconds, (unsigned)l->args->depth, ret_value);
}

static int store_chain(struct lookup *l, const uint8_t *keys)
{
    uint64_t offsets[STORE_BLOCKS];
    uint8_t statuses[STORE_BLOCKS];
    for (uint32_t i = 0; i < STORE_BLOCKS; i++)
        offsets[i] = (uint64_t)i * BLOCK_BYTES;
    for (uint32_t first = 0; first < l->chain_keys; first += STORE_BLOCKS) {
        uint32_t n = l->chain_keys - first < STORE_BLOCKS ? l->chain_keys - first : STORE_BLOCKS;
        const uint8_t *from = keys + (size_t)first * KVC_KEY_BYTES;
        struct kvc_blocks blocks = {.parent = first ? from - KVC_KEY_BYTES : NULL,
                                    .keys = from,
                                    .n = n,
                                    .first_token = first * BLOCK_TOKENS,
                                    .flags = KVC_F_ADMIT};
        int rc = kvc_store(l->session.ns, &blocks, offsets, NULL, 0, statuses);
        rc = rc < 0 ? perf_fail(&l->session, rc, "store") : perf_statuses(statuses, n);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int lookup_fill(struct lookup *l)
{
    uint64_t n = (uint64_t)CHAINS * l->chain_keys;
    l->keys = malloc(n * KVC_KEY_BYTES);
    if (!l->keys) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    for (uint64_t i = 0; i < n; i++)
        perf_key(1, i, l->keys + i * KVC_KEY_BYTES);
    int rc = perf_namespace(&l->session, BLOCK_BYTES);
    for (uint64_t i = 0; rc == 0 && i < CHAINS; i++)
        rc = store_chain(l, l->keys + i * l->chain_keys * KVC_KEY_BYTES);
    return rc;
}

static void lookup_report_json(const struct lookup *l, const char *metric, const char *unit,
                               const struct perf_side *sides)
{
    struct out_metric line = {.bench = "lookup",
                              .keys = {{.key = "keys", .number = l->n}},
                              .metric = metric,
                              .value = sides[0].value,
                              .unit = unit};
    if (strcmp(metric, "lookups_per_s") == 0)
        line.keys[1] = (struct out_key){.key = "depth", .number = l->args->depth};
    if (l->args->compare) {
        line.limit_what = sides[1].what;
        line.limit = sides[1].value;
        line.ratio = sides[0].value / sides[1].value;
    }
    out_json(&line);
}

static void lookup_report(const struct lookup *l, const struct perf_side *rtt,
                          const struct perf_side *rate)
{
    if (l->args->json) {
        lookup_report_json(l, "lookup_rtt", "s", rtt);
        lookup_report_json(l, "lookups_per_s", "1/s", rate);
        return;
    }
    char median[UNITS_TEXT_BYTES], tail[UNITS_TEXT_BYTES], count[UNITS_COUNT_BYTES];
    printf("  lookup of %4u keys: round trip %10s (p99 %s)", l->n,
           units_format_duration_ns((uint64_t)(rtt[0].value * 1e9), median),
           units_format_duration_ns(lat_quantile_ns(&l->ours, 0.99), tail));
    if (l->args->compare)
        printf("   echo %10s   ratio %.2f",
               units_format_duration_ns((uint64_t)(rtt[1].value * 1e9), median),
               rtt[0].value / rtt[1].value);
    printf("\n                       %11s a second",
           units_format_count((uint64_t)rate[0].value, count));
    if (l->args->compare)
        printf("   echo %s   ratio %.2f", units_format_count((uint64_t)rate[1].value, count),
               rate[0].value / rate[1].value);
    putchar('\n');
}

static int lookup_one_size(struct lookup *l, uint32_t keys)
{
    struct perf_side rtt[2] = {{.run = run_round_trips},
                               {.what = "zmq_echo", .run = run_echo_round_trips}};
    struct perf_side rate[2] = {{.run = run_rate}, {.what = "zmq_echo", .run = run_echo_rate}};
    size_t sides = l->args->compare ? 2 : 1;
    l->n = keys;
    memset(&l->ours, 0, sizeof(l->ours));
    int rc = 0;
    if (l->args->compare)
        rc = echo_sizes(l->echo, REQUEST_HEAD_BYTES + (size_t)keys * KVC_KEY_BYTES, REPLY_BYTES);
    if (rc == 0)
        rc = perf_rounds(l->args, l, rtt, sides);
    if (rc == 0)
        rc = perf_rounds(l->args, l, rate, sides);
    if (rc == 0)
        lookup_report(l, rtt, rate);
    return rc;
}

static int lookup_all_sizes(struct lookup *l)
{
    for (size_t i = 0; i < l->args->n_sizes; i++) {
        if (l->args->sizes[i] > l->chain_keys)
            l->chain_keys = (uint32_t)l->args->sizes[i];
    }
    int rc = lookup_fill(l);
    for (size_t i = 0; rc == 0 && i < l->args->n_sizes; i++)
        rc = lookup_one_size(l, (uint32_t)l->args->sizes[i]);
    free(l->keys);
    return rc;
}

static int take_keys(void *ctx, const char *text)
{
    struct perf_args *args = ctx;
    args->n_sizes = 1;
    return args_count(say_usage, "keys", text, 1, 4096, &args->sizes[0]);
}

static const struct arg option_table[] = {
    {"--compare", "take turns with a bare ZeroMQ echo of messages of the same sizes",
     ARG_FLAG(struct perf_args, compare)},
    {"--keys N", "keys of a lookup (default: 1 and 256)", ARG_DO(take_keys)},
    {"--depth N", "requests in flight for the rate (default 64)",
     ARG_COUNT(struct perf_args, depth, 1, DEPTH_MAX)},
    PERF_SECONDS_PAIRS,
    {"--socket PATH", "use the daemon that runs there; it must hold 64 chains",
     ARG_TEXT(struct perf_args, socket)},
    PERF_DAEMON_JSON,
    {0},
};

int cmd_lookup(int argc, char **argv)
{
    struct perf_args args = {.bench = "lookup",
                             .seconds = 1,
                             .pairs = 5,
                             .sizes = {1, 256},
                             .n_sizes = 2,
                             .depth = DEPTH_MAX};
    int rc = opt_take_only(argc, argv, option_table, help, &args);
    if (rc != 0)
        return rc < 0 ? BENCH_OK : rc;
    uint64_t staging = (uint64_t)STORE_BLOCKS * BLOCK_BYTES;
    struct rig_options options = {.socket = args.socket, .daemon_path = args.daemon_path};
    rig_set(&options, "host.limit=2GiB");
    rig_set(&options, "log.level=warn");
    struct lookup l = {.args = &args};
    if (args.compare)
        rc = echo_start(&l.echo);
    if (rc == 0)
        rc = perf_open(&options, staging, &l.session);
    if (rc == 0) {
        rc = perf_settle(&l.session);
        if (rc == 0)
            rc = lookup_all_sizes(&l);
        perf_close(&l.session);
    }
    echo_stop(&l.echo);
    return rc;
}
