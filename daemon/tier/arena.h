/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host tier's memory: chunks (memfds or files), slabs carved from them, slots handed out.
 *
 * A chunk belongs to one principal from its first slab on. To pass its room to another principal it
 * is replaced when it is empty: a new one with a new id takes its place, the old one is truncated
 * and closed. Where chunks are kept (backing.h), those of the run before are taken over at start. A
 * slab serves one slot size and goes back to its chunk when its last slot is freed.
 *
 * Limits are exact: the bytes of slots handed out never pass limit_bytes, and slots of one size of
 * at most chunk_bytes / 16 reach it (arena_sizes() says how many chunks that takes).
 *
 * Threads: one (the control thread) for everything. What a slot's payload holds is none of the
 * arena's business, but for the generation that tells readers when it changed.
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
    /* 0: as many as make the limit exact. Else the number is what limits, and limit_bytes is
     * chunks * chunk_bytes, which slots and their headers share. */
    uint32_t chunks;
    enum arena_huge huge;
    bool prefault;
    const struct topo *topo; /* borrowed until arena_destroy(); NULL: no NUMA placement */
    /* Where chunks are, and wait for the next run; with ARENA_PERSIST_OFF the rest is not looked
     * at. What it points to is borrowed until arena_destroy(). */
    struct backing_config backing;
    uint32_t names_max; /* namespaces whose records are kept; 1 and up */
    /* prints[p] names principal p in every run, for all processes that may read what belongs to it
     * now; 0, or p >= nprints: nothing of p is kept. Borrowed until arena_destroy(). */
    const uint64_t *prints;
    uint32_t nprints;
};

struct arena_sizes {
    uint64_t chunk_bytes;
    uint32_t chunks;
    uint64_t largest_bytes; /* the largest payload that a chunk holds */
    /* Of the memory budget: chunks, one more that is being given back, and the private tables. All
     * of it is address space at first; pages come as they are used or faulted in. */
    uint64_t chunk_total_bytes;
    uint64_t table_bytes;
    uint64_t prefault_bytes; /* how much of the chunks is faulted in at start */
    uint64_t likely_bytes;   /* how much the limit is likely to need of them */
    uint64_t yield_bytes;    /* of slots in one chunk, at least, where none is above chunk / 16 */
};

struct arena;

/* Borrows config for the call. NULL, or what is wrong with it in words that name the limits. */
const char *arena_config_problem(const struct arena_config *config);
/* The arithmetic for a config without problem. */
void arena_sizes(const struct arena_config *config, struct arena_sizes *ret_sizes);
/* Bytes of slots for blocks of `bytes` that can be handed out if there is nothing else; less than
 * the limit only above chunk_bytes / 16 (or by less than one slot). */
uint64_t arena_reach_bytes(const struct arena_config *config, uint32_t bytes);

/* Bytes of slots of one size (arena_slot_bytes()) that a chunk holds if there is nothing else. */
uint64_t arena_fill_bytes(const struct arena *a, uint32_t slot_bytes);

/* -EINVAL (see arena_config_problem), -ENOMEM, -EMFILE, -EAGAIN, and with ARENA_HUGE_REQUIRE what
 * refused huge pages; those of backing_open(), and -ENOSPC when the directory's file system is
 * smaller than the chunks. Returns owned; no page of a chunk is touched but for the headers of
 * those that were there. With those, arena_recover() comes before anything else. */
KVC_WARN_UNUSED int arena_create(const struct arena_config *config, struct arena **ret_arena);
/* Chunks that are kept stay, with what was published in them. */
void arena_destroy(struct arena **arena);

/* What is still there from the run before: a slot that was published and not freed since. */
struct arena_found {
    struct tier_label label; /* ns is 0 */
    uint32_t principal;
    uint32_t bytes;
    struct hash128 sum; /* that the payload had; nobody has looked at it since */
    struct tier_loc loc;
    uint64_t order; /* grows with the time at which it was published, within one run */
};
/* The slot's owner from now on, or UINT32_MAX: not wanted, its room is free again. Must not call
 * the arena but for arena_view(), arena_sum() and arena_payload(). */
typedef uint32_t(arena_found_fn)(void *ctx, const struct arena_found *found);

struct arena_recovery {
    uint32_t chunks; /* taken over, those without an owner included */
    /* Not taken over; their memory is freed. */
    uint32_t damaged;   /* header, or a file that is not one of ours */
    uint32_t foreign;   /* of another store or version */
    uint32_t misfits;   /* of another host.chunk, or more than host.limit has now */
    uint32_t ownerless; /* of a principal that there is no more */
    uint32_t slabs, slabs_damaged;
    uint64_t slots, bytes; /* taken over; bytes of slots */
    uint64_t slots_damaged;
    uint64_t slots_unwanted; /* by arena_found_fn, or by the limit */
};
/* Once, after arena_create(). Reads headers alone. Each slot that is kept gets a generation of this
 * run. */
void arena_recover(struct arena *a, arena_found_fn *each, void *ctx,
                   struct arena_recovery *ret_recovery);

struct ns_records;
/* The records beside the chunks; NULL where nothing is kept. Borrowed. */
struct ns_records *arena_names(const struct arena *a);

/* See tier.h for the contract of these. owner is any number but UINT32_MAX. */
KVC_WARN_UNUSED int arena_alloc(struct arena *a, uint32_t principal, uint32_t bytes,
                                struct tier_loc beside, uint32_t owner, struct tier_loc *ret_loc);
void arena_free(struct arena *a, struct tier_loc loc);
void arena_revoke(struct arena *a, struct tier_loc loc);
uint32_t arena_evacuate(struct arena *a, uint32_t principal, uint32_t bytes, bool others,
                        tier_occupant_fn *each, void *ctx);
/* Of the chunk (of arena_sizes.chunks); NULL: nothing stays. One per arena. */
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
/* Which of arena_sizes.chunks a slot handed out is in; its offset is that of arena_view(). */
uint32_t arena_place(const struct arena *a, struct tier_loc loc);
/* The same, of any slot. */
uint32_t arena_chunk_no(const struct arena *a, struct tier_loc loc);
/* Where a slot handed out is in this process: payload, and its bytes rounded up to a page. */
void *arena_payload(const struct arena *a, struct tier_loc loc);
/* Stamps label and sum, then a new generation (release). `bytes` as given to arena_alloc(). */
void arena_publish(struct arena *a, struct tier_loc loc, const struct tier_label *label,
                   const struct hash128 *sum, uint32_t bytes);
void arena_view(const struct arena *a, struct tier_loc loc, struct tier_view *ret_view);
struct hash128 arena_sum(const struct arena *a, struct tier_loc loc);

/* The read-only descriptor of a chunk that belongs to `principal`: borrowed, until the chunk is
 * retired. -ENOENT: no such chunk (any more). -EACCES: it is another principal's, or nobody's. */
KVC_WARN_UNUSED int arena_chunk_fd(const struct arena *a, uint32_t chunk, uint32_t principal,
                                   uint64_t *ret_bytes);

/* Called when a chunk's memory is about to go, before its pages do: from arena_alloc(),
 * arena_free() or arena_evacuate(), so it must not call the arena. One per arena. */
typedef void(arena_retired_fn)(void *ctx, uint32_t chunk, uint32_t principal);
void arena_set_retired(struct arena *a, arena_retired_fn *fn, void *ctx);

/* Called when the memory of chunk `no` (of arena_sizes.chunks) is about to go, or has another base
 * from now on; from where arena_retired_fn is. One per arena. */
typedef void(arena_moved_fn)(void *ctx, uint32_t no);
void arena_set_moved(struct arena *a, arena_moved_fn *fn, void *ctx);
/* The base of chunk `no` (of arena_sizes.chunks) once it has an owner and has been faulted in;
 * otherwise NULL. */
uint8_t *arena_settled(const struct arena *a, uint32_t no);
/* The same, and one that has an owner is faulted in, prefault or not: no more in all than prefault
 * would. */
uint8_t *arena_settle(struct arena *a, uint32_t no);

/* Whether another process cut the file of a chunk: this one goes on with zeroes, and nothing that
 * was or comes there can be served. */
enum arena_loss { ARENA_LOSS_NONE, ARENA_LOSS_KNOWN, ARENA_LOSS_NEW };
enum arena_loss arena_has_lost(const struct arena *a);
/* At once when there is a new one, and every now and then while there is one: tells of each slot of
 * such chunks that is handed out, to be freed. A chunk is replaced when it is empty. Returns how
 * many were not known before. */
uint32_t arena_lost(struct arena *a, tier_occupant_fn *each, void *ctx);

/* So many bytes of chunks that were retired are not free yet, for somebody has them registered.
 * What is beyond one chunk, which is no part of the limit, counts against it. */
void arena_hold(struct arena *a, uint64_t bytes);

/* While memory that belongs to chunk `no` (of arena_sizes.chunks), or to one that was at its place
 * before, is lent to others: the chunk stays usable for its owner, but no room is handed out to the
 * next one until it is lent no more. */
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
    uint64_t evacuating_bytes; /* pages held back until their region is empty */
    uint64_t prefault_bytes;   /* the target of faulting in ahead */
    int prefault_error;        /* why it ended early; 0 */
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
