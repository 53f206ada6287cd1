/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the HBM tier share: hbm.c (made, ended, lost and back), hbm_slots.c (room),
 * hbm_pool.c (workers' memory), hbm_copy.c (copies), hbm_frag.c (fragments),
 * hbm_verify.c (slots read again), hbm_pin.c (host memory registered with the device).
 * Thread: control thread.
 */
#ifndef KVC_TIER_HBM_INTERNAL_H
#define KVC_TIER_HBM_INTERNAL_H

#include "arena.h"
#include "hbm.h"
#include "list.h"
#include "pool.h"

#define HBM_MIB          (UINT64_C(1) << 20)
#define HBM_LIMIT_MIN    (8 * HBM_MIB)
#define HBM_LIMIT_MAX    ARENA_LIMIT_MAX
#define HBM_CHUNK_AUTO   (64 * HBM_MIB)
#define HBM_CHUNK_UNIT   (2 * HBM_MIB)
#define HBM_CHUNKS_MAX   16384u
#define HBM_NUMBERS      ((1u << DEVICE_CHUNK_SHIFT) - 1) /* of a device's memory, 1 to this */
#define HBM_PINS_MAX     4096u                            /* pieces of host memory */
#define HBM_VERIFY_BYTES (UINT64_C(256) << 10)            /* of a slot, read at a time */
/* After a chunk that workers have was retired: how long no other is evicted for room. */
#define HBM_RECALL_NS UINT64_C(1000000000)
/* How late at most a copy that waits for memory is seen to be cancelled, or past its deadline. */
#define HBM_TICK_NS 5000000u

/* ---- room: the memory of one of the arena's chunks ---- */

enum hbm_room { HBM_NONE, HBM_ALLOCATING, HBM_READY, HBM_FREEING };

struct hbm_place {
    struct gpu_mem mem;
    struct gpu_op op; /* ALLOC or FREE: never two allocations for one place */
    struct hbm *hbm;
    enum hbm_room room;
    uint32_t id;      /* the arena's, of the chunk that is here; 0: nobody's */
    uint32_t no;      /* the memory's, for workers; 0: it has none. Never that of other memory */
    uint32_t lent_no; /* by which workers have it, also when its chunk is gone */
    uint32_t lent;    /* sessions that have it; while there are any it is not freed */
    bool held;        /* its chunk is gone, and it is lent */
    uint32_t principal;
    uint32_t copies; /* in flight, from or to it */
    bool wanted;     /* to be allocated as soon as there is nothing */
    bool stale;      /* of a chunk that is gone, or void: to be freed when no copy has it */
};

/* ---- workers' memory ---- */

struct device_mem {
    struct list_node node;
    struct hbm *hbm;
    struct gpu_mem mem;
    struct gpu_op op; /* IMPORT or FREE */
    enum hbm_room room;
    int fd; /* ours, until it is imported; -1 */
    bool dropped;
    uint32_t refs; /* regions of pools */
    device_mem_fn *fn;
    void *ctx;
};

struct hbm_region {
    struct device_mem *mem;
    uint64_t addr; /* of page 0 on the device; the memory's is void when the device has gone */
    uint64_t stride_bytes, page_bytes;
    uint64_t at; /* of its first page in a block */
    uint32_t layer;
};

struct hbm_group {
    uint32_t pages_per_block, nregions;
    uint32_t block_bytes;
    struct hbm_region *region;
};

struct device_pool {
    struct list_node node;
    struct hbm *hbm;
    uint32_t generation;
    uint32_t pages_max, ngroups;
    uint32_t refs; /* copies, and one until it is closed */
    bool closed;
    struct hbm_group group[KVC_GROUPS_MAX];
    struct hbm_region regions[]; /* of all groups */
};

/* ---- copies ---- */

/* Where a copy is in its fragments: by layers (with `ready`; else all are one), in each the pieces
 * that are in host memory and then those that are in slots, each by regions and pages. */
struct hbm_cursor {
    uint32_t first, end; /* regions of the layer */
    bool slots;
    uint32_t piece, region, page;
    uint64_t done_bytes; /* of a fragment that is larger than a piece of the device's */
    uint64_t layers;     /* listed whole */
};

/* The device's part of a device_copy. */
struct hbm_copy {
    struct list_node node; /* in hbm_copies.parked */
    struct hbm *hbm;
    struct gpu_op op;
    struct hbm_cursor at; /* the device's thread's, once it is submitted */
    bool begun;           /* with the device, which holds its slots */
};
_Static_assert(sizeof(struct hbm_copy) <= sizeof(((struct device_copy *)0)->priv), "it fits");

static inline struct hbm_copy *hbm__copy(struct device_copy *c)
{
    return (struct hbm_copy *)(void *)c->priv;
}

struct hbm_copies {
    struct list_node parked;           /* hbm_copy: memory is on its way */
    uint32_t begun;                    /* with the device */
    uint64_t inflight, inflight_bytes; /* submitted, done() not called */
    struct loop_watch watch;
    int timer;
    bool ticking;
};

/* ---- host memory that is registered ---- */

struct hbm_pin {
    struct list_node node;
    struct hbm *hbm;
    struct gpu_op pin, unpin;
    bool pinning, unpinning;
    uint32_t generation; /* for which it was asked */
};

struct hbm_pins {
    struct pool *pool;
    struct list_node list;
    uint64_t leaving_bytes; /* to be let go of, and not yet */
};

struct hbm {
    struct device device;
    struct tier slots;
    struct hbm_config config;
    char name[64];
    struct loop *loop;
    struct gpu *gpu;
    uint32_t generation; /* of the device, while it is up */
    bool up;
    bool closing;

    struct arena *arena; /* NULL: no room there */
    struct hbm_place *place;
    uint32_t places;
    uint64_t chunk_bytes;
    uint32_t last_no;
    uint32_t held;        /* places */
    uint64_t recalled_ns; /* when a chunk that workers have was retired last */
    /* A bit per page of the arena: a slot that is handed out begins here; and one whose bytes went
     * with the device, until it is freed. */
    uint64_t *taken, *dead;
    uint32_t words;
    void *tables;
    uint64_t tables_bytes;

    struct list_node mems, pools;
    struct hbm_copies copies;
    struct hbm_verify *verify; /* NULL: no room there */
    struct hbm_pins pins;

    void (*retired)(void *ctx, uint32_t chunk, uint32_t principal);
    void *retired_ctx;
    char note[512];
};

static inline struct hbm *hbm__of(const struct device *d)
{
    return CONTAINER_OF((struct device *)(uintptr_t)d, struct hbm, device);
}

/* Whether memory of this generation is there to be used. */
static inline bool hbm__is_up(const struct hbm *h)
{
    return h->up && !h->closing && gpu_state(h->gpu) == GPU_UP &&
           gpu_generation(h->gpu) == h->generation;
}

/* --- hbm_slots.c --- */

uint64_t hbm__chunk_bytes(const struct hbm_config *config);
uint64_t hbm__slots_host_bytes(const struct hbm_config *config);
KVC_WARN_UNUSED int hbm__slots_create(struct hbm *h);
/* After gpu_close(), with which all memory has gone. */
void hbm__slots_destroy(struct hbm *h);
/* All that is in slots is void. */
void hbm__slots_lost(struct hbm *h);
/* The memory of a slot: 0 and its address; -EAGAIN: it is not there yet, and asked for; -ENOMEM: it
 * cannot be had before workers let go of what was at its place; -EIO: what was in the slot was
 * lost. */
KVC_WARN_UNUSED int hbm__slot_at(struct hbm *h, struct tier_loc loc, uint64_t *ret_addr);
/* Whether the slot (MUST be one that was handed out) is one for blocks of this size. */
bool hbm__slot_holds(const struct hbm *h, struct tier_loc loc, uint32_t bytes);
/* A copy in flight names the slot. */
void hbm__slot_hold(struct hbm *h, struct tier_loc loc);
void hbm__slot_release(struct hbm *h, struct tier_loc loc);
/* Where a slot's memory comes from. */
uint32_t hbm__slot_place(const struct hbm *h, struct tier_loc loc);
KVC_WARN_UNUSED int hbm__chunk_export(const struct device *d, uint32_t chunk, uint32_t principal,
                                      struct device_handle *ret_handle, int *ret_headers_fd,
                                      uint64_t *ret_headers_bytes);
void hbm__chunk_lend(struct device *d, uint32_t chunk);
void hbm__chunk_give_back(struct device *d, uint32_t chunk);
/* Memory that is waited for. */
uint64_t hbm__held_bytes(const struct hbm *h);

/* --- hbm_pool.c --- */

KVC_WARN_UNUSED int hbm__mem_import(struct device *d, const struct device_handle *handle,
                                    device_mem_fn *fn, void *ctx, struct device_mem **ret_mem);
void hbm__mem_drop(struct device *d, struct device_mem *mem);
KVC_WARN_UNUSED int hbm__pool_open(struct device *d, const struct device_pool_spec *spec,
                                   struct device_pool **ret_pool, const char **ret_why);
void hbm__pool_close(struct device *d, struct device_pool *pool);
uint64_t hbm__pool_block_bytes(const struct device_pool *pool, uint32_t group);
void hbm__pool_release(struct device_pool *pool);
/* After gpu_close(): what its owners have left. */
void hbm__pools_destroy(struct hbm *h);

/* --- hbm_copy.c --- */

KVC_WARN_UNUSED int hbm__copies_create(struct hbm *h);
/* After gpu_close(), with which all copies have ended. */
void hbm__copies_destroy(struct hbm *h);
void hbm__copy_submit(struct device *d, struct device_copy *copy);
/* Copies that wait for memory begin or end, where they can now: it is there, they are cancelled or
 * too late, the device is out, or this is the end. */
void hbm__copies_look(struct hbm *h);
/* Some copy is under way that waits for nobody but the device. */
bool hbm__copies_run(const struct hbm *h);
/* hbm__verify_tick() comes after so long, and again until all is idle. */
void hbm__copies_tick(struct hbm *h, uint64_t first_ns);
/* The memory of a place is there, or could not be had (err): then those that name it end so. */
void hbm__copies_place(struct hbm *h, uint32_t place, int err);

/* --- hbm_frag.c --- */

/* Before the first hbm__next_piece(). */
void hbm__list_begin(struct device_copy *c);
/* The gpu_next_fn of copies, on the device's thread: reads of a copy only what nobody changes while
 * it is in flight. */
void hbm__next_piece(struct gpu_op *op, struct kvc_frag *frag, uint32_t frags_max,
                     uint64_t bytes_max, struct gpu_piece *ret_piece);

/* --- hbm_verify.c --- */

struct hbm_verify;
uint64_t hbm__verify_host_bytes(const struct hbm_config *config);
/* After hbm__pins_create(). */
KVC_WARN_UNUSED int hbm__verify_create(struct hbm *h);
/* After gpu_close(): what waits ends. */
void hbm__verify_destroy(struct hbm *h);
/* See tier.h: TIER_VERIFY of a slot that was published. */
void hbm__verify_submit(struct hbm *h, struct tier_op *op);
/* So much was copied meanwhile. */
void hbm__verify_copied(struct hbm *h, uint64_t bytes);
void hbm__verify_tick(struct hbm *h);
bool hbm__verify_is_idle(const struct hbm *h);

/* --- hbm_pin.c --- */

uint64_t hbm__pins_host_bytes(void);
KVC_WARN_UNUSED int hbm__pins_create(struct hbm *h);
void hbm__pins_destroy(struct hbm *h);
/* The device is up, and knows of no host memory. */
void hbm__pins_up(struct hbm *h);

#endif
