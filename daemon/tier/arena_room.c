/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room in the arena: chunks, runs of free pages in them, slabs carved from runs, and size classes.
 */
#include "arena__.h"

#include <string.h>

#include "sys.h"

/* Allocations between two attempts to replace a chunk when the system refuses. */
#define REPLACE_PATIENCE 256u

struct arena_room {
    uint64_t replace_at; /* no chunk is replaced before arena.allocs is this: the last try failed */
    /* The last answer of find_room(): arena__has_room() runs once per candidate for eviction. */
    uint64_t epoch; /* arena.epoch then: the answer counts while that stays */
    uint32_t principal, slot_pages;
    bool has_room;
};

int arena__room_make(struct arena *a)
{
    a->room = sys_calloc(1, sizeof(*a->room));
    return a->room != NULL ? 0 : -ENOMEM;
}

/* --- bitmap --- */

bool arena__bit(const struct arena_chunk *c, uint32_t page)
{
    return (c->used[page / 64] >> (page % 64)) & 1;
}

void arena__mark(struct arena *a, struct arena_chunk *c, uint32_t page, uint32_t pages, bool used)
{
    MUST(pages > 0 && pages <= a->chunk_pages - page);
    for (uint32_t p = page; p < page + pages;) {
        const uint32_t n = MIN(64 - p % 64, page + pages - p);
        const uint64_t mask = (n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1) << (p % 64);
        if (used)
            c->used[p / 64] |= mask;
        else
            c->used[p / 64] &= ~mask;
        p += n;
    }
    c->longest_known = false;
    a->epoch++;
}

/* The first page at or after `page` whose bit is `used`; chunk_pages if there is none. */
static uint32_t next_page(const struct arena *a, const struct arena_chunk *c, uint32_t page,
                          bool used)
{
    const uint64_t flip = used ? 0 : UINT64_MAX;
    uint32_t word = page / 64;
    if (word >= a->words)
        return a->chunk_pages;
    uint64_t bits = (c->used[word] ^ flip) & (UINT64_MAX << (page % 64));
    while (bits == 0) {
        if (++word == a->words)
            return a->chunk_pages;
        bits = c->used[word] ^ flip;
    }
    return word * 64 + (uint32_t)__builtin_ctzll(bits);
}

uint32_t arena__run_end(const struct arena *a, const struct arena_chunk *c, uint32_t page)
{
    return next_page(a, c, page, true);
}

/* The first run of at least `pages`, or ARENA_NONE. */
static uint32_t find_run(const struct arena *a, const struct arena_chunk *c, uint32_t pages,
                         uint32_t *ret_pages)
{
    uint32_t from = next_page(a, c, 0, false);
    while (from < a->chunk_pages) {
        const uint32_t end = next_page(a, c, from, true);
        if (end - from >= pages) {
            *ret_pages = end - from;
            return from;
        }
        from = next_page(a, c, end, false);
    }
    return ARENA_NONE;
}

uint32_t arena__longest(struct arena *a, struct arena_chunk *c)
{
    if (c->longest_known)
        return c->longest;
    c->longest = 0;
    uint32_t from = next_page(a, c, 0, false);
    while (from < a->chunk_pages) {
        const uint32_t end = next_page(a, c, from, true);
        c->longest = MAX(c->longest, end - from);
        from = next_page(a, c, end, false);
    }
    c->longest_known = true;
    return c->longest;
}

/* --- chunks --- */

struct chunk_want arena__chunk_want(const struct arena *a, uint32_t chunk, uint32_t id)
{
    const struct topo *topo = a->config.topo;
    return (struct chunk_want){
        .backing = a->backing,
        .id = id,
        .bytes = a->sizes.chunk_bytes,
        .huge = a->config.huge,
        .topo = topo,
        .node = topo != NULL ? topo_chunk_node(topo, chunk, a->sizes.chunks) : 0,
    };
}

void arena__chunk_set(struct arena *a, uint32_t chunk, uint32_t id, struct chunk_mem *mem)
{
    struct arena_chunk *c = &a->chunks[chunk];
    c->mem = *mem;
    c->id = id;
    c->owned = false;
    atomic_store(&c->lost, false);
    c->used_bytes = 0;
    memset(c->used, 0, a->words * sizeof(c->used[0]));
    arena__mark(a, c, 0, a->first_page, true);
    prefault_set(a->prefault, chunk, mem->base, mem->bytes,
                 a->config.huge == ARENA_HUGE_TRY && !mem->hugetlb);
    a->report.hugetlb_chunks += mem->hugetlb;
    a->report.sealed = a->report.sealed && mem->sealed;
    if (mem->huge_err != 0)
        a->report.huge_err = mem->huge_err;
    if (mem->numa_err != 0)
        a->report.numa_err = mem->numa_err;
}

int arena__chunk_make(struct arena *a, uint32_t chunk)
{
    const uint32_t id = a->next_chunk_id;
    const struct chunk_want want = arena__chunk_want(a, chunk, id);
    struct chunk_mem mem;
    /* The id is spent first, so that no chunk gets it again even if the process dies here. */
    a->next_chunk_id++;
    if (a->names != NULL)
        ns_records_set_next_chunk(a->names, a->next_chunk_id);
    const int err = chunk_create(&want, &mem);
    if (err < 0)
        return err;
    arena__chunk_set(a, chunk, id, &mem);
    return 0;
}

/* Puts a new memfd in place of an empty chunk, owned by nobody. Error: the chunk stays as it is. */
static int arena__replace(struct arena *a, uint32_t chunk)
{
    struct arena_chunk *c = &a->chunks[chunk];
    MUST(c->owned && c->slabs == 0 && c->used_bytes == 0);
    struct chunk_mem old = c->mem;
    const uint32_t id = c->id;
    const int err = arena__chunk_make(a, chunk);
    if (err < 0) {
        a->room->replace_at = a->allocs + REPLACE_PATIENCE;
        a->epoch++;
        return err;
    }
    a->chunks_retired++;
    a->report.hugetlb_chunks -= old.hugetlb;
    backing_forget(a->backing, id);
    if (a->retired != NULL)
        a->retired(a->retired_ctx, id, c->principal);
    if (a->moved != NULL)
        a->moved(a->moved_ctx, chunk);
    prefault_retire(a->prefault, &old);
    return 0;
}

static bool may_replace(const struct arena *a, const struct arena_chunk *c)
{
    return c->owned && c->slabs == 0 && a->allocs >= a->room->replace_at;
}

static int claim(struct arena *a, uint32_t chunk, uint32_t principal)
{
    struct arena_chunk *c = &a->chunks[chunk];
    struct chunk_header *h = arena__chunk_header(c);
    const int err =
        backing_reserve(a->backing, c->mem.fd, 0, (uint64_t)a->first_page * LAYOUT_PAGE_BYTES);
    if (err < 0)
        return err;
    h->magic = LAYOUT_CHUNK_MAGIC;
    h->version = LAYOUT_VERSION;
    h->chunk = c->id;
    h->bytes = c->mem.bytes;
    memcpy(h->store, a->store, sizeof(h->store));
    h->principal = principal < a->config.nprints ? a->config.prints[principal] : 0;
    h->place = chunk;
    layout_order();
    h->check = layout_chunk_check(h, arena__where(a, c->id, h, h));
    c->owned = true;
    c->principal = principal;
    if (h->principal != 0) {
        const int kept = backing_keep(a->backing, c->id, c->mem.fd);
        a->report.keep_err = kept < 0 ? kept : a->report.keep_err;
    }
    a->epoch++;
    return 0;
}

/* --- classes --- */

static uint32_t *arena_room_bucket(const struct arena *a, uint32_t principal, uint32_t slot_pages)
{
    const uint32_t key[2] = {principal, slot_pages};
    return &a->buckets[hash_u64(key, sizeof(key), 0) & a->bucket_mask];
}

struct arena_class *arena__class(const struct arena *a, uint32_t principal, uint32_t slot_pages)
{
    for (uint32_t i = *arena_room_bucket(a, principal, slot_pages); i != ARENA_NONE;
         i = a->classes[i].next) {
        struct arena_class *class = &a->classes[i];
        if (class->principal == principal && class->slot_pages == slot_pages)
            return class;
    }
    return NULL;
}

static struct arena_class *class_make(struct arena *a, uint32_t principal, uint32_t slot_pages)
{
    const uint32_t i = a->class_free;
    if (i == ARENA_NONE)
        return NULL;
    struct arena_class *class = &a->classes[i];
    uint32_t *head = arena_room_bucket(a, principal, slot_pages);
    a->class_free = class->next;
    *class = (struct arena_class){
        .principal = principal,
        .slot_pages = slot_pages,
        .next = *head,
    };
    list_init(&class->partial);
    *head = i;
    return class;
}

static void class_drop(struct arena *a, struct arena_class *class)
{
    const uint32_t i = (uint32_t)(class - a->classes);
    uint32_t *at = arena_room_bucket(a, class->principal, class->slot_pages);
    while (*at != i)
        at = &a->classes[*at].next;
    *at = class->next;
    class->next = a->class_free;
    a->class_free = i;
}

/* --- slabs --- */

/* The chunk to carve from, and the run in it. Whole slabs in own chunks first, then the longest
 * shorter run there, so that a new chunk is begun only when the old ones are full. */
static uint32_t choose_run(struct arena *a, uint32_t principal, uint32_t slot_pages,
                           uint32_t *ret_page, uint32_t *ret_run)
{
    uint32_t nominal = 0;
    const uint32_t slots = arena__slab_fit(a->chunk_pages - a->first_page, slot_pages, &nominal);
    MUST(slots > 0);
    uint32_t best = ARENA_NONE, best_run = 0, fresh = ARENA_NONE, empty = ARENA_NONE;
    uint32_t lent = ARENA_NONE;
    for (uint32_t i = 0; i < a->sizes.chunks; i++) {
        struct arena_chunk *c = &a->chunks[i];
        if (!c->owned) {
            fresh = c->lent ? fresh : MIN(fresh, i);
        } else if (c->principal != principal) {
            uint32_t *const kind = c->lent ? &lent : &empty;
            *kind = may_replace(a, c) ? MIN(*kind, i) : *kind;
        } else if (best_run < nominal && arena__longest(a, c) > best_run) {
            best = i;
            best_run = c->longest;
        }
    }
    if (best_run < arena__run_min(slot_pages)) {
        best = fresh;
        if (best == ARENA_NONE && empty != ARENA_NONE && arena__replace(a, empty) == 0)
            best = empty;
        if (best == ARENA_NONE && empty == ARENA_NONE && lent != ARENA_NONE)
            (void)!arena__replace(a, lent); /* room comes when workers unmap the old memory */
        if (best == ARENA_NONE)
            return ARENA_NONE;
        if (claim(a, best, principal) < 0)
            return ARENA_NONE;
        best_run = nominal;
    }
    *ret_page = find_run(a, &a->chunks[best], MIN(best_run, nominal), ret_run);
    MUST(*ret_page != ARENA_NONE);
    return best;
}

static struct arena_slab *record_take(struct arena *a)
{
    uint32_t no = a->slab_free;
    if (no != ARENA_NONE)
        a->slab_free = a->slabs[no].class;
    else
        no = a->slabs_high++;
    MUST(no < a->slabs_max); /* no slab is shorter than ARENA_RUN_MIN */
    return &a->slabs[no];
}

void arena__slab_announce(struct arena_chunk *c, uint32_t page, bool there)
{
    _Atomic uint64_t *const word = &arena__chunk_header(c)->slabs[page / 64];
    const uint64_t bit = UINT64_C(1) << (page % 64);
    const uint64_t was = atomic_load_explicit(word, memory_order_relaxed);
    atomic_store_explicit(word, there ? was | bit : was & ~bit, memory_order_release);
    layout_order();
}

struct slot_header *arena__slot_header(const struct arena *a, const struct arena_slab *s,
                                       uint32_t slot)
{
    struct slot_header *const first =
        (struct slot_header *)((uint8_t *)arena__at(&a->chunks[s->chunk], s->page) +
                               sizeof(struct slab_header));
    return first + slot;
}

/* Writes the headers first, and last the bit that leads to them. */
static void stamp(struct arena *a, const struct arena_slab *s)
{
    struct arena_chunk *c = &a->chunks[s->chunk];
    struct slab_header *h = arena__at(c, s->page);
    *h = (struct slab_header){
        .magic = LAYOUT_SLAB_MAGIC,
        .slot_bytes = s->slot_pages << LAYOUT_PAGE_SHIFT,
        .slots = s->slots,
        .first = s->first,
        .pages = s->pages,
    };
    h->check = layout_slab_check(h, arena__where(a, c->id, c->mem.base, h));
    for (uint32_t i = 0; i < s->slots; i++) {
        struct slot_header *slot = arena__slot_header(a, s, i);
        atomic_store_explicit(&slot->check, 0, memory_order_relaxed);
        /* A slot gets its own generation when it is handed out; until then it has this one. */
        atomic_store_explicit(&slot->gen, a->gen, memory_order_relaxed);
    }
    arena__slab_announce(c, s->page, true);
}

struct arena_slab *arena__slab_make(struct arena *a, uint32_t principal, uint32_t chunk,
                                    uint32_t page, uint32_t pages, uint32_t slots,
                                    uint32_t slot_pages)
{
    struct arena_class *class = arena__class(a, principal, slot_pages);
    if (class == NULL)
        class = class_make(a, principal, slot_pages);
    if (class == NULL)
        return NULL;
    struct arena_slab *s = record_take(a);
    *s = (struct arena_slab){
        .chunk = chunk,
        .page = page,
        .pages = pages,
        .first = page + layout_header_pages(slots),
        .slot_pages = slot_pages,
        .class = (uint32_t)(class - a->classes),
        .slots = (uint16_t)slots,
    };
    for (uint32_t i = 0; i < slots; i++)
        s->free[i / 64] |= UINT64_C(1) << (i % 64);
    arena__mark(a, &a->chunks[chunk], page, pages, true);
    a->chunks[chunk].slabs++;
    arena__page(a, chunk, page)->slab = arena__no(a, s);
    class->slabs++;
    a->slabs_used++;
    return s;
}

static struct arena_slab *carve_at(struct arena *a, uint32_t chunk, uint32_t page, uint32_t run,
                                   uint32_t principal, uint32_t slot_pages)
{
    uint32_t pages;
    const uint32_t slots = arena__slab_fit(run, slot_pages, &pages);
    if (!prefault_is_done(a->prefault, chunk) &&
        backing_reserve(a->backing, a->chunks[chunk].mem.fd, (uint64_t)page << LAYOUT_PAGE_SHIFT,
                        (uint64_t)pages << LAYOUT_PAGE_SHIFT) < 0)
        return NULL; /* the file system is full */
    struct arena_slab *s = arena__slab_make(a, principal, chunk, page, pages, slots, slot_pages);
    MUST(s != NULL);
    list_push_front(&a->classes[s->class].partial, &s->link);
    stamp(a, s);
    return s;
}

struct arena_slab *arena__carve(struct arena *a, uint32_t principal, uint32_t slot_pages)
{
    if (arena__class(a, principal, slot_pages) == NULL && a->class_free == ARENA_NONE)
        return NULL;
    uint32_t page, run;
    const uint32_t chunk = choose_run(a, principal, slot_pages, &page, &run);
    return chunk != ARENA_NONE ? carve_at(a, chunk, page, run, principal, slot_pages) : NULL;
}

struct arena_slab *arena__carve_in(struct arena *a, uint32_t chunk, uint32_t principal,
                                   uint32_t slot_pages)
{
    uint32_t run;
    const uint32_t page = find_run(a, &a->chunks[chunk], arena__run_min(slot_pages), &run);
    MUST(page != ARENA_NONE);
    return carve_at(a, chunk, page, run, principal, slot_pages);
}

void arena__evacuation_slab_gone(struct arena *a, uint32_t evacuation)
{
    struct arena_evacuation *r = &a->evacuations.at[evacuation];
    MUST(r->active && r->slabs_left > 0);
    if (--r->slabs_left > 0)
        return;
    struct arena_chunk *c = &a->chunks[r->chunk];
    r->active = false;
    a->held_pages -= r->pages;
    arena__mark(a, c, r->page, r->pages, false);
    /* If the system refuses a new memfd now, the empty chunk is taken over at a later alloc. */
    if (c->principal != r->principal)
        (void)!arena__replace(a, r->chunk);
}

void arena__give_back(struct arena *a, struct arena_slab *s)
{
    MUST(s->used == 0);
    struct arena_chunk *c = &a->chunks[s->chunk];
    struct arena_class *class = &a->classes[s->class];
    const uint32_t evacuation = s->evacuation;
    arena__slab_announce(c, s->page, false);
    list_remove(&s->link);
    if (--class->slabs == 0)
        class_drop(a, class);
    c->slabs--;
    a->slabs_used--;
    if (evacuation == 0)
        arena__mark(a, c, s->page, s->pages, false);
    else
        a->held_pages += s->pages;
    s->chunk = ARENA_NONE;
    s->class = a->slab_free;
    a->slab_free = arena__no(a, s);
    a->epoch++;
    if (evacuation != 0)
        arena__evacuation_slab_gone(a, evacuation - 1);
}

static bool find_room(struct arena *a, uint32_t principal, uint32_t slot_pages)
{
    const struct arena_class *class = arena__class(a, principal, slot_pages);
    if (class != NULL && !list_empty(&class->partial))
        return true;
    if (class == NULL && a->class_free == ARENA_NONE)
        return false;
    for (uint32_t i = 0; i < a->sizes.chunks; i++) {
        struct arena_chunk *c = &a->chunks[i];
        if (!c->lent && (!c->owned || (c->principal != principal && may_replace(a, c))))
            return true;
        if (c->principal == principal && arena__longest(a, c) >= arena__run_min(slot_pages))
            return true;
    }
    return false;
}

bool arena__has_room(struct arena *a, uint32_t principal, uint32_t slot_pages)
{
    struct arena_room *memo = a->room;
    if (memo->epoch != a->epoch || memo->principal != principal || memo->slot_pages != slot_pages) {
        memo->has_room = find_room(a, principal, slot_pages);
        memo->epoch = a->epoch;
        memo->principal = principal;
        memo->slot_pages = slot_pages;
    }
    return memo->has_room;
}
