/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seeded damage: the same state and inputs give the same bytes on every machine. Bits flip, ends
 * are cut off, parts repeat or vanish, lengths lie, two inputs are joined.
 */
#ifndef KVC_FUZZ_MUTATE_H
#define KVC_FUZZ_MUTATE_H

#include <stddef.h>
#include <stdint.h>

/* A state for a seed. */
uint64_t mutate_seed(uint64_t seed);
/* xorshift; `*state` is not 0. */
uint64_t mutate_random(uint64_t *state);
uint32_t mutate_below(uint64_t *state, uint32_t n); /* n > 0 */
/* Changes `len` bytes in `buf` in one to four ways; returns the new length, at most cap. */
size_t mutate(uint64_t *state, uint8_t *buf, size_t len, size_t cap);
/* The beginning of what is in `buf` and the end of `other`. */
size_t mutate_splice(uint64_t *state, uint8_t *buf, size_t len, size_t cap, const uint8_t *other,
                     size_t other_len);

#endif
