/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over paged KV. A warp, which is a block, takes up to 8 rows (queries times the heads
 * that share a KV head) along one part of their tokens, tile by tile as the CPU does. A tile's K,
 * then its V, come to shared memory in stages (attend_stage.inc); while the warp computes with one,
 * the next one is on its way. Sums are added up in the CPU's order, so the bits are the CPU's: a
 * lane has the scores of two tokens, then the sums of four values, of all rows.
 *
 * No tensor cores: they add up in an order and with roundings of their own.
 */
#include <cuda_pipeline.h>
#include <kvcache/attention.h>
#include <stdint.h>

#include "attend_stage.inc"

#define FULL_WARP 0xffffffffu

static constexpr uint32_t STATES = 64; /* that are merged together */

/* ---- which tokens ---- */

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
    const uint32_t rows = attend_rows(a->head_size);
    struct job j = {};
    j.s = blockIdx.z;
    j.group = a->heads / a->kv_heads;
    j.kv_head = blockIdx.x % a->kv_heads;
    j.first = blockIdx.x / a->kv_heads * rows;
    j.queries = a->q_first[j.s + 1] - a->q_first[j.s];
    if (j.first >= j.queries * j.group)
        return j;
    j.rows = least(rows, j.queries * j.group - j.first);
    j.dropped = a->dropped ? a->dropped[j.s] : 0;
    j.tokens = j.dropped;
    for (uint32_t l = 0; l < a->lists; l++)
        j.tokens += list_tokens(&a->list[l], j.s);
    j.from = most(j.dropped, position_from(a, row_position(&j, 0)));
    j.to = row_position(&j, j.rows - 1) + 1;
    return j;
}

/* A row's place in q and out. */
__device__ static uint64_t row_offset(const struct kvc_attention *a, const struct job *j,
                                      uint32_t row)
{
    const uint32_t at = j->first + row;
    const uint64_t query = a->q_first[j->s] + at / j->group;
    return (query * a->heads + (uint64_t)j->kv_head * j->group + at % j->group) * a->head_size;
}

/* Rows that are computed with: 2, 4 or 8; those that are not there are zeros. */
__device__ static uint32_t rows_all(uint32_t rows)
{
    return rows <= 2 ? 2 : rows <= 4 ? 4 : ROWS;
}

/* What of a job is the same in all its tiles. */
__device__ static void job_begin(const struct kvc_attention *a, const struct job *j,
                                 struct shared *s)
{
    const uint32_t all = rows_all(j->rows);
    spans_find(a, j, s);
    for (uint32_t r = 0; r < all; r++) {
        const float *q = r < j->rows ? a->q + row_offset(a, j, r) : nullptr;
        for (uint32_t i = threadIdx.x; i < a->head_size; i += WARP)
            s->q[r * q_pitch(all) + i] = q ? q[i] * a->scale : 0.0f;
    }
    if (threadIdx.x < all) {
        const uint32_t position = row_position(j, least(threadIdx.x, j->rows - 1));
        s->sees_from[threadIdx.x] = most(position_from(a, position), j->dropped);
        s->sees_to[threadIdx.x] = position + 1;
    }
    __syncwarp();
}

/* ---- a tile ---- */

/* What is known of a part until now. All lanes know the largest scores, the sums of weights, and by
 * what a tile makes sums smaller; each has scores of its tokens and sums of its values. */
struct known {
    float m[ROWS], l[ROWS], smaller[ROWS];
    float score[TOKENS][ROWS], sum[ROWS][MINE];
};

/* All lanes get the largest of each row's. */
template <uint32_t R> __device__ static void rows_top(float *top)
{
#pragma unroll
    for (uint32_t with = WARP / 2; with > 0; with /= 2)
#pragma unroll
        for (uint32_t r = 0; r < R; r++)
            top[r] = fmaxf(top[r], __shfl_xor_sync(FULL_WARP, top[r], with));
}

/* As vec_sum(): token i of the first 16 has i + 16, i + 32 and i + 48 added, then i + 8, 4, 2, 1. A
 * lane has tokens i and i + 32; all lanes get the sums. */
template <uint32_t R> __device__ static void rows_sum(const float (*weight)[R], float *sum)
{
    const bool low = threadIdx.x < WARP / 2;
#pragma unroll
    for (uint32_t r = 0; r < R; r++) {
        const float first = weight[0][r], second = weight[1][r];
        const float others[] = {__shfl_xor_sync(FULL_WARP, first, WARP / 2),
                                __shfl_xor_sync(FULL_WARP, second, WARP / 2)};
        sum[r] = first + others[0];
        sum[r] += low ? second : others[1];
        sum[r] += low ? others[1] : second;
    }
#pragma unroll
    for (uint32_t with = WARP / 4; with > 0; with /= 2)
#pragma unroll
        for (uint32_t r = 0; r < R; r++)
            sum[r] += __shfl_xor_sync(FULL_WARP, sum[r], with);
}

/* Scores become weights, [64 tokens][R]; sums and largest scores grow. */
template <uint32_t R>
__device__ static void tile_weights(struct shared *s, uint32_t begin, struct known *known)
{
    float weight[TOKENS][R], top[R], sum[R];
#pragma unroll
    for (uint32_t r = 0; r < R; r++) {
        const uint32_t from = s->sees_from[r], to = s->sees_to[r];
        top[r] = known->m[r];
#pragma unroll
        for (uint32_t n = 0; n < TOKENS; n++) {
            const uint32_t token = begin + n * WARP + threadIdx.x;
            weight[n][r] = token >= from && token < to ? known->score[n][r] : -INFINITY;
            top[r] = fmaxf(top[r], weight[n][r]);
        }
    }
    rows_top<R>(top);
#pragma unroll
    for (uint32_t n = 0; n < TOKENS; n++) {
#pragma unroll
        for (uint32_t r = 0; r < R; r++)
            weight[n][r] = exp_of(weight[n][r] - top[r]);
        weights_write<R>(&s->weights[(n * WARP + threadIdx.x) * R], weight[n]);
    }
    rows_sum<R>(weight, sum);
#pragma unroll
    for (uint32_t r = 0; r < R; r++) {
        known->smaller[r] = exp_of(known->m[r] - top[r]);
        known->l[r] = fmaf(known->l[r], known->smaller[r], sum[r]);
        known->m[r] = top[r];
    }
}

/* A row of more values than a warp sums up together has its sums in memory in between, each lane
 * its own. */
__device__ static void sums_load(const float *acc, uint32_t rows, uint32_t head_size,
                                 uint32_t column, struct known *known)
{
    const uint32_t at = column + MINE * threadIdx.x;
#pragma unroll
    for (uint32_t r = 0; r < ROWS / 2; r++)
#pragma unroll
        for (uint32_t k = 0; k < MINE; k++)
            known->sum[r][k] = r < rows && at < head_size ? acc[r * head_size + at + k] : 0.0f;
}

__device__ static void sums_store(float *acc, uint32_t rows, uint32_t head_size, uint32_t column,
                                  const struct known *known)
{
    const uint32_t at = column + MINE * threadIdx.x;
#pragma unroll
    for (uint32_t r = 0; r < ROWS / 2; r++)
#pragma unroll
        for (uint32_t k = 0; k < MINE; k++)
            if (r < rows && at < head_size)
                acc[r * head_size + at + k] = known->sum[r][k];
}

/* Scores of a stage of K; with the last one of a tile they are complete. */
template <uint32_t R>
__device__ static void keys_attend(struct shared *s, const struct cursor *c, uint32_t head_size,
                                   const uint8_t *stage, struct known *known)
{
    const uint32_t width = stage_width(c, head_size);
    if (c->column == 0)
#pragma unroll
        for (uint32_t r = 0; r < R; r++)
#pragma unroll
            for (uint32_t n = 0; n < TOKENS; n++)
                known->score[n][r] = 0;
    scores_of<R>(c->way[0].type, stage, &s->q[c->column], width, known->score);
    if (c->column + width == head_size)
        tile_weights<R>(s, c->begin, known);
}

/* Sums of a stage of V; with the first one those of the tiles before are made smaller. */
template <uint32_t R>
__device__ static void values_attend(const struct shared *s, const struct cursor *c,
                                     uint32_t head_size, const uint8_t *stage, struct known *known)
{
    if (c->token == 0)
#pragma unroll
        for (uint32_t r = 0; r < R; r++)
#pragma unroll
            for (uint32_t k = 0; k < MINE; k++)
                known->sum[r][k] *= known->smaller[r];
    if (c->column + MINE * threadIdx.x < head_size)
        sums_of<R>(c->way[1].type, stage, &s->weights[c->token * R], known->sum);
}

/* The stage that has come is computed with. */
template <uint32_t R>
__device__ static void stage_attend(struct shared *s, const struct cursor *c, uint32_t head_size,
                                    const uint8_t *stage, struct known *known)
{
    if (c->is_v)
        values_attend<R>(s, c, head_size, stage, known);
    else
        keys_attend<R>(s, c, head_size, stage, known);
}

/* ---- parts ---- */

/* A state in the work memory: sums [8][head_size], then largest scores and their sums, [8] each. */
template <typename T>
__device__ static T *state_of(const struct kvc_attention *a, T *work, uint64_t index)
{
    return work + index * ROWS * (a->head_size + 2);
}

/* Of heads with more than COLUMNS values a block has half of the rows: the other half of its state
 * has a part's sums. */
__device__ static float *acc_of(const struct kvc_attention *a, float *state)
{
    return a->head_size > COLUMNS ? state + ROWS / 2 * a->head_size : nullptr;
}

/* The tiles of tokens `from` to `to` - 1, of which there is at least one. */
__device__ static void tiles_attend(const struct kvc_attention *a, const struct job *j,
                                    struct shared *s, uint32_t from, uint32_t to, float *acc,
                                    struct known *known)
{
    struct cursor now = {}, next = {};
    uint32_t odd = 0;
    bool is_first = true, has_next = true;
    pages_ask(j, from / TILE * TILE, s);
    __pipeline_commit();
    do {
        now = next;
        __pipeline_wait_prior(0);
        __syncwarp();
        if (is_first || !stage_next(a->head_size, &next)) {
            const uint32_t begin = is_first ? from / TILE * TILE : now.begin + TILE;
            has_next = begin < to;
            if (has_next)
                tile_open(j, begin, to, s, &next);
        }
        if (has_next)
            stage_bring(s, j, &next, a->head_size, s->stage[odd ^ 1]);
        __pipeline_commit();
        if (!is_first) {
            if (acc && now.is_v && now.token == 0)
                sums_load(acc, j->rows, a->head_size, now.column, known);
            if (j->rows <= 2)
                stage_attend<2>(s, &now, a->head_size, s->stage[odd], known);
            else if (j->rows <= 4)
                stage_attend<4>(s, &now, a->head_size, s->stage[odd], known);
            else
                stage_attend<ROWS>(s, &now, a->head_size, s->stage[odd], known);
            if (acc && now.is_v && now.token + stage_tokens(now.way[1].type) == TILE)
                sums_store(acc, j->rows, a->head_size, now.column, known);
        }
        is_first = false;
        odd ^= 1;
    } while (has_next);
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

/* A part's sums, largest scores and their sums into those of the state. */
__device__ static void merge(const struct kvc_attention *a, const struct job *j, float *state,
                             const float *acc, struct known *known)
{
    float *all_m = state + ROWS * a->head_size, *all_l = all_m + ROWS;
    for (uint32_t column = 0; column < a->head_size; column += COLUMNS) {
        const uint32_t at = column + MINE * threadIdx.x;
        if (acc)
            sums_load(acc, j->rows, a->head_size, column, known);
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++) {
            if (r >= j->rows || at >= a->head_size)
                continue;
            const struct blend b = blend_of(all_m[r], all_l[r], known->m[r], known->l[r]);
            for (uint32_t k = 0; k < MINE; k++) {
                float *all = &state[r * a->head_size + at + k];
                *all = blended(&b, *all, known->sum[r][k]);
            }
        }
    }
    __syncwarp();
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r++)
        if (r < j->rows && threadIdx.x == 0) {
            const struct blend b = blend_of(all_m[r], all_l[r], known->m[r], known->l[r]);
            all_m[r] = b.m;
            all_l[r] = b.l;
        }
    __syncwarp();
}

__device__ static void part_attend(const struct kvc_attention *a, const struct job *j,
                                   struct shared *s, uint32_t from, uint32_t to, float *state)
{
    struct known known = {};
    float *acc = acc_of(a, state);
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r++)
        known.m[r] = -INFINITY;
    for (uint32_t column = 0; acc && column < a->head_size; column += COLUMNS)
        sums_store(acc, j->rows, a->head_size, column, &known);
    if (from < to)
        tiles_attend(a, j, s, from, to, acc, &known);
    merge(a, j, state, acc, &known);
}

extern "C" __global__ void __launch_bounds__(KVC_ATTEND_THREADS, 8)
    KVC_ATTEND_KERNEL(struct kvc_attention a, uint32_t parts, float *work)
{
    __shared__ struct shared s;
    const struct job j = job_of(&a);
    float *state = state_of(
        &a, work, ((uint64_t)blockIdx.z * gridDim.x + blockIdx.x) * gridDim.y + blockIdx.y);
    if (j.rows == 0)
        return;
    if (threadIdx.x < ROWS) /* no token yet */
        state[ROWS * (a.head_size + 1) + threadIdx.x] = 0;
    job_begin(&a, &j, &s);
    /* gridDim.y is parts, or 1: what a state has is merged in the order of the parts. */
    for (uint32_t part = blockIdx.y; part < parts; part += gridDim.y) {
        const uint32_t begin = part * a.split_tokens;
        const uint32_t end = a.split_tokens == 0 ? j.to : least(j.to, begin + a.split_tokens);
        part_attend(&a, &j, &s, most(j.from, begin), end, state);
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
    for (uint32_t i = threadIdx.x; i < n; i += KVC_ATTEND_MERGE_THREADS) {
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
    for (uint32_t i = threadIdx.x; i < n; i += KVC_ATTEND_MERGE_THREADS)
        b->of[i] =
            blend_of(b->top[i], b->top[i] > -INFINITY ? 1.0f : 0.0f, b->state_m[i], b->state_l[i]);
    __syncthreads();
    if (threadIdx.x == 0)
        for (uint32_t i = 0; i < n; i++)
            b->l = blended(&b->of[i], b->l, b->state_l[i]);
    __syncthreads();
}

/* One block for each row of a unit, blockIdx.y. */
extern "C" __global__ void __launch_bounds__(KVC_ATTEND_MERGE_THREADS)
    KVC_ATTEND_MERGE_KERNEL(struct kvc_attention a, uint32_t states, float *work)
{
    __shared__ struct blends b;
    const struct job j = job_of(&a);
    const uint64_t first = ((uint64_t)blockIdx.z * gridDim.x + blockIdx.x) * states;
    const uint64_t stride = (uint64_t)ROWS * (a.head_size + 2);
    const uint32_t r = blockIdx.y;
    float sum[KVC_HEAD_SIZE_MAX / KVC_ATTEND_MERGE_THREADS] = {};
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
        for (uint32_t k = 0; k < KVC_HEAD_SIZE_MAX / KVC_ATTEND_MERGE_THREADS; k++) {
            const uint32_t at = k * KVC_ATTEND_MERGE_THREADS + threadIdx.x;
#pragma unroll 8
            for (uint32_t of = 0; of < n && at < a.head_size; of++)
                sum[k] = blended(&b.of[of], sum[k], from[of * stride + r * a.head_size + at]);
        }
    }
    float *out = a.out + row_offset(&a, &j, r);
#pragma unroll
    for (uint32_t k = 0; k < KVC_HEAD_SIZE_MAX / KVC_ATTEND_MERGE_THREADS; k++)
        if (k * KVC_ATTEND_MERGE_THREADS + threadIdx.x < a.head_size)
            out[k * KVC_ATTEND_MERGE_THREADS + threadIdx.x] = fmaf(sum[k], 1.0f / b.l, 0.0f);
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
