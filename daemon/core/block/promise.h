/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A promise: the wait of a durable commit, or of a name, until blocks are durable. keep/promise.c
 * works on them. Included by state.h.
 */
#ifndef KVC_CORE_PROMISE_H
#define KVC_CORE_PROMISE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "list.h"

struct core;
struct core_name;

/* How far a promise has looked from its block up to the first one that need not be looked at. The
 * walk may stop between two blocks while all behind are durable: these stay as long as the
 * promise's own block does. */
struct promise_walk {
    uint32_t from, at; /* at: the next block; CORE_NONE: the walk has ended */
    uint32_t nearest;  /* the first block that is not durable, CORE_NONE: there was none */
    uint64_t lost;     /* core->promises_lost when the walk began: it is void if the counter has
                        * grown since */
};

/* What is to be durable: a block of a commit with all before it, or what a name reaches. */
struct promise {
    struct list_node node;      /* core->promises */
    uint32_t block, gen;        /* of a commit */
    struct core_name *name;     /* or the name whose blocks are meant; the promise is then lent */
    uint32_t await, await_gen;  /* the block that has to be durable first; CORE_NONE: none yet */
    struct promise_walk walk;   /* of a commit */
    uint8_t verdict;            /* a status; not OK: the promise has failed */
    const _Atomic bool *cancel; /* NULL: it cannot be cancelled */
    void (*done)(struct core *c, struct promise *p, uint8_t status);
};

#endif
