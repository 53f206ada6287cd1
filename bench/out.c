/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "out.h"
#include "stdfds.h"

/* Counts stay integers, so that a script can compare them with ==. */
static json_t *out_number(double value)
{
    double whole;
    double fraction = modf(value, &whole);
    if (!(fabs(fraction) > 0) && fabs(value) < 0x1p53)
        return json_integer((json_int_t)value);
    return json_real(value);
}

static json_t *case_of(const struct out_metric *metric)
{
    json_t *object = json_object();
    for (size_t i = 0; i < OUT_CASE_MAX && metric->keys[i].key; i++) {
        const struct out_key *key = &metric->keys[i];
        json_t *value = key->text ? json_string(key->text) : json_integer((json_int_t)key->number);
        json_object_set_new(object, key->key, value);
    }
    return object;
}

void out_json(const struct out_metric *metric)
{
    json_t *line = json_pack("{s:s, s:o, s:s, s:o, s:s}", "bench", metric->bench, "case",
                             case_of(metric), "metric", metric->metric, "value",
                             out_number(metric->value), "unit", metric->unit);
    if (line && metric->limit_what) {
        json_t *limit =
            json_pack("{s:s, s:o}", "what", metric->limit_what, "value", out_number(metric->limit));
        json_object_set_new(line, "limit", limit);
        json_object_set_new(line, "ratio", json_real(metric->ratio));
    }
    if (!line) {
        say_error("out of memory");
        abort();
    }
    (void)json_dumpf(line, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    fputc('\n', stdout);
    (void)stdfds_flush(); /* main() reports an error */
    json_decref(line);
}

static int out_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double out_median(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), out_compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}
