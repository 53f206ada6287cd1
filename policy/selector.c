/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the order of eviction for policy `density`, after each request: the learned one, or for
 * some thousand requests that of LRU or LRU-2. It compares the hits that happened with those that
 * shadow.c counted for the other two.
 */
#include "selector.h"

#include <stdbool.h>

/* Requests that sums are over. The long run keeps away what leads for a moment and then loses it
 * all, as LRU-2 does when one working set gives way to the next. */
#define LATE     300.0f
#define LONG_RUN 2000.0f
/* How far ahead another order must be. */
#define LATE_LEAD     1.05f
#define LONG_RUN_LEAD 1.01f
#define OTHER_LEAD    1.02f
/* Requests: that another order is followed for, doubled each time that it is needed again at once;
 * that what was learned is tried for; and where the other did not bring what it would have had, for
 * it takes too long to come by: */
#define HOLD     1000u
#define HOLD_MAX 4000u
#define TRY      500u
#define TRY_LONG 8000u

static void selector_add(float *sum, float over, uint32_t hits)
{
    *sum += (float)hits - *sum / over;
}

static bool leads(const struct selector *g, enum selector_order order)
{
    return g->late[order] > g->late[SELECTOR_LEARNED] * LATE_LEAD &&
           g->long_run[order] > g->long_run[SELECTOR_LEARNED] * LONG_RUN_LEAD;
}

static void back_to_learned(struct selector *g, uint32_t stay)
{
    g->order = SELECTOR_LEARNED;
    g->stay = stay;
}

static enum selector_order other_than(enum selector_order order)
{
    return order == SELECTOR_LRU ? GUARD_LRU2 : SELECTOR_LRU;
}

static enum selector_order leader(const struct selector *g)
{
    const enum selector_order best =
        g->late[SELECTOR_LRU] > g->late[GUARD_LRU2] ? SELECTOR_LRU : GUARD_LRU2;
    if (leads(g, best))
        return best;
    return leads(g, other_than(best)) ? other_than(best) : SELECTOR_LEARNED;
}

static void selector_look(struct selector *g)
{
    const enum selector_order to = leader(g);
    if (g->order != SELECTOR_LEARNED && to == g->order) {
        back_to_learned(g, TRY_LONG);
    } else if (to != SELECTOR_LEARNED) {
        g->hold = g->hold == 0 || g->order != SELECTOR_LEARNED ? HOLD : g->hold * 2;
        if (g->hold > HOLD_MAX)
            g->hold = HOLD_MAX;
        g->order = to;
        g->stay = g->hold;
    } else if (g->order != SELECTOR_LEARNED) {
        back_to_learned(g, TRY);
    } else {
        g->hold = 0;
    }
}

void selector_request(struct selector *g, uint32_t hits, uint32_t lru, uint32_t lru2)
{
    const uint32_t would[SELECTOR_ORDERS] = {hits, lru, lru2};
    for (unsigned i = 0; i < SELECTOR_ORDERS; i++) {
        selector_add(&g->late[i], LATE, would[i]);
        selector_add(&g->long_run[i], LONG_RUN, would[i]);
    }
    if (g->order != SELECTOR_LEARNED &&
        g->late[other_than(g->order)] > g->late[g->order] * OTHER_LEAD)
        back_to_learned(g, TRY);
    else if (g->stay > 0)
        g->stay--;
    else
        selector_look(g);
}
