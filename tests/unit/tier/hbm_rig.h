/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An hbm with a worker or two around it: memory of theirs, pools in it, host memory, and copies
 * with what they must come to.
 *
 * Everything here works over any gpu: the fake one (fake_gpu.h), which `step` lets run, and the
 * emulated one, which runs by itself.
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
#define RIG_BLOCK_PAGES 16u /* most that a block of a layout has */
#define RIG_REGIONS     400u

struct rig {
    struct loop *loop;
    struct hbm *hbm;
    struct device *d;
    struct tier *t;                /* its slots */
    void (*step)(struct gpu *gpu); /* NULL: it runs by itself */
    uint8_t *host;                 /* RIG_HOST_BYTES, page-aligned */
    uint32_t ups, losts, retired;
    uint32_t last_retired, last_principal;
    uint64_t rng;
};
struct rig_config {
    const char *device;
    uint64_t limit_bytes, chunk_bytes;
    const char *fault_file;
    uint64_t latency_ns, memory_bytes, inflight_bytes; /* of an emulated device */
    void (*step)(struct gpu *gpu);
};
void rig_open(struct rig *r, const struct rig_config *config);
void rig_close(struct rig *r);
/* One turn: the device, then the loop. */
void rig_turn(struct rig *r);
#define RIG_UNTIL(r, condition) \
    do {                        \
        while (!(condition))    \
            rig_turn(r);        \
    } while (0)

uint64_t rig_random(struct rig *r);
uint32_t rig_below(struct rig *r, uint32_t n);
/* Bytes that are nobody else's. */
void rig_scribble(struct rig *r, void *at, uint64_t bytes);

/* ---- a worker's memory ---- */

struct rig_mem {
    struct device_mem *mem;
    uint8_t *at;     /* the worker's mapping of it */
    uint8_t *expect; /* what has to be in it */
    uint64_t bytes;
    struct device_range range;
    int err; /* 1: not heard yet */
};
void rig_mem_make(struct rig *r, struct rig_mem *m, uint64_t bytes);
/* mem_import(), and how that went; m->err is what fn said. */
int rig_mem_import(struct rig *r, struct rig_mem *m);
void rig_mem_unmake(struct rig_mem *m);
/* All of it is as it has to be. */
void rig_mem_check(const struct rig_mem *m);

/* ---- pools ---- */

enum rig_layout {
    RIG_KV_APART,    /* a region for K and one for V per layer, K and V in memory of their own */
    RIG_KV_TOGETHER, /* one region per layer, its pages next to each other */
    RIG_ACROSS,      /* a page has all layers: regions are interleaved */
    RIG_MLA,         /* one region per layer, pages of no round size */
    RIG_LAYOUTS
};
struct rig_pool {
    struct device_pool *pool;
    struct rig_mem mem[2];
    uint32_t nmems;
    struct device_pool_spec spec;
    struct device_region region[RIG_REGIONS];
    uint8_t from[RIG_REGIONS]; /* which memory */
    uint32_t layers;
    uint32_t block_bytes;
};
/* Memory imported, pool open. */
void rig_pool_open(struct rig *r, struct rig_pool *p, enum rig_layout layout, uint32_t layers,
                   uint32_t pages_per_block);
/* Without its memory, which may be known already (bytes 0: it is made). */
void rig_pool_spec(struct rig_pool *p, enum rig_layout layout, uint32_t layers,
                   uint32_t pages_per_block, uint64_t ret_bytes[2]);
void rig_pool_check(const struct rig_pool *p);
void rig_pool_close(struct rig *r, struct rig_pool *p);

/* What is in the pages (`expect`), as a block; and the other way round. */
void rig_gather(const struct rig_pool *p, const uint32_t *pages, uint8_t *ret_block);
void rig_scatter(struct rig_pool *p, const uint32_t *pages, const uint8_t *block);
/* Whether the layers from `first` to before `end` of the block are in the pages, as a worker sees
 * it.
 */
bool rig_layers_are(const struct rig_pool *p, const uint32_t *pages, const uint8_t *block,
                    uint64_t first, uint64_t end);

/* ---- copies ---- */

struct rig_copy {
    struct device_copy c;
    struct device_piece piece[RIG_PIECES];
    uint32_t pages[RIG_PIECES][RIG_BLOCK_PAGES];
    uint32_t dones;
};
/* n pieces, of host memory from host + i * slot bytes on, and pages that differ. */
void rig_copy_init(struct rig *r, struct rig_copy *c, enum device_copy_kind kind,
                   struct rig_pool *p, uint32_t n);
void rig_submit(struct rig *r, struct rig_copy *c);
/* What a copy before it has left in the pieces is forgotten. */
void rig_copy_anew(struct rig_copy *c);
/* Submits, waits, and returns the status. */
int rig_copy(struct rig *r, struct rig_copy *c);

/* A slot with these bytes, labelled. */
struct tier_loc rig_fill(struct rig *r, uint32_t principal, const void *bytes, uint32_t n);
int rig_fill_slot(struct rig *r, struct tier_loc loc, const void *bytes, uint32_t n);
void rig_set_label(struct rig *r, struct tier_loc loc, uint32_t bytes);

/* ---- room ---- */

/* A slot of this principal, of occupant 1. */
int rig_alloc(struct rig *r, uint32_t principal, uint32_t bytes, struct tier_loc *ret_loc);
struct tier_view rig_view(struct rig *r, struct tier_loc loc);
struct rig_victims {
    struct tier_loc loc[4096];
    uint32_t n;
};
void rig_free_all(struct rig *r, struct rig_victims *v);
/* As core does it: what has to go is freed. Returns how many. */
uint32_t rig_drain(struct rig *r, uint32_t principal, uint32_t bytes);
/* How giving the chunk to a session of this principal goes. */
int rig_export(struct rig *r, uint32_t chunk, uint32_t principal);

#endif
