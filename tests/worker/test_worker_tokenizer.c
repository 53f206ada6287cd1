/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's tokenizer beside Hugging Face's: the same ids for what make_bpe.py wrote, and files
 * that are damaged, or of another kind, are refused by what is wrong. With KVC_SMOLLM2, a directory
 * that smollm2.sh and smollm2_reference.py filled: that tokenizer alone.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cases.h"
#include "text.h"

static char why[TOKENIZER_WHY_BYTES];

static void path_of(const char *name, char path[256])
{
    const char *root = getenv("KVC_SOURCE_DIR");
    snprintf(path, 256, "%s/tests/worker/bpe/%s", root ? root : ".", name);
}

static struct tokenizer *load(const char *dir, uint32_t vocab)
{
    struct tokenizer *t = NULL;
    ck_assert_msg(tokenizer_load(dir, vocab, why, &t) == 0, "%s", why);
    return t;
}

static struct tokenizer *load_small(const char *name)
{
    char path[256];
    path_of(name, path);
    return load(path, 700);
}

/* The small tokenizer's file, to be freed. */
static char *read_small(size_t *ret_n)
{
    char path[256], name[300];
    path_of("digits", path);
    snprintf(name, sizeof(name), "%s/tokenizer.json", path);
    FILE *file = fopen(name, "rbe");
    ck_assert_msg(file != NULL, "%s", name);
    char *text = calloc(1, 1 << 16);
    ck_assert_ptr_nonnull(text);
    *ret_n = fread(text, 1, (1 << 16) - 1, file);
    fclose(file);
    return text;
}

static char *changed(const char *text, const char *from, const char *to, size_t *ret_n)
{
    char *new = calloc(1, 1 << 17);
    const char *at = strstr(text, from);
    ck_assert_ptr_nonnull(new);
    ck_assert_msg(at != NULL, "no %s", from);
    const int n = snprintf(new, 1 << 17, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    ck_assert_int_gt(n, 0);
    *ret_n = (size_t)n;
    return new;
}

/* ---- the same ids ---- */

static unsigned digit(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* "hex id id ...", hex "-" for no text. Returns the bytes of text; the line becomes them. */
static size_t text_of(char *line, char **ret_rest)
{
    size_t n = 0, at = 0;
    for (; line[at] && line[at] != ' ' && line[at] != '\n' && line[at] != '-'; at += 2)
        line[n++] = (char)(digit(line[at]) << 4 | digit(line[at + 1]));
    *ret_rest = line + at + (line[at] == '-' && n == 0);
    return n;
}

static size_t bytes_of(const struct tokenizer *t, const uint32_t *id, uint32_t n, char *to)
{
    size_t all = 0;
    for (uint32_t i = 0; i < n; i++) {
        size_t bytes;
        const char *from = tokenizer_bytes(t, id[i], &bytes);
        memcpy(to + all, from, bytes);
        all += bytes;
    }
    return all;
}

/* Whether the text came back: not where a byte has no token. */
static bool check_line(const struct tokenizer *t, char *line, unsigned number)
{
    char *rest;
    uint32_t *id = NULL, n = 0;
    const size_t bytes = text_of(line, &rest);
    ck_assert_int_eq(tokenizer_encode(t, line, bytes, 0, 0, &id, &n), 0);
    ck_assert_uint_le(n, bytes);
    for (uint32_t i = 0; i < n; i++) {
        char *end;
        const unsigned long want = strtoul(rest, &end, 10);
        ck_assert_msg(end != rest, "line %u: token %u, %u, is one too many", number, i, id[i]);
        ck_assert_msg(want == id[i], "line %u: token %u is %u, not %lu", number, i, id[i], want);
        rest = end;
    }
    ck_assert_msg(strspn(rest, " \n") == strlen(rest), "line %u: tokens are missing: %s", number,
                  rest);
    char *back = malloc(bytes * 16 + 1); /* <|endoftext|> for a byte */
    ck_assert_ptr_nonnull(back);
    const bool same = bytes_of(t, id, n, back) == bytes && memcmp(back, line, bytes) == 0;
    free(back);
    free(id);
    return same;
}

static void check_texts(const struct tokenizer *t, const char *dir)
{
    char path[300], *line = NULL;
    size_t room = 0;
    unsigned lines = 0, same = 0;
    snprintf(path, sizeof(path), "%s/texts.txt", dir);
    FILE *file = fopen(path, "rbe");
    ck_assert_msg(file != NULL, "%s", path);
    while (getline(&line, &room, file) > 0)
        same += check_line(t, line, ++lines);
    fclose(file);
    free(line);
    printf("%s: %u texts, %u the same when decoded\n", dir, lines, same);
    ck_assert_uint_gt(lines, 150);
    ck_assert_uint_gt(same, lines / 2);
}

CASES(.left_out = getenv("KVC_SMOLLM2") != NULL);

CASE_EACH(ids_are_those_of_tokenizers, 2)
{
    static const char *const names[] = {"digits", "plain"};
    char path[256];
    path_of(names[_i], path);
    struct tokenizer *t = load_small(names[_i]);
    check_texts(t, path);
    tokenizer_free(&t);
}

CASES(.left_out = getenv("KVC_SMOLLM2") == NULL);

CASE(ids_of_smollm2_are_those_of_tokenizers)
{
    struct tokenizer *t = load(getenv("KVC_SMOLLM2"), 49152);
    check_texts(t, getenv("KVC_SMOLLM2"));
    tokenizer_free(&t);
}

/* ---- what the reference does not have ---- */

CASES(.left_out = getenv("KVC_SMOLLM2") != NULL);

CASE(what_is_typed_is_no_special_token)
{
    static const char text[] = "<|im_start|>x <|im_end|> y<|im_end|>";
    struct tokenizer *t = load_small("digits");
    uint32_t *id = NULL, n = 0;
    char back[64];
    ck_assert_int_eq(tokenizer_encode(t, text, strlen(text), 12, 14, &id, &n), 0);
    ck_assert_uint_eq(id[0], 1);
    ck_assert_uint_eq(id[n - 1], 2);
    for (uint32_t i = 1; i + 1 < n; i++)
        ck_assert(!tokenizer_is_special(t, id[i]));
    ck_assert_uint_eq(bytes_of(t, id, n, back), strlen(text));
    ck_assert_mem_eq(back, text, strlen(text));
    free(id);
    /* One that would end behind the beginning of what is typed. */
    ck_assert_int_eq(tokenizer_encode(t, "<|im_end|>", 10, 9, 1, &id, &n), 0);
    for (uint32_t i = 0; i < n; i++)
        ck_assert(!tokenizer_is_special(t, id[i]));
    free(id);
    tokenizer_free(&t);
}

static void check_ids(const struct tokenizer *t, const char *text, size_t plain_at, size_t plain,
                      const uint32_t *want, uint32_t want_n)
{
    uint32_t *id = NULL, n = 0;
    ck_assert_int_eq(tokenizer_encode(t, text, strlen(text), plain_at, plain, &id, &n), 0);
    ck_assert_uint_eq(n, want_n);
    ck_assert_mem_eq(id, want, n * sizeof(*id));
    free(id);
}

/* bpe/digits with added tokens of each kind; the ids below are what tokenizers 0.23.3 makes of
 * that. */
#define ADDED(content, id, special, normalized)                                           \
    "{\"id\":" #id ",\"content\":\"" content "\",\"single_word\":false,\"lstrip\":false," \
    "\"rstrip\":false,\"normalized\":" #normalized ",\"special\":" #special "},"

static struct tokenizer *load_added(void)
{
    struct tokenizer *t = NULL;
    size_t n;
    char *text = read_small(&n);
    char *more = changed(text, "\"added_tokens\":[",
                         "\"added_tokens\":[" ADDED("<tool>", 700, false, true)
                             ADDED("<tool>s", 701, true, false) ADDED("l>x", 702, false, false)
                                 ADDED("the", 703, false, true) ADDED("ab<|im_", 704, false, true),
                         &n);
    ck_assert_msg(tokenizer_parse(more, n, 710, why, &t) == 0, "%s", why);
    free(more);
    free(text);
    return t;
}

CASE(added_tokens_are_found_in_the_order_of_tokenizers)
{
    static const struct {
        const char *text;
        uint32_t want[9], n;
    } all[] = {
        {"a<tool>b", {68, 700, 69}, 3},
        {" <tool> ", {151, 700, 151}, 3},
        {"12<tool>34", {20, 21, 700, 22, 23}, 5},
        {"<tool>s", {701}, 1},
        {"too<tool>xl>x", {87, 82, 82, 31, 87, 82, 82, 702, 702}, 9},
        {"other the license", {82, 703, 85, 151, 703, 253, 238}, 7},
        {"ab<|im_end|>", {262, 2}, 2},
    };
    struct tokenizer *t = load_added();
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        check_ids(t, all[i].text, 0, 0, all[i].want, all[i].n);
    ck_assert(!tokenizer_is_special(t, 700));
    ck_assert(tokenizer_is_special(t, 701));
    tokenizer_free(&t);
}

CASE(what_is_typed_has_added_tokens_that_are_not_special)
{
    static const char text[] = "a<tool>b";
    struct tokenizer *t = load_added();
    check_ids(t, text, 0, 8, (const uint32_t[]){68, 700, 69}, 3);
    uint32_t *id = NULL, n = 0;
    for (size_t border = 2; border < 7; border++) { /* one that is half typed is none */
        ck_assert_int_eq(tokenizer_encode(t, text, 8, 0, border, &id, &n), 0);
        for (uint32_t i = 0; i < n; i++)
            ck_assert_uint_ne(id[i], 700);
        free(id);
    }
    ck_assert_int_eq(tokenizer_encode(t, "<tool>s", 7, 0, 7, &id, &n), 0);
    ck_assert_uint_eq(id[0], 700);
    free(id);
    tokenizer_free(&t);
}

CASE(added_tokens_that_are_not_special_are_shown)
{
    const struct text text = {.bpe = load_added()};
    struct text_out out = {.n = 0};
    struct tokenizer *t = text.bpe;
    char *shown = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&shown, &n);
    ck_assert_ptr_nonnull(to);
    text_put(&text, &out, 700, to);
    text_put(&text, &out, 701, to);
    ck_assert_int_eq(fclose(to), 0);
    ck_assert_str_eq(shown, "<tool>");
    free(shown);
    tokenizer_free(&t);
}

CASE(bytes_that_are_no_text_are_tokens_too)
{
    struct tokenizer *t = load_small("digits");
    char text[512];
    uint32_t *id = NULL, n = 0;
    for (unsigned i = 0; i < 512; i++)
        text[i] = (char)(i < 256 ? i : i * 37 + 11);
    ck_assert_int_eq(tokenizer_encode(t, text, 512, 0, 0, &id, &n), 0);
    ck_assert_uint_gt(n, 300);
    ck_assert_uint_le(n, 512);
    free(id);
    tokenizer_free(&t);
}

CASE(a_word_of_a_million_letters_is_merged)
{
    enum { BYTES = 1 << 20 };
    struct tokenizer *t = load_small("plain");
    char *text = malloc(BYTES), *back = malloc(BYTES);
    uint32_t *id = NULL, n = 0;
    ck_assert(text && back);
    for (size_t i = 0; i < BYTES; i++)
        text[i] = "the license of"[i * i % 13];
    for (size_t i = 0; i < BYTES; i++)
        text[i] = text[i] == ' ' ? 'e' : text[i];
    ck_assert_int_eq(tokenizer_encode(t, text, BYTES, 0, 0, &id, &n), 0);
    ck_assert_uint_lt(n, BYTES);
    ck_assert_uint_eq(bytes_of(t, id, n, back), BYTES);
    ck_assert_mem_eq(back, text, BYTES);
    free(id);
    free(text);
    free(back);
    tokenizer_free(&t);
}

CASE(an_id_without_a_token_has_no_bytes)
{
    struct tokenizer *t = NULL;
    char path[256];
    size_t n = 1;
    path_of("plain", path);
    t = load(path, 1000);
    ck_assert_str_eq(tokenizer_bytes(t, 999, &n), "");
    ck_assert_uint_eq(n, 0);
    (void)tokenizer_bytes(t, UINT32_MAX, &n);
    ck_assert_uint_eq(n, 0);
    ck_assert(!tokenizer_is_special(t, UINT32_MAX));
    tokenizer_free(&t);
}

/* ---- messages of a chat ---- */

#define SYSTEM "<|im_start|>system\nYou help.<|im_end|>\n"
#define ASKED  "<|im_start|>user\nis 12 it?<|im_end|>\n<|im_start|>assistant\n"

static struct text text_small(void)
{
    char path[256];
    struct text text;
    path_of("digits", path);
    ck_assert_msg(text_begin(path, 700, why, &text) == 0, "%s", why);
    ck_assert_ptr_nonnull(text.chat);
    return text;
}

/* A message behind the text `said` is, token by token, the text `want`. */
static void check_message(const struct text *text, enum text_role role, const char *message,
                          const char *said, const char *want)
{
    struct text_tokens before, got, all;
    ck_assert_int_eq(text_raw(text, 700, said, strlen(said), why, &before), 0);
    ck_assert_int_eq(text_raw(text, 700, want, strlen(want), why, &all), 0);
    ck_assert_msg(
        text_message(text, role, message, strlen(message), before.id, before.n, why, &got) == 0,
        "%s", why);
    ck_assert_uint_eq(got.n, all.n);
    ck_assert_mem_eq(got.id, all.id, all.n * sizeof(*all.id));
    free(before.id);
    free(got.id);
    free(all.id);
}

CASE(messages_stand_in_the_template)
{
    struct text text = text_small();
    check_message(&text, TEXT_USER, "is 12 it?", "", SYSTEM ASKED);
    check_message(&text, TEXT_SYSTEM, "A manual.", "", "<|im_start|>system\nA manual.<|im_end|>\n");
    check_message(&text, TEXT_USER, "is 12 it?", SYSTEM, ASKED);
    check_message(&text, TEXT_USER, "is 12 it?", SYSTEM ASKED "Yes<|im_end|>", "\n" ASKED);
    check_message(&text, TEXT_USER, "is 12 it?", SYSTEM ASKED "Yes", "<|im_end|>\n" ASKED);
    ck_assert_uint_eq(text_end_token(&text), 2);
    text_end(&text);
}

CASE(a_message_ends_no_turn)
{
    struct text text = text_small();
    struct text_tokens got;
    ck_assert_int_eq(text_message(&text, TEXT_USER, "<|im_end|>", 10, NULL, 0, why, &got), 0);
    unsigned ends = 0;
    for (uint32_t i = 0; i < got.n; i++)
        ends += got.id[i] == 2;
    ck_assert_uint_eq(ends, 2); /* the system's and the user's */
    free(got.id);
    text_end(&text);
}

/* Tokens, of a byte each, come out as whole characters. */
static void check_shown(const char *bytes, const char *want)
{
    const struct text text = {.bpe = NULL};
    struct text_out out = {.n = 0};
    char *shown = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&shown, &n);
    ck_assert_ptr_nonnull(to);
    for (size_t i = 0; bytes[i]; i++) {
        text_put(&text, &out, (unsigned char)bytes[i], to);
        ck_assert_int_eq(fflush(to), 0);
        ck_assert_msg(n == 0 || (shown[n - 1] & 0xC0) != 0xC0, "a character was cut");
    }
    text_put_end(&out, to);
    ck_assert_int_eq(fclose(to), 0);
    ck_assert_str_eq(shown, want);
    free(shown);
}

CASE(characters_are_shown_whole)
{
    check_shown("Größe 世界 👍\n", "Größe 世界 👍\n");
    check_shown("a\xF0\x9F", "a??");
    check_shown("\xE4\xB8"
                "b\xFF\x80",
                "??b??");
    check_shown("\x1B[31mred\x07\xC2\x9B"
                "1m\t.",
                "?[31mred??1m\t.");
}

/* By the tokens before a message nobody could say whose end is lacking there. */
static const char ends_differ[] =
    "{\"system\":[\"a\",\"b\"],\"user\":[\"a\",\"b\"],\"assistant\":[\"a\",\"c\"]}";
/* The user's may: behind it the assistant's message begins at once. */
static const char ends_of_user_differ[] =
    "{\"system\":[\"a\",\"b\"],\"user\":[\"a\",\"c\"],\"assistant\":[\"a\",\"b\"]}";

static void put_chat(const char *name, const char *chat)
{
    FILE *file = fopen(name, "wbe");
    ck_assert_ptr_nonnull(file);
    fputs(chat, file);
    ck_assert_int_eq(fclose(file), 0);
}

CASE(a_chat_that_is_wrong_is_refused)
{
    char dir[] = "/tmp/kvc-chat-XXXXXX", from[300], name[64], path[256];
    struct text text;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    path_of("digits", path);
    snprintf(from, sizeof(from), "%s/tokenizer.json", path);
    snprintf(name, sizeof(name), "%s/tokenizer.json", dir);
    char *real = realpath(from, NULL);
    ck_assert_ptr_nonnull(real);
    ck_assert_int_eq(symlink(real, name), 0);
    free(real);
    snprintf(name, sizeof(name), "%s/chat.json", dir);
    static const char *const bad[] = {"{", "{}", "[]", "{\"system\":[\"a\",\"b\"]}",
                                      "{\"system\":[\"a\"],\"user\":[],\"assistant\":1}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        put_chat(name, bad[i]);
        ck_assert_int_eq(text_begin(dir, 700, why, &text), -EINVAL);
        ck_assert_msg(strstr(why, "chat.json") != NULL, "%s", why);
    }
    put_chat(name, ends_differ);
    ck_assert_int_eq(text_begin(dir, 700, why, &text), -EINVAL);
    ck_assert_msg(strstr(why, "system and of assistant differ") != NULL, "%s", why);
    put_chat(name, ends_of_user_differ);
    ck_assert_msg(text_begin(dir, 700, why, &text) == 0, "%s", why);
    check_message(&text, TEXT_USER, "x", "asb", "axca");
    check_message(&text, TEXT_USER, "x", "asbaxcay", "baxca");
    text_end(&text);
    ck_assert_int_eq(truncate(name, (1 << 20) + 1), 0);
    ck_assert_int_eq(text_begin(dir, 700, why, &text), -EINVAL);
    ck_assert_msg(strstr(why, "more than 1 MiB") != NULL, "%s", why);
    ck_assert_int_eq(unlink(name), 0);
    ck_assert_int_eq(mkfifo(name, 0600), 0); /* which nobody writes to: it is not waited for */
    ck_assert_int_eq(text_begin(dir, 700, why, &text), -EINVAL);
    ck_assert_msg(strstr(why, "is a FIFO") != NULL, "%s", why);
    ck_assert_int_eq(unlink(name), 0);
    ck_assert_int_eq(text_begin(dir, 700, why, &text), 0);
    ck_assert_ptr_null(text.chat);
    text_end(&text);
    snprintf(name, sizeof(name), "%s/tokenizer.json", dir);
    ck_assert_int_eq(unlink(name), 0);
    ck_assert_int_eq(text_begin(dir, 700, why, &text), 0);
    ck_assert_ptr_null(text.bpe);
    ck_assert_int_eq(rmdir(dir), 0);
}

/* ---- what is refused ---- */

static void refused(const char *text, size_t n, const char *what)
{
    struct tokenizer *t = NULL;
    why[0] = '\0';
    ck_assert_int_eq(tokenizer_parse(text, n, 700, why, &t), -EINVAL);
    ck_assert_ptr_null(t);
    ck_assert_msg(strstr(why, what) != NULL, "'%s' does not say '%s'", why, what);
}

static const struct {
    const char *from, *to, *what;
} wrong[] = {
    {"\"type\":\"BPE\"", "\"type\":\"Unigram\"", "Unigram"},
    {"\"type\":\"Digits\"", "\"type\":\"Split\"", "pre_tokenizer is Sequence"},
    {"\"individual_digits\":true", "\"individual_digits\":false", "pre_tokenizer is Sequence"},
    {"\"add_prefix_space\":false", "\"add_prefix_space\":true", "pre_tokenizer is Sequence"},
    {"\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}", "normalizer"},
    {"\"dropout\":null", "\"dropout\":0.1", "dropout"},
    {"\"byte_fallback\":false", "\"byte_fallback\":true", "byte_fallback"},
    {"\"fuse_unk\":false", "\"fuse_unk\":true", "fuse_unk"},
    {"\"unk_token\":\"<|endoftext|>\"", "\"unk_token\":\"<none>\"", "<none>"},
    {"\"lstrip\":false", "\"lstrip\":true", "lstrip"},
    {"\"content\":\"<|im_start|>\"", "\"content\":\"\"", "no content"},
    {"\"special\":true", "\"special\":1", "needs \"special\""},
    {"\"normalized\":false,", "", "and \"normalized\""},
    {"\"id\":1,", "\"id\":0,", "have one id"},
    {"\"id\":1,", "\"id\":\"1\",", "none of the model's"},
    {"\"id\":1,", "\"id\":-1,", "none of the model's"},
    {"\"id\":1,", "\"id\":18446744073709551617,", "no JSON"},
    {"\"!\":4,", "\"!\":5,", "have one id"},
    {"\"!\":4,", "\"!\":700,", "none of the model's, 0 to 699"},
    {"\"!\":4,", "\"!\":4,\"!\":4,", "no JSON"},
    {"\"!\":4,", "\" !\":4,", "not of bytes"},
    {"\"!\":4,", "\"\\u4e16\":4,", "not of bytes"},
    {"\"!\":4,", "\"\":4,", "is empty"},
    {"[\"i\",\"n\"]", "[\"i\",\"Q!\"]", "'Q!', which is no token"},
    {"[\"i\",\"n\"]", "[\"in\",\"in\"]", "'inin', which is no token"},
    {"[\"i\",\"n\"]", "[\"i\"]", "no pair"},
    {"[\"i\",\"n\"]", "[\"i\",\"n\",\"n\"]", "no pair"},
    {"[\"i\",\"n\"]", "\"i  n\"", "no pair"},
    {"[\"i\",\"n\"]", "7", "no pair"},
    {"[\"i\",\"n\"]", "[\"i\",\"n\"],[\"i\",\"n\"]", "there twice"},
    {"\"merges\":[", "\"merge\":[", "no list of merges"},
    {"\"vocab\":{", "\"words\":{", "no vocab"},
};

CASE_EACH(a_file_that_is_wrong_is_refused_by_name, sizeof(wrong) / sizeof(wrong[0]))
{
    size_t n;
    char *text = read_small(&n);
    char *bad = changed(text, wrong[_i].from, wrong[_i].to, &n);
    refused(bad, n, wrong[_i].what);
    free(bad);
    free(text);
}

CASE(a_file_that_is_cut_is_refused)
{
    size_t n;
    char *text = read_small(&n);
    for (size_t cut = 0; cut < n - 1; cut += 61)
        refused(text, cut, "no JSON");
    free(text);
}

CASE(merges_of_older_files_are_taken)
{
    size_t n;
    char *text = read_small(&n);
    char *old = changed(text, "[\"i\",\"n\"]", "\"i n\"", &n);
    struct tokenizer *t = NULL;
    ck_assert_msg(tokenizer_parse(old, n, 700, why, &t) == 0, "%s", why);
    char path[256];
    path_of("digits", path);
    check_texts(t, path);
    tokenizer_free(&t);
    free(old);
    free(text);
}

CASE(a_file_that_is_missing_or_huge_is_told)
{
    char dir[] = "/tmp/kvc-bpe-XXXXXX", name[64];
    struct tokenizer *t = NULL;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(tokenizer_load(dir, 700, why, &t), -ENOENT);
    ck_assert_ptr_nonnull(strstr(why, "tokenizer.json"));
    snprintf(name, sizeof(name), "%s/tokenizer.json", dir);
    FILE *file = fopen(name, "wbe");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(ftruncate(fileno(file), (64 << 20) + 1), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(tokenizer_load(dir, 700, why, &t), -EFBIG);
    ck_assert_msg(strstr(why, "64 MiB") != NULL, "%s", why);
    ck_assert_int_eq(unlink(name), 0);
    ck_assert_int_eq(rmdir(dir), 0);
}
