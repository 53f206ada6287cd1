/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An hbm with one or two workers: their memory, pools in it, host memory, and copies with their
 * expected results.
 *
 * All functions work with any gpu: the fake one (fake_gpu.h), which `step` runs, and the emulated
 * one, which runs by itself.
 */
#ifndef KVC_TEST_HBM_RIG_H
#define KVC_TEST_HBM_RIG_H

#include "device_range.h"
#include "hbm.h"
#include "list.h"
#include "tier_fixture.h"

#define RIG_MIB         (1024u * 1024u)
#define RIG_HOST_BYTES  (UINT64_C(32) << 20)
#define RIG_PAGES_MAX   40u
#define RIG_PIECES      48u
#define RIG_BLOCK_PAGES 16u /* most pages of a block in any layout */
#define RIG_REGIONS     400u

struct rig {
    struct loop *loop;
    struct hbm *hbm;
    struct device *d;
    struct tier *t;                /* its slots */
    void (*step)(struct gpu *gpu); /* lets the device work; NULL: it runs by itself */
    uint8_t *host;                 /* RIG_HOST_BYTES, page-aligned */
    uint32_t ups, losts, retired;
    uint32_t last_retired, last_principal;
    uint64_t rng;
};
struct rig_config {
    const char *device;
    uint64_t limit_bytes, chunk_bytes;
    const char *fault_file;
    uint64_t latency_ns, memory_bytes, inflight_bytes; /* settings of an emulated device */
    void (*step)(struct gpu *gpu);
};
void rig_open(struct rig *r, const struct rig_config *config);
void rig_close(struct rig *r);
/* Runs one turn: the device, then the loop. */
void rig_turn(struct rig *r);
#define RIG_UNTIL(r, condition) \
    do {                        \
        while (!(condition))    \
            rig_turn(r);        \
    } while (0)

uint64_t rig_random(struct rig *r);
uint32_t rig_below(struct rig *r, uint32_t n);
/* Fills memory with bytes that occur nowhere else. */
void rig_scribble(struct rig *r, void *at, uint64_t bytes);

/* ---- a worker's memory ---- */

struct rig_mem {
    struct device_mem *mem;
    uint8_t *at;     /* the worker's mapping of the memory */
    uint8_t *expect; /* the bytes that the memory must have */
    uint64_t bytes;
    struct device_range range;
    int err; /* result of the import; 1: it has not ended */
};
void rig_mem_make(struct rig *r, struct rig_mem *m, uint64_t bytes);
/* Calls mem_import() and returns its result; m->err is the result that its callback got. */
int rig_mem_import(struct rig *r, struct rig_mem *m);
void rig_mem_unmake(struct rig_mem *m);
/* Checks that the memory has the bytes of `expect`. */
void rig_mem_check(const struct rig_mem *m);

/* ---- pools ---- */

enum rig_layout {
    RIG_KV_APART, /* a region for K and one for V of each layer, K and V in memories of their own */
    RIG_KV_TOGETHER, /* one region for each layer, pages side by side */
    RIG_ACROSS,      /* a page has all layers: regions are interleaved */
    RIG_MLA,         /* one region for each layer, with pages of an odd size */
    RIG_LAYOUTS
};
struct rig_pool {
    struct device_pool *pool;
    struct rig_mem mem[2];
    uint32_t nmems;
    struct device_pool_spec spec;
    struct device_region region[RIG_REGIONS];
    uint8_t from[RIG_REGIONS]; /* memory in which each region lies */
    uint32_t layers;
    uint32_t block_bytes;
};
/* Imports the memory and opens the pool. */
void rig_pool_open(struct rig *r, struct rig_pool *p, enum rig_layout layout, uint32_t layers,
                   uint32_t pages_per_block);
/* Makes the pool's spec, without memory. ret_bytes: the size of each memory that the pool needs. */
void rig_pool_spec(struct rig_pool *p, enum rig_layout layout, uint32_t layers,
                   uint32_t pages_per_block, uint64_t ret_bytes[2]);
void rig_pool_check(const struct rig_pool *p);
void rig_pool_close(struct rig *r, struct rig_pool *p);

/* rig_gather() collects a block from the expected bytes of its pages; rig_scatter() makes a block
 * the expected bytes of its pages. */
void rig_gather(const struct rig_pool *p, const uint32_t *pages, uint8_t *ret_block);
void rig_scatter(struct rig_pool *p, const uint32_t *pages, const uint8_t *block);
/* Whether the worker sees layers `first` to `end` - 1 of the block in the pages. */
bool rig_layers_are(const struct rig_pool *p, const uint32_t *pages, const uint8_t *block,
                    uint64_t first, uint64_t end);

/* ---- copies ---- */

struct rig_copy {
    struct device_copy c;
    struct device_piece piece[RIG_PIECES];
    uint32_t pages[RIG_PIECES][RIG_BLOCK_PAGES];
    uint32_t dones;
};
/* Makes n pieces: host memory from host + i * slot bytes on, and different pages for each. */
void rig_copy_init(struct rig *r, struct rig_copy *c, enum device_copy_kind kind,
                   struct rig_pool *p, uint32_t n);
void rig_submit(struct rig *r, struct rig_copy *c);
/* Clears what an earlier copy left in the pieces. */
void rig_copy_anew(struct rig_copy *c);
/* Submits a copy and waits for its end. Returns its status. */
int rig_copy(struct rig *r, struct rig_copy *c);

/* Allocates a slot, fills it with these bytes, and labels it. */
struct tier_loc rig_fill(struct rig *r, uint32_t principal, const void *bytes, uint32_t n);
int rig_fill_slot(struct rig *r, struct tier_loc loc, const void *bytes, uint32_t n);
void rig_set_label(struct rig *r, struct tier_loc loc, uint32_t bytes);

/* ---- room ---- */

/* Allocates a slot for this principal, with occupant 1. */
int rig_alloc(struct rig *r, uint32_t principal, uint32_t bytes, struct tier_loc *ret_loc);
struct tier_view rig_view(struct rig *r, struct tier_loc loc);
struct rig_victims {
    struct tier_loc loc[4096];
    uint32_t n;
};
void rig_free_all(struct rig *r, struct rig_victims *v);
/* Makes room as core does: frees the blocks that must go. Returns their number. */
uint32_t rig_drain(struct rig *r, uint32_t principal, uint32_t bytes);
/* Exports the chunk to a session of this principal. Returns the result. */
int rig_export(struct rig *r, uint32_t chunk, uint32_t principal);

#endif
