/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides an attention call among threads: which tiles of keys each block of query rows reads, in
 * which parts, and which thread takes them.
 *
 * A unit is a block of up to 96 rows: queries of a sequence, times the heads that share a KV head.
 * Where there are enough units for all threads, an item is a unit and goes through its parts in
 * order. Where there are few, an item is one part of a unit, and the parts are merged when all are
 * there. Both add up the same in the same order.
 */
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "attend__.h"
#include "numeric.h"

#define UNITS_ENOUGH     4u     /* for each thread */
#define DEVICE_SEQS_MAX  65535u /* of CUDA: a grid's y and z */
#define DEVICE_PARTS_MAX 65535u

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

struct run {
    const struct kvc_attention *a;
    const struct attend_isa *isa;
    uint64_t *unit_first; /* [seqs + 1] */
    uint32_t parts;       /* of a unit that are items; 1: all in one */
    uint32_t rows_max;
    float *kept; /* [units][parts], each attend_state's arrays; where parts > 1 */
};

/* A unit. Positions are those of tokens in the sequence. */
struct block {
    uint32_t s, kv_head;
    uint32_t dropped, tokens; /* of the sequence; those that were dropped count */
    uint32_t queries;
    uint32_t first, rows; /* of the sequence's queries * group */
    uint32_t from, to;    /* tokens that its rows see */
};

static uint32_t group_of(const struct kvc_attention *a)
{
    return a->heads / a->kv_heads;
}

static uint32_t attend_blocks_of(const struct kvc_attention *a, uint32_t s)
{
    const uint64_t rows = (uint64_t)(a->q_first[s + 1] - a->q_first[s]) * group_of(a);
    return (uint32_t)((rows + ATTEND_ROWS - 1) / ATTEND_ROWS);
}

static uint32_t attend_tokens_of(const struct kvc_attention *a, uint32_t s)
{
    uint32_t tokens = a->dropped ? a->dropped[s] : 0;
    for (uint32_t l = 0; l < a->lists; l++)
        tokens += attend__list_tokens(&a->list[l], s);
    return tokens;
}

/* The position of a row's query, and the first token that it sees. */
static uint32_t row_position(const struct kvc_attention *a, const struct block *b, uint32_t row)
{
    return b->tokens - b->queries + (b->first + row) / group_of(a);
}

static uint32_t row_from(const struct kvc_attention *a, uint32_t position)
{
    return a->window == 0 || position < a->window ? 0 : position - a->window + 1;
}

/* A row's place in q and out. */
static size_t row_offset(const struct kvc_attention *a, const struct block *b, uint32_t row)
{
    const uint32_t group = group_of(a), at = b->first + row;
    const size_t query = a->q_first[b->s] + at / group;
    return (query * a->heads + (size_t)b->kv_head * group + at % group) * a->head_size;
}

static struct block attend_block_of(const struct run *run, uint64_t unit)
{
    const struct kvc_attention *a = run->a;
    uint32_t s = 0, past = a->seqs;
    while (past - s > 1) {
        const uint32_t middle = s + (past - s) / 2;
        if (run->unit_first[middle] <= unit)
            s = middle;
        else
            past = middle;
    }
    const uint32_t blocks = attend_blocks_of(a, s);
    const uint32_t at = (uint32_t)(unit - run->unit_first[s]);
    struct block b = {.s = s,
                      .kv_head = at / blocks,
                      .dropped = a->dropped ? a->dropped[s] : 0,
                      .tokens = attend_tokens_of(a, s),
                      .queries = a->q_first[s + 1] - a->q_first[s],
                      .first = at % blocks * ATTEND_ROWS};
    b.rows = MIN(ATTEND_ROWS, b.queries * group_of(a) - b.first);
    b.from = MAX(b.dropped, row_from(a, row_position(a, &b, 0)));
    b.to = row_position(a, &b, b.rows - 1) + 1;
    return b;
}

/* ---- a tile ---- */

static void put_row(struct attend_rows *rows, uint32_t t, const struct kvc_plane *plane,
                    uint64_t offset, uint32_t bytes)
{
    rows->row[t] = (const char *)plane->base + offset;
    rows->type[t] = plane->type;
    rows->bytes[t] = bytes;
}

/* The rows of up to `n` listed tokens from `index` of a list on, all in one page; gives their
 * number. */
static uint32_t find_in_page(const struct kvc_attention *a, const struct block *b,
                             const struct kvc_paged *list, uint32_t index, uint32_t n,
                             struct attend_tile *tile, uint32_t t)
{
    const uint32_t offset = index % list->page_tokens;
    const uint64_t page = list->page[list->first[b->s] + index / list->page_tokens];
    const struct kvc_plane *k = &list->k, *v = &list->v;
    const uint64_t k_at = page * k->page_stride + b->kv_head * k->head_stride,
                   v_at = page * v->page_stride + b->kv_head * v->head_stride;
    const uint32_t k_bytes = kvc_row_bytes((enum kvc_type)k->type, a->head_size),
                   v_bytes = kvc_row_bytes((enum kvc_type)v->type, a->head_size);
    n = MIN(n, list->page_tokens - offset);
    for (uint32_t i = 0; i < n; i++) {
        put_row(&tile->k, t + i, k, k_at + (offset + i) * k->token_stride, k_bytes);
        put_row(&tile->v, t + i, v, v_at + (offset + i) * v->token_stride, v_bytes);
    }
    return n;
}

/* Where the tokens of the tile that begins at `begin` lie. */
static void tile_find(const struct kvc_attention *a, const struct block *b, uint32_t begin,
                      struct attend_tile *tile)
{
    static const float none[KVC_HEAD_SIZE_MAX];
    static const struct kvc_plane nowhere = {.base = none, .type = KVC_F32};
    const uint32_t from = MAX(begin, b->from), to = MIN(begin + KVC_TILE_TOKENS, b->to);
    for (uint32_t t = 0; t < KVC_TILE_TOKENS; t++) {
        if (begin + t < from || begin + t >= to) {
            put_row(&tile->k, t, &nowhere, 0, 0);
            put_row(&tile->v, t, &nowhere, 0, 0);
        }
    }
    uint32_t at = from, before = b->dropped;
    for (uint32_t l = 0; l < a->lists && at < to; l++) {
        const struct kvc_paged *list = &a->list[l];
        const uint32_t tokens = attend__list_tokens(list, b->s);
        while (at < to && at - before < tokens)
            at += find_in_page(a, b, list, at - before, MIN(to - at, tokens - (at - before)), tile,
                               at - begin);
        before += tokens;
    }
}

static uint32_t in_tile(uint32_t token, uint32_t begin)
{
    return token <= begin ? 0 : MIN(token - begin, KVC_TILE_TOKENS);
}

static void tile_attend(const struct run *run, const struct block *b, uint32_t begin,
                        const struct attend_tile *tile, const struct attend_tile *next,
                        struct attend_scratch *s, const struct attend_state *state)
{
    const struct kvc_attention *a = run->a;
    for (uint32_t r = 0; r < b->rows; r++) {
        const uint32_t position = row_position(a, b, r);
        s->from[r] = in_tile(MAX(row_from(a, position), b->dropped), begin);
        s->to[r] = in_tile(position + 1, begin);
    }
    run->isa->step(s, tile, next, b->rows, a->head_size, state);
}

/* ---- parts ---- */

static void state_clear(const struct attend_state *state, uint32_t rows, uint32_t head_size)
{
    memset(state->acc, 0, (size_t)rows * head_size * sizeof(float));
    for (uint32_t r = 0; r < rows; r++) {
        state->m[r] = -INFINITY;
        state->l[r] = 0;
    }
}

/* Tokens `from` to `to`, of one part. */
static void part_attend(const struct run *run, const struct block *b, uint32_t from, uint32_t to,
                        struct attend_scratch *s, const struct attend_state *state)
{
    state_clear(state, b->rows, run->a->head_size);
    uint32_t begin = from / KVC_TILE_TOKENS * KVC_TILE_TOKENS, i = 0;
    if (begin < to)
        tile_find(run->a, b, begin, &s->tile[0]);
    for (; begin < to; begin += KVC_TILE_TOKENS, i ^= 1) {
        tile_find(run->a, b, begin + KVC_TILE_TOKENS, &s->tile[i ^ 1]);
        tile_attend(run, b, begin, &s->tile[i], &s->tile[i ^ 1], s, state);
    }
}

/* A later part into the sum of those before it. */
static void merge_row(float *all, float *all_m, float *all_l, const float *part, float part_m,
                      float part_l, uint32_t head_size)
{
    if (!(part_l > 0))
        return;
    if (!(*all_l > 0)) {
        memcpy(all, part, head_size * sizeof(*all));
        *all_m = part_m;
        *all_l = part_l;
        return;
    }
    const float m = MAX(*all_m, part_m);
    const float old = exp_of(*all_m - m), new = exp_of(part_m - m);
    for (uint32_t i = 0; i < head_size; i++)
        all[i] = fmaf(part[i], new, all[i] * old);
    *all_l = fmaf(part_l, new, *all_l * old);
    *all_m = m;
}

static void attend_merge(const struct attend_state *all, const struct attend_state *part,
                         uint32_t rows, uint32_t head_size)
{
    for (uint32_t r = 0; r < rows; r++)
        merge_row(all->acc + (size_t)r * head_size, &all->m[r], &all->l[r],
                  part->acc + (size_t)r * head_size, part->m[r], part->l[r], head_size);
}

/* + 0 makes a positive zero of a negative one, which tokens that a row does not see may have left.
 */
static void write_out(const struct kvc_attention *a, const struct block *b,
                      const struct attend_state *all)
{
    for (uint32_t r = 0; r < b->rows; r++) {
        const float inverse = 1.0f / all->l[r];
        const float *acc = all->acc + (size_t)r * a->head_size;
        float *out = a->out + row_offset(a, b, r);
        for (uint32_t i = 0; i < a->head_size; i++)
            out[i] = fmaf(acc[i], inverse, 0.0f);
    }
}

static void read_q(const struct kvc_attention *a, const struct block *b, float *q)
{
    for (uint32_t r = 0; r < b->rows; r++) {
        const float *from = a->q + row_offset(a, b, r);
        for (uint32_t i = 0; i < a->head_size; i++)
            q[(size_t)r * a->head_size + i] = from[i] * a->scale;
    }
}

/* Where part i of a block begins. */
static uint32_t part_begin(const struct kvc_attention *a, uint32_t part)
{
    return part * a->split_tokens;
}

static struct attend_state kept_state(const struct run *run, uint64_t unit, uint32_t part)
{
    const size_t acc = (size_t)run->rows_max * run->a->head_size;
    const size_t floats = acc + 2 * (size_t)run->rows_max;
    float *at = run->kept + (unit * run->parts + part) * ((floats + 15) / 16 * 16);
    return (struct attend_state){at, at + acc, at + acc + run->rows_max};
}

static void item_unit(void *ctx, uint64_t unit, struct attend_scratch *s)
{
    const struct run *run = ctx;
    const struct kvc_attention *a = run->a;
    const struct block b = attend_block_of(run, unit);
    const struct attend_state part = {s->part_acc, s->part_m, s->part_l},
                              all = {s->all_acc, s->all_m, s->all_l};
    read_q(a, &b, s->q);
    if (a->split_tokens == 0) {
        part_attend(run, &b, b.from, b.to, s, &all);
    } else {
        state_clear(&all, b.rows, a->head_size);
        for (uint32_t i = b.from / a->split_tokens; part_begin(a, i) < b.to; i++) {
            part_attend(run, &b, MAX(b.from, part_begin(a, i)), MIN(b.to, part_begin(a, i + 1)), s,
                        &part);
            attend_merge(&all, &part, b.rows, a->head_size);
        }
    }
    write_out(a, &b, &all);
}

static void item_part(void *ctx, uint64_t item, struct attend_scratch *s)
{
    const struct run *run = ctx;
    const struct kvc_attention *a = run->a;
    const struct block b = attend_block_of(run, item / run->parts);
    const uint32_t part = (uint32_t)(item % run->parts);
    const struct attend_state state = kept_state(run, item / run->parts, part);
    read_q(a, &b, s->q);
    part_attend(run, &b, MAX(b.from, part_begin(a, part)), MIN(b.to, part_begin(a, part + 1)), s,
                &state);
}

static void item_merge(void *ctx, uint64_t unit, struct attend_scratch *s)
{
    const struct run *run = ctx;
    const struct block b = attend_block_of(run, unit);
    const struct attend_state all = kept_state(run, unit, 0);
    (void)s;
    for (uint32_t part = 1; part < run->parts; part++) {
        const struct attend_state next = kept_state(run, unit, part);
        attend_merge(&all, &next, b.rows, run->a->head_size);
    }
    write_out(run->a, &b, &all);
}

/* ---- a call ---- */

static uint32_t parts_max(const struct kvc_attention *a)
{
    uint32_t tokens = 0;
    for (uint32_t s = 0; s < a->seqs; s++)
        tokens = MAX(tokens, attend_tokens_of(a, s));
    const uint32_t rest =
        a->split_tokens > 0 && tokens % a->split_tokens > 0; /* no sum overflows */
    return a->split_tokens == 0 ? 1 : MAX(tokens / a->split_tokens + rest, 1u);
}

static uint64_t count_units(const struct kvc_attention *a, uint64_t *unit_first, uint32_t *ret_rows)
{
    uint64_t units = 0;
    uint32_t rows = 0;
    for (uint32_t s = 0; s < a->seqs; s++) {
        unit_first[s] = units;
        units += (uint64_t)attend_blocks_of(a, s) * a->kv_heads;
        rows = MAX(rows, (uint32_t)MIN(ATTEND_ROWS, (uint64_t)(a->q_first[s + 1] - a->q_first[s]) *
                                                        group_of(a)));
    }
    unit_first[a->seqs] = units;
    *ret_rows = rows;
    return units;
}

static int run_in(struct run *run, struct kvc_threads *threads)
{
    const struct kvc_attention *a = run->a;
    const size_t head = ((size_t)a->seqs + 8) / 8 * 64; /* unit_first, in multiples of 64 bytes */
    char *memory = attend__memory(threads, head);
    if (!memory)
        return -ENOMEM;
    run->unit_first = (uint64_t *)(void *)memory;
    const uint64_t units = count_units(a, run->unit_first, &run->rows_max);
    const uint32_t n = attend__threads(threads);
    run->parts = n > 1 && units < (uint64_t)n * UNITS_ENOUGH ? parts_max(a) : 1;
    if (run->parts <= 1) {
        run->parts = 1;
        attend__each(threads, units, item_unit, run);
        return 0;
    }
    const size_t state = ((size_t)run->rows_max * (a->head_size + 2) + 15) / 16 * 64;
    memory = attend__memory(threads, head + units * run->parts * state);
    if (!memory)
        return -ENOMEM;
    run->unit_first = (uint64_t *)(void *)memory;
    run->kept = (float *)(void *)(memory + head);
    (void)count_units(a, run->unit_first, &run->rows_max);
    attend__each(threads, units * run->parts, item_part, run);
    attend__each(threads, units, item_merge, run);
    return 0;
}

int attend__run(const struct attend_isa *isa, const struct kvc_attention *a,
                struct kvc_threads *threads, char why[KVC_WHY_BYTES])
{
    struct run run = {.a = a, .isa = isa};
    struct kvc_threads *own = NULL;
    int rc = attend__check(a, why);
    if (rc == 0 && !threads)
        rc = kvc_threads_create(1, &own);
    if (rc == 0)
        rc = run_in(&run, own ? own : threads);
    kvc_threads_destroy(&own);
    if (rc == -ENOMEM && why)
        memcpy(why, "out of memory", sizeof("out of memory"));
    return rc;
}

static const struct attend_isa *find_best(void)
{
#ifdef __x86_64__
    if (attend__avx512.is_here())
        return &attend__avx512;
    if (attend__avx2.is_here())
        return &attend__avx2;
#endif
    return &attend__plain;
}

/* Asked once: where the machine is a virtual one, it takes 50 us to ask. */
const struct attend_isa *attend__best(void)
{
    static const struct attend_isa *_Atomic best;
    const struct attend_isa *isa = atomic_load_explicit(&best, memory_order_relaxed);
    if (!isa) {
        isa = find_best();
        atomic_store_explicit(&best, isa, memory_order_relaxed);
    }
    return isa;
}

int kvc_attend_cpu(const struct kvc_attention *attention, struct kvc_threads *threads,
                   char ret_why[KVC_WHY_BYTES])
{
    return attend__run(attend__best(), attention, threads, ret_why);
}

const char *kvc_attend_cpu_name(void)
{
    return attend__best()->name;
}

/* ---- on a device ---- */

int kvc_attend_plan(const struct kvc_attention *a, uint32_t blocks,
                    struct kvc_attend_plan *ret_plan, char ret_why[KVC_WHY_BYTES])
{
    uint64_t rows = 0;
    const uint32_t each = attend_rows(a->head_size);
    const int rc = attend__check(a, ret_why);
    if (rc != 0)
        return rc;
    if (a->seqs > DEVICE_SEQS_MAX)
        return attend__refuse(ret_why, "%u sequences; a device takes up to %u", a->seqs,
                              DEVICE_SEQS_MAX);
    for (uint32_t s = 0; s < a->seqs; s++)
        rows = MAX(rows, (uint64_t)(a->q_first[s + 1] - a->q_first[s]) * group_of(a));
    const uint64_t x = (rows + each - 1) / each * a->kv_heads;
    if (x > INT32_MAX)
        return attend__refuse(ret_why,
                              "%ju rows of a sequence and KV head are too many for a device",
                              (uintmax_t)rows);
    const uint32_t parts = parts_max(a);
    if (parts > DEVICE_PARTS_MAX)
        return attend__refuse(ret_why, "%u parts of a sequence; a device takes up to %u", parts,
                              DEVICE_PARTS_MAX);
    /* All parts of a unit in one block, or each in its own: in between they would be merged in
     * another order, which changes bits. */
    const uint32_t y = x * a->seqs < blocks ? MAX(parts, 1) : 1;
    *ret_plan = (struct kvc_attend_plan){.x = (uint32_t)x,
                                         .y = y,
                                         .z = a->seqs,
                                         .parts = parts,
                                         .work_bytes = x * y * a->seqs * KVC_ATTEND_ROWS *
                                                       (a->head_size + 2) * sizeof(float)};
    return 0;
}
