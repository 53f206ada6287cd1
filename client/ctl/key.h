/* SPDX-License-Identifier: Apache-2.0 */
/* Block keys as people write them. Pure. */
#ifndef CTL_KEY_H
#define CTL_KEY_H

#include <stdint.h>

#include <kvcache/proto.h>

#define KEY_TEXT_BYTES (2 * KVC_KEY_BYTES + 1)

/* 64 hexadecimal digits in either case. 0, or -EINVAL with a static text that says what is wrong.
 */
__attribute__((warn_unused_result)) int key_parse(const char *text, uint8_t ret_key[KVC_KEY_BYTES],
                                                  const char **ret_why);
const char *key_format(const uint8_t key[KVC_KEY_BYTES], char buf[KEY_TEXT_BYTES]);

#endif
