/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena's background thread: faults memory in before it is needed, and gives memory back.
 *
 * Both cost far too much for the control thread (a GiB of small pages takes about half a second to
 * fault in and tens of milliseconds to free). Ranges are numbered; they are faulted in the order of
 * their numbers, in steps, until the target of prefault_aim() is reached. Ranges that somebody
 * wants are faulted in as well.
 *
 * Threads: all functions from the one that created it; prefault_stats() from any.
 */
#ifndef KVC_TIER_PREFAULT_H
#define KVC_TIER_PREFAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "chunk.h"
#include "err.h"

struct prefault;

struct prefault_stats {
    uint64_t faulted_bytes; /* of the memory that the ranges have now */
    int error;              /* why faulting in has ended early; 0: it has not */
};

/* ranges_max >= 1. Nothing is faulted in before prefault_aim(). -ENOMEM, -EAGAIN. */
KVC_WARN_UNUSED int prefault_create(uint32_t ranges_max, struct prefault **ret_prefault);
/* Ends the thread within one step, after it has destroyed the chunk of prefault_retire(). */
void prefault_destroy(struct prefault **prefault);

/* From now on ranges are faulted in until this many bytes are there. */
void prefault_aim(struct prefault *prefault, uint64_t target_bytes);

/* Range `no` is this memory from now on, no page of it touched yet; NULL and 0: no memory. Borrowed
 * until the next call. Only a step that is running may still touch the old memory, and
 * prefault_retire() waits for it. huge: transparent pages of 2 MiB are tried. */
void prefault_set(struct prefault *prefault, uint32_t no, void *base, uint64_t bytes, bool huge);

/* Wants range `no`: it is faulted in before ranges that are not wanted, while fewer than
 * `most_bytes` are faulted in. prefault_set() ends the wish. */
void prefault_want(struct prefault *prefault, uint32_t no, uint64_t most_bytes);

/* Whether all of range `no` has been faulted in. */
bool prefault_is_done(struct prefault *prefault, uint32_t no);

/* Takes *mem and destroys it in the background. Waits until the chunk before is destroyed, so that
 * at most one chunk exists beyond the arena's number. */
void prefault_retire(struct prefault *prefault, struct chunk_mem *mem);

void prefault_stats(struct prefault *prefault, struct prefault_stats *ret_stats);

#endif
