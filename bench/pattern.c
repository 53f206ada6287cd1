/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "pattern.h"

/* All four words of the key take part: two keys that share a part give different contents. */
static uint64_t seed_of(const uint8_t key[KVC_KEY_BYTES])
{
    uint64_t seed = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < KVC_KEY_BYTES; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, key + i, sizeof(word));
        seed = (seed ^ word) * 0xbf58476d1ce4e5b9u;
        seed ^= seed >> 29;
    }
    return seed;
}

/* One multiplication a word: a block that is shifted, cut, torn or another's differs in nearly
 * every byte, and the loop still runs as fast as memory does. */
static inline uint64_t word_at(uint64_t seed, uint64_t index)
{
    uint64_t x = seed + index * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 32)) * 0x94d049bb133111ebu;
    return x ^ (x >> 29);
}

void pattern_fill(const uint8_t key[KVC_KEY_BYTES], void *dst, size_t bytes)
{
    uint64_t seed = seed_of(key);
    uint8_t *to = dst;
    size_t words = bytes / sizeof(uint64_t);
    for (size_t i = 0; i < words; i++) {
        uint64_t word = word_at(seed, i);
        memcpy(to + i * sizeof(word), &word, sizeof(word));
    }
    uint64_t last = word_at(seed, words);
    memcpy(to + words * sizeof(last), &last, bytes % sizeof(last));
}

static uint64_t count_wrong_bytes(uint64_t seed, const uint8_t *from, size_t bytes)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < bytes; i++) {
        uint64_t word = word_at(seed, i / sizeof(word));
        uint8_t expected[sizeof(word)];
        memcpy(expected, &word, sizeof(word));
        wrong += from[i] != expected[i % sizeof(word)];
    }
    return wrong;
}

uint64_t pattern_wrong_bytes(const uint8_t key[KVC_KEY_BYTES], const void *src, size_t bytes)
{
    uint64_t seed = seed_of(key);
    const uint8_t *from = src;
    size_t words = bytes / sizeof(uint64_t);
    uint64_t differs = 0;
    for (size_t i = 0; i < words; i++) {
        uint64_t word;
        memcpy(&word, from + i * sizeof(word), sizeof(word));
        differs |= word ^ word_at(seed, i);
    }
    uint64_t last = word_at(seed, words);
    if (differs == 0 && memcmp(from + words * sizeof(last), &last, bytes % sizeof(last)) == 0)
        return 0;
    /* Slow, and only for a block that is known to be wrong. */
    return count_wrong_bytes(seed, from, bytes);
}
