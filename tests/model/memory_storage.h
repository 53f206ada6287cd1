/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain memory as a storage tier, slow storage for tests of a stack (stack.h): slots of any size,
 * room made by reporting what was stored longest ago, operations that end at the next kick().
 * Misuse by the caller fails a MUST.
 */
#ifndef KVC_TEST_MEMORY_STORAGE_H
#define KVC_TEST_MEMORY_STORAGE_H

#include "tier.h"

struct memory_storage;

struct memory_storage *memory_storage_create(uint32_t slots);
/* What is in it is forgotten. */
void memory_storage_destroy(struct memory_storage **m);
struct tier *memory_storage_tier(struct memory_storage *m);
uint32_t memory_storage_used(const struct memory_storage *m);
/* The next n operations fail with -EIO. */
void memory_storage_fail(struct memory_storage *m, uint32_t n);
/* PUTs that have landed. */
uint32_t memory_storage_puts(const struct memory_storage *m);

#endif
