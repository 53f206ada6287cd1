/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text as tokens and back: byte-level byte-pair encoding as GPT-2 has it (Sennrich et al.,
 * arXiv:1508.07909; Radford et al. 2019), read from a tokenizer.json of Hugging Face's library
 * tokenizers, and giving the same ids. A text is cut at added tokens (of which some are special:
 * nobody types them, and they are not shown), then into words (a space belongs to the word behind
 * it), where the file says so each digit by itself; the bytes of a word
 * are tokens, of which the two neighbours whose merge comes first in the file become one, again and
 * again. Other kinds of tokenizers are refused by name. Pure after the load; any thread.
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

/* `vocab`: the model has tokens below that. 0; -ENOENT: DIR has no tokenizer.json; -EINVAL,
 * -ENOMEM, -errno. All with why. */
TOKENIZER_MUST_USE int tokenizer_load(const char *dir, uint32_t vocab,
                                      char why[TOKENIZER_WHY_BYTES],
                                      struct tokenizer **ret_tokenizer);
/* The same of a file's text. -EINVAL, -ENOMEM; why does not name a file. */
TOKENIZER_MUST_USE int tokenizer_parse(const char *json, size_t n, uint32_t vocab,
                                       char why[TOKENIZER_WHY_BYTES],
                                       struct tokenizer **ret_tokenizer);
void tokenizer_free(struct tokenizer **tokenizer);

/*
 * A text of n bytes as tokens. In the `plain` bytes from plain_at on, special tokens are text like
 * any other: so what somebody types is never taken for the end of a turn. The text need not be
 * UTF-8: bytes that are none are tokens too. *ret_ids, to be freed, has *ret_n ids, n at most.
 * -E2BIG: longer than TOKENIZER_TEXT_MAX; -ENOMEM.
 */
TOKENIZER_MUST_USE int tokenizer_encode(const struct tokenizer *tokenizer, const char *text,
                                        size_t n, size_t plain_at, size_t plain, uint32_t **ret_ids,
                                        uint32_t *ret_n);
/* The bytes that a token stands for, borrowed; they may end within a character. None of an id that
 * the file does not have. */
const char *tokenizer_bytes(const struct tokenizer *tokenizer, uint32_t id, size_t *ret_n);
/* Whether it is a special token: its bytes are its name. An added token that is not special is a
 * text like any other. */
bool tokenizer_is_special(const struct tokenizer *tokenizer, uint32_t id);

#endif
