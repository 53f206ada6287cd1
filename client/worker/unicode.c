/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>

#include "unicode.h"

static bool range_has(const struct unicode_range *range, size_t n, uint32_t character)
{
    size_t low = 0, high = n;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (range[mid].last < character)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && range[low].first <= character;
}

static bool is_space(uint32_t c)
{
    return (c >= '\t' && c <= '\r') || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

enum unicode_kind unicode_kind(uint32_t c)
{
    if (is_space(c))
        return UNICODE_SPACE;
    if (range_has(unicode_letters, unicode_letter_ranges, c))
        return UNICODE_LETTER;
    return range_has(unicode_numbers, unicode_number_ranges, c) ? UNICODE_NUMBER : UNICODE_OTHER;
}
