/* SPDX-License-Identifier: Apache-2.0 */
/* Output of a replay at its end: a table for people, or JSON lines. */
#ifndef BENCH_REPLAY_REPORT_H
#define BENCH_REPLAY_REPORT_H

#include <stddef.h>

#include "replay.h"

struct replay_result {
    const char *capacity; /* as given, or "daemon" */
    const char *policy;
    uint64_t capacity_blocks;         /* blocks that host memory holds; 0 = not known */
    uint64_t hbm_blocks;              /* 0 = no such tier */
    uint64_t nvme_blocks, nvme_limit; /* 0 = no such tier */
    uint32_t workers;
    uint32_t block_bytes;
    double prefill_us_per_token;
    double seconds;
    struct replay_tally tally;
};

void replay_report_json(const struct replay_result *result);
/* Prints one result in full, or several as rows of a table. */
void replay_report_table(const struct replay_result *results, size_t n);

#endif
