/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvcache/kvcache.h>

#include "bench.h"
#include "plain.h"
#include "progress.h"
#include "units.h"

static const char *command = "";

void say_set_command(const char *name)
{
    command = name;
}

__attribute__((format(printf, 1, 0))) static void say(const char *format, va_list args)
{
    progress_clear();
    fprintf(stderr, "%s%s%s: ", program_invocation_short_name, command[0] ? " " : "", command);
    plain_line(stderr, format, args);
}

void say_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
}

int say_usage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    fprintf(stderr, "Try '%s%s%s --help'.\n", program_invocation_short_name, command[0] ? " " : "",
            command);
    return BENCH_USAGE;
}

int say_exit_code(int error)
{
    switch (error) {
    case KVC_E_DOWN:
    case KVC_E_SHUTDOWN:
    case KVC_E_TIMEOUT:
    case -ENOENT:
    case -ECONNREFUSED:
    case -ETIMEDOUT:
        return BENCH_DOWN;
    case KVC_E_DENIED:
    case -EACCES:
    case -EPERM:
        return BENCH_DENIED;
    default:
        return BENCH_FAILED;
    }
}

int opt_unknown(int c, char **argv)
{
    return say_usage(c == ':' ? "%s needs a value" : "'%s' is not understood", argv[optind - 1]);
}

int opt_each(int argc, char **argv, const struct option *options, const char *help,
             void (*print_more)(void), opt_take_fn *take, void *ctx)
{
    int c;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (c == 'h') {
            fputs(help, stdout);
            if (print_more != NULL)
                print_more();
            return -1;
        }
        const int rc = take(ctx, c, argv);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int opt_bytes(const char *name, const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
    const char *why = "";
    uint64_t value;
    if (units_parse_bytes(text, &value, &why) < 0)
        return say_usage("--%s %s: %s", name, text, why);
    if (value < min || value > max) {
        char low[UNITS_TEXT_BYTES], high[UNITS_TEXT_BYTES];
        return say_usage("--%s %s: must be between %s and %s", name, text,
                         units_format_bytes(min, low), units_format_bytes(max, high));
    }
    *ret = value;
    return 0;
}

int opt_count(const char *name, const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
    const char *why = "";
    uint64_t value;
    if (units_parse_count(text, &value, &why) < 0)
        return say_usage("--%s %s: %s", name, text, why);
    if (value < min || value > max) {
        return say_usage("--%s %s: must be between %llu and %llu", name, text,
                         (unsigned long long)min, (unsigned long long)max);
    }
    *ret = value;
    return 0;
}

bool opt_is_number(const char *text, double min, double max, double *ret)
{
    char *end;
    errno = 0;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0 || !isfinite(value) || value < min || value > max)
        return false;
    *ret = value;
    return true;
}

int opt_number(const char *name, const char *text, double min, double max, double *ret)
{
    if (!opt_is_number(text, min, max, ret))
        return say_usage("--%s %s: must be a number between %g and %g", name, text, min, max);
    return 0;
}

int opt_seconds(const char *name, const char *text, double *ret)
{
    return opt_number(name, text, 0.01, 3600, ret);
}

int opt_bytes_list(const char *name, const char *text, uint64_t *list, size_t max, size_t *ret_n)
{
    char copy[512];
    if ((size_t)snprintf(copy, sizeof(copy), "%s", text) >= sizeof(copy))
        return say_usage("--%s: the list is too long", name);

    size_t n = 0;
    char *rest = copy;
    for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ",")) {
        if (n == max)
            return say_usage("--%s %s: at most %zu sizes", name, text, max);
        int rc = opt_bytes(name, item, 64, KVC_BLOCK_BYTES_MAX, &list[n]);
        if (rc != 0)
            return rc;
        n++;
    }
    *ret_n = n;
    return 0;
}

uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
