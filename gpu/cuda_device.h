/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA device: which one a name means, what it can, memory on it, and what copies need. For the
 * daemon and the library; empty without CUDA.
 *
 * Functions return 0, or a negative errno with d->last: -ENOMEM when memory, or what else the
 * system gives, is out; -EOPNOTSUPP when the device or the driver cannot; -EINVAL and -ENODEV where
 * it is said; -EIO for the rest, after which the context may be broken. What that means is the
 * caller's to decide.
 *
 * Threads: one at a time for each struct; all but cuda_device_find() with a context of the device
 * current.
 */
#ifndef KVC_GPU_CUDA_DEVICE_H
#define KVC_GPU_CUDA_DEVICE_H
#ifdef KVC_HAVE_CUDA

#include <kvcache/kernels.h>

#include "cuda_driver.h"
#include "device_handle.h"
#include "device_name.h"
#include "device_range.h"

#define CUDA_LISTS_MAX  16u
#define CUDA_LIST_FRAGS 4096u
/* What one warp of the kernel copies at a time: larger fragments are divided, so that all warps
 * have work. */
#define CUDA_LIST_BYTES (32u << 10)

/* Lists of fragments in pinned memory, each for one launch of the kernel that copies them
 * (kernels/frags.cu). They are filled and launched in turn. */
struct cuda_lists {
    CUmodule module;
    CUfunction kernel; /* NULL: it does not run here */
    uint32_t n, at;    /* lists; the one to be filled */
    uint32_t filled;   /* fragments in it */
    struct kvc_frag *memory;
    struct cuda_list {
        struct kvc_frag *frag; /* [CUDA_LIST_FRAGS] */
        uint64_t device_addr;
        CUevent read; /* the launch has ended */
        bool pending;
    } list[CUDA_LISTS_MAX];
};

struct cuda_device {
    const struct cuda_api *cu;
    CUdevice id; /* its ordinal in this process */
    uint8_t uuid[DEVICE_UUID_BYTES];
    uint64_t memory_bytes;
    bool vmm;             /* memory passes between processes as descriptors, else by CUDA IPC */
    uint64_t granularity; /* of VMM */
    bool no_batch;        /* the driver has refused one */
    struct cuda_lists lists;
    struct cuda_failure {
        CUresult result; /* of the driver; CUDA_SUCCESS: these functions refused */
        char text[CUDA_TEXT_BYTES];
    } last;
};

/* ---- what the driver says (cuda_device.c) ---- */

/* What a call has returned: 0, -ENOMEM, -EOPNOTSUPP, -EIO. */
__attribute__((warn_unused_result)) int cuda_check(struct cuda_device *d, const char *call,
                                                   CUresult r);
/* The same before there is a context that could break: also -ENODEV, and never -EOPNOTSUPP. */
__attribute__((warn_unused_result)) int cuda_check_open(struct cuda_device *d, const char *call,
                                                        CUresult r);
/* A refusal of our own: err, with the text. */
__attribute__((format(printf, 3, 4))) int cuda_refuse(struct cuda_device *d, int err,
                                                      const char *format, ...);

/* d->cu is set; fills the rest. `name` is of kind ORDINAL or UUID. -ENODEV, -ENOMEM, -EIO. */
__attribute__((warn_unused_result)) int cuda_device_find(struct cuda_device *d,
                                                         const struct device_name *name);

/* ---- copies (cuda_copies.c) ---- */

/* Whether cuda_device_copy_batch() may work. */
bool cuda_device_has_batch(const struct cuda_device *d);
/* cuda_copy_batch(). -EOPNOTSUPP: a driver has the function, and yet may not do it for this device
 * (virtual GPUs): it says so before it copies anything, and is not asked again. */
__attribute__((warn_unused_result)) int cuda_device_copy_batch(struct cuda_device *d,
                                                               CUdeviceptr *to, CUdeviceptr *from,
                                                               size_t *bytes, size_t n,
                                                               CUstream stream);

/* Kernel and `n` lists. What there is after a failure is closed as well. -EOPNOTSUPP: a device or a
 * driver that takes neither the kernel's image nor its PTX. */
__attribute__((warn_unused_result)) int cuda_lists_open(struct cuda_device *d, uint32_t n);
/* Waits for what is read. Whether nothing is left; else the failure is the first one. */
bool cuda_lists_close(struct cuda_device *d);
/* Before the first cuda_lists_add() behind a launch: the list is waited for, or whether it is free
 * now. */
__attribute__((warn_unused_result)) int cuda_lists_wait(struct cuda_device *d);
bool cuda_lists_is_free(struct cuda_device *d);
/* So many pieces the fragment makes in a list. */
uint64_t cuda_lists_pieces(const struct kvc_frag *frag);
/* Adds the fragment from its byte `at` on, as far as there is room: up to which byte. */
uint64_t cuda_lists_add(struct cuda_device *d, const struct kvc_frag *frag, uint64_t at);
/* Copies what was added, if anything was. */
__attribute__((warn_unused_result)) int cuda_lists_launch(struct cuda_device *d, CUstream stream);

/* ---- memory (cuda_mem.c) ----
 *
 * After a failure *ret_range is what could not be undone of it, or nothing (kind 0). */

/* Memory that can be exported, at least `bytes`, with whatever it had in it before. */
__attribute__((warn_unused_result)) int cuda_mem_alloc(struct cuda_device *d, uint64_t bytes,
                                                       struct device_range *ret_range);
/* All of the range. *ret_handle owns the descriptor, where it is one. */
__attribute__((warn_unused_result)) int cuda_mem_export(struct cuda_device *d,
                                                        const struct device_range *range,
                                                        struct device_handle *ret_handle);
/* The memory that the handle means begins `offset` of it into the range. Its descriptor is
 * borrowed. For reading alone where the driver knows such memory. -EINVAL: refused; not of this
 * device, or not as long as the handle says; or a call that took the handle failed. */
__attribute__((warn_unused_result)) int cuda_mem_import(struct cuda_device *d,
                                                        const struct device_handle *handle,
                                                        bool is_read_only,
                                                        struct device_range *ret_range);
/* Undoes as much as can be, and takes it out of *range: whether nothing is left. Else the failure
 * is the first one. */
bool cuda_mem_release(struct cuda_device *d, struct device_range *range);

#endif
#endif
