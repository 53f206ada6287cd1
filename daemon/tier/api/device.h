/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between core (and svc) and a device: a GPU with the memory pages of workers, and
 * maybe with room of the daemon. All functions are called on the control thread; all callbacks run
 * there, never inline.
 *
 * A device has two kinds of memory. *Slots* are the daemon's: room for blocks, as in any tier
 * (`device.slots`, a struct tier of which core uses alloc, free, invalidate, set_label, view,
 * sum, slot_bytes, evacuate, helps and stats; its submit() takes TIER_VERIFY of labelled slots and
 * no other kind: copies go first, and it ends with -EIO when the device is out). A block in a slot
 * is an additional copy: it is in host memory or on disk too, so a device that fails costs time and
 * nothing else. *Pools* are the workers': their paged KV memory, exported to the daemon, which
 * copies blocks from and to it by page numbers.
 *
 * Bytes of a block. Page lists are in the order of the block's tokens; the block is, for each
 * region of its group in the order of the specification, the bytes of its pages one after the
 * other. The daemon does not read the content of a page (a namespace's `layout` describes it).
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
/* The import has ended. err 0: pools can name the memory. -EINVAL (not of this device, or shorter
 * than its handle says), -EOPNOTSUPP, -ENOMEM, -EIO: the device_mem is freed already. */
typedef void(device_mem_fn)(void *ctx, int err);

/* ---- pools ---- */

struct device_region {
    struct device_mem *mem;
    uint64_t base;         /* of page 0 in mem, bytes */
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
    uint32_t pages_max; /* page numbers are below this */
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
    void *host; /* whole pages of host memory, from a tier's payload(); NULL: LOAD from a slot */
    struct tier_loc slot;  /* LOAD: the source, if host is NULL; FILL: the target; 0: no slot */
    const uint32_t *pages; /* pages_per_block numbers, borrowed until done() */
    int status; /* Submitted with a negative value, the piece is not copied and keeps the value.
                 * Else the result: 0; -EINVAL: a page number is out of range, or `bytes` is not
                 * that of a block or slot, and nothing was touched; else device_copy.status. */
    uint64_t slot_addr; /* for the device alone */
};
#define DEVICE_COPY_PRIV 56u /* words */
struct device_copy {
    enum device_copy_kind kind;
    struct device_pool *pool;   /* of STORE and LOAD */
    uint32_t group;             /* of the pool */
    uint32_t bytes;             /* of each piece: payload */
    struct device_piece *piece; /* borrowed until done(), with all that it names */
    uint32_t n;
    struct device_fence after; /* STORE, LOAD */
    /* LOAD: pieces are copied layer by layer, and *ready = ready_value + number of layers that are
     * whole. NULL: nobody waits for layers. */
    _Atomic uint64_t *ready;
    uint64_t ready_value;
    uint64_t deadline_ns;
    _Atomic bool cancel; /* set by the caller: pieces that have not begun are skipped */
    /* STORE, LOAD: the worker takes its pages back when this is not 0 any more (struct gpu_revoke).
     * NULL: never. With status 0 it was still 0 when the copy ended. */
    const _Atomic uint64_t *revoked;
    /* 0; -ETIMEDOUT: it had not begun by its deadline; -ECANCELED: it was cancelled, or the pages
     * were taken back; -EIO: the device failed, or is out; -ENOMEM. After -ECANCELED and -EIO the
     * target may hold any bytes. */
    int status;
    void (*done)(struct device_copy *copy);
    void *ctx;                       /* the caller's */
    uint64_t priv[DEVICE_COPY_PRIV]; /* for the device alone */
};

/* ---- figures of a device ---- */

struct device_rate {
    uint32_t frag_bytes;
    /* Bytes per second by copy engine and by kernel; 0: not measured. */
    uint64_t to_engine, to_kernel, from_engine, from_kernel;
    uint64_t to_window;         /* the same, sent in one piece and scattered on the device */
    uint8_t to_path, from_path; /* enum kvc_copy_path that copies of such fragments use */
};
struct device_view {
    uint8_t uuid[DEVICE_UUID_BYTES];
    char device[DEVICE_TEXT_BYTES]; /* as device_name.h prints it; as configured before it is up the
                                     * first time */
    const char *name; /* as configured before it is up the first time; texts are borrowed until the
                       * next call */
    const char *why;  /* why it is out; "": it is up */
    bool up, emulated;
    uint64_t limit_bytes, used_bytes; /* of slots */
    uint64_t memory_bytes;            /* allocated on the device */
    uint64_t held_bytes; /* of memory_bytes, in retired chunks that workers still have mapped */
    uint64_t imported_bytes;
    uint64_t copies, copy_bytes, failures, outs;
    uint64_t plain_to, plain_from; /* bytes per second of one large pinned copy: the upper bound */
    struct device_rate rate[DEVICE_RATES];
};

struct device;
struct device_ops {
    /* device_view.up alone. Core asks with every lookup, so it reads known state and asks no
     * driver. */
    bool (*up)(const struct device *d);
    /* All figures, for stats and metrics; too slow for the path of a request. */
    void (*view)(struct device *d, struct device_view *ret_view);

    /* Imports a worker's memory; fn runs once, later. The handle's descriptor is borrowed until
     * then. The caller owns *ret_mem from now on. 0, -ENOMEM, -EMFILE, -EIO (the device is out). */
    int (*mem_import)(struct device *d, const struct device_handle *handle, device_mem_fn *fn,
                      void *ctx, struct device_mem **ret_mem) KVC_WARN_UNUSED;
    /* Gives memory back whose fn has run with 0, or has not run (it will not run then). Its mapping
     * is closed as soon as no pool and no copy in flight uses it. */
    void (*mem_drop)(struct device *d, struct device_mem *mem);
    /* 0; -EINVAL with *ret_why (static text): a region that ends beyond its memory, pieces that do
     * not add up, ...; -ENOMEM. */
    int (*pool_open)(struct device *d, const struct device_pool_spec *spec,
                     struct device_pool **ret_pool, const char **ret_why) KVC_WARN_UNUSED;
    /* No new copy may name the pool. Its memory is released after the last copy in flight. */
    void (*pool_close)(struct device *d, struct device_pool *pool);
    /* Bytes of one block of a group; 0: the pool has no such group. */
    uint64_t (*pool_block_bytes)(const struct device_pool *pool, uint32_t group);

    void (*submit)(struct device *d, struct device_copy *copy);

    /* For a worker of `principal` that reads a slot in place: the memory of chunk `chunk`
     * (tier_view.chunk), which the worker imports, and the read-only descriptor of the chunk's
     * headers, which hold tier_view.hdr. Both are borrowed until the chunk is retired. -ENOENT,
     * -EACCES, -EIO. */
    int (*chunk_export)(const struct device *d, uint32_t chunk, uint32_t principal,
                        struct device_handle *ret_handle, int *ret_headers_fd,
                        uint64_t *ret_headers_bytes) KVC_WARN_UNUSED;
    /* lend: one more session gets the chunk's memory. give_back: such a session has unmapped it, or
     * is gone. While any session has it, retiring the chunk does not free the memory, which then
     * counts against the limit. Each lend needs one give_back, also after the chunk was retired. */
    void (*chunk_lend)(struct device *d, uint32_t chunk);
    void (*chunk_give_back)(struct device *d, uint32_t chunk);
};

/* What a device tells core on its own, on the control thread, never from inside a call of core. */
struct device_events {
    void *ctx;
    /* The device is out: the content of its slots is lost and invalidated, and their room stays
     * taken until core frees it. alloc says KVC_E_NO_ROOM until the device is up again. Pools and
     * imported memory are void too: copies of them end with -EIO. */
    void (*lost)(void *ctx, struct device *d);
    void (*up)(void *ctx, struct device *d);
};

struct device {
    const struct device_ops *ops;
    struct tier *slots; /* NULL: the daemon has no room on the device */
    uint32_t no;        /* from 0; the chunk numbers of its slots have no + 1 in bits 24 and
                         * up, where those of host memory have 0 */
    struct device_events events; /* set by core */
};
#define DEVICE_CHUNK_SHIFT 24u
static inline uint32_t device_of_chunk(uint32_t chunk) /* number + 1; 0: host memory */
{
    return chunk >> DEVICE_CHUNK_SHIFT;
}

#endif
