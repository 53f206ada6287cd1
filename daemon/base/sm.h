/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A state machine as data: names of the states, and for each the set of states that may follow.
 *
 *   static const uint32_t block_edges[] = { [B_FREE] = SM_BIT(B_PENDING), [B_PENDING] = ... };
 *   static const char *const block_states[] = { [B_FREE] = "free", ... };
 *   static const struct sm_table block_sm = { "block", block_states, 2, block_edges };
 *   SM_MOVE(&block_sm, &b->state, B_LIVE);
 *
 * Staying in a state is an edge like any other: it must be in the set. Threads: those of the
 * state's owner.
 */
#ifndef KVC_BASE_SM_H
#define KVC_BASE_SM_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"

#define SM_STATES_MAX 32
#define SM_BIT(state) (UINT32_C(1) << (state))

struct sm_table {
    const char *name;
    const char *const *states; /* n names */
    unsigned n;                /* 1 to SM_STATES_MAX */
    const uint32_t *edges;     /* n sets: bit t of edges[f] allows f -> t */
};

/* Moves *state (uint8_t *) to `to`. Fails a MUST that names machine and states when there is no
 * such edge. */
#define SM_MOVE(table, state, to)                                            \
    do {                                                                     \
        const struct sm_table *sm__t = (table);                              \
        uint8_t *sm__s = (state);                                            \
        const unsigned sm__to = (unsigned)(to);                              \
        if (__builtin_expect(!sm_may(sm__t, *sm__s, sm__to), 0))             \
            sm__refuse(sm__t, *sm__s, sm__to, __FILE__, __LINE__, __func__); \
        *sm__s = (uint8_t)sm__to;                                            \
    } while (0)

/* Whether from -> to is an edge; false when either is no state. */
static inline bool sm_may(const struct sm_table *t, unsigned from, unsigned to)
{
    return from < t->n && to < t->n && (t->edges[from] >> to & 1) != 0;
}

/* The state's name, "?" when there is no such state. */
const char *sm_name(const struct sm_table *t, unsigned state);

/* Whether the table is whole: 1 to 32 states, each named, no edge to a state that does not exist,
 * each reachable from `start`. For the module's unit test. */
bool sm_valid(const struct sm_table *t, unsigned start);

_Noreturn void sm__refuse(const struct sm_table *t, unsigned from, unsigned to, const char *file,
                          int line, const char *func);

#endif
