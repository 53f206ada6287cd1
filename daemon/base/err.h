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

#include "must.h"

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

/* "ENOMEM" for -ENOMEM or ENOMEM, "KVC_E_..." for ours, "OK" for 0, "unknown error" for the rest.
 * Constant text. */
const char *err_name(int err);

#endif
