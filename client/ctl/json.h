/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CTL_JSON_H
#define CTL_JSON_H

#include <stdint.h>

struct json_t;

/* Prints the value on a line of its own, with control characters escaped, and frees it. Aborts if
 * it is NULL, which means that there was no memory. */
void json_print(struct json_t *value);
/* A value for "I" of json_pack(), whose integers are signed: at most the largest of them. */
long long json_number(uint64_t value);

#endif
