/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vector files of this directory; README.md describes their format. For tests: anything wrong
 * with a file ends the process with a line on stderr.
 */
#ifndef KVC_GOLDEN_VECTORS_H
#define KVC_GOLDEN_VECTORS_H

#include <stddef.h>
#include <stdint.h>

struct vector {
    char *message, *name; /* [message] name */
    char *text;           /* the "key = value" lines but hex, each with its newline */
    uint8_t *bytes;       /* of hex; NULL without one. A block of exactly `len` bytes */
    size_t len;
};

struct vectors {
    struct vector *v;
    size_t n; /* at least 1 */
};

/* Reads tests/golden/<file> below $KVC_SOURCE_DIR. */
struct vectors vectors_load(const char *file);
void vectors_free(struct vectors *set);

/* The value of `key`, or NULL. Returns owned. */
char *vector_value(const struct vector *v, const char *key);
/* Bytes of hex such as "00ff 61*64", "-" for none. Returns owned, never NULL. */
uint8_t *vector_hex(const char *hex, size_t *ret_len);
/* The value of `key`, which must be there, as such hex. Returns owned, never NULL. */
uint8_t *vector_bytes(const struct vector *v, const char *key, size_t *ret_len);
/* The value of "tokens": "3 items 1 2 3". Returns owned, never NULL. */
uint32_t *vector_tokens(const struct vector *v, size_t *ret_n);

#endif
