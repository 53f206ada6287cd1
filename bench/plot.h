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
    bool logarithmic; /* if so, `low` is above 0 */
    double low, high;
    struct plot_tick tick[PLOT_TICKS_MAX]; /* a tick whose label has no room is drawn without it */
    size_t ticks;
};
struct plot_point {
    double x, y;
    const char *label; /* beside the mark; NULL: none */
};
/* Series differ in colour and mark; the legend shows their names. */
struct plot_series {
    const char *name;
    const struct plot_point *point;
    size_t n;
    bool line; /* points are joined, in their order */
};

/* Makes the axis span these points, with a tick at each power of ten, or of two if there are few
 * powers of ten. */
void plot_axis_logarithmic(struct plot_axis *axis, double low, double high);
/* Texts are UTF-8; characters that XML does not allow are replaced. 0 or a negative errno. */
BENCH_MUST_USE int plot_write(const char *path, const char *title, const struct plot_axis *x,
                              const struct plot_axis *y, const struct plot_series *series,
                              size_t n);

#endif
