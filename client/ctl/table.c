/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"
#include "plain.h"
#include "width.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct table {
    const char *const *heads;
    size_t columns, shown; /* shown: how many columns are printed, from the left */
    size_t width[TABLE_COLUMNS_MAX];
    char **cells;
    size_t n, cap;
};

static void *or_abort(void *memory)
{
    if (!memory) {
        fputs("kvcachectl: out of memory\n", stderr);
        abort();
    }
    return memory;
}

static bool is_number(const struct table *t, size_t column)
{
    return t->heads && t->heads[column][0] == '>';
}

static const char *head(const struct table *t, size_t column)
{
    return t->heads[column] + is_number(t, column);
}

struct table *table_create(const char *const *heads)
{
    struct table *t = or_abort(calloc(1, sizeof(*t)));
    t->heads = heads;
    t->columns = heads ? 0 : 2;
    while (heads && heads[t->columns] && t->columns < TABLE_COLUMNS_MAX) {
        t->width[t->columns] = width_of(head(t, t->columns));
        t->columns++;
    }
    t->shown = t->columns;
    return t;
}

void table_destroy(struct table **table)
{
    if (!table || !*table)
        return;
    for (size_t i = 0; i < (*table)->n; i++)
        free((*table)->cells[i]);
    free((*table)->cells);
    free(*table);
    *table = NULL;
}

void table_cell(struct table *t, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    plain(text);
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 64;
        t->cells = or_abort(realloc(t->cells, t->cap * sizeof(*t->cells)));
    }
    size_t column = t->n % t->columns;
    if (width_of(text) > t->width[column])
        t->width[column] = width_of(text);
    t->cells[t->n++] = or_abort(strdup(text));
}

size_t table_rows(const struct table *t)
{
    return t->n / t->columns;
}

void table_fit(struct table *t, size_t columns)
{
    size_t taken = t->width[0];
    for (t->shown = 1; t->shown < t->columns && taken + 2 + t->width[t->shown] <= columns;)
        taken += 2 + t->width[t->shown++];
}

static void print_line(const struct table *t, FILE *to, char *const *cells)
{
    for (size_t c = 0; c < t->shown; c++) {
        const char *text = cells ? cells[c] : head(t, c);
        int gap = (int)(t->width[c] - width_of(text));
        bool number = is_number(t, c);
        fprintf(to, "%*s%s", number ? gap : 0, "", text);
        if (!number && c + 1 < t->shown)
            fprintf(to, "%*s", gap, "");
        if (c + 1 < t->shown)
            fputs("  ", to);
    }
}

void table_print(const struct table *t, FILE *to, bool colour)
{
    if (t->heads) {
        fputs(colour ? "\033[1m" : "", to);
        print_line(t, to, NULL);
        fputs(colour ? "\033[0m\n" : "\n", to);
    }
    for (size_t row = 0; row < table_rows(t); row++) {
        print_line(t, to, t->cells + row * t->columns);
        fputc('\n', to);
    }
}
