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

/* A promise's walk from a block upwards, block by block, to one that is known to be durable with
 * all before it. The walk may pause between two blocks if all blocks that it has passed are
 * durable; these are not removed before the promise's own block is. */
struct promise_walk {
    uint32_t from, at; /* record numbers: the first block; the next one, CORE_NONE: the walk has
                        * ended */
    uint32_t nearest;  /* the first block that is not durable; CORE_NONE: there was none */
    uint64_t lost;     /* core->promises_lost when the walk began: if the counter has grown since,
                        * the walk is void */
};

/* The blocks that are to be durable: a block of a commit with all before it, or the blocks that a
 * name reaches. The caller sets block and gen, or name, and cancel and done. */
struct promise {
    struct list_node node;      /* among all promises (promise.c) */
    uint32_t block, gen;        /* of a commit: its block; not used if `name` is set */
    struct core_name *name;     /* the name whose blocks are meant; NULL: a commit */
    uint32_t await, await_gen;  /* the block that has to be durable first; CORE_NONE: none yet */
    struct promise_walk walk;   /* of a commit */
    uint8_t verdict;            /* a status; not OK: the promise has failed */
    const _Atomic bool *cancel; /* true there: the promise is cancelled; NULL: it never is */
    void (*done)(struct core *c, struct promise *p, uint8_t status); /* once, at its end */
};

#endif
