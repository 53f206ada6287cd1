/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy of 16 KiB at a time: source -> private step (first-level cache), hash, step -> slot.
 *
 * Non-temporal stores save reading the slot's old bytes from memory first, which pays for the
 * second copy and most of the hash: this reaches 0.95 of memcpy() where memcpy() to the slot and
 * hashing there reaches 0.82 (README.md).
 */
#include "copier.h"

#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>

static void store_lines(uint8_t *dst, const uint8_t *src, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) {
        const __m128i *from = (const __m128i *)(const void *)(src + i);
        __m128i *to = (__m128i *)(void *)(dst + i);
        const __m128i a = _mm_load_si128(from);
        const __m128i b = _mm_load_si128(from + 1);
        const __m128i c = _mm_load_si128(from + 2);
        const __m128i d = _mm_load_si128(from + 3);
        _mm_stream_si128(to, a);
        _mm_stream_si128(to + 1, b);
        _mm_stream_si128(to + 2, c);
        _mm_stream_si128(to + 3, d);
    }
}

/* Non-temporal stores are not ordered by the release that publishes the result. */
static void store_end(void)
{
    _mm_sfence();
}
#else
static void store_lines(uint8_t *dst, const uint8_t *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

static void store_end(void)
{
}
#endif

int copier_copy(void *dst, const void *src, uint64_t bytes, void *step, const _Atomic bool *cancel,
                struct hash128 *ret_sum)
{
    MUST((uintptr_t)dst % 64 == 0 && (uintptr_t)step % 64 == 0);
    struct hash_stream hash;
    hash_stream_init(&hash);
    int err = 0;
    for (uint64_t at = 0; at < bytes; at += COPIER_STEP_BYTES) {
        if (atomic_load_explicit(cancel, memory_order_relaxed)) {
            err = -ECANCELED;
            break;
        }
        const size_t n = (size_t)MIN(bytes - at, COPIER_STEP_BYTES);
        const size_t lines = n & ~(size_t)63;
        uint8_t *const to = (uint8_t *)dst + at;
        memcpy(step, (const uint8_t *)src + at, n);
        hash_stream_update(&hash, step, n);
        store_lines(to, step, lines);
        memcpy(to + lines, (const uint8_t *)step + lines, n - lines);
    }
    store_end();
    if (err == 0)
        *ret_sum = hash_stream_final(&hash);
    return err;
}
