/* SPDX-License-Identifier: Apache-2.0 */
/* Who hears that something changed with a block, and in which order. */
#include "core__.h"
#include "pin.h"
#include "slice.h"

/* Each needs what those before it have done: names and pins count a block while it still has its
 * place; copies that are of no use are dropped before anybody weighs what is left; who waits is
 * told before the policy may take the block away; the record goes last. Behind that only those who
 * look at the core alone. */
static const struct {
    unsigned on; /* of enum block_event */
    block_hear_fn *hear;
} subscribers[] = {
    {BLOCK_LEAVES, names_hear},
    {BLOCK_LEAVES, pin_hear},
    {BLOCK_MOVED | BLOCK_CHECKED, move_hear},
    {BLOCK_GONE | BLOCK_STORED, lease_hear},
    {BLOCK_GONE | BLOCK_STORED | BLOCK_MOVED, promise_hear},
    {BLOCK_MOVED | BLOCK_CHECKED | BLOCK_UNHELD | BLOCK_CHILDLESS, policy_hear},
    {BLOCK_GONE | BLOCK_MOVED, load_hear},
    {BLOCK_GONE, near_hear},
    {BLOCK_GONE | BLOCK_MOVED | BLOCK_CHECKED | BLOCK_UNHELD, settle_hear},
    {BLOCK_MOVED, loader_hear},
    {BLOCK_MOVED, room_hear},
};

void block_changed(struct core *c, struct block *b, const struct block_change *x)
{
    for (unsigned i = 0; i < ARRAY_LEN(subscribers); i++)
        if (subscribers[i].on & x->what)
            subscribers[i].hear(c, b, x);
}
