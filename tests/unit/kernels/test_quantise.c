/* SPDX-License-Identifier: Apache-2.0 */
/* The types that KV is kept in. */
#include <errno.h>
#include <kvcache/attention.h>
#include <math.h>
#include <string.h>

#include "attend_case.h"
#include "cases.h"

static void must_quantise(enum kvc_type type, uint32_t n, const float *from, void *to)
{
    char why[KVC_WHY_BYTES] = "";
    ck_assert_msg(kvc_quantise(type, n, 1, from, 0, to, 0, why) == 0, "%s", why);
}

static void must_dequantise(enum kvc_type type, uint32_t n, const void *from, float *to)
{
    char why[KVC_WHY_BYTES] = "";
    ck_assert_msg(kvc_dequantise(type, n, 1, from, 0, to, 0, why) == 0, "%s", why);
}

static void assert_equal(double a, double b)
{
    ck_assert_double_le(a, b);
    ck_assert_double_ge(a, b);
}

/* ---- types without a scale ---- */

struct small {
    enum kvc_type type;
    uint32_t codes, bits; /* one sign bit, then exponent and fraction */
    uint32_t fraction;
    int bias;
    uint32_t finite; /* the last code that is a finite number */
};
static const struct small smalls[] = {{KVC_F16, 0x10000, 16, 10, 15, 0x7bff},
                                      {KVC_BF16, 0x10000, 16, 7, 127, 0x7f7f},
                                      {KVC_F8, 0x100, 8, 3, 7, 0x7e}};

/* What a code means, by the definition of such formats. */
static double value_of(const struct small *s, uint32_t code)
{
    const uint32_t rest = code & ((1u << (s->bits - 1)) - 1), one = 1u << s->fraction;
    const uint32_t exponent = rest >> s->fraction, fraction = rest & (one - 1);
    const double size = exponent > 0 ? ldexp(1 + (double)fraction / one, (int)exponent - s->bias)
                                     : ldexp((double)fraction / one, 1 - s->bias);
    return code >> (s->bits - 1) ? -size : size;
}

/* 16 codes as a row, in bytes. */
static void put_code(const struct small *s, void *row, uint32_t i, uint32_t code)
{
    if (s->bits == 8)
        ((uint8_t *)row)[i] = (uint8_t)code;
    else
        ((uint16_t *)row)[i] = (uint16_t)code;
}

static uint32_t code_at(const struct small *s, const void *row, uint32_t i)
{
    return s->bits == 8 ? ((const uint8_t *)row)[i] : ((const uint16_t *)row)[i];
}

CASE_EACH(every_code_means_its_value_and_comes_back, 3)
{
    const struct small *s = &smalls[_i];
    for (uint32_t code = 0; code < s->codes; code += 16) {
        uint16_t row[16], back[16];
        float x[16];
        for (uint32_t i = 0; i < 16; i++)
            put_code(s, row, i, code + i);
        must_dequantise(s->type, 16, row, x);
        must_quantise(s->type, 16, x, back);
        for (uint32_t i = 0; i < 16; i++) {
            const uint32_t rest = (code + i) & ((s->codes >> 1) - 1);
            if (rest > s->finite)
                continue;
            assert_equal((double)x[i], value_of(s, code + i));
            ck_assert_uint_eq(code_at(s, back, i), code + i);
        }
    }
}

/* Between two codes: the nearer, of equals the even one. */
CASE_EACH(values_between_are_rounded_to_nearest_even, 3)
{
    const struct small *s = &smalls[_i];
    for (uint32_t code = 0; code < s->finite; code++) {
        const double low = value_of(s, code), high = value_of(s, code + 1);
        const float middle = (float)((low + high) / 2);
        const float x[16] = {middle, nextafterf(middle, 0), nextafterf(middle, INFINITY), -middle};
        const uint32_t even = code % 2 ? code + 1 : code, sign = s->codes >> 1;
        uint16_t row[16];
        must_quantise(s->type, 16, x, row);
        if ((double)middle * 2 < low + high || (double)middle * 2 > low + high)
            continue; /* fp32 has no such value */
        ck_assert_uint_eq(code_at(s, row, 0), even);
        ck_assert_uint_eq(code_at(s, row, 1), code);
        ck_assert_uint_eq(code_at(s, row, 2), code + 1);
        ck_assert_uint_eq(code_at(s, row, 3), even | sign);
    }
}

CASE(values_above_the_largest)
{
    const float x[16] = {65520, 65519, 1e30f, -INFINITY, NAN, 448, 449, -1e9f, 3.4e38f};
    uint16_t half[16];
    uint8_t f8[16];
    must_quantise(KVC_F16, 16, x, half);
    must_quantise(KVC_F8, 16, x, f8);
    ck_assert_uint_eq(half[0], 0x7c00);
    ck_assert_uint_eq(half[1], 0x7bff);
    ck_assert_uint_eq(half[2], 0x7c00);
    ck_assert_uint_eq(half[3], 0xfc00);
    ck_assert_uint_gt(half[4] & 0x7fff, 0x7c00);
    ck_assert_uint_eq(f8[0], 0x7e);
    ck_assert_uint_eq(f8[3], 0xfe);
    ck_assert_uint_eq(f8[4] & 0x7f, 0x7f);
    ck_assert_uint_eq(f8[5], 0x7e);
    ck_assert_uint_eq(f8[6], 0x7e);
    ck_assert_uint_eq(f8[7], 0xfe);
    must_quantise(KVC_BF16, 16, x, half);
    ck_assert_uint_eq(half[8], 0x7f80);
    ck_assert_uint_gt(half[4] & 0x7fff, 0x7f80);
}

/* ---- types with a scale ---- */

CASE(layouts_are_llama_cpps)
{
    float x[32];
    uint16_t q8[17], q4[9];
    for (int i = 0; i < 32; i++)
        x[i] = (float)(i - 8) * 0.5f; /* -4 to 11.5 */
    must_quantise(KVC_Q8_0, 32, x, q8);
    const int8_t *q = (const int8_t *)(q8 + 1);
    ck_assert_uint_eq(q8[0], 0x2dcc); /* 11.5 / 127 = 0.09055 */
    ck_assert_int_eq(q[31], 127);
    ck_assert_int_eq(q[0], -44); /* -4 * 127 / 11.5 = -44.17 */
    ck_assert_int_eq(q[9], 6);   /* 5.52 */
    must_quantise(KVC_Q4_0, 32, x, q4);
    const uint8_t *both = (const uint8_t *)(q4 + 1);
    ck_assert_uint_eq(q4[0], 0xbdc0);  /* 11.5 / -8 = -1.4375 */
    ck_assert_uint_eq(both[15], 0x06); /* 3.5 / -1.4375 + 8.5 = 6.07; 11.5: 0.5 */
    ck_assert_uint_eq(both[0], 0x5b);  /* -4: 11.28; 4: 5.72 */
}

CASE(errors_are_half_a_step)
{
    uint64_t random = 3;
    for (int round = 0; round < 200; round++) {
        float x[64], y[64], largest = 0;
        uint32_t row[64];
        for (int i = 0; i < 64; i++) {
            x[i] = case_normal(&random) * (i < 32 ? 1.0f : 0.01f);
            largest = fmaxf(largest, fabsf(x[i]));
        }
        for (int t = KVC_Q8_0; t <= KVC_I8; t++) {
            memset(row, 0xff, sizeof(row));
            must_quantise((enum kvc_type)t, 64, x, row);
            must_dequantise((enum kvc_type)t, 64, row, y);
            for (int i = 0; i < 64; i++) {
                float block = 0;
                for (int k = i / 32 * 32; k < i / 32 * 32 + 32; k++)
                    block = fmaxf(block, fabsf(x[k]));
                /* Half a step and what the fp16 scale is off; q4_0 has 7 steps above 0 of 8. */
                const float bound = t == KVC_I8     ? largest / 127 * 0.501f
                                    : t == KVC_Q8_0 ? block / 127 * 0.57f
                                                    : block / 8 * 1.01f;
                ck_assert_float_le(fabsf(x[i] - y[i]), bound);
            }
        }
    }
}

CASE(rows_of_zeros_and_of_no_numbers)
{
    static const float rows[][2] = {{0, 0}, {NAN, 1}, {INFINITY, -1}, {1e-42f, -1e-42f}};
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        float x[32], y[32];
        uint32_t row[32];
        for (int i = 0; i < 32; i++)
            x[i] = rows[r][i % 2];
        for (int t = KVC_Q8_0; t <= KVC_I8; t++) {
            must_quantise((enum kvc_type)t, 32, x, row);
            must_dequantise((enum kvc_type)t, 32, row, y);
            for (int i = 0; r == 0 && i < 32; i++)
                assert_equal((double)y[i], (double)0);
        }
    }
}

CASE(strides_are_bytes_and_gaps_stay)
{
    float x[3][40], y[3][20];
    uint8_t rows[3][40];
    for (int i = 0; i < 120; i++)
        x[i / 40][i % 40] = (float)(i % 7);
    memset(rows, 0xaa, sizeof(rows));
    memset(y, 0, sizeof(y));
    ck_assert_int_eq(kvc_quantise(KVC_F16, 16, 3, x[0], 160, rows, 40, NULL), 0);
    ck_assert_int_eq(kvc_dequantise(KVC_F16, 16, 3, rows, 40, y[0], 80, NULL), 0);
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < 16; i++)
            assert_equal((double)y[r][i], (double)x[r][i]);
        for (int i = 16; i < 20; i++)
            assert_equal((double)y[r][i], (double)0);
        for (int i = 32; i < 40; i++)
            ck_assert_uint_eq(rows[r][i], 0xaa);
    }
}

CASE(rows_have_their_bytes)
{
    static const uint32_t bytes[KVC_TYPES] = {256, 128, 128, 64, 68, 36, 68};
    static const char *const names[KVC_TYPES] = {"fp32", "fp16", "bf16", "fp8",
                                                 "q8_0", "q4_0", "int8"};
    for (uint32_t t = 0; t < KVC_TYPES; t++) {
        ck_assert_uint_eq(kvc_row_bytes((enum kvc_type)t, 64), bytes[t]);
        ck_assert_uint_eq(kvc_row_bytes((enum kvc_type)t, 0), 0);
        ck_assert_uint_eq(kvc_row_bytes((enum kvc_type)t, 528), 0);
        ck_assert_str_eq(kvc_type_name((enum kvc_type)t), names[t]);
    }
    ck_assert_uint_eq(kvc_row_bytes(KVC_Q4_0, 48), 0);
    ck_assert_uint_eq(kvc_row_bytes((enum kvc_type)7, 64), 0);
    ck_assert_ptr_null(kvc_type_name((enum kvc_type)7));
}

CASE(what_is_refused_is_named)
{
    float x[32] = {0};
    uint16_t row[64];
    char why[KVC_WHY_BYTES];
    ck_assert_int_eq(kvc_quantise((enum kvc_type)9, 32, 1, x, 0, row, 0, why), -EINVAL);
    ck_assert_str_eq(why, "type 9; types are 0 to 6");
    ck_assert_int_eq(kvc_quantise(KVC_Q4_0, 48, 1, x, 0, row, 0, why), -EINVAL);
    ck_assert_str_eq(why, "q4_0 has no rows of 48 values; a multiple of 32 up to 512");
    ck_assert_int_eq(kvc_quantise(KVC_F32, 20, 1, x, 0, row, 0, why), -EINVAL);
    ck_assert_str_eq(why, "fp32 has no rows of 20 values; a multiple of 16 up to 512");
    ck_assert_int_eq(kvc_dequantise(KVC_F16, 32, 2, row, 65, x, 0, why), -EINVAL);
    ck_assert_str_eq(why, "address and stride of fp16 must be multiples of 2");
    ck_assert_int_eq(kvc_dequantise(KVC_F8, 32, 2, row, 65, x, 130, why), -EINVAL);
    ck_assert_str_eq(why, "address and stride of fp32 must be multiples of 4");
    ck_assert_int_eq(kvc_quantise(KVC_I8, 32, 1, x, 0, (char *)row + 2, 0, NULL), -EINVAL);
}
