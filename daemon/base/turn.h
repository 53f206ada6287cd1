/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a turn of the control thread was long: its pieces are measured one after the other, and of a
 * turn above a limit the flight recorder keeps which piece computed longest.
 *
 * A piece costs one reading of the monotonic clock. The processor's clock is a system call: it is
 * read at the end of a turn, and of a piece that took TURN_PIECE_LONG_NS or more.
 * Thread: each has its own; what is called outside of a turn has no effect on the next one.
 */
#ifndef KVC_BASE_TURN_H
#define KVC_BASE_TURN_H

#include <stdint.h>

/* X(number, name, what it is): pieces that are no request. A request's number is its operation. */
#define TURN_PIECES(X)                                                                    \
    X(256, BETWEEN, "before and between requests: receiving")                             \
    X(257, READY, "completions, timers, connections, HTTP")                               \
    X(258, WOKEN, "what waited for blocks that have come; c: how many")                   \
    X(259, TIMED, "reclaiming, names, pins, quotas, retentions and reservations by time") \
    X(260, LET_GO, "what ended leases, reservations, lookups, loads and names leave")     \
    X(261, STORAGE, "promises, blocks to write and to load, who waits for room")          \
    X(262, JOBS, "eviction on request, what waits for removals")                          \
    X(263, REST, "sessions that end, names of chunks, submitting I/O")

#define TURN__ENUM(number, name, text) TURN_##name = (number),
enum turn_piece { TURN_PIECES(TURN__ENUM) };

#define TURN__TEXT(number, name, text) #number " " text ", "
#define TURN_LEGEND                    TURN_PIECES(TURN__TEXT)

#define TURN_PIECE_LONG_NS 200000u  /* from here on a piece's processor time is read */
#define TURN_LONG_NS       2000000u /* the daemon's limit of a turn */

struct turn_times {
    uint64_t ns;     /* since turn_begin() */
    uint64_t cpu_ns; /* processor time since the turn before ended: what submits I/O included */
};

/* The turn's first piece begins now, at now_ns of clock_now_ns(). */
void turn_begin(uint64_t now_ns);
/* Ends the current piece, and begins the next one. what: the number of the piece that ends;
 * session: whose it was, 0: no session's; units: work counted in it. Returns its length in
 * nanoseconds. */
uint64_t turn_piece(uint32_t what, uint64_t session, uint64_t units);
/* The turn ends, with a piece REST. Where it took more than limit_ns, or as much processor time, it
 * is recorded: FLIGHT events TURN and PIECE. */
struct turn_times turn_end(uint64_t limit_ns);

#endif
