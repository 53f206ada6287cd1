/* SPDX-License-Identifier: Apache-2.0 */
/* A policy whose evictions are timed. */
#ifndef SIMULATE_TIMED_H
#define SIMULATE_TIMED_H

#include "simulate.h"

/* Wraps a policy: the result does what `ops` does, and adds the time of each eviction to
 * `decisions`. The time covers choosing a block, comparing it with the incoming one, and removing
 * it. decisions NULL: returns `ops`. One wrapped policy at a time. */
const struct policy_ops *sim_timed(const struct policy_ops *ops, struct sim_decisions *decisions);
/* Call it when the last eviction has ended, so that it is counted. */
void sim_timed_end(void);

#endif
