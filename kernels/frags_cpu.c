/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processor's twin of the copy kernel: copies a list of fragments, past the cache where that
 * pays.
 */
#include <kvcache/kernels.h>

#include <stdbool.h>
#include <string.h>

void kvc_copy_frags_cpu(const struct kvc_frag *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        memcpy((void *)(uintptr_t)list[i].to, (const void *)(uintptr_t)list[i].from, list[i].bytes);
}

/*
 * Non-temporal stores save reading what is overwritten from memory first, and leave the cache to
 * others, as a copy engine would (figures: docs/notes/kernels-copies.md).
 */
#if defined(__x86_64__)
#include <immintrin.h>

/* Below this the ends that are not whole lines cost more than is won. */
#define STREAM_BYTES_MIN 1024u
/* Fragments lie scattered, so the processor does not foresee where the next one begins. */
#define AHEAD_BYTES 512u

static void stream_sse2(uint8_t *to, const uint8_t *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) {
        const __m128i *source = (const __m128i *)(const void *)(from + i);
        __m128i *target = (__m128i *)(void *)(to + i);
        for (unsigned k = 0; k < 4; k++)
            _mm_stream_si128(target + k, _mm_loadu_si128(source + k));
    }
}

__attribute__((target("avx512f"))) static void stream_avx512(uint8_t *to, const uint8_t *from,
                                                             size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        _mm512_stream_si512((void *)(to + i), _mm512_loadu_si512(from + i));
}

static void frag_stream(const struct kvc_frag *f, bool avx512)
{
    uint8_t *to = (uint8_t *)(uintptr_t)f->to;
    const uint8_t *from = (const uint8_t *)(uintptr_t)f->from;
    size_t bytes = f->bytes;
    if (bytes >= STREAM_BYTES_MIN) {
        const size_t head = -(uintptr_t)to % 64;
        const size_t lines = (bytes - head) & ~(size_t)63;
        memcpy(to, from, head);
        if (avx512)
            stream_avx512(to + head, from + head, lines);
        else
            stream_sse2(to + head, from + head, lines);
        to += head + lines;
        from += head + lines;
        bytes -= head + lines;
    }
    memcpy(to, from, bytes);
}

void kvc_stream_frags_cpu(const struct kvc_frag *list, uint32_t n)
{
    const bool avx512 = __builtin_cpu_supports("avx512f");
    for (uint32_t i = 0; i < n; i++) {
        if (i + 1 < n) {
            const char *ahead = (const char *)(uintptr_t)list[i + 1].from;
            for (uint64_t k = 0; k < list[i + 1].bytes && k < AHEAD_BYTES; k += 64)
                _mm_prefetch(ahead + k, _MM_HINT_T0);
        }
        frag_stream(&list[i], avx512);
    }
    _mm_sfence(); /* the release that tells of the end does not order non-temporal stores */
}
#else
void kvc_stream_frags_cpu(const struct kvc_frag *list, uint32_t n)
{
    kvc_copy_frags_cpu(list, n);
}
#endif
