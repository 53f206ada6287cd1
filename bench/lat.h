/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A histogram of latencies with a fixed size, so that it can lie in memory shared by processes.
 * Buckets are 1/16 of a power of two wide: a percentile is right within 6 %. Zeroed = empty. Pure.
 */
#ifndef BENCH_LAT_H
#define BENCH_LAT_H

#include <stdint.h>

#define LAT_SUB     16u
#define LAT_BUCKETS (60u * LAT_SUB)

struct lat {
    uint64_t count;
    uint64_t bucket[LAT_BUCKETS];
};

void lat_add(struct lat *lat, uint64_t ns);
void lat_merge(struct lat *into, const struct lat *from);
/* q in 0..1; 0 when there are no samples. Nanoseconds, the middle of the bucket. */
uint64_t lat_quantile_ns(const struct lat *lat, double q);

#endif
