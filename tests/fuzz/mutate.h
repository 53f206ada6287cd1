/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Damages inputs by a seed: equal states and inputs give equal bytes on every machine. It flips
 * bits, cuts ends off, repeats or removes parts, falsifies lengths, and joins two inputs.
 */
#ifndef KVC_FUZZ_MUTATE_H
#define KVC_FUZZ_MUTATE_H

#include <stddef.h>
#include <stdint.h>

/* The state that belongs to a seed. */
uint64_t mutate_seed(uint64_t seed);
/* xorshift; `*state` is not 0. */
uint64_t mutate_random(uint64_t *state);
uint32_t mutate_below(uint64_t *state, uint32_t n); /* n > 0 */
/* Changes `len` bytes in `buf` in one to four ways; returns the new length, at most cap. */
size_t mutate(uint64_t *state, uint8_t *buf, size_t len, size_t cap);
/* Joins the beginning of `buf` and the end of `other`. */
size_t mutate_splice(uint64_t *state, uint8_t *buf, size_t len, size_t cap, const uint8_t *other,
                     size_t other_len);

#endif
