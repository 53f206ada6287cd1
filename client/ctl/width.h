/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CTL_WIDTH_H
#define CTL_WIDTH_H

#include <stddef.h>

/* How many columns a text takes on a terminal: a combining character takes none, a wide one two,
 * any other one; so does a byte that is not UTF-8. */
size_t width_of(const char *text);
/* How many of the first `bytes` bytes fit so many columns, in whole characters. Sequences that set
 * a colour take no column. */
size_t width_fit(const char *text, size_t bytes, size_t columns);

#endif
