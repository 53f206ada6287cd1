/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gpu.c needs of a device: gpu_cuda.c and gpu_emu.c. All functions run on the device's own
 * thread, but for `problem`. Returns 0 or -errno; -EIO: the device is to be taken out.
 */
#ifndef KVC_IO_GPU_DRV_H
#define KVC_IO_GPU_DRV_H

#include "gpu.h"

struct gpu_dev; /* the implementation's */

#define GPU_DRV_FRAGS_MAX  4096u /* of one copy() */
#define GPU_DRV_COPIES_MAX 64u   /* begun, and poll() has not said yet that they have ended */

/* Any thread that has the operation. */
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
    uint64_t free_bytes; /* of its memory, when it was opened */
};

struct gpu_drv {
    const char *name; /* "cuda", "emu" */
    /* NULL, or why no device can be opened here. Any thread. Static text. */
    const char *(*problem)(void);
    /* -ENODEV, -ENOMEM, -EIO with the reason in ret_why. */
    int (*open)(const struct gpu_config *config, struct gpu_dev **ret_dev,
                struct gpu_dev_info *ret_info, char ret_why[GPU_WHY_BYTES]) KVC_WARN_UNUSED;
    /* All memory has been freed, or is void with the device. Nothing runs, but after a negative
     * answer: then it returns only when nothing touches any memory of copies in flight. */
    void (*close)(struct gpu_dev *dev);
    /* It is all zero when *ret_ticket has ended (poll; 0: it is), and nothing else is done with it
     * before that but free(). Fewer than GPU_DRV_COPIES_MAX have begun. */
    int (*alloc)(struct gpu_dev *dev, uint64_t bytes, struct gpu_mem *mem,
                 uint64_t *ret_ticket) KVC_WARN_UNUSED;
    int (*import)(struct gpu_dev *dev, const struct device_handle *handle,
                  struct gpu_mem *mem) KVC_WARN_UNUSED;
    void (*free)(struct gpu_dev *dev, struct gpu_mem *mem);
    int (*pin)(struct gpu_dev *dev, void *host, uint64_t bytes) KVC_WARN_UNUSED;
    void (*unpin)(struct gpu_dev *dev, void *host, uint64_t bytes);
    /* Begins to copy; *ret_ticket names it for poll, ascending. The fragments may be reused after
     * the return. Once it is revoked (borrowed until it has ended; NULL: it never is) what the
     * hardware has not been given is left out, and the ticket ends all the same. -EINVAL: one is
     * not in memory of the device; none was copied. */
    int (*copy)(struct gpu_dev *dev, enum gpu_path path, enum gpu_direction direction,
                const struct kvc_frag *frag, uint32_t n, struct gpu_revoke *revoke,
                uint64_t *ret_ticket) KVC_WARN_UNUSED;
    /* 1: it and all before it have ended; 0: not yet; negative: the device is to be taken out. */
    int (*poll)(struct gpu_dev *dev, uint64_t ticket) KVC_WARN_UNUSED;
    /* The last failure in words. */
    const char *(*why)(const struct gpu_dev *dev);
};

extern const struct gpu_drv gpu_drv_emu;
#ifdef KVC_HAVE_CUDA
extern const struct gpu_drv gpu_drv_cuda;
#endif

#endif
