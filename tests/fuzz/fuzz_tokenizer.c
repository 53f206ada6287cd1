/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tokenizer.json, as the worker reads it. What is refused has a reason; what is taken makes
 * tokens of the file's own text, none without bytes, and where each byte has a token the text comes
 * back.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "tokenizer_tables.h"

#define VOCAB 300u

static bool has_all_bytes(const struct tokenizer *t)
{
    for (unsigned b = 0; b < 256; b++)
        if (t->byte[b] == TOKENIZER_NONE)
            return false;
    return true;
}

static void check_ids(const struct tokenizer *t, const uint32_t *id, uint32_t n, const char *text,
                      size_t size)
{
    size_t at = 0, bytes;
    const bool whole = has_all_bytes(t);
    for (uint32_t i = 0; i < n; i++) {
        const char *of = tokenizer_bytes(t, id[i], &bytes);
        FUZZ_CHECK(bytes > 0, "token %u has no bytes", id[i]);
        if (whole)
            FUZZ_CHECK(bytes <= size - at && memcmp(of, text + at, bytes) == 0,
                       "token %u is not what the text has at %zu", id[i], at);
        at += bytes;
    }
    FUZZ_CHECK(!whole || at == size, "%zu bytes came back of %zu", at, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[TOKENIZER_WHY_BYTES] = "";
    struct tokenizer *t = NULL;
    uint32_t *id = NULL, n = 0;
    const char *text = (const char *)data;
    if (tokenizer_parse(text, size, VOCAB, why, &t) < 0) {
        FUZZ_CHECK(why[0] != '\0' && t == NULL, "no reason");
        fuzz_tally.refused++;
        return 0;
    }
    FUZZ_CHECK(tokenizer_encode(t, text, size, size / 2, size / 4, &id, &n) == 0 && n <= size,
               "%u tokens of %zu bytes", n, size);
    check_ids(t, id, n, text, size);
    free(id);
    tokenizer_free(&t);
    fuzz_tally.taken++;
    return 0;
}
