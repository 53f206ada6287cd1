/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver interface that gpu_cuda.c and gpu_emu.c implement. All functions but `problem` run on
 * the device's own thread. They return 0 or -errno; -EIO: the device must be taken out.
 */
#ifndef KVC_IO_GPU_DRV_H
#define KVC_IO_GPU_DRV_H

#include "gpu.h"

struct gpu_dev; /* the implementation's */

#define GPU_DRV_FRAGS_MAX  4096u /* of one copy() */
#define GPU_DRV_COPIES_MAX 64u   /* tickets that poll() has not reported as ended */

/* Whether the memory was taken back. On any thread that has the operation. */
static inline bool gpu_is_revoked(struct gpu_revoke *r)
{
    if (r == NULL || r->word == NULL)
        return false;
    if (atomic_load_explicit(r->word, memory_order_acquire) != 0)
        atomic_store_explicit(&r->seen, true, memory_order_relaxed);
    return atomic_load_explicit(&r->seen, memory_order_relaxed);
}

struct gpu_dev_info {
    char name[GPU_NAME_BYTES];
    uint8_t uuid[GPU_UUID_BYTES];
    enum device_handle_kind exports;
    bool has_kernel;     /* GPU_PATH_KERNEL */
    bool mps;            /* shared with other processes by MPS */
    bool by_turns;       /* kernels of one process at a time, in time slices */
    uint64_t free_bytes; /* free memory when the device was opened */
};

struct gpu_drv {
    const char *name; /* "cuda", "emu" */
    /* NULL, or why no device can be opened here. Any thread. Static text. */
    const char *(*problem)(void);
    /* -ENODEV, -ENOMEM, -EIO with the reason in ret_why. */
    int (*open)(const struct gpu_config *config, struct gpu_dev **ret_dev,
                struct gpu_dev_info *ret_info, char ret_why[GPU_WHY_BYTES]) KVC_WARN_UNUSED;
    /* Call it when all memory was freed, or is void with the device. Copies run only after an
     * error; then it returns when nothing touches the memory of copies in flight any more. */
    void (*close)(struct gpu_dev *dev);
    /* The memory is all zero when *ret_ticket has ended (poll); *ret_ticket 0: it is now. Before
     * that the caller may only free it. Fewer than GPU_DRV_COPIES_MAX tickets are in use. */
    int (*alloc)(struct gpu_dev *dev, uint64_t bytes, struct gpu_mem *mem,
                 uint64_t *ret_ticket) KVC_WARN_UNUSED;
    int (*import)(struct gpu_dev *dev, const struct device_handle *handle,
                  struct gpu_mem *mem) KVC_WARN_UNUSED;
    void (*free)(struct gpu_dev *dev, struct gpu_mem *mem);
    int (*pin)(struct gpu_dev *dev, void *host, uint64_t bytes) KVC_WARN_UNUSED;
    void (*unpin)(struct gpu_dev *dev, void *host, uint64_t bytes);
    /* Begins a copy; *ret_ticket names it for poll, in ascending order. The fragments may be reused
     * after the return. `revoke` is borrowed until the ticket has ended; NULL: it is never revoked.
     * Once it is revoked, fragments that the hardware has not been given are left out, and the
     * ticket ends all the same. -EINVAL: a fragment is not in memory of the device; none was
     * copied. */
    int (*copy)(struct gpu_dev *dev, enum gpu_path path, enum gpu_direction direction,
                const struct kvc_frag *frag, uint32_t n, struct gpu_revoke *revoke,
                uint64_t *ret_ticket) KVC_WARN_UNUSED;
    /* 1: the ticket and all before it have ended; 0: not yet; negative: take the device out. */
    int (*poll)(struct gpu_dev *dev, uint64_t ticket) KVC_WARN_UNUSED;
    /* The last failure in words. */
    const char *(*why)(const struct gpu_dev *dev);
};

extern const struct gpu_drv gpu_drv_emu;
#ifdef KVC_HAVE_CUDA
extern const struct gpu_drv gpu_drv_cuda;
#endif

#endif
