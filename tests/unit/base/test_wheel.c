/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "cases.h"
#include "err.h"
#include "wheel.h"

#define MS    UINT64_C(1000000)
#define START (UINT64_C(123456789) * MS + 321)

struct alarm {
    struct wheel_timer timer;
    struct wheel *wheel;
    unsigned fired;
    uint64_t fired_ns;
    struct alarm *other; /* what the callback deletes or adds */
    uint64_t other_due_ns;
};

static void note(void *ctx, uint64_t now_ns)
{
    struct alarm *a = ctx;
    a->fired++;
    a->fired_ns = now_ns;
}

static void note_and_delete_other(void *ctx, uint64_t now_ns)
{
    struct alarm *a = ctx;
    note(a, now_ns);
    wheel_del(a->wheel, &a->other->timer);
}

static void note_and_add_other(void *ctx, uint64_t now_ns)
{
    struct alarm *a = ctx;
    note(a, now_ns);
    wheel_add(a->wheel, &a->other->timer, a->other_due_ns);
}

static struct wheel w;

static void setup(void)
{
    wheel_init(&w, START);
}

static struct alarm alarm_with(wheel_fn *fn)
{
    return (struct alarm){.timer = {.fn = fn}, .wheel = &w};
}

static void arm(struct alarm *a, uint64_t due_ns)
{
    a->timer.ctx = a;
    wheel_add(&w, &a->timer, due_ns);
}

CASES(.setup = setup);

CASE(an_idle_wheel_has_no_next)
{
    ck_assert_uint_eq(wheel_next_ns(&w), UINT64_MAX);
    ck_assert_uint_eq(wheel_run(&w, START + 1000000 * MS), 0);
}

CASE(a_timer_fires_once_and_not_early)
{
    struct alarm a = alarm_with(note);
    arm(&a, START + 5 * MS);
    ck_assert(wheel_armed(&a.timer));
    ck_assert_uint_eq(wheel_run(&w, START + 5 * MS - 1), 0);
    ck_assert_uint_eq(wheel_run(&w, START + 6 * MS), 1);
    ck_assert(!wheel_armed(&a.timer));
    ck_assert_uint_eq(wheel_run(&w, START + 500 * MS), 0);
    ck_assert_uint_eq(a.fired, 1);
    ck_assert_uint_eq(a.fired_ns, START + 6 * MS);
}

CASE(what_is_due_already_fires_in_the_next_run)
{
    struct alarm a = alarm_with(note), b = alarm_with(note);
    arm(&a, START - 5 * MS);
    arm(&b, 0);
    ck_assert_uint_le(wheel_next_ns(&w), START);
    ck_assert_uint_eq(wheel_run(&w, START), 2);
}

CASE(a_deleted_timer_does_not_fire_and_leaves_no_wakeup)
{
    struct alarm a = alarm_with(note);
    for (uint64_t ms = 1; ms < 40000000; ms *= 7) {
        arm(&a, START + ms * MS);
        wheel_del(&w, &a.timer);
        ck_assert(!wheel_armed(&a.timer));
        ck_assert_uint_eq(wheel_next_ns(&w), UINT64_MAX);
    }
    wheel_del(&w, &a.timer); /* not armed: nothing */
    ck_assert_uint_eq(wheel_run(&w, START + 100000000 * MS), 0);
}

CASE(an_armed_timer_is_moved)
{
    struct alarm a = alarm_with(note);
    arm(&a, START + 5 * MS);
    arm(&a, START + 50 * MS);
    ck_assert_uint_eq(wheel_run(&w, START + 49 * MS), 0);
    ck_assert_uint_eq(wheel_run(&w, START + 51 * MS), 1);
}

CASE(a_callback_may_delete_a_timer_of_the_same_tick)
{
    struct alarm a = alarm_with(note_and_delete_other), b = alarm_with(note);
    a.other = &b;
    arm(&a, START + 5 * MS);
    arm(&b, START + 5 * MS);
    ck_assert_uint_eq(wheel_run(&w, START + 10 * MS), 1);
    ck_assert_uint_eq(b.fired, 0);
    ck_assert_uint_eq(wheel_next_ns(&w), UINT64_MAX);
}

CASE(a_callback_that_adds_itself_due_does_not_hang_the_run)
{
    struct alarm a = alarm_with(note_and_add_other);
    a.other = &a;
    a.other_due_ns = START;
    arm(&a, START + MS);
    ck_assert_uint_eq(wheel_run(&w, START + 10 * MS), 1);
    ck_assert(wheel_armed(&a.timer));
    ck_assert_uint_eq(wheel_run(&w, START + 10 * MS), 1);
}

CASE(a_callback_may_add_for_later)
{
    struct alarm b = alarm_with(note), a = alarm_with(note_and_add_other);
    b.timer.ctx = &b;
    a.other = &b;
    a.other_due_ns = START + 100 * MS;
    arm(&a, START + MS);
    ck_assert_uint_eq(wheel_run(&w, START + 50 * MS), 1);
    ck_assert_uint_eq(wheel_run(&w, START + 101 * MS), 1);
    ck_assert_uint_eq(b.fired, 1);
}

CASE(timers_fire_in_the_order_of_their_ticks)
{
    struct alarm late = alarm_with(note), early = alarm_with(note_and_delete_other);
    early.other = &late; /* runs first, so `late` never does */
    arm(&late, START + 900 * MS);
    arm(&early, START + 70 * MS);
    ck_assert_uint_eq(wheel_run(&w, START + 10000 * MS), 1);
    ck_assert_uint_eq(late.fired, 0);
}

CASE(a_timer_years_away_fires_then)
{
    const uint64_t year = UINT64_C(365) * 86400 * 1000 * MS;
    struct alarm a = alarm_with(note), never = alarm_with(note);
    arm(&a, START + 3 * year);
    arm(&never, UINT64_MAX);
    uint64_t now = START;
    unsigned turns = 0;
    while (a.fired == 0) {
        const uint64_t next = wheel_next_ns(&w);
        ck_assert_uint_gt(next, now);
        ck_assert_uint_le(next, START + 3 * year + MS);
        now = next;
        (void)wheel_run(&w, now);
        turns++;
    }
    ck_assert_uint_ge(a.fired_ns, START + 3 * year);
    ck_assert_uint_lt(a.fired_ns, START + 3 * year + MS);
    ck_assert_uint_lt(turns, 200); /* wakes once per 12 days, and a few times at the end */
    ck_assert(wheel_armed(&never.timer));
}

/* A machine that was stopped, slept or was moved: all that fell due fires in one run, once, and
 * what lies beyond does not. */
CASE(a_jump_fires_what_fell_due_once_and_nothing_else)
{
    static const uint64_t jumps_ms[] = {1000, 3600000, UINT64_C(31) * 24 * 3600000};
    static struct alarm a[64];
    for (unsigned j = 0; j < ARRAY_LEN(jumps_ms); j++) {
        const uint64_t jump = jumps_ms[j] * MS;
        wheel_init(&w, START);
        for (unsigned i = 0; i < ARRAY_LEN(a); i++) { /* half of them within the jump */
            a[i] = alarm_with(note);
            arm(&a[i], START + jump / (ARRAY_LEN(a) / 2) * (i + 1));
        }
        for (unsigned i = 0; i < 1000; i++) /* no time passes */
            ck_assert_uint_eq(wheel_run(&w, START), 0);
        ck_assert_uint_eq(wheel_run(&w, START + jump + MS), ARRAY_LEN(a) / 2);
        for (unsigned i = 0; i < ARRAY_LEN(a); i++)
            ck_assert_uint_eq(a[i].fired, i < ARRAY_LEN(a) / 2);
        ck_assert_uint_eq(wheel_run(&w, START + jump + MS), 0);
        ck_assert_uint_eq(wheel_run(&w, START + 3 * jump), ARRAY_LEN(a) / 2);
        ck_assert_uint_eq(wheel_next_ns(&w), UINT64_MAX);
    }
}

CASE(time_that_goes_back_fires_nothing)
{
    struct alarm a = alarm_with(note);
    ck_assert_uint_eq(wheel_run(&w, START + 100 * MS), 0);
    arm(&a, START + 110 * MS);
    ck_assert_uint_eq(wheel_run(&w, START), 0);
    ck_assert_uint_eq(wheel_run(&w, START + 111 * MS), 1);
}

enum { TIMERS = 200 };
static struct alarm alarms[TIMERS];
static bool armed[TIMERS];

/* After wheel_run(now) said `fired`: every timer against the plain rule. A timer fires in the first
 * run whose tick is at or past its due time, never before that time, and a sleeper until `next` is
 * not late. Asked by hand, for a passed ck_assert is a message to the parent process. */
static void check_one_run(uint64_t next, uint64_t now, unsigned fired)
{
    unsigned want = 0;
    for (unsigned k = 0; k < TIMERS; k++) {
        if (!armed[k])
            continue;
        struct alarm *a = &alarms[k];
        const bool must = a->timer.due_ns <= now / MS * MS, may = a->timer.due_ns <= now;
        if (a->fired > 1 || (must && a->fired == 0) || (!may && a->fired != 0))
            ck_abort_msg("timer %u: fired %u", k, a->fired);
        if (a->fired != 0 && next > now)
            ck_abort_msg("timer %u: a sleeper until next was late", k);
        if (wheel_armed(&a->timer) == (a->fired != 0))
            ck_abort_msg("timer %u: armed and fired", k);
        armed[k] = a->fired == 0;
        want += a->fired;
        a->fired = 0;
    }
    ck_assert_uint_eq(fired, want);
}

CASE_EACH(random_adds_deletes_and_runs_follow_the_rule, 8)
{
    uint64_t seed = UINT64_C(0x9e3779b97f4a7c15) * (unsigned)(_i + 1), now = START;
    printf("seed %llu\n", (unsigned long long)seed);
    for (unsigned i = 0; i < TIMERS; i++)
        alarms[i] = alarm_with(note);
    for (unsigned step = 0; step < 20000; step++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint64_t roll = seed >> 20;
        const unsigned i = (unsigned)(roll % TIMERS);
        const unsigned magnitude = (unsigned)(roll / TIMERS % 41); /* up to 18 minutes, in ns */
        const uint64_t span = (roll / TIMERS / 41) & ((UINT64_C(1) << magnitude) - 1);
        if (step % 3 == 0) {
            arm(&alarms[i], now + span);
            armed[i] = true;
        } else if (step % 17 == 1) {
            wheel_del(&w, &alarms[i].timer);
            armed[i] = false;
        } else {
            const uint64_t next = wheel_next_ns(&w);
            now += span / 64;
            check_one_run(next, now, wheel_run(&w, now));
        }
    }
    for (unsigned i = 0; i < TIMERS; i++)
        wheel_del(&w, &alarms[i].timer);
    ck_assert_uint_eq(wheel_next_ns(&w), UINT64_MAX);
}
