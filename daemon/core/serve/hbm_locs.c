/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells a worker where to read the blocks of a lease, some of which are in slots of a device: the
 * locations in a reply to ACQUIRE_ON.
 */
#include "serve.h"
#include "transfer_jobs.h"

/* Finds where a worker of the lease can read b; the lease's HBM copies are marked. False: b is
 * neither on the device nor in host memory any more. */
static bool hbm_locs_place_of(struct core *c, const struct lease *l, const struct block *b,
                              uint32_t shard, struct tier_view *ret_view)
{
    const struct hbm_device *dev = &c->hbm->dev[l->hbm_device];
    const struct tier *host = c->cfg.tier[CORE_HOST], *slots = dev->device->slots;
    const uint32_t s = hbm_shard(c, b, shard);
    const struct hbm_copy *e = hbm_copy_find(c, b, s, dev);
    if (e && e->mine && e->state == COPY_READY)
        slots->memory->view(slots, e->loc, ret_view);
    else if (block_in_host(c, b))
        host->memory->view(host, copy_loc(c, b, CORE_HOST, s), ret_view);
    else
        return false;
    return true;
}

int core_lease_locs_hbm(struct core *c, struct core_client *cl, uint64_t lease, uint32_t shard,
                        core_loc_fn *fn, void *ctx)
{
    const struct lease *l = lease_by_id(c, cl, lease);
    if (!l || l->hbm_device == CORE_NONE)
        return core_lease_locs(c, cl, lease, shard, fn, ctx);
    struct run_iter it = run_begin(c, &l->blocks);
    const struct run_entry *first = run_next(c, &it);
    if (first && shard >= block_ns(c, &c->blocks[first->block])->spec.shards)
        return KVC_E_BAD_ARGUMENT;
    int err = 0;
    hbm_copy_mark(c, l, true);
    it = run_begin(c, &l->blocks);
    for (const struct run_entry *r; !err && (r = run_next(c, &it));) {
        struct tier_view view;
        if (hbm_locs_place_of(c, l, &c->blocks[r->block], shard, &view))
            fn(ctx, &view);
        else
            err = KVC_E_GONE;
    }
    hbm_copy_mark(c, l, false);
    return err;
}

static void loc_ignore(void *ctx, const struct tier_view *view)
{
    (void)ctx;
    (void)view;
}

bool core_lease_is_lost(struct core *c, struct core_client *cl, uint64_t lease, uint32_t shard)
{
    return core_lease_locs_hbm(c, cl, lease, shard, loc_ignore, NULL) == KVC_E_GONE;
}
