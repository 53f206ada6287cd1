/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host tier: tier.h over the arena and the copier.
 *
 * Threads: all functions on the control thread. The loop is borrowed until host_destroy().
 * Memory: all of it is allocated in host_create(), except for memfds that replace others when room
 * passes from one principal to another.
 */
#ifndef KVC_TIER_HOST_H
#define KVC_TIER_HOST_H

#include <stdint.h>

#include "arena.h"
#include "copier.h"
#include "err.h"
#include "loop.h"
#include "ns_records.h"
#include "pins.h"
#include "tier.h"

struct host_config {
    struct arena_config arena;
    struct copier_config copier;
    unsigned buffers; /* of the loop, numbers 0 and up: host_buffers(), or 0: none is registered */
};

/* One line of the memory budget. */
struct host_budget {
    uint64_t slots_bytes;    /* the limit */
    uint64_t overhead_bytes; /* headers and what no slot fits in: chunks beyond the limit */
    uint64_t spare_bytes;    /* one chunk on its way out while its successor fills */
    uint64_t table_bytes;    /* private, at most; touched as it is used */
};

struct host;

/* NULL, or what is wrong with the configuration, in words. */
const char *host_config_problem(const struct host_config *config);
void host_budget(const struct host_config *config, struct host_budget *ret_budget);
/* Their sum: the most that the tier ever takes, staging excluded. */
uint64_t host_footprint(const struct host_config *config);

/* How many of the loop's buffers (loop_config.buffers_max) chunks can be registered as. */
unsigned host_buffers(const struct host_config *config);

/* Errors of arena_create() and copier_create(). Returns owned. Quick at any size. */
KVC_WARN_UNUSED int host_create(const struct host_config *config, struct loop *loop,
                                struct host **ret_host);
/* Operations that have not run get done() with -ECANCELED, from here; they must not call the tier.
 * Before the loop's destruction. */
void host_destroy(struct host **host);

/* Borrowed; NULL gives NULL. */
struct tier *host_tier(struct host *host);

/* The read-only descriptor of a chunk that belongs to `principal`, borrowed until the chunk is
 * retired. -ENOENT: no such chunk (any more). -EACCES: it is another principal's, or nobody's. */
KVC_WARN_UNUSED int host_chunk_fd(const struct host *host, uint32_t chunk, uint32_t principal,
                                  uint64_t *ret_bytes);

/* Called when a chunk is about to go, from alloc, free or drain of the tier: it must not call the
 * tier. The workers of `principal` are to unmap it; its pages are freed right after. */
void host_set_retired_cb(struct host *host, arena_retired_fn *fn, void *ctx);

/* For devices, which copy faster from and to memory that is registered with them. `settled` is told
 * of each chunk once, when it has an owner and has been faulted in (a few at a time, from
 * host_turn(); for this it is faulted in without prefault too), and `gone` of a chunk that it was
 * told of, before its pages go. `leaving` says how many bytes that are gone are registered still:
 * these pages are not free, so what is beyond one chunk counts against the limit. NULL: nobody asks
 * any more. */
typedef void(host_chunk_fn)(void *ctx, void *base, uint64_t bytes);
typedef uint64_t(host_leaving_fn)(void *ctx);
void host_set_settled_cb(struct host *host, host_chunk_fn *settled, host_chunk_fn *gone,
                         host_leaving_fn *leaving, void *ctx);

/* Whether another process cut the memory of a chunk: see arena_lost(). */
enum arena_loss host_has_lost(const struct host *host);
uint32_t host_lost(struct host *host, tier_occupant_fn *each, void *ctx);

/* ---- what outlives a run (host_config.arena.backing) ---- */

struct host_recovery {
    void *ctx;
    /* Before the blocks: the record of a namespace. False: it cannot be used, and is removed. */
    names_fn *ns;
    /* See arena_recover(). What it takes is to be checked (TIER_VERIFY) before it is served. */
    arena_found_fn *block;
};
/* Once, before the first operation of the tier, and before any namespace's record is put; where
 * nothing is kept it does nothing. A daemon that also reads from storage into host memory has to
 * hold its locks on that storage by then: I/O of a killed one may still write into its chunks. */
void host_recover(struct host *host, const struct host_recovery *r,
                  struct arena_recovery *ret_recovery);
/* What came of it, for the log: the i-th line, NULL past the last. Borrowed until the next call. */
const char *host_recovery_note(struct host *host, unsigned i);

/* Namespaces' records beside the chunks; see ns_records.h for the contract. Where nothing is kept,
 * put does nothing and has() is true. */
KVC_WARN_UNUSED int host_names_put(struct host *host, uint64_t print, const void *record,
                                   uint32_t bytes);
bool host_names_has(struct host *host, uint64_t print);
void host_names_sweep(struct host *host);

/* The i-th line for the startup log ("" never; NULL past the last): chunks, huge pages or why not,
 * NUMA, sealing, where chunks are kept, copy threads. Borrowed; valid until the next call. */
#define HOST_NOTES 6
const char *host_note(struct host *host, unsigned i);

/* Once a turn, after loop_turn(): see copier_turn(); now and then a piece of a chunk is registered
 * with the loop (pins.h). And whether the next turn must not wait. */
void host_turn(struct host *host);
bool host_is_due(const struct host *host);

void host_arena_stats(const struct host *host, struct arena_stats *ret_stats);
const struct histo *host_copy_ns(const struct host *host); /* of copies into slots; borrowed */
void host_pins_stats(const struct host *host, struct pins_stats *ret_stats);

#endif
