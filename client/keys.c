/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of blocks: SHA-256 over the parent's key and the block's tokens, kvc_hash_chain(). */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include <kvcache/kvcache.h>

#include "hash.h"

#define TAG_PARENT 0x01
#define TAG_TOKENS 0x02
#define TAG_EXTRA  0x03

_Static_assert(sizeof(struct key256) == KVC_KEY_BYTES, "a key is a SHA-256 value");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tokens are hashed as they lie in memory");

static int hash_block(struct sha256 *s, const uint8_t *parent, const uint32_t *tokens,
                      size_t ntokens, const void *extra, size_t extra_bytes, uint8_t *ret_key)
{
    struct key256 key;
    int rc = sha256_begin(s);
    if (rc == 0)
        rc = sha256_add(s, TAG_PARENT, parent, KVC_KEY_BYTES);
    if (rc == 0)
        rc = sha256_add(s, TAG_TOKENS, tokens, ntokens * sizeof(*tokens));
    if (rc == 0)
        rc = sha256_add(s, TAG_EXTRA, extra, extra_bytes);
    if (rc == 0)
        rc = sha256_end(s, &key);
    if (rc == 0)
        memcpy(ret_key, key.b, sizeof(key.b));
    return rc;
}

int kvc_hash_chain(const uint8_t parent[KVC_KEY_BYTES], const uint32_t *tokens, size_t ntokens,
                   uint32_t block_tokens, const void *extra, size_t extra_bytes, uint8_t *keys)
{
    if (parent == NULL || keys == NULL || (tokens == NULL && ntokens > 0) ||
        (extra == NULL && extra_bytes > 0) || block_tokens < 1 ||
        block_tokens > KVC_BLOCK_TOKENS_MAX || ntokens / block_tokens >= INT_MAX)
        return -EINVAL;
    struct sha256 *s;
    int rc = sha256_create(&s);
    if (rc < 0)
        return rc;
    int n = 0;
    for (size_t at = 0; at < ntokens && rc == 0; at += block_tokens, n++) {
        size_t count = ntokens - at < block_tokens ? ntokens - at : block_tokens;
        uint8_t *key = keys + (size_t)n * KVC_KEY_BYTES;
        rc = hash_block(s, parent, tokens + at, count, extra, extra_bytes, key);
        parent = key;
    }
    sha256_destroy(&s);
    return rc < 0 ? rc : n;
}
