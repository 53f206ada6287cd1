/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes room by an evacuation: core evicts the blocks there. It empties a run of slabs and free
 * pages in one of the principal's own chunks, or all of another principal's chunk, whichever holds
 * fewer bytes. Where others are to make room, it takes the chunk of another.
 *
 * While an evacuation is active its free pages are marked used and its slabs are on no list, so
 * nothing of it is handed out. When its last slab is gone all its pages become free at once, or the
 * chunk is replaced.
 */
#include "arena__.h"
#include "sys.h"

#include <stdlib.h>
#include <sys/mman.h>

struct pick {
    uint32_t chunk, page, pages;
    uint64_t cost; /* bytes of slots handed out in it */
    uint64_t last_alloc;
};

/* --- choosing --- */

/* The slab, or the run of free pages, that begins at `page`: its pages, and its bytes of used
 * slots. False: it may not be part of an evacuation. spare: slabs with slots of so many pages may
 * not; 0: any may. */
static bool segment(const struct arena *a, uint32_t chunk, uint32_t page, uint32_t spare,
                    uint32_t *ret_pages, uint64_t *ret_cost)
{
    const struct arena_chunk *c = &a->chunks[chunk];
    if (!arena__bit(c, page)) {
        *ret_pages = arena__run_end(a, c, page) - page;
        *ret_cost = 0;
        return true;
    }
    const struct arena_slab *s = arena__slab_at(a, chunk, page);
    *ret_pages = s != NULL ? s->pages : 1;
    *ret_cost = s != NULL ? (uint64_t)s->used * s->slot_pages << LAYOUT_PAGE_SHIFT : 0;
    return s != NULL && s->evacuation == 0 && s->slot_pages != spare;
}

/* The cheapest run of at least `need` pages of one chunk, for *best: a window slides over its
 * segments and drops on the left what it does not need. */
static void pick_window(const struct arena *a, uint32_t chunk, uint32_t need, uint32_t spare,
                        struct pick *best)
{
    uint32_t left = a->first_page;
    uint64_t cost = 0;
    uint32_t pages;
    for (uint32_t page = left; page < a->chunk_pages; page += pages) {
        uint64_t more;
        if (!segment(a, chunk, page, spare, &pages, &more)) {
            left = page + pages;
            cost = 0;
            continue;
        }
        cost += more;
        uint32_t first_pages;
        uint64_t first_cost;
        while (segment(a, chunk, left, spare, &first_pages, &first_cost) &&
               page + pages - left >= need + first_pages) {
            left += first_pages;
            cost -= first_cost;
        }
        if (page + pages - left >= need && cost < best->cost)
            *best = (struct pick){chunk, left, page + pages - left, cost, 0};
    }
}

static bool chunk_evacuates(const struct arena *a, uint32_t chunk)
{
    for (unsigned i = 0; i < ARENA_EVACUATIONS_MAX; i++)
        if (a->evacuations.at[i].active && a->evacuations.at[i].chunk == chunk)
            return true;
    return false;
}

static void pick_chunk(const struct arena *a, uint32_t chunk, struct pick *best)
{
    const struct arena_chunk *c = &a->chunks[chunk];
    if (c->slabs == 0 || chunk_evacuates(a, chunk) || c->used_bytes > best->cost)
        return;
    if (c->used_bytes == best->cost && c->last_alloc >= best->last_alloc)
        return;
    *best = (struct pick){chunk, a->first_page, a->chunk_pages - a->first_page, c->used_bytes,
                          c->last_alloc};
}

static bool evacuation_pick(const struct arena *a, uint32_t principal, uint32_t slot_pages,
                            bool others, struct pick *ret_pick)
{
    struct pick own = {.cost = UINT64_MAX};
    struct pick kept = {.cost =
                            UINT64_MAX}; /* own, in chunks with a block that may not be evicted */
    struct pick other = {.cost = UINT64_MAX};
    for (uint32_t i = 0; i < a->sizes.chunks; i++) {
        if (!a->chunks[i].owned)
            continue;
        if (a->chunks[i].principal == principal)
            pick_window(a, i, arena__run_min(slot_pages), others ? slot_pages : 0,
                        others && arena__stays(a, i) ? &kept : &own);
        else if (!arena__stays(a, i))
            pick_chunk(a, i, &other);
    }
    if (own.cost == UINT64_MAX)
        own = kept;
    if (own.cost == UINT64_MAX && other.cost == UINT64_MAX)
        return false;
    const bool from_others = others ? other.cost != UINT64_MAX : other.cost < own.cost;
    *ret_pick = from_others ? other : own;
    return true;
}

/* --- beginning, giving up, ending --- */

/* Ends an evacuation that is not done: its free pages and slabs can be used again. */
static void arena_evacuate_give_up(struct arena *a, struct arena_evacuation *r)
{
    struct arena_chunk *c = &a->chunks[r->chunk];
    for (uint32_t page = r->page; page < r->page + r->pages;) {
        struct arena_slab *s = arena__slab_at(a, r->chunk, page);
        if (s == NULL) {
            arena__mark(a, c, page, 1, false);
            a->held_pages--;
            page++;
            continue;
        }
        s->evacuation = 0;
        if (s->used < s->slots)
            list_push_back(&a->classes[s->class].partial, &s->link);
        page += s->pages;
    }
    r->active = false;
    a->epoch++;
}

/* A free record, or that of the oldest evacuation, which is given up. NULL: all are of lost
 * chunks. */
static struct arena_evacuation *evacuation_take(struct arena *a)
{
    struct arena_evacuation *oldest = NULL;
    for (unsigned i = 0; i < ARENA_EVACUATIONS_MAX; i++) {
        struct arena_evacuation *r = &a->evacuations.at[i];
        if (!r->active)
            return r;
        if (r->principal != ARENA_NONE && (oldest == NULL || r->seq < oldest->seq))
            oldest = r;
    }
    if (oldest != NULL)
        arena_evacuate_give_up(a, oldest);
    return oldest;
}

static struct arena_evacuation *arena_evacuate_begin(struct arena *a, const struct pick *pick,
                                                     uint32_t principal)
{
    struct arena_evacuation *r = evacuation_take(a);
    struct arena_chunk *c = &a->chunks[pick->chunk];
    if (r == NULL)
        return NULL;
    *r = (struct arena_evacuation){
        .active = true,
        .chunk = pick->chunk,
        .page = pick->page,
        .pages = pick->pages,
        .slabs_left = 1, /* arena_evacuate()'s own, until it has walked the slabs */
        .principal = principal,
        .seq = ++a->evacuations.seq,
    };
    for (uint32_t page = r->page; page < r->page + r->pages;) {
        struct arena_slab *s = arena__slab_at(a, r->chunk, page);
        if (s == NULL) {
            const uint32_t end = MIN(arena__run_end(a, c, page), r->page + r->pages);
            a->held_pages += end - page;
            arena__mark(a, c, page, end - page, true);
            page = end;
            continue;
        }
        s->evacuation = (uint8_t)(1 + (r - a->evacuations.at));
        list_remove(&s->link);
        r->slabs_left++;
        page += s->pages;
    }
    a->epoch++;
    return r;
}

/* --- the tier's functions --- */

/* `each` may free this slot and others, so the slab is looked up anew before each call. */
static uint32_t report_slab(struct arena *a, uint32_t chunk, uint32_t page, tier_occupant_fn *each,
                            void *ctx)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < LAYOUT_SLAB_SLOTS; i++) {
        const struct arena_slab *s = arena__slab_at(a, chunk, page);
        if (s == NULL || i >= s->slots)
            break;
        if (arena__slot_is_free(s, i))
            continue;
        const struct tier_loc loc = arena__loc(a, chunk, s->first + i * s->slot_pages);
        n++;
        each(ctx, loc, a->pages[loc.id].block_no);
    }
    return n;
}

static uint32_t report_pages(struct arena *a, uint32_t chunk, uint32_t page, uint32_t pages,
                             tier_occupant_fn *each, void *ctx)
{
    const uint32_t end = page + pages;
    uint32_t n = 0;
    while (page < end) {
        const struct arena_slab *s = arena__slab_at(a, chunk, page);
        const uint32_t step = s != NULL ? s->pages : 1;
        if (s != NULL)
            n += report_slab(a, chunk, page, each, ctx);
        page += step;
    }
    return n;
}

uint32_t arena_evacuate(struct arena *a, uint32_t principal, uint32_t bytes, bool others,
                        tier_occupant_fn *each, void *ctx)
{
    const uint32_t slot_pages = arena__slot_pages(bytes);
    struct pick pick;
    if (!arena_can_hold(a, bytes))
        return 0;
    if (arena__has_room(a, principal, slot_pages))
        return 0; /* the limit alone is in the way, and any eviction serves that */
    if (!evacuation_pick(a, principal, slot_pages, others, &pick))
        return 0;
    struct arena_evacuation *r = arena_evacuate_begin(a, &pick, principal);
    if (r == NULL)
        return 0;
    const uint32_t n = report_pages(a, pick.chunk, pick.page, pick.pages, each, ctx);
    arena__evacuation_slab_gone(a, (uint32_t)(r - a->evacuations.at));
    return n;
}

/* --- chunks that are lost --- */

struct arena_losses {
    struct bus_claim claim;
    _Atomic int loss; /* enum arena_loss */
};

/* Runs in a signal handler, on any thread. It may read the table of chunks, for the entry of a
 * chunk in use does not change. */
static bool arena_lose(void *ctx, void *addr)
{
    struct arena *a = ctx;
    const uint8_t *const at = addr;
    for (uint32_t i = 0; i < a->sizes.chunks; i++) {
        struct arena_chunk *c = &a->chunks[i];
        uint8_t *const base = __atomic_load_n(&c->mem.base, __ATOMIC_RELAXED);
        if (base == NULL || at < base || (uint64_t)(at - base) >= a->sizes.chunk_bytes)
            continue;
        /* The whole chunk: else generations of some slots would go on to change in the file. */
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
        atomic_store(&c->lost, true);
        atomic_store(&a->losses->loss, ARENA_LOSS_NEW);
        return sys_mmap(base, a->sizes.chunk_bytes, PROT_READ | PROT_WRITE, flags, -1) !=
               MAP_FAILED;
    }
    return false;
}

int arena__losses_watch(struct arena *a)
{
    a->losses = sys_calloc(1, sizeof(*a->losses));
    if (a->losses == NULL)
        return -ENOMEM;
    a->losses->claim = (struct bus_claim){.fn = arena_lose, .ctx = a};
    return bus_claim(&a->losses->claim);
}

void arena__losses_end(struct arena *a)
{
    if (a->losses == NULL)
        return;
    bus_unclaim(&a->losses->claim);
    free(a->losses);
    a->losses = NULL;
}

enum arena_loss arena_has_lost(const struct arena *a)
{
    return (enum arena_loss)atomic_load_explicit(&a->losses->loss, memory_order_relaxed);
}

/* From now on no slot of the chunk is handed out, and the next run does not find the chunk. False:
 * no record of an evacuation is free. */
static bool lost_begin(struct arena *a, uint32_t chunk)
{
    const struct pick all = {
        .chunk = chunk, .page = a->first_page, .pages = a->chunk_pages - a->first_page};
    for (unsigned i = 0; i < ARENA_EVACUATIONS_MAX; i++)
        if (a->evacuations.at[i].active && a->evacuations.at[i].chunk == chunk)
            arena_evacuate_give_up(a, &a->evacuations.at[i]);
    if (arena_evacuate_begin(a, &all, ARENA_NONE) == NULL)
        return false;
    backing_forget(a->backing, a->chunks[chunk].id);
    return true;
}

static struct arena_evacuation *lost_evacuation(struct arena *a, uint32_t chunk)
{
    for (unsigned i = 0; i < ARENA_EVACUATIONS_MAX; i++) {
        struct arena_evacuation *r = &a->evacuations.at[i];
        if (r->active && r->chunk == chunk && r->principal == ARENA_NONE)
            return r;
    }
    return NULL;
}

uint32_t arena_lost(struct arena *a, tier_occupant_fn *each, void *ctx)
{
    uint32_t fresh = 0;
    bool any = false;
    atomic_store(&a->losses->loss, ARENA_LOSS_NONE);
    for (uint32_t i = 0; i < a->sizes.chunks; i++) {
        struct arena_chunk *c = &a->chunks[i];
        if (!atomic_load(&c->lost) || !c->owned)
            continue; /* a principal is about to own it, and then it is told */
        const bool is_new = lost_evacuation(a, i) == NULL;
        if (!is_new || lost_begin(a, i)) {
            fresh += is_new;
            (void)report_pages(a, i, a->first_page, a->chunk_pages - a->first_page, each, ctx);
            if (is_new) /* the walk's own count in slabs_left */
                arena__evacuation_slab_gone(a,
                                            (uint32_t)(lost_evacuation(a, i) - a->evacuations.at));
        }
        any |= atomic_load(&c->lost);
    }
    int none = ARENA_LOSS_NONE; /* if another thread has set NEW meanwhile, that stays */
    if (any)
        (void)atomic_compare_exchange_strong(&a->losses->loss, &none, ARENA_LOSS_KNOWN);
    return fresh;
}

bool arena_helps(struct arena *a, struct tier_loc loc, uint32_t principal, uint32_t bytes)
{
    uint32_t slot;
    const struct arena_slab *s = arena__find(a, loc, &slot);
    const uint32_t slot_pages = arena__slot_pages(bytes);
    if (arena__has_room(a, principal, slot_pages))
        return true; /* only the limit is in the way */
    if (s->evacuation != 0)
        return a->evacuations.at[s->evacuation - 1].principal == principal;
    const struct arena_chunk *c = &a->chunks[s->chunk];
    if (c->principal == principal && s->slot_pages == slot_pages)
        return true;
    if (s->used > 1)
        return false;
    if (c->principal != principal)
        return c->slabs == 1;
    uint32_t from = s->page;
    while (from > a->first_page && s->page - from < arena__run_min(slot_pages) &&
           !arena__bit(c, from - 1))
        from--;
    return arena__run_end(a, c, s->page + s->pages) - from >= arena__run_min(slot_pages);
}

/* --- invariants --- */

static void check_slab(const struct arena *a, const struct arena_slab *s, uint64_t *bytes)
{
    const struct arena_class *class = &a->classes[s->class];
    uint32_t used = s->slots;
    for (unsigned i = 0; i < ARRAY_LEN(s->free); i++)
        used -= (uint32_t)__builtin_popcountll(s->free[i]);
    MUST(used == s->used && used > 0);
    MUST(s->first + s->slots * s->slot_pages <= s->page + s->pages);
    MUST(class->slot_pages == s->slot_pages);
    MUST(class->principal == a->chunks[s->chunk].principal);
    MUST(list_is_linked(&s->link) == (s->evacuation == 0 && s->used < s->slots));
    *bytes += (uint64_t)used * s->slot_pages << LAYOUT_PAGE_SHIFT;
}

static bool is_announced(const struct arena_chunk *c, uint32_t page)
{
    const struct chunk_header *h = arena__chunk_header(c);
    return (atomic_load_explicit(&h->slabs[page / 64], memory_order_relaxed) >> (page % 64)) & 1;
}

void arena_check(struct arena *a)
{
    uint64_t total = 0, slabs_total = 0, held = 0;
    for (uint32_t i = 0; i < a->sizes.chunks; i++) {
        struct arena_chunk *c = &a->chunks[i];
        uint64_t bytes = 0;
        uint32_t slabs = 0;
        MUST(arena__bit(c, 0) && arena__bit(c, a->first_page - 1));
        for (uint32_t page = a->first_page; page < a->chunk_pages;) {
            const struct arena_slab *s = arena__slab_at(a, i, page);
            if (s == NULL) {
                MUST(!c->owned || !is_announced(c, page));
                held += arena__bit(c, page);
                page++;
                continue;
            }
            for (uint32_t p = 0; p < s->pages; p++)
                MUST(arena__bit(c, page + p));
            MUST(is_announced(c, page) || atomic_load(&c->lost)); /* there all is zero */
            check_slab(a, s, &bytes);
            slabs++;
            page += s->pages;
        }
        MUST(bytes == c->used_bytes && slabs == c->slabs);
        MUST(slabs == 0 || c->owned);
        total += bytes;
        slabs_total += slabs;
    }
    MUST(total == a->used_bytes && slabs_total == a->slabs_used && held == a->held_pages);
    MUST(a->used_bytes <= a->config.limit_bytes);
    for (unsigned i = 0; i < ARENA_EVACUATIONS_MAX; i++) {
        const struct arena_evacuation *r = &a->evacuations.at[i];
        MUST(!r->active || r->principal != ARENA_NONE || atomic_load(&a->chunks[r->chunk].lost));
    }
    uint32_t classes = 0;
    for (uint32_t b = 0; b <= a->bucket_mask; b++)
        for (uint32_t i = a->buckets[b]; i != ARENA_NONE; i = a->classes[i].next) {
            MUST(a->classes[i].slabs > 0);
            classes++;
        }
    for (uint32_t i = a->class_free; i != ARENA_NONE; i = a->classes[i].next)
        classes++;
    MUST(classes == a->classes_max);
}
