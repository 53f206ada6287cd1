/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the bytes in host memory that cannot be evicted now: slots of blocks that leases, loads
 * and pins hold, that are reserved, or that are being written. Acquires, stores and pins that would
 * leave others less than their part are refused here.
 *
 * Each slot counts once, for the principal and the owners of its namespace. Without storage a block
 * leaves memory after all that build on it. So a hold on a block, or a write of it, holds those
 * before it in its chain as well (block_keeps_above()).
 */
#include "block.h"
#include "regions.h"

static uint64_t slot_bytes(struct core *c, const struct block *b)
{
    return block_ns(c, b)->slot_bytes[b->group];
}

/* The number of b's parts, if one of them is claimed or being copied; else 0. */
static uint32_t parts_in_use(struct core *c, const struct block *b)
{
    uint32_t n = 0;
    bool used = false;
    for (uint32_t i = b->flags & BLOCK_F_PARTS ? b->where : CORE_NONE; i != CORE_NONE; n++) {
        const struct part *p = pool_at(c->parts, i);
        used |= part_claimed(p) || p->state == PART_COPYING;
        i = p->next;
    }
    return used ? n : 0;
}

/* How many slots of b cannot be evicted now. */
static uint32_t slots_in_use(struct core *c, const struct block *b)
{
    switch (b->state) {
    case BLOCK_PENDING: /* a hold on it is by a reservation that makes room below it */
        return parts_in_use(c, b);
    case BLOCK_PRESENT:
        return block_is_bound(b, CORE_HOST) || (b->holds > 0 && copy_there(b, CORE_HOST))
                   ? block_shards(c, b)
                   : 0;
    case BLOCK_DYING:
        return b->holds > 0 ? block_shards(c, b) : parts_in_use(c, b);
    default:
        return 0;
    }
}

/* Whether b's slots count in their regions. Those of a block that is being loaded do too, because a
 * request waits for it. */
static bool unevictable_stays(struct core *c, const struct block *b)
{
    return b->host_copy == COPY_FILLING || slots_in_use(c, b) > 0;
}

uint64_t unevictable_of(struct core *c, const struct block *b)
{
    const uint32_t n = slots_in_use(c, b);
    return n ? n * slot_bytes(c, b) : 0;
}

static void unevictable_count(struct core *c, struct core_ns *ns, uint64_t was, uint64_t now)
{
    if (now > was)
        share_charge(&c->unevictable_share, principal_index(c, ns->principal), now - was);
    else if (now < was)
        share_give(&c->unevictable_share, principal_index(c, ns->principal), was - now);
    ns->unevictable += now - was;
    c->m.unevictable_bytes += now - was;
}

uint64_t unevictable_change(struct core *c, const struct block *b)
{
    if (c->mod.regions && unevictable_stays(c, b))
        regions_count(c, b, false);
    return unevictable_of(c, b);
}

void unevictable_changed(struct core *c, struct block *b, uint64_t was)
{
    const uint64_t now = unevictable_of(c, b);
    unevictable_count(c, block_ns(c, b), was, now);
    if (c->mod.regions && unevictable_stays(c, b))
        regions_count(c, b, true);
    const bool keeps = block_keeps_above(c, b);
    if (!c->mod.regions || core_stores(c) || b->parent == CORE_NONE || b->state != BLOCK_PENDING ||
        b->holds > 0 || keeps == (was > 0))
        return;
    if (keeps)
        block_hold(c, &c->blocks[b->parent]);
    else
        block_unhold_quietly(c, &c->blocks[b->parent]);
}

/* On the path of each hit, for a PRESENT block. */
void unevictable_held(struct core *c, struct block *b)
{
    const uint64_t now = unevictable_of(c, b);
    if (b->state == BLOCK_PRESENT && block_is_bound(b, CORE_HOST))
        return;
    if (b->state == BLOCK_PRESENT) {
        unevictable_count(c, block_ns(c, b), 0, now);
        if (c->mod.regions && now > 0)
            regions_count(c, b, true);
    } else if (b->state == BLOCK_DYING) {
        const uint32_t parts = parts_in_use(c, b);
        unevictable_count(c, block_ns(c, b), parts * slot_bytes(c, b), now);
        if (c->mod.regions && parts == 0 && b->host_copy != COPY_FILLING)
            regions_count(c, b, true);
    }
}

void unevictable_unheld(struct core *c, struct block *b)
{
    const uint64_t was = block_shards(c, b) * slot_bytes(c, b);
    const bool present = b->state == BLOCK_PRESENT && copy_there(b, CORE_HOST);
    if ((present && block_is_bound(b, CORE_HOST)) || (!present && b->state != BLOCK_DYING))
        return;
    const uint64_t now = present ? 0 : unevictable_of(c, b);
    unevictable_count(c, block_ns(c, b), was, now);
    if (c->mod.regions && (present || !unevictable_stays(c, b)))
        regions_count(c, b, false);
}

int chain_admit(struct core *c, struct block *b, uint64_t *left)
{
    struct block *end = b;
    int err = 0;
    /* Each block is counted until the last is known to be admitted. */
    while (end && !err) {
        const uint64_t bytes = unevictable_by_hold(c, end);
        if (end->holds > 0 || end->state != BLOCK_PRESENT)
            break;
        c->work.done += WORK_LOOK;
        err = unevictable_take(c, block_ns(c, end), bytes, left);
        if (!err && bytes > 0)
            err = regions_admit(c, end);
        if (err)
            break;
        end->holds = 1;
        unevictable_held(c, end);
        end = end->parent != CORE_NONE ? &c->blocks[end->parent] : NULL;
    }
    while (b != end) {
        b->holds = 0;
        unevictable_unheld(c, b);
        b = b->parent != CORE_NONE ? &c->blocks[b->parent] : NULL;
    }
    return err;
}

uint64_t unevictable_by_part(struct core *c, const struct block *b)
{
    uint32_t done = 0; /* shards that are stored already, and kept for the others */
    for (uint32_t i = b->where; i != CORE_NONE; done++)
        i = ((const struct part *)pool_at(c->parts, i))->next;
    return (1 + (parts_in_use(c, b) ? 0 : done)) * slot_bytes(c, b);
}

int unevictable_take(struct core *c, const struct core_ns *ns, uint64_t bytes, uint64_t *left)
{
    const struct share *s = &c->unevictable_share;
    if (bytes <= *left) {
        *left -= bytes;
        return 0;
    }
    const uint64_t guaranteed = quota_guaranteed(c);
    uint64_t by_principal = share_left(s, principal_index(c, ns->principal));
    uint64_t by_owner = by_principal;
    if (guaranteed > 0) /* at least this is left; all shares are summed up when it is not enough */
        by_owner = s->total - MIN(s->total, s->used + guaranteed);
    uint64_t own = 0;
    if (guaranteed > 0 && bytes > MIN(by_owner, by_principal))
        by_owner = quota_unevictable_left(c, ns, &own);
    if (bytes <= own) {
        *left = own - bytes;
        return 0;
    }
    if (bytes > by_principal || bytes > by_owner)
        return bytes > by_principal ? KVC_E_FULL : KVC_E_QUOTA;
    *left = MIN(by_principal, by_owner) - bytes;
    return 0;
}

bool unevictable_may_load(struct core *c, const struct block *b)
{
    uint64_t left = 0, bytes = block_shards(c, b) * slot_bytes(c, b);
    if (b->holds == 0 || block_is_bound(b, CORE_HOST)) /* nobody holds it, or it counts already */
        return true;
    return unevictable_take(c, block_ns(c, b), bytes + c->moving.loading_bytes, &left) == 0;
}

int unevictable_refused(int err, const char **ret_why)
{
    if (err == KVC_E_BUSY) {
        *ret_why = "too much would have to be moved in memory at once; try again";
        return err;
    }
    *ret_why = err == KVC_E_QUOTA ? "leases, reservations and pins have all memory that is not "
                                    "guaranteed to other owners (kvcachectl quota)"
                                  : "leases, reservations and pins of this principal have what "
                                    "memory is not promised to other principals";
    return KVC_E_LIMIT;
}
