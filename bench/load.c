/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcachebench load: reads cached blocks in the daemon's memory, beside memcpy and pread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "out.h"
#include "pattern.h"
#include "perf.h"
#include "units.h"

#define ARENA_BYTES   (2 * PERF_WORKING_SET)
#define STAGING_BYTES (UINT64_C(128) << 20)
#define LEASE_BYTES   (UINT64_C(32) << 20)
#define BLOCK_TOKENS  16

enum { DEPTH_MAX = 64 };

static const char help[] =
    "Usage: kvcachebench load [OPTIONS]\n"
    "\n"
    "How fast cached blocks are read where they lie: lease a batch, read every byte, release it,\n"
    "while the leases of the next batches are under way. 1 GiB of blocks, read round and round.\n"
    "\n" ARGS_HERE "\n"
    "Example:\n"
    "  kvcachebench load --compare --block-bytes 2MiB\n";

struct load {
    struct perf_session session;
    const struct perf_args *args;
    uint64_t block_bytes;
    uint32_t batch;
    uint64_t batches; /* batches of the working set */
    uint64_t stream;
    uint8_t *keys; /* keys of all batches */
    uint8_t *memory;
    uint8_t *warm;
    int file;
};

static const uint8_t *load_keys_of(const struct load *l, uint64_t batch)
{
    return l->keys + batch * l->batch * KVC_KEY_BYTES;
}

static int store_batch(struct load *l, uint64_t batch)
{
    uint64_t offsets[KVC_STORE_MAX];
    uint8_t statuses[KVC_STORE_MAX];
    const uint8_t *keys = load_keys_of(l, batch);
    for (uint32_t i = 0; i < l->batch; i++) {
        offsets[i] = i * l->block_bytes;
        pattern_fill(keys + (size_t)i * KVC_KEY_BYTES, l->session.staging + offsets[i],
                     l->block_bytes);
    }
    struct kvc_blocks blocks = {.keys = keys, .n = l->batch, .flags = KVC_F_ADMIT};
    int rc = kvc_store(l->session.ns, &blocks, offsets, NULL, 0, statuses);
    return rc < 0 ? perf_fail(&l->session, rc, "store") : perf_statuses(statuses, l->batch);
}

static int load_acquire_begin(struct load *l, uint64_t batch, struct kvc_op **ret_op)
{
    struct kvc_seq seq = {.tokens = l->batch * BLOCK_TOKENS,
                          .group = {{.keys = load_keys_of(l, batch), .n = l->batch}}};
    int rc = kvc_acquire_begin(l->session.ns, &seq, NULL, ret_op);
    return rc < 0 ? perf_fail(&l->session, rc, "acquire") : 0;
}

static int acquire_end(struct load *l, struct kvc_op **op, struct kvc_hold **ret_hold)
{
    int rc = kvc_wait(op, NULL, ret_hold, NULL);
    if (rc < 0)
        return perf_fail(&l->session, rc, "acquire");
    if ((*ret_hold)->group[0].n == l->batch)
        return 0;
    say_error("only %u of %u blocks are cached; give the daemon room for 1 GiB of them",
              (*ret_hold)->group[0].n, l->batch);
    kvc_release(l->session.kvc, ret_hold);
    return BENCH_FAILED;
}

static int load_release(struct load *l, struct kvc_hold **hold)
{
    int rc = kvc_hold_check(*hold);
    kvc_release(l->session.kvc, hold);
    return rc < 0 ? perf_fail(&l->session, rc, "reading a block under lease") : 0;
}

/* Reads neighbouring blocks as one piece, like a caller that copies them: what a processor loses at
 * the beginning of each piece is no cost of the cache. */
static uint64_t read_blocks(const struct kvc_block *block, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n;) {
        const uint8_t *from = block[i].data;
        uint64_t bytes = 0;
        for (; i < n && block[i].data == from + bytes; i++)
            bytes += block[i].bytes;
        sum += perf_read(from, bytes);
    }
    return sum;
}

static int read_batch(struct load *l, struct kvc_op **op, uint64_t *sum)
{
    struct kvc_hold *hold;
    int rc = acquire_end(l, op, &hold);
    if (rc != 0)
        return rc;
    *sum += read_blocks(hold->group[0].block, l->batch);
    return load_release(l, &hold);
}

/* Keeps `depth` requests in flight: while a batch is read, those after it are being leased. A
 * release goes out with the next request, so that both cost one wake-up. */
static int load_run_ours(void *ctx, double seconds, double *ret_value)
{
    struct load *l = ctx;
    struct kvc_op *ops[DEPTH_MAX] = {0};
    uint64_t depth = l->args->depth, begun = now_ns(), until = begun + (uint64_t)(seconds * 1e9);
    uint64_t done = 0, asked = 0, sum = 0;
    int rc = 0;
    for (; rc == 0 && asked < depth; asked++)
        rc = load_acquire_begin(l, asked % l->batches, &ops[asked]);
    for (; rc == 0 && now_ns() < until; done++, asked++) {
        struct kvc_op **op = &ops[done % depth];
        rc = read_batch(l, op, &sum);
        if (rc == 0)
            rc = load_acquire_begin(l, asked % l->batches, op);
    }
    for (; rc == 0 && done < asked; done++)
        rc = read_batch(l, &ops[done % depth], &sum);
    *ret_value = (double)(done * l->batch * l->block_bytes) / ((double)(now_ns() - begun) * 1e-9);
    perf_keep(sum);
    return rc;
}

static int run_plain_read(void *ctx, double seconds, double *ret_value)
{
    struct load *l = ctx;
    uint64_t begun = now_ns(), until = begun + (uint64_t)(seconds * 1e9);
    uint64_t done = 0, sum = 0;
    const uint64_t batch_bytes = l->batch * l->block_bytes;
    for (; now_ns() < until; done++)
        sum += perf_read(l->memory + done % l->batches * batch_bytes, batch_bytes);
    *ret_value = (double)(done * l->batch * l->block_bytes) / ((double)(now_ns() - begun) * 1e-9);
    perf_keep(sum);
    return 0;
}

static int run_pread(void *ctx, double seconds, double *ret_value)
{
    struct load *l = ctx;
    uint64_t begun = now_ns(), until = begun + (uint64_t)(seconds * 1e9);
    uint64_t done = 0, sum = 0;
    for (; now_ns() < until; done++) {
        uint64_t at = done % l->batches * l->batch * l->block_bytes;
        for (uint32_t i = 0; i < l->batch; i++) {
            ssize_t n = pread(l->file, l->warm, l->block_bytes, (off_t)(at + i * l->block_bytes));
            if (n != (ssize_t)l->block_bytes) {
                say_error("pread: %s", n < 0 ? strerror(errno) : "short read");
                return BENCH_FAILED;
            }
            sum += perf_read(l->warm, l->block_bytes);
        }
    }
    *ret_value = (double)(done * l->batch * l->block_bytes) / ((double)(now_ns() - begun) * 1e-9);
    perf_keep(sum);
    return 0;
}

/* Compares every byte once before anything is measured; this also maps all chunks. */
static int check_all(struct load *l)
{
    for (uint64_t batch = 0; batch < l->batches; batch++) {
        struct kvc_op *op;
        struct kvc_hold *hold;
        int rc = load_acquire_begin(l, batch, &op);
        if (rc == 0)
            rc = acquire_end(l, &op, &hold);
        if (rc != 0)
            return rc;
        uint64_t wrong = 0;
        for (uint32_t i = 0; i < l->batch; i++)
            wrong += pattern_wrong_bytes(load_keys_of(l, batch) + (size_t)i * KVC_KEY_BYTES,
                                         hold->group[0].block[i].data, l->block_bytes);
        rc = load_release(l, &hold);
        if (rc != 0)
            return rc;
        if (wrong) {
            say_error("%" PRIu64 " bytes of a batch are not what was stored", wrong);
            return BENCH_WRONG;
        }
    }
    return 0;
}

static int make_rivals(struct load *l)
{
    uint64_t bytes = l->batches * l->batch * l->block_bytes;
    l->memory = perf_private_memory(bytes);
    l->warm = perf_private_memory(l->block_bytes);
    /* A memfd is a file on tmpfs that has no name. */
    uint8_t *file = perf_shared_memory(bytes, &l->file);
    if (!l->memory || !l->warm || !file)
        return BENCH_FAILED;
    for (uint64_t i = 0; i < l->batches * l->batch; i++)
        pattern_fill(l->keys + i * KVC_KEY_BYTES, l->memory + i * l->block_bytes, l->block_bytes);
    memcpy(file, l->memory, bytes);
    munmap(file, bytes);
    return 0;
}

static void drop_rivals(struct load *l)
{
    if (l->memory)
        munmap(l->memory, l->batches * l->batch * l->block_bytes);
    if (l->warm)
        munmap(l->warm, l->block_bytes);
    if (l->file >= 0)
        close(l->file);
    l->memory = l->warm = NULL;
    l->file = -1;
}

static void load_report_json(const struct load *l, const struct perf_side *ours,
                             const struct perf_side *limit, const char *against)
{
    struct out_metric line = {.bench = "load",
                              .keys = {{.key = "block_bytes", .number = l->block_bytes},
                                       {.key = "batch", .number = l->batch},
                                       {.key = against ? "against" : NULL, .text = against}},
                              .metric = "load_bytes_per_s",
                              .value = ours->value,
                              .unit = "B/s"};
    if (limit) {
        line.limit_what = limit->what;
        line.limit = limit->value;
        line.ratio = ours->value / limit->value;
    }
    out_json(&line);
}

static void load_report(const struct load *l, const struct perf_side *sides)
{
    bool compare = l->args->compare;
    if (l->args->json) {
        load_report_json(l, &sides[0], compare ? &sides[1] : NULL, NULL);
        if (compare)
            load_report_json(l, &sides[0], &sides[2], sides[2].what);
        return;
    }
    char size[UNITS_TEXT_BYTES], rate[UNITS_TEXT_BYTES];
    printf("  load %10s x %-4u %14s", units_format_bytes(l->block_bytes, size), l->batch,
           units_format_rate((uint64_t)sides[0].value, rate));
    for (size_t i = 1; compare && i < 3; i++)
        printf("   %s %14s   ratio %.2f", sides[i].what,
               units_format_rate((uint64_t)sides[i].value, rate), sides[0].value / sides[i].value);
    putchar('\n');
}

static int load_fill(struct load *l)
{
    uint64_t blocks = l->batches * l->batch;
    l->keys = malloc(blocks * KVC_KEY_BYTES);
    if (!l->keys) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    for (uint64_t i = 0; i < blocks; i++)
        perf_key(l->stream, i, l->keys + i * KVC_KEY_BYTES);
    int rc = perf_namespace(&l->session, l->block_bytes);
    for (uint64_t batch = 0; rc == 0 && batch < l->batches; batch++)
        rc = store_batch(l, batch);
    return rc;
}

/* By default a lease covers the bytes of a prompt's prefix, not those of one store. */
static uint32_t batch_of(const struct perf_args *args, uint64_t block_bytes)
{
    if (args->batch)
        return (uint32_t)args->batch;
    uint64_t n = LEASE_BYTES / block_bytes;
    return n == 0 ? 1 : n > KVC_STORE_MAX ? KVC_STORE_MAX : (uint32_t)n;
}

/* Stores blocks of this size in the daemon, and compares every byte of them. */
static int load_prepare(struct load *l, uint64_t block_bytes, uint64_t working_set)
{
    l->block_bytes = block_bytes;
    l->batch = batch_of(l->args, block_bytes);
    uint64_t batch_bytes = l->batch * block_bytes;
    l->batches = (working_set + batch_bytes - 1) / batch_bytes;
    l->stream++;
    if (batch_bytes > STAGING_BYTES || block_bytes % 64)
        return say_usage("a batch of %u blocks of %" PRIu64
                         " bytes: blocks must be multiples of 64 "
                         "bytes and a batch at most 128 MiB; use another --batch",
                         l->batch, block_bytes);
    int rc = load_fill(l);
    return rc == 0 ? check_all(l) : rc;
}

/* ---- one size against another ---- */

static int run_small(void *ctx, double seconds, double *ret_value)
{
    return load_run_ours(&((struct load *)ctx)[0], seconds, ret_value);
}

static int run_large(void *ctx, double seconds, double *ret_value)
{
    return load_run_ours(&((struct load *)ctx)[1], seconds, ret_value);
}

static int one_against(struct load *l, uint64_t block_bytes)
{
    char size[UNITS_TEXT_BYTES], large[UNITS_TEXT_BYTES], rate[2][UNITS_TEXT_BYTES];
    char what[UNITS_TEXT_BYTES + 8];
    snprintf(what, sizeof(what), "%s blocks", units_format_bytes(l->args->against, large));
    struct perf_side sides[2] = {{.run = run_small}, {.what = what, .run = run_large}};
    struct load pair[2] = {*l, *l};
    l->stream += 2;
    pair[1].stream++;
    int rc = load_prepare(&pair[0], block_bytes, PERF_WORKING_SET / 2);
    if (rc == 0)
        rc = load_prepare(&pair[1], l->args->against, PERF_WORKING_SET / 2);
    if (rc == 0)
        rc = perf_rounds(l->args, pair, sides, 2);
    if (rc == 0 && l->args->json)
        load_report_json(&pair[0], &sides[0], &sides[1], what);
    else if (rc == 0)
        printf("  load %10s x %-4u %14s   %s %14s   ratio %.2f\n",
               units_format_bytes(block_bytes, size), pair[0].batch,
               units_format_rate((uint64_t)sides[0].value, rate[0]), what,
               units_format_rate((uint64_t)sides[1].value, rate[1]),
               sides[0].value / sides[1].value);
    free(pair[0].keys);
    free(pair[1].keys);
    return rc;
}

static int load_one_size(struct load *l, uint64_t block_bytes)
{
    struct perf_side sides[3] = {{.run = load_run_ours},
                                 {.what = "plain read", .run = run_plain_read},
                                 {.what = "tmpfs_pread", .run = run_pread}};
    int rc = load_prepare(l, block_bytes, PERF_WORKING_SET);
    if (rc == 0 && l->args->compare)
        rc = make_rivals(l);
    if (rc == 0)
        rc = perf_rounds(l->args, l, sides, l->args->compare ? 3 : 1);
    if (rc == 0)
        load_report(l, sides);
    drop_rivals(l);
    free(l->keys);
    l->keys = NULL;
    return rc;
}

static const struct arg option_table[] = {
    {"--compare",
     "take turns with the same reader over private memory, and over a buffer into which pread "
     "brings the blocks from a tmpfs file",
     ARG_FLAG(struct perf_args, compare)},
    {"--against SIZE",
     "take turns with blocks of this size, in leases of as many bytes: what smaller blocks cost",
     ARG_BYTES(struct perf_args, against, 64, KVC_BLOCK_BYTES_MAX)},
    {"--block-bytes LIST", "(default 64KiB,2MiB)", ARG_DO(perf_take_sizes)},
    {"--batch N", "blocks in a lease (default: 32 MiB of them)",
     ARG_COUNT(struct perf_args, batch, 1, KVC_STORE_MAX)},
    {"--depth N", "leases asked for ahead (default 4)",
     ARG_COUNT(struct perf_args, depth, 1, DEPTH_MAX)},
    PERF_SECONDS_PAIRS,
    {"--socket PATH", "use the daemon that runs there; it must hold 1 GiB",
     ARG_TEXT(struct perf_args, socket)},
    PERF_DAEMON_JSON,
    {0},
};

int cmd_load(int argc, char **argv)
{
    struct perf_args args = {.bench = "load",
                             .seconds = 1,
                             .pairs = 5,
                             .sizes = {64 << 10, 2 << 20},
                             .n_sizes = 2,
                             .depth = 4};
    int rc = opt_take_only(argc, argv, option_table, help, &args);
    if (rc != 0)
        return rc < 0 ? BENCH_OK : rc;
    if (args.compare && args.against)
        return say_usage("--compare and --against: which of them? One at a time");
    struct rig_options options = {.socket = args.socket, .daemon_path = args.daemon_path};
    perf_room(&args, ARENA_BYTES, &options);
    rig_set(&options, "staging.session_max=%" PRIu64, STAGING_BYTES);
    rig_set(&options, "staging.total=%" PRIu64, STAGING_BYTES);
    rig_set(&options, "log.level=warn");
    struct load l = {.args = &args, .file = -1};
    perf_level_memory(&args);
    rc = perf_open(&options, STAGING_BYTES, &l.session);
    if (rc != 0)
        return rc;
    rc = perf_settle(&l.session);
    for (size_t i = 0; rc == 0 && i < args.n_sizes; i++)
        rc = args.against ? one_against(&l, args.sizes[i]) : load_one_size(&l, args.sizes[i]);
    perf_close(&l.session);
    return rc;
}
