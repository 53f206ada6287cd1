/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One memfd or file of the arena: how it is made, so that only the daemon can ever write to it, and
 * how the next run maps it again.
 *
 * A new memfd has mode 0666 and can be opened again through /proc, so it gets mode 0600 before it
 * has a size. A memfd that ends with the daemon is also sealed against new writable mappings, where
 * the kernel can do that, so that no other process of the daemon's own uid gets one. A memfd that
 * is kept is sealed against resizing instead, for the next run needs a writable mapping. Workers
 * receive `ro_fd`.
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
    /* For the log. */
    bool hugetlb;
    int huge_err; /* why it has no huge pages of either kind; 0: it has, or need not */
    int numa_err; /* why it is not bound to its node; 0 */
    bool sealed;  /* against new writable mappings */
};

/* Makes a chunk and touches no page of it. On failure nothing is left open and *ret_mem is as
 * before: -EMFILE, -ENFILE, -ENOMEM, or with ARENA_HUGE_REQUIRE what refused huge pages. */
KVC_WARN_UNUSED int chunk_create(const struct chunk_want *want, struct chunk_mem *ret_mem);
/* The same for memory of the run before, with its descriptor fd, which it takes also on failure. */
KVC_WARN_UNUSED int chunk_attach(const struct chunk_want *want, int fd, struct chunk_mem *ret_mem);

/* Frees the pages even while a worker has them mapped, then unmaps and closes. A chunk that is kept
 * is punched: workers of an earlier run read zeroes from now on, which is no generation that they
 * know. A chunk that is sealed against writing is truncated: a reader without a lease gets SIGBUS.
 * Takes tens of milliseconds per GiB of small pages. No-op if mem has no memory. */
void chunk_destroy(struct chunk_mem *mem);

/* Frees these bytes of a chunk that is kept; they read as zeroes from now on. */
void chunk_punch(const struct chunk_mem *mem, uint64_t at, uint64_t bytes);

/* Unmaps and closes, and leaves the pages to workers that still have them mapped: for the end of
 * the daemon, which must not cost a reader more than a miss. No-op if mem has no memory. */
void chunk_leave(struct chunk_mem *mem);

#endif
