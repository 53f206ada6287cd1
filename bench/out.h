/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a benchmark prints: with --json one object per line on stdout and nothing else there, in the
 * form
 *   {"bench":"store","case":{"block_bytes":2097152},"metric":"store_bytes_per_s","value":1.7e10,
 *    "unit":"B/s","limit":{"what":"memcpy","value":1.9e10},"ratio":0.89}
 */
#ifndef BENCH_OUT_H
#define BENCH_OUT_H

#include <stddef.h>
#include <stdint.h>

#define OUT_CASE_MAX 8

/* One key of "case": text, or a number where text is NULL. */
struct out_key {
    const char *key;
    const char *text;
    uint64_t number;
};

struct out_metric {
    const char *bench;
    struct out_key keys[OUT_CASE_MAX]; /* ends at the first entry whose key is NULL */
    const char *metric;
    double value;
    const char *unit;
    const char *limit_what; /* NULL = no limit, no ratio */
    double limit;
    double ratio;
};

void out_json(const struct out_metric *metric);

/* Sorts `values`; the mean of the middle two for an even n. n > 0. */
double out_median(double *values, size_t n);

#endif
