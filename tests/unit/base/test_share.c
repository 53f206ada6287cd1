/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "cases.h"
#include "share.h"

static struct share s;

static void teardown(void)
{
    share_destroy(&s);
}

static unsigned take_all(uint32_t holder)
{
    unsigned n = 0;
    while (share_take(&s, holder, 1))
        n++;
    return n;
}

CASES(.teardown = teardown);

CASE(half_is_guaranteed_in_equal_parts)
{
    ck_assert_uint_eq(share_each(65536, 256), 128);
    ck_assert_uint_eq(share_each(16, 4), 2);
    ck_assert_uint_eq(share_each(6, 4), 1); /* a whole one, where there are that many */
    ck_assert_uint_eq(share_each(3, 4), 0);
}

CASE(who_takes_all_leaves_the_others_theirs)
{
    ck_assert_int_eq(share_create(&s, 16, 2, 4), 0);
    ck_assert_uint_eq(take_all(0), 10);
    for (uint32_t i = 1; i < 4; i++)
        ck_assert_uint_eq(take_all(i), 2);
    ck_assert_uint_eq(s.used, 16);
}

CASE(what_is_given_back_may_be_taken_by_anybody)
{
    ck_assert_int_eq(share_create(&s, 16, 2, 4), 0);
    ck_assert_uint_eq(take_all(3), 10);
    share_give(&s, 3, 9);
    ck_assert_uint_eq(take_all(1), 10); /* 15, less 2 and 2, and one that 3 still lacks */
    ck_assert_uint_eq(take_all(3), 1);
}

CASE(without_a_guarantee_it_is_a_plain_pool)
{
    ck_assert_int_eq(share_create(&s, 5, 0, 3), 0);
    ck_assert_uint_eq(take_all(2), 5);
    ck_assert(!share_take(&s, 0, 1));
}

CASE(many_at_once_count_like_many_by_one)
{
    ck_assert_int_eq(share_create(&s, 100, 10, 5), 0);
    ck_assert(!share_take(&s, 0, 61));
    ck_assert(!share_take(&s, 0, UINT64_MAX));
    ck_assert(share_take(&s, 0, 60));
    ck_assert(!share_take(&s, 1, 11));
    ck_assert(share_take(&s, 1, 10));
    share_give(&s, 0, 60);
    ck_assert_uint_eq(s.used, 10);
    ck_assert_uint_eq(s.owed, 40);
}

/* Against the rule written down as it is said. */
CASE(random_takes_and_gives_keep_the_guarantee)
{
    enum { HOLDERS = 7, TOTAL = 40, EACH = 3 };
    uint64_t held[HOLDERS] = {0}, used = 0, r = 88172645463325252u;
    ck_assert_int_eq(share_create(&s, TOTAL, EACH, HOLDERS), 0);
    for (unsigned turn = 0; turn < 200000; turn++) {
        r ^= r << 13, r ^= r >> 7, r ^= r << 17;
        uint32_t who = (uint32_t)(r >> 8) % HOLDERS;
        uint64_t n = (r >> 20) % 5;
        if (r % 3 == 0 && n <= held[who]) {
            share_give(&s, who, n);
            held[who] -= n;
            used -= n;
            continue;
        }
        uint64_t owed = 0;
        for (uint32_t i = 0; i < HOLDERS; i++) {
            uint64_t h = held[i] + (i == who ? n : 0);
            owed += h < EACH ? EACH - h : 0;
        }
        bool may = used + n + owed <= TOTAL;
        ck_assert(may || n > 1 || held[who] >= EACH); /* the guarantee */
        ck_assert_int_eq(share_take(&s, who, n), may);
        if (may)
            held[who] += n, used += n;
    }
}

/* Who is charged more than there is takes what is guaranteed to others, until it is given back. */
CASE(what_is_charged_counts_whatever_is_guaranteed)
{
    ck_assert_int_eq(share_create(&s, 10, 2, 2), 0);
    share_charge(&s, 0, 9);
    ck_assert_uint_eq(share_left(&s, 0), 0);
    ck_assert_uint_eq(share_left(&s, 1), 1);
    share_charge(&s, 0, 3);
    ck_assert_uint_eq(share_left(&s, 1), 0);
    ck_assert(!share_take(&s, 1, 1));
    share_give(&s, 0, 5);
    ck_assert_uint_eq(share_left(&s, 0), 1);
    ck_assert_uint_eq(share_left(&s, 1), 3);
    ck_assert(share_take(&s, 1, 3));
}
