/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cases.h"
#include "pattern.h"

static uint8_t key[KVC_KEY_BYTES] = {1, 2, 3};
static uint8_t block[4099]; /* not a multiple of a word */

CASE(what_was_filled_is_right)
{
    pattern_fill(key, block, sizeof(block));
    ck_assert_uint_eq(pattern_wrong_bytes(key, block, sizeof(block)), 0);
}

CASE(every_single_flipped_bit_is_one_wrong_byte)
{
    pattern_fill(key, block, sizeof(block));
    for (size_t i = 0; i < sizeof(block); i++) {
        block[i] ^= (uint8_t)(1u << (i % 8));
        ck_assert_uint_eq(pattern_wrong_bytes(key, block, sizeof(block)), 1);
        block[i] ^= (uint8_t)(1u << (i % 8));
    }
}

CASE(contents_of_another_key_are_wrong)
{
    for (size_t i = 0; i < sizeof(key); i++) {
        uint8_t other[KVC_KEY_BYTES];
        memcpy(other, key, sizeof(other));
        other[i] ^= 0x80;
        pattern_fill(other, block, sizeof(block));
        /* One byte in 256 is the same by chance. */
        ck_assert_uint_gt(pattern_wrong_bytes(key, block, sizeof(block)), sizeof(block) * 9 / 10);
    }
}

CASE(shifted_contents_are_wrong)
{
    pattern_fill(key, block, sizeof(block));
    memmove(block, block + 64, sizeof(block) - 64);
    ck_assert_uint_gt(pattern_wrong_bytes(key, block, sizeof(block)), sizeof(block) * 9 / 10);
}

CASE(nothing_past_the_end_is_written)
{
    memset(block, 0xee, sizeof(block));
    pattern_fill(key, block, 13);
    ck_assert_uint_eq(block[13], 0xee);
    ck_assert_uint_eq(pattern_wrong_bytes(key, block, 13), 0);
}
