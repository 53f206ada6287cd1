/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output of kvcachebench ttft: times recomputed, from host memory and from storage; as a table or
 * as JSON.
 */
#include <kvcache/attention.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "out.h"
#include "plot.h"
#include "product.h"
#include "ttft.h"

#define WANTED_LOAD    1.3  /* at most so many times the bound */
#define WANTED_COMPUTE 0.70 /* at least that part of BLAS's speed */
#define WANTED_RIGHT   0.95
#define SERIES_MAX     (1 + 2 * TTFT_VARIANTS_MAX)

/* A row of the table. */
struct row {
    const char *source, *types, *bound_is;
    double s, bound, products; /* 0: not measured */
    double wanted;             /* most that time by bound may be */
};

static struct row row_recompute(const struct ttft_length *l)
{
    const double step = ttft_median(&l->of[0].step), products = ttft_median(&l->products);
    return (struct row){.source = "recompute",
                        .types = "fp32",
                        .bound_is = "BLAS + step",
                        .s = ttft_median(&l->recompute),
                        .bound = products + ttft_median(&l->attention) + step,
                        .products = products + step,
                        .wanted = 1 / WANTED_COMPUTE};
}

static struct row row_host(const struct ttft *t, const struct ttft_length *l, size_t v)
{
    const struct ttft_case *c = &l->of[v];
    return (struct row){.source = "host",
                        .types = t->variant[v].types.name,
                        .bound_is = "copy + step",
                        .s = ttft_median(&c->host),
                        .bound = ttft_median(&c->copy) + ttft_median(&c->step),
                        .wanted = WANTED_LOAD};
}

static struct row row_storage(const struct ttft *t, const struct ttft_length *l, size_t v)
{
    const struct ttft_case *c = &l->of[v];
    const double disk = ttft_median(&t->disk);
    return (struct row){.source = "storage",
                        .types = t->variant[v].types.name,
                        .bound_is = "fio + step",
                        .s = ttft_median(&c->storage),
                        .bound = disk > 0 ? (double)c->bytes / disk + ttft_median(&c->step) : 0,
                        .wanted = WANTED_LOAD};
}

/* ---- JSON ---- */

static void metric_json(const struct ttft *t, const struct ttft_length *l, const char *name,
                        const struct row *r, double bound, const char *bound_is)
{
    out_json(&(struct out_metric){.bench = "ttft",
                                  .keys = {{.key = "model", .text = t->model.is.name},
                                           {.key = "tokens", .number = l->tokens},
                                           {.key = "source", .text = r->source},
                                           {.key = "types", .text = r->types},
                                           {.key = "block_tokens", .number = t->block},
                                           {.key = "threads", .number = t->model.threads}},
                                  .metric = name,
                                  .value = r->s,
                                  .unit = "s",
                                  .limit_what = bound > 0 ? bound_is : NULL,
                                  .limit = bound,
                                  .ratio = bound > 0 ? r->s / bound : 0});
}

static void row_json(const struct ttft *t, const struct ttft_length *l, const struct row *r)
{
    if (r->s <= 0)
        return;
    metric_json(t, l, "ttft", r, r->bound, r->bound_is);
    if (r->products > 0)
        metric_json(t, l, "ttft_over_products", r, r->products, "BLAS without attention + step");
    else
        metric_json(t, l, "ttft_over_recompute", r, ttft_median(&l->recompute), "recompute");
}

static void choice_json(const struct ttft *t, const struct ttft_length *l)
{
    const struct {
        const char *name, *unit;
        double value;
    } metrics[] = {{"choice_right", "", (double)l->right / (double)l->choices},
                   {"choice_loads", "", (double)l->loads / (double)l->choices},
                   {"choice_lost", "s", l->lost_s / (double)l->choices}};
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++)
        out_json(&(struct out_metric){
            .bench = "ttft",
            .keys = {{.key = "model", .text = t->model.is.name},
                     {.key = "tokens", .number = l->tokens},
                     {.key = "read_delay_ms", .number = t->read_delay_ms},
                     {.key = "prefill_ns_per_token", .number = (uint64_t)t->prefill_ns},
                     {.key = "prefill_fs_per_pair", .number = (uint64_t)t->prefill_fs_pair}},
            .metric = metrics[i].name,
            .value = metrics[i].value,
            .unit = metrics[i].unit});
}

/* ---- table ---- */

static void row_print(const struct ttft_length *l, const struct row *r)
{
    const double recompute = ttft_median(&l->recompute);
    char name[40];
    (void)snprintf(name, sizeof(name), "%s, %s", r->source, r->types);
    printf("  %6u  %-22s %10.2f ms", l->tokens, name, r->s * 1e3);
    if (r->bound > 0)
        printf("   %-11s %9.2f ms   %5.2f %s", r->bound_is, r->bound * 1e3, r->s / r->bound,
               r->s <= r->wanted * r->bound ? "good  " : "MISSED");
    else
        printf("   bound not measured                     ");
    printf("  %7.1f x\n", recompute / r->s);
}

static void choice_print(const struct ttft *t)
{
    uint64_t right = 0, all = 0;
    double lost = 0, quicker = 0;
    printf(
        "\nThe daemon is told that a token costs %.1f us to compute, and %.1f ns for each before "
        "it:\n"
        "  tokens     computed       loaded   loads   takes the quicker way (within 10 %%)\n",
        t->prefill_ns / 1e3, t->prefill_fs_pair / 1e6);
    for (size_t i = 0; i < t->lengths; i++) {
        const struct ttft_length *l = &t->length[i];
        const double load = ttft_median(&l->of[0].storage);
        printf("  %6u  %8.2f ms  %8.2f ms   %2u/%-2u   %2u of %u\n", l->tokens,
               ttft_median(&l->beside) * 1e3, load * 1e3, l->loads, l->choices, l->right,
               l->choices);
        right += l->right;
        all += l->choices;
        lost += l->lost_s;
        quicker += l->quicker_s;
    }
    const double share = (double)right / (double)all;
    printf("  right in %.0f %%; wanted %.0f %%: %s\n", share * 100, WANTED_RIGHT * 100,
           share >= WANTED_RIGHT ? "good" : "MISSED");
    printf("  lost by the others: %.2f ms, %.1f %% of what the quicker ways take\n", lost * 1e3,
           quicker > 0 ? lost * 100 / quicker : 0);
}

static void head_print(const struct ttft *t)
{
    printf("%s (%s): %u threads, BLAS core %s, attention %s, chunks of %u, blocks of %ju tokens\n",
           t->model.is.name, worker_model_weights(&t->which), t->model.threads, product_core(),
           kvc_attend_cpu_name(), t->model.chunk, (uintmax_t)t->block);
    if (t->disk.n > 0)
        printf("fio reads %.2f GB/s\n", ttft_median(&t->disk) / 1e9);
    else
        printf("no bound of storage: %s\n", t->no_disk);
    printf("\n  %6s  %-22s %13s   %-24s   %-12s  %9s\n", "tokens", "source", "first token", "bound",
           "by bound", "speed-up");
}

void ttft_report(struct ttft *t)
{
    if (!t->json)
        head_print(t);
    for (size_t i = 0; i < t->lengths; i++) {
        const struct ttft_length *l = &t->length[i];
        struct row row[SERIES_MAX];
        size_t n = 0;
        row[n++] = row_recompute(l);
        for (size_t v = 0; v < t->variants; v++) {
            row[n++] = row_host(t, l, v);
            row[n++] = row_storage(t, l, v);
        }
        for (size_t r = 0; r < n; r++) {
            if (t->json)
                row_json(t, l, &row[r]);
            else
                row_print(l, &row[r]);
        }
        if (t->json && l->choices > 0)
            choice_json(t, l);
    }
    if (!t->json)
        puts("          GPU: not measured, the worker computes on the CPU");
    if (!t->json && t->choose)
        choice_print(t);
}

/* ---- plot ---- */

int ttft_plot(const struct ttft *t)
{
    struct plot_point point[SERIES_MAX][TTFT_LENGTHS_MAX];
    struct plot_series series[SERIES_MAX];
    char name[SERIES_MAX][48], title[160];
    double low = INFINITY, high = 0;
    const size_t n = 1 + 2 * t->variants;
    for (size_t i = 0; i < t->lengths; i++) {
        const struct ttft_length *l = &t->length[i];
        for (size_t s = 0; s < n; s++) {
            const struct row r = s == 0  ? row_recompute(l)
                                 : s % 2 ? row_host(t, l, (s - 1) / 2)
                                         : row_storage(t, l, (s - 1) / 2);
            (void)snprintf(name[s], sizeof(name[s]), "%s, %s", r.source, r.types);
            point[s][i] = (struct plot_point){.x = l->tokens, .y = r.s * 1e3};
            series[s] = (struct plot_series){
                .name = name[s], .point = point[s], .n = t->lengths, .line = true};
            low = fmin(low, r.s * 1e3);
            high = fmax(high, r.s * 1e3);
        }
    }
    struct plot_axis x = {.title = "tokens of the prompt"},
                     y = {.title = "time to the first token, ms"};
    plot_axis_logarithmic(&x, t->length[0].tokens, t->length[t->lengths - 1].tokens);
    plot_axis_logarithmic(&y, low, high);
    (void)snprintf(title, sizeof(title), "%s (%.80s), %u threads", t->model.is.name,
                   worker_model_weights(&t->which), t->model.threads);
    const int rc = plot_write(t->svg, title, &x, &y, series, n);
    if (rc == 0)
        return 0;
    say_error("%s: %s", t->svg, strerror(-rc));
    return BENCH_FAILED;
}
