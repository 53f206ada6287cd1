/* SPDX-License-Identifier: Apache-2.0 */
/* What a statistic means: its help, type and unit, by the daemon's own tables (stat.h). */
#ifndef STAT_HELP_H
#define STAT_HELP_H

#include <stdbool.h>
#include <stddef.h>

/* Prints those whose name begins with `name`, which may be a name that `stats` shows
 * ("svc.wait_ns.p99", "device0.hits") or one of /metrics ("kvcache_core_lookups_total"). Returns
 * how many there are. */
size_t stat_help_print(const char *name);

#endif
