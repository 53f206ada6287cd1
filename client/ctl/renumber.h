/* SPDX-License-Identifier: Apache-2.0 */
/* Large numbers to small ones: 0, 1, 2, ... in the order in which they are met. One thread. */
#ifndef CTL_RENUMBER_H
#define CTL_RENUMBER_H

#include <stdint.h>

struct renumber;

/* Returns owned; aborts when memory is short, as all of these do. */
struct renumber *renumber_create(void);
/* Accepts a pointer to NULL. */
void renumber_destroy(struct renumber **r);
uint64_t renumber_id(struct renumber *r, uint64_t large);
/* How many there are. */
uint64_t renumber_count(const struct renumber *r);

#endif
