/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read-only mappings of arena chunks, by chunk id. Ids are never reused by one daemon; a new daemon
 * starts anew, so the table is emptied at every disconnect.
 *
 * A mapping that a hold still refers to outlives its place in the table: readers never fault on
 * memory that they were given. Threads: the session's.
 *
 * Of a chunk that is on a device the mapping has the headers, and its memory on the device goes
 * with it. That memory is the daemon's until it hears that nobody has it mapped: what was unmapped
 * is listed until kvc__tell_unmapped() has said so.
 */
#ifndef KVC_CLIENT_MAP_H
#define KVC_CLIENT_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "device__.h"

#define MAP_BUCKETS 256u

struct map {
    struct map *next;
    const uint8_t *base;
    uint64_t bytes;
    uint32_t chunk;
    uint32_t refs; /* holds, counted once for each run of their blocks */
    struct map_table *table;
    uint32_t link;         /* table->link when it was entered */
    bool retired;          /* out of the table; unmapped with the last reference */
    struct device *pinned; /* registered there, counted; or NULL */
    bool is_pageable;      /* the driver would not register it */
    struct device *on;     /* the device that `memory` is on, counted; or NULL */
    struct device_mem memory;
};

/* Bits 24 and up of a chunk's number: the daemon's number of the device that it is on, plus 1. */
#define MAP_DEVICE_SHIFT 24u

struct map_table {
    struct map *bucket[MAP_BUCKETS];
    uint32_t count;
    uint32_t link;        /* map__retire_all() so far */
    struct map *unmapped; /* `chunk` of each is to be said; no more is in them */
};

/* Borrowed, or NULL. */
struct map *map__find(const struct map_table *t, uint32_t chunk);
/* Maps `bytes` of `fd` read-only and enters it; the descriptor stays the caller's. A chunk that is
 * there already is left alone. -EINVAL: the file is shorter than `bytes`; what mmap(2) says. */
__attribute__((warn_unused_result)) int map__add(struct map_table *t, uint32_t chunk, int fd,
                                                 uint64_t bytes);
void map__ref(struct map *m);
void map__unref(struct map *m);
/* Takes one out of the table; unknown ids are ignored. */
void map__retire(struct map_table *t, uint32_t chunk);
/* The connection ends: there is nobody any more to be told what is unmapped, now or later. */
void map__retire_all(struct map_table *t);
/* Memory of a chunk that was given and not mapped: the daemon is to hear of it too. Without memory
 * for that it hears when the session ends. */
void map__declined(struct map_table *t, uint32_t chunk);
/* The first of `unmapped` has been said. */
void map__said(struct map_table *t);
/* Takes out what the device has to do with and nobody refers to. */
void map__forget(struct map_table *t, const struct device *d);

#endif
