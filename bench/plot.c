/* SPDX-License-Identifier: Apache-2.0 */
#include "plot.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "utf8.h"

enum { WIDTH = 860, HEIGHT = 520, LEFT = 78, RIGHT = 190, TOP = 50, BOTTOM = 60, LABEL = 45 };

/* Series can be told apart by their marks, without colour. */
static const struct look {
    const char *colour, *mark;
} looks[] = {{"#0072b2", "<circle r='4'/>"},
             {"#d55e00", "<rect x='-4' y='-4' width='8' height='8'/>"},
             {"#009e73", "<path d='M0-5 5 4H-5Z'/>"},
             {"#cc79a7", "<path d='M0-6 6 0 0 6-6 0Z'/>"},
             {"#8c6d1f", "<path d='M0 5 5-4H-5Z'/>"},
             {"#555555", "<path d='M-4-4 4 4M4-4-4 4' stroke-width='2'/>"}};
enum { LOOKS = sizeof(looks) / sizeof(looks[0]) };

/* Where a value lies on its axis, from 0 to 1. */
static double plot_share_of(const struct plot_axis *axis, double value)
{
    const bool l = axis->logarithmic;
    const double low = l ? log(axis->low) : axis->low, high = l ? log(axis->high) : axis->high;
    return ((l ? log(value) : value) - low) / (high > low ? high - low : 1);
}

static double x_of(const struct plot_axis *axis, double value)
{
    return LEFT + plot_share_of(axis, value) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct plot_axis *axis, double value)
{
    return HEIGHT - BOTTOM - plot_share_of(axis, value) * (HEIGHT - TOP - BOTTOM);
}

static void tick_add(struct plot_axis *axis, double at)
{
    if (axis->ticks == PLOT_TICKS_MAX || at < axis->low * 0.999 || at > axis->high * 1.001)
        return;
    struct plot_tick *tick = &axis->tick[axis->ticks++];
    tick->at = at;
    (void)snprintf(tick->text, sizeof(tick->text), "%g", at);
}

void plot_axis_logarithmic(struct plot_axis *axis, double low, double high)
{
    const bool tens = high / low > 100;
    const double step = tens ? 10 : 2;
    axis->logarithmic = true;
    axis->low = pow(step, floor(log(low) / log(step) + 1e-9));
    axis->high = pow(step, ceil(log(high) / log(step) - 1e-9));
    if (!(axis->high > axis->low))
        axis->high = axis->low * step;
    axis->ticks = 0;
    for (double at = axis->low; at <= axis->high * 1.001; at *= step)
        tick_add(axis, at);
}

/* Whether XML may have the character (XML 1.0, 2.2): no control character but white space. */
static bool is_xml(uint32_t code)
{
    return code >= ' ' ? code < 0x7f || (code >= 0xa0 && (code & 0xfffe) != 0xfffe)
                       : code == '\t' || code == '\n';
}

static void plot_put_text(FILE *to, const char *text)
{
    size_t left = strlen(text), n;
    for (; left > 0; text += n, left -= n) {
        uint32_t code = 0;
        n = utf8_next(text, left, &code);
        if (n == 0 || !is_xml(code)) {
            fputs("\xef\xbf\xbd", to); /* U+FFFD */
            n = n > 0 ? n : 1;
        } else if (strchr("<>&", *text)) {
            fprintf(to, "&#%d;", *text);
        } else {
            fwrite(text, 1, n, to);
        }
    }
}

static void draw_axes(FILE *to, const struct plot_axis *across, const struct plot_axis *up)
{
    for (size_t i = 0; i < up->ticks; i++) {
        const double y = y_of(up, up->tick[i].at);
        fprintf(to, "<path class='grid' d='M%d %.1fH%d'/><text x='%d' y='%.1f' text-anchor='end'>",
                LEFT, y, WIDTH - RIGHT, LEFT - 8, y + 4);
        plot_put_text(to, up->tick[i].text);
        fputs("</text>\n", to);
    }
    double last = -1e9;
    for (size_t i = 0; i < across->ticks; i++) {
        const double x = x_of(across, across->tick[i].at);
        fprintf(to, "<path class='grid' d='M%.1f %dV%d'/>", x, TOP, HEIGHT - BOTTOM);
        if (x - last > LABEL) { /* a label has room */
            fprintf(to, "<text x='%.1f' y='%d' text-anchor='middle'>", x, HEIGHT - BOTTOM + 18);
            plot_put_text(to, across->tick[i].text);
            fputs("</text>\n", to);
            last = x;
        }
    }
    fprintf(to, "<text x='%d' y='%d' text-anchor='middle'>", (LEFT + WIDTH - RIGHT) / 2,
            HEIGHT - 14);
    plot_put_text(to, across->title);
    fprintf(to, "</text>\n<text transform='translate(18 %d) rotate(-90)' text-anchor='middle'>",
            (TOP + HEIGHT - BOTTOM) / 2);
    plot_put_text(to, up->title);
    fputs("</text>\n", to);
}

static void draw_series(FILE *to, const struct plot_axis *across, const struct plot_axis *up,
                        const struct plot_series *s, size_t number)
{
    const struct look *look = &looks[number % LOOKS];
    fprintf(to, "<g fill='%s' stroke='%s'>\n", look->colour, look->colour);
    if (s->line) {
        fputs("<polyline fill='none' stroke-width='2' points='", to);
        for (size_t i = 0; i < s->n; i++)
            fprintf(to, "%.1f,%.1f ", x_of(across, s->point[i].x), y_of(up, s->point[i].y));
        fputs("'/>\n", to);
    }
    for (size_t i = 0; i < s->n; i++)
        fprintf(to, "<g transform='translate(%.1f %.1f)'>%s</g>", x_of(across, s->point[i].x),
                y_of(up, s->point[i].y), look->mark);
    for (size_t i = 0; i < s->n; i++)
        if (s->point[i].label) {
            fprintf(to, "<text class='label' x='%.1f' y='%.1f'>", x_of(across, s->point[i].x) + 7,
                    y_of(up, s->point[i].y) + 4);
            plot_put_text(to, s->point[i].label);
            fputs("</text>", to);
        }
    const int y = TOP + 10 + 24 * (int)number;
    fprintf(to, "\n<g transform='translate(%d %d)'>%s</g></g>\n<text x='%d' y='%d'>",
            WIDTH - RIGHT + 24, y, look->mark, WIDTH - RIGHT + 38, y + 4);
    plot_put_text(to, s->name);
    fputs("</text>\n", to);
}

int plot_write(const char *path, const char *title, const struct plot_axis *x,
               const struct plot_axis *y, const struct plot_series *series, size_t n)
{
    FILE *to = fopen(path, "we");
    if (!to)
        return -errno;
    fprintf(to,
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' width='%d' height='%d'>\n"
            "<style>text{font:13px sans-serif;fill:#222}.grid{stroke:#ddd;fill:none}"
            ".label{font-size:10px;stroke:none}</style>\n"
            "<rect width='100%%' height='100%%' fill='white'/>\n"
            "<text x='%d' y='28' style='font-size:16px'>",
            WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
    plot_put_text(to, title);
    fputs("</text>\n", to);
    draw_axes(to, x, y);
    for (size_t i = 0; i < n; i++)
        draw_series(to, x, y, &series[i], i);
    fputs("</svg>\n", to);
    const bool bad = ferror(to) != 0;
    return fclose(to) != 0 || bad ? -EIO : 0;
}
