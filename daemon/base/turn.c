/* SPDX-License-Identifier: Apache-2.0 */
#include "turn.h"

#include "clock.h"
#include "flight.h"

struct piece {
    uint64_t cpu_ns, session, units;
    uint32_t what;
};

static _Thread_local struct {
    uint64_t begun_ns, at_ns; /* when the turn began; when the current piece began */
    uint64_t read_ns, cpu_ns; /* when processor time was read last; its value then */
    uint64_t before_cpu_ns;   /* processor time when the turn before ended */
    struct piece longest;
} turn;

/* Processor time of the piece that ends. It is read for long pieces only. Short pieces count as
 * long as they took, since other threads cannot have had the processor for long. */
static uint64_t cpu_of(uint64_t now_ns, uint64_t took_ns)
{
    if (took_ns < TURN_PIECE_LONG_NS)
        return took_ns;
    const uint64_t cpu_ns = clock_thread_ns();
    const uint64_t had = cpu_ns - turn.cpu_ns, others = turn.at_ns - turn.read_ns;
    turn.cpu_ns = cpu_ns;
    turn.read_ns = now_ns;
    return MIN(took_ns, had > others ? had - others : 0);
}

void turn_begin(uint64_t now_ns)
{
    turn.begun_ns = turn.at_ns = turn.read_ns = now_ns;
    turn.longest = (struct piece){.what = TURN_REST};
}

uint64_t turn_piece(uint32_t what, uint64_t session, uint64_t units)
{
    const uint64_t now_ns = clock_now_ns(), took_ns = now_ns - turn.at_ns;
    const uint64_t cpu_ns = cpu_of(now_ns, took_ns);
    if (cpu_ns > turn.longest.cpu_ns)
        turn.longest = (struct piece){cpu_ns, session, units, what};
    turn.at_ns = now_ns;
    return took_ns;
}

struct turn_times turn_end(uint64_t limit_ns)
{
    (void)turn_piece(TURN_REST, 0, 0);
    const uint64_t cpu_ns = clock_thread_ns();
    const struct turn_times t = {turn.at_ns - turn.begun_ns, cpu_ns - turn.before_cpu_ns};
    turn.before_cpu_ns = turn.cpu_ns = cpu_ns;
    if (MAX(t.ns, t.cpu_ns) > limit_ns) {
        const struct piece *p = &turn.longest;
        FLIGHT(TURN, t.ns / 1000, t.cpu_ns / 1000, p->cpu_ns / 1000);
        FLIGHT(PIECE, p->what, p->session, p->units);
    }
    return t;
}
