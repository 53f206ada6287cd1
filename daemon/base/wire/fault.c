/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Atomic bool fault__on;

static struct {
    _Atomic uint64_t nth; /* 0: not armed */
    _Atomic uint64_t calls;
} points[FAULT_POINT_COUNT];
static _Atomic bool announced;

#define NAME(name) #name,
static const char *const names[] = {FAULT_POINTS(NAME)};
#undef NAME

static int find(const char *name, size_t len)
{
    for (unsigned i = 0; i < FAULT_POINT_COUNT; i++)
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
            return (int)i;
    return -EINVAL;
}

/* One write(2), as a log line is: it may come from any thread, and must not allocate. */
static void announce(enum fault_point point, uint64_t call)
{
    char line[80];
    const int n = snprintf(line, sizeof line, "fault: %s: call %llu fails (KVC_FAULT)\n",
                           names[point], (unsigned long long)call);
    (void)!write(STDERR_FILENO, line, (size_t)n);
}

bool fault__hit(enum fault_point point)
{
    const uint64_t call = atomic_fetch_add(&points[point].calls, 1) + 1;
    if (call != atomic_load(&points[point].nth))
        return false;
    if (atomic_load(&announced))
        announce(point, call);
    return true;
}

static void arm(int point, uint64_t nth)
{
    atomic_store(&points[point].calls, 0);
    atomic_store(&points[point].nth, nth);
    atomic_store(&fault__on, true);
}

int fault_arm(const char *point, uint64_t nth)
{
    const int i = find(point, strlen(point));
    if (i < 0 || nth == 0)
        return -EINVAL;
    arm(i, nth);
    return 0;
}

void fault_reset(void)
{
    atomic_store(&fault__on, false);
    atomic_store(&announced, false);
    for (unsigned i = 0; i < FAULT_POINT_COUNT; i++) {
        atomic_store(&points[i].nth, 0);
        atomic_store(&points[i].calls, 0);
    }
}

uint64_t fault_count(const char *point)
{
    const int i = find(point, strlen(point));
    if (i < 0)
        abort();
    return atomic_load(&points[i].calls);
}

/* Reads "point:N" up to a comma or the end; *s moves behind it. */
static int parse_one(const char **s, int *ret_point, uint64_t *ret_nth)
{
    const char *colon = strchr(*s, ':');
    if (colon == NULL)
        return -EINVAL;
    const int point = find(*s, (size_t)(colon - *s));
    if (point < 0 || colon[1] < '0' || colon[1] > '9')
        return -EINVAL;
    char *end;
    errno = 0;
    const unsigned long long nth = strtoull(colon + 1, &end, 10);
    if (errno != 0 || nth == 0 || (*end != ',' && *end != '\0'))
        return -EINVAL;
    *s = *end == ',' ? end + 1 : end;
    if (*end == ',' && **s == '\0')
        return -EINVAL;
    *ret_point = point;
    *ret_nth = nth;
    return 0;
}

int fault_from_env(void)
{
    const char *s = getenv("KVC_FAULT");
    if (s == NULL)
        return 0;
    uint64_t nth[FAULT_POINT_COUNT] = {0};
    do {
        int point = 0;
        uint64_t n = 0;
        const int r = parse_one(&s, &point, &n);
        if (r < 0)
            return r;
        nth[point] = n;
    } while (*s != '\0');
    for (int i = 0; i < FAULT_POINT_COUNT; i++)
        if (nth[i] != 0)
            arm(i, nth[i]);
    atomic_store(&announced, true);
    return 0;
}
