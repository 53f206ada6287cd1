/* SPDX-License-Identifier: Apache-2.0 */
#include "lat.h"

/* Values below LAT_SUB have a bucket each; above, the four bits under the top one pick it. */
static unsigned lat_bucket_of(uint64_t ns)
{
    if (ns < LAT_SUB)
        return (unsigned)ns;
    unsigned top = 63u - (unsigned)__builtin_clzll(ns);
    unsigned sub = (unsigned)(ns >> (top - 4)) & (LAT_SUB - 1);
    unsigned bucket = (top - 3) * LAT_SUB + sub;
    return bucket < LAT_BUCKETS ? bucket : LAT_BUCKETS - 1;
}

static uint64_t middle_of(unsigned bucket)
{
    if (bucket < LAT_SUB)
        return bucket;
    unsigned top = bucket / LAT_SUB + 3;
    uint64_t width = (uint64_t)1 << (top - 4);
    return (LAT_SUB + bucket % LAT_SUB) * width + width / 2;
}

void lat_add(struct lat *lat, uint64_t ns)
{
    lat->bucket[lat_bucket_of(ns)]++;
    lat->count++;
}

void lat_merge(struct lat *into, const struct lat *from)
{
    for (unsigned i = 0; i < LAT_BUCKETS; i++)
        into->bucket[i] += from->bucket[i];
    into->count += from->count;
}

uint64_t lat_quantile_ns(const struct lat *lat, double q)
{
    if (lat->count == 0)
        return 0;
    uint64_t rank = (uint64_t)(q * (double)(lat->count - 1));
    uint64_t seen = 0;
    for (unsigned i = 0; i < LAT_BUCKETS; i++) {
        seen += lat->bucket[i];
        if (seen > rank)
            return middle_of(i);
    }
    return middle_of(LAT_BUCKETS - 1);
}
