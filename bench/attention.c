/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on the CPU or on a device (kvcache/attention.h), without a daemon. Decode is measured
 * by the bytes of K and V that it reads, prefill by its floating-point operations.
 */
#include <inttypes.h>
#include <kvcache/attention.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attention.h"
#include "out.h"
#include "units.h"

#define HEADS        32u
#define PAGE_TOKENS  16u
#define SEQS         4u
#define SPLIT_TOKENS 512u /* as kvcache-worker */
#define SPLIT_MAX    1048576u
#define BYTES_MIN    (UINT64_C(8) << 20)
#define BYTES_MAX    (UINT64_C(64) << 30)
#define THREADS_MAX  256u
#define WANTED       0.50 /* part of the read bandwidth */

static const char help[] =
    "Usage: kvcachebench attention [OPTIONS]\n"
    "\n"
    "How fast a CPU or a device attends to KV of each type, in pages that lie at random. Decode: "
    "bytes of K and V read a second, beside as many threads that only read the same memory. "
    "Prefill: a chunk of 512 queries behind 1,536 tokens, operations a second, beside a matrix "
    "product of OpenBLAS (where the build found it). 32 heads of 128 values, pages of 16 tokens. "
    "On a device decode is beside a kernel that only reads, and each result is compared with the "
    "CPU's, bit for bit.\n"
    "\n" ARGS_HERE "\n"
    "Examples:\n"
    "  kvcachebench attention --threads 2\n"
    "  kvcachebench attention --device cuda:0 --bytes 4GiB\n";

/* One type's case: the same pages hold K and V of all sequences. */
struct bench {
    const struct attention_args *args;
    enum kvc_type type;
    struct kvc_threads *threads;
    struct attention_device *device;
    uint8_t *kv;
    uint64_t kv_bytes;
    uint32_t *page, first[SEQS + 1], last[SEQS], q_first[SEQS + 1];
    float *q, *out;
    struct kvc_attention a;
    double flops; /* floating-point operations of a call */
};

/* ---- a case ---- */

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* Fills rows with random values; a few thousand rows are used again and again. */
static int fill_rows(struct bench *b, uint32_t row_bytes)
{
    enum { ROWS = 4096 };
    uint64_t random = 1;
    float *x = malloc((size_t)ROWS * ATTENTION_HEAD * sizeof(*x));
    uint8_t *rows = malloc((size_t)ROWS * row_bytes);
    int rc = x && rows ? 0 : BENCH_FAILED;
    for (size_t i = 0; rc == 0 && i < (size_t)ROWS * ATTENTION_HEAD; i++)
        x[i] = (float)next_random(&random) * 0x1p-30f - 1;
    if (rc == 0 && kvc_quantise(b->type, ATTENTION_HEAD, ROWS, x, ATTENTION_HEAD * sizeof(*x), rows,
                                row_bytes, NULL) != 0)
        rc = BENCH_FAILED;
    for (uint64_t at = 0; rc == 0 && at < b->kv_bytes;) {
        const uint64_t left = b->kv_bytes - at, whole = (uint64_t)ROWS * row_bytes;
        memcpy(b->kv + at, rows, left < whole ? left : whole);
        at += left < whole ? left : whole;
    }
    free(rows);
    free(x);
    return rc;
}

static void order_pages(struct bench *b, uint32_t pages)
{
    uint64_t random = 2;
    for (uint32_t i = 0; i < pages; i++)
        b->page[i] = i;
    for (uint32_t i = pages; i > 1; i--) {
        const uint32_t other = (uint32_t)(next_random(&random) % i), kept = b->page[i - 1];
        b->page[i - 1] = b->page[other];
        b->page[other] = kept;
    }
}

/* K of a page's tokens, then V of them; a token has its heads side by side. */
static void attention_lay_out(struct bench *b, uint32_t row_bytes, uint32_t pages, uint32_t seqs,
                              uint32_t queries)
{
    const uint32_t kv_heads = (uint32_t)b->args->kv_heads;
    const uint64_t half = (uint64_t)PAGE_TOKENS * kv_heads * row_bytes;
    const struct kvc_plane k = {b->kv, 2 * half, (uint64_t)kv_heads * row_bytes, row_bytes,
                                b->type},
                           v = {b->kv + half, k.page_stride, k.token_stride, row_bytes, b->type};
    for (uint32_t s = 0; s <= seqs; s++) {
        b->first[s] = pages / seqs * s;
        b->q_first[s] = queries * s;
    }
    for (uint32_t s = 0; s < seqs; s++)
        b->last[s] = PAGE_TOKENS;
    b->a = (struct kvc_attention){.seqs = seqs,
                                  .heads = HEADS,
                                  .kv_heads = kv_heads,
                                  .head_size = ATTENTION_HEAD,
                                  .scale = 1 / sqrtf(ATTENTION_HEAD),
                                  .split_tokens = (uint32_t)b->args->split,
                                  .lists = 1,
                                  .list = {{k, v, PAGE_TOKENS, pages, b->page, b->first, b->last}},
                                  .q_first = b->q_first,
                                  .q = b->q,
                                  .out = b->out};
}

static void bench_close(struct bench *b)
{
    attention_device_close(&b->device);
    if (b->kv)
        munmap(b->kv, b->kv_bytes);
    free(b->page);
    free(b->q);
    free(b->out);
    kvc_threads_destroy(&b->threads);
}

/* Makes the problem: what a decode step reads, or a chunk behind a prefix. */
static int bench_open(struct bench *b)
{
    const bool prefill = b->args->prefill;
    const uint32_t row_bytes = kvc_row_bytes(b->type, ATTENTION_HEAD);
    const uint64_t page_bytes = UINT64_C(2) * PAGE_TOKENS * b->args->kv_heads * row_bytes;
    const uint32_t seqs = prefill ? 1 : SEQS, queries = prefill ? ATTENTION_CHUNK : 1;
    const uint64_t all =
        prefill ? (ATTENTION_BEFORE + ATTENTION_CHUNK) / PAGE_TOKENS : b->args->bytes / page_bytes;
    const uint32_t pages = (uint32_t)(all / seqs * seqs);
    const size_t floats = (size_t)seqs * queries * HEADS * ATTENTION_HEAD;
    uint64_t random = 3;
    b->kv_bytes = pages * page_bytes;
    b->kv = perf_private_memory(b->kv_bytes);
    b->page = malloc(pages * sizeof(*b->page));
    b->q = malloc(floats * sizeof(*b->q));
    b->out = malloc(floats * sizeof(*b->out));
    if (!b->kv || !b->page || !b->q || !b->out ||
        kvc_threads_create((uint32_t)b->args->threads, &b->threads) != 0 ||
        fill_rows(b, row_bytes) != 0) {
        say_error("out of memory or threads");
        return BENCH_FAILED;
    }
    for (size_t i = 0; i < floats; i++)
        b->q[i] = (float)next_random(&random) * 0x1p-30f - 1;
    order_pages(b, pages);
    attention_lay_out(b, row_bytes, pages, seqs, queries);
    const double seen = (double)queries * (ATTENTION_BEFORE + (queries + 1) / 2.0);
    b->flops = prefill ? 4.0 * ATTENTION_HEAD * HEADS * seen : 0;
    return 0;
}

/* Opens the device, and checks that its results have the same bits as the CPU's. */
static int bench_open_device(struct bench *b)
{
    const size_t floats = (size_t)b->q_first[b->a.seqs] * HEADS * ATTENTION_HEAD;
    float *out = malloc(floats * sizeof(*out));
    char why[KVC_WHY_BYTES] = "out of memory";
    int rc = attention_device_open(b->args->device, &b->a, b->kv, b->kv_bytes, &b->device);
    if (rc == 0 && (out == NULL || kvc_attend_cpu(&b->a, b->threads, why) != 0)) {
        say_error("%s", why);
        rc = BENCH_FAILED;
    }
    if (rc == 0)
        rc = attention_device_out(b->device, out);
    for (size_t i = 0; rc == 0 && i < floats; i++)
        if (memcmp(&out[i], &b->out[i], sizeof(*out)) != 0) {
            say_error("%s: value %zu of the result is %.9g, the CPU's %.9g", kvc_type_name(b->type),
                      i, (double)out[i], (double)b->out[i]);
            rc = BENCH_WRONG;
        }
    free(out);
    return rc;
}

/* ---- the sides ---- */

static int run_device(void *ctx, double seconds, double *ret_value)
{
    const struct bench *b = ctx;
    const int rc = attention_device_run(b->device, seconds, ret_value);
    *ret_value *= b->args->prefill ? b->flops : (double)b->kv_bytes;
    return rc;
}

static int run_device_read(void *ctx, double seconds, double *ret_value)
{
    const struct bench *b = ctx;
    const int rc = attention_device_read(b->device, seconds, ret_value);
    *ret_value *= (double)b->kv_bytes;
    return rc;
}

static int attention_run_ours(void *ctx, double seconds, double *ret_value)
{
    const struct bench *b = ctx;
    const uint64_t begun = now_ns(), until = begun + (uint64_t)(seconds * 1e9);
    char why[KVC_WHY_BYTES] = "";
    uint64_t calls = 0;
    do {
        if (kvc_attend_cpu(&b->a, b->threads, why) != 0) {
            say_error("%s", why);
            return BENCH_FAILED;
        }
        calls++;
    } while (now_ns() < until);
    const double of_a_call = b->args->prefill ? b->flops : (double)b->kv_bytes;
    *ret_value = of_a_call * (double)calls / ((double)(now_ns() - begun) * 1e-9);
    return 0;
}

static int run_read(void *ctx, double seconds, double *ret_value)
{
    const struct bench *b = ctx;
    return attention_read(b->kv, b->kv_bytes, (uint32_t)b->args->threads, seconds, ret_value);
}

static int run_blas(void *ctx, double seconds, double *ret_value)
{
    const struct bench *b = ctx;
    return attention_blas((uint32_t)b->args->threads, seconds, ret_value);
}

/* ---- results ---- */

static void attention_report(const struct bench *b, const struct perf_side *ours,
                             const struct perf_side *limit)
{
    const bool prefill = b->args->prefill;
    const double ratio = limit->value > 0 ? ours->value / limit->value : 0;
    char rate[2][UNITS_TEXT_BYTES];
    if (b->args->perf.json) {
        out_json(&(struct out_metric){
            .bench = "attention",
            .keys = {{.key = "type", .text = kvc_type_name(b->type)},
                     {.key = "on", .text = b->device ? b->args->device : kvc_attend_cpu_name()},
                     {.key = "threads", .number = b->args->threads},
                     {.key = "kv_heads", .number = b->args->kv_heads}},
            .metric = prefill ? "prefill_flops_per_s" : "decode_bytes_per_s",
            .value = ours->value,
            .unit = prefill ? "FLOP/s" : "B/s",
            .limit_what = limit->value > 0 ? limit->what : NULL,
            .limit = limit->value,
            .ratio = ratio});
    } else if (prefill && limit->value > 0) {
        printf("  %-5s %8.1f GFLOP/s   %s %8.1f GFLOP/s   ratio %.2f\n", kvc_type_name(b->type),
               ours->value * 1e-9, limit->what, limit->value * 1e-9, ratio);
    } else if (prefill) {
        printf("  %-5s %8.1f GFLOP/s\n", kvc_type_name(b->type), ours->value * 1e-9);
    } else {
        units_format_rate((uint64_t)ours->value, rate[0]);
        units_format_rate((uint64_t)limit->value, rate[1]);
        printf("  %-5s %14s   %s %14s   ratio %.2f   wanted %.2f: %s\n", kvc_type_name(b->type),
               rate[0], limit->what, rate[1], ratio, WANTED, ratio >= WANTED ? "good" : "MISSED");
    }
    (void)fflush(stdout);
}

static int one_type(const struct attention_args *args, enum kvc_type type)
{
    struct bench b = {.args = args, .type = type};
    const bool has_limit = !args->prefill || (attention_has_blas() && !args->device);
    struct perf_side sides[2] = {{.run = args->device ? run_device : attention_run_ours},
                                 {.what = args->prefill ? "OpenBLAS" : "read",
                                  .run = args->device    ? run_device_read
                                         : args->prefill ? run_blas
                                                         : run_read}};
    int rc = bench_open(&b);
    if (rc == 0 && args->device)
        rc = bench_open_device(&b);
    if (rc == 0)
        rc = perf_rounds(&args->perf, &b, sides, has_limit ? 2 : 1);
    if (rc == 0)
        attention_report(&b, &sides[0], &sides[1]);
    bench_close(&b);
    return rc;
}

/* ---- command line ---- */

static int take_type(void *ctx, const char *name)
{
    struct attention_args *args = ctx;
    for (args->type = 0; args->type < KVC_TYPES; args->type++)
        if (strcmp(kvc_type_name((enum kvc_type)args->type), name) == 0)
            return 0;
    return say_usage("--type: '%s' is none of fp32, fp16, bf16, fp8, q8_0, q4_0, int8", name);
}

static const struct arg option_table[] = {
    {"--device NAME", "cuda:<number> (default: the CPU)", ARG_TEXT(struct attention_args, device)},
    {"--prefill", "prefill, not decode", ARG_FLAG(struct attention_args, prefill)},
    {"--type NAME", "fp32, fp16, bf16, fp8, q8_0, q4_0 or int8 (default: each of them)",
     ARG_DO(take_type)},
    {"--threads N", "(default: one for each processor)",
     ARG_COUNT(struct attention_args, threads, 1, THREADS_MAX)},
    {"--kv-heads N", "1 to 32, a divisor of 32 (default 8)",
     ARG_COUNT(struct attention_args, kv_heads, 1, HEADS)},
    {"--split N",
     "tokens of a part, a multiple of 64 (default 512): long sequences want longer parts on a "
     "device, whose merging takes a tenth of the time and more",
     ARG_COUNT(struct attention_args, split, KVC_TILE_TOKENS, SPLIT_MAX)},
    {"--bytes SIZE", "of K and V together that a decode step reads (default 1GiB)",
     ARG_BYTES(struct attention_args, bytes, BYTES_MIN, BYTES_MAX)},
    {"--seconds S", "of one measurement (default 0.5)",
     ARG_NUMBER(struct attention_args, perf.seconds, 0.01, 3600)},
    {"--pairs N", "measurements of each, taking turns; medians are reported (default 5)",
     ARG_COUNT(struct attention_args, perf.pairs, 1, PERF_PAIRS_MAX)},
    {"--json", "one JSON object per line on stdout", ARG_FLAG(struct attention_args, perf.json)},
    {0},
};

int cmd_attention(int argc, char **argv)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    struct attention_args args = {.perf = {.bench = "attention", .seconds = 0.5, .pairs = 5},
                                  .threads = processors > 0 ? (uint64_t)processors : 1,
                                  .kv_heads = 8,
                                  .split = SPLIT_TOKENS,
                                  .type = KVC_TYPES,
                                  .bytes = PERF_WORKING_SET};
    int rc = opt_take_only(argc, argv, option_table, help, &args);
    if (rc != 0)
        return rc < 0 ? BENCH_OK : rc;
    if (HEADS % args.kv_heads != 0)
        return say_usage("--kv-heads: %" PRIu64 " does not divide %u", args.kv_heads, HEADS);
    if (args.split % KVC_TILE_TOKENS != 0)
        return say_usage("--split: %" PRIu64 " is no multiple of %u", args.split, KVC_TILE_TOKENS);
    for (uint32_t type = 0; rc == 0 && type < KVC_TYPES; type++)
        if (args.type == type || args.type == KVC_TYPES)
            rc = one_type(&args, (enum kvc_type)type);
    return rc;
}
