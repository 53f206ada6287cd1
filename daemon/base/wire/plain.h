/* SPDX-License-Identifier: Apache-2.0 */
/* Makes texts from elsewhere (workers, files, other users' command lines) safe to print on a
 * terminal. */
#ifndef KVC_WIRE_PLAIN_H
#define KVC_WIRE_PLAIN_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Whether a character could steer the terminal: C0, DEL and C1; and what changes the direction of
 * text (Bidi_Control of Unicode), by which a line shows as what it is not. */
bool plain_steers(uint32_t code);
/* Replaces each such character, and each byte that is not UTF-8, by '?'. Returns text. */
char *plain(char *text);
/* Prints a line, replaced in the same way, and a newline. The line is cut when memory is out. */
__attribute__((format(printf, 2, 0))) void plain_line(FILE *to, const char *format, va_list args);

#endif
