/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contents of a block, derived from its key: a reader computes what each byte must be and need not
 * have kept it. Both functions run at memory speed, so that checking does not dominate a
 * measurement. Pure.
 */
#ifndef BENCH_PATTERN_H
#define BENCH_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#include <kvcache/proto.h>

void pattern_fill(const uint8_t key[KVC_KEY_BYTES], void *dst, size_t bytes);
/* The number of bytes that differ from what pattern_fill() writes; 0 = none. */
uint64_t pattern_wrong_bytes(const uint8_t key[KVC_KEY_BYTES], const void *src, size_t bytes);

#endif
