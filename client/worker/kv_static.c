/* SPDX-License-Identifier: Apache-2.0 */
/* static: one tensor for the longest sequence that there may be, taken at once. Nothing is ever
 * moved, and what a short sequence does not fill is wasted. */
#include <errno.h>

#include "kv_flat.h"

static int static_create(const struct kv_setup *setup, struct kv **ret_kv)
{
    struct kv *kv;
    int rc = flat_create(&kv_static, setup, &kv);
    if (rc != 0)
        return rc;
    rc = flat_resize(kv, setup->tokens_max);
    if (rc != 0) {
        flat_destroy(kv);
        return rc;
    }
    *ret_kv = kv;
    return 0;
}

static int static_room(struct kv *kv, uint32_t tokens)
{
    return tokens <= kv->setup.tokens_max ? 0 : -ENOSPC;
}

const struct kv_strategy kv_static = {
    .name = "static",
    .what = "one tensor for the longest sequence, taken at the start",
    .create = static_create,
    .destroy = flat_destroy,
    .room = static_room,
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
