/* SPDX-License-Identifier: Apache-2.0 */
/* The hit ratios of a sweep as an SVG plot. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "plot.h"
#include "simulate_report.h"

static double room(const struct sim_result *result)
{
    return (double)(result->host_blocks + result->nvme_blocks);
}

/* Makes the axes: capacities as they were given, hit ratios in steps of .05. */
static void axes_make(const struct sim_result *results, size_t n, struct plot_axis *x,
                      struct plot_axis *y)
{
    *x = (struct plot_axis){.title = "capacity (logarithmic)",
                            .logarithmic = true,
                            .low = room(&results[0]),
                            .high = room(&results[0])};
    *y = (struct plot_axis){.title = "hit ratio, blocks", .high = 0.1};
    for (size_t i = 0; i < n; i++) {
        x->low = fmin(x->low, room(&results[i]));
        x->high = fmax(x->high, room(&results[i]));
        y->high = fmax(y->high, ceil(sim_hit_ratio(&results[i]) * 20) / 20);
    }
    for (size_t i = 0; i < n && results[i].policy == results[0].policy; i++) {
        struct plot_tick *tick = &x->tick[x->ticks];
        if (x->ticks == PLOT_TICKS_MAX)
            break;
        tick->at = room(&results[i]);
        (void)snprintf(tick->text, sizeof(tick->text), "%.*s", PLOT_TEXT_MAX - 1,
                       results[i].capacity);
        x->ticks++;
    }
    for (y->ticks = 0; y->ticks <= (size_t)lround(y->high * 20); y->ticks++) {
        struct plot_tick *tick = &y->tick[y->ticks];
        tick->at = (double)y->ticks / 20;
        (void)snprintf(tick->text, sizeof(tick->text), "%.2f", tick->at);
    }
}

int sim_plot(const char *path, const char *title, const struct sim_result *results, size_t n)
{
    struct plot_axis x, y;
    struct plot_point *point = calloc(n, sizeof(*point));
    struct plot_series *series = calloc(n, sizeof(*series));
    size_t lines = 0;
    int rc = point && series ? 0 : -ENOMEM;
    if (rc == 0)
        axes_make(results, n, &x, &y);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (i == 0 || results[i].policy != results[i - 1].policy)
            series[lines++] =
                (struct plot_series){.name = results[i].policy, .point = &point[i], .line = true};
        point[i] = (struct plot_point){.x = room(&results[i]), .y = sim_hit_ratio(&results[i])};
        series[lines - 1].n++;
    }
    rc = rc == 0 ? plot_write(path, title, &x, &y, series, lines) : rc;
    free(point);
    free(series);
    return rc;
}
