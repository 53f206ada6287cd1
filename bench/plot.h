/* SPDX-License-Identifier: Apache-2.0 */
/* A drawing of points in two dimensions, as an SVG file. Pure but for the file. */
#ifndef BENCH_PLOT_H
#define BENCH_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "bench.h"

#define PLOT_TICKS_MAX 32
#define PLOT_TEXT_MAX  32

struct plot_tick {
    double at;
    char text[PLOT_TEXT_MAX];
};
struct plot_axis {
    const char *title;
    bool logarithmic; /* then low is above 0 */
    double low, high;
    struct plot_tick tick[PLOT_TICKS_MAX]; /* those whose labels have no room get a line alone */
    size_t ticks;
};
struct plot_point {
    double x, y;
    const char *label; /* beside the mark; NULL: none */
};
/* Told apart by colour and mark; the name is in the legend. */
struct plot_series {
    const char *name;
    const struct plot_point *point;
    size_t n;
    bool line; /* points are joined, in their order */
};

/* Around these points, with a tick at each power of ten (or two, where there are few of those). */
void plot_axis_logarithmic(struct plot_axis *axis, double low, double high);
/* Text is UTF-8; what XML does not take is replaced. 0 or a negative errno. */
BENCH_MUST_USE int plot_write(const char *path, const char *title, const struct plot_axis *x,
                              const struct plot_axis *y, const struct plot_series *series,
                              size_t n);

#endif
