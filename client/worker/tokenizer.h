/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text as tokens and back: byte-level byte-pair encoding as in GPT-2 (Sennrich et al.,
 * arXiv:1508.07909; Radford et al. 2019). It reads a tokenizer.json of Hugging Face's library
 * tokenizers, and gives the same ids as that library. Other kinds of tokenizers are refused.
 *
 * A text is cut at added tokens; some of them are special, which users do not type and programs do
 * not show. The rest is cut into words, with a space at the word behind it; if the file says so,
 * each digit is a word. A word begins as one token per byte. Of all neighbours, those whose merge
 * comes first in the file become one token, and that is repeated. Any thread may use a tokenizer
 * that is loaded.
 */
#ifndef WORKER_TOKENIZER_H
#define WORKER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TOKENIZER_WHY_BYTES 320u
#define TOKENIZER_MUST_USE  __attribute__((warn_unused_result))
#define TOKENIZER_TEXT_MAX  (1u << 28)
#define TOKENIZER_NONE      UINT32_MAX /* no token */

struct tokenizer;

/* `vocab`: the model's ids are below it. 0; -ENOENT: `dir` has no tokenizer.json; -EINVAL, -ENOMEM,
 * -errno. Each error has a text in `why`. */
TOKENIZER_MUST_USE int tokenizer_load(const char *dir, uint32_t vocab,
                                      char why[TOKENIZER_WHY_BYTES],
                                      struct tokenizer **ret_tokenizer);
/* The same from the text of such a file. -EINVAL, -ENOMEM; `why` names no file. */
TOKENIZER_MUST_USE int tokenizer_parse(const char *json, size_t n, uint32_t vocab,
                                       char why[TOKENIZER_WHY_BYTES],
                                       struct tokenizer **ret_tokenizer);
void tokenizer_free(struct tokenizer **tokenizer);

/*
 * Encodes a text of n bytes. In the `plain` bytes from plain_at on, names of special tokens are
 * ordinary text, so nothing that a user types can end a turn. The text need not be UTF-8. *ret_ids,
 * which the caller frees, has *ret_n ids, at most n. -E2BIG: the text is longer than
 * TOKENIZER_TEXT_MAX; -ENOMEM.
 */
TOKENIZER_MUST_USE int tokenizer_encode(const struct tokenizer *tokenizer, const char *text,
                                        size_t n, size_t plain_at, size_t plain, uint32_t **ret_ids,
                                        uint32_t *ret_n);
/* The bytes of a token, borrowed; they may end inside a character. *ret_n is 0 for an id that the
 * file does not have. */
const char *tokenizer_bytes(const struct tokenizer *tokenizer, uint32_t id, size_t *ret_n);
/* Whether the token is special; its bytes are its name then. Added tokens that are not special
 * stand for their text. */
bool tokenizer_is_special(const struct tokenizer *tokenizer, uint32_t id);

#endif
