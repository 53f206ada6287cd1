/* SPDX-License-Identifier: Apache-2.0 */
#include "similar.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* A beginning or a part says little when it is shorter. */
#define PART_MIN 3u

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned least = a < b ? a : b;
    return least < c ? least : c;
}

/* Optimal string alignment, three rows of it. */
unsigned similar_distance(const char *a, const char *b)
{
    unsigned rows[3][SIMILAR_BYTES_MAX + 1];
    const size_t la = strnlen(a, SIMILAR_BYTES_MAX), lb = strnlen(b, SIMILAR_BYTES_MAX);
    for (size_t j = 0; j <= lb; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= la; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *before = rows[(i - 1) % 3], *two_before = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= lb; j++) {
            row[j] = min3(row[j - 1] + 1, before[j] + 1, before[j - 1] + (a[i - 1] != b[j - 1]));
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && two_before[j - 2] + 1 < row[j])
                row[j] = two_before[j - 2] + 1;
        }
    }
    return rows[la % 3][lb];
}

/* "host" or "limit" of "host.limit"; the beginning of any word. */
static bool is_part(const char *text, const char *known)
{
    const size_t n = strlen(text), m = strlen(known);
    if (n < PART_MIN || n >= m)
        return false;
    return strncmp(known, text, n) == 0 ||
           (known[m - n - 1] == '.' && !strcmp(known + m - n, text));
}

void similar_offer(struct similar *n, const char *known)
{
    const size_t most = strlen(n->text) > strlen(known) ? strlen(n->text) : strlen(known);
    unsigned distance = similar_distance(n->text, known);
    if (distance > most / 3) {
        if (!is_part(n->text, known))
            return;
        distance = (unsigned)(most / 3); /* as far as a word may be that is similar */
    }
    if (n->best != NULL && distance >= n->distance)
        return;
    n->best = known;
    n->distance = distance;
}
