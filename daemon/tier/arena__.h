/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What arena.c and the files arena_*.c share; for these files only.
 *
 * Everything that steers the arena is in private memory; shared memory only receives copies. All
 * tables are sized for the worst case, mapped at create, and touched as they are used.
 */
#ifndef KVC_TIER_ARENA_INTERNAL_H
#define KVC_TIER_ARENA_INTERNAL_H

#include "arena.h"
#include "bus.h"
#include "layout.h"
#include "list.h"
#include "ns_records.h"
#include "prefault.h"

/* Shorter runs are not worth a slab; bounds the number of slabs. */
#define ARENA_RUN_MIN 16u
/* A slab's payload when there is room for it, in pages: 2 MiB. */
#define ARENA_SLAB_PAGES 512u
#define ARENA_NONE       UINT32_MAX

/* Of each page of the arena. Valid for the first page of a slab and of a slot. */
struct arena_page {
    uint32_t slab;     /* index in arena.slabs */
    uint32_t block_no; /* as given to arena_alloc() */
};

/* A run of pages of a chunk: headers, then slots of one size. */
struct arena_slab {
    uint64_t free[4];      /* bit set: slot is free */
    struct list_node link; /* in its class, while it has a free slot and is not evacuating */
    uint32_t chunk;        /* index in arena.chunks; ARENA_NONE: this record is free */
    uint32_t page, pages;  /* in the chunk, headers included */
    uint32_t first;        /* page of slot 0's payload */
    uint32_t slot_pages;
    uint32_t class; /* index in arena.classes; while the record is free: the next free record */
    uint16_t slots, used;
    uint8_t evacuation; /* 1 + index of the evacuation it is part of; 0: of none */
};
_Static_assert(sizeof(struct arena_slab) <= 128, "two cache lines");
_Static_assert(LAYOUT_SLAB_SLOTS <= 4 * 64, "a bit for each slot");

/* The slabs of one principal with slots of one size. */
struct arena_class {
    struct list_node partial; /* slabs with a free slot that are not evacuating */
    uint32_t principal;
    uint32_t slot_pages;
    uint32_t slabs; /* at least 1, or the record is free */
    uint32_t next;  /* in its hash bucket, or of the free list */
};

struct arena_chunk {
    struct chunk_mem mem;
    uint32_t id;        /* as workers know it; each new memory of the chunk has another one */
    uint32_t principal; /* valid while owned */
    bool owned;
    bool lent; /* memory that is or was at this place is lent to others: see arena_lend() */
    /* Another process cut the file: this process reads zeroes there, and nothing in the chunk can
     * be served. Set by any thread, in a signal handler. */
    _Atomic bool lost;
    bool longest_known; /* `longest` is up to date */
    uint32_t slabs;
    uint32_t longest;    /* longest run of free pages */
    uint64_t used_bytes; /* of slots handed out */
    uint64_t last_alloc; /* arena.allocs when a slot of the chunk was last handed out */
    uint64_t *used;      /* bit per page: taken, held by an evacuation, or beyond the end */
};

/* An evacuation: slabs and free pages, one behind the other, that are being emptied. */
struct arena_evacuation {
    bool active;
    uint32_t chunk;
    uint32_t page, pages;
    uint32_t slabs_left; /* not given back yet; one more while arena_evacuate() walks the slabs */
    uint32_t principal;  /* for whom; ARENA_NONE: its chunk is lost, and it is never given up */
    uint64_t seq;        /* grows with each evacuation: the oldest is given up first */
};

struct arena_room;   /* arena_room.c */
struct arena_shift;  /* arena_shift.c */
struct arena_losses; /* arena_evacuate.c */

struct arena {
    struct arena_config config;
    struct arena_sizes sizes;
    uint32_t chunk_pages;
    uint32_t first_page; /* of a chunk, behind its header */
    uint32_t words;      /* of a chunk's bitmap */
    uint8_t store[16];   /* stands in all headers: chunks of another store do not count */
    uint64_t gen;        /* the generation that was given last */

    struct backing *backing;
    struct ns_records *names; /* records of namespaces; NULL: nothing is kept for the next run */
    bool recovering; /* chunks of the run before are kept, and arena_recover() is to come */

    struct arena_chunk *chunks;
    struct arena_page *pages;
    struct arena_slab *slabs;
    uint32_t slabs_max;
    uint32_t slabs_high; /* records from here on were never used */
    uint32_t slab_free;  /* list of free records, by arena_slab.class */
    struct arena_class *classes;
    uint32_t classes_max;
    uint32_t class_free; /* list of free records, by arena_class.next */
    uint32_t *buckets;   /* hash table of the classes */
    uint32_t bucket_mask;
    struct {
        struct arena_evacuation at[ARENA_EVACUATIONS_MAX];
        uint64_t seq; /* of the evacuation begun last */
    } evacuations;

    uint64_t room_bytes; /* that slots may take: the limit, less what arena_hold() takes off it */
    uint64_t used_bytes, used_slots, slabs_used;
    uint64_t held_pages; /* of evacuations, pages in no slab: free when the evacuation ends */
    uint64_t allocs;     /* calls of arena_alloc() */
    uint64_t chunks_retired;
    uint32_t next_chunk_id;
    uint64_t epoch; /* changes with free runs, partial slabs and principals of chunks */

    struct arena_report report;
    struct prefault *prefault;
    arena_moved_fn *moved; /* NULL: nobody wants to know */
    void *moved_ctx;
    arena_retired_fn *retired; /* NULL: nobody wants to know */
    void *retired_ctx;

    struct arena_room *room;
    struct arena_shift *shift;
    struct arena_losses *losses;
    struct arena_recovery *recovery; /* what arena_warm.c has found so far; NULL: nothing is kept */
};

/* Where each private table lies in the one mapping that holds them. */
enum {
    ARENA_TABLE_CHUNKS,
    ARENA_TABLE_BITS,
    ARENA_TABLE_PAGES,
    ARENA_TABLE_SLABS,
    ARENA_TABLE_CLASSES,
    ARENA_TABLE_BUCKETS,
    ARENA_TABLES
};
struct arena_tables {
    uint64_t at[ARENA_TABLES]; /* offsets in bytes */
    uint64_t bytes;
    uint32_t slabs_max, classes_max, buckets;
};
void arena__tables(uint32_t chunks, uint32_t chunk_pages, struct arena_tables *ret_tables);

/* A slab in a run of `run` pages: slots that fit (0: none), and the pages it then takes. */
uint32_t arena__slab_fit(uint32_t run, uint32_t slot_pages, uint32_t *ret_pages);
/* The shortest run that takes a slab of this slot size. */
uint32_t arena__run_min(uint32_t slot_pages);

static inline uint32_t arena__slot_pages(uint32_t bytes)
{
    return (uint32_t)(((uint64_t)bytes + LAYOUT_PAGE_BYTES - 1) >> LAYOUT_PAGE_SHIFT);
}

static inline uint64_t arena__where(const struct arena *a, uint32_t chunk_id, const void *base,
                                    const void *header)
{
    return layout_where(a->store, chunk_id,
                        (uint32_t)((const uint8_t *)header - (const uint8_t *)base));
}

/* Locations are global page numbers; page 0 is a chunk header, so 0 is no slot. */
static inline struct tier_loc arena__loc(const struct arena *a, uint32_t chunk, uint32_t page)
{
    return (struct tier_loc){chunk * a->chunk_pages + page};
}

static inline struct arena_page *arena__page(const struct arena *a, uint32_t chunk, uint32_t page)
{
    return &a->pages[(uint64_t)chunk * a->chunk_pages + page];
}

static inline void *arena__at(const struct arena_chunk *c, uint32_t page)
{
    return c->mem.base + ((uint64_t)page << LAYOUT_PAGE_SHIFT);
}

static inline uint32_t arena__no(const struct arena *a, const struct arena_slab *s)
{
    return (uint32_t)(s - a->slabs);
}

static inline bool arena__slot_is_free(const struct arena_slab *s, uint32_t slot)
{
    return (s->free[slot / 64] >> (slot % 64)) & 1;
}

/* The slab that begins at this page, or NULL. */
struct arena_slab *arena__slab_at(const struct arena *a, uint32_t chunk, uint32_t page);
/* The slab and number of the slot at loc, which MUST be handed out. */
struct arena_slab *arena__find(const struct arena *a, struct tier_loc loc, uint32_t *ret_slot);

uint64_t arena__next_gen(struct arena *a);
/* Hands out the slab's lowest free slot; the slab must have one. */
struct tier_loc arena__take(struct arena *a, struct arena_slab *s, uint32_t bytes,
                            uint32_t block_no);

/* --- arena_warm.c: chunks of the run before --- */

/* Puts the chunks of the run before in their places; arena_recover() reads their slabs. */
KVC_WARN_UNUSED int arena__take_over(struct arena *a);

/* --- arena_room.c: chunks, runs, classes --- */

/* a->room, which arena_destroy() frees. -ENOMEM. */
KVC_WARN_UNUSED int arena__room_make(struct arena *a);

/* Whether the page is used, by the chunk's bitmap. */
bool arena__bit(const struct arena_chunk *c, uint32_t page);
void arena__mark(struct arena *a, struct arena_chunk *c, uint32_t page, uint32_t pages, bool used);
/* The first used page at or after `page`. */
uint32_t arena__run_end(const struct arena *a, const struct arena_chunk *c, uint32_t page);
uint32_t arena__longest(struct arena *a, struct arena_chunk *c);

struct arena_class *arena__class(const struct arena *a, uint32_t principal, uint32_t slot_pages);
/* A new slab for the class of (principal, slot_pages), or NULL: no run, or no class record. */
struct arena_slab *arena__carve(struct arena *a, uint32_t principal, uint32_t slot_pages);
/* The same in this chunk, which is the principal's and must have a run that is long enough. */
struct arena_slab *arena__carve_in(struct arena *a, uint32_t chunk, uint32_t principal,
                                   uint32_t slot_pages);
struct slot_header *arena__slot_header(const struct arena *a, const struct arena_slab *s,
                                       uint32_t slot);
/* A slab of the evacuation is given back; with the last one it ends, and its pages are free. */
void arena__evacuation_slab_gone(struct arena *a, uint32_t evacuation);
/* Gives back an empty slab: its pages are free, or stay held until its evacuation ends. */
void arena__give_back(struct arena *a, struct arena_slab *s);
/* Whether the principal could get a slot of this size if the limit allowed it. */
bool arena__has_room(struct arena *a, uint32_t principal, uint32_t slot_pages);
/* Makes new memory for the chunk, which nobody owns then. */
KVC_WARN_UNUSED int arena__chunk_make(struct arena *a, uint32_t chunk);
/* Takes *mem as the chunk's memory. */
void arena__chunk_set(struct arena *a, uint32_t chunk, uint32_t id, struct chunk_mem *mem);
struct chunk_want arena__chunk_want(const struct arena *a, uint32_t chunk, uint32_t id);
static inline struct chunk_header *arena__chunk_header(const struct arena_chunk *c)
{
    return (struct chunk_header *)(void *)c->mem.base;
}
/* The slab that lies at `page`, all its slots free and on no list; NULL: no class record. */
struct arena_slab *arena__slab_make(struct arena *a, uint32_t principal, uint32_t chunk,
                                    uint32_t page, uint32_t pages, uint32_t slots,
                                    uint32_t slot_pages);
/* Whether (there) the next run of the daemon looks for a slab at this page. */
void arena__slab_announce(struct arena_chunk *c, uint32_t page, bool there);

/* --- arena_evacuate.c --- */

/* From here on a chunk whose file another process cuts is lost, and the access goes on. Errors are
 * -ENOMEM and those of bus_claim(). */
KVC_WARN_UNUSED int arena__losses_watch(struct arena *a);
/* Also where arena__losses_watch() has failed or was not called. */
void arena__losses_end(struct arena *a);

/* --- arena_shift.c --- */

/* a->shift, which arena_destroy() frees. -ENOMEM. */
KVC_WARN_UNUSED int arena__shift_make(struct arena *a);
/* Whether blocks that may not be evicted are gathered in the chunk (arena_set_stays()). */
bool arena__stays(const struct arena *a, uint32_t chunk);

#endif
