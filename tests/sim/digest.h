/* SPDX-License-Identifier: Apache-2.0 */
/* Events of a simulation as one number, the same on every machine and in every build. */
#ifndef KVC_TEST_DIGEST_H
#define KVC_TEST_DIGEST_H

#include "hash.h"

static inline uint64_t digest_byte(uint64_t digest, uint8_t byte)
{
    return (digest ^ byte) * UINT64_C(0x100000001b3); /* FNV-1a */
}

static inline uint64_t digest_number(uint64_t digest, uint64_t n)
{
    for (unsigned i = 0; i < 64; i += 8)
        digest = digest_byte(digest, (uint8_t)(n >> i));
    return digest;
}

static inline uint64_t digest_bytes(uint64_t digest, const void *p, size_t n)
{
    const struct hash128 h = hash_sum(p, n);
    for (unsigned i = 0; i < sizeof h.b; i++)
        digest = digest_byte(digest, h.b[i]);
    return digest;
}

#endif
