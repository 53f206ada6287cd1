/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that came from elsewhere (workers, files, the command line of somebody else) on a terminal.
 * Pure. */
#ifndef CTL_PLAIN_H
#define CTL_PLAIN_H

/* Puts '?' where a character could steer the terminal: C0, DEL, and C1 in UTF-8. Returns text. */
char *plain(char *text);

#endif
