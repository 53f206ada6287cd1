/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena of the host tier: its making, slots handed out and given back, and what is told of
 * them. arena_alloc() takes a slot for a block; arena_room.c keeps chunks and slabs,
 * arena_evacuate.c empties slabs when there is no room.
 */
#include "arena__.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sys.h"

/* --- create, destroy --- */

static int make_tables(struct arena *a)
{
    struct arena_tables t;
    arena__tables(a->sizes.chunks, a->chunk_pages, &t);
    void *p = sys_pages(t.bytes);
    if (p == NULL)
        return -errno;
    uint8_t *const base = p;
    a->chunks = (struct arena_chunk *)(void *)(base + t.at[ARENA_TABLE_CHUNKS]);
    a->pages = (struct arena_page *)(void *)(base + t.at[ARENA_TABLE_PAGES]);
    a->slabs = (struct arena_slab *)(void *)(base + t.at[ARENA_TABLE_SLABS]);
    a->classes = (struct arena_class *)(void *)(base + t.at[ARENA_TABLE_CLASSES]);
    a->buckets = (uint32_t *)(void *)(base + t.at[ARENA_TABLE_BUCKETS]);
    a->slabs_max = t.slabs_max;
    a->slab_free = ARENA_NONE;
    a->classes_max = t.classes_max;
    a->bucket_mask = t.buckets - 1;
    uint64_t *bits = (uint64_t *)(void *)(base + t.at[ARENA_TABLE_BITS]);
    for (uint32_t i = 0; i < a->sizes.chunks; i++) {
        a->chunks[i].mem = (struct chunk_mem){.fd = -1, .ro_fd = -1};
        a->chunks[i].used = bits + (uint64_t)i * a->words;
    }
    memset(a->buckets, 0xff, t.buckets * sizeof(a->buckets[0]));
    for (uint32_t i = 0; i < a->classes_max; i++)
        a->classes[i].next = i + 1 < a->classes_max ? i + 1 : ARENA_NONE;
    return 0;
}

/* Kept chunks bear their store's number; others a random one, which no run meets again. */
static int open_backing(struct arena *a)
{
    uint64_t total, left;
    int err = backing_open(&a->config.backing, &a->backing);
    if (err < 0)
        return err;
    a->report.backing = backing_text(a->backing);
    a->next_chunk_id = 1;
    if (!backing_keeps(a->backing))
        return hash_random(a->store, sizeof(a->store));
    backing_space(a->backing, &total, &left);
    if (total < a->sizes.chunks * a->sizes.chunk_bytes)
        return -ENOSPC;
    err = ns_records_open(a->backing, a->config.names_max, &a->names);
    if (err < 0)
        return err;
    memcpy(a->store, ns_records_store(a->names), sizeof(a->store));
    a->next_chunk_id = MAX(ns_records_next_chunk(a->names), 1u);
    a->recovering = true;
    return 0;
}

static int arena_fill(struct arena *a)
{
    int err = make_tables(a);
    if (err < 0)
        return err;
    err = arena__room_make(a);
    if (err < 0)
        return err;
    err = arena__shift_make(a);
    if (err < 0)
        return err;
    err = hash_random(&a->gen, sizeof(a->gen));
    if (err < 0)
        return err;
    a->gen |= 1; /* not 0 */
    err = prefault_create(a->sizes.chunks, &a->prefault);
    if (err < 0)
        return err;
    err = open_backing(a);
    if (err < 0)
        return err;
    a->report.sealed = true;
    a->report.sizes = a->sizes;
    err = arena__take_over(a);
    for (uint32_t i = 0; i < a->sizes.chunks && err == 0; i++)
        if (a->chunks[i].mem.base == NULL)
            err = arena__chunk_make(a, i);
    if (err < 0)
        return err;
    err = arena__losses_watch(a);
    if (err < 0)
        return err;
    /* After all chunks are mapped: faulting in holds the lock that mapping needs. */
    prefault_aim(a->prefault, a->sizes.prefault_bytes);
    return 0;
}

int arena_create(const struct arena_config *config, struct arena **ret_arena)
{
    if (arena_config_problem(config) != NULL)
        return -EINVAL;
    struct arena *a = sys_calloc(1, sizeof(*a));
    if (a == NULL)
        return -ENOMEM;
    a->config = *config;
    arena_sizes(config, &a->sizes);
    a->chunk_pages = (uint32_t)(a->sizes.chunk_bytes >> LAYOUT_PAGE_SHIFT);
    a->words = a->chunk_pages / 64;
    a->first_page = layout_chunk_header_pages(a->chunk_pages);
    a->room_bytes = config->limit_bytes;
    a->epoch = 1; /* the memo's 0 is then never current */
    const int err = arena_fill(a);
    if (err < 0) {
        arena_destroy(&a);
        return err;
    }
    *ret_arena = a;
    return 0;
}

void arena_destroy(struct arena **arena)
{
    if (arena == NULL || *arena == NULL)
        return;
    struct arena *a = *arena;
    prefault_destroy(&a->prefault);
    arena__losses_end(a);
    if (a->chunks != NULL) {
        for (uint32_t i = 0; i < a->sizes.chunks; i++)
            chunk_leave(&a->chunks[i].mem);
        struct arena_tables t;
        arena__tables(a->sizes.chunks, a->chunk_pages, &t);
        (void)munmap((uint8_t *)a->chunks - t.at[ARENA_TABLE_CHUNKS], t.bytes);
    }
    free(a->room);
    free(a->shift);
    free(a->recovery);
    ns_records_close(&a->names);
    backing_close(&a->backing); /* last: from here on another daemon may take the chunks */
    free(a);
    *arena = NULL;
}

/* --- finding --- */

struct arena_slab *arena__slab_at(const struct arena *a, uint32_t chunk, uint32_t page)
{
    const uint32_t no = arena__page(a, chunk, page)->slab;
    if (no >= a->slabs_high)
        return NULL;
    struct arena_slab *s = &a->slabs[no];
    return s->chunk == chunk && s->page == page ? s : NULL;
}

/* The slab and slot at this location if there is one, free or not; else NULL. */
static struct arena_slab *arena_look(const struct arena *a, struct tier_loc loc, uint32_t *ret_slot)
{
    const uint32_t chunk = loc.id / a->chunk_pages;
    const uint32_t page = loc.id % a->chunk_pages;
    if (chunk >= a->sizes.chunks)
        return NULL;
    const uint32_t no = a->pages[loc.id].slab;
    if (no >= a->slabs_high)
        return NULL;
    struct arena_slab *s = &a->slabs[no];
    if (s->chunk != chunk || page < s->first || (page - s->first) % s->slot_pages != 0)
        return NULL;
    const uint32_t slot = (page - s->first) / s->slot_pages;
    if (slot >= s->slots)
        return NULL;
    *ret_slot = slot;
    return s;
}

struct arena_slab *arena__find(const struct arena *a, struct tier_loc loc, uint32_t *ret_slot)
{
    struct arena_slab *s = arena_look(a, loc, ret_slot);
    MUST(s != NULL && !arena__slot_is_free(s, *ret_slot));
    return s;
}

uint64_t arena__next_gen(struct arena *a)
{
    if (++a->gen == 0)
        a->gen = 1;
    return a->gen;
}

/* --- alloc, free --- */

uint32_t arena_slot_bytes(uint32_t bytes)
{
    return arena__slot_pages(bytes) << LAYOUT_PAGE_SHIFT;
}

bool arena_can_hold(const struct arena *a, uint32_t bytes)
{
    const uint64_t slot_bytes = (uint64_t)arena__slot_pages(bytes) << LAYOUT_PAGE_SHIFT;
    return bytes > 0 && slot_bytes <= a->sizes.largest_bytes && slot_bytes <= a->config.limit_bytes;
}

/* The lowest free slot at or after `from`, or ARENA_NONE. */
static uint32_t free_slot(const struct arena_slab *s, uint32_t from)
{
    if (from >= LAYOUT_SLAB_SLOTS)
        return ARENA_NONE;
    uint32_t word = from / 64;
    uint64_t bits = s->free[word] & (UINT64_MAX << (from % 64));
    while (bits == 0) {
        if (++word == ARRAY_LEN(s->free))
            return ARENA_NONE;
        bits = s->free[word];
    }
    return word * 64 + (uint32_t)__builtin_ctzll(bits);
}

/* A slot of the right kind behind `beside`, in its slab; else anywhere in its slab. */
static struct arena_slab *slot_beside(const struct arena *a, struct tier_loc beside,
                                      uint32_t principal, uint32_t slot_pages, uint32_t *ret_slot)
{
    uint32_t slot;
    struct arena_slab *s = beside.id != 0 ? arena_look(a, beside, &slot) : NULL;
    if (s == NULL || s->evacuation != 0 || s->slot_pages != slot_pages ||
        a->chunks[s->chunk].principal != principal || s->used == s->slots)
        return NULL;
    const uint32_t after = free_slot(s, slot + 1);
    *ret_slot = after != ARENA_NONE ? after : free_slot(s, 0);
    return s;
}

static struct tier_loc arena_take(struct arena *a, struct arena_slab *s, uint32_t slot,
                                  uint32_t bytes, uint32_t block_no)
{
    struct arena_chunk *c = &a->chunks[s->chunk];
    const uint32_t slot_bytes = s->slot_pages << LAYOUT_PAGE_SHIFT;
    const struct tier_loc loc = arena__loc(a, s->chunk, s->first + slot * s->slot_pages);
    s->free[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
    if (++s->used == s->slots) {
        list_remove(&s->link);
        a->epoch++;
    }
    c->used_bytes += slot_bytes;
    c->last_alloc = a->allocs;
    a->used_bytes += slot_bytes;
    a->used_slots++;
    a->pages[loc.id] = (struct arena_page){.slab = arena__no(a, s), .block_no = block_no};
    struct slot_header *h = arena__slot_header(a, s, slot);
    h->bytes = bytes; /* of a slot whose checksum is 0 */
    atomic_store_explicit(&h->gen, arena__next_gen(a), memory_order_release);
    return loc;
}

struct tier_loc arena__take(struct arena *a, struct arena_slab *s, uint32_t bytes,
                            uint32_t block_no)
{
    return arena_take(a, s, free_slot(s, 0), bytes, block_no);
}

int arena_alloc(struct arena *a, uint32_t principal, uint32_t bytes, struct tier_loc beside,
                uint32_t block_no, struct tier_loc *ret_loc)
{
    MUST(bytes > 0 && !a->recovering);
    a->allocs++;
    const uint32_t slot_pages = arena__slot_pages(bytes);
    const uint64_t slot_bytes = (uint64_t)slot_pages << LAYOUT_PAGE_SHIFT;
    if (!arena_can_hold(a, bytes))
        return KVC_E_TOO_LARGE;
    if (a->used_bytes + slot_bytes > a->room_bytes)
        return KVC_E_NO_ROOM;
    uint32_t slot = 0;
    struct arena_slab *s = slot_beside(a, beside, principal, slot_pages, &slot);
    if (s == NULL) {
        const struct arena_class *class = arena__class(a, principal, slot_pages);
        struct list_node *node = class != NULL ? list_first(&class->partial) : NULL;
        s = node != NULL ? CONTAINER_OF(node, struct arena_slab, link)
                         : arena__carve(a, principal, slot_pages);
        if (s == NULL)
            return KVC_E_NO_ROOM;
        slot = free_slot(s, 0);
    }
    *ret_loc = arena_take(a, s, slot, bytes, block_no);
    return 0;
}

void arena_free(struct arena *a, struct tier_loc loc)
{
    uint32_t slot;
    struct arena_slab *s = arena__find(a, loc, &slot);
    struct slot_header *h = arena__slot_header(a, s, slot);
    /* First: from here on the next run does not find the block. */
    atomic_store_explicit(&h->check, 0, memory_order_relaxed);
    atomic_store_explicit(&h->gen, arena__next_gen(a), memory_order_relaxed);
    /* A reader that sees bytes written to the slot from here on also sees the new generation. */
    layout_order();
    s->free[slot / 64] |= UINT64_C(1) << (slot % 64);
    const uint32_t slot_bytes = s->slot_pages << LAYOUT_PAGE_SHIFT;
    a->chunks[s->chunk].used_bytes -= slot_bytes;
    a->used_bytes -= slot_bytes;
    a->used_slots--;
    if (--s->used == 0) {
        arena__give_back(a, s);
    } else if (s->evacuation == 0 && s->used == s->slots - 1) {
        /* Last in the list, so that new blocks first fill slabs that are partial for longer. */
        list_push_back(&a->classes[s->class].partial, &s->link);
        a->epoch++;
    }
}

/* --- slots --- */

bool arena_is_for(const struct arena *a, struct tier_loc loc, uint32_t bytes)
{
    uint32_t slot;
    return arena__find(a, loc, &slot)->slot_pages == arena__slot_pages(bytes);
}

uint32_t arena_chunk_of(const struct arena *a, struct tier_loc loc)
{
    uint32_t slot;
    return arena__find(a, loc, &slot)->chunk;
}

uint32_t arena_chunk_no(const struct arena *a, struct tier_loc loc)
{
    return loc.id / a->chunk_pages;
}

void *arena_payload(const struct arena *a, struct tier_loc loc)
{
    uint32_t slot;
    const struct arena_slab *s = arena__find(a, loc, &slot);
    return arena__at(&a->chunks[s->chunk], s->first + slot * s->slot_pages);
}

void arena_set_label(struct arena *a, struct tier_loc loc, const struct tier_label *label,
                     const struct hash128 *sum, uint32_t bytes)
{
    uint32_t slot;
    const struct arena_slab *s = arena__find(a, loc, &slot);
    const uint32_t slot_bytes = s->slot_pages << LAYOUT_PAGE_SHIFT;
    MUST(bytes <= slot_bytes && slot_bytes - bytes < LAYOUT_PAGE_BYTES);
    MUST(label->group <= UINT8_MAX && label->shard <= UINT8_MAX);
    struct slot_header *h = arena__slot_header(a, s, slot);
    const struct arena_chunk *c = &a->chunks[s->chunk];
    /* 0 before the first store, the checksum after the last. */
    atomic_store_explicit(&h->check, 0, memory_order_relaxed);
    layout_order();
    h->sum = *sum;
    h->key = label->key;
    h->parent = label->has_parent ? label->parent : (struct key256){{0}};
    h->print = label->print;
    h->bytes = bytes;
    h->tokens = (uint16_t)label->tokens;
    h->tokens_high = (uint8_t)(label->tokens >> 16);
    h->group = (uint8_t)label->group;
    h->shard = (uint8_t)label->shard;
    h->flags =
        (uint8_t)((label->has_parent ? SLOT_HAS_PARENT : 0) | (label->durable ? SLOT_DURABLE : 0));
    h->level = label->level;
    memset(h->unused, 0, sizeof(h->unused));
    const uint64_t check = layout_slot_check(h, arena__where(a, c->id, c->mem.base, h));
    atomic_store_explicit(&h->check, check, memory_order_release);
    atomic_store_explicit(&h->gen, arena__next_gen(a), memory_order_release);
}

void arena_invalidate(struct arena *a, struct tier_loc loc)
{
    uint32_t slot;
    const struct arena_slab *s = arena__find(a, loc, &slot);
    struct slot_header *h = arena__slot_header(a, s, slot);
    atomic_store_explicit(&h->check, 0, memory_order_relaxed);
    atomic_store_explicit(&h->gen, arena__next_gen(a), memory_order_release);
}

void arena_view(const struct arena *a, struct tier_loc loc, struct tier_view *ret_view)
{
    uint32_t slot;
    const struct arena_slab *s = arena__find(a, loc, &slot);
    const struct slot_header *h = arena__slot_header(a, s, slot);
    const uint8_t *const base = a->chunks[s->chunk].mem.base;
    *ret_view = (struct tier_view){
        .chunk = a->chunks[s->chunk].id,
        .bytes = h->bytes,
        .off = (uint64_t)(s->first + slot * s->slot_pages) << LAYOUT_PAGE_SHIFT,
        .hdr = (uint64_t)((const uint8_t *)&h->gen - base),
        .gen = atomic_load_explicit(&h->gen, memory_order_relaxed),
    };
}

struct hash128 arena_sum(const struct arena *a, struct tier_loc loc)
{
    uint32_t slot;
    const struct arena_slab *s = arena__find(a, loc, &slot);
    return arena__slot_header(a, s, slot)->sum;
}

/* --- chunks seen from outside --- */

int arena_chunk_fd(const struct arena *a, uint32_t chunk, uint32_t principal, uint64_t *ret_bytes)
{
    for (uint32_t i = 0; i < a->sizes.chunks; i++) {
        const struct arena_chunk *c = &a->chunks[i];
        if (c->id != chunk)
            continue;
        if (!c->owned || c->principal != principal)
            return -EACCES;
        *ret_bytes = c->mem.bytes;
        return c->mem.ro_fd;
    }
    return -ENOENT;
}

void arena_hold(struct arena *a, uint64_t bytes)
{
    const uint64_t held = bytes > a->sizes.chunk_bytes ? bytes - a->sizes.chunk_bytes : 0;
    a->room_bytes = a->config.limit_bytes - MIN(held, a->config.limit_bytes);
}

void arena_lend(struct arena *a, uint32_t no, bool is_lent)
{
    MUST(no < a->sizes.chunks);
    a->chunks[no].lent = is_lent;
    a->epoch++;
}

void arena_set_retired(struct arena *a, arena_retired_fn *fn, void *ctx)
{
    a->retired = fn;
    a->retired_ctx = ctx;
}

void arena_set_moved(struct arena *a, arena_moved_fn *fn, void *ctx)
{
    a->moved = fn;
    a->moved_ctx = ctx;
}

uint8_t *arena_ready_base(const struct arena *a, uint32_t no)
{
    const struct arena_chunk *c = &a->chunks[no];
    return c->owned && prefault_is_done(a->prefault, no) ? c->mem.base : NULL;
}

uint8_t *arena_want_ready(struct arena *a, uint32_t no)
{
    if (a->chunks[no].owned && !prefault_is_done(a->prefault, no))
        prefault_want(a->prefault, no, a->sizes.likely_bytes);
    return arena_ready_base(a, no);
}

struct ns_records *arena_names(const struct arena *a)
{
    return a->names;
}

void arena_stats(const struct arena *a, struct arena_stats *ret_stats)
{
    struct prefault_stats ks;
    prefault_stats(a->prefault, &ks);
    struct arena_stats st = {
        .limit_bytes = a->config.limit_bytes,
        .used_bytes = a->used_bytes,
        .used_slots = a->used_slots,
        .mapped_bytes = a->sizes.chunks * a->sizes.chunk_bytes,
        .faulted_bytes = ks.faulted_bytes,
        .slabs = a->slabs_used,
        .chunks = a->sizes.chunks,
        .yield_bytes = a->sizes.yield_bytes,
        .chunks_retired = a->chunks_retired,
        .evacuating_bytes = a->held_pages << LAYOUT_PAGE_SHIFT,
        .prefault_bytes = a->sizes.prefault_bytes,
        .prefault_error = ks.error,
    };
    for (uint32_t i = 0; i < a->sizes.chunks; i++)
        st.chunks_owned += a->chunks[i].owned;
    *ret_stats = st;
}

void arena_report(const struct arena *a, struct arena_report *ret_report)
{
    *ret_report = a->report;
}
