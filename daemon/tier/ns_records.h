/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records beside the arena's chunks, so that the next run knows whose blocks they hold: the store's
 * number, the next chunk's number, and a record for each namespace. They are in one mapped file or
 * memfd with pages of 4 KiB, so a store instruction is enough for a record to outlive the process.
 *
 * A record is bytes that the caller makes and checks; its page has a checksum of its own.
 *
 * Thread: control thread. Memory: in ns_records_open().
 */
#ifndef KVC_TIER_NS_RECORDS_H
#define KVC_TIER_NS_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "backing.h"
#include "err.h"

#define NAMES_RECORD_MAX 4000u

struct ns_records;

/* Most bytes of memory that it takes. */
uint64_t ns_records_bytes(uint32_t records_max);
/* Opens or makes the file: backing_names(). A file that is damaged or of another version is begun
 * anew, with a new store number, so no chunk belongs to it. records_max >= 1. Returns owned. */
KVC_WARN_UNUSED int ns_records_open(struct backing *backing, uint32_t records_max,
                                    struct ns_records **ret_names);
/* Leaves the file. Accepts NULL. */
void ns_records_close(struct ns_records **names);

/* 16 bytes that say which store this is; borrowed. */
const uint8_t *ns_records_store(const struct ns_records *names);
/* Whether the file of the run before is used. */
bool ns_records_is_old(const struct ns_records *names);
/* Whether there was a file that could not be used, so it was begun anew. */
bool ns_records_was_lost(const struct ns_records *names);

/* The next chunk id: no chunk has had it, or a higher one. */
uint32_t ns_records_next_chunk(const struct ns_records *names);
/* Chunk ids below `next` may be in use from now on. `next` never falls. */
void ns_records_set_next_chunk(struct ns_records *names, uint32_t next);

/* Stores the record of `print` (not 0); the next ns_records_sweep() leaves it. -ENOSPC: all pages
 * are in use; -EINVAL: print 0, or more than NAMES_RECORD_MAX bytes. */
KVC_WARN_UNUSED int ns_records_put(struct ns_records *names, uint64_t print, const void *record,
                                   uint32_t bytes);
/* Whether `print` has a record; the next ns_records_sweep() then leaves it. */
bool ns_records_has(struct ns_records *names, uint64_t print);
/* Removes records for which neither put nor has was called since the last sweep, or the start. */
void ns_records_sweep(struct ns_records *names);
uint32_t ns_records_count(const struct ns_records *names);

/* Calls for each record that is whole; false removes it. Returns how many stay. */
typedef bool(names_fn)(void *ctx, uint64_t print, const uint8_t *record, uint32_t bytes);
uint32_t ns_records_each(struct ns_records *names, names_fn *fn, void *ctx);

#endif
