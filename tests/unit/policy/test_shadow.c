/* SPDX-License-Identifier: Apache-2.0 */
/* What LRU and LRU-2 would have, counted, against lists that are kept; and what follows from it. */
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "ghost.h"
#include "selector.h"
#include "shadow.h"

#define NAMES 400u
#define ROOM  100u
#define STEP  64u /* ticks between two uses: slots are narrower at first */

static struct shadow s;
static struct ghost name[NAMES];
static uint32_t now;
static uint32_t seed;

static void setup(void)
{
    memset(&s, 0, sizeof(s));
    memset(name, 0, sizeof(name));
    now = 1000;
    seed = 1;
    shadow_tick(&s, now);
}

static uint32_t draw(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

static void use(struct ghost *g)
{
    now += STEP;
    shadow_tick(&s, now);
    if (g->uses > 0) {
        shadow_end(&s, g);
        ghost_set_gap(g, ghost_gap(g, now, 1));
    }
    g->uses += g->uses < UINT8_MAX;
    g->used = now;
    shadow_begin(&s, g);
}

static void ghost_earlier_all(uint32_t by)
{
    for (unsigned i = 0; i < NAMES; i++)
        name[i].used = name[i].used > by ? name[i].used - by : 0;
}

static uint32_t before(const struct ghost *g)
{
    const uint32_t gap = ghost_get_gap(g);
    return g->used > gap ? g->used - gap : 0;
}

/* How many names LRU would rather keep than g. */
static unsigned younger_than(const struct ghost *g)
{
    unsigned n = 0;
    for (unsigned i = 0; i < NAMES; i++)
        n += name[i].uses > 0 && name[i].used > g->used;
    return n;
}

/* And LRU-2. */
static unsigned better_than(const struct ghost *g)
{
    unsigned n = 0;
    for (unsigned i = 0; i < NAMES; i++) {
        const struct ghost *o = &name[i];
        if (o->uses > 1)
            n += g->uses < 2 || before(o) > before(g);
        else if (o->uses == 1 && g->uses == 1)
            n += o->used > g->used;
    }
    return n;
}

/* They may differ where the room ends: a slot is kept in part. */
static void expect_as_listed(const struct ghost *g, bool has, unsigned rank)
{
    const unsigned unsure = ROOM / 10;
    if (rank + unsure < ROOM)
        ck_assert_msg(has, "number %u of %u is not there (%u uses)", rank, ROOM, g->uses);
    if (rank >= ROOM + unsure)
        ck_assert_msg(!has, "number %u of %u is there (%u uses)", rank, ROOM, g->uses);
}

static void expect_all_as_listed(void)
{
    shadow_look(&s, ROOM, now);
    for (unsigned i = 0; i < NAMES; i++) {
        if (name[i].uses == 0)
            continue;
        expect_as_listed(&name[i], shadow_lru_has(&s, &name[i]), younger_than(&name[i]));
        expect_as_listed(&name[i], shadow_lru2_has(&s, &name[i]), better_than(&name[i]));
    }
}

CASES(.setup = setup);

/* Low numbers are used more often; slots are merged many times over. */
CASE(counting_says_what_lists_would)
{
    for (unsigned i = 0; i < 20000; i++) {
        const unsigned a = draw() % NAMES, b = draw() % NAMES;
        use(&name[a < b ? a : b]);
        if (i % 500 == 499)
            expect_all_as_listed();
    }
}

/* What was before that is at 0, and can be told from what came later only. */
CASE(counts_stay_right_when_time_is_told_from_later_on)
{
    for (unsigned i = 0; i < 8000; i++) {
        const unsigned a = draw() % NAMES, b = draw() % NAMES;
        use(&name[a < b ? a : b]);
        if (i % 1000 != 999)
            continue;
        const uint32_t by = now - 500 * STEP;
        shadow_earlier(&s, by);
        ghost_earlier_all(by);
        now -= by;
        expect_all_as_listed();
    }
    shadow_earlier(&s, UINT64_C(1) << 40);
    ck_assert_uint_eq(s.slots, 1);
}

CASE(where_all_is_used_once_the_youngest_are_there)
{
    for (unsigned i = 0; i < NAMES; i++)
        use(&name[i]);
    expect_all_as_listed();
    ck_assert(shadow_lru2_has(&s, &name[NAMES - 1]));
    ck_assert(!shadow_lru2_has(&s, &name[0]));
}

CASE(what_was_used_twice_outlives_what_is_read_once)
{
    for (unsigned i = 0; i < 2 * ROOM; i++)
        use(&name[i % ROOM]);
    for (unsigned i = ROOM; i < NAMES; i++)
        use(&name[i]);
    shadow_look(&s, ROOM + 2, now);
    ck_assert(!shadow_lru_has(&s, &name[ROOM - 1]));
    ck_assert(shadow_lru2_has(&s, &name[0]));
    ck_assert(shadow_lru2_has(&s, &name[NAMES - 1]));
    ck_assert(!shadow_lru2_has(&s, &name[NAMES - 9]));
}

CASE(with_room_for_all_all_is_there)
{
    for (unsigned i = 0; i < NAMES; i++)
        use(&name[i / 2]);
    shadow_look(&s, NAMES, now);
    for (unsigned i = 0; i < NAMES / 2; i++)
        ck_assert(shadow_lru_has(&s, &name[i]) && shadow_lru2_has(&s, &name[i]));
}

CASE(what_is_forgotten_takes_no_room)
{
    for (unsigned i = 0; i < NAMES; i++)
        use(&name[i]);
    for (unsigned i = ROOM; i < NAMES; i++)
        shadow_end(&s, &name[i]);
    shadow_look(&s, ROOM, now);
    ck_assert(shadow_lru_has(&s, &name[0]));
    ck_assert(shadow_lru2_has(&s, &name[0]));
}

/* ---- selector ---- */

static struct selector selector;

/* Requests until the order is this one; n if it never is. */
static unsigned until(enum selector_order order, unsigned n, uint32_t hits, uint32_t lru,
                      uint32_t lru2)
{
    for (unsigned i = 0; i < n; i++) {
        if (selector.order == order)
            return i;
        selector_request(&selector, hits, lru, lru2);
    }
    return n;
}

static void selector_setup(void)
{
    memset(&selector, 0, sizeof(selector));
}

CASES(.setup = selector_setup);

CASE(what_was_learned_stays_while_it_is_as_good)
{
    for (unsigned i = 0; i < 5000; i++) {
        selector_request(&selector, 100, 101, 100);
        ck_assert_int_eq(selector.order, SELECTOR_LEARNED);
    }
    for (unsigned i = 0; i < 5000; i++) {
        selector_request(&selector, 0, 0, 0);
        ck_assert_int_eq(selector.order, SELECTOR_LEARNED);
    }
}

CASE(the_order_that_hits_more_is_taken)
{
    ck_assert_uint_lt(until(SELECTOR_LRU, 1000, 100, 110, 105), 1000);
    selector_setup();
    ck_assert_uint_lt(until(GUARD_LRU2, 1000, 100, 105, 110), 1000);
}

/* LRU-2 leads for as long as the last hundreds of requests, and was far behind before. */
CASE(a_lead_of_a_moment_is_not_followed)
{
    ck_assert_uint_eq(until(GUARD_LRU2, 2000, 100, 100, 50), 2000);
    ck_assert_uint_eq(until(GUARD_LRU2, 600, 100, 100, 110), 600);
}

/* It is followed as long as what is learned lost by it, and then that is tried again. */
CASE(what_was_learned_is_tried_again)
{
    until(SELECTOR_LRU, 1000, 100, 120, 100);
    unsigned last = 0;
    for (unsigned i = 0; i < 3; i++) {
        const unsigned held = until(SELECTOR_LEARNED, 10000, 120, 120, 100);
        ck_assert_uint_lt(held, 10000);
        ck_assert_uint_gt(held, last + last / 2);
        last = held;
        ck_assert_uint_lt(until(SELECTOR_LRU, 10000, 100, 120, 100), 10000);
    }
    until(SELECTOR_LEARNED, 10000, 120, 120, 100);
    until(SELECTOR_LRU, 3000, 120, 100, 100);
    until(SELECTOR_LRU, 5000, 100, 120, 100);
    ck_assert_uint_lt(until(SELECTOR_LEARNED, 10000, 120, 120, 100), last);
}

/* Followed, and yet what happens stays behind what it would have had. */
CASE(what_does_not_bring_its_hits_is_left_for_long)
{
    until(SELECTOR_LRU, 1000, 100, 120, 100);
    ck_assert_uint_lt(until(SELECTOR_LEARNED, 10000, 100, 120, 100), 2000);
    ck_assert_uint_gt(until(SELECTOR_LRU, 20000, 100, 120, 100), 5000);
    ck_assert_int_eq(selector.order, SELECTOR_LRU);
}

CASE(an_order_that_falls_behind_the_other_is_left_at_once)
{
    until(GUARD_LRU2, 1000, 100, 100, 110);
    ck_assert_uint_lt(until(SELECTOR_LEARNED, 1000, 60, 100, 60), 60);
}
