/* SPDX-License-Identifier: Apache-2.0 */
/* Tables that tokenizer.c fills and tokenizer_encode.c uses. */
#ifndef WORKER_TOKENIZER_TABLES_H
#define WORKER_TOKENIZER_TABLES_H

#include "tokenizer.h"

struct token {
    uint32_t at, bytes; /* place in the text of all tokens; an id without a token has 0 bytes */
    bool added;         /* found in a text before words are */
    bool special;       /* an added token that users never type and that is not shown */
    bool normalized; /* an added token that is looked for in the text that the other ones leave */
};

/* Two neighbours and the token that they become. A smaller rank is merged first. */
struct merge {
    uint32_t left, right; /* left TOKENIZER_NONE: this place is free */
    uint32_t rank, id;
};

struct tokenizer {
    struct token *token;
    uint32_t tokens; /* all ids are below it */
    char *text;
    size_t text_bytes, text_room;
    uint32_t byte[256]; /* the token of each byte; NONE: the byte becomes `unknown`, or nothing */
    uint32_t unknown;   /* or NONE */
    struct merge *merge;
    uint32_t places;          /* size of the hash table `merge`, a power of two */
    uint32_t *added, added_n; /* ids */
    bool digits;              /* each digit is a word */
};

/* The entry of two tokens' merge, or the free entry where it would be. */
struct merge *tokenizer_merge(const struct tokenizer *t, uint32_t left, uint32_t right);

#endif
