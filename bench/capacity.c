/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capacity.h"
#include "units.h"

/* -EINVAL: not a percentage; the caller goes on with the other forms. */
static int parse_percent(const char *text, double *ret_percent)
{
    char *end;
    errno = 0;
    double percent = strtod(text, &end);
    if (end == text || errno != 0 || strcmp(end, "%") != 0)
        return -EINVAL;
    if (!isfinite(percent) || percent <= 0 || percent > 100)
        return -ERANGE;
    *ret_percent = percent;
    return 0;
}

static int parse_blocks(const char *text, uint64_t *ret_blocks)
{
    char count[32];
    size_t digits = strspn(text, "0123456789");
    const char *unit = text + digits + strspn(text + digits, " ");
    if (digits == 0 || digits >= sizeof(count) ||
        (strcmp(unit, "blocks") != 0 && strcmp(unit, "block") != 0))
        return -EINVAL;
    memcpy(count, text, digits);
    count[digits] = '\0';
    int rc = units_parse_count(count, ret_blocks, NULL);
    return rc == 0 && *ret_blocks == 0 ? -ERANGE : rc;
}

static int parse_one(const char *text, char *why, struct capacity *ret)
{
    if (strncmp(text, "host=", 5) == 0)
        text += 5;
    else if (strchr(text, '=')) {
        snprintf(why, CAPACITY_WHY_BYTES, "%.64s: the only tier is host, as in host=5%%", text);
        return -EINVAL;
    }
    struct capacity capacity = {0};
    const char *unit_why = "";
    if ((size_t)snprintf(capacity.text, sizeof(capacity.text), "%s", text) >=
        sizeof(capacity.text)) {
        snprintf(why, CAPACITY_WHY_BYTES, "%.64s...: too long for a capacity", text);
        return -EINVAL;
    }
    int rc = parse_percent(text, &capacity.percent);
    if (rc == -EINVAL)
        rc = parse_blocks(text, &capacity.blocks);
    if (rc == -ERANGE) {
        snprintf(why, CAPACITY_WHY_BYTES,
                 "%s: must be above 0%% and at most 100%% of the trace's unique blocks, "
                 "or at least one block",
                 text);
        return -EINVAL;
    }
    if (rc < 0 && (units_parse_bytes(text, &capacity.bytes, &unit_why) < 0 || !capacity.bytes)) {
        snprintf(why, CAPACITY_WHY_BYTES,
                 "'%s' is no capacity: give a share of the trace's unique blocks (5%%), a size "
                 "(4GiB), or a number of blocks (2000 blocks)",
                 text);
        return -EINVAL;
    }
    *ret = capacity;
    return 0;
}

int capacity_parse_list(const char *text, char why[CAPACITY_WHY_BYTES],
                        struct capacity list[CAPACITY_LIST_MAX], size_t *ret_n)
{
    char copy[512];
    if ((size_t)snprintf(copy, sizeof(copy), "%s", text) >= sizeof(copy)) {
        snprintf(why, CAPACITY_WHY_BYTES, "the list is too long");
        return -EINVAL;
    }
    size_t n = 0;
    char *rest = copy;
    for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ",")) {
        if (n == CAPACITY_LIST_MAX) {
            snprintf(why, CAPACITY_WHY_BYTES, "at most %d capacities", CAPACITY_LIST_MAX);
            return -EINVAL;
        }
        int rc = parse_one(item, why, &list[n]);
        if (rc < 0)
            return rc;
        n++;
    }
    *ret_n = n;
    return 0;
}

uint64_t capacity_slot_bytes(uint64_t block_bytes)
{
    return (block_bytes + CAPACITY_SLOT_BYTES - 1) / CAPACITY_SLOT_BYTES * CAPACITY_SLOT_BYTES;
}

uint64_t capacity_blocks(const struct capacity *capacity, uint64_t unique_blocks,
                         uint64_t block_bytes)
{
    uint64_t blocks = capacity->blocks;
    if (capacity->percent > 0)
        blocks = (uint64_t)llround(capacity->percent / 100 * (double)unique_blocks);
    else if (capacity->bytes)
        blocks = capacity->bytes / capacity_slot_bytes(block_bytes);
    return blocks ? blocks : 1;
}
