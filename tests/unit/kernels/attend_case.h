/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random problems of attention: what they are (values of tokens), apart from how they lie in memory
 * (pages, strides, lists), and what the result is, in double precision.
 */
#ifndef TESTS_ATTEND_CASE_H
#define TESTS_ATTEND_CASE_H

#include <kvcache/attention.h>

#define CASE_SEQS 4u

static inline uint32_t case_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

/* Below n. */
static inline uint32_t case_below(uint64_t *state, uint32_t n)
{
    return case_random(state) % n;
}

/* About normal, mean 0 and deviation 1. */
float case_normal(uint64_t *state);

/* Tokens before exact_from have the types k_old, v_old, the others k_new, v_new. Sizes are set by
 * the test or by case_choose(); case_fill() makes the values. */
struct attend_case {
    uint32_t seqs, heads, kv_heads, head_size, window, split_tokens;
    uint32_t tokens[CASE_SEQS], queries[CASE_SEQS], exact_from[CASE_SEQS];
    uint32_t k_old, v_old, k_new, v_new;
    float *k[CASE_SEQS], *v[CASE_SEQS]; /* [tokens][kv_heads][head_size] */
    float *q;                           /* [queries][heads][head_size] */
    uint32_t all_queries;
};

/* Sizes and types at random, small ones. */
void case_choose(struct attend_case *c, uint64_t *random);
void case_fill(struct attend_case *c, uint64_t *random);
void case_free(struct attend_case *c);
/* Results, [queries][heads][head_size], of what is left of K and V in their types; owned. */
double *case_expected(const struct attend_case *c);

/*
 * A case in memory: pages of any number of tokens in any order, K and V together or apart, token or
 * head first, tokens in any lists that the types allow. What no token has is filled with bytes that
 * are no numbers; all memory is exactly as long as it must be.
 */
struct attend_laid {
    struct kvc_attention a;
    void *pages[2 * KVC_LISTS_MAX];
    size_t page_bytes[2 * KVC_LISTS_MAX];
    uint32_t *numbers[3 * KVC_LISTS_MAX], *q_first, *dropped;
    float *out;
    size_t out_bytes;
};

/* page_tokens 0: at random. drop: tokens that no window reaches are left out, in whole. */
void case_lay(const struct attend_case *c, uint32_t page_tokens, int drop, uint64_t *random,
              struct attend_laid *ret);
void laid_free(struct attend_laid *l);

/* The CPU's result, owned; the case's own is bytes that are no numbers again. */
float *laid_twin(struct attend_laid *l);
/* The case's result is that, bit for bit. */
void laid_assert_bits(const struct attend_laid *l, const float *twin, uint64_t seed);

#endif
