/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "check_run.h"
#include "key.h"

static const char text[] = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1dfeff";

START_TEST(reads_what_it_writes)
{
    uint8_t key[KVC_KEY_BYTES];
    char back[KEY_TEXT_BYTES];
    const char *why = NULL;
    ck_assert_int_eq(key_parse(text, key, &why), 0);
    ck_assert_uint_eq(key[0], 0);
    ck_assert_uint_eq(key[10], 10);
    ck_assert_uint_eq(key[31], 0xff);
    ck_assert_str_eq(key_format(key, back), text);
}
END_TEST

START_TEST(upper_case_is_the_same_key)
{
    char upper[KEY_TEXT_BYTES];
    for (size_t i = 0; i < sizeof(upper); i++)
        upper[i] = text[i] >= 'a' ? (char)(text[i] - 'a' + 'A') : text[i];
    uint8_t a[KVC_KEY_BYTES], b[KVC_KEY_BYTES];
    const char *why;
    ck_assert_int_eq(key_parse(text, a, &why), 0);
    ck_assert_int_eq(key_parse(upper, b, &why), 0);
    ck_assert_mem_eq(a, b, sizeof(a));
}
END_TEST

START_TEST(refuses_and_leaves_the_key_alone)
{
    static const char *const wrong[] = {
        "",
        "00",
        "0x00",
        " 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1dfeff",
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1dfefg",
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1dfeff0"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        uint8_t key[KVC_KEY_BYTES] = {42};
        const char *why = NULL;
        ck_assert_int_eq(key_parse(wrong[i], key, &why), -EINVAL);
        ck_assert_ptr_nonnull(why);
        ck_assert_uint_eq(key[0], 42);
    }
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("key");
    tcase_add_test(tc, reads_what_it_writes);
    tcase_add_test(tc, upper_case_is_the_same_key);
    tcase_add_test(tc, refuses_and_leaves_the_key_alone);
    Suite *suite = suite_create("key");
    suite_add_tcase(suite, tc);
    return check_run(suite);
}
