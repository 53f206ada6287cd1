/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seeds that a simulation's command line names: one, a range, or those of a file. SEEDS_OPTIONS
 * are the rows of its table.
 */
#ifndef CHECK_SEEDS_H
#define CHECK_SEEDS_H

#include <stdbool.h>
#include <stdint.h>

#include "args.h"

#define SEED_MAX INT64_MAX /* what is drawn by seed + 1 and the like must not be 0 */

struct seeds {
    uint64_t from, to;
    const char *list; /* a file; NULL: from..to */
    bool given;       /* one of the options; another one would have no effect */
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
/* How many there are; those of a file are read into `list`, `max` at most. Says what is wrong and
 * ends the program with status 2 where the file cannot be read or names none: a run of no seed
 * would pass. */
uint64_t seeds_count(const struct seeds *s, uint64_t *list, uint64_t max);
/* The one with this number, from 0. */
static inline uint64_t seeds_at(const struct seeds *s, const uint64_t *list, uint64_t i)
{
    return s->list ? list[i] : s->from + i;
}

#endif
