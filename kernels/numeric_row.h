/* SPDX-License-Identifier: Apache-2.0 */
/* One row in the types that KV is kept in (layouts: kvcache/attention.h), value by value. */
#ifndef KERNELS_NUMERIC_ROW_H
#define KERNELS_NUMERIC_ROW_H

#include "numeric.h"

/* ---- reading ---- */

/* A row's 2 or 4 bytes at an even address, or one that is a multiple of 4. */
NUMERIC_FN uint16_t row_u16(const uint8_t *at)
{
    return *(const uint16_t *)(const void *)at;
}

NUMERIC_FN float row_f32(const uint8_t *at)
{
    return *(const float *)(const void *)at;
}

NUMERIC_FN float row_q8_0(const uint8_t *row, uint32_t i)
{
    const uint8_t *block = row + i / BLOCK_VALUES * Q8_0_BYTES;
    return f16_to_float(row_u16(block)) * (float)(int8_t)block[2 + i % BLOCK_VALUES];
}

NUMERIC_FN float row_q4_0(const uint8_t *row, uint32_t i)
{
    const uint8_t *block = row + i / BLOCK_VALUES * Q4_0_BYTES;
    const uint8_t both = block[2 + i % (BLOCK_VALUES / 2)];
    const int q = i % BLOCK_VALUES < BLOCK_VALUES / 2 ? both & 15 : both >> 4;
    return f16_to_float(row_u16(block)) * (float)(q - 8);
}

/* Value i of a row. */
NUMERIC_FN float row_value(uint32_t type, const uint8_t *row, uint32_t i)
{
    switch (type) {
    case KVC_F32:
        return row_f32(row + 4 * i);
    case KVC_F16:
        return f16_to_float(row_u16(row + 2 * i));
    case KVC_BF16:
        return bf16_to_float(row_u16(row + 2 * i));
    case KVC_F8:
        return f8_to_float(row[i]);
    case KVC_Q8_0:
        return row_q8_0(row, i);
    case KVC_Q4_0:
        return row_q4_0(row, i);
    default: /* KVC_I8 */
        return row_f32(row) * (float)(int8_t)row[I8_HEAD + i];
    }
}

/* ---- writing ---- */

NUMERIC_FN void row_put_u16(uint8_t *at, uint16_t value)
{
    *(uint16_t *)(void *)at = value;
}

/* The value with the largest magnitude, with its sign; the first of equals. */
NUMERIC_FN float row_largest(const float *x, uint32_t n)
{
    float largest = 0;
    for (uint32_t i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(largest))
            largest = x[i];
    return largest;
}

/* 0 where a scale is too small to have an inverse. */
NUMERIC_FN float row_inverse(float scale)
{
    return fabsf(scale) >= 0x1p-126f ? 1.0f / scale : 0.0f;
}

/* A whole number as a byte; what is no number becomes -127. */
NUMERIC_FN uint8_t row_int8(float x)
{
    const float above = x > -127.0f ? x : -127.0f;
    return (uint8_t)(int8_t)(above < 127.0f ? above : 127.0f);
}

/* As llama.cpp rounds: halves away from 0. */
NUMERIC_FN void row_put_q8_0(const float *x, uint8_t *block)
{
    const float scale = fabsf(row_largest(x, BLOCK_VALUES)) / 127.0f;
    const float inverse = row_inverse(scale);
    row_put_u16(block, f16_of_float(scale));
    for (uint32_t i = 0; i < BLOCK_VALUES; i++)
        block[2 + i] = row_int8(roundf(x[i] * inverse));
}

/* The largest becomes -8, of a scale with either sign. */
NUMERIC_FN uint8_t row_nibble(float x, float inverse)
{
    const float shifted = x * inverse + 8.5f;
    const float above = shifted > 0.0f ? shifted : 0.0f;
    return (uint8_t)(above < 15.0f ? above : 15.0f);
}

NUMERIC_FN void row_put_q4_0(const float *x, uint8_t *block)
{
    const float scale = row_largest(x, BLOCK_VALUES) / -8.0f;
    const float inverse = row_inverse(scale);
    row_put_u16(block, f16_of_float(scale));
    for (uint32_t i = 0; i < BLOCK_VALUES / 2; i++)
        block[2 + i] = (uint8_t)(row_nibble(x[i], inverse) |
                                 row_nibble(x[i + BLOCK_VALUES / 2], inverse) << 4);
}

NUMERIC_FN void row_put_i8(const float *x, uint32_t n, uint8_t *row)
{
    const float scale = fabsf(row_largest(x, n)) / 127.0f;
    const float inverse = row_inverse(scale);
    *(float *)(void *)row = scale;
    for (uint32_t i = 0; i < n; i++)
        row[I8_HEAD + i] = row_int8(rintf(x[i] * inverse));
}

/* Value i of a row in a type that has no scale. */
NUMERIC_FN void row_put(uint32_t type, float x, uint32_t i, uint8_t *row)
{
    switch (type) {
    case KVC_F32:
        *(float *)(void *)(row + 4 * i) = x;
        return;
    case KVC_F16:
        row_put_u16(row + 2 * i, f16_of_float(x));
        return;
    case KVC_BF16:
        row_put_u16(row + 2 * i, bf16_of_float(x));
        return;
    default: /* KVC_F8 */
        row[i] = f8_of_float(x);
        return;
    }
}

NUMERIC_FN void row_quantise(uint32_t type, uint32_t n, const float *x, uint8_t *row)
{
    switch (type) {
    case KVC_Q8_0:
        for (uint32_t b = 0; b < n / BLOCK_VALUES; b++)
            row_put_q8_0(x + b * BLOCK_VALUES, row + b * Q8_0_BYTES);
        return;
    case KVC_Q4_0:
        for (uint32_t b = 0; b < n / BLOCK_VALUES; b++)
            row_put_q4_0(x + b * BLOCK_VALUES, row + b * Q4_0_BYTES);
        return;
    case KVC_I8:
        row_put_i8(x, n, row);
        return;
    default:
        for (uint32_t i = 0; i < n; i++)
            row_put(type, x[i], i, row);
        return;
    }
}

#endif
