/* SPDX-License-Identifier: Apache-2.0 */
#include "option.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "similar.h"
#include "units.h"

/* Most keys that an error names if no key is similar. */
#define LIST_MAX 4u

/* Text that grows in the caller's buffer. full: some text did not fit and was lost. */
struct text {
    char *buf;
    size_t cap, len;
    bool full;
};

static struct text text_in(char *buf, size_t cap)
{
    if (cap > 0)
        buf[0] = '\0';
    return (struct text){.buf = buf, .cap = cap};
}

__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *fmt, ...)
{
    if (t->cap == 0) { /* buf may be NULL */
        t->full = true;
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(t->buf + t->len, t->cap - t->len, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= t->cap - t->len) {
        t->full = true;
        t->len = t->cap - 1;
        return;
    }
    t->len += (size_t)n;
}

static int text_len(const struct text *t)
{
    return t->full ? -ENOSPC : (int)t->len;
}

/* Adds the user's text in quotes: cut to a readable length, control characters shown as '?'. */
static void add_quoted(struct text *t, const char *s)
{
    char shown[68];
    size_t n = 0;
    for (; s[n] != '\0' && n < 64; n++)
        shown[n] = (unsigned char)s[n] < 0x20 || s[n] == 0x7f ? '?' : s[n];
    memcpy(shown + n, s[n] != '\0' ? "..." : "", s[n] != '\0' ? 4 : 1);
    add(t, "'%s'", shown);
}

const struct option_desc *option_find(const struct option_desc *tab, unsigned n, const char *key)
{
    OPTION_FOR_EACH (d, tab, n)
        if (strcmp(d->key, key) == 0)
            return d;
    return NULL;
}

static bool is_number(const struct option_desc *d)
{
    return d->type == OPT_BYTES || d->type == OPT_DURATION || d->type == OPT_UINT;
}

/* The largest value that both the row and the field allow. */
static uint64_t limit_of(const struct option_desc *d)
{
    const uint64_t field = d->size >= 8 ? UINT64_MAX : (UINT64_C(1) << (8 * d->size)) - 1;
    return d->max != 0 ? MIN(d->max, field) : field;
}

static const char *exact(const struct option_desc *d, uint64_t v, char buf[UNITS_COUNT_BYTES])
{
    if (d->type == OPT_BYTES)
        return units_exact_bytes(v, buf);
    if (d->type == OPT_DURATION)
        return units_exact_duration(v, buf);
    (void)!snprintf(buf, UNITS_COUNT_BYTES, "%llu", (unsigned long long)v);
    return buf;
}

static void add_range(struct text *t, const struct option_desc *d)
{
    char low[UNITS_COUNT_BYTES], high[UNITS_COUNT_BYTES];
    const uint64_t limit = limit_of(d);
    const bool bounded = d->max != 0 || d->size < 8;
    exact(d, d->min, low);
    exact(d, limit, high);
    if (bounded)
        add(t, " from %s to %s", low, high);
    else if (d->min > 0)
        add(t, " of at least %s", low);
}

static void add_expects(struct text *t, const struct option_desc *d)
{
    switch (d->type) {
    case OPT_BYTES:
        add(t, "a size");
        break;
    case OPT_DURATION:
        add(t, "a duration");
        break;
    case OPT_UINT:
        add(t, "a whole number");
        break;
    case OPT_BOOL:
        add(t, "true or false");
        break;
    case OPT_STRING:
        add(t, "at most %zu bytes of text without control characters", d->size - 1);
        break;
    case OPT_PATH:
        add(t, "an absolute path of at most %zu bytes", d->size - 1);
        break;
    case OPT_ENUM:
        add(t, "one of");
        for (unsigned i = 0; d->choices[i] != NULL; i++)
            add(t, "%s '%s'", i == 0 ? "" : ",", d->choices[i]);
        break;
    }
    if (is_number(d))
        add_range(t, d);
    if ((d->flags & OPTF_AUTO) != 0)
        add(t, ", or 'auto'");
}

/* Adds a valid value: the default, or a usual one if the default is empty or "auto". */
static void add_example(struct text *t, const struct option_desc *d)
{
    static const char *const usual[] = {
        [OPT_BYTES] = "64GiB", [OPT_DURATION] = "250ms", [OPT_UINT] = "8",
        [OPT_BOOL] = "true",   [OPT_STRING] = "name",    [OPT_PATH] = "/run/kvcache"};
    char buf[UNITS_COUNT_BYTES];
    const char *example = d->def;
    if (example[0] == '\0' || strcmp(example, "auto") == 0) {
        example = d->type == OPT_ENUM ? d->choices[0] : usual[d->type];
        if (is_number(d) && d->min != 0)
            example = exact(d, d->min, buf);
        else if (is_number(d) && (d->max != 0 || d->size < 8))
            example = exact(d, limit_of(d), buf);
    }
    add(t, "; for example '%s'", example);
}

static int option_refuse(const struct option_desc *d, const char *value, const char *detail,
                         char *why, size_t why_cap)
{
    struct text t = text_in(why, why_cap);
    add(&t, "expected ");
    add_expects(&t, d);
    add(&t, ", got ");
    add_quoted(&t, value);
    if (detail != NULL)
        add(&t, " (%s)", detail);
    add_example(&t, d);
    return -EINVAL;
}

static void store_uint(void *at, size_t size, uint64_t v)
{
    switch (size) {
    case 1:
        *(uint8_t *)at = (uint8_t)v;
        return;
    case 2:
        *(uint16_t *)at = (uint16_t)v;
        return;
    case 4:
        *(uint32_t *)at = (uint32_t)v;
        return;
    default:
        MUST(size == 8);
        *(uint64_t *)at = v;
        return;
    }
}

static uint64_t load_uint(const void *at, size_t size)
{
    switch (size) {
    case 1:
        return *(const uint8_t *)at;
    case 2:
        return *(const uint16_t *)at;
    case 4:
        return *(const uint32_t *)at;
    default:
        MUST(size == 8);
        return *(const uint64_t *)at;
    }
}

/* Each set_ function returns 0 or -EINVAL. It sets *ret_detail if the error needs more text than
 * the expected value. */

static int set_number(const struct option_desc *d, void *at, const char *value,
                      const char **ret_detail)
{
    uint64_t v = 0;
    int r;
    if ((d->flags & OPTF_AUTO) != 0 && strcmp(value, "auto") == 0) {
        store_uint(at, d->size, 0);
        return 0;
    }
    if (d->type == OPT_BYTES)
        r = units_parse_bytes(value, &v, ret_detail);
    else if (d->type == OPT_DURATION)
        r = units_parse_duration(value, &v, ret_detail);
    else
        r = units_parse_count(value, &v, ret_detail);
    if (r < 0 || v < d->min || v > limit_of(d))
        return -EINVAL;
    if (v == 0 && (d->flags & OPTF_AUTO) != 0) {
        *ret_detail = "0 is stored for 'auto': write 'auto'";
        return -EINVAL;
    }
    store_uint(at, d->size, v);
    return 0;
}

static int set_bool(const struct option_desc *d, void *at, const char *value)
{
    static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
    MUST(d->size == sizeof(bool));
    for (unsigned i = 0; i < ARRAY_LEN(yes); i++) {
        const bool is_yes = strcmp(value, yes[i]) == 0;
        if (is_yes || strcmp(value, no[i]) == 0) {
            *(bool *)at = is_yes;
            return 0;
        }
    }
    return -EINVAL;
}

static int set_string(const struct option_desc *d, char *at, const char *value,
                      const char **ret_detail)
{
    const size_t len = strlen(value);
    if (len >= d->size) {
        *ret_detail = "it is too long";
        return -EINVAL;
    }
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)value[i] < 0x20 || value[i] == 0x7f) {
            *ret_detail = "it has a control character";
            return -EINVAL;
        }
    }
    const bool unset = len == 0 && d->def[0] == '\0';
    if (d->type == OPT_PATH && !unset && value[0] != '/') {
        *ret_detail = len == 0 ? "it is empty" : "it does not begin with '/'";
        return -EINVAL;
    }
    memset(at, 0, d->size);
    memcpy(at, value, len);
    return 0;
}

static int set_enum(const struct option_desc *d, void *at, const char *value)
{
    for (unsigned i = 0; d->choices[i] != NULL; i++) {
        if (strcmp(d->choices[i], value) == 0) {
            store_uint(at, d->size, i);
            return 0;
        }
    }
    return -EINVAL;
}

static int set_row(const struct option_desc *d, void *base, const char *value, char *why,
                   size_t why_cap)
{
    MUST(strlen(d->key) <= SIMILAR_BYTES_MAX && d->def != NULL && d->size > 0);
    void *at = (char *)base + d->offset;
    const char *detail = NULL;
    int r = -EINVAL;
    switch (d->type) {
    case OPT_BYTES:
    case OPT_DURATION:
        MUST(d->size == sizeof(uint64_t));
        r = set_number(d, at, value, &detail);
        break;
    case OPT_UINT:
        r = set_number(d, at, value, &detail);
        break;
    case OPT_BOOL:
        r = set_bool(d, at, value);
        break;
    case OPT_STRING:
    case OPT_PATH:
        r = set_string(d, at, value, &detail);
        break;
    case OPT_ENUM:
        r = set_enum(d, at, value);
        break;
    }
    return r < 0 ? option_refuse(d, value, detail, why, why_cap) : 0;
}

int option_set(const struct option_desc *tab, unsigned n, void *base, const char *key,
               const char *value, char *why, size_t why_cap)
{
    MUST(n > 0);
    const struct option_desc *d = option_find(tab, n, key);
    if (d != NULL)
        return set_row(d, base, value, why, why_cap);
    struct similar similar = similar_to(key);
    OPTION_FOR_EACH (candidate, tab, n)
        similar_offer(&similar, candidate->key);
    struct text t = text_in(why, why_cap);
    add(&t, "no option ");
    add_quoted(&t, key);
    if (similar.best != NULL)
        add(&t, "; the nearest is '%s'", similar.best);
    else if (n > LIST_MAX)
        add(&t, "; --help lists them all");
    for (unsigned i = 0; similar.best == NULL && n <= LIST_MAX && i < n; i++)
        add(&t, "%s '%s'", i == 0 ? "; there is" : i == n - 1 ? " and" : ",", tab[i].key);
    return -ENOENT;
}

int option_defaults(const struct option_desc *tab, unsigned n, void *base, char *why,
                    size_t why_cap)
{
    char reason[512];
    OPTION_FOR_EACH (d, tab, n) {
        if (set_row(d, base, d->def, reason, sizeof(reason)) == 0)
            continue;
        struct text t = text_in(why, why_cap);
        add(&t, "%s: %s", d->key, reason);
        return -EINVAL;
    }
    return 0;
}

int option_format(const struct option_desc *d, const void *base, char *buf, size_t cap)
{
    const void *at = (const char *)base + d->offset;
    char number[UNITS_COUNT_BYTES];
    const char *s = NULL;
    switch (d->type) {
    case OPT_BYTES:
    case OPT_DURATION:
    case OPT_UINT:
        s = exact(d, load_uint(at, d->size), number);
        if ((d->flags & OPTF_AUTO) != 0 && load_uint(at, d->size) == 0)
            s = "auto";
        break;
    case OPT_BOOL:
        s = *(const bool *)at ? "true" : "false";
        break;
    case OPT_STRING:
    case OPT_PATH:
        s = at;
        break;
    case OPT_ENUM:
        s = d->choices[load_uint(at, d->size)];
        break;
    }
    struct text t = text_in(buf, cap);
    add(&t, "%s", s);
    return text_len(&t);
}

int option_expects(const struct option_desc *d, char *buf, size_t cap)
{
    struct text t = text_in(buf, cap);
    add_expects(&t, d);
    return text_len(&t);
}
