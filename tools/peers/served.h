/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For back-ends whose server listens on a unix stream socket in the rig's directory: starts the
 * server, connects once, and keeps requests in flight on this connection.
 */
#ifndef SERVED_H
#define SERVED_H

#include "peer.h"
#include "stream.h"

/* Runs `command`, which ends with NULL, and connects. Sets peer->rig, and peer->state to a struct
 * stream. */
BENCH_MUST_USE int served_open(struct peer *peer, const char *const *command);
/* Accepts a peer for which served_open() failed at any point. */
void served_close(struct peer *peer);

/* Sends requests for blocks first .. first + n - 1 and takes their replies in order, with about 4
 * MiB of blocks in flight. */
BENCH_MUST_USE int served_pipeline(struct peer *peer, uint32_t first, uint32_t n,
                                   int (*send)(struct peer *peer, uint32_t index),
                                   int (*take)(struct peer *peer, uint32_t index));

#endif
