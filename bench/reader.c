/* SPDX-License-Identifier: Apache-2.0 */
#include "reader.h"

enum { STREAMS = 4, WORDS = 8 };

/* Four cache lines at a time, a quarter of the block apart: so many are under way from memory that
 * the reads' latency is not what limits it, on any processor and without wide instructions. On one
 * stream cold memory came a quarter slower. Eight sums, so that the additions' order is no limit.
 */
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
