/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds-checked reading (struct cursor) and writing (struct wcursor) of byte buffers.
 *
 * The error is sticky: after the first access that does not fit, every further one is refused,
 * reads give 0, and nothing moves. A parser reads all it wants and asks cursor_ok() once, before it
 * believes any of it. Both borrow the buffer. Offsets and lengths are bytes.
 */
#ifndef KVC_WIRE_CURSOR_H
#define KVC_WIRE_CURSOR_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct cursor {
    const uint8_t *p, *end;
    bool bad;
};

/* `buf` may be NULL when `len` is 0. */
static inline void cursor_init(struct cursor *c, const void *buf, size_t len)
{
    c->p = buf;
    c->end = len != 0 ? c->p + len : c->p;
    c->bad = false;
}

static inline bool cursor_ok(const struct cursor *c)
{
    return !c->bad;
}

/* Bytes not read yet; 0 once bad. */
static inline size_t cursor_left(const struct cursor *c)
{
    return c->bad ? 0 : (size_t)(c->end - c->p);
}

/* The next `n` bytes, in place, or NULL (and bad) when fewer are left. With n = 0 the pointer is
 * not for reading and may be NULL; cursor_ok() tells. */
static inline const uint8_t *cursor_take(struct cursor *c, size_t n)
{
    if (c->bad || n > cursor_left(c)) {
        c->bad = true;
        return NULL;
    }
    const uint8_t *at = c->p;
    if (n != 0)
        c->p += n;
    return at;
}

static inline void cursor_skip(struct cursor *c, size_t n)
{
    (void)cursor_take(c, n);
}

static inline uint64_t cursor__be(struct cursor *c, size_t n)
{
    const uint8_t *at = cursor_take(c, n);
    uint64_t v = 0;
    for (size_t i = 0; at != NULL && i < n; i++)
        v = v << 8 | at[i];
    return v;
}

/* `n` little-endian bytes, at most 8, that the caller knows to be there. */
static inline uint64_t cursor__le_at(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    memcpy(&v, p, n); /* one load: compilers do not make one of a loop over bytes */
    return le64toh(v);
}

/* One of an array of u64 little-endian whose length has been checked. */
static inline uint64_t cursor_le64(const uint8_t p[8])
{
    return cursor__le_at(p, 8);
}

static inline uint64_t cursor__le(struct cursor *c, size_t n)
{
    const uint8_t *at = cursor_take(c, n);
    return at != NULL ? cursor__le_at(at, n) : 0;
}

static inline uint8_t cursor_u8(struct cursor *c)
{
    return (uint8_t)cursor__be(c, 1);
}

static inline uint16_t cursor_u16be(struct cursor *c)
{
    return (uint16_t)cursor__be(c, 2);
}

static inline uint32_t cursor_u32be(struct cursor *c)
{
    return (uint32_t)cursor__be(c, 4);
}

static inline uint64_t cursor_u64be(struct cursor *c)
{
    return cursor__be(c, 8);
}

static inline uint16_t cursor_u16le(struct cursor *c)
{
    return (uint16_t)cursor__le(c, 2);
}

static inline uint32_t cursor_u32le(struct cursor *c)
{
    return (uint32_t)cursor__le(c, 4);
}

static inline uint64_t cursor_u64le(struct cursor *c)
{
    return cursor__le(c, 8);
}

struct wcursor {
    uint8_t *p, *start, *end;
    bool bad;
};

/* `buf` may be NULL when `cap` is 0. */
static inline void wcursor_init(struct wcursor *w, void *buf, size_t cap)
{
    w->start = buf;
    w->p = w->start;
    w->end = cap != 0 ? w->start + cap : w->start;
    w->bad = false;
}

static inline bool wcursor_ok(const struct wcursor *w)
{
    return !w->bad;
}

/* Bytes written so far. Once bad it says how many fitted before the first that did not. */
static inline size_t wcursor_len(const struct wcursor *w)
{
    return (size_t)(w->p - w->start);
}

/* Room left; 0 once bad. */
static inline size_t wcursor_left(const struct wcursor *w)
{
    return w->bad ? 0 : (size_t)(w->end - w->p);
}

/* Room for `n` bytes that the caller fills in, or NULL (and bad) when they do not fit. */
static inline uint8_t *wcursor_reserve(struct wcursor *w, size_t n)
{
    if (w->bad || n > wcursor_left(w)) {
        w->bad = true;
        return NULL;
    }
    uint8_t *at = w->p;
    if (n != 0)
        w->p += n;
    return at;
}

static inline void wcursor_put(struct wcursor *w, const void *bytes, size_t n)
{
    uint8_t *at = wcursor_reserve(w, n);
    if (at != NULL && n != 0)
        memcpy(at, bytes, n);
}

static inline void wcursor__be(struct wcursor *w, uint64_t v, size_t n)
{
    uint8_t *at = wcursor_reserve(w, n);
    for (size_t i = n; at != NULL && i > 0; i--, v >>= 8)
        at[i - 1] = (uint8_t)v;
}

static inline void wcursor__le(struct wcursor *w, uint64_t v, size_t n)
{
    uint8_t *at = wcursor_reserve(w, n);
    for (size_t i = 0; at != NULL && i < n; i++, v >>= 8)
        at[i] = (uint8_t)v;
}

static inline void wcursor_put_u8(struct wcursor *w, uint8_t v)
{
    wcursor__be(w, v, 1);
}

static inline void wcursor_put_u16be(struct wcursor *w, uint16_t v)
{
    wcursor__be(w, v, 2);
}

static inline void wcursor_put_u32be(struct wcursor *w, uint32_t v)
{
    wcursor__be(w, v, 4);
}

static inline void wcursor_put_u64be(struct wcursor *w, uint64_t v)
{
    wcursor__be(w, v, 8);
}

static inline void wcursor_put_u16le(struct wcursor *w, uint16_t v)
{
    wcursor__le(w, v, 2);
}

static inline void wcursor_put_u32le(struct wcursor *w, uint32_t v)
{
    wcursor__le(w, v, 4);
}

static inline void wcursor_put_u64le(struct wcursor *w, uint64_t v)
{
    wcursor__le(w, v, 8);
}

#endif
