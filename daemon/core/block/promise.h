/* SPDX-License-Identifier: Apache-2.0 */
/* A promise that is to be kept: promise.c has what is done for it. Included by state.h. */
#ifndef KVC_CORE_PROMISE_H
#define KVC_CORE_PROMISE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "list.h"

struct core;
struct core_name;

/* The way from a block up to the first one that need not be looked at. It may stop between two
 * blocks, while all behind are durable: they stay as long as the promise's own does. */
struct promise_walk {
    uint32_t from, at; /* at: the next block; CORE_NONE: it is at its end */
    uint32_t nearest;  /* the first block that is not durable, CORE_NONE: there was none */
    uint64_t lost;     /* promise_lost() so often then: in vain if one was lost since */
};

/* Something that is to be durable: a block of a commit with all before it, or what a name reaches.
 */
struct promise {
    struct list_node node;      /* core->promises */
    uint32_t block, gen;        /* of a commit */
    struct core_name *name;     /* or whose; the promise is then lent */
    uint32_t await, await_gen;  /* the block that has to be durable first; CORE_NONE: none yet */
    struct promise_walk walk;   /* of a commit */
    uint8_t verdict;            /* if not OK, it has failed */
    const _Atomic bool *cancel; /* NULL: it cannot be */
    void (*done)(struct core *c, struct promise *p, uint8_t status);
};

#endif
