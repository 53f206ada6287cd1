/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bare ZeroMQ echo, to compare lookups with: a process that answers each message of a given size
 * with one of another size, over ipc:// as the daemon does, and does nothing else.
 */
#ifndef BENCH_ECHO_H
#define BENCH_ECHO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bench.h"
#include "lat.h"

struct echo;

/* Starts the process. Call it before this process has a session with a daemon. 0, or an enum
 * bench_exit after printing why it failed. */
BENCH_MUST_USE int echo_start(struct echo **ret_echo);
/* Sets the sizes of all further messages. */
BENCH_MUST_USE int echo_sizes(struct echo *echo, size_t request_bytes, size_t reply_bytes);
/* Sends messages for about `seconds`, one at a time. */
BENCH_MUST_USE int echo_round_trips(struct echo *echo, double seconds, struct lat *lat);
/* *ret_rate: messages per second with `depth` of them in flight. */
BENCH_MUST_USE int echo_rate(struct echo *echo, double seconds, unsigned depth, double *ret_rate);
/* Accepts NULL and a pointer to NULL. */
void echo_stop(struct echo **echo);

#endif
