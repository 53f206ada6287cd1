/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One copy with its checksum, a step at a time: source -> private step (first-level cache), hash,
 * step -> slot. Runs on the copy threads.
 *
 * Non-temporal stores save reading the slot's old bytes from memory first, which pays for the
 * second copy and most of the hash. With AVX-512, steps of 4 KiB and the source prefetched one step
 * ahead, this is faster than memcpy() alone. Elsewhere, with steps of 16 KiB, it reaches 0.95 of
 * memcpy(); memcpy() to the slot and hashing there reaches 0.7 (docs/notes/tier-copies.md).
 */
#include "copier.h"

#include <stdatomic.h>
#include <string.h>

/* Bytes summed between two checks of `cancel`. */
#define SUM_STEP_BYTES 262144u

/* How the bytes of one step move. `bytes` is a multiple of 64; step and slot are aligned to 64. */
struct copy_way {
    size_t step_bytes;
    void (*load)(uint8_t *step, const uint8_t *src, size_t bytes);
    void (*store)(uint8_t *dst, const uint8_t *step, size_t bytes);
    void (*end)(void);
};

static void load_plain(uint8_t *step, const uint8_t *src, size_t bytes)
{
    memcpy(step, src, bytes);
}

#if defined(__x86_64__)
#include <immintrin.h>

#define STEP_AVX512 4096u
_Static_assert(STEP_AVX512 <= COPIER_STEP_BYTES, "the scratch holds a step");

static void store_sse2(uint8_t *dst, const uint8_t *src, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) {
        const __m128i *from = (const __m128i *)(const void *)(src + i);
        __m128i *to = (__m128i *)(void *)(dst + i);
        for (unsigned k = 0; k < 4; k++)
            _mm_stream_si128(to + k, _mm_load_si128(from + k));
    }
}

/* The prefetch may run past the end of the source: it never faults. */
__attribute__((target("avx512f"))) static void load_avx512(uint8_t *step, const uint8_t *src,
                                                           size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) {
        _mm_prefetch((const char *)(src + i + STEP_AVX512), _MM_HINT_T0);
        _mm512_store_si512(step + i, _mm512_loadu_si512(src + i));
    }
}

__attribute__((target("avx512f"))) static void store_avx512(uint8_t *dst, const uint8_t *src,
                                                            size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        _mm512_stream_si512((void *)(dst + i), _mm512_load_si512(src + i));
}

/* Non-temporal stores are not ordered by the release that publishes the result. */
static void end_stores(void)
{
    _mm_sfence();
}

static const struct copy_way way_avx512 = {STEP_AVX512, load_avx512, store_avx512, end_stores};
static const struct copy_way way_plain = {COPIER_STEP_BYTES, load_plain, store_sse2, end_stores};

static const struct copy_way *choose_way(void)
{
    return __builtin_cpu_supports("avx512f") ? &way_avx512 : &way_plain;
}
#else
static void end_nothing(void)
{
}

static const struct copy_way way_plain = {COPIER_STEP_BYTES, load_plain, load_plain, end_nothing};

static const struct copy_way *choose_way(void)
{
    return &way_plain;
}
#endif

int copier_copy(void *dst, const void *src, uint64_t bytes, void *step, const _Atomic bool *cancel,
                struct hash128 *ret_sum)
{
    MUST((uintptr_t)dst % 64 == 0 && (uintptr_t)step % 64 == 0);
    const struct copy_way *way = choose_way();
    struct hash_stream hash;
    hash_stream_init(&hash);
    int err = 0;
    for (uint64_t at = 0; at < bytes; at += way->step_bytes) {
        if (atomic_load_explicit(cancel, memory_order_relaxed)) {
            err = -ECANCELED;
            break;
        }
        const size_t n = (size_t)MIN(bytes - at, way->step_bytes);
        const size_t lines = n & ~(size_t)63;
        const uint8_t *const from = (const uint8_t *)src + at;
        uint8_t *const to = (uint8_t *)dst + at;
        way->load(step, from, lines);
        memcpy((uint8_t *)step + lines, from + lines, n - lines);
        hash_stream_update(&hash, step, n);
        way->store(to, step, lines);
        memcpy(to + lines, (const uint8_t *)step + lines, n - lines);
    }
    way->end();
    if (err == 0)
        *ret_sum = hash_stream_final(&hash);
    return err;
}

int copier_sum(const void *src, uint64_t bytes, const _Atomic bool *cancel, struct hash128 *ret_sum)
{
    struct hash_stream hash;
    hash_stream_init(&hash);
    for (uint64_t at = 0; at < bytes; at += SUM_STEP_BYTES) {
        if (atomic_load_explicit(cancel, memory_order_relaxed))
            return -ECANCELED;
        hash_stream_update(&hash, (const uint8_t *)src + at,
                           (size_t)MIN(bytes - at, SUM_STEP_BYTES));
    }
    *ret_sum = hash_stream_final(&hash);
    return 0;
}
