/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metric sets as text for Prometheus: the text format 0.0.4, or OpenMetrics 1.0.
 *
 * A metric `wait_ns` of the set "svc" is kvcache_svc_wait_seconds: names, kinds and help are those
 * of the tables (metric.h), and the unit follows from the name (units_of_stat()): durations are in
 * seconds, percent are ratios. Counters end in _total. A histogram has a bucket for each power of
 * two of nanoseconds from 2^10 to 2^36, and beside it a gauge <name>_max_<unit>. Sets of one table
 * that differ in a number (device0, device1) are one family, with a label device="0".
 *
 * Pure; threads: any, while nobody writes to the sets.
 */
#ifndef KVC_BASE_EXPOSITION_H
#define KVC_BASE_EXPOSITION_H

#include <stddef.h>

#include "metric.h"

enum exposition { EXPOSITION_TEXT, EXPOSITION_OPENMETRICS };

/* Writes as much of the text as fits in `cap` bytes, without a NUL. Returns the length of the whole
 * text. Names and help of the tables are ASCII without '\\', '"' and line breaks (MUST). version is
 * the daemon's. */
size_t exposition_write(const struct metric_set *sets, unsigned nsets, const char *version,
                        enum exposition form, char *buf, size_t cap);

#endif
