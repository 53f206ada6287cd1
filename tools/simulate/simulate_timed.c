/* SPDX-License-Identifier: Apache-2.0 */
#include "simulate_timed.h"

#include <time.h>

static struct {
    struct policy_ops ops;         /* the policy's functions, some replaced by those below */
    const struct policy_ops *real; /* the policy's own functions */
    struct sim_decisions *decisions;
    uint64_t ns; /* time of the current eviction so far */
    bool gone;   /* the victim has been removed */
} timed;

/* Processor time, so that other programs on the machine are not counted. */
static uint64_t simulate_timed_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Cost of reading the clock: up to a microsecond, which would dominate the measurement. */
static uint64_t clock_cost(void)
{
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < 1000; i++) {
        const uint64_t begin = simulate_timed_cpu_ns(), ns = simulate_timed_cpu_ns() - begin;
        least = ns < least ? ns : least;
    }
    return least;
}

static void add_since(uint64_t begin)
{
    const uint64_t ns = simulate_timed_cpu_ns() - begin, clock = timed.decisions->clock_ns;
    timed.ns += ns > clock ? ns - clock : 0;
}

void sim_timed_end(void)
{
    if (timed.gone) { /* an eviction that did not take place is not counted */
        lat_add(&timed.decisions->lat, timed.ns);
        timed.decisions->ns += timed.ns;
    }
    timed.ns = 0;
    timed.gone = false;
}

static uint32_t timed_victim(struct policy *p, uint8_t list, uint64_t now_ms,
                             policy_can_evict_fn *can_evict, void *ctx)
{
    sim_timed_end();
    const uint64_t begin = simulate_timed_cpu_ns();
    const uint32_t block = timed.real->victim(p, list, now_ms, can_evict, ctx);
    add_since(begin);
    return block;
}

static bool timed_admits(struct policy *p, const struct policy_hint *hint, uint32_t victim,
                         uint64_t now_ms)
{
    const uint64_t begin = simulate_timed_cpu_ns();
    const bool admits = timed.real->admits(p, hint, victim, now_ms);
    add_since(begin);
    return admits;
}

static void timed_remove(struct policy *p, uint32_t block)
{
    const uint64_t begin = simulate_timed_cpu_ns();
    timed.real->remove(p, block);
    add_since(begin);
    timed.gone = true;
}

/* Releases the parent of the removed block. */
static void timed_release(struct policy *p, uint32_t block, bool last)
{
    const uint64_t begin = simulate_timed_cpu_ns();
    timed.real->release(p, block, last);
    if (last)
        add_since(begin);
}

const struct policy_ops *sim_timed(const struct policy_ops *ops, struct sim_decisions *decisions)
{
    if (!decisions)
        return ops;
    decisions->clock_ns = clock_cost();
    timed.real = ops;
    timed.decisions = decisions;
    timed.ns = 0;
    timed.gone = false;
    timed.ops = *ops;
    timed.ops.victim = timed_victim;
    timed.ops.admits = ops->admits ? timed_admits : NULL;
    timed.ops.remove = timed_remove;
    timed.ops.release = timed_release;
    return &timed.ops;
}
