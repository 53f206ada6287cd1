/* SPDX-License-Identifier: Apache-2.0 */
/* Large numbers to small ones: 0, 1, 2, ... in the order in which they are met. One thread. */
#ifndef CTL_RENUMBER_H
#define CTL_RENUMBER_H

#include <stdint.h>

struct renumber;

/* The caller owns the result. This and the functions below abort when there is no memory. */
struct renumber *renumber_create(void);
/* Accepts a pointer to NULL. */
void renumber_destroy(struct renumber **r);
uint64_t renumber_id(struct renumber *r, uint64_t large);
/* How many numbers were given. */
uint64_t renumber_count(const struct renumber *r);

#endif
