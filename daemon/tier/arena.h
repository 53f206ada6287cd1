/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host tier's memory: chunks (memfds or files), slabs carved from them, slots handed out.
 *
 * A chunk belongs to one principal from its first slab on. To pass its room to another principal it
 * is replaced when it is empty: a new one with a new id takes its place, the old one is truncated
 * and closed. Where chunks are kept (backing.h), those of the run before are taken over at start. A
 * slab has slots of one size, and is given back to its chunk when its last slot is freed.
 *
 * Limits are exact: the bytes of slots handed out never pass limit_bytes, and slots of one size of
 * at most chunk_bytes / 16 reach it (arena_sizes() says how many chunks that takes).
 *
 * Thread: control thread. Only arena_shift() touches a slot's payload: it copies the payload to
 * another slot. The generation tells readers when the payload changed.
 * Memory: all of it is allocated in arena_create(), except for chunks that replace others.
 */
#ifndef KVC_TIER_ARENA_H
#define KVC_TIER_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "backing.h"
#include "chunk.h"
#include "err.h"
#include "tier.h"

#define ARENA_CHUNK_MIN (UINT64_C(2) << 20)
#define ARENA_CHUNK_MAX (UINT64_C(1) << 30)
#define ARENA_LIMIT_MIN (UINT64_C(4) << 20)
#define ARENA_LIMIT_MAX (UINT64_C(8) << 40)
/* Pairs (principal, slot size) that hold room at one time; one more is KVC_E_NO_ROOM. */
#define ARENA_CLASSES_MAX     16384u
#define ARENA_EVACUATIONS_MAX 4u

struct arena_config {
    uint64_t limit_bytes; /* of slots handed out; ARENA_LIMIT_MIN to ARENA_LIMIT_MAX */
    uint64_t chunk_bytes; /* 0: limit / 32, at least 4 MiB, at most 1 GiB */
    /* Number of chunks. 0: as many as slots of limit_bytes need. Else limit_bytes is
     * chunks * chunk_bytes, and slots and their headers share it. */
    uint32_t chunks;
    enum arena_huge huge;
    bool prefault;
    const struct topo *topo; /* borrowed until arena_destroy(); NULL: no NUMA placement */
    /* Where chunks are, and wait for the next run of the daemon. With ARENA_PERSIST_OFF its other
     * fields are not read. Pointers in it are borrowed until arena_destroy(). */
    struct backing_config backing;
    uint32_t names_max; /* most namespaces whose records are kept; at least 1 */
    /* prints[p] names principal p in every run. 0, or p >= nprints: no chunk of p is kept for the
     * next run. Borrowed until arena_destroy(). */
    const uint64_t *prints;
    uint32_t nprints;
};

struct arena_sizes {
    uint64_t chunk_bytes;
    uint32_t chunks;
    uint64_t largest_bytes; /* the largest payload that a chunk holds */
    /* For the memory budget: all chunks, with one more that is being freed; the private tables. At
     * first both are address space alone; pages come as they are used or faulted in. */
    uint64_t chunk_total_bytes;
    uint64_t table_bytes;
    uint64_t prefault_bytes; /* how much of the chunks is faulted in at start */
    uint64_t likely_bytes;   /* bytes of chunks that slots of limit_bytes are likely to need */
    uint64_t yield_bytes; /* of slots in one chunk at least, if no slot is above chunk_bytes / 16 */
};

struct arena;

/* Borrows config for the call. NULL, or what is wrong with it in words that name the limits. */
const char *arena_config_problem(const struct arena_config *config);
/* Sizes that arena_create() would choose. The config must have no problem. */
void arena_sizes(const struct arena_config *config, struct arena_sizes *ret_sizes);
/* Bytes of slots that can be handed out if all blocks have `bytes`. It is the limit, less a part of
 * a slot; slots above chunk_bytes / 16 reach less. */
uint64_t arena_reach_bytes(const struct arena_config *config, uint32_t bytes);

/* Bytes of slots that a chunk holds if all have this size (arena_slot_bytes()). */
uint64_t arena_fill_bytes(const struct arena *a, uint32_t slot_bytes);

/* -EINVAL (see arena_config_problem), -ENOMEM, -EMFILE, -EAGAIN, and with ARENA_HUGE_REQUIRE what
 * refused huge pages; those of backing_open(), and -ENOSPC when the directory's file system is
 * smaller than the chunks. Returns owned. Touches no page but the headers of chunks of the run
 * before. If there are such chunks, arena_recover() must be called first. */
KVC_WARN_UNUSED int arena_create(const struct arena_config *config, struct arena **ret_arena);
/* Chunks that are kept stay for the next run, with the labelled blocks in them. Accepts NULL. */
void arena_destroy(struct arena **arena);

/* A slot of the run before that was labelled and not freed. */
struct arena_found {
    struct tier_label label; /* ns is 0 */
    uint32_t principal;
    uint32_t bytes;
    struct hash128 sum; /* of the payload when it was stored; not compared yet */
    struct tier_loc loc;
    uint64_t order; /* grows with the time at which it was labelled, within one run */
};
/* Returns the slot's new block_no; UINT32_MAX: the block is not wanted, and the slot is freed. It
 * may call arena_view(), arena_sum() and arena_payload(), no other function of the arena. */
typedef uint32_t(arena_found_fn)(void *ctx, const struct arena_found *found);

struct arena_recovery {
    uint32_t chunks; /* taken over, those without a principal included */
    /* Chunks that were not taken over; their memory is freed. */
    uint32_t damaged;      /* the header is damaged, or the file is not the daemon's */
    uint32_t foreign;      /* of another store or version */
    uint32_t misfits;      /* of another size (host.chunk), or more than host.limit allows */
    uint32_t no_principal; /* their principal does not exist any more */
    uint32_t slabs, slabs_damaged;
    uint64_t slots, bytes; /* taken over; bytes of slots */
    uint64_t slots_damaged;
    uint64_t slots_unwanted; /* refused by arena_found_fn, or beyond the limit */
};
/* Tells `each` of the blocks of the run before. Called once, after arena_create(). Reads headers
 * alone. Each slot that is kept gets a new generation. */
void arena_recover(struct arena *a, arena_found_fn *each, void *ctx,
                   struct arena_recovery *ret_recovery);

struct ns_records;
/* The records beside the chunks; NULL where nothing is kept. Borrowed. */
struct ns_records *arena_names(const struct arena *a);

/* See tier.h for the contract of these. block_no is any number but UINT32_MAX. */
KVC_WARN_UNUSED int arena_alloc(struct arena *a, uint32_t principal, uint32_t bytes,
                                struct tier_loc beside, uint32_t block_no,
                                struct tier_loc *ret_loc);
void arena_free(struct arena *a, struct tier_loc loc);
void arena_invalidate(struct arena *a, struct tier_loc loc);
uint32_t arena_evacuate(struct arena *a, uint32_t principal, uint32_t bytes, bool others,
                        tier_occupant_fn *each, void *ctx);
/* Whether chunk `no` (below arena_sizes.chunks) has a block that may not be evicted. NULL: none
 * has. One function per arena. */
typedef bool(arena_stays_fn)(void *ctx, uint32_t no);
void arena_set_stays(struct arena *a, arena_stays_fn *fn, void *ctx);
KVC_WARN_UNUSED int arena_shift(struct arena *a, struct tier_loc loc, const struct tier_shift *s,
                                struct tier_loc *ret_loc);
bool arena_helps(struct arena *a, struct tier_loc loc, uint32_t principal, uint32_t bytes);
uint32_t arena_slot_bytes(uint32_t bytes);
/* Whether a block of this size can ever be handed out. */
bool arena_can_hold(const struct arena *a, uint32_t bytes);

/* Whether a slot handed out is of the size that a block of `bytes` gets. */
bool arena_is_for(const struct arena *a, struct tier_loc loc, uint32_t bytes);
/* Number of the chunk (below arena_sizes.chunks) of a slot that is handed out. */
uint32_t arena_chunk_of(const struct arena *a, struct tier_loc loc);
/* The same, for a slot that may be free. */
uint32_t arena_chunk_no(const struct arena *a, struct tier_loc loc);
/* The payload of a slot that is handed out, in this process: whole pages. */
void *arena_payload(const struct arena *a, struct tier_loc loc);
/* Writes label, sum and then a new generation (release) into the slot's header. `bytes` as given to
 * arena_alloc(). */
void arena_set_label(struct arena *a, struct tier_loc loc, const struct tier_label *label,
                     const struct hash128 *sum, uint32_t bytes);
void arena_view(const struct arena *a, struct tier_loc loc, struct tier_view *ret_view);
struct hash128 arena_sum(const struct arena *a, struct tier_loc loc);

/* The read-only descriptor of a chunk that belongs to `principal`: borrowed, until the chunk is
 * retired. -ENOENT: no such chunk (any more). -EACCES: it is another principal's, or nobody's. */
KVC_WARN_UNUSED int arena_chunk_fd(const struct arena *a, uint32_t chunk, uint32_t principal,
                                   uint64_t *ret_bytes);

/* Called before a chunk's memory is freed, from arena_alloc(), arena_free() or arena_evacuate(). It
 * must not call the arena. One function per arena. */
typedef void(arena_retired_fn)(void *ctx, uint32_t chunk, uint32_t principal);
void arena_set_retired(struct arena *a, arena_retired_fn *fn, void *ctx);

/* Called when the memory of chunk `no` (below arena_sizes.chunks) is about to be freed, or has
 * another base from now on; from the same functions as arena_retired_fn. One function per arena. */
typedef void(arena_moved_fn)(void *ctx, uint32_t no);
void arena_set_moved(struct arena *a, arena_moved_fn *fn, void *ctx);
/* The base of chunk `no` (below arena_sizes.chunks). NULL: no principal, or not faulted in. */
uint8_t *arena_ready_base(const struct arena *a, uint32_t no);
/* As arena_ready_base(). If the chunk has a principal and is not faulted in, asks for that, also
 * without `prefault`; at most likely_bytes of all chunks are faulted in so. */
uint8_t *arena_want_ready(struct arena *a, uint32_t no);

/* Whether another process cut the file of a chunk. This process then reads zeroes there, and no
 * block of the chunk can be served. KNOWN: arena_lost() has told of it; NEW: it has not. */
enum arena_loss { ARENA_LOSS_NONE, ARENA_LOSS_KNOWN, ARENA_LOSS_NEW };
enum arena_loss arena_has_lost(const struct arena *a);
/* Tells `each` of every slot of such chunks that is handed out, to be freed; an empty chunk is
 * replaced. To be called at once with ARENA_LOSS_NEW, and every now and then with ARENA_LOSS_KNOWN.
 * Returns the number of chunks that were not known before. */
uint32_t arena_lost(struct arena *a, tier_occupant_fn *each, void *ctx);

/* Says how many bytes of retired chunks are not free yet, because a device has them registered. One
 * chunk is no part of the limit; bytes beyond it count against the limit. */
void arena_hold(struct arena *a, uint64_t bytes);

/* Says whether memory of chunk `no` (below arena_sizes.chunks), or of an earlier chunk at its
 * place, is lent to workers. The chunk's principal can use it; another principal gets no room in it
 * while it is lent. */
void arena_lend(struct arena *a, uint32_t no, bool is_lent);

struct arena_stats {
    uint64_t limit_bytes;
    uint64_t used_bytes;
    uint64_t used_slots;
    uint64_t mapped_bytes;
    uint64_t faulted_bytes;
    uint64_t slabs;
    uint32_t chunks;
    uint64_t yield_bytes; /* see arena_sizes */
    uint64_t chunks_owned;
    uint64_t chunks_retired;   /* since start */
    uint64_t evacuating_bytes; /* pages held back until their evacuation ends */
    uint64_t prefault_bytes;   /* the target of faulting in ahead */
    int prefault_error;        /* why faulting in ended early; 0: it did not */
};
void arena_stats(const struct arena *a, struct arena_stats *ret_stats);

/* How the first chunks came out, for the startup log. */
struct arena_report {
    struct arena_sizes sizes;
    uint32_t hugetlb_chunks;
    int huge_err;        /* the last reason for a chunk without huge pages; 0 */
    int numa_err;        /* the last reason for a chunk not bound; 0 */
    bool sealed;         /* all chunks are sealed against new writable mappings */
    int keep_err;        /* the last reason for a chunk that the service manager did not take; 0 */
    const char *backing; /* where chunks are kept, in words; borrowed */
};
void arena_report(const struct arena *a, struct arena_report *ret_report);

/* For tests: verifies every invariant between tables, bitmaps, lists and headers (MUST). Slow. */
void arena_check(struct arena *a);

#endif
