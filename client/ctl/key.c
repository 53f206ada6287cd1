/* SPDX-License-Identifier: Apache-2.0 */
#include "key.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int key_parse(const char *text, struct key_arg *ret_key, const char **ret_why)
{
#define IS_A_KEY "a key is 64 hexadecimal digits, or at least the first 16 of them, and this has "
    size_t length = strspn(text, "0123456789abcdefABCDEF");
    if (text[length] != '\0') {
        *ret_why = IS_A_KEY "other characters in it";
        return -EINVAL;
    }
    if (length < KEY_SHORT || length > KEY_DIGITS) {
        *ret_why = length < KEY_SHORT ? IS_A_KEY "fewer" : IS_A_KEY "more";
        return -EINVAL;
    }
#undef IS_A_KEY
    *ret_key = (struct key_arg){.digits = (unsigned)length};
    for (size_t i = 0; i < length; i++)
        ret_key->key[i / 2] |= (uint8_t)(digit(text[i]) << (i % 2 ? 0 : 4));
    return 0;
}

int key_arg_parse(const char *text, void *at, const char **ret_why)
{
    return key_parse(text, at, ret_why);
}

const char *key_format(const uint8_t key[KVC_KEY_BYTES], char buf[KEY_TEXT_BYTES])
{
    for (size_t i = 0; i < KVC_KEY_BYTES; i++)
        snprintf(buf + 2 * i, 3, "%02x", key[i]);
    return buf;
}
