/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes: the adapter of xxHash and OpenSSL. hash.c alone includes their headers.
 *
 * XXH3 finds accidents (a flipped bit, a torn copy) and spreads keys over tables; it resists
 * nobody. Identity, and anything that somebody might forge, is SHA-256. Threads: no shared state; a
 * struct hash_stream or struct sha256 belongs to one thread at a time.
 */
#ifndef KVC_WIRE_HASH_H
#define KVC_WIRE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* XXH3-128 in canonical form: big-endian bytes, the same on every machine. */
struct hash128 {
    uint8_t b[16];
};

/* A SHA-256 value: block key, parent key, namespace seed. */
struct key256 {
    uint8_t b[32];
};

/* State of a running XXH3-128. Wants 64-byte alignment: plain malloc does not give that to a struct
 * that embeds one. hash.c asserts that size and alignment suffice. */
struct hash_stream {
    _Alignas(64) uint8_t opaque[576];
};

/* XXH3-128 of n bytes; p may be NULL when n is 0. */
struct hash128 hash_sum(const void *p, size_t n);

/* The same in pieces: however the bytes are cut, final() equals hash_sum() of the whole. final()
 * does not end the stream: more may be added. */
void hash_stream_init(struct hash_stream *s);
void hash_stream_update(struct hash_stream *s, const void *p, size_t n);
struct hash128 hash_stream_final(const struct hash_stream *s);

/* XXH3-64 with a seed, for hash tables in memory; the value is in native
 * byte order: for this machine alone. */
uint64_t hash_u64(const void *p, size_t n, uint64_t seed);

/* SHA-256 over tagged, length-prefixed parts, so that no two lists of parts give the same bytes. */
struct sha256;

/* Returns owned. -ENOMEM. The only place where we allocate; OpenSSL 3.0 itself allocates and frees
 * one small state in each begin, which its interface offers no way around. */
__attribute__((warn_unused_result)) int sha256_create(struct sha256 **ret_s);
/* Accepts NULL and pointer to NULL; sets *s to NULL. */
void sha256_destroy(struct sha256 **s);
/* Starts a new value and forgets one half done. -EIO when OpenSSL refuses. */
__attribute__((warn_unused_result)) int sha256_begin(struct sha256 *s);
/* Absorbs the tag byte, `len` as 8 bytes little-endian, then the bytes; p may be NULL when len is
 * 0. -EINVAL without a begin, -EIO when OpenSSL refuses. */
__attribute__((warn_unused_result)) int sha256_add(struct sha256 *s, uint8_t tag, const void *p,
                                                   uint64_t len);
/* Ends the value; the next use starts with begin. Errors as sha256_add. */
__attribute__((warn_unused_result)) int sha256_end(struct sha256 *s, struct key256 *ret_key);

/* n bytes from getrandom(2). 0 or a negative errno; blocks only before the kernel's pool is seeded.
 */
__attribute__((warn_unused_result)) int hash_random(void *p, size_t n);

static inline bool key256_equal(const struct key256 *a, const struct key256 *b)
{
    return memcmp(a->b, b->b, sizeof(a->b)) == 0;
}

static inline bool hash128_equal(const struct hash128 *a, const struct hash128 *b)
{
    return memcmp(a->b, b->b, sizeof(a->b)) == 0;
}

#endif
