/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>

#include "cases.h"
#include "hash.h"

/* Pieces of memory that OpenSSL holds. */
static long held;

static void *counting_malloc(size_t n, const char *file, int line)
{
    (void)file, (void)line;
    void *p = malloc(n);
    held += p != NULL;
    return p;
}

static void *counting_realloc(void *p, size_t n, const char *file, int line)
{
    (void)file, (void)line;
    if (n == 0) {
        held -= p != NULL;
        free(p);
        return NULL;
    }
    void *moved = realloc(p, n);
    held += p == NULL && moved != NULL;
    return moved;
}

static void counting_free(void *p, const char *file, int line)
{
    (void)file, (void)line;
    held -= p != NULL;
    free(p);
}

/* xxHash's own published value for no input, and the order of the bytes. */
CASE(the_sum_of_nothing_is_the_published_one)
{
    static const uint8_t want[16] = {0x99, 0xaa, 0x06, 0xd3, 0x01, 0x47, 0x98, 0xd8,
                                     0x60, 0x01, 0xc3, 0x24, 0x46, 0x8d, 0x49, 0x7f};
    const struct hash128 got = hash_sum(NULL, 0);
    ck_assert_mem_eq(got.b, want, sizeof(want));
}

CASE(a_stream_in_pieces_equals_the_sum_of_the_whole)
{
    enum { BYTES = 100000 };
    static uint8_t bytes[BYTES];
    for (unsigned i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    static const size_t pieces[] = {1, 7, 64, 255, 256, 257, 4096, 16384, BYTES};
    for (unsigned k = 0; k < sizeof(pieces) / sizeof(pieces[0]); k++) {
        struct hash_stream s;
        hash_stream_init(&s);
        for (size_t at = 0; at < BYTES; at += pieces[k])
            hash_stream_update(&s, bytes + at, pieces[k] < BYTES - at ? pieces[k] : BYTES - at);
        const struct hash128 got = hash_stream_final(&s), want = hash_sum(bytes, BYTES);
        ck_assert(hash128_equal(&got, &want));
    }
}

CASE(a_stream_goes_on_after_final)
{
    struct hash_stream s;
    hash_stream_init(&s);
    hash_stream_update(&s, "ab", 2);
    struct hash128 got = hash_stream_final(&s), want = hash_sum("ab", 2);
    ck_assert(hash128_equal(&got, &want));
    hash_stream_update(&s, NULL, 0);
    hash_stream_update(&s, "c", 1);
    got = hash_stream_final(&s);
    want = hash_sum("abc", 3);
    ck_assert(hash128_equal(&got, &want));
}

CASE(one_flipped_bit_changes_the_sum)
{
    uint8_t bytes[4096] = {0};
    const struct hash128 clean = hash_sum(bytes, sizeof(bytes));
    for (unsigned bit = 0; bit < 8 * sizeof(bytes); bit += 501) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        const struct hash128 got = hash_sum(bytes, sizeof(bytes));
        ck_assert(!hash128_equal(&got, &clean));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

CASE(table_hash_depends_on_its_seed)
{
    ck_assert_uint_eq(hash_u64("key", 3, 1), hash_u64("key", 3, 1));
    ck_assert_uint_ne(hash_u64("key", 3, 1), hash_u64("key", 3, 2));
    ck_assert_uint_eq(hash_u64(NULL, 0, 0), 0x2d06800538d394c2); /* published */
}

static struct key256 of_parts(struct sha256 *s, uint8_t tag, const char *a, size_t na,
                              const char *b, size_t nb)
{
    struct key256 key;
    ck_assert_int_eq(sha256_begin(s), 0);
    ck_assert_int_eq(sha256_add(s, tag, a, na), 0);
    ck_assert_int_eq(sha256_add(s, tag, b, nb), 0);
    ck_assert_int_eq(sha256_end(s, &key), 0);
    return key;
}

CASE(sha256_absorbs_tag_length_and_bytes)
{
    static const uint8_t same[] = {7,   3, 0, 0, 0, 0, 0, 0, 0, 'a', 'b',
                                   'c', 9, 0, 0, 0, 0, 0, 0, 0, 0};
    uint8_t want[32];
    ck_assert_int_eq(EVP_Digest(same, sizeof(same), want, NULL, EVP_sha256(), NULL), 1);
    struct sha256 *s = NULL;
    struct key256 key;
    ck_assert_int_eq(sha256_create(&s), 0);
    ck_assert_int_eq(sha256_begin(s), 0);
    ck_assert_int_eq(sha256_add(s, 7, "abc", 3), 0);
    ck_assert_int_eq(sha256_add(s, 9, NULL, 0), 0);
    ck_assert_int_eq(sha256_end(s, &key), 0);
    ck_assert_mem_eq(key.b, want, 32);
    sha256_destroy(&s);
    ck_assert_ptr_null(s);
}

CASE(no_two_lists_of_parts_are_confused)
{
    struct sha256 *s = NULL;
    ck_assert_int_eq(sha256_create(&s), 0);
    const struct key256 a = of_parts(s, 1, "ab", 2, "c", 1), b = of_parts(s, 1, "a", 1, "bc", 2),
                        c = of_parts(s, 2, "ab", 2, "c", 1),
                        again = of_parts(s, 1, "ab", 2, "c", 1);
    ck_assert(!key256_equal(&a, &b));
    ck_assert(!key256_equal(&a, &c));
    ck_assert(key256_equal(&a, &again));
    sha256_destroy(&s);
}

CASE(sha256_wants_a_begin)
{
    struct sha256 *s = NULL;
    struct key256 key = {.b = {42}};
    ck_assert_int_eq(sha256_create(&s), 0);
    ck_assert_int_eq(sha256_add(s, 1, "a", 1), -EINVAL);
    ck_assert_int_eq(sha256_end(s, &key), -EINVAL);
    ck_assert_uint_eq(key.b[0], 42);
    ck_assert_int_eq(sha256_begin(s), 0);
    ck_assert_int_eq(sha256_end(s, &key), 0);
    ck_assert_int_eq(sha256_end(s, &key), -EINVAL);
    sha256_destroy(&s);
    sha256_destroy(&s);
    sha256_destroy(NULL);
}

CASE(begin_forgets_what_was_half_done)
{
    struct sha256 *s = NULL;
    struct key256 key;
    ck_assert_int_eq(sha256_create(&s), 0);
    ck_assert_int_eq(sha256_begin(s), 0);
    ck_assert_int_eq(sha256_add(s, 1, "junk", 4), 0);
    key = of_parts(s, 1, "a", 1, "b", 1);
    const struct key256 want = of_parts(s, 1, "a", 1, "b", 1);
    ck_assert(key256_equal(&key, &want));
    sha256_destroy(&s);
}

CASE(hashing_again_and_again_holds_no_more_memory)
{
    ck_assert_int_eq(CRYPTO_set_mem_functions(counting_malloc, counting_realloc, counting_free), 1);
    struct sha256 *s = NULL;
    ck_assert_int_eq(sha256_create(&s), 0);
    (void)of_parts(s, 1, "parent", 6, "tokens", 6);
    const long before = held;
    ck_assert_int_gt(before, 0); /* the counter works */
    for (unsigned i = 0; i < 1000; i++)
        (void)of_parts(s, 1, "parent", 6, "tokens", 6);
    ck_assert_int_eq(held, before);
    sha256_destroy(&s);
    ck_assert_int_lt(held, before);
}

CASE(random_bytes_differ)
{
    uint8_t a[64] = {0}, b[64] = {0};
    ck_assert_int_eq(hash_random(a, sizeof(a)), 0);
    ck_assert_int_eq(hash_random(b, sizeof(b)), 0);
    ck_assert_mem_ne(a, b, sizeof(a));
    ck_assert_int_eq(hash_random(NULL, 0), 0);
}
