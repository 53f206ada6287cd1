/* SPDX-License-Identifier: Apache-2.0 */
/* What a statistic means: its help, type and unit, by the daemon's own tables (stat.h). */
#ifndef STAT_HELP_H
#define STAT_HELP_H

#include <stdbool.h>
#include <stddef.h>

/* Prints the help of the statistics whose name begins with `name`, and returns their number. The
 * name may be one that `stats` shows ("svc.wait_ns.p99", "device0.hits") or one of /metrics
 * ("kvcache_core_lookups_total"). */
size_t stat_help_print(const char *name);

#endif
