/* SPDX-License-Identifier: Apache-2.0 */
/* A policy whose evictions are timed. */
#ifndef SIMULATE_TIMED_H
#define SIMULATE_TIMED_H

#include "simulate.h"

/* Does what `ops` does, and adds to `decisions` what each block that goes takes it: to be chosen,
 * compared with what comes, and forgotten. With NULL it is `ops`. One at a time. */
const struct policy_ops *sim_timed(const struct policy_ops *ops, struct sim_decisions *decisions);
/* The last eviction has ended. */
void sim_timed_end(void);

#endif
