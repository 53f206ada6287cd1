/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read-only mappings of the daemon's chunks, by chunk number. A daemon never gives a number twice,
 * but a new daemon may give it again, so the table is emptied at every disconnect.
 *
 * A mapping that a hold still refers to stays mapped when it has left the table, so readers never
 * fault on memory that they were given. Threads: the session's.
 *
 * For a chunk on a device the mapping has the slots' headers, and `memory` is the chunk's memory on
 * the device. The daemon must not reuse that memory while this process has it mapped. So unmapped
 * chunks stay in the list `unmapped` until kvc__tell_unmapped() has told the daemon.
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
    uint32_t refs; /* of holds: one for each run of their blocks in this chunk */
    struct map_table *table;
    uint32_t link;         /* table->link when the mapping was entered */
    bool retired;          /* no longer in the table; unmapped with the last reference */
    struct device *pinned; /* the device with which `base` is registered, one reference; or NULL */
    bool is_pageable;      /* the driver has refused to register `base` */
    struct device *on;     /* the device that `memory` is on, one reference; or NULL */
    struct device_mem memory;
};

/* Bits 24 and up of a chunk's number: the daemon's number of the chunk's device, plus 1. */
#define MAP_DEVICE_SHIFT 24u

struct map_table {
    struct map *bucket[MAP_BUCKETS];
    uint32_t count;
    uint32_t link; /* number of map__retire_all() calls: tells the mappings of earlier links */
    /* The chunks that are unmapped, which the daemon is to be told. Only `chunk` and `next` of
     * these structs are valid. */
    struct map *unmapped;
};

/* The chunk's mapping, borrowed; NULL: it is not mapped. */
struct map *map__find(const struct map_table *t, uint32_t chunk);
/* Maps `bytes` of `fd` read-only and enters the mapping; the descriptor stays the caller's. Does
 * nothing for a chunk that is mapped already. -EINVAL: the file is shorter than `bytes`; -ENOMEM;
 * an errno of mmap(2). */
__attribute__((warn_unused_result)) int map__add(struct map_table *t, uint32_t chunk, int fd,
                                                 uint64_t bytes);
void map__ref(struct map *m);
void map__unref(struct map *m);
/* Takes a mapping out of the table; ignores unknown numbers. */
void map__retire(struct map_table *t, uint32_t chunk);
/* The connection ends: empties the table and `unmapped`, because no daemon is left to be told. */
void map__retire_all(struct map_table *t);
/* The daemon gave memory of a chunk, and it was not mapped: enters the chunk in `unmapped`. If that
 * is out of memory, the daemon learns it when the session ends. */
void map__declined(struct map_table *t, uint32_t chunk);
/* The daemon was told of the first chunk of `unmapped`: takes that out. */
void map__said(struct map_table *t);
/* Takes out the mappings that are registered with the device, or on it, and have no reference. */
void map__forget(struct map_table *t, const struct device *d);

#endif
