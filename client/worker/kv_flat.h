/* SPDX-License-Identifier: Apache-2.0 */
/* One tensor for all tokens of a sequence: a single page of `capacity` tokens. The strategies that
 * use it differ in when and how far the tensor grows. */
#ifndef WORKER_KV_FLAT_H
#define WORKER_KV_FLAT_H

#include "kv.h"

struct kv_flat {
    struct kv kv;
    struct kv_layout l; /* l.tokens is the capacity; 0: no memory yet */
    char *memory;
    uint64_t copied;
};

KV_MUST_USE int flat_create(const struct kv_strategy *is, const struct kv_setup *setup,
                            struct kv **ret_kv);
void flat_destroy(struct kv *kv);
/* Moves the tensor to memory for `capacity` tokens, and copies the tokens that it has. */
KV_MUST_USE int flat_resize(struct kv *kv, uint32_t capacity);
KV_MUST_USE int flat_write(struct kv *kv, uint32_t layer, uint32_t first, uint32_t n,
                           const float *k, const float *v, const float *x);
KV_MUST_USE int flat_view(struct kv *kv, uint32_t layer, uint32_t tokens, struct kv_view *view);
KV_MUST_USE int flat_advance(struct kv *kv, uint32_t tokens);
void flat_truncate(struct kv *kv, uint32_t tokens);
void flat_usage(const struct kv *kv, struct kv_usage *ret_usage);
KV_MUST_USE int flat_adopt(struct kv *kv, const struct kvc_block *block, uint32_t first, uint32_t n,
                           uint32_t tokens);

#endif
