/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes over the memory that the daemon's last run has left: chunks first, with arena_create(),
 * then their slabs and slots, with arena_recover().
 *
 * Nothing read here is trusted: a header counts only with its checksum, at its own place, with
 * numbers that fit. Anything else is free room, or a chunk whose memory is freed. A chunk that has
 * a principal and cannot be read is never given to another: it holds somebody's data.
 *
 * Workers of the last run may still read. So each slot gets a generation of this run, and where
 * slots cannot be found because the header before them is damaged, their pages are freed.
 */
#include "arena__.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys.h"

/* A chunk that was found. */
struct found {
    struct chunk_mem mem;
    uint32_t id;
    uint32_t place;
    uint32_t principal;
    uint32_t slabs; /* by the bits of its header */
    bool owned, placed;
};

struct finds {
    struct found *list;
    uint32_t n, cap;
};

/* --- chunks --- */

static bool is_zero(const struct chunk_header *h, uint32_t words)
{
    const uint8_t *const p = (const uint8_t *)h;
    for (uint32_t i = 0; i < sizeof(*h) + words * sizeof(h->slabs[0]); i++)
        if (p[i] != 0)
            return false;
    return true;
}

static bool find_principal(const struct arena *a, uint64_t print, uint32_t *ret_principal)
{
    for (uint32_t i = 0; i < a->config.nprints && print != 0; i++) {
        if (a->config.prints[i] != print)
            continue;
        *ret_principal = i;
        return true;
    }
    return false;
}

/* Finds the chunk's principal. NULL: it is wanted; else the count of *r for the reason why not. */
static uint32_t *arena_warm_judge(const struct arena *a, struct found *f, struct arena_recovery *r)
{
    const struct chunk_header *h = (const struct chunk_header *)(const void *)f->mem.base;
    f->owned = !is_zero(h, a->words);
    if (!f->owned)
        return NULL;
    if (h->magic != LAYOUT_CHUNK_MAGIC)
        return &r->damaged;
    if (h->version != LAYOUT_VERSION || memcmp(h->store, a->store, sizeof(a->store)) != 0)
        return &r->foreign;
    if (h->check != layout_chunk_check(h, arena__where(a, f->id, h, h)) || h->chunk != f->id ||
        h->bytes != f->mem.bytes)
        return &r->damaged;
    if (!find_principal(a, h->principal, &f->principal))
        return &r->no_principal;
    f->place = h->place;
    for (uint32_t i = 0; i < a->words; i++)
        f->slabs += (uint32_t)__builtin_popcountll(
            atomic_load_explicit(&h->slabs[i], memory_order_relaxed));
    return NULL;
}

static void discard(struct arena *a, uint32_t id, struct chunk_mem *mem, uint32_t *count)
{
    backing_forget(a->backing, id);
    chunk_destroy(mem);
    ++*count;
}

/* Takes fd. Returns 0 also if the chunk is not wanted. */
static int examine(struct arena *a, uint32_t id, int fd, struct finds *finds)
{
    struct found f = {.id = id};
    struct stat st;
    struct arena_recovery *r = a->recovery;
    const struct chunk_want want = arena__chunk_want(a, 0, id);
    struct chunk_mem bare = {.fd = fd, .ro_fd = -1};
    int err = 0;
    if (fstat(fd, &st) != 0 || (uint64_t)st.st_size != a->sizes.chunk_bytes) {
        discard(a, id, &bare, &r->misfits);
        return 0;
    }
    if (finds->n == finds->cap) {
        const uint32_t cap = MAX(2 * finds->cap, 64u);
        void *p = sys_realloc(finds->list, cap * sizeof(finds->list[0]));
        err = p != NULL ? 0 : -ENOMEM;
        finds->list = p != NULL ? p : finds->list;
        finds->cap = p != NULL ? cap : finds->cap;
    }
    if (err == 0)
        err = backing_reserve(a->backing, fd, 0, (uint64_t)a->first_page << LAYOUT_PAGE_SHIFT);
    if (err < 0) {
        chunk_leave(&bare);
        return err;
    }
    err = chunk_attach(&want, fd, &f.mem);
    if (err < 0)
        return err;
    uint32_t *const bad = arena_warm_judge(a, &f, r);
    if (bad != NULL)
        discard(a, id, &f.mem, bad);
    else
        finds->list[finds->n++] = f;
    return 0;
}

/* Chunks with most slabs come first: more may have been found than arena_sizes.chunks. */
static int by_worth(const void *left, const void *right)
{
    const struct found *l = left, *r = right;
    if (l->owned != r->owned)
        return l->owned ? -1 : 1;
    if (l->slabs != r->slabs)
        return l->slabs > r->slabs ? -1 : 1;
    return l->id < r->id ? -1 : l->id > r->id;
}

static void put_in_place(struct arena *a, uint32_t place, struct found *f)
{
    MUST(place < a->sizes.chunks && a->chunks[place].mem.base == NULL && !f->placed);
    arena__chunk_set(a, place, f->id, &f->mem);
    a->chunks[place].owned = f->owned;
    a->chunks[place].principal = f->principal;
    f->placed = true;
    a->recovery->chunks++;
}

/* A chunk goes back to its old place, whose NUMA node it is on, if that is free. */
static void arena_warm_place_all(struct arena *a, struct finds *finds)
{
    uint32_t next = 0;
    const uint32_t n = MIN(finds->n, a->sizes.chunks);
    for (uint32_t i = 0; i < n; i++) {
        struct found *f = &finds->list[i];
        if (f->owned && f->place < a->sizes.chunks && a->chunks[f->place].mem.base == NULL)
            put_in_place(a, f->place, f);
    }
    for (uint32_t i = 0; i < finds->n; i++) {
        struct found *f = &finds->list[i];
        while (next < a->sizes.chunks && a->chunks[next].mem.base != NULL)
            next++;
        if (!f->placed && next < a->sizes.chunks)
            put_in_place(a, next, f);
        else if (!f->placed)
            discard(a, f->id, &f->mem, &a->recovery->misfits);
    }
}

int arena__take_over(struct arena *a)
{
    struct finds finds = {0};
    uint32_t id;
    int fd, err = 0;
    if (a->names == NULL)
        return 0;
    a->recovery = sys_calloc(1, sizeof(*a->recovery));
    if (a->recovery == NULL)
        return -ENOMEM;
    while (err >= 0 && (err = backing_next(a->backing, &id, &fd)) > 0) {
        a->next_chunk_id = MAX(a->next_chunk_id, id + 1);
        err = examine(a, id, fd, &finds);
    }
    a->recovery->damaged += backing_refused(a->backing);
    if (err == 0) {
        if (finds.n > 1)
            qsort(finds.list, finds.n, sizeof(finds.list[0]), by_worth);
        arena_warm_place_all(a, &finds);
    } else {
        for (uint32_t i = 0; i < finds.n; i++)
            chunk_leave(&finds.list[i].mem);
    }
    free(finds.list);
    return err;
}

/* --- slabs and slots --- */

static bool slab_is_valid(const struct arena *a, const struct arena_chunk *c, uint32_t page,
                          const struct slab_header *h)
{
    const uint32_t slot_pages = h->slot_bytes >> LAYOUT_PAGE_SHIFT;
    if (h->magic != LAYOUT_SLAB_MAGIC ||
        h->check != layout_slab_check(h, arena__where(a, c->id, c->mem.base, h)))
        return false;
    if (h->slots == 0 || h->slots > LAYOUT_SLAB_SLOTS || slot_pages == 0 ||
        h->slot_bytes % LAYOUT_PAGE_BYTES != 0 || h->pages < ARENA_RUN_MIN ||
        h->pages > a->chunk_pages - page)
        return false;
    const uint64_t need = layout_header_pages(h->slots) + (uint64_t)h->slots * slot_pages;
    return need <= h->pages && h->first == page + layout_header_pages(h->slots) &&
           arena__run_end(a, c, page) >= page + h->pages && !arena__bit(c, page);
}

static bool slot_is_valid(const struct arena *a, const struct arena_slab *s, uint32_t slot)
{
    const struct arena_chunk *c = &a->chunks[s->chunk];
    const struct slot_header *h = arena__slot_header(a, s, slot);
    const uint64_t check = atomic_load_explicit(&h->check, memory_order_relaxed);
    return check == layout_slot_check(h, arena__where(a, c->id, c->mem.base, h)) && h->print != 0 &&
           h->bytes > 0 && arena__slot_pages(h->bytes) == s->slot_pages;
}

static void read_slot(const struct arena *a, const struct arena_slab *s, uint32_t slot,
                      struct arena_found *ret_found)
{
    const struct slot_header *h = arena__slot_header(a, s, slot);
    *ret_found = (struct arena_found){
        .label = {.key = h->key,
                  .parent = h->parent,
                  .print = h->print,
                  .group = h->group,
                  .shard = h->shard,
                  .tokens = h->tokens | (uint32_t)h->tokens_high << 16,
                  .has_parent = (h->flags & SLOT_HAS_PARENT) != 0,
                  .durable = (h->flags & SLOT_DURABLE) != 0,
                  .level = h->level},
        .principal = a->chunks[s->chunk].principal,
        .bytes = h->bytes,
        .sum = h->sum,
        .loc = arena__loc(a, s->chunk, s->first + slot * s->slot_pages),
        .order = atomic_load_explicit(&h->gen, memory_order_relaxed),
    };
}

/* The slot is taken while `each` decides, so that `each` can read it. */
static bool offer(struct arena *a, struct arena_slab *s, uint32_t slot, arena_found_fn *each,
                  void *ctx)
{
    struct arena_found found;
    const uint64_t bit = UINT64_C(1) << (slot % 64);
    MUST(slot < s->slots && arena__slot_is_free(s, slot));
    read_slot(a, s, slot, &found);
    struct arena_page *page = &a->pages[found.loc.id];
    *page = (struct arena_page){.slab = arena__no(a, s)};
    s->free[slot / 64] &= ~bit;
    const uint32_t block_no = each(ctx, &found);
    if (block_no == UINT32_MAX) {
        s->free[slot / 64] |= bit;
        return false;
    }
    page->block_no = block_no;
    return true;
}

static void recover_slot(struct arena *a, struct arena_slab *s, uint32_t slot, arena_found_fn *each,
                         void *ctx)
{
    struct arena_recovery *r = a->recovery;
    struct slot_header *h = arena__slot_header(a, s, slot);
    const uint64_t slot_bytes = (uint64_t)s->slot_pages << LAYOUT_PAGE_SHIFT;
    const bool used = atomic_load_explicit(&h->check, memory_order_relaxed) != 0;
    MUST(a->recovering && a->used_bytes <= a->room_bytes);
    const bool valid = used && slot_is_valid(a, s, slot);
    const bool fits = slot_bytes <= a->room_bytes - a->used_bytes;
    const bool kept = valid && fits && offer(a, s, slot, each, ctx);
    if (kept) {
        s->used++;
        a->chunks[s->chunk].used_bytes += slot_bytes;
        a->used_bytes += slot_bytes;
        a->used_slots++;
        r->slots++;
        r->bytes += slot_bytes;
    } else {
        r->slots_damaged += used && !valid;
        r->slots_unwanted += valid;
        atomic_store_explicit(&h->check, 0, memory_order_release);
    }
    atomic_store_explicit(&h->gen, arena__next_gen(a), memory_order_release);
}

static void recover_slab(struct arena *a, uint32_t chunk, uint32_t page, arena_found_fn *each,
                         void *ctx)
{
    struct arena_chunk *c = &a->chunks[chunk];
    const struct slab_header *h = arena__at(c, page);
    struct arena_slab *s = NULL;
    /* The bit may be wrong, and its page not allocated: reading that would be SIGBUS. */
    const uint64_t header_bytes =
        MIN(8 * (uint64_t)LAYOUT_PAGE_BYTES, c->mem.bytes - ((uint64_t)page << LAYOUT_PAGE_SHIFT));
    if (backing_reserve(a->backing, c->mem.fd, (uint64_t)page << LAYOUT_PAGE_SHIFT, header_bytes) ==
            0 &&
        slab_is_valid(a, c, page, h))
        s = arena__slab_make(a, c->principal, chunk, page, h->pages, h->slots,
                             h->slot_bytes >> LAYOUT_PAGE_SHIFT);
    if (s == NULL) {
        arena__slab_announce(c, page, false);
        a->recovery->slabs_damaged++;
        return;
    }
    for (uint32_t i = 0; i < s->slots; i++)
        recover_slot(a, s, i, each, ctx);
    if (s->used == 0) {
        arena__give_back(a, s);
        return;
    }
    a->recovery->slabs++;
    if (s->used < s->slots)
        list_push_back(&a->classes[s->class].partial, &s->link);
}

/* Gives the memory of all free pages back. Otherwise generations of slots that were not found would
 * stay in it, and a late reader could take the bytes of a later slab for its own block. */
static void free_runs_punch(struct arena *a, uint32_t chunk)
{
    struct arena_chunk *c = &a->chunks[chunk];
    for (uint32_t page = a->first_page; page < a->chunk_pages;) {
        const uint32_t end = arena__run_end(a, c, page);
        chunk_punch(&c->mem, (uint64_t)page << LAYOUT_PAGE_SHIFT,
                    (uint64_t)(end - page) << LAYOUT_PAGE_SHIFT);
        page = end;
        while (page < a->chunk_pages && arena__bit(c, page))
            page++;
    }
}

static void recover_chunk(struct arena *a, uint32_t chunk, arena_found_fn *each, void *ctx)
{
    struct arena_chunk *c = &a->chunks[chunk];
    const struct chunk_header *h = arena__chunk_header(c);
    const uint32_t damaged = a->recovery->slabs_damaged;
    for (uint32_t i = 0; i < a->words; i++) {
        uint64_t bits = atomic_load_explicit(&h->slabs[i], memory_order_relaxed);
        for (; bits != 0; bits &= bits - 1) {
            const uint32_t page = i * 64 + (uint32_t)__builtin_ctzll(bits);
            if (page >= a->first_page) {
                recover_slab(a, chunk, page, each, ctx);
            } else {
                arena__slab_announce(c, page, false);
                a->recovery->slabs_damaged++;
            }
        }
    }
    if (a->recovery->slabs_damaged != damaged)
        free_runs_punch(a, chunk);
}

void arena_recover(struct arena *a, arena_found_fn *each, void *ctx,
                   struct arena_recovery *ret_recovery)
{
    for (uint32_t i = 0; i < a->sizes.chunks && a->recovering; i++)
        if (a->chunks[i].owned)
            recover_chunk(a, i, each, ctx);
    a->recovering = false;
    a->epoch++;
    *ret_recovery = a->recovery != NULL ? *a->recovery : (struct arena_recovery){0};
}
