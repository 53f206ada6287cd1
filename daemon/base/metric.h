/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics: one table per module gives the struct, the names, the help and the statistics. The
 * daemon's tables are in stat.h.
 *
 *   foo.h   #define FOO_METRICS(X)                            \
 *               X(COUNTER, hits, "lookups that found all")    \
 *               X(GAUGE, bytes, "bytes held now")             \
 *               X(HISTO, wait_ns, "time in the queue")
 *           METRIC_STRUCT(foo, FOO_METRICS);            makes struct foo_metrics
 *   foo.c   METRIC_DESC(foo, FOO_METRICS);              makes foo_metric_desc[]; once in a .c file
 *           set = METRIC_SET(foo, "foo", &metrics);     a struct metric_set
 *
 * COUNTER only grows; GAUGE goes both ways; HISTO is a latency histogram in nanoseconds.
 * Threads: fields are plain. Only the thread that owns the module writes and reads them.
 */
#ifndef KVC_BASE_METRIC_H
#define KVC_BASE_METRIC_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"

/* Buckets are linear in eighths of a power of two: a quantile is at most 12.5 % above the true
 * value. 0 to 7 ns are exact. 4 KiB. Zeroed is empty. */
#define HISTO_BUCKETS (64 * 8)

struct histo {
    uint64_t count;
    uint64_t sum; /* stops at UINT64_MAX */
    uint64_t max;
    uint64_t bucket[HISTO_BUCKETS];
};

void histo_add(struct histo *h, uint64_t ns);
/* The value that a share q (0 to 1) of all additions does not exceed, rounded up to its bucket's
 * end but never above the largest added. 0 when empty. */
uint64_t histo_quantile(const struct histo *h, double q);
uint64_t histo_count(const struct histo *h);
/* How many of the added values are at most `ns`. ns + 1 must be a power of two: then no bucket has
 * values on both sides. */
uint64_t histo_count_to(const struct histo *h, uint64_t ns);
/* The mean of the added values; 0 when empty. */
uint64_t histo_mean(const struct histo *h);
void histo_merge(struct histo *into, const struct histo *from);
void histo_reset(struct histo *h);

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTO };

struct metric_desc {
    const char *name;
    const char *help;
    enum metric_kind kind;
    size_t offset; /* into the module's struct: uint64_t, or struct histo */
};

/* One module's metrics, to enumerate. Borrows everything. */
struct metric_set {
    const char *prefix;
    const struct metric_desc *desc;
    unsigned n;
    const void *base;
};

/* Value of metric i < n of the set; of a HISTO, its count. */
uint64_t metric_value(const struct metric_set *set, unsigned i);
/* The histogram of metric i < n, NULL when it is none. */
const struct histo *metric_histo(const struct metric_set *set, unsigned i);
/* The index of the metric of that name (without the prefix), or -ENOENT. */
KVC_WARN_UNUSED int metric_find(const struct metric_set *set, const char *name);

#define METRIC__TYPE_COUNTER            uint64_t
#define METRIC__TYPE_GAUGE              uint64_t
#define METRIC__TYPE_HISTO              struct histo
#define METRIC__FIELD(kind, name, help) METRIC__TYPE_##kind name;
#define METRIC__ROW(kind, name, help)   {#name, help, METRIC_##kind, offsetof(metric__mod, name)},

#define METRIC_STRUCT(module, TABLE) \
    struct module##_metrics {        \
        TABLE(METRIC__FIELD)         \
    }
/* The typedef lets a row name its struct; a second table in one .c file is refused by the compiler.
 */
#define METRIC_DESC(module, TABLE)               \
    typedef struct module##_metrics metric__mod; \
    static const struct metric_desc module##_metric_desc[] = {TABLE(METRIC__ROW)}
#define METRIC_SET(module, prefix_, base_)                               \
    ((struct metric_set){.prefix = (prefix_),                            \
                         .desc = module##_metric_desc,                   \
                         .n = (unsigned)ARRAY_LEN(module##_metric_desc), \
                         .base = (const struct module##_metrics *)(base_)})

#endif
