/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Background work of the core: the table of its steps, in their order, of which each turn runs a
 * bounded piece. And the done queue, which wakes requests that waited.
 */
#include "admin.h"
#include "lapse.h"
#include "transfer_jobs.h"
#include "turn.h"

/* Keys that woken waiters may look up in one turn: some 300 us. */
#define DONE_KEYS 4096u

/* Each step is defined in another file, which bounds what it does in a turn. Steps that end things
 * by time come first, so that the room is there for the rest. gone_step() is last, for it tells of
 * all that the others removed. */
static const struct {
    bool (*step)(struct core *c); /* true: more is to be done at once; NULL: `look` runs instead */
    void (*look)(struct core *c); /* leaves what it does not finish to the next turn */
    bool storage;                 /* the step has nothing to do without storage */
    enum turn_piece piece;        /* the step's part of the turn in the flight recorder */
} steps[] = {
    {.step = reclaim_step, .piece = TURN_TIMED},
    {.step = names_step, .piece = TURN_TIMED},
    {.step = wish_step, .piece = TURN_TIMED},
    {.step = pin_step, .piece = TURN_TIMED},
    {.step = quota_step, .piece = TURN_TIMED},
    {.look = progress_step, .piece = TURN_TIMED},
    {.step = lease_step, .piece = TURN_LET_GO},
    {.step = resv_step, .piece = TURN_LET_GO},
    {.step = ask_step, .piece = TURN_LET_GO},
    {.step = load_step, .piece = TURN_LET_GO},
    {.step = unhold_step, .piece = TURN_LET_GO},
    {.look = promise_step, .storage = true, .piece = TURN_STORAGE},
    {.step = place_fill, .storage = true, .piece = TURN_STORAGE},
    {.step = reconcile_step, .piece = TURN_STORAGE},
    {.look = load_pump, .storage = true, .piece = TURN_STORAGE},
    {.look = room_wake, .storage = true, .piece = TURN_STORAGE},
    {.step = job_run, .piece = TURN_JOBS},
    {.look = gone_step, .piece = TURN_JOBS},
};

bool core_has_steps(const struct core *c)
{
    return !list_empty(&c->jobs) || leases_are_going(c) || resvs_are_going(c) ||
           pins_are_going(c) || asks_are_going(c) || loads_are_going(c) || unhold_waiting(c) > 0 ||
           names_are_going(c);
}

/* Row i is the last one of its piece of the turn. */
static bool step_is_last(unsigned i)
{
    return i + 1 == ARRAY_LEN(steps) || steps[i + 1].piece != steps[i].piece;
}

bool core_background_step(struct core *c)
{
    uint64_t work = c->work.done;
    bool more = false;
    for (unsigned i = 0; i < ARRAY_LEN(steps); i++) {
        if (steps[i].storage && !core_stores(c))
            continue;
        if (steps[i].step)
            more |= steps[i].step(c);
        else
            steps[i].look(c);
        if (step_is_last(i)) {
            turn_piece(steps[i].piece, 0, c->work.done - work);
            work = c->work.done;
        }
    }
    return more;
}

unsigned core_run_done(struct core *c)
{
    unsigned n = 0;
    promise_step(c);
    transfer_run_waiting(c);
    uint64_t keys = 0;
    struct list_node batch; /* of waiters; one that waits again runs in the next turn */
    list_init(&batch);
    for (struct list_node *node; keys < DONE_KEYS && (node = list_first(&c->woken));) {
        keys += CONTAINER_OF(node, struct core_waiter, node)->keys + DONE_KEYS / 64;
        list_remove(node);
        list_push_back(&batch, node);
    }
    for (struct list_node *node; (node = list_first(&batch)); n++) {
        struct core_waiter *w = CONTAINER_OF(node, struct core_waiter, node);
        list_remove(node);
        w->fn(w);
    }
    return n;
}

bool core_has_done(const struct core *c)
{
    return !list_empty(&c->woken) || transfer_has_due(c) || gone_is_due(c) || promise_is_due(c);
}
