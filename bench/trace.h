/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request traces in the JSONL form that Mooncake publishes, one request a line:
 *   {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}
 * A hash id names a block of the prompt together with all that stands before it, so equal ids mean
 * equal prefixes. Fields may come in any order; others are skipped; only hash_ids is required.
 */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "bench.h"

#define TRACE_WHY_BYTES 512

struct trace_request {
    uint64_t timestamp_ms;
    uint32_t input_tokens; /* 0 = not given */
    uint32_t output_tokens;
    uint32_t blocks;
    size_t first; /* of its ids in struct trace */
    /* An entry that stores this chain without asking for it; a trace from a file has none. */
    bool stored;
};

struct trace {
    struct trace_request *requests;
    size_t n_requests;
    uint64_t *ids;
    size_t n_ids;
    uint32_t blocks_max; /* of one request */
};

/* Reads at most requests_max requests (0 = all). The caller owns *ret_trace. On a negative errno
 * `why` has the file, the line, and what would be right. */
BENCH_MUST_USE int trace_load(const char *path, size_t requests_max, char why[TRACE_WHY_BYTES],
                              struct trace **ret_trace);
/* Accepts NULL and a pointer to NULL. */
void trace_destroy(struct trace **trace);
/* Whether most requests have as many ids as input_tokens / block_tokens says, plus or minus one. If
 * not, *ret_fit is a number of tokens that fits all requests; 0: no number does. Requests without
 * input_tokens are ignored. */
bool trace_fits(const struct trace *trace, uint32_t block_tokens, uint32_t *ret_fit);
/* Counts the distinct ids. 0 or -ENOMEM. */
BENCH_MUST_USE int trace_unique_blocks(const struct trace *trace, uint64_t *ret_n);

/* Parses one line and appends its request. Public for tests. -EINVAL with `why`, -ENOMEM. */
BENCH_MUST_USE int trace__parse_line(struct trace *trace, const char *line,
                                     char why[TRACE_WHY_BYTES]);

struct trace_gen_options {
    uint64_t requests;
    uint64_t seed;
    uint32_t block_tokens;
};
/* Writes conversations of several turns that share system prompts; the same options give the same
 * bytes. 0, -ENOMEM, or what writing failed with. */
BENCH_MUST_USE int trace_generate(const struct trace_gen_options *options, FILE *to);
/* The same for another kind of workload. -EINVAL: no kind has that name. */
BENCH_MUST_USE int trace_generate_kind(const struct trace_gen_options *options, const char *kind,
                                       FILE *to);
/* The name of the i-th kind, from 0 on, and a text that describes it; NULL: there are fewer. */
const char *trace_kind(unsigned i, const char **ret_text);

#endif
