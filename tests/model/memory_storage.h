/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain memory as a storage tier: the slow storage in tests of a stack (stack.h). Slots have any
 * size, the slots stored longest ago are reported to make room, and operations end at the next
 * kick(). Misuse by the caller fails a MUST.
 */
#ifndef KVC_TEST_MEMORY_STORAGE_H
#define KVC_TEST_MEMORY_STORAGE_H

#include "tier.h"

struct memory_storage;

struct memory_storage *memory_storage_create(uint32_t slots);
/* The contents are lost. */
void memory_storage_destroy(struct memory_storage **m);
struct tier *memory_storage_tier(struct memory_storage *m);
uint32_t memory_storage_used(const struct memory_storage *m);
/* The next n operations fail with -EIO. */
void memory_storage_fail(struct memory_storage *m, uint32_t n);
/* Number of PUTs that have succeeded. */
uint32_t memory_storage_puts(const struct memory_storage *m);

#endif
