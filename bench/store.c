/* SPDX-License-Identifier: Apache-2.0 */
/* Kvcachebench store: stores blocks from staging, beside memcpy of the same bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "out.h"
#include "perf.h"
#include "units.h"

/* The arena is twice the staging area, so that every block goes to memory that no cache holds. */
#define ARENA_BYTES (2 * PERF_WORKING_SET)
#define BATCHES_MAX 64

static const char help[] =
    "Usage: kvcachebench store [OPTIONS]\n"
    "\n"
    "How fast blocks that lie in staging get into the cache, checksums included: one client, new\n"
    "keys each time, the daemon evicting to make room. The sources fill 1 GiB and the cache 2 "
    "GiB.\n"
    "\n" ARGS_HERE "\n"
    "Example:\n"
    "  kvcachebench store --compare --json\n";

struct flight {
    struct kvc_op *op;
    uint8_t keys[KVC_STORE_MAX * KVC_KEY_BYTES];
    uint64_t region;
};

struct store {
    struct perf_session session;
    const struct perf_args *args;
    uint64_t block_bytes;
    uint32_t batch;
    uint64_t regions, next; /* batches that fit in staging; batches begun so far */
    uint64_t stream;
    uint8_t *target; /* of memcpy */
    struct flight flight[BATCHES_MAX];
    uint8_t statuses[KVC_STORE_MAX];
    uint64_t offsets[KVC_STORE_MAX];
};

static int store_begin(struct store *s, struct flight *flight)
{
    flight->region = s->next % s->regions;
    for (uint32_t i = 0; i < s->batch; i++) {
        perf_key(s->stream, s->next * s->batch + i, flight->keys + (size_t)i * KVC_KEY_BYTES);
        s->offsets[i] = (flight->region * s->batch + i) * s->block_bytes;
    }
    s->next++;
    struct kvc_blocks blocks = {.keys = flight->keys, .n = s->batch, .flags = KVC_F_ADMIT};
    int rc = kvc_store_begin(s->session.ns, &blocks, s->offsets, NULL, 0, &flight->op);
    return rc < 0 ? perf_fail(&s->session, rc, "store") : 0;
}

static int store_finish(struct store *s, struct flight *flight)
{
    int rc = kvc_wait(&flight->op, NULL, NULL, s->statuses);
    return rc < 0 ? perf_fail(&s->session, rc, "store") : perf_statuses(s->statuses, s->batch);
}

static int store_run_ours(void *ctx, double seconds, double *ret_value)
{
    struct store *s = ctx;
    uint64_t depth = s->args->depth, begun = now_ns(), batches = 0;
    uint64_t until = begun + (uint64_t)(seconds * 1e9);
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < depth; i++)
        rc = store_begin(s, &s->flight[i]);
    while (rc == 0 && now_ns() < until) {
        struct flight *flight = &s->flight[batches % depth];
        rc = store_finish(s, flight);
        if (rc == 0)
            rc = store_begin(s, flight);
        batches++;
    }
    for (uint64_t i = 0; rc == 0 && i < depth; i++, batches++)
        rc = store_finish(s, &s->flight[batches % depth]);
    *ret_value =
        (double)(batches * s->batch * s->block_bytes) / ((double)(now_ns() - begun) * 1e-9);
    return rc;
}

static int store_run_memcpy(void *ctx, double seconds, double *ret_value)
{
    struct store *s = ctx;
    uint64_t begun = now_ns(), until = begun + (uint64_t)(seconds * 1e9);
    uint64_t batch_bytes = s->batch * s->block_bytes, from = 0, to = 0, bytes = 0;
    while (now_ns() < until) {
        for (uint32_t i = 0; i < s->batch; i++) {
            memcpy(s->target + to + i * s->block_bytes,
                   s->session.staging + from + i * s->block_bytes, s->block_bytes);
        }
        bytes += batch_bytes;
        from = (from + batch_bytes) % (s->regions * batch_bytes);
        to = to + 2 * batch_bytes <= ARENA_BYTES ? to + batch_bytes : 0;
    }
    *ret_value = (double)bytes / ((double)(now_ns() - begun) * 1e-9);
    return 0;
}

/* Reads the last blocks back, because a fast store of wrong bytes would be no result. */
static int check_last(struct store *s)
{
    for (uint64_t i = 0; i < s->args->depth; i++) {
        struct flight *flight = &s->flight[i];
        struct kvc_seq seq = {.tokens = s->batch * 16,
                              .group = {{.keys = flight->keys, .n = s->batch}}};
        struct kvc_hold *hold;
        int rc = kvc_acquire(s->session.ns, &seq, NULL, &hold);
        if (rc < 0)
            return perf_fail(&s->session, rc, "acquire");
        uint32_t n = hold->group[0].n, good = 0;
        for (uint32_t b = 0; b < n; b++) {
            const uint8_t *source =
                s->session.staging + (flight->region * s->batch + b) * s->block_bytes;
            good += memcmp(hold->group[0].block[b].data, source, s->block_bytes) == 0;
        }
        kvc_release(s->session.kvc, &hold);
        if (n != s->batch || good != n) {
            say_error("of %u blocks stored just now %u were found and %u are right", s->batch, n,
                      good);
            return BENCH_WRONG;
        }
    }
    return 0;
}

static void store_report(const struct store *s, const struct perf_side *sides)
{
    bool compare = s->args->compare;
    double ratio = compare ? sides[0].value / sides[1].value : 0;
    if (s->args->json) {
        struct out_metric line = {.bench = "store",
                                  .keys = {{.key = "block_bytes", .number = s->block_bytes},
                                           {.key = "batch", .number = s->batch},
                                           {.key = "depth", .number = s->args->depth}},
                                  .metric = "store_bytes_per_s",
                                  .value = sides[0].value,
                                  .unit = "B/s",
                                  .limit_what = compare ? "memcpy" : NULL,
                                  .limit = sides[1].value,
                                  .ratio = ratio};
        out_json(&line);
        return;
    }
    char size[UNITS_TEXT_BYTES], ours[UNITS_TEXT_BYTES], limit[UNITS_TEXT_BYTES];
    printf("  store %10s x %-4u %14s", units_format_bytes(s->block_bytes, size), s->batch,
           units_format_rate((uint64_t)sides[0].value, ours));
    if (compare)
        printf("   memcpy %14s   ratio %.2f", units_format_rate((uint64_t)sides[1].value, limit),
               ratio);
    putchar('\n');
}

static int store_one_size(struct store *s, uint64_t block_bytes)
{
    struct perf_side sides[2] = {{.run = store_run_ours},
                                 {.what = "memcpy", .run = store_run_memcpy}};
    s->block_bytes = block_bytes;
    s->batch = (uint32_t)perf_batch(s->args, block_bytes);
    s->regions = s->session.staging_bytes / (s->batch * block_bytes);
    s->next = 0;
    s->stream++;
    if (s->regions < s->args->depth)
        return say_usage("%" PRIu64 " batches of %u blocks of %" PRIu64
                         " bytes do not fit in 1 GiB "
                         "of staging; use a smaller --batch or --depth",
                         s->args->depth, s->batch, block_bytes);
    int rc = perf_namespace(&s->session, block_bytes);
    /* Fills the arena once before anything is measured, so that all its pages exist. */
    double unused;
    for (uint64_t bytes = 0; rc == 0 && bytes < ARENA_BYTES;
         bytes = s->next * s->batch * block_bytes)
        rc = store_run_ours(s, 0.1, &unused);
    if (rc == 0)
        rc = perf_rounds(s->args, s, sides, s->args->compare ? 2 : 1);
    if (rc == 0)
        rc = check_last(s);
    if (rc == 0)
        store_report(s, sides);
    return rc;
}

static int store_all_sizes(struct store *s)
{
    /* The library wants offsets in multiples of 64 and block sizes that are not would shift them.
     */
    for (size_t i = 0; i < s->args->n_sizes; i++) {
        if (s->args->sizes[i] % 64)
            return say_usage("--block-bytes: %" PRIu64 " is not a multiple of 64",
                             s->args->sizes[i]);
    }
    uint64_t *words = (uint64_t *)s->session.staging;
    for (uint64_t i = 0; i < s->session.staging_bytes / sizeof(*words); i++)
        words[i] = i * 0x9e3779b97f4a7c15u;
    if (s->args->compare) {
        s->target = perf_shared_memory(ARENA_BYTES, NULL);
        if (!s->target)
            return BENCH_FAILED;
    }
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->args->n_sizes; i++)
        rc = store_one_size(s, s->args->sizes[i]);
    if (s->target)
        munmap(s->target, ARENA_BYTES);
    return rc;
}

static const struct arg option_table[] = {
    {"--compare", "take turns with one thread's memcpy of the same blocks",
     ARG_FLAG(struct perf_args, compare)},
    {"--block-bytes LIST", "(default 64KiB,2MiB)", ARG_DO(perf_take_sizes)},
    {"--batch N", "blocks in a request (default 32, and 16 from 1 MiB on)",
     ARG_COUNT(struct perf_args, batch, 1, KVC_STORE_MAX)},
    {"--depth N", "requests in flight (default 4)",
     ARG_COUNT(struct perf_args, depth, 1, BATCHES_MAX)},
    PERF_SECONDS_PAIRS,
    {"--socket PATH", "use the daemon that runs there; its staging.session_max must be 1 GiB",
     ARG_TEXT(struct perf_args, socket)},
    PERF_DAEMON_JSON,
    {0},
};

int cmd_store(int argc, char **argv)
{
    struct perf_args args = {.bench = "store",
                             .seconds = 1,
                             .pairs = 5,
                             .sizes = {64 << 10, 2 << 20},
                             .n_sizes = 2,
                             .depth = 4};
    int rc = opt_take_only(argc, argv, option_table, help, &args);
    if (rc != 0)
        return rc < 0 ? BENCH_OK : rc;
    struct rig_options options = {.socket = args.socket, .daemon_path = args.daemon_path};
    perf_room(&args, ARENA_BYTES, &options);
    rig_set(&options, "staging.session_max=%" PRIu64, PERF_WORKING_SET);
    rig_set(&options, "staging.total=%" PRIu64, PERF_WORKING_SET);
    rig_set(&options, "log.level=warn");
    struct store *s = calloc(1, sizeof(*s));
    if (!s) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    s->args = &args;
    perf_level_memory(&args);
    rc = perf_open(&options, PERF_WORKING_SET, &s->session);
    if (rc == 0) {
        rc = perf_settle(&s->session);
        if (rc == 0)
            rc = store_all_sizes(s);
        perf_close(&s->session);
    }
    free(s);
    return rc;
}
