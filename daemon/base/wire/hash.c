/* SPDX-License-Identifier: Apache-2.0 */
#include "hash.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "fault.h"
#include "sys.h"

#include <openssl/evp.h>

/* The complete XXH3_state_t, for its size; the functions still come from the library. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
#if defined(__x86_64__)
/* The library is built for the oldest x86-64; its dispatcher picks AVX2 or AVX-512 at run time,
 * which more than doubles the speed of long inputs. The values are the same. */
#include <xxh_x86dispatch.h>
#endif

_Static_assert(sizeof(struct hash_stream) >= sizeof(XXH3_state_t), "state fits");
_Static_assert(_Alignof(struct hash_stream) >= _Alignof(XXH3_state_t), "state is aligned");
_Static_assert(sizeof(struct hash128) == sizeof(XXH128_canonical_t), "canonical form");

static struct hash128 canonical(XXH128_hash_t h)
{
    XXH128_canonical_t c;
    struct hash128 ret;
    XXH128_canonicalFromHash(&c, h);
    memcpy(ret.b, c.digest, sizeof(ret.b));
    return ret;
}

struct hash128 hash_sum(const void *p, size_t n)
{
    return canonical(XXH3_128bits(p, n));
}

/* The XXH3 calls below fail only for a NULL state or NULL bytes. */

void hash_stream_init(struct hash_stream *s)
{
    XXH3_state_t *state = (XXH3_state_t *)(void *)s->opaque;
    (void)XXH3_128bits_reset(state);
}

void hash_stream_update(struct hash_stream *s, const void *p, size_t n)
{
    if (n != 0)
        (void)XXH3_128bits_update((XXH3_state_t *)(void *)s->opaque, p, n);
}

struct hash128 hash_stream_final(const struct hash_stream *s)
{
    return canonical(XXH3_128bits_digest((const XXH3_state_t *)(const void *)s->opaque));
}

uint64_t hash_u64(const void *p, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(p, n, seed);
}

struct sha256 {
    EVP_MD *md; /* fetched once: an implicit fetch in every begin costs more than hashing a key */
    EVP_MD_CTX *ctx;
    bool begun;
};

int sha256_create(struct sha256 **ret_s)
{
    struct sha256 *s = sys_calloc(1, sizeof(*s));
    if (s == NULL)
        return -ENOMEM;
    s->md = FAULT(alloc) ? NULL : EVP_MD_fetch(NULL, "SHA2-256", NULL);
    s->ctx = FAULT(alloc) ? NULL : EVP_MD_CTX_new();
    if (s->md == NULL || s->ctx == NULL) {
        sha256_destroy(&s);
        return -ENOMEM;
    }
    *ret_s = s;
    return 0;
}

void sha256_destroy(struct sha256 **s)
{
    if (s == NULL || *s == NULL)
        return;
    EVP_MD_CTX_free((*s)->ctx);
    EVP_MD_free((*s)->md);
    free(*s);
    *s = NULL;
}

int sha256_begin(struct sha256 *s)
{
    s->begun = EVP_DigestInit_ex2(s->ctx, s->md, NULL) == 1;
    return s->begun ? 0 : -EIO;
}

int sha256_add(struct sha256 *s, uint8_t tag, const void *p, uint64_t len)
{
    if (!s->begun)
        return -EINVAL;
    uint8_t head[9] = {tag};
    for (unsigned i = 0; i < 8; i++)
        head[1 + i] = (uint8_t)(len >> (8 * i));
    if (EVP_DigestUpdate(s->ctx, head, sizeof(head)) != 1 ||
        (len != 0 && EVP_DigestUpdate(s->ctx, p, len) != 1)) {
        s->begun = false;
        return -EIO;
    }
    return 0;
}

int sha256_end(struct sha256 *s, struct key256 *ret_key)
{
    if (!s->begun)
        return -EINVAL;
    s->begun = false;
    struct key256 key;
    unsigned n = 0;
    if (EVP_DigestFinal_ex(s->ctx, key.b, &n) != 1 || n != sizeof(key.b))
        return -EIO;
    *ret_key = key;
    return 0;
}

int hash_random(void *p, size_t n)
{
    uint8_t *at = p;
    while (n != 0) {
        ssize_t got = getrandom(at, n, 0);
        if (got < 0 && errno != EINTR)
            return -errno;
        if (got > 0) {
            at += got;
            n -= (size_t)got;
        }
    }
    return 0;
}
