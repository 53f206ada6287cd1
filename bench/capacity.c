/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capacity.h"
#include "units.h"

enum { TIERS = 3 };

/* -EINVAL: not a percentage; the caller then tries the other forms. */
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

/* Refuses a number without a unit: it could have any of the three. */
static int refuse_bare(uint64_t n, char *why)
{
    char share[24] = "5", size[40];
    if (n >= 1 && n <= 100)
        snprintf(share, sizeof(share), "%" PRIu64, n);
    snprintf(size, sizeof(size), "%" PRIu64 "%s", n, n <= 1024 ? "GiB" : "B");
    snprintf(why, CAPACITY_WHY_BYTES,
             "'%" PRIu64
             "' does not say of what: give a share of the trace's unique blocks (%s%%), a "
             "size (%s), or a number of blocks (%" PRIu64 " blocks)",
             n, share, size, n);
    return -EINVAL;
}

static int parse_room(const char *text, char *why, struct capacity_room *ret_room)
{
    struct capacity_room room = {0};
    const char *unit_why = "";
    uint64_t bare;
    if (units_parse_count(text, &bare, NULL) == 0 && bare > 0)
        return refuse_bare(bare, why);
    int rc = parse_percent(text, &room.percent);
    if (rc == -EINVAL)
        rc = parse_blocks(text, &room.blocks);
    if (rc == -ERANGE) {
        snprintf(why, CAPACITY_WHY_BYTES,
                 "%.64s: must be above 0%% and at most 100%% of the trace's unique blocks, "
                 "or at least one block",
                 text);
        return -EINVAL;
    }
    if (rc < 0 && (units_parse_bytes(text, &room.bytes, &unit_why) < 0 || !room.bytes)) {
        snprintf(why, CAPACITY_WHY_BYTES,
                 "'%.64s' is no capacity: give a share of the trace's unique blocks (5%%), a size "
                 "(4GiB), or a number of blocks (2000 blocks)",
                 text);
        return -EINVAL;
    }
    *ret_room = room;
    return 0;
}

/* "host=1%" or "1%". */
static int parse_host(const char *text, char *why, struct capacity *ret)
{
    struct capacity capacity = {0};
    if (strncmp(text, "host=", 5) == 0)
        text += 5;
    else if (strchr(text, '=')) {
        snprintf(why, CAPACITY_WHY_BYTES,
                 "%.64s: the tiers are hbm, host and nvme, as in host=1%%,nvme=10%%", text);
        return -EINVAL;
    }
    if ((size_t)snprintf(capacity.text, sizeof(capacity.text), "%s", text) >=
        sizeof(capacity.text)) {
        snprintf(why, CAPACITY_WHY_BYTES, "%.64s...: too long for a capacity", text);
        return -EINVAL;
    }
    int rc = parse_room(text, why, &capacity.host);
    if (rc == 0)
        *ret = capacity;
    return rc;
}

/* One daemon with several tiers: each is named, and named once. */
static int parse_tiers(const char *text, char *items, char *why, struct capacity *ret)
{
    struct capacity capacity = {0};
    bool has_host = false;
    const struct {
        const char *name;
        struct capacity_room *room;
        bool *has;
    } tiers[] = {{"hbm=", &capacity.hbm, &capacity.has_hbm},
                 {"host=", &capacity.host, &has_host},
                 {"nvme=", &capacity.nvme, &capacity.has_nvme}};
    if ((size_t)snprintf(capacity.text, sizeof(capacity.text), "%s", text) >=
        sizeof(capacity.text)) {
        snprintf(why, CAPACITY_WHY_BYTES, "%.64s...: too long for a capacity", text);
        return -EINVAL;
    }
    for (char *item = strsep(&items, ","); item; item = strsep(&items, ",")) {
        size_t t = 0;
        while (t < TIERS && strncmp(item, tiers[t].name, strlen(tiers[t].name)) != 0)
            t++;
        if (t == TIERS || *tiers[t].has) {
            snprintf(why, CAPACITY_WHY_BYTES,
                     "%.64s: with hbm= or nvme= in it the list says what one daemon gets, hbm, "
                     "host and nvme once each, as in hbm=1%%,host=5%%,nvme=20%%",
                     item);
            return -EINVAL;
        }
        int rc = parse_room(item + strlen(tiers[t].name), why, tiers[t].room);
        if (rc < 0)
            return rc;
        *tiers[t].has = true;
    }
    if (!has_host) {
        snprintf(why, CAPACITY_WHY_BYTES,
                 "%.64s: say how much host memory too, as in host=1%%,nvme=10%%", text);
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
    if (strstr(text, "nvme=") || strstr(text, "hbm=")) {
        int rc = parse_tiers(text, copy, why, &list[0]);
        if (rc == 0)
            *ret_n = 1;
        return rc;
    }
    for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ",")) {
        if (n == CAPACITY_LIST_MAX) {
            snprintf(why, CAPACITY_WHY_BYTES, "at most %d capacities", CAPACITY_LIST_MAX);
            return -EINVAL;
        }
        int rc = parse_host(item, why, &list[n]);
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

uint64_t capacity_blocks(const struct capacity_room *room, uint64_t unique_blocks,
                         uint64_t block_bytes)
{
    uint64_t blocks = room->blocks;
    if (room->percent > 0)
        blocks = (uint64_t)llround(room->percent / 100 * (double)unique_blocks);
    else if (room->bytes)
        blocks = room->bytes / capacity_slot_bytes(block_bytes);
    return blocks ? blocks : 1;
}
