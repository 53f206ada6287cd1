/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on the CPU: against double precision, and against itself, bit for bit. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attend__.h"
#include "attend_case.h"
#include "cases.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

static const struct attend_isa *const isas[] = {&attend__plain,
#ifdef __x86_64__
                                                &attend__avx2, &attend__avx512
#endif
};

static void must_run(const struct attend_isa *isa, const struct kvc_attention *a,
                     struct kvc_threads *threads)
{
    char why[KVC_WHY_BYTES] = "";
    ck_assert_msg(attend__run(isa, a, threads, why) == 0, "%s", why);
}

static struct kvc_threads *threads_of(uint32_t n)
{
    struct kvc_threads *threads = NULL;
    ck_assert_int_eq(kvc_threads_create(n, &threads), 0);
    return threads;
}

/* A case in one order of memory or another, as attended to by an instruction set; owned. */
static float *result_of(const struct attend_case *c, const struct attend_isa *isa,
                        struct kvc_threads *threads, uint32_t page_tokens, int drop, uint64_t seed)
{
    struct attend_laid laid;
    case_lay(c, page_tokens, drop, &seed, &laid);
    must_run(isa, &laid.a, threads);
    float *out = laid.out;
    laid.out = NULL;
    laid_free(&laid);
    return out;
}

static size_t floats_of(const struct attend_case *c)
{
    return (size_t)c->all_queries * c->heads * c->head_size;
}

static void assert_same(const float *a, const float *b, size_t n, uint64_t seed, const char *what)
{
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(memcmp(&a[i], &b[i], sizeof(a[i])) == 0,
                      "%s: value %zu is %.9g, not %.9g (seed %ju)", what, i, (double)b[i],
                      (double)a[i], (uintmax_t)seed);
}

static void assert_close(const float *out, const double *expected, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(fabs((double)out[i] - expected[i]) < 4e-6,
                      "value %zu is %.9g, not %.9g (seed %ju)", i, (double)out[i], expected[i],
                      (uintmax_t)seed);
}

/* ---- the result ---- */

CASES(.left_out = CHECK_THREADS_ONLY);

CASE(equal_keys_give_the_mean_of_the_values)
{
    float k[5 * 16], v[5 * 16], q[16], out[16];
    const uint32_t page[] = {0}, first[] = {0, 1}, last[] = {5}, q_first[] = {0, 1};
    for (int i = 0; i < 5 * 16; i++) {
        k[i] = 0.25f;
        v[i] = (float)(i / 16 * 16 + i % 16);
    }
    for (int i = 0; i < 16; i++)
        q[i] = (float)i;
    const struct kvc_plane keys = {k, 0, 16 * sizeof(float), 0, KVC_F32},
                           values = {v, 0, 16 * sizeof(float), 0, KVC_F32};
    const struct kvc_attention a = {.seqs = 1,
                                    .heads = 1,
                                    .kv_heads = 1,
                                    .head_size = 16,
                                    .scale = 0.25f,
                                    .lists = 1,
                                    .list = {{keys, values, 5, 1, page, first, last}},
                                    .q_first = q_first,
                                    .q = q,
                                    .out = out};
    ck_assert_int_eq(kvc_attend_cpu(&a, NULL, NULL), 0);
    for (int i = 0; i < 16; i++)
        ck_assert_float_eq_tol(out[i], (float)(32 + i), 1e-4f);
}

CASE(results_are_those_of_double_precision)
{
    struct kvc_threads *threads = threads_of(2);
    for (uint64_t seed = 1; seed <= CHECK_SHARE(60); seed++) {
        uint64_t random = seed;
        struct attend_case c;
        case_choose(&c, &random);
        case_fill(&c, &random);
        double *expected = case_expected(&c);
        float *out = result_of(&c, attend__best(), seed % 2 ? threads : NULL, 0, 0, seed);
        assert_close(out, expected, floats_of(&c), seed);
        free(out);
        free(expected);
        case_free(&c);
    }
    kvc_threads_destroy(&threads);
}

CASE_EACH(every_type_is_read, KVC_TYPES)
{
    const uint32_t type = (uint32_t)_i;
    for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
        if (!isas[i]->is_here())
            continue;
        uint64_t random = 7;
        struct attend_case c;
        case_choose(&c, &random);
        c.head_size = 64;
        c.k_old = c.v_new = type;
        c.v_old = c.k_new = (type + 1) % KVC_TYPES;
        case_fill(&c, &random);
        double *expected = case_expected(&c);
        float *out = result_of(&c, isas[i], NULL, 0, 0, 7);
        assert_close(out, expected, floats_of(&c), 7);
        free(out);
        free(expected);
        case_free(&c);
    }
}

/* ---- the same bits ---- */

CASE(instruction_sets_give_the_same_bits)
{
    for (uint64_t seed = 1; seed <= CHECK_SHARE(30); seed++) {
        uint64_t random = seed;
        struct attend_case c;
        case_choose(&c, &random);
        case_fill(&c, &random);
        float *plain = result_of(&c, &attend__plain, NULL, 0, 0, seed);
        for (size_t i = 1; i < ARRAY_LEN(isas); i++) {
            if (!isas[i]->is_here())
                continue;
            float *out = result_of(&c, isas[i], NULL, 0, 0, seed);
            assert_same(plain, out, floats_of(&c), seed, isas[i]->name);
            free(out);
        }
        free(plain);
        case_free(&c);
    }
}

CASE(where_tokens_lie_changes_no_bit)
{
    static const uint32_t page_tokens[] = {1, 2, 5, 16, 63, 64, 65, 1024, KVC_PAGE_TOKENS_MAX};
    for (uint64_t seed = 100; seed < 100 + CHECK_SHARE(6); seed++) {
        uint64_t random = seed;
        struct attend_case c;
        case_choose(&c, &random);
        c.seqs = c.seqs > 2 ? 2 : c.seqs; /* the largest page takes 64 MiB */
        c.kv_heads = c.heads = 1;
        c.head_size = 32;
        case_fill(&c, &random);
        float *first = result_of(&c, attend__best(), NULL, 0, 0, seed);
        for (size_t i = 0; i < ARRAY_LEN(page_tokens); i++) {
            float *out =
                result_of(&c, attend__best(), NULL, page_tokens[i], (int)(i % 2), seed + i + 1);
            assert_same(first, out, floats_of(&c), seed, "another page size");
            free(out);
        }
        free(first);
        case_free(&c);
    }
}

/* The queries of a case's sequence 0 from `from` to `to` - 1, as they are when the sequence had no
 * more tokens. */
static struct attend_case chunk_of(const struct attend_case *c, uint32_t from, uint32_t to)
{
    struct attend_case chunk = *c;
    const uint32_t before = c->tokens[0] - c->queries[0];
    chunk.tokens[0] = before + to;
    chunk.queries[0] = chunk.all_queries = to - from;
    if (chunk.exact_from[0] > chunk.tokens[0])
        chunk.exact_from[0] = chunk.tokens[0];
    chunk.q = c->q + (size_t)from * c->heads * c->head_size;
    return chunk;
}

CASE(chunks_change_no_bit)
{
    for (uint64_t seed = 200; seed < 200 + CHECK_SHARE(30); seed++) {
        uint64_t random = seed;
        struct attend_case c;
        case_choose(&c, &random);
        c.seqs = 1;
        c.queries[0] = 1 + case_below(&random, c.tokens[0]);
        case_fill(&c, &random);
        float *whole = result_of(&c, attend__best(), NULL, 0, 0, seed);
        for (uint32_t at = 0; at < c.queries[0];) {
            const uint32_t left = c.queries[0] - at;
            const uint32_t n = seed % 3 == 0 ? 1 : 1 + case_below(&random, left);
            const struct attend_case chunk = chunk_of(&c, at, at + n);
            float *out = result_of(&chunk, attend__best(), NULL, 0, 0, seed + at);
            assert_same(whole + (size_t)at * c.heads * c.head_size, out, floats_of(&chunk), seed,
                        "a chunk");
            free(out);
            at += n;
        }
        free(whole);
        case_free(&c);
    }
}

CASES();

CASE(threads_change_no_bit)
{
    for (uint64_t seed = 300; seed < 300 + CHECK_SHARE(20); seed++) {
        uint64_t random = seed;
        struct attend_case c;
        case_choose(&c, &random);
        c.seqs = 1 + (uint32_t)(seed % 2);
        c.kv_heads = c.heads = 1;
        c.split_tokens = KVC_TILE_TOKENS * (uint32_t)(1 + seed % 3);
        case_fill(&c, &random);
        float *alone = result_of(&c, attend__best(), NULL, 0, 0, seed);
        for (uint32_t n = 2; n <= 5; n++) {
            struct kvc_threads *threads = threads_of(n);
            for (int again = 0; again < 3; again++) {
                float *out = result_of(&c, attend__best(), threads, 0, 0, seed);
                assert_same(alone, out, floats_of(&c), seed, "threads");
                free(out);
            }
            kvc_threads_destroy(&threads);
            ck_assert_ptr_null(threads);
        }
        free(alone);
        case_free(&c);
    }
}

CASES(.left_out = CHECK_THREADS_ONLY);

CASE(others_in_the_batch_change_no_bit)
{
    uint64_t random = 11;
    struct attend_case c;
    do {
        case_choose(&c, &random);
    } while (c.seqs < 3 || c.queries[0] == 0);
    case_fill(&c, &random);
    float *all = result_of(&c, attend__best(), NULL, 0, 0, 11);
    struct attend_case one = c;
    one.seqs = 1;
    one.all_queries = c.queries[0];
    float *alone = result_of(&one, attend__best(), NULL, 0, 0, 12);
    assert_same(all, alone, floats_of(&one), 11, "alone");
    free(alone);
    free(all);
    case_free(&c);
}

/* Tokens that no window reaches may have gone. */
CASE(dropped_tokens_change_no_bit)
{
    uint32_t dropped = 0;
    for (uint64_t seed = 400; seed < 420; seed++) {
        uint64_t random = seed;
        struct attend_case c;
        case_choose(&c, &random);
        c.window = 1 + case_below(&random, 90);
        case_fill(&c, &random);
        for (uint32_t s = 0; s < c.seqs; s++)
            dropped += c.tokens[s] - c.queries[s] >= c.window;
        float *kept = result_of(&c, attend__best(), NULL, 0, 0, seed);
        float *out = result_of(&c, attend__best(), NULL, 0, 1, seed + 1);
        assert_same(kept, out, floats_of(&c), seed, "dropped");
        free(out);
        free(kept);
        case_free(&c);
    }
    ck_assert_uint_gt(dropped, 0);
}

CASE(nothing_but_out_is_written)
{
    uint64_t random = 5, seed = 5;
    struct attend_case c;
    struct attend_laid laid, copy;
    case_choose(&c, &random);
    case_fill(&c, &random);
    case_lay(&c, 0, 0, &seed, &laid);
    seed = 5;
    case_lay(&c, 0, 0, &seed, &copy);
    must_run(attend__best(), &laid.a, NULL);
    for (size_t i = 0; i < ARRAY_LEN(laid.pages); i++)
        ck_assert_mem_eq(laid.pages[i], copy.pages[i], laid.page_bytes[i]);
    laid_free(&copy);
    laid_free(&laid);
    case_free(&c);
}

CASE(no_queries_is_no_work)
{
    uint64_t random = 6, seed = 6;
    struct attend_case c;
    struct attend_laid laid;
    case_choose(&c, &random);
    memset(c.queries, 0, sizeof(c.queries));
    case_fill(&c, &random);
    case_lay(&c, 0, 0, &seed, &laid);
    must_run(attend__best(), &laid.a, NULL);
    laid.a.seqs = 0;
    must_run(attend__best(), &laid.a, NULL);
    laid_free(&laid);
    case_free(&c);
}

/* ---- refusals ---- */

static struct kvc_attention *bad; /* list 0 has all tokens of the only sequence */
static uint32_t bad_first[] = {0, 3}, bad_page[] = {0, 1, 2}, bad_last[] = {4},
                bad_q_first[] = {0, 2}, bad_dropped[] = {9};

static void of_heads(void)
{
    bad->heads = 3;
}
static void of_head_size(void)
{
    bad->head_size = 24;
}
static void of_scale(void)
{
    bad->scale = NAN;
}
static void of_split(void)
{
    bad->split_tokens = 100;
}
static void of_lists(void)
{
    bad->lists = 5;
}
static void of_page_tokens(void)
{
    bad->list[0].page_tokens = 65537;
}
static void of_type(void)
{
    bad->list[0].v.type = 7;
}
static void of_row(void)
{
    bad->list[0].k.type = KVC_Q8_0;
}
static void of_alignment(void)
{
    bad->list[0].v.token_stride = 66;
}
static void of_page_order(void)
{
    bad_first[0] = 4;
}
static void of_last(void)
{
    bad_last[0] = 5;
}
static void of_page(void)
{
    bad_page[1] = 3;
}
static void of_queries(void)
{
    bad_q_first[1] = 13;
}
static void of_query_order(void)
{
    bad_q_first[0] = 3;
}
static void of_tokens(void)
{
    bad->window = 1;
    bad_dropped[0] = 1u << 30;
    bad->dropped = bad_dropped;
}
static void of_dropped(void)
{
    bad->dropped = bad_dropped;
}
static void of_window(void)
{
    bad->window = 12;
    bad->dropped = bad_dropped;
}

static const struct {
    void (*spoil)(void);
    const char *why;
} refusals[] = {{of_heads, "3 heads do not share 2 KV heads evenly"},
                {of_head_size, "head size 24; a multiple of 16 up to 512"},
                {of_scale, "the scale is not finite"},
                {of_split, "split_tokens is 100; a multiple of 64, or 0"},
                {of_lists, "5 lists; 1 to 4"},
                {of_page_tokens, "list 0: pages of 65537 tokens; 1 to 65536"},
                {of_type, "list 0: V has type 7; types are 0 to 6"},
                {of_row, "list 0: K in q8_0 needs a head size that is a multiple of 32, not 16"},
                {of_alignment, "list 0: base and strides of V in fp32 must be multiples of 4"},
                {of_page_order, "list 0, sequence 0: its pages begin at 4 and end at 3"},
                {of_last, "list 0, sequence 0: 5 tokens in the last page; 1 to 4"},
                {of_page, "list 0, sequence 0: page 1 is 3, and there are 3"},
                {of_queries, "sequence 0: 13 queries and 12 tokens; a query's own token is listed"},
                {of_query_order, "sequence 0: its queries begin at 3 and end at 2"},
                {of_tokens, "sequence 0: more than 2^30 tokens"},
                {of_dropped, "sequence 0: 9 tokens are dropped that a query's window reaches"},
                {of_window, "sequence 0: 9 tokens are dropped that a query's window reaches"}};

CASES();

CASE_EACH(what_is_refused_is_named, ARRAY_LEN(refusals))
{
    char why[KVC_WHY_BYTES] = "";
    float kv[12 * 2 * 16] = {0}, q[2 * 2 * 16] = {0}, out[2 * 2 * 16] = {0};
    const struct kvc_plane plane = {kv, 4 * 128, 128, 64, KVC_F32};
    struct kvc_attention a = {.seqs = 1,
                              .heads = 2,
                              .kv_heads = 2,
                              .head_size = 16,
                              .scale = 0.25f,
                              .lists = 1,
                              .list = {{plane, plane, 4, 3, bad_page, bad_first, bad_last}},
                              .q_first = bad_q_first,
                              .q = q,
                              .out = out};
    bad = &a;
    must_run(attend__best(), &a, NULL);
    refusals[_i].spoil();
    memset(out, 0x55, sizeof(out));
    ck_assert_int_eq(kvc_attend_cpu(&a, NULL, why), -EINVAL);
    ck_assert_str_eq(why, refusals[_i].why);
    ck_assert_int_eq(kvc_attend_cpu(&a, NULL, NULL), -EINVAL);
    for (size_t i = 0; i < sizeof(out); i++)
        ck_assert_uint_eq(((unsigned char *)out)[i], 0x55);
}

/* The largest window that does not reach what was dropped is taken. */
CASE(a_window_up_to_what_was_dropped_is_taken)
{
    float kv[12 * 16] = {0}, q[2 * 16] = {0}, out[2 * 16];
    const struct kvc_plane plane = {kv, 4 * 64, 64, 0, KVC_F32};
    struct kvc_attention a = {.seqs = 1,
                              .heads = 1,
                              .kv_heads = 1,
                              .head_size = 16,
                              .scale = 0.25f,
                              .window = 11,
                              .lists = 1,
                              .list = {{plane, plane, 4, 3, bad_page, bad_first, bad_last}},
                              .dropped = bad_dropped,
                              .q_first = bad_q_first,
                              .q = q,
                              .out = out};
    must_run(attend__best(), &a, NULL);
}

CASE(threads_are_1_to_1024)
{
    struct kvc_threads *threads = NULL;
    ck_assert_int_eq(kvc_threads_create(0, &threads), -EINVAL);
    ck_assert_int_eq(kvc_threads_create(1025, &threads), -EINVAL);
    ck_assert_ptr_null(threads);
    kvc_threads_destroy(&threads);
}
