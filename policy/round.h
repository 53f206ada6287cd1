/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds the size of a piece of a policy's memory up to whole cache lines. */
#ifndef KVC_POLICY_ROUND_H
#define KVC_POLICY_ROUND_H

#include <stddef.h>

static inline size_t round64(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

#endif
