/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device without a daemon: what its thread and driver make of fragments that lie scattered there.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gpu.h"
#include "log.h"
#include "out.h"
#include "perf.h"
#include "progress.h"
#include "units.h"

#define OP_BYTES    (UINT64_C(32) << 20)
#define PLAIN_BYTES (UINT64_C(64) << 20)
#define DEPTH       4u
#define BYTES_MIN   (DEPTH * PLAIN_BYTES)
#define BYTES_MAX   (UINT64_C(64) << 30)
#define WORD(i)     ((i)*0x9e3779b97f4a7c15u)

static const char help[] =
    "Usage: kvcachebench gpu [OPTIONS]\n"
    "\n"
    "How fast fragments get to a device and back: they lie scattered there and in order in host\n"
    "memory, as blocks do. Takes turns with one thread's memcpy of the same fragments, and with "
    "one\n"
    "plain copy of 64 MiB. Every byte is compared in between.\n"
    "\n"
    "  --device NAME       emu:<number>, cuda:<number> or GPU-<uuid> (default emu:0)\n"
    "  --bytes SIZE        on each side (default 1GiB)\n"
    "  --block-bytes LIST  fragments (default 4KiB,16KiB,64KiB,2MiB)\n"
    "  --seconds S         of one measurement (default 0.5)\n"
    "  --pairs N           measurements of each, taking turns; medians are reported (default 5)\n"
    "  --json              one JSON object per line on stdout\n"
    "\n"
    "Example:\n"
    "  kvcachebench gpu --device emu:0 --json\n";

struct bench {
    struct perf_args args;
    const char *device;
    uint64_t bytes;
    struct loop *loop;
    struct gpu *gpu;
    struct gpu_mem mem;
    uint8_t *host, *shadow; /* shadow: what memcpy has for the device's memory */
    uint64_t frag_bytes;
    uint32_t nfrags;
    enum gpu_direction direction;
    struct gpu_frag *frag, *memcpy_frag;
    uint64_t next; /* fragment */
};

/* --- operations --- */

static unsigned ended;

static void note_end(struct gpu_op *op)
{
    (void)op;
    ended++;
}

static int turn(struct bench *b)
{
    const int rc = loop_turn(b->loop, -1);
    if (rc < 0)
        say_error("waiting: %s", strerror(-rc));
    return rc < 0 ? BENCH_FAILED : 0;
}

static int check(const struct bench *b, const struct gpu_op *op, const char *what)
{
    if (op->status == 0)
        return 0;
    say_error("%s: %s: %s%s%s", b->device, what, strerror(-op->status),
              gpu_why(b->gpu)[0] ? ": " : "", gpu_why(b->gpu));
    return BENCH_FAILED;
}

static int run_one(struct bench *b, struct gpu_op *op, const char *what)
{
    const unsigned before = ended;
    int rc = 0;
    op->done = note_end;
    gpu_submit(b->gpu, op);
    while (rc == 0 && ended == before)
        rc = turn(b);
    return rc != 0 ? rc : check(b, op, what);
}

/* DEPTH operations in flight for that long; `next` makes the next one. */
static int run_many(struct bench *b, double seconds, double *ret_value,
                    void (*next)(struct bench *b, struct gpu_op *op, struct gpu_frag *plain))
{
    struct gpu_op op[DEPTH] = {0};
    struct gpu_frag plain[DEPTH];
    const uint64_t begun = now_ns(), until = begun + (uint64_t)(seconds * 1e9);
    uint64_t bytes = 0, submitted = 0, reaped = 0;
    int rc = 0;
    ended = 0;
    while (rc == 0 && (reaped < submitted || now_ns() < until)) {
        /* They end in the order in which they were submitted. */
        for (; rc == 0 && reaped < ended; reaped++) {
            rc = check(b, &op[reaped % DEPTH], "copy");
            bytes += op[reaped % DEPTH].bytes;
        }
        for (; now_ns() < until && submitted - reaped < DEPTH; submitted++) {
            struct gpu_op *o = &op[submitted % DEPTH];
            *o = (struct gpu_op){.kind = GPU_COPY, .direction = b->direction, .done = note_end};
            next(b, o, &plain[submitted % DEPTH]);
            gpu_submit(b->gpu, o);
        }
        if (reaped == ended && reaped < submitted)
            rc = rc != 0 ? rc : turn(b);
    }
    *ret_value = (double)bytes / ((double)(now_ns() - begun) * 1e-9);
    return rc;
}

static uint32_t next_frags(struct bench *b, const struct gpu_frag *all,
                           const struct gpu_frag **ret_frag)
{
    const uint64_t n = MIN(MAX(OP_BYTES / b->frag_bytes, 1u), b->nfrags);
    if (b->next + n > b->nfrags)
        b->next = 0;
    *ret_frag = all + b->next;
    b->next += n;
    return (uint32_t)n;
}

static void next_scattered(struct bench *b, struct gpu_op *op, struct gpu_frag *plain)
{
    (void)plain;
    op->nfrags = next_frags(b, b->frag, &op->frag);
}

static void next_plain(struct bench *b, struct gpu_op *op, struct gpu_frag *plain)
{
    const uint64_t offset = b->next++ % (b->bytes / PLAIN_BYTES) * PLAIN_BYTES;
    const uint64_t host = (uintptr_t)b->host + offset, device = b->mem.addr + offset;
    *plain = b->direction == GPU_TO_DEVICE ? (struct gpu_frag){device, host, PLAIN_BYTES}
                                           : (struct gpu_frag){host, device, PLAIN_BYTES};
    op->frag = plain;
    op->nfrags = 1;
}

/* --- the three sides --- */

static int run_ours(void *ctx, double seconds, double *ret_value)
{
    struct bench *b = ctx;
    b->next = 0;
    return run_many(b, seconds, ret_value, next_scattered);
}

static int run_plain(void *ctx, double seconds, double *ret_value)
{
    struct bench *b = ctx;
    b->next = 0;
    return run_many(b, seconds, ret_value, next_plain);
}

static int run_memcpy(void *ctx, double seconds, double *ret_value)
{
    struct bench *b = ctx;
    const uint64_t begun = now_ns(), until = begun + (uint64_t)(seconds * 1e9);
    uint64_t bytes = 0;
    b->next = 0;
    while (now_ns() < until) {
        const struct gpu_frag *frag;
        const uint32_t n = next_frags(b, b->memcpy_frag, &frag);
        for (uint32_t i = 0; i < n; i++)
            memcpy((void *)(uintptr_t)frag[i].to, (const void *)(uintptr_t)frag[i].from,
                   frag[i].bytes);
        bytes += n * b->frag_bytes;
    }
    *ret_value = (double)bytes / ((double)(now_ns() - begun) * 1e-9);
    return 0;
}

/* --- fragments and bytes --- */

static void lay_out(struct bench *b, enum gpu_direction direction)
{
    b->direction = direction;
    b->nfrags = (uint32_t)(b->bytes / b->frag_bytes);
    for (uint32_t i = 0; i < b->nfrags; i++) /* where each lies on the device */
        b->frag[i].to = i;
    uint64_t seed = 1;
    for (uint32_t i = b->nfrags; i > 1; i--) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint32_t k = (uint32_t)((seed >> 33) % i);
        const uint64_t swap = b->frag[k].to;
        b->frag[k].to = b->frag[i - 1].to;
        b->frag[i - 1].to = swap;
    }
    for (uint32_t i = 0; i < b->nfrags; i++) {
        const uint64_t host = (uintptr_t)b->host + i * b->frag_bytes;
        const uint64_t offset = b->frag[i].to * b->frag_bytes;
        const uint64_t device = b->mem.addr + offset, shadow = (uintptr_t)b->shadow + offset;
        const bool to = direction == GPU_TO_DEVICE;
        b->frag[i] = (struct gpu_frag){to ? device : host, to ? host : device, b->frag_bytes};
        b->memcpy_frag[i] =
            (struct gpu_frag){to ? shadow : host, to ? host : shadow, b->frag_bytes};
    }
}

static int pass(struct bench *b, enum gpu_direction direction)
{
    int rc = 0;
    lay_out(b, direction);
    for (uint32_t at = 0; rc == 0 && at < b->nfrags; at += GPU_FRAGS_MAX) {
        struct gpu_op op = {.kind = GPU_COPY,
                            .direction = direction,
                            .frag = b->frag + at,
                            .nfrags = MIN(b->nfrags - at, GPU_FRAGS_MAX)};
        rc = run_one(b, &op, "copy");
    }
    return rc;
}

/* Fast copies of wrong bytes would be no result. Also touches all memory. */
static int check_bytes(struct bench *b)
{
    uint64_t *words = (uint64_t *)b->host;
    const uint64_t used = b->bytes / b->frag_bytes * b->frag_bytes / sizeof(*words);
    for (uint64_t i = 0; i < b->bytes / sizeof(*words); i++)
        words[i] = WORD(i + b->frag_bytes);
    int rc = pass(b, GPU_TO_DEVICE);
    memset(b->host, 0, b->bytes);
    if (rc == 0)
        rc = pass(b, GPU_FROM_DEVICE);
    for (uint64_t i = 0; rc == 0 && i < used; i++) {
        if (words[i] != WORD(i + b->frag_bytes)) {
            say_error("wrong bytes at offset %" PRIu64 ", in fragments of %" PRIu64,
                      i * sizeof(*words), b->frag_bytes);
            rc = BENCH_WRONG;
        }
    }
    return rc;
}

/* --- results --- */

static void print_json(const struct bench *b, const struct perf_side *ours,
                       const struct perf_side *limit)
{
    const bool is_plain = strcmp(limit->what, "plain copy") == 0;
    struct out_metric line = {
        .bench = "gpu",
        .keys = {{.key = "device", .text = b->device},
                 {.key = "direction", .text = b->direction == GPU_TO_DEVICE ? "to" : "from"},
                 {.key = "block_bytes", .number = b->frag_bytes},
                 {.key = is_plain ? "against" : NULL, .text = limit->what}},
        .metric = "gpu_copy_bytes_per_s",
        .value = ours->value,
        .unit = "B/s",
        .limit_what = limit->what,
        .limit = limit->value,
        .ratio = ours->value / limit->value};
    out_json(&line);
}

static void report(const struct bench *b, const struct perf_side sides[3])
{
    char size[UNITS_TEXT_BYTES], rate[3][UNITS_TEXT_BYTES];
    if (b->args.json) {
        print_json(b, &sides[0], &sides[1]);
        print_json(b, &sides[0], &sides[2]);
        return;
    }
    for (unsigned i = 0; i < 3; i++)
        units_format_rate((uint64_t)sides[i].value, rate[i]);
    printf(
        "  %-4s %10s %14s   memcpy %14s   ratio %.2f   plain copy %14s   ratio %.2f   %s\n",
        b->direction == GPU_TO_DEVICE ? "to" : "from", units_format_bytes(b->frag_bytes, size),
        rate[0], rate[1], sides[0].value / sides[1].value, rate[2], sides[0].value / sides[2].value,
        gpu_path_of(b->gpu, b->direction, b->frag_bytes) == GPU_PATH_KERNEL ? "kernel" : "engine");
    fflush(stdout);
}

static int one_size(struct bench *b, uint64_t frag_bytes)
{
    static const enum gpu_direction directions[] = {GPU_TO_DEVICE, GPU_FROM_DEVICE};
    b->frag_bytes = frag_bytes;
    int rc = check_bytes(b);
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(directions); i++) {
        struct perf_side sides[3] = {{.run = run_ours},
                                     {.what = "memcpy", .run = run_memcpy},
                                     {.what = "plain copy", .run = run_plain}};
        lay_out(b, directions[i]);
        rc = perf_rounds(&b->args, b, sides, 3);
        if (rc == 0)
            report(b, sides);
    }
    return rc;
}

/* --- the device --- */

static int open_device(struct bench *b)
{
    const struct loop_config loop = {.watches_max = 4};
    const struct gpu_config config = {
        .device = b->device, .calibrate = true, .emu = {.memory_bytes = b->bytes + (64u << 20)}};
    int rc = loop_create(&loop, &b->loop);
    if (rc == 0)
        rc = gpu_open(&config, b->loop, &b->gpu);
    if (rc < 0) {
        say_error("%s: %s", b->device, strerror(-rc));
        return BENCH_FAILED;
    }
    while (gpu_state(b->gpu) == GPU_STARTING) {
        rc = turn(b);
        if (rc != 0)
            return rc;
    }
    if (gpu_state(b->gpu) != GPU_UP) {
        say_error("%s is out: %s", b->device, gpu_why(b->gpu));
        return BENCH_FAILED;
    }
    return 0;
}

static int make_memory(struct bench *b)
{
    const uint64_t smallest = b->args.sizes[0];
    struct gpu_op alloc = {.kind = GPU_ALLOC, .mem = &b->mem, .bytes = b->bytes};
    int rc = run_one(b, &alloc, "memory");
    if (rc != 0)
        return rc;
    b->frag = calloc(b->bytes / smallest, sizeof(*b->frag));
    b->memcpy_frag = calloc(b->bytes / smallest, sizeof(*b->memcpy_frag));
    b->host = perf_private_memory(b->bytes);
    b->shadow =
        gpu_is_emulated(b->gpu) ? (uint8_t *)(uintptr_t)b->mem.addr : perf_private_memory(b->bytes);
    if (!b->frag || !b->memcpy_frag || !b->host || !b->shadow) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    struct gpu_op pin = {.kind = GPU_PIN, .host = b->host, .bytes = b->bytes};
    return run_one(b, &pin, "registering host memory");
}

static void close_device(struct bench *b)
{
    if (b->shadow && !gpu_is_emulated(b->gpu))
        munmap(b->shadow, b->bytes);
    gpu_close(&b->gpu);
    loop_destroy(&b->loop);
    if (b->host)
        munmap(b->host, b->bytes);
    free(b->frag);
    free(b->memcpy_frag);
}

static int run_all(struct bench *b)
{
    int rc = open_device(b);
    if (rc == 0)
        rc = make_memory(b);
    for (size_t i = 0; rc == 0 && i < b->args.n_sizes; i++)
        rc = one_size(b, b->args.sizes[i]);
    close_device(b);
    return rc;
}

/* --- command line --- */

static int take_option(void *ctx, int c, char **argv)
{
    struct bench *b = ctx;
    switch (c) {
    case 'D':
        b->device = optarg;
        return 0;
    case 'y':
        return opt_bytes("bytes", optarg, BYTES_MIN, BYTES_MAX, &b->bytes);
    case 'b':
        return opt_bytes_list("block-bytes", optarg, b->args.sizes, PERF_SIZES_MAX,
                              &b->args.n_sizes);
    case 'S':
        return opt_seconds("seconds", optarg, &b->args.seconds);
    case 'p':
        return opt_count("pairs", optarg, 1, PERF_PAIRS_MAX, &b->args.pairs);
    case 'j':
        b->args.json = true;
        return 0;
    default:
        return opt_unknown(c, argv);
    }
}

static int check_options(struct bench *b)
{
    const char *problem = gpu_device_problem(b->device);
    if (problem != NULL)
        return say_usage("--device %s: %s", b->device, problem);
    for (size_t i = 0; i < b->args.n_sizes; i++) {
        if (b->args.sizes[i] > OP_BYTES)
            return say_usage("--block-bytes: %" PRIu64 " is more than 32 MiB", b->args.sizes[i]);
        if (b->args.sizes[i] % sizeof(uint64_t) != 0)
            return say_usage("--block-bytes: %" PRIu64 " is not a multiple of 8", b->args.sizes[i]);
        if (b->args.sizes[i] < b->args.sizes[0])
            return say_usage("--block-bytes: the smallest must come first");
    }
    return 0;
}

int cmd_gpu(int argc, char **argv)
{
    static const struct option options[] = {{"device", required_argument, NULL, 'D'},
                                            {"bytes", required_argument, NULL, 'y'},
                                            {"block-bytes", required_argument, NULL, 'b'},
                                            {"seconds", required_argument, NULL, 'S'},
                                            {"pairs", required_argument, NULL, 'p'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct bench b = {.args = {.bench = "gpu",
                               .compare = true,
                               .seconds = 0.5,
                               .pairs = 5,
                               .sizes = {4096, 16384, 65536, 2 << 20},
                               .n_sizes = 4},
                      .device = "emu:0",
                      .bytes = PERF_WORKING_SET};
    int rc = opt_each(argc, argv, options, help, NULL, take_option, &b);
    if (rc != 0)
        return rc < 0 ? BENCH_OK : rc;
    if (optind < argc)
        return say_usage("'%s' is not understood", argv[optind]);
    rc = check_options(&b);
    if (rc != 0)
        return rc;
    log_set_level(LOG_WARN_);
    if (b.bytes >= PERF_WORKING_SET) /* less is a try, not a measurement */
        perf_level_memory(&b.args);
    return run_all(&b);
}
