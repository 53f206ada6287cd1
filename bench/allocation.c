/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How kvcache-worker's strategies take memory for the sequences of a trace: static, doubling and
 * paged, by the strategies' own code. Without weights, without a daemon.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kv.h"
#include "model.h"
#include "out.h"
#include "progress.h"
#include "trace.h"
#include "units.h"

#define CONTEXT_MAX 65536u
#define ID_TOKENS   512u /* tokens of a hash id, if the trace has no lengths */
/* Prompts are computed in chunks of so many tokens, as by kvcache-worker. */
#define CHUNK          256u
#define DOUBLING_FIRST 64u
#define STRATEGIES     3u
#define WANTED         1.05 /* wanted of paged at --tokens: allocated bytes by needed bytes */

static const char help[] =
    "Usage: kvcachebench allocation [TRACE] [OPTIONS]\n"
    "\n"
    "What three ways to take memory for K and V cost on the lengths of a trace: static (one tensor "
    "for the longest sequence), doubling (one that is copied into one of twice its size when it is "
    "full), paged (pages out of a pool). Each request is a sequence: its prompt is written in "
    "chunks of 256 tokens, its answer token by token, then its memory is given back. Waste is what "
    "was allocated at the end, by the bytes of its tokens: 2 x layers x KV heads x head size x 4 "
    "bytes each. Without TRACE, generated conversations ('kvcachebench gen').\n"
    "\n" ARGS_HERE "\n"
    "Examples:\n"
    "  kvcachebench allocation\n"
    "  kvcachebench allocation conversation_trace.jsonl --requests 500 --block 64\n";

struct length {
    uint32_t prompt, all; /* tokens: of the prompt; of prompt and answer */
};

struct allocation {
    const char *path, *preset;
    uint64_t requests, seed, block, context, tokens;
    bool json;
    struct model model; /* only its configuration */
    struct length *length;
    size_t n, cut;
    float *rows; /* rows to write, enough for a chunk: of K, of V, or of the hidden state */
};

/* Sums over sequences. */
struct outcome {
    uint64_t tokens, needed, allocated, copied;
    double take_s, all_s;
};

/* ---- lengths ---- */

static uint64_t token_bytes(const struct allocation *a)
{
    const struct model_config *c = &a->model.is;
    return UINT64_C(2) * c->layers * c->kv_heads * c->head_size * sizeof(float);
}

static struct length length_of(const struct trace_request *r)
{
    const uint64_t prompt = r->input_tokens > 0 ? r->input_tokens : (uint64_t)r->blocks * ID_TOKENS;
    const uint64_t all = prompt + r->output_tokens;
    return (struct length){(uint32_t)(prompt < UINT32_MAX ? prompt : UINT32_MAX),
                           (uint32_t)(all < UINT32_MAX ? all : UINT32_MAX)};
}

/* Takes the lengths of all requests but those without a token. */
static int lengths_take(struct allocation *a, const struct trace *trace)
{
    const uint64_t want = a->requests < trace->n_requests ? a->requests : trace->n_requests;
    uint32_t longest = 1;
    a->length = calloc(want, sizeof(*a->length));
    if (!a->length) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    for (uint64_t i = 0; i < want; i++) {
        const struct length l = length_of(&trace->requests[i * trace->n_requests / want]);
        longest = l.all > longest ? l.all : longest;
        if (l.all > 0)
            a->length[a->n++] = l;
    }
    if (a->context == 0)
        a->context = longest < CONTEXT_MAX ? longest : CONTEXT_MAX;
    for (size_t i = 0; i < a->n; i++) {
        struct length *l = &a->length[i];
        a->cut += l->all > a->context;
        l->all = l->all < a->context ? l->all : (uint32_t)a->context;
        l->prompt = l->prompt < l->all ? l->prompt : l->all;
    }
    if (a->n > 0)
        return 0;
    say_error("%s: no request has a token", a->path);
    return BENCH_USAGE;
}

/* Writes conversations, as 'gen' makes them, to a file that is removed when it is closed. */
static FILE *conversations(const struct allocation *a)
{
    const struct trace_gen_options gen = {
        .requests = a->requests, .seed = a->seed, .block_tokens = ID_TOKENS};
    FILE *f = tmpfile();
    if (f && trace_generate(&gen, f) == 0 && fflush(f) == 0)
        return f;
    say_error("cannot generate a trace: %s", strerror(errno));
    if (f)
        fclose(f);
    return NULL;
}

static int lengths_load(struct allocation *a)
{
    char why[TRACE_WHY_BYTES], path[64];
    struct trace *trace = NULL;
    FILE *made = a->path ? NULL : conversations(a);
    if (!a->path && !made)
        return BENCH_FAILED;
    if (made)
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fileno(made));
    int rc = trace_load(made ? path : a->path, 0, why, &trace);
    if (rc < 0)
        say_error("%s", why);
    rc = rc < 0 ? BENCH_USAGE : lengths_take(a, trace);
    trace_destroy(&trace);
    if (made)
        fclose(made);
    return rc;
}

/* ---- a sequence ---- */

/* Writes K and V of tokens first .. first + n - 1 at every layer. */
static int write_tokens(const struct allocation *a, struct kv *kv, uint32_t first, uint32_t n)
{
    int rc = 0;
    for (uint32_t layer = 0; rc == 0 && layer < a->model.is.layers; layer++)
        rc = kv->is->write(kv, layer, first, n, a->rows, a->rows, a->rows);
    return rc;
}

/* Writes a sequence as a worker does: the prompt in chunks, then token by token. */
static int allocation_fill(const struct allocation *a, struct kv *kv, struct length l,
                           uint64_t *take_ns)
{
    int rc = 0;
    for (uint32_t first = 0, n; rc == 0 && first < l.all; first += n) {
        n = first < l.prompt ? l.prompt - first : 1;
        n = n < CHUNK ? n : CHUNK;
        const uint64_t begin = now_ns();
        rc = kv->is->room(kv, first + n);
        *take_ns += now_ns() - begin;
        rc = rc == 0 ? write_tokens(a, kv, first, n) : rc;
        rc = rc == 0 ? kv->is->advance(kv, first + n) : rc;
    }
    return rc;
}

static int run_sequence(const struct allocation *a, const struct kv_setup *setup,
                        const struct kv_strategy *is, struct length l, struct outcome *sum)
{
    struct kv *kv = NULL;
    struct kv_usage usage = {0};
    uint64_t take_ns = 0;
    const uint64_t begin = now_ns();
    int rc = is->create(setup, &kv);
    if (rc == 0) {
        take_ns = now_ns() - begin;
        rc = allocation_fill(a, kv, l, &take_ns);
        is->usage(kv, &usage);
        const uint64_t end = now_ns();
        is->destroy(kv);
        take_ns += now_ns() - end;
    }
    if (rc != 0) {
        say_error("%s: a sequence of %u tokens: %s", is->name, l.all, strerror(-rc));
        return BENCH_FAILED;
    }
    sum->all_s += (double)(now_ns() - begin) * 1e-9;
    sum->take_s += (double)take_ns * 1e-9;
    sum->tokens += l.all;
    sum->needed += l.all * token_bytes(a);
    sum->allocated += usage.bytes;
    sum->copied += usage.copied;
    return 0;
}

/* Runs the sequences one after the other; pages come from one pool, which `keeper` holds. */
static int run_strategy(struct allocation *a, const struct kv_strategy *is,
                        const struct length *length, size_t n, struct outcome *ret)
{
    struct kv_setup setup = {.model = &a->model,
                             .tokens_max = (uint32_t)a->context,
                             .block_tokens = (uint32_t)a->block,
                             .seqs = 2};
    struct kv *keeper = NULL;
    struct outcome sum = {0};
    int rc = is == &kv_paged ? is->create(&setup, &keeper) : 0;
    if (rc != 0) {
        say_error("%s: %s", is->name, strerror(-rc));
        return BENCH_FAILED;
    }
    setup.peer = keeper;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        progress_show(false, "allocation: %s, request %zu of %zu", is->name, i + 1, n);
        rc = run_sequence(a, &setup, is, length[i], &sum);
    }
    progress_clear();
    if (keeper)
        is->destroy(keeper);
    *ret = sum;
    return rc;
}

/* ---- results ---- */

static const struct kv_strategy *const compared[STRATEGIES] = {&kv_static, &kv_doubling, &kv_paged};

static double allocation_ratio(uint64_t of, uint64_t by)
{
    return (double)of / (double)by;
}

static void allocation_report_json(const struct allocation *a, unsigned i, const struct outcome *o)
{
    const struct {
        const char *name, *unit;
        double value;
    } metrics[] = {
        {"allocated_by_needed", "", allocation_ratio(o->allocated, o->needed)},
        {"copied_by_needed", "", allocation_ratio(o->copied, o->needed)},
        {"allocation_s_per_token", "s", o->take_s / (double)o->tokens},
        {"write_s_per_token", "s", (o->all_s - o->take_s) / (double)o->tokens},
    };
    for (size_t m = 0; m < sizeof(metrics) / sizeof(metrics[0]); m++)
        out_json(&(struct out_metric){.bench = "allocation",
                                      .keys = {{.key = "strategy", .text = compared[i]->name},
                                               {.key = "requests", .number = a->n},
                                               {.key = "context_tokens", .number = a->context},
                                               {.key = "block_tokens", .number = a->block}},
                                      .metric = metrics[m].name,
                                      .value = metrics[m].value,
                                      .unit = metrics[m].unit});
}

static void report_head(const struct allocation *a)
{
    const struct model_config *c = &a->model.is;
    uint64_t tokens = 0;
    uint32_t longest = 0;
    for (size_t i = 0; i < a->n; i++) {
        tokens += a->length[i].all;
        longest = a->length[i].all > longest ? a->length[i].all : longest;
    }
    printf("%zu requests of %s: %.0f tokens on average, %u the longest", a->n,
           a->path ? a->path : "generated conversations", (double)tokens / (double)a->n, longest);
    if (a->cut > 0)
        printf(" (%zu were cut)", a->cut);
    printf("\na token: 2 x %u layers x %u KV heads x %u values x 4 bytes = %ju bytes (%s)\n\n"
           "  strategy    allocated / needed   copied / needed   ns per token: taking memory   "
           "writing\n",
           c->layers, c->kv_heads, c->head_size, (uintmax_t)token_bytes(a), c->name);
}

static void allocation_report(const struct allocation *a, unsigned i, const struct outcome *o)
{
    if (a->json)
        allocation_report_json(a, i, o);
    else
        printf("  %-10s  %18.3f   %15.3f   %27.0f   %7.0f\n", compared[i]->name,
               allocation_ratio(o->allocated, o->needed), allocation_ratio(o->copied, o->needed),
               o->take_s * 1e9 / (double)o->tokens,
               (o->all_s - o->take_s) * 1e9 / (double)o->tokens);
}

/* ---- formulas ---- */

/* The bytes that a sequence of --tokens must have allocated. */
static uint64_t formula_tokens(const struct allocation *a, unsigned i)
{
    uint64_t doubled = DOUBLING_FIRST;
    while (doubled < a->tokens)
        doubled *= 2;
    const uint64_t paged = (a->tokens + a->block - 1) / a->block * a->block;
    const uint64_t tokens[STRATEGIES] = {a->context, doubled, paged};
    return tokens[i];
}

static void report_formula(const struct allocation *a, unsigned i, uint64_t bytes, uint64_t wanted)
{
    const double by_needed = allocation_ratio(bytes, a->tokens * token_bytes(a));
    const bool paged = compared[i] == &kv_paged;
    if (a->json)
        out_json(&(struct out_metric){.bench = "allocation",
                                      .keys = {{.key = "strategy", .text = compared[i]->name},
                                               {.key = "tokens", .number = a->tokens},
                                               {.key = "context_tokens", .number = a->context},
                                               {.key = "block_tokens", .number = a->block}},
                                      .metric = "allocated_bytes",
                                      .value = (double)bytes,
                                      .unit = "B",
                                      .limit_what = "formula",
                                      .limit = (double)wanted,
                                      .ratio = allocation_ratio(bytes, wanted)});
    else
        printf("  %-10s  %ju bytes: %ju tokens, %.3f of those needed%s%s\n", compared[i]->name,
               (uintmax_t)bytes, (uintmax_t)(bytes / token_bytes(a)), by_needed,
               paged ? "; wanted 1.05: " : "",
               !paged                ? ""
               : by_needed <= WANTED ? "good"
                                     : "MISSED");
}

static int check_formulas(struct allocation *a)
{
    const struct length one = {(uint32_t)a->tokens, (uint32_t)a->tokens};
    int rc = 0;
    if (a->context < a->tokens)
        a->context = a->tokens;
    if (!a->json)
        printf("\nOne sequence of %ju tokens, the longest there may be having %ju:\n",
               (uintmax_t)a->tokens, (uintmax_t)a->context);
    for (unsigned i = 0; rc == 0 && i < STRATEGIES; i++) {
        struct outcome o;
        const uint64_t wanted = formula_tokens(a, i) * token_bytes(a);
        rc = run_strategy(a, compared[i], &one, 1, &o);
        if (rc == 0)
            report_formula(a, i, o.allocated, wanted);
        if (rc == 0 && o.allocated != wanted) {
            say_error("%s has %ju bytes, and its formula says %ju", compared[i]->name,
                      (uintmax_t)o.allocated, (uintmax_t)wanted);
            rc = BENCH_WRONG;
        }
    }
    return rc;
}

/* ---- the command ---- */

static const struct arg option_table[] = {
    {"--requests N", "of the trace, evenly spread (default 100)",
     ARG_COUNT(struct allocation, requests, 1, 1000000)},
    {"--preset NAME", "whose shape K and V have: tiny, 125m, 1b, 8b (default tiny)",
     ARG_TEXT(struct allocation, preset)},
    {"--block N", "tokens of a page (default 16)",
     ARG_COUNT(struct allocation, block, 1, KVC_PAGE_TOKENS_MAX)},
    {"--context N",
     "tokens of the longest sequence there may be, up to 65536; longer requests are cut (default: "
     "the longest of the trace)",
     ARG_COUNT(struct allocation, context, 1, CONTEXT_MAX)},
    {"--tokens N",
     "one more sequence of so many tokens, whose memory must be what the formulas say; else the "
     "exit code is 1 (default 2048)",
     ARG_COUNT(struct allocation, tokens, 1, CONTEXT_MAX)},
    {"--seed N", "of the generated conversations (default 1)",
     ARG_COUNT(struct allocation, seed, 0, UINT64_MAX)},
    {"--json", "one JSON object per line on stdout", ARG_FLAG(struct allocation, json)},
    {0},
};

static int allocation_parse(int argc, char **argv, struct allocation *a)
{
    char why[MODEL_WHY_BYTES];
    const int rc = opt_take(argc, argv, option_table, help, a);
    if (rc != 0)
        return rc;
    if (optind < argc)
        a->path = argv[optind++];
    if (optind < argc)
        return say_usage("one trace; '%s' is one more", argv[optind]);
    return model_preset_config(a->preset, why, &a->model.is) == 0 ? 0 : say_usage("%s", why);
}

/* Makes the rows, all zero: what they contain does not change the cost. */
static int rows_make(struct allocation *a)
{
    const struct model_config *c = &a->model.is;
    const size_t kv_row = (size_t)c->kv_heads * c->head_size;
    a->rows = calloc((size_t)CHUNK * (kv_row > c->hidden ? kv_row : c->hidden), sizeof(*a->rows));
    if (a->rows)
        return 0;
    say_error("out of memory");
    return BENCH_FAILED;
}

int cmd_allocation(int argc, char **argv)
{
    struct allocation a = {
        .preset = "tiny", .requests = 100, .seed = 1, .block = 16, .tokens = 2048};
    int rc = allocation_parse(argc, argv, &a);
    if (rc != 0)
        return rc < 0 ? BENCH_OK : rc;
    rc = lengths_load(&a);
    rc = rc == 0 ? rows_make(&a) : rc;
    if (rc == 0 && !a.json)
        report_head(&a);
    for (unsigned i = 0; rc == 0 && i < STRATEGIES; i++) {
        struct outcome o;
        rc = run_strategy(&a, compared[i], a.length, a.n, &o);
        if (rc == 0)
            allocation_report(&a, i, &o);
    }
    rc = rc == 0 ? check_formulas(&a) : rc;
    free(a.rows);
    free(a.length);
    return rc;
}
