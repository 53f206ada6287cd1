/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seeds of a simulation's command line: one seed, a range, or a file of seeds. SEEDS_OPTIONS
 * are the rows of its table of options.
 */
#ifndef CHECK_SEEDS_H
#define CHECK_SEEDS_H

#include <stdbool.h>
#include <stdint.h>

#include "args.h"

#define SEED_MAX INT64_MAX /* numbers are drawn from seed + 1 and the like, which must not be 0 */

struct seeds {
    uint64_t from, to;
    const char *list; /* file of seeds; NULL: from..to */
    bool given;       /* an option has named seeds already; a second one would have no effect */
};

#define SEEDS_OPTIONS(type, member)                                                  \
    {"--seed N", "one seed (default 1)", ARG_DO_AT(type, member, seeds_take_one)},   \
        {"--seeds FROM..TO", "all of these; those that fail do not stop the others", \
         ARG_DO_AT(type, member, seeds_take_range)},                                 \
    {                                                                                \
        "--list FILE", "the seeds in FILE, one a line; a # begins a comment",        \
            ARG_DO_AT(type, member, seeds_take_file)                                 \
    }

int seeds_take_one(void *seeds, const char *text);
int seeds_take_range(void *seeds, const char *text);
int seeds_take_file(void *seeds, const char *path);
/* Returns the number of seeds; seeds of a file are read into `list`, `max` at most. If the file
 * cannot be read or names no seed, prints what is wrong and ends the program with status 2, because
 * a run without a seed would pass. */
uint64_t seeds_count(const struct seeds *s, uint64_t *list, uint64_t max);
/* Returns seed number `i`, counted from 0. */
static inline uint64_t seeds_at(const struct seeds *s, const uint64_t *list, uint64_t i)
{
    return s->list ? list[i] : s->from + i;
}

#endif
