/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the CUDA device: device_cuda.c (opening, host memory, words),
 * device_cuda_mem.c (device memory), device_cuda_copy.c (copies). Empty without CUDA. Each call
 * makes the device's primary context current, and afterwards the context that was current before.
 */
#ifndef KVC_CLIENT_DEVICE_CUDA_PRIVATE_H
#define KVC_CLIENT_DEVICE_CUDA_PRIVATE_H
#ifdef KVC_HAVE_CUDA

#include "cuda_device.h"
#include "device__.h"

struct cuda {
    struct device dev; /* first */
    struct cuda_device gpu;
    CUcontext context;
    bool read_only_pins; /* read-only host memory can be registered */
    bool words;          /* streams write and await 64-bit words */
    bool one_address;    /* registered host memory has the same address on the device */

    bool kernel_tried; /* gpu.lists was opened; without a kernel the driver makes all copies */
};

static inline struct cuda *cuda__of(struct device *d)
{
    return (struct cuda *)(void *)d;
}
/* Make the device's context current before calls of the driver, and the one before it afterwards.
 * enter: 0, or -EIO with its text. */
__attribute__((warn_unused_result)) int cuda__enter(struct cuda *c);
void cuda__leave(struct cuda *c);
/* The same to free things. False: nothing was entered, because the driver must not be called in a
 * child of fork(), or failed. */
__attribute__((warn_unused_result)) bool cuda__enter_to_free(struct cuda *c);
/* Returns `rc`, the result of a function of gpu/, and keeps its text for kvc_last_error. */
__attribute__((warn_unused_result)) int cuda__said(struct cuda *c, int rc);
/* The same for the result of a call of the driver: 0, or -ENOMEM, -EOPNOTSUPP, -EIO. */
__attribute__((warn_unused_result)) int cuda__check(struct cuda *c, const char *call, CUresult r);

__attribute__((warn_unused_result)) int cuda__alloc(struct device *d, uint64_t bytes,
                                                    struct device_mem *ret_mem);
__attribute__((warn_unused_result)) int cuda__wrap(struct device *d, void *addr, uint64_t bytes,
                                                   struct device_mem *ret_mem);
__attribute__((warn_unused_result)) int cuda__export(struct device *d, const struct device_mem *mem,
                                                     struct device_handle *ret_handle);
__attribute__((warn_unused_result)) int
cuda__import(struct device *d, const struct device_handle *handle, struct device_mem *ret_mem);
void cuda__free(struct device *d, struct device_mem *mem);

__attribute__((warn_unused_result)) int cuda__copy(struct device *d, enum device_way way,
                                                   const struct kvc_frag *frag, uint32_t n,
                                                   bool is_pinned, void *stream);
/* Closes gpu.lists. The context is current. */
void cuda__copy_close(struct cuda *c);

#endif
#endif
