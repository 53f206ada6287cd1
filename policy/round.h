/* SPDX-License-Identifier: Apache-2.0 */
/* Where pieces of a policy's memory begin: on cache lines. */
#ifndef KVC_POLICY_ROUND_H
#define KVC_POLICY_ROUND_H

#include <stddef.h>

static inline size_t round64(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

#endif
