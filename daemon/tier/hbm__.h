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
#define HBM_NUMBERS      ((1u << DEVICE_CHUNK_SHIFT) - 1) /* chunk numbers are 1 to this */
#define HBM_PINS_MAX     4096u                            /* pieces of host memory */
#define HBM_VERIFY_BYTES (UINT64_C(256) << 10)            /* of a slot, read at a time */
/* After a chunk that workers have mapped was retired: for this long nothing is evicted for room. */
#define HBM_RECALL_NS UINT64_C(1000000000)
/* A copy that waits for memory is looked at this often: whether it is cancelled or late. */
#define HBM_TICK_NS 5000000u

enum hbm_room { HBM_NONE, HBM_ALLOCATING, HBM_READY, HBM_FREEING };

/* The device memory of one of the arena's chunks, by the chunk's number: one allocation at most.
 * While workers map the memory of a chunk that has ended, no new chunk has the number. */
struct hbm_chunk_mem {
    struct gpu_mem mem;
    struct gpu_op op; /* ALLOC or FREE */
    struct hbm *hbm;
    enum hbm_room room;
    uint32_t id; /* of the chunk, as arena_retired_fn names it; 0: the chunk has no principal */
    uint32_t no; /* by which workers name the memory; 0: none. No other memory has it */
    uint32_t lent_no; /* the number under which the memory was lent, kept when its chunk is gone */
    uint32_t lent;    /* sessions that have the memory; it is freed when none has it */
    bool held;        /* its chunk is gone, and the memory is still lent */
    uint32_t principal;
    uint32_t copies; /* in flight, from or to the memory */
    bool wanted;     /* allocate as soon as there is no memory */
    bool stale;      /* its chunk or the device is gone: free the memory when no copy uses it */
};

/* ---- workers' memory ---- */

struct device_mem {
    struct list_node node;
    struct hbm *hbm;
    struct gpu_mem mem;
    struct gpu_op op; /* IMPORT or FREE */
    enum hbm_room room;
    int fd;        /* the daemon's copy of the descriptor until the import has ended; else -1 */
    bool dropped;  /* hbm__mem_drop() was called: freed with the last reference */
    uint32_t refs; /* regions of pools that name it */
    device_mem_fn *fn;
    void *ctx;
};

struct hbm_region {
    struct device_mem *mem;
    uint64_t addr; /* of page 0 on the device, kept when the device is out */
    uint64_t stride_bytes, page_bytes;
    uint64_t at; /* where its first page begins in a block, bytes */
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
    uint32_t refs; /* copies in flight, plus one until the pool is closed */
    bool closed;
    struct hbm_group group[KVC_GROUPS_MAX];
    struct hbm_region regions[]; /* of all groups */
};

/* ---- copies ---- */

/* How far a copy has been cut into fragments. It goes by layers (without `ready` all are one
 * layer); in a layer first the pieces in host memory, then those in slots; in these by region and
 * page. */
struct hbm_cursor {
    uint32_t first, end; /* regions of the layer */
    bool slots;          /* the pieces in slots have begun */
    uint32_t piece, region, page;
    uint64_t done_bytes; /* already cut from a fragment that is larger than one gpu_piece */
    uint64_t layers;     /* layers that are cut whole */
};

/* The device's part of a device_copy. */
struct hbm_copy {
    struct list_node node; /* in hbm_copies.parked */
    struct hbm *hbm;
    struct gpu_op op;
    struct hbm_cursor at; /* once submitted to the gpu, for the device's thread alone */
    bool begun;           /* submitted to the gpu; its slots are held */
};
_Static_assert(sizeof(struct hbm_copy) <= sizeof(((struct device_copy *)0)->priv), "it fits");

static inline struct hbm_copy *hbm__copy(struct device_copy *c)
{
    return (struct hbm_copy *)(void *)c->priv;
}

struct hbm_copies {
    struct list_node parked;           /* hbm_copy: they wait for memory of their slots */
    uint32_t begun;                    /* submitted to the gpu and not ended */
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
    uint32_t generation; /* of the device when the memory was registered */
};

struct hbm_pins {
    struct pool *pool;
    struct list_node list;
    uint64_t leaving_bytes; /* still registered after hbm_unpin_host() */
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

    struct arena *arena; /* NULL: the daemon has no room on the device */
    struct hbm_chunk_mem *chunk_mem;
    uint32_t chunks;
    uint64_t chunk_bytes;
    uint32_t last_no;     /* the hbm_chunk_mem.no that was given last */
    uint32_t held;        /* of chunk_mem, those with hbm_chunk_mem.held */
    uint64_t recalled_ns; /* when a chunk that workers have mapped was retired last */
    /* A bit per page of the arena. taken: a slot that is handed out begins there. dead: the slot's
     * bytes were lost with the device, and it is not freed yet. */
    uint64_t *taken, *dead;
    uint32_t words;
    void *tables;
    uint64_t tables_bytes;

    struct list_node mems, pools;
    struct hbm_copies copies;
    struct hbm_verify *verify; /* NULL: the daemon has no room on the device */
    struct hbm_pins pins;

    void (*retired)(void *ctx, uint32_t chunk, uint32_t principal);
    void *retired_ctx;
    char note[512];
};

static inline struct hbm *hbm__of(const struct device *d)
{
    return CONTAINER_OF((struct device *)(uintptr_t)d, struct hbm, device);
}

/* Whether the device is up, and memory of h->generation can be used. */
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
/* The device is out: the content of all slots is lost. */
void hbm__slots_lost(struct hbm *h);
/* The address of a slot. 0; -EAGAIN: its memory is being allocated; -ENOMEM: workers must first
 * unmap the chunk's memory of before; -EIO: the slot's content was lost. */
KVC_WARN_UNUSED int hbm__slot_at(struct hbm *h, struct tier_loc loc, uint64_t *ret_addr);
/* Whether the slot, which MUST be handed out, is for blocks of this size. */
bool hbm__slot_holds(const struct hbm *h, struct tier_loc loc, uint32_t bytes);
/* A copy in flight uses the slot: its memory is not freed before the release. */
void hbm__slot_hold(struct hbm *h, struct tier_loc loc);
void hbm__slot_release(struct hbm *h, struct tier_loc loc);
/* Index of the slot's chunk in hbm.chunk_mem. */
uint32_t hbm__slot_chunk(const struct hbm *h, struct tier_loc loc);
KVC_WARN_UNUSED int hbm__chunk_export(const struct device *d, uint32_t chunk, uint32_t principal,
                                      struct device_handle *ret_handle, int *ret_headers_fd,
                                      uint64_t *ret_headers_bytes);
void hbm__chunk_lend(struct device *d, uint32_t chunk);
void hbm__chunk_give_back(struct device *d, uint32_t chunk);
/* Bytes of memory that workers must unmap before it is freed. */
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
/* After gpu_close(): frees pools and memory that their users did not give back. */
void hbm__pools_destroy(struct hbm *h);

/* --- hbm_copy.c --- */

KVC_WARN_UNUSED int hbm__copies_create(struct hbm *h);
/* After gpu_close(), with which all copies have ended. */
void hbm__copies_destroy(struct hbm *h);
void hbm__copy_submit(struct device *d, struct device_copy *copy);
/* Looks at copies that wait for memory. They begin if they have it; they end if they are cancelled
 * or late, or the device is out or closing. */
void hbm__copies_look(struct hbm *h);
/* Whether the device works at some copy: one that does not wait for its fence. */
bool hbm__copies_run(const struct hbm *h);
/* Starts the timer: hbm__verify_tick() runs after first_ns, then every HBM_TICK_NS until all is
 * idle. */
void hbm__copies_tick(struct hbm *h, uint64_t first_ns);
/* The memory of a chunk was allocated, or could not be (err < 0): then copies that use it end. */
void hbm__copies_chunk(struct hbm *h, uint32_t chunk, int err);

/* --- hbm_frag.c --- */

/* Before the first hbm__next_piece(). */
void hbm__list_begin(struct device_copy *c);
/* The gpu_next_fn of copies. Runs on the device's thread, so it reads only fields of the copy that
 * nobody changes while the copy is in flight. */
void hbm__next_piece(struct gpu_op *op, struct kvc_frag *frag, uint32_t frags_max,
                     uint64_t bytes_max, struct gpu_piece *ret_piece);

/* --- hbm_verify.c --- */

struct hbm_verify;
uint64_t hbm__verify_host_bytes(const struct hbm_config *config);
/* After hbm__pins_create(). */
KVC_WARN_UNUSED int hbm__verify_create(struct hbm *h);
/* After gpu_close(): operations that wait end. */
void hbm__verify_destroy(struct hbm *h);
/* See tier.h: TIER_VERIFY of a labelled slot. */
void hbm__verify_submit(struct hbm *h, struct tier_op *op);
/* Copies of so many bytes have ended: checks that wait for copies count them. */
void hbm__verify_copied(struct hbm *h, uint64_t bytes);
void hbm__verify_tick(struct hbm *h);
bool hbm__verify_is_idle(const struct hbm *h);

/* --- hbm_pin.c --- */

uint64_t hbm__pins_host_bytes(void);
KVC_WARN_UNUSED int hbm__pins_create(struct hbm *h);
void hbm__pins_destroy(struct hbm *h);
/* The device is up again, with no host memory registered: registers all anew. */
void hbm__pins_up(struct hbm *h);

#endif
