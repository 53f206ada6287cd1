/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's tiles in plain C, for any machine; what the others are compared with. */
#include "attend__.h"
#include "numeric_row.h"

#define VEC_ROWS    2
#define VEC_COLUMNS 1
#define FEW_ROWS    VEC_ROWS

struct vec16 {
    float x[16];
};
#define vec  struct vec16
#define EACH for (int i = 0; i < 16; i++)

static vec vec_load(const float *at)
{
    vec v;
    EACH v.x[i] = at[i];
    return v;
}

static void vec_store(float *at, vec v)
{
    EACH at[i] = v.x[i];
}

static vec vec_set(float x)
{
    vec v;
    EACH v.x[i] = x;
    return v;
}

static vec vec_add(vec a, vec b)
{
    EACH a.x[i] += b.x[i];
    return a;
}

static vec vec_mul(vec a, vec b)
{
    EACH a.x[i] *= b.x[i];
    return a;
}

static vec vec_fma(vec a, vec b, vec c)
{
    EACH c.x[i] = fmaf(a.x[i], b.x[i], c.x[i]);
    return c;
}

static vec vec_max(vec a, vec b)
{
    EACH a.x[i] = a.x[i] > b.x[i] ? a.x[i] : b.x[i];
    return a;
}

static float vec_top(vec v)
{
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            v.x[i] = v.x[i] > v.x[i + half] ? v.x[i] : v.x[i + half];
    return v.x[0];
}

static float vec_sum(vec v)
{
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            v.x[i] += v.x[i + half];
    return v.x[0];
}

static vec vec_exp(vec v)
{
    EACH v.x[i] = exp_of(v.x[i]);
    return v;
}

static vec vec_only(vec v, int from, int to)
{
    EACH v.x[i] = i >= from && i < to ? v.x[i] : -INFINITY;
    return v;
}

static void vec_transpose(vec v[16])
{
    for (int r = 0; r < 16; r++) {
        for (int c = r + 1; c < 16; c++) {
            const float kept = v[r].x[c];
            v[r].x[c] = v[c].x[r];
            v[c].x[r] = kept;
        }
    }
}

#define VEC_VALUES(name, type)                                \
    static vec name(const uint8_t *row, uint32_t at)          \
    {                                                         \
        vec v;                                                \
        EACH v.x[i] = row_value(type, row, at + (uint32_t)i); \
        return v;                                             \
    }
VEC_VALUES(vec_f32, KVC_F32)
VEC_VALUES(vec_f16, KVC_F16)
VEC_VALUES(vec_bf16, KVC_BF16)
VEC_VALUES(vec_f8, KVC_F8)
VEC_VALUES(vec_q8_0, KVC_Q8_0)
VEC_VALUES(vec_q4_0, KVC_Q4_0)
VEC_VALUES(vec_i8, KVC_I8)

#include "attend_tile.inc"

static bool attend_plain_is_here(void)
{
    return true;
}

const struct attend_isa attend__plain = {"plain", attend_plain_is_here, tile_step};
