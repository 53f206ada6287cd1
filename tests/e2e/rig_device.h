/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's paged KV memory on an emulated device, for blocks of one size. */
#ifndef KVC_TEST_RIG_DEVICE_H
#define KVC_TEST_RIG_DEVICE_H

#include <kvcache/gpu.h>

#include "rig.h"

#define RIG_DEVICE         "emu:0"
#define RIG_DEVICE_REGIONS 4u
#define RIG_DEVICE_PPB     2u /* pages of a block in each region */

/* A place has room for one block: pages 2 x place and 2 x place + 1 of each region. */
struct rig_pages {
    struct kvc_gpu *gpu; /* borrowed */
    struct kvc_mem *mem;
    struct kvc_pool *pool;
    uint8_t *at;
    uint32_t places, block_bytes, page_bytes;
};

/* Makes memory and pool; block_bytes is a multiple of 8. 0, or the error of the call that failed,
 * with nothing left. */
int rig_pages_open(struct kvc_gpu *gpu, uint32_t block_bytes, uint32_t places,
                   struct rig_pages *ret_pages);
void rig_pages_close(struct rig_pages *p);
uint64_t rig_pages_bytes(const struct rig_pages *p);

/* rig_pages_put() writes the block with this key (rig_fill()) to a place. rig_pages_has(): whether
 * the place holds it. rig_pages_spoil() writes other bytes to n places. */
void rig_pages_put(struct rig_pages *p, uint32_t place, const uint8_t *key);
bool rig_pages_has(const struct rig_pages *p, uint32_t place, const uint8_t *key);
void rig_pages_spoil(struct rig_pages *p, uint32_t place, uint32_t n);
/* Whether nothing was written to n places since rig_pages_spoil(). */
bool rig_pages_untouched(const struct rig_pages *p, uint32_t place, uint32_t n);

/* Page numbers of places first .. first + n - 1, n <= 512. Static, valid until the thread's next
 * call. */
const uint32_t *rig_pages_list(uint32_t first, uint32_t n);
/* Writes blocks first .. n-1 of a chain to places, from `place` on, and stores them from there.
 * Returns the error of the call; statuses as of kvc_store(). */
int rig_pages_store(struct kvc_ns *ns, struct rig_pages *p, uint32_t place, const uint8_t *keys,
                    uint32_t first, uint32_t n, uint32_t block_tokens, unsigned flags,
                    uint8_t *statuses);
/* Spoils n places from `place` on and loads a chain of n blocks into them. Returns the error of the
 * call, or how many blocks have arrived. */
int rig_pages_load(struct kvc_ns *ns, struct rig_pages *p, uint32_t place, const uint8_t *keys,
                   uint32_t n, uint32_t block_tokens, unsigned timeout_ms);

/* Where to read a held block: on the device if it is there, else in host memory. */
const void *rig_hold_data(const struct kvc_hold *hold, uint32_t i);

/* What the daemon tells of its device; fails if it has none. */
struct kvc_device rig_device(struct kvc *k);
/* Waits until the device is up (or, up false, out). */
void rig_await_device(struct kvc *k, bool up);
/* Bytes that process `pid` has mapped of files whose name contains `name` (/proc/PID/maps). */
uint64_t rig_mapped(pid_t pid, const char *name);
/* Changes a byte of a block in the memory that /proc/PID/maps calls `name`, where the block must
 * occur once. False: the system forbids that. */
bool rig_flip(pid_t pid, const char *name, const void *block, uint32_t block_bytes);
/* Number of open descriptors of a process. */
unsigned rig_descriptors(pid_t pid);

/* Names in /proc/PID/maps of an emulated device's memory. */
#define RIG_WORKERS_MEMORY "memfd:kvcache-emulated-device"
#define RIG_HOST_MEMORY    "memfd:kvc-chunk"
#define RIG_DAEMONS_MEMORY "memfd:kvc-emu"

#endif
