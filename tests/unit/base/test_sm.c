/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "cases.h"
#include "sm.h"

enum { FREE, PENDING, LIVE, STATES };

static const char *const names[] = {"free", "pending", "live"};
static const uint32_t edges[] = {
    [FREE] = SM_BIT(PENDING),
    [PENDING] = SM_BIT(FREE) | SM_BIT(LIVE),
    [LIVE] = SM_BIT(FREE),
};
static const struct sm_table table = {"block", names, STATES, edges};

CASE(allowed_moves_move)
{
    uint8_t state = FREE;
    SM_MOVE(&table, &state, PENDING);
    SM_MOVE(&table, &state, LIVE);
    ck_assert_uint_eq(state, LIVE);
    SM_MOVE(&table, &state, FREE);
    ck_assert_uint_eq(state, FREE);
}

CASE(names_of_states)
{
    ck_assert_str_eq(sm_name(&table, LIVE), "live");
    ck_assert_str_eq(sm_name(&table, STATES), "?");
    ck_assert_str_eq(sm_name(&table, 255), "?");
}

CASE(may_is_the_table)
{
    ck_assert(sm_may(&table, FREE, PENDING));
    ck_assert(!sm_may(&table, FREE, LIVE));
    ck_assert(!sm_may(&table, FREE, FREE)); /* staying is an edge like any other */
    ck_assert(!sm_may(&table, FREE, STATES));
    ck_assert(!sm_may(&table, STATES, FREE));
}

CASE(a_whole_table_is_valid_and_others_are_not)
{
    static const uint32_t to_nowhere[] = {SM_BIT(1), SM_BIT(2), SM_BIT(3)};
    static const uint32_t unreached[] = {SM_BIT(1), SM_BIT(0), SM_BIT(0)};
    static const char *const unnamed[] = {"free", NULL, "live"};
    ck_assert(sm_valid(&table, FREE));
    ck_assert(!sm_valid(&table, STATES));
    ck_assert(!sm_valid(&(struct sm_table){"x", names, 3, to_nowhere}, 0));
    ck_assert(!sm_valid(&(struct sm_table){"x", names, 3, unreached}, 0));
    ck_assert(!sm_valid(&(struct sm_table){"x", unnamed, 3, edges}, 0));
    ck_assert(!sm_valid(&(struct sm_table){"x", names, 0, edges}, 0));
    ck_assert(!sm_valid(&(struct sm_table){"x", names, 33, edges}, 0));
}

CASE(a_table_of_32_states_works)
{
    const char *many_names[32];
    uint32_t ring[32];
    for (unsigned i = 0; i < 32; i++) {
        many_names[i] = "s";
        ring[i] = SM_BIT((i + 1) % 32);
    }
    const struct sm_table many = {"many", many_names, 32, ring};
    uint8_t state = 30;
    ck_assert(sm_valid(&many, 0));
    SM_MOVE(&many, &state, 31);
    SM_MOVE(&many, &state, 0);
    ck_assert_uint_eq(state, 0);
}

CASE_DIES(a_move_without_an_edge_aborts, SIGABRT)
{
    uint8_t state = FREE;
    SM_MOVE(&table, &state, LIVE);
}

CASE_DIES(a_state_that_does_not_exist_aborts, SIGABRT)
{
    uint8_t state = 200;
    SM_MOVE(&table, &state, FREE);
}

CASE_DIES(a_target_that_only_fits_when_cut_aborts, SIGABRT)
{
    uint8_t state = FREE;
    SM_MOVE(&table, &state, 256 + PENDING);
}
