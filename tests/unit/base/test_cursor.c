/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"
#include "cursor.h"

CASE(integers_are_read_in_both_orders)
{
    static const uint8_t bytes[] = {1, 1, 2, 1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8,
                                    1, 2, 1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8};
    struct cursor c;
    cursor_init(&c, bytes, sizeof(bytes));
    ck_assert_uint_eq(cursor_u8(&c), 1);
    ck_assert_uint_eq(cursor_u16be(&c), 0x0102);
    ck_assert_uint_eq(cursor_u32be(&c), 0x01020304);
    ck_assert_uint_eq(cursor_u64be(&c), 0x0102030405060708);
    ck_assert_uint_eq(cursor_u16le(&c), 0x0201);
    ck_assert_uint_eq(cursor_u32le(&c), 0x04030201);
    ck_assert_uint_eq(cursor_u64le(&c), 0x0807060504030201);
    ck_assert(cursor_ok(&c));
    ck_assert_uint_eq(cursor_left(&c), 0);
}

CASE(a_short_read_is_sticky)
{
    static const uint8_t bytes[] = {0xff, 0xff, 0xff};
    struct cursor c;
    cursor_init(&c, bytes, sizeof(bytes));
    ck_assert_uint_eq(cursor_u32be(&c), 0);
    ck_assert(!cursor_ok(&c));
    ck_assert_uint_eq(cursor_u8(&c), 0); /* would fit, but comes after the error */
    ck_assert_uint_eq(cursor_left(&c), 0);
    ck_assert_ptr_null(cursor_take(&c, 0));
}

CASE(take_gives_bytes_in_place)
{
    static const uint8_t bytes[] = {1, 2, 3, 4};
    struct cursor c;
    cursor_init(&c, bytes, sizeof(bytes));
    cursor_skip(&c, 1);
    ck_assert_ptr_eq(cursor_take(&c, 2), bytes + 1);
    ck_assert_uint_eq(cursor_left(&c), 1);
    ck_assert_ptr_null(cursor_take(&c, 2));
    ck_assert(!cursor_ok(&c));
}

CASE(a_length_near_the_end_of_memory_does_not_wrap)
{
    static const uint8_t bytes[] = {1, 2, 3, 4};
    struct cursor c;
    cursor_init(&c, bytes, sizeof(bytes));
    ck_assert_ptr_null(cursor_take(&c, SIZE_MAX));
    ck_assert(!cursor_ok(&c));
    struct wcursor w;
    uint8_t room[4];
    wcursor_init(&w, room, sizeof(room));
    ck_assert_ptr_null(wcursor_reserve(&w, SIZE_MAX));
    ck_assert(!wcursor_ok(&w));
}

CASE(nothing_may_be_null)
{
    struct cursor c;
    cursor_init(&c, NULL, 0);
    (void)cursor_take(&c, 0);
    ck_assert(cursor_ok(&c));
    (void)cursor_u8(&c);
    ck_assert(!cursor_ok(&c));
    struct wcursor w;
    wcursor_init(&w, NULL, 0);
    wcursor_put(&w, NULL, 0);
    ck_assert(wcursor_ok(&w));
    ck_assert_uint_eq(wcursor_len(&w), 0);
    wcursor_put_u8(&w, 1);
    ck_assert(!wcursor_ok(&w));
}

CASE(what_is_written_is_read_back)
{
    uint8_t room[64];
    struct wcursor w;
    wcursor_init(&w, room, sizeof(room));
    wcursor_put_u8(&w, 0xfe);
    wcursor_put_u16be(&w, 0xfedc);
    wcursor_put_u32be(&w, 0xfedcba98);
    wcursor_put_u64be(&w, 0xfedcba9876543210);
    wcursor_put_u16le(&w, 0xfedc);
    wcursor_put_u32le(&w, 0xfedcba98);
    wcursor_put_u64le(&w, 0xfedcba9876543210);
    wcursor_put(&w, "kv", 2);
    ck_assert(wcursor_ok(&w));
    ck_assert_uint_eq(wcursor_len(&w), 1 + 2 * (2 + 4 + 8) + 2);
    ck_assert_uint_eq(room[1], 0xfe); /* big end first */
    ck_assert_uint_eq(room[15], 0xdc);

    struct cursor c;
    cursor_init(&c, room, wcursor_len(&w));
    ck_assert_uint_eq(cursor_u8(&c), 0xfe);
    ck_assert_uint_eq(cursor_u16be(&c), 0xfedc);
    ck_assert_uint_eq(cursor_u32be(&c), 0xfedcba98);
    ck_assert_uint_eq(cursor_u64be(&c), 0xfedcba9876543210);
    ck_assert_uint_eq(cursor_u16le(&c), 0xfedc);
    ck_assert_uint_eq(cursor_u32le(&c), 0xfedcba98);
    ck_assert_uint_eq(cursor_u64le(&c), 0xfedcba9876543210);
    ck_assert_mem_eq(cursor_take(&c, 2), "kv", 2);
    ck_assert(cursor_ok(&c));
}

CASE(a_write_that_does_not_fit_writes_nothing_and_is_sticky)
{
    uint8_t room[4] = {9, 9, 9, 9};
    struct wcursor w;
    wcursor_init(&w, room, 3);
    wcursor_put_u16be(&w, 0x0102);
    wcursor_put_u16be(&w, 0x0304);
    ck_assert(!wcursor_ok(&w));
    wcursor_put_u8(&w, 5);
    ck_assert_uint_eq(wcursor_len(&w), 2);
    ck_assert_uint_eq(wcursor_left(&w), 0);
    ck_assert_uint_eq(room[2], 9);
    ck_assert_uint_eq(room[3], 9);
}
