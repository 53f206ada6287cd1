/* SPDX-License-Identifier: Apache-2.0 */
#include "utf8.h"

#include <stdbool.h>

size_t utf8_next(const void *p, size_t left, uint32_t *ret_code)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const uint8_t *s = p;
    if (s[0] < 0x80) {
        *ret_code = s[0];
        return 1;
    }
    const size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || n > left)
        return 0;
    uint32_t code = s[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (s[i] & 0x3f);
    }
    const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
    if (code < least[n] || code > 0x10ffff || is_surrogate)
        return 0;
    *ret_code = code;
    return n;
}
