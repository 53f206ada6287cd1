/* SPDX-License-Identifier: Apache-2.0 */
/* KV shapes of well-known models, so that a block can be asked for by the model's name. Pure. */
#ifndef BENCH_MODEL_H
#define BENCH_MODEL_H

#include <stdint.h>

struct model {
    const char *name;
    uint32_t layers;
    uint32_t kv_heads;
    uint32_t head_size;
    uint32_t dtype_bytes;
    uint32_t latent; /* elements per token and layer that stand for K and V together, else 0 */
};

/* NULL when there is no such model. */
const struct model *model_by_name(const char *name);
/* The i-th model, NULL past the last. */
const struct model *model_at(unsigned i);
/* Bytes of KV per token: 2 x layers x kv_heads x head_size x dtype_bytes, or layers x latent x
 * dtype_bytes. */
uint64_t model_bytes_per_token(const struct model *model);

#endif
