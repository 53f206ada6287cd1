/* SPDX-License-Identifier: Apache-2.0 */
/* The mutator of records.h; apart from it, because it calls libFuzzer or replay.c. */
#include <string.h>

#include "fuzz.h"
#include "mutate.h"
#include "records.h"

#define HEAD        4u /* bytes before those of a record */
#define RECORDS_MAX 1024u

/* Where each record begins; [n] is the end. Returns n. */
static size_t index_of(const uint8_t *data, size_t size, size_t at[RECORDS_MAX + 1])
{
    struct records r = records_of(data, size);
    struct record one;
    size_t n = 0;
    while (n < RECORDS_MAX && records_peek(&r, &one)) {
        at[n++] = (size_t)(r.at - data);
        (void)records_next(&r, &one);
    }
    at[n] = (size_t)(r.at - data);
    return n;
}

static void put_length(uint8_t *head, size_t len)
{
    head[2] = (uint8_t)len;
    head[3] = (uint8_t)(len >> 8);
}

/* The bytes of one record, by libFuzzer or its stand-in. */
static size_t damage_one(uint8_t *data, size_t size, size_t cap, size_t from, size_t to)
{
    uint8_t tail[65536];
    size_t rest = size - to, len = to - from - HEAD;
    if (rest > sizeof(tail) || cap < from + HEAD + rest)
        return size;
    size_t room = cap - from - HEAD - rest;
    if (room > 0xffff)
        room = 0xffff;
    if (rest != 0)
        memcpy(tail, data + to, rest);
    size_t now = room == 0 ? len : LLVMFuzzerMutate(data + from + HEAD, len, room);
    put_length(data + from, now);
    if (rest != 0)
        memcpy(data + from + HEAD + now, tail, rest);
    return from + HEAD + now + rest;
}

/* A copy of record [from, to) at `where`. */
static size_t copy_one(uint8_t *data, size_t size, size_t cap, size_t from, size_t to, size_t where)
{
    uint8_t piece[4096];
    size_t n = to - from;
    if (n > sizeof(piece) || n > cap - size)
        return size;
    memcpy(piece, data + from, n);
    memmove(data + where + n, data + where, size - where);
    memcpy(data + where, piece, n);
    return size + n;
}

static size_t add_empty(uint8_t *data, size_t size, size_t cap, size_t where, uint64_t *state)
{
    if (cap - size < HEAD)
        return size;
    memmove(data + where + HEAD, data + where, size - where);
    data[where] = (uint8_t)mutate_below(state, 16);
    data[where + 1] = (uint8_t)mutate_random(state);
    put_length(data + where, 0);
    return size + HEAD;
}

size_t records_mutate(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    size_t at[RECORDS_MAX + 1];
    uint64_t state = seed + 0x9e3779b97f4a7c15u;
    size_t n = index_of(data, size, at);
    if (n == 0)
        return add_empty(data, 0, max_size, 0, &state);
    size_t i = mutate_below(&state, (uint32_t)n), k = mutate_below(&state, (uint32_t)n + 1);
    switch (mutate_below(&state, 12)) {
    case 0:
        data[at[i]] = (uint8_t)mutate_below(&state, 16);
        return size;
    case 1:
        data[at[i] + 1] = (uint8_t)mutate_random(&state);
        return size;
    case 2:
        memmove(data + at[i], data + at[i + 1], size - at[i + 1]);
        return size - (at[i + 1] - at[i]);
    case 3:
    case 4:
        return copy_one(data, size, max_size, at[i], at[i + 1], at[k]);
    case 5:
        return add_empty(data, size, max_size, at[k], &state);
    case 6:
        return LLVMFuzzerMutate(data, size, max_size);
    default:
        return damage_one(data, size, max_size, at[i], at[i + 1]);
    }
}
