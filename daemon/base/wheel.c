/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Level L has slots of 64^L ticks. A timer sits in the lowest level whose 64 slots reach its tick,
 * at the slot of its tick's digit L in base 64; the slot of the current tick is always empty. When
 * time enters a slot of level L > 0, the slot's timers move down. `busy` has a bit per occupied
 * slot, so time jumps over what is empty.
 */
#include "wheel.h"

#include <stddef.h>

#define DIGIT_BITS 6u
#define DIGIT_MASK ((uint64_t)WHEEL_SLOTS - 1)
_Static_assert(WHEEL_SLOTS == 1u << DIGIT_BITS, "a slot number is one digit");

void wheel_init(struct wheel *w, uint64_t now_ns)
{
    w->tick = now_ns / WHEEL_TICK_NS;
    list_init(&w->overdue);
    for (unsigned l = 0; l < WHEEL_LEVELS; l++) {
        w->busy[l] = 0;
        for (unsigned s = 0; s < WHEEL_SLOTS; s++)
            list_init(&w->slot[l][s]);
    }
}

/* The first tick that is not before `ns`. It is rounded up so that no timer fires early. */
static uint64_t tick_of(uint64_t ns)
{
    return ns / WHEEL_TICK_NS + (ns % WHEEL_TICK_NS != 0);
}

/* Puts `t` into its slot as seen from w->tick, or on `due_list` if it is due already. */
static void wheel_place(struct wheel *w, struct wheel_timer *t, struct list_node *due_list)
{
    const uint64_t tick = tick_of(t->due_ns);
    if (tick <= w->tick) {
        list_push_back(due_list, &t->node);
        return;
    }
    for (unsigned l = 0; l < WHEEL_LEVELS; l++) {
        const unsigned shift = l * DIGIT_BITS;
        uint64_t ahead = (tick >> shift) - (w->tick >> shift);
        if (ahead >= WHEEL_SLOTS && l + 1 < WHEEL_LEVELS)
            continue;
        /* Beyond the top level: the farthest slot. `t` is placed again when time gets there. */
        if (ahead >= WHEEL_SLOTS)
            ahead = WHEEL_SLOTS - 1;
        const unsigned s = (unsigned)(((w->tick >> shift) + ahead) & DIGIT_MASK);
        list_push_back(&w->slot[l][s], &t->node);
        w->busy[l] |= UINT64_C(1) << s;
        return;
    }
}

void wheel_add(struct wheel *w, struct wheel_timer *t, uint64_t due_ns)
{
    wheel_del(w, t);
    t->due_ns = due_ns;
    wheel_place(w, t, &w->overdue);
}

void wheel_del(struct wheel *w, struct wheel_timer *t)
{
    if (!wheel_armed(t))
        return;
    struct list_node *head = t->node.next;
    const bool last = head == t->node.prev;
    list_remove(&t->node);
    /* `t` was alone on its list, so its neighbour was the list's head. If that is a slot, the slot
     * is empty now. */
    const uintptr_t at = (uintptr_t)head, first = (uintptr_t)&w->slot[0][0];
    if (last && at >= first && at < first + sizeof(w->slot)) {
        const size_t i = (at - first) / sizeof(struct list_node);
        w->busy[i / WHEEL_SLOTS] &= ~(UINT64_C(1) << (i % WHEEL_SLOTS));
    }
}

/* The first tick after w->tick at which some slot is entered, or UINT64_MAX. */
static uint64_t next_tick(const struct wheel *w)
{
    uint64_t best = UINT64_MAX;
    for (unsigned l = 0; l < WHEEL_LEVELS; l++) {
        if (w->busy[l] == 0)
            continue;
        const unsigned shift = l * DIGIT_BITS;
        const uint64_t at = w->tick >> shift;
        const unsigned digit = (unsigned)(at & DIGIT_MASK);
        /* Bit d of `ahead`: the slot d steps from the current one. */
        const uint64_t ahead =
            w->busy[l] >> digit | (digit != 0 ? w->busy[l] << (WHEEL_SLOTS - digit) : 0);
        const uint64_t tick = (at + (unsigned)__builtin_ctzll(ahead)) << shift;
        if (tick < best)
            best = tick;
    }
    return best;
}

static void take_slot(struct wheel *w, unsigned l, struct list_node *to)
{
    const unsigned s = (unsigned)(w->tick >> (l * DIGIT_BITS) & DIGIT_MASK);
    w->busy[l] &= ~(UINT64_C(1) << s);
    LIST_FOR_EACH_SAFE (node, next, &w->slot[l][s]) {
        list_remove(node);
        list_push_back(to, node);
    }
}

/* Enters w->tick: spreads the slots that begin here, highest level first, and collects the timers
 * that are due. */
static void enter_tick(struct wheel *w, struct list_node *due)
{
    for (unsigned l = WHEEL_LEVELS - 1; l > 0; l--) {
        if ((w->tick & ((UINT64_C(1) << (l * DIGIT_BITS)) - 1)) != 0)
            continue;
        struct list_node moving;
        list_init(&moving);
        take_slot(w, l, &moving);
        LIST_FOR_EACH_SAFE (node, next, &moving) {
            list_remove(node);
            wheel_place(w, CONTAINER_OF(node, struct wheel_timer, node), due);
        }
    }
    take_slot(w, 0, due);
}

/* Pops one by one: a callback may delete any timer that is still on `due`. */
static unsigned fire(struct wheel *w, struct list_node *due, uint64_t now_ns)
{
    unsigned fired = 0;
    for (struct list_node *node; (node = list_first(due)) != NULL; fired++) {
        struct wheel_timer *t = CONTAINER_OF(node, struct wheel_timer, node);
        wheel_del(w, t);
        t->fn(t->ctx, now_ns);
    }
    return fired;
}

unsigned wheel_run(struct wheel *w, uint64_t now_ns)
{
    struct list_node due;
    list_init(&due);
    LIST_FOR_EACH_SAFE (node, next, &w->overdue) {
        list_remove(node);
        list_push_back(&due, node);
    }
    const uint64_t now_tick = now_ns / WHEEL_TICK_NS;
    for (uint64_t tick; (tick = next_tick(w)) <= now_tick;) {
        w->tick = tick;
        enter_tick(w, &due);
    }
    /* w->tick is now before any timer fires: a timer that a callback adds and is due already goes
     * to `overdue`, and does not fire in this run. */
    if (now_tick > w->tick)
        w->tick = now_tick;
    return fire(w, &due, now_ns);
}

uint64_t wheel_next_ns(const struct wheel *w)
{
    if (!list_empty(&w->overdue))
        return w->tick * WHEEL_TICK_NS;
    const uint64_t tick = next_tick(w);
    return tick > UINT64_MAX / WHEEL_TICK_NS ? UINT64_MAX : tick * WHEEL_TICK_NS;
}
