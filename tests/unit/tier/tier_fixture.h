/* SPDX-License-Identifier: Apache-2.0 */
/* A loop that is turned until a condition holds. */
#ifndef KVC_TEST_TIER_FIXTURE_H
#define KVC_TEST_TIER_FIXTURE_H

#include <check.h>

#include "loop.h"

static inline struct loop *fixture_loop(enum loop_backend want)
{
    const struct loop_config config = {.want = want, .watches_max = 8};
    struct loop *made = NULL;
    ck_assert_int_eq(loop_create(&config, &made), 0);
    return made;
}

/* Check's time limit ends the wait if the condition never holds. */
#define TURN_UNTIL(loop, condition)                                \
    do {                                                           \
        while (!(condition))                                       \
            ck_assert_int_ge(loop_turn((loop), 100 * 1000000), 0); \
    } while (0)

#endif
