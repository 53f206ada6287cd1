/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading msgpack by what is expected, over a cursor: no allocation, no recursion, no trust in an
 * announced length. Private to the codec.
 *
 * The first error is kept, with a static text that says what is wrong; afterwards nothing is read
 * and every value is 0. Any width of integer that msgpack knows is accepted when the value fits.
 */
#ifndef KVC_CODEC_UNPACK_H
#define KVC_CODEC_UNPACK_H

#include "codec.h"
#include "cursor.h"
#include "schema.h"

struct unpack {
    struct cursor c;
    int err;            /* 0, KVC_E_BAD_MESSAGE or KVC_E_BAD_ARGUMENT */
    const char *detail; /* static; NULL while there is no error */
};

void unpack_init(struct unpack *un, const void *buf, size_t len);
/* Keeps the first error only. */
void unpack_fail(struct unpack *un, int err, const char *detail);
/* The number of items of an array; never more than there are bytes left. */
uint32_t unpack_array(struct unpack *un, const char *must);
/* min to max; a number outside it, negative ones included, is a BAD_ARGUMENT. */
uint64_t unpack_uint(struct unpack *un, uint64_t min, uint64_t max, const char *must);
/* Reads the fields of `schema` in order into `msg`. */
void unpack_fields(struct unpack *un, const struct schema *schema, void *msg);
/* Passes over an integer, a text or binary. */
void unpack_skip(struct unpack *un);
/* Fails when bytes are left over. */
void unpack_end(struct unpack *un);

#endif
