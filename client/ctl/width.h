/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CTL_WIDTH_H
#define CTL_WIDTH_H

#include <stddef.h>

/* Columns that a text takes on a terminal: none for what combines with the character before it, two
 * for wide ones, one for others, and for each byte that is not UTF-8. Pure. */
size_t width_of(const char *text);
/* Of the first `bytes`, how many take at most so many columns, by whole characters. Sequences that
 * set a colour take none. Pure. */
size_t width_fit(const char *text, size_t bytes, size_t columns);

#endif
