/* SPDX-License-Identifier: Apache-2.0 */
/* KV shapes of well-known models, so that a block can be asked for by the model's name. Pure. */
#ifndef BENCH_KNOWN_MODEL_H
#define BENCH_KNOWN_MODEL_H

#include <stdint.h>

struct known_model {
    const char *name;
    uint32_t layers;
    uint32_t kv_heads;
    uint32_t head_size;
    uint32_t dtype_bytes;
    uint32_t latent; /* elements per token and layer that stand for K and V together, else 0 */
};

/* NULL when there is no such model. */
const struct known_model *known_model_by_name(const char *name);
/* The i-th model, NULL past the last. */
const struct known_model *known_model_at(unsigned i);
/* Bytes of KV per token: 2 x layers x kv_heads x head_size x dtype_bytes, or layers x latent x
 * dtype_bytes. */
uint64_t known_model_bytes_per_token(const struct known_model *model);

#endif
