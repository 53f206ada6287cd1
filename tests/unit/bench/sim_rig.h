/* SPDX-License-Identifier: Apache-2.0 */
/* Traces for the simulator that are so small that each hit can be worked out by hand. A failure
 * fails the test. */
#ifndef TEST_SIM_RIG_H
#define TEST_SIM_RIG_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simulate.h"

#define REQUESTS_MAX 4096

static struct trace trace;
static struct sim_forest *forest;
static struct sim_hit hits[REQUESTS_MAX];
static struct sim_counts counts;

static inline void setup(void)
{
    trace = (struct trace){0};
    forest = NULL;
}

static inline void teardown(void)
{
    sim_forest_destroy(&forest);
    free(trace.requests);
    free(trace.ids);
}

static inline void ask(const char *line)
{
    char why[TRACE_WHY_BYTES];
    ck_assert_msg(trace__parse_line(&trace, line, why) == 0, "%s", line);
}

/* Makes a trace from "1 2 3, 1 2 4": requests one second apart. */
static inline void make(const char *requests)
{
    char copy[1024], line[512];
    snprintf(copy, sizeof(copy), "%s", requests);
    char *rest = copy;
    for (char *one = strsep(&rest, ","); one; one = strsep(&rest, ",")) {
        char ids[256] = "";
        for (char *id = strtok(one, " "); id; id = strtok(NULL, " "))
            snprintf(ids + strlen(ids), sizeof(ids) - strlen(ids), "%s%s", ids[0] ? "," : "", id);
        snprintf(line, sizeof(line), "{\"timestamp\": %zu, \"hash_ids\": [%s]}",
                 1000 * (trace.n_requests + 1), ids);
        ask(line);
    }
    ck_assert_int_eq(sim_forest_create(&trace, &forest), 0);
}

static inline void expect_hits(const char *want)
{
    char got[256] = "";
    for (size_t r = 0; r < trace.n_requests; r++)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%u", r ? " " : "",
                 hits[r].host + hits[r].nvme);
    ck_assert_str_eq(got, want);
}

#endif
