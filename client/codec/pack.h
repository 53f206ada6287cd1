/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes msgpack, the encoding of every message, into a buffer of fixed size, always in the
 * shortest form. message.c calls these functions for each field. pack.c is the adapter of
 * msgpack-c: no other file of the codec includes its header. Private to the codec.
 *
 * The error is sticky: the first item that does not fit sets it, and nothing is written any more.
 */
#ifndef KVC_CODEC_PACK_H
#define KVC_CODEC_PACK_H

#include <stddef.h>
#include <stdint.h>

struct pack {
    uint8_t *buf; /* borrowed */
    size_t cap, len;
    int err; /* 0, -ENOSPC or -EINVAL */
};

void pack_init(struct pack *pk, void *buf, size_t cap);
void pack_array(struct pack *pk, uint32_t n);
void pack_uint(struct pack *pk, uint64_t v);
/* `p` may be NULL when `n` is 0. A text or blob of n bytes. */
void pack_text(struct pack *pk, const void *p, uint32_t n);
void pack_blob(struct pack *pk, const void *p, uint32_t n);

#endif
