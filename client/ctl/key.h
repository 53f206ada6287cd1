/* SPDX-License-Identifier: Apache-2.0 */
/* Block keys as people write them. Pure. */
#ifndef CTL_KEY_H
#define CTL_KEY_H

#include <stdint.h>

#include <kvcache/proto.h>

#define KEY_DIGITS     (2 * KVC_KEY_BYTES)
#define KEY_TEXT_BYTES (KEY_DIGITS + 1)
/* Tables show so many digits of a key, and the command line must have so many at least. */
#define KEY_SHORT 16u

/* A key of the command line: its first `digits` hexadecimal digits, and zeros behind them. */
struct key_arg {
    uint8_t key[KVC_KEY_BYTES];
    unsigned digits; /* KEY_SHORT to KEY_DIGITS; 0 = none was given */
};

/* Parses hexadecimal digits, upper or lower case. 0, or -EINVAL with a static text that says what
 * is wrong. */
__attribute__((warn_unused_result)) int key_parse(const char *text, struct key_arg *ret_key,
                                                  const char **ret_why);
/* The same as the parser of a row in a table of options. */
int key_arg_parse(const char *text, void *at, const char **ret_why);
const char *key_format(const uint8_t key[KVC_KEY_BYTES], char buf[KEY_TEXT_BYTES]);

#endif
