/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over paged KV. A block of threads takes 8 rows (queries times the heads that share a KV
 * head) along one part of their tokens, tile by tile as the CPU does, 64 values of K or V (a chunk)
 * at a time in shared memory. While it computes with one chunk, the bytes of the next one are on
 * their way to its registers. Sums are added up in the CPU's order, so the bits are the CPU's: a
 * thread has the scores of one token, then the sums of one value, of up to 4 rows each.
 */
#include <kvcache/attention.h>
#include <stdint.h>

#include "numeric_row.h"

#define ROWS    KVC_ATTEND_ROWS
#define TILE    KVC_TILE_TOKENS
#define THREADS KVC_ATTEND_THREADS

enum {
    WARP = 32,
    COLUMNS = 64,                                 /* values of a row in a chunk */
    PITCH = COLUMNS + 4,                          /* of 8 tokens, 4 values each are in all banks */
    HALVES = THREADS / TILE,                      /* threads that share a token's, or value's, rows */
    PIECE = 16,                                   /* values of a token that a thread brings in */
    SIDE = 8,                                     /* tokens of a warp */
    LOAD = 16,                                    /* bytes that a thread loads at a time */
    NARROW = 8,                                   /* beside a type: rows do not allow such loads */
    PIECES = TILE * COLUMNS / PIECE / THREADS,    /* of a thread in a chunk */
    QUERIES = ROWS * COLUMNS / THREADS,           /* values of q of a thread in a chunk */
    STATES = 64                                   /* that are merged together */
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
    alignas(16) float tile[TILE * PITCH]; /* [64 tokens][68] */
    alignas(16) float q[ROWS * COLUMNS];
    alignas(16) float weights[ROWS * TILE];
    float acc[ROWS * KVC_HEAD_SIZE_MAX];
    float m[ROWS], l[ROWS], smaller[ROWS];
    /* Of even and odd tiles, of K and V; NULL: none. */
    const uint8_t *row[2][2][TILE];
    uint8_t type[2][2][TILE];
};

/* A chunk on its way: which one it is, and what this thread brings of it. */
struct chunk {
    uint32_t odd, is_v, column, width; /* width 0: there is none */
    const float *query[QUERIES];       /* where this thread's of q begin; NULL: there is none */
    struct {
        alignas(16) uint8_t raw[PIECE * sizeof(float)];
        uint32_t scale; /* as it is kept; of a type that has one */
    } piece[PIECES];
    float q[QUERIES];
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
    /* A type of its own: with a choice at each load, a load would wait for the one before it. */
    if (plane->type <= KVC_F8 && reinterpret_cast<uintptr_t>(*ret_row) % LOAD != 0)
        *ret_type |= NARROW;
}

/* Each thread finds one row of a tile, of K or of V. */
__device__ static void find_rows(const struct kvc_attention *a, const struct job *j, uint32_t begin,
                                 uint32_t odd, struct shared *s)
{
    for (uint32_t i = threadIdx.x; i < 2 * TILE; i += THREADS) {
        const uint32_t t = i % TILE, is_v = i / TILE, token = begin + t;
        if (token >= j->from && token < j->to)
            find_row(a, j, token, is_v, &s->row[odd][is_v][t], &s->type[odd][is_v][t]);
        else {
            s->row[odd][is_v][t] = nullptr;
            s->type[odd][is_v][t] = KVC_F32;
        }
    }
}

/* ---- bringing values in ---- */

template <typename T, uint32_t BYTES>
__device__ static void copy_units(const uint8_t *from, uint8_t *to)
{
#pragma unroll
    for (uint32_t i = 0; i < BYTES / sizeof(T); i++)
        reinterpret_cast<T *>(to)[i] = __ldcs(reinterpret_cast<const T *>(from) + i);
}

/*
 * Four threads bring in a token's 64 values, each by loads of 16 bytes that lie side by side: for a
 * type of `per` values in 16 bytes (4, 8 or 16: 4 << BY) thread p has `per` values from per * p on,
 * then so many from 4 * per further on, 16 in all.
 */

/* The bytes of these values, by loads of T; `row` is that of the chunk's first one. */
template <typename T, uint32_t BY>
__device__ static void loads_bytes(const uint8_t *row, uint32_t p, uint32_t width, uint8_t *raw)
{
    const uint32_t per = 4u << BY;
#pragma unroll
    for (uint32_t k = 0; k < PIECE / per; k++)
        if (4 * per * k + per * p < width)
            copy_units<T, LOAD>(row + LOAD * (4 * k + p), raw + LOAD * k);
}

/* 16 bytes, two in each word: to put them together one would have to wait for them. */
__device__ static void load_pairs(const uint8_t *from, uint8_t *raw)
{
#pragma unroll
    for (uint32_t i = 0; i < LOAD / 2; i++)
        reinterpret_cast<uint32_t *>(raw)[i] = __ldcs(reinterpret_cast<const uint16_t *>(from) + i);
}

/* `column` is the chunk's first value in the row. */
__device__ static void piece_load(uint32_t type, const uint8_t *row, uint32_t column, uint32_t p,
                                  uint32_t width, uint8_t *raw, uint32_t *scale)
{
    const uint32_t i = column + PIECE * p;
    const uint8_t *block;
    switch (type) {
    case KVC_F32:
        loads_bytes<uint4, 0>(row + 4 * column, p, width, raw);
        return;
    case KVC_F16:
    case KVC_BF16:
        loads_bytes<uint4, 1>(row + 2 * column, p, width, raw);
        return;
    case KVC_F8:
        loads_bytes<uint4, 2>(row + column, p, width, raw);
        return;
    case KVC_F32 | NARROW:
        loads_bytes<uint32_t, 0>(row + 4 * column, p, width, raw);
        return;
    case KVC_F16 | NARROW:
    case KVC_BF16 | NARROW:
        loads_bytes<uint16_t, 1>(row + 2 * column, p, width, raw);
        return;
    case KVC_F8 | NARROW:
        loads_bytes<uint8_t, 2>(row + column, p, width, raw);
        return;
    default:
        break;
    }
    if (PIECE * p >= width)
        return;
    switch (type) {
    case KVC_Q8_0:
        block = row + i / BLOCK_VALUES * Q8_0_BYTES;
        *scale = row_u16(block);
        load_pairs(block + 2 + i % BLOCK_VALUES, raw);
        return;
    case KVC_Q4_0:
        block = row + i / BLOCK_VALUES * Q4_0_BYTES;
        *scale = row_u16(block);
        load_pairs(block + 2, raw);
        return;
    default: /* KVC_I8 */
        *scale = *reinterpret_cast<const uint32_t *>(row);
        copy_units<uint32_t, PIECE>(row + I8_HEAD + i, raw);
        return;
    }
}

__device__ static constexpr uint32_t pair(uint32_t k)
{
    return k / 2 * sizeof(uint32_t) + k % 2;
}

/* They as numbers, to their token's in the tile. */
template <uint32_t TYPE, uint32_t BY>
__device__ static void piece_put(const uint8_t *raw, uint32_t scale, uint32_t p, float4 *to)
{
    const float by = TYPE == KVC_I8 ? float_of_bits(scale) : f16_to_float((uint16_t)scale);
    float x[PIECE];
#pragma unroll
    for (uint32_t k = 0; k < PIECE; k++)
        if (TYPE == KVC_Q4_0)
            x[k] = by * (float)((raw[pair(k)] >> (p % 2 == 0 ? 0 : 4) & 15) - 8);
        else if (TYPE == KVC_Q8_0)
            x[k] = by * (float)(int8_t)raw[pair(k)];
        else if (TYPE == KVC_I8)
            x[k] = by * (float)(int8_t)raw[k];
        else
            x[k] = row_value(TYPE, raw, k);
#pragma unroll
    for (uint32_t k = 0; k < PIECE / 4; k++)
        to[(k >> BY << (BY + 2)) + (p << BY) + k % (1u << BY)] = {x[4 * k], x[4 * k + 1],
                                                                  x[4 * k + 2], x[4 * k + 3]};
}

__device__ static void piece_put_of(uint32_t type, const uint8_t *raw, uint32_t scale, uint32_t p,
                                    float4 *to)
{
    switch (type % NARROW) {
    case KVC_F32:
        piece_put<KVC_F32, 0>(raw, scale, p, to);
        return;
    case KVC_F16:
        piece_put<KVC_F16, 1>(raw, scale, p, to);
        return;
    case KVC_BF16:
        piece_put<KVC_BF16, 1>(raw, scale, p, to);
        return;
    case KVC_F8:
        piece_put<KVC_F8, 2>(raw, scale, p, to);
        return;
    case KVC_Q8_0:
        piece_put<KVC_Q8_0, 2>(raw, scale, p, to);
        return;
    case KVC_Q4_0:
        piece_put<KVC_Q4_0, 2>(raw, scale, p, to);
        return;
    default:
        piece_put<KVC_I8, 2>(raw, scale, p, to);
        return;
    }
}

/* A thread's nth piece is of which token of the tile, and by which of the four threads. */
__device__ static uint32_t piece_token(uint32_t n)
{
    return (threadIdx.x + n * THREADS) / WARP * SIDE + threadIdx.x % SIDE;
}

__device__ static uint32_t piece_thread(void)
{
    return threadIdx.x / SIDE % (WARP / SIDE);
}

/* A row's place in q and out. */
__device__ static uint64_t row_offset(const struct kvc_attention *a, const struct job *j,
                                      uint32_t row)
{
    const uint32_t at = j->first + row;
    const uint64_t query = a->q_first[j->s] + at / j->group;
    return (query * a->heads + (uint64_t)j->kv_head * j->group + at % j->group) * a->head_size;
}

/* A chunk sets out. */
__device__ static void chunk_load(const struct shared *s, struct chunk *c)
{
#pragma unroll
    for (uint32_t n = 0; n < PIECES; n++) {
        const uint32_t t = piece_token(n);
        const uint8_t *row = s->row[c->odd][c->is_v][t];
        if (row)
            piece_load(s->type[c->odd][c->is_v][t], row, c->column, piece_thread(), c->width,
                       c->piece[n].raw, &c->piece[n].scale);
    }
    if (c->is_v)
        return;
#pragma unroll
    for (uint32_t n = 0; n < QUERIES; n++)
        c->q[n] = c->query[n] && threadIdx.x % COLUMNS < c->width
                      ? c->query[n][c->column]
                      : 0.0f;
}

/* The chunk that comes after it: the next values of K, then V, then the next tile. */
__device__ static void chunk_next(const struct kvc_attention *a, bool has_tile, struct chunk *c)
{
    c->column += COLUMNS;
    if (c->column >= a->head_size) {
        c->column = 0;
        c->odd ^= c->is_v;
        c->is_v ^= 1;
    }
    c->width = least(COLUMNS, a->head_size - c->column);
    if (!has_tile && !c->is_v && c->column == 0)
        c->width = 0;
}

/* A chunk arrives in shared memory, as numbers. */
__device__ static void chunk_put(const struct chunk *c, float scale, struct shared *s)
{
    const uint32_t p = piece_thread();
#pragma unroll
    for (uint32_t n = 0; n < PIECES; n++) {
        const uint32_t t = piece_token(n), type = s->type[c->odd][c->is_v][t];
        float4 *to = reinterpret_cast<float4 *>(&s->tile[t * PITCH]);
        if (s->row[c->odd][c->is_v][t])
            piece_put_of(type, c->piece[n].raw, c->piece[n].scale, p, to);
        else
            for (uint32_t k = 0; k < PIECE / 4; k++)
                to[4 * p + k] = {0, 0, 0, 0};
    }
    if (c->is_v)
        return;
#pragma unroll
    for (uint32_t n = 0; n < QUERIES; n++)
        s->q[threadIdx.x + n * THREADS] = c->q[n] * scale;
}

/* ---- a tile ---- */

/* Rows of a thread: 1, 2 or 4. */
__device__ static uint32_t rows_each(uint32_t rows)
{
    return rows <= HALVES ? 1 : rows <= 2 * HALVES ? 2 : ROWS / HALVES;
}

__device__ static float fma4(float4 x, float4 y, float sum)
{
    return fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, fmaf(x.x, y.x, sum))));
}

/* Thread t has the scores of token t % 64, of R rows. */
template <uint32_t R>
__device__ static void some_scores(const struct shared *s, uint32_t width, float *score)
{
    const uint32_t t = threadIdx.x % TILE, first = threadIdx.x / TILE * R;
    const float4 *tile = reinterpret_cast<const float4 *>(&s->tile[t * PITCH]);
    const float4 *q = reinterpret_cast<const float4 *>(&s->q[first * COLUMNS]);
#pragma unroll 4
    for (uint32_t i = 0; i < width / 4; i++) {
        const float4 x = tile[i];
#pragma unroll
        for (uint32_t r = 0; r < R; r++)
            score[r] = fma4(q[r * (COLUMNS / 4) + i], x, score[r]);
    }
}

__device__ static void chunk_scores(const struct shared *s, uint32_t rows, uint32_t column,
                                    uint32_t width, float *score)
{
#pragma unroll
    for (uint32_t r = 0; r < ROWS / HALVES; r++)
        score[r] = column == 0 ? 0.0f : score[r];
    switch (rows_each(rows)) {
    case 1:
        some_scores<1>(s, width, score);
        return;
    case 2:
        some_scores<2>(s, width, score);
        return;
    default:
        some_scores<ROWS / HALVES>(s, width, score);
        return;
    }
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

/* The scores of all threads become the tile's weights. */
__device__ static void tile_weights(const struct kvc_attention *a, const struct job *j,
                                    struct shared *s, uint32_t begin, const float *score)
{
    const uint32_t of = rows_each(j->rows), t = threadIdx.x % TILE, first = threadIdx.x / TILE * of;
#pragma unroll
    for (uint32_t r = 0; r < ROWS / HALVES; r++)
        if (r < of)
            s->weights[(first + r) * TILE + t] = score[r];
    __syncthreads();
    for (uint32_t r = threadIdx.x / WARP; r < j->rows; r += THREADS / WARP) {
        const uint32_t position = row_position(j, r);
        row_weights(s, r, in_tile(most(position_from(a, position), j->dropped), begin),
                    in_tile(position + 1, begin));
    }
}

/* Thread t has the sums of value t % 64 of the chunk, of R rows. */
template <uint32_t R>
__device__ static void some_sums(uint32_t head_size, uint32_t rows, uint32_t column,
                                  uint32_t width, struct shared *s)
{
    const uint32_t at = threadIdx.x % COLUMNS, first = threadIdx.x / COLUMNS * R;
    const float4 *weights = reinterpret_cast<const float4 *>(&s->weights[first * TILE]);
    float *acc = &s->acc[first * head_size + column + at];
    float sum[R] = {};
    if (at >= width)
        return;
#pragma unroll
    for (uint32_t r = 0; r < R; r++)
        if (first + r < rows)
            sum[r] = acc[r * head_size] * s->smaller[first + r];
#pragma unroll 4
    for (uint32_t t = 0; t < TILE; t += 4) {
        const float *tile = &s->tile[t * PITCH + at];
        const float4 x = {tile[0], tile[PITCH], tile[2 * PITCH], tile[3 * PITCH]};
#pragma unroll
        for (uint32_t r = 0; r < R; r++)
            sum[r] = fma4(weights[(r * TILE + t) / 4], x, sum[r]);
    }
#pragma unroll
    for (uint32_t r = 0; r < R; r++)
        if (first + r < rows)
            acc[r * head_size] = sum[r];
}

__device__ static void chunk_sums(uint32_t head_size, uint32_t rows, uint32_t column,
                                  uint32_t width, struct shared *s)
{
    switch (rows_each(rows)) {
    case 1:
        some_sums<1>(head_size, rows, column, width, s);
        return;
    case 2:
        some_sums<2>(head_size, rows, column, width, s);
        return;
    default:
        some_sums<ROWS / HALVES>(head_size, rows, column, width, s);
        return;
    }
}

/* ---- parts ---- */

/* The tiles of tokens `from` to `to` - 1, of which there is at least one. */
__device__ static void tiles_attend(const struct kvc_attention *a, const struct job *j,
                                    struct shared *s, uint32_t from, uint32_t to)
{
    struct chunk c;
    float score[ROWS / HALVES];
    uint32_t begin = from / TILE * TILE;
    c.odd = c.is_v = c.column = 0;
    c.width = least(COLUMNS, a->head_size);
#pragma unroll
    for (uint32_t n = 0; n < QUERIES; n++) {
        const uint32_t i = threadIdx.x + n * THREADS, r = i / COLUMNS;
        c.query[n] = r < j->rows ? a->q + row_offset(a, j, r) + i % COLUMNS : nullptr;
    }
    find_rows(a, j, begin, 0, s);
    __syncthreads();
    chunk_load(s, &c);
    do {
        const uint32_t is_v = c.is_v, column = c.column, width = c.width;
        const bool has_next = begin + TILE < to;
        __syncthreads();
        chunk_put(&c, a->scale, s);
        if (!is_v && column == 0 && has_next)
            find_rows(a, j, begin + TILE, c.odd ^ 1, s);
        __syncthreads();
        chunk_next(a, has_next, &c);
        chunk_load(s, &c);
        if (is_v) {
            chunk_sums(a->head_size, j->rows, column, width, s);
            if (!c.is_v)
                begin += TILE;
            continue;
        }
        chunk_scores(s, j->rows, column, width, score);
        if (c.is_v)
            tile_weights(a, j, s, begin, score);
    } while (c.width > 0);
}

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
    if (from < to)
        tiles_attend(a, j, s, from, to);
    __syncthreads();
}

/* A state in the work memory: sums [8][head_size], then largest scores and their sums, [8] each. */
template <typename T>
__device__ static T *state_of(const struct kvc_attention *a, T *work, uint64_t index)
{
    return work + index * ROWS * (a->head_size + 2);
}

/* Of a part (m, l) that comes behind others (all_m, all_l): by what their sums and its own are
 * multiplied, and what m and l of all are then. */
struct blend {
    float old, now, m, l;
    bool copies; /* there is nothing before it */
    bool skips;  /* there is nothing in it */
};
__device__ static struct blend blend_of(float all_m, float all_l, float m, float l)
{
    if (!(l > 0))
        return {1, 0, all_m, all_l, false, true};
    if (!(all_l > 0))
        return {0, 1, m, l, true, false};
    struct blend b = {};
    b.m = all_m > m ? all_m : m;
    b.old = exp_of(all_m - b.m);
    b.now = exp_of(m - b.m);
    b.l = fmaf(l, b.now, all_l * b.old);
    return b;
}

/* A sum of all that comes before a part, and the part's. */
__device__ static float blended(const struct blend *b, float all, float part)
{
    if (b->copies)
        return part;
    return b->skips ? all : fmaf(part, b->now, all * b->old);
}

/* A part's sums, largest scores and their sums into those of `all`. */
__device__ static void merge(const struct kvc_attention *a, const struct job *j, float *all,
                             const float *acc, const float *m, const float *l)
{
    float *all_m = all + ROWS * a->head_size, *all_l = all_m + ROWS;
    for (uint32_t i = threadIdx.x; i < j->rows * a->head_size; i += THREADS) {
        const uint32_t r = i / a->head_size;
        const struct blend b = blend_of(all_m[r], all_l[r], m[r], l[r]);
        all[i] = blended(&b, all[i], acc[i]);
    }
    __syncthreads();
    for (uint32_t r = threadIdx.x; r < j->rows; r += THREADS) {
        const struct blend b = blend_of(all_m[r], all_l[r], m[r], l[r]);
        all_m[r] = b.m;
        all_l[r] = b.l;
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(KVC_ATTEND_THREADS, 4)
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

/* States that are merged together, of one row: how each is blended with what comes before it. */
struct blends {
    float m, l; /* of all until now */
    float state_m[STATES], state_l[STATES];
    float top[STATES]; /* the largest score up to a state */
    struct blend of[STATES];
};

/* What is a chain, the largest score and the sum of the weights, is one thread's. */
__device__ static void blends_find(const float *states_m, uint64_t stride, uint32_t n,
                                   struct blends *b)
{
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        b->state_m[i] = states_m[i * stride];
        b->state_l[i] = states_m[i * stride + ROWS];
    }
    __syncthreads();
    if (threadIdx.x == 0)
        for (uint32_t i = 0; i < n; i++) {
            b->top[i] = b->m;
            if (b->state_l[i] > 0 && b->state_m[i] > b->m)
                b->m = b->state_m[i];
        }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        b->of[i] = blend_of(b->top[i], b->top[i] > -INFINITY ? 1.0f : 0.0f, b->state_m[i],
                            b->state_l[i]);
    __syncthreads();
    if (threadIdx.x == 0)
        for (uint32_t i = 0; i < n; i++)
            b->l = blended(&b->of[i], b->l, b->state_l[i]);
    __syncthreads();
}

/* One block for each row of a unit, blockIdx.y. */
extern "C" __global__ void __launch_bounds__(KVC_ATTEND_THREADS)
    KVC_ATTEND_MERGE_KERNEL(struct kvc_attention a, uint32_t states, float *work)
{
    __shared__ struct blends b;
    const struct job j = job_of(&a);
    const uint64_t first = ((uint64_t)blockIdx.z * gridDim.x + blockIdx.x) * states;
    const uint64_t stride = (uint64_t)ROWS * (a.head_size + 2);
    const uint32_t r = blockIdx.y;
    float sum[KVC_HEAD_SIZE_MAX / THREADS] = {};
    if (r >= j.rows)
        return;
    if (threadIdx.x == 0) {
        b.m = -INFINITY;
        b.l = 0;
    }
    for (uint32_t i = 0; i < states; i += STATES) {
        const uint32_t n = least(STATES, states - i);
        const float *from = state_of(&a, work, first + i);
        blends_find(from + ROWS * a.head_size + r, stride, n, &b);
#pragma unroll
        for (uint32_t k = 0; k < KVC_HEAD_SIZE_MAX / THREADS; k++) {
            const uint32_t at = k * THREADS + threadIdx.x;
#pragma unroll 8
            for (uint32_t of = 0; of < n && at < a.head_size; of++)
                sum[k] = blended(&b.of[of], sum[k], from[of * stride + r * a.head_size + at]);
        }
    }
    float *out = a.out + row_offset(&a, &j, r);
#pragma unroll
    for (uint32_t k = 0; k < KVC_HEAD_SIZE_MAX / THREADS; k++)
        if (k * THREADS + threadIdx.x < a.head_size)
            out[k * THREADS + threadIdx.x] = fmaf(sum[k], 1.0f / b.l, 0.0f);
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
