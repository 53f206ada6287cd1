/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "infile.h"
#include "plain.h"
#include "utf8.h"

_Static_assert(MODEL_WHY_BYTES == TOKENIZER_WHY_BYTES, "one text");

#define CHAT_MAX (1u << 20)

static const char *const roles[TEXT_ROLES] = {"system", "user", "assistant"};

/* ---- the model's files ---- */

static int take_roles(struct text *t)
{
    const json_t *all = t->chat;
    t->system = json_string_value(json_object_get(all, "default_system"));
    for (int i = 0; i < TEXT_ROLES; i++) {
        const json_t *both = json_object_get(all, roles[i]);
        t->before[i] = json_string_value(json_array_get(both, 0));
        t->behind[i] = json_string_value(json_array_get(both, 1));
        if (!t->before[i] || !t->behind[i])
            return -EINVAL;
    }
    return 0;
}

static int take_chat(struct text *t, const char *dir, char *why)
{
    char path[4096], *json = NULL;
    const char *wrong = "the path is too long";
    json_error_t error;
    size_t n = 0;
    const int length = snprintf(path, sizeof(path), "%s/chat.json", dir);
    int rc = length > 0 && (size_t)length < sizeof(path)
                 ? infile_read(path, CHAT_MAX, &json, &n, &wrong)
                 : -ENAMETOOLONG;
    if (rc == -ENOENT)
        return 0;
    if (rc < 0)
        return model_wrong(why, -EINVAL, "%.120s/chat.json: %.120s", dir, wrong);
    t->chat = json_loadb(json, n, JSON_REJECT_DUPLICATES, &error);
    free(json);
    if (!t->chat)
        return model_wrong(why, -EINVAL, "%.120s/chat.json: no JSON: %.120s", dir, error.text);
    if (take_roles(t) != 0)
        return model_wrong(why, -EINVAL,
                           "%.120s/chat.json: of system, user and assistant each is an array of "
                           "two texts: before and behind a message",
                           dir);
    const char *behind = t->behind[TEXT_ASSISTANT];
    if (strcmp(behind, t->behind[TEXT_SYSTEM]) != 0)
        return model_wrong(why, -EINVAL,
                           "%.120s/chat.json: the texts behind a message of system and of "
                           "assistant differ; the worker has templates where they are the same",
                           dir);
    rc = tokenizer_encode(t->bpe, behind, strlen(behind), 0, 0, &t->end, &t->ends);
    return rc == 0 ? 0 : model_wrong(why, rc, "no memory for chat.json");
}

int text_begin(const char *dir, uint32_t vocab, char why[MODEL_WHY_BYTES], struct text *ret_text)
{
    struct text t = {.bpe = NULL};
    int rc = dir ? tokenizer_load(dir, vocab, why, &t.bpe) : 0;
    if (rc == 0 && t.bpe)
        rc = take_chat(&t, dir, why);
    if (rc != 0 && rc != -ENOENT) {
        text_end(&t);
        return rc;
    }
    *ret_text = t;
    return 0;
}

void text_end(struct text *text)
{
    tokenizer_free(&text->bpe);
    json_decref(text->chat);
    free(text->end);
    *text = (struct text){.bpe = NULL};
}

/* ---- text in ---- */

static int encode(const struct text *t, const char *bytes, size_t n, size_t plain_at, size_t plain,
                  char *why, struct text_tokens *ret_tokens)
{
    const int rc =
        tokenizer_encode(t->bpe, bytes, n, plain_at, plain, &ret_tokens->id, &ret_tokens->n);
    if (rc == -E2BIG)
        return model_wrong(why, rc, "%zu bytes of text; %u at most", n, TOKENIZER_TEXT_MAX);
    return rc == 0 ? 0 : model_wrong(why, rc, "no memory for %zu bytes of text", n);
}

int text_raw(const struct text *t, uint32_t vocab, const char *bytes, size_t n,
             char why[MODEL_WHY_BYTES], struct text_tokens *ret_tokens)
{
    if (t->bpe)
        return encode(t, bytes, n, 0, 0, why, ret_tokens);
    if (vocab < 256)
        return model_wrong(why, -EINVAL,
                           "text is taken byte by byte, and the model has %u tokens only; give "
                           "--tokens",
                           vocab);
    uint32_t *id = n <= TOKENIZER_TEXT_MAX ? malloc((n + 1) * sizeof(*id)) : NULL;
    if (!id)
        return model_wrong(why, -ENOMEM, "no memory for %zu bytes of text", n);
    for (size_t i = 0; i < n; i++)
        id[i] = (unsigned char)bytes[i];
    *ret_tokens = (struct text_tokens){.id = id, .n = (uint32_t)n};
    return 0;
}

/* How many of the tokens that end a message are already at the sequence's end. */
static uint32_t ended_by(const struct text *t, const uint32_t *said, uint32_t said_n)
{
    uint32_t n = t->ends < said_n ? t->ends : said_n;
    while (n > 0 && memcmp(said + said_n - n, t->end, n * sizeof(*said)) != 0)
        n--;
    return n;
}

/* Puts the missing end tokens of the message before in front of the new tokens. */
static int text_join(const uint32_t *rest, uint32_t n, char *why, struct text_tokens *tokens)
{
    uint32_t *all = malloc(((size_t)n + tokens->n + 1) * sizeof(*all));
    if (!all) {
        const uint32_t more = tokens->n;
        free(tokens->id);
        *tokens = (struct text_tokens){NULL, 0};
        return model_wrong(why, -ENOMEM, "no memory for %u tokens", more);
    }
    memcpy(all, rest, n * sizeof(*all));
    memcpy(all + n, tokens->id, tokens->n * sizeof(*all));
    free(tokens->id);
    *tokens = (struct text_tokens){.id = all, .n = n + tokens->n};
    return 0;
}

int text_message(const struct text *t, enum text_role role, const char *bytes, size_t n,
                 const uint32_t *said, uint32_t said_n, char why[MODEL_WHY_BYTES],
                 struct text_tokens *ret_tokens)
{
    char *all = NULL;
    size_t size = 0;
    FILE *to = n <= TOKENIZER_TEXT_MAX ? open_memstream(&all, &size) : NULL;
    if (!to)
        return model_wrong(why, -ENOMEM, "no memory for %zu bytes of text", n);
    if (said_n == 0 && role == TEXT_USER && t->system)
        fprintf(to, "%s%s%s", t->before[TEXT_SYSTEM], t->system, t->behind[TEXT_SYSTEM]);
    fputs(t->before[role], to);
    const long at = ftell(to);
    (void)fwrite(bytes, 1, n, to);
    fprintf(to, "%s%s", t->behind[role], role == TEXT_USER ? t->before[TEXT_ASSISTANT] : "");
    const bool failed = ferror(to) || at < 0;
    int rc = fclose(to) != 0 || failed
                 ? model_wrong(why, -ENOMEM, "no memory for %zu bytes of text", n)
                 : encode(t, all, size, (size_t)at, n, why, ret_tokens);
    free(all);
    const uint32_t ended = said_n > 0 ? ended_by(t, said, said_n) : t->ends;
    return rc == 0 ? text_join(t->end + ended, t->ends - ended, why, ret_tokens) : rc;
}

uint32_t text_end_token(const struct text *t)
{
    return t->ends > 0 && tokenizer_is_special(t->bpe, t->end[0]) ? t->end[0] : TOKENIZER_NONE;
}

/* ---- text out ---- */

static void text_drop(struct text_out *out, uint32_t n)
{
    out->n -= n;
    memmove(out->held, out->held + n, out->n);
}

/* How many bytes a character with this first byte has; 1 if no character begins so. */
static uint32_t promised(char first)
{
    const unsigned char c = (unsigned char)first;
    return c >= 0xF0 && c <= 0xF4 ? 4 : c >= 0xE0 && c < 0xF0 ? 3 : c >= 0xC2 && c < 0xE0 ? 2 : 1;
}

/* Prints the complete characters of the bytes that were held back; with is_end, the rest too. */
static void put_held(struct text_out *out, bool is_end, FILE *to)
{
    while (out->n > 0) {
        uint32_t code = 0;
        const size_t n = utf8_next(out->held, out->n, &code);
        if (n == 0 && !is_end && out->n < promised(out->held[0]))
            return;
        if (n == 0 || (plain_steers(code) && code != '\n' && code != '\t'))
            fputc('?', to);
        else
            (void)fwrite(out->held, 1, n, to);
        text_drop(out, n > 0 ? (uint32_t)n : 1);
    }
}

void text_put(const struct text *t, struct text_out *out, uint32_t token, FILE *to)
{
    const char byte = (char)token;
    size_t n = token < 256 ? 1 : 0;
    const char *bytes = t->bpe ? tokenizer_bytes(t->bpe, token, &n) : &byte;
    if (t->bpe && tokenizer_is_special(t->bpe, token))
        return;
    if (n == 0)
        fprintf(to, "<%u>", token);
    for (size_t i = 0; i < n; i++) {
        out->held[out->n++] = bytes[i];
        put_held(out, false, to);
    }
}

void text_put_end(struct text_out *out, FILE *to)
{
    put_held(out, true, to);
}
