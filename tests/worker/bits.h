/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences of the tiny model, and the logits that they must have: those of recomputation. A
 * function that cannot do its work fails the test. */
#ifndef KVC_TEST_BITS_H
#define KVC_TEST_BITS_H

#include "sequence.h"

#define BITS_CHUNK 32u
#define BITS_VOCAB 256u

extern struct model bits_model;
/* Loads the tiny model with a chunk of BITS_CHUNK. Call it in the process of the test case, because
 * BLAS's threads do not survive a fork. */
void bits_begin(void);
void bits_end(void);

struct bits_setup {
    const struct kv_strategy *strategy;
    uint32_t block, k_type, v_type, exact;
};
struct kv *bits_kv(const struct bits_setup *setup);
/* The logits [BITS_VOCAB] after n tokens, computed from the beginning in a static cache. */
void bits_recompute(const struct bits_setup *types, const uint32_t *token, uint32_t n,
                    float *ret_logits);
/* Appends the tokens and computes the logits after them. */
void bits_turn(struct sequence *seq, const uint32_t *token, uint32_t n, float *ret_logits);
bool bits_same(const float *a, const float *b);

/* Seeds the random numbers from $KVC_SEED, or from the clock, and prints the seed. */
void bits_seed(void);
uint32_t bits_below(uint32_t n);
void bits_tokens(uint32_t *token, uint32_t n);

#endif
