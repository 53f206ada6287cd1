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
 * The device "host" is the memory of this process: no GPU and no rights are needed, the daemon is
 * given none of it, and its pools are there while the daemon is not. A region's mem is NULL then,
 * and its base an address. kvc_pages_load, kvc_pages_store, kvc_gpu_load, kvc_gpu_stage and kvc_put
 * copy in the caller's thread: memcpy, neighbours in one piece, all layers of all blocks in a call.
 * Stores go through staging, as kvc_put's do. It has no words (-EINVAL), no slots, and no begin
 * halves (-EOPNOTSUPP: kvc_acquire_begin and kvc_gpu_load, kvc_gpu_stage and kvc_store_begin).
 *
 * Return values, threads and fork are those of <kvcache/kvcache.h>. When the session reconnects
 * (kvc_epoch changes) pools and registrations are made again by themselves, at the next call that
 * needs them; a device that is out (it failed, or the daemon has none such) is a miss for what
 * reads and KVC_E_TIER for what stores.
 *
 * Order. A store must not begin before the worker's kernels have written the pages: give it a word
 * (`after`) that the stream writes when they have (kvc_gpu_signal). What a load has copied may be
 * read when it has returned, or layer by layer: `ready` counts the layers that are complete
 * (kvc_gpu_wait, or a look at the word). A layer is complete when its copies have ended, well or
 * not: kvc_loaded says which. When a call has returned, or an op is done, whatever came of it,
 * nothing touches its pages any more. For that it waits, when the daemon has died, until its
 * process has ended; when the daemon lives and has ended the session, or does not answer, for 2 s.
 *
 * A daemon that is stopped meanwhile (SIGSTOP, a frozen cgroup, a paused machine) and goes on later
 * gives the device nothing more of such a request: before these 2 s begin the library raises a word
 * that both share, which the daemon looks at before each piece (8 MiB or less) of a copy and when
 * all has ended. What is left is what the device itself has then: what was handed to it before
 * (64 MiB at most), which takes it milliseconds, and the one piece that a thread of the daemon was
 * handing over, or an emulated device was copying, in the moment in which it was stopped. Such a
 * piece may still write to pages of a load. Of a store nothing is kept: a block whose bytes were
 * read after the word was raised is never one.
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

/* How blocks come into pages of frag_bytes (page_bytes of a pool's regions) the fastest, by what
 * the daemon measured of the nearest size:
 *
 *   KVC_COPY_ENGINE, KVC_COPY_KERNEL   kvc_pages_load: the daemon copies page by page
 *   KVC_COPY_WINDOW                    kvc_acquire_on, then kvc_gpu_load: blocks come in one piece,
 *                                      and the worker scatters them on its own stream
 *   KVC_COPY_UNKNOWN                   not measured yet
 *
 * The window when it is a quarter faster than the engine and no slower than the kernel: it needs
 * room in slots (hbm.devices), and the worker's own time. Where a block is in a slot already only
 * the scattering is left. `rate`: n rows of KVC_TABLE_RATES, of other devices too. Pure. */
KVC_API enum kvc_copy_path kvc_load_path(const struct kvc_device *device,
                                         const struct kvc_rate *rate, size_t n,
                                         uint32_t frag_bytes);

/* ---- the worker's side of a device ---- */

/* Streams. A `stream` below is a CUstream (a cudaStream_t is one): one that the worker has made,
 * the default stream (NULL or CU_STREAM_LEGACY: no batches of copies there, so copies of large
 * fragments cost the host more) or the thread's own default stream (CU_STREAM_PER_THREAD, which
 * PyTorch's may be). One that is being captured into a graph is refused with -EINVAL, and the
 * default stream while any is: blocks do not stay where a graph would look for them. Call before or
 * behind its launch. */

struct kvc_op;  /* async.h */
struct kvc_gpu; /* belongs to its session; close it before that */
struct kvc_mem; /* memory on the device that the daemon may be given; belongs to its kvc_gpu */

/* device: as kvc_device.device, "MIG-<uuid>", "cuda:<ordinal>", or "host"; once in a session. CUDA:
 * uses the primary context of that device (made current in each call and restored). -ENODEV (no
 * such device, no driver: kvc_last_error names the next step), -EINVAL, -ENOMEM. */
KVC_API KVC_MUST_USE int kvc_gpu_open(struct kvc *kvc, const char *device,
                                      struct kvc_gpu **ret_gpu);
/* Closes its pools and memories too. Accepts NULL. */
KVC_API void kvc_gpu_close(struct kvc_gpu **gpu);

/* Memory that can be exported whatever the device. *ret_addr: device address (emulated: a pointer).
 * -ENOMEM. */
KVC_API KVC_MUST_USE int kvc_mem_alloc(struct kvc_gpu *gpu, uint64_t bytes, void **ret_addr,
                                       struct kvc_mem **ret_mem);
/* Memory that the caller has (cudaMalloc, cuMemCreate with a descriptor handle, PyTorch): exported
 * as it is, and the caller's. -EOPNOTSUPP: it cannot be exported (the worker copies itself then:
 * kvc_gpu_load). */
KVC_API KVC_MUST_USE int kvc_mem_register(struct kvc_gpu *gpu, void *addr, uint64_t bytes,
                                          struct kvc_mem **ret_mem);
/* Not while a pool names it. kvc_mem_alloc's memory goes. Accepts NULL. */
KVC_API void kvc_mem_free(struct kvc_mem **mem);

/* Completion words, KVC_WORDS of them, shared with the daemon; NULL when down. They are the
 * caller's to share out; loads that are in flight at once need words of their own for `ready`. They
 * are zero after a reconnect: it is another page then, and what names words is a miss, or
 * KVC_E_DOWN, until this or kvc_gpu_signal was called again. The page before stays mapped, for
 * streams that still write to it. Values are below 2^63. */
KVC_API volatile uint64_t *kvc_gpu_words(struct kvc_gpu *gpu);
/* Behind what is on the stream (CUstream; NULL: the default one): word = value. Emulated: now. */
KVC_API KVC_MUST_USE int kvc_gpu_signal(struct kvc_gpu *gpu, void *stream, uint32_t word,
                                        uint64_t value);
/* What follows on the stream waits until word >= value. Emulated: the caller waits, for the
 * session's timeout at most (-ETIMEDOUT). Who waits for the `ready` of a load goes on when its op
 * is done, whatever came of it: the word is value + layers at least by then. */
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
    struct kvc_mem *mem; /* host: may be NULL, base is an address then */
    uint64_t base, stride_bytes, page_bytes;
    uint32_t layer; /* ascending */
};
struct kvc_pool_spec {
    uint32_t pages_max; /* page numbers are below it */
    uint32_t groups;    /* as in the namespaces that it serves */
    struct {
        uint32_t pages_per_block; /* block_tokens / tokens of a page */
        uint32_t regions;
        const struct kvc_pool_region *region; /* copied */
    } group[KVC_GROUPS_MAX];
};
/* In a list of page numbers: not there. Nothing is copied to it, and zeros are stored: for the
 * pages of a partly filled block that hold no token. Where the daemon copies (pools on devices)
 * only for whole blocks of kvc_put. */
#define KVC_NO_PAGE UINT32_MAX

struct kvc_pool;
/* KVC_E_BAD_ARGUMENT with what is wrong in kvc_last_error; KVC_E_TIER: the daemon has no such
 * device, or it is out; KVC_E_FULL: the device has no memory left to import it; KVC_E_LIMIT:
 * KVC_POOLS_MAX. */
KVC_API KVC_MUST_USE int kvc_pool_open(struct kvc_gpu *gpu, const struct kvc_pool_spec *spec,
                                       struct kvc_pool **ret_pool);
KVC_API void kvc_pool_close(struct kvc_pool **pool);

/* For fields of this type zero means: none. */
struct kvc_word {
    uint32_t word; /* number + 1 */
    uint64_t value;
};
struct kvc_pages_load {
    unsigned flags;                                /* KVC_F_WAIT, KVC_F_NO_LOAD, KVC_F_ALL */
    uint32_t from_tokens, wait_tokens, timeout_ms; /* as in kvc_acquire_options */
    struct kvc_word after;                         /* nothing is written before it */
    struct kvc_word ready; /* word = value + layers that are complete, as they come */
    /* pages_per_block numbers for each key of the group but its first from_tokens / block_tokens.
     */
    const uint32_t *pages[KVC_GROUPS_MAX];
};
struct kvc_loaded {
    struct kvc_prefix prefix; /* found */
    uint32_t tokens;          /* of it, in the pages: every block that these need has arrived */
    struct {
        uint32_t first, n;       /* blocks of the group for which there is a status */
        const uint8_t *statuses; /* KVC_ST_OK: in its pages. Borrowed until the pool's next call */
    } group[KVC_GROUPS_MAX];
};
/* The longest cached prefix of seq comes into the pages; what is on disk is loaded first. No hit,
 * no daemon, no device: 0 with nothing loaded. KVC_E_TOO_LARGE: more than 4,096 blocks; raise
 * from_tokens step by step. */
KVC_API KVC_MUST_USE int kvc_pages_load(struct kvc_ns *ns, const struct kvc_seq *seq,
                                        struct kvc_pool *pool, const struct kvc_pages_load *load,
                                        struct kvc_loaded *ret_loaded);
/* Blocks come from pages: pages_per_block numbers for each key of blocks->group. statuses as
 * kvc_store's. */
KVC_API KVC_MUST_USE int kvc_pages_store(struct kvc_ns *ns, const struct kvc_blocks *blocks,
                                         struct kvc_pool *pool, const uint32_t *pages,
                                         struct kvc_word after, const uint32_t *tokens,
                                         size_t ntokens, uint8_t *statuses);
/* In two halves; the pool's pages are the daemon's until kvc_finish (kvc_loaded: kvc_pages_loaded
 * of the op's pool, after it). kvc_cancel works as for stores. */
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

/* As kvc_acquire; blocks come onto the device first, as far as there is room. What is there already
 * is not loaded from storage into host memory. For each block of the hold (in the order of groups
 * and blocks) kvc_hold_device() has its device address, or NULL where it is in host memory alone:
 * kvc_block.data is that then, and NULL for one on the device.
 * Slots are for reading. A write to an emulated device's faults. CUDA's driver does not enforce
 * that between processes: a kernel that writes to a slot may change what other workers of the same
 * principal read there, and nobody notices; never another principal's.
 * -EOPNOTSUPP, -EINVAL, -EIO: this process cannot map the daemon's memory on the device. */
KVC_API KVC_MUST_USE int kvc_acquire_on(struct kvc_ns *ns, const struct kvc_seq *seq,
                                        struct kvc_gpu *gpu,
                                        const struct kvc_acquire_options *options,
                                        struct kvc_hold **ret_hold);
KVC_API const void *kvc_hold_device(const struct kvc_hold *hold, uint32_t group, uint32_t i);

/* A view of a block as a tensor, for DLPack (https://dmlc.github.io/dlpack): 1-D, uint8, of block i
 * of a group: on the device if it is there, else in host memory (an emulated device is kDLCPU).
 * Returns owned: its deleter, which any thread may call at any time, frees the view and no more, so
 * the hold must outlive it. The bytes are everybody's: writing faults. NULL: no memory, no block.
 *
 * From DLPack 1.0 on a view says so itself (READ_ONLY): the second, for consumers that ask for
 * max_version (numpy from 2.1 on, recent PyTorch; a capsule "dltensor_versioned"). The first is for
 * those that do not (a capsule "dltensor"). client/examples/dlpack.py makes both in Python. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;
KVC_API struct DLManagedTensor *kvc_hold_dlpack(const struct kvc_hold *hold, uint32_t group,
                                                uint32_t i);
KVC_API struct DLManagedTensorVersioned *kvc_hold_dlpack_versioned(const struct kvc_hold *hold,
                                                                   uint32_t group, uint32_t i);

/* ---- copies that the worker makes ---- */

/* Blocks of a hold to pages (KVC_NO_PAGE: passed over), on the worker's stream, from host memory or
 * the device: without the daemon, for memory that cannot be exported. Chunks of host memory are
 * registered with the driver at their first use. spec: as a pool's, whose regions' mem may be NULL
 * (base is an address then). pages[g]: pages_per_block for each of the hold's blocks. Emulated:
 * done when it returns. */
KVC_API KVC_MUST_USE int kvc_gpu_load(struct kvc_gpu *gpu, const struct kvc_hold *hold,
                                      const struct kvc_pool_spec *spec,
                                      const uint32_t *const pages[KVC_GROUPS_MAX], void *stream);
/* Pages to the staging area, n blocks at offsets[i]: kvc_store follows when the stream has come by.
 */
KVC_API KVC_MUST_USE int kvc_gpu_stage(struct kvc_gpu *gpu, const struct kvc_pool_spec *spec,
                                       uint32_t group, const uint32_t *pages, uint32_t n,
                                       const uint64_t *offsets, void *stream);

#ifdef __cplusplus
}
#endif
#endif
