/* SPDX-License-Identifier: Apache-2.0 */
#include "stat.h"

#include <stdio.h>
#include <string.h>

#include "units.h"

size_t stat_prefix_len(const char *prefix)
{
    size_t n = strlen(prefix);
    while (n > 0 && prefix[n - 1] >= '0' && prefix[n - 1] <= '9')
        n--;
    return n;
}

const char *stat_metric_name(const char *prefix, const char *name, const char *middle,
                             char to[STAT_METRIC_BYTES])
{
    struct units_stat u;
    units_of_stat(name, &u);
    const size_t stem = strlen(name) - strlen(u.suffix);
    (void)!snprintf(to, STAT_METRIC_BYTES, "kvcache_%.*s_%.*s%s%s%s", (int)stat_prefix_len(prefix),
                    prefix, (int)stem, name, middle, u.base[0] != '\0' ? "_" : "", u.base);
    return to;
}
