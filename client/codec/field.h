/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes integer members of a struct by offset and width. message.c and unpack.c work
 * from a schema, so they know a field as an offset and a width, not as a C member.
 */
#ifndef KVC_CODEC_FIELD_H
#define KVC_CODEC_FIELD_H

#include <stdint.h>
#include <string.h>

/* Stores `v` in the member at `at`. `width` is 1, 2, 4 or 8, and `v` fits it. */
static inline void field_put_uint(void *at, uint16_t width, uint64_t v)
{
    uint16_t v16 = (uint16_t)v;
    uint32_t v32 = (uint32_t)v;
    switch (width) {
    case 1:
        *(uint8_t *)at = (uint8_t)v;
        break;
    case 2:
        memcpy(at, &v16, sizeof(v16));
        break;
    case 4:
        memcpy(at, &v32, sizeof(v32));
        break;
    default:
        memcpy(at, &v, sizeof(v));
    }
}

static inline uint64_t field_get_uint(const void *at, uint16_t width)
{
    uint16_t v16;
    uint32_t v32;
    uint64_t v64;
    switch (width) {
    case 1:
        return *(const uint8_t *)at;
    case 2:
        memcpy(&v16, at, sizeof(v16));
        return v16;
    case 4:
        memcpy(&v32, at, sizeof(v32));
        return v32;
    default:
        memcpy(&v64, at, sizeof(v64));
        return v64;
    }
}

#endif
