/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How types of K and of V change a model's answers. Each text goes through kvcache-worker's model
 * once with K and V in fp32 and once in each of the types, and the distributions of every next
 * token are compared. All tokens are kept in the types, even the last ones. Needs no daemon.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file_kind.h"
#include "out.h"
#include "plot.h"
#include "product.h"
#include "progress.h"
#include "sequence.h"
#include "worker_model.h"

#define CASES_MAX  64u
#define TEXTS_MAX  4096u
#define TOKENS_MAX 32768u
#define TEXTS_MADE 2u    /* if no text is given */
#define KL_LEAST   1e-10 /* smaller divergences are drawn as this one */

static const char help[] =
    "Usage: kvcachebench quality [FILE...] [OPTIONS]\n"
    "\n"
    "What types of K and of V change in a model's answers, beside fp32: the divergence of the next "
    "token's distribution (Kullback-Leibler, nats), perplexity, how often the likeliest token is "
    "the same, and the bytes of a token. Each FILE is a text whose bytes are tokens, or, with "
    "--ids, has the token ids of a text on each line. Random weights and, without FILE, random "
    "tokens say how exact the types are there, and nothing about language.\n"
    "\n" ARGS_HERE "\n"
    "Examples:\n"
    "  kvcachebench quality --preset tiny\n"
    "  kvcachebench quality --model smollm2 --ids texts.ids --types q8_0,fp8,fp32:q4_0 --svg "
    "q.svg\n";

struct text {
    uint32_t *token, n;
};

/* Sums over tokens. */
struct outcome {
    struct worker_types types;
    struct kv *kv;
    double kl, kl_max, nll;
    uint64_t same, n;
};

struct quality {
    struct worker_model which;
    const char *svg;
    uint64_t tokens;
    bool ids, json;
    struct model model;
    struct text text[TEXTS_MAX];
    size_t texts;
    struct outcome of[CASES_MAX]; /* the first is fp32 */
    size_t cases;
    /* [chunk][vocab]: logits of a case; logits of fp32; probabilities of fp32. */
    float *logits, *exact, *p;
    double *exact_all; /* [chunk]: logarithm of the sum of fp32's exponentials */
    char why[MODEL_WHY_BYTES];
};

/* ---- texts ---- */

static int text_add(struct quality *q, const uint32_t *token, size_t n, const char *from)
{
    if (q->texts == TEXTS_MAX)
        return say_usage("more than %u texts", TEXTS_MAX);
    const uint32_t most =
        q->model.is.tokens_max < q->tokens ? q->model.is.tokens_max : (uint32_t)q->tokens;
    struct text *t = &q->text[q->texts];
    t->n = n < most ? (uint32_t)n : most;
    if (t->n < 2)
        return say_usage("%s: a text has two tokens or more", from);
    for (uint32_t i = 0; i < t->n; i++)
        if (token[i] >= q->model.is.vocab)
            return say_usage("%s: token %u; the model has tokens 0 to %u%s", from, token[i],
                             q->model.is.vocab - 1, q->ids ? "" : "; are these --ids?");
    t->token = calloc(t->n, sizeof(*t->token));
    if (!t->token) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    memcpy(t->token, token, t->n * sizeof(*token));
    q->texts++;
    return 0;
}

/* Takes a line of numbers, which are token ids. */
static int line_take(struct quality *q, const char *path, size_t number, const char *line,
                     uint32_t *token)
{
    char from[300];
    size_t n = 0;
    (void)snprintf(from, sizeof(from), "%.250s:%zu", path, number);
    for (const char *at = line; *at;) {
        char *end;
        if (isspace((unsigned char)*at) || *at == ',') {
            at++;
            continue;
        }
        errno = 0;
        const unsigned long id = strtoul(at, &end, 10);
        if (!isdigit((unsigned char)*at) || errno || id > UINT32_MAX)
            return say_usage("%s: '%.20s' is no token id%s", from, at,
                             number == 1 ? file_kind_hint(line, strlen(line)) : "");
        token[n++] = (uint32_t)id;
        at = end;
    }
    return n > 0 ? text_add(q, token, n, from) : 0;
}

static int ids_take(struct quality *q, const char *path, FILE *f)
{
    char *line = NULL;
    uint32_t *token = NULL;
    size_t room = 0, number = 0;
    int rc = 0;
    while (rc == 0 && getline(&line, &room, f) > 0) {
        uint32_t *grown = realloc(token, (room / 2 + 1) * sizeof(*token));
        if (!grown) {
            say_error("out of memory");
            rc = BENCH_FAILED;
            break;
        }
        token = grown;
        rc = line_take(q, path, ++number, line, token);
    }
    free(token);
    free(line);
    return rc;
}

static int bytes_take(struct quality *q, const char *path, FILE *f)
{
    static uint32_t token[TOKENS_MAX];
    size_t n = 0;
    for (int c; n < q->tokens && (c = fgetc(f)) != EOF; n++)
        token[n] = (uint32_t)c;
    return text_add(q, token, n, path);
}

static int file_take(struct quality *q, const char *path)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return say_usage("%s: %s", path, strerror(errno));
    int rc = q->ids ? ids_take(q, path, f) : bytes_take(q, path, f);
    if (rc == 0 && ferror(f))
        rc = say_usage("%s: %s", path, strerror(errno));
    fclose(f);
    return rc;
}

static int texts_make(struct quality *q)
{
    static uint32_t token[TOKENS_MAX];
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < TEXTS_MADE; i++) {
        worker_model_prompt(&q->model, q->which.seed * 1000 + i, token, (uint32_t)q->tokens);
        rc = text_add(q, token, q->tokens, "random tokens");
    }
    return rc;
}

/* ---- distributions ---- */

static double log_sum_exp(const float *logits, uint32_t n)
{
    float top = logits[0];
    double sum = 0;
    for (uint32_t i = 1; i < n; i++)
        top = logits[i] > top ? logits[i] : top;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)expf(logits[i] - top);
    return (double)top + log(sum);
}

static void reference_row(struct quality *q, uint32_t row)
{
    const uint32_t vocab = q->model.is.vocab;
    const float *exact = q->exact + (size_t)row * vocab;
    float *p = q->p + (size_t)row * vocab;
    q->exact_all[row] = log_sum_exp(exact, vocab);
    for (uint32_t i = 0; i < vocab; i++)
        p[i] = expf((float)((double)exact[i] - q->exact_all[row]));
}

/* Compares a row of a case with that of fp32; `next` is the token that follows in the text. */
static void row_compare(const struct quality *q, struct outcome *o, const float *logits,
                        uint32_t row, uint32_t next)
{
    const uint32_t vocab = q->model.is.vocab;
    const float *exact = q->exact + (size_t)row * vocab, *p = q->p + (size_t)row * vocab;
    const double all = log_sum_exp(logits, vocab), exact_all = q->exact_all[row];
    double kl = 0, sum = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        kl += (double)p[i] * (((double)exact[i] - exact_all) - ((double)logits[i] - all));
        sum += (double)p[i];
    }
    kl = kl / sum > 0 ? kl / sum : 0; /* rounding may make it negative */
    o->kl += kl;
    o->kl_max = kl > o->kl_max ? kl : o->kl_max;
    o->nll -= (double)logits[next] - all;
    o->same += sequence_greedy(logits, vocab) == sequence_greedy(exact, vocab);
    o->n++;
}

/* ---- a text ---- */

static int kvs_open(struct quality *q, uint32_t tokens)
{
    for (size_t i = 0; i < q->cases; i++) {
        struct outcome *o = &q->of[i];
        const struct kv_setup setup = {.model = &q->model,
                                       .tokens_max = tokens,
                                       .block_tokens = 1,
                                       .k_type = o->types.type[0],
                                       .v_type = o->types.type[1],
                                       .seqs = 1};
        const int rc = kv_static.create(&setup, &o->kv);
        if (rc != 0)
            return say_usage("--types %s: %s", o->types.name,
                             rc == -EINVAL ? "does not fit the model's head size" : strerror(-rc));
    }
    return 0;
}

static void kvs_close(struct quality *q)
{
    for (size_t i = 0; i < q->cases; i++) {
        if (q->of[i].kv)
            q->of[i].kv->is->destroy(q->of[i].kv);
        q->of[i].kv = NULL;
    }
}

/* Computes one chunk in all cases. The last token of a text has no next one. */
static int chunk_compare(struct quality *q, const struct text *t, uint32_t first, uint32_t n)
{
    const uint32_t vocab = q->model.is.vocab, row0 = first % q->model.chunk;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < q->cases; i++) {
        float *logits = i == 0 ? q->exact : q->logits;
        rc = model_chunk_logits(&q->model, q->of[i].kv, t->token + first, first, n, logits, q->why);
        for (uint32_t r = 0; rc == 0 && r < n && first + r + 1 < t->n; r++) {
            if (i == 0)
                reference_row(q, row0 + r);
            row_compare(q, &q->of[i], logits + (size_t)(row0 + r) * vocab, row0 + r,
                        t->token[first + r + 1]);
        }
    }
    if (rc != 0)
        say_error("%s", q->why);
    return rc == 0 ? 0 : BENCH_FAILED;
}

static int text_compare(struct quality *q, size_t number)
{
    const struct text *t = &q->text[number];
    int rc = kvs_open(q, t->n);
    for (uint32_t first = 0, n; rc == 0 && first < t->n; first += n) {
        n = t->n - first < q->model.chunk ? t->n - first : q->model.chunk;
        progress_show(first == 0, "quality: text %zu of %zu, token %u of %u, %zu types", number + 1,
                      q->texts, first, t->n, q->cases);
        rc = chunk_compare(q, t, first, n);
    }
    kvs_close(q);
    return rc;
}

/* ---- results ---- */

static uint64_t quality_bytes_of(const struct quality *q, const struct outcome *o)
{
    const struct model_config *c = &q->model.is;
    uint64_t row = 0;
    for (unsigned p = 0; p < 2; p++)
        row += kvc_row_bytes((enum kvc_type)o->types.type[p], c->head_size);
    return row * c->layers * c->kv_heads;
}

/* The mean divergence that is wanted of a trained model; 0: none was set. */
static double wanted(const struct outcome *o)
{
    const uint32_t k = o->types.type[0], v = o->types.type[1];
    if (k == v && (k == KVC_Q8_0 || k == KVC_I8))
        return 0.001;
    if (k == v && k == KVC_F8)
        return 0.005;
    return k == KVC_F32 && v == KVC_Q4_0 ? 0.02 : 0;
}

static const char *judged(const struct quality *q, const struct outcome *o)
{
    if (!q->which.dir || wanted(o) <= 0)
        return "";
    return o->kl / (double)o->n <= wanted(o) ? "good" : "MISSED";
}

static void quality_report_json(const struct quality *q, const struct outcome *o)
{
    const double n = (double)o->n;
    const struct {
        const char *name, *unit;
        double value;
    } metrics[] = {{"kl_mean", "nat", o->kl / n},
                   {"kl_max", "nat", o->kl_max},
                   {"perplexity", "", exp(o->nll / n)},
                   {"top1_agreement", "", (double)o->same / n},
                   {"bytes_per_token", "B", (double)quality_bytes_of(q, o)}};
    const double bar = q->which.dir ? wanted(o) : 0;
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++)
        out_json(&(struct out_metric){
            .bench = "quality",
            .keys = {{.key = "model", .text = q->model.is.name},
                     {.key = "weights", .text = q->which.dir ? "given" : "random"},
                     {.key = "k", .text = kvc_type_name((enum kvc_type)o->types.type[0])},
                     {.key = "v", .text = kvc_type_name((enum kvc_type)o->types.type[1])},
                     {.key = "texts", .number = q->texts},
                     {.key = "tokens", .number = o->n}},
            .metric = metrics[i].name,
            .value = metrics[i].value,
            .unit = metrics[i].unit,
            .limit_what = i == 0 && bar > 0 ? "wanted" : NULL,
            .limit = bar,
            .ratio = bar > 0 ? metrics[i].value / bar : 0});
}

static void report_table(const struct quality *q)
{
    printf("%s (%s): %zu texts, %ju tokens compared; %u threads, BLAS core %s\n", q->model.is.name,
           worker_model_weights(&q->which), q->texts, (uintmax_t)q->of[0].n, q->model.threads,
           product_core());
    if (!q->which.dir)
        puts("Random weights: this is how exact the types are here, and nothing about language.");
    printf("\n  K      V      bytes a token  of fp32    mean KL     largest   perplexity  "
           "same first\n");
    for (size_t i = 0; i < q->cases; i++) {
        const struct outcome *o = &q->of[i];
        const double n = (double)o->n;
        printf("  %-5s  %-5s  %13ju  %7.3f  %9.2e  %9.2e  %11.4f  %9.2f %%  %s\n",
               kvc_type_name((enum kvc_type)o->types.type[0]),
               kvc_type_name((enum kvc_type)o->types.type[1]), (uintmax_t)quality_bytes_of(q, o),
               (double)quality_bytes_of(q, o) / (double)quality_bytes_of(q, &q->of[0]), o->kl / n,
               o->kl_max, exp(o->nll / n), (double)o->same * 100 / n, judged(q, o));
    }
}

/* ---- plot ---- */

/* The series of a type: used for both, for K or for V. */
static const char *share_name(const struct worker_types *t)
{
    return t->type[0] == t->type[1] ? "K and V"
           : t->type[1] == KVC_F32  ? "K"
           : t->type[0] == KVC_F32  ? "V"
                                    : t->name;
}

static uint32_t smaller_type(const struct worker_types *t)
{
    return t->type[0] == KVC_F32 ? t->type[1] : t->type[0];
}

static int plot(const struct quality *q)
{
    struct plot_point point[KVC_TYPES][CASES_MAX];
    struct plot_series series[KVC_TYPES];
    double least = INFINITY, most = 0, low = INFINITY, high = 0;
    size_t n = 0;
    char title[160];
    for (uint32_t type = 0; type < KVC_TYPES; type++) {
        struct plot_series s = {.name = kvc_type_name((enum kvc_type)type), .point = point[n]};
        for (size_t i = 1; i < q->cases; i++) {
            const struct outcome *o = &q->of[i];
            if (smaller_type(&o->types) != type)
                continue;
            const double x = (double)quality_bytes_of(q, o),
                         y = fmax(o->kl / (double)o->n, KL_LEAST);
            point[n][s.n++] = (struct plot_point){.x = x, .y = y, .label = share_name(&o->types)};
            least = fmin(least, x);
            most = fmax(most, x);
            low = fmin(low, y);
            high = fmax(high, y);
        }
        if (s.n > 0)
            series[n++] = s;
    }
    struct plot_axis x = {.title = "bytes of a token's K and V"},
                     y = {.title = "mean divergence from fp32, nats"};
    plot_axis_logarithmic(&x, least, most);
    plot_axis_logarithmic(&y, low, high);
    (void)snprintf(title, sizeof(title), "%s (%.80s), %ju tokens", q->model.is.name,
                   worker_model_weights(&q->which), (uintmax_t)q->of[0].n);
    const int rc = plot_write(q->svg, title, &x, &y, series, n);
    if (rc != 0)
        say_error("%s: %s", q->svg, strerror(-rc));
    return rc == 0 ? 0 : BENCH_FAILED;
}

/* ---- the command ---- */

static void case_add(struct quality *q, uint32_t k, uint32_t v)
{
    struct outcome *o = &q->of[q->cases++];
    o->types = (struct worker_types){.type = {k, v}};
    worker_types_name(&o->types);
}

/* Makes the cases of each type: for both, for K and for V. */
static void cases_all(struct quality *q)
{
    for (uint32_t type = KVC_F32 + 1; type < KVC_TYPES; type++) {
        case_add(q, type, type);
        case_add(q, type, KVC_F32);
        case_add(q, KVC_F32, type);
    }
}

static int quality_take_types(void *ctx, const char *text)
{
    struct quality *q = ctx;
    struct worker_types list[CASES_MAX - 1];
    size_t n = 0;
    const int rc = worker_types_list(text, list, CASES_MAX - 1, &n);
    q->cases = 1;
    for (size_t i = 0; rc == 0 && i < n; i++)
        case_add(q, list[i].type[0], list[i].type[1]);
    return rc;
}

static const struct arg option_table[] = {
    {"--ids", "files have token ids: 1 2 3, or 1,2,3, a line for each text",
     ARG_FLAG(struct quality, ids)},
    {"--tokens N", "of each text at most (default 1024)",
     ARG_COUNT(struct quality, tokens, 2, TOKENS_MAX)},
    {"--types LIST",
     "of K and V, as in q8_0,q8_0:q4_0 (default: each type for both, for K alone and for V alone)",
     ARG_DO(quality_take_types)},
    {"--svg FILE", "plot divergence over bytes", ARG_TEXT(struct quality, svg)},
    WORKER_MODEL_OPTIONS(struct quality, which),
    {"--json", "one JSON object per line on stdout", ARG_FLAG(struct quality, json)},
    {0},
};

static int memory_make(struct quality *q)
{
    const size_t floats = (size_t)q->model.chunk * q->model.is.vocab;
    q->logits = calloc(floats, sizeof(float));
    q->exact = calloc(floats, sizeof(float));
    q->exact_all = calloc(q->model.chunk, sizeof(*q->exact_all));
    q->p = calloc(floats, sizeof(float));
    if (q->logits && q->exact && q->p && q->exact_all)
        return 0;
    say_error("out of memory");
    return BENCH_FAILED;
}

static int quality_measure(struct quality *q, int argc, char **argv)
{
    progress_show(true, "quality: taking the model's weights");
    int rc = worker_model_open(&q->which, &q->model);
    rc = rc == 0 ? memory_make(q) : rc;
    for (int i = optind; rc == 0 && i < argc; i++)
        rc = file_take(q, argv[i]);
    if (rc == 0 && q->texts == 0 && (q->ids || optind < argc))
        rc = say_usage("no text has two tokens or more%s",
                       q->ids ? "; --ids wants FILEs with the token ids of a text a line" : "");
    if (rc == 0 && q->texts == 0)
        rc = texts_make(q);
    for (size_t i = 0; rc == 0 && i < q->texts; i++)
        rc = text_compare(q, i);
    progress_clear();
    if (rc == 0 && !q->json)
        report_table(q);
    for (size_t i = 0; rc == 0 && q->json && i < q->cases; i++)
        quality_report_json(q, &q->of[i]);
    return rc == 0 && q->svg ? plot(q) : rc;
}

int cmd_quality(int argc, char **argv)
{
    static struct quality q;
    q = (struct quality){.which = {.preset = "125m", .seed = 1}, .tokens = 1024};
    case_add(&q, KVC_F32, KVC_F32);
    int rc = opt_take(argc, argv, option_table, help, &q);
    if (rc != 0)
        return rc < 0 ? BENCH_OK : rc;
    if (q.cases == 1)
        cases_all(&q);
    rc = quality_measure(&q, argc, argv);
    for (size_t i = 0; i < q.texts; i++)
        free(q.text[i].token);
    model_end(&q.model);
    free(q.logits);
    free(q.exact);
    free(q.exact_all);
    free(q.p);
    return rc;
}
