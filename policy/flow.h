/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sees blocks that pass through the cache and do not return, for policy `density`. Uses are of a
 * few kinds (class_flow()). For each kind it counts how many uses began lately, and how many ended
 * with a hit. "Lately" is measured in blocks, not in time: a scan may bring more than the cache
 * holds before its blocks are old enough to teach anything about their age. Pure.
 *
 * A hit counts whenever it comes, also for an evicted block. So, while nothing changes, hits by
 * uses is the share of blocks that return, however late. When a scan begins, that share falls with
 * each block.
 */
#ifndef KVC_POLICY_FLOW_H
#define KVC_POLICY_FLOW_H

#include <stdint.h>

#include "classes.h"

struct flow {
    float begun[CLASS_FLOWS], back[CLASS_FLOWS]; /* back: at most as many as begun */
    uint32_t last[CLASS_FLOWS];                  /* GHOST_MS: when one began */
    uint8_t of[CLASS_BLOCKS];                    /* class_flow() */
};

void flow_init(struct flow *f);
/* A use of a class ends with a hit; the next use of that block begins after it. */
void flow_is_back(struct flow *f, unsigned class);
/* One begins; `room`: blocks in the cache; now: GHOST_MS. Where none began for ten minutes, nothing
 * is known again. */
void flow_begins(struct flow *f, unsigned class, uint32_t room, uint32_t now);
/* What a block of a class is worth, of what it would be: 1, or less where next to none of its kind
 * come back. */
float flow_part(const struct flow *f, unsigned class);

#endif
