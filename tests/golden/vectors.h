/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vector files of this directory; README.md describes their format. An error in a file ends the
 * process with a line on stderr.
 */
#ifndef KVC_GOLDEN_VECTORS_H
#define KVC_GOLDEN_VECTORS_H

#include <stddef.h>
#include <stdint.h>

struct vector {
    char *message, *name; /* [message] name */
    char *text;           /* the lines "key = value" except hex, each with its newline */
    /* The bytes of hex, allocated with exactly `len` bytes; NULL if the vector has none. */
    uint8_t *bytes;
    size_t len;
};

struct vectors {
    struct vector *v;
    size_t n; /* at least 1 */
};

/* Reads tests/golden/<file> below $KVC_SOURCE_DIR. */
struct vectors vectors_load(const char *file);
void vectors_free(struct vectors *set);

/* The value of `key`, or NULL. The caller frees it. */
char *vector_value(const struct vector *v, const char *key);
/* Parses hex such as "00ff 61*64"; "-" is no bytes. The caller frees the result, which is never
 * NULL. */
uint8_t *vector_hex(const char *hex, size_t *ret_len);
/* The bytes of `key`, which must exist, in that form. The caller frees them; never NULL. */
uint8_t *vector_bytes(const struct vector *v, const char *key, size_t *ret_len);
/* The value of "tokens", as in "3 items 1 2 3". The caller frees it; never NULL. */
uint32_t *vector_tokens(const struct vector *v, size_t *ret_n);

#endif
