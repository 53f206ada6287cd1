/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the room that blocks take in memory and on disk, for the owner that pays for it, and which
 * of it pins, names and commits bind.
 */
#include "block.h"

struct host_room {
    struct share share; /* bytes taken in memory, by principal: only counted here */
};

static int host_room_create(struct core *c)
{
    const uint32_t principals = MAX(c->cfg.principals_max, 1u);
    struct tier_stats st;
    c->cfg.tier[CORE_HOST]->ops->stats(c->cfg.tier[CORE_HOST], &st);
    return core__fair_share(c, &c->mod.host_room->share, st.limit_bytes, principals);
}

static void host_room_destroy(struct core *c)
{
    share_destroy(&c->mod.host_room->share);
}

const struct core_module host_room_module = {CORE_STATE(host_room), .create = host_room_create,
                                             .destroy = host_room_destroy};

uint64_t host_room_of(const struct core *c, uint32_t principal_index)
{
    return c->mod.host_room->share.held[principal_index];
}

void room_count(struct core *c, struct core_ns *ns, unsigned tier, int64_t bytes)
{
    ns->held[tier] += (uint64_t)bytes;
    retain_count(c->retain, ns->account, tier, bytes);
    if (tier == CORE_HOST && bytes > 0)
        share_charge(&c->mod.host_room->share, principal_index(c, ns->principal), (uint64_t)bytes);
    else if (tier == 0)
        share_give(&c->mod.host_room->share, principal_index(c, ns->principal), (uint64_t)-bytes);
}

bool room_is_promised(const struct core *c, const struct core_ns *ns, uint32_t bytes)
{
    const struct share *s = &c->mod.host_room->share;
    return s->held[principal_index(c, ns->principal)] + bytes <= s->each;
}

void room_bind(struct core *c, struct block *b)
{
    const bool disk = core_stores(c), there = b->state == BLOCK_PRESENT;
    const bool want[RETAIN_TIERS] = {
        there && (b->host_pins > 0 || (!disk && block_pinned(b))),
        there && disk && (block_stays(b) || b->promising || block_named(c, b)),
    };
    for (unsigned t = 0; t < RETAIN_TIERS; t++) {
        if (block_is_bound(b, t) != want[t])
            block_ns(c, b)->bound[t] += want[t] ? block_bytes(c, b) : -block_bytes(c, b);
    }
    const uint64_t was = unevictable_change(c, b);
    b->bound = (uint8_t)(want[CORE_HOST] | want[CORE_STORAGE] << 1) & 3u;
    unevictable_changed(c, b, was);
}
