/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text as tokens, and tokens as text on a terminal. A model without a tokenizer has a token for
 * each byte. For chats there may be a template (chat.json, which smollm2.py writes): for each role
 * the text before and behind a message. The text behind a message of the system and of the
 * assistant is the same. One thread.
 */
#ifndef WORKER_TEXT_H
#define WORKER_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "model.h"
#include "tokenizer.h"

enum text_role { TEXT_SYSTEM, TEXT_USER, TEXT_ASSISTANT, TEXT_ROLES };

struct text {
    struct tokenizer *bpe; /* NULL: a byte is a token */
    struct json_t *chat;   /* NULL: no template */
    const char *system; /* message of the system at a chat's start, borrowed from `chat`; or NULL */
    const char *before[TEXT_ROLES], *behind[TEXT_ROLES]; /* text around a role's message */
    uint32_t *end, ends; /* the `ends` tokens that end a message of the assistant */
};

/* Tokens that are appended to a sequence. */
struct text_tokens {
    uint32_t *id, n; /* the caller frees `id` */
};

/* dir: the model's directory, or NULL. -EINVAL, -ENOMEM, -errno with `why`; then text_end() is not
 * called. */
MODEL_MUST_USE int text_begin(const char *dir, uint32_t vocab, char why[MODEL_WHY_BYTES],
                              struct text *ret_text);
void text_end(struct text *text);
/* Encodes a text without a template; the name of a special token in it is that token. -E2BIG,
 * -EINVAL, -ENOMEM with `why`. */
MODEL_MUST_USE int text_raw(const struct text *text, uint32_t vocab, const char *bytes, size_t n,
                            char why[MODEL_WHY_BYTES], struct text_tokens *ret_tokens);
/* Encodes a message of the user or of the system by the chat's template; behind a user's message
 * the assistant's turn begins. `said`: the tokens before it. No part of the message itself becomes
 * a special token. */
MODEL_MUST_USE int text_message(const struct text *text, enum text_role role, const char *bytes,
                                size_t n, const uint32_t *said, uint32_t said_n,
                                char why[MODEL_WHY_BYTES], struct text_tokens *ret_tokens);
/* The token that ends a message of the assistant; TOKENIZER_NONE without a template. */
uint32_t text_end_token(const struct text *text);

/* The bytes of a character whose last bytes are still to come. */
struct text_out {
    char held[4];
    uint32_t n;
};

/* Prints the characters of a token that are complete. Prints '?' for control characters and for
 * bytes that are not UTF-8, <id> for a token without text, and nothing for a special token. */
void text_put(const struct text *text, struct text_out *out, uint32_t token, FILE *to);
/* Prints the bytes that are still held back, at the end of a text. */
void text_put_end(struct text_out *out, FILE *to);

#endif
