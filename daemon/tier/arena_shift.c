/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathers blocks that may not be evicted, so that whole chunks stay free for others. A slot's
 * content moves to a chunk that has such blocks already: into a free slot there, or in exchange for
 * a block that may move.
 *
 * A slot that is written anew gets another generation first, and no checksum until all of it is
 * written. So a late reader notices, and the next run of the daemon finds free room there.
 */
#include <string.h>

#include "arena__.h"
#include "sys.h"

/* Slabs and slots that one call looks at. */
#define SHIFT_LOOKS 1024u

struct arena_shift {
    arena_stays_fn *stays; /* NULL: nothing stays */
    void *ctx;
    uint32_t chunk, page, slot; /* where the search for an occupant that may move goes on */
};

int arena__shift_make(struct arena *a)
{
    a->shift = sys_calloc(1, sizeof(*a->shift));
    return a->shift != NULL ? 0 : -ENOMEM;
}

void arena_set_stays(struct arena *a, arena_stays_fn *fn, void *ctx)
{
    a->shift->stays = fn;
    a->shift->ctx = ctx;
}

bool arena__stays(const struct arena *a, uint32_t chunk)
{
    const struct arena_shift *f = a->shift;
    return f->stays != NULL && f->stays(f->ctx, chunk);
}

/* ---- content ---- */

/* From here on no reader takes the slot for its old content. Returns whether it had a label. */
static bool slot_open(struct arena *a, struct slot_header *h)
{
    const bool was = atomic_load_explicit(&h->check, memory_order_relaxed) != 0;
    atomic_store_explicit(&h->check, 0, memory_order_relaxed);
    atomic_store_explicit(&h->gen, arena__next_gen(a), memory_order_relaxed);
    layout_order();
    return was;
}

static void slot_close(struct arena *a, const struct arena_slab *s, struct slot_header *h,
                       bool labelled)
{
    const struct arena_chunk *c = &a->chunks[s->chunk];
    if (labelled)
        atomic_store_explicit(&h->check,
                              layout_slot_check(h, arena__where(a, c->id, c->mem.base, h)),
                              memory_order_release);
    atomic_store_explicit(&h->gen, arena__next_gen(a), memory_order_release);
}

static void header_copy(struct slot_header *to, const struct slot_header *from)
{
    const size_t at = offsetof(struct slot_header, sum);
    memcpy((uint8_t *)to + at, (const uint8_t *)from + at, sizeof *to - at);
}

static uint8_t *slot_payload(const struct arena *a, const struct arena_slab *s, uint32_t slot)
{
    return arena__at(&a->chunks[s->chunk], s->first + slot * s->slot_pages);
}

/* Copies the content of slot `x` to slot `y`; with `both` they are exchanged. */
static void slot_pass(struct arena *a, struct tier_loc x, struct tier_loc y, bool both)
{
    uint32_t i, k;
    const struct arena_slab *s = arena__find(a, x, &i), *t = arena__find(a, y, &k);
    struct slot_header *h = arena__slot_header(a, s, i), *g = arena__slot_header(a, t, k), was;
    MUST(h != g && s->slot_pages == t->slot_pages);
    MUST(a->chunks[s->chunk].principal == a->chunks[t->chunk].principal);
    const bool had = slot_open(a, h), got = slot_open(a, g) && both;
    uint8_t *from = slot_payload(a, s, i), *to = slot_payload(a, t, k);
    uint8_t page[LAYOUT_PAGE_BYTES];
    for (uint32_t p = 0; p < s->slot_pages && (had || got); p++) {
        if (got)
            memcpy(page, to, sizeof page);
        memcpy(to, from, sizeof page);
        if (got)
            memcpy(from, page, sizeof page);
        from += sizeof page;
        to += sizeof page;
    }
    header_copy(&was, g);
    header_copy(g, h);
    header_copy(h, &was);
    layout_order();
    slot_close(a, t, g, had);
    slot_close(a, s, h, got);
}

/* ---- where to ---- */

static bool chunk_serves(const struct arena *a, uint32_t chunk, uint32_t principal)
{
    const struct arena_chunk *c = &a->chunks[chunk];
    return c->owned && c->principal == principal && !atomic_load(&c->lost) &&
           arena__stays(a, chunk);
}

/* A slab with a free slot, or a new one, in a chunk for which stays() is true. NULL: none. */
static struct arena_slab *free_slab(struct arena *a, uint32_t principal, uint32_t slot_pages)
{
    const struct arena_class *class = arena__class(a, principal, slot_pages);
    uint32_t looks = 0;
    LIST_FOR_EACH_SAFE (node, next, &class->partial) {
        struct arena_slab *s = CONTAINER_OF(node, struct arena_slab, link);
        MUST(s->used < s->slots && s->evacuation == 0);
        if (arena__stays(a, s->chunk) && !atomic_load(&a->chunks[s->chunk].lost))
            return s;
        if (++looks == SHIFT_LOOKS)
            break;
    }
    for (uint32_t i = 0; i < a->sizes.chunks; i++)
        if (chunk_serves(a, i, principal) &&
            arena__longest(a, &a->chunks[i]) >= arena__run_min(slot_pages))
            return arena__carve_in(a, i, principal, slot_pages);
    return NULL;
}

/* Finds the next occupant that may move, from where the last search ended. */
static bool occupant(struct arena *a, uint32_t principal, uint32_t slot_pages,
                     const struct tier_shift *want, struct tier_loc *ret_loc)
{
    struct arena_shift *at = a->shift;
    uint32_t looks = 0;
    for (uint32_t n = 0; n <= a->sizes.chunks && looks < SHIFT_LOOKS; n++) {
        const bool serves = chunk_serves(a, at->chunk, principal);
        while (serves && at->page < a->chunk_pages && looks < SHIFT_LOOKS) {
            const struct arena_slab *s = arena__slab_at(a, at->chunk, at->page);
            looks++;
            if (s == NULL || s->slot_pages != slot_pages || s->evacuation != 0 ||
                at->slot >= s->slots) {
                at->page += s != NULL ? s->pages : 1;
                at->slot = 0;
                continue;
            }
            const uint32_t i = at->slot++;
            if (arena__slot_is_free(s, i))
                continue;
            *ret_loc = arena__loc(a, at->chunk, s->first + i * slot_pages);
            if (want->may_move(want->ctx, *ret_loc, a->pages[ret_loc->id].block_no))
                return true;
        }
        if (serves && at->page < a->chunk_pages)
            return false;
        at->chunk = (at->chunk + 1) % a->sizes.chunks;
        at->page = a->first_page;
        at->slot = 0;
    }
    return false;
}

int arena_shift(struct arena *a, struct tier_loc loc, const struct tier_shift *want,
                struct tier_loc *ret_loc)
{
    uint32_t slot;
    MUST(!a->recovering);
    const struct arena_slab *from = arena__find(a, loc, &slot);
    const uint32_t principal = a->chunks[from->chunk].principal, pages = from->slot_pages;
    const uint32_t block_no = a->pages[loc.id].block_no;
    struct arena_slab *to = free_slab(a, principal, pages);
    struct tier_loc at;
    if (to != NULL) {
        at = arena__take(a, to, arena__slot_header(a, from, slot)->bytes, block_no);
        slot_pass(a, loc, at, false);
        arena_free(a, loc);
    } else if (occupant(a, principal, pages, want, &at)) {
        const uint32_t other = a->pages[at.id].block_no;
        slot_pass(a, loc, at, true);
        a->pages[at.id].block_no = block_no;
        a->pages[loc.id].block_no = other;
        want->moved(want->ctx, other, at, loc);
    } else {
        return KVC_E_NO_ROOM;
    }
    *ret_loc = at;
    return 0;
}
