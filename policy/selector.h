/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which order policy `density` evicts in: the learned one or, for a while, that of LRU or LRU-2,
 * when that one is seen to hit more (shadow.h). Learning lags behind change; these two do not
 * learn. Pure.
 */
#ifndef KVC_POLICY_SELECTOR_H
#define KVC_POLICY_SELECTOR_H

#include <stdint.h>

enum selector_order { SELECTOR_LEARNED, SELECTOR_LRU, GUARD_LRU2, SELECTOR_ORDERS };

struct selector {
    enum selector_order order;
    uint32_t stay; /* requests until it is looked at again */
    uint32_t hold; /* requests that the last change was for; 0: what is learned did well since */
    float late[SELECTOR_ORDERS],
        long_run[SELECTOR_ORDERS]; /* hits: [SELECTOR_LEARNED] is what happened */
};

/* A request hit so many of its leading blocks, and would have by LRU's order and by LRU-2's. */
void selector_request(struct selector *g, uint32_t hits, uint32_t lru, uint32_t lru2);

#endif
