/* SPDX-License-Identifier: Apache-2.0 */
#include "mutate.h"

#include <string.h>

uint64_t mutate_seed(uint64_t seed)
{
    uint64_t state = seed * 6364136223846793005u + 1442695040888963407u;
    return state != 0 ? state : 1;
}

uint64_t mutate_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

uint32_t mutate_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)((mutate_random(state) >> 11) % n);
}

static size_t at_random(uint64_t *state, size_t len)
{
    return mutate_below(state, (uint32_t)len);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* A piece of the input is put in again somewhere. */
static size_t repeat(uint64_t *state, uint8_t *buf, size_t len, size_t cap)
{
    size_t from = at_random(state, len), to = at_random(state, len + 1);
    size_t n = smaller(1 + at_random(state, len - from), cap - len);
    uint8_t piece[256];
    n = smaller(n, sizeof(piece));
    memcpy(piece, buf + from, n);
    memmove(buf + to + n, buf + to, len - to);
    memcpy(buf + to, piece, n);
    return len + n;
}

static size_t erase(uint64_t *state, uint8_t *buf, size_t len)
{
    size_t from = at_random(state, len), n = 1 + at_random(state, len - from);
    memmove(buf + from, buf + from + n, len - from - n);
    return len - n;
}

/* The headers of msgpack that carry a length, and ASCII digits. */
static int announces(uint8_t b)
{
    return (b >= 0x90 && b <= 0xbf) || (b >= 0xc4 && b <= 0xc6) || (b >= 0xcc && b <= 0xcf) ||
           (b >= 0xd9 && b <= 0xdd) || (b >= '0' && b <= '9');
}

static void lie(uint64_t *state, uint8_t *buf, size_t len)
{
    static const uint8_t extremes[] = {0x00, 0x01, 0x7f, 0x80, 0xff, 0xfe, 0x20, 0x40};
    size_t begin = at_random(state, len), at = begin;
    while (!announces(buf[at])) {
        at = (at + 1) % len;
        if (at == begin)
            break;
    }
    if (buf[at] >= '0' && buf[at] <= '9') {
        buf[at] = (uint8_t)('0' + mutate_below(state, 10));
    } else if (buf[at] >= 0x90 && buf[at] <= 0xbf) {
        buf[at] = (uint8_t)(buf[at] + 1 + mutate_below(state, 15));
    } else {
        size_t n = smaller(1 + at_random(state, 8), len - at - 1);
        for (size_t i = 1; i <= n; i++)
            buf[at + i] = extremes[mutate_below(state, sizeof(extremes))];
    }
}

static size_t change(uint64_t *state, uint8_t *buf, size_t len, size_t cap)
{
    switch (mutate_below(state, 16)) {
    case 0:
        return at_random(state, len + 1); /* cut off */
    case 1:
        return erase(state, buf, len);
    case 2:
        return repeat(state, buf, len, cap);
    case 3:
        if (len < cap)
            buf[len++] = (uint8_t)mutate_random(state);
        return len;
    case 4:
    case 5:
    case 6:
        buf[at_random(state, len)] = (uint8_t)mutate_random(state);
        return len;
    case 7:
    case 8:
    case 9:
        lie(state, buf, len);
        return len;
    default:
        buf[at_random(state, len)] ^= (uint8_t)(1u << mutate_below(state, 8));
        return len;
    }
}

size_t mutate(uint64_t *state, uint8_t *buf, size_t len, size_t cap)
{
    uint32_t more = mutate_below(state, 2) == 0 ? mutate_below(state, 4) : 0;
    for (uint32_t n = 1 + more; n > 0; n--) {
        if (len == 0 && cap > 0)
            buf[len++] = (uint8_t)mutate_random(state);
        if (len > 0)
            len = change(state, buf, len, cap);
    }
    return len;
}

size_t mutate_splice(uint64_t *state, uint8_t *buf, size_t len, size_t cap, const uint8_t *other,
                     size_t other_len)
{
    size_t keep = at_random(state, len + 1), from = at_random(state, other_len + 1);
    size_t n = smaller(other_len - from, cap - keep);
    if (n != 0)
        memcpy(buf + keep, other + from, n);
    return keep + n;
}
