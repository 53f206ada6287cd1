/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "cases.h"
#include "renumber.h"

CASE(numbers_come_in_the_order_in_which_they_are_met)
{
    struct renumber *r = renumber_create();
    for (uint64_t i = 0; i < 100000; i++)
        ck_assert_uint_eq(renumber_id(r, i * UINT64_C(0x100000001b3)), i);
    for (uint64_t i = 0; i < 100000; i++)
        ck_assert_uint_eq(renumber_id(r, i * UINT64_C(0x100000001b3)), i);
    ck_assert_uint_eq(renumber_count(r), 100000);
    renumber_destroy(&r);
    ck_assert_ptr_null(r);
}
