/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "units.h"

#define BAR      24
#define EVERY_NS UINT64_C(100000000)

static uint64_t progress_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void progress_begin(struct progress *p, const char *what, uint64_t total_bytes)
{
    const uint64_t now = progress_now_ns(); /* a task that ends soon shows nothing */
    *p = (struct progress){.what = what, .total = total_bytes, .begun_ns = now, .shown_ns = now};
}

void progress_show(struct progress *p, uint64_t bytes)
{
    char done[UNITS_TEXT_BYTES], all[UNITS_TEXT_BYTES], rate[UNITS_TEXT_BYTES];
    const uint64_t now = progress_now_ns();
    if (!isatty(STDERR_FILENO) || p->total == 0 || now - p->shown_ns < EVERY_NS)
        return;
    const double share = bytes < p->total ? (double)bytes / (double)p->total : 1.0;
    const double seconds = (double)(now - p->begun_ns) / 1e9;
    const int filled = (int)(share * BAR);
    fprintf(stderr, "\r%s [%.*s%*s] %3.0f %%  %s of %s, %s\033[K", p->what, filled,
            "########################", BAR - filled, "", 100 * share,
            units_format_bytes(bytes, done), units_format_bytes(p->total, all),
            units_format_rate(seconds > 0 ? (uint64_t)((double)bytes / seconds) : 0, rate));
    fflush(stderr);
    p->shown_ns = now;
    p->shown = true;
}

void progress_end(struct progress *p)
{
    if (p->shown)
        fputs("\r\033[K", stderr);
    p->shown = false;
}
