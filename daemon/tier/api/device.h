/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between core (and svc) and a device: a GPU, with or without room of the daemon's on
 * it, and with pages of workers'. All functions are called on the control thread, all callbacks run
 * there, never inline.
 *
 * Two things are on a device. *Slots* are the daemon's: room for blocks, as in any tier
 * (`device.slots`, a struct tier of which core uses alloc, free, revoke, publish, view, sum,
 * slot_bytes, evacuate, helps and stats; its submit() takes TIER_VERIFY of what was published and
 * no more: copies go first, and when the device is out it ends with -EIO). A block in a slot is a
 * further copy: it is in host memory or on disk too, so that a device that fails costs time and
 * nothing else. *Pools* are workers': their paged KV memory, exported to the daemon, which copies
 * blocks from and to it by page numbers.
 *
 * Bytes of a block. Page lists are in the order of the block's tokens; the block is, for each
 * region of its group in the order of the specification, the bytes of its pages one after the
 * other. What is in a page is the worker's business (a namespace's `layout` says it).
 */
#ifndef KVC_DEVICE_H
#define KVC_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "device_handle.h"
#include "tier.h"

#define DEVICES_MAX        16u
#define DEVICE_TEXT_BYTES  64u
#define DEVICE_REGIONS_MAX 1024u /* of one group of a pool */
#define DEVICE_RATES       6u

/* ---- memory of other processes ---- */

struct device_mem; /* a worker's memory, imported */
/* err 0: it can be named in pools. -EINVAL (not of this device, shorter than it says),
 * -EOPNOTSUPP, -ENOMEM, -EIO. After an error it is gone. */
typedef void(device_mem_fn)(void *ctx, int err);

/* ---- pools ---- */

struct device_region {
    struct device_mem *mem;
    uint64_t base;         /* of page 0 in it, bytes */
    uint64_t stride_bytes; /* from a page to the next; at least page_bytes */
    uint64_t page_bytes;
    uint32_t layer; /* ascending; regions of one layer follow one another */
};
struct device_pool_group {
    uint32_t pages_per_block; /* at least 1 */
    uint32_t nregions;
    const struct device_region *region; /* copied */
};
struct device_pool_spec {
    uint32_t pages_max; /* page numbers are below it */
    uint32_t ngroups;
    struct device_pool_group group[KVC_GROUPS_MAX];
};
struct device_pool;

/* ---- copies ---- */

/* Memory of a worker that says when a copy may begin: when *word >= value. NULL: at once. */
struct device_fence {
    const _Atomic uint64_t *word;
    uint64_t value;
};
static inline bool device_fence_is_pending(const struct device_fence *f)
{
    return f->word && atomic_load_explicit(f->word, memory_order_acquire) < f->value;
}

enum device_copy_kind {
    DEVICE_STORE = 1, /* pages -> host memory */
    DEVICE_LOAD,      /* host memory, or a slot of this device -> pages */
    DEVICE_FILL       /* host memory -> a slot; without a pool */
};
/* One block's part. */
struct device_piece {
    void *host; /* whole pages of host memory that core has from a tier's payload(); NULL: */
    struct tier_loc slot;  /* LOAD: from, FILL: to. Of a LOAD that is not to be copied also 0 */
    const uint32_t *pages; /* pages_per_block numbers, borrowed until done() */
    int status; /* 0; or what is negative already when it is submitted: it is not copied then, and
                 * this stays. Result: 0; -EINVAL: a page number out of range, or not the bytes of a
                 * block or slot: nothing was touched; what the copy's status is otherwise */
    uint64_t slot_addr; /* the device's */
};
#define DEVICE_COPY_PRIV 56u /* words */
struct device_copy {
    enum device_copy_kind kind;
    struct device_pool *pool;   /* of STORE and LOAD */
    uint32_t group;             /* of the pool */
    uint32_t bytes;             /* of each piece: payload */
    struct device_piece *piece; /* the caller's until done(), with all that it names */
    uint32_t n;
    struct device_fence after; /* STORE, LOAD */
    /* LOAD: *ready = ready_value + number of layers of which all pieces have been copied, as they
     * come; copies go layer by layer then. NULL: nobody waits for layers. */
    _Atomic uint64_t *ready;
    uint64_t ready_value;
    uint64_t deadline_ns;
    _Atomic bool cancel; /* what has not begun is skipped */
    /* STORE, LOAD: taken back when it is not 0 any more (struct gpu_revoke); NULL: never. A copy
     * that ended well was not, at its end. */
    const _Atomic uint64_t *revoked;
    /* 0; -ETIMEDOUT: had not begun; -ECANCELED: had not, or not all of it, or was taken back (what
     * is in the target is anything then, as with -EIO); -EIO: the device failed, or is out;
     * -ENOMEM. */
    int status;
    void (*done)(struct device_copy *copy);
    void *owner;
    uint64_t priv[DEVICE_COPY_PRIV]; /* the device's */
};

/* ---- what is said of a device ---- */

struct device_rate {
    uint32_t frag_bytes;
    uint64_t to_engine, to_kernel, from_engine, from_kernel; /* bytes per second; 0: none */
    uint64_t to_window;         /* in one piece to the device, and scattered there */
    uint8_t to_path, from_path; /* enum kvc_copy_path: what copies of such fragments take */
};
struct device_view {
    uint8_t uuid[DEVICE_UUID_BYTES];
    char device[DEVICE_TEXT_BYTES]; /* as device_name.h prints it, or as configured while it was
                                     * never up */
    const char *name; /* as configured while it was never up; borrowed until the next call, as are
                       * all texts */
    const char *why;  /* why it is out; "" */
    bool up, emulated;
    uint64_t limit_bytes, used_bytes; /* of slots */
    uint64_t memory_bytes;            /* allocated on the device */
    uint64_t held_bytes; /* of them: of chunks that are retired, until workers unmap them */
    uint64_t imported_bytes;
    uint64_t copies, copy_bytes, failures, outs;
    uint64_t plain_to, plain_from; /* one large pinned copy: the bound */
    struct device_rate rate[DEVICE_RATES];
};

struct device;
struct device_ops {
    /* As device_view.up, without the rest: core asks it with every lookup, so it reads what is
     * there already and nothing else. */
    bool (*up)(const struct device *d);
    /* All that is to be said of it, for stats and metrics; not for the path of a request. */
    void (*view)(struct device *d, struct device_view *ret_view);

    /* Imports; fn runs once, later. The handle's descriptor is borrowed until then. *ret_mem is
     * the caller's from now on. 0, -ENOMEM, -EMFILE, -EIO (the device is out). */
    int (*mem_import)(struct device *d, const struct device_handle *handle, device_mem_fn *fn,
                      void *ctx, struct device_mem **ret_mem) KVC_WARN_UNUSED;
    /* Of one whose fn has run with 0, or has not run (then it does not any more). Its mapping is
     * closed as soon as no pool and no copy in flight has it. */
    void (*mem_drop)(struct device *d, struct device_mem *mem);
    /* 0; -EINVAL with *ret_why (static text): a region that ends beyond its memory, pieces that do
     * not add up, ...; -ENOMEM. */
    int (*pool_open)(struct device *d, const struct device_pool_spec *spec,
                     struct device_pool **ret_pool, const char **ret_why) KVC_WARN_UNUSED;
    /* No new copy of it; what it has is let go of when the last copy in flight has ended. */
    void (*pool_close)(struct device *d, struct device_pool *pool);
    /* Bytes of one block of a group; 0: the pool has no such group. */
    uint64_t (*pool_block_bytes)(const struct device_pool *pool, uint32_t group);

    void (*submit)(struct device *d, struct device_copy *copy);

    /* For a worker of `principal` that is told where a slot is: the memory of chunk `chunk`
     * (tier_view.chunk), to be imported by it, and the read-only descriptor of the chunk's headers,
     * where tier_view.hdr is. Borrowed until the chunk is retired. -ENOENT, -EACCES, -EIO. */
    int (*chunk_export)(const struct device *d, uint32_t chunk, uint32_t principal,
                        struct device_handle *ret_handle, int *ret_headers_fd,
                        uint64_t *ret_headers_bytes) KVC_WARN_UNUSED;
    /* That memory is given to one more session; and one of those has unmapped it, or is gone. Until
     * the last has, it is not freed when its chunk is retired, and so counts against the limit.
     * Each lend is followed by one give_back, also after the chunk was retired. */
    void (*chunk_lend)(struct device *d, uint32_t chunk);
    void (*chunk_give_back)(struct device *d, uint32_t chunk);
};

/* What a device tells by itself, on the control thread, not from inside a call of core's. */
struct device_events {
    void *ctx;
    /* All that was in its slots is void, and revoked; their room stays taken until core frees it.
     * alloc is KVC_E_NO_ROOM until it is up again. Pools and imported memory are void too: copies
     * end with -EIO. */
    void (*lost)(void *ctx, struct device *d);
    void (*up)(void *ctx, struct device *d);
};

struct device {
    const struct device_ops *ops;
    struct tier *slots;          /* NULL: the daemon has no room there */
    uint32_t no;                 /* 0 and up; chunk numbers of its slots carry it in bits 24 and up,
                                  * plus 1: what is 0 there is host memory */
    struct device_events events; /* set by core */
};
#define DEVICE_CHUNK_SHIFT 24u
static inline uint32_t device_of_chunk(uint32_t chunk) /* number + 1; 0: host memory */
{
    return chunk >> DEVICE_CHUNK_SHIFT;
}

#endif
