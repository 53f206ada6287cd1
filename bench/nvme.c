/* SPDX-License-Identifier: Apache-2.0 */
/* kvcachebench nvme: the storage tier alone reads and writes, beside fio with the same sizes. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "fio.h"
#include "nvme_data.h"
#include "out.h"
#include "stdfds.h"
#include "units.h"

#define HOST_MIN   (UINT64_C(32) << 20)
#define BLOCK_MAX  (UINT64_C(16) << 20)
#define PAGE_BYTES UINT64_C(4096)

/* Least value of --bytes, for each byte of the largest block. */
#define BYTES_PER_BLOCK 96

enum { CHAIN_SMALL = 64 << 10, CHAIN_LARGE = 2 << 20 };

/* Bytes of a prompt's prefix: the size of a chain when block sizes are compared. */
#define PREFIX_BYTES (UINT64_C(16) << 20)
/* Most bytes of one request for scattered blocks, unless a block is larger. */
#define SCATTER_BYTES (UINT64_C(1) << 20)

static const char help[] =
    "Usage: kvcachebench nvme [OPTIONS]\n"
    "\n"
    "How fast blocks come from and go to storage, through the whole path: a daemon with little "
    "memory and a store in --dir, blocks that lie on storage alone, a worker that acquires and "
    "releases them with several requests in flight (sequential: chains of 2 MiB in the order in "
    "which they were stored; random: chains of a few blocks that lie far from each other, with as "
    "many blocks in flight), or stores new ones. Every byte is compared once before anything is "
    "measured.\n"
    "\n" ARGS_HERE "\n"
    "Example:\n"
    "  kvcachebench nvme --compare --dir /var/lib/kvcache --block-bytes 64KiB,2MiB\n";

enum pattern { SEQUENTIAL, RANDOM, WRITE, CHAINS };

static const struct {
    const char *name, *metric, *fio;
} patterns[] = {[SEQUENTIAL] = {"sequential", "read_bytes_per_s", "read"},
                [RANDOM] = {"random", "read_bytes_per_s", "randread"},
                [WRITE] = {"log", "write_bytes_per_s", "write"},
                [CHAINS] = {"chains", "read_bytes_per_s", NULL}};

struct nvme_bench {
    struct perf_args args;
    const char *dir;
    uint64_t bytes, scatter;
    struct perf_session session;
    struct fio_file file;
    struct nvme_data data[2];
    /* of what is measured now */
    enum pattern pattern;
    uint64_t block_bytes;
    uint32_t chain, request_blocks;
    struct nvme_data *reading, *against;
    uint64_t io_bytes, fio_depth; /* io_bytes: mean size of the daemon's I/Os, which fio uses */
    double cpu[2][PERF_PAIRS_MAX];
    size_t n_cpu[2];
    /* got_bytes: that the worker had; loaded_bytes: that came from storage. */
    uint64_t got_bytes, loaded_bytes;
};

static void note_cpu(struct nvme_bench *b, int side, double seconds_per_gb)
{
    if (b->n_cpu[side] < PERF_PAIRS_MAX)
        b->cpu[side][b->n_cpu[side]++] = seconds_per_gb;
}

/* Keeps the size and depth for fio: the mean size of the daemon's I/Os, and as many of them as one
 * of our requests consists of. */
static void note_io(struct nvme_bench *b, uint64_t bytes, uint64_t ios, uint64_t requests,
                    uint64_t request_bytes)
{
    if (ios == 0)
        return;
    uint64_t io = (bytes / ios + PAGE_BYTES / 2) / PAGE_BYTES * PAGE_BYTES;
    b->io_bytes = io ? io : PAGE_BYTES;
    uint64_t parts = (request_bytes + b->io_bytes / 2) / b->io_bytes;
    b->fio_depth = requests * (parts ? parts : 1);
}

static int read_data(struct nvme_bench *b, struct nvme_data *data, double seconds,
                     double *ret_value)
{
    struct nvme_run run;
    uint32_t requests = (uint32_t)b->args.depth;
    if (data->scattered)
        requests = requests / data->chain ? requests / data->chain : 1;
    int rc = nvme_read(&b->session, data, requests, seconds, &run);
    if (rc != 0)
        return rc;
    uint64_t loaded = (run.after.gets - run.before.gets) * data->block_bytes;
    b->got_bytes += run.bytes;
    b->loaded_bytes += loaded;
    /* Bytes that were in memory by chance were not read from storage, and bytes that nobody got are
     * of no use. */
    if (loaded > run.bytes)
        loaded = run.bytes;
    if (data == b->reading) {
        note_io(b, run.after.read_bytes - run.before.read_bytes, run.after.reads - run.before.reads,
                requests, data->chain * data->block_bytes);
        b->request_blocks = data->chain;
        if (loaded)
            note_cpu(b, 0, (double)(run.after.cpu_ns - run.before.cpu_ns) / (double)loaded);
    }
    *ret_value = (double)loaded / run.seconds;
    return 0;
}

static int run_read(void *ctx, double seconds, double *ret_value)
{
    struct nvme_bench *b = ctx;
    return read_data(b, b->reading, seconds, ret_value);
}

static int run_against(void *ctx, double seconds, double *ret_value)
{
    struct nvme_bench *b = ctx;
    return read_data(b, b->against, seconds, ret_value);
}

static int run_write(void *ctx, double seconds, double *ret_value)
{
    struct nvme_bench *b = ctx;
    struct nvme_run run;
    int rc =
        nvme_write(&b->session, b->block_bytes, b->chain, (uint32_t)b->args.depth, seconds, &run);
    if (rc != 0)
        return rc;
    uint64_t accepted = run.after.accepted_bytes - run.before.accepted_bytes;
    note_io(b, run.after.written_bytes - run.before.written_bytes,
            run.after.writes - run.before.writes, b->args.depth, b->chain * b->block_bytes);
    b->request_blocks = b->chain;
    if (accepted)
        note_cpu(b, 0, (double)(run.after.cpu_ns - run.before.cpu_ns) / (double)accepted);
    b->got_bytes += run.bytes;
    b->loaded_bytes += accepted;
    *ret_value = (double)accepted / run.seconds;
    return 0;
}

static int run_fio(void *ctx, double seconds, double *ret_value)
{
    struct nvme_bench *b = ctx;
    struct fio_job job = {.file = &b->file,
                          .rw = patterns[b->pattern].fio,
                          .io_bytes = b->io_bytes,
                          .depth = b->fio_depth,
                          .seconds = seconds};
    struct fio_result result;
    /* The daemon made no I/O: everything else is measured, and this rate is 0. */
    if (b->io_bytes == 0) {
        job.io_bytes = NVME_UNIT_BYTES;
        job.depth = b->args.depth;
    }
    int rc = fio_run(&job, &result);
    if (rc != 0)
        return rc;
    note_cpu(b, 1, result.cpu_s_per_gb);
    *ret_value = result.bytes_per_s;
    return 0;
}

/* ---- output ---- */

static struct out_metric nvme_line_of(const struct nvme_bench *b, const char *metric,
                                      const char *unit)
{
    return (struct out_metric){.bench = "nvme",
                               .keys = {{.key = "block_bytes", .number = b->block_bytes},
                                        {.key = "pattern", .text = patterns[b->pattern].name},
                                        {.key = "depth", .number = b->args.depth},
                                        {.key = "request_blocks", .number = b->request_blocks},
                                        {.key = "io_bytes", .number = b->io_bytes},
                                        {.key = "fio_depth", .number = b->fio_depth}},
                               .metric = metric,
                               .unit = unit};
}

static void nvme_report_json(const struct nvme_bench *b, const struct perf_side *sides, size_t n,
                             const double cpu[2])
{
    struct out_metric line = nvme_line_of(b, patterns[b->pattern].metric, "B/s");
    line.value = sides[0].value;
    if (n > 1) {
        line.limit_what = sides[1].what;
        line.limit = sides[1].value;
        line.ratio = sides[0].value / sides[1].value;
    }
    out_json(&line);
    line = nvme_line_of(b, b->pattern == WRITE ? "write_cpu" : "read_cpu", "s/GB");
    line.value = cpu[0];
    if (b->n_cpu[1]) {
        line.limit_what = "fio";
        line.limit = cpu[1];
        line.ratio = cpu[1] > 0 ? cpu[0] / cpu[1] : 0;
    }
    out_json(&line);
    line = nvme_line_of(b, "storage_share", "1");
    line.value = b->got_bytes ? (double)b->loaded_bytes / (double)b->got_bytes : 0;
    out_json(&line);
}

static void nvme_report(struct nvme_bench *b, const struct perf_side *sides, size_t n)
{
    double cpu[2] = {0};
    for (int i = 0; i < 2; i++) {
        if (b->n_cpu[i])
            cpu[i] = out_median(b->cpu[i], b->n_cpu[i]);
    }
    if (b->args.json) {
        nvme_report_json(b, sides, n, cpu);
        return;
    }
    char size[UNITS_TEXT_BYTES], io[UNITS_TEXT_BYTES], rate[UNITS_TEXT_BYTES];
    printf("  %-10s %8s  I/O of %8s x %-3" PRIu64 " %12s  CPU %.3f s/GB", patterns[b->pattern].name,
           units_format_bytes(b->block_bytes, size), units_format_bytes(b->io_bytes, io),
           b->fio_depth, units_format_rate((uint64_t)sides[0].value, rate), cpu[0]);
    if (n > 1)
        printf("   %s %12s", sides[1].what, units_format_rate((uint64_t)sides[1].value, rate));
    if (b->n_cpu[1])
        printf("  CPU %.3f s/GB", cpu[1]);
    if (n > 1)
        printf("   ratio %.2f", sides[0].value / sides[1].value);
    if (b->got_bytes && b->loaded_bytes < b->got_bytes / 100 * 95)
        printf("   (%.0f %% of the bytes %s storage)",
               100 * (double)b->loaded_bytes / (double)b->got_bytes,
               b->pattern == WRITE ? "reached" : "came from");
    putchar('\n');
    (void)stdfds_flush();
}

/* ---- what is measured ---- */

static int nvme_measure(struct nvme_bench *b, enum pattern pattern, struct perf_side *sides,
                        size_t n)
{
    b->pattern = pattern;
    b->io_bytes = b->fio_depth = 0;
    b->n_cpu[0] = b->n_cpu[1] = 0;
    b->got_bytes = b->loaded_bytes = 0;
    int rc = perf_rounds(&b->args, b, sides, n);
    if (rc == 0)
        nvme_report(b, sides, n);
    return rc;
}

static int measure_reads(struct nvme_bench *b, enum pattern pattern, struct nvme_data *data)
{
    struct perf_side sides[2] = {{.run = run_read}, {.what = "fio", .run = run_fio}};
    b->reading = data;
    return nvme_measure(b, pattern, sides, b->args.compare ? 2 : 1);
}

static int measure_writes(struct nvme_bench *b)
{
    struct perf_side sides[2] = {{.run = run_write}, {.what = "fio", .run = run_fio}};
    int rc = perf_namespace(&b->session, b->block_bytes);
    return rc == 0 ? nvme_measure(b, WRITE, sides, b->args.compare ? 2 : 1) : rc;
}

static uint64_t unit_bytes(const struct nvme_bench *b)
{
    uint64_t largest = b->args.against ? PREFIX_BYTES : NVME_UNIT_BYTES;
    for (size_t i = 0; i < b->args.n_sizes; i++)
        largest = b->args.sizes[i] > largest ? b->args.sizes[i] : largest;
    return largest;
}

/* Host memory so small that requests in flight take a part of it only. */
static uint64_t host_bytes(const struct nvme_bench *b)
{
    uint64_t flying = 4 * b->args.depth * unit_bytes(b);
    uint64_t host = flying > HOST_MIN ? flying : HOST_MIN;
    return b->bytes / 8 > host ? b->bytes / 8 : host;
}

static int nvme_start(struct nvme_bench *b)
{
    struct rig_options options = {.daemon_path = b->args.daemon_path, .store_in = b->dir};
    uint64_t staging = b->args.depth * unit_bytes(b);
    rig_set(&options, "host.limit=%" PRIu64, host_bytes(b));
    rig_set(&options, "nvme.limit=%" PRIu64, 3 * b->bytes);
    /* LRU finds nothing in memory when it goes round a set that is larger; other policies would. */
    rig_set(&options, "policy.eviction=lru");
    rig_set(&options, "index.blocks=%" PRIu64,
            (3 * b->bytes + host_bytes(b)) / b->block_bytes * 5 / 4 + 4096);
    rig_set(&options, "staging.session_max=%" PRIu64, staging);
    rig_set(&options, "staging.total=%" PRIu64, staging);
    rig_set(&options, "log.level=warn");
    struct nvme_counts counts;
    int rc = perf_open(&options, staging, &b->session);
    if (rc == 0)
        rc = nvme_counts(&b->session, &counts);
    if (rc == 0)
        rc = perf_quiet(b->session.rig, "has formatted its store");
    return rc;
}

static int make_data(struct nvme_bench *b, int which, uint64_t block_bytes, uint32_t chain,
                     bool scattered)
{
    return nvme_data_make(&b->session, block_bytes, chain, b->bytes, scattered,
                          (uint32_t)b->args.depth, host_bytes(b) / 4, &b->data[which]);
}

static int settle_data(struct nvme_bench *b)
{
    uint32_t depth = (uint32_t)b->args.depth;
    int rc = perf_quiet(b->session.rig, "has written the blocks");
    for (int i = 0; rc == 0 && i < 2; i++)
        rc = nvme_check(&b->session, &b->data[i], depth);
    return rc;
}

static void stop(struct nvme_bench *b)
{
    for (int i = 0; i < 2; i++)
        nvme_data_drop(&b->data[i]);
    if (b->session.rig)
        perf_close(&b->session);
    memset(&b->session, 0, sizeof(b->session));
}

static uint32_t nvme_chain_of(uint64_t block_bytes)
{
    return block_bytes < NVME_UNIT_BYTES ? (uint32_t)(NVME_UNIT_BYTES / block_bytes) : 1;
}

static uint32_t scatter_of(const struct nvme_bench *b, uint64_t block_bytes)
{
    uint64_t most = SCATTER_BYTES / block_bytes;
    uint64_t n = b->scatter < most ? b->scatter : most;
    return n ? (uint32_t)n : 1;
}

static int nvme_one_size(struct nvme_bench *b, uint64_t block_bytes)
{
    b->block_bytes = block_bytes;
    b->chain = nvme_chain_of(block_bytes);
    int rc = nvme_start(b);
    if (rc == 0)
        rc = make_data(b, 0, block_bytes, b->chain, false);
    if (rc == 0)
        rc = make_data(b, 1, block_bytes, scatter_of(b, block_bytes), true);
    if (rc == 0)
        rc = settle_data(b);
    if (rc == 0)
        rc = measure_reads(b, SEQUENTIAL, &b->data[0]);
    if (rc == 0)
        rc = measure_reads(b, RANDOM, &b->data[1]);
    if (rc == 0)
        rc = measure_writes(b);
    stop(b);
    return rc;
}

/* Compares chains of small blocks with as many bytes in large ones, in one daemon, in turns. */
static int chains(struct nvme_bench *b, uint64_t small, uint64_t large, uint64_t chain_bytes)
{
    char size[UNITS_TEXT_BYTES], what[UNITS_TEXT_BYTES + 8];
    snprintf(what, sizeof(what), "%s blocks", units_format_bytes(large, size));
    struct perf_side sides[2] = {{.run = run_read}, {.what = what, .run = run_against}};
    b->block_bytes = small;
    b->chain = (uint32_t)(chain_bytes / small);
    int rc = nvme_start(b);
    if (rc == 0)
        rc = make_data(b, 0, small, b->chain, false);
    if (rc == 0)
        rc = make_data(b, 1, large, (uint32_t)(chain_bytes / large), false);
    if (rc == 0)
        rc = settle_data(b);
    b->reading = &b->data[0];
    b->against = &b->data[1];
    if (rc == 0)
        rc = nvme_measure(b, CHAINS, sides, 2);
    stop(b);
    return rc;
}

static bool has_size(const struct nvme_bench *b, uint64_t bytes)
{
    for (size_t i = 0; i < b->args.n_sizes; i++) {
        if (b->args.sizes[i] == bytes)
            return true;
    }
    return false;
}

static int all(struct nvme_bench *b)
{
    int rc = b->args.compare ? fio_lay(b->dir, b->bytes, &b->file) : 0;
    for (size_t i = 0; rc == 0 && b->args.against && i < b->args.n_sizes; i++)
        rc = chains(b, b->args.sizes[i], b->args.against, PREFIX_BYTES);
    if (b->args.against)
        return rc;
    for (size_t i = 0; rc == 0 && i < b->args.n_sizes; i++)
        rc = nvme_one_size(b, b->args.sizes[i]);
    if (rc == 0 && has_size(b, CHAIN_SMALL) && has_size(b, CHAIN_LARGE))
        rc = chains(b, CHAIN_SMALL, CHAIN_LARGE, NVME_UNIT_BYTES);
    fio_drop(&b->file);
    return rc;
}

/* ---- options ---- */

static const struct arg option_table[] = {
    {"--compare",
     "take turns with fio (io_uring, O_DIRECT) on the same file system, with the I/O size that the "
     "daemon issues and the same depth",
     ARG_FLAG(struct nvme_bench, args.compare)},
    {"--dir DIR", "on the file system to measure (default: the working directory)",
     ARG_TEXT(struct nvme_bench, dir)},
    {"--bytes SIZE",
     "of blocks for each pattern of reading (default 2GiB); the daemon's memory is an eighth of "
     "it, but four times what is in flight at least, its store three times, fio's file once",
     ARG_BYTES(struct nvme_bench, bytes, UINT64_C(64) << 20, UINT64_C(1) << 40)},
    {"--block-bytes LIST", "(default 64KiB,256KiB,1MiB,2MiB)",
     ARG_DO_AT(struct nvme_bench, args, perf_take_sizes)},
    {"--against SIZE",
     "only this: chains of 16 MiB of each size, against chains of as many bytes in blocks of SIZE, "
     "taking turns: what smaller blocks cost",
     ARG_BYTES(struct nvme_bench, args.against, PAGE_BYTES, PREFIX_BYTES)},
    {"--rounds N", "of all sides, taking turns; medians are reported (default 5)",
     ARG_COUNT(struct nvme_bench, args.pairs, 1, PERF_PAIRS_MAX)},
    {"--seconds S", "of one measurement (default 2)",
     ARG_NUMBER(struct nvme_bench, args.seconds, 0.01, 3600)},
    {"--depth N", "requests in flight; random: blocks (default 16)",
     ARG_COUNT(struct nvme_bench, args.depth, 1, NVME_DEPTH_MAX)},
    {"--scatter N",
     "blocks that one random request asks for, up to 1 MiB of them (default 4); 1 gives each block "
     "a round trip of its own",
     ARG_COUNT(struct nvme_bench, scatter, 1, 16)},
    {"--daemon PATH", "the daemon to start (default: beside this program)",
     ARG_TEXT(struct nvme_bench, args.daemon_path)},
    {"--json", "one JSON object per line on stdout", ARG_FLAG(struct nvme_bench, args.json)},
    {0},
};

static int check_room(const struct nvme_bench *b)
{
    struct statvfs fs;
    if (statvfs(b->dir, &fs) != 0) {
        say_error("--dir %s: %s", b->dir, strerror(errno));
        return BENCH_USAGE;
    }
    uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
    uint64_t need = (b->args.compare ? 4 : 3) * b->bytes + (UINT64_C(256) << 20);
    char has[UNITS_TEXT_BYTES], wants[UNITS_TEXT_BYTES];
    if (room >= need)
        return 0;
    return say_usage("--dir %s has %s free and this takes %s; give another --dir or fewer --bytes",
                     b->dir, units_format_bytes(room, has), units_format_bytes(need, wants));
}

static int nvme_check_args(const struct nvme_bench *b)
{
    for (size_t i = 0; i < b->args.n_sizes; i++) {
        uint64_t bytes = b->args.sizes[i];
        if (bytes % 64 || bytes < PAGE_BYTES || bytes > BLOCK_MAX)
            return say_usage("--block-bytes: %" PRIu64
                             ": must be a multiple of 64 between 4KiB and 16MiB",
                             bytes);
    }
    if (b->args.against && b->args.compare)
        return say_usage("--against and --compare are two things");
    if (b->args.against % 64)
        return say_usage("--against: must be a multiple of 64");
    /* A store has 64 segments, and each must hold some blocks. */
    if (b->bytes < BYTES_PER_BLOCK * unit_bytes(b)) {
        char least[UNITS_COUNT_BYTES], block[UNITS_COUNT_BYTES];
        return say_usage("--bytes: blocks and chains of %s need %s at least",
                         units_exact_bytes(unit_bytes(b), block),
                         units_exact_bytes(BYTES_PER_BLOCK * unit_bytes(b), least));
    }
    const char *missing = b->args.compare ? fio_missing() : NULL;
    if (missing) {
        say_error("--compare: %s; leave --compare away to measure the daemon alone", missing);
        return BENCH_FAILED;
    }
    return check_room(b);
}

static int nvme_parse(struct nvme_bench *b, int argc, char **argv)
{
    const int rc = opt_take_only(argc, argv, option_table, help, b);
    return rc != 0 ? rc : nvme_check_args(b);
}

int cmd_nvme(int argc, char **argv)
{
    struct nvme_bench *b = calloc(1, sizeof(*b));
    if (!b) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    b->args = (struct perf_args){.bench = "nvme",
                                 .seconds = 2,
                                 .pairs = 5,
                                 .sizes = {64 << 10, 256 << 10, 1 << 20, 2 << 20},
                                 .n_sizes = 4,
                                 .depth = 16};
    b->dir = ".";
    b->bytes = UINT64_C(2) << 30;
    b->scatter = 4;
    b->file.fd = -1;
    int rc = nvme_parse(b, argc, argv);
    if (rc == 0)
        rc = all(b);
    else if (rc < 0)
        rc = BENCH_OK;
    free(b);
    return rc;
}
