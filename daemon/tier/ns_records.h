/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records beside the arena's chunks, so that the next run knows whose blocks they hold: the store's
 * number, the next chunk's, and a record for each namespace. One file or memfd of pages of 4 KiB,
 * in memory: a store instruction is enough for it to outlive the process.
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

/* Memory that it takes, at most. */
uint64_t ns_records_bytes(uint32_t records_max);
/* Opens or makes it: backing_names(). A file that is not one of ours, or of another version, is
 * begun anew: with another store, so that no chunk belongs to it. records_max >= 1. Returns owned.
 */
KVC_WARN_UNUSED int ns_records_open(struct backing *backing, uint32_t records_max,
                                    struct ns_records **ret_names);
/* Leaves the file. Accepts NULL. */
void ns_records_close(struct ns_records **names);

/* 16 bytes that say which store this is; borrowed. */
const uint8_t *ns_records_store(const struct ns_records *names);
/* It was there, and can be trusted. */
bool ns_records_is_old(const struct ns_records *names);
/* It was there, and could not be used: it is begun anew. */
bool ns_records_was_lost(const struct ns_records *names);

/* No chunk has had this id, or a higher one. */
uint32_t ns_records_next_chunk(const struct ns_records *names);
/* Chunk ids below `next` may be in use from now on; it never goes back. */
void ns_records_set_next_chunk(struct ns_records *names, uint32_t next);

/* The record of `print` (not 0) is this from now on, and one that ns_records_sweep() leaves.
 * -ENOSPC: there is no room; -EINVAL: print 0, or more than NAMES_RECORD_MAX bytes. */
KVC_WARN_UNUSED int ns_records_put(struct ns_records *names, uint64_t print, const void *record,
                                   uint32_t bytes);
/* Whether there is one; then it is one that ns_records_sweep() leaves. */
bool ns_records_has(struct ns_records *names, uint64_t print);
/* Removes those that neither was called for since the last sweep, or since the start. */
void ns_records_sweep(struct ns_records *names);
uint32_t ns_records_count(const struct ns_records *names);

/* Calls for each record that is whole; false removes it. Returns how many stay. */
typedef bool(names_fn)(void *ctx, uint64_t print, const uint8_t *record, uint32_t bytes);
uint32_t ns_records_each(struct ns_records *names, names_fn *fn, void *ctx);

#endif
