/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must be refused, and with which error: the vectors of rejects.txt, and every golden vector
 * cut off, prolonged, or with one of its values exchanged. Other widths of the same values are
 * accepted.
 */
#include <msgpack.h>
#include <msgpack/fbuffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "messages.h"
#include "vectors.h"

static const char *const files[] = {"requests.txt", "replies.txt", "attach.txt"};
enum { FILES = sizeof(files) / sizeof(files[0]) };

static int error_of(const char *name)
{
    return strcmp(name, "BAD_MESSAGE") == 0    ? KVC_E_BAD_MESSAGE
           : strcmp(name, "BAD_ARGUMENT") == 0 ? KVC_E_BAD_ARGUMENT
                                               : 1;
}

CASES(.timeout_s = 300);

CASE(reject_vectors_give_the_stated_error)
{
    struct vectors set = vectors_load("rejects.txt");
    for (size_t i = 0; i < set.n; i++) {
        const struct vector *v = &set.v[i];
        const struct message_kind *kind = message_find(v->message);
        ck_assert_msg(kind != NULL && v->bytes != NULL, "[%s] %s", v->message, v->name);
        char *error = vector_value(v, "error"), *detail = vector_value(v, "detail");
        struct message_outcome o = message_recode(kind, v->bytes, v->len);
        ck_assert_msg(o.rc == error_of(error), "[%s] %s: %d, not %s", v->message, v->name, o.rc,
                      error);
        ck_assert_msg(detail == NULL || strcmp(detail, o.detail) == 0,
                      "[%s] %s: detail \"%s\", not \"%s\"", v->message, v->name, o.detail, detail);
        message_outcome_free(&o);
        free(detail);
        free(error);
    }
    vectors_free(&set);
}

static void expect(const struct vector *v, const void *bytes, size_t len, int rc, const char *what,
                   size_t where)
{
    const struct message_kind *kind = message_find(v->message);
    /* A block of its own, of exactly this length: a sanitizer sees a read past its end. */
    uint8_t *exact = malloc(len != 0 ? len : 1);
    if (len != 0)
        memcpy(exact, bytes, len);
    struct message_outcome o = message_recode(kind, exact, len);
    ck_assert_msg(o.rc == rc, "[%s] %s, %s %zu: %d (%s), not %d", v->message, v->name, what, where,
                  o.rc, o.detail, rc);
    ck_assert_msg(rc != 0 || (o.out_len == (int)v->len && memcmp(o.out, v->bytes, v->len) == 0),
                  "[%s] %s, %s %zu: written otherwise", v->message, v->name, what, where);
    message_outcome_free(&o);
    free(exact);
}

CASE_EACH(cut_off_anywhere, FILES)
{
    struct vectors set = vectors_load(files[_i]);
    for (size_t i = 0; i < set.n; i++) {
        const struct vector *v = &set.v[i];
        for (size_t len = 0; len < v->len; len += len < 2048 ? 1 : 8191)
            expect(v, v->bytes, len, KVC_E_BAD_MESSAGE, "cut to", len);
        expect(v, v->bytes, v->len - 1, KVC_E_BAD_MESSAGE, "cut to", v->len - 1);
    }
    vectors_free(&set);
}

CASE_EACH(a_byte_more, FILES)
{
    static const uint8_t extra[] = {0x00, 0x90, 0xc0, 0xc1, 0xff};
    struct vectors set = vectors_load(files[_i]);
    for (size_t i = 0; i < set.n; i++) {
        const struct vector *v = &set.v[i];
        uint8_t *longer = malloc(v->len + 1);
        memcpy(longer, v->bytes, v->len);
        for (size_t k = 0; k < sizeof(extra); k++) {
            longer[v->len] = extra[k];
            expect(v, longer, v->len + 1, KVC_E_BAD_MESSAGE, "a byte more, kind", k);
        }
        free(longer);
    }
    vectors_free(&set);
}

/* ---- one value exchanged ---- */

enum change {
    TO_NIL,
    TO_TRUE,
    TO_FLOAT,
    TO_MAP,
    TO_EXT,
    TO_ARRAY,   /* of one 0; of an array: to 0 */
    TO_NEVER,   /* 0xc1 */
    HUGE_ARRAY, /* array 32 with the most items */
    HUGE_BIN,
    NEGATIVE, /* integers only */
    WIDE_8,   /* integers that fit: uint 8, 16, 32, 64, then int 8, 16, 32, 64 */
    WIDE_16,
    WIDE_32,
    WIDE_64,
    SIGNED_8,
    SIGNED_16,
    SIGNED_32,
    SIGNED_64,
    LONG_HEAD, /* text, blobs, arrays: the longest form of the header */
    STR_TO_BIN,
    BIN_TO_STR,
    CHANGES
};

/* The same object, with node `target` (counted in order of writing) changed. */
struct rewrite {
    FILE *to;
    enum change change;
    size_t target, node;
    bool applied;
};

static void put_be(FILE *to, uint8_t first, uint64_t v, int bytes)
{
    fputc(first, to);
    for (int i = bytes - 1; i >= 0; i--)
        fputc((int)(v >> (8 * i) & 0xff), to);
}

static bool put_foreign(struct rewrite *rw)
{
    static const char *const bytes[] = {[TO_NIL] = "\xc0",
                                        [TO_TRUE] = "\xc3",
                                        [TO_FLOAT] = "\xca\x3f\x80",
                                        [TO_MAP] = "\x81\x01\x01",
                                        [TO_EXT] = "\xd4\x01\x01"};
    if (rw->change <= TO_EXT)
        fwrite(bytes[rw->change], 1, strlen(bytes[rw->change]), rw->to);
    if (rw->change == TO_FLOAT)
        fwrite("\0\0", 1, 2, rw->to);
    else if (rw->change == TO_NEVER)
        fputc(0xc1, rw->to);
    else if (rw->change == HUGE_ARRAY)
        put_be(rw->to, 0xdd, UINT32_MAX, 4);
    else if (rw->change == HUGE_BIN)
        put_be(rw->to, 0xc6, UINT32_MAX, 4);
    return rw->change <= HUGE_BIN && rw->change != TO_ARRAY;
}

static bool put_integer(struct rewrite *rw, uint64_t v)
{
    int c = rw->change;
    if (c == NEGATIVE) {
        put_be(rw->to, 0xd3, UINT64_MAX - 4, 8);
        return true;
    }
    bool is_signed = c >= SIGNED_8 && c <= SIGNED_64;
    if (!is_signed && (c < WIDE_8 || c > WIDE_64))
        return false;
    int width = 1 << (c - (is_signed ? SIGNED_8 : WIDE_8));
    int bits = 8 * width - (is_signed ? 1 : 0);
    if (bits < 64 && v >> bits != 0)
        return false;
    put_be(rw->to, (uint8_t)((is_signed ? 0xd0 : 0xcc) + (c - (is_signed ? SIGNED_8 : WIDE_8))), v,
           width);
    return true;
}

static void put_object(struct rewrite *rw, const msgpack_object *o);

static bool put_changed(struct rewrite *rw, const msgpack_object *o)
{
    bool str = o->type == MSGPACK_OBJECT_STR, bin = o->type == MSGPACK_OBJECT_BIN;
    const char *p = str ? o->via.str.ptr : o->via.bin.ptr;
    uint32_t n = str ? o->via.str.size : bin ? o->via.bin.size : 0;
    if (put_foreign(rw))
        return true;
    if (rw->change == TO_ARRAY) {
        fwrite("\x91\x00", 1, o->type == MSGPACK_OBJECT_ARRAY ? 0 : 2, rw->to);
        fwrite("\x00", 1, o->type == MSGPACK_OBJECT_ARRAY ? 1 : 0, rw->to);
        return true;
    }
    if (o->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
        return put_integer(rw, o->via.u64);
    if (o->type == MSGPACK_OBJECT_ARRAY && rw->change == LONG_HEAD) {
        put_be(rw->to, 0xdd, o->via.array.size, 4);
        for (uint32_t i = 0; i < o->via.array.size; i++)
            put_object(rw, &o->via.array.ptr[i]);
        return true;
    }
    if (!(str || bin) || (rw->change != LONG_HEAD && rw->change != (str ? STR_TO_BIN : BIN_TO_STR)))
        return false;
    bool as_str = str == (rw->change == LONG_HEAD);
    put_be(rw->to, as_str ? 0xdb : 0xc6, n, 4);
    if (n != 0)
        fwrite(p, 1, n, rw->to);
    return true;
}

static void put_object(struct rewrite *rw, const msgpack_object *o)
{
    msgpack_packer pk;
    msgpack_packer_init(&pk, rw->to, msgpack_fbuffer_write);
    if (rw->node++ == rw->target && put_changed(rw, o)) {
        rw->applied = true;
        return;
    }
    if (o->type != MSGPACK_OBJECT_ARRAY) {
        msgpack_pack_object(&pk, *o);
        return;
    }
    msgpack_pack_array(&pk, o->via.array.size);
    for (uint32_t i = 0; i < o->via.array.size; i++)
        put_object(rw, &o->via.array.ptr[i]);
}

static int expected(enum change change, size_t target, const struct message_kind *kind)
{
    /* Nodes of the head: the array, then 3 values, or the code alone. */
    size_t head_nodes = kind->family == MESSAGE_ATTACH ? 2 : 4;
    if (change == NEGATIVE && target >= head_nodes)
        return KVC_E_BAD_ARGUMENT;
    return change == BIN_TO_STR || change <= NEGATIVE ? KVC_E_BAD_MESSAGE : 0;
}

static size_t count_nodes(const msgpack_object *o)
{
    size_t n = 1;
    for (uint32_t i = 0; o->type == MSGPACK_OBJECT_ARRAY && i < o->via.array.size; i++)
        n += count_nodes(&o->via.array.ptr[i]);
    return n;
}

static size_t check_changes(const struct vector *v, const msgpack_object *o, enum change change)
{
    size_t applied = 0, nodes = count_nodes(o);
    for (size_t target = 0; target < nodes; target++) {
        char *bytes = NULL;
        size_t len = 0;
        struct rewrite rw = {
            .to = open_memstream(&bytes, &len), .change = change, .target = target};
        put_object(&rw, o);
        fclose(rw.to);
        if (rw.applied) {
            char what[64];
            snprintf(what, sizeof(what), "change %d of node", change);
            expect(v, bytes, len, expected(change, target, message_find(v->message)), what, target);
            applied++;
        }
        free(bytes);
    }
    return applied;
}

CASE_EACH(a_value_of_another_type_or_width, FILES)
{
    size_t applied[CHANGES] = {0};
    struct vectors set = vectors_load(files[_i]);
    for (size_t i = 0; i < set.n; i++) {
        const struct vector *v = &set.v[i];
        msgpack_unpacked object;
        msgpack_unpacked_init(&object);
        ck_assert_int_eq(msgpack_unpack_next(&object, (const char *)v->bytes, v->len, NULL),
                         MSGPACK_UNPACK_SUCCESS);
        for (int c = 0; c < CHANGES && v->len < 65536; c++)
            applied[c] += check_changes(v, &object.data, (enum change)c);
        msgpack_unpacked_destroy(&object);
    }
    for (int c = 0; c < CHANGES; c++)
        ck_assert_msg(applied[c] > 0, "change %d was never tried", c);
    vectors_free(&set);
}
