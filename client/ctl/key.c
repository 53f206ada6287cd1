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

int key_parse(const char *text, uint8_t ret_key[KVC_KEY_BYTES], const char **ret_why)
{
    uint8_t key[KVC_KEY_BYTES];
    size_t length = strspn(text, "0123456789abcdefABCDEF");
    if (text[length] != '\0') {
        *ret_why = "a key is 64 hexadecimal digits, and this has other characters in it";
        return -EINVAL;
    }
    if (length != 2 * KVC_KEY_BYTES) {
        *ret_why = length < 2 * KVC_KEY_BYTES ? "a key is 64 hexadecimal digits, and this has fewer"
                                              : "a key is 64 hexadecimal digits, and this has more";
        return -EINVAL;
    }
    for (size_t i = 0; i < KVC_KEY_BYTES; i++)
        key[i] = (uint8_t)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
    memcpy(ret_key, key, sizeof(key));
    return 0;
}

const char *key_format(const uint8_t key[KVC_KEY_BYTES], char buf[KEY_TEXT_BYTES])
{
    for (size_t i = 0; i < KVC_KEY_BYTES; i++)
        snprintf(buf + 2 * i, 3, "%02x", key[i]);
    return buf;
}
