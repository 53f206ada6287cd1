/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Describes one block for an administrator: where its copies are, and who holds it. walk.c calls it
 * for each row of a LIST of blocks.
 */
#include <kvcache/rows.h>

#include "admin.h"

void core__explain(struct core *c, const struct block *b, struct kvc_block_info *x)
{
    const struct core_ns *ns = block_ns(c, b);
    const struct core_group *g = block_group(c, b);
    const struct tier *host = c->cfg.tier[CORE_HOST];
    struct tier_view view;
    *x = (struct kvc_block_info){
        .ns = ns->id,
        .group = b->group,
        .depth = b->depth,
        .state = b->state == BLOCK_PRESENT ? KVC_BLOCK_PRESENT : KVC_BLOCK_PENDING,
        .reason = b->state == BLOCK_PRESENT ? KVC_MISS_NONE : KVC_MISS_PENDING,
        .tokens = b->tokens,
        .shards = group_shards(ns, g),
        .shards_present = b->shards_present,
        .leases = b->holds,
        .children = b->children,
        .bytes = block_bytes_present(c, b),
        .age_ms = core__age_ms(c, b),
    };
    memcpy(x->key, b->key.b, sizeof x->key);
    if (b->parent != CORE_NONE)
        memcpy(x->parent, c->blocks[b->parent].key.b, sizeof x->parent);
    if (b->state != BLOCK_PRESENT)
        return;
    x->tier = (uint8_t)((copy_there(b, CORE_HOST) ? KVC_TIER_HOST : 0u) |
                        (copy_there(b, CORE_STORAGE) ? KVC_TIER_NVME : 0u) |
                        (hbm_copy_is_there(c, b) ? KVC_TIER_HBM : 0u));
    x->reason = block_reachable(c, b) ? KVC_MISS_NONE : KVC_MISS_NOT_LOADED;
    if (copy_there(b, CORE_HOST)) {
        host->memory->view(host, copy_loc(c, b, CORE_HOST, 0), &view);
        x->chunk = view.chunk;
        x->offset = view.off;
    }
}
