/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sequence of tokens, its cache and the daemon: prefill, decode, and the end of a turn. One
 * thread.
 *
 * A turn has these steps. The caller appends tokens. sequence_prefill() takes the blocks that the
 * daemon has, and computes the other tokens in chunks, except the last one. sequence_step()
 * computes the last token alone, and its logits; the caller appends the token that it chooses, and
 * repeats this. sequence_settle() computes the decoded tokens once more, in chunks, and stores
 * them. So all that is stored, and all that the next turn begins with, was computed in chunks, and
 * has the same bits as if the whole text had come as one prompt.
 */
#ifndef WORKER_SEQUENCE_H
#define WORKER_SEQUENCE_H

#include "kv.h"
#include "model.h"
#include "store.h"

struct sequence {
    struct model *model;
    struct store *store; /* NULL: no daemon */
    struct kv *kv;
    struct store_seq stored;
    uint32_t *token, n, room; /* the ids; their number; room for so many */
    uint32_t known; /* the first `known` tokens are those of a name, whose last block ends there */
    uint32_t settled; /* the first `settled` tokens were computed in chunks */
    struct {
        uint32_t taken, computed; /* tokens from the daemon; tokens computed */
        uint64_t take_ns, compute_ns;
    } prefill; /* figures of the last prefill */
};

/* The sequence owns kv from now on, and borrows store (NULL: no daemon). */
void sequence_init(struct sequence *seq, struct model *model, struct kv *kv, struct store *store);
void sequence_end(struct sequence *seq);
KV_MUST_USE int sequence_append(struct sequence *seq, const uint32_t *token, uint32_t n,
                                char why[MODEL_WHY_BYTES]);
KV_MUST_USE int sequence_prefill(struct sequence *seq, char why[MODEL_WHY_BYTES]);
/* Computes the last token of each of `seqs` sequences of one model. logits: [seqs][vocab]. */
KV_MUST_USE int sequence_step(struct sequence *const *seq, uint32_t seqs, float *logits,
                              char why[MODEL_WHY_BYTES]);
KV_MUST_USE int sequence_settle(struct sequence *seq, char why[MODEL_WHY_BYTES]);
/* The index of the largest of n logits; of equal ones the first. */
uint32_t sequence_greedy(const float *logits, uint32_t n);
uint64_t sequence_now_ns(void);

#endif
