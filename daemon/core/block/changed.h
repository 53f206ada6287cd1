/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One event: something changed with a block. Who causes it calls block_changed() and knows nobody
 * of those who hear of it; who hears of what, and in which order, is one table (core.c).
 */
#ifndef KVC_CORE_CHANGED_H
#define KVC_CORE_CHANGED_H

#include <stdint.h>

#include "core.h"

struct block;

enum block_event {
    BLOCK_LEAVES = 1,      /* next out of index and forest; parent and names are there yet */
    BLOCK_GONE = 2,        /* it is DYING */
    BLOCK_STORED = 4,      /* it is PRESENT, for the first time */
    BLOCK_MOVED = 8,       /* an operation of a move has ended: in x->err */
    BLOCK_CHECKED = 0x10,  /* its verification has ended */
    BLOCK_UNHELD = 0x20,   /* a hold, a copy, a pin or a name less */
    BLOCK_CHILDLESS = 0x40 /* a child less */
};

struct block_change {
    enum block_event what;
    int err;              /* MOVED: of the move */
    enum kvc_miss reason; /* LEAVES, GONE: what later lookups are told */
};

/* Those who hear. Each acts on what its own files know of the block. */
typedef void block_hear_fn(struct core *c, struct block *b, const struct block_change *x);
block_hear_fn resv_hear;      /* who writes it forgets it */
block_hear_fn names_hear;     /* names that hold it fall back on its parent */
block_hear_fn pin_hear;       /* it is not pinned any more */
block_hear_fn move_hear;      /* a shard on disk was lost meanwhile: the others there go */
block_hear_fn lease_hear;     /* requests that wait for it are woken */
block_hear_fn promise_hear;   /* commits that wait for it to be durable are looked at */
block_hear_fn reconcile_hear; /* its copies are to be what is asked of it */
block_hear_fn policy_hear;    /* it may be evicted again */
block_hear_fn load_hear;      /* loads that wait for it go on */
block_hear_fn near_hear;      /* its copies on devices go, as far as nobody holds them */
block_hear_fn settle_hear;    /* its record is freed, if it is DYING and nothing uses it */
block_hear_fn loader_hear;    /* loads that could not begin do */
block_hear_fn room_hear;      /* stores that wait for room are woken */

struct block_subscriber {
    unsigned on; /* of enum block_event */
    block_hear_fn *hear;
};

/* state.h has block_changed(), which calls all who hear of it before it returns. After GONE,
 * MOVED, CHECKED and UNHELD the record may be free. Thread: the core's. */

#endif
