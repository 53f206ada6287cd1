/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is computed of a tile, over vectors of 16 floats. attend_<isa>.c defines these and includes
 * this file; each operation stands for the same arithmetic on each of the 16, so all give the same
 * bits:
 *
 *   vec                   16 floats
 *   vec_load, vec_store   at an address that is a multiple of 64
 *   vec_set               16 times a float
 *   vec_add, vec_mul, vec_fma, vec_max
 *   vec_top, vec_sum      over the 16: largest; (i + (i + 8)), then + 4, + 2, + 1
 *   vec_exp               exp_of()
 *   vec_only(v, from, to) v where from <= i < to, else -infinity
 *   vec_f32 ... vec_q4_0  16 values of a row, that begin at value i; vec_scaled for int8
 *   vec_transpose         16 by 16
 *   VEC_ROWS, VEC_COLUMNS so many rows (6 at most) by so many vectors are summed up in registers
 */
#ifndef KERNELS_ATTEND_TILE_H
#define KERNELS_ATTEND_TILE_H

#define TILE       KVC_TILE_TOKENS
#define LINE_BYTES 64u /* of a cache */
#define INLINE     static inline __attribute__((always_inline))

/* ---- bringing a tile in ---- */

/* For each type: a row as fp32; 16 rows as fp32, turned round. */
#define OF_TYPE(type, load)                                                        \
    static void floats_of_##type(const uint8_t *row, uint32_t n, float *to)        \
    {                                                                              \
        for (uint32_t i = 0; i < n; i += 16)                                       \
            vec_store(to + i, load(row, i));                                       \
    }                                                                              \
    static void keys_of_##type(const void *const row[16], uint32_t n, float *keys) \
    {                                                                              \
        for (uint32_t i = 0; i < n; i += 16) {                                     \
            vec block[16];                                                         \
            for (uint32_t t = 0; t < 16; t++)                                      \
                block[t] = load(row[t], i);                                        \
            vec_transpose(block);                                                  \
            for (uint32_t k = 0; k < 16; k++)                                      \
                vec_store(keys + (i + k) * TILE, block[k]);                        \
        }                                                                          \
    }
OF_TYPE(f32, vec_f32)
OF_TYPE(f16, vec_f16)
OF_TYPE(bf16, vec_bf16)
OF_TYPE(f8, vec_f8)
OF_TYPE(q8_0, vec_q8_0)
OF_TYPE(q4_0, vec_q4_0)
OF_TYPE(i8, vec_i8)

static const struct {
    void (*floats)(const uint8_t *row, uint32_t n, float *to);
    void (*keys)(const void *const row[16], uint32_t n, float *keys);
} of_type[KVC_TYPES] = {{floats_of_f32, keys_of_f32},   {floats_of_f16, keys_of_f16},
                        {floats_of_bf16, keys_of_bf16}, {floats_of_f8, keys_of_f8},
                        {floats_of_q8_0, keys_of_q8_0}, {floats_of_q4_0, keys_of_q4_0},
                        {floats_of_i8, keys_of_i8}};

/* A row that is needed soon. */
static inline void row_fetch(const uint8_t *row, uint32_t bytes)
{
    for (uint32_t at = 0; at < bytes; at += LINE_BYTES)
        __builtin_prefetch(row + at);
}

/* Rows `from` to from + 15; types may change in between. */
static void rows_load(const struct attend_rows *rows, uint32_t from, uint32_t head_size, float *to)
{
    for (uint32_t t = from; t < from + 16; t++)
        of_type[rows->type[t]].floats(rows->row[t], head_size, to + t * head_size);
}

static void rows_fetch(const struct attend_rows *next, uint32_t from)
{
    for (uint32_t t = from; t < from + 16; t++)
        row_fetch(next->row[t], next->bytes[t]);
}

/* Keys from + 0 to from + 15, by way of `room` where their types differ. */
static void keys_load(const struct attend_rows *rows, uint32_t from, uint32_t head_size,
                      float *keys, float *room)
{
    const void *row[16];
    uint32_t type = rows->type[from];
    bool is_one = true;
    for (uint32_t t = 0; t < 16; t++) {
        row[t] = rows->row[from + t];
        is_one = is_one && rows->type[from + t] == type;
    }
    if (!is_one) {
        rows_load(rows, from, head_size, room);
        for (uint32_t t = 0; t < 16; t++)
            row[t] = room + (from + t) * head_size;
        type = KVC_F32;
    }
    of_type[type].keys(row, head_size, keys + from);
}

static void tile_load(const struct attend_tile *tile, const struct attend_tile *next,
                      uint32_t head_size, float *keys, float *values)
{
    for (uint32_t t = 0; t < TILE; t += 16) {
        rows_fetch(&next->k, t);
        keys_load(&tile->k, t, head_size, keys, values);
    }
    for (uint32_t t = 0; t < TILE; t += 16) {
        rows_fetch(&next->v, t);
        rows_load(&tile->v, t, head_size, values);
    }
}

/* ---- products ---- */

/*
 * out[r][c] = first[r] * out[r][c] + sum over i of a[r][i] * b[i][c], added up in the order of i,
 * for `rows` rows and `columns` vectors; from_zero: out is not read. Strides in floats.
 */
INLINE void product(uint32_t rows, uint32_t columns, const float *a, uint32_t a_stride,
                    const float *b, uint32_t b_stride, uint32_t n, const float *first, float *out,
                    uint32_t out_stride)
{
    vec sum[VEC_ROWS][VEC_COLUMNS];
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < columns; c++)
            sum[r][c] = first ? vec_mul(vec_set(first[r]), vec_load(out + r * out_stride + 16 * c))
                              : vec_set(0);
    for (uint32_t i = 0; i < n; i++) {
        vec right[VEC_COLUMNS];
        for (uint32_t c = 0; c < columns; c++)
            right[c] = vec_load(b + i * b_stride + 16 * c);
        for (uint32_t r = 0; r < rows; r++) {
            const vec left = vec_set(a[r * a_stride + i]);
            for (uint32_t c = 0; c < columns; c++)
                sum[r][c] = vec_fma(left, right[c], sum[r][c]);
        }
    }
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < columns; c++)
            vec_store(out + r * out_stride + 16 * c, sum[r][c]);
}

/* All columns of a few rows. */
INLINE void product_rows(uint32_t rows, uint32_t columns, const float *a, uint32_t a_stride,
                         const float *b, uint32_t b_stride, uint32_t n, const float *first,
                         float *out, uint32_t out_stride)
{
    uint32_t c = 0;
    for (; c + VEC_COLUMNS <= columns; c += VEC_COLUMNS)
        product(rows, VEC_COLUMNS, a, a_stride, b + 16 * c, b_stride, n, first, out + 16 * c,
                out_stride);
    for (; c < columns; c++)
        product(rows, 1, a, a_stride, b + 16 * c, b_stride, n, first, out + 16 * c, out_stride);
}

/* Up to VEC_ROWS rows: each number of them is code of its own, with its sums in registers. */
#define PRODUCT_CASE(rows)                                                                    \
    case rows:                                                                                \
        if ((rows) <= VEC_ROWS)                                                               \
            product_rows(rows, columns, a, a_stride, b, b_stride, n, first, out, out_stride); \
        break
static void product_few(uint32_t rows, uint32_t columns, const float *a, uint32_t a_stride,
                        const float *b, uint32_t b_stride, uint32_t n, const float *first,
                        float *out, uint32_t out_stride)
{
    switch (rows) {
        PRODUCT_CASE(1);
        PRODUCT_CASE(2);
        PRODUCT_CASE(3);
        PRODUCT_CASE(4);
        PRODUCT_CASE(5);
        PRODUCT_CASE(6);
    }
}

/* Scores: q times keys. */
static void tile_scores(const float *q, uint32_t rows, uint32_t head_size, const float *keys,
                        float *scores)
{
    for (uint32_t r = 0; r < rows; r += VEC_ROWS)
        product_few(rows - r < VEC_ROWS ? rows - r : VEC_ROWS, TILE / 16, q + r * head_size,
                    head_size, keys, TILE, head_size, NULL, scores + r * TILE, TILE);
}

/* What is there, made smaller, and weights times values. */
static void tile_sums(const float *weights, uint32_t rows, uint32_t head_size, const float *values,
                      const float *smaller, float *acc)
{
    for (uint32_t r = 0; r < rows; r += VEC_ROWS)
        product_few(rows - r < VEC_ROWS ? rows - r : VEC_ROWS, head_size / 16, weights + r * TILE,
                    TILE, values, head_size, TILE, smaller + r, acc + r * head_size, head_size);
}

/* One row's scores become weights; gives by what the sums so far are multiplied. */
static float row_weights(float *scores, uint32_t from, uint32_t to, float *m, float *l)
{
    vec v[TILE / 16], top;
    for (uint32_t i = 0; i < TILE / 16; i++)
        v[i] = vec_load(scores + 16 * i);
    if (from > 0 || to < TILE)
        for (uint32_t i = 0; i < TILE / 16; i++)
            v[i] = vec_only(v[i], (int)from - (int)(16 * i), (int)to - (int)(16 * i));
    top = vec_max(vec_max(v[0], v[1]), vec_max(v[2], v[3]));
    const float largest = vec_top(top);
    const float m_now = largest > *m ? largest : *m;
    for (uint32_t i = 0; i < TILE / 16; i++) {
        v[i] = vec_exp(vec_add(v[i], vec_set(-m_now)));
        vec_store(scores + 16 * i, v[i]);
    }
    const float sum = vec_sum(vec_add(vec_add(vec_add(v[0], v[1]), v[2]), v[3]));
    const float smaller = exp_of(*m - m_now);
    *l = fmaf(*l, smaller, sum);
    *m = m_now;
    return smaller;
}

static void tile_step(struct attend_scratch *s, uint32_t rows, uint32_t head_size,
                      const struct attend_state *state)
{
    float smaller[ATTEND_ROWS];
    tile_scores(s->q, rows, head_size, s->keys, s->weights);
    for (uint32_t r = 0; r < rows; r++)
        smaller[r] =
            row_weights(s->weights + r * TILE, s->from[r], s->to[r], &state->m[r], &state->l[r]);
    tile_sums(s->weights, rows, head_size, s->values, smaller, state->acc);
}

#endif
