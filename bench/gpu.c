/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device without a daemon: the speed that its thread and driver reach with fragments that are
 * scattered on it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpu_bench.h"
#include "log.h"
#include "out.h"
#include "progress.h"
#include "stdfds.h"
#include "units.h"

#define BYTES_MIN    (BENCH_DEVICE_DEPTH * BENCH_DEVICE_OP_BYTES)
#define BYTES_MAX    (UINT64_C(64) << 30)
#define KV_BYTES_MIN (UINT64_C(1) << 16)
#define WORD(i)      ((i)*0x9e3779b97f4a7c15u)

static const char help[] =
    "Usage: kvcachebench gpu [OPTIONS]\n"
    "\n"
    "How fast fragments get to a device and back: they lie scattered there and in order in host "
    "memory, as blocks do. Takes turns with one thread's memcpy of the same fragments, and with "
    "one plain copy of 256 MiB. Every byte is compared in between. With --decode, what loads cost "
    "a process that decodes on the device.\n"
    "\n" ARGS_HERE "\n"
    "Examples:\n"
    "  kvcachebench gpu --device emu:0 --json\n"
    "  kvcachebench gpu --device cuda:0 --decode\n";

struct bench {
    const struct gpu_args *args;
    struct bench_device d;
    struct gpu_plain *plain;
    uint8_t *shadow; /* copy of the device's memory, for memcpy */
};

/* --- the sides --- */

static int gpu_run_ours(void *ctx, double seconds, double *ret_value)
{
    struct bench *b = ctx;
    const struct bench_flood flood = {.seconds = seconds};
    b->d.next = 0;
    return bench_device_flood(&b->d, &flood, ret_value);
}

static enum gpu_path chosen(const struct bench *b)
{
    return gpu_path_of(b->d.gpu, b->d.direction, b->d.frag_bytes);
}

static enum gpu_path other(const struct bench *b)
{
    return chosen(b) == GPU_PATH_KERNEL ? GPU_PATH_ENGINE : GPU_PATH_KERNEL;
}

/* Runs the path that the daemon did not choose. */
static int run_other(void *ctx, double seconds, double *ret_value)
{
    struct bench *b = ctx;
    const struct bench_flood flood = {.seconds = seconds, .path = (uint8_t)(1 + other(b))};
    b->d.next = 0;
    return bench_device_flood(&b->d, &flood, ret_value);
}

static int run_plain(void *ctx, double seconds, double *ret_value)
{
    struct bench *b = ctx;
    return gpu_plain_run(b->plain, b->d.direction, seconds, ret_value);
}

/* A fragment's address for memcpy. */
static void *memory_of(const struct bench *b, uint64_t address)
{
    const uint64_t offset = address - b->d.mem.addr;
    return offset < b->d.bytes ? b->shadow + offset : (uint8_t *)(uintptr_t)address;
}

static int gpu_run_memcpy(void *ctx, double seconds, double *ret_value)
{
    struct bench *b = ctx;
    const uint64_t begun = now_ns(), until = begun + (uint64_t)(seconds * 1e9);
    uint64_t bytes = 0;
    b->d.next = 0;
    while (now_ns() < until) {
        uint32_t first;
        const uint32_t n = bench_device_next(&b->d, &first);
        for (uint32_t i = first; i < first + n; i++)
            memcpy(memory_of(b, b->d.frag[i].to), memory_of(b, b->d.frag[i].from),
                   b->d.frag[i].bytes);
        bytes += n * b->d.frag_bytes;
    }
    *ret_value = (double)bytes / ((double)(now_ns() - begun) * 1e-9);
    return 0;
}

/* --- bytes --- */

static int gpu_pass(struct bench_device *d, enum gpu_direction direction, uint64_t frag_bytes)
{
    int rc = 0;
    bench_device_lay_out(d, direction, frag_bytes);
    for (uint32_t at = 0; rc == 0 && at < d->nfrags; at += GPU_FRAGS_MAX) {
        struct gpu_op op = {.kind = GPU_COPY,
                            .direction = direction,
                            .frag = d->frag + at,
                            .nfrags = MIN(d->nfrags - at, GPU_FRAGS_MAX)};
        rc = bench_device_run(d, &op, "copy");
    }
    return rc;
}

/* Compares all bytes, because fast copies of wrong bytes would be no result. It also touches all
 * memory. */
static int check_bytes(struct bench_device *d, uint64_t frag_bytes)
{
    uint64_t *words = (uint64_t *)d->host;
    const uint64_t used = d->bytes / frag_bytes * frag_bytes / sizeof(*words);
    for (uint64_t i = 0; i < d->bytes / sizeof(*words); i++)
        words[i] = WORD(i + frag_bytes);
    int rc = gpu_pass(d, GPU_TO_DEVICE, frag_bytes);
    memset(d->host, 0, d->bytes);
    if (rc == 0)
        rc = gpu_pass(d, GPU_FROM_DEVICE, frag_bytes);
    for (uint64_t i = 0; rc == 0 && i < used; i++) {
        if (words[i] != WORD(i + frag_bytes)) {
            say_error("wrong bytes at offset %" PRIu64 ", in fragments of %" PRIu64,
                      i * sizeof(*words), frag_bytes);
            rc = BENCH_WRONG;
        }
    }
    return rc;
}

/* --- results --- */

static const char *gpu_name_of(enum gpu_path path)
{
    return path == GPU_PATH_KERNEL ? "kernel" : "engine";
}

static void gpu_print_json(const struct bench *b, enum gpu_path path, double value,
                           const struct perf_side *limit)
{
    const bool is_plain = strcmp(limit->what, "plain copy") == 0;
    struct out_metric line = {
        .bench = "gpu",
        .keys = {{.key = "device", .text = b->d.name},
                 {.key = "direction", .text = b->d.direction == GPU_TO_DEVICE ? "to" : "from"},
                 {.key = "block_bytes", .number = b->d.frag_bytes},
                 {.key = "path", .text = gpu_name_of(path)},
                 {.key = "chosen", .number = path == chosen(b)},
                 {.key = is_plain ? "against" : NULL, .text = limit->what}},
        .metric = "gpu_copy_bytes_per_s",
        .value = value,
        .unit = "B/s",
        .limit_what = limit->what,
        .limit = limit->value,
        .ratio = value / limit->value};
    out_json(&line);
}

/* The ratio that is wanted: to the plain copy on a device, to memcpy on an emulated one; 0: none.
 */
static double wanted_of(const struct bench *b)
{
    static const struct {
        uint64_t frag_bytes;
        double ratio;
    } wanted[] = {{4096, 0.60}, {16384, 0.80}, {65536, 0.92}};
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        if (b->d.frag_bytes == wanted[i].frag_bytes)
            return gpu_is_emulated(b->d.gpu) ? 0.80 : wanted[i].ratio;
    return gpu_is_emulated(b->d.gpu) ? 0.80 : 0;
}

/* sides: ours, memcpy, the plain copy, the other path. */
static void gpu_print_text(const struct bench *b, const struct perf_side sides[4])
{
    char size[UNITS_TEXT_BYTES], rate[4][UNITS_TEXT_BYTES];
    const bool is_emulated = gpu_is_emulated(b->d.gpu);
    const double by_memcpy = sides[0].value / sides[1].value,
                 by_plain = sides[0].value / sides[2].value, wanted = wanted_of(b);
    for (unsigned i = 0; i < 4; i++)
        units_format_rate((uint64_t)sides[i].value, rate[i]);
    printf("  %-4s %10s %14s   memcpy %14s   ratio %.2f   plain copy %14s   ratio %.2f   %s",
           b->d.direction == GPU_TO_DEVICE ? "to" : "from",
           units_format_bytes(b->d.frag_bytes, size), rate[0], rate[1], by_memcpy, rate[2],
           by_plain, gpu_name_of(chosen(b)));
    if (gpu_has_kernel(b->d.gpu))
        printf(", %s %s", gpu_name_of(other(b)), rate[3]);
    if (wanted > 0)
        printf("   wanted %.2f of %s: %s", wanted, is_emulated ? "memcpy" : "plain copy",
               (is_emulated ? by_memcpy : by_plain) >= wanted ? "good" : "MISSED");
    puts("");
    (void)stdfds_flush();
}

static void gpu_report(const struct bench *b, const struct perf_side sides[4])
{
    if (!b->args->perf.json) {
        gpu_print_text(b, sides);
        return;
    }
    gpu_print_json(b, chosen(b), sides[0].value, &sides[1]);
    gpu_print_json(b, chosen(b), sides[0].value, &sides[2]);
    if (gpu_has_kernel(b->d.gpu))
        gpu_print_json(b, other(b), sides[3].value, &sides[2]);
}

static int gpu_one_size(struct bench *b, uint64_t frag_bytes)
{
    static const enum gpu_direction directions[] = {GPU_TO_DEVICE, GPU_FROM_DEVICE};
    int rc = check_bytes(&b->d, frag_bytes);
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(directions); i++) {
        struct perf_side sides[4] = {{.run = gpu_run_ours},
                                     {.what = "memcpy", .run = gpu_run_memcpy},
                                     {.what = "plain copy", .run = run_plain},
                                     {.what = "the other path", .run = run_other}};
        bench_device_lay_out(&b->d, directions[i], frag_bytes);
        rc = perf_rounds(&b->args->perf, b, sides, gpu_has_kernel(b->d.gpu) ? 4 : 3);
        if (rc == 0)
            gpu_report(b, sides);
    }
    return rc;
}

static int run_sizes(struct bench *b)
{
    const struct perf_args *perf = &b->args->perf;
    int rc = bench_device_open(&b->d, b->args->device, b->args->bytes, 0, perf->sizes[0]);
    if (rc == 0)
        rc = gpu_plain_open(&b->d, &b->plain);
    if (rc != 0)
        return rc;
    b->shadow = gpu_is_emulated(b->d.gpu) ? (uint8_t *)(uintptr_t)b->d.mem.addr
                                          : perf_private_memory(b->d.bytes);
    if (!b->shadow) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    for (size_t i = 0; rc == 0 && i < perf->n_sizes; i++)
        rc = gpu_one_size(b, perf->sizes[i]);
    return rc;
}

static int measure_copies(const struct gpu_args *args)
{
    struct bench b = {.args = args};
    if (args->bytes >= PERF_WORKING_SET) /* with less memory the figures are no measurement */
        perf_level_memory(&args->perf);
    const int rc = run_sizes(&b);
    if (b.shadow && !gpu_is_emulated(b.d.gpu))
        munmap(b.shadow, b.d.bytes);
    gpu_plain_close(&b.plain);
    bench_device_close(&b.d);
    return rc;
}

/* --- command line --- */

static const struct arg option_table[] = {
    {"--device NAME", "emu:<number>, cuda:<number> or GPU-<uuid> (default emu:0)",
     ARG_TEXT(struct gpu_args, device)},
    {"--bytes SIZE", "on each side (default 1GiB)",
     ARG_BYTES(struct gpu_args, bytes, BYTES_MIN, BYTES_MAX)},
    {"--block-bytes LIST", "fragments (default 1,2,4,6,16,18,64KiB,2MiB; with --decode 4,16,64KiB)",
     ARG_DO_AT(struct gpu_args, perf, perf_take_sizes)},
    {"--decode",
     "how much slower a kernel that reads KV step after step becomes beside loads, by each way "
     "that they can be made (not on an emulated device)",
     ARG_FLAG(struct gpu_args, decode)},
    {"--kv-bytes SIZE", "with --decode: what a step reads (default 2GiB)",
     ARG_BYTES(struct gpu_args, kv_bytes, KV_BYTES_MIN, BYTES_MAX)},
    {"--seconds S", "of one measurement (default 0.5)",
     ARG_NUMBER(struct gpu_args, perf.seconds, 0.01, 3600)},
    {"--pairs N", "measurements of each, taking turns; medians are reported (default 5)",
     ARG_COUNT(struct gpu_args, perf.pairs, 1, PERF_PAIRS_MAX)},
    {"--json", "one JSON object per line on stdout", ARG_FLAG(struct gpu_args, perf.json)},
    {0},
};

static int gpu_check_options(const struct gpu_args *args)
{
    const uint64_t *sizes = args->perf.sizes;
    const char *problem = gpu_device_problem(args->device);
    if (problem != NULL)
        return say_usage("--device %s: %s", args->device, problem);
    if (args->kv_bytes != 0 && !args->decode)
        return say_usage("--kv-bytes is what a step of --decode reads");
    if (args->kv_bytes % KV_BYTES_MIN != 0)
        return say_usage("--kv-bytes: %" PRIu64 " is not a multiple of 64 KiB", args->kv_bytes);
    for (size_t i = 0; i < args->perf.n_sizes; i++) {
        if (sizes[i] > BENCH_DEVICE_OP_BYTES)
            return say_usage("--block-bytes: %" PRIu64 " is more than 32 MiB", sizes[i]);
        if (sizes[i] % sizeof(uint64_t) != 0)
            return say_usage("--block-bytes: %" PRIu64 " is not a multiple of 8", sizes[i]);
        if (sizes[i] < sizes[0])
            return say_usage("--block-bytes: the smallest must come first");
    }
    return 0;
}

static void take_defaults(struct gpu_args *args)
{
    static const uint64_t copied[] = {1024, 2048, 4096, 6144, 16384, 18432, 65536, 2 << 20},
                          beside[] = {4096, 16384, 65536};
    if (args->perf.n_sizes == 0) {
        args->perf.n_sizes = args->decode ? ARRAY_LEN(beside) : ARRAY_LEN(copied);
        memcpy(args->perf.sizes, args->decode ? beside : copied,
               args->perf.n_sizes * sizeof(uint64_t));
    }
    if (args->kv_bytes == 0)
        args->kv_bytes = UINT64_C(2) << 30;
}

int cmd_gpu(int argc, char **argv)
{
    struct gpu_args args = {.perf = {.bench = "gpu", .compare = true, .seconds = 0.5, .pairs = 5},
                            .device = "emu:0",
                            .bytes = PERF_WORKING_SET};
    int rc = opt_take_only(argc, argv, option_table, help, &args);
    if (rc != 0)
        return rc < 0 ? BENCH_OK : rc;
    rc = gpu_check_options(&args);
    if (rc != 0)
        return rc;
    take_defaults(&args);
    log_set_level(LOG_WARN_);
    return args.decode ? gpu_beside(&args) : measure_copies(&args);
}
