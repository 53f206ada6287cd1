/* SPDX-License-Identifier: Apache-2.0 */
/* kvc_hash_chain against the vectors of tests/golden/keys.txt, and what it refuses. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvcache/admin.h>
#include <kvcache/async.h>
#include <kvcache/gpu.h>
#include <kvcache/kvcache.h>

#include "cases.h"
#include "vectors.h"

static const uint8_t PARENT[KVC_KEY_BYTES] = {1, 2, 3};

static void check_vector(const struct vector *v)
{
    size_t parent_len, extra_len, ntokens;
    uint8_t *parent = vector_bytes(v, "parent", &parent_len);
    uint8_t *extra = vector_bytes(v, "extra", &extra_len);
    uint32_t *tokens = vector_tokens(v, &ntokens);
    char *per_block = vector_value(v, "block_tokens");
    uint32_t step = (uint32_t)strtoul(per_block, NULL, 10);
    size_t expected = (ntokens + step - 1) / step;
    uint8_t *keys = malloc((expected + 1) * KVC_KEY_BYTES);

    ck_assert_uint_eq(parent_len, KVC_KEY_BYTES);
    int n = kvc_hash_chain(parent, tokens, ntokens, step, extra, extra_len, keys);
    ck_assert_int_eq(n, (int)expected);
    for (size_t i = 0; i < expected; i++) {
        char name[32];
        size_t len;
        snprintf(name, sizeof(name), "key[%zu]", i);
        uint8_t *want = vector_bytes(v, name, &len);
        ck_assert_uint_eq(len, KVC_KEY_BYTES);
        ck_assert_msg(memcmp(want, keys + i * KVC_KEY_BYTES, len) == 0, "%s: %s differs", v->name,
                      name);
        free(want);
    }
    free(keys);
    free(per_block);
    free(tokens);
    free(extra);
    free(parent);
}

CASE(chains_are_those_of_the_vectors)
{
    struct vectors set = vectors_load("keys.txt");
    ck_assert_uint_gt(set.n, 3);
    for (size_t i = 0; i < set.n; i++)
        check_vector(&set.v[i]);
    vectors_free(&set);
}

CASE(a_chain_can_be_hashed_in_pieces)
{
    uint32_t tokens[48];
    uint8_t whole[3 * KVC_KEY_BYTES], rest[2 * KVC_KEY_BYTES];
    for (uint32_t i = 0; i < 48; i++)
        tokens[i] = i * 77;
    ck_assert_int_eq(kvc_hash_chain(PARENT, tokens, 48, 16, "x", 1, whole), 3);
    ck_assert_int_eq(kvc_hash_chain(whole, tokens + 16, 32, 16, "x", 1, rest), 2);
    ck_assert_mem_eq(whole + KVC_KEY_BYTES, rest, sizeof(rest));
}

CASE(a_key_may_overwrite_its_own_parent)
{
    uint32_t tokens[2] = {5, 6};
    uint8_t apart[2 * KVC_KEY_BYTES], over[2 * KVC_KEY_BYTES];
    memcpy(over, PARENT, KVC_KEY_BYTES);
    ck_assert_int_eq(kvc_hash_chain(PARENT, tokens, 2, 1, NULL, 0, apart), 2);
    ck_assert_int_eq(kvc_hash_chain(over, tokens, 2, 1, NULL, 0, over), 2);
    ck_assert_mem_eq(apart, over, sizeof(over));
}

CASE(no_tokens_have_no_keys)
{
    uint8_t key[KVC_KEY_BYTES] = {0};
    ck_assert_int_eq(kvc_hash_chain(PARENT, NULL, 0, 16, NULL, 0, key), 0);
}

CASE(bad_arguments_are_refused)
{
    uint32_t tokens[1] = {1};
    uint8_t key[KVC_KEY_BYTES];
    ck_assert_int_eq(kvc_hash_chain(PARENT, tokens, 1, 0, NULL, 0, key), -EINVAL);
    ck_assert_int_eq(kvc_hash_chain(PARENT, tokens, 1, KVC_BLOCK_TOKENS_MAX + 1, NULL, 0, key),
                     -EINVAL);
    ck_assert_int_eq(kvc_hash_chain(NULL, tokens, 1, 1, NULL, 0, key), -EINVAL);
    ck_assert_int_eq(kvc_hash_chain(PARENT, NULL, 1, 1, NULL, 0, key), -EINVAL);
    ck_assert_int_eq(kvc_hash_chain(PARENT, tokens, 1, 1, NULL, 1, key), -EINVAL);
    ck_assert_int_eq(kvc_hash_chain(PARENT, tokens, 1, 1, NULL, 0, NULL), -EINVAL);
}

CASE(every_error_and_reason_has_a_name)
{
    ck_assert_str_eq(kvc_error_name(0), "OK");
    ck_assert_str_eq(kvc_error_name(KVC_E_NO_PARENT), "NO_PARENT");
    ck_assert_str_eq(kvc_error_name(KVC_STALE), "STALE");
    ck_assert_str_eq(kvc_error_name(KVC_E_DOWN), "DOWN");
    ck_assert_str_eq(kvc_error_name(-ETIMEDOUT), "ETIMEDOUT");
    ck_assert_str_eq(kvc_error_name(-999), "?");
    ck_assert_str_eq(kvc_error_name(-5000), "?");
    for (int st = 1; st < KVC_ST_COUNT; st++) {
        ck_assert_str_ne(kvc_error_name(-1000 - st), "?");
        ck_assert_uint_gt(strlen(kvc_error_text(-1000 - st)), 0);
    }
    ck_assert_str_eq(kvc_miss_name(KVC_MISS_PENDING), "PENDING");
    ck_assert_uint_gt(strlen(kvc_miss_text(KVC_MISS_PENDING)), 0);
}

CASE(a_binding_of_other_structs_is_refused_by_name)
{
    struct kvc_abi mine[] = {KVC_ABI_STRUCTS, KVC_ABI_ASYNC, KVC_ABI_ADMIN, KVC_ABI_GPU};
    const size_t n = sizeof(mine) / sizeof(mine[0]);
    ck_assert_ptr_null(kvc_abi(KVC_API_VERSION, mine, n));
    ck_assert_ptr_null(kvc_abi(kvc_version(), NULL, 0));
    for (size_t i = 0; i < n; i++) {
        mine[i].bytes += 8;
        const char *differs = kvc_abi(KVC_API_VERSION, mine, n);
        ck_assert_ptr_nonnull(differs);
        ck_assert_ptr_nonnull(strstr(differs, mine[i].name));
        mine[i].bytes -= 8;
    }
    ck_assert_ptr_nonnull(strstr(kvc_abi("0.5", mine, n), "0.5"));
    const struct kvc_abi other = {"kvc_of_old", 8};
    ck_assert_ptr_nonnull(strstr(kvc_abi(KVC_API_VERSION, &other, 1), "kvc_of_old"));
}
