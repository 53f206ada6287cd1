/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the allocations that the daemon's own objects make on the control thread after start.
 *
 * The linker option --wrap (see daemon/CMakeLists.txt) sends every malloc, calloc, realloc,
 * reallocarray, posix_memalign, aligned_alloc, strdup and strndup of our objects through
 * alloc_count.c. Calls made inside shared libraries are not redirected and not counted; neither is
 * free.
 *
 * Thread: arm and read on the thread that is to be counted. Other threads cost one test of a
 * thread-local flag per allocation and are never counted.
 */
#pragma once

#include <stdint.h>

/* From now on the calling thread's allocations count. Idempotent; the count is not reset. */
void alloc_count_arm(void);

/* Calls (not bytes) counted on the calling thread since it was armed; 0 if it never was. */
uint64_t alloc_count_read(void);
