/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "pointwise.h"

/* Compiles these functions for wide vectors too; the program chooses when it starts. Sanitizers do
 * not work with that. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__clang__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

/* Sixteen sums, so that the compiler may use vectors: the order of additions is written down. */
WIDE void norm_row(const float *x, const float *weight, float eps, uint32_t n, float *y)
{
    float sum[16] = {0}, all = 0;
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (uint32_t j = 0; j < 16; j++)
            sum[j] += x[i + j] * x[i + j];
    for (; i < n; i++)
        sum[0] += x[i] * x[i];
    for (uint32_t j = 0; j < 16; j++)
        all += sum[j];
    const float scale = 1.0f / sqrtf(all / (float)n + eps);
    for (i = 0; i < n; i++)
        y[i] = x[i] * scale * weight[i];
}

/* E^x to about 2 units in the last place: a power of two times a polynomial of the rest. Below -87
 * the result stays at e^-87, which makes no difference to silu. */
static inline float exp_fast(float x)
{
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    const float whole = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
    const float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    union {
        int32_t bits;
        float value;
    } power = {.bits = ((int32_t)whole + 127) << 23};
    return p * power.value;
}

WIDE void swiglu(float *gate, const float *up, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        gate[i] = gate[i] / (1.0f + exp_fast(-gate[i])) * up[i];
}

WIDE void add_to(float *x, const float *y, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] += y[i];
}

void rope_angles(double theta, uint32_t head_size, uint32_t position, float *cosine, float *sine)
{
    for (uint32_t i = 0; i < head_size / 2; i++) {
        const double angle = position * pow(theta, -2.0 * i / head_size);
        cosine[i] = (float)cos(angle);
        sine[i] = (float)sin(angle);
    }
}

WIDE void rope_row(float *x, uint32_t heads, uint32_t head_size, const float *cosine,
                   const float *sine)
{
    const uint32_t half = head_size / 2;
    for (uint32_t h = 0; h < heads; h++) {
        float *a = x + (uint64_t)h * head_size, *b = a + half;
        for (uint32_t i = 0; i < half; i++) {
            const float even = a[i], odd = b[i];
            a[i] = even * cosine[i] - odd * sine[i];
            b[i] = odd * cosine[i] + even * sine[i];
        }
    }
}
