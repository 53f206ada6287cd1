/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA device: finds it by its name and asks what it can do, allocates and imports memory on it,
 * and makes copies. For the daemon and the library; empty without CUDA.
 *
 * Functions return 0, or a negative errno, and then d->last says what failed. -ENOMEM: memory, or
 * another resource of the system, is exhausted. -EOPNOTSUPP: the device or the driver cannot do it.
 * -EINVAL, -ENODEV: see the function. -EIO: anything else; the context may be broken, and the
 * caller decides what to do about that.
 *
 * Threads: one at a time for each struct. A context of the device is current, except in
 * cuda_device_find().
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
/* The most bytes that one warp of the kernel copies at a time. Larger fragments are divided into
 * such pieces, so that all warps have work. */
#define CUDA_LIST_BYTES (32u << 10)

/* Lists of fragments in pinned memory, each for one launch of the kernel that copies them
 * (kernels/frags.cu). They are filled and launched in turn. */
struct cuda_lists {
    CUmodule module;
    CUfunction kernel;       /* NULL: the kernel does not run on this device */
    uint32_t n, at;          /* number of lists; the list that is being filled */
    uint32_t filled;         /* fragments in list `at` */
    struct kvc_frag *memory; /* of all lists */
    struct cuda_list {
        struct kvc_frag *frag; /* [CUDA_LIST_FRAGS] */
        uint64_t device_addr;  /* of `frag`, as the kernel sees it */
        CUevent read;          /* recorded behind the launch that reads the list */
        bool pending;          /* the list was launched, and `read` may be still to come */
    } list[CUDA_LISTS_MAX];
};

struct cuda_device {
    const struct cuda_api *cu;
    CUdevice id; /* its ordinal in this process */
    uint8_t uuid[DEVICE_UUID_BYTES];
    uint64_t memory_bytes;
    bool vmm; /* memory is shared as descriptors (virtual memory management); else by CUDA IPC */
    uint64_t granularity; /* VMM: sizes of memory are multiples of it */
    bool no_batch;        /* the driver has refused a batch of copies: no more are tried */
    struct cuda_lists lists;
    /* Why the last call failed. */
    struct cuda_failure {
        CUresult result; /* of the driver; CUDA_SUCCESS: this code refused, not the driver */
        char text[CUDA_TEXT_BYTES];
    } last;
};

/* ---- what the driver says (cuda_device.c) ---- */

/* The errno for the result of a driver's call: 0, -ENOMEM, -EOPNOTSUPP, -EIO. Sets d->last. */
__attribute__((warn_unused_result)) int cuda_check(struct cuda_device *d, const char *call,
                                                   CUresult r);
/* The same for calls before the device has a context: also -ENODEV, and never -EOPNOTSUPP. */
__attribute__((warn_unused_result)) int cuda_check_open(struct cuda_device *d, const char *call,
                                                        CUresult r);
/* This code refuses: returns `err` and sets the text of d->last. */
__attribute__((format(printf, 3, 4))) int cuda_refuse(struct cuda_device *d, int err,
                                                      const char *format, ...);

/* Finds the device of that name and fills *d, whose `cu` is set. `name` is of kind ORDINAL or UUID.
 * -ENODEV: there is none; -ENOMEM, -EIO. */
__attribute__((warn_unused_result)) int cuda_device_find(struct cuda_device *d,
                                                         const struct device_name *name);

/* ---- copies (cuda_copies.c) ---- */

/* Whether cuda_device_copy_batch() is worth trying. */
bool cuda_device_has_batch(const struct cuda_device *d);
/* cuda_copy_batch(). -EOPNOTSUPP: the driver does not do it for this device (virtual GPUs), though
 * it has the function. Nothing was copied then, and cuda_device_has_batch() is false from now on.
 */
__attribute__((warn_unused_result)) int cuda_device_copy_batch(struct cuda_device *d,
                                                               CUdeviceptr *to, CUdeviceptr *from,
                                                               size_t *bytes, size_t n,
                                                               CUstream stream);

/* Loads the kernel and makes `n` lists. After a failure cuda_lists_close() is needed, too.
 * -EOPNOTSUPP: device or driver take neither the kernel's image nor its PTX. */
__attribute__((warn_unused_result)) int cuda_lists_open(struct cuda_device *d, uint32_t n);
/* Waits for the launches, and frees lists and kernel. False: something could not be freed, and
 * d->last is the first failure. */
bool cuda_lists_close(struct cuda_device *d);
/* Call one of the two before the first cuda_lists_add() after a launch: the next list may still be
 * read by its last launch. The first waits for that launch; the second tells whether it has ended.
 */
__attribute__((warn_unused_result)) int cuda_lists_wait(struct cuda_device *d);
bool cuda_lists_is_free(struct cuda_device *d);
/* How many pieces of a list the fragment takes. */
uint64_t cuda_lists_pieces(const struct kvc_frag *frag);
/* Adds the fragment from its byte `at` on, as far as the list has room. Returns the byte up to
 * which it was added. */
uint64_t cuda_lists_add(struct cuda_device *d, const struct kvc_frag *frag, uint64_t at);
/* Launches the kernel for the list; does nothing if the list is empty. */
__attribute__((warn_unused_result)) int cuda_lists_launch(struct cuda_device *d, CUstream stream);

/* ---- memory (cuda_mem.c) ----
 *
 * After a failure *ret_range is the part that could not be undone, or nothing (kind 0). */

/* Allocates at least `bytes` of memory that can be exported. Its contents are undefined. */
__attribute__((warn_unused_result)) int cuda_mem_alloc(struct cuda_device *d, uint64_t bytes,
                                                       struct device_range *ret_range);
/* Exports the whole range. If the handle has a descriptor, *ret_handle owns it. */
__attribute__((warn_unused_result)) int cuda_mem_export(struct cuda_device *d,
                                                        const struct device_range *range,
                                                        struct device_handle *ret_handle);
/* Maps another process's memory. It begins at byte handle->offset of *ret_range. The descriptor is
 * borrowed. is_read_only: for reading only, if the driver can do that. -EINVAL: the memory is not
 * of this device, is shorter than the handle says, or a driver's call refused the handle. */
__attribute__((warn_unused_result)) int cuda_mem_import(struct cuda_device *d,
                                                        const struct device_handle *handle,
                                                        bool is_read_only,
                                                        struct device_range *ret_range);
/* Frees or unmaps the range. False: a part could not be undone and stays in *range, and d->last is
 * the first failure. */
bool cuda_mem_release(struct cuda_device *d, struct device_range *range);

#endif
#endif
