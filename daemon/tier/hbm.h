/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hbm: device.h over a gpu (io/gpu.h).
 *
 * Slots are an arena (arena.h) whose chunks are headers alone: each chunk is a sparse memfd of
 * which only header pages are ever touched, and beside it an allocation of the same size on the
 * device, where the payload lies at the offsets that the arena says. So limits, principals, slabs,
 * evacuation and generations are the arena's, and workers look at a slot's generation as they do in
 * host memory. Device memory is allocated when a chunk gets its first principal, and freed when it
 * is retired and no worker has it mapped any more.
 *
 * Threads: control thread. Memory: all of it is allocated in hbm_create(), but for pools and
 * imported memory.
 */
#ifndef KVC_TIER_HBM_H
#define KVC_TIER_HBM_H

#include "device.h"
#include "gpu.h"
#include "loop.h"

struct hbm_config {
    struct gpu_config gpu; /* `changed`, `refuse` and `ctx` are hbm's */
    /* As gpu_config.refuse, each time that device `no` comes up. NULL: no device is refused. */
    const char *(*refuse)(void *ctx, uint32_t no, const uint8_t uuid[GPU_UUID_BYTES]);
    void *refuse_ctx;
    uint32_t no; /* device.no */
    /* Most device memory for slots, pages of headers included: 8 MiB to 8 TiB; 0: no slots. */
    uint64_t limit_bytes;
    uint64_t chunk_bytes; /* 0: 64 MiB, less where the limit is small */
};

struct hbm;

/* NULL, or what is wrong, in words. */
const char *hbm_config_problem(const struct hbm_config *config);
/* Host memory that it takes at most: headers and tables. */
uint64_t hbm_host_bytes(const struct hbm_config *config);
/* Errors of gpu_open() and arena_create(); -ENOSPC: the loop has no watch left (one more than the
 * gpu takes). Quick; the device comes up later. */
KVC_WARN_UNUSED int hbm_create(const struct hbm_config *config, struct loop *loop,
                               struct hbm **ret_hbm);
/* Waits for copies in flight; their done() runs from here. Accepts NULL. */
void hbm_destroy(struct hbm **hbm);
struct device *hbm_device(struct hbm *hbm);
struct gpu *hbm_gpu(struct hbm *hbm);
/* Registers a chunk of the host tier with the device, so that copies are faster. It happens later;
 * where it fails, as for the 4,097th piece, copies are slower. After hbm_unpin_host() the device
 * releases the memory soon, and before any copy that is submitted later. */
void hbm_pin_host(struct hbm *hbm, void *base, uint64_t bytes);
void hbm_unpin_host(struct hbm *hbm, void *base, uint64_t bytes);
/* Bytes that the device still has registered after hbm_unpin_host(): their pages are not free. */
uint64_t hbm_leaving_bytes(const struct hbm *hbm);
/* fn is called when a chunk is about to be freed (see arena_set_retired), and for each chunk when
 * the device is out: its number names no memory from then on. fn must not call the device. */
void hbm_set_retired_cb(struct hbm *hbm, void (*fn)(void *ctx, uint32_t chunk, uint32_t principal),
                        void *ctx);
/* Text for the startup log and for stats. */
const char *hbm_note(struct hbm *hbm);

#endif
