/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors, and the few macros that everybody needs.
 *
 * A fallible function returns int: >= 0 good, negative an errno, or one of ours (KVC_E_*, -1000 and
 * below, from <kvcache/proto.h>). MUST() is for programmer errors alone and is always on.
 */
#ifndef KVC_BASE_ERR_H
#define KVC_BASE_ERR_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvcache/proto.h>

#define KVC_WARN_UNUSED __attribute__((warn_unused_result))

/* These evaluate an argument twice: no side effects in them. */
#ifndef MIN
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#endif
#ifndef MAX
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#endif
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define IS_POW2(x)   ((x) != 0 && ((x) & ((x)-1)) == 0)
/* x up to the next multiple of `to`, which need not be a power of two. The caller excludes
 * overflow. */
#define ROUND_UP(x, to) (((x) + (to)-1) / (to) * (to))

/* `cond` has no side effect. On failure: one line on stderr, then the hook, then abort(). */
#define MUST(cond) \
    (__builtin_expect(!!(cond), 1) ? (void)0 : must_fail(__FILE__, __LINE__, __func__, #cond))

_Noreturn void must_fail(const char *file, int line, const char *func, const char *expr);

/* What runs between the line on stderr and abort(): the flight recorder's dump. One per process,
 * NULL takes it out. It runs on the failing thread, possibly in a signal handler, and at most once:
 * a MUST that fails inside it, or on another thread meanwhile, aborts at once. */
void err_set_must_hook(void (*hook)(void));

/* "ENOMEM" for -ENOMEM or ENOMEM, "KVC_E_..." for ours, "OK" for 0, "unknown error" for the rest.
 * Constant text. */
const char *err_name(int err);

#endif
