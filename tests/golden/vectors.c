/* SPDX-License-Identifier: Apache-2.0 */
#include "vectors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn static void die(const char *what, const char *which)
{
    fprintf(stderr, "vectors: %s: %s\n", what, which);
    exit(2);
}

static void *must_have(void *p)
{
    if (p == NULL)
        die("no memory", "");
    return p;
}

static int digit(char c)
{
    const char *digits = "0123456789abcdef";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

uint8_t *vector_hex(const char *hex, size_t *ret_len)
{
    uint8_t *out = NULL;
    size_t len = 0, cap = 0;
    for (const char *p = hex; *p != '\0' && strcmp(p, "-") != 0;) {
        if (*p == ' ') {
            p++;
            continue;
        }
        int high = digit(p[0]), low = high >= 0 ? digit(p[1]) : -1;
        if (low < 0)
            die("not hex", p);
        p += 2;
        size_t times = 1;
        if (*p == '*') {
            char *end;
            times = strtoul(p + 1, &end, 10);
            p = end;
        }
        if (len + times > cap) {
            cap = 2 * (len + times);
            out = must_have(realloc(out, cap));
        }
        memset(out + len, high * 16 + low, times);
        len += times;
    }
    *ret_len = len;
    /* Exactly as long as the message, so that a read past its end is seen by a sanitizer. */
    return must_have(realloc(out, len != 0 ? len : 1));
}

uint8_t *vector_bytes(const struct vector *v, const char *key, size_t *ret_len)
{
    char *hex = vector_value(v, key);
    if (hex == NULL)
        die("no such value", key);
    uint8_t *bytes = vector_hex(hex, ret_len);
    free(hex);
    return bytes;
}

uint32_t *vector_tokens(const struct vector *v, size_t *ret_n)
{
    char *text = vector_value(v, "tokens");
    if (text == NULL)
        die("no tokens", v->name);
    char *p;
    size_t n = strtoul(text, &p, 10);
    if (strncmp(p, " items", 6) != 0)
        die("tokens are not \"N items ...\"", v->name);
    p += 6;
    uint32_t *ids = must_have(calloc(n + 1, sizeof(*ids)));
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint32_t)strtoull(p, &p, 10);
    if (*p != '\0')
        die("other than that many tokens", v->name);
    free(text);
    *ret_n = n;
    return ids;
}

static char *read_all(const char *file)
{
    char path[4096];
    const char *root = getenv("KVC_SOURCE_DIR");
    if (root == NULL)
        die("KVC_SOURCE_DIR must name the source tree for", file);
    snprintf(path, sizeof(path), "%s/tests/golden/%s", root, file);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        die("cannot open", path);
    char *text = NULL;
    size_t cap = 0;
    ssize_t n = getdelim(&text, &cap, '\0', f);
    if (n <= 0 || (size_t)n != strlen(text))
        die("cannot read, or a zero byte inside", path);
    fclose(f);
    return text;
}

/* Joins continuation lines to the line before them, and takes comments and empty lines out. */
static void unfold(char *text)
{
    char *to = text;
    for (char *line = text, *next; line != NULL; line = next) {
        next = strchr(line, '\n');
        size_t n = next != NULL ? (size_t)(next++ - line) : strlen(line);
        if (n == 0 || line[0] == '#')
            continue;
        if (line[0] == ' ' && to != text)
            to--;
        memmove(to, line, n);
        to += n;
        *to++ = '\n';
    }
    *to = '\0';
}

static void add_line(struct vector *v, const char *line, size_t n)
{
    if (strncmp(line, "hex = ", 6) == 0) {
        char *hex = must_have(strndup(line + 6, n - 6));
        v->bytes = vector_hex(hex, &v->len);
        free(hex);
        return;
    }
    size_t had = v->text != NULL ? strlen(v->text) : 0;
    v->text = must_have(realloc(v->text, had + n + 2));
    memcpy(v->text + had, line, n);
    memcpy(v->text + had + n, "\n", 2);
}

static void add_section(struct vectors *set, const char *line, size_t n)
{
    const char *close = memchr(line, ']', n);
    if (close == NULL || close + 2 > line + n)
        die("not \"[message] name\"", line);
    set->v = must_have(realloc(set->v, (set->n + 1) * sizeof(*set->v)));
    set->v[set->n++] = (struct vector){
        .message = must_have(strndup(line + 1, (size_t)(close - line) - 1)),
        .name = must_have(strndup(close + 2, (size_t)(line + n - close) - 2)),
        .text = must_have(strdup("")),
    };
}

struct vectors vectors_load(const char *file)
{
    struct vectors set = {0};
    char *text = read_all(file);
    unfold(text);
    for (char *line = text; *line != '\0';) {
        size_t n = strcspn(line, "\n");
        if (line[0] == '[')
            add_section(&set, line, n);
        else if (set.n == 0)
            die("a line before the first section", line);
        else
            add_line(&set.v[set.n - 1], line, n);
        line += n + 1;
    }
    free(text);
    if (set.n == 0)
        die("no vector in", file);
    return set;
}

void vectors_free(struct vectors *set)
{
    for (size_t i = 0; i < set->n; i++) {
        free(set->v[i].message);
        free(set->v[i].name);
        free(set->v[i].text);
        free(set->v[i].bytes);
    }
    free(set->v);
    *set = (struct vectors){0};
}

char *vector_value(const struct vector *v, const char *key)
{
    size_t n = strlen(key);
    for (const char *line = v->text; *line != '\0'; line += strcspn(line, "\n") + 1)
        if (strncmp(line, key, n) == 0 && strncmp(line + n, " = ", 3) == 0)
            return must_have(strndup(line + n + 3, strcspn(line, "\n") - n - 3));
    return NULL;
}
