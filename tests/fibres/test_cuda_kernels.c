/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA kernels, run on fibres with random grids: they give the bits of their CPU twins. */
#include <kvcache/attention.h>
#include <kvcache/kernels.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attend_case.h"
#include "cases.h"
#include "fibres.h"

static unsigned warps_of(uint64_t *random)
{
    return 32 << case_below(random, 5);
}

static void *memory(size_t bytes)
{
    void *at = aligned_alloc(64, (bytes + 63) / 64 * 64);
    ck_assert_ptr_nonnull(at);
    return at;
}

static void fill(uint8_t *at, size_t bytes, uint64_t *random)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)case_random(random);
}

/* ---- fragments ---- */

#define FRAGS_BYTES (256u << 10)
#define FRAGS_MAX   200u

/* Fragments with all alignments, sizes from 1 byte on, none over another. */
static uint32_t make_frags(struct kvc_frag *list, uint8_t *to, const uint8_t *from,
                           uint64_t *random)
{
    uint64_t at = case_below(random, 64);
    uint32_t n = 0;
    for (; n < FRAGS_MAX; n++) {
        const uint64_t alignment = UINT64_C(1) << case_below(random, 6);
        const uint64_t bytes = 1 + case_below(random, case_below(random, 3) ? 9000 : 300);
        at = (at + alignment - 1) / alignment * alignment;
        if (at + bytes > FRAGS_BYTES)
            break;
        const uint64_t source = case_below(random, FRAGS_BYTES - (uint32_t)bytes);
        list[n] = (struct kvc_frag){(uintptr_t)to + at,
                                    (uintptr_t)from + source / alignment * alignment, bytes};
        at += bytes + case_below(random, 40);
    }
    return n;
}

CASE(fragments_are_those_of_the_twin)
{
    uint8_t *from = memory(FRAGS_BYTES), *to = memory(FRAGS_BYTES), *twin = memory(FRAGS_BYTES);
    for (uint64_t seed = 1; seed <= CHECK_SHARE(30); seed++) {
        uint64_t random = seed;
        struct kvc_frag list[FRAGS_MAX];
        const struct kvc_frag *arg = list;
        fill(from, FRAGS_BYTES, &random);
        memset(to, 0xee, FRAGS_BYTES);
        memset(twin, 0xee, FRAGS_BYTES);
        uint32_t n = make_frags(list, to, from, &random);
        const unsigned grid[3] = {1 + case_below(&random, 8), 1, 1},
                       block[3] = {warps_of(&random), 1, 1};
        void *args[] = {&arg, &n};
        fibres_run("kvc_copy_frags", grid, block, seed % 2, args);
        for (uint32_t i = 0; i < n; i++)
            list[i].to = list[i].to - (uintptr_t)to + (uintptr_t)twin;
        kvc_copy_frags_cpu(list, n);
        ck_assert_msg(memcmp(to, twin, FRAGS_BYTES) == 0, "seed %ju", (uintmax_t)seed);
    }
    free(twin);
    free(to);
    free(from);
}

CASE(sums_are_those_of_the_twin)
{
    for (uint64_t seed = 1; seed <= CHECK_SHARE(20); seed++) {
        uint64_t random = seed, words = 4 * UINT64_C(1) * (1 + case_below(&random, 20000));
        uint32_t *kv = memory(words * sizeof(*kv)), sum = 5, twin = 5, *ret = &sum;
        fill((uint8_t *)kv, words * sizeof(*kv), &random);
        const unsigned grid[3] = {1 + case_below(&random, 8), 1, 1},
                       block[3] = {warps_of(&random), 1, 1};
        void *args[] = {&kv, &words, &ret};
        fibres_run("kvc_decode", grid, block, seed % 2, args);
        kvc_decode_cpu(kv, words, &twin);
        ck_assert_uint_eq(sum, twin);
        free(kv);
    }
}

/* ---- attention ---- */

static void attend(struct kvc_attention *a, uint32_t blocks, bool backwards)
{
    char why[KVC_WHY_BYTES] = "";
    struct kvc_attend_plan plan;
    ck_assert_msg(kvc_attend_plan(a, blocks, &plan, why) == 0, "%s", why);
    ck_assert_uint_le(plan.y, plan.parts);
    float *work = malloc(plan.work_bytes + 1); /* for its end: exactly so much */
    ck_assert_ptr_nonnull(work);
    memset(work, 0xff, plan.work_bytes);
    const unsigned grid[3] = {plan.x, plan.y, plan.z}, merge[3] = {plan.x, KVC_ATTEND_ROWS, plan.z},
                   block[3] = {KVC_ATTEND_THREADS, 1, 1},
                   merge_block[3] = {KVC_ATTEND_MERGE_THREADS, 1, 1};
    void *args[] = {a, &plan.parts, &work}, *merge_args[] = {a, &plan.y, &work};
    fibres_run("kvc_attend", grid, block, backwards, args);
    fibres_run("kvc_attend_merge", merge, merge_block, backwards, merge_args);
    free(work);
}

static void assert_close(const float *out, const double *expected, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(fabs((double)out[i] - expected[i]) < 4e-6,
                      "value %zu is %.9g, not %.9g (seed %ju)", i, (double)out[i], expected[i],
                      (uintmax_t)seed);
}

/* Frees the case. */
static void attend_as_twin(struct attend_case *c, uint32_t page_tokens, uint64_t seed,
                           uint64_t *random)
{
    struct attend_laid laid;
    case_fill(c, random);
    case_lay(c, page_tokens, (int)(seed % 2), random, &laid);
    const size_t floats = (size_t)c->all_queries * c->heads * c->head_size;
    float *twin = laid_twin(&laid);
    attend(&laid.a, 1 + case_below(random, 40), case_below(random, 2));
    laid_assert_bits(&laid, twin, seed);
    if (seed % 3 == 0) {
        double *expected = case_expected(c);
        assert_close(laid.out, expected, floats, seed);
        free(expected);
    }
    free(twin);
    laid_free(&laid);
    case_free(c);
}

static void one_attention(uint64_t seed)
{
    uint64_t random = seed;
    struct attend_case c;
    case_choose(&c, &random);
    attend_as_twin(&c, 0, seed, &random);
}

CASE_EACH(attention_is_the_twins, CHECK_SHARE(8))
{
    for (uint64_t seed = 1; seed <= CHECK_SHARE(6); seed++)
        one_attention(seed + 1000 * (uint64_t)_i);
}

/* As models have them: whole stages of one type, 1 to 8 rows of a KV head, one query or a chunk. */
CASE_EACH(each_type_is_the_twins, KVC_TYPES)
{
    static const uint32_t sizes[] = {64, 128, 192, 256}, groups[] = {1, 2, 4, 8};
    for (uint64_t seed = 0; seed < CHECK_SHARE(12); seed++) {
        uint64_t random = 100 * seed + (uint64_t)_i;
        const uint32_t type = (uint32_t)_i;
        struct attend_case c = {.seqs = 1,
                                .heads = groups[seed % 4],
                                .kv_heads = 1,
                                .head_size = sizes[(seed + seed / 4) % 4],
                                .split_tokens = seed % 2 ? KVC_TILE_TOKENS : 0,
                                .tokens = {100 + case_below(&random, 60)},
                                .queries = {seed % 3 ? 1 : 5},
                                .k_old = type,
                                .v_old = type,
                                .k_new = type,
                                .v_new = type};
        attend_as_twin(&c, 16, seed, &random);
    }
}

CASE(what_a_device_cannot_take_is_named)
{
    char why[KVC_WHY_BYTES];
    struct kvc_attend_plan plan;
    struct kvc_attention a = {.seqs = 1, .heads = 3, .kv_heads = 2, .head_size = 16};
    ck_assert_int_lt(kvc_attend_plan(&a, 1, &plan, why), 0);
    ck_assert_str_eq(why, "3 heads do not share 2 KV heads evenly");
    const uint32_t seqs = 65536;
    uint32_t *zeros = calloc(seqs + 1, sizeof(*zeros));
    ck_assert_ptr_nonnull(zeros);
    a = (struct kvc_attention){.seqs = seqs,
                               .heads = 1,
                               .kv_heads = 1,
                               .head_size = 16,
                               .scale = 1,
                               .lists = 1,
                               .list = {{.page_tokens = 1, .first = zeros}},
                               .q_first = zeros};
    ck_assert_int_lt(kvc_attend_plan(&a, 1, &plan, why), 0);
    ck_assert_str_eq(why, "65536 sequences; a device takes up to 65535");
    a.seqs = 65535;
    ck_assert_int_eq(kvc_attend_plan(&a, 1, &plan, why), 0);
    ck_assert_uint_eq(plan.x, 0);
    a.split_tokens = UINT32_MAX - 63; /* so long a part is the whole */
    const uint32_t ends[2] = {0, 100}, last = 1;
    a.seqs = 1;
    a.list[0].first = a.q_first = ends;
    a.list[0].last_tokens = &last;
    a.list[0].page = zeros;
    a.list[0].pages = 1;
    ck_assert_msg(kvc_attend_plan(&a, 1, &plan, why) == 0, "%s", why);
    ck_assert_uint_eq(plan.parts, 1);
    free(zeros);
}

/* ---- rows ---- */

CASE_EACH(rows_are_those_of_the_twin, KVC_TYPES)
{
    for (uint64_t seed = 1; seed <= CHECK_SHARE(40); seed++) {
        uint64_t random = seed * 7 + (uint64_t)_i;
        const uint32_t type = (uint32_t)_i, n = 32 * (1 + case_below(&random, 8));
        const uint64_t rows = 1 + case_below(&random, 20);
        const uint64_t stride = (kvc_row_bytes((enum kvc_type)type, n) + 7) / 4 * 4;
        float *x = memory(rows * n * sizeof(float)), *y = memory(rows * n * sizeof(float)),
              *z = memory(rows * n * sizeof(float));
        uint8_t *kept = memory(rows * stride), *twin = memory(rows * stride);
        for (uint64_t i = 0; i < rows * n; i++)
            x[i] = case_below(&random, 4) ? case_normal(&random) : 0;
        for (uint32_t i = 0; i < 64 && i < n; i++) /* equals with both signs, and nothing at all */
            x[i] = i < 32 ? (i % 2 ? -1.5f : 1.5f) : -0.0f;
        memset(kept, 0xee, rows * stride);
        memset(twin, 0xee, rows * stride);
        struct kvc_rows down = {type, n, rows, x, n * sizeof(float), kept, stride},
                        up = {type, n, rows, kept, stride, y, n * sizeof(float)};
        const unsigned grid[3] = {1 + case_below(&random, 3), 1, 1},
                       block[3] = {warps_of(&random), 1, 1};
        void *down_args[] = {&down}, *up_args[] = {&up};
        fibres_run("kvc_quantise_rows", grid, block, seed % 2, down_args);
        ck_assert_int_eq(
            kvc_quantise((enum kvc_type)type, n, rows, x, n * sizeof(float), twin, stride, NULL),
            0);
        ck_assert_msg(memcmp(kept, twin, rows * stride) == 0, "seed %ju", (uintmax_t)seed);
        fibres_run("kvc_dequantise_rows", grid, block, seed % 2, up_args);
        ck_assert_int_eq(
            kvc_dequantise((enum kvc_type)type, n, rows, twin, stride, z, n * sizeof(float), NULL),
            0);
        ck_assert_msg(memcmp(y, z, rows * n * sizeof(float)) == 0, "seed %ju", (uintmax_t)seed);
        free(twin);
        free(kept);
        free(z);
        free(y);
        free(x);
    }
}
