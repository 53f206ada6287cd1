/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages as data: which fields a message has on the wire, in which order, within which limits,
 * and where each is in its C struct. One table drives encoder, decoder and the tests, so that the
 * three cannot disagree. Private to the codec and its tests.
 */
#ifndef KVC_CODEC_SCHEMA_H
#define KVC_CODEC_SCHEMA_H

#include "codec.h"

enum field_kind {
    FIELD_UINT,   /* unsigned integer, min to max */
    FIELD_FLAGS,  /* unsigned integer, only bits of `max` may be set */
    FIELD_TEXT,   /* UTF-8 without NUL, min to max bytes */
    FIELD_STRING, /* UTF-8 without NUL, at most max bytes, inside the struct, with a NUL at its
                   * end */
    FIELD_DETAIL, /* text for people: clipped to max when written, any bytes when read */
    FIELD_BLOB,   /* binary, min to max elements of `unit` bytes */
    FIELD_FIXED,  /* binary of exactly `width` bytes, inside the struct */
    FIELD_MAGIC,  /* the text KVC_PROTO_MAGIC; nothing in the struct */
    /* Min to max items, each with the fields of schema `items`, which has no arrays; their number
     * is at `count_at`. */
    FIELD_ARRAY
};

struct field {
    const char *name; /* the C member; PROTOCOL.md has the part behind the last dot */
    const char *must; /* the error text: what the field must be */
    uint64_t min, max;
    const struct schema *items;
    uint32_t unit;
    uint16_t at;    /* offset of the member */
    uint16_t width; /* bytes of the member (an ARRAY: all of its elements) */
    uint16_t count_at;
    uint8_t kind; /* enum field_kind */
};

struct schema {
    const char *name;
    const struct field *fields;
    uint16_t nfields;
    uint16_t size;  /* bytes of the struct */
    uint8_t ops[8]; /* operations (or the attach code) whose message this is; 0 = none */
    bool bare;      /* an item of an array that is a single field without an array around it */
    /* Checks limits that concern several fields. Returns NULL, or a static text that says what is
     * wrong. */
    const char *(*check)(const void *msg);
};

#define X(OP, name) extern const struct schema codec__req_##name;
CODEC_REQUEST_LIST(X)
#undef X
#define X(name) extern const struct schema codec__rep_##name;
CODEC_REPLY_LIST(X)
#undef X
#define X(name) extern const struct schema codec__att_##name;
CODEC_ATTACH_LIST(X)
#undef X
extern const struct schema codec__req_bare, codec__rep_bare;
extern const struct schema codec__item_stat;
/* The fields before the items of a reply that is a list. */
extern const struct schema codec__rep_list;
/* The fields of a reply whose status is not OK. */
extern const struct schema codec__rep_error;

#endif
