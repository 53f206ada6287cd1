/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sequence of tokens, its cache and the daemon: prefill, decode, and what is left for the next
 * turn. One thread.
 *
 * A turn: tokens are appended; sequence_prefill() takes what the daemon has and computes the others
 * in chunks, all but the last token; sequence_step() computes the last token alone, and its logits;
 * the token that was chosen is appended, and so on; sequence_settle() computes the tokens that were
 * decoded once more, in chunks, and stores them. So what is stored, and what a next turn begins
 * with, is of chunks alone: the same bits as if all had come as one prompt.
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
    uint32_t *token, n, room;
    uint32_t known;   /* the first ones that a name stands for, in a block that ends there */
    uint32_t settled; /* computed in chunks */
    struct {
        uint32_t taken, computed; /* tokens */
        uint64_t take_ns, compute_ns;
    } prefill; /* the last one */
};

/* Takes kv; store is borrowed. */
void sequence_init(struct sequence *seq, struct model *model, struct kv *kv, struct store *store);
void sequence_end(struct sequence *seq);
KV_MUST_USE int sequence_append(struct sequence *seq, const uint32_t *token, uint32_t n,
                                char why[MODEL_WHY_BYTES]);
KV_MUST_USE int sequence_prefill(struct sequence *seq, char why[MODEL_WHY_BYTES]);
/* Of `seqs` sequences of one model: the last token of each. logits: [seqs][vocab]. */
KV_MUST_USE int sequence_step(struct sequence *const *seq, uint32_t seqs, float *logits,
                              char why[MODEL_WHY_BYTES]);
KV_MUST_USE int sequence_settle(struct sequence *seq, char why[MODEL_WHY_BYTES]);
/* The largest of n; the first of equal ones. */
uint32_t sequence_greedy(const float *logits, uint32_t n);
uint64_t sequence_now_ns(void);

#endif
