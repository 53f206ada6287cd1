/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file layer under a storage tier: paths (files or block devices) that are read and written in
 * whole pages, and synced. Two implementations: daemon/io/disk_file.c on the loop, and the one of
 * the simulation, which loses what was not synced, tears and misdirects.
 *
 * Thread: control thread. submit() never calls back inline; done() runs exactly once; between the
 * two the operation, its vector and its memory belong to the disk. An I/O cannot be called back, so
 * it has no deadline: a caller may stop waiting, but must leave the memory alone until done().
 * Operations have no order among them; DISK_SYNC covers what was done before it was submitted.
 */
#ifndef KVC_TIER_DISK_H
#define KVC_TIER_DISK_H

#include <stdint.h>
#include <sys/uio.h>

#include "err.h"

#define DISK_PAGE_BYTES 4096u
#define DISK_PATHS_MAX  16u
#define DISK_IOV_MAX    1024u

enum disk_kind { DISK_READ = 1, DISK_WRITE, DISK_SYNC };

struct disk_op {
    enum disk_kind kind;
    uint32_t path;
    uint32_t iovs;           /* 0 for SYNC; at most DISK_IOV_MAX */
    const struct iovec *iov; /* page-aligned, whole pages; borrowed until done() */
    uint64_t off;            /* bytes, whole pages */
    uint64_t bytes;          /* sum of the vector */
    int64_t result;          /* bytes moved (all of them), 0 for SYNC, or -errno; never short */
    void (*done)(struct disk_op *op);
    void *ctx; /* the caller's */

    /* For the disk alone. */
    struct disk_op *next;
    uint64_t priv[3];
};

struct disk;

struct disk_ops {
    void (*submit)(struct disk *d, struct disk_op *op);
    /* Bytes that the path can hold. */
    uint64_t (*bytes)(const struct disk *d, uint32_t path);
    /* Whether the path's file is still in place. 0; -ENOENT: its name leads to no file or to
     * another one, so a restart would not find what is written now; -ENODATA: it is shorter than
     * bytes(). Costs a few system calls. NULL: always 0. */
    int (*stands)(const struct disk *d, uint32_t path);
};

struct disk {
    const struct disk_ops *ops;
    uint32_t paths;
};

#endif
