/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CTL_JSON_H
#define CTL_JSON_H

#include <stdint.h>

struct json_t;

/* Prints the value on a line of its own, without what could steer the terminal, and gives it back.
 * Aborts when it is NULL: memory is out. */
void json_print(struct json_t *value);
/* For "I" of json_pack(), whose integers are signed: what does not fit is the largest. */
long long json_number(uint64_t value);

#endif
