/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contents of a block, derived from its key, so that a reader knows what every byte must be without
 * having kept it. Fast enough (memory speed) that checking does not hide what is measured. Pure.
 */
#ifndef BENCH_PATTERN_H
#define BENCH_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#include <kvcache/proto.h>

void pattern_fill(const uint8_t key[KVC_KEY_BYTES], void *dst, size_t bytes);
/* How many of the bytes are not what pattern_fill would have written; 0 = all right. */
uint64_t pattern_wrong_bytes(const uint8_t key[KVC_KEY_BYTES], const void *src, size_t bytes);

#endif
