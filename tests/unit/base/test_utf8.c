/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cases.h"
#include "utf8.h"

static size_t next(const char *text, uint32_t *code)
{
    return utf8_next(text, strlen(text), code);
}

CASE(characters_of_each_length_are_read)
{
    uint32_t code = 7;
    ck_assert_uint_eq(utf8_next("\0", 1, &code), 1);
    ck_assert_uint_eq(code, 0);
    ck_assert_uint_eq(next("a\xff", &code), 1);
    ck_assert_uint_eq(code, 'a');
    ck_assert_uint_eq(next("\xc2\x80", &code), 2);
    ck_assert_uint_eq(code, 0x80);
    ck_assert_uint_eq(next("\xef\xbf\xbd", &code), 3);
    ck_assert_uint_eq(code, 0xfffd);
    ck_assert_uint_eq(next("\xf4\x8f\xbf\xbf", &code), 4);
    ck_assert_uint_eq(code, 0x10ffff);
}

/* Continuation alone, overlong forms, a surrogate, above the last, cut off, no continuation. */
CASE(what_is_not_utf8_is_refused)
{
    static const char *const wrong[] = {
        "\x80",         "\xc0\x80",         "\xe0\x9f\xbf",     "\xf0\x8f\xbf\xbf",
        "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x80",
        "\xe2\x80z"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        uint32_t code = 7;
        ck_assert_uint_eq(next(wrong[i], &code), 0);
        ck_assert_uint_eq(code, 7);
    }
}
