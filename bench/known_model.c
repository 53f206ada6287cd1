/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <string.h>

#include "known_model.h"

/* From the configuration files that the models are published with; 16-bit KV. */
static const struct known_model models[] = {
    {"gpt2", 12, 12, 64, 2, 0},
    {"llama-3.2-1b", 16, 8, 64, 2, 0},
    {"llama-3.1-8b", 32, 8, 128, 2, 0},
    {"llama-3.1-70b", 80, 8, 128, 2, 0},
    {"mistral-7b", 32, 8, 128, 2, 0},
    {"qwen2.5-7b", 28, 4, 128, 2, 0},
    {"qwen3-8b", 36, 8, 128, 2, 0},
    /* MLA: 512 latent elements and 64 rotary ones. */
    {"deepseek-v3", 61, 1, 576, 2, 576},
};

const struct known_model *known_model_at(unsigned i)
{
    return i < sizeof(models) / sizeof(models[0]) ? &models[i] : NULL;
}

const struct known_model *known_model_by_name(const char *name)
{
    for (unsigned i = 0; known_model_at(i); i++) {
        if (strcmp(models[i].name, name) == 0)
            return &models[i];
    }
    return NULL;
}

uint64_t known_model_bytes_per_token(const struct known_model *model)
{
    uint64_t elements =
        model->latent ? model->latent : (uint64_t)2 * model->kv_heads * model->head_size;
    return elements * model->layers * model->dtype_bytes;
}
