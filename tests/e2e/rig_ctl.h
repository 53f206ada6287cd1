/* SPDX-License-Identifier: Apache-2.0 */
/* Runs kvcachectl against a rig's daemon, and keeps its output. */
#ifndef KVC_TESTS_RIG_CTL_H
#define KVC_TESTS_RIG_CTL_H

#include <check.h>
#include <string.h>

#include "rig.h"

/* Output of the last kvcachectl, stdout and stderr together. */
extern char said[65536];

/* Runs kvcachectl in r's directory with the words that the format makes. Fails unless it ends with
 * this exit code. */
__attribute__((format(printf, 3, 4))) void ctl(const struct rig *r, int code, const char *format,
                                               ...);

/* Runs a line of the shell; its output is in `said`. Returns its wait status. */
int said_by(const char *line);
/* The key as hexadecimal digits. Static, valid until the next call. */
const char *key_text(const uint8_t *key);

#define SAYS(text)     ck_assert_msg(strstr(said, text) != NULL, "no '%s' in: %s", text, said)
#define SAYS_NOT(text) ck_assert_msg(strstr(said, text) == NULL, "'%s' in: %s", text, said)

#endif
