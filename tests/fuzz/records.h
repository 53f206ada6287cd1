/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs that are a series of events. Each record has a verb, an argument, a length (16 bits,
 * little-endian) and so many bytes; the last one may be cut short.
 *
 * A target with such inputs uses records_mutate() as its mutator. It keeps the framing: it changes,
 * moves, repeats and removes whole records, and damages the bytes of one.
 */
#ifndef KVC_FUZZ_RECORDS_H
#define KVC_FUZZ_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct record {
    uint8_t verb, arg;
    const uint8_t *bytes; /* borrowed from the input */
    size_t len;
};

struct records {
    const uint8_t *at, *end;
};

static inline struct records records_of(const uint8_t *data, size_t size)
{
    return (struct records){data, data != NULL ? data + size : data};
}

/* Reads the next record without moving on; false: there is none. */
bool records_peek(const struct records *r, struct record *ret);
bool records_next(struct records *r, struct record *ret);

size_t records_mutate(uint8_t *data, size_t size, size_t max_size, unsigned seed);

#endif
