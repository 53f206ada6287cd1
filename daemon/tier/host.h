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
#include "tier.h"

struct host_config {
    struct arena_config arena;
    struct copier_config copier;
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

/* The i-th line for the startup log ("" never; NULL past the last): chunks, huge pages or why not,
 * NUMA, sealing, copy threads. Borrowed; valid until the next call. */
#define HOST_NOTES 5
const char *host_note(struct host *host, unsigned i);

void host_arena_stats(const struct host *host, struct arena_stats *ret_stats);
void host_copier_stats(const struct host *host, struct copier_stats *ret_stats);

#endif
