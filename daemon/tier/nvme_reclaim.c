/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes room ahead of need. The segment that was opened longest ago is emptied next: core hears of
 * its blocks, and keeps each or drops it. When the segment is empty it is deleted from the journal,
 * and is free.
 */
#include "nvme__.h"

#define BATCH    64u
#define STUCK_NS (UINT64_C(300) * 1000000)
/* Pauses between tries of reclaim while it is in vain. */
#define VAIN_FIRST_NS (UINT64_C(1000) * 1000000)
#define VAIN_MOST_NS  (UINT64_C(300000) * 1000000)

static bool scarce(const struct nvme *n)
{
    return n->entries.max - n->entries.used < n->entries.max / 64 + 1 ||
           n->extents.max - n->extents.used < n->extents.max / 64 + 1;
}

static uint64_t room_left(const struct nvme *n)
{
    const uint64_t room = nvme__room_pages(n);
    return room > n->pages.reserved ? room - n->pages.reserved : 0;
}

/* Whether core was told of no block for so long that moves cannot still be waiting for a sync and a
 * commit. */
static bool at_rest(const struct nvme *n)
{
    return n->now_ns - n->reclaim.told_ns > STUCK_NS;
}

/* Whether reclaim is in vain: many segments were begun, and no more are free than before. */
static bool in_vain(const struct nvme *n)
{
    return n->reclaim.vain.begun > n->segs / 4 + 8;
}

/* Reclaim in vain is tried again when a PUT was refused and the pause is over. */
static bool may_try(const struct nvme *n)
{
    return !in_vain(n) || (n->reclaim.vain.asked && n->now_ns >= n->reclaim.vain.until_ns);
}

static void gained(struct nvme *n)
{
    n->reclaim.vain.begun = 0;
    n->reclaim.vain.pause_ns = 0;
}

static void count_begun(struct nvme *n)
{
    const uint32_t coming = n->seg_use.free + n->seg_use.deleting;
    n->reclaim.vain.begun++;
    if (coming > n->reclaim.vain.most) {
        n->reclaim.vain.most = coming;
        gained(n);
    }
    if (!in_vain(n))
        return;
    n->reclaim.vain.pause_ns = MIN(MAX(2 * n->reclaim.vain.pause_ns, VAIN_FIRST_NS), VAIN_MOST_NS);
    n->reclaim.vain.until_ns = n->now_ns + n->reclaim.vain.pause_ns;
    n->reclaim.vain.asked = false;
}

void nvme__vain_freed(struct nvme *n, uint64_t pages)
{
    n->reclaim.vain.freed_pages += pages;
    if (n->reclaim.vain.freed_pages < n->seg_pages / 8)
        return;
    n->reclaim.vain.freed_pages = 0;
    gained(n);
}

static bool may_begin(const struct nvme *n)
{
    if (n->journal_error != 0 || n->stopping || nvme__formatting(n) || !may_try(n))
        return false;
    /* One victim at a time, unless there is room for all blocks of another one. */
    return n->seg_use.victims == 0 || room_left(n) >= n->seg_pages || at_rest(n);
}

static bool room_wanted(const struct nvme *n)
{
    const uint32_t coming = n->seg_use.free + n->seg_use.deleting;
    if (coming + n->seg_use.victims < nvme__reserve(n) ||
        (coming == 0 && n->seg_use.victims < n->segs / 2))
        return true;
    return scarce(n) && n->seg_use.victims == 0;
}

/* Whether reclaim may empty the segment. Durable blocks stay, so a segment of durable blocks is
 * emptied only if it is mostly empty, and the other segments have room for its blocks. */
static bool may_go(const struct nvme *n, const struct nvme_seg *s)
{
    if (s->state != NVME_S_FULL || !nvme__path_up(&n->path[s->path]))
        return false;
    return !s->durable ||
           (!s->unread && s->durable_pages < n->seg_pages / 2 && s->durable_pages <= room_left(n));
}

/* Whether a is emptied before b: the older one; without any free segment, and when segments are
 * merged, the one with fewer blocks. */
static bool goes_first(const struct nvme *n, const struct nvme_seg *a, const struct nvme_seg *b,
                       bool merge)
{
    if ((merge || n->seg_use.free + n->seg_use.deleting == 0) && a->live != b->live)
        return a->live < b->live;
    return a->gen < b->gen;
}

/* The segment to empty next; NONE: no segment may go. merge: only among the segments
 * of durable blocks. */
static uint32_t pick(const struct nvme *n, bool merge)
{
    uint32_t best = NVME_NONE;
    for (uint32_t i = 0; i < n->segs; i++) {
        const struct nvme_seg *s = &n->seg[i], *b = best != NVME_NONE ? &n->seg[best] : NULL;
        if (!may_go(n, s) || (merge && !s->durable))
            continue;
        const bool idle = s->readers == 0, best_idle = b != NULL && b->readers == 0;
        if (b == NULL || (idle && !best_idle) || (idle == best_idle && goes_first(n, s, b, merge)))
            best = i;
    }
    return best;
}

static uint32_t next_victim(const struct nvme *n)
{
    uint32_t seg = room_wanted(n) ? pick(n, false) : NVME_NONE;
    if (seg == NVME_NONE && nvme__durable_spread(n))
        seg = pick(n, true);
    return seg;
}

static void nvme_reclaim_begin(struct nvme *n, uint32_t seg)
{
    struct nvme_seg *s = &n->seg[seg];
    MUST(s->state == NVME_S_FULL && n->seg_use.victims < n->segs);
    count_begun(n);
    if (s->opened_ns != 0)
        n->reclaim.opened_ns = s->opened_ns;
    s->state = NVME_S_VICTIM;
    s->told = s->extents;
    s->unread = false;
    n->seg_use.victims++;
    nvme__seg_look(n, seg);
}

struct told {
    struct tier_loc loc;
    uint32_t extent, block_no;
};

/* Collects blocks of which core was not told yet, in the extents from s->told on. */
static uint32_t collect(struct nvme *n, struct nvme_seg *s, uint32_t max, struct told *ret)
{
    uint32_t found = 0;
    for (; s->told != NVME_NONE; s->told = n->extent[s->told].seg_next) {
        for (uint32_t id = n->extent[s->told].first; id != NVME_NONE; id = n->entry[id].next) {
            struct nvme_entry *e = &n->entry[id];
            MUST(e->state != NVME_E_FREE && e->extent == s->told);
            if (e->state != NVME_E_LIVE || (e->flags & NVME_E_TOLD) != 0)
                continue;
            if (found == max)
                return found;
            ret[found++] = (struct told){{id}, e->extent, e->block_no};
            e->flags |= NVME_E_TOLD;
        }
    }
    return found;
}

/* `each` may free any of them. */
static uint32_t nvme_reclaim_tell(struct nvme *n, struct nvme_seg *s, uint32_t max,
                                  tier_occupant_fn *each, void *ctx)
{
    struct told list[BATCH];
    uint32_t told = 0;
    MUST(s->state == NVME_S_VICTIM && each != NULL);
    const uint32_t found = collect(n, s, MIN(max, BATCH), list);
    for (uint32_t i = 0; i < found; i++) {
        const struct nvme_entry *e = &n->entry[list[i].loc.id];
        if (e->state != NVME_E_LIVE || e->extent != list[i].extent)
            continue;
        told++;
        each(ctx, list[i].loc, list[i].block_no);
    }
    return told;
}

/* Of how many blocks core may be told: as many as have room to be kept now, so that core need not
 * drop blocks that are worth keeping. All, if no room has come for a while. */
static uint32_t tellable(const struct nvme *n, uint32_t max)
{
    const uint64_t pages = n->pages.live / MAX(n->entries.used, 1u) + 1,
                   some = room_left(n) / pages;
    if (some == 0 && at_rest(n))
        return max;
    return (uint32_t)MIN((uint64_t)max, some);
}

uint32_t nvme__reclaim(struct tier *t, uint32_t most, tier_occupant_fn *each, void *ctx)
{
    struct nvme *n = nvme__of(t);
    const uint32_t max = tellable(n, most);
    uint32_t told = 0;
    for (uint32_t i = 0; i < n->segs && told < max && n->seg_use.victims != 0; i++)
        while (n->seg[i].state == NVME_S_VICTIM && n->seg[i].told != NVME_NONE && told < max) {
            const uint32_t more = nvme_reclaim_tell(n, &n->seg[i], max - told, each, ctx);
            if (more == 0)
                break;
            told += more;
        }
    while (told < max && may_begin(n)) {
        const uint32_t seg = next_victim(n);
        if (seg == NVME_NONE)
            break;
        nvme_reclaim_begin(n, seg);
        while (n->seg[seg].state == NVME_S_VICTIM && told < max) {
            const uint32_t more = nvme_reclaim_tell(n, &n->seg[seg], max - told, each, ctx);
            if (more == 0)
                break;
            told += more;
        }
    }
    if (told > 0)
        n->reclaim.told_ns = n->now_ns;
    return told;
}

bool nvme__room_soon(const struct tier *t)
{
    const struct nvme *n = nvme__of(t);
    const uint64_t extent = MIN(n->c.extent_bytes / NVME_PAGE, (uint64_t)n->seg_pages);
    if (n->journal_error != 0 || n->stopping || nvme__formatting(n) ||
        n->pages.reserved + extent <= nvme__put_pages(n))
        return false;
    if (n->seg_use.deleting > 0)
        return true;
    return !in_vain(n) && (n->seg_use.victims > 0 || pick(n, false) != NVME_NONE);
}
