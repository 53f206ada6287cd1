/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hierarchical timer wheel: 1 ms ticks, five levels of 64 slots, no allocation.
 *
 * add and del are O(1); run costs O(levels) per occupied tick, however much time has passed.
 * A timer never fires before its due_ns, and fires in the first wheel_run() whose tick is past it:
 * less than 1 ms late plus whatever the caller is late. One that is already due when it is added
 * fires in the next run. Threads: one. Time is a parameter, in nanoseconds of any clock that does
 * not go back.
 */
#ifndef KVC_BASE_WHEEL_H
#define KVC_BASE_WHEEL_H

#include <stdbool.h>
#include <stdint.h>

#include "list.h"

#define WHEEL_TICK_NS 1000000ull
#define WHEEL_LEVELS  5  /* 64^5 ms is 12 days; what is due later is put off until it is nearer */
#define WHEEL_SLOTS   64 /* one bit each in a word */

/* now_ns is what wheel_run() was given. */
typedef void wheel_fn(void *ctx, uint64_t now_ns);

/* Embedded in the caller's object and zeroed before first use; the caller sets fn and ctx. */
struct wheel_timer {
    struct list_node node; /* the wheel's */
    uint64_t due_ns;       /* the wheel's; may be read */
    wheel_fn *fn;
    void *ctx;
};

struct wheel {
    uint64_t tick; /* last tick that has been run */
    struct list_node overdue;
    uint64_t busy[WHEEL_LEVELS]; /* bit s: slot s is not empty */
    struct list_node slot[WHEEL_LEVELS][WHEEL_SLOTS];
};

void wheel_init(struct wheel *w, uint64_t now_ns);

/* Borrows `t` until it fires or is deleted. An armed timer is moved to the new time. */
void wheel_add(struct wheel *w, struct wheel_timer *t, uint64_t due_ns);
/* Disarms the timer; does nothing when it is not armed. */
void wheel_del(struct wheel *w, struct wheel_timer *t);

/* Fires what is due, each timer disarmed before its fn is called, and returns how many. fn may add
 * and delete any timer, its own too, and may free its own; one that it adds already due fires in
 * the next run, so that a run ends. A now_ns before the last one fires only what is overdue. */
unsigned wheel_run(struct wheel *w, uint64_t now_ns);

/* When to call wheel_run() next: perhaps early (a slot must be spread out first), never late.
 * UINT64_MAX when no timer is armed. */
uint64_t wheel_next_ns(const struct wheel *w);

static inline bool wheel_armed(const struct wheel_timer *t)
{
    return list_is_linked(&t->node);
}

#endif
