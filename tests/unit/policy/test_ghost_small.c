/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "cases.h"
#include "ghost_small.h"

static struct ghost_small_table g;
static void *mem;

static void make(uint32_t n)
{
    mem = calloc(1, ghost_small_mem_bytes(n));
    ck_assert_ptr_nonnull(mem);
    ghost_small_init(&g, mem, n);
}

static void teardown(void)
{
    free(mem);
}

CASES(.teardown = teardown);

CASE(what_was_put_is_taken_once)
{
    make(1000);
    ck_assert_uint_eq(ghost_small_put(&g, ghost_small_print(17), 5), 0);
    ck_assert_uint_eq(ghost_small_take(&g, ghost_small_print(18)), 0);
    ck_assert_uint_eq(ghost_small_take(&g, ghost_small_print(17)), 5);
    ck_assert_uint_eq(ghost_small_take(&g, ghost_small_print(17)), 0);
}

CASE(put_again_it_has_the_later_stamp)
{
    make(1000);
    (void)ghost_small_put(&g, ghost_small_print(17), 5);
    ck_assert_uint_eq(ghost_small_put(&g, ghost_small_print(17), 6), 5);
    ck_assert_uint_eq(ghost_small_take(&g, ghost_small_print(17)), 6);
    ck_assert_uint_eq(ghost_small_take(&g, ghost_small_print(17)), 0);
}

CASE(a_full_bucket_forgets_its_oldest_over_the_wrap_too)
{
    make(8); /* one bucket */
    uint32_t stamp = UINT32_MAX - 3;
    for (uint32_t i = 0; i < 8; i++, stamp += stamp == UINT32_MAX ? 2 : 1)
        ck_assert_uint_eq(ghost_small_put(&g, 100 + i, stamp), 0);
    ck_assert_uint_eq(ghost_small_put(&g, 200, stamp), UINT32_MAX - 3);
    ck_assert_uint_eq(ghost_small_put(&g, 201, stamp + 1), UINT32_MAX - 2);
    ck_assert_uint_eq(ghost_small_take(&g, 100), 0);
    ck_assert_uint_eq(ghost_small_take(&g, 101), 0);
    ck_assert_uint_eq(ghost_small_take(&g, 102), UINT32_MAX - 1);
    ck_assert_uint_eq(ghost_small_take(&g, 107), stamp - 1);
}

CASE(nearly_all_of_so_many_are_remembered_and_memory_is_bounded)
{
    const uint32_t n = 100000;
    make(n);
    ck_assert_uint_le(ghost_small_mem_bytes(n), 2 * n * sizeof(struct ghost_small_entry));
    for (uint32_t i = 0; i < n; i++)
        (void)ghost_small_put(&g, ghost_small_print(i), i + 1);
    uint32_t known = 0;
    for (uint32_t i = 0; i < n; i++)
        known += ghost_small_take(&g, ghost_small_print(i)) == i + 1;
    ck_assert_uint_ge(known, n - n / 10);
}
