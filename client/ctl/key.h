/* SPDX-License-Identifier: Apache-2.0 */
/* Block keys as people write them. Pure. */
#ifndef CTL_KEY_H
#define CTL_KEY_H

#include <stdint.h>

#include <kvcache/proto.h>

#define KEY_DIGITS     (2 * KVC_KEY_BYTES)
#define KEY_TEXT_BYTES (KEY_DIGITS + 1)
/* As many of a key's digits as tables show, and the fewest that are taken for one. */
#define KEY_SHORT 16u

/* A key as the command line has it: its first `digits` digits, and zeros behind them. */
struct key_arg {
    uint8_t key[KVC_KEY_BYTES];
    unsigned digits; /* KEY_SHORT to KEY_DIGITS; 0 = none was given */
};

/* Hexadecimal digits in either case. 0, or -EINVAL with a static text that says what is wrong. */
__attribute__((warn_unused_result)) int key_parse(const char *text, struct key_arg *ret_key,
                                                  const char **ret_why);
/* The same for a table of options. */
int key_arg_parse(const char *text, void *at, const char **ret_why);
const char *key_format(const uint8_t key[KVC_KEY_BYTES], char buf[KEY_TEXT_BYTES]);

#endif
