/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flight recorder: the last few thousand events of each thread, in memory, written out when
 * something went wrong.
 *
 * Nothing is logged on the hit path; its events are recorded here instead. FLIGHT() writes 32 bytes
 * to the calling thread's own ring: no lock, no system call but the clock. Threads that have not
 * registered record nothing. flight_dump() may run at any time on any thread, also in a signal
 * handler or after a failed MUST; records that are overwritten while it reads are left out.
 */
#ifndef KVC_BASE_FLIGHT_H
#define KVC_BASE_FLIGHT_H

#include <stdatomic.h>
#include <stdint.h>

#include "err.h"
#include "turn.h"

/* X(name, the meaning of a, b and c). A dump begins with this table. */
#define FLIGHT_EVENTS(X)                                                                     \
    X(TURN, "a long turn: a us, b us computed in it, c us computed by its longest piece:")   \
    X(PIECE, "a operation, or else: " TURN_LEGEND "; b session, c units of work")            \
    X(REQ, "a operation, b session, c request id")                                           \
    X(REPLY, "a status, b session, c request id")                                            \
    X(RESERVE, "a slots, b namespace, c bytes")                                              \
    X(COMMIT, "a slots, b namespace")                                                        \
    X(COPY_DONE, "a result, b slot, c bytes")                                                \
    X(PUBLISH, "a group, b namespace, c first bytes of the key")                             \
    X(EVICT, "a group, b namespace, c first bytes of the key")                               \
    X(LEASE, "a blocks, b lease, c session")                                                 \
    X(RELEASE, "a blocks, b lease, c session")                                               \
    X(ATTACH, "a uid, b session, c pid")                                                     \
    X(DETACH, "a uid, b session, c pid")                                                     \
    X(DROP_SESSION, "a reason, b session")                                                   \
    X(CHUNK, "a 1 made or 0 gone, b chunk, c bytes")                                         \
    X(TIMEOUT, "a operation, b session, c request id")                                       \
    X(CANCEL, "a operation, b session, c request id")                                        \
    X(ROOM_WAIT, "a ms that a store waited for room, b session, c bytes being written then") \
    X(ERROR, "a error negated, b and c whatever helps")

#define FLIGHT__ENUM(name, text) FLIGHT_##name,
enum flight_event { FLIGHT_EVENTS(FLIGHT__ENUM) FLIGHT_EVENT_COUNT };

struct flight_rec {
    uint64_t t_ns; /* clock_now_ns() */
    uint16_t event;
    uint16_t thread; /* in order of registration */
    uint32_t a;
    uint64_t b, c;
};
_Static_assert(sizeof(struct flight_rec) == 32, "two records per cache line");

#define FLIGHT(event, a, b, c) \
    flight__add(FLIGHT_##event, (uint32_t)(a), (uint64_t)(b), (uint64_t)(c))

/* One allocation for all rings: threads_max (1 to 1,024) of `records` (a power of two) each. Before
 * any other thread. -ENOMEM, -EINVAL, -EALREADY. */
KVC_WARN_UNUSED int flight_init(unsigned threads_max, unsigned records);
/* For tests and leak checkers: every other registered thread has ended. */
void flight_fini(void);

/* Gives the calling thread its ring, for good: the ring, with its events, outlives the thread. The
 * name is copied, cut to 15 bytes. -ENOSPC when all rings are taken, -ENODEV before
 * flight_init; the thread then records nothing and may go on. A second call renames. */
KVC_WARN_UNUSED int flight_thread(const char *name);

/* Writes all records to fd, merged by time, one line each:
 *   1234.567890123 control  REPLY a=0 b=7 c=1932
 * after lines that begin with # and say what a, b and c of each event mean.
 * No allocation, no stdio, no lock; only write(2) is called. -EBUSY while another dump runs, else
 * the errno of write(2). */
int flight_dump(int fd);
/* The same to stderr, for err_set_must_hook(). */
void flight_dump_stderr(void);

void flight__add(enum flight_event event, uint32_t a, uint64_t b, uint64_t c);

#endif
