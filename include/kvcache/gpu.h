/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvcache for paged KV memory: pools of pages on a GPU that the daemon reads and writes, or in
 * the worker's own memory; blocks that the daemon keeps on the device (slots); and copies that the
 * worker makes itself.
 *
 * Devices are CUDA devices, or emulated ones ("emu:0": shared host memory, whose addresses are
 * plain pointers; for tests, and for machines without a GPU). The CUDA driver is found at run time;
 * the library does not link it. A device is usable when both sides can open it.
 *
 * The device "host" is the memory of this process. It needs no GPU and no rights, and the daemon
 * has no access to it. Its pools work while the daemon is absent. mem of its regions may be NULL,
 * and base is an address then. kvc_pages_load, kvc_pages_store, kvc_gpu_load, kvc_gpu_stage and
 * kvc_put copy in the caller's thread with memcpy, all layers of all blocks in one call. Stores go
 * through staging, as those of kvc_put do. This device has no words (-EINVAL) and no slots.
 * kvc_pages_load_begin and kvc_pages_store_begin return -EOPNOTSUPP; use kvc_acquire_begin and
 * kvc_gpu_load, or kvc_gpu_stage and kvc_store_begin.
 *
 * Return values, threads and fork are those of <kvcache/kvcache.h>. When the session reconnects
 * (kvc_epoch changes), the next call that needs a pool or a registration makes it again. If a
 * device is out (it failed, or the daemon has no such device), loads are misses and stores return
 * KVC_E_TIER.
 *
 * Order. A store must not begin before the worker's kernels have written the pages. So the caller
 * gives it a word (`after`), which the stream writes after those kernels (kvc_gpu_signal). The
 * caller may read the pages of a load once the call has returned. It may also read them layer by
 * layer: `ready` counts the layers that are complete (kvc_gpu_wait, or read the word). A layer is
 * complete when its copies have ended, even if some failed; kvc_loaded says which succeeded.
 *
 * When a call has returned or an op is done, successful or not, nothing touches its pages any more
 * (one exception is below). If the daemon has died, the call waits for that until the daemon's
 * process has ended. If the daemon lives but has ended the session, or does not answer, the call
 * waits 2 s.
 *
 * The exception is a daemon that is stopped (SIGSTOP, a frozen cgroup, a paused machine) and
 * continues after these 2 s. Before they begin the library raises a word that both share. The
 * daemon reads it before each piece (8 MiB or less) of a copy and after the last one, and gives the
 * device nothing more of such a request. The device may still do copies that it was given before
 * (64 MiB at most, some milliseconds). One further piece may follow: the piece that a thread of the
 * daemon was giving to the device, or an emulated device was copying, when the daemon was stopped.
 * Such a piece may still write to the pages of a load. Of a store the daemon keeps no block whose
 * bytes were read after the word was raised.
 */
#ifndef KVCACHE_GPU_H
#define KVCACHE_GPU_H

#include <kvcache/kvcache.h>
#include <kvcache/rows.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVC_ABI_GPU                                                                           \
    KVC_ABI(kvc_rate), KVC_ABI(kvc_device), KVC_ABI(kvc_pool_region), KVC_ABI(kvc_pool_spec), \
        KVC_ABI(kvc_word), KVC_ABI(kvc_pages_load), KVC_ABI(kvc_loaded)

/* ---- devices ---- */

/* The fastest way to load blocks into pages of frag_bytes (page_bytes of a pool's regions), from
 * the daemon's measurements of the nearest size:
 *
 *   KVC_COPY_ENGINE, KVC_COPY_KERNEL   kvc_pages_load: the daemon copies page by page
 *   KVC_COPY_WINDOW                    kvc_acquire_on, then kvc_gpu_load: blocks come in one piece,
 *                                      and the worker scatters them on its own stream
 *   KVC_COPY_UNKNOWN                   not measured yet
 *
 * The window is returned only when it is a quarter faster than the engine and no slower than the
 * kernel, because it takes room in slots (hbm.devices) and the worker's own time. For a block that
 * is in a slot already, only the scattering remains. `rate`: n rows of KVC_TABLE_RATES; rows of
 * other devices are ignored. Needs no session, and any thread may call it. */
KVC_API enum kvc_copy_path kvc_load_path(const struct kvc_device *device,
                                         const struct kvc_rate *rate, size_t n,
                                         uint32_t frag_bytes);

/* ---- the worker's side of a device ---- */

/* Streams. A `stream` below is a CUstream (a cudaStream_t is one): one that the worker has made,
 * the default stream (NULL or CU_STREAM_LEGACY: no batches of copies there, so copies of large
 * fragments cost the host more) or the thread's own default stream (CU_STREAM_PER_THREAD, which
 * PyTorch's may be). A stream that is being captured into a graph is refused with -EINVAL, and so
 * is the default stream while any stream is being captured: blocks move, and a graph would keep
 * their old addresses. Call these functions before or after the launch of a graph. */

struct kvc_op;  /* async.h */
struct kvc_gpu; /* a device that a session has opened; close it before the session */
struct kvc_mem; /* memory on a device that can be shared with the daemon; belongs to its kvc_gpu */

/* Opens a device. device: as kvc_device.device, "MIG-<uuid>", "cuda:<ordinal>", or "host". A
 * session can open a device once (-EINVAL). CUDA: each call makes the device's primary context
 * current, and restores the previous one. -ENODEV: no such device or no driver; kvc_last_error
 * names the next step. -EINVAL, -ENOMEM. */
KVC_API KVC_MUST_USE int kvc_gpu_open(struct kvc *kvc, const char *device,
                                      struct kvc_gpu **ret_gpu);
/* Closes the device's pools and frees its memories too. Sets *gpu to NULL. Accepts NULL. */
KVC_API void kvc_gpu_close(struct kvc_gpu **gpu);

/* Allocates memory on the device that the daemon can import. *ret_addr: its device address
 * (emulated: a pointer). -ENOMEM. */
KVC_API KVC_MUST_USE int kvc_mem_alloc(struct kvc_gpu *gpu, uint64_t bytes, void **ret_addr,
                                       struct kvc_mem **ret_mem);
/* Registers memory that the caller owns (cudaMalloc, cuMemCreate with a descriptor handle,
 * PyTorch), which the caller still owns. -EOPNOTSUPP: it cannot be shared with the daemon; the
 * worker copies with kvc_gpu_load then. */
KVC_API KVC_MUST_USE int kvc_mem_register(struct kvc_gpu *gpu, void *addr, uint64_t bytes,
                                          struct kvc_mem **ret_mem);
/* Ends the use of a memory: frees it if kvc_mem_alloc made it, and leaves registered memory to the
 * caller. If pools use the memory, this happens when the last of them is closed. Sets *mem to NULL.
 * Accepts NULL. */
KVC_API void kvc_mem_free(struct kvc_mem **mem);

/* The session's KVC_WORDS completion words, in memory shared with the daemon; NULL when the session
 * is down. The caller decides the use of each word. Loads that are in flight at the same time need
 * different words for `ready`. Values are below 2^63.
 *
 * A reconnect gives the session another page, whose words are zero. Until this function or
 * kvc_gpu_signal is called again, loads that name words are misses and stores return KVC_E_DOWN.
 * The page before stays mapped, for streams that still write to it. */
KVC_API volatile uint64_t *kvc_gpu_words(struct kvc_gpu *gpu);
/* Sets word = value when the work that is on the stream now has ended (CUstream; NULL: the default
 * one). Emulated: at once. word: a number below KVC_WORDS. */
KVC_API KVC_MUST_USE int kvc_gpu_signal(struct kvc_gpu *gpu, void *stream, uint32_t word,
                                        uint64_t value);
/* Later work on the stream waits until word >= value. Emulated: the caller waits, for the session's
 * timeout at most (-ETIMEDOUT). A wait for the `ready` word of a load ends when the load's op is
 * done, even if it failed: the word is at least value + layers then. */
KVC_API KVC_MUST_USE int kvc_gpu_wait(struct kvc_gpu *gpu, void *stream, uint32_t word,
                                      uint64_t value);

/* ---- pools ---- */

/* Pages: page p of a region is the page_bytes bytes at base + p * stride_bytes of its memory.
 *   K and V per layer:   two regions a layer
 *   K and V together:    one region a layer (their page holds both), or two that overlap in stride
 *   across layers:       a region per layer (and K, V), with the stride of a whole page
 *   MLA:                 one region a layer
 * A block is the bytes of its pages, region by region, in the order given here. Workers whose pages
 * differ inside (NHD, HND) must say so in their namespace's `layout`. */
struct kvc_pool_region {
    struct kvc_mem *mem; /* "host": may be NULL, base is an address then */
    uint64_t base, stride_bytes, page_bytes;
    uint32_t layer; /* of the model; a group's regions are in ascending order of layers */
};
struct kvc_pool_spec {
    uint32_t pages_max; /* page numbers are below it */
    uint32_t groups;    /* as in the namespaces that use the pool */
    struct {
        uint32_t pages_per_block; /* block_tokens / tokens of a page */
        uint32_t regions;
        const struct kvc_pool_region *region; /* the call copies the array */
    } group[KVC_GROUPS_MAX];
};
/* Stands in a list of page numbers for a page that does not exist: a load copies nothing to it, and
 * a store stores zeros. It is for the pages of a partly filled block that hold no token. Where the
 * daemon copies (pools on devices), it is allowed only for whole blocks of kvc_put. */
#define KVC_NO_PAGE UINT32_MAX

struct kvc_pool; /* belongs to its kvc_gpu */
/* KVC_E_BAD_ARGUMENT: the spec is wrong, and kvc_last_error says where. KVC_E_TIER: the daemon has
 * no such device, or it is out. KVC_E_FULL: the device has too little memory to import the pool's.
 * KVC_E_LIMIT: the session has KVC_POOLS_MAX pools. */
KVC_API KVC_MUST_USE int kvc_pool_open(struct kvc_gpu *gpu, const struct kvc_pool_spec *spec,
                                       struct kvc_pool **ret_pool);
KVC_API void kvc_pool_close(struct kvc_pool **pool);

/* A word and a value. A field of this type that is all zeros means: no word. */
struct kvc_word {
    uint32_t word; /* number of the word + 1; 0: none */
    uint64_t value;
};
struct kvc_pages_load {
    unsigned flags;                                /* KVC_F_WAIT, KVC_F_NO_LOAD, KVC_F_ALL */
    uint32_t from_tokens, wait_tokens, timeout_ms; /* as in kvc_acquire_options */
    struct kvc_word after; /* pages are written only when this word has reached this value */
    struct kvc_word ready; /* set to value + number of complete layers, as layers complete */
    /* pages_per_block numbers for each key of the group, without the keys of the first from_tokens
     * tokens (from_tokens / block_tokens keys). */
    const uint32_t *pages[KVC_GROUPS_MAX];
};
struct kvc_loaded {
    struct kvc_prefix prefix; /* the cached prefix that was found */
    uint32_t tokens;          /* of the prefix, whose blocks have all arrived in the pages */
    struct {
        uint32_t first, n;       /* statuses are of blocks first to first + n - 1 of the group */
        const uint8_t *statuses; /* KVC_ST_OK: in its pages. Borrowed until the pool's next call */
    } group[KVC_GROUPS_MAX];
};
/* Loads the longest cached prefix of seq into the pages, blocks on disk too. Returns 0 with nothing
 * loaded when there is no hit, no daemon or no device. KVC_E_TOO_LARGE: more than 4,096 blocks;
 * raise from_tokens step by step. */
KVC_API KVC_MUST_USE int kvc_pages_load(struct kvc_ns *ns, const struct kvc_seq *seq,
                                        struct kvc_pool *pool, const struct kvc_pages_load *load,
                                        struct kvc_loaded *ret_loaded);
/* Stores blocks out of pages. pages: pages_per_block numbers for each key of blocks. after: the
 * pages are read only when this word has reached its value. statuses: as in kvc_store. */
KVC_API KVC_MUST_USE int kvc_pages_store(struct kvc_ns *ns, const struct kvc_blocks *blocks,
                                         struct kvc_pool *pool, const uint32_t *pages,
                                         struct kvc_word after, const uint32_t *tokens,
                                         size_t ntokens, uint8_t *statuses);
/* The begin halves (async.h). The daemon may use the named pages until the op is finished. After
 * kvc_finish of a load kvc_pages_loaded of its pool returns the kvc_loaded. kvc_cancel works as for
 * stores. */
KVC_API KVC_MUST_USE int kvc_pages_load_begin(struct kvc_ns *ns, const struct kvc_seq *seq,
                                              struct kvc_pool *pool,
                                              const struct kvc_pages_load *load,
                                              struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_pages_store_begin(struct kvc_ns *ns, const struct kvc_blocks *blocks,
                                               struct kvc_pool *pool, const uint32_t *pages,
                                               struct kvc_word after, const uint32_t *tokens,
                                               size_t ntokens, struct kvc_op **ret_op);
KVC_API void kvc_pages_loaded(const struct kvc_pool *pool, struct kvc_loaded *ret_loaded);

/* ---- slots: blocks that the daemon keeps on the device, read in place ---- */

/* kvc_acquire, but the daemon copies the blocks to the device first, as far as slots have room. A
 * block that is on the device already is not loaded from storage into host memory.
 * kvc_hold_device() returns the device address of a block of the hold; kvc_block.data is NULL for
 * such a block. It returns NULL for a block that is in host memory alone, at kvc_block.data.
 *
 * The worker must only read slots. A write to a slot of an emulated device faults. CUDA's driver
 * does not enforce this between processes: a kernel that writes to a slot may change the bytes that
 * other workers of the same principal read, unnoticed. Other principals never share a slot.
 *
 * -EOPNOTSUPP, -EINVAL, -EIO: this process cannot map the daemon's memory on the device. */
KVC_API KVC_MUST_USE int kvc_acquire_on(struct kvc_ns *ns, const struct kvc_seq *seq,
                                        struct kvc_gpu *gpu,
                                        const struct kvc_acquire_options *options,
                                        struct kvc_hold **ret_hold);
KVC_API const void *kvc_hold_device(const struct kvc_hold *hold, uint32_t group, uint32_t i);

/* A view of block i of a group as a DLPack tensor (https://dmlc.github.io/dlpack), 1-D and uint8.
 * It is on the device if the block is there, else in host memory (an emulated device is kDLCPU).
 * The caller owns the view. Its deleter, which any thread may call at any time, frees the view
 * alone, so the hold must outlive the view. Other workers share the bytes, and must not be
 * disturbed: only read them. NULL: out of memory, or there is no such block.
 *
 * kvc_hold_dlpack_versioned is for consumers that ask for max_version (numpy from 2.1 on, recent
 * PyTorch; a capsule "dltensor_versioned"): since DLPack 1.0 the view itself says READ_ONLY.
 * kvc_hold_dlpack is for the others (a capsule "dltensor"). client/examples/dlpack.py makes both in
 * Python. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;
KVC_API struct DLManagedTensor *kvc_hold_dlpack(const struct kvc_hold *hold, uint32_t group,
                                                uint32_t i);
KVC_API struct DLManagedTensorVersioned *kvc_hold_dlpack_versioned(const struct kvc_hold *hold,
                                                                   uint32_t group, uint32_t i);

/* ---- copies that the worker makes ---- */

/* Copies the blocks of a hold to pages on the worker's stream, from host memory or from slots. The
 * daemon takes no part, so it works for memory that cannot be exported. The first use of a chunk of
 * host memory registers it with the driver. spec: as for a pool, but mem of its regions may be NULL
 * (base is an address then). pages[g]: pages_per_block numbers for each of the hold's blocks;
 * KVC_NO_PAGE is passed over. Emulated: the copies have ended when it returns. */
KVC_API KVC_MUST_USE int kvc_gpu_load(struct kvc_gpu *gpu, const struct kvc_hold *hold,
                                      const struct kvc_pool_spec *spec,
                                      const uint32_t *const pages[KVC_GROUPS_MAX], void *stream);
/* Copies pages to the staging area on the worker's stream: block i of n to offsets[i]. The caller
 * calls kvc_store when the stream has done the copies. */
KVC_API KVC_MUST_USE int kvc_gpu_stage(struct kvc_gpu *gpu, const struct kvc_pool_spec *spec,
                                       uint32_t group, const uint32_t *pages, uint32_t n,
                                       const uint64_t *offsets, void *stream);

#ifdef __cplusplus
}
#endif
#endif
