/* SPDX-License-Identifier: Apache-2.0 */
/* The cache strategies of kvcache-worker without a daemon: the logits of each are those of
 * recomputation, and memory is what the strategy says. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "cases.h"

static char why[MODEL_WHY_BYTES];
static const uint32_t blocks[] = {2, 8, 16, 64, 1024};
/* The last two keep these bits with fp32 alone. */
static const struct kv_strategy *const kept[] = {&kv_static, &kv_doubling, &kv_paged, &kv_hidden,
                                                 &kv_quantised};
#define KEPT (sizeof(kept) / sizeof(kept[0]))

/* ---- bits ---- */

CASES(.setup = bits_begin, .teardown = bits_end);

CASE(a_prefix_computed_in_pieces_is_the_same_bits)
{
    static uint32_t token[400];
    float all[BITS_VOCAB], logits[BITS_VOCAB];
    bits_tokens(token, 400);
    for (uint32_t round = 0; round < 60; round++) {
        const struct bits_setup setup = {
            .strategy = kept[round % KEPT], .block = blocks[round / KEPT % 5], .exact = 20};
        const uint32_t n = 2 + bits_below(398), cut = 1 + bits_below(n - 1);
        struct sequence seq;
        bits_recompute(&setup, token, n, all);
        sequence_init(&seq, &bits_model, bits_kv(&setup), NULL);
        bits_turn(&seq, token, cut, logits);
        ck_assert_msg(sequence_settle(&seq, why) == 0, "%s", why);
        bits_turn(&seq, token + cut, n - cut, logits);
        ck_assert_msg(bits_same(all, logits), "%s, blocks of %u, %u tokens, cut at %u",
                      setup.strategy->name, setup.block, n, cut);
        sequence_end(&seq);
    }
}

/* Prompt and answer: strategies that keep decode alike, token by token. */
CASE(strategies_give_the_same_logits_for_each_decoded_token)
{
    enum { PROMPT = 70, ANSWER = 40 };
    uint32_t token[PROMPT];
    static float want[ANSWER][BITS_VOCAB];
    bits_tokens(token, PROMPT);
    const uint32_t types[][2] = {{KVC_F32, KVC_F32}, {KVC_BF16, KVC_F16}, {KVC_Q8_0, KVC_Q4_0}};
    for (size_t t = 0; t < 3; t++)
        for (size_t s = 0; s < KEPT; s++) {
            const struct bits_setup setup = {kept[s], 8, types[t][0], types[t][1], 24};
            if (t > 0 && (kept[s] == &kv_quantised || kept[s] == &kv_hidden))
                continue;
            struct sequence seq, *of = &seq;
            float logits[BITS_VOCAB];
            sequence_init(&seq, &bits_model, bits_kv(&setup), NULL);
            bits_turn(&seq, token, PROMPT, logits);
            for (uint32_t i = 0; i < ANSWER; i++) {
                if (s == 0)
                    memcpy(want[i], logits, sizeof(logits));
                ck_assert_msg(bits_same(want[i], logits), "%s, token %u", kept[s]->name, i);
                const uint32_t next = sequence_greedy(logits, BITS_VOCAB);
                ck_assert_int_eq(sequence_append(&seq, &next, 1, why), 0);
                ck_assert_msg(sequence_step(&of, 1, logits, why) == 0, "%s", why);
            }
            sequence_end(&seq);
        }
}

CASE(none_computes_all_again_for_each_token)
{
    const struct bits_setup none = {.strategy = &kv_none, .block = 16};
    uint32_t token[50];
    float want[BITS_VOCAB], logits[BITS_VOCAB];
    struct sequence seq, *of = &seq;
    bits_tokens(token, 50);
    sequence_init(&seq, &bits_model, bits_kv(&none), NULL);
    bits_turn(&seq, token, 40, logits);
    for (uint32_t n = 41; n <= 50; n++) {
        ck_assert_int_eq(sequence_append(&seq, &token[n - 1], 1, why), 0);
        ck_assert_msg(sequence_step(&of, 1, logits, why) == 0, "%s", why);
        bits_recompute(&none, token, n, want);
        ck_assert_msg(bits_same(want, logits), "%u tokens", n);
    }
    sequence_end(&seq);
}

CASE(sequences_of_a_batch_do_not_change_each_other)
{
    enum { SEQS = 5 };
    const struct bits_setup paged = {.strategy = &kv_paged, .block = 16};
    uint32_t token[SEQS][100];
    struct sequence seq[SEQS], *of[SEQS];
    static float logits[SEQS][BITS_VOCAB], want[BITS_VOCAB];
    for (uint32_t i = 0; i < SEQS; i++) {
        bits_tokens(token[i], 100);
        of[i] = &seq[i];
        sequence_init(&seq[i], &bits_model, bits_kv(&paged), NULL);
        ck_assert_int_eq(sequence_append(&seq[i], token[i], 20 * (i + 1), why), 0);
        ck_assert_int_eq(sequence_prefill(&seq[i], why), 0);
    }
    ck_assert_msg(sequence_step(of, SEQS, logits[0], why) == 0, "%s", why);
    for (uint32_t i = 0; i < SEQS; i++) {
        bits_recompute(&paged, token[i], 20 * (i + 1), want);
        ck_assert_msg(bits_same(want, logits[i]), "sequence %u", i);
        sequence_end(&seq[i]);
    }
}

/* In the row that the position says, wherever in its chunk a call begins. */
CASE(logits_of_a_chunk_by_one_product_are_those_of_its_rows)
{
    const struct bits_setup paged = {.strategy = &kv_paged, .block = 16};
    static float rows[BITS_CHUNK][BITS_VOCAB], all[BITS_CHUNK][BITS_VOCAB];
    uint32_t token[2 * BITS_CHUNK];
    struct kv *one = bits_kv(&paged), *other = bits_kv(&paged);
    bits_tokens(token, 2 * BITS_CHUNK);
    const uint32_t ends[] = {5, BITS_CHUNK, BITS_CHUNK + 9};
    for (uint32_t i = 0, first = 0; i < 3; first = ends[i++]) {
        const uint32_t n = ends[i] - first;
        ck_assert_int_eq(model_chunk(&bits_model, one, token + first, first, n, rows[0], why), 0);
        ck_assert_int_eq(
            model_chunk_logits(&bits_model, other, token + first, first, n, all[0], why), 0);
        for (uint32_t r = 0; r < n; r++)
            for (uint32_t v = 0; v < BITS_VOCAB; v++)
                ck_assert_double_le(
                    fabs((double)rows[r][v] - (double)all[(first + r) % BITS_CHUNK][v]), 1e-4);
    }
    one->is->destroy(one);
    other->is->destroy(other);
}

/* ---- memory ---- */

static struct kv_usage usage_after(const struct bits_setup *setup, uint32_t n)
{
    static uint32_t token[2048];
    static float logits[BITS_VOCAB];
    struct kv_usage usage;
    struct sequence seq;
    sequence_init(&seq, &bits_model, bits_kv(setup), NULL);
    bits_turn(&seq, token, n, logits);
    seq.kv->is->usage(seq.kv, &usage);
    sequence_end(&seq);
    return usage;
}

/* 2 n d L H: K and V, tokens, head size, layers, heads, of 4 bytes each. */
static uint64_t formula(uint64_t n)
{
    const struct model_config *c = &bits_model.is;
    return 2 * n * c->head_size * c->layers * c->kv_heads * sizeof(float);
}

CASE(memory_is_as_the_strategies_say)
{
    const struct bits_setup paged = {.strategy = &kv_paged, .block = 16},
                            fixed = {.strategy = &kv_static, .block = 16},
                            doubling = {.strategy = &kv_doubling, .block = 16};
    ck_assert_uint_eq(usage_after(&paged, 2048).bytes, formula(2048));
    ck_assert_uint_eq(usage_after(&paged, 33).bytes, formula(48));
    ck_assert_uint_eq(usage_after(&fixed, 33).bytes, formula(4096));
    ck_assert_uint_eq(usage_after(&doubling, 33).bytes, formula(64));
    ck_assert_uint_eq(usage_after(&doubling, 65).bytes, formula(128));
    ck_assert_uint_eq(usage_after(&doubling, 65).copied, formula(64));
    ck_assert_uint_eq(usage_after(&doubling, 1025).copied, formula(64 + 128 + 256 + 512 + 1024));
}

/* Pages are quantised one by one, as soon as none of their tokens is among the last. */
CASE(of_what_is_quantised_the_last_tokens_stay_exact)
{
    struct kv_layout small, wide;
    const struct bits_setup setup = {&kv_quantised, 16, KVC_Q8_0, KVC_Q4_0, 100};
    ck_assert_int_eq(kv_layout_make(&bits_model, 16, KVC_Q8_0, KVC_Q4_0, &small), 0);
    ck_assert_int_eq(kv_layout_make(&bits_model, 16, KVC_F32, KVC_F32, &wide), 0);
    ck_assert_uint_eq(usage_after(&setup, 115).bytes, 8 * wide.block_bytes);
    ck_assert_uint_eq(usage_after(&setup, 116).bytes, small.block_bytes + 7 * wide.block_bytes);
    ck_assert_uint_eq(usage_after(&setup, 1000).bytes,
                      56 * small.block_bytes + 7 * wide.block_bytes);
}

static double divergence(const float *want, const float *got)
{
    double top_p = -INFINITY, top_q = -INFINITY, sum_p = 0, sum_q = 0, kl = 0;
    for (uint32_t i = 0; i < BITS_VOCAB; i++) {
        top_p = fmax(top_p, want[i]);
        top_q = fmax(top_q, got[i]);
    }
    for (uint32_t i = 0; i < BITS_VOCAB; i++) {
        sum_p += exp(want[i] - top_p);
        sum_q += exp(got[i] - top_q);
    }
    for (uint32_t i = 0; i < BITS_VOCAB; i++) {
        const double p = want[i] - top_p - log(sum_p), q = got[i] - top_q - log(sum_q);
        kl += exp(p) * (p - q);
    }
    return kl;
}

CASE(quantised_is_exact_as_far_as_it_is_said_to_be)
{
    enum { TOKENS = 200 };
    static const struct bits_setup exact = {.strategy = &kv_paged, .block = 16};
    static const struct {
        uint32_t type;
        double least, most; /* of the divergence; random weights now and then give much of it */
    } of[] = {{KVC_Q8_0, 1e-12, 1e-1}, {KVC_F8, 1e-9, 5e-1}, {KVC_Q4_0, 1e-7, 3}};
    uint32_t token[TOKENS];
    float want[BITS_VOCAB], logits[BITS_VOCAB];
    bits_tokens(token, TOKENS);
    bits_recompute(&exact, token, TOKENS, want);
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        for (uint32_t last = 0; last <= TOKENS; last += TOKENS) {
            const struct bits_setup setup = {&kv_quantised, 16, of[i].type, of[i].type, last};
            struct sequence seq;
            sequence_init(&seq, &bits_model, bits_kv(&setup), NULL);
            bits_turn(&seq, token, TOKENS, logits);
            const double kl = divergence(want, logits);
            ck_assert_msg(last == TOKENS ? bits_same(want, logits)
                                         : kl >= of[i].least && kl <= of[i].most,
                          "type %u, the last %u exact: KL %g", of[i].type, last, kl);
            sequence_end(&seq);
        }
    }
}

CASE(what_is_too_long_is_refused)
{
    const struct bits_setup paged = {.strategy = &kv_paged, .block = 16};
    static uint32_t token[4097];
    struct sequence seq;
    sequence_init(&seq, &bits_model, bits_kv(&paged), NULL);
    ck_assert_int_lt(sequence_append(&seq, token, 4097, why), 0);
    ck_assert_ptr_nonnull(strstr(why, "4096"));
    ck_assert_int_lt(sequence_prefill(&seq, why), 0);
    token[0] = BITS_VOCAB;
    ck_assert_int_eq(sequence_append(&seq, token, 2, why), 0);
    ck_assert_int_lt(sequence_prefill(&seq, why), 0);
    ck_assert_ptr_nonnull(strstr(why, "token 256"));
    sequence_end(&seq);
}

int main(void)
{
    bits_seed();
    return cases_run();
}
