/* SPDX-License-Identifier: Apache-2.0 */
/* doubling: one tensor. When it is full, one of twice its size replaces it, as in DynamicCache of
 * transformers and in a C++ vector. At most half of it is unused, and each growth copies all. */
#include <errno.h>

#include "kv_flat.h"

#define FIRST_TOKENS 64u

static int doubling_create(const struct kv_setup *setup, struct kv **ret_kv)
{
    return flat_create(&kv_doubling, setup, ret_kv);
}

static int doubling_room(struct kv *kv, uint32_t tokens)
{
    const uint32_t now = ((struct kv_flat *)kv)->l.tokens;
    uint32_t capacity = now > 0 ? now : FIRST_TOKENS;
    if (tokens > kv->setup.tokens_max)
        return -ENOSPC;
    while (capacity < tokens)
        capacity *= 2;
    return capacity == now ? 0 : flat_resize(kv, capacity);
}

const struct kv_strategy kv_doubling = {
    .name = "doubling",
    .what = "one tensor, copied into one of twice its size when it is full",
    .create = doubling_create,
    .destroy = flat_destroy,
    .room = doubling_room,
    .write = flat_write,
    .view = flat_view,
    .advance = flat_advance,
    .truncate = flat_truncate,
    .usage = flat_usage,
    .layout = "[layer][K|V][token][head][size]",
    .block_bytes = kv_block_bytes,
    .block_out = kv_block_out,
    .adopt = flat_adopt,
};
