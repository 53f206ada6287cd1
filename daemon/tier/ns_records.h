/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records beside the arena's chunks, so that the next run knows whose blocks they hold: the store's
 * number, the next chunk's, and a record for each namespace. One file or memfd of pages of 4 KiB,
 * in memory: a store instruction is enough for it to outlive the process.
 *
 * A record is bytes that the caller makes and checks; its page has a checksum of its own.
 *
 * Thread: control thread. Memory: in names_open().
 */
#ifndef KVC_TIER_NS_RECORDS_H
#define KVC_TIER_NS_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "backing.h"
#include "err.h"

#define NAMES_RECORD_MAX 4000u

struct names;

/* Memory that it takes, at most. */
uint64_t names_bytes(uint32_t records_max);
/* Opens or makes it: backing_names(). A file that is not one of ours, or of another version, is
 * begun anew: with another store, so that no chunk belongs to it. records_max >= 1. Returns owned.
 */
KVC_WARN_UNUSED int names_open(struct backing *backing, uint32_t records_max,
                               struct names **ret_names);
/* Leaves the file. Accepts NULL. */
void names_close(struct names **names);

/* 16 bytes that say which store this is; borrowed. */
const uint8_t *names_store(const struct names *names);
/* It was there, and can be trusted. */
bool names_is_old(const struct names *names);
/* It was there, and could not be used: it is begun anew. */
bool names_was_lost(const struct names *names);

/* No chunk has had this id, or a higher one. */
uint32_t names_next_chunk(const struct names *names);
/* Chunk ids below `next` may be in use from now on; it never goes back. */
void names_set_next_chunk(struct names *names, uint32_t next);

/* The record of `print` (not 0) is this from now on, and one that names_sweep() leaves. -ENOSPC:
 * there is no room; -EINVAL: print 0, or more than NAMES_RECORD_MAX bytes. */
KVC_WARN_UNUSED int names_put(struct names *names, uint64_t print, const void *record,
                              uint32_t bytes);
/* Whether there is one; then it is one that names_sweep() leaves. */
bool names_has(struct names *names, uint64_t print);
/* Removes those that neither was called for since the last sweep, or since the start. */
void names_sweep(struct names *names);
uint32_t names_count(const struct names *names);

/* Calls for each record that is whole; false removes it. Returns how many stay. */
typedef bool(names_fn)(void *ctx, uint64_t print, const uint8_t *record, uint32_t bytes);
uint32_t names_each(struct names *names, names_fn *fn, void *ctx);

#endif
