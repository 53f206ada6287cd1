/* SPDX-License-Identifier: Apache-2.0 */
#include "guard.h"

#include <stdbool.h>

/* Requests that sums are over. The long run keeps away what leads for a moment and then loses it
 * all, as LRU-2 does when one working set gives way to the next. */
#define LATE     300.0f
#define LONG_RUN 2000.0f
/* How far ahead another order must be. */
#define LATE_LEAD     1.03f
#define LONG_RUN_LEAD 1.01f
#define OTHER_LEAD    1.02f
/* Requests: that another order is kept for, doubled each time that it is needed again at once; that
 * what was learned is tried for. */
#define HOLD     500u
#define HOLD_MAX 4000u
#define TRY      500u

static void add(float *sum, float over, uint32_t hits)
{
    *sum += (float)hits - *sum / over;
}

static bool leads(const struct guard *g, enum guard_order order)
{
    return g->late[order] > g->late[GUARD_LEARNED] * LATE_LEAD &&
           g->long_run[order] > g->long_run[GUARD_LEARNED] * LONG_RUN_LEAD;
}

static void back_to_learned(struct guard *g)
{
    g->order = GUARD_LEARNED;
    g->stay = TRY;
}

static void look(struct guard *g)
{
    const enum guard_order best = g->late[GUARD_LRU] > g->late[GUARD_LRU2] ? GUARD_LRU : GUARD_LRU2;
    const enum guard_order other = best == GUARD_LRU ? GUARD_LRU2 : GUARD_LRU;
    const enum guard_order to = leads(g, best) ? best : leads(g, other) ? other : GUARD_LEARNED;
    if (to == GUARD_LEARNED) {
        if (g->order != GUARD_LEARNED)
            back_to_learned(g);
        else
            g->hold = 0;
        return;
    }
    g->hold = g->hold == 0 || g->order != GUARD_LEARNED ? HOLD : g->hold * 2;
    if (g->hold > HOLD_MAX)
        g->hold = HOLD_MAX;
    g->order = to;
    g->stay = g->hold;
}

void guard_request(struct guard *g, uint32_t hits, uint32_t lru, uint32_t lru2)
{
    const uint32_t would[GUARD_ORDERS] = {hits, lru, lru2};
    for (unsigned i = 0; i < GUARD_ORDERS; i++) {
        add(&g->late[i], LATE, would[i]);
        add(&g->long_run[i], LONG_RUN, would[i]);
    }
    if (g->order != GUARD_LEARNED) {
        const enum guard_order other = g->order == GUARD_LRU ? GUARD_LRU2 : GUARD_LRU;
        if (g->late[other] > g->late[g->order] * OTHER_LEAD) {
            back_to_learned(g);
            return;
        }
    }
    if (g->stay > 0)
        g->stay--;
    else
        look(g);
}
