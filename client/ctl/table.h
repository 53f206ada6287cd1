/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables whose columns line up: rows are collected, widths follow from the widest cell. Numbers go
 * to the right. Owned by one thread.
 */
#ifndef CTL_TABLE_H
#define CTL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 16

struct table;

/* `heads` ends with NULL and is borrowed; a head that begins with '>' is of a column of numbers.
 * NULL for no heads: two columns, a name and a value. Aborts when memory is out, as all here do. */
struct table *table_create(const char *const *heads);
/* Accepts NULL and a pointer to NULL. */
void table_destroy(struct table **table);
/* The next cell; rows fill from left to right. Copies the text. */
__attribute__((format(printf, 2, 3))) void table_cell(struct table *table, const char *format, ...);
size_t table_rows(const struct table *table);
/* Prints no more columns than a terminal of so many has room for, whole ones, and the first in any
 * case. After the last cell. */
void table_fit(struct table *table, size_t columns);
void table_print(const struct table *table, FILE *to, bool colour);

#endif
