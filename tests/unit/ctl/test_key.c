/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cases.h"
#include "key.h"

static const char text[] = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1dfeff";

CASE(reads_what_it_writes)
{
    struct key_arg key;
    char back[KEY_TEXT_BYTES];
    const char *why = NULL;
    ck_assert_int_eq(key_parse(text, &key, &why), 0);
    ck_assert_uint_eq(key.digits, 64);
    ck_assert_uint_eq(key.key[0], 0);
    ck_assert_uint_eq(key.key[10], 10);
    ck_assert_uint_eq(key.key[31], 0xff);
    ck_assert_str_eq(key_format(key.key, back), text);
}

CASE(upper_case_is_the_same_key)
{
    char upper[KEY_TEXT_BYTES];
    for (size_t i = 0; i < sizeof(upper); i++)
        upper[i] = text[i] >= 'a' ? (char)(text[i] - 'a' + 'A') : text[i];
    struct key_arg a, b;
    const char *why;
    ck_assert_int_eq(key_parse(text, &a, &why), 0);
    ck_assert_int_eq(key_parse(upper, &b, &why), 0);
    ck_assert_mem_eq(a.key, b.key, sizeof(a.key));
}

CASE(its_first_digits_are_taken_and_zeros_follow)
{
    const uint8_t zeros[KVC_KEY_BYTES] = {0};
    const char *why = NULL;
    for (unsigned digits = KEY_SHORT; digits < KEY_DIGITS; digits++) {
        char begin[KEY_TEXT_BYTES];
        char back[KEY_TEXT_BYTES];
        struct key_arg key;
        snprintf(begin, sizeof(begin), "%.*s", (int)digits, text);
        ck_assert_int_eq(key_parse(begin, &key, &why), 0);
        ck_assert_uint_eq(key.digits, digits);
        key_format(key.key, back);
        ck_assert_mem_eq(back, begin, digits);
        const unsigned used = (digits + 1) / 2;
        ck_assert_mem_eq(key.key + used, zeros, KVC_KEY_BYTES - used);
        ck_assert(digits % 2 == 0 || (key.key[digits / 2] & 0xf) == 0);
    }
}

CASE(refuses_and_leaves_the_key_alone)
{
    static const char *const wrong[] = {
        "",
        "00",
        "000102030405060",
        "0x00",
        "0x0001020304050607",
        " 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1dfeff",
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1dfefg",
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1dfeff0"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct key_arg key = {.key = {42}};
        const char *why = NULL;
        ck_assert_int_eq(key_parse(wrong[i], &key, &why), -EINVAL);
        ck_assert_ptr_nonnull(why);
        ck_assert_uint_eq(key.key[0], 42);
    }
}
