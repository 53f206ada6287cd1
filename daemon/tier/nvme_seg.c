/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments: how many there are, which is free, where the next extent is written, when one is empty.
 */
#include <stdlib.h>

#include "nvme__.h"
#include "sys.h"

#define SEG_UNIT     (UINT64_C(64) << 10)
#define SEG_AUTO_MAX (UINT64_C(256) << 20)
/* Not smaller than this, if a path has room for eight of this size. */
#define SEG_AUTO_FINE (UINT64_C(8) << 20)
#define TABLES_SHARE  64u /* of a segment, for the tables of its extents */

/* The limit in equal shares, except that a path gets no more than it can hold. */
static void shares(struct nvme *n)
{
    uint64_t left = n->c.limit_bytes;
    uint32_t open = n->paths;
    bool full[DISK_PATHS_MAX] = {false};
    for (bool again = true; again;) {
        again = false;
        for (uint32_t i = 0; i < n->paths; i++) {
            const uint64_t bytes = n->disk->ops->bytes(n->disk, i);
            if (full[i] || bytes > left / open)
                continue;
            full[i] = again = true;
            n->share_bytes[i] = bytes;
            left -= bytes;
            open--;
            if (open == 0)
                return;
        }
    }
    for (uint32_t i = 0; i < n->paths; i++)
        if (!full[i])
            n->share_bytes[i] = left / open;
}

static uint64_t auto_segment(uint64_t share)
{
    const uint64_t fine = SEG_AUTO_FINE < share / 8 ? SEG_AUTO_FINE : share / 8;
    uint64_t bytes = share / 64 < SEG_AUTO_MAX ? share / 64 : SEG_AUTO_MAX;
    bytes = bytes < fine ? fine : bytes;
    return bytes / SEG_UNIT * SEG_UNIT > 0 ? bytes / SEG_UNIT * SEG_UNIT : SEG_UNIT;
}

/* Segments have the size of the store; in a new store, the configured size. */
void nvme__geometry(struct nvme *n, const struct nvme_super *super)
{
    uint64_t least = UINT64_MAX;
    shares(n);
    for (uint32_t i = 0; i < n->paths; i++)
        least = n->share_bytes[i] < least ? n->share_bytes[i] : least;
    if (super != NULL)
        n->seg_pages = super->seg_pages;
    else if (n->c.segment_bytes != 0)
        n->seg_pages = (uint32_t)(n->c.segment_bytes / NVME_PAGE);
    else
        n->seg_pages = (uint32_t)(auto_segment(least) / NVME_PAGE);
    n->segs = 0;
    for (uint32_t i = 0; i < n->paths; i++) {
        struct nvme_path *p = &n->path[i];
        const uint64_t pages = n->share_bytes[i] / NVME_PAGE;
        p->first_seg = n->segs;
        p->segs =
            pages > NVME_HEADER_PAGES ? (uint32_t)((pages - NVME_HEADER_PAGES) / n->seg_pages) : 0;
        n->segs += p->segs;
    }
}

int nvme__segs_alloc(struct nvme *n)
{
    free(n->seg);
    n->seg = sys_calloc(n->segs != 0 ? n->segs : 1, sizeof(n->seg[0]));
    if (n->seg == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < n->paths; i++)
        for (uint32_t s = 0; s < n->path[i].segs; s++)
            n->seg[n->path[i].first_seg + s] = (struct nvme_seg){
                .path = (uint8_t)i, .extents = NVME_NONE, .next = NVME_NONE, .told = NVME_NONE};
    return 0;
}

void nvme__seg_attach(struct nvme *n, uint32_t seg, uint32_t extent)
{
    struct nvme_extent *x = &n->extent[extent];
    x->seg = seg;
    x->seg_next = n->seg[seg].extents;
    n->seg[seg].extents = extent;
}

/* The extent's records of namespaces are lost: the next extent of the segment writes them again. */
static void forget_prints(struct nvme *n, const struct nvme_seg *s, uint32_t extent)
{
    struct nvme_path *p = &n->path[s->path];
    for (unsigned which = 0; which < NVME_CLASSES; which++) {
        struct nvme_open *o = &p->open[which];
        for (uint32_t i = o->records; i > 0; i--)
            if (o->record[i - 1].extent == extent)
                o->record[i - 1] = o->record[--o->records];
    }
}

void nvme__seg_detach(struct nvme *n, uint32_t extent)
{
    struct nvme_extent *x = &n->extent[extent];
    struct nvme_seg *s = &n->seg[x->seg];
    uint32_t *at = &s->extents;
    while (*at != extent) {
        MUST(*at != NVME_NONE); /* the extent is in its segment's list */
        at = &n->extent[*at].seg_next;
    }
    *at = x->seg_next;
    if (s->told == extent)
        s->told = x->seg_next;
    MUST(s->pending > 0);
    s->pending--;
    const uint32_t seg = x->seg;
    forget_prints(n, s, extent);
    nvme__extent_free(n, extent);
    nvme__seg_look(n, seg);
}

/* The free list is in order of place, so that disks that are faster in order are written in order.
 * Segments come back one at a time, so the walk is short. */
void nvme__seg_free(struct nvme *n, uint32_t seg)
{
    struct nvme_seg *s = &n->seg[seg];
    struct nvme_path *p = &n->path[s->path];
    MUST(s->extents == NVME_NONE && s->live == 0 && s->pending == 0 && s->readers == 0);
    if (s->durable) {
        s->durable = false;
        n->seg_use.durable--;
    }
    s->state = NVME_S_FREE;
    s->used_pages = 0;
    s->gen = 0;
    uint32_t *at = &p->free.first;
    while (*at != NVME_NONE && *at < seg)
        at = &n->seg[*at].next;
    s->next = *at;
    *at = seg;
    p->free.n++;
    n->seg_use.free++;
    n->tell_room = true;
}

void nvme__seg_look(struct nvme *n, uint32_t seg)
{
    struct nvme_seg *s = &n->seg[seg];
    if ((s->state != NVME_S_FULL && s->state != NVME_S_VICTIM) || s->live != 0 || s->pending != 0 ||
        s->readers != 0 || s->unread)
        return;
    MUST(s->state != NVME_S_VICTIM || n->seg_use.victims > 0);
    if (s->state == NVME_S_VICTIM)
        n->seg_use.victims--;
    s->told = NVME_NONE;
    if (s->extents == NVME_NONE) { /* no extent of it is in the journal */
        nvme__seg_free(n, seg);
        return;
    }
    s->state = NVME_S_DELETING;
    s->next = n->seg_use.delete_head;
    n->seg_use.delete_head = seg;
    n->seg_use.deleting++;
    nvme__commit_soon(n);
}

void nvme__segs_deleted(struct nvme *n)
{
    for (uint32_t *at = &n->seg_use.delete_head; *at != NVME_NONE;) {
        const uint32_t seg = *at;
        struct nvme_seg *s = &n->seg[seg];
        if (s->extents != NVME_NONE || s->pending != 0 || s->readers != 0) {
            at = &s->next;
            continue;
        }
        MUST(s->state == NVME_S_DELETING && n->seg_use.deleting > 0);
        MUST(n->confirm.deleting >= s->confirming);
        *at = s->next;
        n->seg_use.deleting--;
        n->confirm.deleting -= s->confirming;
        s->confirming = false;
        n->m.segments_reclaimed++;
        nvme__seg_free(n, seg);
    }
}

void nvme__seg_close(struct nvme *n, uint32_t seg)
{
    struct nvme_path *p = &n->path[n->seg[seg].path];
    for (unsigned which = 0; which < NVME_CLASSES; which++)
        if (p->open[which].seg == seg) {
            MUST(n->seg[seg].state == NVME_S_OPEN);
            p->open[which].seg = NVME_NONE;
            n->seg[seg].state = NVME_S_FULL;
            nvme__seg_look(n, seg);
        }
}

static uint32_t open_left(const struct nvme *n, const struct nvme_path *p, enum nvme_class which)
{
    const uint32_t seg = p->open[which].seg;
    return seg == NVME_NONE                         ? 0
           : n->seg[seg].used_pages >= n->seg_pages ? 0
                                                    : n->seg_pages - n->seg[seg].used_pages;
}

uint32_t nvme__held_segs(const struct nvme *n)
{
    return (nvme__reserve(n) + 1) / 2;
}

/* Whether the segment counts for the half of all segments that durable blocks may keep. A segment
 * that is less than half full of them does not count: reclaim may empty it. */
static bool seg_holds(const struct nvme *n, const struct nvme_seg *s)
{
    return s->durable && (s->state == NVME_S_OPEN || s->durable_pages >= n->seg_pages / 2);
}

/* With so many segments of durable blocks, new durable PUTs open none: moves need segments without
 * durable blocks. */
static uint32_t durable_most(const struct nvme *n)
{
    return n->segs - n->segs / 3;
}

/* Whether durable blocks hold all the segments that they may hold: half of all. */
static bool half_is_held(const struct nvme *n)
{
    uint32_t held = 0;
    if (n->seg_use.durable < n->segs / 2)
        return false;
    if (n->seg_use.durable >= durable_most(n))
        return true;
    for (uint32_t i = 0; i < n->segs; i++)
        held += seg_holds(n, &n->seg[i]);
    return held >= n->segs / 2;
}

/* Called in each turn, so it looks at no segment while durable blocks have few: the bound is
 * half-way between the segments that they may hold and those that they may open. */
bool nvme__durable_spread(const struct nvme *n)
{
    const uint32_t half = n->segs / 2, begin = (half + durable_most(n)) / 2;
    uint32_t held = 0, stay = 0;
    if (n->seg_use.durable < begin)
        return false;
    for (uint32_t i = 0; i < n->segs; i++) {
        const struct nvme_seg *s = &n->seg[i];
        held += seg_holds(n, s);
        stay += s->durable && s->state != NVME_S_VICTIM && s->state != NVME_S_DELETING;
    }
    return held < half && stay >= begin;
}

/* Whether a free segment may be opened. New durable PUTs have a limit of half the segments, and
 * leave the last free ones to moves, without which no others would become free. Moves have no
 * limit: a move gives back as much as it takes, and a limit could end all moves for good. */
static bool may_open(const struct nvme *n, const struct nvme_path *p, enum nvme_class which,
                     bool moves)
{
    if (p->free.first == NVME_NONE)
        return false;
    if (moves || which == NVME_NORMAL)
        return true;
    return (n->seg_use.free > nvme__held_segs(n) || nvme__formatting(n)) && !half_is_held(n);
}

static bool has_room(const struct nvme *n, const struct nvme_path *p, enum nvme_class which,
                     bool moves, uint64_t pages)
{
    return nvme__path_up(p) && (open_left(n, p, which) >= pages || may_open(n, p, which, moves));
}

bool nvme__durable_room(const struct tier *t)
{
    const struct nvme *n = nvme__of(t);
    return !half_is_held(n);
}

bool nvme__can_move(const struct nvme *n, enum nvme_class which, uint64_t pages)
{
    for (uint32_t i = 0; i < n->paths; i++) {
        if (has_room(n, &n->path[i], which, true, pages))
            return true;
    }
    return false;
}

static void open_next(struct nvme *n, struct nvme_path *p, enum nvme_class which, bool moves)
{
    struct nvme_open *o = &p->open[which];
    if (o->seg != NVME_NONE)
        nvme__seg_close(n, o->seg);
    const uint32_t seg = p->free.first;
    MUST(seg != NVME_NONE && p->free.n > 0 && n->seg_use.free > 0);
    struct nvme_seg *s = &n->seg[seg];
    MUST(s->state == NVME_S_FREE && s->extents == NVME_NONE);
    p->free.first = s->next;
    p->free.n--;
    n->seg_use.free--;
    if (!moves && n->reclaim.vain.most > 0)
        n->reclaim.vain.most--;
    s->next = NVME_NONE;
    s->state = NVME_S_OPEN;
    s->gen = (uint64_t)n->store.epoch << 32 | ++n->store.gen_count;
    s->opened_ns = n->now_ns;
    s->done_pages = 0;
    s->broken = s->named = false;
    s->durable = which == NVME_DURABLE;
    n->seg_use.durable += s->durable;
    o->seg = seg;
    o->records = 0;
}

struct nvme_path *nvme__seg_room(struct nvme *n, enum nvme_class which, bool moves, uint32_t pages)
{
    struct nvme_path *best = NULL;
    for (uint32_t i = 0; i < n->paths; i++) {
        struct nvme_path *p = &n->path[(n->seg_use.turn_path + i) % n->paths];
        if (!has_room(n, p, which, moves, pages))
            continue;
        if (best == NULL || p->queued_bytes < best->queued_bytes)
            best = p;
    }
    if (best == NULL)
        return NULL;
    if (open_left(n, best, which) < pages)
        open_next(n, best, which, moves);
    n->seg_use.turn_path = best->number + 1;
    return best;
}

bool nvme__any_up(const struct nvme *n)
{
    for (uint32_t i = 0; i < n->paths; i++)
        if (nvme__path_up(&n->path[i]))
            return true;
    return false;
}

uint64_t nvme__room_pages(const struct nvme *n)
{
    uint64_t pages = 0;
    for (uint32_t i = 0; i < n->paths; i++) {
        const struct nvme_path *p = &n->path[i];
        if (nvme__path_up(p))
            pages += (uint64_t)p->free.n * (n->seg_pages - 2) + open_left(n, p, NVME_NORMAL);
    }
    return pages;
}

bool nvme__formatting(const struct nvme *n)
{
    for (uint32_t i = 0; i < n->paths; i++)
        if (n->path[i].state == NVME_PATH_FORMATTING)
            return true;
    return false;
}

bool nvme__room_grows(const struct nvme *n)
{
    return nvme__formatting(n) && !n->stopping && n->journal_error == 0;
}

uint64_t nvme__put_pages(const struct nvme *n)
{
    const uint64_t pages = nvme__room_pages(n);
    if (nvme__formatting(n)) /* formatting brings room, and nothing is reclaimed */
        return pages;
    const uint64_t held = (uint64_t)nvme__held_segs(n) * (n->seg_pages - 2);
    return pages > held ? pages - held : 0;
}

bool nvme__put_fits(struct nvme *n, uint64_t pages)
{
    const bool fits = n->pages.reserved + pages <= nvme__put_pages(n);
    n->reclaim.vain.asked |= !fits;
    return fits;
}

uint64_t nvme__lasting_pages(const struct nvme *n)
{
    uint32_t segs = 0, others = nvme__reserve(n);
    for (uint32_t i = 0; i < n->paths; i++) {
        if (n->path[i].state == NVME_PATH_OUT)
            continue;
        segs += n->path[i].segs;
        others++; /* the path's open segment */
    }
    const uint32_t lasting = MIN(segs - segs / TIER_PASSING, segs - MIN(segs, others));
    return (uint64_t)lasting * (n->seg_pages - 2 - n->seg_pages / TABLES_SHARE);
}

uint32_t nvme__reserve(const struct nvme *n)
{
    const uint32_t want = MAX(3 * n->paths, n->segs / 32);
    return MIN(want, MAX(n->segs / 4,
                         2u)); /* more than is held for moves, or nothing would be reclaimed */
}
