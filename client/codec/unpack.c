/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads msgpack that another process sent, so every byte is checked: the reader behind unpack.h,
 * through which every message comes in.
 */
#include "unpack.h"

#include <string.h>

#include "field.h"
#include "must.h"
#include "utf8.h"

#define TOO_SHORT "the message ends too early"

enum token_kind {
    TOKEN_OTHER,
    TOKEN_END,
    TOKEN_UINT,
    TOKEN_INT,
    TOKEN_STR,
    TOKEN_BIN,
    TOKEN_ARRAY
};

struct token {
    enum token_kind kind;
    /* Of an integer its value; of other kinds the number of bytes or items that follow. */
    uint64_t value;
};

void unpack_init(struct unpack *un, const void *buf, size_t len)
{
    cursor_init(&un->c, buf, len);
    un->err = 0;
    un->detail = NULL;
}

void unpack_fail(struct unpack *un, int err, const char *detail)
{
    MUST(err < 0 && detail != NULL);
    if (un->err != 0)
        return;
    un->err = err;
    un->detail = detail;
}

static uint64_t read_be(struct cursor *c, unsigned bytes)
{
    switch (bytes) {
    case 1:
        return cursor_u8(c);
    case 2:
        return cursor_u16be(c);
    case 4:
        return cursor_u32be(c);
    default:
        return cursor_u64be(c);
    }
}

/* By first bytes 0xc0 to 0xdf: the kind of item, and how many bytes its value or length has. */
static const struct {
    uint8_t kind, width;
} forms[32] = {
    [0x04] = {TOKEN_BIN, 1},   [0x05] = {TOKEN_BIN, 2},  [0x06] = {TOKEN_BIN, 4},
    [0x0c] = {TOKEN_UINT, 1},  [0x0d] = {TOKEN_UINT, 2}, [0x0e] = {TOKEN_UINT, 4},
    [0x0f] = {TOKEN_UINT, 8},  [0x10] = {TOKEN_INT, 1},  [0x11] = {TOKEN_INT, 2},
    [0x12] = {TOKEN_INT, 4},   [0x13] = {TOKEN_INT, 8},  [0x19] = {TOKEN_STR, 1},
    [0x1a] = {TOKEN_STR, 2},   [0x1b] = {TOKEN_STR, 4},  [0x1c] = {TOKEN_ARRAY, 2},
    [0x1d] = {TOKEN_ARRAY, 4},
};

static struct token read_long_token(struct cursor *c, uint8_t first)
{
    unsigned width = forms[first - 0xc0].width;
    struct token t = {.kind = forms[first - 0xc0].kind};
    if (t.kind == TOKEN_OTHER)
        return t;
    t.value = read_be(c, width);
    if (!cursor_ok(c))
        t.kind = TOKEN_END;
    else if (t.kind == TOKEN_INT && t.value >> (8 * width - 1) == 0)
        t.kind = TOKEN_UINT;
    return t;
}

/* A TOKEN_INT is always negative; its value must not be used. */
static struct token read_token(struct cursor *c)
{
    uint8_t first = cursor_u8(c);
    if (!cursor_ok(c))
        return (struct token){.kind = TOKEN_END};
    if (first <= 0x7f)
        return (struct token){.kind = TOKEN_UINT, .value = first};
    if (first >= 0xe0)
        return (struct token){.kind = TOKEN_INT};
    if (first >= 0xc0)
        return read_long_token(c, first);
    if (first >= 0xa0)
        return (struct token){.kind = TOKEN_STR, .value = first & 0x1f};
    if (first >= 0x90)
        return (struct token){.kind = TOKEN_ARRAY, .value = first & 0x0f};
    return (struct token){.kind = TOKEN_OTHER};
}

uint32_t unpack_array(struct unpack *un, const char *must)
{
    if (un->err != 0)
        return 0;
    struct token t = read_token(&un->c);
    if (t.kind == TOKEN_END)
        unpack_fail(un, KVC_E_BAD_MESSAGE, TOO_SHORT);
    else if (t.kind != TOKEN_ARRAY)
        unpack_fail(un, KVC_E_BAD_MESSAGE, must);
    else if (t.value > cursor_left(&un->c))
        unpack_fail(un, KVC_E_BAD_MESSAGE, "an array announces more items than there are bytes");
    return un->err == 0 ? (uint32_t)t.value : 0;
}

uint64_t unpack_uint(struct unpack *un, uint64_t min, uint64_t max, const char *must)
{
    if (un->err != 0)
        return 0;
    struct token t = read_token(&un->c);
    if (t.kind == TOKEN_END)
        unpack_fail(un, KVC_E_BAD_MESSAGE, TOO_SHORT);
    else if (t.kind != TOKEN_UINT && t.kind != TOKEN_INT)
        unpack_fail(un, KVC_E_BAD_MESSAGE, must);
    else if (t.kind == TOKEN_INT || t.value < min || t.value > max)
        unpack_fail(un, KVC_E_BAD_ARGUMENT, must);
    return un->err == 0 ? t.value : 0;
}

/* Reads the bytes of a bin, or (text) of a str. */
static struct codec_bin unpack_bytes(struct unpack *un, bool text, const char *must)
{
    struct codec_bin none = {0};
    if (un->err != 0)
        return none;
    struct token t = read_token(&un->c);
    if (t.kind == TOKEN_BIN || (text && t.kind == TOKEN_STR)) {
        const uint8_t *p = cursor_take(&un->c, t.value);
        if (cursor_ok(&un->c))
            return (struct codec_bin){.p = p, .n = (uint32_t)t.value};
        t.kind = TOKEN_END;
    }
    unpack_fail(un, KVC_E_BAD_MESSAGE, t.kind == TOKEN_END ? TOO_SHORT : must);
    return none;
}

bool codec_is_text(struct codec_bin s)
{
    for (size_t i = 0, step; i < s.n; i += step) {
        uint32_t code;
        step = utf8_next(s.p + i, s.n - i, &code);
        if (step == 0 || code == 0)
            return false;
    }
    return true;
}

static bool bytes_fit(const struct field *f, struct codec_bin s)
{
    switch (f->kind) {
    case FIELD_TEXT:
    case FIELD_STRING:
        return s.n >= f->min && s.n <= f->max && codec_is_text(s);
    case FIELD_DETAIL:
        return s.n <= f->max;
    case FIELD_BLOB:
        MUST(f->unit > 0);
        return s.n % f->unit == 0 && s.n / f->unit >= f->min && s.n / f->unit <= f->max;
    case FIELD_FIXED:
        return s.n == f->width;
    default:
        return s.n == strlen(KVC_PROTO_MAGIC) && memcmp(s.p, KVC_PROTO_MAGIC, s.n) == 0;
    }
}

/* Reads a field of any kind but ARRAY. `at`: the member. */
static void unpack_plain(struct unpack *un, const struct field *f, uint8_t *at)
{
    if (f->kind == FIELD_UINT || f->kind == FIELD_FLAGS) {
        uint64_t v = unpack_uint(un, f->min, f->kind == FIELD_UINT ? f->max : UINT64_MAX, f->must);
        if (f->kind == FIELD_FLAGS && (v & ~f->max) != 0)
            unpack_fail(un, KVC_E_BAD_ARGUMENT, f->must);
        field_put_uint(at, f->width, v);
        return;
    }
    bool text = f->kind != FIELD_BLOB && f->kind != FIELD_FIXED;
    struct codec_bin s = unpack_bytes(un, text, f->must);
    if (un->err == 0 && !bytes_fit(f, s))
        unpack_fail(un, KVC_E_BAD_ARGUMENT, f->must);
    if (un->err != 0)
        return;
    if (f->kind == FIELD_FIXED || f->kind == FIELD_STRING)
        memcpy(at, s.p, s.n);
    else if (f->kind != FIELD_MAGIC)
        memcpy(at, &s, sizeof(s));
}

void unpack_skip(struct unpack *un)
{
    if (un->err != 0)
        return;
    const struct token t = read_token(&un->c);
    if (t.kind == TOKEN_STR || t.kind == TOKEN_BIN)
        (void)cursor_take(&un->c, t.value);
    if (t.kind == TOKEN_END || !cursor_ok(&un->c))
        unpack_fail(un, KVC_E_BAD_MESSAGE, TOO_SHORT);
    else if (t.kind != TOKEN_UINT && t.kind != TOKEN_STR && t.kind != TOKEN_BIN)
        unpack_fail(un, KVC_E_BAD_MESSAGE, "a cell must be an integer, a text or binary");
}

static void unpack_items(struct unpack *un, const struct field *f, uint8_t *msg)
{
    const struct schema *items = f->items;
    uint32_t n = unpack_array(un, f->must);
    if (un->err == 0 && (n < f->min || n > f->max))
        unpack_fail(un, KVC_E_BAD_ARGUMENT, f->must);
    for (uint32_t i = 0; un->err == 0 && i < n; i++) {
        uint8_t *item = msg + f->at + (size_t)i * items->size;
        if (!items->bare && unpack_array(un, f->must) != items->nfields)
            unpack_fail(un, KVC_E_BAD_MESSAGE, f->must);
        for (uint32_t k = 0; k < items->nfields; k++)
            unpack_plain(un, &items->fields[k], item + items->fields[k].at);
    }
    if (un->err == 0)
        field_put_uint(msg + f->count_at, sizeof(uint32_t), n);
}

void unpack_fields(struct unpack *un, const struct schema *schema, void *msg)
{
    for (uint32_t i = 0; un->err == 0 && i < schema->nfields; i++) {
        const struct field *f = &schema->fields[i];
        if (f->kind == FIELD_ARRAY)
            unpack_items(un, f, msg);
        else
            unpack_plain(un, f, (uint8_t *)msg + f->at);
    }
}

void unpack_end(struct unpack *un)
{
    if (un->err == 0 && cursor_left(&un->c) != 0)
        unpack_fail(un, KVC_E_BAD_MESSAGE, "bytes are left over after the message");
}
