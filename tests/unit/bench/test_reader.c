/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "reader.h"

enum { SIZE_MAX_TESTED = 2111 };

static _Alignas(8) uint8_t block[SIZE_MAX_TESTED];

/* Each byte for itself, at the weight that it has in the word that it lies in. */
static uint64_t expected(uint64_t bytes)
{
    uint64_t sum = 0, whole = bytes / 8 * 8;
    for (uint64_t i = 0; i < whole; i++)
        sum += (uint64_t)block[i] << (8 * (i % 8));
    for (uint64_t i = whole; i < bytes; i++)
        sum += block[i];
    return sum;
}

CASE(every_byte_of_every_size_is_in_the_sum)
{
    for (uint64_t i = 0; i < sizeof(block); i++)
        block[i] = (uint8_t)(i * 131 + i / 251 + 1);
    for (uint64_t bytes = 0; bytes <= sizeof(block); bytes++)
        ck_assert_uint_eq(perf_read(block, bytes), expected(bytes));
}

CASE(a_byte_that_changes_changes_the_sum)
{
    memset(block, 7, sizeof(block));
    uint64_t before = perf_read(block, sizeof(block));
    for (uint64_t i = 0; i < sizeof(block); i++) {
        block[i] ^= 0x40;
        ck_assert_uint_ne(perf_read(block, sizeof(block)), before);
        block[i] ^= 0x40;
    }
}
