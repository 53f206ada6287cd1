/* SPDX-License-Identifier: Apache-2.0 */
/* Text to tokens: added tokens, words, merges. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_tables.h"
#include "unicode.h"
#include "utf8.h"

/* A token of the word that is being merged; symbols form a list of neighbours. */
struct symbol {
    uint32_t id; /* NONE: merged into the one before it */
    uint32_t before, after;
};

/* Two neighbours that may be merged. The candidate is void once one of them has changed. */
struct candidate {
    uint32_t rank, at; /* the left symbol */
    uint32_t left, right, id;
};

struct encoder {
    const struct tokenizer *t;
    const char *text;
    size_t plain_at, plain; /* the part of the text that a user typed */
    struct symbol *symbol;
    struct candidate *heap; /* the least rank first, then the leftmost */
    uint32_t room, candidates;
    uint32_t *id, n;
};

/* ---- merges of a word ---- */

static bool candidate_first(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct encoder *e, struct candidate new)
{
    uint32_t i = e->candidates++;
    for (; i > 0 && candidate_first(&new, &e->heap[(i - 1) / 2]); i = (i - 1) / 2)
        e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = new;
}

static struct candidate heap_pop(struct encoder *e)
{
    const struct candidate first = e->heap[0], last = e->heap[--e->candidates];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < e->candidates; i = child) {
        if (child + 1 < e->candidates && candidate_first(&e->heap[child + 1], &e->heap[child]))
            child++;
        if (!candidate_first(&e->heap[child], &last))
            break;
        e->heap[i] = e->heap[child];
    }
    e->heap[i] = last;
    return first;
}

static void consider(struct encoder *e, uint32_t at)
{
    const uint32_t after = e->symbol[at].after;
    if (after == TOKENIZER_NONE)
        return;
    const uint32_t left = e->symbol[at].id, right = e->symbol[after].id;
    const struct merge *m = tokenizer_merge(e->t, left, right);
    if (m->left != TOKENIZER_NONE)
        heap_push(e, (struct candidate){
                         .rank = m->rank, .at = at, .left = left, .right = right, .id = m->id});
}

static void merge_all(struct encoder *e)
{
    while (e->candidates > 0) {
        const struct candidate c = heap_pop(e);
        struct symbol *left = &e->symbol[c.at];
        if (left->id != c.left || left->after == TOKENIZER_NONE ||
            e->symbol[left->after].id != c.right)
            continue; /* one of the two has been merged meanwhile */
        struct symbol *right = &e->symbol[left->after];
        left->id = c.id;
        left->after = right->after;
        right->id = TOKENIZER_NONE;
        if (left->after != TOKENIZER_NONE)
            e->symbol[left->after].before = c.at;
        consider(e, c.at);
        if (left->before != TOKENIZER_NONE)
            consider(e, left->before);
    }
}

/* Of n symbols there are n - 1 candidates at first, and each merge brings two more. */
static int encoder_room(struct encoder *e, size_t n)
{
    if (n <= e->room)
        return 0;
    free(e->symbol);
    free(e->heap);
    e->room = (uint32_t)n;
    e->symbol = malloc(n * sizeof(*e->symbol));
    e->heap = malloc(3 * n * sizeof(*e->heap));
    return e->symbol && e->heap ? 0 : -ENOMEM;
}

static int encode_word(struct encoder *e, const char *word, size_t n)
{
    if (encoder_room(e, n) != 0)
        return -ENOMEM;
    uint32_t symbols = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t id = e->t->byte[(unsigned char)word[i]];
        id = id == TOKENIZER_NONE ? e->t->unknown : id;
        if (id == TOKENIZER_NONE)
            continue;
        e->symbol[symbols] = (struct symbol){.id = id,
                                             .before = symbols > 0 ? symbols - 1 : TOKENIZER_NONE,
                                             .after = TOKENIZER_NONE};
        if (symbols > 0)
            e->symbol[symbols - 1].after = symbols;
        symbols++;
    }
    for (uint32_t i = 0; i + 1 < symbols; i++)
        consider(e, i);
    merge_all(e);
    for (uint32_t i = 0; i < symbols; i++)
        if (e->symbol[i].id != TOKENIZER_NONE)
            e->id[e->n++] = e->symbol[i].id;
    return 0;
}

/* ---- words ---- */

/* The kind of the first character, and its length. A byte that is not UTF-8 is a character of kind
 * UNICODE_OTHER. */
static enum unicode_kind kind_at(const char *text, size_t n, size_t *ret_bytes)
{
    uint32_t character = 0;
    const size_t bytes = utf8_next(text, n, &character);
    *ret_bytes = bytes > 0 ? bytes : 1;
    return bytes > 0 ? unicode_kind(character) : UNICODE_OTHER;
}

/* The length of the run of characters of one kind; *ret_last: length of the last character. */
static size_t run_of(const char *text, size_t n, enum unicode_kind kind, size_t *ret_last)
{
    size_t at = 0, bytes = 0;
    while (at < n && kind_at(text + at, n - at, &bytes) == kind) {
        at += bytes;
        *ret_last = bytes;
    }
    return at;
}

static size_t contraction(const char *text, size_t n)
{
    static const char *const all[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (n >= strlen(all[i]) && memcmp(text, all[i], strlen(all[i])) == 0)
            return strlen(all[i]);
    return 0;
}

/*
 * Bytes of the first word, by GPT-2's expression:
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * The last but one leaves the last of several blanks to what follows.
 */
static size_t word_of(const char *text, size_t n)
{
    size_t bytes = 0, last = 0;
    const size_t contracted = contraction(text, n);
    if (contracted > 0)
        return contracted;
    const size_t space = n > 1 && text[0] == ' ' ? 1 : 0;
    const enum unicode_kind kind = kind_at(text + space, n - space, &bytes);
    if (kind != UNICODE_SPACE)
        return space + run_of(text + space, n - space, kind, &last);
    const size_t blanks = run_of(text, n, UNICODE_SPACE, &last);
    return blanks < n && blanks > last ? blanks - last : blanks;
}

/* The length of the text before the first number; if the text begins with a number, the length of
 * that. */
static size_t before_digit(const char *text, size_t n)
{
    size_t at = 0, bytes = 0;
    while (at < n && kind_at(text + at, n - at, &bytes) != UNICODE_NUMBER)
        at += bytes;
    return at > 0 ? at : bytes;
}

static int encode_plain(struct encoder *e, const char *text, size_t n)
{
    int rc = 0;
    while (rc == 0 && n > 0) {
        size_t piece = e->t->digits ? before_digit(text, n) : n;
        n -= piece;
        for (size_t word; rc == 0 && piece > 0; text += word, piece -= word) {
            word = word_of(text, piece);
            rc = encode_word(e, text, word);
        }
    }
    return rc;
}

/* ---- added tokens ---- */

/*
 * The bytes at `at` in which one token may be found: typed text alone, or the text around it alone,
 * so that no token reaches from one into the other. *ret_typed: they are typed.
 */
static size_t bytes_alike(const struct encoder *e, size_t at, size_t end, bool *ret_typed)
{
    const size_t typed_end = e->plain_at + e->plain;
    *ret_typed = at >= e->plain_at && at < typed_end;
    if (e->plain == 0 || at >= typed_end)
        return end - at;
    const size_t border = *ret_typed ? typed_end : e->plain_at;
    return (border < end ? border : end) - at;
}

/* The longest added token that the text has at `at`, or NONE. */
static uint32_t added_at(const struct encoder *e, size_t at, size_t end, bool normalized)
{
    const struct tokenizer *t = e->t;
    uint32_t best = TOKENIZER_NONE;
    bool typed;
    const size_t n = bytes_alike(e, at, end, &typed);
    for (uint32_t i = 0; i < t->added_n; i++) {
        const struct token *a = &t->token[t->added[i]];
        if (a->normalized == normalized && !(typed && a->special) && a->bytes <= n &&
            memcmp(t->text + a->at, e->text + at, a->bytes) == 0 &&
            (best == TOKENIZER_NONE || a->bytes > t->token[best].bytes))
            best = t->added[i];
    }
    return best;
}

/* Encodes the added tokens from `at` on, and calls rest() for the text between them. */
static int encode_added(struct encoder *e, size_t at, size_t end, bool normalized,
                        int (*rest)(struct encoder *, size_t at, size_t end))
{
    size_t done = at;
    while (at < end) {
        const uint32_t id = added_at(e, at, end, normalized);
        if (id == TOKENIZER_NONE) {
            at++;
            continue;
        }
        const int rc = rest(e, done, at);
        if (rc != 0)
            return rc;
        e->id[e->n++] = id;
        at += e->t->token[id].bytes;
        done = at;
    }
    return rest(e, done, end);
}

static int encode_words(struct encoder *e, size_t at, size_t end)
{
    return encode_plain(e, e->text + at, end - at);
}

static int encode_normalized(struct encoder *e, size_t at, size_t end)
{
    return encode_added(e, at, end, true, encode_words);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, size_t plain_at,
                     size_t plain, uint32_t **ret_ids, uint32_t *ret_n)
{
    if (n > TOKENIZER_TEXT_MAX)
        return -E2BIG;
    struct encoder e = {.t = t,
                        .text = text,
                        .plain_at = plain_at,
                        .plain = plain,
                        .id = malloc((n + 1) * sizeof(*e.id))};
    const int rc = e.id ? encode_added(&e, 0, n, false, encode_normalized) : -ENOMEM;
    free(e.symbol);
    free(e.heap);
    if (rc != 0) {
        free(e.id);
        return rc;
    }
    *ret_ids = e.id;
    *ret_n = e.n;
    return 0;
}

/* ---- and back ---- */

const char *tokenizer_bytes(const struct tokenizer *t, uint32_t id, size_t *ret_n)
{
    *ret_n = id < t->tokens ? t->token[id].bytes : 0;
    return *ret_n > 0 ? t->text + t->token[id].at : "";
}

bool tokenizer_is_special(const struct tokenizer *t, uint32_t id)
{
    return id < t->tokens && t->token[id].special;
}
