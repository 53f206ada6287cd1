/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "bench.h"
#include "progress.h"

static bool shown;
static uint64_t last_ns;

void progress_show(bool force, const char *format, ...)
{
    bool terminal = isatty(STDERR_FILENO);
    uint64_t now = now_ns();
    uint64_t pause_ns = terminal ? 100000000u : 10000000000u;
    if (last_ns == 0 && !terminal)
        last_ns = now;
    if (now - last_ns < pause_ns && !(force && terminal))
        return;
    last_ns = now;

    va_list args;
    va_start(args, format);
    if (terminal)
        fputs("\r\033[K", stderr);
    vfprintf(stderr, format, args);
    if (!terminal)
        fputc('\n', stderr);
    fflush(stderr);
    va_end(args);
    shown = terminal;
}

void progress_clear(void)
{
    if (shown)
        fputs("\r\033[K", stderr);
    shown = false;
}
