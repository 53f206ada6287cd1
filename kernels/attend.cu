/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over paged KV. A block of threads takes 8 rows (queries times the heads that share a KV
 * head) along one part of their tokens, tile by tile as the CPU does, 64 values of K or V at a time
 * in shared memory. Sums are added up in the CPU's order, so the bits are the CPU's: a thread has
 * the scores of one token, then the sums of one value, of 4 rows each.
 */
#include <kvcache/attention.h>
#include <stdint.h>

#include "numeric_row.h"

#define ROWS    KVC_ATTEND_ROWS
#define TILE    KVC_TILE_TOKENS
#define THREADS KVC_ATTEND_THREADS

enum {
    WARP = 32,
    COLUMNS = 64,                   /* values of K and V in shared memory at a time */
    PITCH = COLUMNS + 1,            /* so that a column's are in different banks */
    HALF = ROWS / (THREADS / TILE), /* rows of a thread */
    PIECE = 16                      /* values that a thread brings in at a time */
};

#define FULL_WARP 0xffffffffu

/* A block's rows; positions are those of tokens in the sequence. */
struct job {
    uint32_t s, kv_head, group;
    uint32_t dropped, tokens, queries;
    uint32_t first, rows;
    uint32_t from, to;
};

struct shared {
    float tile[TILE * PITCH];  /* [64 tokens][65] */
    float q[ROWS * COLUMNS];
    float weights[ROWS * TILE];
    float acc[ROWS * KVC_HEAD_SIZE_MAX];
    float m[ROWS], l[ROWS], smaller[ROWS];
    const uint8_t *row[2][TILE]; /* of K and V; NULL: none */
    uint8_t type[2][TILE];
};

__device__ static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

__device__ static uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* ---- which tokens ---- */

__device__ static uint32_t list_tokens(const struct kvc_paged *list, uint32_t s)
{
    const uint32_t pages = list->first[s + 1] - list->first[s];
    return pages == 0 ? 0 : (pages - 1) * list->page_tokens + list->last_tokens[s];
}

__device__ static uint32_t row_position(const struct job *j, uint32_t row)
{
    return j->tokens - j->queries + (j->first + row) / j->group;
}

/* The first token that a query at this position sees. */
__device__ static uint32_t position_from(const struct kvc_attention *a, uint32_t position)
{
    return a->window == 0 || position < a->window ? 0 : position - a->window + 1;
}

/* No rows: this block has nothing to do. */
__device__ static struct job job_of(const struct kvc_attention *a)
{
    struct job j = {};
    j.s = blockIdx.z;
    j.group = a->heads / a->kv_heads;
    j.kv_head = blockIdx.x % a->kv_heads;
    j.first = blockIdx.x / a->kv_heads * ROWS;
    j.queries = a->q_first[j.s + 1] - a->q_first[j.s];
    if (j.first >= j.queries * j.group)
        return j;
    j.rows = least(ROWS, j.queries * j.group - j.first);
    j.dropped = a->dropped ? a->dropped[j.s] : 0;
    j.tokens = j.dropped;
    for (uint32_t l = 0; l < a->lists; l++)
        j.tokens += list_tokens(&a->list[l], j.s);
    j.from = most(j.dropped, position_from(a, row_position(&j, 0)));
    j.to = row_position(&j, j.rows - 1) + 1;
    return j;
}

/* Where a token's rows lie; `is_v`: of V. */
__device__ static void find_row(const struct kvc_attention *a, const struct job *j, uint32_t token,
                                uint32_t is_v, const uint8_t **ret_row, uint8_t *ret_type)
{
    uint32_t index = token - j->dropped, l = 0, tokens = list_tokens(&a->list[0], j->s);
    while (index >= tokens) {
        index -= tokens;
        tokens = list_tokens(&a->list[++l], j->s);
    }
    const struct kvc_paged *list = &a->list[l];
    const struct kvc_plane *plane = is_v ? &list->v : &list->k;
    const uint64_t page = list->page[list->first[j->s] + index / list->page_tokens];
    *ret_row = static_cast<const uint8_t *>(plane->base) + page * plane->page_stride +
               index % list->page_tokens * plane->token_stride + j->kv_head * plane->head_stride;
    *ret_type = static_cast<uint8_t>(plane->type);
}

/* Each thread finds one row, of K or of V. */
__device__ static void find_rows(const struct kvc_attention *a, const struct job *j, uint32_t begin,
                                 struct shared *s)
{
    for (uint32_t i = threadIdx.x; i < 2 * TILE; i += THREADS) {
        const uint32_t t = i % TILE, is_v = i / TILE, token = begin + t;
        if (token >= j->from && token < j->to)
            find_row(a, j, token, is_v, &s->row[is_v][t], &s->type[is_v][t]);
        else
            s->row[is_v][t] = nullptr;
    }
}

/* ---- bringing values in ---- */

template <typename T>
__device__ static void copy_units(const uint8_t *from, uint32_t bytes, uint8_t *to)
{
    for (uint32_t i = 0; i < bytes / sizeof(T); i++)
        reinterpret_cast<T *>(to)[i] = __ldcs(reinterpret_cast<const T *>(from) + i);
}

/* A multiple of 16 bytes by the widest loads that the address allows; it is a multiple of 2 or the
 * type has one byte a value. `to` is a multiple of 16. */
__device__ static void load_bytes(const uint8_t *from, uint32_t bytes, uint8_t *to)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(from);
    if (at % 16 == 0)
        copy_units<uint4>(from, bytes, to);
    else if (at % 4 == 0)
        copy_units<uint32_t>(from, bytes, to);
    else if (at % 2 == 0)
        copy_units<uint16_t>(from, bytes, to);
    else
        copy_units<uint8_t>(from, bytes, to);
}

/* Values i to i + 15 of a row; i is a multiple of 16. */
__device__ static void load_piece(uint32_t type, const uint8_t *row, uint32_t i, float *to)
{
    alignas(16) uint8_t raw[PIECE * sizeof(float)];
    const uint32_t wide = i % BLOCK_VALUES;
    const uint8_t *block;
    switch (type) {
    case KVC_F32:
        load_bytes(row + 4 * i, 4 * PIECE, raw);
        break;
    case KVC_F16:
    case KVC_BF16:
        load_bytes(row + 2 * i, 2 * PIECE, raw);
        break;
    case KVC_F8:
        load_bytes(row + i, PIECE, raw);
        break;
    case KVC_Q8_0:
        block = row + i / BLOCK_VALUES * Q8_0_BYTES;
        load_bytes(block + 2 + wide, PIECE, raw);
        for (uint32_t k = 0; k < PIECE; k++)
            to[k] = f16_to_float(row_u16(block)) * (float)(int8_t)raw[k];
        return;
    case KVC_Q4_0:
        block = row + i / BLOCK_VALUES * Q4_0_BYTES;
        load_bytes(block + 2, PIECE, raw);
        for (uint32_t k = 0; k < PIECE; k++)
            to[k] = f16_to_float(row_u16(block)) *
                    (float)((wide == 0 ? raw[k] & 15 : raw[k] >> 4) - 8);
        return;
    default: /* KVC_I8 */
        load_bytes(row + I8_HEAD + i, PIECE, raw);
        for (uint32_t k = 0; k < PIECE; k++)
            to[k] = row_f32(row) * (float)(int8_t)raw[k];
        return;
    }
    for (uint32_t k = 0; k < PIECE; k++)
        to[k] = row_value(type, raw, k);
}

/* Values `column` to column + width - 1 of the tile's K or V. */
__device__ static void load_tile(struct shared *s, uint32_t is_v, uint32_t column, uint32_t width)
{
    const uint32_t pieces = width / PIECE;
    for (uint32_t i = threadIdx.x; i < TILE * pieces; i += THREADS) {
        const uint32_t t = i / pieces, at = i % pieces * PIECE;
        float *to = &s->tile[t * PITCH + at];
        const uint8_t *row = s->row[is_v][t];
        if (row)
            load_piece(s->type[is_v][t], row, column + at, to);
        else
            for (uint32_t k = 0; k < PIECE; k++)
                to[k] = 0;
    }
}

/* A row's place in q and out. */
__device__ static uint64_t row_offset(const struct kvc_attention *a, const struct job *j,
                                      uint32_t row)
{
    const uint32_t at = j->first + row;
    const uint64_t query = a->q_first[j->s] + at / j->group;
    return (query * a->heads + (uint64_t)j->kv_head * j->group + at % j->group) * a->head_size;
}

__device__ static void load_q(const struct kvc_attention *a, const struct job *j, struct shared *s,
                              uint32_t column, uint32_t width)
{
    for (uint32_t i = threadIdx.x; i < j->rows * width; i += THREADS) {
        const uint32_t r = i / width, at = i % width;
        s->q[r * COLUMNS + at] = a->q[row_offset(a, j, r) + column + at] * a->scale;
    }
}

/* ---- a tile ---- */

/* Thread t has the scores of token t % 64, of half of the rows. */
__device__ static void tile_scores(const struct kvc_attention *a, const struct job *j,
                                   struct shared *s)
{
    const uint32_t t = threadIdx.x % TILE, first = threadIdx.x / TILE * HALF;
    float score[HALF] = {};
    for (uint32_t column = 0; column < a->head_size; column += COLUMNS) {
        const uint32_t width = least(COLUMNS, a->head_size - column);
        __syncthreads();
        load_tile(s, 0, column, width);
        load_q(a, j, s, column, width);
        __syncthreads();
        for (uint32_t i = 0; i < width; i++)
#pragma unroll
            for (uint32_t r = 0; r < HALF; r++)
                score[r] = fmaf(s->q[(first + r) * COLUMNS + i], s->tile[t * PITCH + i], score[r]);
    }
#pragma unroll
    for (uint32_t r = 0; r < HALF; r++)
        s->weights[(first + r) * TILE + t] = score[r];
    __syncthreads();
}

/* One warp: a row's scores become weights, and its sum and largest score grow. */
__device__ static void row_weights(struct shared *s, uint32_t r, uint32_t from, uint32_t to)
{
    const uint32_t lane = threadIdx.x % WARP;
    float *score = &s->weights[r * TILE];
    float x[2], top = s->m[r];
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t t = lane + i * WARP;
        x[i] = t >= from && t < to ? score[t] : -INFINITY;
        top = x[i] > top ? x[i] : top;
    }
    for (uint32_t with = WARP / 2; with > 0; with /= 2) {
        const float other = __shfl_xor_sync(FULL_WARP, top, with);
        top = other > top ? other : top;
    }
    for (uint32_t i = 0; i < 2; i++)
        x[i] = score[lane + i * WARP] = exp_of(x[i] - top);
    __syncwarp();
    /* As vec_sum(): lane i has tokens i, i + 16, i + 32, i + 48. */
    const uint32_t i = lane % 16;
    float sum = score[i] + score[i + 16] + score[i + 32] + score[i + 48];
    for (uint32_t by = 8; by > 0; by /= 2)
        sum += __shfl_down_sync(FULL_WARP, sum, by);
    if (lane == 0) {
        s->smaller[r] = exp_of(s->m[r] - top);
        s->l[r] = fmaf(s->l[r], s->smaller[r], sum);
        s->m[r] = top;
    }
}

__device__ static uint32_t in_tile(uint32_t token, uint32_t begin)
{
    return token <= begin ? 0 : least(token - begin, TILE);
}

__device__ static void tile_weights(const struct kvc_attention *a, const struct job *j,
                                    struct shared *s, uint32_t begin)
{
    for (uint32_t r = threadIdx.x / WARP; r < j->rows; r += THREADS / WARP) {
        const uint32_t position = row_position(j, r);
        row_weights(s, r, in_tile(most(position_from(a, position), j->dropped), begin),
                    in_tile(position + 1, begin));
    }
}

/* Thread t has the sums of value t % 64 (of 64 at a time), of half of the rows. */
__device__ static void tile_sums(const struct kvc_attention *a, const struct job *j,
                                 struct shared *s)
{
    const uint32_t at = threadIdx.x % COLUMNS, first = threadIdx.x / COLUMNS * HALF;
    for (uint32_t column = 0; column < a->head_size; column += COLUMNS) {
        const uint32_t width = least(COLUMNS, a->head_size - column);
        __syncthreads();
        load_tile(s, 1, column, width);
        __syncthreads();
        if (at >= width)
            continue;
        for (uint32_t r = first; r < least(first + HALF, j->rows); r++) {
            float *acc = &s->acc[r * a->head_size + column + at];
            float sum = *acc * s->smaller[r];
            for (uint32_t t = 0; t < TILE; t++)
                sum = fmaf(s->weights[r * TILE + t], s->tile[t * PITCH + at], sum);
            *acc = sum;
        }
    }
}

/* ---- parts ---- */

__device__ static void part_attend(const struct kvc_attention *a, const struct job *j,
                                   struct shared *s, uint32_t from, uint32_t to)
{
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < ROWS * a->head_size; i += THREADS)
        s->acc[i] = 0;
    for (uint32_t i = threadIdx.x; i < ROWS; i += THREADS) {
        s->m[i] = -INFINITY;
        s->l[i] = 0;
    }
    for (uint32_t begin = from / TILE * TILE; begin < to; begin += TILE) {
        __syncthreads();
        find_rows(a, j, begin, s);
        tile_scores(a, j, s);
        tile_weights(a, j, s, begin);
        tile_sums(a, j, s);
    }
    __syncthreads();
}

/* A state in the work memory: sums [8][head_size], then largest scores and their sums, [8] each. */
__device__ static float *state_of(const struct kvc_attention *a, float *work, uint64_t index)
{
    return work + index * ROWS * (a->head_size + 2);
}

/* Of a part (m, l) that comes behind others (all_m, all_l): by what their sums and its own are
 * multiplied, and what m and l of all are then. */
struct blend {
    float old, now, m, l;
    bool copies; /* there is nothing before it */
};
__device__ static struct blend blend_of(float all_m, float all_l, float m, float l)
{
    if (!(l > 0))
        return {1, 0, all_m, all_l, false};
    if (!(all_l > 0))
        return {0, 1, m, l, true};
    struct blend b = {};
    b.m = all_m > m ? all_m : m;
    b.old = exp_of(all_m - b.m);
    b.now = exp_of(m - b.m);
    b.l = fmaf(l, b.now, all_l * b.old);
    return b;
}

/* A part's sums, largest scores and their sums into those of `all`. */
__device__ static void merge(const struct kvc_attention *a, const struct job *j, float *all,
                             const float *acc, const float *m, const float *l)
{
    float *all_m = all + ROWS * a->head_size, *all_l = all_m + ROWS;
    for (uint32_t i = threadIdx.x; i < j->rows * a->head_size; i += THREADS) {
        const uint32_t r = i / a->head_size;
        const struct blend b = blend_of(all_m[r], all_l[r], m[r], l[r]);
        if (b.copies)
            all[i] = acc[i];
        else if (l[r] > 0)
            all[i] = fmaf(acc[i], b.now, all[i] * b.old);
    }
    __syncthreads();
    for (uint32_t r = threadIdx.x; r < j->rows; r += THREADS) {
        const struct blend b = blend_of(all_m[r], all_l[r], m[r], l[r]);
        all_m[r] = b.m;
        all_l[r] = b.l;
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(KVC_ATTEND_THREADS)
    KVC_ATTEND_KERNEL(struct kvc_attention a, uint32_t parts, float *work)
{
    __shared__ struct shared s;
    const struct job j = job_of(&a);
    float *state = state_of(&a, work, ((uint64_t)blockIdx.z * gridDim.x + blockIdx.x) * gridDim.y +
                                          blockIdx.y);
    if (j.rows == 0)
        return;
    if (threadIdx.x < ROWS) /* no token yet */
        state[ROWS * (a.head_size + 1) + threadIdx.x] = 0;
    /* gridDim.y is parts, or 1: what a state has is merged in the order of the parts. */
    for (uint32_t part = blockIdx.y; part < parts; part += gridDim.y) {
        const uint32_t begin = part * a.split_tokens;
        const uint32_t end = a.split_tokens == 0 ? j.to : least(j.to, begin + a.split_tokens);
        part_attend(&a, &j, &s, most(j.from, begin), end);
        merge(&a, &j, state, s.acc, s.m, s.l);
    }
}

extern "C" __global__ void __launch_bounds__(KVC_ATTEND_THREADS)
    KVC_ATTEND_MERGE_KERNEL(struct kvc_attention a, uint32_t states, float *work)
{
    const struct job j = job_of(&a);
    const uint64_t first = ((uint64_t)blockIdx.z * gridDim.x + blockIdx.x) * states;
    float *all = state_of(&a, work, first);
    if (j.rows == 0)
        return;
    const uint32_t sums = ROWS * a.head_size;
    for (uint32_t i = 1; i < states; i++) {
        const float *next = state_of(&a, work, first + i);
        merge(&a, &j, all, next, next + sums, next + sums + ROWS);
    }
    for (uint32_t i = threadIdx.x; i < j.rows * a.head_size; i += THREADS) {
        const uint32_t r = i / a.head_size;
        a.out[row_offset(&a, &j, r) + i % a.head_size] =
            fmaf(all[i], 1.0f / all[sums + ROWS + r], 0.0f);
    }
}

/* ---- rows ---- */

/* The largest magnitude of a warp's values, with its sign; of equals the first lane's. */
__device__ static float warp_largest(float x)
{
    uint32_t lane = threadIdx.x % WARP;
    for (uint32_t with = WARP / 2; with > 0; with /= 2) {
        const float other = __shfl_xor_sync(FULL_WARP, x, with);
        const uint32_t its = __shfl_xor_sync(FULL_WARP, lane, with);
        if (fabsf(other) > fabsf(x) || (fabsf(other) >= fabsf(x) && its < lane)) {
            x = other;
            lane = its;
        }
    }
    return x;
}

/* A warp writes block `b` of a row; each lane has one of its values. */
__device__ static void put_block(uint32_t type, float x, uint32_t b, uint32_t n, uint8_t *row)
{
    const uint32_t lane = threadIdx.x % WARP, i = b * BLOCK_VALUES + lane;
    if (type == KVC_Q8_0) {
        const float scale = fabsf(warp_largest(x)) / 127.0f;
        uint8_t *block = row + b * Q8_0_BYTES;
        block[2 + lane] = row_int8(roundf(x * row_inverse(scale)));
        if (lane == 0)
            row_put_u16(block, f16_of_float(scale));
    } else if (type == KVC_Q4_0) {
        const float scale = warp_largest(x + 0.0f) / -8.0f; /* + 0: no negative zero */
        uint8_t *block = row + b * Q4_0_BYTES;
        const uint32_t q = row_nibble(x, row_inverse(scale));
        const uint32_t high = __shfl_down_sync(FULL_WARP, q, BLOCK_VALUES / 2);
        if (lane < BLOCK_VALUES / 2)
            block[2 + lane] = (uint8_t)(q | high << 4);
        if (lane == 0)
            row_put_u16(block, f16_of_float(scale));
    } else if (i < n) {
        row_put(type, x, i, row);
    }
}

__device__ static void put_i8(const float *x, uint32_t n, uint8_t *row)
{
    const uint32_t lane = threadIdx.x % WARP;
    float top = 0;
    for (uint32_t i = lane; i < n; i += WARP)
        top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
    const float scale = fabsf(warp_largest(top)) / 127.0f;
    for (uint32_t i = lane; i < n; i += WARP)
        row[I8_HEAD + i] = row_int8(rintf(x[i] * row_inverse(scale)));
    if (lane == 0)
        *reinterpret_cast<float *>(row) = scale;
}

/* A warp a row. */
extern "C" __global__ void __launch_bounds__(KVC_ROWS_THREADS)
    KVC_QUANTISE_KERNEL(struct kvc_rows rows)
{
    const uint32_t lane = threadIdx.x % WARP, n = rows.head_size;
    const uint64_t warps = (uint64_t)gridDim.x * blockDim.x / WARP;
    for (uint64_t r = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP; r < rows.rows;
         r += warps) {
        const float *from = (const float *)((const char *)rows.from + r * rows.from_stride);
        uint8_t *to = (uint8_t *)rows.to + r * rows.to_stride;
        if (rows.type == KVC_I8) {
            put_i8(from, n, to);
            continue;
        }
        for (uint32_t b = 0; b * BLOCK_VALUES < n; b++) {
            const uint32_t i = b * BLOCK_VALUES + lane;
            put_block(rows.type, i < n ? from[i] : 0.0f, b, n, to);
        }
    }
}

extern "C" __global__ void __launch_bounds__(KVC_ROWS_THREADS)
    KVC_DEQUANTISE_KERNEL(struct kvc_rows rows)
{
    const uint32_t lane = threadIdx.x % WARP;
    const uint64_t warps = (uint64_t)gridDim.x * blockDim.x / WARP;
    for (uint64_t r = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP; r < rows.rows;
         r += warps) {
        const uint8_t *from = (const uint8_t *)rows.from + r * rows.from_stride;
        float *to = (float *)((char *)rows.to + r * rows.to_stride);
        for (uint32_t i = lane; i < rows.head_size; i += WARP)
            __stcs(&to[i], row_value(rows.type, from, i));
    }
}
