/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables whose columns line up: rows are collected, and a column is as wide as its widest cell.
 * Numbers are aligned to the right. One thread.
 */
#ifndef CTL_TABLE_H
#define CTL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 16

struct table;

/* `heads` ends with NULL and is borrowed; a column of numbers has a head that begins with '>'.
 * NULL: two columns without heads, a name and a value. All functions abort when there is no memory.
 */
struct table *table_create(const char *const *heads);
/* Accepts NULL and a pointer to NULL. */
void table_destroy(struct table **table);
/* Adds the next cell; rows fill from left to right. Copies the text. */
__attribute__((format(printf, 2, 3))) void table_cell(struct table *table, const char *format, ...);
size_t table_rows(const struct table *table);
/* Limits table_print() to the whole table columns that fit a terminal of so many columns; the first
 * one is always printed. Call it after the last cell. */
void table_fit(struct table *table, size_t columns);
void table_print(const struct table *table, FILE *to, bool colour);

#endif
