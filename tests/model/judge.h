/* SPDX-License-Identifier: Apache-2.0 */
/* A policy that refuses one block in four, whatever its worth, so that tests often meet a refusal.
 */
#ifndef KVC_TEST_JUDGE_H
#define KVC_TEST_JUDGE_H

#include <stdlib.h>

#include "policy.h"

static inline bool judge_admits(struct policy *p, const struct policy_hint *hint, uint32_t victim,
                                uint64_t now_ms)
{
    (void)p;
    return (hint->hash ^ victim ^ now_ms >> 6) % 4 != 0;
}

/* Returns `ops` with that change, in static memory: one policy at a time. */
static inline const struct policy_ops *judge(const struct policy_ops *ops)
{
    static struct policy_ops judged;
    judged = *ops;
    judged.admits = judge_admits;
    return &judged;
}

#endif
