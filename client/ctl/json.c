/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "ctl.h"

void json_print(json_t *value)
{
    if (!value) {
        fputs("kvcachectl: out of memory\n", stderr);
        abort();
    }
    json_dumpf(value, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    putchar('\n');
    (void)ctl_flush(); /* main() tells, and exits with it */
    json_decref(value);
}

long long json_number(uint64_t value)
{
    return value < INT64_MAX ? (long long)value : INT64_MAX;
}
