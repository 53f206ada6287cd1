/* SPDX-License-Identifier: Apache-2.0 */
/* Output of kvcachebench on standard error, its exit codes, and options that commands share. */
#include <errno.h>
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

int opt_take(int argc, char **argv, const struct arg *options, const char *help, void *base)
{
    const struct command_line line = {
        .options = options, .base = base, .help = help, .usage = say_usage};
    return args_take(&line, argc, argv);
}

int opt_take_only(int argc, char **argv, const struct arg *options, const char *help, void *base)
{
    return args_take_only(options, base, help, say_usage, argc, argv);
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
        int rc = args_bytes(say_usage, name, item, 64, KVC_BLOCK_BYTES_MAX, &list[n]);
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
