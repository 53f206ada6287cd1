/* SPDX-License-Identifier: Apache-2.0 */
#include "bits.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TOKENS_MAX 4096u

struct model bits_model;
static uint64_t state;
static char why[MODEL_WHY_BYTES];

void bits_begin(void)
{
    ck_assert_msg(model_preset("tiny", 1, why, &bits_model) == 0, "%s", why);
    ck_assert_msg(model_begin(&bits_model, BITS_CHUNK, 1, why) == 0, "%s", why);
}

void bits_end(void)
{
    model_end(&bits_model);
}

struct kv *bits_kv(const struct bits_setup *b)
{
    const struct kv_setup setup = {.model = &bits_model,
                                   .tokens_max = TOKENS_MAX,
                                   .block_tokens = b->block,
                                   .k_type = b->k_type,
                                   .v_type = b->v_type,
                                   .exact_tokens = b->exact,
                                   .seqs = 1};
    struct kv *kv = NULL;
    ck_assert_int_eq(b->strategy->create(&setup, &kv), 0);
    return kv;
}

void bits_turn(struct sequence *seq, const uint32_t *token, uint32_t n, float *ret_logits)
{
    ck_assert_msg(sequence_append(seq, token, n, why) == 0, "%s", why);
    ck_assert_msg(sequence_prefill(seq, why) == 0, "%s", why);
    ck_assert_msg(sequence_step(&seq, 1, ret_logits, why) == 0, "%s", why);
}

void bits_recompute(const struct bits_setup *types, const uint32_t *token, uint32_t n,
                    float *ret_logits)
{
    const struct bits_setup setup = {
        .strategy = &kv_static, .block = 16, .k_type = types->k_type, .v_type = types->v_type};
    struct sequence seq;
    sequence_init(&seq, &bits_model, bits_kv(&setup), NULL);
    bits_turn(&seq, token, n, ret_logits);
    sequence_end(&seq);
}

bool bits_same(const float *a, const float *b)
{
    return memcmp(a, b, BITS_VOCAB * sizeof(*a)) == 0;
}

void bits_seed(void)
{
    const char *text = getenv("KVC_SEED");
    state = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
    printf("KVC_SEED=%ju\n", (uintmax_t)state);
}

uint32_t bits_below(uint32_t n)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((state >> 33) % n);
}

void bits_tokens(uint32_t *token, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        token[i] = bits_below(BITS_VOCAB);
}
