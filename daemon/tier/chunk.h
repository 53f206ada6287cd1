/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One memfd or file of the arena: how it is born, so that nobody but the daemon can ever write to
 * it, and how it is mapped again by the next run.
 *
 * A memfd is born with mode 0666 and can be opened again through /proc, so it is made 0600 before
 * it has a size. One that goes with the daemon is also sealed against new writable mappings where
 * the kernel can, so that not even another process of the daemon's own uid gets one. One that is
 * kept cannot be, for the next run needs such a mapping; a memfd that is kept is sealed against
 * resizing instead. Workers receive `ro_fd`.
 *
 * Threads: no shared state; a struct chunk_mem belongs to one thread at a time.
 */
#ifndef KVC_TIER_CHUNK_H
#define KVC_TIER_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#include "backing.h"
#include "err.h"
#include "topo.h"

enum arena_huge {
    ARENA_HUGE_OFF,
    ARENA_HUGE_TRY,    /* pages of hugetlbfs, or else ask for transparent ones */
    ARENA_HUGE_REQUIRE /* pages of hugetlbfs or an error */
};

struct chunk_want {
    struct backing *backing; /* borrowed for the call */
    uint32_t id;
    uint64_t bytes; /* a multiple of 2 MiB */
    enum arena_huge huge;
    const struct topo *topo; /* NULL: not bound to a node; borrowed for the call */
    unsigned node;
};

struct chunk_mem {
    uint8_t *base; /* the daemon's mapping, readable and writable; NULL: there is none */
    uint64_t bytes;
    int fd;    /* read-write, never leaves the daemon */
    int ro_fd; /* O_RDONLY, what a worker gets a copy of */
    /* How it went, for the log. */
    bool hugetlb;
    int huge_err; /* why not hugetlb, or why no transparent ones; 0 when not asked or fine */
    int numa_err; /* why not bound */
    bool sealed;  /* against new writable mappings */
};

/* Untouched memory: no page is faulted. On failure nothing is left open and *ret_mem is as it was:
 * -EMFILE, -ENFILE, -ENOMEM, or with ARENA_HUGE_REQUIRE what refused huge pages. */
KVC_WARN_UNUSED int chunk_create(const struct chunk_want *want, struct chunk_mem *ret_mem);
/* The same for memory of the run before, of which fd is a descriptor: takes it, on failure too. */
KVC_WARN_UNUSED int chunk_attach(const struct chunk_want *want, int fd, struct chunk_mem *ret_mem);

/* Frees the pages even while a worker has them mapped, then unmaps and closes. What is kept is
 * punched: workers of an earlier life read it, and find zeroes from now on, so no generation that
 * they know. What is sealed against writing can only be truncated: whoever reads it without a lease
 * gets SIGBUS. The cost is that of freeing the pages (tens of milliseconds per GiB of small ones).
 * No-op for one that does not exist. */
void chunk_destroy(struct chunk_mem *mem);

/* Frees these bytes of a chunk that is kept, which read as zeroes from now on. */
void chunk_punch(const struct chunk_mem *mem, uint64_t at, uint64_t bytes);

/* Unmaps and closes, and leaves the pages to workers that still have them mapped: for the end of
 * the daemon, which must not cost a reader more than a miss. No-op for one that does not exist. */
void chunk_leave(struct chunk_mem *mem);

#endif
