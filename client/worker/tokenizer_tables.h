/* SPDX-License-Identifier: Apache-2.0 */
/* What tokenizer.c reads and tokenizer_encode.c uses. */
#ifndef WORKER_TOKENIZER_TABLES_H
#define WORKER_TOKENIZER_TABLES_H

#include "tokenizer.h"

struct token {
    uint32_t at, bytes; /* in the text of all; of an id without a token 0 bytes */
    bool added;         /* its bytes are found in a text before words are */
    bool special;       /* added; never what somebody types, and not shown */
    bool normalized;    /* added; looked for in what the others leave */
};

/* Two neighbours, and what they become; rank: the smaller is done first. */
struct merge {
    uint32_t left, right; /* left TOKENIZER_NONE: this place is free */
    uint32_t rank, id;
};

struct tokenizer {
    struct token *token;
    uint32_t tokens; /* ids are below */
    char *text;
    size_t text_bytes, text_room;
    uint32_t byte[256]; /* the token of a byte, or NONE: then unknown, or nothing, stands for it */
    uint32_t unknown;   /* or NONE */
    struct merge *merge;
    uint32_t places;          /* of merge, a power of two: open addressing */
    uint32_t *added, added_n; /* ids */
    bool digits;              /* each is a word */
};

/* Where two tokens' merge is, or the free place where it would be. */
struct merge *tokenizer_merge(const struct tokenizer *t, uint32_t left, uint32_t right);

#endif
