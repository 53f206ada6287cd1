/* SPDX-License-Identifier: Apache-2.0 */
/* Every golden vector is read as its fields say, and written again byte for byte. */
#include <errno.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "messages.h"
#include "vectors.h"

static const char *const files[] = {"requests.txt", "replies.txt", "attach.txt", "example.txt"};
enum { FILES = sizeof(files) / sizeof(files[0]) };

static const struct message_kind *kind_of(const struct vector *v)
{
    const struct message_kind *kind = message_find(v->message);
    ck_assert_msg(kind != NULL, "[%s] %s: no such message", v->message, v->name);
    ck_assert_msg(v->bytes != NULL, "[%s] %s: no hex", v->message, v->name);
    return kind;
}

CASE_EACH(decodes_to_the_fields_and_encodes_to_the_bytes, FILES)
{
    struct vectors set = vectors_load(files[_i]);
    for (size_t i = 0; i < set.n; i++) {
        const struct vector *v = &set.v[i];
        struct message_outcome o = message_recode(kind_of(v), v->bytes, v->len);
        ck_assert_msg(o.rc == 0, "[%s] %s: refused with %d: %s", v->message, v->name, o.rc,
                      o.detail);
        ck_assert_msg(strcmp(o.text, v->text) == 0, "[%s] %s: expected\n%sread\n%s", v->message,
                      v->name, v->text, o.text);
        ck_assert_msg(o.out_len == (int)v->len && memcmp(o.out, v->bytes, v->len) == 0,
                      "[%s] %s: written with other bytes (%d, not %zu)", v->message, v->name,
                      o.out_len, v->len);
        message_outcome_free(&o);
    }
    vectors_free(&set);
}

CASE_EACH(is_one_object_for_msgpack_c, FILES)
{
    struct vectors set = vectors_load(files[_i]);
    for (size_t i = 0; i < set.n; i++) {
        const struct vector *v = &set.v[i];
        msgpack_unpacked object;
        msgpack_unpacked_init(&object);
        size_t used = 0;
        int rc = msgpack_unpack_next(&object, (const char *)v->bytes, v->len, &used);
        ck_assert_msg(rc == MSGPACK_UNPACK_SUCCESS && used == v->len &&
                          object.data.type == MSGPACK_OBJECT_ARRAY,
                      "[%s] %s: %d after %zu of %zu bytes", v->message, v->name, rc, used, v->len);
        msgpack_unpacked_destroy(&object);
    }
    vectors_free(&set);
}

CASE_EACH(fits_its_length_and_nothing_shorter, FILES)
{
    struct vectors set = vectors_load(files[_i]);
    for (size_t i = 0; i < set.n; i++) {
        const struct vector *v = &set.v[i];
        const struct message_kind *kind = kind_of(v);
        union message_room msg;
        union {
            struct msg_head request;
            struct msg_reply_head reply;
        } head;
        if (kind->family == MESSAGE_LIST)
            continue;
        ck_assert_int_eq(kind->dec(v->bytes, v->len, &head, &msg), 0);
        const size_t step = v->len / 256 + 1; /* long ones have the same fields again and again */
        for (size_t cap = 0; cap < v->len; cap += step) {
            uint8_t *out = malloc(cap + 1);
            ck_assert_int_eq(kind->enc(out, cap, &head, &msg), -ENOSPC);
            free(out);
        }
        uint8_t *out = malloc(v->len);
        ck_assert_int_eq(kind->enc(out, v->len, &head, &msg), (int)v->len);
        free(out);
    }
    vectors_free(&set);
}

/* Every message of the protocol has a vector; the head alone is no message. */
CASE(no_message_is_left_out)
{
    struct vectors set[3];
    for (size_t f = 0; f < 3; f++)
        set[f] = vectors_load(files[f]);
    for (size_t k = 0; k < message_kinds_n; k++) {
        bool found = strcmp(message_kinds[k].name, "head") == 0 ||
                     strcmp(message_kinds[k].name, "reply_head") == 0;
        for (size_t f = 0; f < 3 && !found; f++)
            for (size_t i = 0; i < set[f].n; i++)
                found = found || strcmp(set[f].v[i].message, message_kinds[k].name) == 0;
        ck_assert_msg(found, "no vector for %s", message_kinds[k].name);
    }
    for (size_t f = 0; f < 3; f++)
        vectors_free(&set[f]);
}

/* Hex digits alone, so that line breaks in the document do not matter. */
static char *hex_digits_of_code(const char *path)
{
    FILE *f = fopen(path, "re");
    ck_assert_msg(f != NULL, "cannot open %s", path);
    char *all = NULL, *line = NULL;
    size_t all_n = 0, cap = 0;
    FILE *to = open_memstream(&all, &all_n);
    bool code = false;
    while (getline(&line, &cap, f) > 0) {
        if (strncmp(line, "```", 3) == 0)
            code = !code;
        else if (code)
            for (const char *p = line; *p != '\0'; p++)
                if (strchr(" \n", *p) == NULL)
                    fputc(*p, to);
    }
    free(line);
    fclose(f);
    fclose(to);
    return all;
}

static void check_documented(const char *code, const uint8_t *bytes, size_t len, const char *what)
{
    char *hex = calloc(1, 2 * len + 1);
    for (size_t i = 0; i < len; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    ck_assert_msg(strstr(code, hex) != NULL, "PROTOCOL.md lacks %s: %s", what, hex);
    free(hex);
}

CASE(protocol_md_shows_the_example_and_its_keys)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/include/kvcache/PROTOCOL.md", getenv("KVC_SOURCE_DIR"));
    char *code = hex_digits_of_code(path);
    struct vectors set = vectors_load("example.txt");
    for (size_t i = 0; i < set.n; i++)
        check_documented(code, set.v[i].bytes, set.v[i].len, set.v[i].name);
    vectors_free(&set);
    struct vectors keys = vectors_load("keys.txt");
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof(name), "key[%d]", i);
        char *hex = vector_value(&keys.v[0], name);
        size_t len;
        uint8_t *key = vector_hex(hex, &len);
        check_documented(code, key, len, name);
        free(key);
        free(hex);
    }
    vectors_free(&keys);
    free(code);
}

/* rows.h declares the rows; the page has each of their columns, in their order. */
CASE(protocol_md_has_the_columns_of_each_table)
{
    static const char *const words[] = {
        [KVC_COLUMN_U8] = "u8",
        [KVC_COLUMN_U32] = "u32",
        [KVC_COLUMN_U64] = "u64",
        [KVC_COLUMN_BOOL] = "bool",
        [KVC_COLUMN_NAME] = "text, ≤ 127",
        [KVC_COLUMN_TEXT] = "text, ≤ 255",
        [KVC_COLUMN_KEY] = "bin, 32",
        [KVC_COLUMN_UUID] = "bin, 16",
    };
    static const char rule[] = "|---|---|---|\n";
    char path[4096], line[512];
    static char page[1 << 20];
    snprintf(path, sizeof(path), "%s/include/kvcache/PROTOCOL.md", getenv("KVC_SOURCE_DIR"));
    FILE *f = fopen(path, "re");
    ck_assert_msg(f != NULL && fread(page, 1, sizeof(page) - 1, f) > 0, "cannot read %s", path);
    fclose(f);
    const struct kvc_table *table;
    for (unsigned id = 1; (table = codec_table(id)) != NULL; id++) {
        snprintf(line, sizeof(line), "\n**%u, %s**", id, table->name);
        const char *at = strstr(page, line);
        ck_assert_msg(at != NULL, "PROTOCOL.md lacks table %u, %s", id, table->name);
        at = strstr(at, rule);
        ck_assert_msg(at != NULL, "PROTOCOL.md has no columns of %s", table->name);
        at += strlen(rule);
        for (uint32_t i = 0; i < table->columns; i++) {
            const struct kvc_column *c = &table->column[i];
            snprintf(line, sizeof(line), "| %s | %s | %s |\n", c->name, words[c->type], c->meaning);
            ck_assert_msg(strncmp(at, line, strlen(line)) == 0,
                          "PROTOCOL.md, table %s: expected\n%snot\n%.200s", table->name, line, at);
            at += strlen(line);
        }
        ck_assert_msg(*at != '|', "PROTOCOL.md, table %s has another column: %.200s", table->name,
                      at);
    }
}
