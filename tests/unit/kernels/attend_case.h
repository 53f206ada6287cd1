/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random problems of attention: the values of tokens, their layout in memory (pages, strides,
 * lists), and the result in double precision.
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

/* A random number below n. */
static inline uint32_t case_below(uint64_t *state, uint32_t n)
{
    return case_random(state) % n;
}

/* A random number, about normal, with mean 0 and deviation 1. */
float case_normal(uint64_t *state);

/* Tokens before exact_from have the types k_old and v_old, the others k_new and v_new. The test or
 * case_choose() sets the sizes; case_fill() makes the values. */
struct attend_case {
    uint32_t seqs, heads, kv_heads, head_size, window, split_tokens;
    uint32_t tokens[CASE_SEQS], queries[CASE_SEQS], exact_from[CASE_SEQS];
    uint32_t k_old, v_old, k_new, v_new;
    float *k[CASE_SEQS], *v[CASE_SEQS]; /* [tokens][kv_heads][head_size] */
    float *q;                           /* [queries][heads][head_size] */
    uint32_t all_queries;
};

/* Chooses small random sizes and random types. */
void case_choose(struct attend_case *c, uint64_t *random);
void case_fill(struct attend_case *c, uint64_t *random);
void case_free(struct attend_case *c);
/* The expected results [queries][heads][head_size], from K and V as their types keep them. The
 * caller frees them. */
double *case_expected(const struct attend_case *c);

/*
 * A case laid out in memory: pages of any number of tokens in any order, K and V together or apart,
 * token or head first, tokens in any lists that the types allow. Bytes that no token has are no
 * numbers; every allocation is exactly as long as it must be.
 */
struct attend_laid {
    struct kvc_attention a;
    void *pages[2 * KVC_LISTS_MAX];
    size_t page_bytes[2 * KVC_LISTS_MAX];
    uint32_t *numbers[3 * KVC_LISTS_MAX], *q_first, *dropped;
    float *out;
    size_t out_bytes;
};

/* page_tokens 0: random. drop: whole pages of tokens that no window reaches are left out. */
void case_lay(const struct attend_case *c, uint32_t page_tokens, int drop, uint64_t *random,
              struct attend_laid *ret);
void laid_free(struct attend_laid *l);

/* Runs the CPU's attention. The caller frees the result; the case's own result is overwritten with
 * bytes that are no numbers. */
float *laid_twin(struct attend_laid *l);
/* Checks that the case's result equals `twin` bit for bit. */
void laid_assert_bits(const struct attend_laid *l, const float *twin, uint64_t seed);

#endif
