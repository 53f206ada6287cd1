/* SPDX-License-Identifier: Apache-2.0 */
/* Output of a simulation: a table for people, JSON lines, a plot. */
#ifndef SIMULATE_REPORT_H
#define SIMULATE_REPORT_H

#include "simulate.h"
#include "simulate_cost.h"

struct sim_result {
    const char *policy, *capacity; /* as given */
    const char *hints;             /* as given; NULL: no hints, or the policy ignores them */
    uint64_t host_blocks, nvme_blocks;
    uint32_t unique_blocks;
    struct sim_counts counts;
    struct sim_times times;
    double cpu_s; /* processor time of the run */
};

double sim_hit_ratio(const struct sim_result *result);
void sim_report_json(const struct sim_result *result);
void sim_report_table(const struct sim_result *results, size_t n);

/* Prints the timed evictions of a run. */
void sim_report_decisions(const char *policy, uint64_t blocks,
                          const struct sim_decisions *decisions, bool json);

/* Draws the hit ratio over the capacity as an SVG file, with a line for each policy. Results of one
 * policy must be neighbours. 0 or a negative errno. */
BENCH_MUST_USE int sim_plot(const char *path, const char *title, const struct sim_result *results,
                            size_t n);

#endif
