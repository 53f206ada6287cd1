/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that came from elsewhere (workers, files, the command line of somebody else) on a terminal.
 * Pure. */
#ifndef CTL_PLAIN_H
#define CTL_PLAIN_H

#include <stdbool.h>
#include <stdint.h>

/* Whether a character could steer the terminal: C0, DEL and C1; and what changes the direction of
 * text (Bidi_Control of Unicode), by which a line shows as what it is not. */
bool plain_steers(uint32_t code);
/* Puts '?' for each such character, and for each byte of what is not UTF-8. Returns text. */
char *plain(char *text);

#endif
