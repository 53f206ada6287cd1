/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's tiles with AVX2, FMA and F16C: x86-64-v3. */
#include <cpuid.h>
#include <immintrin.h>

#include "attend__.h"
#include "numeric_row.h"

#define VEC_ROWS    3
#define VEC_COLUMNS 2
#define FEW_ROWS    6

struct vec16 {
    __m256 lo, hi;
};
#define vec struct vec16

static inline vec vec_load(const float *at)
{
    return (vec){_mm256_load_ps(at), _mm256_load_ps(at + 8)};
}

static inline void vec_store(float *at, vec v)
{
    _mm256_store_ps(at, v.lo);
    _mm256_store_ps(at + 8, v.hi);
}

static inline vec vec_set(float x)
{
    return (vec){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

static inline vec vec_add(vec a, vec b)
{
    return (vec){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}

static inline vec vec_mul(vec a, vec b)
{
    return (vec){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}

static inline vec vec_fma(vec a, vec b, vec c)
{
    return (vec){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

static inline vec vec_max(vec a, vec b)
{
    return (vec){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}

static inline float vec_top(vec v)
{
    const __m256 eight = _mm256_max_ps(v.lo, v.hi);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

static inline float vec_sum(vec v)
{
    const __m256 eight = _mm256_add_ps(v.lo, v.hi);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline __m256 exp_eight(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f), round = _mm256_set1_ps(EXP_ROUND);
    const __m256 is_large = _mm256_cmp_ps(x, _mm256_set1_ps(EXP_LEAST), _CMP_GE_OQ);
    const __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(EXP_LOG2E), round);
    const __m256 n = _mm256_sub_ps(shifted, round);
    const __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_LO),
                                     _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_HI), x));
    __m256 y = _mm256_fmadd_ps(_mm256_set1_ps(EXP_C7), r, _mm256_set1_ps(EXP_C6));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(EXP_C5));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(EXP_C4));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(EXP_C3));
    y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(EXP_C2));
    y = _mm256_fmadd_ps(y, r, one);
    y = _mm256_fmadd_ps(y, r, one);
    const __m256i power = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    return _mm256_and_ps(is_large,
                         _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), power)));
}

static inline vec vec_exp(vec x)
{
    return (vec){exp_eight(x.lo), exp_eight(x.hi)};
}

static inline __m256 only_eight(__m256 v, int from, int to)
{
    const __m256i at = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i is_out = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(from), at),
                                           _mm256_cmpgt_epi32(at, _mm256_set1_epi32(to - 1)));
    return _mm256_blendv_ps(v, _mm256_set1_ps(-INFINITY), _mm256_castsi256_ps(is_out));
}

static inline vec vec_only(vec v, int from, int to)
{
    return (vec){only_eight(v.lo, from, to), only_eight(v.hi, from - 8, to - 8)};
}

/* 8 by 8: pairs, fours, halves. */
static inline void transpose_eight(__m256 v[8])
{
    __m256 w[8];
    for (int i = 0; i < 8; i += 2) {
        w[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        w[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int k = 0; k < 2; k++) {
            const __m256d a = _mm256_castps_pd(w[i + k]), b = _mm256_castps_pd(w[i + k + 2]);
            v[i + 2 * k] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
            v[i + 2 * k + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
        }
    }
    for (int k = 0; k < 4; k++) {
        w[k] = _mm256_permute2f128_ps(v[k], v[k + 4], 0x20);
        w[k + 4] = _mm256_permute2f128_ps(v[k], v[k + 4], 0x31);
    }
    for (int k = 0; k < 8; k++)
        v[k] = w[k];
}

/* The quarters, each by itself, two of them across. */
static inline void vec_transpose(vec v[16])
{
    __m256 quarter[2][2][8];
    for (int i = 0; i < 8; i++) {
        quarter[0][0][i] = v[i].lo;
        quarter[0][1][i] = v[i].hi;
        quarter[1][0][i] = v[i + 8].lo;
        quarter[1][1][i] = v[i + 8].hi;
    }
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < 2; c++)
            transpose_eight(quarter[r][c]);
    for (int i = 0; i < 8; i++) {
        v[i] = (vec){quarter[0][0][i], quarter[1][0][i]};
        v[i + 8] = (vec){quarter[0][1][i], quarter[1][1][i]};
    }
}

/* ---- 16 values of a row ---- */

static inline float half_at(const uint8_t *at)
{
    return _cvtsh_ss(row_u16(at));
}

static inline __m256 floats_of(__m256i ints)
{
    return _mm256_cvtepi32_ps(ints);
}

static inline vec vec_ints(const uint8_t *at)
{
    const __m128i x = _mm_loadu_si128((const void *)at);
    return (vec){floats_of(_mm256_cvtepi8_epi32(x)),
                 floats_of(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(x, x)))};
}

static inline vec vec_f32(const uint8_t *row, uint32_t at)
{
    const float *from = (const void *)(row + (size_t)4 * at);
    return (vec){_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}

static inline vec vec_f16(const uint8_t *row, uint32_t at)
{
    const uint8_t *from = row + (size_t)2 * at;
    return (vec){_mm256_cvtph_ps(_mm_loadu_si128((const void *)from)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const void *)(from + 16)))};
}

static inline __m256 bf16_eight(const uint8_t *from)
{
    const __m128i bits = _mm_loadu_si128((const void *)from);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

static inline vec vec_bf16(const uint8_t *row, uint32_t at)
{
    const uint8_t *from = row + (size_t)2 * at;
    return (vec){bf16_eight(from), bf16_eight(from + 16)};
}

/* Subnormal numbers are multiples of 2^-9; a product of fp32's subnormal ones would be slow. */
static inline __m256 f8_eight(__m256i x)
{
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(x, _mm256_set1_epi32(0x80)), 24);
    const __m256i rest = _mm256_and_si256(x, _mm256_set1_epi32(0x7f));
    const __m256i normal =
        _mm256_add_epi32(_mm256_slli_epi32(rest, 20), _mm256_set1_epi32(120 << 23));
    const __m256 small = _mm256_mul_ps(floats_of(rest), _mm256_set1_ps(0x1p-9f));
    const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), rest);
    const __m256 size =
        _mm256_blendv_ps(_mm256_castsi256_ps(normal), small, _mm256_castsi256_ps(is_small));
    return _mm256_or_ps(size, _mm256_castsi256_ps(sign));
}

static inline vec vec_f8(const uint8_t *row, uint32_t at)
{
    const __m128i x = _mm_loadu_si128((const void *)(row + at));
    return (vec){f8_eight(_mm256_cvtepu8_epi32(x)),
                 f8_eight(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(x, x)))};
}

static inline vec vec_q8_0(const uint8_t *row, uint32_t at)
{
    const uint8_t *block = row + (size_t)(at / BLOCK_VALUES) * Q8_0_BYTES;
    return vec_mul(vec_set(half_at(block)), vec_ints(block + 2 + at % BLOCK_VALUES));
}

static inline vec vec_q4_0(const uint8_t *row, uint32_t at)
{
    const uint8_t *block = row + (size_t)(at / BLOCK_VALUES) * Q4_0_BYTES;
    const __m128i both = _mm_loadu_si128((const void *)(block + 2));
    const __m128i q =
        _mm_and_si128(at % BLOCK_VALUES == 0 ? both : _mm_srli_epi16(both, 4), _mm_set1_epi8(15));
    const __m128i x = _mm_sub_epi8(q, _mm_set1_epi8(8));
    const vec ints = {floats_of(_mm256_cvtepi8_epi32(x)),
                      floats_of(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(x, x)))};
    return vec_mul(vec_set(half_at(block)), ints);
}

static inline vec vec_i8(const uint8_t *row, uint32_t at)
{
    return vec_mul(vec_set(row_f32(row)), vec_ints(row + I8_HEAD + at));
}

#include "attend_tile.inc"

/* __builtin_cpu_supports() does not know f16c in each compiler. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool attend_avx2_is_here(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

const struct attend_isa attend__avx2 = {"avx2", attend_avx2_is_here, tile_step};
