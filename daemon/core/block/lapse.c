/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts blocks whose promise has lapsed: a client was told that they are durable, and now they
 * have no durable copy on disk. reconcile.c writes them again; lapse.h says what depends on the
 * count.
 */
#include "lapse.h"
#include "block.h"

uint64_t lapse_blocks(const struct core *c)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++)
        sum += c->ns[i].lapsed;
    return sum;
}

bool block_lapsed(const struct core *c, const struct block *b)
{
    if (b->state != BLOCK_PRESENT || block_promised(b))
        return false;
    return b->flags & BLOCK_F_SAFE || (!block_is_durable(b) && block_names_safe(c, b));
}

void lapse_changed(struct core *c, const struct block *b, bool was)
{
    const bool is = block_lapsed(c, b);
    if (is == was)
        return;
    block_ns(c, b)->lapsed += is ? 1 : -1ull;
}

void block_names_mark_safe(struct core *c, struct block *b)
{
    for (uint32_t no = block_no(c, b); no != CORE_NONE && !c->named[no].safe;
         no = c->blocks[no].parent)
        c->named[no].safe = 1;
}
