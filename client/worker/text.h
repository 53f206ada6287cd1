/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text in, text out: tokens by the model's tokenizer, where it has one, and else by bytes; what a
 * chat's template puts around a message (chat.json, which smollm2.py writes: for each role what
 * stands before and behind what it says; behind system and assistant the same); and tokens on a
 * terminal, each character whole. One thread.
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
    const char *system;    /* what it says before the first user, or NULL; borrowed of chat */
    const char *before[TEXT_ROLES], *behind[TEXT_ROLES];
    uint32_t *end, ends; /* tokens at the end of what the assistant says */
};

/* Tokens that are appended to a sequence. */
struct text_tokens {
    uint32_t *id, n; /* to be freed */
};

/* dir: of the model, or NULL. -EINVAL, -ENOMEM, -errno with why; then nothing is to be ended. */
MODEL_MUST_USE int text_begin(const char *dir, uint32_t vocab, char why[MODEL_WHY_BYTES],
                              struct text *ret_text);
void text_end(struct text *text);
/* A text as it is; names of special tokens stand for these. -E2BIG, -EINVAL, -ENOMEM with why. */
MODEL_MUST_USE int text_raw(const struct text *text, uint32_t vocab, const char *bytes, size_t n,
                            char why[MODEL_WHY_BYTES], struct text_tokens *ret_tokens);
/* A message of the user, behind which the assistant is to speak, or of the system, by the chat's
 * template; `said`: the tokens before it. Of what the message says nothing is a special token. */
MODEL_MUST_USE int text_message(const struct text *text, enum text_role role, const char *bytes,
                                size_t n, const uint32_t *said, uint32_t said_n,
                                char why[MODEL_WHY_BYTES], struct text_tokens *ret_tokens);
/* With which the assistant ends what it says; TOKENIZER_NONE without a template. */
uint32_t text_end_token(const struct text *text);

/* What a character still lacks. */
struct text_out {
    char held[4];
    uint32_t n;
};

/* A token's characters, as soon as they are whole; '?' for what could steer a terminal and for what
 * is no UTF-8, <id> for a token without text, nothing for a special one. */
void text_put(const struct text *text, struct text_out *out, uint32_t token, FILE *to);
/* At the end: what was held back. */
void text_put_end(struct text_out *out, FILE *to);

#endif
