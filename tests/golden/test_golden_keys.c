/* SPDX-License-Identifier: Apache-2.0 */
/* keys.txt by the tagged SHA-256 of base/wire, the parts as PROTOCOL.md has them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "cursor.h"
#include "hash.h"
#include "vectors.h"

/* As u32 little-endian. */
static uint8_t *token_bytes(const struct vector *v, size_t *ret_n)
{
    size_t n;
    uint32_t *ids = vector_tokens(v, &n);
    uint8_t *bytes = malloc(4 * n + 1);
    struct wcursor w;
    wcursor_init(&w, bytes, 4 * n);
    for (size_t i = 0; i < n; i++)
        wcursor_put_u32le(&w, ids[i]);
    ck_assert(wcursor_ok(&w));
    free(ids);
    *ret_n = n;
    return bytes;
}

static void check_chain(struct sha256 *sha, const struct vector *v)
{
    size_t parent_len, extra_len, n;
    uint8_t *parent = vector_bytes(v, "parent", &parent_len);
    uint8_t *extra = vector_bytes(v, "extra", &extra_len);
    uint8_t *tokens = token_bytes(v, &n);
    char *per_block = vector_value(v, "block_tokens");
    size_t step = strtoul(per_block, NULL, 10);
    struct key256 key;
    ck_assert_uint_eq(parent_len, sizeof(key.b));
    memcpy(key.b, parent, sizeof(key.b));
    char name[32];
    size_t k = 0;
    for (size_t at = 0; at < n; at += step, k++) {
        size_t in_block = n - at < step ? n - at : step;
        ck_assert_int_eq(sha256_begin(sha), 0);
        ck_assert_int_eq(sha256_add(sha, 1, key.b, sizeof(key.b)), 0);
        ck_assert_int_eq(sha256_add(sha, 2, tokens + 4 * at, 4 * in_block), 0);
        ck_assert_int_eq(sha256_add(sha, 3, extra, extra_len), 0);
        ck_assert_int_eq(sha256_end(sha, &key), 0);
        size_t len;
        snprintf(name, sizeof(name), "key[%zu]", k);
        uint8_t *expected = vector_bytes(v, name, &len);
        ck_assert_msg(len == sizeof(key.b) && memcmp(expected, key.b, len) == 0, "%s: %s differs",
                      v->name, name);
        free(expected);
    }
    snprintf(name, sizeof(name), "key[%zu]", k);
    ck_assert_ptr_null(vector_value(v, name));
    free(per_block);
    free(tokens);
    free(extra);
    free(parent);
}

CASE(chains_have_the_stated_keys)
{
    struct sha256 *sha;
    struct vectors set = vectors_load("keys.txt");
    ck_assert_int_eq(sha256_create(&sha), 0);
    for (size_t i = 0; i < set.n; i++)
        check_chain(sha, &set.v[i]);
    sha256_destroy(&sha);
    vectors_free(&set);
}
