/* SPDX-License-Identifier: Apache-2.0 */
/* The redis-server that both of its clients are measured with. */
#ifndef REDIS_SERVER_H
#define REDIS_SERVER_H

#include "peer.h"

/* redis-server's command line, for served_open() and rig_start(). */
extern const char *const redis_command[];
const char *redis_missing(const struct peer_plan *plan);

#endif
