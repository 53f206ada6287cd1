/* SPDX-License-Identifier: Apache-2.0 */
#include "hbm_devices.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "gpu.h"
#include "units.h"

struct text {
    const char *p;
    size_t n;
};

static struct text trim(struct text t)
{
    while (t.n > 0 && (*t.p == ' ' || *t.p == '\t'))
        t.p++, t.n--;
    while (t.n > 0 && (t.p[t.n - 1] == ' ' || t.p[t.n - 1] == '\t'))
        t.n--;
    return t;
}

static struct text until(struct text *rest, char end)
{
    const char *at = memchr(rest->p, end, rest->n);
    struct text t = {rest->p, at ? (size_t)(at - rest->p) : rest->n};
    const size_t used = at ? t.n + 1 : t.n;
    rest->p += used;
    rest->n -= used;
    return trim(t);
}

/* Whether two names are the same but for zeros before a number and the case of letters. Names of
 * two kinds may mean one device: node_hbm finds that when it opens the device. */
static bool is_same(const char *a, const char *b)
{
    const char *colon = strchr(a, ':');
    const size_t kind = colon != NULL ? (size_t)(colon - a) + 1 : 0;
    uint64_t x, y;
    if (kind > 0 && strncmp(a, b, kind) == 0 && units_parse_count(a + kind, &x, NULL) == 0 &&
        units_parse_count(b + kind, &y, NULL) == 0)
        return x == y;
    return strcasecmp(a, b) == 0;
}

static int hbm_devices_take(struct text entry, struct hbm_devices *d, char *why, size_t cap)
{
    struct text rest = entry;
    const bool has_limit = memchr(entry.p, '=', entry.n) != NULL;
    const struct text name = until(&rest, '=');
    const struct text size = trim(rest);
    if (name.n == 0 || name.n >= HBM_DEVICE_NAME_BYTES) {
        snprintf(why, cap,
                 "expected devices separated by commas, got '%.*s'; for example 'cuda:0=20GiB'",
                 (int)MIN(entry.n, 100u), entry.p);
        return -EINVAL;
    }
    struct hbm_device_entry e = {.limit_bytes = 0};
    memcpy(e.name, name.p, name.n);
    char text[32] = "";
    const char *reason = "a size is missing";
    if (size.n < sizeof(text))
        memcpy(text, size.p, size.n);
    if (has_limit && (text[0] == '\0' || units_parse_bytes(text, &e.limit_bytes, &reason) < 0)) {
        snprintf(why, cap, "expected a size behind '%s=', got '%.*s': %s; for example '%s=20GiB'",
                 e.name, (int)MIN(size.n, 100u), size.p, reason, e.name);
        return -EINVAL;
    }
    for (uint32_t i = 0; i < d->n; i++)
        if (is_same(d->entry[i].name, e.name)) {
            snprintf(why, cap, "'%s' is given twice (as '%s'); leave one of them away", e.name,
                     d->entry[i].name);
            return -EINVAL;
        }
    if (d->n == DEVICES_MAX) {
        snprintf(why, cap, "expected at most %u devices", DEVICES_MAX);
        return -EINVAL;
    }
    d->entry[d->n++] = e;
    return 0;
}

int hbm_devices_read(const char *list, struct hbm_devices *ret_devices, char *why, size_t why_cap)
{
    struct hbm_devices d = {.n = 0};
    struct text rest = trim((struct text){list, strlen(list)});
    while (rest.n > 0) {
        const bool more = memchr(rest.p, ',', rest.n) != NULL;
        int err = hbm_devices_take(until(&rest, ','), &d, why, why_cap);
        if (err < 0)
            return err;
        if (more && rest.n == 0)
            return hbm_devices_take(rest, &d, why, why_cap); /* a comma, and nothing behind it */
    }
    *ret_devices = d;
    return 0;
}

uint64_t hbm_devices_bytes(const struct hbm_devices *devices)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < devices->n; i++)
        sum += devices->entry[i].limit_bytes;
    return sum;
}
