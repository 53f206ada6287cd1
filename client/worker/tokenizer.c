/* SPDX-License-Identifier: Apache-2.0 */
/* Reads tokenizer.json, which is not trusted: every value is checked. */
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "infile.h"
#include "tokenizer_tables.h"
#include "utf8.h"

#define FILE_MAX   (64u << 20)
#define MERGES_MAX (1u << 22)
#define ADDED_MAX  4096u

struct reader {
    struct tokenizer *t;
    const json_t *vocab;
    uint16_t byte_of[512]; /* of a character that stands for a byte: the byte + 1 */
    char *why;
};

__attribute__((format(printf, 2, 3))) static int reader_wrong(const struct reader *r,
                                                              const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(r->why, TOKENIZER_WHY_BYTES, format, args);
    va_end(args);
    return -EINVAL;
}

static int reader_no_memory(const struct reader *r)
{
    (void)reader_wrong(r, "no memory for a tokenizer");
    return -ENOMEM;
}

/* ---- what the worker does not do ---- */

static bool tokenizer_is_nothing(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

static const char *type_of(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "none";
}

static bool is_byte_level(const json_t *step)
{
    const json_t *regex = json_object_get(step, "use_regex");
    return strcmp(type_of(step), "ByteLevel") == 0 && (!regex || json_is_true(regex)) &&
           tokenizer_is_nothing(json_object_get(step, "add_prefix_space"));
}

static bool is_digits(const json_t *step)
{
    return strcmp(type_of(step), "Digits") == 0 &&
           json_is_true(json_object_get(step, "individual_digits"));
}

static int take_words(const struct reader *r, const json_t *root)
{
    const json_t *words = json_object_get(root, "pre_tokenizer");
    const json_t *steps = json_object_get(words, "pretokenizers");
    r->t->digits = json_array_size(steps) == 2 && is_digits(json_array_get(steps, 0));
    const json_t *last = r->t->digits ? json_array_get(steps, 1) : words;
    if (!is_byte_level(last))
        return reader_wrong(r,
                            "its pre_tokenizer is %.40s; the worker has ByteLevel (without "
                            "add_prefix_space), alone or behind Digits (individual_digits)",
                            type_of(words));
    return 0;
}

static int refuse_others(const struct reader *r, const json_t *root, const json_t *model)
{
    static const char *const of_root[] = {"normalizer", "truncation", "padding"};
    static const char *const of_model[] = {"dropout", "continuing_subword_prefix",
                                           "end_of_word_suffix", "byte_fallback", "ignore_merges"};
    if (strcmp(type_of(model), "BPE") != 0)
        return reader_wrong(r, "its model is %.40s, not BPE", type_of(model));
    for (size_t i = 0; i < sizeof(of_root) / sizeof(of_root[0]); i++)
        if (!tokenizer_is_nothing(json_object_get(root, of_root[i])))
            return reader_wrong(r, "it has a %s, which the worker does not do", of_root[i]);
    for (size_t i = 0; i < sizeof(of_model) / sizeof(of_model[0]); i++)
        if (!tokenizer_is_nothing(json_object_get(model, of_model[i])))
            return reader_wrong(r, "its model has %s, which the worker does not do", of_model[i]);
    return 0;
}

/* ---- tokens ---- */

/* Fills byte_of: printable bytes are written as themselves, other bytes as characters from U+0100
 * on. */
static void fill_bytes(struct reader *r)
{
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; b++) {
        const bool seen = (b > ' ' && b < 127) || (b >= 0xA1 && b != 0xAD);
        r->byte_of[seen ? b : next++] = (uint16_t)(b + 1);
        r->t->byte[b] = TOKENIZER_NONE;
    }
}

static int take_id(const struct reader *r, const json_t *value, const char *name, uint32_t *ret_id)
{
    const json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= r->t->tokens)
        return reader_wrong(r, "the id of the token '%.40s' is none of the model's, 0 to %u", name,
                            r->t->tokens - 1);
    if (r->t->token[id].bytes > 0)
        return reader_wrong(r, "the tokens '%.*s' and '%.40s' have one id, %u",
                            (int)(r->t->token[id].bytes < 40 ? r->t->token[id].bytes : 40),
                            r->t->text + r->t->token[id].at, name, (uint32_t)id);
    *ret_id = (uint32_t)id;
    return 0;
}

/* The bytes of t's text from `from` on are those of the token `id`. */
static void token_end(struct tokenizer *t, uint32_t id, size_t from)
{
    t->token[id].at = (uint32_t)from;
    t->token[id].bytes = (uint32_t)(t->text_bytes - from);
}

static int take_token(const struct reader *r, const char *name, uint32_t id)
{
    struct tokenizer *t = r->t;
    const size_t n = strlen(name), from = t->text_bytes;
    size_t step;
    for (size_t i = 0; i < n; i += step) {
        uint32_t character = 0;
        step = utf8_next(name + i, n - i, &character);
        if (step == 0 || character >= 512 || r->byte_of[character] == 0)
            return reader_wrong(r, "the token '%.40s' is not of bytes as ByteLevel writes them",
                                name);
        t->text[t->text_bytes++] = (char)(r->byte_of[character] - 1);
    }
    if (n == 0)
        return reader_wrong(r, "the token %u is empty", id);
    token_end(t, id, from);
    if (t->token[id].bytes == 1)
        t->byte[(unsigned char)t->text[from]] = id;
    return 0;
}

static int take_added(const struct reader *r, const json_t *added)
{
    struct tokenizer *t = r->t;
    const char *name = json_string_value(json_object_get(added, "content"));
    uint32_t id = 0;
    if (!name || name[0] == '\0')
        return reader_wrong(r, "an added token has no content");
    if (json_is_true(json_object_get(added, "lstrip")) ||
        json_is_true(json_object_get(added, "rstrip")) ||
        json_is_true(json_object_get(added, "single_word")))
        return reader_wrong(r,
                            "the added token '%.40s' takes blanks beside it (lstrip, rstrip, "
                            "single_word), which the worker does not do",
                            name);
    const json_t *special = json_object_get(added, "special");
    const json_t *normalized = json_object_get(added, "normalized");
    if (!json_is_boolean(special) || !json_is_boolean(normalized))
        return reader_wrong(r,
                            "the added token '%.40s' needs \"special\" and \"normalized\", each "
                            "true or false",
                            name);
    const int rc = take_id(r, json_object_get(added, "id"), name, &id);
    if (rc != 0)
        return rc;
    const size_t n = strlen(name), from = t->text_bytes;
    memcpy(t->text + from, name, n);
    t->text_bytes += n;
    token_end(t, id, from);
    t->token[id].added = true;
    t->token[id].special = json_is_true(special);
    t->token[id].normalized = json_is_true(normalized);
    t->added[t->added_n++] = id;
    return 0;
}

static bool is_token(const struct tokenizer *t, uint32_t id, const char *name)
{
    return t->token[id].bytes == strlen(name) &&
           memcmp(t->text + t->token[id].at, name, t->token[id].bytes) == 0;
}

static int take_vocab(const struct reader *r)
{
    const char *name;
    json_t *value;
    int rc = 0;
    json_object_foreach((json_t *)(uintptr_t)r->vocab, name, value)
    {
        const json_int_t known = json_is_integer(value) ? json_integer_value(value) : -1;
        if (known >= 0 && known < r->t->tokens && r->t->token[known].added &&
            is_token(r->t, (uint32_t)known, name))
            continue; /* an added token */
        uint32_t id = 0;
        rc = take_id(r, value, name, &id);
        rc = rc == 0 ? take_token(r, name, id) : rc;
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* Makes room for the bytes of all tokens: no token has more bytes than its text in the file. */
static int tokenizer_take_tokens(struct reader *r, const json_t *root)
{
    struct tokenizer *t = r->t;
    const json_t *added = json_object_get(root, "added_tokens");
    const size_t n = json_array_size(added);
    size_t room = 1;
    const char *name;
    json_t *value;
    if (!json_is_object(r->vocab))
        return reader_wrong(r, "its model has no vocab");
    if (n > ADDED_MAX)
        return reader_wrong(r, "%zu added tokens; the worker takes %u", n, ADDED_MAX);
    json_object_foreach((json_t *)(uintptr_t)r->vocab, name, value) room += strlen(name);
    for (size_t i = 0; i < n; i++)
        room += json_string_length(json_object_get(json_array_get(added, i), "content"));
    t->token = calloc(t->tokens, sizeof(*t->token));
    t->added = calloc(n + 1, sizeof(*t->added));
    t->text = malloc(room);
    if (!t->token || !t->added || !t->text)
        return reader_no_memory(r);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = take_added(r, json_array_get(added, i));
    return rc == 0 ? take_vocab(r) : rc;
}

/* ---- merges ---- */

struct merge *tokenizer_merge(const struct tokenizer *t, uint32_t left, uint32_t right)
{
    const uint64_t mixed = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    uint32_t at = (uint32_t)(mixed >> 32) & (t->places - 1);
    while (t->merge[at].left != TOKENIZER_NONE &&
           !(t->merge[at].left == left && t->merge[at].right == right))
        at = (at + 1) & (t->places - 1);
    return &t->merge[at];
}

/* The id of a token of the vocabulary, by its text in the file. */
static int find_token(const struct reader *r, const char *name, uint32_t *ret_id)
{
    const json_t *value = json_object_get(r->vocab, name);
    if (!value)
        return reader_wrong(r, "a merge or unk_token is '%.40s', which is no token", name);
    *ret_id = (uint32_t)json_integer_value(value);
    return 0;
}

/* Splits a merge: "left right" in older files, an array of both in newer ones. */
static int split_merge(const struct reader *r, const json_t *item, char *both, size_t room,
                       const char **ret_left, const char **ret_right)
{
    const char *left = json_string_value(json_array_get(item, 0));
    const char *right = json_string_value(json_array_get(item, 1));
    const char *text = json_string_value(item);
    char *blank = NULL;
    int n = text ? snprintf(both, room, "%s", text) : 0;
    if (text && n > 0 && (size_t)n < room && (blank = strchr(both, ' ')) &&
        !strchr(blank + 1, ' ')) {
        *blank = '\0';
        left = both;
        right = blank + 1;
    }
    if (!left || !right || json_array_size(item) > 2)
        return reader_wrong(r, "a merge is no pair of tokens");
    *ret_left = left;
    *ret_right = right;
    return 0;
}

static int take_merge(const struct reader *r, const json_t *item, uint32_t rank)
{
    char both[1024], joined[1024];
    const char *left = NULL, *right = NULL;
    struct merge new = {.rank = rank};
    int rc = split_merge(r, item, both, sizeof(both), &left, &right);
    if (rc == 0) {
        const int n = snprintf(joined, sizeof(joined), "%s%s", left, right);
        if (n < 0 || (size_t)n >= sizeof(joined))
            rc = reader_wrong(r, "a merge makes a token of %d bytes", n);
    }
    rc = rc == 0 ? find_token(r, left, &new.left) : rc;
    rc = rc == 0 ? find_token(r, right, &new.right) : rc;
    rc = rc == 0 ? find_token(r, joined, &new.id) : rc;
    if (rc != 0)
        return rc;
    struct merge *place = tokenizer_merge(r->t, new.left, new.right);
    if (place->left != TOKENIZER_NONE)
        return reader_wrong(r, "the merge of '%.40s' and '%.40s' is there twice", left, right);
    *place = new;
    return 0;
}

static int take_merges(struct reader *r, const json_t *merges)
{
    struct tokenizer *t = r->t;
    const size_t n = json_array_size(merges);
    if (!json_is_array(merges) || n > MERGES_MAX)
        return reader_wrong(r, "its model has no list of merges, or one of more than %u",
                            MERGES_MAX);
    t->places = 16;
    while (t->places < 2 * n)
        t->places *= 2;
    t->merge = malloc(t->places * sizeof(*t->merge));
    if (!t->merge)
        return reader_no_memory(r);
    for (uint32_t i = 0; i < t->places; i++)
        t->merge[i].left = TOKENIZER_NONE;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = take_merge(r, json_array_get(merges, i), (uint32_t)i);
    return rc;
}

/* ---- the file ---- */

static int take_unknown(struct reader *r, const json_t *model)
{
    const char *name = json_string_value(json_object_get(model, "unk_token"));
    r->t->unknown = TOKENIZER_NONE;
    if (json_is_true(json_object_get(model, "fuse_unk")))
        return reader_wrong(r, "its model has fuse_unk, which the worker does not do");
    return name ? find_token(r, name, &r->t->unknown) : 0;
}

static int take_root(struct reader *r, const json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    r->vocab = json_object_get(model, "vocab");
    fill_bytes(r);
    int rc = refuse_others(r, root, model);
    rc = rc == 0 ? take_words(r, root) : rc;
    rc = rc == 0 ? tokenizer_take_tokens(r, root) : rc;
    rc = rc == 0 ? take_merges(r, json_object_get(model, "merges")) : rc;
    return rc == 0 ? take_unknown(r, model) : rc;
}

int tokenizer_parse(const char *json, size_t n, uint32_t vocab, char why[TOKENIZER_WHY_BYTES],
                    struct tokenizer **ret_tokenizer)
{
    json_error_t error;
    struct tokenizer *t = calloc(1, sizeof(*t));
    struct reader r = {.t = t, .why = why};
    json_t *root = t ? json_loadb(json, n, JSON_REJECT_DUPLICATES, &error) : NULL;
    int rc = 0;
    if (!t)
        rc = reader_no_memory(&r);
    else if (!root)
        rc = reader_wrong(&r, "no JSON: line %d: %.200s", error.line, error.text);
    if (rc == 0) {
        t->tokens = vocab;
        rc = take_root(&r, root);
    }
    json_decref(root);
    if (rc != 0)
        tokenizer_free(&t);
    else
        *ret_tokenizer = t;
    return rc;
}

int tokenizer_load(const char *dir, uint32_t vocab, char why[TOKENIZER_WHY_BYTES],
                   struct tokenizer **ret_tokenizer)
{
    char path[4096], inner[TOKENIZER_WHY_BYTES], *text = NULL;
    const char *wrong = "the path is too long";
    size_t n = 0;
    const int length = snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
    int rc = length > 0 && (size_t)length < sizeof(path)
                 ? infile_read(path, FILE_MAX, &text, &n, &wrong)
                 : -ENAMETOOLONG;
    if (rc == 0) {
        rc = tokenizer_parse(text, n, vocab, inner, ret_tokenizer);
        wrong = inner;
    }
    if (rc < 0)
        (void)snprintf(why, TOKENIZER_WHY_BYTES, "%.120s/tokenizer.json: %.180s", dir, wrong);
    free(text);
    return rc;
}

void tokenizer_free(struct tokenizer **tokenizer)
{
    struct tokenizer *t = *tokenizer;
    if (!t)
        return;
    free(t->token);
    free(t->text);
    free(t->added);
    free(t->merge);
    free(t);
    *tokenizer = NULL;
}
