/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads msgpack over a cursor: the caller says which type comes next, with its limits. message.c
 * reads every request in the daemon and every reply in the client with it. There is no allocation
 * and no recursion, and an announced length is not trusted. Private to the codec.
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
/* Sets the error, unless an earlier one is set. */
void unpack_fail(struct unpack *un, int err, const char *detail);
/* Reads an array's header. Returns the number of items, which is never more than the bytes left. */
uint32_t unpack_array(struct unpack *un, const char *must);
/* Reads an integer from min to max. A number outside of these, negative ones included, is
 * KVC_E_BAD_ARGUMENT. */
uint64_t unpack_uint(struct unpack *un, uint64_t min, uint64_t max, const char *must);
/* Reads the fields of `schema` in order into `msg`. */
void unpack_fields(struct unpack *un, const struct schema *schema, void *msg);
/* Skips an integer, a text or a binary. */
void unpack_skip(struct unpack *un);
/* Fails when bytes are left over. */
void unpack_end(struct unpack *un);

#endif
