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
    unsigned
        buffers; /* of the loop, from number 0, as host_buffers() says; 0: none is registered */
};

/* One line of the memory budget. */
struct host_budget {
    uint64_t slots_bytes;    /* the limit */
    uint64_t overhead_bytes; /* of chunks beyond the limit: headers, and gaps without a slot */
    uint64_t spare_bytes;    /* one chunk that is being freed while its successor fills */
    uint64_t table_bytes;    /* private, at most; touched as it is used */
};

struct host;

/* NULL, or what is wrong with the configuration, in words. */
const char *host_config_problem(const struct host_config *config);
void host_budget(const struct host_config *config, struct host_budget *ret_budget);
/* The sum of host_budget: the most memory that the tier ever takes, without staging. */
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

/* fn is called before a chunk's pages are freed, from alloc, free or evacuate of the tier; it must
 * not call the tier. It tells the workers of `principal` to unmap the chunk. */
void host_set_retired_cb(struct host *host, arena_retired_fn *fn, void *ctx);

/* For devices, which copy faster from and to memory that is registered with them. ready: called
 * once for each chunk that has a principal and is faulted in (also without prefault), from
 * host_turn(), a few at a time. gone: called for such a chunk before its pages are freed. leaving:
 * returns the bytes of gone chunks that are still registered; those beyond one chunk count against
 * the limit. NULL: no device wants to know any more. */
typedef void(host_chunk_fn)(void *ctx, void *base, uint64_t bytes);
typedef uint64_t(host_leaving_fn)(void *ctx);
void host_set_ready_cb(struct host *host, host_chunk_fn *ready, host_chunk_fn *gone,
                       host_leaving_fn *leaving, void *ctx);

/* Whether another process cut the file of a chunk: see arena_has_lost(), arena_lost(). */
enum arena_loss host_has_lost(const struct host *host);
uint32_t host_lost(struct host *host, tier_occupant_fn *each, void *ctx);

/* ---- memory that outlives a run (host_config.arena.backing) ---- */

struct host_recovery {
    void *ctx;
    /* The record of a namespace; all come before the blocks. False: unusable, and removed. */
    names_fn *ns;
    /* See arena_recover(). A block that it takes must be checked (TIER_VERIFY) before use. */
    arena_found_fn *block;
};
/* Called once, before the first operation of the tier and the first host_names_put(). No-op if
 * nothing is kept. A daemon that reads from storage into host memory must hold its locks on that
 * storage before: until then I/O of a killed daemon may still write into the chunks. */
void host_recover(struct host *host, const struct host_recovery *r,
                  struct arena_recovery *ret_recovery);
/* The i-th line of the log about it; NULL past the last. Borrowed until the next call. */
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

/* Called once a turn, after loop_turn(): runs copier_turn(), and now and then registers a piece of
 * a chunk with the loop (pins.h). */
void host_turn(struct host *host);
/* Whether the next turn must not wait. */
bool host_is_due(const struct host *host);

void host_arena_stats(const struct host *host, struct arena_stats *ret_stats);
const struct histo *host_copy_ns(const struct host *host); /* of copies into slots; borrowed */
void host_pins_stats(const struct host *host, struct pins_stats *ret_stats);

#endif
