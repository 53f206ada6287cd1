/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One event: a block changed. The file that changes a block calls block_changed() and knows none of
 * the hearers. One table in core.c says who hears which events, and in which order.
 */
#ifndef KVC_CORE_CHANGED_H
#define KVC_CORE_CHANGED_H

#include <stdint.h>

#include "core.h"

struct block;

enum block_event {
    BLOCK_UNLINKING = 1,   /* it is about to leave index and chain; its parent is still known */
    BLOCK_GONE = 2,        /* the block is DYING */
    BLOCK_STORED = 4,      /* the block is PRESENT, for the first time */
    BLOCK_MOVED = 8,       /* a move has ended, with all its shards and x->err */
    BLOCK_CHECKED = 0x10,  /* a verification of the block has ended */
    BLOCK_UNHELD = 0x20,   /* a hold, a copy, a pin or a name of the block has ended */
    BLOCK_CHILDLESS = 0x40 /* the block has lost a child */
};

struct block_change {
    enum block_event what;
    int err;              /* MOVED: the error of the move, or 0 */
    enum kvc_miss reason; /* UNLINKING, GONE: what later lookups are told */
};

/* The hearers, in the order of the table. Each updates what its own file keeps about the block. */
typedef void block_hear_fn(struct core *c, struct block *b, const struct block_change *x);
block_hear_fn resv_hear;    /* reservations forget the block */
block_hear_fn names_hear;   /* names that hold the block hold its parent instead */
block_hear_fn pin_hear;     /* pins forget the block */
block_hear_fn move_hear;    /* if a shard on disk was lost, the others there are freed */
block_hear_fn lease_hear;   /* requests that wait for the block are woken */
block_hear_fn promise_hear; /* promise_step() looks at the durable commits that wait for the block;
                               a write for them that waited for a move begins */
block_hear_fn reconcile_hear;   /* reconcile_step() is told that the block may lack a copy */
block_hear_fn policy_hear;      /* the policy may evict the block again */
block_hear_fn load_passed_hear; /* loads that wait for the block continue */
block_hear_fn hbm_copy_hear;    /* copies on devices that nobody holds are freed */
block_hear_fn settle_hear;      /* the record is freed, if it is DYING and nothing uses it */
block_hear_fn load_retry_hear;  /* loads that could not begin try again */
block_hear_fn room_hear;        /* stores that wait for room are woken */

struct block_subscriber {
    unsigned on; /* of enum block_event */
    block_hear_fn *hear;
};

/* block_changed() in state.h calls all hearers of the event before it returns. After GONE, MOVED,
 * CHECKED and UNHELD the record may be free. Thread: the control thread. */

#endif
