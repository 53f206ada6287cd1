/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "simulate_report.h"
#include "utf8.h"

enum { WIDTH = 860, HEIGHT = 520, LEFT = 70, RIGHT = 150, TOP = 50, BOTTOM = 60 };

struct axes {
    double low, high; /* logarithms of the least and the largest number of blocks */
    double top;       /* hit ratio */
};

/* Told apart without colour by their marks. */
static const struct look {
    const char *colour, *mark;
} looks[] = {{"#0072b2", "<circle r='4'/>"},
             {"#d55e00", "<rect x='-4' y='-4' width='8' height='8'/>"},
             {"#009e73", "<path d='M0-5 5 4H-5Z'/>"},
             {"#cc79a7", "<path d='M0-6 6 0 0 6-6 0Z'/>"},
             {"#8c6d1f", "<path d='M0 5 5-4H-5Z'/>"},
             {"#555555", "<path d='M-4-4 4 4M4-4-4 4' stroke-width='2'/>"}};
enum { LOOKS = sizeof(looks) / sizeof(looks[0]) };

static double room(const struct sim_result *result)
{
    return log((double)(result->host_blocks + result->nvme_blocks));
}

static double x_of(const struct axes *axes, double blocks)
{
    const double span = axes->high > axes->low ? axes->high - axes->low : 1;
    return LEFT + (blocks - axes->low) / span * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct axes *axes, double ratio)
{
    return HEIGHT - BOTTOM - ratio / axes->top * (HEIGHT - TOP - BOTTOM);
}

static struct axes axes_of(const struct sim_result *results, size_t n)
{
    struct axes axes = {.low = room(&results[0]), .high = room(&results[0]), .top = 0.1};
    for (size_t i = 0; i < n; i++) {
        axes.low = fmin(axes.low, room(&results[i]));
        axes.high = fmax(axes.high, room(&results[i]));
        axes.top = fmax(axes.top, ceil(sim_hit_ratio(&results[i]) * 20) / 20);
    }
    return axes;
}

/* What a document of XML may have (XML 1.0, 2.2); controls but for white space it may not. */
static bool is_xml(uint32_t code)
{
    return code >= ' ' ? code < 0x7f || (code >= 0xa0 && (code & 0xfffe) != 0xfffe)
                       : code == '\t' || code == '\n';
}

static void put_text(FILE *to, const char *text)
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

static void draw_axes(FILE *to, const struct axes *axes, const struct sim_result *results, size_t n)
{
    const unsigned steps = (unsigned)lround(axes->top * 20);
    for (unsigned i = 0; i <= steps; i++) {
        const double y = y_of(axes, i / 20.0);
        fprintf(to,
                "<path class='grid' d='M%d %.1fH%d'/>"
                "<text x='%d' y='%.1f' text-anchor='end'>%.2f</text>\n",
                LEFT, y, WIDTH - RIGHT, LEFT - 8, y + 4, i / 20.0);
    }
    double last = -1e9;
    for (size_t i = 0; i < n && results[i].policy == results[0].policy; i++) {
        const double x = x_of(axes, room(&results[i]));
        fprintf(to, "<path class='grid' d='M%.1f %dV%d'/>", x, TOP, HEIGHT - BOTTOM);
        if (x - last > 45) { /* a label has room */
            fprintf(to, "<text x='%.1f' y='%d' text-anchor='middle'>", x, HEIGHT - BOTTOM + 18);
            put_text(to, results[i].capacity);
            fputs("</text>\n", to);
            last = x;
        }
    }
    fprintf(to,
            "<text x='%d' y='%d' text-anchor='middle'>capacity (logarithmic)</text>\n"
            "<text transform='translate(18 %d) rotate(-90)' text-anchor='middle'>hit ratio, "
            "blocks</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, (TOP + HEIGHT - BOTTOM) / 2);
}

static void draw_line(FILE *to, const struct axes *axes, const struct sim_result *of, size_t n,
                      size_t number)
{
    const struct look *look = &looks[number % LOOKS];
    fprintf(to, "<g fill='%s' stroke='%s'>\n<polyline fill='none' stroke-width='2' points='",
            look->colour, look->colour);
    for (size_t i = 0; i < n; i++)
        fprintf(to, "%.1f,%.1f ", x_of(axes, room(&of[i])), y_of(axes, sim_hit_ratio(&of[i])));
    fputs("'/>\n", to);
    for (size_t i = 0; i < n; i++)
        fprintf(to, "<g transform='translate(%.1f %.1f)'>%s</g>", x_of(axes, room(&of[i])),
                y_of(axes, sim_hit_ratio(&of[i])), look->mark);
    const int y = TOP + 10 + 24 * (int)number;
    fprintf(to,
            "\n<g transform='translate(%d %d)'>%s</g></g>\n"
            "<text x='%d' y='%d'>",
            WIDTH - RIGHT + 24, y, look->mark, WIDTH - RIGHT + 38, y + 4);
    put_text(to, of[0].policy);
    fputs("</text>\n", to);
}

int sim_plot(const char *path, const char *title, const struct sim_result *results, size_t n)
{
    FILE *to = fopen(path, "we");
    if (!to)
        return -errno;
    const struct axes axes = axes_of(results, n);
    fprintf(to,
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' width='%d' height='%d'>\n"
            "<style>text{font:13px sans-serif;fill:#222}.grid{stroke:#ddd;fill:none}</style>\n"
            "<rect width='100%%' height='100%%' fill='white'/>\n"
            "<text x='%d' y='28' style='font-size:16px'>",
            WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
    put_text(to, title);
    fputs("</text>\n", to);
    draw_axes(to, &axes, results, n);
    size_t number = 0;
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && results[end].policy == results[i].policy;)
            end++;
        draw_line(to, &axes, &results[i], end - i, number++);
    }
    fputs("</svg>\n", to);
    const bool bad = ferror(to) != 0;
    return fclose(to) != 0 || bad ? -EIO : 0;
}
