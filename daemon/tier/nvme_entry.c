/* SPDX-License-Identifier: Apache-2.0 */
/* The table of locations: one entry for each block on disk, with its extent and its state. */
#include "nvme__.h"

struct nvme_entry *nvme__entry(const struct nvme *n, struct tier_loc loc)
{
    MUST(loc.id != 0 && loc.id < n->entries.fresh);
    struct nvme_entry *e = &n->entry[loc.id];
    MUST(e->state != NVME_E_FREE);
    return e;
}

int nvme__entry_new(struct nvme *n, uint32_t bytes, uint32_t block_no, struct tier_loc *ret_loc)
{
    uint32_t id = n->entries.free;
    if (id != NVME_NONE)
        n->entries.free = n->entry[id].next;
    else if (n->entries.fresh <= n->entries.max)
        id = n->entries.fresh++;
    else
        return KVC_E_NO_ROOM;
    n->entry[id] = (struct nvme_entry){.extent = NVME_NONE,
                                       .prev = NVME_NONE,
                                       .next = NVME_NONE,
                                       .block_no = block_no,
                                       .bytes = bytes,
                                       .state = NVME_E_NEW};
    n->entries.used++;
    n->pages.reserved += nvme__pages(bytes);
    *ret_loc = (struct tier_loc){id};
    return 0;
}

void nvme__entry_free(struct nvme *n, struct tier_loc loc)
{
    struct nvme_entry *e = nvme__entry(n, loc);
    MUST(e->readers == 0 && e->state != NVME_E_QUEUED && e->state != NVME_E_WRITING);
    if (e->extent != NVME_NONE)
        nvme__entry_unlink(n, e);
    n->pages.reserved -= nvme__pages(e->bytes);
    e->state = NVME_E_FREE;
    e->next = n->entries.free;
    n->entries.free = loc.id;
    n->entries.used--;
}

void nvme__entry_link(struct nvme *n, struct nvme_entry *e, uint32_t extent)
{
    struct nvme_extent *x = &n->extent[extent];
    struct nvme_seg *s = &n->seg[x->seg];
    const uint32_t id = (uint32_t)(e - n->entry), pages = nvme__pages(e->bytes);
    e->extent = extent;
    e->prev = NVME_NONE;
    e->next = x->first;
    if (x->first != NVME_NONE)
        n->entry[x->first].prev = id;
    x->first = id;
    x->live++;
    s->live++;
    s->live_pages += pages;
    n->pages.reserved -= pages;
    n->pages.live += pages;
    if ((e->flags & NVME_E_DURABLE) != 0) {
        n->pages.durable += pages;
        s->durable_pages += pages;
    }
}

/* A block of the extent died: the next commit tells the journal. */
static void mark_dirty(struct nvme *n, uint32_t extent)
{
    struct nvme_extent *x = &n->extent[extent];
    x->flags |= NVME_X_DIRTY;
    if (x->state != NVME_X_COMMITTED || (x->flags & NVME_X_LISTED) != 0)
        return;
    nvme__dirty(n, extent);
    nvme__commit_soon(n);
}

/* Core did not take a block at start. If the start could not see all, its namespace or parent may
 * be missing only now: then the extent stays as it is for the next start. */
void nvme__not_taken(struct nvme *n, uint32_t extent)
{
    struct nvme_extent *x = &n->extent[extent];
    x->flags |= NVME_X_DROPPED;
    if (!n->partial)
        return;
    x->flags |= NVME_X_UNREAD;
    n->seg[x->seg].unread = true;
}

void nvme__hold_seg(struct nvme *n, uint32_t seg)
{
    struct nvme_seg *s = &n->seg[seg];
    n->seg_use.durable += !s->durable;
    s->durable = s->unread = true;
}

void nvme__entry_unlink(struct nvme *n, struct nvme_entry *e)
{
    const uint32_t extent = e->extent, pages = nvme__pages(e->bytes);
    struct nvme_extent *x = &n->extent[extent];
    struct nvme_seg *s = &n->seg[x->seg];
    if (e->prev != NVME_NONE)
        n->entry[e->prev].next = e->next;
    else
        x->first = e->next;
    if (e->next != NVME_NONE)
        n->entry[e->next].prev = e->prev;
    e->extent = e->prev = e->next = NVME_NONE;
    MUST(x->live > 0 && s->live > 0);
    x->live--;
    s->live--;
    if (x->state >= NVME_X_SYNCED)
        n->deaths.synced += x->state != NVME_X_LOST;
    else
        n->deaths.open++;
    s->live_pages -= pages;
    n->pages.live -= pages;
    n->pages.reserved += pages;
    if ((e->flags & NVME_E_DURABLE) != 0) {
        n->pages.durable -= pages;
        s->durable_pages -= pages;
    }
    if (n->recovering)
        nvme__not_taken(n, extent);
    else if ((x->flags & NVME_X_UNREAD) != 0)
        n->confirm.untold = true;
    if (x->state == NVME_X_COMMITTING || x->state == NVME_X_COMMITTED)
        mark_dirty(n, extent);
    nvme__seg_look(n, x->seg);
}

void nvme__count_corrupt(struct nvme *n, struct tier_loc loc)
{
    n->m.blocks_corrupt++;
    nvme__entry_path(n, nvme__entry(n, loc))->count.corrupt++;
}

/* A full segment whose last durable block becomes ordinary is an ordinary segment. After a restart
 * block and segment are durable again until core calls this again. */
void nvme__make_ordinary(struct tier *t, struct tier_loc loc)
{
    struct nvme *n = nvme__of(t);
    struct nvme_entry *e = nvme__entry(n, loc);
    MUST(e->state == NVME_E_LIVE);
    if ((e->flags & NVME_E_DURABLE) == 0)
        return;
    struct nvme_seg *s = &n->seg[n->extent[e->extent].seg];
    const uint32_t pages = nvme__pages(e->bytes);
    e->flags &= (uint8_t)~NVME_E_DURABLE;
    n->pages.durable -= pages;
    s->durable_pages -= pages;
    nvme__vain_freed(n, pages);
    if (s->durable_pages != 0 || !s->durable || s->unread || s->state == NVME_S_OPEN)
        return;
    s->durable = false;
    n->seg_use.durable--;
}
