/* SPDX-License-Identifier: Apache-2.0 */
#include "reader.h"

enum { STREAMS = 4, WORDS = 8 };

/* Reads four cache lines at a time, a quarter of the block apart. So many reads are in flight that
 * their latency is no limit, on any processor and without wide instructions; one stream read cold
 * memory a quarter more slowly. Eight sums, so that the order of additions is no limit either. */
__attribute__((noinline)) uint64_t perf_read(const void *from, uint64_t bytes)
{
    const uint64_t *words = from;
    uint64_t sum[WORDS] = {0};
    uint64_t n = bytes / sizeof(*words);
    uint64_t quarter = n / (STREAMS * WORDS) * WORDS;
    for (uint64_t i = 0; i < quarter; i += WORDS) {
        for (uint64_t stream = 0; stream < STREAMS; stream++) {
            for (uint64_t j = 0; j < WORDS; j++)
                sum[j] += words[stream * quarter + i + j];
        }
    }
    for (uint64_t i = STREAMS * quarter; i < n; i++)
        sum[0] += words[i];
    const uint8_t *rest = (const uint8_t *)(words + n);
    for (uint64_t j = 0; j < bytes % sizeof(*words); j++)
        sum[1] += rest[j];
    uint64_t total = 0;
    for (uint64_t j = 0; j < WORDS; j++)
        total += sum[j];
    return total;
}
