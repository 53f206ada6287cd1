/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Atomic bool fault__on;

/* How calls `first` to `last` go; `first` 0: not armed. */
struct plan {
    uint64_t first;
    uint64_t last;
    int error;         /* negative errno */
    uint32_t delay_ms; /* instead of failing */
};

static struct {
    _Atomic uint64_t first;
    _Atomic uint64_t last;
    _Atomic int error;
    _Atomic uint32_t delay_ms;
    _Atomic uint64_t calls;
} points[FAULT_POINT_COUNT];
static _Atomic bool announced;

#define NAME(name) #name,
static const char *const names[] = {FAULT_POINTS(NAME)};
#undef NAME

static int fault_find(const char *name, size_t len)
{
    for (unsigned i = 0; i < FAULT_POINT_COUNT; i++)
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
            return (int)i;
    return -EINVAL;
}

/* One write(2), as a log line is: it may come from any thread, and must not allocate. */
static void announce(enum fault_point point, uint64_t call, bool late)
{
    char line[80];
    const int n = snprintf(line, sizeof line, "fault: %s: call %llu %s (KVC_FAULT)\n", names[point],
                           (unsigned long long)call, late ? "is late" : "fails");
    (void)!write(STDERR_FILENO, line, (size_t)n);
}

int fault__io(enum fault_point point, uint32_t *ret_delay_ms)
{
    const uint64_t first = atomic_load(&points[point].first);
    const uint64_t call = atomic_fetch_add(&points[point].calls, 1) + 1;
    *ret_delay_ms = 0;
    if (first == 0 || call < first || call > atomic_load(&points[point].last))
        return 0;
    *ret_delay_ms = atomic_load(&points[point].delay_ms);
    if (call == first && atomic_load(&announced))
        announce(point, call, *ret_delay_ms > 0);
    return *ret_delay_ms > 0 ? 0 : atomic_load(&points[point].error);
}

bool fault__hit(enum fault_point point)
{
    uint32_t delay_ms;
    return fault__io(point, &delay_ms) != 0;
}

static void arm(int point, const struct plan *plan)
{
    atomic_store(&points[point].first, plan->first);
    atomic_store(&points[point].last, plan->last);
    atomic_store(&points[point].error, plan->error);
    atomic_store(&points[point].delay_ms, plan->delay_ms);
    atomic_store(&points[point].calls, 0);
    atomic_store(&fault__on, true);
}

int fault_arm(const char *point, uint64_t nth)
{
    const int i = fault_find(point, strlen(point));
    if (i < 0 || nth == 0)
        return -EINVAL;
    arm(i, &(struct plan){.first = nth, .last = nth, .error = -EIO});
    return 0;
}

void fault_reset(void)
{
    atomic_store(&fault__on, false);
    atomic_store(&announced, false);
    for (unsigned i = 0; i < FAULT_POINT_COUNT; i++) {
        atomic_store(&points[i].first, 0);
        atomic_store(&points[i].calls, 0);
    }
}

uint64_t fault_count(const char *point)
{
    const int i = fault_find(point, strlen(point));
    if (i < 0)
        abort();
    return atomic_load(&points[i].calls);
}

/* A number from 1 up; *s moves behind it. 0: there is none. */
static uint64_t parse_number(const char **s)
{
    char *end;
    if (**s < '0' || **s > '9')
        return 0;
    errno = 0;
    const unsigned long long n = strtoull(*s, &end, 10);
    *s = end;
    return errno != 0 ? 0 : n;
}

static bool parse_range(const char **s, struct plan *plan)
{
    plan->first = plan->last = parse_number(s);
    if (**s == '-') {
        ++*s;
        plan->last = **s < '0' || **s > '9' ? UINT64_MAX : parse_number(s);
    }
    return plan->first > 0 && plan->last >= plan->first;
}

/* "=ENOSPC" or "=2000ms", or nothing. */
static bool parse_how(const char **s, struct plan *plan)
{
    static const struct {
        const char *name;
        int error;
    } errors[] = {{"EIO", EIO},
                  {"ENOSPC", ENOSPC},
                  {"EROFS", EROFS},
                  {"ENODEV", ENODEV},
                  {"ETIMEDOUT", ETIMEDOUT}};
    plan->error = -EIO;
    if (**s != '=')
        return true;
    ++*s;
    const size_t len = strcspn(*s, ",");
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (strlen(errors[i].name) == len && memcmp(*s, errors[i].name, len) == 0) {
            plan->error = -errors[i].error;
            *s += len;
            return true;
        }
    }
    const uint64_t ms = parse_number(s);
    if (ms == 0 || ms > UINT32_MAX || strncmp(*s, "ms", 2) != 0)
        return false;
    plan->delay_ms = (uint32_t)ms;
    *s += 2;
    return true;
}

/* Reads one fault up to a comma or the end; *s moves behind it. */
static int parse_one(const char **s, int *ret_point, struct plan *ret_plan)
{
    const char *colon = strchr(*s, ':');
    if (colon == NULL)
        return -EINVAL;
    const int point = fault_find(*s, (size_t)(colon - *s));
    *s = colon + 1;
    struct plan plan = {0};
    if (point < 0 || !parse_range(s, &plan) || !parse_how(s, &plan))
        return -EINVAL;
    if (**s == ',')
        ++*s;
    else if (**s != '\0')
        return -EINVAL;
    if (**s == '\0' && (*s)[-1] == ',')
        return -EINVAL;
    *ret_point = point;
    *ret_plan = plan;
    return 0;
}

int fault_arm_text(const char *text)
{
    struct plan plans[FAULT_POINT_COUNT] = {{0}};
    do {
        int point = 0;
        struct plan plan;
        const int r = parse_one(&text, &point, &plan);
        if (r < 0)
            return r;
        plans[point] = plan;
    } while (*text != '\0');
    for (int i = 0; i < FAULT_POINT_COUNT; i++)
        if (plans[i].first != 0)
            arm(i, &plans[i]);
    return 0;
}

int fault_from_env(void)
{
    const char *text = getenv("KVC_FAULT");
    if (text == NULL || text[0] == '\0')
        return 0;
    const int r = fault_arm_text(text);
    if (r == 0)
        atomic_store(&announced, true);
    return r;
}
