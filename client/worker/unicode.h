/* SPDX-License-Identifier: Apache-2.0 */
/* Which characters a tokenizer takes for letters, numbers and spaces: those of Unicode's general
 * categories L and N, and those with the property White_Space. */
#ifndef WORKER_UNICODE_H
#define WORKER_UNICODE_H

#include <stddef.h>
#include <stdint.h>

enum unicode_kind { UNICODE_OTHER, UNICODE_LETTER, UNICODE_NUMBER, UNICODE_SPACE };

struct unicode_range {
    uint32_t first, last;
};

/* In unicode_tables.c, which unicode_tables.py wrote. */
extern const struct unicode_range unicode_letters[], unicode_numbers[];
extern const size_t unicode_letter_ranges, unicode_number_ranges;

enum unicode_kind unicode_kind(uint32_t character);

#endif
