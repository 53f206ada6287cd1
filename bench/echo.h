/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bare ZeroMQ echo to compare lookups with: a process that answers each message of a given size
 * with one of another, over ipc://, as the daemon does but doing nothing.
 */
#ifndef BENCH_ECHO_H
#define BENCH_ECHO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bench.h"
#include "lat.h"

struct echo;

/* Starts the process. Call before the process has a session with a daemon. 0 or an enum
 * bench_exit after saying why. */
BENCH_MUST_USE int echo_start(struct echo **ret_echo);
/* Sizes of the messages from now on. */
BENCH_MUST_USE int echo_sizes(struct echo *echo, size_t request_bytes, size_t reply_bytes);
/* One message after the other for about `seconds`. */
BENCH_MUST_USE int echo_round_trips(struct echo *echo, double seconds, struct lat *lat);
/* Messages per second with `depth` of them in flight. */
BENCH_MUST_USE int echo_rate(struct echo *echo, double seconds, unsigned depth, double *ret_rate);
/* Accepts NULL and a pointer to NULL. */
void echo_stop(struct echo **echo);

#endif
