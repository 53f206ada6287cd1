/* SPDX-License-Identifier: Apache-2.0 */
/* kvcachectl against the daemon of a rig, and what it says. */
#ifndef KVC_TESTS_RIG_CTL_H
#define KVC_TESTS_RIG_CTL_H

#include <check.h>
#include <string.h>

#include "rig.h"

/* What kvcachectl said last, on both its streams. */
extern char said[65536];

/* Runs kvcachectl against r's daemon, in its directory, with the words that the format makes; fails
 * unless it ends with this exit code. */
__attribute__((format(printf, 3, 4))) void ctl(const struct rig *r, int code, const char *format,
                                               ...);

/* Runs such a line of the shell: what it prints is in `said`; returns its wait status. */
int said_by(const char *line);
/* A key's digits. Static, until the next call. */
const char *key_text(const uint8_t *key);

#define SAYS(text)     ck_assert_msg(strstr(said, text) != NULL, "no '%s' in: %s", text, said)
#define SAYS_NOT(text) ck_assert_msg(strstr(said, text) == NULL, "'%s' in: %s", text, said)

#endif
