/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's tiles with AVX-512 (F, BW, DQ, VL: every processor since 2017 that has any). */
#include <immintrin.h>

#include "attend__.h"
#include "numeric_row.h"

#define VEC_ROWS    6
#define VEC_COLUMNS 4
#define FEW_ROWS    VEC_ROWS
#define vec         __m512

static inline vec vec_load(const float *at)
{
    return _mm512_load_ps(at);
}

static inline void vec_store(float *at, vec v)
{
    _mm512_store_ps(at, v);
}

static inline vec vec_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline vec vec_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}

static inline vec vec_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}

static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vec vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}

static inline float vec_top(vec v)
{
    return _mm512_reduce_max_ps(v);
}

static inline float vec_sum(vec v)
{
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline vec vec_exp(vec x)
{
    const __mmask16 is_large = _mm512_cmp_ps_mask(x, vec_set(EXP_LEAST), _CMP_GE_OQ);
    const vec shifted = vec_fma(x, vec_set(EXP_LOG2E), vec_set(EXP_ROUND));
    const vec n = _mm512_sub_ps(shifted, vec_set(EXP_ROUND));
    const vec r = vec_fma(n, vec_set(-EXP_LN2_LO), vec_fma(n, vec_set(-EXP_LN2_HI), x));
    vec y = vec_fma(vec_set(EXP_C7), r, vec_set(EXP_C6));
    y = vec_fma(y, r, vec_set(EXP_C5));
    y = vec_fma(y, r, vec_set(EXP_C4));
    y = vec_fma(y, r, vec_set(EXP_C3));
    y = vec_fma(y, r, vec_set(EXP_C2));
    y = vec_fma(y, r, vec_set(1.0f));
    y = vec_fma(y, r, vec_set(1.0f));
    return _mm512_castsi512_ps(_mm512_maskz_add_epi32(
        is_large, _mm512_castps_si512(y), _mm512_slli_epi32(_mm512_castps_si512(shifted), 23)));
}

static inline vec vec_only(vec v, int from, int to)
{
    const __m512i at = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __mmask16 is_in = _mm512_cmpge_epi32_mask(at, _mm512_set1_epi32(from)) &
                            _mm512_cmplt_epi32_mask(at, _mm512_set1_epi32(to));
    return _mm512_mask_blend_ps(is_in, vec_set(-INFINITY), v);
}

/* Pairs, fours, then halves twice. */
static inline void vec_transpose(vec v[16])
{
    vec w[16];
    for (int i = 0; i < 16; i += 2) {
        w[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
        w[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        for (int k = 0; k < 2; k++) {
            const __m512d a = _mm512_castps_pd(w[i + k]), b = _mm512_castps_pd(w[i + k + 2]);
            v[i + 2 * k] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            v[i + 2 * k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    }
    for (int i = 0; i < 16; i += 8) {
        for (int k = 0; k < 4; k++) {
            w[i + k] = _mm512_shuffle_f32x4(v[i + k], v[i + k + 4], 0x88);
            w[i + k + 4] = _mm512_shuffle_f32x4(v[i + k], v[i + k + 4], 0xdd);
        }
    }
    for (int k = 0; k < 8; k++) {
        v[k] = _mm512_shuffle_f32x4(w[k], w[k + 8], 0x88);
        v[k + 8] = _mm512_shuffle_f32x4(w[k], w[k + 8], 0xdd);
    }
}

/* ---- 16 values of a row ---- */

static inline float half_at(const uint8_t *at)
{
    return _cvtsh_ss(row_u16(at));
}

static inline vec vec_ints(const uint8_t *at)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)at)));
}

static inline vec vec_f32(const uint8_t *row, uint32_t at)
{
    return _mm512_loadu_ps(row + (size_t)4 * at);
}

static inline vec vec_f16(const uint8_t *row, uint32_t at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(row + (size_t)2 * at)));
}

static inline vec vec_bf16(const uint8_t *row, uint32_t at)
{
    const __m256i bits = _mm256_loadu_si256((const void *)(row + (size_t)2 * at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

/* fp8 e4m3 with its bits where fp16 has them is the value times 2^-8, subnormal ones too: sign, one
 * bit of exponent that is 0, exponent, mantissa. */
static inline vec vec_f8(const uint8_t *row, uint32_t at)
{
    const __m256i x = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(row + at)));
    const __m256i half =
        _mm256_and_si256(_mm256_slli_epi16(x, 7), _mm256_set1_epi16((short)0xbf80));
    return vec_mul(_mm512_cvtph_ps(half), vec_set(256.0f));
}

static inline vec vec_q8_0(const uint8_t *row, uint32_t at)
{
    const uint8_t *block = row + (size_t)(at / BLOCK_VALUES) * Q8_0_BYTES;
    return vec_mul(vec_set(half_at(block)), vec_ints(block + 2 + at % BLOCK_VALUES));
}

static inline vec vec_q4_0(const uint8_t *row, uint32_t at)
{
    const uint8_t *block = row + (size_t)(at / BLOCK_VALUES) * Q4_0_BYTES;
    const __m512i both = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(block + 2)));
    const __m512i q = at % BLOCK_VALUES == 0 ? _mm512_and_si512(both, _mm512_set1_epi32(15))
                                             : _mm512_srli_epi32(both, 4);
    return vec_mul(vec_set(half_at(block)),
                   _mm512_cvtepi32_ps(_mm512_sub_epi32(q, _mm512_set1_epi32(8))));
}

static inline vec vec_i8(const uint8_t *row, uint32_t at)
{
    return vec_mul(vec_set(row_f32(row)), vec_ints(row + I8_HEAD + at));
}

#include "attend_tile.inc"

static bool attend_avx512_is_here(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           attend__avx2.is_here();
}

const struct attend_isa attend__avx512 = {"avx512", attend_avx512_is_here, tile_step};
