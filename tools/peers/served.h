/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For back-ends whose server listens on a unix stream socket in the rig's directory: the server,
 * one connection to it, and requests in flight on that.
 */
#ifndef SERVED_H
#define SERVED_H

#include "peer.h"
#include "stream.h"

/* Runs `command` (ends with NULL) and connects: peer->rig, and a struct stream in peer->state. */
BENCH_MUST_USE int served_open(struct peer *peer, const char *const *command);
/* Accepts what served_open left behind at any point. */
void served_close(struct peer *peer);

/* Sends requests for blocks first .. first + n - 1 and takes their replies in order, about 4 MiB of
 * blocks in flight. */
BENCH_MUST_USE int served_pipeline(struct peer *peer, uint32_t first, uint32_t n,
                                   int (*send)(struct peer *peer, uint32_t index),
                                   int (*take)(struct peer *peer, uint32_t index));

#endif
