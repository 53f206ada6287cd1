/* SPDX-License-Identifier: Apache-2.0 */
/* none: keeps nothing from one token to the next; each token computes all tokens before it again. K
 * and V of the running pass lie in a tensor of the pass's length. */
#include <errno.h>

#include "kv_flat.h"

static int none_create(const struct kv_setup *setup, struct kv **ret_kv)
{
    return flat_create(&kv_none, setup, ret_kv);
}

static int none_room(struct kv *kv, uint32_t tokens)
{
    if (tokens > kv->setup.tokens_max)
        return -ENOSPC;
    return tokens <= ((struct kv_flat *)kv)->l.tokens ? 0 : flat_resize(kv, tokens);
}

const struct kv_strategy kv_none = {
    .name = "none",
    .what = "no cache: all tokens are computed again for each new one",
    .forgets = true,
    .create = none_create,
    .destroy = flat_destroy,
    .room = none_room,
    .write = flat_write,
    .view = flat_view,
    .advance = flat_advance,
    .truncate = flat_truncate,
    .usage = flat_usage,
};
