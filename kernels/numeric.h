/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic that has to give the same bits wherever it runs: types to fp32 and back, and
 * attention's exponential. CPU twins in plain C and CUDA kernels include it; vectors repeat it
 * operation by operation.
 */
#ifndef KERNELS_NUMERIC_H
#define KERNELS_NUMERIC_H

#include <kvcache/attention.h>
#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define NUMERIC_FN __device__ static inline
#else
#define NUMERIC_FN static inline
#endif

#define BLOCK_VALUES 32u /* of q8_0 and q4_0 */
#define Q8_0_BYTES   34u
#define Q4_0_BYTES   18u
#define I8_HEAD      4u /* bytes before a row's values */

NUMERIC_FN uint32_t float_bits(float x)
{
    union {
        float f;
        uint32_t u;
    } as;
    as.f = x;
    return as.u;
}

NUMERIC_FN float float_of_bits(uint32_t bits)
{
    union {
        uint32_t u;
        float f;
    } as;
    as.u = bits;
    return as.f;
}

/* ---- to fp32: exact ---- */

/* An exponent that is too small by 112 (15 bits of it are missing) is put right by a product, which
 * also makes normal numbers of subnormal ones. */
NUMERIC_FN float f16_to_float(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t rest = (uint32_t)(h & 0x7fffu) << 13;
    if (rest >= 0x7c00u << 13)
        return float_of_bits(sign | 0x7f800000u | rest);
    return float_of_bits(sign | float_bits(float_of_bits(rest) * 0x1p112f));
}

NUMERIC_FN float bf16_to_float(uint16_t b)
{
    return float_of_bits((uint32_t)b << 16);
}

NUMERIC_FN float f8_to_float(uint8_t b)
{
    const uint32_t sign = (uint32_t)(b & 0x80u) << 24;
    const uint32_t rest = b & 0x7fu;
    if (rest == 0x7fu)
        return float_of_bits(sign | 0x7fc00000u);
    return float_of_bits(sign | float_bits(float_of_bits(rest << 20) * 0x1p120f));
}

/* ---- from fp32: to nearest even ---- */

NUMERIC_FN uint16_t f16_of_float(float x)
{
    uint32_t bits = float_bits(x) & 0x7fffffffu;
    const uint16_t sign = (uint16_t)(float_bits(x) >> 16 & 0x8000u);
    if (bits > 0x7f800000u)
        return sign | 0x7e00u;
    if (bits >= 0x47800000u) /* 2^16 */
        return sign | 0x7c00u;
    if (bits < 0x38800000u) /* 2^-14: added to 0.5 it is rounded to multiples of 2^-24 */
        return sign | (uint16_t)(float_bits(float_of_bits(bits) + 0.5f) - 0x3f000000u);
    bits += 0xfffu + (bits >> 13 & 1u);
    return sign | (uint16_t)((bits - (112u << 23)) >> 13);
}

NUMERIC_FN uint16_t bf16_of_float(float x)
{
    const uint32_t bits = float_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

NUMERIC_FN uint8_t f8_of_float(float x)
{
    uint32_t bits = float_bits(x) & 0x7fffffffu;
    const uint8_t sign = (uint8_t)(float_bits(x) >> 24 & 0x80u);
    if (bits > 0x7f800000u)
        return sign | 0x7fu;
    if (bits >= 0x43e00000u) /* 448 */
        return sign | 0x7eu;
    if (bits < 0x3c800000u) /* 2^-6: multiples of 2^-9 */
        return sign | (uint8_t)(float_bits(float_of_bits(bits) + 16384.0f) - 0x46800000u);
    bits += 0x7ffffu + (bits >> 20 & 1u);
    return sign | (uint8_t)((bits - (120u << 23)) >> 20);
}

/* ---- attention ---- */

/* e^x: x = n ln 2 + r, e^r by its series to r^7 / 7!, times 2^n. */
#define EXP_LEAST  (-86.0f) /* below: 0; also what is no number */
#define EXP_LOG2E  1.44269504f
#define EXP_ROUND  12582912.0f /* 1.5 * 2^23: what is added to it loses its fraction */
#define EXP_LN2_HI 0.693359375f
#define EXP_LN2_LO (-2.12194440e-4f)
#define EXP_C7     (1.0f / 5040.0f)
#define EXP_C6     (1.0f / 720.0f)
#define EXP_C5     (1.0f / 120.0f)
#define EXP_C4     (1.0f / 24.0f)
#define EXP_C3     (1.0f / 6.0f)
#define EXP_C2     0.5f

/* x <= 0, or no number. e^0 is 1. */
NUMERIC_FN float exp_of(float x)
{
    if (!(x >= EXP_LEAST))
        return 0.0f;
    const float shifted = fmaf(x, EXP_LOG2E, EXP_ROUND);
    const float n = shifted - EXP_ROUND;
    const float r = fmaf(n, -EXP_LN2_LO, fmaf(n, -EXP_LN2_HI, x));
    float y = fmaf(EXP_C7, r, EXP_C6);
    y = fmaf(y, r, EXP_C5);
    y = fmaf(y, r, EXP_C4);
    y = fmaf(y, r, EXP_C3);
    y = fmaf(y, r, EXP_C2);
    y = fmaf(y, r, 1.0f);
    y = fmaf(y, r, 1.0f);
    return float_of_bits(float_bits(y) + (float_bits(shifted) << 23));
}

/* Rows of queries that a block has on a device: their values are 1,024 or fewer. */
NUMERIC_FN uint32_t attend_rows(uint32_t head_size)
{
    return head_size <= 128   ? KVC_ATTEND_ROWS
           : head_size <= 256 ? KVC_ATTEND_ROWS / 2
                              : KVC_ATTEND_ROWS / 4;
}

#endif
