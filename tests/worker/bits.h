/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences of the tiny model, and what their logits must be: those of recomputation. Everything
 * here fails the test that calls it when it cannot do its work. */
#ifndef KVC_TEST_BITS_H
#define KVC_TEST_BITS_H

#include "sequence.h"

#define BITS_CHUNK 32u
#define BITS_VOCAB 256u

extern struct model bits_model;
/* The tiny model with a chunk of BITS_CHUNK; in the process of a test case, for BLAS's threads do
 * not outlive a fork. */
void bits_begin(void);
void bits_end(void);

struct bits_setup {
    const struct kv_strategy *strategy;
    uint32_t block, k_type, v_type, exact;
};
struct kv *bits_kv(const struct bits_setup *setup);
/* Logits after n tokens, of a static cache that begins with nothing: [BITS_VOCAB]. */
void bits_recompute(const struct bits_setup *types, const uint32_t *token, uint32_t n,
                    float *ret_logits);
/* Appends the tokens and computes the logits after them. */
void bits_turn(struct sequence *seq, const uint32_t *token, uint32_t n, float *ret_logits);
bool bits_same(const float *a, const float *b);

/* Numbers from a seed, which is printed: $KVC_SEED, or the clock. */
void bits_seed(void);
uint32_t bits_below(uint32_t n);
void bits_tokens(uint32_t *token, uint32_t n);

#endif
