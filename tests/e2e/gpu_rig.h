/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker with paged KV memory on a device, like an engine. The device is that of $KVC_TEST_DEVICE
 * ("cuda:0"), else "emu:0". A test reads and writes device memory through these functions only,
 * because the process cannot reach a GPU's bytes. A function that cannot do its work fails the
 * test.
 */
#ifndef KVC_TEST_GPU_RIG_H
#define KVC_TEST_GPU_RIG_H

#include <kvcache/gpu.h>

#include "rig.h"

#define GPU_BT      16u /* tokens of a block */
#define GPU_LAYERS  4u
#define GPU_PPB     2u /* pages of a block */
#define GPU_REGIONS (2 * GPU_LAYERS)
#define GPU_PAGE    (RIG_BLOCK / GPU_REGIONS / GPU_PPB) /* bytes of a page of one region */
#define GPU_PAGES   256u
#define GPU_BYTES   ((uint64_t)GPU_REGIONS * GPU_PAGES * GPU_PAGE)

/* Layouts of the pages in device memory. The bytes of a block are the same in the first three
 * layouts, in the order layer 0 K, layer 0 V, layer 1 K, and so on. The other two have pages twice
 * as long, and other bytes. */
enum gpu_layout {
    GPU_APART,  /* K and V of each layer in tensors of their own */
    GPU_BESIDE, /* a tensor for each layer, K and V of a page beside each other: strides overlap */
    GPU_ACROSS, /* all layers of a page lie beside each other */
    GPU_TOGETHER, /* a tensor for each layer; a page has K and V */
    GPU_MLA,      /* one latent for each layer */
    GPU_LAYOUTS
};

struct gpu_worker {
    struct kvc *k;
    struct kvc_ns *ns;
    struct kvc_gpu *gpu;
    struct kvc_mem *mem;
    uint64_t at; /* device address of the memory */
    enum gpu_layout layout;
    struct kvc_pool_region region[GPU_REGIONS];
    uint32_t regions;
    struct kvc_pool *pool;
};

const char *gpu_rig_device(void);
/* Why this machine cannot use the device; NULL: it may be able to. */
const char *gpu_rig_problem(void);
/* "hbm.devices=<device>=<size>", for rig_start(). */
const char *gpu_rig_setting(const char *size);
/* Waits until the daemon's device is up; then opens a session, its device and a pool. */
void gpu_open(struct gpu_worker *w, const struct rig *r, enum gpu_layout layout);
/* Opens the pool again, after it was closed alone. */
void gpu_open_pool(struct gpu_worker *w);
struct kvc_pool_spec gpu_spec(const struct gpu_worker *w);
/* Closes whatever is open. */
void gpu_close(struct gpu_worker *w);

/* Copies to and from device memory. */
void gpu_put(struct gpu_worker *w, uint64_t to, const void *from, uint64_t bytes);
void gpu_get(struct gpu_worker *w, void *to, uint64_t from, uint64_t bytes);
/* The stream of the worker, and a wait until all its work has been executed. */
void *gpu_stream(void);
void gpu_sync(void);
uint64_t gpu_page_at(const struct gpu_worker *w, uint32_t region, uint32_t page);

/* Writes a block's bytes to its pages, region by region, and reads them. */
void gpu_put_block(struct gpu_worker *w, const uint32_t *pages, const void *block);
void gpu_get_block(struct gpu_worker *w, const uint32_t *pages, void *ret_block);
/* Sets, and compares, every byte of a page. */
void gpu_fill_page(struct gpu_worker *w, uint32_t page, uint8_t byte);
bool gpu_page_is(struct gpu_worker *w, uint32_t page, uint8_t byte);
/* Draws n different page numbers from a random state. */
void gpu_pick_pages(uint64_t *random, uint32_t n, uint32_t *ret_pages);
uint32_t gpu_random(uint64_t *random, uint32_t below);

/* What the daemon tells of its first device. */
struct kvc_device gpu_device(struct kvc *k);
/* False also if the session is down. */
bool gpu_device_is_up(struct kvc *k);

#endif
